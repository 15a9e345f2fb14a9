"""The inside of `common/frequency.py`: how frequencies are written, and that steps go where those of polars go."""

from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorstash.common.clock import Clock
from tensorstash.common.frequency import frequency
from tests.data import ZONES
from tests.oracle_load import like


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("1d", timedelta(days=1)),
        ("1d", pd.Timedelta("1D")),
        ("90m", pd.Timedelta(minutes=90)),
        ("36h", timedelta(days=1, hours=12)),
        ("1001ns", pd.Timedelta(1001, "ns")),
        ("2s5us", timedelta(seconds=2, microseconds=5)),
    ],
)
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_a_timedelta_is_the_duration_that_polars_writes(text: str, length: timedelta, zone: str | None) -> None:
    clock = Clock("ns", zone)
    one, other = frequency(text, clock, text), frequency(length, clock, length)
    assert (one.kind, one.count, one.tolerance) == (other.kind, other.count, other.tolerance)
    with pytest.raises(ValueError, match=like("frequency must be ... got")):
        frequency(-length, clock, None)
    with pytest.raises(ValueError, match=like("frequency of integer times must be an integer")):
        frequency(length, Clock(None, None), None)


@pytest.mark.parametrize(
    ("text", "clock", "message"),
    [
        (
            "1 hour",
            Clock("us", None),
            "frequency ... got '1 hour'",
        ),
        (
            "1mo2d",
            Clock("us", None),
            "frequency ... got '1mo2d'",
        ),
        ("1ms", Clock("s", None), "frequency ... got '1ms'"),
        ("1h", Clock("d", None), "frequency ... got '1h'"),
        ("0h", Clock("s", None), "frequency ... got '0h'"),
    ],
)
def test_a_wrong_frequency_says_the_rule_and_the_offender(text: str, clock: Clock, message: str) -> None:
    with pytest.raises(ValueError, match=like(message)):
        frequency(text, clock, None)


def test_a_tolerance_is_a_duration_of_at_least_nothing() -> None:
    with pytest.raises(ValueError, match=r"tolerance.*got -1"):
        frequency(5, Clock(None, None), -1)
    with pytest.raises(
        ValueError,
        match=like("tolerance ... got '1mo'"),
    ):
        frequency("1d", Clock("us", None), "1mo")


@settings(max_examples=200)
@given(
    st.datetimes(datetime(1990, 1, 1), datetime(2050, 1, 1)),
    st.sampled_from([zone for zone in ZONES if zone]),
    st.sampled_from(["1d", "2w", "1mo", "1q", "1y"]),
    st.integers(-30, 30),
)
def test_steps_of_the_calendar_go_where_offset_by_of_polars_goes(
    moment: datetime, zone: str, text: str, steps: int
) -> None:
    check_offset(moment, zone, text, steps)


@pytest.mark.parametrize(
    ("moment", "zone"),
    [
        (datetime(2024, 3, 31, 2, 30), "Europe/Berlin"),
        (datetime(2024, 3, 10, 2, 15), "America/New_York"),
        (datetime(2024, 10, 6, 2, 10), "Australia/Lord_Howe"),
        (datetime(2024, 10, 27, 2), "Europe/Berlin"),
        (datetime(2024, 11, 3, 1, 15), "America/New_York"),
    ],
)
def test_local_times_that_the_clock_skips_or_shows_twice_are_moved_as_by_polars(moment: datetime, zone: str) -> None:
    for days in (1, 3, 200, -1, -2, -200):
        check_offset(moment - timedelta(days), zone, "1d", days)


def check_offset(moment: datetime, zone: str, text: str, steps: int) -> None:
    local = pl.Series([moment]).dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null").drop_nulls()
    if not len(local):
        return
    count, unit = int(text[0]), text[1:]
    expected = local.dt.offset_by(f"{count * steps}{unit}").dt.epoch("us").to_numpy()
    step = frequency(text, Clock("us", zone), None)
    found = step.advance(local.dt.epoch("us").to_numpy(), np.array([steps]))
    assert found.tolist() == expected.tolist()
