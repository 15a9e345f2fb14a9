"""Columns in the memory of a device, one copy per process for all loaders over a stash, and windows gathered from them.

Windows are gathered with operations of torch that every device has, and not by strided views as on the host: a device
may copy such a view before it selects from it. The host computes which windows a few steps hold, and what follows from
their ids, and sends these integers ahead. The values are gathered in the thread and the stream of the loop, when it
asks for a batch: they wait for nothing but the integers, and their memory belongs to the stream that uses it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.batches.assemble import Group, OnDevice, Portion
from tensorstash.batches.buffers import Batch, Pending, Sent, Staging
from tensorstash.batches.devices import Copies, module_of
from tensorstash.batches.on_device import DevicePlan, Gathered, device_plan, gathered, tensors_of
from tensorstash.common.dtypes import Int32s, Int64s, as_integers
from tensorstash.common.forks import check_threads
from tensorstash.common.text import size_text
from tensorstash.errors import NoMemoryError
from tensorstash.gather.empty import rows_of, slots_of, taken_rows
from tensorstash.gather.span import draw_number, draws_of
from tensorstash.segments.limits import Limit, check_free, memory_limits
from tensorstash.stash.stash import Stash
from tensorstash.windows.placement import Chain, Placement
from tensorstash.windows.time_spans import ROW_TIMES

_RULE = "With resident=True the columns of the spans are held in the memory of the device"
_GROUPS = 2  # one whose integers are copied, and one whose steps are being taken
# names that no entry of a batch has
_ANCHORS, _ORDER, _STATIC, _SKIPS = ".anchors", ".order", ".static", ".skips "
_REMEDY = "Leave resident=True out, or load fewer columns or a narrower dtype."

Columns = dict[str, torch.Tensor]  # (rows, items of a row) integers of the column's width

# a copy lives as long as a loader that gathers from it
_held: WeakKeyDictionary[Stash, WeakValueDictionary[tuple[str, torch.device], torch.Tensor]] = WeakKeyDictionary()
_lock = Lock()


def resident(needed: Iterable[tuple[Stash, Iterable[str]]], device: torch.device) -> list[Columns]:
    """The columns of each stash on the device; those that are not there yet are copied, if there is room for all."""
    with _lock:
        wanted = [(stash, [*dict.fromkeys(names)]) for stash, names in needed]
        missing = {(stash, name): _rows_of(stash, name).nbytes for stash, names in wanted for name in names}
        for stash, name in [*missing]:
            if (name, device) in _held.setdefault(stash, WeakValueDictionary()):
                del missing[stash, name]
        if missing:
            check_free(sum(missing.values()), _limits(device), _RULE, _who(missing), _REMEDY)
        return [{name: _column(stash, name, device) for name in names} for stash, names in wanted]


def _column(stash: Stash, name: str, device: torch.device) -> torch.Tensor:
    held = _held[stash].get((name, device))
    if held is None:
        rows = as_integers(_rows_of(stash, name)).view(max(1, stash.rows), -1)
        try:
            held = rows.to(device, copy=True)
        except RuntimeError as error:  # the device could not tell how much memory is free
            if "out of memory" not in str(error):
                raise
            needed = f"{name!r} needs {size_text(rows.nbytes)}, and {device} is out of memory"
            raise NoMemoryError(f"{_RULE}; {needed}. {_REMEDY}") from error
        _held[stash][name, device] = held
    return held


def _rows_of(stash: Stash, name: str) -> torch.Tensor:
    """A column, or the times; of a stash of 0 rows one row, which is looked up for empty slots, but not used."""
    column = stash.time if name == ROW_TIMES else stash[name]
    assert column is not None
    return column if len(column) else column.new_zeros(1, *column.shape[1:])


def _who(missing: Mapping[Any, int]) -> str:
    return "one column" if len(missing) == 1 else f"the sum of {len(missing):,} columns"


def _limits(device: torch.device) -> list[Limit]:
    """What is free there; without a number, the most that there can be."""
    if device.type == "cpu":
        return memory_limits()
    free = free_bytes(device)
    return [Limit(1 << 62 if free is None else free, f"on {device}", "")]


def free_bytes(device: torch.device) -> int | None:
    """Bytes that can still be allocated on an accelerator; `None` where torch cannot tell."""
    try:
        module = module_of(device)
        if hasattr(module, "mem_get_info"):  # CUDA, ROCm, XPU
            # the allocator keeps memory that it has reserved, and gives it to us
            kept = module.memory_reserved(device) - module.memory_allocated(device)
            return int(module.mem_get_info(device)[0]) + int(kept)
        if hasattr(module, "recommended_max_memory"):  # MPS
            return int(module.recommended_max_memory() - module.driver_allocated_memory())
        return int(torch.accelerator.get_memory_info(device)[0])
    except (RuntimeError, AttributeError, NotImplementedError):
        return None


class _Computed(NamedTuple):
    """Values of empty slots in one span of the windows of one stash, which the host has computed."""

    part: int  # which of the stashes of the step
    span: int
    at: torch.Tensor  # (slots,) int64, among all slots of the span in these windows
    values: torch.Tensor  # (slots, items of a row)


@dataclass(frozen=True, slots=True)
class _Ungathered:
    """A batch that the loop gathers."""

    gather: Callable[["_Ungathered"], Batch]
    portion: Portion
    parts: list[tuple[int, slice]]  # each stash of the step, and its windows in the order of `OnDevice.anchors`
    computed: list[_Computed]
    sent: Sent | None  # the tensors of `computed`, if there are any

    def complete(self) -> Batch:
        """Gather the batch."""
        return self.gather(self)


class ResidentAssembler:
    """Makes the batches of a loader whose columns lie on its device."""

    def __init__(self, chain: Chain, device: torch.device, copies: Copies, stages: int) -> None:
        """`stages` is how many batches may be made before the loop has taken them."""
        self._chain = chain
        device = torch.empty(0, device=device).device  # with its number
        placements = chain.placements
        held = resident([(part.stash, _columns_of(part)) for part in placements], device)
        self.plans = [device_plan(part, columns, device) for part, columns in zip(placements, held)]
        self.static = {name: as_integers(tensor).to(device, copy=True) for name, tensor in chain.static.items()}
        # columns may be freed with the loader, when the device still gathers from them
        used = [tensor for plan in self.plans for tensor in tensors_of(plan)] + [*self.static.values()]
        self._memory = [*{tensor.untyped_storage().data_ptr(): tensor for tensor in used}.values()]
        self._integers = Staging(copies, _GROUPS)
        self._values = Staging(copies, stages)  # of computed slots
        self.copy_seconds = self._integers.copy_seconds

    def portions(self, groups: Iterator[Group]) -> Iterator[Portion]:
        """The steps one by one, because each batch is gathered when the loop asks for it."""
        for group in groups:
            on_device = self._sent(group)
            for step in range(len(on_device.anchors)):
                yield Portion(group, range(step, step + 1), on_device)

    def _sent(self, group: Group) -> OnDevice:
        """Send the integers of a group."""
        (source, _, anchors, stretches), skips = group.located, group.skips
        integers: dict[str, NDArray[np.generic]] = dict(group.extras)
        arrays = dict(zip(_of_stretches(len(stretches)), (array for part in stretches for array in part))) | {
            _ANCHORS: anchors
        }
        if source is not None:
            order = np.argsort(source, axis=1, kind="stable")
            source = np.take_along_axis(source, order, 1)
            arrays = {name: np.take_along_axis(array, order, 1) for name, array in arrays.items()}
            integers[_ORDER] = np.argsort(order, axis=1)
            skips = None if skips is None else np.take_along_axis(skips, order[:, None], 2)
        for draw in range(0 if skips is None else skips.shape[1]):
            integers[f"{_SKIPS}{draw}"] = skips[:, draw]  # type: ignore[index]
        anchors = arrays[_ANCHORS]
        integers |= arrays
        if group.static_rows is not None:
            integers[_STATIC] = group.static_rows
        # a copy, because some are read-only views of one row
        flat = [torch.from_numpy(np.array(values).reshape(-1)) for values in integers.values()]
        sent = self._integers.copy_in(flat, self._memory)
        return OnDevice(source, anchors, skips, dict(zip(integers, sent.tensors)), sent)

    def build(self, portion: Portion) -> list[Batch | Pending]:
        """The batches of a portion, which are not gathered yet."""
        assert portion.on_device is not None
        (step,), on_device = portion.steps, portion.on_device
        parts = _parts(None if on_device.source is None else on_device.source[step], portion.group.count)
        computed = [
            _Computed(number, *values)
            for number, (k, windows) in enumerate(parts)
            for values in _computed(self._chain.placements[k], self.plans[k], *on_device.of(step, windows))
        ]
        sent = None
        if computed:
            sent = self._values.copy_in([tensor for slots in computed for tensor in (slots.at, slots.values)])
            copied = zip(computed, sent.tensors[::2], sent.tensors[1::2])
            computed = [slots._replace(at=at, values=values) for slots, at, values in copied]
        return [_Ungathered(self._gather, portion, parts, computed, sent)]

    def _gather(self, pending: _Ungathered) -> Batch:
        """Gather a batch; called by the loop, in its thread."""
        if self._memory[0].is_cpu:
            check_threads()
        (step,), group, on_device = pending.portion.steps, pending.portion.group, pending.portion.on_device
        assert on_device is not None
        for sent in (on_device.sent, pending.sent):
            if sent is not None:
                sent.wait()
        of_step = slice(step * group.count, (step + 1) * group.count)
        integers = {name: values[of_step] for name, values in on_device.integers.items()}
        skips = [values for name, values in integers.items() if name.startswith(_SKIPS)]
        parts = []
        for k, windows in pending.parts:
            of_part = [integers[name][windows] for name in _of_stretches(len(self.plans[k].stretches))]
            stretches = [*zip(of_part[::3], of_part[1::3], of_part[2::3])]
            of_draws = [of_draw[windows] for of_draw in skips]
            parts.append(gathered(self.plans[k], integers[_ANCHORS][windows], stretches, of_draws))
        for number, span, at, values in pending.computed:
            target = parts[number].values[span]
            target.view(-1, target.shape[2]).index_copy_(0, at, values)
        batch = self._named(self._joined(parts, integers[_ORDER]) if _ORDER in integers else parts[0])
        for name, tensor in self.static.items():
            batch[name] = _typed(tensor.index_select(0, integers[_STATIC]), self._chain.static[name].dtype)
        for name in group.extras:
            batch[name] = integers[name].clone()  # a view would keep the values of all steps
        return batch

    def _named(self, windows: Gathered) -> Batch:
        first, plan, batch = self._chain.placements[0], self.plans[0], Batch()
        spans = [*first.spans, *(span for time_span in first.time_spans for span in time_span.spans)]
        for span, values in zip(spans, windows.values):
            column = _rows_of(first.stash, span.column)
            batch[span.name] = _typed(values, column.dtype).view(*values.shape[:2], *column.shape[1:])
        for span, on_device in zip(spans, plan.spans):
            flags = windows.observed[on_device.slots]
            if flags is not None and not span.is_distance:
                batch[f"{span.name}.observed"] = flags
        return batch

    def _joined(self, parts: list[Gathered], order: torch.Tensor) -> Gathered:
        """The windows of several stashes, in the order of the batch."""
        values = [torch.cat(of_span).index_select(0, order) for of_span in zip(*(part.values for part in parts))]
        filled = any(plan.fragments is not None for plan in self.plans)
        observed: list[torch.Tensor | None] = []
        for k in range(len(parts[0].observed)):
            if k < len(self.plans[0].slots) and not filled:
                observed.append(None)
                continue
            flags = [part.observed[k] for part in parts]
            seen = [self._all_observed(part, k) if flag is None else flag for part, flag in zip(parts, flags)]
            observed.append(torch.cat(seen).index_select(0, order))
        return Gathered(values, observed)

    def _all_observed(self, part: Gathered, slots: int) -> torch.Tensor:
        like = part.values[0]
        return torch.ones(len(like), len(self.plans[0].slots[slots]), dtype=torch.bool, device=like.device)


def _columns_of(placement: Placement) -> list[str]:
    in_time = [span.column for time_span in placement.time_spans for span in time_span.spans]
    return [*(span.column for span in placement.spans), *in_time]


def _of_stretches(count: int) -> list[str]:
    """The names of the integers of so many stretches; no entry of a batch has them."""
    return [f".{part}{k}" for k in range(count) for part in ("stop", "rows", "origin")]


def _typed(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return values if values.dtype == dtype else values.view(dtype)


def _parts(source: Int32s | None, count: int) -> list[tuple[int, slice]]:
    """Each stash of a step, and its windows; sources ascend."""
    if source is None:
        return [(0, slice(0, count))]
    edges = [0, *(np.flatnonzero(np.diff(source)) + 1).tolist(), len(source)]
    return [(int(source[start]), slice(start, stop)) for start, stop in pairwise(edges)]


def _computed(
    placement: Placement, plan: DevicePlan, anchors: Int64s, skips: Int64s | None
) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """For each span with computed values, its number, the empty slots among those of all windows, and the values."""
    filling = plan.filling
    if filling is None or not filling.computed:
        return
    rows, drawn = rows_of(filling, anchors), draws_of(placement.spans)
    for number, span in enumerate(placement.spans):
        compute = filling.computed.get(span.column)
        if compute is not None:
            of_span = taken_rows(rows, slots_of(filling, span), skips, draw_number(span, drawn))
            window, at = np.nonzero(of_span < 0)
            if len(window):
                values = compute(anchors[window] + span.start + at * span.step)
                yield number, torch.from_numpy(window * of_span.shape[1] + at), values
