"""Two orders that the package does not know, made from what `tensorstash.sampling` offers for orders of one's own.

Of the inside they import the protocol of orders, as a user who writes one does.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

import tensorstash as ts
from tensorstash.sampling.order import Ids, Order, SequenceOrder
from tensorstash.sampling.steps import Layout, Progress, Steps, share
from tests.words import Int64s


class ByKey:
    """Windows by a key of the caller's own, ascending; each epoch begins at another of them."""

    def __init__(self, key: Callable[[ts.Windows], Int64s]) -> None:
        self.key = key

    def bind(self, windows: ts.Windows) -> "KeyOrder":
        return KeyOrder(self.key(windows))


class KeyOrder(SequenceOrder):
    name = "by key"

    def __init__(self, keys: Int64s) -> None:
        self.positions = len(keys)
        self.fingerprint = {"keys": zlib.crc32(keys.tobytes())}
        self._ids = np.argsort(keys, kind="stable")

    def at(self, seed: int, epoch: int) -> Ids:
        return np.roll(self._ids, -first_of(self.positions, seed, epoch)).__getitem__


def first_of(n: int, seed: int, epoch: int) -> int:
    """The place of the first key of an epoch among all keys."""
    return (31 * seed + 7 * epoch) % n


class Backwards:
    """Windows from the last to the first. The progress is not what the sampler would count: it is what is left."""

    def bind(self, windows: ts.Windows) -> "BackwardsOrder":
        return BackwardsOrder(len(windows))


class BackwardsOrder(Order):
    name = "backwards"
    is_seeded = False

    def __init__(self, windows: int) -> None:
        self.positions = windows
        self.fingerprint = {}

    def count(self, seed: int, epoch: int, layout: Layout, since: Progress) -> int:
        return layout.steps_of(self._left(since))

    def steps(self, seed: int, epoch: int, since: Progress, layout: Layout, most: int | None) -> Iterator[Steps]:
        left, wanted = self._left(since), self.count(seed, epoch, layout, since)
        for _ in range(wanted if most is None else min(wanted, most)):
            taken = min(left, layout.size)
            positions, valid = share(np.array([self.positions - left]), taken, layout)
            left -= taken
            yield Steps(self.positions - 1 - positions, positions, valid, epoch, [{"left": left}])

    def after(self, seed: int, epoch: int, steps: int, layout: Layout) -> Progress:
        return {"left": max(0, self.positions - steps * layout.size)} if steps else None

    def dump(self, epoch: int, progress: Progress) -> dict[str, Any]:
        return {"consumed": self.positions - self._left(progress), "left": self._left(progress)}

    def load(self, state: Mapping[str, Any]) -> Progress:
        return {"left": state["left"]} if state["left"] < self.positions else None

    def _left(self, progress: Progress) -> int:
        return self.positions if progress is None else int(progress["left"])
