"""Columns in the memory of a device: one copy per process, which all loaders over the same stash share."""

from collections.abc import Iterable, Mapping
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import torch

from tensorstash.batches.devices import module_of
from tensorstash.common.dtypes import as_integers
from tensorstash.errors import NoMemoryError
from tensorstash.segments.limits import Limit, check_free, memory_limits
from tensorstash.stash.stash import Stash

_RULE = "With resident=True the columns of the spans are held in the memory of the device"
_REMEDY = "Leave resident=True out, or load fewer columns or a narrower dtype."

Columns = dict[str, torch.Tensor]  # (rows, items of a row) integers of the column's width

# a copy lives as long as a loader that gathers from it
_held: WeakKeyDictionary[Stash, WeakValueDictionary[tuple[str, torch.device], torch.Tensor]] = WeakKeyDictionary()
_lock = Lock()


def resident(needed: Iterable[tuple[Stash, Iterable[str]]], device: torch.device) -> list[Columns]:
    """The columns of each stash on the device; those that are not there yet are copied, if there is room for all."""
    with _lock:
        wanted = [(stash, [*dict.fromkeys(names)]) for stash, names in needed]
        missing = {(stash, name): stash[name].nbytes for stash, names in wanted for name in names}
        for stash, name in [*missing]:
            if (name, device) in _held.setdefault(stash, WeakValueDictionary()):
                del missing[stash, name]
        if missing:
            check_free(sum(missing.values()), _limits(device), _RULE, _who(missing), _REMEDY)
        return [{name: _column(stash, name, device) for name in names} for stash, names in wanted]


def _column(stash: Stash, name: str, device: torch.device) -> torch.Tensor:
    held = _held[stash].get((name, device))
    if held is None:
        rows = as_integers(stash[name]).view(stash.rows, -1)
        try:
            held = rows.to(device, copy=True)
        except RuntimeError as error:  # a device that cannot tell how much is free
            if "out of memory" not in str(error):
                raise
            needed = f"{name!r} needs {rows.nbytes / 1e6:,.0f} MB, and {device} is out of memory"
            raise NoMemoryError(f"{_RULE}; {needed}. {_REMEDY}") from error
        _held[stash][name, device] = held
    return held


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
