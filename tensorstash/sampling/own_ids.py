"""Ids of the caller's own in the place of an order: `Loader(sampler=)`."""

import operator
import zlib
from collections.abc import Sized
from typing import Any

import numpy as np
import torch

from tensorstash.common.dtypes import Int64s
from tensorstash.native.permutation import Order

_KEPT = 2  # epochs whose ids are kept: the one that the loop is in, and the one that is prefetched


class OwnIds:
    """An order that the caller gives: an iterable with a length, one epoch of window ids at a time.

    Before each epoch its `set_epoch(epoch)` is called, if it has one. The ids of an epoch are kept, 8 bytes each, and
    their checksum stands in the state, because the order of somebody else need not be the same when it is resumed.
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
        """Ids of an epoch."""
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
        """Of the ids of an epoch, if it has begun."""
        return self._epochs[epoch][1] if epoch in self._epochs else None

    def expect(self, epoch: int, checksum: int | None) -> None:
        """A state was loaded from the middle of an epoch: its ids must be the same again."""
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
