"""Extension types: periods of pandas are the times at which they begin, and what is no plain number is refused."""

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests.oracle_load import like, run_python, write_ipc

MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
DAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
MARCH = int(datetime(2023, 3, 1, tzinfo=timezone.utc).timestamp())
UNITS = {"h": "s", "min": "s", "s": "s", "ms": "ms", "us": "us", "ns": "ns"}
FREQUENCIES = [
    "M",
    "D",
    *(f"{letter}-{month}" for letter in "QY" for month in MONTHS),
    *(f"W-{day}" for day in DAYS),
    *UNITS,
    "2M",
    "3Q-MAR",
    "15min",
    "2W-MON",
]


def metadata_of(frequency: str) -> dict[str, str]:
    """Of a field, where pandas has not been imported."""
    parameters = json.dumps({"freq": frequency})
    return {"ARROW:extension:name": "pandas.period", "ARROW:extension:metadata": parameters}


@pytest.mark.parametrize("frequency", FREQUENCIES)
@example([0, -1, 1, None, 11, 12, 13])
@given(st.lists(st.one_of(st.none(), st.integers(-5000, 5000)), min_size=1, max_size=20))
@settings(max_examples=10)
def test_periods_are_the_times_at_which_they_begin(frequency: str, numbers: list[int | None]) -> None:
    """As pandas says; in a frame, and as integers whose field says what they are."""
    periods = pd.array(
        [pd.NaT if n is None else pd.Period(ordinal=n, freq=frequency) for n in numbers], f"period[{frequency}]"
    )
    unit = UNITS.get(frequency, "s")
    expected = [
        7 if one is pd.NaT else int(one.start_time.asm8.astype(f"M8[{unit}]").astype(np.int64)) for one in periods
    ]
    table = pa.table(
        [pa.array(numbers, pa.int64())], pa.schema([pa.field("p", pa.int64(), metadata=metadata_of(frequency))])
    )
    for source in (pd.DataFrame({"p": periods}), {"p": periods}, table):
        stash = ts.load(source, {"p": ts.column("p", fill=7)})
        assert (stash.about("p").kind, stash.about("p").unit) == ("timestamp", unit)
        assert stash["p"].tolist() == expected


@pytest.mark.filterwarnings("ignore:Period with BDay freq is deprecated")
def test_business_days_and_the_names_of_older_releases() -> None:
    numbers = [-30, -1, 0, 1, 4, 13087]
    for frequency, same in {"B": "B", "A-DEC": "Y-DEC", "H": "h", "T": "min", "S": "s", "L": "ms", "U": "us"}.items():
        field = pa.field("p", pa.int64(), metadata=metadata_of(frequency))
        found = ts.load(pa.table([pa.array(numbers)], pa.schema([field])), ["p"])
        assert [pd.Timestamp(one, unit=found.about("p").unit) for one in found["p"].tolist()] == [
            pd.Period(ordinal=n, freq=same).start_time for n in numbers
        ]


def test_months_as_time_of_frames_and_files(tmp_path: Path) -> None:
    """Windows step by months, and forecasts are dated by them."""
    months = pd.period_range("2022-01", periods=14, freq="M", name="month")
    frame = pd.DataFrame({"y": np.arange(14.0)}, index=months)
    frame.to_parquet(tmp_path / "0.parquet")
    write_ipc(tmp_path / "1.arrow", [pa.Table.from_pandas(frame)], None)
    for source in (
        frame,
        frame.reset_index(),
        tmp_path / "0.parquet",
        tmp_path / "1.arrow",
        pa.Table.from_pandas(frame),
    ):
        stash = ts.load(source, ["y"], time="month")
        windows = ts.Windows(stash, 3, 1)
        assert (len(windows), windows.latest().anchors([0])["time"].tolist()) == (11, [MARCH])
        later = ts.load(source, ["y"], time="month", filter=[("month", ">=", "2023-01-01")])
        assert later["y"].tolist() == [12, 13]
        assert ts.load(source, {"year": pl.col("month").dt.year()})["year"].tolist() == [2022] * 12 + [2023] * 2


def test_a_file_of_periods_without_pandas(tmp_path: Path) -> None:
    """Then nobody has told Arrow the type, and the column is of integers."""
    pd.DataFrame({"p": pd.period_range("2022-01", periods=2, freq="M")}).to_parquet(tmp_path / "0.parquet")
    program = (
        "import sys; sys.modules['pandas'] = None; import tensorstash as ts\n"
        "print(ts.load(sys.argv[1], ['p'])['p'].tolist())"
    )
    assert run_python(program, tmp_path / "0.parquet") == "[1640995200, 1643673600]"


def test_files_of_other_periods_are_a_difference(tmp_path: Path) -> None:
    for k, frequency in enumerate("MD"):
        pd.DataFrame({"p": pd.period_range("2022-01", periods=2, freq=frequency)}).to_parquet(tmp_path / f"{k}.parquet")
    with pytest.raises(
        ts.errors.SourceError, match=like("1.parquet has 'p' as pandas.period ... not pandas.period ... Leave")
    ):
        ts.load(tmp_path, ["p"])


def test_periods_too_far_away_are_refused() -> None:
    field = pa.field("p", pa.int64(), metadata=metadata_of("M"))
    with pytest.raises(ts.errors.DataError, match=like("Periods must begin within 64 bits of seconds")):
        ts.load(pa.table([pa.array([1 << 40])], pa.schema([field])), ["p"])


# What is refused


class Stamp(pa.ExtensionType):  # type: ignore[misc]
    """A time as an integer, which only its owner understands."""

    def __init__(self, storage: pa.DataType = pa.int64()) -> None:  # noqa: B008  a type
        super().__init__(storage, "acme.timestamp")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, _: bytes) -> "Stamp":
        return cls(storage)


def named(name: str, array: pa.Array) -> pa.Table:
    """A column of an extension type that nobody has registered."""
    return pa.table([array], pa.schema([pa.field("x", array.type, metadata={"ARROW:extension:name": name})]))


OPAQUE = {
    "a time of its owner": pa.table({"x": pa.ExtensionArray.from_storage(Stamp(), pa.array([1, 2]))}),
    "the same without the type": named("acme.timestamp", pa.array([1, 2])),
    "bytes of a time": named("duckdb.time_tz", pa.array([b"12345678"], pa.binary(8))),
    "a wide integer": named("arrow.opaque", pa.array([b"1234567890123456"], pa.binary(16))),
    "periods of an unknown kind": named("pandas.period", pa.array([1, 2])),
}
opaque = pa.opaque(pa.binary(16), "hugeint", "DuckDB")
OPAQUE["registered"] = pa.table(
    {"x": pa.ExtensionArray.from_storage(opaque, pa.array([b"1234567890123456"], pa.binary(16)))}
)


@pytest.mark.parametrize("name", OPAQUE)
def test_what_its_stored_values_do_not_say_is_refused(name: str) -> None:
    table = OPAQUE[name].append_column("y", pa.array([*range(len(OPAQUE[name]))]))
    refused = like("column 'x' is ... Leave it out of columns= and static=, or convert it before loading.")
    loads: list[dict[str, Any]] = [
        {"columns": ["x"]},
        {"columns": {"valid_x": ts.is_valid("x")}},
        {"columns": {"x": pl.col("x").is_null()}},
        {"columns": ["y"], "filter": [("x", "!=", 7)]} if table["x"].type == pa.int64() else {"columns": ["x"]},
    ]
    for options in loads:
        with pytest.raises(ts.errors.SchemaError, match=refused):
            ts.load(table, **options)
    key_of: list[dict[str, Any]] = [{"time": "x"}, {"entity": "x"}]
    for keys in key_of:
        with pytest.raises(ts.errors.SchemaError, match=like("'x'")):
            ts.load(table, ["y"], **keys)
    assert ts.load(table, ["y"])["y"].tolist() == [*range(len(table))]


def test_lists_of_such_values_are_refused() -> None:
    item = pa.field("item", pa.int64(), metadata=metadata_of("M"))
    table = pa.table([pa.array([[1, 2]], pa.list_(item))], pa.schema([pa.field("x", pa.list_(item))]))
    with pytest.raises(ts.errors.SchemaError, match=like("column 'x' is pandas.period")):
        ts.load(table, ["x"])


def test_what_its_stored_values_say_is_kept() -> None:
    day = pa.array([1, 2], pa.timestamp("us"))
    assert ts.load(named("google:sqlType:datetime", day), ["x"]).about("x").kind == "timestamp"
    assert ts.load(named("arrow.opaque", pa.array(["1.5", "x"])), ["x"]).vocabulary("x") == ["1.5", "x"]
    assert ts.load(named("arrow.json", pa.array(["[]", "{}"])), ["x"]).vocabulary("x") == ["[]", "{}"]
    assert ts.load(named("arrow.uuid", pa.array([b"0" * 16], pa.binary(16))), ["x"])["x"].tolist() == [[48] * 16]
    assert ts.load(named("acme.temperature", pa.array([1.5, 2.5])), ["x"])["x"].tolist() == [1.5, 2.5]
    assert ts.load(named("arrow.bool8", pa.array([0, 1, 2], pa.int8())), ["x"])["x"].tolist() == [False, True, True]


def test_the_interval_of_parquet_is_no_bytes(tmp_path: Path) -> None:
    duckdb.sql(f"copy (select interval 1 day as i, 1 as y) to '{tmp_path}/0.parquet'")
    with pytest.raises(ts.errors.SchemaError, match=like("column 'i' is month_day_nano_interval.")):
        ts.load(tmp_path, ["i"])
    assert ts.load(tmp_path, ["y"])["y"].tolist() == [1]


def test_intervals_and_times_with_offsets_have_fields() -> None:
    frame = pd.DataFrame({"i": pd.interval_range(0, 3)})
    for source in (frame, pa.Table.from_pandas(frame)):
        with pytest.raises(ts.errors.SchemaError, match=like("load its fields by their paths, such as 'i.left'")):
            ts.load(source, ["i"])
        assert ts.load(source, {"left": "i.left"})["left"].tolist() == [0, 1, 2]
    stamps = pa.array(
        [{"timestamp": 5, "offset_minutes": 60}],
        pa.struct({"timestamp": pa.timestamp("us", "UTC"), "offset_minutes": pa.int16()}),
    )
    table = named("arrow.timestamp_with_offset", stamps)
    with pytest.raises(ts.errors.SchemaError, match=like("load its fields by their paths, such as 'x.timestamp'")):
        ts.load(table, ["x"])
    assert ts.load(table, {"y": "x.timestamp"}).about("y").zone == "UTC"


# Geometries: how each is stored, and the values that the remedy of its message loads
