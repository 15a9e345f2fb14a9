"""Which windows a rank takes at each step of an epoch, and where an epoch stands: integers only."""

import operator
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch.distributed
from numpy.typing import NDArray

from tensorstash.common.checks import at_least
from tensorstash.common.dtypes import Int64s
from tensorstash.native.permutation import BLOCK
from tensorstash.sampling.order import Lanes, Shuffle, check_shuffle, name_of, order

VERSION = 1
_TAILS = ("keep", "pad", "drop")


class Steps(NamedTuple):
    """What one rank takes at a few steps of one size; they are computed together, because numpy costs per call."""

    ids: Int64s  # (steps, batch)
    valid: int  # in each step, the first so many ids are windows of the epoch, the others filler
    consumed: range  # windows of the order that are used up when all ranks have had each step


class Sampler:
    """The ids of each step: an epoch is an order of `0..n-1`, cut into steps of `num_replicas * batch_size`.

    Every id comes exactly once per epoch over all ranks (but for `tail="drop"`), and all have equally many steps. The
    order is a function of `(seed, epoch)` alone, so that a state is a few integers, the same on every rank, and valid
    for another number of ranks and another batch size. A finished pass moves on to the next epoch.

    Args:
        n: the number of windows.
        batch_size: ids per step and rank.
        shuffle: `True` for a new permutation in each epoch, `ts.Blocks(size)` for permuted blocks of consecutive
            windows, `ts.Lanes(count)` for pieces of the sequential order side by side, `False` for that order itself.
        seed: of the permutations.
        num_replicas: the number of ranks. Without it and `rank`: of the default process group, else of the environment
            (`WORLD_SIZE`, `RANK`), else 1; looked up when an iteration begins.
        rank: takes part `rank` of every step.
        tail: `"keep"` shares the last step out, parts differ by at most one; a rank without a part gets one filler id.
            `"pad"` fills the last part up to `batch_size`. Filler repeats the step's first id; `Loader` marks it in
            `valid`. `"drop"` leaves an incomplete last step out.

    Example:
        >>> import tensorstash as ts
        >>> [ids.tolist() for ids in ts.Sampler(5, 2, num_replicas=2, rank=1)]
        [[2, 3], [4]]
    """

    def __init__(
        self,
        n: int,
        batch_size: int,
        *,
        shuffle: Shuffle = False,
        seed: int = 0,
        num_replicas: int | None = None,
        rank: int | None = None,
        tail: str = "keep",
    ) -> None:
        if n < 0 or batch_size < 1:
            raise ValueError(f"n is at least 0 and batch_size at least 1; got n={n}, batch_size={batch_size}.")
        if tail not in _TAILS:
            raise ValueError(f'tail= is "keep", "pad" or "drop"; got {tail!r}.')
        if (num_replicas is None) != (rank is None):
            raise ValueError(f"num_replicas= and rank= come together; got {num_replicas} and {rank}.")
        if num_replicas is not None and rank is not None and not 0 <= rank < num_replicas:
            raise ValueError(f"rank= lies in [0, num_replicas); got rank={rank}, num_replicas={num_replicas}.")
        check_shuffle(shuffle)
        self.n = operator.index(n)
        self.batch_size = operator.index(batch_size)
        self.shuffle = shuffle
        self.seed = operator.index(seed)
        self.tail = tail
        self.epoch = 0
        self.fingerprint: Mapping[str, Any] = {"windows": n}
        self._given = None if num_replicas is None or rank is None else (num_replicas, rank)
        self._consumed = 0
        self._resume = False  # whether the next pass begins at `_consumed` instead of 0
        self._epoch_asked = False  # whether that epoch was asked for after the state was loaded

    @property
    def ranks(self) -> tuple[int, int, str]:
        """`(num_replicas, rank, where they come from)` as they are now."""
        if self._given is not None:
            return (*self._given, "arguments")
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_world_size(), torch.distributed.get_rank(), "process group"
        if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
            return int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"]), "environment"
        return 1, 0, "default"

    def __len__(self) -> int:
        """Steps of a whole epoch, the same on every rank."""
        size = self.ranks[0] * self.batch_size
        return self.n // size if self.tail == "drop" else -(-self.n // size)

    def __iter__(self) -> Iterator[Int64s]:
        for steps in self.steps(self.begin()):
            for ids, consumed in zip(steps.ids, steps.consumed):
                self.hand_out(consumed)
                yield ids
        self.finish()

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass; the current one keeps a loaded position."""
        if epoch == self.epoch:
            self._epoch_asked = True
        else:
            self.epoch, self._consumed, self._resume = operator.index(epoch), 0, False

    def state_dict(self) -> dict[str, Any]:
        """Where the epoch stands: `consumed` windows of the global order were handed out, on all ranks together."""
        return {
            "version": VERSION,
            "epoch": self.epoch,
            "consumed": self._consumed,
            "seed": self.seed,
            "order": name_of(self.shuffle),
            "fingerprint": dict(self.fingerprint),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next pass go on where the state stands; a state of other windows is a `ValueError`."""
        own = self.state_dict()
        if not isinstance(state, Mapping):
            raise TypeError(f"A state is what state_dict() gave; got a {type(state).__name__}.")
        if missing := own.keys() - state.keys():
            raise ValueError(f"A state has {', '.join(own)}; this one lacks {', '.join(sorted(missing))}.")
        pairs = {name: (state[name], own[name]) for name in ("version", "order")}
        theirs, ours = state["fingerprint"], own["fingerprint"]
        # a sampler alone knows only the number of windows
        pairs |= {name: (theirs[name], ours[name]) for name in ours if name in theirs}
        lines = [f"{name}: {one!r} in the state, {two!r} here" for name, (one, two) in pairs.items() if one != two]
        if lines:
            raise ValueError(
                f"A state continues the same windows in the same order; these differ: {'; '.join(lines)}. "
                "Build the windows and the loader as they were built when the state was saved."
            )
        epoch, consumed = at_least(0, state["epoch"], "epoch"), at_least(0, state["consumed"], "consumed")
        if consumed > self.n:
            raise ValueError(f"consumed= counts windows of one epoch, {self.n:,} here; the state has {consumed:,}.")
        self.epoch, self._consumed, self.seed = epoch, consumed, operator.index(state["seed"])
        self._resume, self._epoch_asked = True, False

    # A pass, in its parts, for iterators that run ahead of what they hand out

    def begin(self) -> int:
        """Where the pass that begins now starts in the order."""
        # the state was saved while the last batch of an epoch was in hand: there is nothing left of that epoch
        step = self.ranks[0] * self.batch_size if self.tail == "drop" else 1
        if self._resume and self.n - self._consumed < step and not self._epoch_asked:
            self.finish()
        if not self._resume:
            self._consumed = 0
        self._resume = False
        return self._consumed

    def hand_out(self, consumed: int) -> None:
        """A step that uses up so many windows has been given to the training loop."""
        self._consumed = consumed

    def finish(self) -> None:
        """The pass is over."""
        self.epoch, self._consumed, self._resume = self.epoch + 1, 0, False

    def steps(self, begin: int) -> Iterator[Steps]:
        """This rank's steps over what is left of the order from position `begin` on; changes nothing."""
        replicas, rank, _ = self.ranks
        at = order(self.shuffle, self.n, self.seed, self.epoch)
        size, batch = replicas * self.batch_size, self.batch_size
        if isinstance(self.shuffle, Lanes) and self.shuffle.count != size:
            raise ValueError(
                f"There is one lane for each row of the batches of all ranks; got {self.shuffle.count} lanes for "
                f"{replicas} x {self.batch_size} rows. Use ts.Lanes({size})."
            )
        whole, left = divmod(self.n - begin, size)
        if not whole and self.tail == "drop" and begin == 0:
            raise ValueError(
                f'tail="drop" leaves nothing: {self.n:,} windows make no step of {replicas} x {batch}. Use tail="keep" '
                "or a smaller batch_size."
            )
        part = np.arange(rank * batch, (rank + 1) * batch if whole else rank * batch, dtype=np.int64)
        together = max(1, BLOCK // batch)
        for first in range(0, whole, together):
            starts = range(begin + first * size, begin + min(first + together, whole) * size, size)
            ids = at(np.add.outer(np.array(starts, np.int64), part).reshape(-1))
            yield Steps(ids.reshape(-1, batch), batch, range(starts.start + size, starts.stop + size, size))
        if left and self.tail != "drop":
            positions, valid = self._last_part(self.n - left, replicas, rank)
            yield Steps(at(positions)[None], valid, range(self.n, self.n + 1))

    def _last_part(self, start: int, replicas: int, rank: int) -> tuple[NDArray[np.int64], int]:
        """This rank's positions of a last, incomplete step from position `start` on, and how many are no filler."""
        share, more = divmod(self.n - start, replicas)
        mine = share + (rank < more)
        first = start + rank * share + min(rank, more)
        filler = self.batch_size - mine if self.tail == "pad" else int(mine == 0)
        return np.concatenate([np.arange(first, first + mine), np.full(filler, start)]).astype(np.int64), mine

    @property
    def masked(self) -> bool:
        """Whether batches may hold filler, and so carry `valid`."""
        return self.tail == "pad" or (self.tail == "keep" and self.ranks[0] > 1)

    def __repr__(self) -> str:
        replicas, rank, source = self.ranks
        shuffle = f"{name_of(self.shuffle)} with seed {self.seed}" if self.shuffle else "sequential"
        return (
            f"Sampler: {self.n:,} windows {shuffle}, {len(self):,} steps of {self.batch_size} x {replicas} ranks, this "
            f"is rank {rank} (from {source}), tail {self.tail!r}, epoch {self.epoch}, {self._consumed:,} consumed"
        )
