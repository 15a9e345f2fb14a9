"""Runs of regular times: the frequency is given or found, and calendars count as polars counts them."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import tensorstash as ts
from tests.data import ZONES
from tests.oracle_load import like
from tests.words import Int64s

pytestmark = pytest.mark.filterwarnings("ignore:Gaps cost")


def runs_of(
    times: Any, unit: str | None, zone: str | None = None, sizes: Sequence[int] = (), **options: Any
) -> list[int]:
    """The rows of each run, as windows of two rows show them: a window joins each row of a run with the next one."""
    sizes = sizes or [len(times)]
    ticks = np.asarray(times)
    ticks = ticks.astype(np.int32) if unit == "d" else ticks
    kind = pa.int64() if unit is None else pa.date32() if unit == "d" else pa.timestamp(unit, zone)
    entities = np.arange(len(sizes))
    every = ts.load({"e": entities, "row": entities}, ["row"], entity="e")  # also those without rows
    rows = {"e": np.repeat(entities, sizes), "t": pa.array(ticks).cast(kind), "row": np.arange(len(ticks))}
    windows = ts.Windows(ts.load(pa.table(rows), ["row"], entity="e", time="t", like=every), 2, **options)
    ends = np.setdiff1d(np.arange(len(ticks)), windows[:]["row"][:, 0].numpy())
    return np.diff(ends, prepend=-1).tolist()


def regular(interval: str, zone: str | None, count: int, start: datetime) -> Int64s:
    """`count` times at an interval, made by polars: (count,) int64 in microseconds."""
    first = pl.Series([start]).dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    frame = pl.DataFrame({"first": first}).with_row_index().drop("index")
    steps = [frame["first"].dt.offset_by(_times(interval, k)) for k in range(count)]
    return pl.concat(steps).dt.epoch("us").to_numpy().astype(np.int64)


def _times(interval: str, k: int) -> str:
    number, unit = re.fullmatch(r"(\d+)(\w+)", interval).groups()  # type: ignore[union-attr]
    return f"{int(number) * k}{unit}"


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("interval", ["15m", "1h", "1d", "2d", "1w", "1mo", "1q", "1y", "6mo"])
@pytest.mark.parametrize("start", [datetime(2019, 1, 1), datetime(2019, 1, 31, 12), datetime(2020, 2, 29, 6)])
def test_regular_times_are_one_run_and_each_missing_one_splits_it(
    interval: str, zone: str | None, start: datetime
) -> None:
    """Across changes of the clock, ends of months and leap years; the frequency is given or inferred."""
    times = regular(interval, zone, 60, start)
    for wanted in (interval, None):
        if wanted is None and interval == "2d":
            continue  # nothing says that a step of 2 days means the calendar's
        assert runs_of(times, "us", zone, frequency=wanted) == [60], wanted
        kept = np.delete(times, [20, 41, 42])
        assert runs_of(kept, "us", zone, frequency=wanted) == [20, 20, 17], wanted


def test_business_days_skip_weekends() -> None:
    days = np.arange("2024-01-01", "2024-03-01", dtype="datetime64[D]")
    working = days[np.is_busday(days)]
    assert runs_of(working, "d", frequency="1bd") == [len(working)]
    missing = np.delete(working, 10)
    assert runs_of(missing, "d", frequency="1bd") == [10, len(missing) - 10]
    assert runs_of(days, "d", frequency="1bd")[:3] == [5, 1, 1]  # a Saturday is no business day


@pytest.mark.parametrize("lengths", [(28, "1mo"), (31, "1mo"), (30, "1mo"), (91, "1q"), (365, "1y")])
def test_steps_of_about_a_month_quarter_or_year_mean_the_calendars(lengths: tuple[int, str]) -> None:
    days, meant = lengths
    months = {"1mo": 1, "1q": 3, "1y": 12}[meant]
    regular_days = (np.datetime64("2021-01", "M") + months * np.arange(40)).astype("datetime64[D]").astype(np.int64)
    assert len({*np.diff(regular_days)}) > 1
    assert runs_of(regular_days, "d") == [40]
    assert runs_of(np.delete(regular_days, 20), "d") == [20, 19]
    assert runs_of(np.arange(40) * days, "d") == [40], "a step of exactly so many days is explained better by days"


def test_jitter_within_the_tolerance_is_no_gap() -> None:
    times = np.arange(50) * 3_600_000 + np.array([0, 30_000, -30_000, 15_000, 0] * 10)
    assert runs_of(times, "ms", "Europe/Berlin", frequency="1h", tolerance="1m") == [50]
    assert len(runs_of(times, "ms", "Europe/Berlin", frequency="1h", tolerance="30s")) > 1


def test_the_most_common_step_is_found_in_long_irregular_times() -> None:
    """Most steps are not the most common one, so that no sample can be trusted."""
    rng = np.random.default_rng(0)
    steps = np.where(rng.random(500_000) < 0.2, 7, rng.integers(100, 100_000, 500_000))
    times = np.concatenate([[0], np.cumsum(steps)])
    ends = np.append(np.flatnonzero(steps != 7), len(steps))
    assert runs_of(times, None) == np.diff(ends, prepend=-1).tolist()


def test_steps_between_entities_do_not_count() -> None:
    times = np.concatenate([np.arange(0, 30, 10), np.arange(5, 35, 10), np.arange(7, 37, 10)])
    assert runs_of(times, None, sizes=[3, 0, 3, 3]) == [3, 3, 3]


def test_calendar_steps_beyond_the_known_years_are_refused() -> None:
    times = np.array([10**12, 10**12 + 86_400], np.int64)
    with pytest.raises(
        ts.errors.DataError, match=r"^Calendar steps in a zone are known for the years 1 to 9999; the times go"
    ):
        runs_of(times, "s", "Europe/Berlin", frequency="1d")


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
def test_a_day_whose_time_the_clock_skips_ends_no_run(zone: str) -> None:
    """Each day is that of the first one so many days on, or the one that follows from the day before."""
    first = pl.Series([datetime(2024, 3, 1, 2, 30)]).dt.replace_time_zone(zone)
    times = np.array([first.dt.offset_by(f"{k}d").dt.epoch("us")[0] for k in range(60)])
    assert len(np.unique(np.diff(times))) > 1
    assert runs_of(times, "us", zone) == [60]
    assert runs_of(np.delete(times, 45), "us", zone, frequency="1d") == [45, 14]


def test_times_too_far_apart_to_count_steps_are_refused() -> None:
    edge = 2**63 - 1
    stash = ts.load({"t": np.array([-edge, 0, edge]), "y": np.zeros(3)}, ["y"], time="t")
    message = f"2**62 ticks ... got -{edge} to {edge}"
    with pytest.raises(ts.errors.DataError, match=like(message)):
        ts.Windows(stash, 2)
    assert len(ts.Windows(stash, 2, gaps="ignore")) == 2


def test_more_empty_slots_than_can_be_counted_are_refused() -> None:
    data = {"e": np.repeat(np.arange(3), 4), "t": np.array([0, 1, 2, 2**61 + 2] * 3), "y": np.zeros(12)}
    stash = ts.load(data, ["y"], entity="e", time="t")
    with pytest.raises(ts.errors.DataError, match=r"^gaps='mask' counts at most 2\*\*62 slots; the gaps of these"):
        ts.Windows(stash, 2, gaps="mask")
