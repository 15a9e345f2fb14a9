"""What `tensorstash inspect` says of the times of a file, beside a loop over its rows."""

import json
from collections import Counter
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.command_line import run


def times_in(path: Path, *options: str) -> dict[str, Any]:
    return json.loads(run("inspect", str(path), "--time", "t", *options, "--json"))["times"]


def slow_times(rows: list[tuple[str, int]]) -> dict[str, Any]:
    """The same by looking at one row after the other."""
    series: dict[str, list[int]] = {}
    for entity, time in rows:
        series.setdefault(entity, []).append(time)
    distinct = {entity: sorted(set(times)) for entity, times in series.items()}
    steps = Counter(after - before for times in distinct.values() for before, after in pairwise(times))
    frequency = min(steps, key=lambda step: (-steps[step], step)) if steps else None
    runs = []
    for times in distinct.values():
        runs.append(1)
        for before, after in pairwise(times):
            if after - before == frequency:
                runs[-1] += 1
            else:
                runs.append(1)
    return {
        "entities": len(series),
        "frequency": None if frequency is None else str(frequency),
        "gaps": len(runs) - len(series),
        "duplicates": len(rows) - sum(map(len, distinct.values())),
        "longest_run": max(runs),
        "shortest_run": min(runs),
    }


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 12)), min_size=1, max_size=25))
def test_frequency_gaps_and_duplicates_are_those_of_a_loop(tmp_path: Path, rows: list[tuple[str, int]]) -> None:
    path = tmp_path / "rows.parquet"
    pl.DataFrame(rows, {"e": pl.String, "t": pl.Int64}, orient="row").with_columns(y=0.0).write_parquet(path)
    found = times_in(path, "--columns", "y", "--entity", "e")
    expected = slow_times(rows)
    assert {name: found[name] for name in expected} == expected
    assert sum(found["most_common_gaps"].values()) <= found["gaps"]


def test_the_oracle_counts() -> None:
    assert slow_times([("a", 1), ("a", 2), ("a", 2), ("a", 3), ("a", 7), ("b", 1)]) == {
        "entities": 2,
        "frequency": "1",
        "gaps": 1,
        "duplicates": 1,
        "longest_run": 3,
        "shortest_run": 1,
    }


@pytest.mark.parametrize("zone", ["America/New_York", None])
def test_the_zone_and_the_numbers_are_plain_values(tmp_path: Path, zone: str | None) -> None:
    moments = [datetime(2024, 1, 1, tzinfo=timezone.utc) + timedelta(hours=k) for k in (0, 1, 2, 5)]
    times = pl.Series("t", moments).cast(pl.Datetime("us", "UTC"))
    times = times.dt.replace_time_zone(None) if zone is None else times.dt.convert_time_zone(zone)
    path = tmp_path / "hours.parquet"
    pl.DataFrame({"t": times, "y": [0.5, None, 2.5, 1.5], "s": ["a", "b", "c", None]}).write_parquet(path)
    planned = json.loads(run("inspect", str(path), "--time", "t", "--json"))
    y, text, time = planned["columns"]
    assert (y["bytes"], y["shape"]) == (32, [])
    assert (text["from"], text["kind"], text["dtype"], text["zone"]) == (["s"], "category", "int32", None)
    assert (time["role"], time["zone"], time["bytes"]) == ("time", zone, 32)
    assert planned["bytes"] == 4 * (8 + 4 + 8)
    assert (planned["skipped"], planned["notes"]) == ([], [])
    assert planned["times"] | {"unit": "us"} == {
        "column": "t",
        "unit": "us",
        "zone": zone,
        "entity": [],
        "entities": 1,
        "frequency": "1h",
        "gaps": 1,
        "most_common_gaps": {"3h": 1},
        "duplicates": 0,
        "longest_run": 3,
        "shortest_run": 1,
    }
    lines = run("inspect", str(path), "--time", "t").partition("times:\n")[2].splitlines()
    assert [line.split(maxsplit=1) for line in lines[:3]] == [
        ["zone", zone or "none"],
        ["entities", "1"],
        ["frequency", "1h"],
    ]


def test_a_file_without_rows_has_no_frequency(tmp_path: Path) -> None:
    path = tmp_path / "none.parquet"
    pl.DataFrame(schema={"t": pl.Date, "y": pl.Float64}).write_parquet(path)
    found = times_in(path)
    assert (found["frequency"], found["gaps"], found["longest_run"], found["shortest_run"]) == (None, 0, 0, 0)


def test_times_of_csv_are_read_as_a_load_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "days.csv"
    path.write_text("shop,day,sold\nA,2024-01-01,1\nA,2024-01-02,2\nA,2024-01-04,3\nB,2024-01-01,4\n")
    found = json.loads(run("inspect", str(path), "--time", "day", "--entity", "shop", "--json"))["times"]
    assert (found["column"], found["entity"], found["entities"]) == ("day", ["shop"], 2)
    assert (found["frequency"], found["gaps"], found["most_common_gaps"]) == ("1d", 1, {"2d": 1})


def lines_in(path: Path, *options: str) -> dict[str, str]:
    """The printed lines on the times, by their first words."""
    printed = run("inspect", str(path), "--columns", "y", "--time", "t", *options).partition("times:\n")[2]
    return {line[2:22].strip(): line[22:] for line in printed.splitlines()}


def test_gaps_and_duplicates_are_printed_with_their_numbers(tmp_path: Path) -> None:
    hours = [k for k in range(20) if k not in (5, 9, 10)]
    frame = pl.DataFrame({"e": ["a", "b"] * len(hours), "t": [hour for hour in hours for _ in "ab"]})
    frame.with_columns(y=0.0).write_parquet(tmp_path / "hours.parquet")
    assert lines_in(tmp_path / "hours.parquet", "--entity", "e") == {
        "zone": "none, the times are integers",
        "entities": "2",
        "frequency": "1",
        "gaps": "4, by their steps: 2 of 2, 2 of 3",
        "duplicates": "none",
        "rows without a gap": "3 to 9",
    }
    lines = lines_in(tmp_path / "hours.parquet")
    assert lines["duplicates"] == "17 rows with the time of the row before: name the column of --entity"
    assert (lines["frequency"], lines["gaps"]) == ("1", "2, by their steps: 1 of 2, 1 of 3")


def test_a_load_that_would_be_refused_says_why(tmp_path: Path) -> None:
    path = tmp_path / "nulls.parquet"
    pl.DataFrame({"t": [1, None, 3], "y": [0.0, 1.0, 2.0]}).write_parquet(path)
    assert "\n  load  refused\n  why   " in run("inspect", str(path), "--time", "t")
    assert "null" in json.loads(run("inspect", str(path), "--time", "t", "--json"))["times"]["refused"]


def test_with_known_times_the_order_of_rows_is_printed(tmp_path: Path) -> None:
    frame = pl.DataFrame({"e": ["a", "a", "b"], "t": [1, 2, 1], "k": [5, 5, 5], "y": [0.0, 1.0, 2.0]})
    for runs, order in (
        (frame, "k and then by t"),
        (frame.with_columns(k=pl.Series([5, 6, 7]), t=1), "t and then by k"),
    ):
        runs.write_parquet(tmp_path / "runs.parquet")
        printed = run("inspect", str(tmp_path / "runs.parquet"), "--entity", "e", "--time", "t", "--known", "k")
        assert f"order of rows  {order}\n" in printed
