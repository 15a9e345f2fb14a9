"""The orders of `shuffle=`: windows in sequence, or permuted in each epoch."""

from tensorstash.native.permutation import shuffled
from tensorstash.sampling.order import Ids, SequenceOrder


class Ordinary(SequenceOrder):
    """Windows in the order of their ids, or shuffled: a permutation of all windows, another in each epoch."""

    def __init__(self, windows: int, *, shuffle: bool) -> None:
        self.name = "shuffled" if shuffle else "sequential"
        self.positions = windows
        self.is_seeded = shuffle

    def at(self, seed: int, epoch: int) -> Ids:
        """The ids of an epoch."""
        return shuffled(self.positions, seed, epoch) if self.is_seeded else lambda positions: positions
