"""Passes: where a run stands among its epochs, where its next pass begins, and the steps of that pass."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tensorstash.sampling.order import Shuffle, order
from tensorstash.sampling.steps import Epoch, Layout, Steps, cut


class Position(NamedTuple):
    """Where a run stands. Without `steps=`, a pass is an epoch and `number` is the epoch."""

    epoch: int = 0
    consumed: int = 0  # windows of the epoch's order that all ranks together have used
    number: int = 0  # of the pass
    taken: int = 0  # steps of the pass


@dataclass(frozen=True, slots=True)
class Plan:
    """What one rank takes in its passes: a pure function of these fields, so that any thread may compute it."""

    n: int
    shuffle: Shuffle
    seed: int
    layout: Layout
    steps: int | None  # of a pass; None for those of an epoch

    def next(self, here: Position, begun: bool, asked: int | None) -> Position:
        """Where the next pass begins.

        Args:
            here: where the last pass stands, or where a loaded state stands.
            begun: whether a pass has begun at `here`, so that the next one is another pass.
            asked: the pass that `set_epoch` asked for, if any.
        """
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
        """Whether a state was saved while the last batch of a pass was in hand: nothing of that pass is left."""
        if self.steps is not None:
            return here.taken >= self.steps
        return here.consumed > 0 and not self.layout.steps_of(self.n - here.consumed)

    def _begin_of(self, number: int) -> Position:
        """Where pass `number` begins if all passes before it were whole and had the present layout."""
        if self.steps is None:
            return Position(number, 0, number)
        count = self.n
        epoch, step = divmod(number * self.steps, max(1, self.layout.steps_of(count)))
        return Position(epoch, min(step * self.layout.size, count), number)

    def groups(self, start: Position) -> Iterator[Steps]:
        """The steps of the pass from `start` on, in groups that were computed together; a group lies in one epoch."""
        layout, epoch, begin = self.layout, start.epoch, start.consumed
        left = None if self.steps is None else max(0, self.steps - start.taken)
        while left != 0:
            count = self.n
            if not begin and not layout.steps_of(count):
                self._refuse_empty(count)
            at = order(self.shuffle, self.n, self.seed, epoch)
            for group in cut(Epoch(epoch, count, at), begin, layout, left):
                left = None if left is None else left - len(group.ids)
                yield group
            if left is None:
                return
            epoch, begin = epoch + 1, 0

    def _refuse_empty(self, count: int) -> None:
        layout = self.layout
        if layout.tail == "drop":
            raise ValueError(
                f'tail="drop" leaves nothing: {count:,} windows make no step of {layout.ranks} x {layout.batch_size}. '
                'Use tail="keep" or a smaller batch_size.'
            )
        if self.steps is not None:
            raise ValueError(f"steps={self.steps} needs at least one window to draw from; there are {count}.")
