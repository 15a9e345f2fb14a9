"""Loads without time=: one warning if a column holds times that nothing uses; an index of pandas without a name."""

import re
import warnings
from collections.abc import Callable
from datetime import date, time, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

import tensorstash as ts
from tests.oracle_load import like, write_ipc, write_parquet

DAYS = pd.date_range("2024-01-01", periods=4)
FRAME = pd.DataFrame({"y": [3.0, 1.0, 2.0, 0.0], "day": DAYS[[3, 1, 2, 0]]})
TABLE = pa.Table.from_pandas(FRAME)


def csv(path: Path) -> Path:
    FRAME.to_csv(path / "one.csv", index=False)
    return path / "one.csv"


FORMS: dict[str, Callable[[Path], Any]] = {
    "pandas": lambda _: FRAME,
    "polars": lambda _: pl.DataFrame(TABLE),
    "dates": lambda _: pl.DataFrame(TABLE).with_columns(pl.col("day").cast(pl.Date)),
    "lazy": lambda _: pl.LazyFrame(TABLE),
    "periods": lambda _: FRAME.assign(day=FRAME["day"].dt.to_period("D")),
    "zoned": lambda _: FRAME.assign(day=FRAME["day"].dt.tz_localize("UTC")),
    "table": lambda _: TABLE,
    "duckdb": lambda path: duckdb.sql(f"from '{write_parquet(path / 'one.parquet', [TABLE])}'"),
    "mapping": lambda _: {"y": FRAME["y"].to_numpy(), "day": FRAME["day"].to_numpy()},
    "parquet": lambda path: write_parquet(path / "one.parquet", [TABLE]),
    "arrow": lambda path: write_ipc(path / "one.arrow", [TABLE], None),
    "csv": csv,
}


def warned(*arguments: Any, **options: Any) -> list[str]:
    """The warnings of a load, and of nothing else."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ts.load(*arguments, **options)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("form", FORMS)
def test_a_column_of_times_that_nothing_uses_is_told_once(form: str, tmp_path: Path) -> None:
    """Whatever is loaded beside it; the line of the warning puts the rows in order."""
    # CSV columns that are not loaded are not parsed
    for columns in (None, *([["y"], {"x": ["y"]}, {"x": pl.col("y") + 1}] if form != "csv" else [])):
        source = FORMS[form](tmp_path)
        (said,) = warned(source, columns)
        assert re.match(
            like("Without time= rows keep the order ... column 'day' of ... holds times. Give time='day'."), said
        )
    ordered = ts.load(FORMS[form](tmp_path), ["y"], time="day")
    assert ordered["y"].tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("form", FORMS)
def test_nothing_is_told_of_what_is_used_or_meant(form: str, tmp_path: Path) -> None:
    for options in (
        {"columns": ["y"], "time": "day"},
        {"columns": ["y", "day"]},
        {"columns": {"y": "y", "ok": ts.is_valid("day")}},
    ):
        assert warned(FORMS[form](tmp_path), **options) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "Without time=")  # as the warning says
        ts.load(FORMS[form](tmp_path), ["y"])


def test_what_holds_no_times_tells_nothing() -> None:
    assert warned({"y": [1.0, 2.0], "n": [1, 2], "s": ["2024-01-01", "x"]}, ["y"]) == []
    assert warned(pl.DataFrame({"y": [1.0], "d": [timedelta(1)], "h": [time(10)]}), ["y"]) == []


def test_a_load_that_attaches_and_one_like_another_tell_nothing(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "one.parquet", [TABLE])
    told = [len(warned(path, ["y"], file=tmp_path / "x.safetensors")) for _ in range(2)]
    assert told == [1, 0]
    stash = ts.load(path, ["y"])
    assert warned(path, like=stash) == []


def test_a_table_of_static_columns_tells_nothing() -> None:
    stores = pl.DataFrame({"shop": ["A"], "size": [3], "opened": [date(2020, 1, 1)]})
    assert warned({"shop": ["A", "A"], "y": [1.0, 2.0]}, ["y"], entity="shop", static=(stores, ["size"])) == []


# An index of pandas without a name

UNNAMED = FRAME.set_index(pd.DatetimeIndex(FRAME["day"].to_numpy()))[["y"]]
MONTHS = pd.DataFrame({"y": [2.0, 1.0]}, index=pd.period_range("2024-01", periods=2, freq="M")[::-1])
TWO = pd.concat({"A": UNNAMED, "B": UNNAMED + 10}, names=["shop"])


def test_an_unnamed_index_of_times_is_told_with_the_line_that_uses_it() -> None:
    for frame in (UNNAMED, MONTHS, UNNAMED.tz_localize("Asia/Tokyo")):
        (said,) = warned(frame)
        assert "; column '__index_level_0__' of the pandas frame holds times. " in said
        line = re.search(r"Give (time='.*?')", said)
        assert line is not None
        named = ts.load(frame, **eval(f"dict({line[1]})"))
        assert list(named) == ["y"]
        assert named["y"].tolist() == sorted(frame["y"])
        assert list(ts.load(frame)) == ["y"]


def test_one_level_of_several_may_have_no_name() -> None:
    (said,) = warned(TWO, entity="shop")
    assert "column '__index_level_1__' of the pandas frame holds times" in said
    stash = ts.load(TWO, entity="shop", time="__index_level_1__")
    assert (stash.entities, stash["y"].tolist()) == (["A", "B"], [0.0, 1.0, 2.0, 3.0, 10.0, 11.0, 12.0, 13.0])


def test_a_file_of_such_a_frame_leaves_the_index_out(tmp_path: Path) -> None:
    """As the frame in memory; its times can be named."""
    for frame in (UNNAMED, MONTHS, TWO):
        frame.to_parquet(tmp_path / "one.parquet")
        name = f"__index_level_{frame.index.nlevels - 1}__"
        for source in (tmp_path / "one.parquet", pa.Table.from_pandas(frame)):
            (said,) = warned(source, ["y"])
            assert f"Give time={name!r}." in said
            entity = "shop" if frame is TWO else None
            stash = ts.load(source, entity=entity, time=name)
            assert list(stash) == ["y"]
            assert stash["y"].tolist() == sorted(frame["y"])
    numbered = pd.DataFrame({"y": [1.0, 2.0]}, index=[7, 5])
    numbered.to_parquet(tmp_path / "one.parquet")
    assert warned(tmp_path / "one.parquet") == []
    assert list(ts.load(tmp_path / "one.parquet")) == list(ts.load(numbered)) == ["y"]
    assert ts.load(tmp_path / "one.parquet", {"i": "__index_level_0__"})["i"].tolist() == [7, 5]


def test_the_name_index_is_answered_with_the_line_that_gives_one() -> None:
    for frame in (UNNAMED, MONTHS):
        fragment = like("no column 'index' ... load frame.rename_axis('time') with time='time'.")
        with pytest.raises(ts.errors.ColumnError, match=fragment):
            ts.load(frame, ["y"], time="index")


def test_frames_are_not_changed() -> None:
    before = UNNAMED.copy()
    ts.load(UNNAMED, ["y"], time="__index_level_0__")
    pd.testing.assert_frame_equal(UNNAMED, before)
    assert UNNAMED.index.names == [None]
    assert torch.equal(ts.load(UNNAMED)["y"], torch.from_numpy(np.array(FRAME["y"])))
