"""Columns in the memory of a device, one copy per process for all loaders over a stash, and windows gathered from them.

The host computes which windows a few steps hold, and what follows from
their ids, and sends these integers ahead. The values are gathered in the thread and the stream of the loop, when it
asks for a batch: they wait for nothing but the integers, and their memory belongs to the stream that uses it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.batches.contents import Batch
from tensorstash.batches.devices import module_of
from tensorstash.batches.host import Made
from tensorstash.batches.staging import Sent, Staging
from tensorstash.batches.variates_on_device import DeviceRows, gather_variates, rows_on_host
from tensorstash.common.dtypes import Int32s, as_integers
from tensorstash.common.text import size_text
from tensorstash.errors import NoMemoryError
from tensorstash.gather.by_torch import Sources, TorchPlan
from tensorstash.gather.computed import ComputedValues, computed_values
from tensorstash.gather.gather import GatherPlan, compile_plan, gather
from tensorstash.gather.memory import Memory
from tensorstash.gather.rows import InSlots, Picked, Stretches
from tensorstash.gather.variates import variate_plans
from tensorstash.sampling.steps import Steps
from tensorstash.segments.limits import Limit, check_free, memory_limits
from tensorstash.segments.segment import Block
from tensorstash.stash.stash import Stash
from tensorstash.windows.located import Located
from tensorstash.windows.placement import Chain
from tensorstash.windows.time_spans import KNOWN_TIMES, ROW_TIMES

_RULE = "With resident=True the columns of the spans are held in the memory of the device"
# names that no entry of a batch has
_ANCHORS, _STRETCH, _ORDER, _STATIC, _SKIPS = ".anchors", ".stretch ", ".order", ".static", ".skips "
_REMEDY = "Leave resident=True out, or load fewer columns or a narrower dtype."

Columns = dict[str, torch.Tensor]  # (rows, ...)

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
        rows = _rows_of(stash, name)
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
    column = stash.time if name == ROW_TIMES else stash.known if name == KNOWN_TIMES else stash[name]
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


@dataclass(frozen=True, slots=True)
class _OnDevice:
    """The integers of a few steps on their way to the device."""

    source: Int32s | None  # (steps, batch) on the host: the stash of each window, ascending in each step
    integers: Batch  # (steps * batch,) each, on the device
    sent: Sent


@dataclass(frozen=True, slots=True)
class _Ungathered:
    """A batch that the loop gathers."""

    columns: "ResidentColumns"
    located: Located  # its windows
    step: int
    on_device: _OnDevice
    computed: list[ComputedValues]
    picked: Sequence[torch.Tensor]  # the rows of each span in time whose rows do not follow each other
    rows: list[DeviceRows]  # of each `ts.each`
    sent: Sent | None  # the tensors of all three, if there are any

    def complete(self) -> Batch:
        """Gather the batch."""
        for sent in (self.on_device.sent, self.sent):
            if sent is not None:
                sent.wait()
        return _gathered(self)


class ResidentColumns:
    """All that the batches of a loader are gathered from, in the memory of its device."""

    def __init__(self, chain: Chain, device: torch.device) -> None:
        device = torch.empty(0, device=device).device  # with its number
        self.chain = chain
        parts = chain.spans_and_memories()
        stashes = [stash for of_part in chain.stashes() for stash in of_part]
        columns = [[span.column for span in spans] for spans, memories in parts for _ in memories]
        apart = [*dict.fromkeys(name for plan in chain.variates for name in plan.variates.columns)]
        packs = [(placement.stash, apart) for placement in chain.placements]
        self.columns = resident([*zip(stashes, columns), *packs], device)
        held = iter(self.columns)
        self.plans = [
            compile_plan(
                spans, [_on_device(memory, next(held)) for memory in memories], together=False, by_kernel=False
            )
            for spans, memories in parts
        ]
        self.static = {name: as_integers(tensor).to(device, copy=True) for name, tensor in chain.static.items()}
        memories = [_on_device(placement.memory, next(held)) for placement in chain.placements]
        self.variates = variate_plans(chain.placements[0].spans, memories, by_kernel=False)
        # columns may be freed with the loader, when the device still gathers from them
        used = [*self.static.values(), *_tensors([*self.plans, *(variates.gather for variates in self.variates)])]
        self.memory = [*{tensor.untyped_storage().data_ptr(): tensor for tensor in used}.values()]


def resident_batches(
    columns: ResidentColumns, groups: Iterable[tuple[Steps, Located]], integers: Staging, values: Staging
) -> Iterator[Made]:
    """The batches of all steps, one by one, which the loop gathers.

    Staging memory for the integers of a few steps, and for what the host computes for a batch.
    """
    for steps, located in groups:
        on_device = _sent(columns, located, len(steps.ids), integers)
        for step in range(len(steps.ids)):
            some = range(step, step + 1)
            of_step = located.of(steps.windows(some))
            yield steps, some, [_ungathered(columns, of_step, step, on_device, values)]


def _sent(columns: ResidentColumns, located: Located, steps: int, staging: Staging) -> _OnDevice:
    """Send the integers of steps."""
    source, skips = located.source, located.skips
    integers: dict[str, NDArray[np.generic]] = {**located.entries, _ANCHORS: located.anchors}
    for k, part in enumerate(located.stretches):
        arrays = part if isinstance(part, Stretches) else (part.origin,)
        integers |= {f"{_STRETCH}{k}.{number}": array for number, array in enumerate(arrays)}
    if source is not None:
        source = source.reshape(steps, -1)
        order = np.argsort(source, axis=1, kind="stable")
        source = np.take_along_axis(source, order, 1)
        integers[_ORDER] = order.reshape(-1)
    integers |= {f"{_SKIPS}{draw}": of_draw for draw, of_draw in enumerate(() if skips is None else skips)}
    if located.static_rows is not None:
        integers[_STATIC] = located.static_rows
    # a copy, because some are read-only views of one row
    flat = [torch.from_numpy(np.array(values)) for values in integers.values()]
    sent = staging.copy_in(flat, columns.memory)
    return _OnDevice(source, dict(zip(integers, sent.tensors)), sent)


def _ungathered(
    columns: ResidentColumns, located: Located, step: int, on_device: _OnDevice, staging: Staging
) -> _Ungathered:
    """The batch of a step, after what the host computes for it was sent."""
    chain, rows = columns.chain, InSlots(located.anchors, located.skips)
    every = [one for plan in columns.plans for one in plan.computed]
    computed = [values for one in every for values in computed_values(one, located.source, rows)]
    picked = [torch.from_numpy(found.rows) for found in chain.in_time(located) if isinstance(found, Picked)]
    of_variates = [rows_on_host(plan, located) for plan in columns.variates]
    values = [tensor for one in computed for tensor in (one.at, one.values)]
    values += [tensor for of_plan in of_variates for tensor in of_plan.tensors]
    sent = staging.copy_in(picked + values) if picked or values else None
    if sent is not None:
        left = iter(sent.tensors)
        picked = [*islice(left, len(picked))]
        computed = [replace(one, at=next(left), values=next(left)) for one in computed]
        of_variates = [one.received(left) for one in of_variates]
    return _Ungathered(columns, located, step, on_device, computed, picked, of_variates, sent)


def _gathered(of: _Ungathered) -> Batch:
    """Gather a batch, in the thread and the stream of the loop."""
    columns, located, source = of.columns, of.located, of.on_device.source
    count = len(located.ids)
    among = slice(of.step * count, (of.step + 1) * count)
    integers = {name: values[among] for name, values in of.on_device.integers.items()}
    skips = [values for name, values in integers.items() if name.startswith(_SKIPS)]
    stretches, picked = list[Stretches | Picked](), iter(of.picked)
    for k, part in enumerate(located.stretches):
        of_part = [values for name, values in integers.items() if name.startswith(f"{_STRETCH}{k}.")]
        stretches.append(Stretches(*of_part) if isinstance(part, Stretches) else Picked(next(picked), *of_part))
    slots = InSlots(integers[_ANCHORS], torch.stack(skips) if skips else None)
    rows = [slots, *stretches] if columns.chain.has_slots else [*stretches]
    sources = _sources(None if source is None else source[of.step], integers.get(_ORDER))
    batch = gather(columns.plans, sources, rows, of.computed)
    for name, tensor in columns.static.items():
        batch[name] = _typed(tensor.index_select(0, integers[_STATIC]), columns.chain.static[name].dtype)
    for name in located.entries:
        batch[name] = integers[name].clone()  # a view would keep the values of all steps
    for variates, of_variates in zip(columns.variates, of.rows):
        batch |= gather_variates(variates, of_variates)
    return batch


def _on_device(memory: Memory, held: Columns) -> Memory:
    """The same memory on the device, where each column lies by itself."""

    def blocks() -> list[Block]:
        return [Block(as_integers(column).view(-1), (name,), len(column)) for name, column in held.items()]

    return Memory(held, blocks, memory.filling)


def _tensors(plans: Sequence[GatherPlan]) -> list[torch.Tensor]:
    """All memory on the device from which plans gather."""
    executors = [plan.executor for plan in plans if isinstance(plan.executor, TorchPlan)]
    return [tensor for executor in executors for tensor in executor.tensors()]


def _sources(source: Int32s | None, order: torch.Tensor | None) -> Sources:
    """The stashes of a step, whose numbers ascend in the `order` of its windows, and the windows of each."""
    if source is None or order is None:
        return [(0, None)]
    edges = [0, *(np.flatnonzero(np.diff(source)) + 1).tolist(), len(source)]
    return [(int(source[start]), order[start:stop]) for start, stop in pairwise(edges)]


def _typed(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return values if values.dtype == dtype else values.view(dtype)
