"""The entities of rows: their numbers, and the rows of one shard."""

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa

from tensorstash.columns.column import Column
from tensorstash.columns.name_list import Names
from tensorstash.columns.sharding import shard_of
from tensorstash.common.dtypes import Bools, Int32s
from tensorstash.common.text import counted
from tensorstash.errors import DataError
from tensorstash.ingest.codes import Places, Vocabulary, encoded
from tensorstash.sources.read import Source, Unit, with_rows
from tensorstash.sources.storage import decoded


class Entities:
    """Numbers the entities as they come, by the values of one column or the tuples of several."""

    def __init__(self, column: Column) -> None:
        """`column` is the entity column."""
        self.column = column
        self._parts = [Vocabulary() for _ in column.members]
        self._tuples = Vocabulary()  # of several columns: the codes of the values of each entity, as bytes

    def __len__(self) -> int:
        return len(self._parts[0] if len(self._parts) == 1 else self._tuples)

    def encode(self, arrays: Sequence[pa.Array]) -> Int32s:
        """The entity of each row, by the arrays of the entity columns, which have no null."""
        codes = [encoded(array, part.codes_of)[0] for part, array in zip(self._parts, arrays)]
        if len(codes) == 1:
            return codes[0]
        rows = np.stack(codes, axis=1)
        kind = pa.binary(rows.itemsize * len(codes))
        return encoded(pa.Array.from_buffers(kind, len(rows), [None, pa.py_buffer(rows)]), self._tuples.codes_of)[0]

    def values(self) -> list[list[Any]]:
        """For each entity column, its values in the entities as they came."""
        if len(self._parts) == 1:
            return [[*self._parts[0].names()]]
        codes = np.frombuffer(b"".join(self._tuples.names()), np.int32).reshape(-1, len(self._parts))
        return [[*map(part.names().__getitem__, of_part.tolist())] for part, of_part in zip(self._parts, codes.T)]


def without_nulls(array: pa.Array, name: str, source: Source, row: int) -> pa.Array:
    """The array of an entity column or of times, whose rows begin with `row`; a null in it is refused."""
    if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
        array = decoded(array)
    if array.null_count:
        place = source.name_row(row + int(np.argmax(array.is_null())))
        raise DataError(
            "Every row needs an entity and a time, and with known= a known time; column "
            f"{name!r} of {source.label} is null in row {place} (the first such). Fill or drop such rows, those of a "
            f"source with filter=pyarrow.compute.field({name!r}).is_valid(). What describes an entity as a whole "
            "belongs in static=."
        )
    return array


def entities_of_rows(source: Source, entity: Column, arrays: Sequence[pa.Array], row: int) -> tuple[list[Any], Int32s]:
    """The distinct entities of the rows from `row` on, and the place of each row's entity among them, `(rows,)`.

    `arrays` are those of the members of the entity column; a null in them is refused.
    """
    entities = Entities(entity)
    places = entities.encode([without_nulls(*member, source, row) for member in zip(arrays, entity.members)])
    parts = entities.values()
    return [*zip(*parts)] if entity.shape else parts[0], places


def rows_of_like(source: Source, entity: Column, names: Names, progress: bool | None) -> tuple[Source, str]:
    """The source with the rows whose entity `like=` has, by `names`, and a warning that counts the others, if any."""
    places, strangers = Places(names), set[Any]()

    def are_of_like(found: list[Any]) -> Bools:
        flags = places.of(found) >= 0
        strangers.update(compress(found, ~flags))
        return flags

    kept = _of_entities(source, entity, are_of_like, "like", progress)
    if not strangers:
        return kept, ""
    rows, entities = counted(source.rows - kept.rows, "row"), counted(len(strangers), "entity")
    such = f"{min(strangers)!r} of {source.label}"
    return kept, f"unknown='drop' leaves out {rows} of {entities} that like= lacks, such as {such}."


def of_shard(source: Source, entity: Column, shard: tuple[int, int], progress: bool | None) -> Source:
    """The source with the rows whose entity is in a shard, given by its number and how many there are."""
    return _of_entities(source, entity, lambda names: shard_of(names, shard[1]) == shard[0], "shard", progress)


def _of_entities(
    source: Source, entity: Column, chosen: Callable[[list[Any]], Bools], what: str, progress: bool | None
) -> Source:
    """The source with the rows of some entities; `chosen` tells for distinct entities which these are."""

    def flags_of(_: Unit, row: int, batch: pa.RecordBatch) -> Bools:
        names, places = entities_of_rows(source, entity, batch.columns, row)
        return chosen(names)[places]

    return with_rows(source, entity.members, flags_of, what, progress)
