"""Times, frequencies and runs, with polars and Python's datetime as the oracles."""

import re
from datetime import date, datetime, time, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tensorstash.common.clock import Clock
from tensorstash.common.frequency import frequency
from tensorstash.native.guide import first_rows
from tensorstash.windows.runs import find_runs
from tests.oracle_load import like
from tests.words import Int64s

ZONES = [None, "UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kolkata"]


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
    offsets = np.array([0, 60])
    for wanted in (interval, None):
        if wanted is None and interval in ("2d", "6mo"):
            continue  # nothing says that a step of 2 days or 6 months means the calendar's
        found = find_runs(offsets, times, Clock("us", zone), wanted, None)
        assert found.rows.tolist() == [60], (wanted, found)
        kept = np.delete(times, [20, 41, 42])
        found = find_runs(np.array([0, 57]), kept, Clock("us", zone), wanted, None)
        assert found.rows.tolist() == [20, 20, 17], (wanted, found)


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


@pytest.mark.parametrize("text", ["2024-3-1", "2024-03-1", "2024-3-01", "2024-3-1 06:00", "2024-3-1T06:00"])
def test_cuts_may_have_months_and_days_of_one_digit(text: str) -> None:
    whole = datetime(2024, 3, 1, 6 if "06" in text else 0, tzinfo=timezone.utc)
    assert Clock("s", None).parse(text) == whole.timestamp()
    with pytest.raises(ValueError, match=like("A cut is written as ... got")):
        Clock("s", None).parse(text.replace("3-", "13-", 1))


def test_business_days_skip_weekends() -> None:
    days = np.arange("2024-01-01", "2024-03-01", dtype="datetime64[D]")
    working = days[np.is_busday(days)]
    found = find_runs(np.array([0, len(working)]), working.astype(np.int64), Clock("d", None), "1bd", None)
    assert found.rows.tolist() == [len(working)]
    missing = np.delete(working, 10)
    found = find_runs(np.array([0, len(missing)]), missing.astype(np.int64), Clock("d", None), "1bd", None)
    assert found.rows.tolist() == [10, len(missing) - 10]
    found = find_runs(np.array([0, len(days)]), days.astype(np.int64), Clock("d", None), "1bd", None)
    assert (found.rows[:3] == [5, 1, 1]).all()  # a Saturday is no business day


@pytest.mark.parametrize("lengths", [(28, "1mo"), (31, "1mo"), (30, "1mo"), (91, "1q"), (365, "1y")])
def test_steps_of_about_a_month_quarter_or_year_mean_the_calendars(lengths: tuple[int, str]) -> None:
    days, meant = lengths
    months = {"1mo": 1, "1q": 3, "1y": 12}[meant]
    regular_days = (np.datetime64("2021-01", "M") + months * np.arange(40)).astype("datetime64[D]").astype(np.int64)
    found = find_runs(np.array([0, 40]), regular_days, Clock("d", None), None, None)
    assert found.frequency is not None
    assert (found.frequency.text, found.rows.tolist()) == (meant, [40])
    fixed = np.arange(40) * days
    found = find_runs(np.array([0, 40]), fixed.astype(np.int64), Clock("d", None), None, None)
    assert found.rows.tolist() == [40], "a step of exactly so many days is explained better by days"


def test_jitter_within_the_tolerance_is_no_gap() -> None:
    times = np.arange(50) * 3_600_000 + np.array([0, 30_000, -30_000, 15_000, 0] * 10)
    clock = Clock("ms", "Europe/Berlin")
    assert find_runs(np.array([0, 50]), times, clock, "1h", "1m").rows.tolist() == [50]
    assert len(find_runs(np.array([0, 50]), times, clock, "1h", "30s").rows) > 1


def test_the_most_common_step_is_found_in_long_irregular_times() -> None:
    """Most steps are not the most common one, so that no sample can be trusted."""
    rng = np.random.default_rng(0)
    steps = np.where(rng.random(500_000) < 0.2, 7, rng.integers(100, 100_000, 500_000))
    times = np.concatenate([[0], np.cumsum(steps)])
    found = find_runs(np.array([0, len(times)]), times, Clock(None, None), None, None)
    assert found.frequency is not None
    assert found.frequency.count == 7
    assert len(found.rows) == 1 + int((steps != 7).sum())


def test_steps_between_entities_do_not_count() -> None:
    times = np.concatenate([np.arange(0, 30, 10), np.arange(5, 35, 10), np.arange(7, 37, 10)])
    found = find_runs(np.array([0, 3, 3, 6, 9]), times, Clock(None, None), None, None)
    assert found.frequency is not None
    assert (found.frequency.count, found.rows.tolist()) == (10, [3, 3, 3])


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


def test_dates_and_integers_are_printed_and_read() -> None:
    assert Clock("d", None).parse("2013-10-01") == 15_979
    assert Clock("d", None).format(15_979) == "2013-10-01"
    assert Clock(None, None).parse(7) == 7
    assert Clock("ns", "Asia/Kolkata").format(1) == "1970-01-01 05:30:00.000000001+05:30"


@settings(max_examples=100)
@given(st.lists(st.lists(st.integers(-20, 20), max_size=12), max_size=5), st.integers(-25, 25))
def test_bisect_finds_the_first_row_from_a_time_on(entities: list[list[int]], moment: int) -> None:
    offsets = np.cumsum([0, *map(len, entities)])
    times = np.array([time for entity in entities for time in sorted(entity)], np.int64)
    first = [offset + sum(time < moment for time in entity) for offset, entity in zip(offsets.tolist(), entities)]
    assert first_rows(times, offsets[:-1], offsets[1:], np.full(len(offsets) - 1, moment)).tolist() == first


def test_split_reads_text_in_the_zone_of_the_times() -> None:
    hours = pl.datetime_range(
        datetime(2024, 3, 9), datetime(2024, 3, 11), "1h", time_zone="America/New_York", eager=True
    )
    stash = ts.load(pl.DataFrame({"t": hours, "y": np.arange(len(hours), dtype=np.float32)}), ["y"], time="t")
    before, after = ts.Windows(stash, 1, 1).split("2024-03-10")
    assert after[0]["y"].tolist() == [23.0, 24.0]
    assert before[-1]["y"].tolist() == [22.0, 23.0]
    assert len(before) + len(after) == len(hours) - 1


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


def test_cuts_of_any_kind_are_read() -> None:
    day = Clock("d", None)
    for cut in (date(2024, 1, 5), np.datetime64("2024-01-05"), "2024-01-05", datetime(2024, 1, 5)):
        assert day.parse(cut) == 19_727
    assert day.parse("2024-01-05 06:00") == 19_728, "the day began before the cut"
    assert Clock("s", None).parse("1970-01-01 00:00:04.5") == 5
    assert Clock("ns", None).parse("1970-01-01 00:00:00.000000005") == 5
    assert Clock("ns", None).parse(np.datetime64(5, "ns")) == 5
    assert Clock(None, None).parse(np.int64(5)) == 5


def test_a_tolerance_is_a_duration_of_at_least_nothing() -> None:
    with pytest.raises(ValueError, match=r"tolerance.*got -1"):
        frequency(5, Clock(None, None), -1)
    with pytest.raises(
        ValueError,
        match=like("tolerance ... got '1mo'"),
    ):
        frequency("1d", Clock("us", None), "1mo")


def test_calendar_steps_beyond_the_known_years_are_refused() -> None:
    times = np.array([10**12, 10**12 + 86_400], np.int64)
    with pytest.raises(
        ts.errors.DataError, match=r"^Calendar steps in a zone are known for the years 1 to 9999; the times go"
    ):
        find_runs(np.array([0, 2]), times, Clock("s", "Europe/Berlin"), "1d", None)


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


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
def test_a_day_whose_time_the_clock_skips_ends_no_run(zone: str) -> None:
    """Each day is that of the first one so many days on, or the one that follows from the day before."""
    first = pl.Series([datetime(2024, 3, 1, 2, 30)]).dt.replace_time_zone(zone)
    times = np.array([first.dt.offset_by(f"{k}d").dt.epoch("us")[0] for k in range(60)])
    clock = Clock("us", zone)
    assert len(np.unique(np.diff(times))) > 1
    assert find_runs(np.array([0, 60]), times, clock, None, None).rows.tolist() == [60]
    assert find_runs(np.array([0, 60]), np.delete(times, 45), clock, "1d", None).rows.tolist() == [45, 14]


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
