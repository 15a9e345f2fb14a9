"""`value * factor + shift` over tensors of windows, in place in one pass over their memory, or as a fresh tensor."""

from dataclasses import dataclass, field

import torch

_TILED_SLOTS = 4  # by group: how many slots of a pack share one tiled row of constants


@dataclass(frozen=True, eq=False, slots=True)
class Affine:
    """A factor and a shift for each group of windows and each number of a pack, in the dtype of what they are used on.

    A tensor is `(windows..., slots, *pack)`, and `group` holds the group of each window. Without `group` all windows
    take the constants of group 0.
    """

    factor: torch.Tensor  # (groups, *pack)
    shift: torch.Tensor  # (groups, *pack)
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
