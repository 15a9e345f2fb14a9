"""What gaps most likely are: the message names it, and its remedy, which is executed here, works on the same times."""

import re
import warnings
from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import tensorstash as ts
from tests.oracle_load import like

HOLIDAYS = pd.to_datetime([f"{y}-{day}" for y in range(2020, 2025) for day in ("01-01", "04-10", "09-07", "12-25")])
WEEKDAYS = pd.bdate_range("2020-01-01", "2024-06-01", unit="s")
SESSIONS = WEEKDAYS[~WEEKDAYS.isin(HOLIDAYS)]
TICKS = np.round(np.arange(5000) * 1000 / 64).astype(np.int64)  # 64 times a second, in ms
JITTER = np.arange(5000) * 15_625_000 + np.random.default_rng(0).normal(0, 300_000, 5000).astype(np.int64)


def local(start: datetime, stop: datetime, step: str, zone: str) -> pl.Series:
    """Times at a step in a zone."""
    return pl.datetime_range(start, stop, step, time_zone=zone, eager=True)


def midnights(zone: str, hour: int = 0) -> pl.Series:
    """Those of four years as UTC, or another hour of the day."""
    return local(datetime(2018, 1, 1, hour), datetime(2022, 1, 1), "1d", zone).dt.convert_time_zone("UTC")


def said(stash: ts.Stash, length: int, **options: Any) -> str:
    """The warnings or the error about gaps."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            ts.Windows(stash, length, **options)
        except ts.errors.NoWindowError as error:
            return str(error)
    assert caught
    return " ".join(str(warning.message) for warning in caught)


ARGUMENTS: dict[str, tuple[Any, int, str]] = {
    "weekdays": (WEEKDAYS, 5, "frequency='1bd'"),
    "weekdays, none left": (WEEKDAYS, 8, "frequency='1bd'"),
    "dates": (pl.Series(WEEKDAYS.as_unit("us")).dt.date(), 8, "frequency='1bd'"),
    "weekdays in a zone": (WEEKDAYS.tz_localize("Europe/Berlin"), 8, "frequency='1bd'"),
    "sessions": (SESSIONS, 20, "frequency='1bd'"),
    "longer than sessions without a holiday": (SESSIONS, 300, "gaps='ignore'"),
    "holidays": (SESSIONS, 40, "gaps='ignore'"),
    "64 times a second": (TICKS.astype("M8[ms]"), 32, "frequency='16ms', tolerance='1ms'"),
    "in a zone": (pd.DatetimeIndex(TICKS.astype("M8[ms]"), tz="Asia/Tokyo"), 32, "frequency='16ms', tolerance='1ms'"),
    "as integers": (TICKS, 32, "frequency=16, tolerance=1"),
    "no two steps alike": (JITTER.astype("M8[ns]"), 32, "frequency='15ms621us911ns', tolerance='2ms'"),
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_the_arguments_that_are_named_leave_windows(case: str) -> None:
    times, length, words = ARGUMENTS[case]
    stash = ts.load(pl.DataFrame({"t": times, "y": np.arange(len(times))}), {"y": ts.column("y", empty=-1)}, time="t")
    message = said(stash, length, **({"frequency": "1bd"} if case == "holidays" else {}))
    found = re.findall(r"\w+='\w+'|\w+=\d+", message.split(". ")[-1])
    assert words in ", ".join(found), message
    ways = [*found[:1], ", ".join(found[1:])] if words == "gaps='ignore'" else [", ".join(found)]
    for way in ways:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Gaps cost")  # holidays at '1bd'
            whole = len(eval(f"ts.Windows(stash, {length}, {way})", {"ts": ts, "stash": stash}))
        assert whole > (0.6 if "1bd" in way else 0.99) * (len(times) - length)


LINES: dict[str, tuple[pl.Series, str]] = {
    "Berlin": (midnights("Europe/Berlin").dt.replace_time_zone(None), "Europe/Berlin"),
    "Berlin, UTC": (midnights("Europe/Berlin"), "Europe/Berlin"),
    "New York": (midnights("America/New_York"), "America/New_York"),
    "Sydney": (midnights("Australia/Sydney"), "Australia/Sydney"),
    "days of gas": (midnights("Europe/Berlin", 6), "Europe/Berlin"),
}


@pytest.mark.parametrize("case", LINES)
def test_the_line_that_gives_times_their_zone_leaves_no_gap(case: str) -> None:
    times, zone = LINES[case]
    frame = pl.DataFrame({"a time": times, "y": np.arange(len(times))})
    message = said(ts.load(frame, ["y"], time="a time"), 60)
    found = re.search(r"changes of the clock: give .* Berlin: (frame.*\))\.$", message)
    assert found is not None, message
    line = found[1].replace("'Europe/Berlin'", repr(zone))
    zoned = ts.load(eval(line, {"pl": pl, "frame": frame}), ["y"], time="a time")
    assert len(ts.Windows(zoned, 60)) == len(times) - 60 + 1


SPRINGS: dict[str, Any] = {
    "Berlin": local(datetime(2020, 1, 1), datetime(2023, 1, 1), "1h", "Europe/Berlin"),
    "New York, quarters": local(datetime(2020, 1, 1), datetime(2021, 8, 1), "15m", "America/New_York"),
    "Sydney": local(datetime(2019, 5, 1), datetime(2021, 3, 1), "1h", "Australia/Sydney"),
    "Santiago": local(datetime(2020, 5, 1), datetime(2022, 3, 1), "1h", "America/Santiago"),
    "Jerusalem": local(datetime(2020, 1, 1), datetime(2022, 3, 1), "30m", "Asia/Jerusalem"),
}


@pytest.mark.parametrize("labelled", [None, "UTC"])
@pytest.mark.parametrize("case", SPRINGS)
def test_hours_that_the_clock_skips_are_named(case: str, labelled: str | None) -> None:
    times = SPRINGS[case].dt.replace_time_zone(None).unique().sort().dt.replace_time_zone(labelled)
    stash = ts.load(pl.DataFrame({"t": times, "y": np.arange(len(times))}), {"y": ts.column("y", empty=-1)}, time="t")
    message = said(stash, len(times) // 3)
    found = re.search(r"hours that the clock skips in spring: (gaps='mask') has an empty slot there\.$", message)
    assert found is not None, message
    line = f"ts.Windows(stash, {len(times) // 3}, {found[1]})"
    assert len(eval(line, {"ts": ts, "stash": stash})) > len(times) - len(times) // 3


def test_other_hours_that_are_missing_are_not_those_of_the_clock() -> None:
    hours = pd.date_range("2024-01-01", "2024-12-31", unit="s", freq="h")
    others = [
        (hours.day_of_week == 6) & (hours.hour == 2),  # of every Sunday
        (hours.day_of_year == 66) & (hours.hour == 2),  # of a Wednesday
        (hours.day_of_year == 70) & (hours.hour == 14),  # by day
        (hours.day_of_year == 70) & np.isin(hours.hour, [2, 3]),  # two of them
    ]
    for missing in others:
        times = hours[~missing]
        message = said(ts.load({"t": times, "y": np.arange(len(times))}, ["y"], time="t"), 5000)
        assert "Gaps cost" in message or "consecutive rows" in message
        assert "clock" not in message


def regular(count: int) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    return [np.arange(100) * 3600] * count


def test_series_of_another_step_are_counted_and_the_first_is_named() -> None:
    rng = np.random.default_rng(0)
    series = regular(100) + [np.cumsum(rng.integers(1, 9000, 100)) for _ in range(50)]
    rows = {"e": np.repeat(np.arange(150), 100), "t": np.concatenate(series).astype("M8[s]"), "y": np.arange(15_000)}
    message = said(ts.load(rows, ["y"], entity="e", time="t"), 24)
    assert "7,700 of 11,550 are left at frequency '1h'" in message
    assert "50 of 150 entities have no window: 50 with gaps or another step of time than '1h' (load them " in message
    assert "such as 100" in message
    parts = [ts.load(rows, ["y"], entity="e", time="t", filter=[("e", how, 100)]) for how in ("<", ">=")]
    assert len(ts.Windows(parts[0], 24)) == 7700
    assert len(ts.Windows(parts[1], 24, gaps="ignore")) == 50 * 77


def test_gaps_of_another_kind_get_no_remedy_that_does_not_work() -> None:
    rng = np.random.default_rng(1)
    days = pd.date_range("2024-01-01", "2024-12-31", unit="s")
    others: list[Any] = [
        days[days.day_of_week < 6],
        days[np.sort(rng.permutation(366)[:200])],
        np.cumsum(1 + rng.exponential(1000, 3000)).astype(np.int64).astype("M8[s]"),
        np.arange(0, 400, 2) + np.repeat([0, 1, 2, 3], 50),
        pd.date_range("2024-01-01", "2024-12-31", unit="s", freq="W"),
    ]
    for times in others:
        stash = ts.load({"t": times, "y": np.arange(len(times))}, ["y"], time="t")
        message = said(stash, 60, **({"frequency": "1d"} if times is others[-1] else {}))
        for words in ("weekends", "vary", "clock"):
            assert words not in message
    with pytest.raises(ts.errors.NoWindowError, match=like("Most steps are 1h: give it as frequency=.")):
        ts.Windows(ts.load({"t": np.arange(99).astype("M8[h]"), "y": np.arange(99)}, time="t"), 9, frequency="2h")


def test_empty_slots_of_jitter_are_told_too() -> None:
    stash = ts.load({"t": TICKS, "y": np.arange(5000.0)}, ["y"], time="t")
    with pytest.warns(UserWarning, match=like("more empty slots than there are rows ... frequency=16, tolerance=1.")):
        ts.Windows(stash, 32, frequency=1, gaps="mask")
    assert len(ts.Windows(stash, 32, frequency=16, tolerance=1, gaps="mask")) == 5000 - 31
