"""Every source as one scan: a schema, a number of rows, and units of work that yield Arrow record batches."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from tensorstash.columns.types import BFLOAT16
from tensorstash.errors import SchemaError, SourceError
from tensorstash.sources.files import BATCH_ROWS, scan_files
from tensorstash.sources.filter import Filter
from tensorstash.sources.locate import File, label_of_paths
from tensorstash.sources.scan import Read, Scan, Unit, Wanted


def scan(
    source: Any, files: Sequence[File] | None, wanted: Wanted, condition: Filter | None, progress: bool | None
) -> Scan:
    """Look at a source: its `files`, or what it holds in memory: a frame, a table, or a mapping of arrays.

    Only the columns `wanted` of a frame or mapping are converted to Arrow. Of files, the row groups that statistics
    exclude under the condition are left out, and no other rows.
    """
    if files is not None:
        return scan_files(files, label_of_paths(source), wanted, condition, progress)
    kind = f"{type(source).__module__.split('.')[0]}.{type(source).__name__}"
    look = _KINDS.get(kind, _scan_mapping if isinstance(source, Mapping) and kind not in _REMEDIES else None)
    if look is not None:
        return look(source, wanted)
    raise TypeError(
        "A source is a path, a glob, a directory, a URL, a list of them, a polars or pandas DataFrame, a pyarrow Table "
        "or RecordBatch, a Hugging Face Dataset, or a mapping of arrays; got "
        f"{type(source).__module__}.{type(source).__name__}.{_REMEDIES.get(kind, '')}"
    )


def _scan_arrow(table: Any, wanted: Wanted) -> Scan:  # noqa: ARG001  a column that is not read costs nothing
    label = f"the pyarrow {type(table).__name__}"
    whole = pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table
    return _scan_table(whole, whole.schema, label)


def _scan_mapping(source: Mapping[Any, Any], wanted: Wanted) -> Scan:
    names = _texts(source, "the mapping")
    table = _table_of_arrays({name: source[name] for name in wanted.among(names)})
    return _scan_table(table, _with_unwanted(table, names), "the mapping")


def _scan_polars(frame: Any, wanted: Wanted) -> Scan:
    kept = frame.select(wanted.among(frame.columns)).to_arrow()
    return _scan_table(kept, _with_unwanted(kept, frame.columns), "the polars frame")


def _scan_dataset(source: Any, wanted: Wanted) -> Scan:  # noqa: ARG001  only what is read is looked at
    """A Hugging Face data set: slices of its Arrow table, in the order that `shuffle` or `select` gave it."""

    def read(start: int, rows: int, names: Sequence[str]) -> list[pa.RecordBatch]:
        view = source.select_columns(list(names)).with_format("arrow")
        return view[start : start + rows].select(list(names)).to_batches()

    label, count = "the Hugging Face Dataset", len(source)
    starts = range(0, count, BATCH_ROWS)
    lengths = [min(BATCH_ROWS, count - start) for start in starts]
    units = tuple(Unit(label, start, rows, partial(read, start, rows), start) for start, rows in zip(starts, lengths))
    return Scan(label, source.features.arrow_schema, units, len(units))


def _scan_pandas(frame: Any, wanted: Wanted) -> Scan:
    """The columns and the named levels of the index."""
    levels = [name for name in frame.index.names if name is not None and name not in frame.columns]
    if levels:
        frame = frame.reset_index(level=levels)
    names = _texts(frame.columns, "the pandas frame")
    twice = {name for name in wanted.among(names) if names.count(name) > 1}
    if twice:
        raise SchemaError(f"Column names must be unique; the pandas frame has {sorted(twice)} twice. Rename them.")
    table = pa.Table.from_pandas(frame[wanted.among(names)], preserve_index=False)
    return _scan_table(table, _with_unwanted(table, names), "the pandas frame")


def _texts(names: Iterable[Any], where: str) -> list[str]:
    for name in names:
        if not isinstance(name, str):
            raise SchemaError(f"Column names are texts; {where} has the {type(name).__name__} {name!r}. Rename it.")
    return [*names]


_KINDS: dict[str, Callable[[Any, Wanted], Scan]] = {
    "pyarrow.Table": _scan_arrow,
    "pyarrow.RecordBatch": _scan_arrow,
    "polars.DataFrame": _scan_polars,
    "pandas.DataFrame": _scan_pandas,
    "datasets.Dataset": _scan_dataset,
}
_REMEDIES = {
    "polars.LazyFrame": " Call .collect() first.",
    "pyarrow.RecordBatchReader": " It can be read only once: call .read_all() first.",
    "datasets.DatasetDict": " Choose one of its splits.",
    "datasets.IterableDataset": " Load it without streaming=True.",
}


# Memory


def _scan_table(table: pa.Table, schema: pa.Schema, label: str) -> Scan:
    batches = table.to_batches(max_chunksize=BATCH_ROWS)
    starts = accumulate((batch.num_rows for batch in batches), initial=0)
    units = (Unit(label, start, batch.num_rows, _selector(batch), start) for batch, start in zip(batches, starts))
    return Scan(label, schema, tuple(units), len(batches))


def _with_unwanted(table: pa.Table, names: Iterable[str]) -> pa.Schema:
    """The schema of a table, and of the columns that nobody wanted and that were not converted."""
    known = set(table.column_names)
    return pa.schema(table.schema.field(name) if name in known else pa.field(name, pa.null()) for name in names)


def _selector(batch: pa.RecordBatch) -> Read:
    return lambda names: [batch.select(list(names))]


def _table_of_arrays(arrays: Mapping[str, Any]) -> pa.Table:
    columns, fields = [], []
    for name, values in arrays.items():
        try:
            array, metadata = _arrow_of(values)
        except (pa.ArrowException, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise SchemaError(
                f"A column is an array or a list of values of one type; {name!r} is not: {error}"
            ) from error
        columns.append(array)
        fields.append(pa.field(name, array.type, metadata=metadata))
    lengths = {field.name: len(array) for field, array in zip(fields, columns)}
    if len(set(lengths.values())) > 1:
        raise SourceError(f"All arrays of a source have one length; got {lengths}.")
    return pa.table(columns, schema=pa.schema(fields))


def _arrow_of(values: Any) -> tuple[pa.Array, dict[bytes, bytes] | None]:
    """An array or tensor as Arrow; trailing dimensions become fixed-size lists."""
    metadata = None
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        if values.dtype == torch.bfloat16:
            values, metadata = values.view(torch.uint16), BFLOAT16
        values = values.numpy()
    if not isinstance(values, np.ndarray):
        return pa.array(values), metadata
    mask = np.ma.getmaskarray(values).reshape(-1) if isinstance(values, np.ma.MaskedArray) else None
    plain = np.ascontiguousarray(np.ma.getdata(values)).reshape(-1)
    if not plain.dtype.isnative:
        plain = plain.astype(plain.dtype.newbyteorder("="))
    array = pa.array(plain, mask=mask)
    for size in reversed(values.shape[1:]):
        array = pa.FixedSizeListArray.from_arrays(array, size)
    return array, metadata
