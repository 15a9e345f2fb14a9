"""Remedies that messages name work, and what is near a limit is taken; the messages are in tests/messages."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch

import tensorstash as ts
from tests.oracle_load import like

STASH = ts.load({"t": np.arange(20), "y": np.arange(20.0)}, ["y"], time="t")
WINDOWS = ts.Windows(STASH, 2, 1)


def test_only_a_stash_is_drawn() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: nothing is drawn")
    with pytest.raises(TypeError, match="got a NoneType"):
        ts.plot.coverage(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"windows\.stash"):
        ts.plot.series(WINDOWS, None, ["y"])  # type: ignore[arg-type]


def test_the_remedies_work() -> None:
    unsigned = ts.load({"a": np.array([2**63 + 1, 1], np.uint64), "y": [1.0, None]})
    assert unsigned["a"].tolist() == [2**63 + 1, 1]
    data = {"i": np.array([2**63 + 1, 1], np.uint64), "y": pa.array([1.0, None]).to_numpy(zero_copy_only=False)}
    assert ts.load(data, ["y"], filter=[("i", "==", 2**63 + 1)])["y"].tolist() == [1.0]
    missing = ts.load({"i": [1, 2], "y": [1.0, None]}, ["i"], filter=pc.field("y").is_null())
    assert missing["i"].tolist() == [2]


def test_long_horizons_below_the_limit_are_taken() -> None:
    assert len(ts.Windows(STASH, 2, 2**39, min_horizon=0)) == 19


DAYS = ts.load({"t": np.arange("2024-01-01", "2024-01-10", dtype="M8[D]").astype("M8[s]"), "y": np.zeros(9)}, time="t")
ALIASES = {
    "1m": ["T", "min", "PT1M", "minute", pd.offsets.Minute(1), np.timedelta64(1, "m")],
    "15m": ["15T", "15min", pd.offsets.Minute(15)],
    "900s": ["900S"],
    "1h": ["H", "h", "PT1H", "1 hour", "hourly", pd.offsets.Hour(1)],
    "90m": ["90min", "90T "],
    "36h": ["36H"],
    "1d": ["D", "1D", "daily", pd.offsets.Day(1)],
    "1bd": ["B", pd.offsets.BDay(1)],
    "1w": ["W", "W-SUN", "weekly"],
    "1mo": ["M", "MS", "ME", "P1M", "monthly", pd.offsets.MonthBegin(1)],
    "1q": ["Q", "QS", "QE-DEC", "quarterly"],
    "1y": ["Y", "A", "YE", "AS-JAN", "yearly"],
}


@pytest.mark.parametrize(("meant", "written"), ALIASES.items())
def test_durations_of_other_libraries_are_told_in_our_words(meant: str, written: list[Any]) -> None:
    times = pl.datetime_range(pl.date(2024, 1, 1), pl.date(2034, 1, 1), meant.replace("bd", "d"), eager=True).head(400)
    stash = ts.load({"t": times, "y": np.arange(len(times))}, ["y"], time="t")
    ts.Windows(stash, 1, frequency=meant)  # the remedy works
    for other in written:
        with pytest.raises(ValueError, match=like(f"frequency must be a duration ... Write {meant!r}.")):
            ts.Windows(stash, 1, frequency=other)
        with pytest.raises(ValueError, match=like(f"step must be a duration ... Write {meant!r}.")):
            ts.Windows(stash, 1).folds(1, other)
        if isinstance(other, str):
            with pytest.raises(ValueError, match=like(f"start of ts.During ... Write '-{meant}'.")):
                ts.During("y", f"-{other}", "0d", max_rows=1)


@pytest.mark.parametrize("text", ["", "x", "h1", "1mo1d", ".", "Hh", "1.5H", "BME", "C", 1.5, "-1h"])
def test_no_word_is_offered_for_what_means_nothing(text: Any) -> None:
    stash = ts.load(
        {"t": pl.datetime_range(pl.date(2024, 1, 1), pl.date(2024, 1, 9), "1d", eager=True), "y": [0.0] * 9}
    )
    stash = ts.load(stash.to_polars(), ["y"], time="t")
    with pytest.raises(ValueError, match="frequency must be a duration") as caught:
        ts.Windows(DAYS, 1, frequency=text)
    assert "Write" not in str(caught.value)


def test_a_tolerance_is_never_told_to_be_a_month() -> None:
    stash = ts.load(
        {"t": pl.datetime_range(pl.date(2024, 1, 1), pl.date(2024, 1, 9), "1d", eager=True), "y": [0.0] * 9}
    )
    stash = ts.load(stash.to_polars(), ["y"], time="t")
    with pytest.raises(ValueError, match="tolerance must be a duration") as caught:
        ts.Windows(DAYS, 1, tolerance="M")
    assert "Write" not in str(caught.value)
    with pytest.raises(ValueError, match=like("tolerance ... Write '60m'.")):
        ts.Windows(DAYS, 1, tolerance="60min")


def test_a_gap_of_no_time_is_a_gap_of_no_slots() -> None:
    times = np.arange("2024-01-01", "2024-01-21", dtype="M8[D]").astype("M8[s]")
    windows = ts.Windows(ts.load({"t": times, "y": np.arange(20.0)}, ["y"], time="t"), 2, 1)
    for text in ("0d", "0h"):
        pairs = zip(windows.folds(3, "2d", gap=text), windows.folds(3, "2d", gap=0))
        for (train, test), (other_train, other_test) in pairs:
            assert train[:]["y"].equal(other_train[:]["y"])
            assert test[:]["y"].equal(other_test[:]["y"])


def local_hours(night: str) -> pl.Series:
    """The local times of 12 hours in Berlin, without their zone."""
    return (
        pl.datetime_range(
            pl.lit(night).str.to_datetime(), pl.lit(night).str.to_datetime() + pl.duration(hours=11), "1h", eager=True
        )
        .dt.replace_time_zone("UTC")
        .dt.convert_time_zone("Europe/Berlin")
        .dt.replace_time_zone(None)
        .alias("t")
    )


def test_an_hour_that_comes_twice_without_a_zone_is_told_to_need_one() -> None:
    frame = pl.DataFrame([local_hours("2024-10-26 18:00"), pl.Series("y", np.arange(12.0))])
    with pytest.raises(ts.errors.DataError, match=like("2024-10-27 02:00:00 ... replace_time_zone ... ambiguous=")):
        ts.load(frame, ["y"], time="t")
    ambiguous = pl.when(pl.col("t").is_first_distinct()).then(pl.lit("earliest")).otherwise(pl.lit("latest"))
    zoned = frame.with_columns(pl.col("t").dt.replace_time_zone("Europe/Berlin", ambiguous=ambiguous))
    assert len(ts.Windows(ts.load(zoned, ["y"], time="t"), 12, frequency="1h")) == 1
    for twice in ("2024-10-28 02:00", "2024-10-27 12:00", "2024-10-27 00:00"):  # not in the night of a Sunday
        when = pl.Series("t", [twice] * 2).str.to_datetime()
        with pytest.raises(ts.errors.DataError, match=like("A time occurs once ... Drop one")):
            ts.load({"t": when, "y": [0.0, 1.0]}, ["y"], time="t")
    utc = pl.Series("t", ["2024-10-27 02:00"] * 2).str.to_datetime(time_zone="UTC")
    with pytest.raises(ts.errors.DataError, match=like("A time occurs once ... Drop one")):
        ts.load({"t": utc, "y": [0.0, 1.0]}, ["y"], time="t")


def test_a_local_hour_that_comes_twice_or_never_is_refused_with_a_recipe_that_works() -> None:
    hours = local_hours("2024-10-26 18:00")
    frame = pl.concat([pl.DataFrame([hours]).with_columns(shop=pl.lit(shop), y=1.0) for shop in "AB"])
    names = {"pl": pl, "entity": "shop", "time": "t"}
    zone = partial(pl.col("t").dt.replace_time_zone, "Europe/Berlin")
    with pytest.raises(ts.errors.SourceError, match=like("2024-10-27 02:00:00 occurs twice")) as lazy:
        ts.load(frame.lazy().with_columns(zone()), ["y"], entity="shop", time="t")
    with pytest.raises(ts.errors.DataError, match=like("A time occurs once")) as twice:
        ts.load(frame, ["y"], entity="shop", time="t")
    for told in (lazy, twice):
        recipe = re.search(r"ambiguous=(pl\.when.*?\('latest'\)\))", str(told.value))
        assert recipe is not None
        zoned = frame.lazy().with_columns(zone(ambiguous=eval(recipe[1], names)))
        stash = ts.load(zoned, ["y"], entity="shop", time="t")
        assert stash.time is not None
        assert (stash.time.reshape(2, 12).diff() == 3_600_000_000).all()

    for night in ("2024-10-27 02:00", "2024-03-31 02:00"):
        data = pl.DataFrame({"t": pl.Series([night]).str.to_datetime(), "y": 1.0})
        for source, hour in ((data, zone().dt.hour()), (data.lazy().with_columns(h=zone().dt.hour()), "h")):
            with pytest.raises((ts.errors.DataError, ts.errors.SourceError), match=like("the local time")):
                ts.load(source, {"hour": hour})
        hour = zone(ambiguous="latest", non_existent="null").dt.hour()
        assert ts.load(data, {"hour": ts.column(hour, fill=-1)})["hour"].tolist() == [2 if "10" in night else -1]


@pytest.mark.filterwarnings("ignore:Comparisons with None")
def test_a_comparison_with_a_null_is_told_to_be_one() -> None:
    data = {"y": [1.0, None, 3.0]}
    for expression in (pl.col("y") > pl.lit(None), pl.col("y") == pl.lit(None, dtype=pl.Float64)):
        for arguments in ({"columns": {"z": expression}}, {"columns": ["y"], "filter": expression}):
            with pytest.raises(ts.errors.SchemaError, match=like("with a null is never true ... is_null()")):
                ts.load(data, **arguments)
    assert ts.load(data, {"z": pl.col("y").is_null()})["z"].tolist() == [False, True, False]
    with pytest.raises(ts.errors.SchemaError, match=like("gives Null. Cast it, such as .cast(pl.Float64).")):
        ts.load(data, {"z": pl.when(pl.col("y") > 1).then(pl.lit(None))})
    with pytest.raises(ts.errors.SchemaError, match=like("shift ... needs other rows")):
        ts.load(data, {"z": pl.col("y").shift(1) > pl.lit(None)})


def test_a_mix_of_different_components_is_told_how_to_make_them_alike() -> None:
    def windows(values: object, length: int = 1, **arguments: Any) -> ts.Windows:
        return ts.Windows(ts.load({"y": values}, **arguments), length)

    first = windows(np.ones((5, 2)))
    others = {
        "Pack as many": windows(np.ones((5, 3))),
        "the same dtype=": windows(np.ones((5, 2)), dtype=torch.float32),
        "the same spans=": windows(np.ones((5, 2)), 2),
    }
    for remedy, other in others.items():
        with pytest.raises(ts.errors.SchemaError, match=like(f"The components of a mix ... {remedy}")):
            ts.Mix({"a": first, "b": other})
    with pytest.raises(ts.errors.SchemaError, match=like("vocabulary of 'y' ... like=")):
        ts.Mix({"a": windows(["u", "v"]), "b": windows(["u", "w"])})


def test_weights_as_texts_are_told_by_name() -> None:
    for call in (
        lambda: ts.Mix({"a": WINDOWS, "b": WINDOWS}, {"a": 1, "b": "2"}),  # type: ignore[dict-item]
        lambda: ts.Loader(WINDOWS, 2, order=ts.Weighted({None: "2"}, "entity")),
    ):
        with pytest.raises(TypeError, match=like("eights ... numbers, got '2' for")):
            call()


FRAME = pl.DataFrame({"y": np.arange(20.0), "e": ["a"] * 20})
IN_THE_WRONG_PLACE = {
    "filter=": lambda: ts.load(FRAME, ["y"], filter=FRAME),
    "filter= of values": lambda: ts.load(FRAME, ["y"], filter=FRAME["y"] > 3),
    "entity=": lambda: ts.load(FRAME, ["y"], entity=FRAME["e"]),  # type: ignore[arg-type]
    "time=": lambda: ts.load(FRAME, ["y"], time=FRAME["y"]),  # type: ignore[arg-type]
    "static=": lambda: ts.load(FRAME, ["y"], static=[FRAME]),
    "dtype=": lambda: ts.load(FRAME, ["y"], dtype=FRAME),  # type: ignore[arg-type]
    "shard=": lambda: ts.load(FRAME, ["y"], shard=FRAME),  # type: ignore[arg-type]
    "a column": lambda: ts.load(FRAME, {"x": FRAME["y"]}),
    "hashed": lambda: ts.hashed(FRAME, 8),  # type: ignore[arg-type]
    "a span": lambda: ts.Windows(STASH, spans={"past": FRAME}),
    "its column": lambda: ts.Windows(STASH, spans={"past": (FRAME, -3, 0)}),
    "its start": lambda: ts.Windows(STASH, spans={"past": ("y", FRAME, 0)}),
    "at= of values": lambda: ts.Windows(STASH, 2, at=FRAME["y"]),
    "at= of a stash": lambda: ts.Windows(STASH, 2, at=STASH),
    "a cut": lambda: WINDOWS.split(FRAME),  # type: ignore[arg-type]
    "a fraction": lambda: WINDOWS.split_fraction(FRAME),  # type: ignore[arg-type]
    "weights": lambda: ts.Mix({"a": WINDOWS}, weights=FRAME),  # type: ignore[arg-type]
    "transform=": lambda: ts.Loader(WINDOWS, 2, transform=FRAME),  # type: ignore[arg-type]
    "a transform": lambda: ts.Loader(WINDOWS, 2, transform=[FRAME]),  # type: ignore[list-item]
    "a cast": lambda: ts.Cast({"y": FRAME}),  # type: ignore[dict-item]
    "casts": lambda: ts.Cast(FRAME),  # type: ignore[arg-type]
    "a norm": lambda: ts.InstanceNorm(FRAME),  # type: ignore[arg-type]
    "a pack": lambda: ts.PackSequences(FRAME),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("call", IN_THE_WRONG_PLACE.values(), ids=IN_THE_WRONG_PLACE)
def test_a_frame_in_the_wrong_place_is_named_and_not_printed(call: Callable[[], Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=r"a DataFrame|a Series|a Stash|a tuple") as caught:
        call()
    assert "\n" not in str(caught.value)


def test_times_of_points_beyond_64_bits_are_told() -> None:
    with pytest.raises(ts.errors.DataError, match=like("integers below 2**63 ... one is not")):
        ts.Windows(STASH, 2, 1, at={"t": np.array([5, 2**63 + 5], np.uint64)})
