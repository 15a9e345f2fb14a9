"""The `Sampler`: the windows of a rank at each step, pass after pass, and their state."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, get_args

from tensorstash.common.checks import MOST_COUNT, at_least, integer, is_integer, one_of, shown
from tensorstash.common.keywords import suggests_keywords
from tensorstash.common.public import members
from tensorstash.common.text import type_text
from tensorstash.sampling.bind import Bindable, Dataset, bound
from tensorstash.sampling.differences import check_alike
from tensorstash.sampling.order import Count
from tensorstash.sampling.passes import Pass, Position, Schedule
from tensorstash.sampling.ranks import checked_ranks, present_ranks, warn_of_shared_parts
from tensorstash.sampling.several import Several
from tensorstash.sampling.steps import Layout, Tail
from tensorstash.windows.windows import Windows

VERSION = 1
_MOST_IDS = 1 << 31  # of a step


class _Run(NamedTuple):
    """Where the run of a sampler is."""

    next: Position = Position()  # where the next pass begins, if none has begun
    begun: Pass | None = None  # the one that this sampler has begun
    asked: int | None = None  # the pass of the last set_epoch()

    @property
    def here(self) -> Position:
        """After the last step, or where the next pass begins."""
        return self.next if self.begun is None else self.begun.here


@suggests_keywords
class Sampler:
    """The ids of each step: an epoch is an order of `0..n-1`, cut into steps of `num_replicas * batch_size`.

    Over all ranks, each id comes exactly once per epoch, apart from an incomplete last step: `tail` says whether it
    repeats ids as filler, or leaves ids out. All ranks have equally many steps. The order is a function of `(seed,
    epoch)` alone, on every platform and in every release. So the state is a few integers that are the same on every
    rank, and stays valid for another number of ranks and another batch size.

    One `for` loop is a pass over lists of ids. It begins with its first step. Without `steps=` a pass is an epoch.
    Breaking out ends the pass, and the next one is the next epoch.

    Args:
        n: the number of windows; or the windows or the mix, if the order needs more than their number.
        batch_size: ids per step and rank, fewer than 2**31. `None` is for `global_batch_size=`, or for
            `order=ts.ByTime()` alone: whole cross-sections.
        shuffle: `True` for a new permutation in each epoch, `False` for the sequential order.
        order: another order, instead of `shuffle` (`None`: that one): one of those in `docs/guide/orders.md`, or your
            ids: an iterable with a length, such as a list, an array or a `torch.utils.data.Sampler`, that gives the
            window ids of an epoch one by one, the same on every rank. Its `set_epoch(epoch)` is called before each
            epoch, if it has one. A state holds the number and checksum of your ids, but not the state of their
            iterable: the run can be resumed if the iterable yields the same ids again for the same epoch; otherwise it
            is a `ValueError`. Or an order of your own: whatever has a method `bind(windows)` that returns a
            `tensorstash.sampling.order.Order`.
        seed: the seed of the permutations, any integer, by default 0.
        num_replicas: the number of ranks. By default it is taken from the default process group, else from the
            environment (`WORLD_SIZE`, `RANK`), else it is 1; it is looked up when a pass begins. Ranks that share a
            part of the model get the same windows: give the number of data ranks, `mesh["dp"].size()`. What divides
            batches among ranks by itself, as `accelerator.prepare` does, needs `num_replicas=1, rank=0`.
        rank: the rank of this process, which takes part `rank` of every step: `mesh["dp"].get_local_rank()`. By default
            it is looked up as `num_replicas` is.
        tail: what happens to an incomplete last step. `"keep"` divides it among the ranks, in parts that differ by at
            most one id; a rank without a part gets one id of filler. `"pad"` fills every part up to `batch_size`.
            Filler repeats the first id of the step. A `Loader` marks it in `valid`; the lists of a sampler alone do not
            show it. `"drop"` leaves the step out.
        global_batch_size: instead of `batch_size`, ids per step over all ranks, a multiple of their number. `None`:
            `batch_size` counts.
        steps: the steps of a pass. Epochs then follow each other without end, and each pass takes the next `steps`
            steps. No step mixes two epochs. `None`: a pass is an epoch.

    Raises:
        ValueError: an argument is out of range, with the range; or `shuffle=True` and `order` are both given.
        TypeError: `shuffle` is not a bool, or `order` is not an order.

    Warns:
        UserWarning: the process group has more ranks than `num_replicas`.

    Example:
        >>> import tensorstash as ts
        >>> list(ts.Sampler(5, 2, num_replicas=2, rank=1))
        [[2, 3], [4]]
        >>> sampler = ts.Sampler(5, 2, steps=2)
        >>> [list(sampler) for _ in range(3)]
        [[[0, 1], [2, 3]], [[4], [0, 1]], [[2, 3], [4]]]
        >>> from torch.utils.data import DataLoader
        >>> windows = ts.Windows(ts.load({"y": range(6)}), history=2)
        >>> loader = DataLoader(windows, sampler=ts.Sampler(len(windows), 4), batch_size=None)
        >>> [batch["y"].shape for batch in loader]
        [torch.Size([4, 2]), torch.Size([1, 2])]
    """

    def __init__(
        self,
        n: int | Dataset,
        batch_size: int | None = None,
        *,
        shuffle: bool = False,
        order: Bindable | Iterable[int] | None = None,
        seed: int = 0,
        num_replicas: int | None = None,
        rank: int | None = None,
        tail: Tail = "keep",
        global_batch_size: int | None = None,
        steps: int | None = None,
    ) -> None:
        if isinstance(order, Sampler):
            raise TypeError("order must give one id at a time, got a ts.Sampler. Give its own order= instead.")
        if not isinstance(n, (Windows, Several, Count)) and not is_integer(n):
            raise TypeError(f"n must be the number of windows, or ts.Windows or a ts.Mix themselves, got {shown(n)}.")
        windows = n if isinstance(n, (Windows, Several, Count)) else Count(at_least(0, n, "n", below=MOST_COUNT))
        self.order = bound(shuffle, order, windows)  # of the next passes; `Loader.set_weights` changes it
        self.tail = one_of(tail, get_args(Tail), "tail")
        self.n = self.order.positions
        self.seed = integer(seed, "seed")
        self.steps = None if steps is None else at_least(1, steps, "steps", below=MOST_COUNT)
        self._windows: Any = windows
        self._varies = batch_size is None and global_batch_size is None  # batches, up to the largest of the order
        self._is_global = global_batch_size is not None
        self._size = self._checked_size(batch_size, global_batch_size)
        self.order.check_tail(self.tail, varies=self._varies)
        self._ranks = checked_ranks(num_replicas, rank)
        self._run = _Run()
        if self._ranks is not None:
            self.order.check_layout(self._layout())
            warn_of_shared_parts(self._ranks[0])

    @cached_property
    def _fingerprint(self) -> dict[str, Any]:
        """Of the windows, for states; most samplers of a service have none."""
        return dict(self._windows.fingerprint())

    def __getstate__(self) -> dict[str, Any]:
        """With the fingerprint in place of the windows."""
        return {**self.__dict__, "_fingerprint": self._fingerprint, "_windows": None}

    def _checked_size(self, of_rank: int | None, of_all: int | None) -> int:
        """The windows of a step, on one rank or with `_is_global` on all."""
        if self._varies and self.order.largest_batch is not None:
            return self.order.largest_batch
        if (of_rank is None) == (of_all is None):
            raise ValueError(
                "Either batch_size (windows per step and rank) or global_batch_size (windows per step over all ranks) "
                f"must be given, got {of_rank} and {of_all}."
            )
        sizes = {"batch_size": of_rank, "global_batch_size": of_all}
        name, size = next(given for given in sizes.items() if given[1] is not None)
        return at_least(1, size, name, below=_MOST_IDS)

    @property
    def ranks(self) -> tuple[int, int, str]:
        """`(num_replicas, rank, origin)` as they are now."""
        return present_ranks() if self._ranks is None else (*self._ranks, "arguments")

    @property
    def batch_size(self) -> int:
        """Ids per step and rank, the most if they vary; with `global_batch_size=` it depends on the number of ranks."""
        return self._layout().batch_size

    @property
    def drop_last(self) -> bool:
        """Whether an incomplete last step is left out: what other packages ask a batch sampler of PyTorch."""
        return self.tail == "drop"

    @property
    def epoch(self) -> int:
        """The epoch of the last step, or before the first step, of the next one."""
        return self._current().epoch

    __dir__ = members

    def __len__(self) -> int:
        """Steps of a whole pass, the same on every rank."""
        return self._schedule().steps_of_epoch() if self.steps is None else self.steps

    def __iter__(self) -> Iterator[list[int]]:
        """One pass, or the rest of one after `load_state_dict`: lists, because other packages add batches of ids up."""
        schedule, begun = begin(self)
        taken = 0
        for steps in schedule.groups(begun.start):
            for index, ids in enumerate(steps.ids):
                taken += 1
                begun.last = steps.epoch, steps.progress, index, taken
                if taken == 1:
                    enter(self, begun)
                yield ids.tolist()
        finish(self, begun)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass, or with `steps=` the pass. A pass under way continues unchanged.

        A loaded position is kept if `epoch` is its own epoch (pass). With `steps=`, the pass that is next anyway
        begins where the last one ended; any other pass p begins `p * steps` steps after the beginning of epoch 0.

        Args:
            epoch: the number of the epoch, or with `steps=` of the pass, from 0 on.

        Raises:
            ValueError: a number below 0; or, in a mix whose weights were changed by `Loader.set_weights`, any but the
                next epoch (pass).

        Example:
            >>> import tensorstash as ts
            >>> sampler = ts.Sampler(4, 4, shuffle=True)
            >>> sampler.set_epoch(1)
            >>> list(sampler), sampler.epoch  # the pass is over, so the next epoch follows
            ([[0, 3, 1, 2]], 2)
        """
        asked, run = self._checked_epoch(epoch), self._run
        if self.order.must_follow:
            following = self._schedule().next(run.here, run.begun is not None, run.asked).number
            if asked != following and (run.begun is not None or asked != run.here.number):
                raise ValueError(
                    f"After set_weights(), set_epoch() must give the next {'epoch' if self.steps is None else 'pass'}, "
                    f"{following}, because each component goes on where it was; got {asked}."
                )
        self._run = run._replace(asked=asked)

    def _checked_epoch(self, epoch: object) -> int:
        number = at_least(0, epoch, "epoch")
        if number * max(self.n, 1) >= MOST_COUNT:
            raise ValueError(
                "All epochs together must have fewer than 2**62 windows, "
                f"got epoch {number} of {self.n:,} windows each."
            )
        return number

    def state_dict(self) -> dict[str, Any]:
        """The position of the run: `consumed` windows of the epoch's order were handed out, over all ranks together.

        The steps handed to the loop count, the current one included. The values are plain, the same on every rank, and
        valid on any number of ranks. With `steps=` the state also has the `pass` and the `steps` taken in it. Under a
        `DataLoader` with worker processes the sampler is ahead of the loop: set `consumed` to the number of windows
        that all ranks have seen.

        Example:
            >>> import tensorstash as ts
            >>> sampler = ts.Sampler(6, 2)
            >>> first = next(iter(sampler))
            >>> state = sampler.state_dict()
            >>> first, state["epoch"], state["consumed"], state["seed"]
            ([0, 1], 0, 2, 0)
        """
        here = self._current()
        # the rest of a pass that has begun follows the order of that pass
        order = self.order if self._run.begun is None else self._run.begun.order
        state = {
            "version": VERSION,
            "epoch": here.epoch,
            **order.dump(here.epoch, here.progress),
            "seed": self.seed,
            "order": order.name,
            "fingerprint": self._fingerprint | dict(order.fingerprint),
        }
        return state if self.steps is None else state | {"pass": here.number, "steps": here.taken}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next pass continue from the state, with its seed.

        Args:
            state: what `state_dict` returned, of a run with any batch size and any number of ranks.

        Raises:
            ValueError: the state is of other windows or another order, with the fields that differ, or lacks a field.

        Example:
            >>> import tensorstash as ts
            >>> sampler = ts.Sampler(6, 2)
            >>> first = next(iter(sampler))
            >>> resumed = ts.Sampler(6, 3)
            >>> resumed.load_state_dict(sampler.state_dict())
            >>> list(resumed), list(resumed)
            ([[2, 3, 4], [5]], [[0, 1, 2], [3, 4, 5]])
        """
        order = self.order
        ours = self.state_dict() | {"order": order.name, "fingerprint": self._fingerprint | dict(order.fingerprint)}
        if not isinstance(state, Mapping):
            raise TypeError(f"A state must be what state_dict() returned, got {type_text(state)}.")
        if missing := ours.keys() - state.keys():
            raise ValueError(
                f"A state must have {', '.join(ours)}; this one lacks {', '.join(sorted(missing))}. Take what "
                "state_dict() returned out of the checkpoint."
            )
        check_alike(state, ours)
        seed, epoch = integer(state["seed"], "seed of a state"), self._checked_epoch(state["epoch"])
        number, taken = epoch, 0
        if self.steps is not None:
            number, taken = (at_least(0, state[name], name, below=MOST_COUNT) for name in ("pass", "steps"))
        progress = order.load(state)
        self.order = order.of_state(state, epoch, progress)
        self.seed = seed
        self._run = _Run(Position(epoch, progress, number, taken))

    def _layout(self) -> Layout:
        """How steps are divided among the present ranks."""
        ranks, rank, _ = self.ranks
        batch, rest = divmod(self._size, ranks if self._is_global else 1)
        if rest:
            raise ValueError(
                f"global_batch_size must be a multiple of the number of ranks, got {self._size} for {ranks} ranks."
            )
        return Layout(ranks, rank, batch, self.tail, self._varies)

    def _schedule(self) -> Schedule:
        return Schedule(self.order, self.seed, self._layout(), self.steps)

    def _current(self) -> Position:
        """The position of the last pass until the next one begins, or what set_epoch() chose after a finished pass."""
        run = self._run
        if run.begun is not None or run.asked is None:
            return run.here
        return self._schedule().next(run.here, begun=False, asked=run.asked)

    def __repr__(self) -> str:
        replicas, rank, origin = self.ranks
        order = self.order.name + (f" with seed {self.seed}" if self.order.is_seeded else "")
        here = self._current()
        consumed = self.order.dump(here.epoch, here.progress)["consumed"]
        passes = "" if self.steps is None else f"pass {here.number}, "
        size = f"up to {self.batch_size}" if self._varies else f"{self.batch_size}"
        ranks = f" x {replicas} ranks, this is rank {rank} (from {origin})" if origin != "default" else ""
        return (
            f"Sampler: {self.n:,} windows {order}, {len(self):,} steps of {size}{ranks}, tail {self.tail!r}, {passes}"
            f"epoch {here.epoch}, {consumed:,} consumed"
        )


# The parts of a pass, for iterators that compute ahead. Only these change the sampler, and the thread of the loop calls
# them. With each step it writes into the pass, where the sampler reads its position from `enter` on, until a state is
# loaded or another pass is entered.


def begin(sampler: Sampler) -> tuple[Schedule, Pass]:
    """The steps of the next pass, and that pass."""
    schedule, run = sampler._schedule(), sampler._run
    sampler.order.check_layout(schedule.layout)
    start = schedule.next(run.here, run.begun is not None, run.asked)
    sampler.order = sampler.order.begin(sampler.seed, start.epoch, start.progress)
    return replace(schedule, order=sampler.order), Pass(start, sampler.order)


def enter(sampler: Sampler, begun: Pass) -> None:
    """Record that the loop received the first step of a pass."""
    sampler._run = _Run(begun=begun)


def finish(sampler: Sampler, begun: Pass) -> None:
    """Record that a pass is over."""
    run, is_empty = sampler._run, begun.last is None
    if run.begun is begun or is_empty:
        sampler._run = _Run(sampler._schedule().after(begun.here), asked=None if is_empty else run.asked)
