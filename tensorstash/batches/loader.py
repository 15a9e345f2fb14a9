"""The training loop's view: batches in the order of a sampler, in recycled memory, on the device."""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch

from tensorstash.batches.buffers import CudaBatches, HostBatches
from tensorstash.common.dtypes import Bools, Int64s
from tensorstash.gather.gather import positions, static_values
from tensorstash.sampling.order import Lanes, Shuffle
from tensorstash.sampling.sampler import Sampler, Steps
from tensorstash.windows.layout import label_rows
from tensorstash.windows.slots import run_edges
from tensorstash.windows.windows import Windows

_SPARE_BUFFERS = 3  # idle ones kept beside those in flight

Batch = dict[str, torch.Tensor]
Transform = Callable[[Batch], Batch]
_Made = tuple[int, Batch, Callable[[], None]]


@dataclass(slots=True)
class _Timer:
    """Where the time of one pass goes."""

    started: float = field(default_factory=time.perf_counter)
    ended: float | None = None
    steps: int = 0
    waited: float = 0.0
    gathered: float = 0.0
    transformed: float = 0.0
    nbytes: int = 0


class Loader:
    """Batches of windows, one epoch per `for` loop: `dict[str, torch.Tensor]`, each `(batch, time, ...)`.

    A batch is yours for as long as anything refers to it: its memory is used again only when no tensor, slice, numpy
    array, autograd graph or DLPack capsule can see it. Columns of one item size share that memory, so keep a `.clone()`
    of a single column of many batches rather than the column itself.

    Args:
        windows: what is sampled.
        batch_size: windows per batch and rank.
        shuffle: as `seed`, `num_replicas`, `rank` and `tail`, an argument of `Sampler`, which is `loader.sampler`.
        seed: of the permutations.
        device: where the batches go; to CUDA through pinned memory, without waiting.
        prefetch: batches gathered ahead in a thread; `None`: none for the CPU, where gathering uses all cores already,
            2 for other devices.
        num_replicas: the number of ranks; found in the process group or the environment.
        rank: of this process.
        with_ids: batches also carry, `(batch,)` int64, the `window` ids, the `entity` (index into `stash.entities`) and
            the `anchor` as in `Windows.anchors`: its time, or without a time column its row.
        transform: callables from batch to batch, such as `Scaler`, called one after the other on every batch. They run
            in the thread of the loop, once the batch is complete and on the device; they may write into it. What they
            raise comes out of the loop, and that batch does not count as handed out.
        tail: batches carry `valid`, `(batch,)` bool, false for filler, with `"pad"`, and with `"keep"` on several.

    Example:
        >>> import numpy as np, tensorstash as ts
        >>> windows = ts.Windows(ts.load({"y": np.arange(6.0)}), history=2)
        >>> loader = ts.Loader(windows, batch_size=4)
        >>> [batch["y"].tolist() for batch in loader]
        [[[0.0, 1.0], [1.0, 2.0], [2.0, 3.0], [3.0, 4.0]], [[4.0, 5.0]]]
    """

    batch_sampler = None  # Lightning asks whatever has a sampler for it

    def __init__(
        self,
        windows: Windows,
        batch_size: int,
        *,
        shuffle: Shuffle = False,
        seed: int = 0,
        device: str | torch.device | None = None,
        prefetch: int | None = None,
        num_replicas: int | None = None,
        rank: int | None = None,
        tail: str = "keep",
        with_ids: bool = False,
        transform: Sequence[Transform] = (),
    ) -> None:
        if not len(windows):
            raise ValueError("A loader needs at least one window; these windows are empty. See the cuts of split().")
        if isinstance(shuffle, Lanes):
            _check_lanes(windows)
        self.windows = windows
        self.device = torch.device("cpu" if device is None else device)
        self.prefetch = (0 if self.device.type == "cpu" else 2) if prefetch is None else prefetch
        if self.prefetch < 0:
            raise ValueError(f"prefetch= is at least 0; got {prefetch}.")
        self.sampler = Sampler(
            len(windows), batch_size, shuffle=shuffle, seed=seed, num_replicas=num_replicas, rank=rank, tail=tail
        )
        self.sampler.fingerprint = windows.fingerprint()
        self.with_ids = with_ids
        self.transform = _callables(transform)
        self._timer = _Timer()
        self._pass = object()

    def __len__(self) -> int:
        """Batches of a whole epoch, the same on every rank."""
        return len(self.sampler)

    def __iter__(self) -> Iterator[Batch]:
        """One epoch, or what is left of it after `load_state_dict`. One iterator is alive at a time: the last one."""
        current = self._pass = object()
        timer = self._timer = _Timer()
        # the device is chosen here, in the caller's thread: the current one of CUDA is another in each thread
        making = self._make(self._batches, timer)
        made = _ahead(making, self.prefetch) if self.prefetch else making
        asked = timer.started
        try:
            for consumed, batch, await_copy in made:
                if self._pass is not current:
                    raise RuntimeError("A loader has one live iterator, and another was started. Make a second Loader.")
                await_copy()
                batch = self._transformed(batch, timer)  # noqa: PLW2901  the first name would keep its memory
                self.sampler.hand_out(consumed)
                timer.steps += 1
                timer.waited += time.perf_counter() - asked
                yield batch
                del batch, await_copy  # or their memory could not serve the next one
                asked = time.perf_counter()
            self.sampler.finish()
        finally:
            timer.ended = time.perf_counter()
            made.close()

    def _transformed(self, batch: Batch, timer: _Timer) -> Batch:
        began = time.perf_counter()
        for transform in self.transform:
            batch = transform(batch)
            if not isinstance(batch, dict):
                raise TypeError(f"A transform returns the batch; {transform!r} returned a {type(batch).__name__}.")
        timer.transformed += time.perf_counter() - began
        return batch

    def _make(self, batches: HostBatches | CudaBatches, timer: _Timer) -> Generator[_Made, None, None]:
        """Build the batches of this pass one after the other, in whichever thread iterates."""
        plan, masked = self.windows._plan, self.sampler.masked
        static = {name: values.to(batches.device) for name, values in self.windows.stash.static.items()}
        for steps in self.sampler.steps(self.sampler.begin()):
            count = steps.ids.shape[1]
            anchors = self.windows._anchor_slots(steps.ids)
            places, extra = positions(plan, anchors), self._extra(steps, anchors, masked, batches.device)
            if static:
                entities = torch.from_numpy(self.windows._entities_of(anchors)).to(batches.device)
            for step, (where, consumed) in enumerate(zip(places, steps.consumed)):
                began = time.perf_counter()
                batch, await_copy = batches.build(where, count)
                timer.gathered += time.perf_counter() - began
                timer.nbytes += count * plan.window_bytes
                if static:
                    batch |= static_values(static, entities[step])
                for name, values in extra.items():
                    batch[name] = values[step]
                yield consumed, batch, await_copy
                del batch, await_copy

    def _extra(self, steps: Steps, anchors: Int64s, masked: bool, device: torch.device) -> Batch:
        """What batches carry beside their spans, `(steps, batch)` each."""
        extra: Batch = {}
        if masked:
            extra["valid"] = (torch.arange(steps.ids.shape[1]) < steps.valid).repeat(len(steps.ids), 1)
        if isinstance(self.sampler.shuffle, Lanes):
            extra["reset"] = torch.from_numpy(self._resets(self.sampler.shuffle, steps, anchors))
        if self.with_ids:
            about = self.windows.anchors(steps.ids.reshape(-1))
            extra["window"] = torch.from_numpy(steps.ids)
            extra["entity"] = about["entity"].view(steps.ids.shape)
            rows = torch.from_numpy(label_rows(self.windows._layout, anchors))
            extra["anchor"] = about["time"].view(steps.ids.shape) if "time" in about else rows
        return {name: values.to(device) for name, values in extra.items()}

    def _resets(self, lanes: Lanes, steps: Steps, anchors: Int64s) -> Bools:
        """Where a window does not continue the one in the same row of the batch before, `(steps, batch)`."""
        lane, at = lanes.places(len(self.windows), steps.ids)
        row = np.arange(steps.ids.shape[1])
        before = self.windows._anchor_slots(np.maximum(steps.ids - 1, 0))
        runs, _ = run_edges(self.windows._layout.slots)
        start, start_before = (
            np.searchsorted(runs, rows - self.windows.history, "right") for rows in (anchors, before)
        )
        goes_on = (anchors - before == self.windows.stride) & (start == start_before)
        same_row = lane == self.sampler.ranks[1] * self.sampler.batch_size + row
        return (at == 0) | ~goes_on | ~same_row | (row >= steps.valid)

    @cached_property
    def _batches(self) -> HostBatches | CudaBatches:
        plan = self.windows._plan
        if self.device.type == "cuda":
            return CudaBatches(plan, self.device, stages=self.prefetch + 2)
        return HostBatches(plan, self.device, spare=self.prefetch + _SPARE_BUFFERS)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass; the current one keeps a loaded position."""
        self.sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the epoch stands, as plain values: the same on every rank, valid on any number of ranks.

        Batches handed to the loop count, the current one included; those gathered ahead do not.
        """
        return self.sampler.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next pass continue where the state stands; a state of other windows is a `ValueError`."""
        self.sampler.load_state_dict(state)

    def stats(self) -> dict[str, float]:
        """Where the time of the current or last pass went.

        `steps`; `seconds` of the pass; `wait_seconds`, in which the loop waited for a batch; `gather_seconds`, in which
        batches were built, in the thread if there is prefetch; `transform_seconds`, a part of the waiting, in which
        transforms ran, on a GPU only until their work was queued; `gigabytes_per_second` of the batches while built.
        """
        timer = self._timer
        ended = time.perf_counter() if timer.ended is None else timer.ended
        return {
            "steps": timer.steps,
            "seconds": ended - timer.started,
            "wait_seconds": timer.waited,
            "gather_seconds": timer.gathered,
            "transform_seconds": timer.transformed,
            "gigabytes_per_second": timer.nbytes / timer.gathered / 1e9 if timer.gathered else 0.0,
        }

    def __repr__(self) -> str:
        return f"Loader: to {self.device}, prefetch {self.prefetch}\n  {self.sampler}\n  {self.windows}"


def _check_lanes(windows: Windows) -> None:
    """Refuse windows whose past would overlap that of the one before, or leave rows out."""
    # spans that end before the anchor are lags, and those from it on are the future
    past = max((-span.begin for span in windows.spans if span.begin < 0 <= span.end), default=windows.history)
    if past != windows.stride:
        raise ValueError(
            "In lanes each window goes on where the one before ended, so that stride= is the length of the past; got "
            f"{windows.stride} and {past}. A model would see rows twice, or miss some."
        )


def _callables(transform: Sequence[Transform]) -> tuple[Transform, ...]:
    if callable(transform):
        raise TypeError(f"transform= is a list of callables; got {transform!r}. Write [it].")
    for one in transform:
        if not callable(one):
            raise TypeError(f"A transform is callable, from batch to batch; got {one!r}.")
    return tuple(transform)


def _ahead(made: Iterator[_Made], prefetch: int) -> Generator[_Made, None, None]:
    """The same items, made in a thread up to `prefetch` ahead; closing it waits for the one under way and stops."""
    thread = ThreadPoolExecutor(1, "tensorstash-prefetch")
    waiting: deque[Future[_Made | None]] = deque()
    try:
        waiting.extend(thread.submit(next, made, None) for _ in range(prefetch))
        while (item := waiting.popleft().result()) is not None:
            waiting.append(thread.submit(next, made, None))
            yield item
            del item
    finally:
        # not shutdown(cancel_futures=True): what that needs may be gone when the interpreter exits
        for future in waiting:
            future.cancel()
        thread.shutdown()
