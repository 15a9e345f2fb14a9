"""What an order is: the windows of every epoch in steps, and what a state tells of an epoch's progress."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorstash.common.checks import at_least
from tensorstash.common.dtypes import Int64s
from tensorstash.native.permutation import BLOCK
from tensorstash.sampling.steps import Layout, Progress, Steps, Tail, share
from tensorstash.windows.chain import Chain
from tensorstash.windows.windows import Windows

Ids = Callable[[Int64s], Int64s]  # positions of an epoch to ids, both `(k,)`


class Order(ABC):
    """Which windows come at each step of an epoch, over all ranks.

    A `Sampler` takes the steps of an order one after the other, whatever order it is. How much of an epoch is done is
    the order's own affair: its `Progress` is handed out with each step, and comes back as it was. `None` is the
    beginning of an epoch.

    All methods but `begin` and `load` are pure functions of their arguments, so that any thread may call them. Ranks
    differ only in their parts of the steps. The members from `fingerprint` on have defaults, which subclasses override.
    An order that changes during a run is another object from then on: a pass goes on with the one that it began with.
    """

    name: str
    """The order in a state and in `repr(sampler)`."""

    positions: int
    """The number of windows in an epoch."""

    @abstractmethod
    def count(self, seed: int, epoch: int, layout: Layout, since: Progress) -> int:
        """The number of steps left in an epoch; from the beginning of an epoch on, it is the same in all epochs."""

    @abstractmethod
    def steps(self, seed: int, epoch: int, since: Progress, layout: Layout, most: int | None) -> Iterator[Steps]:
        """The rank's part of the steps left in an epoch, at most `most`, in groups that are computed together."""

    @abstractmethod
    def after(self, seed: int, epoch: int, steps: int, layout: Layout) -> Progress:
        """The progress of an epoch after its first `steps` steps in this layout."""

    def dump(self, epoch: int, progress: Progress) -> dict[str, Any]:
        """The progress of an epoch as JSON values of a state, at least `consumed`, the windows that ranks have used."""
        return {"consumed": progress or 0}

    def load(self, state: Mapping[str, Any]) -> Progress:
        """The progress in a state; it is checked. Other fields of the state have been compared."""
        consumed = at_least(0, state["consumed"], "consumed")
        if consumed > self.positions:
            raise ValueError(
                f"consumed must be at most the windows of one epoch, {self.positions:,}, got {consumed:,}."
            )
        return consumed or None

    fingerprint: Mapping[str, Any] = MappingProxyType({})
    """What a state must have in common with this order besides its name, as JSON values."""

    is_seeded: bool = True
    """Whether `repr(sampler)` tells the seed."""

    has_filler: bool = False
    """Whether any batch may hold filler, and so all carry `valid`, whatever the layout."""

    largest_batch: int | None = None
    """The most windows of one rank in a step, if steps without a batch size are defined; batches then vary in size."""

    must_follow: bool = False
    """Whether a pass begins only where the last one ended, because the order has changed during the run."""

    def check_tail(self, tail: Tail, *, varies: bool) -> None:  # noqa: B027  any tail, by default
        """Raise `ValueError` if the order has no such tail. `varies`: there is no batch size."""

    def check_layout(self, layout: Layout) -> None:  # noqa: B027  any layout, by default
        """Raise `ValueError` if steps cannot be divided like this."""

    def begin(self, seed: int, epoch: int, progress: Progress) -> "Order":
        """The order from the pass on that begins here; what must run in the thread of the loop, runs in this call."""
        return self

    def of_state(self, state: Mapping[str, Any], epoch: int, progress: Progress) -> "Order":
        """The order as it was when a state was saved, whose epoch and progress are checked."""
        return self

    def entries(self, steps: Steps, layout: Layout, chain: Chain, anchors: Int64s) -> dict[str, NDArray[Any]]:
        """Further entries of the batches, each `(steps, batch)`; `anchors` are those of `steps.ids`, in slots."""
        return {}

    def with_weights(self, weights: Any, windows: Any) -> "Order":
        """This order with other weights, for `Loader.set_weights`."""
        raise TypeError(
            "set_weights() needs order=ts.Weighted(...) or a ts.Mix with weights=, and the order of this loader is "
            f"{self.name!r}. Make the loader with one of them."
        )

    def stats(self, start: tuple[int, Progress], now: tuple[int, Progress]) -> dict[str, Any]:
        """Further entries of `loader.stats()` for a pass: the epochs and progresses of its beginning and of now."""
        return {}


class SequenceOrder(Order):
    """An order whose epochs are sequences of ids, cut into steps of equal size; their progress is a position.

    A subclass sets `name` and `positions`, and defines `at`. What a `Sampler` or a `Loader` takes as
    `order=` is whatever has a method `bind(windows)` that returns a new one for each loader.

    Example:
        >>> import tensorstash as ts
        >>> from tensorstash.sampling.order import SequenceOrder
        >>> class RotatedOrder(SequenceOrder):
        ...     name = "rotated"
        ...     def __init__(self, positions):
        ...         self.positions = positions
        ...     def at(self, seed, epoch):
        ...         return lambda positions: (positions + 2 * epoch) % self.positions
        >>> class Rotated:  # what users write
        ...     def bind(self, windows):
        ...         return RotatedOrder(len(windows))
        >>> sampler = ts.Sampler(5, 3, order=Rotated())
        >>> [list(sampler) for epoch in range(2)]
        [[[0, 1, 2], [3, 4]], [[2, 3, 4], [0, 1]]]
    """

    block: int = BLOCK  # positions that are best evaluated together

    @abstractmethod
    def at(self, seed: int, epoch: int) -> Ids:
        """The ids of an epoch, as a function of positions in `[0, self.positions)`."""

    def count(self, seed: int, epoch: int, layout: Layout, since: Progress) -> int:
        """The number of steps left in an epoch."""
        return layout.steps_of(self.positions - (since or 0))

    def steps(self, seed: int, epoch: int, since: Progress, layout: Layout, most: int | None) -> Iterator[Steps]:
        """The rank's part of the steps left in an epoch, in groups of about `block` ids."""
        at, begin, count, size = self.at(seed, epoch), since or 0, self.positions, layout.size
        whole, left = divmod(count - begin, size)
        wanted = whole if most is None else min(whole, most)
        per_group = max(1, self.block // layout.batch_size)
        for low in range(0, wanted, per_group):
            starts = range(begin + low * size, begin + min(low + per_group, wanted) * size, size)
            positions, valid = share(np.array(starts, np.int64), size, layout)
            ids = at(positions.reshape(-1)).reshape(positions.shape)
            yield Steps(ids, positions, valid, epoch, range(starts.start + size, starts.stop + size, size))
        if left and layout.tail != "drop" and (most is None or most > whole):
            positions, valid = share(np.array([count - left], np.int64), left, layout)
            yield Steps(at(positions[0])[None], positions, valid, epoch, range(count, count + 1))

    def after(self, seed: int, epoch: int, steps: int, layout: Layout) -> Progress:
        """The progress of an epoch after its first `steps` steps in this layout."""
        return min(steps * layout.size, self.positions) or None


@dataclass(frozen=True, slots=True)
class Count:
    """Windows of which only the number is known, as a sampler alone knows them."""

    windows: int

    def __len__(self) -> int:
        return self.windows

    def fingerprint(self) -> dict[str, Any]:
        """What a state says of them."""
        return {"windows": self.windows}

    def lacking(self, order: object) -> ValueError:
        """The error for an order that needs the windows themselves."""
        return ValueError(
            f"A sampler alone knows the number of windows, but not their times and entities, which {order!r} needs. "
            "Give it the windows in place of their number, ts.Sampler(windows, ...)."
        )


def ids_by_entity(windows: Windows) -> Int64s | None:
    """The ids of windows at given points by entity, of one entity ascending; other ids are in this order."""
    points = windows.placement.points
    return None if points is None else np.argsort(points.entity, kind="stable")
