"""filter=: texts and dates are compared with times in the zone and unit of the column, to the nanosecond."""

from datetime import date, datetime, timedelta, timezone
from itertools import product
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tensorstash as ts
from tests.oracle_load import like
from tests.sources.filters import COMPARE, satisfies

MOMENTS = {
    "2024-03-31": datetime(2024, 3, 31),
    "2024-03-31 01:30": datetime(2024, 3, 31, 1, 30),
    "2024-03-31 03:30:00.25": datetime(2024, 3, 31, 3, 30, 0, 250_000),
    "2024-04-01": datetime(2024, 4, 1),
}


@pytest.mark.parametrize("kind", [pl.Date(), pl.Datetime("ms"), pl.Datetime("ns", "Europe/Berlin")])
@pytest.mark.parametrize("form", ["frame", "file"])
def test_texts_are_times_where_the_column_holds_times(kind: Any, form: str, tmp_path: Path) -> None:
    times = pl.Series([*MOMENTS.values(), None])
    if kind == pl.Date():
        times = times.cast(kind)
    else:
        times = times.dt.replace_time_zone(kind.time_zone).dt.cast_time_unit(kind.time_unit)
    frame = pl.DataFrame({"n": range(5), "t": times})
    frame.write_parquet(tmp_path / "t.parquet", row_group_size=2)
    source: Any = frame if form == "frame" else tmp_path / "t.parquet"
    for k, text in enumerate(MOMENTS):
        written = text[:10] if kind == pl.Date() else text
        for op in (*COMPARE, "in", "not in"):
            several = op in ("in", "not in")
            kept = ts.load(source, ["n"], filter=[("t", op, [written] if several else written)])["n"].tolist()
            term = ("t", op, [times[k]] if several else times[k])
            expected = [row["n"] for row in frame.to_dicts() if row["t"] is not None and satisfies(row, term)]
            assert kept == expected, (op, text)


SECONDS = {"1969-12-31 23:59:59": -1, "1970-01-01T00:00:00": 0}
FRACTIONS = ("", ".0", ".000000000", ".000000000000", ".25", ".250000", ".250000000", ".2500001", ".250000001")


@pytest.mark.parametrize("form", ["frame", "file"])
@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_fractions_of_any_length_are_compared_exactly(zone: str | None, unit: Any, form: str, tmp_path: Path) -> None:
    """As integers of nanoseconds: a time between two ticks of the column equals none of them."""
    tick = {"ms": 10**6, "us": 10**3, "ns": 1}[unit]
    moments = [-750_000_000, 0, 250_000_000, 250_000_000 + tick]
    times = pl.Series([moment // tick for moment in moments]).cast(pl.Datetime(unit, zone))
    frame = pl.DataFrame({"n": range(4), "t": times})
    frame.write_parquet(tmp_path / "t.parquet", row_group_size=2)
    source: Any = frame if form == "frame" else tmp_path / "t.parquet"
    for second, fraction, ending in product(SECONDS, FRACTIONS, ("", "Z", "+00:00") if zone else ("",)):
        text, moment = second + fraction + ending, SECONDS[second] * 10**9 + int(fraction[1:10].ljust(9, "0"))
        for op in (*COMPARE, "in", "not in"):
            several = op in ("in", "not in")
            kept = ts.load(source, ["n"], filter=[("t", op, [text, None] if several else text)])["n"].tolist()
            term = ("t", op, [moment] if several else moment)
            assert kept == [n for n, at in enumerate(moments) if satisfies({"t": at}, term)], (op, text)


@pytest.mark.parametrize("unit", ["ms", "us"])
def test_zeros_that_are_nanoseconds_are_compared_with_times_beyond_2262(unit: Any) -> None:
    frame = pl.DataFrame(
        {"n": [0, 1], "t": pl.Series([datetime(2024, 1, 1), datetime(9999, 12, 31)]).cast(pl.Datetime(unit))}
    )
    for text in ("9999-12-31T00:00:00.000000000", "9999-12-31T00:00:00.000"):
        assert ts.load(frame, ["n"], filter=[("t", "==", text)])["n"].tolist() == [1]
        assert ts.load(frame, ["n"], filter=[("t", "not in", [text])])["n"].tolist() == [0]


def test_texts_of_days_with_a_clock_are_compared_with_dates() -> None:
    frame = pl.DataFrame({"n": [0, 1], "day": [date(2024, 1, 1), date(2024, 1, 2)]})
    for text, kept in (("2024-01-01T00:00", [[0], [], [1]]), ("2024-01-01 12:00:00.5", [[], [0], [1]])):
        for op, rows in zip(("==", "<", ">"), kept):
            assert ts.load(frame, ["n"], filter=[("day", op, text)])["n"].tolist() == rows
        assert ts.load(frame, ["n"], filter=[("day", "in", [text])])["n"].tolist() == kept[0]


@pytest.mark.parametrize("count", [1, 100])  # a few are compared one by one, many looked up in a table
def test_days_are_compared_with_the_clocks_of_lists(count: int) -> None:
    """Arrow itself cuts off the clocks of long lists."""
    days = [date(2024, 1, 1) + timedelta(days=k) for k in range(3)]
    frame = pl.DataFrame({"n": range(3), "day": days})
    times = [datetime(2024, 1, 1, 5), datetime(2024, 1, 2), *[datetime(2023, 1, 1, 1)] * count]
    several: list[Any] = [
        times,
        np.array(times, "M8[us]"),
        pd.Series(times),
        [*map(pd.Timestamp, times)],
        pl.Series(times),
    ]
    for values in several:
        assert ts.load(frame, ["n"], filter=[("day", "in", values)])["n"].tolist() == [1]
        assert ts.load(frame, ["n"], filter=[("day", "not in", values)])["n"].tolist() == [0, 2]


def test_each_text_of_a_list_is_a_time_of_its_own() -> None:
    times = pl.datetime_range(datetime(2024, 1, 1), datetime(2024, 1, 4), "1d", time_zone="Europe/Berlin", eager=True)
    frame = pl.DataFrame({"n": range(4), "t": times, "day": times.dt.date()})
    first = ["2024-01-02", "2024-01-02T23:00:00Z"]
    several: list[Any] = [first, np.array(first), pl.Series(first), ["2024-01-02", None, "2024-01-03T00:00+01:00"]]
    for texts in several:
        assert ts.load(frame, ["n"], filter=[("t", "in", texts)])["n"].tolist() == [1, 2]
        assert ts.load(frame, ["n"], filter=[("t", "not in", texts)])["n"].tolist() == [0, 3]
    assert ts.load(frame, ["n"], filter=[("day", "in", ["2024-01-02", None])])["n"].tolist() == [1]


@pytest.mark.parametrize(("zone", "day"), [("Europe/Berlin", "2024-01-02"), ("America/Havana", "2024-11-03")])
def test_a_date_begins_in_the_zone_of_the_times(zone: str, day: str) -> None:
    """At midnight there, as a text of the same day, and not in UTC; a clock that shows midnight twice begins with the
    first."""
    first = datetime.fromisoformat(day)
    times = pl.datetime_range(first - timedelta(days=2), first + timedelta(days=2), "1h", time_zone="UTC", eager=True)
    frame = pl.DataFrame({"t": times.dt.convert_time_zone(zone)})
    expected = frame.filter(pl.col("t").dt.date() >= first.date())["t"].dt.timestamp().to_list()
    stash = ts.load(frame, {"n": ts.calendar("hour")}, time="t", filter=[("t", ">=", first.date())])
    assert stash.time is not None
    assert stash.time.tolist() == expected
    days: list[Any] = [[first.date()], np.array([day], "M8[D]"), pl.Series([first.date()]), pd.Series([first.date()])]
    for value in (pa.scalar(first.date()), pa.scalar(first.date(), pa.date64())):
        assert ts.load(frame, {"n": ts.calendar("hour")}, time="t", filter=[("t", "==", value)]).rows == 1
        days.append([value])
    for values in (*days, pa.array([first.date(), None]), pa.array([first.date()]).dictionary_encode()):
        several = ts.load(frame, {"n": ts.calendar("hour")}, time="t", filter=[("t", "in", values)])
        assert several.time is not None
        assert several.time.tolist() == expected[:1]


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_times_of_another_zone_are_compared_as_moments(zone: str, unit: Any) -> None:
    moments = pl.Series([datetime(2024, 3, 31, hour) for hour in range(3)]).dt.replace_time_zone("UTC")
    frame = pl.DataFrame({"n": range(3), "t": moments.dt.convert_time_zone(zone).dt.cast_time_unit(unit)})
    for other in (timezone.utc, ZoneInfo("Europe/Berlin"), timezone(timedelta(hours=5, minutes=30))):
        for k, moment in enumerate(moments):
            time = moment.astimezone(other)
            for value in (time, pd.Timestamp(time)):
                assert ts.load(frame, ["n"], filter=[("t", "<", value)])["n"].tolist() == [*range(k)]
                assert ts.load(frame, ["n"], filter=[("t", "in", [value])])["n"].tolist() == [k]
                assert ts.load(frame, ["n"], filter=[("t", "not in", pd.Series([value]))]).rows == 2


@pytest.mark.parametrize("kind", [pl.Date(), pl.Datetime("us")])
def test_times_of_numpy_have_any_unit(kind: Any) -> None:
    frame = pl.DataFrame({"n": range(2), "t": [date(2024, 1, 1), date(2024, 2, 1)]}).with_columns(
        pl.col("t").cast(kind)
    )
    for value in (np.datetime64("2024-02-01"), np.datetime64("2024-02"), np.datetime64("2024-02-01T00", "h")):
        for term in (("t", ">=", value), ("t", "in", [value])):
            assert ts.load(frame, ["n"], filter=[term])["n"].tolist() == [1]


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_a_day_of_numpy_begins_in_the_zone_of_the_times(zone: str | None) -> None:
    frame = pl.DataFrame({"t": [datetime(2024, 1, 2), datetime(2024, 1, 3)]})
    frame = frame.with_columns(pl.col("t").dt.replace_time_zone(zone))
    day = np.datetime64("2024-01-03")
    for term in (("t", "==", day), ("t", "in", [day]), ("t", "in", np.array([day]))):
        assert ts.load(frame, filter=[term])["t"].tolist() == ts.load(frame[1:])["t"].tolist()


@pytest.mark.parametrize("count", [1, 90])
def test_times_of_lists_may_be_beyond_nanoseconds(count: int) -> None:
    frame = pl.DataFrame({"n": [0, 1], "t": [datetime(2024, 1, 1), datetime(2024, 1, 2)]})
    frame = frame.with_columns(pl.col("t").cast(pl.Datetime("ns")))
    far = [datetime(9999, 12, 31, 5, 0, 0, 123456 + k) for k in range(count)]
    for values in ([datetime(2024, 1, 2), *far], np.array([datetime(2024, 1, 2), *far], "M8[us]")):
        assert ts.load(frame, ["n"], filter=[("t", "in", values)])["n"].tolist() == [1]
        assert ts.load(frame, ["n"], filter=[("t", "not in", values)])["n"].tolist() == [0]


def test_dates_and_times_are_not_mixed() -> None:
    """Arrow makes dates of both if a date comes first."""
    frame = pl.DataFrame({"t": [datetime(2024, 1, 1), datetime(2024, 1, 2, 5)]})
    for values in ([date(2024, 1, 1), datetime(2024, 1, 2, 5)], [datetime(2024, 1, 2, 5), date(2024, 1, 1)]):
        of_numpy = [np.datetime64(value, "h" if isinstance(value, datetime) else "D") for value in values]
        for several in (values, np.array(values, object), pd.Series(values, dtype=object), of_numpy):
            with pytest.raises(TypeError, match=like("filter= compares ... Write values of one type")):
                ts.load(frame, ["t"], filter=[("t", "in", several)])


@pytest.mark.parametrize(
    "value", [np.datetime64("NaT"), np.datetime64("NaT", "ns"), pa.scalar(None, pa.timestamp("us"))]
)
def test_a_time_that_is_missing_is_a_null(value: Any) -> None:
    frame = pl.DataFrame({"t": [datetime(2024, 1, 1), None]})
    with pytest.raises(ValueError, match=like("comparison with a null is never true ... Write an expression")):
        ts.load(frame, ["t"], filter=[("t", "!=", value)])
    assert ts.load(frame, ["t"], filter=[("t", "not in", [value])]).rows == 1


def test_durations_of_numpy_are_no_integers() -> None:
    """As numpy says that they are."""
    for column in ([1, 2], [1.0, 2.0]):
        for value in (np.timedelta64(1, "ns"), np.timedelta64(1, "s")):
            for term in (("n", "<", value), ("n", "in", [value])):
                with pytest.raises(ts.errors.SchemaError, match=like("filter= must be true or false ... 'n'")):
                    ts.load({"n": column}, filter=[term])


def test_times_of_numpy_that_python_has_not_are_no_integers() -> None:
    for value in (np.datetime64(1, "ps"), np.datetime64(10**9, "D"), np.datetime64(1, "as")):
        for term in (("n", "==", value), ("n", "in", [value])):
            with pytest.raises(TypeError, match=like("filter= compares ... 'n'")):
                ts.load({"n": [1, 10**9]}, filter=[term])


@pytest.mark.parametrize("several", [False, True])
def test_dates_are_not_compared_with_a_time_that_has_a_zone(several: bool) -> None:
    frame = pl.DataFrame({"day": [date(2024, 1, 1), date(2024, 1, 2)]})
    for moment in (datetime(2024, 1, 2, tzinfo=timezone.utc), pd.Timestamp("2024-01-02", tz="UTC")):
        term = ("day", "in", [moment]) if several else ("day", ">=", moment)
        with pytest.raises(ts.errors.SchemaError, match=like("Dates have no zone ... 'day'")):
            ts.load(frame, ["day"], filter=[term])
    assert ts.load(frame, ["day"], filter=[("day", ">=", datetime(2024, 1, 2))]).rows == 1


def test_a_time_is_not_compared_with_a_list() -> None:
    frame = pl.DataFrame({"t": [datetime(2024, 1, 1)], "day": [date(2024, 1, 1)]})
    for column, values in product(("t", "day"), ([], [datetime(2024, 1, 1)], ["2024-01-01"])):
        with pytest.raises(
            TypeError, match=like(f"filter= ... To compare with several values, write ({column!r}, 'in'")
        ):
            ts.load(frame, ["t"], filter=[(column, "==", values)])


@pytest.mark.parametrize("several", [False, True])
def test_times_with_a_zone_are_not_compared_with_times_that_have_none(several: bool) -> None:
    times = pl.Series([datetime(2024, 1, 1), datetime(2024, 1, 2)])
    frame = pl.DataFrame({"n": [0, 1], "local": times, "zoned": times.dt.replace_time_zone("Europe/Berlin")})
    zoned = (datetime(2024, 1, 2, tzinfo=timezone.utc), pd.Timestamp("2024-01-02", tz="UTC"))
    for moment in (*zoned, "2024-01-02T00:00Z", "2024-01-02 00:00:00.000000001+02:00"):
        with pytest.raises(ts.errors.SchemaError, match=like("times of 'local' have no zone ... Write one without")):
            ts.load(frame, ["n"], filter=[("local", "in", [moment]) if several else ("local", "==", moment)])
    for moment in (datetime(2024, 1, 2), pd.Timestamp("2024-01-02"), np.datetime64("2024-01-02", "ns")):
        with pytest.raises(
            ts.errors.SchemaError, match=like("times of 'zoned' have a zone ... it is in Europe/Berlin")
        ):
            ts.load(frame, ["n"], filter=[("zoned", "in", [moment]) if several else ("zoned", ">", moment)])


@pytest.mark.parametrize("text", ["2024-13-01", "march", "2024-03-31 02:30", "2024-10-27 02:30", ""])
def test_a_text_that_is_no_time_is_refused(text: str) -> None:
    frame = pl.DataFrame({"t": [datetime(2024, 1, 1)]}).with_columns(pl.col("t").dt.replace_time_zone("Europe/Berlin"))
    with pytest.raises(ts.errors.SchemaError, match=like("filter= must be ... a time with a datetime or a text")):
        ts.load(frame, ["t"], filter=[("t", ">=", text)])


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_nanoseconds_of_pandas_and_polars_are_kept(zone: str | None) -> None:
    pd = pytest.importorskip("pandas")
    first = 1_700_000_000_000_000_000
    counts = [first, first + 1, first + 999, first + 1000, first + 1001]
    table = pa.table({"t": pa.array(counts, pa.timestamp("ns", zone)), "y": range(5)})

    def kept(operator_: str, value: Any) -> list[int]:
        return ts.load(table, ["y"], filter=[("t", operator_, value)])["y"].tolist()

    times = [pd.Timestamp(count, tz=zone) if zone else pd.Timestamp(count) for count in counts]
    for k, time in enumerate(times):
        assert kept("==", time) == [k]
        assert kept("<", time) == [*range(k)]
        assert kept(">=", time) == [*range(k, 5)]
        for several in (
            [time],
            (time,),
            {time},
            [None, time],
            pd.Series([time]),
            pd.Series([time], dtype=object),
            np.array([time, None], object),
            pl.Series([time.value]).cast(pl.Datetime("ns", zone)),
        ):
            assert kept("in", several) == [k]
    assert kept("in", [times[1], times[3].to_pydatetime()]) == [1, 3]
    assert kept("not in", times[1:]) == [0]
    if zone is None:
        assert kept("in", [times[1], np.datetime64(counts[4], "ns")]) == [1, 4]
    with pytest.raises(TypeError, match=r"\Afilter= compares a column with numbers, texts, dates and times; 't' is "):
        kept("in", [times[1], "2024-01-01"])
    with pytest.raises(TypeError, match=r"\Afilter= compares a column with numbers, texts, dates and times; 't' is "):
        kept("in", [times[1], pd.Timestamp(0, tz=None if zone else "UTC")])


def test_nanoseconds_of_durations_are_kept() -> None:
    pd = pytest.importorskip("pandas")
    table = pa.table({"d": pa.array([0, 1, 1000, 1001], pa.duration("ns")), "y": range(4)})
    for k, count in enumerate([0, 1, 1000, 1001]):
        for value in (pd.Timedelta(count), np.timedelta64(count, "ns")):
            assert ts.load(table, ["y"], filter=[("d", "==", value)])["y"].tolist() == [k]
        assert ts.load(table, ["y"], filter=[("d", "in", [pd.Timedelta(count)])])["y"].tolist() == [k]


def test_nanoseconds_decide_which_stash_is_attached(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    table, label = pa.table({"t": pa.array([0, 1, 2], pa.timestamp("ns"))}), f"test-filter-{tmp_path.name}"
    for count in range(3):
        stash = ts.load(table, ["t"], filter=[("t", "==", pd.Timestamp(count))], share=label)
        assert stash["t"].tolist() == [count]
    ts.shared.remove(label)
