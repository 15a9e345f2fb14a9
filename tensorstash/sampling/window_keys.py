"""Window keys: hashes of the positions of windows in a run, which are the only randomness inside a batch.

A position is that of a window in the order of its epoch over all ranks, so a key depends neither on the ranks nor on
the batch size, and a resumed run has the keys that the whole run would have had.
"""

import numpy as np

from tensorstash.common.dtypes import Int64s
from tensorstash.native.permutation import Uint64s
from tensorstash.sampling.hashes import hashes, keys
from tensorstash.sampling.steps import Steps


def window_keys(seed: int, steps: Steps) -> Int64s:
    """The key of each window, `(steps, batch)`; within an epoch no two positions have the same."""
    return _hashes("key", seed, steps, "number 0").view(np.int64)


def draws(seed: int, steps: Steps, number: int, count: int) -> Int64s:
    """The draw `number`, from 0 on, of each window: an integer in `[0, count)`, `(steps, batch)`."""
    return (_hashes("key", seed, steps, f"number {number + 1}") % np.uint64(count)).astype(np.int64)


def variate_keys(seed: int, steps: Steps, pack: str) -> Uint64s:
    """The hash of each window by which columns of a pack are drawn, `(steps, batch)`."""
    return _hashes("variates", seed, steps, f"pack {pack}")


def _hashes(kind: str, seed: int, steps: Steps, what: str) -> Uint64s:
    first, second, *_ = keys(f"tensorstash {kind} 1, seed {seed}, epoch {steps.epoch}, {what}")
    return hashes(steps.positions, first, second)
