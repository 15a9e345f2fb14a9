"""The compiled kernel: finding and loading it, and the signatures of its functions and structs."""

import ctypes
import os
import struct
import sys
from ctypes import POINTER, c_int64, c_uint64, c_void_p
from pathlib import Path

_VERSION = 3  # of the functions and structs below; must equal the version in kernel.h
_SWITCH = "TENSORSTASH_NATIVE"  # 0: not used; a path: this library instead of the one beside this file
_ROUNDS = 6


class Permutation(ctypes.Structure):
    """A keyed permutation of `0..n-1`: a Feistel network over an `a` by `b` grid of at least `n` cells."""

    _fields_ = (("n", c_int64), ("a", c_int64), ("b", c_int64), ("keys", c_uint64 * _ROUNDS))


class Guide(ctypes.Structure):
    """Consecutive pieces of the numbers from 0 on, and a guide table."""

    _fields_ = (
        ("records", c_void_p),
        ("table", c_void_p),
        ("count", c_int64),
        ("width", c_int64),
        ("entries", c_int64),
        ("shift", c_int64),
    )


class Tree(ctypes.Structure):
    """The nodes of a binary tree that numbers descend."""

    _fields_ = (
        ("child", c_void_p),
        ("two_left", c_void_p),
        ("two_weight", c_void_p),
        ("rest", c_void_p),
        ("ratio", c_void_p),
        ("offset", c_void_p),
        ("count", c_int64),
    )


class Shares(ctypes.Structure):
    """Weights as consecutive pieces of the numbers below 2**52, and a table of the weights at which cells begin."""

    _fields_ = (
        ("ends", c_void_p),
        ("table", c_void_p),
        ("count", c_int64),
        ("entries", c_int64),
        ("shift", c_int64),
        ("width", c_int64),
    )


class Span(ctypes.Structure):
    """Slots of a column relative to the anchor of a window, and the bits of an item where there is no row."""

    _fields_ = (
        ("begin", c_int64),
        ("length", c_int64),
        ("step", c_int64),
        ("row_bytes", c_int64),
        ("item_bytes", c_int64),
        ("empty", c_uint64),
    )


class Source(ctypes.Structure):
    """Rows that windows are taken from, and their fragments among the slots, if there are any."""

    _fields_ = (("rows", c_int64), ("first", c_void_p), ("row", c_void_p), ("count", c_void_p), ("guide", Guide))


class Plan(ctypes.Structure):
    """How the spans of a window are taken from the columns of each source."""

    _fields_ = (
        ("spans", POINTER(Span)),
        ("sources", POINTER(Source)),
        ("columns", c_void_p),
        ("span_count", c_int64),
        ("source_count", c_int64),
        ("history", c_int64),
        ("horizon", c_int64),
    )


class Batches(ctypes.Structure):
    """The windows of one call, and the addresses that they are written to."""

    _fields_ = (
        ("anchors", c_void_p),
        ("which", c_void_p),
        ("places", c_void_p),
        ("out", c_void_p),
        ("observed", c_void_p),
        ("size", c_int64),
        ("steps", c_int64),
    )


class Scaled(ctypes.Structure):
    """A tensor to scale in place, and its constants."""

    _fields_ = (
        ("values", c_void_p),
        ("factor", c_void_p),
        ("shift", c_void_p),
        ("slots", c_int64),
        ("items", c_int64),
        ("item_bytes", c_int64),
        ("rounds_once", c_int64),
    )


_ARGUMENTS = {
    "version": (),
    "find": (POINTER(Guide), c_void_p, c_int64, c_void_p),
    "locate": (POINTER(Guide), c_int64, c_void_p, c_int64, c_void_p),
    "permute": (c_void_p, c_int64, c_void_p, c_void_p, c_int64, c_void_p),
    "descend": (POINTER(Tree), c_void_p, c_int64, c_void_p, c_void_p),
    "draw": (POINTER(Shares), c_uint64, c_uint64, c_void_p, c_int64, c_void_p),
    "gather": (POINTER(Plan), POINTER(Batches)),
    "scale": (c_void_p, c_int64, c_void_p, c_int64, c_int64),
}


def load(switch: str | None) -> tuple[ctypes.CDLL | None, str]:
    """The library, `None` if it cannot be used, and a sentence that says why. `switch` is the environment variable."""
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


def why() -> str:
    """A sentence that says whether the kernel is used in this process, and why.

    Example:
        >>> from tensorstash.native.library import why
        >>> why().split(":")[0] in ("native", "not native")
        True
    """
    return _WHY
