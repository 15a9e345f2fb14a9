"""BLAKE2b digests (RFC 7693) of many byte strings: by the kernel, or by hashlib, which gives the same."""

from hashlib import blake2b
from itertools import pairwise

import numpy as np

from tensorstash.native import kernel, library
from tensorstash.native.kernel import Int64s, Uint8s, Uint64s


def digests(data: Uint8s, offsets: Int64s, person: bytes = b"") -> Uint64s:
    """The digest of 8 bytes, as a little-endian number, of each `data[offsets[i]:offsets[i + 1]]`.

    Args:
        data: `(bytes,)` uint8.
        offsets: `(n + 1,)` int64, ascending.
        person: the personalization, at most 16 bytes.

    Returns:
        `(n,)` uint64.

    Example:
        >>> import numpy as np
        >>> from hashlib import blake2b
        >>> found = digests(np.frombuffer(b"adabob", np.uint8), np.array([0, 3, 6]))
        >>> int(found[0]) == int.from_bytes(blake2b(b"ada", digest_size=8).digest(), "little")
        True
    """
    return (digests_by_hashlib if library.LIBRARY is None else kernel.hash_strings)(data, offsets, person)


def digests_by_hashlib(data: Uint8s, offsets: Int64s, person: bytes) -> Uint64s:
    """As `digests`."""
    empty = blake2b(digest_size=8, person=person)  # copied, because making one takes longer than hashing
    found = []
    for begin, end in pairwise(offsets.tolist()):
        hashed = empty.copy()
        hashed.update(data.data[begin:end])
        found.append(hashed.digest())
    return np.frombuffer(b"".join(found), "<u8").astype(np.uint64, copy=False)
