"""The orders of `shuffle=`: windows in sequence, or permuted in each epoch."""

from tensorstash.native.permutation import shuffled
from tensorstash.sampling.order import Ids, SequenceOrder


class Sequential(SequenceOrder):
    """Windows in the order of their ids."""

    name = "sequential"
    is_seeded = False

    def __init__(self, windows: int) -> None:
        self.fingerprint = {}
        self.positions = windows

    def at(self, seed: int, epoch: int) -> Ids:
        """The ids of an epoch."""
        return lambda positions: positions


class Shuffled(SequenceOrder):
    """A permutation of all windows, another in each epoch."""

    name = "shuffled"

    def __init__(self, windows: int) -> None:
        self.fingerprint = {}
        self.positions = windows

    def at(self, seed: int, epoch: int) -> Ids:
        """The ids of an epoch."""
        return shuffled(self.positions, seed, epoch)
