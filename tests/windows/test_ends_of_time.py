"""Times near the ends of 64 bits: a time beyond them is an error, never one at the other end."""

from datetime import datetime
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests.oracle_load import like

_END = 1 << 63
_NS_END = _END // 1000  # in microseconds


def series(every: str, last: datetime, count: int = 12, zone: str | None = None) -> tuple[ts.Stash, list[int]]:
    """A series in nanoseconds that ends in 2262, and the next times in microseconds, by polars."""
    start, steps = pl.Series([last]), range(-count + 1, 30)
    if every == "1bd":
        times = pl.concat([start.dt.add_business_days(k) for k in steps])
    else:
        times = pl.concat([start.dt.offset_by(f"{k}{every[1:]}") for k in steps])
    rows, later = times[:count], times[count:].dt.epoch("us").to_list()
    column = rows.dt.cast_time_unit("ns")
    column = column if zone is None else column.dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
    return ts.load(pl.DataFrame({"t": column, "y": np.arange(float(count))}), ["y"], time="t"), later


@pytest.mark.parametrize("horizon", [1, 2, 3, 10, 25])
@pytest.mark.parametrize(
    ("every", "last"),
    [
        ("1d", datetime(2262, 4, 9)),
        ("1d", datetime(2262, 4, 11, 23)),
        ("1h", datetime(2262, 4, 11, 20)),
        ("1bd", datetime(2262, 4, 3)),
        ("1w", datetime(2262, 3, 20)),
        ("1mo", datetime(2262, 2, 1)),
        ("1q", datetime(2261, 10, 31)),
        ("1y", datetime(2252, 5, 1)),
    ],
)
def test_forecasts_end_where_nanoseconds_do(every: str, last: datetime, horizon: int) -> None:
    stash, later = series(every, last)
    windows = ts.Windows(stash, 3, min(horizon, 9), columns=["y"], frequency=every)
    assert len(windows[:]["y"]) == 12 - windows.length + 1
    longer: dict[str, Any] = {"columns": ["y"], "frequency": every, "min_horizon": 0}
    if later[horizon - 1] < _NS_END:
        newest = ts.Windows(stash, 3, horizon, **longer)
        frame = newest.to_frame([-1], torch.zeros(1, horizon))
        assert frame["t"].dt.epoch("us").to_list() == later[:horizon]
        assert newest.latest().anchors([0])["time"].tolist() == [later[0] * 1000]
    else:
        with pytest.raises(ts.errors.DataError, match=like("slots after the last row ... 64 bits")):
            ts.Windows(stash, 3, horizon, **longer)
        if horizon < 10:
            with pytest.raises(ts.errors.DataError, match=like("slots after the last row ... 64 bits")):
                windows.latest()


@settings(max_examples=100)
@given(
    step=st.one_of(st.integers(1, 9), st.integers(1 << 55, 1 << 59)),
    left=st.integers(0, 40),
    horizon=st.integers(1, 6),
    late=st.booleans(),
)
def test_integer_times_never_wrap(step: int, left: int, horizon: int, late: bool) -> None:
    """Behind the last row and before the first one."""
    times = [(_END - 1 if late else -_END) + (-1 if late else 1) * (left + k * step) for k in range(4)]
    stash = ts.load({"t": sorted(times), "y": np.arange(4.0)}, ["y"], time="t")
    fits = horizon * step <= left
    if late:
        options: dict[str, Any] = {"history": 1, "horizon": horizon, "min_horizon": 0}
        expected = [max(times) + step * k for k in range(1, horizon + 1)]
    else:
        options = {"history": horizon + 1, "min_history": 1}
        expected = [min(times)]
    if not fits:
        with pytest.raises(ts.errors.DataError, match=like("64 bits")):
            ts.Windows(stash, columns=["y"], frequency=step, **options)
        return
    windows = ts.Windows(stash, columns=["y"], frequency=step, **options)
    which, steps = (-1, horizon) if late else (0, horizon + 1)
    assert windows.to_frame([which], torch.zeros(1, steps))["t"].to_list() == expected


def test_forecasts_end_where_dates_do() -> None:
    """They have 32 bits in polars and Arrow."""
    days = pl.Series([2**31 - 4, 2**31 - 3, 2**31 - 2]).cast(pl.Int32).cast(pl.Date)
    stash = ts.load(pl.DataFrame({"t": days, "y": [0.0, 1.0, 2.0]}), ["y"], time="t")
    newest = ts.Windows(stash, 1, 1, columns=["y"]).latest()
    assert newest.to_frame([0], torch.zeros(1, 1))["t"].cast(pl.Int32).to_list() == [2**31 - 1]
    with pytest.raises(ts.errors.DataError, match=like("32 bits ... 2 x '1d'")):
        ts.Windows(stash, 1, 2, columns=["y"]).latest()


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
def test_local_times_outside_of_nanoseconds_are_refused(zone: str) -> None:
    stash, _ = series("1d", datetime(2262, 4, 11, 23), 6, zone)
    with pytest.raises(ts.errors.DataError, match=like("known from 1677-09-23 to 2262-04-10 in 'ns'")):
        ts.Windows(stash, 3, 1, columns=["y"], frequency="1d")
    stash, later = series("1d", datetime(2262, 4, 8, 12), 6, zone)
    windows = ts.Windows(stash, 3, 2, columns=["y"], frequency="1d")
    assert windows.latest().to_frame([0], torch.zeros(1, 2))["t"].dt.epoch("us").to_list() == later[:2]
    with pytest.raises(ts.errors.DataError, match=like("64 bits")):
        ts.Windows(stash, 1, 5, columns=["y"], frequency="1d").latest()


def test_folds_never_wrap() -> None:
    """Neither the cut after the last row, nor a gap before the first one."""
    late = ts.load({"t": [_END - 1 - 10 * k for k in range(5, -1, -1)], "y": np.zeros(6)}, ["y"], time="t")
    ahead = ts.Windows(late, 1, 2, columns=["y"])
    assert [(len(train), len(test)) for train, test in ahead.folds(1, 1)] == [(2, 1)]
    with pytest.raises(ts.errors.DataError, match=like("cuts of folds ... after 9223372036854775807")):
        ts.Windows(late, 1, 1, columns=["y"]).folds(1, 1)
    early = ts.load({"t": [-_END + 10 * k for k in range(6)], "y": np.zeros(6)}, ["y"], time="t")
    windows = ts.Windows(early, 1, 1, columns=["y"])
    assert [(len(train), len(test)) for train, test in windows.folds(1, 1, gap=1)] == [(3, 1)]
    with pytest.raises(ts.errors.DataError, match=like("cuts of folds ... before")):
        windows.folds(1, 1, gap="90i")
    with pytest.raises(ts.errors.DataError, match=like("fold 0 of 1 has no training window")):
        windows.folds(1, 1, gap=9)


def test_spans_in_time_stay_within_64_bits() -> None:
    for t in (1 << 62, -(1 << 62)):
        stash = ts.load({"t": sorted([t, t // 2]), "y": np.zeros(2)}, ["y"], time="t")
        with pytest.raises(ts.errors.DataError, match=like("within 2**62 ticks of 0")):
            ts.Windows(stash, spans={"past": ts.During("y", -5, 0, max_rows=1)})
    with pytest.raises(ValueError, match=like("less than 2**61 ticks")):
        ts.During("y", -(1 << 61), 0, max_rows=1)
    with pytest.raises(ValueError, match=like("less than 2**61 ticks")):
        ts.During("y", -(10**30), 0, max_rows=1)
