"""The inside of `common/clock.py`: times as text and as ticks, with Python's datetime as the oracle."""

import re
from datetime import date, datetime, time, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tensorstash.common.clock import Clock
from tests.data import ZONES
from tests.oracle_load import like


@pytest.mark.parametrize("text", ["2024-3-1", "2024-03-1", "2024-3-01", "2024-3-1 06:00", "2024-3-1T06:00"])
def test_cuts_may_have_months_and_days_of_one_digit(text: str) -> None:
    whole = datetime(2024, 3, 1, 6 if "06" in text else 0, tzinfo=timezone.utc)
    assert Clock("s", None).parse(text) == whole.timestamp()
    with pytest.raises(ValueError, match=like("A cut is written as ... got")):
        Clock("s", None).parse(text.replace("3-", "13-", 1))


@settings(max_examples=200)
@given(
    st.datetimes(datetime(1950, 1, 1), datetime(2060, 1, 1)),
    st.sampled_from(ZONES),
    st.sampled_from(["s", "ms", "us", "ns"]),
)
def test_text_and_ticks_are_two_forms_of_a_time(moment: datetime, zone: str | None, unit: str) -> None:
    clock = Clock(unit, zone)
    aware = moment.replace(tzinfo=ZoneInfo(zone) if zone else timezone.utc)
    exact = (aware - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)
    # a cut between two ticks divides them: the later one is the first from the cut on
    ticks = -(-exact * 1000 // {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit])
    if aware.utcoffset() != aware.replace(fold=1).utcoffset() and moment.replace(microsecond=0).time() != time(0):
        with pytest.raises(ValueError, match="A cut must be one moment"):
            clock.parse(moment)
    else:
        assert clock.parse(moment.isoformat()) == ticks
    if zone is None:
        assert clock.parse(moment) == ticks
    else:
        assert clock.parse(aware.astimezone(timezone.utc)) == ticks
        assert clock.parse(aware.astimezone(timezone.utc).isoformat()) == ticks
    if unit == "us" and aware.astimezone(timezone.utc).astimezone(aware.tzinfo).replace(tzinfo=None) == moment:
        shown = datetime.fromisoformat(re.sub(r"(\.\d+)", lambda f: f[0].ljust(7, "0"), clock.format(ticks)))
        assert shown.replace(tzinfo=None) == moment


@pytest.mark.parametrize(
    ("text", "why", "offsets"),
    [
        ("2024-10-27 02:30", "comes twice", ("+02:00", "+01:00")),
        ("2024-03-31 02:30", "does not exist", ("+01:00", "+02:00")),
    ],
)
def test_a_cut_at_a_change_of_the_clock_needs_its_offset(text: str, why: str, offsets: tuple[str, str]) -> None:
    clock = Clock("s", "Europe/Berlin")
    with pytest.raises(ValueError, match=rf"{text} {why} in Europe/Berlin.* '{re.escape(text + offsets[0])}' or"):
        clock.parse(text)
    first, second = (clock.parse(text + offset) for offset in offsets)
    assert abs(second - first) == 3600
    # midnight is the beginning of its day, also where the clock skips it or shows it twice
    assert Clock("s", "America/Sao_Paulo").parse("2018-11-04") == 1_541_300_400
    assert Clock("s", "America/Havana").parse("2024-11-03") == 1_730_606_400


def test_dates_and_integers_are_printed_and_read() -> None:
    assert Clock("d", None).parse("2013-10-01") == 15_979
    assert Clock("d", None).format(15_979) == "2013-10-01"
    assert Clock(None, None).parse(7) == 7
    assert Clock("ns", "Asia/Kolkata").format(1) == "1970-01-01 05:30:00.000000001+05:30"


def test_cuts_of_any_kind_are_read() -> None:
    day = Clock("d", None)
    for cut in (date(2024, 1, 5), np.datetime64("2024-01-05"), "2024-01-05", datetime(2024, 1, 5)):
        assert day.parse(cut) == 19_727
    assert day.parse("2024-01-05 06:00") == 19_728, "the day began before the cut"
    assert Clock("s", None).parse("1970-01-01 00:00:04.5") == 5
    assert Clock("ns", None).parse("1970-01-01 00:00:00.000000005") == 5
    assert Clock("ns", None).parse(np.datetime64(5, "ns")) == 5
    assert Clock(None, None).parse(np.int64(5)) == 5


def test_a_wrong_cut_says_how_to_write_one() -> None:
    with pytest.raises(
        ValueError, match=like("A cut is written as '2013-10-01' or '2013-10-01 06:00'; got 'October'.")
    ):
        Clock("us", None).parse("October")
    with pytest.raises(ValueError, match=like("A cut is written as '2013-10-01' or '2013-10-01 06:00'; got 5.")):
        Clock("us", None).parse(5)


@pytest.mark.parametrize("text", ["20240201", "2024-W05-1", "2024-02-01 6", "2024-02-01T0600"])
def test_cuts_are_read_alike_by_every_version_of_python(text: str) -> None:
    """Version 3.11 reads more forms than 3.10."""
    message = f"A cut is written as '2013-10-01' or '2013-10-01 06:00'; got {text!r}."
    with pytest.raises(ValueError, match=like(message)):
        Clock("us", None).parse(text)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "utc", "../UTC", "/etc/localtime", "+25:00", "\0"])
def test_a_zone_that_nobody_knows_is_refused_and_can_be_printed(zone: str) -> None:
    """A file may come from a machine that knows more zones than this one."""
    times = pa.array([0, 3600], pa.timestamp("s", zone))
    message = f"in the zone {zone!r} ... which this machine does not know"
    with pytest.raises(ts.errors.SchemaError, match=like(message)):
        ts.load(pa.table({"t": times, "y": [1.0, 2.0]}), ["y"], time="t")
    assert ts.load(pa.table({"other": times})).to_polars()["other"].dt.hour().to_list() == [0, 1]
    clock = Clock("s", zone)
    assert clock.format(3600) == "1970-01-01 01:00:00+00:00"
    message = (
        f"A time zone is one of the IANA database, or an offset from UTC such as '+05:30'; {zone!r} is neither, or "
        "this machine has no such zone. Install tzdata, or convert the times to UTC before loading."
    )
    with pytest.raises(ts.errors.DataError, match=like(message)):
        clock.parse("1970-01-01")


@pytest.mark.parametrize(("zone", "shown"), [("+0530", "06:30:00+05:30"), ("Z", "01:00:00+00:00")])
def test_zones_are_read_as_other_programs_write_them(zone: str, shown: str) -> None:
    assert Clock("s", zone).format(3600) == f"1970-01-01 {shown}"
