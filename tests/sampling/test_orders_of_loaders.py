"""Weights, times and mixes through loaders: any ranks, batch sizes and tails, resumed anywhere, against oracles."""

import itertools
import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests import orders
from tests.data import Table
from tests.epochs import KINDS, keys_of, order_of, ordered, shuffle_of
from tests.oracle_load import like
from tests.orders_of_strangers import ByKey, first_of

LENGTHS = [7, 3, 9, 1, 5]  # the fourth entity has no window


STARTS = [0, 2, 1, 0, 30]


SEED = 3


@cache
def windows() -> ts.Windows:
    times = [start + t + 2 * (t > 4) for start, length in zip(STARTS, LENGTHS) for t in range(length)]
    return ts.Windows(Table(LENGTHS, times).stash(), spans={"past": ("i64", -1, 0), "next": ("f32", 0, 1)})


def weights() -> list[float]:
    return [float(k % 4) for k in range(len(windows()))]


ENTITY_WEIGHTS = [1.0, 0.0, 2.5, 4.0, 0.5]


def by_window(epoch: int) -> list[int]:
    return [orders.drawn(weights(), SEED, epoch, position) for position in range(len(windows()))]


def by_entity(epoch: int) -> list[int]:
    about = windows().anchors(slice(None))["entity"].tolist()
    of = [[k for k, entity in enumerate(about) if entity == e] for e in range(len(LENGTHS))]
    real = [weight * bool(own) for weight, own in zip(ENTITY_WEIGHTS, of)]
    found = []
    for position in range(11):
        own = of[orders.drawn(real, SEED, epoch, position)]
        found.append(own[orders.draw_hash(SEED, epoch, position, 1) % len(own)])
    return found


def per_entity(epoch: int) -> list[int]:
    about = windows().anchors(slice(None))["entity"].tolist()
    return orders.per_entity([about.count(e) for e in range(len(LENGTHS))], 3, SEED, epoch)


@cache
def parts() -> dict[str, ts.Windows]:
    """Of three stashes, in which the same columns stand in other places; one with empty slots, one with a gap."""
    spans = {"past": ("i64", -1, 0), "next": ("f32", 0, 1), "pack": ("pack", -1, 1)}
    small = Table([6, 4], [*range(6), *range(4)]).stash(fills=True)
    other = Table([3, 5], [*range(3), 0, 1, 4, 5, 6], holes=[2]).stash(fills=True)
    table: dict[str, Any] = {
        "t": np.arange(13),
        "f32": np.arange(13, dtype=np.float32),
        "i64": -np.arange(13),
        "e": ["x"] * 13,
    }
    packs = [table["f32"] + k for k in range(3)]
    named = {f"p{k}": pack for k, pack in enumerate(packs)}
    columns: dict[str, Any] = {"pack": [*named], "i64": ts.column("i64", fill=3), "f32": "f32"}
    large = ts.load(table | named, columns, entity="e", time="t")
    return {
        "small": ts.Windows(small, spans=spans),
        "masked": ts.Windows(other, spans=spans, gaps="mask"),
        "large": ts.Windows(large, spans=spans),
    }


@cache
def mix() -> ts.Mix:
    return ts.Mix(parts(), weights={"small": 2, "masked": 1, "large": 0.5}, epoch_size=17)


@cache
def whole() -> ts.Mix:
    return ts.Mix(parts())


def mixed(epoch: int, shuffle: bool, whole: bool = False) -> list[int]:
    """By the weights of `mix()`, which are whole numbers of halves, or by the numbers of windows."""
    sizes = {name: len(part) for name, part in parts().items()}
    names, first = [*sizes], [0, *itertools.accumulate(sizes.values())]
    tree, count = (orders.tree([*sizes.values()]), first[-1]) if whole else (orders.tree([4, 2, 1]), 17)
    found = []
    for position in range(epoch * count, (epoch + 1) * count):
        c, k = tree.at(position)
        n = sizes[names[c]]
        found.append(first[c] + (orders.component_window(SEED, names[c], n, k) if shuffle else k % n))
    return found


def of_times(epoch: int, shuffle: bool) -> list[list[int]]:
    times = windows().anchors(slice(None))["time"].tolist()
    distinct = sorted({*times})
    order = orders.shuffled(len(distinct), SEED, epoch) if shuffle else range(len(distinct))
    return [[k for k, own in enumerate(times) if own == distinct[place]] for place in order]


def of_kind(kind: str, epoch: int) -> list[int]:
    return order_of(kind, len(windows()), epoch=epoch, seed=SEED)


def by_key(epoch: int) -> list[int]:
    keys = keys_of(windows()).tolist()
    ids = sorted(range(len(keys)), key=lambda k: (keys[k], k))
    first = first_of(len(keys), SEED, epoch)
    return ids[first:] + ids[:first]


@dataclass(frozen=True)
class Case:
    """An order, and what it is by its definition."""

    shuffle: Any
    expected: Callable[[int], list[int]]
    by_time: bool = False
    source: Callable[[], Any] = windows

    def loaders(self, ranks: int, batch_size: int | None, **arguments: Any) -> list[ts.Loader]:
        return [
            ts.Loader(
                self.source(),
                batch_size,
                **ordered(self.shuffle),
                seed=SEED,
                num_replicas=ranks,
                rank=rank,
                prefetch=2 * (rank % 2),
                with_ids=True,
                **arguments,
            )
            for rank in range(ranks)
        ]


CASES = {
    "weighted by window": Case(ts.Weighted(weights()), by_window),
    "weighted by entity": Case(ts.Weighted(ENTITY_WEIGHTS, per="entity", epoch_size=11), by_entity),
    "per entity": Case(ts.PerEntity(3), per_entity),
    "mix, shuffled": Case(True, lambda epoch: mixed(epoch, True), source=lambda: mix()),
    "mix, interleaved": Case(False, lambda epoch: mixed(epoch, False), source=lambda: mix()),
    "concatenated": Case(True, lambda epoch: mixed(epoch, True, whole=True), source=lambda: whole()),
    "by time": Case(ts.ByTime(), lambda epoch: [*itertools.chain(*of_times(epoch, False))], by_time=True),
    "by time, shuffled": Case(
        ts.ByTime(shuffle=True), lambda epoch: [*itertools.chain(*of_times(epoch, True))], by_time=True
    ),
}
# orders of windows alone, two of which the package does not know; lanes fit one number of rows only
CASES |= {
    kind: Case(shuffle_of(kind, 1, 18), partial(of_kind, kind)) for kind in KINDS if kind not in ("lanes", "by key")
}
CASES["by key"] = Case(ByKey(keys_of), lambda epoch: by_key(epoch))


def flat(batch: dict[str, torch.Tensor]) -> list[int]:
    """The windows of a batch, without filler, as one number each; what is in the batch is theirs."""
    parts = [*mix().windows.values()] if "source" in batch else [windows()]
    source = batch.get("source", torch.zeros_like(batch["window"]))
    for k, part in enumerate(parts):
        own = batch["window"][source == k]
        expected = part[own] | part.anchors(own)
        assert torch.equal(batch["anchor"][source == k], expected["time"])
        for name in {*expected} - {"time"}:
            assert torch.equal(batch[name][source == k].nan_to_num(-1), expected[name].nan_to_num(-1)), name
        for name in batch.keys() - expected.keys() - {"anchor", "window", "window.key", "source", "valid"}:
            assert name.endswith(".observed")
            assert batch[name][source == k].all()
    valid = batch.get("valid", torch.ones_like(source, dtype=torch.bool))
    first = torch.tensor([0, *itertools.accumulate(map(len, parts))])
    ids: list[int] = (first[source] + batch["window"])[valid].tolist()
    return ids


def taken(loaders: list[ts.Loader], most: int | None = None) -> list[list[int]]:
    """The windows of the steps of a pass over all ranks, without filler; batches are those of their windows."""
    steps: list[list[int]] = []
    passing = [iter(loader) for loader in loaders]
    while most is None or len(steps) < most:
        step = [next(batches, None) for batches in passing]
        if step[0] is None:
            assert step == [None] * len(step)
            break
        steps.append([k for batch in step if batch is not None for k in flat(batch)])
    assert len({json.dumps(loader.state_dict()) for loader in loaders}) == 1
    return steps


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("tail", ["keep", "pad", "drop"])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_an_epoch_is_its_order_cut_into_steps(ranks: int, tail: str, name: str) -> None:
    case = CASES[name]
    loaders = case.loaders(ranks, 2, tail=tail)
    for epoch in range(3):
        groups = of_times(epoch, "shuffled" in name) if case.by_time else [case.expected(epoch)]
        size = 2 * ranks
        steps = [group[k : k + size] for group in groups for k in range(0, len(group), size)]
        steps = [step for step in steps if tail != "drop" or len(step) == size]
        if not steps:
            with pytest.raises(ValueError, match=r'^tail="drop" leaves nothing: '):
                taken(loaders)
            return
        assert [len(loader) for loader in loaders] == [len(steps)] * ranks
        assert taken(loaders) == steps


LEGS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(0, 4)), min_size=1, max_size=5)


@pytest.mark.parametrize("name", CASES)
@given(LEGS, st.sampled_from(["keep", "pad"]))
@settings(max_examples=25)
def test_a_state_goes_on_with_other_ranks_and_batch_sizes(
    name: str, legs: list[tuple[int, int, int]], tail: str
) -> None:
    case, state = CASES[name], None
    seen: list[int] = []
    for ranks, batch_size, steps in [*legs, (1, 3, None)]:
        whole = case.by_time and batch_size > 4
        loaders = case.loaders(ranks, None if whole else batch_size, tail="keep" if whole else tail)
        for loader in loaders:
            if state is not None:
                loader.load_state_dict(json.loads(json.dumps(state)))
        seen += itertools.chain(*taken(loaders, steps))
        state = loaders[0].state_dict()
    row = [k for epoch in range(25) for k in case.expected(epoch)]
    assert seen == row[: len(seen)]
    assert len(seen) % len(case.expected(0)) == 0


@pytest.mark.parametrize("name", CASES)
def test_passes_of_steps_take_the_endless_row(name: str) -> None:
    case = CASES[name]
    loaders = case.loaders(2, 2, steps=5)
    steps = [step for _ in range(6) for step in taken(loaders)]
    plain = case.loaders(2, 2)
    whole = [step for _ in range(10) for step in taken(plain)]
    assert steps == whole[:30]
    loader, other = case.loaders(1, 4, steps=5)[0], case.loaders(1, 4)[0]
    loader.set_epoch(3)  # the position of that pass, where all passes before it were whole
    whole = [step for _ in range(8) for step in taken([other])]
    assert taken([loader]) == whole[15:20]


@pytest.mark.parametrize("name", CASES)
def test_a_pickled_loader_goes_on_alike(name: str) -> None:
    loader = CASES[name].loaders(1, 3)[0]
    sampler = pickle.loads(pickle.dumps(loader.sampler))
    ids = [*sampler]
    assert ids == taken([loader])


@pytest.mark.parametrize("name", CASES)
def test_worker_processes_of_torch_take_the_sampler_of_a_loader(name: str) -> None:
    loader = CASES[name].loaders(1, 4)[0]
    dataset: Any = CASES[name].source()
    given: Any = torch.utils.data.DataLoader(dataset, sampler=loader.sampler, batch_size=None, num_workers=1)
    for one, two in itertools.zip_longest(given, CASES[name].loaders(1, 4)[0]):
        assert torch.equal(one["past"], two["past"])


# Users resume in the middle of these orders: a release that changes one of them breaks their runs.
GOLDEN = {
    "weighted by window": [13, 2, 9, 9, 10, 15],
    "weighted by entity": [7, 3, 7, 10, 8, 14],
    "mix, shuffled": [1, 8, 3, 16, 0, 10],
    "mix, interleaved": [0, 8, 1, 16, 2, 9],
    "concatenated": [1, 16, 8, 17, 3, 18],
    "by time": [0, 1, 7, 2, 5, 8],
    "by time, shuffled": [3, 6, 9, 17, 13, 16],
}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_orders_never_change(name: str) -> None:
    (loader,) = CASES[name].loaders(1, 6)
    assert [k for step in taken([loader], 6) for k in step][:6] == GOLDEN[name]


def test_what_does_not_fit_is_refused() -> None:
    untimed = ts.Windows(ts.load({"y": np.arange(5.0), "name": list("abcde")}), history=2, columns=["y"])
    for arguments, kind, message in (
        ({"order": ts.ByTime()}, ValueError, "ts.ByTime needs times ... Load it"),
        ({"order": ts.Weighted("z")}, KeyError, "the stash has no column 'z'; "),
        ({"order": ts.Weighted("name")}, TypeError, "'name' is category"),
        ({"order": ts.Weighted("y", per="entity")}, KeyError, "the stash has no static column 'y'; "),
        ({"order": ts.Weighted([1.0])}, ValueError, "got 1"),
        ({"order": ts.ByTime}, TypeError, "order must be one of ... or window ids with a length"),
    ):
        with pytest.raises(kind, match=like(message)):
            ts.Loader(untimed, 2, **arguments)
    for tail in ("pad", "drop"):
        with pytest.raises(ValueError, match=like("each batch has all windows of its time, got")):
            ts.Loader(windows(), None, order=ts.ByTime(), tail=tail)
    for alone in (False, True, ts.Weighted(weights())):
        with pytest.raises(ValueError, match=r"^Either batch_size "):
            ts.Loader(windows(), None, **ordered(alone))
    for needy in (ts.ByTime(), ts.PerEntity(), ts.Weighted([1.0], per="entity"), ts.Weighted("y")):
        with pytest.raises(ValueError, match=r"^A sampler alone knows the number of windows, but not their times and "):
            ts.Sampler(4, 2, order=needy)
    with pytest.raises(TypeError, match=r"^set_weights\(\) needs order=ts\.Weighted"):
        ts.Loader(windows(), 2).set_weights([1.0])
    loader = ts.Loader(windows(), 2, order=ts.Weighted(weights()))
    with pytest.raises(ValueError, match=r"got 1"):
        loader.set_weights([1.0])
    with pytest.raises(ValueError, match=r"these differ: order: 'weighted by window' in the state, 'by time' here\."):
        ts.Loader(windows(), 2, order=ts.ByTime()).load_state_dict(loader.state_dict())
