"""The time column: duplicates, and numbers that are no times."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tensorstash as ts
from tests.oracle_load import (
    like,
    write_parquet,
)


def test_integer_times_beyond_int64_are_refused() -> None:
    message = "9223372036854775808 in column 't' ... torch.int64. Times are kept as int64"
    with pytest.raises(ts.errors.DataError, match=like(message)):
        ts.load({"t": np.array([1, 2**63], np.uint64), "y": [1, 2]}, ["y"], time="t")


@pytest.mark.parametrize(
    ("times", "shown"),
    [
        (pa.array([5, 9, 5, 5]), "5"),
        (pa.array([5, 9, 5, 5], pa.timestamp("s")), "1970-01-01 00:00:05"),
        (pa.array([5, 9, 5, 5], pa.timestamp("ns")), "1970-01-01 00:00:00.000000005"),
        (pa.array([5_500_000, 9, 5_500_000, 5_500_000], pa.timestamp("us", "UTC")), "1970-01-01 00:00:05.5+00:00"),
        (pa.array([5, 9, 5, 5], pa.timestamp("s", "America/New_York")), "1969-12-31 19:00:05-05:00"),
        (pa.array([5, 9, 5, 5], pa.timestamp("s", "+05:30")), "1970-01-01 05:30:05+05:30"),
        (pa.array([5, 9, 5, 5], pa.date32()), "1970-01-06"),
    ],
    ids=["integer", "s", "ns", "us_utc", "zone", "offset", "date"],
)
def test_a_duplicate_time_is_refused_with_both_rows(times: pa.Array, shown: str) -> None:
    table = pa.table({"e": ["a", "b", "b", "a"], "t": times, "y": [1, 2, 3, 4]})
    message = f"entity 'a' has t {shown} in source rows 0 and 3"
    with pytest.raises(ts.errors.DataError, match=like(message)):
        ts.load(table, ["y"], entity="e", time="t")
    alone = message.replace("entity 'a'", "the series (no entity= was given)").replace("0 and 3", "0 and 2")
    with pytest.raises(ts.errors.DataError, match=like(alone)):
        ts.load(table, ["y"], time="t")


def test_a_duplicate_time_of_any_size_is_refused_with_both_rows() -> None:
    """Far beyond the years that a datetime can hold."""
    times = pa.array([2**50, 1, 2**50], pa.timestamp("s"))
    with pytest.raises(ts.errors.DataError, match=r"has t .+ in source rows 0 and 2\. Drop one, "):
        ts.load({"t": times, "y": [1, 2, 3]}, ["y"], time="t")


def test_a_duplicate_time_is_found_across_files(tmp_path: Path) -> None:
    for k in range(3):
        write_parquet(tmp_path / f"{k}.parquet", [pa.table({"e": [7, 8], "t": [k % 2, 10 + k], "y": [0, 0]})])
    message = (
        f"A time occurs once in each entity; entity 7 has t 0 in source rows 0 ({tmp_path}/0.parquet, row group 0) and "
        f"4 ({tmp_path}/2.parquet, row group 0). Drop one, name the column"
    )
    with pytest.raises(ts.errors.DataError, match=re.escape(message)):
        ts.load(tmp_path, ["y"], entity="e", time="t")
