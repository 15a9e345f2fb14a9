"""Where the transforms of a loader run: in its thread, before the copy to a device, or in the loop.

A transform says by attributes what a loader must know of it, all of which it may lack: `runs_on_host`,
`whole_windows` and `packed_spans`. So the transform of a guest is treated as one of this package.
"""

from collections.abc import Sequence

from tensorstash.batches.loader_arguments import Transform
from tensorstash.transforms.entries import check_whole


def early_and_late(
    transforms: tuple[Transform, ...], *, ahead: bool, resident: bool
) -> tuple[tuple[Transform, ...], tuple[Transform, ...]]:
    """The transforms of a loader that run where batches are made, and those that run in the loop.

    Args:
        transforms: all of them, in their order.
        ahead: whether batches are made before the loop asks for them: by a thread, or to be copied to a device.
        resident: whether they are gathered on the device.
    """
    _check_packs(transforms)
    host = max((k for k, step in enumerate(transforms, 1) if getattr(step, "runs_on_host", False)), default=0)
    if host and resident:
        raise ValueError(
            f"{type(transforms[host - 1]).__name__} runs on the host, where the values of resident=True never are. "
            "Leave one out."
        )
    early = host if ahead else 0
    return transforms[:early], transforms[early:]


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
