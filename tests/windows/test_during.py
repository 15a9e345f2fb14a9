"""Spans in time against loops over rows with Python's comparisons."""

import re
from calendar import monthrange
from datetime import date, timedelta
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests import kernel
from tests.oracle_load import like
from tests.words import Side


class Seen(NamedTuple):
    """The rows of one window, oldest first, with None in front, and the age of each."""

    rows: list[int | None]
    ages: list[int]


def rows_during(times: list[int], rows: range, t: int, begin: int, end: int, most: int, closed: str) -> Seen:
    """The newest rows of an entity in a stretch of time around t, one by one."""
    inside = []
    for row in rows:
        after = times[row] - t
        if (begin <= after < end) if closed == "left" else (begin < after <= end):
            inside.append(row)
    newest = inside[-most:]
    padding = most - len(newest)
    return Seen([None] * padding + newest, [0] * padding + [t - times[row] for row in newest])


def check(stash: ts.Stash, batch: dict[str, torch.Tensor], name: str, expected: list[Seen]) -> None:
    """Every value, flag and age of a span of the column `row`, which numbers the rows of the stash."""
    empty = -7
    assert batch[name].tolist() == [[empty if row is None else row for row in seen.rows] for seen in expected]
    assert batch[f"{name}.observed"].tolist() == [[row is not None for row in seen.rows] for seen in expected]
    if f"{name}.age" in batch:
        assert batch[f"{name}.age"].dtype == torch.int64
        assert batch[f"{name}.age"].tolist() == [seen.ages for seen in expected]


def stash_of(events: list[tuple[int, int]]) -> ts.Stash:
    """A stash of (entity, time) whose column `row` holds the number of each row."""
    ordered = sorted(events)
    table = {"e": [e for e, _ in ordered], "t": [t for _, t in ordered], "row": [*range(len(ordered))]}
    columns = {"row": ts.column("row", empty=-7), "x": ts.column("row", dtype=torch.float32)}
    return ts.load(table, columns, entity="e", time="t", duplicates="keep")


def spans_of_entities(stash: ts.Stash) -> dict[Any, range]:
    offsets = stash.offsets.tolist()
    return {name: range(offsets[k], offsets[k + 1]) for k, name in enumerate(stash.entities)}


events = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=25)
bounds = st.tuples(st.integers(-6, 4), st.integers(-5, 5)).filter(lambda pair: pair[0] < pair[1])
sides = st.sampled_from(["left", "right"])


@settings(max_examples=80)
@given(
    events=events,
    points=st.lists(st.tuples(st.integers(0, 3), st.integers(-3, 13)), min_size=1, max_size=12),
    bounds=st.lists(bounds, min_size=1, max_size=3),
    most=st.integers(1, 4),
    closed=sides,
    own=st.sampled_from([None, "left", "right"]),
    min_rows=st.integers(0, 2),
    native=st.booleans(),
)
def test_each_window_holds_the_newest_rows_of_its_stretch(
    events: list[tuple[int, int]],
    points: list[tuple[int, int]],
    bounds: list[tuple[int, int]],
    most: int,
    closed: Side,
    own: Side | None,
    min_rows: int,
    native: bool,
) -> None:
    """At points in time, in their order, several spans in one window; equal times are never divided by the bounds."""
    stash = stash_of(events)
    entities, times = spans_of_entities(stash), stash.time.tolist()  # type: ignore[union-attr]
    min_rows = min(min_rows, most)
    spans: dict[str, Any] = {
        f"s{k}": ts.During("row", *pair, max_rows=most + k, age=k != 1, closed=own, min_rows=min_rows)
        for k, pair in enumerate(bounds)
    }
    spans["x"] = ts.During("x", *bounds[0], max_rows=most, closed=own)
    expected = []
    for number, (e, t) in enumerate(points):
        rows = entities.get(e)
        seen = [
            rows_during(times, rows or range(0), t, *pair, most + k, own or closed) for k, pair in enumerate(bounds)
        ]
        if rows is not None and all(sum(row is not None for row in one.rows) >= min_rows for one in seen):
            expected.append((number, e, t, seen))
    frame = {"e": [e for e, _ in points], "t": [t for _, t in points], "label": [float(k) for k in range(len(points))]}
    with pytest.MonkeyPatch.context() as patch:
        if not native:
            kernel.leave_out(patch)
        if not expected:
            with pytest.raises(ts.errors.NoWindowError, match="None of the"):
                ts.Windows(stash, spans=spans, at=frame, closed=closed, unmatched="drop")
            return
        windows = ts.Windows(stash, spans=spans, at=frame, closed=closed, unmatched="drop")
        batch = windows[:]
    assert windows.points is not None
    assert windows.points.tolist() == [number for number, *_ in expected]
    assert batch["label"].tolist() == [float(number) for number, *_ in expected]
    anchors = windows.anchors(range(len(windows)))
    assert anchors["time"].tolist() == [t for _, _, t, _ in expected]
    assert [stash.entities[k] for k in anchors["entity"].tolist()] == [e for _, e, _, _ in expected]
    for k in range(len(bounds)):
        check(stash, batch, f"s{k}", [seen[k] for *_, seen in expected])
    assert batch["x"].nan_to_num(-7).tolist() == batch["s0"].tolist()


@settings(max_examples=50)
@given(events=events, bounds=bounds, most=st.integers(1, 4), own=st.sampled_from([None, "left", "right"]))
def test_without_points_each_row_is_a_window(
    events: list[tuple[int, int]], bounds: tuple[int, int], most: int, own: Side | None
) -> None:
    """The stretch ends with the row, and with others of its time."""
    stash = stash_of(events)
    times = stash.time.tolist()  # type: ignore[union-attr]
    windows = ts.Windows(stash, spans={"past": ts.During("row", *bounds, max_rows=most, closed=own, age=True)})
    expected = [
        rows_during(times, rows, times[row], *bounds, most, own or "right")
        for rows in spans_of_entities(stash).values()
        for row in rows
    ]
    check(stash, windows[:], "past", expected)


@settings(max_examples=40)
@given(
    events=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), unique=True, min_size=4, max_size=20),
    bounds=bounds,
)
def test_beside_slots_with_a_horizon_the_stretch_ends_before_the_anchor(
    events: list[tuple[int, int]], bounds: tuple[int, int]
) -> None:
    stash = stash_of(events)
    times = stash.time.tolist()  # type: ignore[union-attr]
    anchors = [row for rows in spans_of_entities(stash).values() for row in rows if row - 1 in rows]
    spans: dict[str, Any] = {
        "last": ("row", -1, 0),
        "next": ("row", 0, 1),
        "past": ts.During("row", *bounds, max_rows=3),
    }
    if not anchors:
        with pytest.raises(ts.errors.NoWindowError, match="longest"):
            ts.Windows(stash, spans=spans, gaps="ignore")
        return
    batch = ts.Windows(stash, spans=spans, gaps="ignore")[:]
    entities = {row: rows for rows in spans_of_entities(stash).values() for row in rows}
    assert batch["next"].tolist() == [[row] for row in anchors]
    assert batch["last"].tolist() == [[row - 1] for row in anchors]
    check(stash, batch, "past", [rows_during(times, entities[row], times[row], *bounds, 3, "left") for row in anchors])


@settings(max_examples=40)
@given(events=events, min_rows=st.integers(1, 3), cut=st.integers(0, 9))
def test_windows_with_too_few_rows_are_left_out_before_and_after_a_split(
    events: list[tuple[int, int]], min_rows: int, cut: int
) -> None:
    stash = stash_of(events)
    times = stash.time.tolist()  # type: ignore[union-attr]
    past = ts.During("row", -3, 0, max_rows=4, min_rows=min_rows)
    every = [(rows, row) for rows in spans_of_entities(stash).values() for row in rows]
    kept = [
        row
        for rows, row in every
        if sum(r is not None for r in rows_during(times, rows, times[row], -3, 0, 4, "right").rows) >= min_rows
    ]
    if not kept:
        with pytest.raises(ts.errors.NoWindowError, match="min_rows"):
            ts.Windows(stash, spans={"past": past})
        return
    windows = ts.Windows(stash, spans={"past": past})
    assert windows[:]["past"][:, -1].tolist() == [
        max(r for r in rows_during(times, rows, times[row], -3, 0, 4, "right").rows if r is not None)
        for rows, row in every
        if row in kept
    ]
    before, after = windows.split(cut)
    assert len(before) + len(after) == len(kept)
    assert all(t < cut for t in before.anchors(range(len(before)))["time"].tolist())
    assert all(t >= cut for t in after.anchors(range(len(after)))["time"].tolist())


@pytest.mark.parametrize("begin", ["-1d", "-1mo", "-36h", "-1w"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_durations_are_those_of_polars_across_a_change_of_clocks(begin: str, zone: str | None) -> None:
    hours = pl.datetime_range(pl.datetime(2024, 3, 1), pl.datetime(2024, 4, 3), "1h", eager=True, time_zone="UTC")
    frame = pl.DataFrame({"t": hours}).with_row_index("row")
    frame = frame.with_columns(
        pl.col("t").dt.replace_time_zone(None) if zone is None else pl.col("t").dt.convert_time_zone(zone)
    )
    stash = ts.load(frame, {"row": ts.column("row", dtype=torch.float64)}, time="t")
    points = frame.filter(pl.col("row") % 13 == 5)["t"]
    windows = ts.Windows(
        stash, spans={"past": ts.During("row", begin, "0d", max_rows=800)}, at=pl.DataFrame({"t": points})
    )
    batch = windows[:]
    for k, t in enumerate(points):
        low = (
            pl.Series([t]).dt.cast_time_unit("us").dt.offset_by(begin)[0]
            if zone is None
            else points.dt.offset_by(begin)[k]
        )
        inside = frame.filter((pl.col("t") >= low) & (pl.col("t") < t))["row"].to_list()
        assert batch["past"][k][batch["past.observed"][k]].tolist() == inside


@pytest.mark.parametrize(
    ("span", "fragment"),
    [
        (lambda: ts.During("x", -3, 0, max_rows=0), "max_rows must be"),
        (lambda: ts.During("x", -3, 0, max_rows=2, min_rows=3), "min_rows must be at most"),
        (lambda: ts.During("x", -3, 0, max_rows=2, min_rows=-1), "min_rows must be"),
        (lambda: ts.During("x", -3, 0, max_rows=2, closed="both"), "closed must be"),  # type: ignore[arg-type]
        (lambda: ts.During("x", "-3d", "0d", max_rows=2), "start of 'past' must be an integer, as the times are"),
        (lambda: ts.During("z", -3, 0, max_rows=2), "no column 'z'"),
        (lambda: ts.During("count", -3, 0, max_rows=2), "empty slot needs a value"),
    ],
)
def test_a_wrong_span_in_time_is_a_clear_error(span: Any, fragment: str) -> None:
    stash = ts.load({"t": [1, 2, 3], "x": [1.0, 2.0, 3.0], "count": [1, 2, 3]}, time="t")
    with pytest.raises((ValueError, TypeError, ts.errors.TensorstashError), match=fragment):
        ts.Windows(stash, spans={"past": span()})


def test_times_and_bounds_that_64_bits_cannot_hold_are_errors() -> None:
    near = ts.load({"t": [0, 5], "x": [1.0, 2.0]}, time="t")
    with pytest.raises(ValueError, match=r"less than 2\*\*61 ticks"):
        ts.Windows(near, spans={"past": ts.During("x", -(2**70), 0, max_rows=3)})
    with pytest.raises(TypeError, match="Names of spans must be strings"):
        ts.Windows(near, spans={1: ts.During("x", -1, 0, max_rows=3)})  # type: ignore[dict-item]
    wide = ts.Windows(near, spans={"past": ts.During("x", -(2**59), 2**59, max_rows=2)})
    assert wide[:]["past"].tolist() == [[1.0, 2.0]] * 2
    far = ts.load({"t": [-(2**63), 2**63 - 1], "x": [1.0, 2.0]}, ["x"], time="t")
    with pytest.raises(ts.errors.DataError, match=r"within 2\*\*62 ticks"):
        ts.Windows(far, spans={"past": ts.During("x", -1, 0, max_rows=3)})


@pytest.mark.parametrize("begin", ["90 days", -90, "", "-1d12h1mo", "-1x", True, -7.5, None])
def test_a_wrong_duration_is_an_error_when_the_span_is_made(begin: Any) -> None:
    with pytest.raises(ValueError, match=r"start of ts\.During must be a duration as polars writes it"):
        ts.During("x", begin, "0d", max_rows=2)


MANY = [np.array([-7, -3]), np.array([]), torch.tensor([]), pl.Series([-7, 1]), pl.DataFrame({"a": [1]}), pl.col("y")]


@pytest.mark.parametrize("bound", [*MANY, pd.Series([-7]), pd.DataFrame()])
def test_what_holds_several_values_is_no_duration(bound: Any) -> None:
    with pytest.raises(ValueError, match=r"start of ts\.During must be a duration as polars writes it"):
        ts.During("x", bound, 0, max_rows=2)
    with pytest.raises(ValueError, match=r"every of ts\.During must be an integer, as the times are, got .*\.$"):
        ts.During("x", -7, 0, every=bound)


@pytest.mark.parametrize("number", [np.array, torch.tensor, np.int8])
def test_numbers_of_numpy_and_torch_are_those_of_python(number: Any) -> None:
    stash = ts.load({"t": [1, 2, 3], "x": [1.0, 2.0, 3.0]}, time="t")
    span = ts.During("x", number(-2), number(0), every=number(1))
    assert span == ts.During("x", -2, 0, every=1)
    assert ts.During("x", np.array("-2d"), "0d", max_rows=1) == ts.During("x", "-2d", "0d", max_rows=1)  # type: ignore[arg-type]
    assert ts.Windows(stash, spans={"past": span})[2]["past"].tolist() == [2.0, 3.0]


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (0, -3),
        (3, 3),
        ("90d", "0d"),
        ("0d", "-12h"),
        ("0d", "0h"),
        ("-1mo", "-1q"),
        ("1ns", "-1ns"),
        ("-200y", "-900y"),
    ],
)
def test_bounds_in_the_wrong_order_are_an_error_when_the_span_is_made(begin: Any, end: Any) -> None:
    message = r"must have start < stop for every time t, got .*\. The past has a minus, as "
    with pytest.raises(ValueError, match=message):
        ts.During("x", begin, end, max_rows=2)


@pytest.mark.parametrize(("begin", "fragment"), [("-1ns", "a multiple of the unit of the times, 's'"), (-90, "a dur")])
def test_bounds_that_the_times_do_not_have_are_an_error_when_windows_are_made(begin: Any, fragment: str) -> None:
    stash = ts.load({"t": np.array(["2024-01-01", "2024-01-02"], "M8[s]"), "x": [1.0, 2.0]}, time="t")
    span = ts.During("x", begin, "0d" if isinstance(begin, str) else 0, max_rows=2)
    with pytest.raises(ValueError, match=f"start of 'past' must be {fragment}"):
        ts.Windows(stash, spans={"past": span})


@pytest.mark.parametrize(
    ("name", "value"),
    [("frequency", 1), ("tolerance", 1), ("min_history", 1), ("min_horizon", 0), ("gaps", "mask")],
)
@pytest.mark.parametrize("at", [None, {"e": [0], "t": [3]}])
def test_arguments_about_slots_are_refused_where_no_span_has_slots(
    name: str, value: Any, at: dict[str, list[int]] | None
) -> None:
    stash = stash_of([(0, 1), (0, 2), (0, 5)])
    spans = {"past": ts.During("row", -3, 0, max_rows=4)}
    options: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=like(f"{name}= is about slots ... min_rows=")):
        ts.Windows(stash, spans=spans, at=at, **options)
    assert len(ts.Windows(stash, spans=spans, at=at, gaps="ignore")) == (3 if at is None else 1)


def offset_by(day: date, bound: str) -> date:
    """A day moved as polars moves it, in Python: to the same day of another month, or its last."""
    count, unit = re.fullmatch(r"(-?\d+)(d|mo)", bound).groups()  # type: ignore[union-attr]
    if unit == "d":
        return day + timedelta(days=int(count))
    year, month = divmod(day.year * 12 + day.month - 1 + int(count), 12)
    return date(year, month + 1, min(day.day, monthrange(year, month + 1)[1]))


@pytest.mark.parametrize(
    "bounds",
    [
        *((f"-{m}mo", f"-{d}d") for m, d in ((1, 27), (1, 28), (1, 29), (1, 30), (1, 31), (2, 58), (2, 59), (12, 364))),
        *((f"-{d}d", f"-{m}mo") for m, d in ((1, 31), (1, 32), (1, 30), (2, 62), (2, 63), (12, 366), (12, 367))),
        *(("-2mo", "-1mo"), ("-1mo", "-1mo"), ("-1mo", "0d"), ("28d", "1mo"), ("27d", "1mo"), ("1mo", "32d")),
    ],
)
def test_a_span_in_time_is_empty_for_no_time(bounds: tuple[str, str]) -> None:
    """A loop over the days of 28 years, which have all months and leap years near them."""
    days = [date(2000, 1, 1) + timedelta(days=k) for k in range(10_227)]
    empty = [day for day in days if not offset_by(day, bounds[0]) < offset_by(day, bounds[1])]
    if not empty:
        ts.During("row", *bounds, max_rows=4)
        return
    with pytest.raises(ValueError, match=like("A span in time must have start < stop")) as caught:
        ts.During("row", *bounds, max_rows=4)
    if len(empty) < len(days):
        first = next(day for day in empty if day >= date(2020, 1, 1))
        low, high = (offset_by(first, bound) for bound in bounds)
        assert f"for t={first} 00:00:00 it begins at {low} 00:00:00 and ends at {high} 00:00:00." in str(caught.value)


def test_weeks_of_work_are_compared_with_days() -> None:
    ts.During("row", "-5bd", "-4d", max_rows=4)
    with pytest.raises(ValueError, match=like("for every time t, got '-4bd' and '-5d'")):
        ts.During("row", "-4bd", "-5d", max_rows=4)
    ts.During("row", "-1mo", "-100ns", max_rows=4)
