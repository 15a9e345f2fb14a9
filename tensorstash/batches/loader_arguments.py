"""The arguments of a `Loader`, checked."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tensorstash.common.checks import bound_anew, is_listed, shown
from tensorstash.common.text import type_text
from tensorstash.common.warn import warn
from tensorstash.sampling.several import Several
from tensorstash.transforms.bound import check_unscaled
from tensorstash.windows.windows import Windows

Transform = Callable[[dict[str, torch.Tensor]], Any]  # each but the last returns the batch


def check_windows(windows: object) -> None:
    """Refuse anything but windows, and windows that are empty; warn of shards that are uneven."""
    if not isinstance(windows, (Windows, Several)):
        raise TypeError(
            f"dataset must be ts.Windows(stash, ...), one part of a split, or a ts.Mix of several, got "
            f"{type_text(windows)}.{_remedy(windows)}"
        )
    if not len(windows):
        raise ValueError(
            "dataset must hold at least one window, got none. If it is a part of others, see its cuts; if it is "
            "windows.on(stash), see latest(), the window that follows the rows."
        )
    if isinstance(windows, Several) and windows.warning is not None:
        warn(windows.warning)


def _remedy(given: object) -> str:
    """What to write in place of something of PyTorch that is made of windows: a `Subset`, or a loader."""
    if not isinstance(getattr(given, "dataset", None), (Windows, Several)):
        return ""
    if hasattr(given, "indices"):
        return " Write ts.Loader(subset.dataset, ..., order=subset.indices), or make parts with windows.split()."
    return " Give ts.Loader its dataset."


def callables(transform: Sequence[Transform]) -> tuple[Transform, ...]:
    """The transforms of `transform=`."""
    if callable(transform) or not is_listed(transform):
        remedy = "Write [...] around it." if callable(transform) else "For none, leave it out."
        raise TypeError(f"transform must be a list of callables, got {shown(transform)}. {remedy}")
    for step in transform:
        if not callable(step):
            raise TypeError(f"A transform must be a callable that takes a batch, got {shown(step)}.")
        if isinstance(step, type) and (hasattr(step, "bind") or step.__module__.startswith("tensorstash.")):
            raise TypeError(f"A transform must be an object, got the class {step.__name__}. Make one of it first.")
    return tuple(transform)


def bound(transforms: Sequence[Any], windows: Windows | Several) -> tuple[Transform, ...]:
    """The transforms for these windows; those without `bind(windows)` stay what they are."""
    result = tuple(bound_anew(step, windows) if hasattr(step, "bind") else step for step in transforms)
    for given, made in zip(transforms, result):
        if not callable(made):
            raise TypeError(f"bind(windows) of a transform must return a callable; {given!r} returned {made!r}.")
    scaled = Counter(span for step in result for span in getattr(step, "scaled_spans", ()))
    if twice := [span for span, count in scaled.items() if count > 1]:
        raise ValueError(f"A span must be scaled once; {twice[0]!r} is scaled by two transforms. Leave one out.")
    for placement in windows.contents.chain.placements:
        check_unscaled(placement.stash, placement.stash.static.keys() & scaled.keys())
        for span, stash in placement.spans_and_stashes:
            check_unscaled(stash, span.columns if span.name in scaled else ())
    return result
