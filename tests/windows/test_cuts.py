"""Cuts in the zone of the times: with one where they have one, and without where they have none."""

from datetime import date, datetime, timezone
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pytest

import tensorstash as ts
from tests.oracle_load import like

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
        with pytest.raises(ValueError, match=f"end= {rule}"):
            ts.plot.series(stash, None, ["y"], end=moment)
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
