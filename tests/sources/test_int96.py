"""Times in INT96: nanoseconds where all of a load fit, else microseconds; what pyarrow reads by itself wraps around."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests.oracle_load import like

EPOCH = datetime(1970, 1, 1)
LAST = 2**63 // 10**9  # no nanoseconds from this second on


def ticks(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1)


def write(path: Path, **columns: Sequence[Any]) -> Path:
    """Naive datetimes are written as INT96, two rows to a row group."""
    arrays = {
        name: pa.array(values, pa.timestamp("us")) if any(isinstance(value, datetime) for value in values) else values
        for name, values in columns.items()
    }
    pq.write_table(pa.table(arrays), path, use_deprecated_int96_timestamps=True, row_group_size=2)
    return path


def meant(files: Sequence[Sequence[datetime]]) -> tuple[str, list[int]]:
    """The unit and the times of a load; an oracle in plain Python."""
    times = [ticks(time) for times in files for time in times]
    if all(-LAST * 10**6 <= time < LAST * 10**6 for time in times):
        return "ns", [1000 * time for time in times]
    return "us", times


BORDERS = [EPOCH + timedelta(seconds=s) for s in (-LAST - 1, -LAST, -LAST + 1, LAST - 1, LAST, LAST + 1)]
TIMES = st.one_of(
    st.datetimes(),
    st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)),
    st.sampled_from([*BORDERS, datetime(9999, 12, 31), datetime(1, 1, 1)]),
)


@example([[datetime(2020, 1, 1)], [datetime(9999, 12, 31)]])
@example([[datetime(2020, 1, 1)] * 5])
@given(st.lists(st.lists(TIMES, min_size=1, max_size=5), min_size=1, max_size=3))
@settings(max_examples=60)
def test_all_files_have_the_finest_unit_that_holds_all_times(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[datetime]]
) -> None:
    root = tmp_path_factory.mktemp("int96")
    for k, times in enumerate(files):
        write(root / f"{k}.parquet", t=times, y=[float(k)] * len(times), u=[EPOCH] * len(times))
    unit, expected = meant(files)
    stash = ts.load(root, ["t", "y", "u"])
    assert (stash.about("t").unit, stash["t"].tolist()) == (unit, expected)
    assert (stash.about("u").unit, set(stash["u"].tolist())) == ("ns", {0})
    assert stash["y"].tolist() == [float(k) for k, times in enumerate(files) for _ in times]
    keyed = ts.load(root, ["y"], time="t", duplicates="keep")
    assert keyed.time is not None
    assert (keyed.clock.unit, keyed.time.tolist()) == (unit, sorted(expected))
    note = f"'t' is read as timestamp[{unit}]: its times do not fit into ns"
    assert (note in ts.plan(root, ["t"]).notes) == (unit == "us")


def test_nulls_structs_and_lists(tmp_path: Path) -> None:
    wide = datetime(9999, 12, 31)
    table = pa.table(
        {
            "t": pa.array([None, wide, None], pa.timestamp("us")),
            "s": pa.array(
                [{"a": {"b": wide}, "c": 1}] * 3, pa.struct({"a": pa.struct({"b": pa.timestamp("us")}), "c": pa.int8()})
            ),
            "all": pa.nulls(3, pa.timestamp("us")),
        }
    )
    path = tmp_path / "0.parquet"
    pq.write_table(table, path, use_deprecated_int96_timestamps=True)
    stash = ts.load(path, {"t": ts.column("t", fill=0), "b": "s.a.b", "c": "s.c", "all": ts.column("all", fill=7)})
    assert stash["t"].tolist() == [0, ticks(wide), 0]
    assert stash["b"].tolist() == [ticks(wide)] * 3
    assert (stash["all"].tolist(), stash.about("all").unit) == ([7] * 3, "ns")
    assert ts.load(path, {"year": pl.col("t").dt.year().fill_null(0)})["year"].tolist() == [0, 9999, 0]


def test_only_what_is_read_decides(tmp_path: Path) -> None:
    """Neither files nor row groups that a filter excludes, nor columns that are not loaded."""
    write(
        tmp_path / "0.parquet",
        y=[1, 1, 2, 2],
        t=[EPOCH, EPOCH, datetime(9999, 12, 31), EPOCH],
        u=[datetime(1, 1, 1)] * 4,
    )
    assert ts.load(tmp_path, ["t"], filter=[("y", "==", 1)]).about("t").unit == "ns"
    assert ts.load(tmp_path, ["t"], filter=[("y", "==", 2)]).about("t").unit == "us"
    late = ts.load(tmp_path, ["y"], filter=[("t", ">", datetime(3000, 1, 1))])
    assert late["y"].tolist() == [2]


def test_a_file_with_another_type_beside(tmp_path: Path) -> None:
    write(tmp_path / "0.parquet", t=[datetime(9999, 12, 31)])
    pq.write_table(pa.table({"t": pa.array([2000], pa.timestamp("ns"))}), tmp_path / "1.parquet")
    assert ts.load(tmp_path, ["t"])["t"].tolist() == [ticks(datetime(9999, 12, 31)), 2]
    pq.write_table(pa.table({"t": pa.array([1], pa.timestamp("ns"))}), tmp_path / "1.parquet")
    with pytest.raises(ts.errors.DataError, match=like("'t' is timestamp[ns] in ... does not fit into timestamp[us]")):
        ts.load(tmp_path, ["t"])


def test_a_dataset_of_pyarrow_is_refused_with_the_format_that_reads_it(tmp_path: Path) -> None:
    write(tmp_path / "0.parquet", t=[EPOCH, datetime(9999, 12, 31)], y=[1, 2])
    dataset = pads.dataset(tmp_path)
    assert ts.load(dataset, ["y"])["y"].tolist() == [1, 2]
    with pytest.raises(
        ts.errors.DataError, match=like("column 't' of ... INT96 ... ParquetFileFormat(coerce_")
    ) as refused:
        ts.load(dataset, ["t"])
    made = eval(str(refused.value).rpartition("format=")[2].removesuffix("."), {"pyarrow": pa})
    assert ts.load(pads.dataset(tmp_path, format=made), ["t"])["t"].tolist() == [0, ticks(datetime(9999, 12, 31))]


def test_times_beyond_microseconds_are_refused(tmp_path: Path) -> None:
    """They can only be written byte by byte: a Julian day in the last four of twelve bytes."""
    path = write(tmp_path / "0.parquet", t=[datetime(2020, 1, 1)])
    data, day = path.read_bytes(), (2458850).to_bytes(4, "little")
    assert data.count(day) == 1
    path.write_bytes(data.replace(day, (2458850 + 10**9).to_bytes(4, "little")))
    with pytest.raises(
        ts.errors.DataError, match=like("292,000 years of 1970; column 't' of ... row group 0 has others")
    ):
        ts.load(path, ["t"])
