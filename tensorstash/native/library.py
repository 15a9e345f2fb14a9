"""The compiled kernel: finding and loading it, and the signatures of its functions and structs."""

import ctypes
import os
import struct
import sys
from ctypes import POINTER, c_int64, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from tensorstash.common.warn import warn

_VERSION = 16  # of the functions and structs below; must equal the version in kernel.h
_SWITCH = "TENSORSTASH_NATIVE"  # 0: not used; a path: this library instead of the one beside this file
_ROUNDS = 6


class Permutation(ctypes.Structure):
    """A keyed permutation of `0..n-1`: a Feistel network over an `a` by `b` grid of at least `n` cells."""

    _fields_ = (("n", c_int64), ("a", c_int64), ("b", c_int64), ("keys", c_uint64 * _ROUNDS))


def _fields(pointers: str, integers: str) -> tuple[tuple[str, Any], ...]:
    """The fields of a struct: first the addresses, then the integers."""
    return (*((name, c_void_p) for name in pointers.split()), *((name, c_int64) for name in integers.split()))


class GuideStruct(ctypes.Structure):
    """Consecutive pieces of the numbers from 0 on, and a guide table."""

    _fields_ = _fields("records table", "count width entries shift")


class TreeStruct(ctypes.Structure):
    """The nodes of a binary tree that numbers descend."""

    _fields_ = _fields("child two_left two_weight rest ratio offset", "count")


class Shares(ctypes.Structure):
    """Weights as consecutive pieces of the numbers below 2**52, and a table of the weights at which cells begin."""

    _fields_ = _fields("ends table", "count entries shift width")


class SpanStruct(ctypes.Structure):
    """Slots of a column relative to the anchor of a window, and the bits of an item where there is no row."""

    _fields_ = (*_fields("", "start length step row_bytes item_bytes draw"), ("empty", c_uint64))


class SourceStruct(ctypes.Structure):
    """Rows that windows are taken from, and their fragments among the slots, if there are any."""

    _fields_ = (*_fields("", "rows width"), *_fields("first row count", ""), ("guide", GuideStruct))


class PlanStruct(ctypes.Structure):
    """How the spans of a window are taken from the columns of each source."""

    _fields_ = (
        ("spans", POINTER(SpanStruct)),
        *_fields("sources columns", "span_count source_count history horizon by_item streamed"),
    )


class VersionsStruct(ctypes.Structure):
    """Rows by their times, and by the times from which they were known, and the slots of a window that take them."""

    _fields_ = _fields("times known reach", "rows unit every slots spacing all")


class MomentsStruct(ctypes.Structure):
    """Of each window its rows, its stretch of time, and the first known time that is too late."""

    _fields_ = _fields("low high start stop late", "n")


class Packed(ctypes.Structure):
    """Windows whose slots with a row are moved to slots of a packed tensor, from `place` on."""

    _fields_ = _fields("mark sizes place used", "windows slots rows length")


class Rooms(ctypes.Structure):
    """Scratch memory that finds rows by their free room."""

    _fields_ = _fields("rooms first next", "")


# the windows of a call and the addresses that they are written to: anchors which places out observed skips, and then
# size draws threads; in bytes, which are made in a sixth of the time of a `Structure`
BATCH = struct.Struct("6P3q")

_ARGUMENTS = {
    "version": (),
    "find": (POINTER(GuideStruct), c_void_p, c_int64, c_void_p),
    "locate": (POINTER(GuideStruct), c_int64, c_void_p, c_int64, c_void_p, c_void_p),
    "first_rows": (c_void_p, c_int64, c_void_p, c_void_p, c_void_p, c_int64, c_void_p),
    "pick": (POINTER(VersionsStruct), POINTER(MomentsStruct), c_void_p),
    "take": (POINTER(PlanStruct), c_void_p, c_void_p),
    "permute": (c_void_p, c_int64, c_void_p, c_void_p, c_int64, c_void_p),
    "descend": (POINTER(TreeStruct), c_void_p, c_int64, c_void_p, c_void_p),
    "draw": (POINTER(Shares), c_uint64, c_uint64, c_void_p, c_int64, c_void_p),
    "gather": (POINTER(PlanStruct), c_void_p),
    "best_fit": (c_void_p, c_int64, c_int64, POINTER(Rooms), c_void_p, c_void_p),
    "count": (c_void_p, c_int64, c_int64, c_void_p),
    "pack": (POINTER(Packed), c_void_p, c_void_p, c_int64),
    "mark": (POINTER(Packed), c_void_p, c_void_p, c_void_p),
}


def load(switch: str | None) -> tuple[ctypes.CDLL | None, str]:
    """The library, or `None` if it cannot be used, and the reason. `switch` is the environment variable."""
    if switch == "0":
        return None, f"not native: {_SWITCH}=0 turns it off"
    if sys.byteorder != "little" or struct.calcsize("P") != 8:
        return None, "not native: the kernel is for little-endian machines of 64 bits"
    path = Path(switch) if switch and switch != "1" else Path(__file__).with_name("gather.so")
    if not path.exists():
        return None, f"not native: it was not compiled when this package was built ({path} is absent)"
    try:
        library = ctypes.CDLL(str(path))
        for name, arguments in _ARGUMENTS.items():
            function = getattr(library, f"tensorstash_{name}")
            function.argtypes, function.restype = arguments, c_int64
    except (OSError, AttributeError) as error:
        return None, f"not native: {error}"
    version = library.tensorstash_version()
    if version != _VERSION:
        return None, f"not native: {path} has version {version}, this package needs {_VERSION}; install it again"
    return library, f"native: {path}"


LIBRARY, _WHY = load(os.environ.get(_SWITCH))
_has_warned = {"absent": os.environ.get(_SWITCH) == "0"}  # no warning if it is off on purpose


def why() -> str:
    """A sentence that says whether the kernel is used in this process, and why.

    Example:
        >>> from tensorstash.native.library import why
        >>> why().split(":")[0] in ("native", "not native")
        True
    """
    return _WHY


def warn_of_absence() -> None:
    """Warn, once per process, that batches are gathered without the kernel, unless it was turned off."""
    if not _has_warned["absent"]:
        _has_warned["absent"] = True
        warn(
            "Batches are gathered without the compiled kernel, which may take several times as long as with it "
            f"({_WHY}). Install a wheel of tensorstash, or install it again where there is a C compiler; "
            f"{_SWITCH}=0 does without it and without this warning."
        )
