"""`order=ids`: ids of the caller's own, in steps and parts of ranks, with a state that can be checked."""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import RandomSampler, WeightedRandomSampler

import tensorstash as ts
from tests import oracle
from tests.epochs import steps_of, taken, windows_of
from tests.oracle_load import like
from tests.words import Tail

N = 37


class ByEpoch:
    """A sampler as they are often written by hand: another order in each epoch."""

    def __init__(self, count: int = 30, salt: int = 0) -> None:
        self.count = count
        self.salt = salt
        self.epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        return iter(self.ids(self.epoch))

    def ids(self, epoch: int) -> list[int]:
        return np.random.default_rng([epoch, self.salt]).integers(0, N, self.count).tolist()


def loaders(make: Any, ranks: int, batch_size: int, tail: Tail = "keep", **more: Any) -> list[ts.Loader]:
    return [
        ts.Loader(
            windows_of(N),
            batch_size,
            order=make(),
            tail=tail,
            num_replicas=ranks,
            rank=rank,
            prefetch=2 * (rank % 2),
            **more,
        )
        for rank in range(ranks)
    ]


@pytest.mark.parametrize("tail", ["keep", "pad", "drop"])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_all_ranks_take_the_ids_in_their_order(ranks: int, tail: Tail) -> None:
    made = loaders(ByEpoch, ranks, 4, tail)
    for epoch in range(3):
        ids = ByEpoch().ids(epoch)
        steps = list(steps_of(made))
        assert len(steps) == len(made[0]) == len(oracle.steps(ids, 4, ranks, tail))
        assert [k for step in steps for k in taken(N, step)] == ids[
            : 30 // (4 * ranks) * 4 * ranks if tail == "drop" else 30
        ]


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_ids_may_be_any_list_or_array(kind: Any) -> None:
    ids = ByEpoch().ids(5)
    (loader,) = loaders(lambda: kind(ids), 1, 7)
    for _ in range(2):
        assert [k for step in steps_of([loader]) for k in taken(N, step)] == ids


def test_samplers_of_pytorch_are_taken() -> None:
    """With draws of their own each time."""
    for sampler in (RandomSampler(range(N)), WeightedRandomSampler([1.0] * N, 50)):
        (loader,) = loaders(lambda one=sampler: one, 1, 8)
        passes = [[k for step in steps_of([loader]) for k in taken(N, step)] for _ in range(2)]
        assert [len(ids) for ids in passes] == [len(sampler)] * 2
        assert passes[0] != passes[1]


@pytest.mark.parametrize("steps", [None, 3])
def test_a_state_goes_on_where_the_sampler_gives_the_same_ids(steps: int | None) -> None:
    row = [k for epoch in range(4) for k in ByEpoch().ids(epoch)]
    for done in range(1, 9):
        first = loaders(ByEpoch, 2, 3, steps=steps)
        ids: list[int] = []
        while len(ids) < 6 * done:
            for step in steps_of(first):
                ids += taken(N, step)
                if len(ids) >= 6 * done:
                    break
        state = first[0].state_dict()
        second = loaders(ByEpoch, 1, 5, steps=steps)
        second[0].load_state_dict(state)
        for _ in range(3):
            ids += [k for step in steps_of(second) for k in taken(N, step)]
        assert ids == row[: len(ids)]


def test_ids_that_are_others_when_resumed_are_an_error() -> None:
    """Else windows would be lost and repeated without a word."""
    (loader,) = loaders(ByEpoch, 1, 8)
    next(iter(loader))
    state = loader.state_dict()
    (other,) = loaders(lambda: ByEpoch(salt=1), 1, 8)
    other.load_state_dict(state)
    message = (
        "order= gives other ids for epoch 0 than when the state was saved, so the position in it cannot be "
        "found. Make its ids depend on its set_epoch(epoch) alone, or call loader.set_epoch() for another epoch."
    )
    with pytest.raises(ValueError, match=like(message)):
        next(iter(other))
    other.set_epoch(1)
    assert [k for step in steps_of([other]) for k in taken(N, step)] == ByEpoch(salt=1).ids(1)


class Short(ByEpoch):
    def __iter__(self) -> Iterator[int]:
        return iter([1, 2])


@pytest.mark.parametrize(
    ("sampler", "error", "message"),
    [
        ([0, N], IndexError, f"Ids must lie in [0, {N}), got {N}"),
        ([0, -1], IndexError, f"Ids must lie in [0, {N}), got -1"),
        ([0.5], TypeError, "order must give one integer at a time"),
        ([[0, 1]], TypeError, "order must give one integer at a time"),
        (np.array([[0]]), TypeError, "one-dimensional integers, got int64 of shape (1, 1)."),
        ([], ValueError, "order must give at least one id"),
        ("abc", TypeError, "order must be ... window ids with a length and an order, such as a list, got 'abc'."),
        (7, TypeError, "order must be ... window ids with a length and an order, such as a list, got 7."),
        (Short(), ValueError, "as many ids as its length, 30, got 2"),
        (
            ts.Sampler(N, 4),
            TypeError,
            "order ... got a ts.Sampler. Give its own order=",
        ),
    ],
)
def test_wrong_ids_say_the_rule_and_the_offender(sampler: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=like(message)):
        next(iter(ts.Loader(windows_of(N), 4, order=sampler)))


def test_there_is_one_order() -> None:
    message = "shuffle=True and order= each set the order"
    with pytest.raises(ValueError, match=like(message)):
        ts.Loader(windows_of(N), 4, order=[1], shuffle=True)


@pytest.mark.parametrize("prefetch", [0, 1, 3, 8])
def test_a_state_has_the_checksum_of_its_epoch_however_far_ahead_the_thread_is(prefetch: int) -> None:
    """Epochs of two batches, so that the thread is several epochs ahead of the loop."""
    loader = ts.Loader(windows_of(4), 2, order=[0, 1, 2, 3], steps=8, prefetch=prefetch)
    told = []
    for _ in loader:
        time.sleep(0.01)
        state = loader.state_dict()
        told.append((state["epoch"], state["consumed"], state["ids"] is None))
    assert told == [(epoch, consumed, False) for epoch in range(4) for consumed in (2, 4)]
