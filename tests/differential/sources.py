"""Random sources: small tables in many forms, loaded with random filters, keys of paths, casts and orders."""

import math
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.feather
import pyarrow.parquet as pq
import torch

from tests.differential.library import ts
from tests.differential.loads import contents
from tests.differential.record import Record

WORDS = ["a", "b", "", "Zürich", "a much longer text than the others", "a"]
KEYS = {
    "integers": ["1", "2", "10", "-3"],
    "padded": ["007", "7", "07"],
    "floats": ["1", "2.5", "1e3"],
    "booleans": ["true", "false"],
    "texts": ["x", "y z", "ü"],
    "dates": ["2024-01-31", "2024-02-01"],
}

Form = Callable[[Random, pa.Table, Path], Any]


def table_of(rng: Random) -> pa.Table:
    """Rows of a few series, in some order, with nulls, NaN, structs, lists and times as text."""
    rows = rng.choice([1, 9, 40, 40, 300])
    row = np.arange(rows)
    null = np.array([rng.random() < 0.1 for _ in row])
    floats = row * 1.5 - 20
    floats[row % 7 == 3] = math.nan
    floats[row % 11 == 5] = -0.0
    entity = np.array([rng.randrange(4) for _ in row])
    first = np.datetime64("2024-01-30T22:00", "us")
    times = first + row * np.timedelta64(rng.choice([1, 3600]), "s")
    columns: dict[str, Any] = {
        "e": pa.array([["S", "a", "Ü", ""][k] for k in entity.tolist()]),
        "n": pa.array(entity * 1000 - 2000),
        "t": pa.array(times),
        "iso": pa.array([str(time) + "Z" * (rows > 9) for time in times.astype("M8[s]").tolist()]).cast(pa.string()),
        "tick": pa.array(row * 10),
        "f": pa.array(floats, mask=null),
        "h": pa.array((row % 50).astype(np.float16)),
        "i": pa.array((row % 90 - 40).astype(np.int16), mask=null & (row % 2 == 0)),
        "u": pa.array(row.astype(np.uint64) + np.uint64(2**63)),
        "b": pa.array(row % 3 == 0, mask=null),
        "w": pa.array([None if hole else WORDS[k % len(WORDS)] for k, hole in enumerate(null.tolist())]),
        "c": pa.array([f"code {k % 5}" for k in row.tolist()]).dictionary_encode(),
        "d": pa.array((row % 400).astype("M8[D]"), mask=null),
        "s": pa.StructArray.from_arrays([pa.array(row * 0.5), pa.array(row % 4)], ["x", "y"]),
        "l": pa.array([[k, k + 1, k + 2] for k in row.tolist()], pa.list_(pa.int32())),
        "m": pa.array(row.astype("f4")).cast(pa.float32()),
        "v": pa.array(times + np.timedelta64(1, "D")),
    }
    table = pa.table(columns)
    if rng.random() < 0.5:
        order = [*range(rows)]
        rng.shuffle(order)
        table = table.take(pa.array(order))
    return table


def _parquet(rng: Random, table: pa.Table, path: Path) -> str:
    pq.write_table(
        table,
        path / "one.parquet",
        row_group_size=rng.choice([3, 16, 10_000]),
        use_dictionary=rng.random() < 0.5,
        compression=rng.choice(["snappy", "zstd", "none"]),
        write_statistics=rng.random() < 0.7,
        data_page_version=rng.choice(["1.0", "2.0"]),
        write_page_checksum=rng.random() < 0.5,
        store_schema=rng.random() < 0.8,
    )
    return str(path / "one.parquet")


def _cut(rng: Random, table: pa.Table) -> list[pa.Table]:
    cuts = sorted(rng.randint(0, table.num_rows) for _ in range(rng.choice([1, 3, 12])))
    return [table.slice(low, high - low) for low, high in zip([0, *cuts], [*cuts, table.num_rows])]


def _parquets(rng: Random, table: pa.Table, path: Path) -> Any:
    """Files with other orders of columns, and narrower types where they fit."""
    names = []
    for k, part in enumerate(_cut(rng, table)):
        order = rng.sample(part.column_names, part.num_columns)
        types = {"i": rng.choice([pa.int16(), pa.int64()]), "w": rng.choice([pa.string(), pa.large_string()])}
        fields = [part.schema.field(name) for name in order]
        schema = pa.schema([field.with_type(types.get(field.name, field.type)) for field in fields])
        names.append(str(path / f"part-{k}.parquet"))
        pq.write_table(part.select(order).cast(schema), names[-1], row_group_size=rng.choice([5, 1000]))
    return rng.choice([str(path), str(path / "*.parquet"), names, names[::-1]])


def _hive(rng: Random, table: pa.Table, path: Path) -> str:
    kind = rng.choice([*KEYS])
    for k, part in enumerate(_cut(rng, table)):
        folder = path / f"key={rng.choice(KEYS[kind])}"
        if rng.random() < 0.2:
            folder = path / "key=__HIVE_DEFAULT_PARTITION__"
        folder.mkdir(exist_ok=True)
        pq.write_table(part, folder / f"{k}.parquet")
    return str(path)


def _arrow(rng: Random, table: pa.Table, path: Path) -> str:
    name = str(path / "one.arrow")
    if rng.random() < 0.3:
        pa.feather.write_feather(table, name, compression=rng.choice(["lz4", "uncompressed"]))
        return name
    opener = rng.choice([pa.ipc.new_file, pa.ipc.new_stream])
    plain = table.set_column(table.column_names.index("c"), "c", table["c"].cast(pa.string()))
    with opener(name, plain.schema) as sink:
        sink.write_table(plain, max_chunksize=rng.choice([4, 1000]))
    return name


def _csv(rng: Random, table: pa.Table, path: Path) -> str:
    frame = pl.DataFrame(pl.from_arrow(table.drop_columns(["s", "l", "h"])))
    parts = rng.choice([1, 3])
    for k in range(parts):
        frame[k::parts].write_csv(path / f"{k}.csv")
    return str(path / "*.csv")


def _chunks(rng: Random, table: pa.Table, _: Path) -> pa.Table:
    return pa.concat_tables(_cut(rng, table))


def _polars(rng: Random, table: pa.Table, _: Path) -> pl.DataFrame:
    return pl.concat([pl.DataFrame(pl.from_arrow(part)) for part in _cut(rng, table) if len(part)])


def _pandas(_rng: Random, table: pa.Table, _: Path) -> Any:
    return table.drop_columns(["s", "l", "h"]).to_pandas()


def _reader(rng: Random, table: pa.Table, _: Path) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=rng.choice([3, 64])))


def _dataset(rng: Random, table: pa.Table, path: Path) -> Any:
    _parquets(rng, table, path)
    dataset = pads.dataset(str(path))
    return dataset if rng.random() < 0.6 else dataset.filter(pc.field("tick") > 40)


def _lazy(_rng: Random, table: pa.Table, _: Path) -> pl.LazyFrame:
    return pl.DataFrame(pl.from_arrow(table)).lazy()


def _mapping(_rng: Random, table: pa.Table, _: Path) -> dict[str, Any]:
    return {name: table[name].combine_chunks() for name in table.column_names}


FLAT = ("csv", "pandas")  # forms without structs, lists and half floats
FORMS: dict[str, Form] = {
    "parquet": _parquet,
    "parquets": _parquets,
    "hive": _hive,
    "arrow": _arrow,
    "csv": _csv,
    "chunks": _chunks,
    "polars": _polars,
    "pandas": _pandas,
    "reader": _reader,
    "dataset": _dataset,
    "lazy": _lazy,
    "mapping": _mapping,
}


def term(rng: Random, form: str) -> tuple[str, str, Any]:
    """A comparison as a tuple."""
    operator = rng.choice(["==", "!=", "<", "<=", ">", ">=", "in", "not in"])
    compared: list[tuple[str, list[Any]]] = [
        ("f", [0.0, -0.0, 2.5, math.nan, 7, -18.5]),
        ("i", [0, 12, 3.5, -40, 2**40]),
        ("u", [0, 5, 2**62]),
        ("w", ["a", "", "Zürich", "none"]),
        ("c", ["code 1", "code 9"]),
        ("e", ["S", "Ü"]),
        ("n", [-2000, 1000, 0.5]),
        ("b", [True, False]),
        ("t", ["2024-01-30T22:00:05", datetime(2024, 1, 31, 4)]),
        ("d", ["1970-01-09", "1971-01-01"]),
    ]
    compared += [("key", ["x", 1, "7", 2.5, True])] if form == "hive" else []
    compared += [] if form in FLAT else [("s.y", [1, 2]), ("h", [3, 2.5, 0.1])]
    name, values = rng.choice(compared)
    if operator in ("in", "not in"):
        return name, operator, rng.sample(values, rng.randint(1, len(values)))
    return name, operator, rng.choice(values)


def condition(rng: Random, form: str) -> Any:
    """A filter in any of its forms."""
    chance = rng.random()
    terms = [term(rng, form) for _ in range(rng.choice([1, 1, 2]))]
    if chance < 0.5:
        return terms
    if chance < 0.7:
        return [terms, [term(rng, form)]]
    return rng.choice(
        [
            ~(pc.field("f") < 5),
            (pc.field("f") > 1) | pc.field("w").is_null(),
            pc.field("i") != 3,
            ~pc.field("f").is_nan(),
            pc.field("c") == "code 2",
            ~(pl.col("f") < 5),
            pl.col("f").is_nan() | (pl.col("i") > 0),
            pl.col("w").str.starts_with("a"),
            pl.col("t") > datetime(2024, 1, 30, 23),
            pl.col("i").fill_null(1) == 1,
        ]
    )


def columns(rng: Random, form: str) -> dict[str, Any] | None:
    """Some columns of each sort; `None` for all."""
    choices: dict[str, Any] = {
        "f": "f",
        "single": ts.column("f", dtype=torch.float32),
        "fill": ts.column("f", fill=-1.0),
        "h": "h",
        "i": ts.column("i", dtype=torch.float64),
        "filled": ts.column("i", fill=0),
        "narrow": ts.column("i", dtype=torch.int8, fill=1),
        "u": "u",
        "b": ts.column("b", fill=False),
        "w": "w",
        "c": "c",
        "given": ts.column("w", vocabulary=["a", "Zürich"]),
        "hash": ts.hashed("w", 7),
        "d": ts.column("d", fill=0),
        "x": ["f", "m"],
        "speed": "s.x",
        "l": "l",
        "ok": ts.is_valid("i"),
        "oks": ts.is_valid(["f", "i"]),
        "expr": pl.col("f") * 2 + pl.col("tick"),
        "text": pl.col("w").str.to_uppercase(),
        "key": "key",
        "who": "e",
        "tick": "tick",
        "seen": "v",
    }
    absent = ("speed", "l", "h") if form in FLAT else ()
    names = [name for name in choices if name not in absent and (name != "key" or form == "hive")]
    return None if rng.random() < 0.05 else {name: choices[name] for name in rng.sample(names, rng.randint(1, 6))}


def arguments(rng: Random, form: str) -> dict[str, Any]:
    """Of a load."""
    more: dict[str, Any] = {"columns": columns(rng, form)}
    more["entity"] = rng.choice([None, "e", "e", "n", ["e", "n"], ["n", "e"], "key" if form == "hive" else "c"])
    more["time"] = rng.choice([None, "t", "t", "t", "tick", "iso", rng.choice(["d", "tick"])])
    if more["time"] in ("t", "iso") and rng.random() < 0.15:
        more["known"] = rng.choice(["v", pl.col("v") + pl.duration(hours=1)])
    if rng.random() < 0.4:
        more["filter"] = condition(rng, form)
    if more["entity"] is not None and rng.random() < 0.15:
        more["static"] = rng.choice([["n"], ["e"], {"kind": "e"}, {"label": "e", "number": ts.column("n", fill=0)}])
    if rng.random() < 0.15:
        more["duplicates"] = "keep"
    if rng.random() < 0.1:
        more["dtype"] = rng.choice([torch.float32, torch.float16, torch.bfloat16])
    if more["entity"] is not None and rng.random() < 0.1:
        more["shard"] = (rng.randint(0, 1), 2)
    return more


def sources_case(record: Record, rng: Random, folder: Path) -> None:
    """A load of a random source, and sometimes the same with the numbers of another."""
    form = rng.choice([*FORMS])
    made = FORMS[form](rng, table_of(rng), folder)
    given = arguments(rng, form)
    record.has(f"form={form}", *(name for name, value in given.items() if value is not None))
    with record.trying("load"):
        stash = ts.load(made, progress=False, **given)
        contents(record, "stash", stash)
        if form not in ("reader", "hive") and rng.random() < 0.2:
            given.pop("columns")
            with record.trying("like"):
                contents(record, "like", ts.load(made, like=stash, progress=False, **given))
