"""Whole epochs of all ranks in one process, over windows whose values say which window they are."""

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch

import tensorstash as ts
from tests import oracle, orders
from tests.data import Table
from tests.orders_of_strangers import Backwards, ByKey, first_of
from tests.words import Int64s, Tail

OF_NUMBERS = ["sequential", "shuffled", "blocks", "lanes"]  # orders that need no more than the number of windows
KINDS = [*OF_NUMBERS, "own ids", "by key", "backwards"]  # the last two are unknown to the package
OBJECTS = [kind for kind in KINDS if kind not in ("sequential", "shuffled")]  # those that `order=` takes
TAILS = ["keep", "pad", "drop"]
SPANS = {"past": ("i64", -2, 0), "target": ("f32", 0, 1), "pack": ("pack", -1, 1), "flag": ("flag", -2, 1)}

Batch = dict[str, torch.Tensor]


def ordered(order: Any) -> dict[str, Any]:
    """The argument of a loader or sampler for an order, or for `shuffle` if it is a bool."""
    return {"shuffle" if isinstance(order, bool) else "order": order}


class OwnIds:
    """Ids of the caller's own, others in each epoch."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[int]:
        return iter(order_of("own ids", self.n, epoch=self.epoch))


def shuffle_of(kind: str, size: int, n: int = 0) -> Any:
    """The order of `n` windows in steps of `size` windows on all ranks together."""
    made = {"sequential": False, "shuffled": True, "blocks": ts.Blocks(5), "lanes": ts.Lanes(size)}
    made |= {"own ids": OwnIds(n), "by key": ByKey(keys_of), "backwards": Backwards()}
    return made[kind]


def keys_of(windows: ts.Windows) -> Int64s:
    """A key of each window, made from its values; several windows may have the same."""
    return windows[:]["past"][:, 0].numpy() % 5


def order_of(kind: str, n: int, size: int = 1, epoch: int = 0, seed: int = 0) -> list[int]:
    """The windows of an epoch in the global order."""
    if kind == "sequential":
        return [*range(n)]
    if kind == "lanes":
        return orders.lanes(n, size)
    if kind == "backwards":
        return [*range(n)][::-1]
    if kind == "own ids":
        return orders.shuffled(n, 7, epoch)
    if kind == "by key":
        keys = keys_of(windows_of(n)).tolist()
        ids = sorted(range(n), key=lambda k: (keys[k], k))
        first = first_of(n, seed, epoch)
        return ids[first:] + ids[:first]
    return orders.blocks(n, 5, seed, epoch) if kind == "blocks" else orders.shuffled(n, seed, epoch)


def lengths_of(n: int) -> list[int]:
    """Rows of the entities that hold n windows of 2 + 1 rows, each beginning where the history of the last ended."""
    parts = [n // 3, n - n // 3]
    return [2 * part + 1 for part in parts if part]


@cache
def windows_of(n: int) -> ts.Windows:
    lengths = lengths_of(n)
    return ts.Windows(Table(lengths, [t for rows in lengths for t in range(rows)]).stash(), spans=SPANS, stride=2)


@cache
def anchors_of(n: int) -> list[int]:
    """The row of the anchor of each window."""
    return [start + 2 for start in oracle.starts(oracle.series_of(windows_of(n).stash), 3, 2)]


def loaders_of(
    n: int, ranks: int, batch_size: int, kind: str = "shuffled", tail: Tail = "keep", seed: int = 0
) -> list[ts.Loader]:
    """The loaders of all ranks, every other one with prefetch."""
    return [
        ts.Loader(
            windows_of(n),
            batch_size,
            **ordered(shuffle_of(kind, ranks * batch_size, n)),
            seed=seed,
            tail=tail,
            num_replicas=ranks,
            rank=rank,
            prefetch=3 * ((rank + ranks) % 2),
        )
        for rank in range(ranks)
    ]


def ids_of(sampler: ts.Sampler) -> list[list[int]]:
    """The ids of each step of a rank in the pass that is next, which a copy of the sampler takes."""
    return [*copy.deepcopy(sampler)]


def numbers(n: int, batch: Batch) -> list[int]:
    """Which windows a batch holds, filler included; all its values are those of these windows."""
    anchors, windows = anchors_of(n), windows_of(n)
    number = {anchor - 2: k for k, anchor in enumerate(anchors)}
    ids = [number[value // 16] for value in batch["past"][:, 0].tolist()]
    for name, (column, start, stop) in SPANS.items():
        rows = [oracle.span(windows.stash[column], anchors[k], start, stop, 1) for k in ids]
        assert oracle.same(batch[name], torch.stack(rows))
    return ids


def valid_numbers(n: int, batch: Batch) -> list[int]:
    """Which windows a batch holds, without filler."""
    ids = numbers(n, batch)
    return ids if "valid" not in batch else [k for k, valid in zip(ids, batch["valid"].tolist()) if valid]


def steps_of(loaders: list[ts.Loader]) -> Iterator[list[Batch]]:
    """The batches of all ranks, step by step, over one pass; all ranks end it together."""
    passing = [iter(loader) for loader in loaders]
    while True:
        step = [next(batches, None) for batches in passing]
        given = [batch for batch in step if batch is not None]
        if not given:
            return
        assert len(given) == len(step), "a rank has no batch at a step at which another has one"
        yield given


def taken(n: int, step: list[Batch]) -> list[int]:
    """The windows of a step over all ranks, in the global order."""
    return [k for batch in step for k in valid_numbers(n, batch)]
