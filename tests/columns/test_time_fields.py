"""Columns of `ts.calendar`, beside those of pandas."""

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import tensorstash as ts
from tests.oracle_load import like

FIELDS = ("second", "minute", "hour", "day", "dayofweek", "dayofyear", "week", "month", "quarter")
# how many values each has, and the first
CIRCLES = {
    "second": (60, 0),
    "minute": (60, 0),
    "hour": (24, 0),
    "day": (31, 1),
    "dayofweek": (7, 0),
    "dayofyear": (366, 1),
    "week": (53, 1),
    "month": (12, 1),
    "quarter": (4, 1),
}
# as gluonts/time_feature/_base.py and TSLib's utils/timefeatures.py have them
FORMULAS: dict[str, Callable[[pd.DatetimeIndex], NDArray[np.float64]]] = {
    "second": lambda index: np.asarray(index.second) / 59.0 - 0.5,
    "minute": lambda index: np.asarray(index.minute) / 59.0 - 0.5,
    "hour": lambda index: np.asarray(index.hour) / 23.0 - 0.5,
    "dayofweek": lambda index: np.asarray(index.day_of_week) / 6.0 - 0.5,
    "day": lambda index: (np.asarray(index.day) - 1) / 30.0 - 0.5,
    "dayofyear": lambda index: (np.asarray(index.day_of_year) - 1) / 365.0 - 0.5,
    "week": lambda index: (np.asarray(index.isocalendar().week, float) - 1) / 52.0 - 0.5,
    "month": lambda index: (np.asarray(index.month) - 1) / 11.0 - 0.5,
}
ZONES = [None, "UTC", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "+05:30", "-03:00"]
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def by_pandas(field: str, times: pd.DatetimeIndex) -> list[int]:
    name = {"dayofweek": "day_of_week", "dayofyear": "day_of_year"}.get(field, field)  # as newer releases call them
    found = times.isocalendar().week if field == "week" else getattr(times, name)
    return [int(value) for value in found]


def check(times: pa.Array) -> None:
    """All fields alone, as a pack and as phases; `times` ascend."""
    zone = times.type.tz if pa.types.is_timestamp(times.type) else None
    plain = times.cast(pa.timestamp("us")) if pa.types.is_date(times.type) else times
    index = pd.DatetimeIndex(plain.view(pa.int64()).to_numpy().view(f"M8[{plain.type.unit}]"))
    if zone is not None:
        offset = zone[0] in "+-"
        index = index.tz_localize("UTC").tz_convert(f"UTC{zone}" if offset else zone)
    fields = FIELDS[3:] if pa.types.is_date(times.type) else FIELDS
    expected = {field: by_pandas(field, index) for field in fields}
    columns = {field: ts.calendar(field) for field in fields}
    columns |= {
        "all": ts.calendar(*fields),
        "phases": ts.calendar(*fields, cyclic=True),
        "scaled": ts.calendar(*fields, scaled=True),
    }
    stash = ts.load(pa.table({"t": times}), columns, time="t")
    for field in fields:
        assert stash[field].dtype == (torch.int16 if field == "dayofyear" else torch.int8)
        assert stash[field].tolist() == [[value] for value in expected[field]], field
    assert stash["all"].dtype == torch.int16
    assert stash["all"].T.tolist() == list(expected.values())
    assert stash["phases"].dtype == stash["scaled"].dtype == torch.float32
    for k, field in enumerate(fields):
        length, first = CIRCLES[field]
        if field in FORMULAS:
            assert stash["scaled"][:, k].tolist() == FORMULAS[field](index).astype(np.float32).tolist(), field
        phase = 2 * np.pi * (np.array(expected[field], np.int64) - first) / length
        for wave, function in enumerate((np.sin, np.cos)):
            assert stash["phases"][:, 2 * k + wave].tolist() == function(phase).astype(np.float32).tolist(), field


@settings(max_examples=25)
@given(
    seconds=st.lists(st.integers(-(2**33), 2**33), max_size=30, unique=True),
    unit=st.sampled_from([*PER_SECOND]),
    zone=st.sampled_from(ZONES),
    fraction=st.integers(0, 10**9),
)
def test_fields_are_those_of_pandas(seconds: list[int], unit: str, zone: str | None, fraction: int) -> None:
    """Times before 1970, too, and between the ticks of seconds."""
    ticks = [second * PER_SECOND[unit] + fraction % PER_SECOND[unit] for second in sorted(seconds)]
    check(pa.array(ticks, pa.timestamp(unit, zone)))


@pytest.mark.parametrize("zone", ZONES)
def test_around_changes_of_the_clock_and_of_the_year(zone: str | None) -> None:
    """Every half hour of days on which clocks change somewhere, and of the days around 20 new years."""
    days = ["2024-03-10", "2024-03-31", "2024-04-07", "2024-10-06", "2024-11-03"]
    days += [f"{year}-{day}" for year in range(2001, 2021) for day in ("12-30", "12-31")]
    starts = np.array(days, "M8[s]").view(np.int64)
    ticks = np.unique(starts[:, None] + np.arange(-48, 96) * 1800)
    check(pa.array(ticks, pa.timestamp("s", zone)))


@pytest.mark.parametrize("arrow", [pa.date32(), pa.date64()])
def test_dates_have_days_but_no_hours(arrow: pa.DataType) -> None:
    check(pa.array(range(-5000, 20_000, 3), pa.int32()).view(pa.date32()).cast(arrow))
    for field in ("second", "minute", "hour"):
        message = f"A date has no {field}; time='t' is {arrow}"
        with pytest.raises(ts.errors.SchemaError, match=like(message)):
            ts.load(
                pa.table({"t": pa.array([1], pa.int32()).view(pa.date32()).cast(arrow)}),
                {"c": ts.calendar(field)},
                time="t",
            )


def test_years_far_beyond_those_of_pandas() -> None:
    """The calendar repeats itself every 400 years, which are whole weeks."""
    seconds = np.arange(0, 86_400 * 366, 86_400 * 5 + 4321)
    era = 400 * 365.2425 * 86_400
    stashes = [
        ts.load({"t": (seconds + int(eras * era)).view("M8[s]")}, {"c": ts.calendar(*FIELDS)}, time="t")
        for eras in (0, 500, 10**6, -(10**6))
    ]
    for other in stashes[1:]:
        assert other["c"].equal(stashes[0]["c"])


def test_years_in_a_zone_that_python_does_not_know_are_refused() -> None:
    source = pa.table({"t": pa.array([10**12], pa.timestamp("s", "Europe/Berlin"))})
    with pytest.raises(
        ts.errors.DataError, match=r"\ACalendar steps in a zone are known for the years 1 to 9999; the times "
    ):
        ts.load(source, {"c": ts.calendar("hour")}, time="t")


def test_beside_other_columns_in_disorder_and_in_other_types() -> None:
    hours = np.array(["2024-01-01T05", "2024-01-01T01", "2024-01-02T03"], "M8[h]").astype("M8[s]")
    source = {"t": hours, "e": ["A", "B", "A"], "y": [1.0, 2.0, 3.0]}
    columns: dict[str, Any] = {"y": "y", "hour": ts.calendar("hour"), "phase": ts.calendar("hour", cyclic=True)}
    stash = ts.load(source, columns, entity="e", time="t", dtype=torch.float16)
    assert stash["hour"].tolist() == [[5], [3], [1]]
    assert (stash["phase"].dtype, stash["phase"].shape) == (torch.float16, (3, 2))
    assert stash["phase"][:, 0].tolist() == torch.tensor([5, 3, 1]).mul(2 * torch.pi / 24).sin().half().tolist()
    plan = ts.plan(source, columns, entity="e", time="t")
    assert [*plan.request.formulas] == ["hour of t", "sin of hour of t", "cos of hour of t"]
    assert plan.skipped == ()
    text = {"s": ["2024-01-01"], "t": [datetime.datetime(2024, 5, 1)]}
    both: dict[str, Any] = {"c": ts.calendar("month"), "m": pl.col("s").str.to_datetime("%Y-%m-%d").dt.month()}
    stash = ts.load(text, both, time="t")
    assert (stash["c"].tolist(), stash["m"].tolist()) == ([[5]], [1])


@pytest.mark.usefixtures("shm")
def test_shared_with_the_same_fields_only() -> None:
    source = {"t": np.arange(5).view("M8[s]")}
    calls = [
        ts.calendar("hour"),
        ts.calendar("hour", cyclic=True),
        ts.calendar("hour", scaled=True),
        ts.calendar("day"),
        ts.calendar("hour", "day"),
    ]
    paths = [ts.load(source, {"c": fields}, time="t", share="calendar").path for fields in calls * 2]
    assert paths[:5] == paths[5:]
    assert len(set(paths)) == 5


def test_helpful_errors() -> None:
    names = "'second', 'minute', 'hour', 'day', 'dayofweek', 'dayofyear', 'week', 'month', 'quarter'"
    wrong: list[tuple[Any, ...]] = [(), ("hours",), ("hour", "hour"), (["hour"],), (7,)]
    for fields in wrong:
        message = f"takes some of {names} ... got {[*fields]}"
        with pytest.raises(ValueError, match=like(message)):
            ts.calendar(*fields)
    message = "cyclic=True or scaled=True, not both"
    with pytest.raises(ValueError, match=like(message)):
        ts.calendar("hour", cyclic=True, scaled=True)
    hour = {"c": ts.calendar("hour")}
    message = "time= is missing"
    with pytest.raises(ValueError, match=like(message)):
        ts.load({"t": [datetime.datetime(2024, 1, 1)]}, hour)
    message = "needs times or dates; ... 't' is int64"
    with pytest.raises(ts.errors.SchemaError, match=like(message)):
        ts.load({"t": [1, 2]}, hour, time="t")
    message = "ISO 8601; '1 January 2024' in column 't'"
    with pytest.raises(ts.errors.SchemaError, match=like(message)):
        ts.load({"t": ["1 January 2024"]}, hour, time="t")
    message = "'t' ... 'Mars/Olympus' ... this machine does not know"
    with pytest.raises(ts.errors.SchemaError, match=like(message)):
        ts.load(pa.table({"t": pa.array([1], pa.timestamp("s", "Mars/Olympus"))}), hour, time="t")
    with pytest.raises(
        ValueError, match=r"\AA pack or a mask in a list needs a name, got \[Moment\(field='hour', form='number'\)\]\. "
    ):
        ts.load({"t": [datetime.datetime(2024, 1, 1)]}, [ts.calendar("hour")], time="t")
    with pytest.raises(ts.errors.DataError, match=r"'t'.* null.* row 1"):
        ts.load(pa.table({"t": pa.array([1, None], pa.timestamp("s"))}), hour, time="t")


def test_times_of_a_dictionary() -> None:
    times = pa.array([7200, 3600, 7200]).view(pa.timestamp("s", "Europe/Berlin"))
    source = pa.table({"t": times.dictionary_encode(), "e": ["a", "a", "b"]})
    assert ts.load(source, {"c": ts.calendar("hour")}, entity="e", time="t")["c"].tolist() == [[2], [3], [3]]
