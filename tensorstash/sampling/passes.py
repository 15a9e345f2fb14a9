"""Passes: the position of a run among its epochs, where its next pass begins, and the steps of that pass."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tensorstash.sampling.order import Order
from tensorstash.sampling.steps import Layout, Progress, Steps


class Position(NamedTuple):
    """The position of a run. Without `steps=`, a pass is an epoch and `number` is the epoch."""

    epoch: int = 0
    progress: Progress = None  # of the epoch, over all ranks together
    number: int = 0  # the number of the pass
    taken: int = 0  # steps taken in the pass


@dataclass(slots=True)
class Pass:
    """A pass of one loop, which writes here what it received; a single write, because a signal may come at any time."""

    start: Position
    order: Order
    # of the last step: its epoch, the progress after each step of its group, its index there, and the steps received
    last: tuple[int, Sequence[Progress], int, int] | None = None

    @property
    def here(self) -> Position:
        """After the last step."""
        if self.last is None:
            return self.start
        epoch, progress, index, received = self.last
        return Position(epoch, progress[index], self.start.number, self.start.taken + received)


@dataclass(frozen=True, slots=True)
class Schedule:
    """The steps that one rank takes in its passes: pure functions of these fields, so any thread may call them."""

    order: Order
    seed: int
    layout: Layout
    steps: int | None  # steps of a pass; `None`: a pass is an epoch

    def next(self, here: Position, begun: bool, asked: int | None) -> Position:
        """Where the next pass begins: after `here` if a pass has `begun` there, or where `set_epoch` asked for it."""
        following = self.after(here) if begun or self._is_over(here) else here
        if asked is None or asked == following.number:
            return following
        if asked == here.number and not begun:
            return here
        return self._start_of(asked)

    def after(self, here: Position) -> Position:
        """The beginning of the pass after the one at `here`."""
        if self.steps is None:
            return Position(here.epoch + 1, None, here.epoch + 1)
        return here._replace(number=here.number + 1, taken=0)

    def _is_over(self, here: Position) -> bool:
        """Whether the pass has no step left, as in a state that was saved at its last batch."""
        if self.steps is not None:
            return here.taken >= self.steps
        return here.progress is not None and not self.order.count(self.seed, here.epoch, self.layout, here.progress)

    def _start_of(self, number: int) -> Position:
        """Where pass `number` begins if all earlier passes were complete and had the present layout."""
        if self.steps is None:
            return Position(number, None, number)
        epoch, step = divmod(number * self.steps, max(1, self.steps_of_epoch()))
        return Position(epoch, self.order.after(self.seed, epoch, step, self.layout), number)

    def steps_of_epoch(self) -> int:
        """Steps of a whole epoch."""
        return self.order.count(self.seed, 0, self.layout, None)

    def groups(self, start: Position) -> Iterator[Steps]:
        """The steps of the pass from `start` on, in groups that are computed together; a group lies in one epoch."""
        epoch, progress = start.epoch, start.progress
        left = None if self.steps is None else max(0, self.steps - start.taken)
        while left != 0:
            if progress is None and not self.steps_of_epoch():
                self._refuse_empty()
            for group in self.order.steps(self.seed, epoch, progress, self.layout, left):
                left = None if left is None else left - len(group.ids)
                yield group
            if left is None:
                return
            epoch, progress = epoch + 1, None

    def _refuse_empty(self) -> None:
        layout, count = self.layout, self.order.positions
        if layout.tail == "drop":
            raise ValueError(
                f'tail="drop" leaves nothing: {count:,} windows make no step of {layout.ranks} x {layout.batch_size}. '
                'Use tail="keep" or a smaller batch_size.'
            )
        if self.steps is not None:
            raise ValueError(f"steps={self.steps} needs at least one window to draw from; there are {count}.")
