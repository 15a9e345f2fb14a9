"""Stashes of 0 rows, as of a day without events: at points, their windows are those of a time without rows."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import tensorstash as ts
from tests import kernel, oracle
from tests.oracle_load import like

CARDS = ["a", "b", "c"]
POINTS = {"card": ["b", "a", "b", "c"], "t": [-40, -30, -30, -20], "label": [1.5, 2.5, 3.5, 4.5]}  # before all rows
SPANS: dict[str, ts.During] = {
    "past": ts.During("amount", -9, 0, max_rows=4, age=True),
    "shops": ts.During("shop", -9, 0, max_rows=4),
    "pack": ts.During("pack", -9, 0, max_rows=4),
    "small": ts.During("small", -9, 0, max_rows=2),
    "half": ts.During("half", 0, 5, max_rows=3),
    "flag": ts.During("flag", 0, 5, max_rows=3),
    "hour": ts.During("hour", 0, 5, max_rows=3),
}


@pytest.fixture(params=kernel.WAYS, autouse=True)
def _executor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel.take(request.param, monkeypatch)


def events(rows: int) -> pl.DataFrame:
    rng = np.random.default_rng(7)
    frame = {
        "card": rng.choice(CARDS, 90),
        "t": rng.integers(0, 50, 90),
        "amount": rng.normal(size=90),
        "x": rng.normal(size=90).astype(np.float32),
        "shop": rng.choice(["grocer", "fuel"], 90),
        "small": rng.integers(0, 9, 90).astype(np.int8),
        "flag": rng.random(90) < 0.5,
    }
    return pl.DataFrame(frame).head(rows)


def load(rows: int, **options: Any) -> ts.Stash:
    columns = {
        "amount": "amount",
        "shop": "shop",
        "pack": ["x", "amount"],
        "small": ts.column("small", empty=7),
        "half": ts.column("x", dtype=torch.bfloat16),
        "flag": ts.column("flag", empty=True),
        "hour": ts.hashed("shop", 5),
    }
    static = pl.DataFrame({"card": CARDS, "limit": [1.0, 2.0, 3.0]})
    return ts.load(events(rows), columns, entity="card", time="t", duplicates="keep", static=static, **options)


@pytest.fixture(scope="module")
def full() -> ts.Stash:
    return load(90)


@pytest.fixture(scope="module", params=["loaded", "without rows"])
def empty(full: ts.Stash, request: pytest.FixtureRequest) -> ts.Stash:
    """The same entities and codes, and no row."""
    return load(0, like=full) if request.param == "loaded" else full.without_rows()


def windows_of(stash: ts.Stash, **options: Any) -> ts.Windows:
    return ts.Windows(stash, spans=SPANS, at=POINTS, **options)


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> None:
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        assert oracle.same(tensor, two[name]), name


@pytest.mark.parametrize("gaps", ["split", "ignore"])
def test_windows_at_points_are_those_of_a_time_without_rows(full: ts.Stash, empty: ts.Stash, gaps: str) -> None:
    windows, expected = windows_of(empty, gaps=gaps), windows_of(full, gaps=gaps)
    same(windows[:], expected[:])
    same(windows[1], expected[1])
    same(windows[[0, 3]], expected[[0, 3]])
    assert windows[:]["past"].isnan().all()
    assert not windows[:]["half.observed"].any()
    same(windows.anchors([0, 3]), expected.anchors([0, 3]))
    same(windows.per_entity(), expected.per_entity())
    frame = windows.to_frame([2, 3], torch.tensor([0.5, 0.25]))
    assert frame.equals(expected.to_frame([2, 3], torch.tensor([0.5, 0.25])))
    assert repr(windows) == repr(expected)


def test_parts_are_those_of_a_time_without_rows(full: ts.Stash, empty: ts.Stash) -> None:
    for part, expected in zip(windows_of(empty).split(-30, -25), windows_of(full).split(-30, -25)):
        assert part.points.tolist() == expected.points.tolist()  # type: ignore[union-attr]
    for divide in (ts.Windows.split_fraction, ts.Windows.split_entities):
        parts = divide(windows_of(empty), 0.5)
        assert sorted(row for part in parts for row in part.points.tolist()) == [0, 1, 2, 3]  # type: ignore[union-attr]


LOADERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "shuffled": {"shuffle": True, "prefetch": 2},
    "resident": {"resident": True, "device": "cpu"},
    "by time": {"order": ts.ByTime(), "batch_size": None},
    "per entity": {"order": ts.PerEntity(1)},
    "by entity": {"order": ts.Weighted([1.0, 1.0, 2.0], per="entity")},
    "by label": {"order": ts.Weighted("label")},
    "a rank": {"num_replicas": 2, "rank": 1},
    "packed": {"transform": [ts.PackSequences("past", "shops")]},
    "in rows": {"transform": [ts.PackSequences("past", "shops", length=8)]},
    "normalized": {"transform": [ts.InstanceNorm("past")]},
}


@pytest.mark.parametrize("name", LOADERS)
def test_loaders_make_the_batches_of_a_time_without_rows(full: ts.Stash, empty: ts.Stash, name: str) -> None:
    options: dict[str, Any] = {"batch_size": 3, "seed": 1, "with_ids": True} | LOADERS[name]
    batches, expected = ([*ts.Loader(windows_of(stash), **options)] for stash in (empty, full))
    assert len(batches) == len(expected) > 0
    for batch, wanted in zip(batches, expected):
        same(batch, wanted)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("resident", [False, True])
def test_a_mix_with_one_makes_the_batches_of_a_time_without_rows(
    full: ts.Stash, empty: ts.Stash, first: bool, resident: bool
) -> None:
    seen = ts.Windows(full, spans=SPANS, at=POINTS | {"t": [10, 20, 30, 40]})
    device: dict[str, Any] = {"resident": True, "device": "cpu"} if resident else {}

    def batches(stash: ts.Stash) -> list[dict[str, torch.Tensor]]:
        parts = {"seen": seen, "none": windows_of(stash)}
        mix = ts.Mix(dict(reversed(parts.items())) if first else parts)
        return [*ts.Loader(mix, 5, shuffle=True, seed=3, **device)]

    found = batches(empty)
    assert sum(int(batch["past.observed"].any(1).sum()) for batch in found) > 0
    for batch, wanted in zip(found, batches(full)):
        same(batch, wanted)


def test_with_slots_points_have_no_window(full: ts.Stash, empty: ts.Stash) -> None:
    """As where an entity has no rows, among others that have some."""
    for spans in ({"slots": ("amount", -2, 0)}, {"slots": ("amount", ts.Draw(-4, -1), 0)} | SPANS):
        options: dict[str, Any] = {"spans": spans, "gaps": "ignore", "min_history": 1, "at": POINTS}
        with pytest.raises(ts.errors.DataError, match=like("4 of 4 have none ... of an entity without rows")):
            ts.Windows(empty, **options)
        with pytest.raises(ts.errors.NoWindowError, match=like("None of the 4 rows of at=")):
            ts.Windows(empty, unmatched="drop", **options)


def test_without_points_there_is_no_window(empty: ts.Stash) -> None:
    for options in (
        {"history": 2, "horizon": 1, "columns": ["amount"]},
        {"spans": SPANS},
        {"spans": {"past": ("amount", ts.Draw(-4, -1), 0)}, "gaps": "ignore"},
    ):
        with pytest.raises(ts.errors.NoWindowError):
            ts.Windows(empty, **options)


def test_a_filter_that_keeps_nothing_leaves_no_entity() -> None:
    """Neither texts nor integers; each point is one of an entity that the stash does not have."""
    table = events(90).with_columns(number=pl.col("t").cast(pl.Int32))
    for entity, values in {"card": ["a", "b", "a", "c"], "number": [1, 2, 3, 4]}.items():
        stash = ts.load(table, ["x"], entity=entity, time="t", duplicates="keep", filter=pl.col("amount") > 1e9)
        assert (stash.rows, stash.entities) == (0, [])
        options: dict[str, Any] = {
            "spans": {"past": ts.During("x", -9, 0, max_rows=2)},
            "at": {entity: values, "t": [1, 2, 3, 4]},
        }
        with pytest.raises(ts.errors.DataError, match=like("4 of 4 have none ... the stash does not have")):
            ts.Windows(stash, **options)
        with pytest.raises(ts.errors.NoWindowError):
            ts.Windows(stash, unmatched="drop", **options)
    alone = ts.load(table, ["x"], time="t", duplicates="keep", filter=pl.col("amount") > 1e9)
    windows = ts.Windows(alone, spans={"past": ts.During("x", -9, 0, max_rows=2)}, at={"t": [3, 9]})
    assert windows[:]["past"].isnan().all()


def test_scalers_are_fitted_on_rows_and_serve_without(full: ts.Stash, empty: ts.Stash) -> None:
    for source in (empty, windows_of(empty), ts.Mix({"one": windows_of(empty), "two": windows_of(empty)})):
        for by in (None, "entity"):
            with pytest.raises(ts.errors.DataError, match=like("at least one row")):
                ts.Scaler.fit(source, ["amount"], by=by)
    with pytest.raises(ts.errors.DataError, match=like("at least one row")):
        ts.Scaler.fit(ts.load(events(0), ["amount"], entity="card", time="t"), ["amount"], by="entity")
    scaler = ts.Scaler.fit(full, ["amount"])
    assert scaler.transform(empty)["amount"].shape == (0,)
    same(windows_of(scaler.transform(empty))[:], windows_of(empty)[:])
    seen = ts.Windows(full, spans=SPANS, at=POINTS | {"t": [50, 50, 40, 30]})
    mix = ts.Mix({"none": windows_of(empty), "seen": seen})
    alone = ts.Scaler.fit(seen, ["amount"])
    assert oracle.same(ts.Scaler.fit(mix, ["amount"]).center["amount"], alone.center["amount"])
    with pytest.warns(UserWarning, match=like("the statistics of all of these rows")):
        pooled = ts.Scaler.fit(mix, ["amount"], by="entity")
    assert pooled.center["amount"][:3].tolist() == alone.center["amount"].tolist() * 3


def test_a_stash_of_no_rows_is_shown_saved_shared_and_exported(empty: ts.Stash, tmp_path: Path) -> None:
    assert "0 rows, 3 entities" in repr(empty)
    assert empty.describe()["count"].to_list() == [0] * 8 + [3]  # the pack has two rows
    assert empty.to_arrow().num_rows == 0
    empty.save(tmp_path / "none.safetensors")
    for stash in (ts.open(tmp_path / "none.safetensors"), empty.share("none"), ts.attach("none")):
        assert (stash.rows, stash.entities, stash.time_range) == (0, CARDS, (None, None))
        same(windows_of(stash)[:], windows_of(empty)[:])
    assert load(90, like=empty).vocabulary("shop") == empty.vocabulary("shop")
