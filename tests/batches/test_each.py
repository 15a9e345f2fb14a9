"""Batches of `ts.each` from loaders: recycled, copied, resident, prefetched, from a file; what they take."""

import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests import kernel
from tests.epochs import KINDS, ordered, shuffle_of
from tests.late_device import LateCopies
from tests.variates import Batch, DataSet, mixes, same, windows_of

pytestmark = pytest.mark.filterwarnings("ignore:Gaps (cost|make)")


def spans(most: int | None = None, draw: bool = True) -> dict[str, Any]:
    start = ts.Draw(-8, -2, step=3) if draw else -8
    return {
        "past": (ts.each("x", "c", max_variates=most), start, 0),
        "next": (ts.each("x"), 0, 3),
        "lag": (ts.each("x", "c", max_variates=most), -6, 0, 2),
    }


def equal(one: Batch, two: Batch) -> bool:
    return one.keys() == two.keys() and all(same(one[name], two[name]) for name in one)


@given(sets=mixes(), size=st.integers(1, 20), most=st.sampled_from([None, 1, 3]), draw=st.booleans())
@settings(max_examples=40)
def test_resident_packs_give_the_same_batches(sets: list[DataSet], size: int, most: int | None, draw: bool) -> None:
    mix = ts.Mix(windows_of(sets, spans(most, draw)))
    arguments: dict[str, Any] = {"shuffle": True, "with_ids": True, "steps": 3}
    pairs = zip(ts.Loader(mix, size, **arguments), ts.Loader(mix, size, resident=True, **arguments))
    assert all(equal(one, two) for one, two in pairs)


@pytest.mark.parametrize("missing", [frozenset(), frozenset({3})])
def test_resident_packs_of_one_stash(missing: frozenset[int]) -> None:
    stash = DataSet(0, "1h", (5, 1), ((30, missing), (20, frozenset()))).stash()
    of = {"past": (ts.each("x", "c"), -3, 0), "whole": ("x", -3, 0)}
    windows = ts.Windows(stash, spans=of, frequency="1h", gaps="mask" if missing else "split")
    pairs = [*zip(ts.Loader(windows, 7), ts.Loader(windows, 7, resident=True))]
    assert len(pairs) > 5
    assert all(equal(one, two) for one, two in pairs)
    assert all(two["past.window"].untyped_storage().nbytes() == two["past.window"].nbytes for _, two in pairs)


@pytest.mark.parametrize("most", [None, 1])
@pytest.mark.parametrize("start", [-4, ts.Draw(-6, -2, step=2)])
def test_the_calendar_of_empty_slots_in_resident_rows(start: Any, most: int | None) -> None:
    of = {"past": (ts.each("c", "m", max_variates=most), start, 0), "next": (ts.each("m"), 0, 3)}
    parts = {}
    for first in ("2024-01-01", "2023-02-20"):
        time = (np.datetime64(first, "D") + np.arange(30))[[0, 1, 2, 5, 6, 9, *range(12, 30)]]
        stash = ts.load({"time": time}, {"c": ts.calendar("day", "dayofweek"), "m": ts.calendar("month")}, time="time")
        more: dict[str, Any] = {"gaps": "mask", "frequency": "1d", "min_history": 2, "min_horizon": 0}
        parts[first] = ts.Windows(stash, spans=of, **more)
    arguments: dict[str, Any] = {"shuffle": True, "steps": 6}
    for windows in (ts.Mix(parts), parts["2024-01-01"]):
        pairs = [*zip(ts.Loader(windows, 7, **arguments), ts.Loader(windows, 7, resident=True, **arguments))]
        assert all(equal(one, two) for one, two in pairs)
        assert not all(one["past.observed"].all() for one, _ in pairs)
        assert all(one["past"].min() >= 0 for one, _ in pairs)


@pytest.mark.parametrize("packs", [("c", "y"), ("y", "c"), ("c", "m", "y")])
@pytest.mark.parametrize("empty", [-7, 0])
@pytest.mark.parametrize("resident", [False, True])
def test_rows_beside_those_of_the_calendar_keep_the_value_of_their_empty_slots(
    packs: tuple[str, ...], empty: int, resident: bool
) -> None:
    time = np.datetime64("2024-01-01", "D") + np.array([0, 1, 4, 5, 6, 9])
    columns = {"c": ts.calendar("day"), "m": ts.calendar("month"), "y": ts.column("y", dtype=torch.int8, empty=empty)}
    stash = ts.load({"time": time, "y": np.arange(6) + 100}, columns, time="time")
    other = {"next": (ts.each("m", "y"), 0, 1)}  # another span of the same columns
    windows = ts.Windows(stash, spans={"past": (ts.each(*packs), -4, 0)} | other, gaps="mask", frequency="1d")
    (batch,) = ts.Loader(windows, 99, resident=resident)
    of_y = batch["past.pack"] == packs.index("y")
    whole = ts.Windows(stash, spans={name: (name, -4, 0) for name in packs}, gaps="mask", frequency="1d", min_horizon=0)
    for k, name in enumerate(packs):
        own = whole[:][name].view(len(whole), 4)[: len(windows)]
        assert batch["past"][batch["past.pack"] == k].equal(own)
    assert batch["past"][of_y][~batch["past.observed"][of_y]].eq(empty).all()


def with_all() -> ts.Windows:
    """Windows at points of a frame, with rows, a span in time, a static column and a label."""
    table = {"e": np.repeat(["a", "b"], 30), "t": [*range(30)] * 2, "size": np.repeat([1.5, 2.5], 30)}
    values = {"x": np.arange(180.0).reshape(60, 3), "c": np.arange(60.0)}
    stash = ts.load(table | values, ["x", "c"], static=["size"], entity="e", time="t")
    of = {"past": (ts.each("x", "c"), -3, 0), "ago": ts.During("x", -5, 0, max_rows=3), "c": ("c", -3, 0)}
    at = {"e": np.tile(["b", "a"], 20), "t": np.repeat(np.arange(4, 24), 2), "label": np.arange(40)}
    return ts.Windows(stash, spans=of, at=at)


def in_lanes() -> ts.Windows:
    stash = ts.load({"x": np.arange(120.0).reshape(40, 3), "c": np.arange(40.0)})
    return ts.Windows(stash, spans={"past": (ts.each("x", "c"), -1, 0), "c": ("c", -1, 0)})


# keys are made from values of windows, which here have a row for each column
ORDERS: dict[str, Any] = {kind: partial(shuffle_of, kind, 4, 40) for kind in KINDS if kind != "by key"} | {
    "weighted": lambda: ts.Weighted(np.arange(40)),
    "by entity": lambda: ts.Weighted([1, 3], per="entity"),
    "by time": lambda: ts.ByTime(shuffle=True),
    "per entity": lambda: ts.PerEntity(9),
    "ids": lambda: [*range(0, 40, 3), 7, 7],
}


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("order", ORDERS)
def test_rows_come_in_every_order(order: str, ranks: int) -> None:
    """Beside the same windows by their ids."""
    windows, size = in_lanes() if order == "lanes" else with_all(), None if order == "by time" else 4 // ranks
    seen = 0
    for rank in range(ranks):
        of_rank: dict[str, Any] = {"num_replicas": ranks, "rank": rank}
        for batch in ts.Loader(windows, size, **ordered(ORDERS[order]()), with_ids=True, **of_rank):
            own = windows[batch["window"]]
            assert own.keys() < batch.keys()
            assert all(same(batch[name], tensor) for name, tensor in own.items())
            seen += len(batch["window"])
    assert seen >= 15


@pytest.mark.host("values of resident columns are never on the host, where windows are packed")
@pytest.mark.parametrize("length", [None, 12])
def test_rows_of_drawn_lengths_and_columns_are_packed(length: int | None) -> None:
    sets = [DataSet(k, "1h", (width, 1), ((40, frozenset({9})),)) for k, width in enumerate((1, 6, 3))]
    arguments: dict[str, Any] = {"shuffle": True, "seed": 2, "with_ids": True}
    mix = ts.Mix(windows_of(sets, spans(most=2)))
    pack = ts.PackSequences("past", length=length)
    packed, plain = ts.Loader(mix, 9, transform=[pack], **arguments), ts.Loader(mix, 9, **arguments)
    for one, two in zip(packed, plain):
        sequences = [values[seen] for values, seen in zip(two["past"], two["past.observed"])]
        if length is None:
            assert same(one["past"], torch.cat(sequences))
            assert one["past.offsets"].diff().tolist() == [*map(len, sequences)]
        else:
            places = zip(*(one[f"past.{entry}"].tolist() for entry in ("row", "start", "length")))
            found = [one["past"][row, start : start + count] for row, start, count in places]
            assert all(same(here, there) for here, there in zip(found, sequences))
            assert int((one["past.segment"] > 0).sum()) == sum(map(len, sequences))
        assert torch.equal(one["past.variate"], two["past.variate"])
        assert torch.equal(one["past.window"], two["past.window"])


# ---- Memory ----


def loader_of(size: int, **more: Any) -> ts.Loader:
    sets = [DataSet(k, "1h", (width, 1), ((40, frozenset()),)) for k, width in enumerate((1, 6, 3))]
    return ts.Loader(ts.Mix(windows_of(sets, spans())), size, shuffle=True, seed=1, with_ids=True, **more)


@pytest.mark.parametrize("more", [{}, {"prefetch": 2}, {"resident": True}])
def test_batches_of_a_pass_are_distinct(more: dict[str, Any]) -> None:
    expected = [{name: tensor.clone() for name, tensor in batch.items()} for batch in loader_of(5)]
    kept = [*loader_of(5, **more)]
    assert len(kept) == len(expected) > 5
    assert all(equal(one, two) for one, two in zip(kept, expected))
    kept[1]["past"].fill_(0)
    assert all(equal(one, two) for one, two in zip(kept[2:], expected[2:]))


def test_a_write_into_one_batch_is_not_seen_by_the_graph_of_another() -> None:
    first, second, *_ = loader_of(3)
    weight = torch.ones(1, dtype=torch.float64, requires_grad=True)
    loss = (first["next"].nan_to_num(0) * weight * first["next"].nan_to_num(0)).sum()
    second["next"].zero_()
    loss.backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None


@pytest.mark.host("resident columns are gathered into fresh memory")
def test_memory_is_used_again() -> None:
    loader = loader_of(6)
    seen = [batch["past"].data_ptr() for _ in range(2) for batch in loader]
    assert len({*seen}) < len(seen)


@pytest.mark.host("tests of copies count their own memory")
def test_bytes_of_a_value() -> None:
    """Nothing is padded: a value takes its own bytes, its flag, and its part of the three numbers of its row."""
    widths, slots = [*range(1, 31)], 512
    parts = {}
    for k, width in enumerate(widths):
        stash = ts.load({"x": np.zeros((2000, width), np.float32)})
        parts[str(k)] = ts.Windows(stash, spans={"past": (ts.each("x"), -slots, 0)})
    loader = ts.Loader(ts.Mix(parts, dict.fromkeys(parts, 1)), 300, shuffle=True, steps=8)
    iterator = iter(loader)
    batch = next(iterator)
    rows, values = len(batch["past"]), batch["past"].numel()
    assert values == rows * slots
    assert rows == 10 * sum(widths)
    assert sum(tensor.nbytes for tensor in batch.values()) == 4 * values + 3 * 8 * rows
    del batch
    if not kernel.is_compiled():
        return
    tracemalloc.start()
    try:
        batch = next(iterator)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    rows, values = len(batch["past"]), batch["past"].numel()
    # the batch is in memory that was used before; else at most that of one; integers of rows come and go
    assert peak < 1.15 * 4 * values + 16 * 8 * rows


# ---- Other ways to the loop ----


@pytest.mark.parametrize("prefetch", [0, 3])
def test_batches_that_are_copied_late(monkeypatch: pytest.MonkeyPatch, prefetch: int) -> None:
    monkeypatch.setattr("tensorstash.batches.loader.copies_to", lambda _: LateCopies())
    assert all(equal(one, two) for one, two in zip(loader_of(5, prefetch=prefetch), loader_of(5, device="cpu")))


@pytest.mark.host("the device is meta")
def test_batches_for_a_device() -> None:
    batch = next(iter(loader_of(5, device="meta")))
    on_host = next(iter(loader_of(5)))
    assert {name: (tensor.shape, tensor.dtype) for name, tensor in batch.items()} == {
        name: (tensor.shape, tensor.dtype) for name, tensor in on_host.items()
    }
    assert batch["past.window"] is batch["lag.window"]


def test_windows_of_a_file(tmp_path: Path) -> None:
    stash = DataSet(0, "1h", (5, 1), ((300, frozenset()),)).stash()
    stash.save(tmp_path / "x.safetensors")
    made = [
        [*ts.Loader(ts.Windows(of, spans={"past": (ts.each("x", "c"), -30, 0)}), 20, shuffle=True)]
        for of in (stash, ts.open(tmp_path / "x.safetensors"))
    ]
    assert len(made[0]) > 5
    assert all(equal(one, two) for one, two in zip(*made))


@pytest.mark.parametrize("size", [1, 2, 50])
def test_batches_made_together_are_those_made_alone(size: int) -> None:
    """Steps of small batches are located together; each batch has the rows of its own windows."""
    loader = loader_of(size, steps=30)
    for batch in loader:
        counts = torch.bincount(batch["next.window"], minlength=len(batch["window"]))
        widths = torch.tensor([(1, 6, 3)[source] for source in batch["source"].tolist()])
        assert torch.equal(counts, widths)
        for k, (source, window) in enumerate(zip(batch["source"].tolist(), batch["window"].tolist())):
            own = [*loader.dataset.windows.values()][source][window]
            assert same(batch["next"][batch["next.window"] == k], own["next"])
