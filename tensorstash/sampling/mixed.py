"""The order of a mix: draws from its components, each of which runs through epochs of its own."""

from typing import Any

from tensorstash.sampling.components import Components, mix_draws
from tensorstash.sampling.order import Ids, SequenceOrder
from tensorstash.sampling.steps import Progress
from tensorstash.sampling.tree import counts


class MixedOrder(SequenceOrder):
    """The order of a `ts.Mix`: the components permuted in each of their epochs, or sequential."""

    def __init__(self, components: Components, epoch_size: int, *, shuffle: bool) -> None:
        self.name = f"mix, {'shuffled' if shuffle else 'interleaved'}"
        self.positions = epoch_size
        self.block = components.block
        self.is_seeded = shuffle
        self._components = components

    def at(self, seed: int, epoch: int) -> Ids:
        """The ids of an epoch, which number the windows one component after the other."""
        components, begin = self._components, epoch * self.positions
        draws = mix_draws(components, self.is_seeded, seed)
        return lambda positions: components.flat(*draws(positions + begin))

    def stats(self, start: tuple[int, Progress], now: tuple[int, Progress]) -> dict[str, Any]:
        """How many windows of each component all ranks have taken, by name."""
        tree, names = self._components.tree, self._components.names
        before, after = (counts(tree, epoch * self.positions + (progress or 0)) for epoch, progress in (start, now))
        return {"windows": {name: high - low for name, low, high in zip(names, before, after)}}
