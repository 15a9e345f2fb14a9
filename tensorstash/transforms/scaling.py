"""`(value - center) / scale` and its inverse, over tensors of windows.

Each is two operations of torch, so every processor and device rounds alike. Half types are computed in float32 and
rounded once.
"""

import math
from dataclasses import dataclass, field

import torch

from tensorstash.common.dtypes import one_nan

_TILE = 1 << 21  # numbers at a time, so few that both operations find them in the processor's cache
# for so many numbers the constants of a pack are repeated, where all windows have the same ones and by group: short
# inner loops are slow, and long rows of constants leave the cache
_ALIKE, _APART = 1024, 64
# the most numbers of a table of such constants that is kept; a larger one would not fit into the cache
_TABLE = 1 << 18


@dataclass(frozen=True, eq=False, slots=True)
class ScaleConstants:
    """A centre and a scale for each group of windows and each number of a pack, `(groups, *pack)`.

    One more group, the last, is of codes without constants: it turns all values into NaN. The tables lie on the device
    of the tensors that are scaled, because torch on CUDA divides by a number on the CPU in another way. Without groups,
    all windows share one.
    """

    center: torch.Tensor
    scale: torch.Tensor
    _ready: dict[tuple[int, bool], tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict, init=False)

    @classmethod
    def of(cls, center: torch.Tensor, scale: torch.Tensor, like: torch.Tensor) -> "ScaleConstants":
        """The constants for tensors with the dtype and device of `like`."""
        dtype = like.dtype if like.itemsize >= 4 else torch.float32
        with torch.inference_mode(False):  # constants made in inference mode cannot take part in training later
            nan, one = center.new_full((1, *center.shape[1:]), math.nan), scale.new_ones((1, *scale.shape[1:]))
            return cls(*(torch.cat(x).to(like.device, dtype) for x in ((center, nan), (scale, one))))

    def restored(self, values: torch.Tensor, group: torch.Tensor | None) -> torch.Tensor:
        """The values scaled back as a new tensor, through which gradients flow; `group` as in `scale_in_place`."""
        new = values.clone(memory_format=torch.contiguous_format)
        self.scale_in_place(new, group, inverse=True)
        return new

    def scale_in_place(self, tensor: torch.Tensor, group: torch.Tensor | None, *, inverse: bool) -> None:
        """Scale a tensor, or scale it back, in its own memory.

        Args:
            tensor: `(*windows, ..., *pack)`.
            group: `(*windows,)`, the group of each window, or of each slot; `None`: all are in the first one.
            inverse: whether to scale back.
        """
        if not tensor.is_contiguous():
            whole = tensor.contiguous()
            self.scale_in_place(whole, group, inverse=inverse)
            tensor.copy_(whole)
        elif tensor.numel():
            tile = _TILE if tensor.is_cpu and not tensor.requires_grad else tensor.numel()
            if group is None:
                center, scale = self._repeated(_ALIKE, grouped=False)
                step = max(1, tile // center.shape[1]) * center.shape[1]
                for start in range(0, tensor.numel(), step):
                    _scale_rows(tensor.view(1, -1)[:, start : start + step], center, scale, inverse)
                return
            groups = group.reshape(-1).to(tensor.device)
            windows = tensor.view(len(groups), -1)
            step = max(1, tile // windows.shape[1])
            for start in range(0, len(windows), step):
                some = slice(start, start + step)
                _scale_rows(windows[some], *self._of_groups(groups[some], min(_APART, windows.shape[1])), inverse)

    @property
    def items(self) -> int:
        """The number of numbers of a pack."""
        return math.prod(self.center.shape[1:])

    def _repeated(self, numbers: int, *, grouped: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Centre and scale of each group, or of the first, `(groups, width)`: for a pack repeated to some `numbers`."""
        key = numbers, grouped
        if key not in self._ready:
            times, groups = -(-numbers // self.items) if self.items > 1 else 1, len(self.center) if grouped else 1
            shape = groups, times, self.items
            with torch.inference_mode(False):
                flat = (x[:groups].reshape(groups, 1, self.items) for x in (self.center, self.scale))
                center, scale = (x.expand(shape).reshape(groups, -1) for x in flat)
            self._ready[key] = center, scale
        return self._ready[key]

    def _of_groups(self, group: torch.Tensor, numbers: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Centre and scale of each window, `(windows, width)`."""
        if len(self.center) * max(numbers, self.items) <= _TABLE:
            center, scale = self._repeated(numbers, grouped=True)
            return center.index_select(0, group), scale.index_select(0, group)
        chosen = ScaleConstants(*(x.index_select(0, group) for x in (self.center, self.scale)))
        return chosen._repeated(numbers, grouped=True)


def _scale_rows(rows: torch.Tensor, center: torch.Tensor, scale: torch.Tensor, inverse: bool) -> None:
    """Scale `(rows, numbers)` by constants `(rows, width)` that come again and again."""
    count, width = len(rows), center.shape[1]
    whole = rows.shape[1] - rows.shape[1] % width
    if whole:
        _scale(rows[:, :whole].view(count, -1, width), center[:, None], scale[:, None], inverse)
    if rest := rows.shape[1] - whole:
        _scale(rows[:, whole:], center[:, :rest], scale[:, :rest], inverse)


def _scale(values: torch.Tensor, center: torch.Tensor, scale: torch.Tensor, inverse: bool) -> None:
    wide = values if values.dtype == center.dtype else values.to(center.dtype)
    if inverse:
        wide.mul_(scale).add_(center)
    else:
        wide.sub_(center).div_(scale)
    if wide is not values:
        one_nan(values.copy_(wide))
