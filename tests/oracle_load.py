"""What a stash must hold, worked out row by row in plain Python, and the sources that are compared with it."""

import math
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import torch

import tensorstash as ts
from tests import processes

# Kinds: the ways in which a column can stand in a source


@dataclass(frozen=True, slots=True)
class Kind:
    """An Arrow type, and how a stash must hold it."""

    name: str
    arrow: pa.DataType
    dtype: torch.dtype
    kind: str = "number"
    shape: tuple[int, ...] = ()
    unit: str | None = None
    zone: str | None = None
    parquet: bool = True  # Parquet gives the type back as it was written
    polars: bool = True  # and so does polars

    @property
    def floating(self) -> bool:
        return self.dtype.is_floating_point


_TEXT: list[tuple[str, pa.DataType]] = [
    ("string", pa.string()),
    ("large_string", pa.large_string()),
    ("string_view", pa.string_view()),
    ("dictionary", pa.dictionary(pa.int32(), pa.string())),
    ("dictionary_of_large_string", pa.dictionary(pa.uint32(), pa.large_string())),
    ("small_dictionary", pa.dictionary(pa.int8(), pa.string())),
]
NUMBERS = [
    Kind("bool", pa.bool_(), torch.bool),
    Kind("int8", pa.int8(), torch.int8),
    Kind("int16", pa.int16(), torch.int16),
    Kind("int32", pa.int32(), torch.int32),
    Kind("int64", pa.int64(), torch.int64),
    Kind("uint8", pa.uint8(), torch.uint8),
    Kind("uint16", pa.uint16(), torch.uint16),
    Kind("uint32", pa.uint32(), torch.uint32),
    Kind("uint64", pa.uint64(), torch.uint64),
    Kind("float16", pa.float16(), torch.float16),
    Kind("float32", pa.float32(), torch.float32),
    Kind("float64", pa.float64(), torch.float64),
]
TEXTS = [Kind(name, arrow, torch.int32, "category") for name, arrow in _TEXT] + [
    Kind(
        "dictionary_of_string_view",
        pa.dictionary(pa.int32(), pa.string_view()),
        torch.int32,
        "category",
        parquet=False,
    ),
]
STAMPS = [
    Kind(
        f"timestamp_{unit}_{zone}",
        pa.timestamp(unit, zone),
        torch.int64,
        "timestamp",
        unit=unit,
        zone=zone,
        parquet=unit != "s",
        polars=unit != "s",
    )
    for unit in ("s", "ms", "us", "ns")
    for zone in (None, "America/New_York")
]
DATES = [
    Kind("date32", pa.date32(), torch.int64, "date", unit="d"),
    Kind("date64", pa.date64(), torch.int64, "date", unit="d", polars=False),
]
TIMES = [
    *STAMPS,
    *DATES,
    Kind("duration_s", pa.duration("s"), torch.int64, "duration", unit="s", polars=False),
    Kind("duration_us", pa.duration("us"), torch.int64, "duration", unit="us"),
    Kind("time32_s", pa.time32("s"), torch.int64, "time", unit="s", parquet=False, polars=False),
    Kind("time32_ms", pa.time32("ms"), torch.int64, "time", unit="ms", polars=False),
    Kind("time64_us", pa.time64("us"), torch.int64, "time", unit="us", polars=False),
    Kind("time64_ns", pa.time64("ns"), torch.int64, "time", unit="ns"),
]
LISTS = [
    Kind("list_of_float32", pa.list_(pa.float32(), 3), torch.float32, shape=(3,)),
    Kind("list_of_uint8", pa.list_(pa.uint8(), 1), torch.uint8, shape=(1,)),
    Kind("list_of_bool", pa.list_(pa.bool_(), 2), torch.bool, shape=(2,)),
    Kind("list_of_lists", pa.list_(pa.list_(pa.int64(), 3), 2), torch.int64, shape=(2, 3)),
]
OTHERS = [
    Kind("bfloat16", pa.float32(), torch.bfloat16, polars=False),
    Kind("dictionary_of_int64", pa.dictionary(pa.int32(), pa.int64()), torch.int64),
]
KINDS = [*NUMBERS, *TEXTS, *TIMES, *LISTS, *OTHERS]


def kind_of(name: str) -> Kind:
    return next(kind for kind in KINDS if kind.name == name)


def value(kind: Kind, column: int, row: int) -> Any:
    """The value that stands in a cell: it tells the column and the row, as far as the type can hold them."""
    return _nested(kind, kind.shape, column * 1000 + row)


def _nested(kind: Kind, shape: tuple[int, ...], code: int) -> Any:
    if shape:
        return [_nested(kind, shape[1:], code * shape[0] + k) for k in range(shape[0])]
    if kind.kind == "category":
        return f"{'Zü' * (code % 2)}{code // 1000}.{code % 7}"
    if kind.kind in ("date", "time"):
        return code
    if kind.kind in ("timestamp", "duration"):
        return (1_600_000_000 if code % 2 else -1_000) * (1 if kind.unit == "s" else 1000) + code
    if kind.dtype == torch.bool:
        return code.bit_count() % 2 == 1
    if kind.floating:
        exact: dict[torch.dtype, float] = {
            torch.bfloat16: code % 256,
            torch.float16: code % 2048,
            torch.float32: code + 0.5,
            torch.float64: code + 1 / 3,
        }
        return float(exact[kind.dtype])
    low, high = torch.iinfo(kind.dtype).min, torch.iinfo(kind.dtype).max
    return low + code % (high - low + 1) if code % 2 else high - code % (high - low + 1)


def arrow_array(kind: Kind, values: Sequence[Any]) -> pa.Array:
    """The values as the kind's Arrow type; `None` is a null."""
    if pa.types.is_dictionary(kind.arrow):
        # backwards and with a name that no row uses, so that neither order nor presence may be taken from it
        unused: Any = "unused" if kind.kind == "category" else 0
        names = [unused, *dict.fromkeys(v for v in reversed(values) if v is not None and v != unused)]
        codes = [None if v is None else names.index(v) for v in values]
        indices = pa.array(codes, kind.arrow.index_type)
        return pa.DictionaryArray.from_arrays(indices, pa.array(names, kind.arrow.value_type))
    if kind.name == "date64":
        return pa.array([None if v is None else v * 86_400_000 for v in values], kind.arrow)
    return pa.array(values, kind.arrow)


def arrow_field(name: str, kind: Kind) -> pa.Field:
    metadata = {"tensorstash.dtype": "bfloat16"} if kind.dtype == torch.bfloat16 else None
    return pa.field(name, kind.arrow, metadata=metadata)


# Cases: a table, and what a stash of it must hold


@dataclass(frozen=True, slots=True)
class Held:
    """One column: what stands in the source, and what a stash must hold, in the order of the source."""

    kind: Kind
    source: list[Any]  # None is a null
    fill: Any = None

    @property
    def stored(self) -> list[Any]:
        """Value by value; a missing text is None."""
        return [self._stored(v) for v in self.source]

    def _stored(self, v: Any) -> Any:
        if isinstance(v, list):
            return [self._stored(item) for item in v]
        if v is not None and not (isinstance(v, float) and math.isnan(v)):
            return v
        if self.fill is not None:
            return self.fill
        return None if self.kind.kind == "category" else math.nan


@dataclass(frozen=True, slots=True)
class Case:
    """A source of some rows, cut into pieces (row groups, record batches, chunks, files)."""

    columns: dict[str, Held]
    entity: Held | None
    time: Held | None
    cuts: list[int]  # ascending, from 0 to the number of rows

    @property
    def rows(self) -> int:
        return self.cuts[-1]

    @property
    def all(self) -> dict[str, Held]:
        """Every source column, the keys included."""
        keys = {"entity_": self.entity, "time_": self.time}
        return self.columns | {name: held for name, held in keys.items() if held is not None}

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([arrow_field(name, held.kind) for name, held in self.all.items()])

    def pieces(self) -> list[pa.Table]:
        """One table for each piece; each makes its own dictionaries."""
        return [
            pa.table([arrow_array(h.kind, h.source[a:b]) for h in self.all.values()], schema=self.schema)
            for a, b in pairwise(self.cuts)
        ]

    def load(self, source: Any, **options: Any) -> ts.Stash:
        """The columns of the case, with their fills, from a source made of it."""
        columns = {name: ts.column(name, fill=held.fill) for name, held in self.columns.items()}
        entity, time = "entity_" if self.entity else None, "time_" if self.time else None
        return ts.load(source, columns, entity=entity, time=time, **options)


@dataclass(frozen=True, slots=True)
class Arranged:
    """The rows of a case in the order of a stash."""

    entities: list[Any]
    offsets: list[int]
    order: list[int]  # the source row of every row


def arranged(case: Case) -> Arranged:
    """Group by entity, the entities in ascending order, then sort by time, one row after the other."""
    groups: dict[Any, list[int]] = {} if case.entity else {None: []}
    for row in range(case.rows):
        groups.setdefault(case.entity.source[row] if case.entity else None, []).append(row)
    times = case.time.source if case.time else list(range(case.rows))
    offsets, order = [0], []
    entities = sorted(groups) if case.entity else [None]
    for entity in entities:
        rows = groups[entity]
        order += sorted(rows, key=lambda row: times[row])
        offsets.append(len(order))
    return Arranged(entities, offsets, order)


def exact(found: Any, expected: Any) -> bool:
    """Whether two nested lists hold the same values of the same types; NaN equals NaN, 0.0 is not -0.0."""
    if isinstance(expected, list):
        return isinstance(found, list) and len(found) == len(expected) and all(map(exact, found, expected))
    if type(found) is not type(expected):
        return False
    if isinstance(expected, float):
        if math.isnan(expected) or math.isnan(found):
            return math.isnan(expected) and math.isnan(found)
        return found == expected and math.copysign(1, found) == math.copysign(1, expected)
    return bool(found == expected)


def decoded(stash: ts.Stash, name: str, tensor: torch.Tensor) -> list[Any]:
    """Rows of a column as Python values, texts instead of their codes."""
    values: list[Any] = tensor.tolist()
    if stash.about(name).kind != "category":
        return values
    names = stash.vocabulary(name)
    return [None if code == -1 else names[code] for code in values]


def check(stash: ts.Stash, case: Case) -> None:
    """Compare everything that a stash says with the case that it was loaded from."""
    expected = arranged(case)
    assert stash.rows == case.rows
    assert stash.entities == expected.entities
    assert stash.offsets.dtype == torch.int64
    assert stash.offsets.tolist() == expected.offsets
    assert list(stash) == list(case.columns)
    for name, held in case.columns.items():
        _check_column(stash, name, held, expected.order)
    if case.time is None:
        assert stash.time is None
        return
    assert stash.time is not None
    assert stash.time.dtype == torch.int64
    assert stash.time.tolist() == [case.time.source[row] for row in expected.order]
    assert (stash.clock.unit, stash.clock.zone) == (case.time.kind.unit, case.time.kind.zone)


def _check_column(stash: ts.Stash, name: str, held: Held, order: list[int]) -> None:
    kind, tensor, about, stored = held.kind, stash[name], stash.about(name), held.stored
    assert tensor.dtype == kind.dtype, name
    assert tuple(tensor.shape) == (len(order), *kind.shape), name
    assert exact(decoded(stash, name, tensor), [stored[row] for row in order]), name
    assert (about.kind, about.unit, about.zone) == (kind.kind, kind.unit, kind.zone), name
    assert about.nulls == sum(v is None for v in flat(held.source)), name
    numbers = [code for code in flat(tensor.tolist()) if kind.kind != "category" or code >= 0]
    present = [v for v in numbers if not (isinstance(v, float) and math.isnan(v))]
    assert about.missing == len(flat(stored)) - len(present), name
    assert (about.low, about.high) == (min(present, default=None), max(present, default=None)), name
    if kind.kind == "category":
        assert stash.vocabulary(name) == sorted({*held.source, held.fill} - {None}), name


def flat(values: list[Any]) -> list[Any]:
    """Nested lists as one."""
    return [item for v in values for item in (flat(v) if isinstance(v, list) else [v])]


# Sources: the same rows in every form that load takes

Form = Literal["file", "list", "glob", "directory", "ipc", "lz4", "zstd", "table", "slice", "polars"]
FORMS: tuple[Form, ...] = ("file", "list", "glob", "directory", "ipc", "lz4", "zstd", "table", "slice", "polars")


def holds(form: Form, kind: Kind) -> bool:
    """Whether a source of this form gives the kind's type back unchanged."""
    if form in ("file", "list", "glob", "directory"):
        return kind.parquet
    return kind.polars if form == "polars" else True


def source_of(form: Form, case: Case, directory: Path) -> Any:
    """The case as a source of some form; files are written into the directory, which must be empty."""
    pieces, schema = case.pieces(), case.schema
    whole = pa.concat_tables(pieces)
    if form == "file":
        return write_parquet(directory / "one.parquet", pieces)
    if form in ("list", "glob", "directory"):
        files = _many_files(form, pieces, directory)
        return files[::-1] if form == "list" and case.time else files
    if form in ("ipc", "lz4", "zstd"):
        return write_ipc(directory / "one.arrow", pieces, None if form == "ipc" else form)
    if form == "slice":
        around = pa.concat_tables([whole, whole, whole])
        return around.slice(case.rows, case.rows)
    if form == "polars":
        import polars as pl

        return pl.DataFrame(whole)
    return whole.cast(schema)


def _many_files(form: Form, pieces: list[pa.Table], directory: Path) -> Any:
    # both names and depth grow with the number, so that the order by path is the order of the rows
    paths = [directory / f"part-{k:03}" / "rows.parquet" for k in range(len(pieces))]
    for path, piece in zip(paths, pieces):
        path.parent.mkdir()
        write_parquet(path, [piece])
    if form == "list":
        return paths
    return str(directory / "*" / "*.parquet") if form == "glob" else directory


def write_parquet(path: Path, pieces: Sequence[pa.Table], **options: Any) -> Path:
    """A file with a row group for each piece, unless it is empty, and checksums for its pages."""
    with pq.ParquetWriter(path, pieces[0].schema, write_page_checksum=True, **options) as writer:
        for piece in pieces:
            writer.write_table(piece)
    return path


def write_ipc(path: Path, pieces: Sequence[pa.Table], compression: str | None) -> Path:
    """A file with a record batch for each piece."""
    # dictionaries that differ between batches have to be unified, or sent as deltas, in this format
    options = pa.ipc.IpcWriteOptions(compression=compression, unify_dictionaries=True)
    with pa.ipc.new_file(path, pieces[0].schema, options=options) as writer:
        writer.write_table(pa.concat_tables(pieces))
    return path


# Around the tests


def like(parts: str) -> str:
    """A pattern that matches messages with these parts in this order; ` ... ` stands between them."""
    return ".*".join(map(re.escape, parts.split(" ... ")))


def whole(message: str) -> str:
    """A pattern for `pytest.raises(match=...)` that only the whole message matches."""
    return rf"\A{re.escape(message)}\Z"


def run_python(program: str, *arguments: object) -> str:
    """What a program prints that runs in a process of its own; it must succeed and print no warning."""
    done = processes.run(program, *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.strip()


def looked_at(source: Any, *arguments: Any, **options: Any) -> Any:
    """What a plan finds in its source: `ts.plan` itself looks at nothing."""
    plan = ts.plan(source, *arguments, **options)
    assert plan.choice is not None
    return plan


def descriptors() -> Counter[str]:
    """What the open descriptors of this process stand for."""
    found: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):
        try:
            found[os.readlink(f"/proc/self/fd/{name}")] += 1
        except FileNotFoundError:  # the one that listed them
            continue
    return found


class Producer:
    """A stream that can be read again and again, and tells nothing else."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


def bits(stash: ts.Stash) -> dict[str, Any]:
    """Everything that a stash holds, in a form in which NaN is equal to NaN."""
    tensors = {**stash, **{f"static {name}": values for name, values in stash.static.items()}}
    if stash.time is not None:
        tensors["time"] = stash.time
    if stash.known is not None:
        tensors["known"] = stash.known
    held: dict[str, Any] = {
        name: (tensor.dtype, tuple(tensor.shape), tensor.contiguous().view(torch.uint8).numpy().tobytes())
        for name, tensor in tensors.items()
    }
    texts = [name for name in (*stash, *stash.static) if stash.about(name).kind == "category"]
    held |= {f"vocabulary {name}": stash.vocabulary(name) for name in texts}
    infos = {name: stash.about(name) for name in (*stash, *stash.static)}
    held |= {f"about {name}": (info.nulls, info.missing, info.low, info.high) for name, info in infos.items()}
    return held | {"entities": stash.entities, "offsets": stash.offsets.tolist(), "clock": stash.clock}
