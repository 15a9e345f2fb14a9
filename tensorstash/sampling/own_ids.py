"""Ids from the caller in place of an order: `Loader(sampler=)`."""

import operator
import zlib
from collections.abc import Sized
from typing import Any

import numpy as np
import torch

from tensorstash.common.dtypes import Int64s
from tensorstash.native.permutation import Order

_KEPT = 2  # epochs whose ids are kept: the current one, and the one being prefetched


class OwnIds:
    """An order given by the caller: an iterable with a length that yields the window ids of one epoch.

    If it has a method `set_epoch(epoch)`, that is called before each epoch. The ids of an epoch are kept, 8 bytes each.
    The state holds their checksum, because the caller's iterable may yield other ids when the run is resumed.
    """

    def __init__(self, sampler: Any, windows: int) -> None:
        if not isinstance(sampler, Sized) or not hasattr(sampler, "__iter__") or isinstance(sampler, (str, bytes)):
            raise TypeError(f"sampler= is an iterable of window ids with a length; got {sampler!r}.")
        if isinstance(sampler, (np.ndarray, torch.Tensor)) and not sampler.ndim:
            raise TypeError(f"sampler= is a list of ids; got the single {sampler!r}. Write [...] around it.")
        self._sampler = sampler
        self._windows = windows
        self._epochs: dict[int, tuple[Int64s, int]] = {}
        self._expected: tuple[int, int] | None = None  # the epoch of a loaded state, and the checksum of its ids

    def __len__(self) -> int:
        """The number of ids in an epoch."""
        return len(self._sampler)

    def order(self, epoch: int) -> Order:
        """The order of an epoch: positions to ids."""
        if epoch not in self._epochs:
            ids = self._drawn(epoch)
            checksum = zlib.crc32(ids.tobytes())
            if self._expected is not None and self._expected[0] == epoch and self._expected[1] != checksum:
                raise ValueError(
                    f"sampler= gives other ids for epoch {epoch} than it gave when the state was saved, so the "
                    "position in it cannot be found again. Make its ids depend on its set_epoch(epoch) alone, or call "
                    "loader.set_epoch() for another epoch."
                )
            kept = [*self._epochs.items()][1 - _KEPT :]
            self._epochs = dict([*kept, (epoch, (ids, checksum))])
        return self._epochs[epoch][0].__getitem__

    def checksum(self, epoch: int) -> int | None:
        """The checksum of the ids of an epoch; `None` if the epoch has not begun."""
        return self._epochs[epoch][1] if epoch in self._epochs else None

    def expect(self, epoch: int, checksum: int | None) -> None:
        """Require the same ids again for an epoch, because a state from the middle of it was loaded."""
        self._expected = None if checksum is None else (epoch, checksum)
        if self.checksum(epoch) != checksum:
            self._epochs.pop(epoch, None)

    def _drawn(self, epoch: int) -> Int64s:
        if hasattr(self._sampler, "set_epoch"):
            self._sampler.set_epoch(epoch)
        if isinstance(self._sampler, (np.ndarray, torch.Tensor)):
            ids = np.asarray(self._sampler)
            if ids.ndim != 1 or ids.dtype.kind not in "iu":
                raise TypeError(f"Ids are one-dimensional integers; sampler= has {ids.ndim} dimensions of {ids.dtype}.")
            ids = ids.astype(np.int64)
        else:
            try:
                ids = np.fromiter((operator.index(k) for k in self._sampler), np.int64)
            except TypeError as error:
                raise TypeError("sampler= gives one integer at a time, the id of a window; one was not.") from error
        if len(ids) != len(self._sampler):
            raise ValueError(f"sampler= has a length of {len(self._sampler):,} and gave {len(ids):,} ids.")
        outside = (ids < 0) | (ids >= self._windows)
        if outside.any():
            raise IndexError(f"Ids lie in [0, {self._windows}); sampler= gave {ids[outside.argmax()]}.")
        return ids
