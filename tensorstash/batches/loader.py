"""`Loader`: batches for a training loop, in the order of a sampler, on the device."""

import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NoReturn

import torch

from tensorstash.batches.devices import PlainCopies, copies_to, device_of
from tensorstash.batches.host import Entries, Gathered, Pending, Recycled, host_batches, together
from tensorstash.batches.loader_arguments import Transform, bound, callables, check_windows
from tensorstash.batches.locator import locate
from tensorstash.batches.prefetch import ahead
from tensorstash.batches.read_ahead import is_on_disk
from tensorstash.batches.resident import ResidentColumns, resident_batches
from tensorstash.batches.staging import Staged, Staging
from tensorstash.batches.stats import Times, timed
from tensorstash.batches.transforms import early_and_late
from tensorstash.common.checks import at_least, flag, shown
from tensorstash.common.keywords import suggests_keywords
from tensorstash.common.public import members
from tensorstash.common.text import type_text
from tensorstash.gather.layout import Batch
from tensorstash.sampling.bind import Bindable
from tensorstash.sampling.passes import Pass, Position, Schedule
from tensorstash.sampling.sampler import Sampler, begin, enter, finish
from tensorstash.sampling.several import Several
from tensorstash.sampling.steps import Tail
from tensorstash.windows.contents import Contents
from tensorstash.windows.windows import Windows

_MOST_AHEAD = 1 << 12  # batches, each of which takes memory
_SPARE_BUFFERS = 3  # idle buffers kept in addition to those in flight
_SPARE_STAGES = 2  # one that is filled, and one whose copy may be under way while the loop takes its batch
_NOT_PICKLED = ("_staging", "_memory", "_resident", "_packed")  # a copy makes them anew


@suggests_keywords
class Loader:
    """Batches of windows, one pass per `for` loop: `dict[str, torch.Tensor]`, each tensor `(batch, time, ...)`.

    Of the arguments of PyTorch's `DataLoader`, `drop_last=True` is `tail="drop"`, `pin_memory=True` is `device=`,
    `collate_fn=` is `transform=`, and `num_workers=` is not needed: there are no worker processes.

    A batch is yours for as long as anything refers to it: a tensor, slice, numpy array, autograd graph or DLPack
    capsule. Then its memory is used again. Columns of one item size share memory, and so do small batches on the CPU,
    up to 4 MB: to keep a part of many batches, or send it to another process, take its `.clone()`.

    Args:
        dataset: the windows to sample, a `ts.Mix` of several, or `ts.cluster.windows` of several machines.
        batch_size: windows per batch and rank. `None` is for `global_batch_size=`, or for `ts.ByTime()` alone: whole
            cross-sections.
        shuffle: `True`: a new permutation in each epoch. By default the windows come in sequence.
        order: another order, in place of `shuffle`: one of those in `docs/guide/orders.md`, such as
            `ts.PerEntity(100)`, or window ids: a list, an array or a sampler of PyTorch. `None`: that of `shuffle`.
        seed: any integer, by default 0. Seed and epoch alone decide a shuffled order.
        device: where the batches go, by default the CPU; `"accelerator"` is the device that torch finds on this
            machine, else the CPU. On CUDA, ROCm and XPU everything in a batch is copied from pinned memory in a stream
            of its own.
        prefetch: the number of batches, on the CPU of portions of at most 4 MB, that are gathered ahead in a thread.
            `None` is 0 on the CPU, where gathering uses all cores already, and 2 for other devices.
        num_replicas: the number of ranks, given with `rank`; by default that of the process group, else `WORLD_SIZE`.
        rank: the rank of this process, given with `num_replicas`; by default that of the process group, else `RANK`. If
            ranks share a model, give that in the data dimension.
        tail: an incomplete last step is divided among the ranks (`"keep"`, the default), filled up with marked filler
            (`"pad"`), or left out (`"drop"`).
        with_ids: batches also hold, each `(batch,)` int64, the `window` ids, the `entity` (index into
            `stash.entities`), the `anchor` (its time, or without a time column its row), and `window.key`, a hash of
            the seed, the epoch and the position in it: masks made from it resume.
        with_valid: batches always hold `valid`, `(batch,)` bool, false for filler. They hold it anyway with
            `tail="pad"`, with `"keep"` on several ranks, and over several machines, where any step may have filler.
        transform: callables such as `Scaler`, called in turn on every batch, in the thread of the loop, once it is
            complete and on the device. Each may write into the batch and returns one; the last may return something
            else, such as a tuple. If one raises, that batch does not count as handed out. A `PackSequences` and what is
            before it run on the host, before the copy, and in the thread if there is prefetch. What has a method
            `bind(windows)`, as a `Scaler` has, is replaced by what that returns when the loader is made, a new object.
        global_batch_size: in place of `batch_size`, windows per step over all ranks, a multiple of their number.
            `None`: `batch_size` counts.
        steps: the steps of a pass, so that `len(loader) == steps`; epochs follow each other without end. By default a
            pass is an epoch.
        resident: the columns of the spans are held in the memory of the device, and batches are gathered there. All
            loaders of the process over the same stash share one copy, made with the first of them: later writes into
            the tensors of the stash are not seen. See `docs/guide/devices.md`.

    Attributes:
        sampler: the `ts.Sampler` that decides which windows each batch has.

    Raises:
        TypeError: `dataset` is none of these. ValueError: an argument is out of range, there is no window, or the
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
        dataset: Windows | Several,
        batch_size: int | None = None,
        *,
        shuffle: bool = False,
        order: Bindable | Iterable[int] | None = None,
        seed: int = 0,
        device: str | torch.device | None = None,
        prefetch: int | None = None,
        num_replicas: int | None = None,
        rank: int | None = None,
        tail: Tail = "keep",
        with_ids: bool = False,
        with_valid: bool = False,
        transform: Sequence[Transform] = (),
        global_batch_size: int | None = None,
        steps: int | None = None,
        resident: bool = False,
    ) -> None:
        check_windows(dataset)
        self.dataset: Any = dataset  # what was given; its type would have to be checked at every use
        self.device = device_of(device)
        default = 0 if self.device.type == "cpu" else 2
        self.prefetch = default if prefetch is None else at_least(0, prefetch, "prefetch", below=_MOST_AHEAD)
        self.sampler = Sampler(
            dataset,
            batch_size,
            shuffle=shuffle,
            order=order,
            seed=seed,
            num_replicas=num_replicas,
            rank=rank,
            tail=tail,
            global_batch_size=global_batch_size,
            steps=steps,
        )
        self.with_ids, self.with_valid = flag(with_ids, "with_ids"), flag(with_valid, "with_valid")
        self.transform = bound(callables(transform), dataset)
        self.resident = flag(resident, "resident")
        self._locate = partial(locate, dataset, with_ids=self.with_ids, with_valid=self.with_valid)
        self._times = Times(Pass(Position(), self.sampler.order))
        self._live: Generator[Gathered, None, None] | None = None  # makes the batches of the last pass
        staged = not self.resident and self._staging is not None  # a missing device is refused here
        self._early, self._late = early_and_late(
            self.transform, ahead=staged or self.prefetch > 0, resident=self.resident
        )
        if self.resident:
            self._resident  # noqa: B018  columns that do not fit are refused here too

    @property
    def batch_size(self) -> int:
        """Windows per batch and rank, the most if they vary; with `global_batch_size=` it depends on the ranks."""
        return self.sampler.batch_size

    __dir__ = members

    def __len__(self) -> int:
        """Batches of a whole pass, the same on every rank."""
        return len(self.sampler)

    def __getitem__(self, index: object) -> NoReturn:
        """Refused: batches come one after the other."""
        raise TypeError(
            f"A loader has no batch of a number, got [{shown(index)}]. Write next(iter(loader)) for a batch, or "
            "loader.dataset[k] for window k; a DataLoader or an evaluation of another package takes the windows."
        )

    def __next__(self) -> NoReturn:
        """Refused: each `for` loop has an iterator of its own."""
        raise TypeError("A loader begins a pass with iter(). Write next(iter(loader)), or loop over the loader.")

    @property
    def prefetch_factor(self) -> NoReturn:
        """Refused: accelerate asks for it to make a `DataLoader` like this one, which would not give these batches."""
        raise TypeError(
            "A ts.Loader is used as it is, because it knows its rank and continues from load_state_dict(). Leave out "
            "prepare_data_loader() and skip_first_batches(), and give transformers' Trainer ignore_data_skip=True."
        )

    def __iter__(self) -> Iterator[Batch]:
        """One pass, or the rest of one after `load_state_dict`. Only the last iterator is alive."""
        self._end_pass()
        schedule, this_pass = begin(self.sampler)
        times = self._times = Times(this_pass)
        portions = self._batches(schedule, this_pass.start)
        copy_clock = float if self._staging is None else self._staging.seconds  # float() is 0.0
        if self.prefetch:
            live = ahead(timed(portions, copy_clock, partial(times.add, made=True, waited=False)), self.prefetch)
            awaited = timed(live, copy_clock, partial(times.add, made=False, waited=True))
        else:
            live = awaited = timed(portions, copy_clock, partial(times.add, made=True, waited=True))
        self._live = live
        late, clock, taken = self._late, time.perf_counter, 0  # at exit modules may be gone
        try:
            for steps, indices, batches in awaited:
                for index in indices:
                    batch = batches.pop(0)  # or its memory could not serve the next portion
                    if isinstance(batch, Pending):
                        since = clock()
                        batch = batch.finish()
                        took = clock() - since  # for its gather, or for its copy
                        times.add(took, copying=0.0 if self.resident else took, windows=0, made=True, waited=True)
                    if late:
                        since = clock()
                        batch = self._transformed(late, batch)
                        times.transformed += clock() - since
                    taken += 1
                    this_pass.last = steps.epoch, steps.progress, index, taken
                    if taken == 1:
                        enter(self.sampler, this_pass)
                    yield batch
                    del batch  # likewise
                    if self._live is not live:
                        raise RuntimeError(
                            "A loader has one live iterator, and another was started. Make a second Loader."
                        )
            finish(self.sampler, this_pass)
        finally:
            times.ended = clock()
            live.close()

    def _end_pass(self) -> None:
        """End the last pass and its thread, because the next pass fills the same staging memory."""
        try:
            if self._live is not None:
                self._live.close()
        except ValueError as error:  # the generator is running
            raise RuntimeError("A loader has one live iterator; another thread waits for its next batch.") from error

    def _batches(self, schedule: Schedule, start: Position) -> Iterator[Gathered]:
        """The batches of a pass, a few at a time, made in whichever thread iterates.

        Memory is made here, in the thread of the loop: each thread has a current device of its own.
        """
        contents: Contents = self.dataset.contents
        groups = ((steps, self._locate(steps, schedule)) for steps in schedule.groups(start))
        if self.resident:
            return resident_batches(self._resident, groups)
        stashes = (stash for placement in contents.chain.placements for _, stash in placement.spans_and_stashes)
        on_disk = any(map(is_on_disk, stashes))
        return host_batches(contents, groups, self._memory, on_disk=on_disk)

    def _transformed(self, transforms: Sequence[Transform], batch: Any) -> Any:
        for transform in transforms:
            written = getattr(transform, "pack_into", None)  # into memory that is recycled
            batch = transform(batch) if written is None else written(batch, self._packed.take)
            if not isinstance(batch, dict) and (batch is None or transform is not self.transform[-1]):
                raise TypeError(
                    "A transform must return the batch, and the last one that or something made of it; "
                    f"{transform!r} returned {type_text(batch)}."
                )
        return batch

    def _in_thread(self, batch: Batch) -> Batch | Pending:
        try:
            return self._transformed(self._early, batch)
        except Exception as error:  # the batches that were made before are handed out first
            return Pending(partial(_fail, error))

    def _before_copy(self, batch: Batch) -> Batch:
        packed: Batch = self._transformed(self._early, batch)
        for name, entry in packed.items():
            if not isinstance(entry, torch.Tensor) or not entry.ndim:
                raise TypeError(
                    f"Entries that are copied to {self.device} must be tensors (batch, ...); {name!r} is {entry!r}. "
                    "Add it after the transforms that run on the host, such as ts.PackSequences."
                )
        return packed

    @cached_property
    def _staging(self) -> Staging | None:
        """Staging memory for batches, or for the integers of resident columns; `None` on the CPU."""
        if self.resident:
            return self._resident.integers
        copies = copies_to(self.device)
        return None if copies is None else Staging(copies, self.prefetch + _SPARE_STAGES)

    @cached_property
    def _memory(self) -> Recycled | Staged:
        plans = self.dataset.contents.plans
        if self._staging is not None:
            return Staged(plans, self._staging, self._before_copy if self._early else None)
        spare = self.prefetch + _SPARE_BUFFERS
        entries = Entries(spare + self._together - 1)
        return Recycled(plans, spare, entries, self._in_thread if self._early else None)

    @cached_property
    def _resident(self) -> ResidentColumns:
        copies = copies_to(self.device) or PlainCopies(self.device)
        return ResidentColumns(self.dataset.contents, self.device, copies, self.prefetch + _SPARE_STAGES)

    @property
    def _together(self) -> int:
        """How many batches are made at once."""
        return together(self.sampler.batch_size * self.dataset.contents.window_bytes)

    @cached_property
    def _packed(self) -> Entries:
        at_once = self._together if self._early else 1
        return Entries(_SPARE_BUFFERS + at_once - 1)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass, or with `steps=` the pass. A pass under way continues unchanged.

        Passes count epochs by themselves, so a loop needs this only to skip or to repeat some. A loaded position is
        kept if `epoch` is its own epoch (pass).

        Args:
            epoch: the number of the epoch, or with `steps=` of the pass, from 0 on.

        Raises:
            ValueError: a number below 0; or, in a mix whose weights were changed, any but the next epoch (pass).

        Example:
            >>> import tensorstash as ts
            >>> windows = ts.Windows(ts.load({"y": range(4)}), history=1)
            >>> loader = ts.Loader(windows, 4, shuffle=True)
            >>> loader.set_epoch(1)
            >>> [batch["y"][:, 0].tolist() for batch in loader]
            [[0, 3, 1, 2]]
        """
        self.sampler.set_epoch(epoch)

    def set_weights(self, weights: Any) -> None:
        """Draw by other weights from the next pass on, as those of `ts.Weighted` or of a `ts.Mix` with weights.

        A pass under way continues unchanged. Until the next pass begins, a state has the weights of the last pass, or
        the new ones if the last pass is complete. Of `ts.Weighted` it holds a checksum: to load it, make a loader with
        the same weights.

        In a mix, a mapping from each name to a number: each component goes on where it was, so none repeats a window
        before it has shown all, and from there on it is within two windows of its new share. A state holds the weights,
        which a load brings along. After a change `set_epoch` takes the next epoch alone.

        Args:
            weights: for `ts.Weighted` numbers of at least 0, `(windows,)` or with `per="entity"` `(entities,)`, a
                mapping from the name of each entity, or the name of a column. For a mix, a mapping from the name of
                each component to a number of at least 0.

        Raises:
            TypeError: the loader has neither such an order nor such a mix, or a weight is no number. ValueError: a
                weight is negative, infinite or NaN, one is missing, or all are 0. ColumnError: no such column, entity
                or component.

        Example:
            >>> import numpy as np, tensorstash as ts
            >>> windows = ts.Windows(ts.load({"y": np.arange(4.0)}), history=1)
            >>> loader = ts.Loader(windows, 4, order=ts.Weighted([1, 0, 0, 0]))
            >>> loader.set_weights([0, 0, 1, 0])
            >>> [batch["y"][:, 0].tolist() for batch in loader]
            [[2.0, 2.0, 2.0, 2.0]]
            >>> low, high = (ts.Windows(ts.load({"y": np.arange(4.0) + n}), history=1) for n in (0, 10))
            >>> mix = ts.Mix({"low": low, "high": high}, weights={"low": 1, "high": 1}, epoch_size=4)
            >>> loader = ts.Loader(mix, 4)
            >>> first = [batch["y"][:, 0].tolist() for batch in loader]
            >>> loader.set_weights({"low": 1, "high": 3})
            >>> first + [batch["y"][:, 0].tolist() for batch in loader]
            [[0.0, 10.0, 1.0, 11.0], [12.0, 2.0, 13.0, 10.0]]
        """
        self.sampler.order = self.sampler.order.with_weights(weights, self.dataset)

    def state_dict(self) -> dict[str, Any]:
        """The position of the run: `consumed` windows of the epoch's order were in batches that the loop was given.

        The current batch counts, prefetched ones do not. The values are plain, the same on every rank, and valid with
        any batch size, device and number of ranks, so they may be stored in a checkpoint.

        Example:
            >>> import tensorstash as ts
            >>> windows = ts.Windows(ts.load({"y": range(6)}), history=1)
            >>> loader = ts.Loader(windows, 4, shuffle=True, seed=7)
            >>> batch = next(iter(loader))
            >>> state = loader.state_dict()
            >>> state["epoch"], state["consumed"], state["seed"]
            (0, 4, 7)
        """
        return self.sampler.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state in the next pass, with its seed.

        Args:
            state: what `state_dict` returned, of a run with any batch size and any number of ranks.

        Raises:
            ValueError: the state is of other windows or another order, with the fields that differ, or lacks a field.

        Example:
            >>> import tensorstash as ts
            >>> windows = ts.Windows(ts.load({"y": range(6)}), history=1)
            >>> loader = ts.Loader(windows, 4)
            >>> batch = next(iter(loader))
            >>> resumed = ts.Loader(windows, 1)
            >>> resumed.load_state_dict(loader.state_dict())
            >>> [batch["y"].item() for batch in resumed]
            [4, 5]
        """
        self.sampler.load_state_dict(state)

    def stats(self) -> dict[str, Any]:
        """How the time of the current or last pass was spent: a dict of numbers.

        - `steps`: the batches that the loop was given.
        - `seconds`: of the pass, from its first step on.
        - `gather_seconds`: in which batches were built, from their steps to their values; in the thread if there is
          prefetch.
        - `copy_seconds`: in which building stood still because of copies to the device, likewise.
        - `gigabytes_per_second`: of the batches while they were built.
        - `wait_seconds`: in which the loop waited for a batch; it has the next three as its parts.
        - `wait_gather_seconds`: for a batch that was not built yet.
        - `wait_copy_seconds`: for copies.
        - `transform_seconds`: for transforms in the loop.
        - `windows`: of a mix alone, how many windows of each component all ranks together have taken, by name.

        What the loop queues on a GPU, such as transforms or the gather of resident columns, counts only until it is
        queued.

        Example:
            >>> import tensorstash as ts
            >>> loader = ts.Loader(ts.Windows(ts.load({"y": range(6)}), history=1), 4)
            >>> batches = list(loader)
            >>> stats = loader.stats()
            >>> stats["steps"], 0 <= stats["wait_seconds"] <= stats["seconds"]
            (2, True)
        """
        begun, figures = self._times.begun, self._times.stats(self.dataset.contents.window_bytes)
        return figures | begun.order.stats(begun.start[:2], begun.here[:2])

    def __getstate__(self) -> dict[str, Any]:
        """All but the memory of batches and what is made of it, which refer to buffers, streams and threads."""
        state = {name: value for name, value in self.__dict__.items() if name not in _NOT_PICKLED}
        return state | {"_live": None}

    def __repr__(self) -> str:
        where = f"{self.device}, resident" if self.resident else str(self.device)
        return f"Loader: to {where}, prefetch {self.prefetch}\n  {self.sampler}\n  {self.dataset}"


def _fail(error: Exception) -> Batch:
    raise error
