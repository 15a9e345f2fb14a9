"""Pickles of a stash: a reference to its file, or between processes of one program a descriptor of it.

Importing this file registers them.
"""

import copyreg
from multiprocessing import reduction
from typing import Any

from tensorstash.errors import SegmentError
from tensorstash.segments.segment import Segment, open_saved, reattach
from tensorstash.stash.stash import Stash


def _reduce(stash: Stash) -> Any:
    segment = stash.segment
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
    stash = Stash(open_saved(path))
    if stash.segment.crc != crc:
        raise SegmentError(f"{path} was saved again since this stash was pickled. Open it again: ts.open({path!r}).")
    return stash


def _reduce_for_children(stash: Stash) -> Any:
    """`multiprocessing` hands over a descriptor of the same memory or file."""
    segment = stash.segment
    return _receive, (reduction.DupFd(segment.fd), segment.path, segment.label, segment.strict)


def _receive(descriptor: Any, path: str | None, label: str | None, strict: bool) -> Stash:
    return Stash(Segment(descriptor.detach(), path, label, strict))


copyreg.pickle(Stash, _reduce)
reduction.ForkingPickler.register(Stash, _reduce_for_children)
