"""Cuts between parts: read in the zone of the times, ascending, and within the times of the data."""

import warnings
from datetime import date, datetime, timezone
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pytest

import tensorstash as ts
from tests.oracle_load import like
from tests.windows.test_windows import small

AWARE = [
    datetime(2024, 3, 1, tzinfo=ZoneInfo("America/New_York")),
    datetime(2024, 3, 1, tzinfo=timezone.utc),
    pd.Timestamp("2024-03-01", tz="UTC"),
    "2024-03-01 06:00+09:00",
    "2024-03-01T00:00Z",
]


NAIVE = [
    datetime(2024, 3, 1, 6),
    pd.Timestamp("2024-03-01"),
    np.datetime64("2024-03-01T06"),
    np.datetime64("2024-03-01", "ns"),
]


@pytest.mark.parametrize(("zone", "moments"), [(None, AWARE), ("UTC", NAIVE), ("Europe/Berlin", NAIVE)])
def test_a_time_with_a_zone_is_not_compared_with_one_without(zone: str | None, moments: list[Any]) -> None:
    hours = pl.datetime_range(datetime(2024, 2, 28), datetime(2024, 3, 3), "1h", time_zone=zone, eager=True)
    stash = ts.load({"t": hours, "y": np.ones(len(hours))}, ["y"], time="t")
    windows = ts.Windows(stash, 1)
    rule = (
        "must have no zone, as the times"
        if zone is None
        else f"must have a zone, as the times of the stash have {zone}"
    )
    for moment in moments:
        with pytest.raises(ValueError, match=f"A cut {rule}"):
            windows.split(moment)
        pytest.importorskip("matplotlib").use("Agg")
        with pytest.raises(ValueError, match=f"start= {rule}"):
            ts.plot.series(stash, None, ["y"], start=moment)
        with pytest.raises(ValueError, match=f"stop= {rule}"):
            ts.plot.series(stash, None, ["y"], stop=moment)
        if not isinstance(moment, str):
            with pytest.raises(ts.errors.SchemaError, match=like("The times of at= must be a timestamp with")):
                ts.Windows(stash, 1, at=pd.DataFrame({"t": [moment]}))
    for moment in ("2024-03-01", "2024-03-01 00:00", date(2024, 3, 1), np.datetime64("2024-03-01")):
        before, after = windows.split(moment)
        assert stash.clock.format(int(after.anchors([0])["time"])).startswith("2024-03-01 00:00")
        assert len(before) + len(after) == len(windows)


@pytest.mark.parametrize("moment", AWARE)
def test_a_time_with_a_zone_divides_no_dates(moment: Any) -> None:
    days = pl.date_range(date(2024, 2, 1), date(2024, 4, 1), eager=True)
    with pytest.raises(ValueError, match=like("A cut must have no zone")):
        ts.Windows(ts.load({"t": days, "y": np.ones(len(days))}, ["y"], time="t"), 1).split(moment)


def test_split_reads_text_in_the_zone_of_the_times() -> None:
    hours = pl.datetime_range(
        datetime(2024, 3, 9), datetime(2024, 3, 11), "1h", time_zone="America/New_York", eager=True
    )
    stash = ts.load(pl.DataFrame({"t": hours, "y": np.arange(len(hours), dtype=np.float32)}), ["y"], time="t")
    before, after = ts.Windows(stash, 1, 1).split("2024-03-10")
    assert after[0]["y"].tolist() == [23.0, 24.0]
    assert before[-1]["y"].tolist() == [22.0, 23.0]
    assert len(before) + len(after) == len(hours) - 1


def test_split_needs_times_and_ascending_cuts() -> None:
    with pytest.raises(ValueError, match=like("split needs times, and this stash has none")):
        ts.Windows(ts.load({"y": np.arange(4.0)}), 2).split("2024-01-01")
    with pytest.raises(ValueError, match=like("Cuts must ascend, got 3, 1.")):
        small().split(3, 1)
    with pytest.raises(ValueError, match=like("A cut is an integer, as the times are; got '2024-01-01'.")):
        small().split("2024-01-01")
    message = "Cuts must be times, got 0.8 ... use split_fraction"
    for fraction in (0.8, np.float64(0.8)):
        with pytest.raises(ValueError, match=like(message.replace("0.8", repr(fraction)))):
            small().split(fraction)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cuts", "fragment"),
    [
        (("2024-03-01",), "Part 2 of 2 has no window: none of the 31 windows lies in it"),
        (("2023-03-01",), "Part 1 of 2 has no window: none of the 31 windows lies in it"),
        (("2024-01-01",), "Part 1 of 2 has no window: none of the 31 windows lies in it"),
        (("2024-01-09", "2024-02-10"), "Part 3 of 3 has no window: none of the 31 windows lies in it"),
        (("2024-01-09", "2024-01-31"), None),
    ],
)
@pytest.mark.parametrize("at", [False, True])
def test_a_cut_outside_the_times_of_the_data_is_a_warning(
    cuts: tuple[str, ...], fragment: str | None, at: bool
) -> None:
    """Also of windows at given points. A part between close cuts is empty for another reason."""
    times = np.arange("2024-01-01", "2024-02-01", dtype="M8[D]")
    stash = ts.load({"t": times, "y": np.ones(len(times))}, time="t")
    windows = ts.Windows(stash, 1, min_history=1, gaps="ignore", at={"t": times[1:]} if at else None)
    if at and cuts[0] == "2024-01-01":  # the first point is a day later
        cuts = ("2024-01-02",)
    if at and fragment is not None:
        fragment = fragment.replace("31 windows lies", "30 windows lies")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        parts = windows.split(*cuts)
        parts[-1].split(*cuts) if not len(parts[-1]) else None
    assert [str(one.message)[: len(fragment)] for one in caught if fragment] == [fragment] * (fragment is not None)
    assert all(one.filename == __file__ for one in caught)
    if fragment is not None:
        assert "; the times of the stash go from 2024-01-01 to 2024-01-31. Choose" in str(caught[0].message)


def test_a_cut_after_the_last_row_may_have_windows_whose_horizon_is_ahead() -> None:
    stash = ts.load({"t": np.arange(9), "y": np.ones(9)}, ["y"], time="t")
    before, after = ts.Windows(stash, 2, 1, min_horizon=0).split(9)
    assert (len(before), len(after)) == (7, 1)
