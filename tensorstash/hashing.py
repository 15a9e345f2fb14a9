"""`ts.hashed`: categories as buckets of a published hash, so that no vocabulary has to be kept, or to agree."""

from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from tensorstash.arrays import Int32s
from tensorstash.checks import at_least
from tensorstash.decode import Piece, Stats, count_codes
from tensorstash.expression import source_of
from tensorstash.schema import ColumnSpec

if TYPE_CHECKING:
    import polars as pl

_MOST = 1 << 31  # the codes are int32


def hashed(source: "str | pl.Expr", buckets: int) -> ColumnSpec:
    """A text or integer column as int32 codes in `[0, buckets)`: the bucket that each value's hash falls into.

    The same value has the same code in every source, on every machine and in all releases; several values share a
    bucket. The code is the BLAKE2b digest (RFC 7693) of 8 bytes of the UTF-8 text, of an integer that of its decimal
    digits, read as a little-endian unsigned integer, modulo `buckets`. A null is -1. There is no vocabulary.

    Args:
        source: the name of a source column, or a polars expression.
        buckets: how many there are, 1 to 2**31; an embedding needs so many rows.

    Example:
        >>> import tensorstash as ts
        >>> users = {"user": ["ada", "bob", None, "ada"], "id": [17, 18, 19, 17]}
        >>> stash = ts.load(users, {"user": ts.hashed("user", 2**18), "id": ts.hashed("id", 1000)})
        >>> stash["user"].tolist(), stash["id"].tolist()
        ([176149, 258932, -1, 176149], [256, 432, 568, 256])
        >>> from hashlib import blake2b
        >>> int.from_bytes(blake2b("ada".encode(), digest_size=8).digest(), "little") % 2**18
        176149
    """
    one = source_of(source)
    if isinstance(one, tuple):
        raise TypeError(f"Hashing is for one column, a name or a polars expression; got {source!r}.")
    if at_least(1, buckets, "buckets") > _MOST:
        raise ValueError(f"buckets= is at most 2**31, because codes are int32; got {buckets}.")
    return ColumnSpec(one, buckets=int(buckets))


class Buckets:
    """The buckets of values: each distinct one of a piece is hashed once, and nothing is kept of it."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._empty = blake2b(digest_size=8)  # copied, because making one takes longer than hashing

    def encode(self, piece: Piece, _: int) -> tuple[Int32s, Stats]:
        """Codes, `(n,)`; -1 for null."""
        digests = np.frombuffer(b"".join(map(self._digest, piece.names)), "<u8")
        each = np.full(len(digests) + 1, -1, np.int32)
        each[:-1] = digests % np.uint64(self._count)
        each[[k for k, name in enumerate(piece.names) if name is None]] = -1
        codes = each[piece.indices]
        return codes, count_codes(codes)

    def _digest(self, value: str | int | None) -> bytes:
        hashed = self._empty.copy()
        hashed.update(str(value).encode())
        return hashed.digest()
