"""The shard of an entity: a documented hash of its value, equal on all machines and in all releases."""

from collections.abc import Iterable
from datetime import date, datetime
from typing import Any

import numpy as np

from tensorstash.columns.hashing import digests
from tensorstash.common.checks import at_least, is_integer, is_listed, shown
from tensorstash.common.dtypes import Int64s
from tensorstash.common.text import type_text

HASH = "blake2b shard 1"  # the name of the definition, and the personalization of the hash
_MOST = 4096


def shard_of(values: Iterable[Any], shards: int) -> Int64s:
    """The shard of each entity, a number in `[0, shards)`, which does not depend on the type that stores a value.

    The entity's bytes are hashed with BLAKE2b (RFC 7693), with the personalization `b"blake2b shard 1"`. The digest of
    8 bytes is read as a little-endian unsigned integer and taken modulo `shards`. The bytes of an entity are the UTF-8
    text, the decimal digits of an integer, or a date as `2024-01-31`. The bytes of an entity of several columns are,
    for each value in turn, the number of its bytes in decimal digits, a colon, and its bytes.

    Args:
        values: the entities: texts, integers or dates, or tuples of them; a list, an array of numpy or pyarrow.
        shards: how many shards there are, 1 to 4,096.

    Returns:
        `(len(values),)` int64.

    Raises:
        TypeError: a value of another type, such as a null.

    Example:
        >>> import tensorstash as ts
        >>> ts.cluster.shard_of(["JFK", "LGA", "EWR"], 64).tolist()
        [9, 34, 63]
        >>> from hashlib import blake2b
        >>> digest = blake2b(b"JFK", digest_size=8, person=b"blake2b shard 1").digest()
        >>> int.from_bytes(digest, "little") % 64
        9
    """
    check_shards(shards)
    if not is_listed(values):
        raise TypeError(f"values must be a list of entities, got {shown(values)}. Write [...] around one.")
    plain = values.to_pylist() if hasattr(values, "to_pylist") else values
    return (digests(map(_bytes_of, plain), HASH.encode()) % np.uint64(shards)).astype(np.int64)


def check_shards(shards: object) -> int:
    """Check `shards=`."""
    count = at_least(1, shards, "shards")
    if count > _MOST:
        raise ValueError(f"shards must be at most {_MOST:,}, got {count:,}.")
    return count


def check_shard(shard: object) -> tuple[int, int] | None:
    """Check `shard=` of a load: the number of a shard and the number of shards."""
    if shard is None:
        return None
    if not isinstance(shard, (tuple, list)) or len(shard) != 2:
        raise TypeError(
            f"shard= must be a pair of a shard and the number of shards, such as (0, 64), got {shown(shard)}."
        )
    shards = check_shards(shard[1])
    return at_least(0, shard[0], "The number of a shard in shard=", below=shards), shards


def _bytes_of(value: Any) -> bytes:
    if isinstance(value, tuple):
        return b"".join([b"%d:%b" % (len(part), part) for part in map(_bytes_of, value)])
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, np.datetime64) and value.dtype == "datetime64[D]":
        value = value.item()
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat().encode()
    if is_integer(value):
        return b"%d" % value
    raise TypeError(f"An entity must be a text, an integer or a date, got {value!r}, {type_text(value)}.")
