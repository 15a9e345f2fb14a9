"""Any source as a scan: its type says whether it is paths, a table, a frame or a mapping of arrays."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tensorstash.columns.schema import Type
from tensorstash.sources.arrays import scan_arrays
from tensorstash.sources.datasets import scan_pyarrow_dataset
from tensorstash.sources.file import File
from tensorstash.sources.files import check_no_schema, scan_files
from tensorstash.sources.filter import Filter
from tensorstash.sources.locate import label_of_paths
from tensorstash.sources.scan import Scan, Wanted
from tensorstash.sources.streams import is_stream, scan_stream
from tensorstash.sources.tables import scan_arrow, scan_dataset, scan_pandas, scan_polars

# by the names of the types, so that no library is imported to compare with them
_SCANS: dict[str, Callable[[Any, Wanted], Scan]] = {
    "pyarrow.Table": scan_arrow,
    "pyarrow.RecordBatch": scan_arrow,
    "polars.DataFrame": scan_polars,
    "pandas.DataFrame": scan_pandas,
    "datasets.Dataset": scan_dataset,
}
_STREAMS: dict[str, Callable[[Any, Wanted, Filter | None], Scan]] = {
    "pyarrow.FileSystemDataset": scan_pyarrow_dataset,
    "pyarrow.UnionDataset": scan_pyarrow_dataset,
    "pyarrow.InMemoryDataset": scan_stream,
    "pyarrow.Scanner": scan_stream,
    "polars.LazyFrame": scan_stream,
    "ray.Dataset": scan_stream,
    "ray.MaterializedDataset": scan_stream,
}
_REMEDIES = {
    "datasets.DatasetDict": " Choose one of its splits.",
    "datasets.IterableDataset": " Load it without streaming=True.",
    "builtins.list": " Concatenate frames first; files are a list of paths.",
    "numpy.ndarray": " Give it a name: {'x': array}.",
    "polars.Series": " Load series.to_frame().",
    "_duckdb.DuckDBPyConnection": " Load a relation: connection.sql('from ...').",
}


def is_table(source: object) -> bool:
    """Whether a source is a frame or table that can be read more than once; a mapping is not one."""
    return _kind(source) in (*_SCANS, "polars.LazyFrame")


def scan(
    source: Any,
    files: Sequence[File] | None,
    wanted: Wanted,
    condition: Filter | None,
    progress: bool | None,
    *,
    schema: Mapping[str, Type],
) -> Scan:
    """Scan a source: its `files`, or what it holds in memory, which is a frame, a table or a mapping of arrays.

    A stream is read to its end, into a file on disk. `schema` gives the types of CSV columns. Only the `wanted` columns
    of a frame or mapping are converted to Arrow. Row groups of files are left out if their statistics contradict the
    condition; all other rows are kept.
    """
    if files is not None:
        return scan_files(files, label_of_paths(source), wanted, condition, progress, schema=schema)
    check_no_schema(schema, f"a {type(source).__name__}")
    kind = _kind(source)
    look = _SCANS.get(kind, scan_arrays if isinstance(source, Mapping) and kind not in _REMEDIES else None)
    if look is not None:
        return look(source, wanted)
    if kind in _STREAMS or (kind not in _REMEDIES and is_stream(source)):
        return _STREAMS.get(kind, scan_stream)(source, wanted, condition)
    raise TypeError(
        "A source is a path, a glob, a directory, a URL, a list of them, a polars or pandas DataFrame, a pyarrow Table "
        "or RecordBatch, a Hugging Face Dataset, anything with __arrow_c_stream__, or a mapping of arrays; got "
        f"{type(source).__module__}.{type(source).__name__}.{_REMEDIES.get(kind, '')}"
    )


def _kind(source: object) -> str:
    return f"{type(source).__module__.split('.')[0]}.{type(source).__name__}"
