"""The order of a mix: draws from its components, each of which runs through epochs of its own."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tensorstash.common.checks import at_least
from tensorstash.sampling.components import Components, mix_draws, reweighted
from tensorstash.sampling.order import Ids, SequenceOrder
from tensorstash.sampling.steps import Progress


class MixedOrder(SequenceOrder):
    """The order of a `ts.Mix`: the components permuted in each of their epochs, or sequential.

    Other weights hold from a position on, before which each component has been drawn from so many times, and goes on
    from there. Until a pass begins, that position is not known: the order keeps the components as they were `before`.
    """

    def __init__(
        self, components: Components, epoch_size: int, *, shuffle: bool, before: Components | None = None
    ) -> None:
        self.name = f"mix, {'shuffled' if shuffle else 'interleaved'}"
        self.positions = epoch_size
        self.block = components.block
        self.is_seeded = shuffle
        self.must_follow = before is not None or bool(components.drawn.any())
        self._components = components
        self._before = before

    def begin(self, seed: int, epoch: int, progress: Progress) -> "MixedOrder":
        """This order, whose weights hold from here on if they are new."""
        if self._before is None:
            return self
        begun = self._with(self._at(epoch, progress))
        begun.must_follow = True
        return begun

    def with_weights(self, weights: Any, windows: Any) -> "MixedOrder":
        """This order with other weights from the next pass on."""
        if not windows.is_weighted:
            raise TypeError(
                "set_weights() needs a ts.Mix with weights=, and this one has none, so an epoch shows every window "
                "once. Make the mix with weights=."
            )
        components = reweighted(self._components, weights, self._components.drawn)
        return self._with(components, before=self._before or self._components)

    def dump(self, epoch: int, progress: Progress) -> dict[str, Any]:
        """The progress, the weights, and how many windows of each component came before these weights held."""
        of = self._at(epoch, progress)
        weights, draws = dict(zip(of.names, of.weights)), dict(zip(of.names, of.drawn.tolist()))
        return super().dump(epoch, progress) | {"weights": weights, "draws": draws}

    def of_state(self, state: Mapping[str, Any], epoch: int, progress: Progress) -> "MixedOrder":
        """The order with the weights and draws of a state."""
        draws, names, position = state["draws"], self._components.names, self._position(epoch, progress)
        if not isinstance(draws, Mapping) or draws.keys() != {*names}:
            raise ValueError(
                f"draws of a state must have a number for each component of the mix, got {draws!r}. Load the state as "
                "state_dict() returned it."
            )
        drawn = [at_least(0, draws[name], f"draws of component {name!r}") for name in names]
        if sum(drawn) > position:
            raise ValueError(
                f"draws of a state must sum to at most its position, {position:,}, got {sum(drawn):,}. Load the state "
                "as state_dict() returned it."
            )
        return self._with(reweighted(self._components, state["weights"], np.array(drawn, np.int64)))

    def _with(self, components: Components, before: Components | None = None) -> "MixedOrder":
        return MixedOrder(components, self.positions, shuffle=self.is_seeded, before=before)

    def _at(self, epoch: int, progress: Progress) -> Components:
        """The components at a position, from which on their weights hold if they are new."""
        if self._before is None:
            return self._components
        return replace(self._components, drawn=self._before.drawn_before(self._position(epoch, progress)))

    def _position(self, epoch: int, progress: Progress) -> int:
        return epoch * self.positions + (progress or 0)

    def at(self, seed: int, epoch: int) -> Ids:
        """The ids of an epoch, which number the windows one component after the other."""
        components, begin = self._components, epoch * self.positions
        draws = mix_draws(components, self.is_seeded, seed)
        return lambda positions: components.flat(*draws(positions + begin))

    def stats(self, start: tuple[int, Progress], now: tuple[int, Progress]) -> dict[str, Any]:
        """How many windows of each component all ranks have taken, by name."""
        before, after = (self._components.drawn_before(self._position(*here)) for here in (start, now))
        return {"windows": dict(zip(self._components.names, (after - before).tolist()))}
