"""The rows of one shard: the entity columns are read first, and of the others only the units with such entities."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tensorstash.columns.sharding import shard_of
from tensorstash.common.dtypes import Int64s
from tensorstash.ingest.codes import Piece, piece_of
from tensorstash.ingest.null_key import null_key
from tensorstash.sources.filter import with_rows
from tensorstash.sources.scan import Scan, Unit, read


def of_shard(scanned: Scan, entity: Sequence[str], shard: tuple[int, int], progress: bool | None) -> Scan:
    """The scan of the rows whose entity is in a shard, given by its number and how many there are."""
    return with_rows(scanned, partial(_judge, scanned, [*entity], shard), "shard", progress)


def _judge(scanned: Scan, entity: Sequence[str], shard: tuple[int, int], unit: Unit) -> tuple[NDArray[np.uint8], int]:
    number, shards = shard
    found = [shards_of_rows(scanned, entity, batch.columns, row, shards) == number for row, batch in read(unit, entity)]
    flags = np.concatenate([np.empty(0, np.bool_), *found])
    return np.packbits(flags), int(np.count_nonzero(flags))


def shards_of_rows(scanned: Scan, entity: Sequence[str], arrays: Sequence[pa.Array], row: int, shards: int) -> Int64s:
    """`(rows,)`, the shard of each row from `row` on, by the arrays of its entity columns; a null is refused."""
    pieces = [*map(piece_of, arrays)]
    for name, piece in zip(entity, pieces):
        missing = piece.indices < 0
        if not missing.all() and None in piece.names:  # a dictionary may hold a null as a value
            missing |= piece.indices == piece.names.index(None)
        if missing.any():
            raise null_key(name, scanned, row + int(missing.argmax()))
    if len(pieces) == 1:
        return shard_of(pieces[0].names, shards)[pieces[0].indices]
    return _of_tuples(pieces, shards)


def _of_tuples(pieces: Sequence[Piece], shards: int) -> Int64s:
    """The same for several entity columns."""
    each = np.stack([piece.indices for piece in pieces])
    distinct, inverse = np.unique(each, axis=1, return_inverse=True)
    names = [tuple(piece.names[at] for piece, at in zip(pieces, column)) for column in distinct.T.tolist()]
    return shard_of(names, shards)[inverse.reshape(-1)]
