"""Every column of a file that somebody else wrote, compared with pyarrow; prints what became of each as JSON.

Run as a process of its own: a file may do anything.
"""

import json
import math
import resource
import sys
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import tensorstash as ts
from tests.oracle_load import exact

MOST = 2 << 30  # bytes of memory that a file may take, with those of the libraries
ENDINGS = (".parquet", ".pq", ".arrow", ".feather", ".ipc", ".arrows", ".encrypted")
WHOLE = (".parquet", ".pq", ".encrypted")


def read(path: Path, name: str | None) -> pa.Table:
    """A column as pyarrow reads it, or a table without rows with all of them."""
    if path.name.endswith(WHOLE):
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            if name is None:
                return file.schema_arrow.empty_table()
            table = file.read(columns=[name])
        with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:  # INT96 alone; in nanoseconds it may wrap
            exact_times = file.read(columns=[name])
        try:
            return table if exact_times.schema == table.schema else exact_times.cast(table.schema)
        except pa.ArrowInvalid:
            return exact_times
    with pa.OSFile(str(path)) as opened:
        is_file = opened.read(6) == b"ARROW1"
        opened.seek(0)
        table = (pa.ipc.open_file(opened) if is_file else pa.ipc.open_stream(opened)).read_all()
    table.validate(full=True)
    return table.slice(0, 0) if name is None else table.select([name])


def leaves(field: pa.Field, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The column, and the paths of its fields if it is a struct."""
    path = (*before, field.name)
    yield path
    if pa.types.is_struct(field.type):
        for k in range(field.type.num_fields):
            yield from leaves(field.type.field(k), path)


def plain(array: pa.Array) -> list[Any]:
    """The rows that a stash must hold, in Python; `None` where there is no value."""
    if isinstance(array.type, pa.BaseExtensionType):
        return plain(array.storage)
    if pa.types.is_dictionary(array.type):
        return plain(array.dictionary_decode())
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type) or pa.types.is_fixed_size_list(array.type):
        return [None if one.as_py() is None else plain(one.values) for one in array]
    if pa.types.is_date64(array.type):
        array = array.cast(pa.date32())
    if pa.types.is_temporal(array.type):
        array = array.cast(pa.int32() if array.type.bit_width == 32 else pa.int64())
    return [_number(value) for value in array.to_pylist()]


def _number(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    return list(value) if isinstance(value, bytes) else value


def filled(value: Any, fill: Any) -> Any:
    """A value with the fill in place of what is missing."""
    if isinstance(value, list):
        return [filled(item, fill) for item in value]
    return fill if value is None else value


def loaded(source: Path, name: str, fill: Any) -> tuple[list[Any], Any]:
    """The rows that a stash holds, and what stands for a missing value."""
    stash = ts.load(source, {"x": ts.column(name, fill=fill)}, progress=False)
    rows: list[Any] = stash["x"].tolist()
    if stash.about("x").kind == "category":
        names = stash.vocabulary("x")
        return [None if code < 0 else names[code] for code in rows], None
    stored = fill if fill is None else stash["x"].new_tensor(fill).item()
    return rows, math.nan if stored is None else stored


def judge(source: Path, name: str, array: pa.Array | None) -> str:
    """What became of a column: "equal", "refused", "damaged", or what is wrong; `array` is what pyarrow reads."""
    for fill in (None, 0):
        try:
            rows, missing = loaded(source, name, fill)
        except ts.errors.TensorstashError as error:
            text = str(error)
            if isinstance(error, ts.errors.DataError) and "counts as data: ts.column(" in text and fill is None:
                continue
            return _refusal(error, text, source, name, array)
        if array is None:
            return "wrong: pyarrow cannot read it"
        return "equal" if exact(rows, filled(plain(array), missing)) else "wrong: other values"
    return "wrong: nulls are refused with fill="


def _refusal(error: Exception, text: str, source: Path, name: str, array: pa.Array | None) -> str:
    if isinstance(error, ts.errors.SourceError):
        may_be = array is None or "damaged" in text  # pyarrow does not compare the counts of rows
        return "damaged" if may_be and source.name in text else f"wrong: {text}"
    # the text of a map differs by the names of its inner fields
    types = [] if array is None else [str(array.type).split("<")[0], str(getattr(array.type, "storage_type", ""))]
    has_type = isinstance(error, ts.errors.DataError) or array is None or any(one and one in text for one in types)
    has_type |= array is not None and pa.types.is_dictionary(array.type) and str(array.type.value_type) in text
    if not has_type and name in (schema := read(source, None).schema).names:
        extension = (schema.field(name).metadata or {}).get(b"ARROW:extension:name", b"")
        has_type = extension != b"" and extension.decode() in text
    has_remedy = text.rstrip(".").count(". ") > 0
    return "refused" if repr(name) in text and has_type and has_remedy else f"wrong: {type(error).__name__}: {text}"


def verdicts(path: Path, directory: Path) -> Iterator[tuple[str, str]]:
    """The verdict on each column, read from the file and from an Arrow file with the same column."""
    try:
        schema = read(path, None).schema
    except (pa.ArrowException, OSError, ValueError, NotImplementedError):
        yield "", judge(path, "x", None)
        return
    for number, field in enumerate(schema):
        try:
            table: Any = read(path, field.name)
        except (pa.ArrowException, OSError, ValueError, NotImplementedError):
            table = None
        copy = directory / f"{number}.arrow"
        if table is not None:
            with pa.ipc.new_file(copy, table.schema, options=pa.ipc.IpcWriteOptions(unify_dictionaries=True)) as writer:
                writer.write_table(table)
        for one, *inside in leaves(field):
            array = None if table is None else pa.concat_arrays(table.column(0).chunks or [pa.nulls(0, field.type)])
            for step in inside if array is not None else ():
                array = pc.struct_field(array, step)
            name = ".".join((one, *inside))
            yield name, judge(path, name, array)
            if array is not None:
                yield f"{name} in Arrow", judge(copy, name, array)


def main(path: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        found = list(verdicts(path, Path(directory)))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sys.stdout.write(json.dumps({"verdicts": found, "peak": peak}))


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_DATA, (MOST, MOST))
    main(Path(sys.argv[1]))
