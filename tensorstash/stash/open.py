"""A stash that exists already: opened from a file, attached by its label, or received from another process."""

import copyreg
import os
from multiprocessing import reduction
from typing import Any

from tensorstash.errors import SegmentError
from tensorstash.segments.attach import attach_newest, reattach
from tensorstash.segments.segment import mapped, open_saved
from tensorstash.stash.stash import Stash


def open(path: str | os.PathLike[str]) -> Stash:  # noqa: A001  its name is ts.open
    """Map a stash that `stash.save` wrote. Values are read when they are used, so it may be larger than memory.

    The file must not be truncated or rewritten in place while it is open: values would change, and reading bytes that
    are gone ends the process (SIGBUS). `stash.save` and `os.replace` put another file in its place, which is safe.

    Raises:
        SegmentError: the file is not a whole stash. Its header is checked here, and the tables of entities and
            vocabularies by their checksums when they are first used; the values of columns have no checksum.
        FileNotFoundError: there is no such file.

    Example:
        >>> import tensorstash as ts, tempfile, os
        >>> path = os.path.join(tempfile.mkdtemp(), "small.safetensors")
        >>> ts.load({"y": [1.0, 2.0]}).save(path)
        >>> ts.open(path)["y"]
        tensor([1., 2.], dtype=torch.float64)
    """
    return Stash(open_saved(os.path.abspath(os.fsdecode(path))))


def attach(label: str, *, strict: bool = False) -> Stash:
    """Attach the newest shared stash of a label, in milliseconds whatever its size.

    Args:
        label: the label that was given as `share=`, or to `stash.share`.
        strict: map the memory read-only. A write into a tensor then ends the process (SIGSEGV) instead of making a page
            private. Use it to find such writes, with `python -X faulthandler`.

    Raises:
        SegmentError: there is no such label, or its segment is damaged. ValueError: `label` is not a label.

    Example:
        >>> import tensorstash as ts
        >>> loaded = ts.load({"y": [1.0, 2.0]}, share="example-attach")
        >>> ts.attach("example-attach")["y"], len(ts.shared.remove("example-attach"))
        (tensor([1., 2.], dtype=torch.float64), 1)
    """
    return Stash(attach_newest(label, strict))


# Pickles: a reference to the file, or between processes of one program a descriptor of it


def _reduce(stash: Stash) -> Any:
    segment = stash._segment
    if segment.label is not None:
        return _reattach, (segment.path, segment.crc, segment.strict)
    if segment.path is not None:
        return _reopen, (segment.path, segment.crc)
    raise TypeError(
        "A private stash lives in the memory of its process and cannot be pickled. Share it, stash.share(label), "
        "or save it, stash.save(path), and open it where it is needed: ts.open(path). (multiprocessing and "
        "DataLoader workers can take it as it is.)"
    )


def _reattach(path: str, crc: str, strict: bool) -> Stash:
    return Stash(reattach(path, crc, strict))


def _reopen(path: str, crc: str) -> Stash:
    stash = open(path)
    if stash._segment.crc != crc:
        raise SegmentError(f"{path} was saved again since this stash was pickled. Open it again: ts.open({path!r}).")
    return stash


def _reduce_for_children(stash: Stash) -> Any:
    """`multiprocessing` hands over a descriptor of the same memory or file."""
    segment = stash._segment
    return _receive, (reduction.DupFd(segment.fd), segment.path, segment.label, segment.strict)


def _receive(descriptor: Any, path: str | None, label: str | None, strict: bool) -> Stash:
    return Stash(mapped(descriptor.detach(), path, label, strict))


copyreg.pickle(Stash, _reduce)
reduction.ForkingPickler.register(Stash, _reduce_for_children)
