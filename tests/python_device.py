"""A device of torch written in Python: a back-end that computes on the CPU. It cannot be unregistered.

It has its own name, refuses what is not on it, as a device does, and has neither pinned memory nor streams. A view in
another dtype loses the tensor that it stands for: columns of integers only can be resident there.
"""

from typing import Any

import torch
from torch.utils import backend_registration
from torch.utils._pytree import tree_map_only

NAME = "clerk"
OPERATIONS: set[str] = set()  # that were called there


class Clerk(torch.Tensor):
    """A tensor on the device, which holds the CPU tensor that it stands for."""

    own: torch.Tensor

    @staticmethod
    def holding(own: torch.Tensor) -> "Clerk":
        made: Any = torch._C._acc.create_empty_tensor(tuple(own.shape), own.dtype)
        made.__class__ = Clerk
        made.own = own.contiguous()  # torch takes it to be so, and to begin where its memory begins
        assert isinstance(made, Clerk)
        return made


def _empty(size: Any, stride: Any = None, *, dtype: Any = None, **options: Any) -> Clerk:
    if options.get("pin_memory"):
        raise RuntimeError("this device has no pinned memory")
    return Clerk.holding(torch.empty(tuple(size), dtype=dtype))


def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    there, here = (one.own if isinstance(one, Clerk) else one for one in (target, source))
    there.copy_(here)
    return target


def _computed(operation: Any, *arguments: Any, **options: Any) -> Any:
    """Any other operation, for which all tensors must be on the device."""
    OPERATIONS.add(operation.__name__)

    def own(tensor: torch.Tensor) -> torch.Tensor:
        if not isinstance(tensor, Clerk) and tensor.ndim:
            raise RuntimeError(f"{operation}: expected all tensors to be on the same device")
        return tensor.own if isinstance(tensor, Clerk) else tensor

    if "device" in options:
        options["device"] = "cpu"
    found = operation(*tree_map_only(torch.Tensor, own, arguments), **tree_map_only(torch.Tensor, own, options))
    return tree_map_only(torch.Tensor, Clerk.holding, found)


def _as_strided(tensor: Clerk, size: Any, stride: Any, offset: int = 0) -> Clerk:
    return Clerk.holding(tensor.own.as_strided(size, stride, tensor.own.storage_offset() + offset))


def register() -> Any:
    """Make the device known to torch. It works as long as what is returned lives."""
    backend_registration._setup_privateuseone_for_python_backend(NAME)
    made: Any = torch.library.Library
    library, rest = made("aten", "IMPL"), made("_", "IMPL")
    library.impl("empty.memory_format", lambda size, **options: _empty(size, **options), "PrivateUse1")
    library.impl("empty_strided", _empty, "PrivateUse1")
    library.impl("_copy_from", _copy_from, "PrivateUse1")
    library.impl("as_strided", _as_strided, "PrivateUse1")
    rest.fallback(_computed, "PrivateUse1")
    return library, rest
