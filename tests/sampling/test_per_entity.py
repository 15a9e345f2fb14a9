"""The inside of `sampling/per_entity.py`: an epoch is what its definition says, has so many windows of every entity,
each as likely as the others, and goes on anywhere.
"""

import hashlib
import json
import pickle
import tracemalloc
from collections import Counter
from itertools import chain, pairwise, permutations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tensorstash.sampling.per_entity import PerEntityOrder
from tests import kernel, orders
from tests.oracle_load import like


@pytest.fixture(params=kernel.WAYS, autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test here runs with the kernel, where it was compiled, and without."""
    kernel.take(request.param, monkeypatch)


def windows_of(lengths: list[int], **arguments: Any) -> ts.Windows:
    """Windows of two rows of entities of so many rows."""
    rows = {"e": np.repeat(np.arange(len(lengths)), lengths), "t": np.concatenate([*map(np.arange, lengths)])}
    stash = ts.load(rows | {"y": np.arange(1.0 * sum(lengths))}, ["y"], entity="e", time="t")
    return ts.Windows(stash, **({"history": 2} | arguments))


def epoch_of(counts: list[int], count: int, seed: int, epoch: int) -> list[int]:
    """The order itself, over entities of any size."""
    order = PerEntityOrder(count, np.array(counts, np.int64), None)
    return order.at(seed, epoch)(np.arange(order.positions)).tolist()


# few windows, about as many as draws, and many
COUNTS = st.lists(st.one_of(st.integers(0, 9), st.integers(12, 20), st.integers(4090, 4100)), min_size=1, max_size=7)


@given(COUNTS, st.one_of(st.integers(1, 9), st.integers(14, 20)), st.integers(-3, 2**40), st.integers(0, 2**40))
@settings(max_examples=80)
def test_an_epoch_is_what_the_definition_says(counts: list[int], count: int, seed: int, epoch: int) -> None:
    found = epoch_of(counts, count, seed, epoch)
    assert found == orders.per_entity(counts, count, seed, epoch)
    entity = np.repeat(np.arange(len(counts)), counts)
    shown = Counter(entity[found].tolist())
    assert len({*found}) == len(found)
    assert [shown[e] for e in range(len(counts))] == [min(n, count) for n in counts]


def test_the_oracle_can_fail() -> None:
    assert orders.per_entity([5, 6], 2, 0, 0) != orders.per_entity([5, 6], 2, 0, 1)
    assert sorted(orders.per_entity([2, 3], 9, 0, 0)) == [0, 1, 2, 3, 4]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 9), st.data())
@settings(max_examples=40)
def test_a_run_resumes_on_any_ranks(lengths: list[int], count: int, data: st.DataObject) -> None:
    """Loaders of random ranks and batch sizes one after the other, over the ends of epochs, against the definition."""
    if not any(length > 1 for length in lengths):
        return
    windows = windows_of(lengths)
    counts = [max(0, length - 1) for length in lengths]
    whole = [k for epoch in range(40) for k in orders.per_entity(counts, count, 5, epoch)]
    seen: list[int] = []
    state = None
    for _ in range(data.draw(st.integers(1, 5))):
        ranks, size, steps = (data.draw(st.integers(1, most)) for most in (4, 5, 4))
        given: dict[str, Any] = {"order": ts.PerEntity(count), "seed": 5, "with_ids": True, "with_valid": True}
        loaders = [ts.Loader(windows, size, num_replicas=ranks, rank=rank, **given) for rank in range(ranks)]
        for loader in loaders:
            assert len(loader) == -(-sum(min(n, count) for n in counts) // (size * ranks))
            if state is not None:
                loader.load_state_dict(json.loads(json.dumps(state)))
        passing = [iter(loader) for loader in loaders]
        for _ in range(steps):
            for batch in [next(batches, None) for batches in passing]:
                if batch is not None:
                    assert torch.equal(batch["y"], windows[batch["window"]]["y"])
                    seen += batch["window"][batch["valid"]].tolist()
        state = loaders[0].state_dict()
        assert all(loader.state_dict() == state for loader in loaders)
    assert seen == whole[: len(seen)]


@pytest.mark.parametrize("count", [1, 3, 16, 35])
def test_epochs_and_seeds_differ_and_every_window_is_as_likely(count: int) -> None:
    """Chi-square over the windows of each entity; the seeds are fixed, so it either always holds or never."""
    counts = [4, 40, 300, 5000]
    first, epochs = np.cumsum([0, *counts]), 1600
    order = PerEntityOrder(count, np.array(counts, np.int64), None)
    drawn = [order.at(seed, epoch)(np.arange(order.positions)) for seed in (0, 1) for epoch in range(epochs // 2)]
    assert len({ids.tobytes() for ids in drawn}) == epochs
    seen = np.bincount(np.concatenate(drawn), minlength=first[-1])
    for low, n in zip(first.tolist(), counts):
        shown = min(n, count)
        if shown == n:
            assert (seen[low : low + n] == epochs).all()
            continue
        expected = epochs * shown / n  # of each window; without replacement the variance is smaller
        statistic = ((seen[low : low + n] - expected) ** 2).sum() / (expected * (1 - shown / n))
        freedom = n - 1
        assert abs(statistic * freedom / n - freedom) < 5 * (2 * freedom) ** 0.5
    places = np.concatenate([(np.flatnonzero(ids >= first[3]) + 0.5) / order.positions for ids in drawn])
    assert abs(places.mean() - 0.5) < 0.03  # the entities are permuted together


def test_all_draws_of_few_windows_are_equally_likely() -> None:
    """Every pair of five windows, in either order."""
    drawn: Counter[tuple[int, ...]] = Counter()
    order = PerEntityOrder(2, np.array([5], np.int64), None)
    for epoch in range(4000):
        drawn[tuple(order.at(0, epoch)(np.arange(2)).tolist())] += 1
    assert drawn.keys() == {*permutations(range(5), 2)}
    statistic = sum((drawn[pair] - 200) ** 2 / 200 for pair in drawn)
    assert abs(statistic - 19) < 5 * 38**0.5


def test_positions_are_answered_in_any_order() -> None:
    for count in (2, 40):
        order = PerEntityOrder(count, np.array([3, 5000, 0, 100, 41, 10**12], np.int64), None)
        at = order.at(1, 2)
        positions = np.random.default_rng(0).permutation(order.positions)
        assert at(positions).tolist() == [int(at(np.array([k]))[0]) for k in positions.tolist()]
        assert len(at(np.empty(0, np.int64))) == 0


def test_windows_of_parts_conditions_and_points_are_counted_as_they_are() -> None:
    whole = windows_of([30, 3, 1, 12], stride=2)
    train, valid = whole.split(9)
    even = windows_of([30, 3, 1, 12], where=np.arange(46) % 3 > 0)
    at = {"e": [0, 3, 0, 1, 0, 3], "t": [20, 5, 9, 2, 14, 7]}
    points = ts.Windows(whole.stash, spans={"past": ("y", -2, 0)}, at=at)
    for windows in (whole, train, valid, even, points):
        for epoch in range(3):
            loader = ts.Loader(windows, 4, order=ts.PerEntity(2), with_ids=True)
            loader.set_epoch(epoch)
            ids = [k for batch in loader for k in batch["window"].tolist()]
            shown = Counter(windows.anchors(ids)["entity"].tolist())
            assert len({*ids}) == len(ids)
            counts = windows.per_entity()["count"].tolist()
            assert shown == {e: min(2, n) for e, n in enumerate(counts) if n}
    by_entity = np.argsort(points.anchors(slice(None))["entity"].numpy(), kind="stable")
    expected = orders.per_entity(points.per_entity()["count"].tolist(), 2, 0, 0)
    assert [*chain(*ts.Sampler(points, 3, order=ts.PerEntity(2)))] == by_entity[expected].tolist()


def test_the_same_order_on_other_data_and_after_a_pickle() -> None:
    windows = windows_of([9, 4, 6])
    more = windows_of([12, 4, 2, 7])
    order = ts.PerEntity(2)
    moved = ts.Loader(windows.on(more.stash), 3, order=order, with_ids=True)
    expected = orders.per_entity([11, 3, 1, 6], 2, 0, 0)
    assert [k for batch in moved for k in batch["window"].tolist()] == expected
    sampler = ts.Sampler(windows, 3, order=pickle.loads(pickle.dumps(order)), seed=4)
    assert [*chain(*pickle.loads(pickle.dumps(sampler)))] == orders.per_entity([8, 3, 5], 2, 4, 0)
    plain = ts.Windows(ts.load({"y": np.arange(7)}), history=2)
    assert [*chain(*ts.Sampler(plain, 4, order=order))] == orders.per_entity([6], 2, 0, 0)
    assert repr(sampler).startswith("Sampler: 6 windows 2 of each entity with seed 4, 2 steps of 3, ")


def test_a_state_of_another_count_or_of_other_windows_is_refused() -> None:
    windows = windows_of([9, 4, 6])
    state = ts.Loader(windows, 3, order=ts.PerEntity(2)).state_dict()
    message = like("these differ: order: '2 of each entity' in the state, '3 of each entity' here.")
    with pytest.raises(ValueError, match=message):
        ts.Loader(windows, 3, order=ts.PerEntity(3)).load_state_dict(state)
    with pytest.raises(ValueError, match=like("these differ: windows: 16 in the state, 17 here")):
        ts.Loader(windows_of([9, 4, 7]), 3, order=ts.PerEntity(2)).load_state_dict(state)
    for wrong in (0, -1, 1.5, True, "2", None):
        with pytest.raises(ValueError, match=r"^count must be an integer >= 1, got "):
            ts.PerEntity(wrong)  # type: ignore[arg-type]  # wrong on purpose
    assert type(ts.PerEntity(np.int64(2)).count) is int  # type: ignore[arg-type]  # any integer


@pytest.mark.parametrize("count", [1, 40])
def test_memory_grows_with_the_entities_alone(count: int) -> None:
    entities = 145_000
    counts = np.full(entities, 10**6)
    tracemalloc.start()
    order = PerEntityOrder(count, counts, None)
    kept, _ = tracemalloc.get_traced_memory()
    assert kept < 33 * entities
    at = order.at(0, 0)
    tracemalloc.reset_peak()
    ids = at(np.arange(1024))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(np.unique(ids // 10**6)) > 1000 // count
    assert peak < kept + 1024 * 1024


# Users resume in the middle of these orders: a release that changes one of them breaks their runs.
GOLDEN_DIGESTS: dict[tuple[int, int, int], str] = {
    (1, 0, 0): "fc167aaf9dadf088",
    (2, 5, 1000): "1557ea71f96b214a",
    (40, -1, 7): "3a52370aa5031e1c",
}


@pytest.mark.parametrize(("count", "seed", "epoch"), GOLDEN_DIGESTS)
def test_no_draw_ever_changes(count: int, seed: int, epoch: int) -> None:
    counts = [1, 0, 2, 30, 41, 4096, 4097, 10**9] * 300
    ids = np.array(epoch_of(counts, count, seed, epoch), "<i8")
    digest = hashlib.blake2b(ids.tobytes(), digest_size=8).hexdigest()
    assert digest == GOLDEN_DIGESTS[count, seed, epoch]


def test_drawn_lengths_packed_rows_and_keys_do_not_depend_on_ranks_or_where_a_run_resumed() -> None:
    lengths = [30, 3, 12, 40]
    windows = windows_of(lengths, history=None, spans={"past": ("y", ts.Draw(-6, -2, step=2), 0)}, min_history=2)

    def loaders(ranks: int, size: int) -> list[ts.Loader]:
        given: dict[str, Any] = {"order": ts.PerEntity(3), "seed": 2, "with_ids": True, "with_valid": True}
        given |= {"transform": [ts.PackSequences("past")]}
        return [ts.Loader(windows, size, num_replicas=ranks, rank=rank, **given) for rank in range(ranks)]

    def rows(of: list[ts.Loader], steps: int) -> list[tuple[int, int, list[float]]]:
        found = []
        for _, batches in zip(range(steps), zip(*of)):
            for batch in batches:
                edges = batch["past.offsets"].tolist()
                packed = [batch["past"][low:high].tolist() for low, high in pairwise(edges)]
                every = zip(batch["window"].tolist(), batch["window.key"].tolist(), packed, batch["valid"].tolist())
                found += [tuple(row[:3]) for row in every if row[3]]
        return found

    whole = rows(loaders(1, 4), 9)
    assert len({row[0] for row in whole}) == len(whole) == 11
    assert {2, 6} < {len(row[2]) for row in whole}
    begun = loaders(3, 1)
    seen = rows(begun, 2)
    rest = loaders(2, 3)
    for loader in rest:
        loader.load_state_dict(begun[0].state_dict())
    assert seen + rows(rest, 9) == whole
