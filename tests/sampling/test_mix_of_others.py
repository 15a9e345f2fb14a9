"""Components of a mix whose numbers mean different things: refused, with what differs and how it is made alike."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import tensorstash as ts
from tests.oracle_load import like


def source(unit: str = "us", zone: str | None = "UTC", **changed: Any) -> pa.Table:
    hours = np.arange("2024-01-01", "2024-01-02", np.timedelta64(1, "h"), dtype="M8[us]")
    table: dict[str, Any] = {
        "t": pa.array(hours, pa.timestamp("us", zone)).cast(pa.timestamp(unit, zone)),
        "e": ["a"] * 24,
        "x": np.arange(24.0),
        "y": np.arange(24.0) * 2,
        "n": np.arange(24),
        "k": ["u", "v"] * 12,
        "since": pa.array(hours, pa.timestamp("ms")),
        "place": ["p"] * 24,
    }
    return pa.table(table | changed)


def windows(column: Any = "y", of: Any = None, static: Any = None, **arguments: Any) -> ts.Windows:
    """Windows of one column "c"."""
    stash = ts.load(source() if of is None else of, {"c": column}, entity="e", time="t", static=static)
    return ts.Windows(stash, **({"spans": {"c": ("c", -2, 1)}} | arguments))


def at(**labels: Any) -> pa.Table:
    table = source()
    return pa.table({"e": table["e"][5:8], "t": table["t"][5:8]} | labels)


def moment(unit: str, zone: str | None = None) -> pa.Array:
    return pa.array([0, 60, 120], pa.int64()).cast(pa.timestamp(unit, zone))


def scaled() -> ts.Windows:
    stash = windows().stash
    return ts.Windows(ts.Scaler.fit(stash, ["c"]).transform(stash), spans={"c": ("c", -2, 1)})


def masked(of: str) -> ts.Windows:
    columns = {"x": ts.column("x", fill=0.0), "y": ts.column("y", fill=0.0), "ok": ts.is_valid(of)}
    stash = ts.load(source(), columns, entity="e", time="t")
    return ts.Windows(stash, 2, columns=["x", "ok"])


def recent(**arguments: Any) -> dict[str, Any]:
    return {"spans": {"c": ts.During("c", "-3h", "0h", max_rows=2, **arguments)}}


PAIRS: list[tuple[Callable[[], ts.Windows], Callable[[], ts.Windows], str]] = [
    (
        lambda: windows(at=at(label=moment("ms"))),
        lambda: windows(at=at(label=moment("us"))),
        "type of 'label' in at=; 'one' has 'timestamp[ms]', 'two' has 'timestamp[us]'. Cast it in one",
    ),
    (
        lambda: windows(at=at(label=moment("us", "UTC"))),
        lambda: windows(at=at(label=moment("us"))),
        "type of 'label' in at=; 'one' has 'timestamp[us, tz=UTC]', 'two' has 'timestamp[us]'.",
    ),
    (
        lambda: windows(at=at(label=pa.array([1, 2, 3]))),
        lambda: windows(at=at(label=moment("us"))),
        "type of 'label' in at=; 'one' has 'int64', 'two' has 'timestamp[us]'.",
    ),
    (
        lambda: windows(at=at(label=[1, 2, 3])),
        lambda: windows(at=at(lable=[1, 2, 3])),
        "columns of at=; 'one' has ['label'], 'two' has ['lable']. Give both frames",
    ),
    (
        lambda: windows(ts.calendar("hour", "day")),
        lambda: windows(ts.calendar("day", "hour")),
        "fields of 'c'; 'one' has ['hour', 'day'], 'two' has ['day', 'hour']. Take the same fields",
    ),
    (
        lambda: windows(ts.calendar("hour", cyclic=True)),
        lambda: windows(ts.calendar("hour", "day", scaled=True)),
        "fields of 'c'; 'one' has ['sin of hour', 'cos of hour'], 'two' has ['scaled of hour', 'scaled of day'].",
    ),
    (
        lambda: windows(ts.hashed("k", 5)),
        lambda: windows(ts.hashed("k", 7)),
        "number of buckets of 'c'; 'one' has 5, 'two' has 7. Give both the same number",
    ),
    (
        lambda: windows(static={"s": ts.hashed("place", 5)}),
        lambda: windows(static={"s": ts.hashed("place", 7)}),
        "number of buckets of 's'; 'one' has 5, 'two' has 7.",
    ),
    (
        lambda: windows(["x", "y"]),
        lambda: windows(["y", "x"]),
        "members of 'c'; 'one' has ['x', 'y'], 'two' has ['y', 'x']. Pack the same columns in the same order",
    ),
    (lambda: windows(), scaled, "scaling of 'c'; 'one' has none, 'two' has 'applied'. Apply a scaler to both"),
    (
        lambda: windows("since"),
        lambda: windows("since", source(since=pa.array([*range(24)], pa.timestamp("us")))),
        "unit of 'c'; 'one' has 'ms', 'two' has 'us'. Convert it",
    ),
    (
        lambda: windows("since"),
        lambda: windows("since", source(since=pa.array([*range(24)], pa.timestamp("ms", "UTC")))),
        "time zone of 'c'; 'one' has none, 'two' has 'UTC'. Convert it",
    ),
    (
        lambda: windows("since"),
        lambda: windows(ts.column("n", dtype=torch.int64)),
        "kind of 'c'; 'one' has 'timestamp', 'two' has 'number'. Load the column from the same kind of values in both",
    ),
    (
        lambda: windows(ts.column("k", vocabulary=["u", "v"])),
        lambda: windows(ts.column("k", vocabulary=["v", "u"])),
        "vocabulary of 'c'; 'one' has ['u', 'v'], 'two' has ['v', 'u']. Give both one vocabulary=",
    ),
    (
        lambda: windows(ts.column("n", fill=-1)),
        lambda: windows(ts.column("n", fill=0)),
        "fill= of 'c'; 'one' has -1, 'two' has 0. Give both the same",
    ),
    (
        lambda: windows(ts.column("n", empty=-1), min_history=1),
        lambda: windows(ts.column("n", empty=0), min_history=1),
        "value in empty slots of 'c'; 'one' has -1, 'two' has 0. Give both the same empty=",
    ),
    (
        lambda: masked("x"),
        lambda: masked("y"),
        "columns marked by the ts.is_valid of 'ok'; 'one' has ['x'], 'two' has ['y'].",
    ),
    (
        lambda: windows(**recent(age=True)),
        lambda: windows(**recent()),
        "spans; 'one' has ['c=c(-3h, 0h], at most 2, with age'], 'two' has ['c=c(-3h, 0h], at most 2'].",
    ),
    (
        lambda: windows(**recent(closed="left")),
        lambda: windows(**recent(closed="right")),
        "spans; 'one' has ['c=c[-3h, 0h), at most 2'], 'two' has ['c=c(-3h, 0h], at most 2'].",
    ),
    (
        lambda: windows(),
        lambda: windows(of=source("ms")),
        "unit of times; 'one' has 'us', 'two' has 'ms'. Convert the times",
    ),
    (
        lambda: windows(),
        lambda: windows(of=source(zone="Europe/Berlin")),
        "zone of times; 'one' has 'UTC', 'two' has 'Europe/Berlin'. Convert the times",
    ),
    (
        lambda: ts.Windows(ts.load({"c": [1.0, 2.0]}), 1),
        lambda: ts.Windows(ts.load({"c": [1.0, 2.0], "t": [1, 2]}, ["c"], time="t"), 1),
        "unit of times; 'one' has none, 'two' has 'integers'.",
    ),
    (
        lambda: windows(static=["place"]),
        lambda: windows(),
        "static columns; 'one' has ['place'], 'two' has []. Load both with",
    ),
]


@pytest.mark.parametrize(
    ("one", "two", "message"), PAIRS, ids=[f"{k} {p[2].split(';')[0]}" for k, p in enumerate(PAIRS)]
)
def test_numbers_that_mean_different_things_are_refused(
    one: Callable[[], ts.Windows], two: Callable[[], ts.Windows], message: str
) -> None:
    """In either order, and each goes with itself."""
    for part in (one, two):
        assert len(ts.Mix({"one": part(), "again": part()})) == 2 * len(part())
    with pytest.raises(ts.errors.SchemaError, match=like(f"The components of a mix must have the same {message}")):
        ts.Mix({"one": one(), "two": two()})
    with pytest.raises(ts.errors.SchemaError, match=like("The components of a mix must have the same")):
        ts.Mix({"two": two(), "one": one()})


def test_components_may_differ_in_what_their_numbers_do_not_depend_on() -> None:
    """Names of single columns in their sources, strides, empty slots, parts of a split, points without labels."""
    alike = {
        "y": windows(),
        "x": windows("x"),
        "stride": windows("x", stride=2),
        "padded": windows("x", min_history=1),
        "part": windows().split("2024-01-01 12:00")[1],
        "points": windows(at=at()),
    }
    mix = ts.Mix(alike)
    assert len(mix) == sum(map(len, alike.values()))
    lists = ts.load({"c": np.zeros((9, 2)), "t": source()["t"][:9]}, ["c"], time="t")
    assert len(ts.Mix({"list": ts.Windows(lists, 3), "named": windows(["x", "y"], spans={"c": ("c", -3, 0)})})) == 29
    masks = [
        ts.Windows(ts.load({of: [1.0, None]}, {"c": ts.column(of, fill=0), "ok": ts.is_valid(of)}), 1)
        for of in ("here", "there")
    ]
    assert len(ts.Mix(dict(zip("ab", masks)))) == 4
