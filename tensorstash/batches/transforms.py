"""Where the transforms of a loader run: in its thread, before the copy to a device, or in the loop."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tensorstash.batches.loader_arguments import Transform
from tensorstash.errors import unknown
from tensorstash.transforms.cast import Cast
from tensorstash.transforms.pack import check_packs
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
    placement = contents.chain.placements[0]
    casts: dict[str, torch.dtype] = {}
    if any(map(_is_host_cast, transforms)):
        held = contents.entries()
        names = *(span.name for span in placement.shown), *placement.stash.static
        casts = _casts_on_host(transforms, {name: held[name].dtype for name in names})
    check_packs(transforms, placement.spans, [time_span.shown for time_span in placement.time_spans])
    packed = _up_to_packs(transforms)
    if packed and resident:
        raise ValueError(
            f"{type(transforms[packed - 1]).__name__} runs on the host, where the values of resident=True never are. "
            "Leave one out."
        )
    early = transforms[:packed] if staged or ahead else ()
    late = tuple(step for step in transforms[len(early) :] if not (staged and _is_host_cast(step)))
    return TransformPlan(early, casts if staged and not packed else {}, late)


def _up_to_packs(transforms: Sequence[Transform]) -> int:
    """How many transforms run on the host: all up to the last one that says so, as `ts.PackSequences` does."""
    return max((k for k, step in enumerate(transforms, 1) if getattr(step, "runs_on_host", False)), default=0)


def _casts_on_host(transforms: Sequence[Any], held: Mapping[str, torch.dtype]) -> dict[str, torch.dtype]:
    """The entries that `ts.Cast(..., on="host")` at the beginning of the transforms casts, and their new dtypes.

    `held` are the dtypes of spans and static columns.
    """
    casts: dict[str, torch.dtype] = {}
    first: Any = None  # of the transforms that run after the copy
    for transform in transforms:
        if not _is_host_cast(transform):
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


def _is_host_cast(transform: object) -> bool:
    """Whether a transform is a `ts.Cast(..., on="host")`."""
    return isinstance(transform, Cast) and transform.on == "host"
