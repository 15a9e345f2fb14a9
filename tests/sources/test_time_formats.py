"""Texts, points and integers that mean times: the message names the line of polars that reads these very values."""

import re
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import tensorstash as ts
from tests.oracle_load import like

TEXTS: list[tuple[list[str], list[Any]]] = [
    (["1949/01", "1949/12"], [date(1949, 1, 1), date(1949, 12, 1)]),
    (["2015/01/01 01:00", "2015/12/31 23:00"], [datetime(2015, 1, 1, 1), datetime(2015, 12, 31, 23)]),
    (["Jan 1 2000", "Dec 31 2000"], [date(2000, 1, 1), date(2000, 12, 31)]),
    (["04/30/2021", "05/01/2021"], [date(2021, 4, 30), date(2021, 5, 1)]),
    (["30/04/2021", "01/05/2021"], [date(2021, 4, 30), date(2021, 5, 1)]),
    (["1990/1/1 0:00", "1990/10/11 13:00"], [datetime(1990, 1, 1), datetime(1990, 10, 11, 13)]),
    (["10:37", "9:05"], [datetime(2000, 1, 1, 10, 37), datetime(2000, 1, 1, 9, 5)]),
    (["1 January 2024", "31 March 2024"], [date(2024, 1, 1), date(2024, 3, 31)]),
    (["1/31/24 3:04 PM", "2/1/24 12:00 AM"], [datetime(2024, 1, 31, 15, 4), datetime(2024, 2, 1)]),
    (["31.12.2021 23:59:59.5", "1.1.2022 0:00:00.25"], [datetime(2021, 12, 31, 23, 59, 59, 500_000), None]),
    (["1949", "1950"], [date(1949, 1, 1), date(1950, 1, 1)]),
]


def remedy(error: Exception) -> str:
    """The line that a message names."""
    found = re.search(r"with polars: (frame\.with_columns\(.*?\))( \(.* reads them too\))?\.$", str(error))
    assert found is not None, error
    return found[1]


@pytest.mark.parametrize(("texts", "times"), TEXTS, ids=lambda texts: str(texts[0]))
def test_the_line_that_is_named_reads_the_texts(texts: list[str], times: list[Any], tmp_path: Path) -> None:
    frame = pl.DataFrame({"a time": texts, "y": [1.0, 2.0]})
    frame.write_csv(path := tmp_path / "x.csv")
    coded = frame.cast({"a time": pl.Categorical})
    sources: list[Any] = [frame, coded] if texts[0].isdecimal() else [frame, coded, path]  # of a CSV these are integers
    for source in sources:
        with pytest.raises(ts.errors.SchemaError, match=like(f"{texts[0]!r} ... with polars")) as caught:
            ts.load(source, ["y"], time="a time")
        read = eval(remedy(caught.value), {"pl": pl, "frame": coded if source is coded else frame})
        assert [time for time, known in zip(read["a time"], times) if known] == [time for time in times if time]
        assert ts.load(read, ["y"], time="a time").rows == 2


@pytest.mark.parametrize(("texts", "times"), TEXTS, ids=lambda texts: str(texts[0]))
@pytest.mark.parametrize("dtype", ["object", "str"])
def test_the_line_for_a_frame_of_pandas_is_one_of_pandas(texts: list[str], times: list[Any], dtype: str) -> None:
    frame = pd.DataFrame({"a time": pd.Series(texts, dtype=dtype), "y": [1.0, 2.0]})
    with pytest.raises(ts.errors.SchemaError, match=like(f"{texts[0]!r} ... with pandas")) as caught:
        ts.load(frame, ["y"], time="a time")
    found = re.search(r"with pandas: (frame\[.*?format=.*?\))( \(.* reads them too\))?\.$", str(caught.value))
    assert found is not None
    exec(found[1], {"pd": pd, "frame": frame})
    assert [time for time, known in zip(frame["a time"], times) if known] == [pd.Timestamp(t) for t in times if t]
    assert ts.load(frame, ["y"], time="a time").rows == 2


PERIODS = [
    (["1949-01", "1949-12"], [date(1949, 1, 1), date(1949, 12, 1)]),
    (["2021Q3", "2021Q4", "2022Q1"], [date(2021, 7, 1), date(2021, 10, 1), date(2022, 1, 1)]),
    (["2021-Q1", "2022-Q2"], [date(2021, 1, 1), date(2022, 4, 1)]),
    (["2016W01", "2016W52"], [date(2016, 1, 4), date(2016, 12, 26)]),
    (["2020-W53", "2021-W01"], [date(2020, 12, 28), date(2021, 1, 4)]),
    (["2021-05", "2021-06-15", "2021-07-01 12:00"], [date(2021, 5, 1), date(2021, 6, 15), date(2021, 7, 1)]),
]


@pytest.mark.parametrize(("texts", "days"), PERIODS, ids=lambda texts: str(texts[0]))
@pytest.mark.parametrize("dictionary", [False, True])
def test_months_quarters_and_weeks_are_the_days_on_which_they_begin(
    texts: list[str], days: list[date], dictionary: bool, tmp_path: Path
) -> None:
    frame = pl.DataFrame({"a time": texts, "y": np.arange(float(len(texts)))})
    frame.write_csv(path := tmp_path / "x.csv")
    sources: list[Any] = [frame, frame[::-1], {"a time": texts, "y": [0.0] * len(texts)}]
    sources += [path] * (len({*map(len, texts)}) == 1)  # a column of CSV is all times or all text
    for source in [frame.cast({"a time": pl.Categorical})] if dictionary else sources:
        stash = ts.load(source, ["y"], time="a time")
        assert stash.clock.unit == "us"
        assert stash.to_polars()["a time"].dt.date().to_list() == days
    runs = pl.DataFrame({"t": days, "k": texts, "y": 1.0})
    assert ts.load(runs, ["y"], time="t", known="k").known_name == "k"


@pytest.mark.parametrize("late", ["2021-13", "2021Q5", "2021W54", "2021W53", "2021-W00", "2021-1", "202101", "0000-01"])
def test_a_month_quarter_or_week_that_there_is_not(late: str) -> None:
    with pytest.raises(
        ts.errors.DataError, match=like(f"Text times must be in ISO 8601 ... {late!r} in column 't' is")
    ):
        ts.load({"t": ["2021-01", late], "y": [1, 2]}, time="t")


def test_periods_of_pandas_are_the_times_of_such_texts() -> None:
    for freq, texts in (("M", ["2021-05", "2021-06"]), ("Q", ["2021Q3", "2021Q4"]), ("W", ["2016W01", "2016W02"])):
        stash = ts.load({"t": texts, "y": [1.0, 2.0]}, ["y"], time="t")
        first = [str(day) for day in stash.to_polars()["t"].dt.date()]
        periods = pd.PeriodIndex(first, freq=freq)
        of_periods = ts.load(pd.DataFrame({"t": periods, "y": [1.0, 2.0]}), ["y"], time="t")
        assert of_periods.to_polars()["t"].dt.date().to_list() == stash.to_polars()["t"].dt.date().to_list()


def test_a_day_and_a_month_that_may_be_either_way_round() -> None:
    with pytest.raises(ts.errors.SchemaError, match=like("'%d/%m/%Y')) ('%m/%d/%Y' reads them too).")) as caught:
        ts.load({"t": ["01/02/2021", "03/04/2021"], "y": [1, 2]}, ["y"], time="t")
    assert remedy(caught.value) == "frame.with_columns(pl.col('t').str.to_date('%d/%m/%Y'))"


@pytest.mark.parametrize("texts", [["yesterday", "today"], ["01/02/2021", "n/a"], ["2024-01-01 25:00", "x"]])
def test_no_line_is_named_that_does_not_read_all_texts(texts: list[str]) -> None:
    with pytest.raises(ts.errors.SchemaError, match=like("is not. Convert it, or name another column.")):
        ts.load({"t": texts, "y": [1, 2]}, ["y"], time="t")


def test_a_text_that_follows_times_in_iso_8601() -> None:
    frame = pl.DataFrame({"t": ["2020-01-01 00:00", "2020-01-01 1:00"], "y": [1, 2]})
    with pytest.raises(ts.errors.DataError, match=like("'2020-01-01 1:00' ... with polars")) as caught:
        ts.load(frame, ["y"], time="t")
    assert ts.load(eval(remedy(caught.value), {"pl": pl, "frame": frame}), ["y"], time="t").rows == 2
    with pytest.raises(ts.errors.DataError, match=like("'no' ... Write all of them alike.")):
        ts.load({"t": ["2020-01-01 00:00", "no"], "y": [1, 2]}, ["y"], time="t")


NINE = np.array(["2016-12-31T23:59:59", "2017-01-01T00:00:00.123456789"], "M8[ns]")


@pytest.mark.parametrize("zone", ["", "Z"])
def test_nine_digits_in_the_first_text_are_nanoseconds(zone: str, tmp_path: Path) -> None:
    """As numpy writes them, zeros too."""
    frame = pl.DataFrame({"t": [text + zone for text in np.datetime_as_string(NINE)], "y": [1, 2]})
    frame.write_parquet(path := tmp_path / "x.parquet")
    for source in (frame, path, frame.to_pandas(), frame.cast({"t": pl.Categorical})):
        stash = ts.load(source, ["y"], time="t")
        assert stash.time is not None
        assert (stash.clock.unit, stash.clock.zone) == ("ns", "UTC" if zone else None)
        assert stash.time.tolist() == NINE.astype(int).tolist()


def test_zeros_behind_microseconds_are_read() -> None:
    for texts in (["2017-01-01", "2016-12-31T23:59:59.500000000"], ["9999-12-31T00:00:00.000000000", "2016-12-31"]):
        stash = ts.load({"t": texts, "y": [1, 2]}, time="t")
        assert stash.clock.unit == "us"
        assert stash.time is not None
        assert stash.time.tolist() == sorted(np.array(texts, "M8[us]").astype(int).tolist())


@pytest.mark.parametrize("zone", ["", "Z"])
def test_nanoseconds_stand_in_all_texts_or_in_none(zone: str) -> None:
    plain, finer = f"2017-01-01T00:00:00{zone}", f"{NINE[1]}{zone}"
    for texts, rule in (
        ([plain, finer], "nanoseconds, from 1677 to 2262, or all without; '2017-01-01T00:00:00.123456789"),
        ([finer, "9999-12-31T00:00:00" + zone], "from 1677 to 2262, or all without; '9999-12-31T00:00:00"),
    ):
        for source in (pl.DataFrame({"t": texts, "y": [1, 2]}), pd.DataFrame({"t": texts, "y": [1, 2]})):
            with pytest.raises(ts.errors.DataError, match=like(f"{rule} ... (row 1, in ... Write all of them alike.")):
                ts.load(source, ["y"], time="t")
    spaced = ["2024/01/01 00:00:00.123456789", "2024/01/01 00:00:01"]
    with pytest.raises(ts.errors.SchemaError, match=like("Convert it, or name another column.")):
        ts.load({"t": spaced, "y": [1, 2]}, time="t")  # the formats of polars that read these cut off nanoseconds


AT: list[tuple[Any, pl.Series]] = [
    (pl.Date, pl.Series([datetime(2024, 1, 31)])),
    (pl.Datetime("us"), pl.Series([datetime(2024, 1, 31)]).dt.replace_time_zone("Asia/Tokyo")),
    (pl.Datetime("us", "Europe/Berlin"), pl.Series([datetime(2024, 1, 31)])),
]


@pytest.mark.parametrize(("kind", "at"), AT, ids=str)
def test_the_line_for_points_gives_the_times_of_the_stash(kind: Any, at: pl.Series) -> None:
    days = pl.date_range(date(2024, 1, 1), date(2024, 2, 9), "1d", eager=True)
    times = days if kind == pl.Date else days.cast(pl.Datetime("us")).dt.replace_time_zone(kind.time_zone)
    stash = ts.load(pl.DataFrame({"t": times, "y": range(40)}), ["y"], time="t")
    with pytest.raises(ts.errors.SchemaError, match=like("The times of at= must be")) as caught:
        ts.Windows(stash, 2, at=pl.DataFrame({"t": at}))
    frame = eval(remedy(caught.value), {"pl": pl, "frame": pl.DataFrame({"t": at})})
    assert ts.Windows(stash, 2, at=frame)[0]["y"].tolist() == [28, 29]


HOURS = pl.DataFrame({"t": 1_577_836_800 + 3600 * np.arange(200), "y": np.arange(200.0)})
ASKED: dict[str, Callable[[pl.DataFrame], object]] = {
    "calendar": lambda frame: ts.load(frame, {"when": ts.calendar("hour")}, time="t"),
    "split": lambda frame: windows_of(frame).split("2020-01-05"),
    "folds": lambda frame: windows_of(frame).folds(2, "1d"),
    "frequency": lambda frame: ts.Windows(windows_of(frame).stash, 3, frequency="1h"),
    "tolerance": lambda frame: ts.Windows(windows_of(frame).stash, 3, tolerance="5m"),
    "During": lambda frame: windows_of(frame, spans={"y": ts.During("y", "-1d", "0d", max_rows=24)}),
    "every": lambda frame: windows_of(frame, spans={"y": ts.During("y", "-1d", "0d", every="1h")}),
    "at": lambda frame: windows_of(frame, history=2, at=pl.DataFrame({"t": [datetime(2020, 1, 4)]})),
    "plot": lambda frame: ts.plot.series(windows_of(frame).stash, None, ["y"], start="2020-01-05"),
}


def windows_of(frame: pl.DataFrame, **options: Any) -> ts.Windows:
    return ts.Windows(ts.load(frame, ["y"], time="t"), **(options or {"history": 3, "horizon": 1}))


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("per_second", [1, 10**3, 10**6, 10**9])
def test_the_line_for_integers_since_1970_makes_them_times(asked: str, per_second: int) -> None:
    frame = HOURS.with_columns(pl.col("t") * per_second)
    kinds = (ValueError, ts.errors.SchemaError)
    with pytest.raises(kinds, match=like(f"{1_577_836_800 * per_second} reads as ... since 1970")) as caught:
        ASKED[asked](frame)
    found = re.search(r"load (frame\.with_columns\(.*\)), with polars\.$", str(caught.value))
    assert found is not None
    read = eval(found[1], {"pl": pl, "frame": frame})
    assert read["t"][0] == datetime(2020, 1, 1)
    ASKED[asked](read)


@pytest.mark.parametrize("first", [0, 20_240_131, 2**62])
def test_other_integers_are_no_times_since_1970(first: int) -> None:
    stash = ts.load({"t": np.arange(9) + first, "y": np.arange(9)}, ["y"], time="t")
    with pytest.raises(ValueError, match=like("A cut is an integer, as the times are; got '2020-01-01'.") + "$"):
        ts.Windows(stash, 3).split("2020-01-01")
