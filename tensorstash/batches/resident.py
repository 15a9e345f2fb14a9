"""Columns in the memory of a device, one copy per process for all loaders over a stash, and windows gathered from them.

The host computes which windows a few steps hold, and what follows from their ids, and sends these integers ahead. The
values are gathered in the thread and the stream of the loop, when it asks for a batch: they wait for nothing but the
integers, and their memory belongs to the stream that uses it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
import torch

from tensorstash.batches.devices import Copies, module_of
from tensorstash.batches.host import Gathered, Pending
from tensorstash.batches.staging import Staging, Wait
from tensorstash.batches.variates_on_device import DeviceRows, gather_variates, rows_on_host
from tensorstash.common.dtypes import Int32s, as_integers
from tensorstash.common.records import arrays_of, some_of
from tensorstash.common.text import size_text
from tensorstash.errors import NoMemoryError
from tensorstash.gather.by_torch import ByComponent
from tensorstash.gather.computed import ComputedValues, computed_values
from tensorstash.gather.gather import compile_plan, gather_on_device
from tensorstash.gather.layout import Batch
from tensorstash.gather.memory import Memory
from tensorstash.gather.rows import InSlots, Picked, Rows, Stretches
from tensorstash.gather.variates import variate_plans
from tensorstash.sampling.steps import Steps
from tensorstash.segments.limits import Limit, check_free, memory_limits
from tensorstash.stash.stash import Stash
from tensorstash.windows.chain import Located
from tensorstash.windows.contents import Contents

_RULE = "With resident=True the columns of the spans are held in the memory of the device"
_REMEDY = "Leave resident=True out, or load fewer columns or a narrower dtype."
_GROUPS = 2  # of steps: one whose integers are copied, and one whose batches are being taken

# a copy lives as long as a loader that gathers from it
_held: WeakKeyDictionary[Stash, WeakValueDictionary[tuple[str, torch.device], torch.Tensor]] = WeakKeyDictionary()
_lock = Lock()


def resident(needed: Iterable[tuple[Memory, Iterable[str]]], device: torch.device) -> list[Memory]:
    """Each memory with these columns on the device; those that are missing are copied if there is room for all."""
    with _lock:
        wanted = [(memory, [*dict.fromkeys(names)]) for memory, names in needed]
        missing = {(memory.stash, name): memory.columns[name].nbytes for memory, names in wanted for name in names}
        for stash, name in [*missing]:
            if (name, device) in _held.setdefault(stash, WeakValueDictionary()):
                del missing[stash, name]
        if missing:
            who = "one column" if len(missing) == 1 else f"the sum of {len(missing):,} columns"
            check_free(sum(missing.values()), _limits(device), _RULE, who, _REMEDY)
        return [
            replace(memory, columns={name: _column(memory, name, device) for name in names}) for memory, names in wanted
        ]


def _column(memory: Memory, name: str, device: torch.device) -> torch.Tensor:
    of_stash, rows = _held[memory.stash], memory.columns[name]
    held = of_stash.get((name, device))
    if held is None:
        try:
            held = rows.to(device, copy=True)
        except RuntimeError as error:  # the device could not tell how much memory is free
            if "out of memory" not in str(error):
                raise
            needed = f"{name!r} needs {size_text(rows.nbytes)}, and {device} is out of memory"
            raise NoMemoryError(f"{_RULE}; {needed}. {_REMEDY}") from error
        of_stash[name, device] = held
    return held


def _limits(device: torch.device) -> list[Limit]:
    """What is free there; where torch cannot tell, the most that there can be."""
    if device.type == "cpu":
        return memory_limits()
    try:
        module = module_of(device)  # of CUDA, ROCm, XPU
        # the allocator keeps memory that it has reserved, and gives it to us
        kept = module.memory_reserved(device) - module.memory_allocated(device)
        free = int(module.mem_get_info(device)[0] + kept)
    except (RuntimeError, AttributeError, NotImplementedError):
        free = 1 << 62
    return [Limit(free, f"on {device}", "")]


class _Integers(NamedTuple):
    """The integers of a few steps, `(steps * batch, ...)` each."""

    rows: Sequence[Rows]  # of each plan; those that are picked have no rows yet
    order: Any  # of the windows of each step, in which their components ascend; `None`: there is only one
    static_rows: Any
    entries: dict[str, Any]


class _Values(NamedTuple):
    """What the host computes for one batch."""

    picked: list[Any]  # the rows of each span in time whose rows do not follow each other
    computed: list[ComputedValues]
    variate_rows: list[DeviceRows]  # of each `ts.each`


class ResidentColumns:
    """All that the batches of a loader are gathered from, in the memory of its device, and what is sent there."""

    def __init__(self, contents: Contents, device: torch.device, copies: Copies, stages: int) -> None:
        """`stages` is for how many batches values may be computed or copied at a time."""
        self.integers, self.values = Staging(copies, _GROUPS), Staging(copies, stages)
        device = torch.empty(0, device=device).device  # with its number
        self.contents, placements = contents, contents.chain.placements
        parts = contents.spans_and_memories()
        needed = [(memory, [span.column for span in spans]) for spans, memories in parts for memory in memories]
        packs = [name for plan in contents.variate_plans for name in plan.variates.columns]
        self.memories = resident([*needed, *((placement.memory, packs) for placement in placements)], device)
        held = iter(self.memories)
        self.plans = [
            compile_plan(spans, [next(held) for _ in memories], together=False, by_kernel=False)
            for spans, memories in parts
        ]
        items = {name: torch.from_numpy(items) for name, (items, _) in contents.static.items()}
        self.static = {name: as_integers(tensor).to(device, copy=True) for name, tensor in items.items()}
        self.variate_plans = variate_plans(placements[0].slot_spans, [*held], by_kernel=False)
        # columns may be freed with the loader, when the device still gathers from them
        used = [*self.static.values()]
        for plan in (*self.plans, *(each.gather for each in self.variate_plans)):
            used += arrays_of(plan.executor)
        self.used = [*{tensor.untyped_storage().data_ptr(): tensor for tensor in used}.values()]


def resident_batches(columns: ResidentColumns, groups: Iterable[tuple[Steps, Located]]) -> Iterator[Gathered]:
    """The batches of all steps, one by one, which the loop gathers."""
    for steps, located in groups:
        component, of_steps = _integers(columns, located, len(steps.ids))
        of_steps, wait = columns.integers.copy_in(of_steps, columns.used)
        for step in range(len(steps.ids)):
            some = range(step, step + 1)
            among = steps.windows(some)
            of_step, wait_for_step = columns.values.copy_in(_values(columns, some_of(located, among)))
            of_component = None if component is None else component[step]
            waits = (wait, wait_for_step)
            pending = partial(_gathered, columns, of_component, some_of(of_steps, among), of_step, waits)
            yield steps, some, [Pending(pending)]


def _integers(columns: ResidentColumns, located: Located, steps: int) -> tuple[Int32s | None, _Integers]:
    """The component of each window, ascending in each step, `(steps, batch)`, and what is sent to the device."""
    rows: list[Rows] = [InSlots(located.anchors, located.skips)] if columns.contents.chain.has_slots else []
    rows += [part if isinstance(part, Stretches) else Picked(None, part.origin) for part in located.stretches]
    component, order = located.component, None
    if component is not None:
        component = component.reshape(steps, -1)
        order = np.argsort(component, axis=1, kind="stable")
        component, order = np.take_along_axis(component, order, 1), order.reshape(-1)
    return component, _Integers(rows, order, located.static_rows, {**located.entries})


def _values(columns: ResidentColumns, located: Located) -> _Values:
    """What the host computes for a batch."""
    rows = InSlots(located.anchors, located.skips)
    every = [one for plan in columns.plans for one in plan.computed]
    return _Values(
        picked=[found.rows for found in columns.contents.chain.rows(located) if isinstance(found, Picked)],
        computed=[values for one in every for values in computed_values(one, located.component, rows)],
        variate_rows=[rows_on_host(plan, located) for plan in columns.variate_plans],
    )


def _gathered(
    columns: ResidentColumns,
    component: Int32s | None,
    integers: _Integers,
    values: _Values,
    waits: Sequence[Wait | None],
) -> Batch:
    """Gather a batch, in the thread and the stream of the loop, once its integers and values are on the device.

    `component`, `(batch,)` on the host, is that of each window, ascending.
    """
    for wait in waits:
        if wait is not None:
            wait()
    picked = iter(values.picked)
    rows = [one._replace(rows=next(picked)) if isinstance(one, Picked) else one for one in integers.rows]
    batch = gather_on_device(columns.plans, rows, _by_component(component, integers.order), values.computed)
    for name, tensor in columns.static.items():
        found, (_, dtype) = tensor.index_select(0, integers.static_rows), columns.contents.static[name]
        batch[name] = found if found.dtype == dtype else found.view(dtype)  # not all devices view as the same type
    for name, entry in integers.entries.items():
        batch[name] = entry.clone()  # a view would keep the values of all steps
    for plan, of_plan in zip(columns.variate_plans, values.variate_rows):
        batch |= gather_variates(plan, of_plan)
    return batch


def _by_component(component: Int32s | None, order: torch.Tensor | None) -> ByComponent:
    """The components of a step, whose numbers ascend in the `order` of its windows, and the windows of each."""
    if component is None or order is None:
        return [(0, None)]
    edges = [0, *(np.flatnonzero(np.diff(component)) + 1).tolist(), len(component)]
    return [(int(component[start]), order[start:stop]) for start, stop in pairwise(edges)]
