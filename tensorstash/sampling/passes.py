"""Passes: the position of a run among its epochs, where its next pass begins, and the steps of that pass."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tensorstash.sampling.by_time import consumed_after, count_steps, steps_by_time
from tensorstash.sampling.ordering import Ordering
from tensorstash.sampling.steps import Consumed, Epoch, Layout, Steps, steps_after


class Position(NamedTuple):
    """The position of a run. Without `steps=`, a pass is an epoch and `number` is the epoch."""

    epoch: int = 0
    consumed: Consumed = 0  # by all ranks together
    number: int = 0  # of the pass
    taken: int = 0  # steps of the pass


Fields = tuple[int, Consumed, int, int]  # of a position: a plain tuple is made in a third of the time


@dataclass(frozen=True, slots=True)
class Schedule:
    """The steps that one rank takes in its passes: pure functions of these fields, so any thread may call them."""

    ordering: Ordering
    seed: int
    layout: Layout
    steps: int | None  # per pass; None: a pass is an epoch

    def next(self, here: Position, begun: bool, asked: int | None) -> Position:
        """Where the next pass begins: after `here` if a pass has `begun` there, or where `set_epoch` asked for it."""
        following = self.after(here) if begun or self._over(here) else here
        if asked is None or asked == following.number:
            return following
        if asked == here.number and not begun:
            return here
        return self._begin_of(asked)

    def after(self, here: Position) -> Position:
        """The beginning of the pass after the one at `here`."""
        if self.steps is None:
            return Position(here.epoch + 1, 0, here.epoch + 1)
        return here._replace(number=here.number + 1, taken=0)

    def _over(self, here: Position) -> bool:
        """Whether the pass has no step left, as in a state that was saved at its last batch."""
        if self.steps is not None:
            return here.taken >= self.steps
        return bool(here.consumed) and not self._left(here)

    def _begin_of(self, number: int) -> Position:
        """Where pass `number` begins if all earlier passes were complete and had the present layout."""
        if self.steps is None:
            return Position(number, 0, number)
        ordering = self.ordering
        epoch, step = divmod(number * self.steps, max(1, self.steps_of_epoch()))
        if ordering.sharding is not None:
            return Position(epoch, (ordering.sharding.leg(self.layout, step),) if step else 0, number)
        if ordering.sections is None:
            return Position(epoch, min(step * self.layout.size, ordering.n), number)
        order = ordering.at(self.seed, epoch)
        return Position(epoch, consumed_after(ordering.sections, order, step, self.layout), number)

    def steps_of_epoch(self) -> int:
        """Steps of a whole epoch."""
        if self.ordering.sharding is not None:
            return self.ordering.sharding.steps_left(0, self.layout)
        if self.ordering.sections is None:
            return self.layout.steps_of(self.ordering.n)
        return count_steps(self.ordering.sections, self.layout.size, self.layout.tail == "drop")

    def _left(self, here: Position) -> bool:
        """Whether the epoch has another step after `here`."""
        if self.ordering.sharding is not None:
            return self.ordering.sharding.steps_left(here.consumed, self.layout) > 0
        if self.ordering.sections is None:
            assert isinstance(here.consumed, int)
            return self.layout.steps_of(self.ordering.n - here.consumed) > 0
        return next(self._steps_after(here.epoch, here.consumed, 1), None) is not None

    def _steps_after(self, epoch: int, begin: Consumed, most: int | None) -> Iterator[Steps]:
        ordering = self.ordering
        if ordering.sharding is not None:
            return ordering.sharding.steps_after(self.seed, epoch, begin, self.layout, most)
        assert isinstance(begin, int)
        whole = Epoch(epoch, ordering.n, ordering.at(self.seed, epoch))
        if ordering.sections is None:
            return steps_after(whole, begin, self.layout, most, ordering.block)
        return steps_by_time(ordering.sections, whole, begin, self.layout, most)

    def groups(self, start: Position) -> Iterator[Steps]:
        """The steps of the pass from `start` on, in groups that are computed together; a group lies in one epoch."""
        epoch, begin = start.epoch, start.consumed
        left = None if self.steps is None else max(0, self.steps - start.taken)
        while left != 0:
            if not begin and not self.steps_of_epoch():
                self._refuse_empty()
            for group in self._steps_after(epoch, begin, left):
                left = None if left is None else left - len(group.ids)
                yield group
            if left is None:
                return
            epoch, begin = epoch + 1, 0

    def _refuse_empty(self) -> None:
        layout, count = self.layout, self.ordering.n
        if layout.tail == "drop":
            raise ValueError(
                f'tail="drop" leaves nothing: {count:,} windows make no step of {layout.ranks} x {layout.batch_size}. '
                'Use tail="keep" or a smaller batch_size.'
            )
        if self.steps is not None:
            raise ValueError(f"steps={self.steps} needs at least one window to draw from; there are {count}.")
