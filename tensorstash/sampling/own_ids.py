"""Window ids of the caller's own."""

import operator
import zlib
from collections.abc import Mapping, Sized
from typing import Any, SupportsIndex, TypeVar

import numpy as np
import torch

from tensorstash.common.checks import integer, is_integer, shown
from tensorstash.common.dtypes import Int64s
from tensorstash.common.public import listed
from tensorstash.sampling.order import Ids, SequenceOrder
from tensorstash.sampling.steps import Progress
from tensorstash.windows.ids import ids_between

Kept = TypeVar("Kept")

_KEPT_EPOCHS = 2  # the current epoch, and the one that is being prefetched
_KEPT_CHECKSUMS = 1 << 13  # a prefetching thread is at most 4,096 steps ahead of the loop, and an epoch has a step


class OwnIds(SequenceOrder):
    """The order of `order=ids`, an iterable with a length that yields the window ids of one epoch.

    Its method `set_epoch(epoch)`, if it has one, is called before each epoch. The ids of an epoch are kept, 8 bytes
    each. The state holds their checksum, because the iterable may yield other ids when the run is resumed.
    """

    name = "own ids"
    is_seeded = False

    def __init__(self, ids: Any, windows: int) -> None:
        have_order = isinstance(ids, Sized) and hasattr(ids, "__iter__") and getattr(ids, "ndim", 1) > 0
        if not have_order or isinstance(ids, (str, bytes, set, frozenset)):
            raise TypeError(
                f"order must be one of {listed('order', '(...)')}, or window ids with a length and an order, such as a "
                f"list, got {shown(ids)}."
            )
        if not len(ids):
            raise ValueError("order must give at least one id, got a length of 0.")
        self.positions = len(ids)
        self._given = ids
        self._windows = windows
        self._epochs: dict[int, Int64s] = {}
        self._checksums: dict[int, int] = {}  # of the ids of each epoch
        self._expected: tuple[int, int] | None = None  # the epoch of a loaded state, and the checksum of its ids

    def begin(self, seed: int, epoch: int, progress: Progress) -> "OwnIds":
        """Ask for the ids of the epoch."""
        self.at(seed, epoch)
        return self

    def at(self, seed: int, epoch: int) -> Ids:
        """The ids of an epoch."""
        if epoch not in self._epochs:
            ids = self._ids_of(epoch)
            checksum = zlib.crc32(ids.tobytes())
            if self._expected is not None and self._expected[0] == epoch and self._expected[1] != checksum:
                raise ValueError(
                    f"order= gives other ids for epoch {epoch} than when the state was saved, so the position in it "
                    "cannot be found. Make its ids depend on its set_epoch(epoch) alone, or call loader.set_epoch() "
                    "for another epoch."
                )
            self._checksums = _newest(self._checksums, _KEPT_CHECKSUMS) | {epoch: checksum}
            self._epochs = _newest(self._epochs, _KEPT_EPOCHS) | {epoch: ids}
        return self._epochs[epoch].__getitem__

    def dump(self, epoch: int, progress: Progress) -> dict[str, Any]:
        """The progress, and the checksum of the ids of an epoch that has begun."""
        return super().dump(epoch, progress) | {"ids": self._checksums.get(epoch) if progress else None}

    def load(self, state: Mapping[str, Any]) -> Progress:
        """The progress in a state, whose epoch must have the same ids again."""
        progress, epoch, checksum = super().load(state), state["epoch"], state["ids"]
        checksum = None if checksum is None else integer(checksum, "ids of a state")
        self._expected = None if checksum is None else (epoch, checksum)
        if self._checksums.get(epoch) != checksum:
            self._epochs.pop(epoch, None)
        return progress

    def _ids_of(self, epoch: int) -> Int64s:
        if hasattr(self._given, "set_epoch"):
            self._given.set_epoch(epoch)
        if isinstance(self._given, (np.ndarray, torch.Tensor)):
            return ids_between(0, self._windows, self._given, " from order=")
        ids = np.fromiter((_id(k, self._windows) for k in self._given), np.int64)
        if len(ids) != len(self._given):
            raise ValueError(f"order must give as many ids as its length, {len(self._given):,}, got {len(ids):,}.")
        return ids


def _newest(epochs: dict[int, Kept], most: int) -> dict[int, Kept]:
    """The last epochs that were added, with room for one more."""
    return dict([*epochs.items()][1 - most :]) if len(epochs) >= most else epochs


def _id(given: SupportsIndex, windows: int) -> int:
    if type(given) is not int and not is_integer(given):
        raise TypeError(f"order must give one integer at a time, the id of a window, got {shown(given)}.")
    number = operator.index(given)
    if not 0 <= number < windows:
        raise IndexError(f"Ids must lie in [0, {windows}), got {number} from order=.")
    return number
