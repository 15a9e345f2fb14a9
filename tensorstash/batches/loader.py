"""The view of the training loop: batches in the order of a sampler, on the device."""

import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch

from tensorstash.batches.assemble import AnyAssembler, Assembler, located, together
from tensorstash.batches.assemble_mix import MixAssembler
from tensorstash.batches.assemble_resident import Host, ResidentAssembler
from tensorstash.batches.assemble_sharded import ShardedAssembler
from tensorstash.batches.buffers import Batch, Recycled
from tensorstash.batches.devices import PlainCopies, copies_to, device_of
from tensorstash.batches.host_casts import casts_on_host, on_host
from tensorstash.batches.prefetch import ahead
from tensorstash.batches.read_ahead import ReadAhead, is_on_disk
from tensorstash.batches.staging import Staged, Staging
from tensorstash.batches.timer import Timer
from tensorstash.common.checks import at_least
from tensorstash.sampling.legs import Consumed
from tensorstash.sampling.mix import Mix
from tensorstash.sampling.order import Lanes
from tensorstash.sampling.ordering import Shuffle, of_windows
from tensorstash.sampling.own_ids import OwnIds
from tensorstash.sampling.passes import Plan, Position
from tensorstash.sampling.sampler import Sampler
from tensorstash.sampling.sharded import ShardedWindows
from tensorstash.sampling.weighted import Weighted
from tensorstash.windows.windows import Windows

_SPARE_BUFFERS = 3  # idle buffers kept in addition to those in flight
_SPARE_STAGES = 2  # one that is filled, and one whose copy may be under way while the loop takes its batch

Transform = Callable[[Any], Any]
_Made = tuple[int, Consumed, Batch, Callable[[], None] | None]


class Loader:
    """Batches of windows, one pass per `for` loop: `dict[str, torch.Tensor]`, each tensor `(batch, time, ...)`.

    A pass begins with its first batch. Without `steps=` it is an epoch. A pass that is left early (break, exception) is
    over, and the next one is the next epoch.

    A batch is yours for as long as anything refers to it: its memory is used again only when no tensor, slice, numpy
    array, autograd graph or DLPack capsule can see it. Columns of one item size share that memory, so to keep a single
    column of many batches, keep its `.clone()`. On the CPU small batches are made a few at a time, at most 512 KB.

    Args:
        windows: the windows to sample, a `ts.Mix` of several, or those of shards (`ts.cluster.windows`).
        batch_size: windows per batch and rank.
        shuffle: like `seed`, `num_replicas`, `rank`, `tail`, `global_batch_size` and `steps` an argument of `Sampler`,
            which is `loader.sampler`.
        seed: the seed of the permutations.
        sampler: instead of `shuffle`, ids of your own: an iterable with a length, such as a list, an array or a
            `torch.utils.data.Sampler`, that gives the window ids of an epoch one by one, the same on every rank. Its
            `set_epoch(epoch)` is called before each epoch, if it has one. The loader divides the ids into steps and
            among the ranks. A state holds their number and checksum, but not the state of the sampler: the run can be
            resumed if the sampler yields the same ids again for the same epoch; otherwise it is a `ValueError`.
        device: where the batches go; `"accelerator"` is the device that torch finds on this machine, else the CPU. On
            CUDA, ROCm and XPU everything in a batch is copied from pinned memory in a stream of its own.
        prefetch: the number of batches that are gathered ahead in a thread. `None` is 0 on the CPU, where gathering
            uses all cores already, and 2 for other devices.
        num_replicas: the number of ranks; by default taken from the process group or the environment.
        rank: the rank of this process.
        tail: what happens to an incomplete last step: `"keep"`, `"pad"` or `"drop"`.
        with_ids: batches also hold, each `(batch,)` int64, the `window` ids, the `entity` (index into `stash.entities`)
            and the `anchor` as in `Windows.anchors`: its time, or without a time column its row.
        with_valid: batches always hold `valid`, `(batch,)` bool, which is false for filler. They hold it anyway with
            `tail="pad"`, with `"keep"` on several ranks, and over shards, whose filler is spread over all steps.
        transform: callables such as `Scaler`, called one after the other on every batch. Each but the last returns a
            batch; the last may return something else, such as a tuple. They run in the thread of the loop, once the
            batch is complete and on the device, and may write into it. If one raises, the exception leaves the loop,
            and that batch does not count as handed out.
        global_batch_size: instead of `batch_size`, windows per step over all ranks, a multiple of their number.
        resident: the columns of the spans are held in the memory of the device, and batches are gathered there. All
            loaders of the process over the same stash share one copy, made with the first of them: later writes into
            the tensors of the stash are not seen. See `docs/guide/devices.md`.
        steps: the steps of a pass. Epochs then form one endless sequence, and each pass takes its next `steps` steps;
            `len(loader) == steps`.

    Raises:
        TypeError: `windows` is none of these. ValueError: an argument is out of range, there is no window, or the
            device cannot be used on this machine. NoMemoryError: resident columns do not fit there.

    Example:
        >>> import numpy as np, tensorstash as ts
        >>> windows = ts.Windows(ts.load({"y": np.arange(6.0)}), history=2)
        >>> loader = ts.Loader(windows, batch_size=4)
        >>> [batch["y"].tolist() for batch in loader]
        [[[0.0, 1.0], [1.0, 2.0], [2.0, 3.0], [3.0, 4.0]], [[4.0, 5.0]]]
    """

    batch_sampler = None  # Lightning asks anything with a sampler for it

    def __init__(
        self,
        windows: Windows | Mix | ShardedWindows,
        batch_size: int | None = None,
        *,
        shuffle: Shuffle = False,
        seed: int = 0,
        device: str | torch.device | None = None,
        prefetch: int | None = None,
        num_replicas: int | None = None,
        rank: int | None = None,
        tail: str = "keep",
        with_ids: bool = False,
        with_valid: bool = False,
        transform: Sequence[Transform] = (),
        global_batch_size: int | None = None,
        steps: int | None = None,
        sampler: Iterable[int] | None = None,
        resident: bool = False,
    ) -> None:
        _check_windows(windows)
        if isinstance(windows, ShardedWindows) and (uneven := windows.uneven_text()) is not None:
            warnings.warn(uneven, stacklevel=2)
        if isinstance(shuffle, Lanes) and isinstance(windows, Windows):
            _check_lanes(windows)
        self.windows: Any = windows  # what was given; its type would have to be checked at every use
        self.device = device_of(device)
        on_cpu = self.device.type == "cpu"
        self.prefetch = (0 if on_cpu else 2) if prefetch is None else at_least(0, prefetch, "prefetch")
        if sampler is not None:
            shuffle = _own_ids(sampler, shuffle, windows)
        self.sampler = Sampler(
            len(windows),
            batch_size,
            shuffle=of_windows(shuffle, windows),
            seed=seed,
            num_replicas=num_replicas,
            rank=rank,
            tail=tail,
            global_batch_size=global_batch_size,
            steps=steps,
        )
        self.with_ids = with_ids
        self.with_valid = with_valid
        self.transform = _callables(transform)
        self._timer = Timer()
        self._pass = object()
        self.resident = _flag(resident, "resident")
        staged = copies_to(self.device) is not None and not resident  # a missing device is refused here
        casts = casts_on_host(self.transform, _one_of(windows))
        self._casts = casts if staged else {}
        self._late = tuple(one for one in self.transform if not (staged and on_host(one)))  # those behind the copy
        if resident:
            self._assembler  # noqa: B018  columns that do not fit are refused here too

    def __len__(self) -> int:
        """Batches of a whole pass, the same on every rank."""
        return len(self.sampler)

    def __iter__(self) -> Iterator[Any]:
        """One pass, or the rest of one after `load_state_dict`. Only the last iterator is alive."""
        current = self._pass = object()
        timer = self._timer = Timer()
        plan, start = self.sampler._begin()
        # the assembler is made here, in the thread of the loop: each thread has a current device of its own
        assembler = self._assembler
        making = self._make(assembler, plan, start, timer)
        made = ahead(making, self.prefetch) if self.prefetch else making
        copied = assembler.memory.copy_seconds
        asked, copying, taken, first = timer.started, copied(), 0, _row(plan, start.epoch, start.consumed)
        try:
            for epoch, consumed, batch, arrive in made:
                if self._pass is not current:
                    raise RuntimeError("A loader has one live iterator, and another was started. Make a second Loader.")
                timer.waited_for_copies += copied() - copying
                if arrive is not None:
                    self._arrive(arrive, timer)
                batch = self._transformed(batch, timer)  # noqa: PLW2901  the first name would keep its memory
                taken += 1
                self.sampler._hand_out(start, taken, epoch, consumed)
                timer.row = (first, _row(plan, epoch, consumed))
                timer.steps += 1
                timer.waited += time.perf_counter() - asked
                yield batch
                del batch, arrive  # or their memory could not serve the next batch
                asked, copying = time.perf_counter(), copied()
            self.sampler._finish(start, taken)
        finally:
            timer.ended = time.perf_counter()
            made.close()

    def _arrive(self, arrive: Callable[[], None], timer: Timer) -> None:
        """Let the batch be there: it is gathered now, or its copy is waited for."""
        began = time.perf_counter()
        arrive()
        spent = time.perf_counter() - began
        if self.resident:
            timer.gathered += spent
        else:
            timer.copied += spent
            timer.waited_for_copies += spent

    def _transformed(self, batch: Any, timer: Timer) -> Any:
        began = time.perf_counter()
        for transform in self._late:
            batch = transform(batch)
            if not isinstance(batch, dict) and (batch is None or transform is not self._late[-1]):
                raise TypeError(
                    "A transform returns the batch, and only the last one may return something else, such as a tuple; "
                    f"{transform!r} returned a {type(batch).__name__}."
                )
        timer.transformed += time.perf_counter() - began
        return batch

    def _make(self, assembler: AnyAssembler, plan: Plan, start: Position, timer: Timer) -> Generator[_Made, None, None]:
        """Build the batches of a pass one after the other, in whichever thread iterates; it changes nothing."""
        window_bytes = assembler.plan.window_bytes
        lanes = plan.ordering.shuffle if isinstance(plan.ordering.shuffle, Lanes) else None
        portions, build = located(assembler, plan.groups(start), plan.layout, lanes), assembler.build
        if isinstance(assembler, Host) and any(map(is_on_disk, _all_of(self.windows))):
            reading = ReadAhead(assembler)
            portions, build = reading.portions(portions), reading.build
        for steps, group, some in portions:
            began, before = time.perf_counter(), assembler.memory.copy_seconds()
            built = build(group, some)[::-1]
            copied = assembler.memory.copy_seconds() - before
            timer.copied += copied
            timer.gathered += time.perf_counter() - began - copied
            timer.nbytes += len(some) * group.count * window_bytes
            for step in some:
                yield steps.epoch, steps.consumed[step], *built.pop()  # nothing here may keep its memory

    @cached_property
    def _assembler(self) -> AnyAssembler:
        plan, copies = _one_of(self.windows)._plan, copies_to(self.device)
        stages = self.prefetch + _SPARE_STAGES
        memory: Recycled | Staged
        if copies is None or self.resident:
            more = together(plan.window_bytes * self.sampler.batch_size) - 1
            memory = Recycled(plan, self.prefetch + _SPARE_BUFFERS + more)
        else:
            memory = Staged(plan, Staging(copies, stages), self._casts)
        host: Host
        if isinstance(self.windows, ShardedWindows):
            host = ShardedAssembler(self.windows, memory, with_ids=self.with_ids)
        elif isinstance(self.windows, Mix):
            host = MixAssembler(self.windows, memory, with_ids=self.with_ids, with_valid=self.with_valid)
        else:
            host = Assembler(self.windows, memory, with_ids=self.with_ids, with_valid=self.with_valid)
        if not self.resident:
            return host
        return ResidentAssembler(host, self.device, copies or PlainCopies(self.device), stages)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass, or with `steps=` the pass; see `Sampler.set_epoch`.

        A pass that is under way goes on unchanged. A loaded position is kept if its own epoch (pass) is asked for.
        """
        self.sampler.set_epoch(epoch)

    def set_weights(self, weights: Any) -> None:
        """Draw by other weights from the next pass on, as `ts.Weighted` takes them; a pass under way goes on unchanged.

        A state holds a checksum of weights: until the next pass begins, of the weights of the last pass, or of the new
        weights if the last pass is complete. To load the state, make a loader with the same weights.

        Example:
            >>> import numpy as np, tensorstash as ts
            >>> windows = ts.Windows(ts.load({"y": np.arange(4.0)}), history=1)
            >>> loader = ts.Loader(windows, 4, shuffle=ts.Weighted([1, 0, 0, 0]))
            >>> loader.set_weights([0, 0, 1, 0])
            >>> [batch["y"][:, 0].tolist() for batch in loader]
            [[2.0, 2.0, 2.0, 2.0]]
        """
        weighted = self.sampler.shuffle
        if not isinstance(weighted, Weighted):
            raise TypeError(f"set_weights() is for loaders with shuffle=ts.Weighted(...); this one has {weighted!r}.")
        self.sampler._replace(of_windows(replace(weighted, weights=weights), self.windows))

    def state_dict(self) -> dict[str, Any]:
        """The position of the run as plain values: the same on every rank, valid on any number of ranks.

        Batches handed to the loop count, including the current one; prefetched batches do not. Until the next pass
        begins, the state is the point at which the last pass was left.
        """
        return self.sampler.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state in the next pass; a state of other windows is a `ValueError`."""
        self.sampler.load_state_dict(state)

    def stats(self) -> dict[str, Any]:
        """How the time of the current or last pass was spent.

        `steps`; `seconds` of the pass; `gather_seconds`, in which batches were built, and `copy_seconds`, in which
        building stood still because of copies to the device, both in the thread if there is prefetch;
        `gigabytes_per_second` of the batches while built. `wait_seconds`, in which the loop waited for a batch, and its
        parts: `wait_gather_seconds` for one that was not built yet, `wait_copy_seconds` for copies, and
        `transform_seconds` for transforms. What the loop queues on a GPU, such as transforms or the gather of resident
        columns, counts only until it is queued. For a mix also `windows`: how many of each component all ranks together
        have taken, by name.
        """
        counts = {"windows": self.windows._shown(*self._timer.row)} if isinstance(self.windows, Mix) else {}
        return self._timer.stats() | counts

    def __getstate__(self) -> dict[str, Any]:
        """All but the assembler, which refers to the memory of the stash, to buffers and to streams."""
        return {name: value for name, value in self.__dict__.items() if name != "_assembler"}

    def __repr__(self) -> str:
        where = f"{self.device}, resident" if self.resident else str(self.device)
        return f"Loader: to {where}, prefetch {self.prefetch}\n  {self.sampler}\n  {self.windows}"


def _check_windows(windows: object) -> None:
    if not isinstance(windows, (Windows, Mix, ShardedWindows)):
        raise TypeError(
            f"A loader takes windows, ts.Windows(stash, ...), or a ts.Mix of them; got a {type(windows).__name__}."
        )
    if not len(windows):
        raise ValueError("A loader needs at least one window; these windows are empty. See the cuts of split().")


def _row(plan: Plan, epoch: int, consumed: Consumed) -> int:
    """The position in the endless sequence of epochs; shards have no such sequence."""
    return epoch * plan.ordering.n + consumed if isinstance(consumed, int) else 0


def _check_lanes(windows: Windows) -> None:
    """Refuse windows whose past would overlap the past of the previous window, or skip rows."""
    # spans that end before the anchor are lags, and spans that begin at or after it are the future
    past = max((-span.begin for span in windows.spans if span.begin < 0 <= span.end), default=windows.history)
    if past != windows.stride:
        raise ValueError(
            "In lanes each window begins where the past of the one before ended, so stride= must equal the length of "
            f"the past; got {windows.stride} and {past}. A model would see rows twice, or miss some."
        )


def _flag(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{what}= is True or False; got {value!r}.")
    return value


def _all_of(windows: Windows | Mix | ShardedWindows) -> Iterable[Windows]:
    """The windows of each stash, whose spans and dtypes are alike."""
    if isinstance(windows, Windows):
        return [windows]
    return (windows.windows if isinstance(windows, Mix) else windows.parts).values()


def _one_of(windows: Windows | Mix | ShardedWindows) -> Windows:
    """Windows with the spans and dtypes of all."""
    return next(iter(_all_of(windows)))


def _own_ids(sampler: object, shuffle: Shuffle, windows: Windows | Mix | ShardedWindows) -> OwnIds:
    """The order that the caller's sampler gives."""
    if not isinstance(windows, Windows):
        what = "A mix is" if isinstance(windows, Mix) else "The windows of shards are"
        raise ValueError(f"{what} permuted, shuffle=True, or interleaved, shuffle=False; got sampler=.")
    if shuffle is not False:
        raise ValueError(f"sampler= and shuffle= exclude each other: both say the order; got shuffle={shuffle!r}.")
    if isinstance(sampler, Sampler):
        raise TypeError("sampler= gives one id at a time; a loader has a ts.Sampler of its own. Write shuffle=.")
    ids = OwnIds(sampler, len(windows))
    if not len(ids):
        raise ValueError("sampler= gives at least one id; it has a length of 0.")
    return ids


def _callables(transform: Sequence[Transform]) -> tuple[Transform, ...]:
    if callable(transform):
        raise TypeError(f"transform= is a list of callables; got {transform!r}. Write [it].")
    if not isinstance(transform, Iterable):
        raise TypeError(f"transform= is a list of callables; got {transform!r}. For none, leave it out.")
    for one in transform:
        if not callable(one):
            raise TypeError(f"A transform is a callable that takes a batch; got {one!r}.")
    return tuple(transform)
