"""The rows of one shard: the entity columns are read first, and of the others only the units with such entities."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tensorstash.columns.resolve import entity_columns
from tensorstash.columns.sharding import shard_of
from tensorstash.common.dtypes import Int64s
from tensorstash.ingest.codes import piece_of
from tensorstash.ingest.null_key import null_key
from tensorstash.sources.filter import with_rows
from tensorstash.sources.scan import Scan, Unit, read

Entity = str | Sequence[str]  # `entity=` of a load


def of_shard(scanned: Scan, entity: Entity, shard: tuple[int, int], progress: bool | None) -> Scan:
    """The scan of the rows whose entity is in a shard, given by its number and how many there are."""
    return with_rows(scanned, partial(_judge, scanned, entity, shard), "shard", progress)


def _judge(scanned: Scan, entity: Entity, shard: tuple[int, int], unit: Unit) -> tuple[NDArray[np.uint8], int]:
    number, shards = shard
    names = entity_columns(entity)
    found = [_shards(scanned, entity, batch, row, shards) == number for row, batch in read(unit, names)]
    flags = np.concatenate([np.empty(0, np.bool_), *found])
    return np.packbits(flags), int(np.count_nonzero(flags))


def entities_of_rows(scanned: Scan, entity: Entity, arrays: Sequence[pa.Array], row: int) -> tuple[list[Any], Int64s]:
    """The distinct entities of the rows from `row` on, in order of appearance, and the place of each row's, `(rows,)`.

    `arrays` are those of the entity columns; a null in them is refused.
    """
    pieces = [*map(piece_of, arrays)]
    for name, piece in zip(entity_columns(entity), pieces):
        missing = piece.indices < 0
        if not missing.all() and None in piece.names:  # a dictionary may hold a null as a value
            missing |= piece.indices == piece.names.index(None)
        if missing.any():
            raise null_key(name, scanned, row + int(missing.argmax()))
    places = pieces[0].indices.astype(np.int64)
    names: list[Any] = pieces[0].names if isinstance(entity, str) else [(name,) for name in pieces[0].names]
    for piece in pieces[1:]:
        distinct, firsts, inverse = np.unique(places << 32 | piece.indices, return_index=True, return_inverse=True)
        order = np.argsort(firsts)
        ranks = np.empty_like(order)
        ranks[order] = np.arange(len(order))
        names = [(*names[pair >> 32], piece.names[pair & 0xFFFFFFFF]) for pair in distinct[order].tolist()]
        places = ranks[inverse]
    return names, places


def _shards(scanned: Scan, entity: Entity, batch: pa.RecordBatch, row: int, shards: int) -> Int64s:
    names, places = entities_of_rows(scanned, entity, batch.columns, row)
    return shard_of(names, shards)[places]
