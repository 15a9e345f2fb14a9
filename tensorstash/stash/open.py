"""A stash that exists already, in a file or, by `ts.attach`, in shared memory."""

import os

import tensorstash.stash.pickles  # noqa: F401  whoever gets a stash may pickle it
from tensorstash.common.checks import flag, path_of
from tensorstash.segments.segment import attach_newest, open_saved
from tensorstash.stash.stash import Stash


def open_stash(path: str | os.PathLike[str]) -> Stash:
    """Map a stash that `stash.save` wrote; `ts.open` says more."""
    return Stash(open_saved(os.path.abspath(path_of(path, "path"))))


def attach(label: str, *, strict: bool = False) -> Stash:
    """Attach the newest shared stash of a label, in milliseconds whatever its size.

    Args:
        label: the label given as `share=`, or to `stash.share`.
        strict: map the memory read-only. A write into a tensor then ends the process (SIGSEGV), which finds such writes
            with `python -X faulthandler`.

    Raises:
        SegmentError: the label does not exist, or its segment is damaged. ValueError: `label` is not a label.

    Example:
        >>> import tensorstash as ts
        >>> loaded = ts.load({"y": [1.0, 2.0]}, share="example-attach")
        >>> ts.attach("example-attach")["y"], len(ts.shared.remove("example-attach"))
        (tensor([1., 2.], dtype=torch.float64), 1)
    """
    return Stash(attach_newest(label, flag(strict, "strict")))
