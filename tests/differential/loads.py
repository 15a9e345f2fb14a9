"""Random loads: a panel in one of the forms of a source, and the columns that are asked for."""

import os
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import torch

from tests.differential.clocks import Clock
from tests.differential.library import member, ts
from tests.differential.panels import WORDS, Panel, panel
from tests.differential.record import Record

FORMS = ("dict", "tensors", "polars", "arrow", "parquet", "parquets", "feather", "lazy", "csv", "reader")
CALENDAR = ("hour", "dayofweek", "day", "dayofyear", "week", "month", "quarter")
STATIC = {"size": "size", "region": "region", "rank": ts.column("rank", fill=2)}
WITHOUT_EMPTY = ("ok", "oks", "bare")  # columns for which an empty slot has no value


@dataclass(frozen=True)
class Loaded:
    """A stash and the panel that it is of."""

    stash: Any
    panel: Panel
    arguments: dict[str, Any]  # of the load

    @property
    def names(self) -> list[str]:
        """Its columns."""
        return [*self.stash]

    def floats(self) -> list[str]:
        """Those that are floating."""
        return [name for name in self.names if self.stash[name].is_floating_point()]


def source(rng: Random, of: Panel, form: str, folder: Path) -> Any:
    """The rows in some form."""
    table = pa.table(of.table)
    if form in ("dict", "tensors"):
        return {name: _plain(array, as_tensor=form == "tensors") for name, array in of.table.items()}
    if form == "polars":
        return pl.from_arrow(table)
    if form == "lazy":
        frame = pl.from_arrow(table)
        assert isinstance(frame, pl.DataFrame)
        return frame.lazy()
    if form == "reader":
        return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=rng.randint(5, 90)))
    return table if form == "arrow" else _written(rng, table, form, folder)


def _plain(array: pa.Array, *, as_tensor: bool) -> Any:
    if array.null_count or isinstance(array, pa.StringArray):
        return array.to_pylist()
    if isinstance(array, pa.FixedSizeListArray):
        return array.flatten().to_numpy().reshape(len(array), -1)
    values = array.to_numpy(zero_copy_only=False)
    # torch has no times, and takes no memory that may not be written
    return torch.from_numpy(values.copy()) if as_tensor and values.dtype.kind in "fiub" else values


def _written(rng: Random, table: pa.Table, form: str, folder: Path) -> str:
    where = folder / f"data{len(os.listdir(folder))}"
    if form == "csv":
        pl.DataFrame(pl.from_arrow(table)).drop("two").write_csv(f"{where}.csv")
        return f"{where}.csv"
    if form == "feather":
        pa.feather.write_feather(table, f"{where}.arrow", compression="uncompressed")
        return f"{where}.arrow"
    size = rng.choice([7, 50, 10_000])
    if form == "parquet":
        pq.write_table(table, f"{where}.parquet", row_group_size=size, use_dictionary=rng.random() < 0.5)
        return f"{where}.parquet"
    where.mkdir()
    cuts = sorted(rng.randint(0, table.num_rows) for _ in range(2))
    for number, (low, high) in enumerate(zip([0, *cuts], [*cuts, table.num_rows])):
        pq.write_table(table.slice(low, high - low), where / f"part-{number}.parquet", row_group_size=size)
    return str(where)


def columns_of(rng: Random, clock: Clock | None) -> dict[str, Any]:
    """Some columns of each sort; the first is of numbers, and may have missing values."""
    floating, wide = rng.choice([torch.float16, torch.bfloat16]), rng.choice(["fill", "empty", "both"])
    fills: dict[str, Any] = (
        {"fill": 3} if wide == "fill" else {"empty": 7} if wide == "empty" else {"fill": 3, "empty": 7}
    )
    choices: dict[str, Any] = {
        "z": "z",
        "zn": "zn",
        "yfill": ts.column("y", fill=-1.5),
        "half": ts.column("y", dtype=floating),
        "k": ts.column("k", **fills),
        "kn": ts.column("kn", **{"fill": 3} | fills),
        "kf": ts.column("kn", dtype=torch.float64),
        "b": ts.column("b", empty=-1),
        "bare": "b",
        "u": ts.column("u", fill=9),
        "q": ts.column("q", empty=0),
        "u64": ts.column("u64", empty=1),
        "flag": ts.column("flag", empty=True),
        "word": ts.column("word", fill="(none)") if rng.random() < 0.2 else "word",
        "given": ts.column("word", vocabulary=rng.choice([WORDS[:3], WORDS, ["storm", "rain"]])),
        "code": ts.column("k", vocabulary=[0, 5, -7, 12]),
        "hash": ts.hashed(rng.choice(["word", "k"]), rng.choice([2, 16, 2**20])),
        "ok": ts.is_valid(rng.choice(["y", "zn", "kn"])),
        "oks": ts.is_valid(["y", "zn"]),
        "x": ["z", "zn"],
        "xi": ts.column(["k", "b"], empty=0),
        "x3": ts.column(["y", "z", "zn"], dtype=torch.float32, fill=0.25),
        "two": ts.column("two", empty=5),
        "day": ts.column("day", empty=0),
        "stamp": ts.column("stamp", fill=1),
        "expr": pl.col("z") * 2 + pl.col("k"),
        "positive": ts.column(pl.col("k") > 0, empty=False),
    }
    if clock is not None and clock.unit is not None:
        fields = [f for f in rng.sample(CALENDAR, rng.randint(1, 3)) if f != "hour" or clock.unit != "D"] or ["day"]
        choices["when"] = ts.calendar(*fields, **rng.choice([{}, {"cyclic": True}, {"scaled": True}]))
    names = rng.sample([*choices], rng.randint(1, 5))
    return {"y": "y"} | {name: choices[name] for name in names}


def load(rng: Random, record: Record, folder: Path, *, of: Panel | None = None, form: str = "", **more: Any) -> Loaded:
    """Load a random panel; `more` are arguments of `ts.load`."""
    of = panel(rng) if of is None else of
    form = form or rng.choice(FORMS)
    form = "polars" if form in ("dict", "tensors", "csv") and of.clock is not None and of.clock.zone else form
    if form == "csv" and any("" in of.table[name].to_pylist() for name in of.keys):
        form = "parquet"
    chosen = columns_of(rng, of.clock)
    if form == "csv":
        chosen = {name: spec for name, spec in chosen.items() if name not in ("two", "flag", "u64", "stamp")}
    arguments: dict[str, Any] = {"columns": chosen, "entity": of.keys[0] if len(of.keys) == 1 else [*of.keys] or None}
    arguments["time"] = of.time
    if of.keys and rng.random() < 0.6:
        arguments["static"] = rng.choice([["size"], STATIC, {"kind": "region", "big": "size"}, static_table(rng, of)])
    if of.ties:
        arguments["duplicates"] = "keep"
    if rng.random() < 0.15:
        arguments["dtype"] = rng.choice([torch.float32, torch.float64, torch.float16])
    # drawn apart, so that cases stay what they were
    if of.clock is not None and not of.ties and Random(sum(of.lengths)).random() < 0.05:
        arguments["frequency"] = of.clock.frequency or of.clock.span(1)
    arguments |= more
    record.has(f"form={form}", *of.features, *chosen)
    rows = of.reversed_rows(rng) if of.clock is not None and not of.ties and rng.random() < 0.3 else of
    stash = ts.load(source(rng, rows, form, folder), progress=False, **arguments)
    return Loaded(_elsewhere(rng, stash, folder), of, arguments)


def static_table(rng: Random, of: Panel) -> Any:
    """A frame with a row for each entity, in some order."""
    first = np.cumsum([0, *of.lengths[:-1]]).tolist()
    rng.shuffle(first)
    table = pa.table({name: of.table[name].take(pa.array(first)) for name in (*of.keys, "size", "region")})
    return rng.choice([table, (pl.from_arrow(table), ["size"])])


def _elsewhere(rng: Random, stash: Any, folder: Path) -> Any:
    """The same stash, sometimes from a file, which is read ahead."""
    if rng.random() < 0.85:
        return stash
    path = folder / f"stash{len(os.listdir(folder))}.safetensors"
    stash.save(path)
    return ts.open(path)


def contents(record: Record, label: str, stash: Any) -> None:
    """Record all that a stash holds."""
    record.add(f"{label} columns", dict(stash))
    record.add(f"{label} static", dict(stash.static))
    record.add(f"{label} rows", [stash.time, stash.offsets, stash.entities, stash.rows, stash.time_range])
    kinds = {name: stash.about(name) for name in (*stash, *stash.static)}
    fields = ("kind", "unit", "zone", "fill", "empty", "missing", "unknown", "low", "high")
    told = {name: [member(about, field) for field in fields] for name, about in kinds.items()}
    record.add(f"{label} about", told)
    texts = {name: stash.vocabulary(name) for name, about in kinds.items() if about.kind == "category"}
    record.add(f"{label} vocabularies", texts)


def load_case(record: Record, rng: Random, folder: Path) -> None:
    """A stash, from all sides, and others that are made like it."""
    loaded = load(rng, record, folder, **_more(rng, record))
    stash = loaded.stash
    contents(record, "stash", stash)
    record.shows("stash shown", stash)
    with record.trying("polars"):
        record.add("polars", stash.to_polars())
    with record.trying("arrow"):
        record.add("arrow", stash.to_arrow())
    options: dict[str, Any] = rng.choice([{}, {"by": "entity"}, {}])
    with record.trying("describe"):
        record.add("describe", stash.describe(**options).drop("distinct", "top", strict=False))  # which went
    name = rng.choice([*stash.entities, None])
    with record.trying("series"):
        record.add("series", dict(stash.series(name)))
    path = folder / "saved.safetensors"
    stash.save(path)
    contents(record, "opened", ts.open(path))
    if rng.random() < 0.4:
        with record.trying("like"):
            of = panel(rng, clock=loaded.panel.clock, kind=loaded.panel.kind)
            contents(record, "like", load(rng, record, folder, of=of, like=stash).stash)
    if rng.random() < 0.15:
        with record.trying("plan"):
            _planned(record, rng, folder)
    if rng.random() < 0.15:
        _shared(record, rng, folder)
    if rng.random() < 0.15:
        file = folder / "file.safetensors"
        table = pa.table({"y": np.arange(40.0), "t": np.arange(40)[::-1].copy()})
        for _ in range(2):  # the second time it is there
            contents(record, "file", ts.load(table, ["y"], time="t", file=file))


def _shared(record: Record, rng: Random, folder: Path) -> None:
    """A stash in shared memory, from rows that a key stands for, or from a file."""
    of, label = panel(rng, clock=None), f"net-{rng.randrange(10**9)}"
    keyed = rng.random() < 0.5
    given = source(rng, of, "lazy" if keyed else "parquet", folder)
    more = {"version": "rows"} if keyed else {}
    try:
        for _ in range(2):  # the second time it is there
            ts.load(given, ["k", "z"], entity=of.keys[0] if of.keys else None, share=label, **more)
        contents(record, "attached", ts.attach(label))
    finally:
        ts.shared.remove(label)


def _planned(record: Record, rng: Random, folder: Path) -> None:
    """What a load would cost."""
    of = panel(rng)
    plan = ts.plan(source(rng, of, "parquet", folder), ["y", "word"], time=of.time)
    record.add("plan", [member(plan, "rows"), member(plan, "nbytes")])
    record.shows("plan shown", plan)


def _more(rng: Random, record: Record) -> dict[str, Any]:
    chance = rng.random()
    more: dict[str, Any] = {}
    if chance < 0.12:
        more["filter"] = rng.choice(
            [
                [("k", ">", 0)],
                [("b", "<=", 50), ("k", "!=", 3)],
                pl.col("z") < 5_000,
                [("word", "in", ["calm", "rain"])],
            ]
        )
    elif chance < 0.2:
        more["shard"] = (rng.randint(0, 2), 3)
    elif chance < 0.26:
        more["columns"] = None
    elif chance < 0.32:
        more["columns"] = ["y", "word", pl.col("k").alias("twice") * 2]
    record.has(*more)
    return more
