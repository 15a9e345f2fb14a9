"""What a state is compared with: every argument that decides rows or meanings, one by one, and those that do not."""

import json
import re
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import tensorstash as ts
from tests.segments.files import header_of

ROWS = 60
HOURS = np.datetime64("2024-01-30", "us") + np.arange(ROWS) * np.timedelta64(1, "h")


def source(**changed: Any) -> pa.Table:
    """Two series of sixty hours in Berlin, in which two hours are missing."""
    kept = np.delete(np.arange(ROWS), [20, 21])
    table: dict[str, Any] = {
        "e": np.repeat(["a", "b"], len(kept)),
        "f": np.repeat(["a", "c"], len(kept)),
        "t": pa.array(np.tile(HOURS[kept], 2), pa.timestamp("us", "Europe/Berlin")),
        "later": pa.array(np.tile(HOURS[kept] + np.timedelta64(1, "D"), 2), pa.timestamp("us", "Europe/Berlin")),
        "y": np.arange(2.0 * len(kept)),
        "z": np.arange(2.0 * len(kept)) * 3,
        "half": np.where(np.arange(2 * len(kept)) % 9, 1.0, np.nan),
        "k": ["u", "v"] * len(kept),
        "n": np.arange(2 * len(kept)),
        "flag": np.arange(2 * len(kept)) % 3 > 0,
        "size": np.repeat([0.5, 1.5], len(kept)),
        "place": np.repeat(["n", "s"], len(kept)),
    }
    return pa.table(table | changed)


COLUMNS: dict[str, Any] = {
    "y": "y",
    "pair": ["y", "z"],
    "k": "k",
    "bucket": ts.hashed("k", 7),
    "n": ts.column("n", fill=0, empty=0),
    "when": ts.calendar("hour", "day"),
    "phase": ts.calendar("hour", cyclic=True),
    "half": "half",
    "ok": ts.is_valid("y"),
    "flag": ts.column("flag", empty=False),
}
STATIC: dict[str, Any] = {"size": "size", "place": ts.hashed("place", 5)}
SLOTS: dict[str, Any] = {name: (name, -3, 1) for name in COLUMNS}


def stash(data: Any = None, **changed: Any) -> ts.Stash:
    arguments: dict[str, Any] = {"columns": COLUMNS, "static": STATIC, "entity": "e", "time": "t"}
    return ts.load(source() if data is None else data, **(arguments | changed))


def slots(of: ts.Stash | None = None, **changed: Any) -> ts.Windows:
    return ts.Windows(stash() if of is None else of, **({"spans": SLOTS} | changed))


def padded(of: ts.Stash | None = None, **changed: Any) -> ts.Windows:
    """Windows with empty slots, which a mask has no value for."""
    spans = {name: span for name, span in SLOTS.items() if name != "ok"}
    return slots(of, **({"spans": spans, "min_history": 2} | changed))


def at(**changed: Any) -> pa.Table:
    times = pa.array(HOURS[[25, 40, 50]], pa.timestamp("us", "Europe/Berlin"))
    return pa.table({"e": ["b", "a", "a"], "t": times, "label": np.array([1, 2, 3], np.float32)} | changed)


def during(*bounds: Any, **changed: Any) -> dict[str, Any]:
    return {"recent": ts.During("y", *(bounds or ("-5h", "0h")), **({"max_rows": 4} | changed))}


def events(of: ts.Stash | None = None, **changed: Any) -> ts.Windows:
    """Windows at points, of a stretch of time."""
    return ts.Windows(stash() if of is None else of, **({"spans": during(), "at": at()} | changed))


def mix(weights: Any = None, epoch_size: int | None = None, **components: ts.Windows) -> ts.Mix:
    return ts.Mix(components or {"one": slots(), "two": slots(stride=2)}, weights, epoch_size)


def loader(windows: Any, **arguments: Any) -> ts.Loader:
    return ts.Loader(windows, **({"batch_size": 4, "shuffle": True, "seed": 0} | arguments))


def state(windows: Any, **arguments: Any) -> dict[str, Any]:
    return json.loads(json.dumps(loader(windows, **arguments).state_dict()))


def columns(**changed: Any) -> ts.Stash:
    return stash(columns=COLUMNS | changed)


def in_zone(zone: str | None, unit: str = "us") -> pa.Table:
    times = source()["t"].cast(pa.int64()).cast(pa.timestamp("us")).cast(pa.timestamp(unit))
    return source(t=times.cast(pa.int64()).cast(pa.timestamp(unit, zone)))


def moved(column: str = "t") -> pa.Table:
    """One time inside its series is half an hour later."""
    times = source()[column].cast(pa.int64()).to_numpy().copy()
    times[30] += 30 * 60 * 10**6
    return source(**{column: pa.array(times).cast(source()[column].type)})


def jittered(**changed: Any) -> ts.Windows:
    return padded(stash(moved()), **({"min_history": 1, "min_horizon": 0} | changed))


Changes = dict[str, tuple[str, Callable[[], Any]]]

OF_LOADS: Changes = {
    "dtype= of a column": (
        "columns.n.type",
        lambda: slots(columns(n=ts.column("n", dtype=torch.int32, fill=0, empty=0))),
    ),
    "vocabulary=": ("columns.k.vocabulary", lambda: slots(columns(k=ts.column("k", vocabulary=["v", "u"])))),
    "buckets": ("columns.bucket.buckets", lambda: slots(columns(bucket=ts.hashed("k", 5)))),
    "fields of the calendar": ("columns.when.fields", lambda: slots(columns(when=ts.calendar("day", "hour")))),
    "form of the calendar": (
        "columns.phase.fields",
        lambda: slots(columns(phase=ts.calendar("hour", "day", scaled=True))),
    ),
    "order of a pack": ("columns.pair.members", lambda: slots(columns(pair=["z", "y"]))),
    "members of a pack": ("columns.pair.members", lambda: slots(columns(pair=["y", "n"]))),
    "size of a pack": ("columns.pair.shape", lambda: slots(columns(pair=["y", "z", "z"]))),
    "kind of a column": ("columns.k.kind", lambda: slots(columns(k=ts.column("n", dtype=torch.int32, empty=-1)))),
    "source of a mask": ("columns.ok.validity", lambda: slots(columns(ok=ts.is_valid("z")))),
    "entity=": ("names", lambda: slots(stash(entity="f"))),
    "no entity=": ("entities", lambda: slots(stash(source()[:58], entity=None, static=None))),
    "time=": ("first_time", lambda: slots(stash(time="later"))),
    "zone of the times": ("clock.zone", lambda: slots(stash(in_zone("Europe/London")))),
    "no zone": ("clock.zone", lambda: slots(stash(in_zone(None)))),
    "unit of the times": (
        "clock.unit",
        lambda: slots(stash(source(t=source()["t"].cast(pa.timestamp("ms", "Europe/Berlin"))))),
    ),
    "static=": ("static.place", lambda: slots(stash(static=["size"]))),
    "buckets of a static column": (
        "static.place.buckets",
        lambda: slots(stash(static=STATIC | {"place": ts.hashed("place", 9)})),
    ),
    "filter=": ("rows", lambda: slots(stash(filter=pl.col("n") < 100))),
    "shard=": ("rows", lambda: slots(stash(shard=(0, 2)))),
    "like=": ("names", lambda: slots(stash(like=stash(source()[58:])))),
}
OF_WINDOWS: Changes = {
    "spans=": ("spans.more", lambda: slots(spans=SLOTS | {"more": ("y", 0, 1)})),
    "column of a span": ("spans.y", lambda: slots(spans=SLOTS | {"y": ("n", -3, 1)})),
    "begin of a span": ("spans.y", lambda: slots(spans=SLOTS | {"y": ("y", -2, 1)})),
    "end of a span": ("spans.y", lambda: slots(spans=SLOTS | {"y": ("y", -3, 0)})),
    "step of a span": ("spans.y", lambda: slots(spans=SLOTS | {"y": ("y", -3, 1, 2)})),
    "history=": ("spans.y", lambda: ts.Windows(stash(), 3, 2)),
    "stride=": ("stride", lambda: slots(stride=2)),
    "gaps=": ("windows", lambda: slots(gaps="ignore")),
    "require=": ("windows", lambda: slots(require=["half"])),
    "where=": ("windows", lambda: slots(where="flag")),
    "split": ("windows", lambda: slots().split("2024-01-31")[1]),
    "shuffle=": ("order", lambda: slots()),
}
OF_PADDED: Changes = {
    "min_history=": ("windows", lambda: padded(min_history=1)),
    "min_horizon=": ("windows", lambda: padded(min_horizon=0)),
    "gaps=, masked": ("windows", lambda: padded(gaps="mask")),
    "no padding": ("windows", lambda: padded(min_history=3)),
}
OF_JITTER: Changes = {
    "frequency=": ("runs", lambda: jittered(frequency="3h")),
    "tolerance=": ("runs", lambda: jittered(tolerance="30m")),
}
OF_DRAWS: Changes = {
    "low of a draw": ("spans.y", lambda: drawn(low=-2)),
    "high of a draw": ("spans.y", lambda: drawn(high=-2)),
    "step of a draw": ("spans.y", lambda: drawn(step=2)),
    "no draw": ("spans.y", lambda: ts.Windows(stash(), spans={"n": ("n", -3, 1), "y": ("y", -3, 1)})),
}
OF_EVENTS: Changes = {
    "begin=": ("spans.recent", lambda: events(spans=during("-6h", "0h"))),
    "end=": ("spans.recent", lambda: events(spans=during("-5h", "1h"))),
    "max_rows=": ("spans.recent", lambda: events(spans=during(max_rows=3))),
    "age=": ("spans.recent", lambda: events(spans=during(age=True))),
    "closed= of a stretch": ("spans.recent", lambda: events(spans=during(closed="right"))),
    "closed=": ("spans.recent", lambda: events(closed="right")),
    "min_rows=": ("windows", lambda: events(spans=during(min_rows=4), unmatched="drop")),
    "times of the rows": ("row_times", lambda: events(stash(moved()))),
    "times of the points": ("runs", lambda: events(at=at(t=pa.array(HOURS[[25, 40, 51]], at()["t"].type)))),
    "entities of the points": ("runs", lambda: events(at=at(e=["a", "a", "a"]))),
    "unit of a label": ("labels.label", lambda: events(at=at(label=pa.array([1, 2, 3], pa.timestamp("us"))))),
    "another label": ("labels.other", lambda: events(at=at(other=[1, 2, 3]))),
}
OF_MIXES: Changes = {
    "epoch_size=": ("epoch_size", lambda: mix(epoch_size=11)),
    "names": ("components", lambda: mix(one=slots(), three=slots(stride=2))),
    "stride of a component": ("component two.stride", lambda: mix(one=slots(), two=slots(stride=3))),
    "buckets in all components": (
        "columns.bucket.buckets",
        lambda: ts.Mix(
            {name: slots(columns(bucket=ts.hashed("k", 5)), stride=k) for k, name in ((1, "one"), (2, "two"))}
        ),
    ),
}


def drawn(low: int = -3, high: int = -1, step: int = 1) -> ts.Windows:
    return ts.Windows(stash(), spans={"n": ("n", -3, 1), "y": ("y", ts.Draw(low, high, step), 1)})


CASES = [
    pytest.param(saved, *change, id=name)
    for saved, changes in (
        (slots, OF_LOADS | OF_WINDOWS),
        (padded, OF_PADDED),
        (jittered, OF_JITTER),
        (drawn, OF_DRAWS),
        (events, OF_EVENTS),
        (mix, OF_MIXES),
    )
    for name, change in changes.items()
]


@pytest.mark.filterwarnings("ignore:Gaps cost", "ignore:.* entities have no window", "ignore:.* entity has no window")
@pytest.mark.parametrize(("saved", "field", "changed"), CASES)
def test_what_decides_rows_or_meanings_is_in_a_state(
    saved: Callable[[], Any], field: str, changed: Callable[[], Any]
) -> None:
    """The refusal names what differs; the same windows, made anew, take the state."""
    old = state(saved())
    loader(saved()).load_state_dict(old)
    shuffle = field != "order"
    with pytest.raises(ValueError, match=rf"these differ: (.*; )?{re.escape(field)}: ") as caught:
        loader(changed(), shuffle=shuffle).load_state_dict(old)
    checksums = r"\b(names|offsets|runs|row_times|known_times|entities_in_tables|vocabulary): \d"
    assert not re.search(checksums, str(caught.value))


@pytest.mark.parametrize(
    ("field", "changed"),
    [
        ("clock.zone", lambda: monthly("Europe/London")),
        ("spans.recent", lambda: monthly("Europe/Berlin", "-2mo")),
    ],
)
def test_a_month_depends_on_the_zone(field: str, changed: Callable[[], ts.Windows]) -> None:
    with pytest.raises(ValueError, match=rf"these differ: .*{re.escape(field)}: "):
        loader(changed()).load_state_dict(state(monthly("Europe/Berlin")))


def test_the_times_of_empty_slots_depend_on_the_step_of_time() -> None:
    """Of equal rows, calendar fields and stretches behind the last one are others with another step."""
    months = np.arange("2024-01", "2024-09", dtype="M8[M]").astype("M8[D]")
    bills = ts.load({"t": months, "y": np.arange(8.0)}, {"y": "y", "day": ts.calendar("day")}, time="t")
    spans = {"past": ("y", -2, 0), "day": ("day", 0, 1)}
    whole: dict[str, Any] = {"frequency": "1mo"}
    steps: dict[str, Any] = {"frequency": "30d", "tolerance": "2d"}
    one, other = (ts.Windows(bills, spans=spans, min_horizon=0, **step) for step in (whole, steps))
    assert (len(one), one[[-1]]["day"].tolist(), other[[-1]]["day"].tolist()) == (7, [[[1]]], [[[31]]])
    with pytest.raises(ValueError, match="these differ: frequency: '1 months' in the state, '30 ticks' here"):
        loader(other).load_state_dict(state(one))
    within = [ts.Windows(bills, spans=spans, **step) for step in (whole, steps)]
    loader(within[1]).load_state_dict(state(within[0]))


def monthly(zone: str, begin: str = "-1mo") -> ts.Windows:
    return ts.Windows(stash(in_zone(zone)), spans=during(begin, "0h"))


def test_the_numbers_of_a_window_are_in_the_state_whatever_type_they_had() -> None:
    """Also as JSON, which knows no integers of numpy."""
    numbers = ts.load({"t": [*range(9)], "y": np.arange(9.0)}, ["y"], time="t")
    bounds: Any = np.int64(-3), np.int32(0)
    spans = {"past": ts.During("y", *bounds, max_rows=2)}
    other = {"past": ts.During("y", -3, 0, max_rows=2)}
    loader(ts.Windows(numbers, spans=other)).load_state_dict(state(ts.Windows(numbers, spans=spans)))


def test_many_members_are_few_characters_of_a_state() -> None:
    names = [f"member {k}" for k in range(900)]
    data = {name: np.arange(9.0) for name in names}

    def packed(members: list[str]) -> ts.Windows:
        return ts.Windows(ts.load(data, {"x": members}), 2)

    old = state(packed(names))
    assert len(json.dumps(old)) < 700
    with pytest.raises(ValueError, match=r"columns\.x\.members: 'member 0, \.\.\. \(900, CRC"):
        loader(packed([*names[:-2], names[-1], names[-2]])).load_state_dict(old)


def test_a_refusal_that_would_be_long_is_short() -> None:
    parts = {f"part {k}": slots(stride=1 + k % 2) for k in range(9)}
    old = state(ts.Mix(parts))
    with pytest.raises(ValueError, match=r"; and \d+ more\. Build the windows and the loader as they were") as raised:
        loader(ts.Mix({name: slots(stride=3) for name in parts})).load_state_dict(old)
    assert len(str(raised.value)) < 2000


# What does not matter


def written(path: Path, table: pa.Table) -> Path:
    pq.write_table(table, path)
    return path


def other_values() -> pa.Table:
    return source(y=np.arange(116.0)[::-1], n=np.zeros(116, np.int64))


ALIKE: dict[str, Callable[[Path], ts.Stash]] = {
    "share=": lambda _: stash(share="alike"),
    "file=": lambda path: stash(file=path / "stash.safetensors"),
    "a path": lambda path: stash(written(path / "some.parquet", source())),
    "other rows first": lambda _: stash(source().take([*reversed(range(116))])),
    "another frame": lambda _: stash(pl.DataFrame(source())),
    "other values": lambda _: stash(other_values()),
    "more columns": lambda _: stash(columns=COLUMNS | {"more": "z"}),
    "another name in the source": lambda _: stash(
        source().append_column("y_", source()["y"]), columns=COLUMNS | {"y": "y_", "ok": ts.is_valid("y_")}
    ),
    "another time that is not read": lambda _: stash(moved("later")),
    "like=": lambda _: stash(like=stash()),
    "duplicates=": lambda _: stash(duplicates="keep"),
    "progress=": lambda _: stash(progress=False),
    "version=": lambda _: stash(share="alike", version="some rows"),
    "saved": lambda path: saved_as(path / "saved.safetensors"),
}


def saved_as(path: Path) -> ts.Stash:
    stash().save(path)
    return ts.open(path)


@pytest.mark.parametrize("name", ALIKE)
def test_where_the_columns_come_from_is_not_in_a_state(name: str, tmp_path: Path, shm: Path) -> None:
    loaded = ALIKE[name](tmp_path)
    loader(events(loaded)).load_state_dict(state(events()))
    loader(slots(loaded)).load_state_dict(state(slots()))


@pytest.mark.parametrize(
    "arguments",
    [
        {"batch_size": 7},
        {"global_batch_size": 6, "batch_size": None},
        {"num_replicas": 3, "rank": 1},
        {"tail": "pad"},
        {"prefetch": 2},
        {"seed": 5},
        {"with_ids": True},
        {"transform": [ts.Cast({"y": torch.float32})]},
    ],
    ids=repr,
)
def test_how_batches_are_made_is_not_in_a_state(arguments: Mapping[str, Any]) -> None:
    loader(slots(), **arguments).load_state_dict(state(slots()))


def test_what_does_not_change_a_window_is_not_in_a_state() -> None:
    """`min_rows=` that leaves nothing out, a frequency that is found anyway, values of labels."""
    loader(events(spans=during(min_rows=1))).load_state_dict(state(events()))
    loader(slots(frequency="1h")).load_state_dict(state(slots()))
    loader(events(at=at(label=np.array([7, 8, 9], np.float32)))).load_state_dict(state(events()))


VALUES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "dtype= of floats": (slots, lambda: slots(stash(dtype=torch.float32))),
    "fill=": (slots, lambda: slots(columns(n=ts.column("n", fill=9, empty=0)))),
    "scaled columns": (slots, lambda: slots(ts.Scaler.fit(stash(), ["y"]).transform(stash()))),
    "empty=": (padded, lambda: padded(columns(n=ts.column("n", fill=0, empty=9)))),
    "empty= in a stretch": (events, lambda: events(columns(y=ts.column("y", empty=0.5)))),
}


@pytest.mark.parametrize(("saved", "changed"), VALUES.values(), ids=VALUES)
def test_values_are_not_in_a_state(saved: Callable[[], Any], changed: Callable[[], Any]) -> None:
    """Nor is the floating type in which they are held, or what stands for missing ones."""
    loader(changed()).load_state_dict(state(saved()))


# Stashes and states of an earlier release


def test_a_file_without_a_checksum_of_its_times_is_read_for_one(tmp_path: Path) -> None:
    """Of files that were saved before there was one."""
    paths = [tmp_path / name for name in ("old", "new", "moved")]
    for path, data in zip(paths, (source(), source(), moved())):
        stash(data).save(path)
    without_checksum(paths[0])
    old, new, other = (events(ts.open(path)) for path in paths)
    loader(new).load_state_dict(state(old))
    loader(old).load_state_dict(state(new))
    with pytest.raises(ValueError, match=r"these differ: row_times: "):
        loader(old).load_state_dict(state(other))


def without_checksum(path: Path) -> None:
    begin, header = header_of(path)
    data = path.read_bytes()[begin:]
    fields = header["__metadata__"]
    schema = json.loads(fields["tensorstash.schema"])
    assert schema["time"].pop("checksum")
    fields["tensorstash.schema"] = json.dumps(schema)
    fields["tensorstash.crc"] = "0" * 8
    text = json.dumps(header, separators=(",", ":")).ljust(begin - 8).encode()
    crc = f"{zlib.crc32(text.rstrip(b' ')):08x}"
    path.write_bytes((begin - 8).to_bytes(8, "little") + text.replace(b"0" * 8, crc.encode(), 1) + data)


def test_a_state_of_an_earlier_release_is_compared_by_what_it_has() -> None:
    old = state(slots())
    for name in ("clock", "columns", "static", "labels", "offsets"):
        del old["fingerprint"][name]
    loader(slots(columns(bucket=ts.hashed("k", 5)))).load_state_dict(old)
    with pytest.raises(ValueError, match=r"; stride: 1 in the state, 2 here"):
        loader(slots(stride=2)).load_state_dict(old)
