"""Where the transforms of a loader run: in its thread, before the copy to a device, or in the loop.

A transform says by attributes what a loader must know of it, all of which it may lack: `runs_on_host`, `host_casts`,
`whole_windows` and `packed_spans`. So the transform of a guest is treated as one of this package.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from tensorstash.batches.loader_arguments import Transform
from tensorstash.errors import unknown
from tensorstash.transforms.cast import check_cast
from tensorstash.transforms.entries import check_whole
from tensorstash.windows.contents import Contents


@dataclass(frozen=True, slots=True)
class TransformPlan:
    """The transforms of a loader by where they run."""

    early: tuple[Transform, ...]  # where batches are made: before the copy, or in the thread
    casts: Mapping[str, torch.dtype]  # the entries that are written in another dtype before the copy
    late: tuple[Transform, ...]  # in the loop


def plan_transforms(
    transforms: tuple[Transform, ...], contents: Contents, *, staged: bool, ahead: bool, resident: bool
) -> TransformPlan:
    """Decide where each transform of a loader runs.

    Args:
        transforms: all of them, in their order.
        contents: of the windows that are sampled.
        staged: whether batches are copied to a device.
        ahead: whether a thread makes them.
        resident: whether they are gathered on the device.
    """
    casts = _casts_on_host(transforms, contents)
    _check_packs(transforms)
    host = max((k for k, step in enumerate(transforms, 1) if getattr(step, "runs_on_host", False)), default=0)
    if host and resident:
        raise ValueError(
            f"{type(transforms[host - 1]).__name__} runs on the host, where the values of resident=True never are. "
            "Leave one out."
        )
    early = transforms[:host] if staged or ahead else ()
    late = tuple(step for step in transforms[len(early) :] if not (staged and _casts_of(step)))
    return TransformPlan(early, casts if staged and not host else {}, late)


def _casts_of(transform: Transform) -> Mapping[str, torch.dtype]:
    """The new dtypes of the entries that a transform casts before the copy, as `ts.Cast(..., on="host")` does."""
    return getattr(transform, "host_casts", {})


def _check_packs(transforms: Sequence[Transform]) -> None:
    """Refuse to pack a span twice, or before a transform that must see whole windows."""
    packed = set[str]()
    for transform in transforms:
        whole = getattr(transform, "whole_windows", ())
        check_whole({f"{name}.offsets": None for name in packed}, whole, type(transform).__name__)
        for name in getattr(transform, "packed_spans", ()):
            if name in packed:
                raise ValueError(f"A span must be packed once; {name!r} is packed twice. Leave out one transform.")
            packed.add(name)


def _casts_on_host(transforms: Sequence[Transform], contents: Contents) -> dict[str, torch.dtype]:
    """The entries that transforms cast before the copy, and their new dtypes; such transforms come first."""
    if not any(map(_casts_of, transforms)):
        return {}
    placement, empty = contents.chain.placements[0], contents.batch([])
    names = *(span.name for span in placement.shown), *placement.stash.static
    held = {name: empty[name].dtype for name in names}
    casts: dict[str, torch.dtype] = {}
    first: Transform | None = None  # of the transforms that run after the copy
    for transform in transforms:
        new = _casts_of(transform)
        first = transform if first is None and not new else first
        if new and first is not None:
            raise ValueError(
                f"A cast on the host must be the first transform, because it precedes the copy; {transform!r} comes "
                f"after {first!r}. Put it first."
            )
        for name, dtype in new.items():
            if name not in held:
                raise unknown(name, held, "the batch", "span")
            check_cast(name, held[name], dtype)
            if name in casts or dtype.itemsize >= held[name].itemsize:
                raise ValueError(
                    f"A cast on the host must make a span smaller, once, got {name!r} from "
                    f"{casts.get(name, held[name])} to {dtype}. Leave out on='host'."
                )
            casts[name] = dtype
    return casts
