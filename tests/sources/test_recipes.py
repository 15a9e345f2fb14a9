"""What the documents advise for sources of another form, beside loops in plain Python."""

import math
from calendar import monthrange
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import tensorstash as ts
from tests.oracle_load import exact

START = datetime(2024, 1, 31)


def series_of(stash: ts.Stash, name: str) -> dict[Any, list[Any]]:
    return {entity: stash.series(entity)[name].tolist() for entity in stash.entities}


def microseconds(time: datetime) -> int:
    return (time - datetime(1970, 1, 1)) // timedelta(microseconds=1)


@pytest.mark.parametrize("form", ["frame", "file"])
def test_values_per_series_are_those_of_its_rows_in_order_of_time(form: str, tmp_path: Path) -> None:
    order = np.random.default_rng(0).permutation(60)
    frame = pl.DataFrame(
        {
            "e": [f"s{k % 3}" for k in order],
            "t": [int(k) // 3 for k in order],
            "y": [None if k % 7 == 0 else float(k) for k in order],
        }
    )
    frame.write_parquet(tmp_path / "one.parquet", row_group_size=11)
    source = frame.lazy() if form == "frame" else pl.scan_parquet(tmp_path / "one.parquet")
    y = pl.col("y")
    computed = source.with_columns(
        lag=y.shift(1).over("e", order_by="t"),
        filled=y.forward_fill(limit=2).over("e", order_by="t"),
        mean=y.rolling_mean(3, min_samples=1).over("e", order_by="t"),
        rows=pl.len().over("e"),
    )
    stash = ts.load(computed, ["lag", "filled", "mean"], static=["rows"], entity="e", time="t")
    for entity in stash.entities:
        rows = sorted(frame.filter(e=entity).rows(), key=lambda row: row[1])
        values = [math.nan if value is None else value for _, _, value in rows]
        lags, filled, means = [math.nan, *values[:-1]], [], []
        for k in range(len(values)):
            before = [value for value in values[max(k - 2, 0) : k + 1] if not math.isnan(value)]
            filled.append(before[-1] if before else math.nan)
            means.append(sum(before) / len(before) if before else math.nan)
        held = stash.series(entity)
        assert exact(held["lag"].tolist(), lags)
        assert exact(held["filled"].tolist(), filled)
        np.testing.assert_allclose(held["mean"].numpy(), means, rtol=1e-12)
        assert stash.static["rows"][stash.entities.index(entity)] == 20


LISTS: dict[str, list[Any]] = {
    "id": ["b", "a", "c"],
    "start": [START, START + timedelta(hours=5), datetime(2023, 11, 30)],
    "freq": ["H", "D", "MS"],
    "target": [[1.0, 2.0, 3.0], [4.0], [5.0, None, 7.0, 8.0]],
    "features": [[[1, 2, 3], [4, 5, 6]], [[7], [8]], [[9, 10, 11, 12], [13, 14, 15, 16]]],
    "static": [[0, 1], [2, 3], [4, 5]],
}


def later(start: datetime, freq: str, steps: int) -> datetime:
    if freq != "MS":
        return start + timedelta(hours=steps) * (24 if freq == "D" else 1)
    year, month = divmod(start.year * 12 + start.month - 1 + steps, 12)
    return datetime(year, month + 1, min(start.day, monthrange(year, month + 1)[1]))


@pytest.mark.parametrize("kind", ["file", "flattened"])
def test_lists_with_regular_times_are_a_row_for_each_value(kind: str, tmp_path: Path) -> None:
    frame = pl.DataFrame(LISTS)
    if kind == "flattened":  # as the writers of GluonTS do
        frame = frame.with_columns(
            pl.Series("features", [[v for variate in lists for v in variate] for lists in LISTS["features"]]),
            pl.Series("features._np_shape", [[len(lists), len(lists[0])] for lists in LISTS["features"]]),
        )
    frame.write_parquet(tmp_path / "one.parquet")
    n = pl.col("features._np_shape").list.get(1)
    features = pl.col("features").list
    variates = [features.get(k) if kind == "file" else features.slice(n * k, n) for k in range(2)]
    exploded = (
        pl.scan_parquet(tmp_path / "one.parquet")
        .with_columns(
            pl.col("freq").replace({"H": "h", "D": "d", "MS": "mo"}),
            step=pl.int_ranges(pl.col("target").list.len()),
            x0=variates[0],
            x1=variates[1],
        )
        .explode("step", "target", "x0", "x1")
        .with_columns(time=pl.col("start").dt.offset_by(pl.format("{}{}", "step", "freq")))
    )
    columns: dict[str, Any] = {"target": "target", "x": ["x0", "x1"]}
    stash = ts.load(exploded, columns, entity="id", time="time", static={"static": "static"})
    assert sorted(stash.entities) == ["a", "b", "c"]
    assert stash.time is not None
    for k, entity in enumerate(LISTS["id"]):
        number = stash.entities.index(entity)
        held = stash.series(entity)
        first, end = stash.offsets[number : number + 2].tolist()
        assert exact(held["target"].tolist(), [math.nan if v is None else v for v in LISTS["target"][k]])
        assert held["x"].T.tolist() == LISTS["features"][k]
        expected = [later(LISTS["start"][k], LISTS["freq"][k], step) for step in range(end - first)]
        assert stash.time[first:end].tolist() == [*map(microseconds, expected)]
        assert stash.static["static"][number].tolist() == LISTS["static"][k]


def test_lists_of_times_of_one_step_and_of_their_own_are_exploded() -> None:
    frame = pl.LazyFrame({"id": ["b", "a"], "start": [START, START], "target": [[1.0, 2.0], [3.0, 4.0, 5.0]]})
    end = pl.col("start") + pl.duration(hours=pl.col("target").list.len() - 1)
    timed = frame.with_columns(time=pl.datetime_ranges("start", end, "1h")).explode("time", "target")
    stash = ts.load(timed, ["target"], entity="id", time="time")
    assert series_of(stash, "target") == {"b": [1.0, 2.0], "a": [3.0, 4.0, 5.0]}
    assert stash.time is not None
    hours = [microseconds(START + timedelta(hours=k)) for k in range(3)]
    number = stash.entities.index("a")
    first, last = stash.offsets[number : number + 2].tolist()
    assert stash.time[first:last].tolist() == hours


def test_a_column_per_series_is_unpivoted(tmp_path: Path) -> None:
    rows = [(START + timedelta(hours=k), k % 2, k + 0.5, None if k == 3 else k * 2.0) for k in range(6)]
    pl.DataFrame(rows, ["date", "holiday", "u", "v"], orient="row").write_csv(tmp_path / "one.csv")
    frame = pl.scan_csv(tmp_path / "one.csv", try_parse_dates=True).unpivot(
        ["u", "v"], index=["date", "holiday"], variable_name="client", value_name="load"
    )
    stash = ts.load(frame, ["load", "holiday"], entity="client", time="date", filter=[("date", ">", START)])
    for entity, column in (("u", 2), ("v", 3)):
        held = stash.series(entity)
        expected = [math.nan if row[column] is None else row[column] for row in rows[1:]]
        assert exact(held["load"].tolist(), expected)
        assert held["holiday"].tolist() == [row[1] for row in rows[1:]]
