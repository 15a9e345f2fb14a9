"""`value * factor + shift` over tensors of windows, in place in one pass over their memory, or as a fresh tensor.

In place it is done by the kernel, or by torch: the bits are the same. Whether torch rounds the sum once, or the product
before it too, depends on the processor and the operation, so it is tried.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import torch

from tensorstash.native import kernel, library

_TILED_SLOTS = 4  # by group: how many slots of a pack share one tiled row of constants


@dataclass(frozen=True, eq=False, slots=True)
class Affine:
    """A factor and a shift for each group of windows and each number of a pack, in the dtype of what they are used on.

    A tensor is `(windows..., slots, *pack)`, and `group` holds the group of each window. Without `group` all windows
    take the constants of group 0.
    """

    factor: torch.Tensor  # (groups, *pack), contiguous
    shift: torch.Tensor  # (groups, *pack), contiguous
    number: float  # the first factor in float64: torch.add takes its factor as a Python number
    _tiled: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)

    def fresh(self, values: torch.Tensor, group: torch.Tensor | None) -> torch.Tensor:
        """The transformed values as a new tensor, through which gradients flow; slots may have any dimensions."""
        if group is None:
            return values * self.factor[0] + self.shift[0]
        pack = self.factor.shape[1:]
        shape = (-1, *[1] * (values.ndim - 1 - len(pack)), *pack)
        factor, shift = (x.index_select(0, group).view(shape) for x in (self.factor, self.shift))
        return values * factor + shift

    def in_place(self, tensor: torch.Tensor, group: torch.Tensor | None) -> None:
        """Transform a tensor in its own memory."""
        if group is not None:
            self._by_group(tensor, group)
        elif self.factor.ndim == 1:
            torch.add(self.shift[0], tensor, alpha=self.number, out=tensor)
        elif tensor.is_contiguous():
            # over whole windows: an inner loop over the few numbers of one slot is ten times slower
            factor, shift = self._tiles(tensor.shape[-self.factor.ndim])
            flat = tensor.view(-1, factor.shape[1])
            torch.addcmul(shift, flat, factor, out=flat)
        else:
            torch.addcmul(self.shift[0], tensor, self.factor[0], out=tensor)

    def _by_group(self, tensor: torch.Tensor, group: torch.Tensor) -> None:
        time, pack, index = group.ndim, self.factor.shape[1:], group.reshape(-1).to(tensor.device)
        windows, slots = tensor.shape[:time], tensor.shape[time]
        tiles = _TILED_SLOTS if pack and tensor.is_contiguous() else 1
        factor, shift = (x.index_select(0, index).view(*windows, 1, -1) for x in self._tiles(tiles))
        if not pack:
            tensor.mul_(factor[..., 0]).add_(shift[..., 0])
            return
        tiled = slots - slots % tiles if tiles > 1 else 0
        if tiled:
            flat = tensor.narrow(time, 0, tiled).view(*windows, tiled // tiles, -1)
            torch.addcmul(shift, flat, factor, out=flat)
        rest = tensor.narrow(time, tiled, slots - tiled)
        factor, shift = (x[..., : pack.numel()].view(*windows, 1, *pack) for x in (factor, shift))
        torch.addcmul(shift, rest, factor, out=rest)

    def _tiles(self, slots: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Factor and shift `(groups, slots * numbers)`: the constants of a pack repeated for each slot."""
        if slots not in self._tiled:
            factor, shift = (x.reshape(len(x), -1).repeat(1, slots) for x in (self.factor, self.shift))
            self._tiled[slots] = factor, shift
        return self._tiled[slots]


def in_place(parts: Sequence[tuple[Affine, torch.Tensor]], group: torch.Tensor | None) -> None:
    """Transform tensors of the same windows in their own memory."""
    windows = 1 if group is None else group.numel()
    if group is not None and parts:
        _check_group(group, min(len(affine.factor) for affine, _ in parts))
    described, written = [], []
    for affine, tensor in parts:
        once = _rounds_once(affine, tensor, group)
        if once is None:
            affine.in_place(tensor, group)
        else:
            described.append(_part(affine, tensor, windows, once))
            written.append(tensor)
    if written:
        index = None if group is None else np.ascontiguousarray(group.numpy(), np.int64)
        kernel.scale(described, index, windows, min(len(affine.factor) for affine, _ in parts))
        for tensor in written:  # torch 2.4 takes one at a time
            torch.autograd.graph.increment_version(tensor)


def _check_group(group: torch.Tensor, groups: int) -> None:
    """Refuse entities without constants; on a device that would wait for all that is queued there."""
    if group.is_cpu and group.numel():
        low, high = (int(value) for value in group.aminmax())
        if low < 0 or high >= groups:
            raise IndexError(
                f"A scaler by entity has constants for the entities 0 to {groups - 1}; the batch has entity "
                f"{low if low < 0 else high}. Fit the scaler on a stash with all entities."
            )


def _part(affine: Affine, tensor: torch.Tensor, windows: int, once: bool) -> kernel.Part:
    items = affine.factor.numel() // len(affine.factor)
    addresses = tensor.data_ptr(), affine.factor.data_ptr(), affine.shift.data_ptr()
    return kernel.Part(*addresses, tensor.numel() // (windows * items), items, tensor.itemsize, once)


def _rounds_once(affine: Affine, tensor: torch.Tensor, group: torch.Tensor | None) -> bool | None:
    """How the kernel gets the bits of torch; `None` where it cannot, or does not know the tensor."""
    if library.LIBRARY is None or type(tensor) is not torch.Tensor or tensor.dtype not in _PROBES:
        return None
    if not tensor.is_cpu or tensor.requires_grad or not tensor.is_contiguous() or not tensor.numel():
        return None
    if group is not None and (group.ndim != 1 or not group.is_cpu or len(group) != len(tensor)):
        return None
    if affine.factor.ndim == 1:
        return _sum_rounds_once(tensor.dtype) if group is None else False
    return _product_rounds_once(tensor.dtype)


# x * x + (-1 - 2 * (x - 1)) is 0 if the product is rounded first, and else what was rounded off
_PROBES = {torch.float32: 2.0**-12, torch.float64: 2.0**-27}
_PROBED = 67  # whole vectors of any processor, and a rest


def _probe(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    bit = _PROBES[dtype]
    return torch.full((_PROBED,), 1 + bit, dtype=dtype), torch.full((_PROBED,), -1 - 2 * bit, dtype=dtype)


@cache
def _sum_rounds_once(dtype: torch.dtype) -> bool | None:
    x, shift = _probe(dtype)
    return _all_or_none(torch.add(shift[0], x, alpha=1 + _PROBES[dtype]))


@cache
def _product_rounds_once(dtype: torch.dtype) -> bool | None:
    x, shift = _probe(dtype)
    return _all_or_none(torch.addcmul(shift, x, x))


def _all_or_none(sums: torch.Tensor) -> bool | None:
    once = sums != 0
    return bool(once.all()) if bool(once.all()) == bool(once.any()) else None
