"""Spans in time in the cases of other projects, written anew, against loops with Python's comparisons."""

from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest
import torch

import tensorstash as ts
from tests.words import Side

ROW = {"row": ts.column("row", empty=-1)}
day = datetime.fromisoformat


def held(batch: dict[str, torch.Tensor], name: str = "past") -> list[list[int]]:
    """The rows in the span of each window, without empty slots, which must lie in front."""
    observed = batch[f"{name}.observed"]
    assert bool((observed.sort(1).values == observed).all())
    return [row[seen].tolist() for row, seen in zip(batch[name], observed)]


# meds-torch-data

VISITS = [(1, 0), (1, 2), (1, 4), (2, 304), (2, 306), (3, 0)]  # subjects, and half days of 2020
PREDICTIONS = {
    "before_first": [(1, -2), (2, 242)],
    "exactly_on_event": VISITS[:3],
    "after_last": [(1, 57_000), (2, 57_000)],
    "mixed": [(1, -2), (1, 2), (2, 305), (3, 0), (3, 57_000)],
    "drops_absent_subject": [(1, 2), (4, 0), (2, 306)],
}


@pytest.mark.parametrize("points", PREDICTIONS.values(), ids=PREDICTIONS)
@pytest.mark.parametrize("closed", ["left", "right"])
@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize("backwards", [False, True], ids=["sorted", "unsorted"])
def test_events_up_to_a_prediction(points: list[tuple[int, int]], closed: Side, repeats: int, backwards: bool) -> None:
    """test_matches_reference, test_unsorted_schema_time_list: their `time <= prediction_time` is closed="right"; events
    of several measurements are rows of one time."""
    rows = [visit for visit in VISITS for _ in range(repeats)]
    frame = pl.DataFrame({"e": [e for e, _ in rows], "t": [t for _, t in rows], "row": [*range(len(rows))]})
    stash = ts.load(frame.reverse() if backwards else frame, ROW, entity="e", time="t", duplicates="keep")
    at = {"e": [e for e, _ in points], "t": [t for _, t in points], "label": [*range(len(points))]}
    spans = {"past": ts.During("row", -100_000, 0, max_rows=12)}
    batch = ts.Windows(stash, spans=spans, at=at, closed=closed, unmatched="drop")[:]
    kept = [(k, e, t) for k, (e, t) in enumerate(points) if e != 4]
    assert batch["label"].tolist() == [k for k, *_ in kept]
    for window, (_, subject, time) in zip(held(batch), kept):
        before = {k for k, (e, t) in enumerate(rows) if e == subject and (t <= time if closed == "right" else t < time)}
        assert {*window} == before
    if len(kept) < len(points):
        with pytest.raises(ts.errors.DataError, match="1 of an entity that the stash does not have"):
            ts.Windows(stash, spans=spans, at=at, closed=closed)


@pytest.mark.parametrize(("rows", "most"), [(20, 5), (50, 10), (100, 25)])
@pytest.mark.parametrize("balanced", [True, False])
def test_how_often_windows_hold_each_event(rows: int, most: int, balanced: bool) -> None:
    """test_subsequence_sampling: cuts at every place hold each event equally often, whole ones in a trapezoid."""
    stash = ts.load({"t": [*range(rows)], "row": [*range(rows)]}, ROW, time="t")
    spans = {"past": ts.During("row", 0, most, max_rows=most, min_rows=1 if balanced else most)}
    windows = ts.Windows(stash, spans=spans, at={"t": [*range(1 - most, rows)]}, unmatched="drop")
    taken = [row for batch in ts.Loader(windows, 16, shuffle=True) for window in held(batch) for row in window]
    assert np.bincount(taken).tolist() == [most if balanced else min(k + 1, most, rows - k) for k in range(rows)]


# temporaldata

SPIKES = [100, 200, 300, 400, 500, 600]  # milliseconds
SLICES = [(200, 500), (250, 450), (150, 600), (300, 450), (200, 400), (500, 600), (-100, 900)]
SLICES += [(200, 201), (201, 300), (601, 900), (-100, 100)]  # one row, and none


@pytest.mark.parametrize(("start", "end"), SLICES)
@pytest.mark.parametrize("unit", [None, "ms"])
def test_slices_are_half_open(start: int, end: int, unit: str | None) -> None:
    """test_irregular_timeseries_slice, _select_by_interval and _sortedness: their origin is the start, ours the end."""
    dtype, text = ("i8", int) if unit is None else (f"M8[{unit}]", "{}ms".format)
    table: dict[str, Any] = {"t": np.array(SPIKES).astype(dtype), "unit": np.array([0, 0, 1, 0, 1, 2])}
    table["wave"] = np.arange(6 * 48.0).reshape(6, 48)
    shuffled = {name: values[[3, 0, 5, 1, 4, 2]] for name, values in table.items()}
    stash = ts.load(shuffled, {"unit": ts.column("unit", empty=-1), "wave": "wave"}, time="t")
    spans = {name: ts.During(name, text(start - end), text(0), max_rows=6, age=True) for name in ("unit", "wave")}
    batch = ts.Windows(stash, spans=spans, at={"t": np.array([end]).astype(dtype)})[:]
    rows = [row for row, time in enumerate(SPIKES) if start <= time < end]
    assert held(batch, "unit") == [table["unit"][rows].tolist()]
    assert held(batch, "wave") == [table["wave"][rows].tolist()]
    assert held(batch | {"unit": batch["unit.age"]}, "unit") == [[end - SPIKES[row] for row in rows]]


# Calendars and clocks, of which neither project has cases


@pytest.mark.parametrize(
    ("zone", "t", "begin", "hours"),
    [
        ("Europe/Berlin", "2024-04-01", "-1d", 23),
        ("Europe/Berlin", "2024-04-01", "-24h", 24),
        ("Europe/Berlin", "2024-10-28", "-1d", 25),
        ("America/New_York", "2024-03-11", "-1w", 167),
        ("Europe/Berlin", "2024-04-15", "-1mo", 31 * 24 - 1),
        ("UTC", "2024-03-31", "-1mo", 31 * 24),  # from 29 February, as on 30 March
        ("UTC", "2024-03-30", "-1mo", 30 * 24),
        ("UTC", "2024-03-01", "-1y", 366 * 24),
    ],
)
@pytest.mark.parametrize("closed", ["left", "right"])
def test_hours_in_a_stretch_of_the_calendar(zone: str, t: str, begin: str, hours: int, closed: Side) -> None:
    start, hour = datetime(2023, 1, 1, tzinfo=timezone.utc), timedelta(hours=1)
    every = pl.Series([start + k * hour for k in range(700 * 24)])
    stash = ts.load(pl.DataFrame({"t": every.dt.convert_time_zone(zone), "row": [*range(len(every))]}), ROW, time="t")
    at = {"t": pl.Series([day(t)]).dt.replace_time_zone(zone)}
    batch = ts.Windows(stash, spans={"past": ts.During("row", begin, "0h", max_rows=9_000)}, at=at, closed=closed)[:]
    end = (day(t).replace(tzinfo=ZoneInfo(zone)) - start) // hour + (closed == "right")
    assert held(batch) == [[*range(end - hours, end)]]
