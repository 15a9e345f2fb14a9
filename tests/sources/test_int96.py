"""Times in INT96: nanoseconds where all of a load fit, else a refusal; what pyarrow reads by itself wraps around."""

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


def fit(times: Sequence[datetime]) -> bool:
    """Whether nanoseconds hold all times; an oracle in plain Python."""
    return all(-LAST * 10**6 <= ticks(time) < LAST * 10**6 for time in times)


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
def test_times_are_in_nanoseconds_or_refused(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[datetime]]
) -> None:
    root = tmp_path_factory.mktemp("int96")
    for k, times in enumerate(files):
        write(root / f"{k}.parquet", t=times, y=[float(k)] * len(times), u=[EPOCH] * len(times))
    expected = [1000 * ticks(time) for times in files for time in times]
    assert set(ts.load(root, ["u"])["u"].tolist()) == {0}
    if not all(map(fit, files)):
        for arguments in ({"columns": ["t"]}, {"columns": ["y"], "time": "t", "duplicates": "keep"}):
            with pytest.raises(ts.errors.DataError, match=like("from 1677 to 2262; column 't' of")):
                ts.load(root, **arguments)
        return
    stash = ts.load(root, ["t", "y", "u"])
    assert (stash.about("t").unit, stash["t"].tolist()) == ("ns", expected)
    assert stash["y"].tolist() == [float(k) for k, times in enumerate(files) for _ in times]
    keyed = ts.load(root, ["y"], time="t", duplicates="keep")
    assert keyed.time is not None
    assert (keyed.clock.unit, keyed.time.tolist()) == ("ns", sorted(expected))


NESTED = pa.struct({"a": pa.struct({"b": pa.timestamp("us")}), "c": pa.int8()})


@pytest.mark.parametrize("last", [datetime(2020, 1, 1), datetime(9999, 12, 31)])
def test_nulls_structs_and_lists(last: datetime, tmp_path: Path) -> None:
    table = pa.table(
        {
            "t": pa.array([None, last, None], pa.timestamp("us")),
            "s": pa.array([{"a": {"b": last}, "c": 1}] * 3, NESTED),
            "all": pa.nulls(3, pa.timestamp("us")),
        }
    )
    path = tmp_path / "0.parquet"
    pq.write_table(table, path, use_deprecated_int96_timestamps=True)
    stash = ts.load(path, {"all": ts.column("all", fill=7)})
    assert (stash["all"].tolist(), stash.about("all").unit) == ([7] * 3, "ns")
    columns: list[Any] = [ts.column("t", fill=0), "s.a.b", pl.col("t").dt.year().fill_null(0)]
    expected = [[0, 1000 * ticks(last), 0], [1000 * ticks(last)] * 3, [0, last.year, 0]]
    for column, values in zip(columns, expected):
        if fit([last]):
            assert ts.load(path, {"x": column})["x"].tolist() == values
        else:
            with pytest.raises(ts.errors.DataError, match=like("INT96 ... from 1677 to 2262")):
                ts.load(path, {"x": column})


def test_only_what_is_read_decides(tmp_path: Path) -> None:
    """Neither files nor row groups that a filter excludes, nor columns that are not loaded."""
    write(
        tmp_path / "0.parquet",
        y=[1, 1, 2, 2],
        t=[EPOCH, EPOCH, datetime(9999, 12, 31), EPOCH],
        u=[datetime(1, 1, 1)] * 4,
    )
    assert ts.load(tmp_path, ["t"], filter=[("y", "==", 1)]).about("t").unit == "ns"
    for arguments in ({"filter": [("y", "==", 2)]}, {"filter": [("t", ">", datetime(2000, 1, 1))]}, {}):
        with pytest.raises(ts.errors.DataError, match=like("column 't' of")):
            ts.load(tmp_path, ["t"], **arguments)


@pytest.mark.parametrize("as_dataset", [False, True])
def test_the_format_of_the_refusal_reads_them(as_dataset: bool, tmp_path: Path) -> None:
    path = write(tmp_path / "0.parquet", t=[EPOCH, datetime(9999, 12, 31)], y=[1, 2])
    source: Any = pads.dataset(tmp_path) if as_dataset else path
    assert ts.load(source, ["y"])["y"].tolist() == [1, 2]
    with pytest.raises(ts.errors.DataError, match=like("column 't' of ... ParquetFileFormat(coerce_")) as refused:
        ts.load(source, ["t"])
    made = eval(str(refused.value).rpartition("microseconds: ")[2].removesuffix("."), {"pyarrow": pa})
    assert ts.load(made, ["t"])["t"].tolist() == [0, ticks(datetime(9999, 12, 31))]
