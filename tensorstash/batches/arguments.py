"""The arguments of a `Loader`, checked."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tensorstash.common.checks import is_listed, shown
from tensorstash.errors import unknown
from tensorstash.sampling.several import Several
from tensorstash.transforms.cast import Cast
from tensorstash.transforms.pack import PackSequences
from tensorstash.transforms.scaler import Scaler
from tensorstash.windows.windows import Windows

Transform = Callable[[dict[str, torch.Tensor]], Any]  # each but the last returns the batch


def check_windows(windows: object) -> None:
    """Refuse anything but windows, and windows that are empty."""
    if not isinstance(windows, (Windows, Several)):
        raise TypeError(f"dataset must be ts.Windows(stash, ...) or a ts.Mix of them, got a {type(windows).__name__}.")
    if not len(windows):
        raise ValueError("dataset must hold at least one window, got none. See the cuts of split().")


def callables(transform: Sequence[Transform]) -> tuple[Transform, ...]:
    """The transforms of `transform=`."""
    if callable(transform):
        raise TypeError(f"transform must be a list of callables, got {shown(transform)}. Write [...] around it.")
    if not is_listed(transform):
        raise TypeError(f"transform must be a list of callables, got {shown(transform)}. For none, leave it out.")
    for step in transform:
        if not callable(step):
            raise TypeError(f"A transform must be a callable that takes a batch, got {shown(step)}.")
        if isinstance(step, type) and hasattr(step, "bind"):
            raise TypeError(f"A transform must be an object, got the class {step.__name__}. Make one of it first.")
    return tuple(transform)


def before_copy(transforms: Sequence[Transform]) -> int:
    """How many transforms run on the host: all up to the last `ts.PackSequences`."""
    return max((k for k, step in enumerate(transforms, 1) if isinstance(step, PackSequences)), default=0)


def bound(transforms: Sequence[Any], windows: Windows | Several) -> tuple[Transform, ...]:
    """The transforms for these windows; those without `bind(windows)` stay what they are."""
    result = tuple(step.bind(windows) if hasattr(step, "bind") else step for step in transforms)
    scaled = Counter(span for step in result if isinstance(step, Scaler) for span in step.spans)
    if twice := [span for span, count in scaled.items() if count > 1]:
        raise ValueError(f"A span must be scaled once; {twice[0]!r} is scaled by two transforms. Leave one out.")
    return result


def scaled_by(transforms: Sequence[Transform]) -> dict[str, bool]:
    """The spans that scalers among the transforms scale."""
    return {span: True for step in transforms if isinstance(step, Scaler) for span in step.spans}


def casts_on_host(transforms: Sequence[Any], held: Mapping[str, torch.dtype]) -> dict[str, torch.dtype]:
    """The entries that `ts.Cast(..., on="host")` at the beginning of the transforms casts, and their new dtypes.

    `held` are the dtypes of spans and static columns.
    """
    casts: dict[str, torch.dtype] = {}
    first: Any = None  # of the transforms that run after the copy
    for transform in transforms:
        if not on_host(transform):
            first = transform if first is None else first
            continue
        if first is not None:
            raise ValueError(
                f"A cast on the host must be the first transform, because it precedes the copy; {transform!r} comes "
                f"after {first!r}. Put it first."
            )
        for name, dtype in transform.dtypes.items():
            if name not in held:
                raise unknown(name, held, "the batch", "span")
            transform.check(name, held[name])
            if name in casts or dtype.itemsize >= held[name].itemsize:
                raise ValueError(
                    f"A cast on the host must make a span smaller, once, got {name!r} from "
                    f"{casts.get(name, held[name])} to {dtype}. Leave out on='host'."
                )
            casts[name] = dtype
    return casts


def on_host(transform: object) -> bool:
    """Whether a transform is such a cast."""
    return isinstance(transform, Cast) and transform.on == "host"
