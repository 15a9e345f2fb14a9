"""The entities of rows: their numbers, and the rows of one shard."""

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from tensorstash.columns.arrays import of_numbers
from tensorstash.columns.name_list import Names
from tensorstash.columns.resolve import entity_column, entity_columns
from tensorstash.columns.sharding import shard_of
from tensorstash.common.dtypes import Bools, Int32s
from tensorstash.common.text import counted
from tensorstash.errors import DataError
from tensorstash.ingest.codes import Piece, Places, Vocabulary, piece_of
from tensorstash.sources.read import Source, Unit, read, with_rows
from tensorstash.sources.storage import decoded

Entity = str | Sequence[str]  # `entity=` of a load


class Entities:
    """Numbers the entities as they come, by the values of one column or the tuples of several."""

    def __init__(self, columns: int) -> None:
        self._parts = [Vocabulary() for _ in range(columns)]
        self._pairs = [Vocabulary() for _ in range(columns - 1)]  # of (number of leading parts, next part)

    def __len__(self) -> int:
        return len((self._pairs or self._parts)[-1])

    def encode(self, pieces: Sequence[Piece]) -> Int32s:
        """The entity of each row."""
        codes = np.zeros(0, np.int32)
        for k, (part, piece) in enumerate(zip(self._parts, pieces)):
            part_codes, _ = part.encode(piece)
            if k:
                pairs = of_numbers((codes.astype(np.int64) << 32) | part_codes)
                part_codes, _ = self._pairs[k - 1].encode(piece_of(pairs))
            codes = part_codes
        return codes

    def values(self) -> list[list[Any]]:
        """For each entity column, its values in the entities as they came."""
        parts = zip([part.names for part in self._parts], self._codes())
        return [[*map(names.__getitem__, codes.tolist())] for names, codes in parts]

    def _codes(self) -> list[Int32s]:
        """For each entity column, `(entities,)` places in its names."""
        leading = np.arange(len(self), dtype=np.int32)
        codes = []
        for vocabulary in reversed(self._pairs):
            pairs = np.array(vocabulary.names, np.int64)[leading]
            codes.append((pairs & 0xFFFFFFFF).astype(np.int32))
            leading = (pairs >> 32).astype(np.int32)
        return [leading, *codes[::-1]]


def without_nulls(
    array: pa.Array, name: str, source: Source, row: int, role: Literal["entity", "time", "known"] = "entity"
) -> pa.Array:
    """The array of a key in its role, whose rows begin with `row`; a null in it is refused."""
    if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
        array = decoded(array)
    if array.null_count:
        rule, remedy = "Every row needs an entity and a time; column", "Drop or fill these rows before loading."
        if role == "time":
            remedy += (
                f" If they describe an entity as a whole, load the others with "
                f"filter=pyarrow.compute.field({name!r}).is_valid(), and give these as a table, "
                f"static=frame.filter(polars.col({name!r}).is_null())."
            )
        if role == "known":
            rule = "Every row needs the time when it became known;"
            remedy = "Fill it, or leave out rows that are not known yet, with filter=."
        place = source.name_row(row + int(np.argmax(array.is_null())))
        raise DataError(f"{rule} {name!r} is null in source row {place} (the first such). {remedy}")
    return array


def entities_of_rows(source: Source, entity: Entity, arrays: Sequence[pa.Array], row: int) -> tuple[list[Any], Int32s]:
    """The distinct entities of the rows from `row` on, and the place of each row's entity among them, `(rows,)`.

    `arrays` are those of the entity columns; a null in them is refused.
    """
    names = entity_columns(entity)
    entities = Entities(len(names))
    places = entities.encode([piece_of(without_nulls(*column, source, row)) for column in zip(arrays, names)])
    parts = entities.values()
    return parts[0] if isinstance(entity, str) else [*zip(*parts)], places


def known_rows(source: Source, entity: Entity, known: Names, progress: bool | None) -> tuple[Source, str]:
    """The source with the rows whose entity is known, and a warning that counts the others; empty if there are none."""
    places, strangers = Places(known), set[Any]()

    def are_known(found: list[Any]) -> Bools:
        flags = places.of(found) >= 0
        strangers.update(compress(found, ~flags))
        return flags

    kept = _of_entities(source, entity, are_known, "like", progress)
    if not strangers:
        return kept, ""
    rows, entities = counted(source.rows - kept.rows, "row"), counted(len(strangers), "entity")
    return kept, f"unknown='drop' leaves out {rows} of {entities} that like= lacks, such as {min(strangers)!r}."


def of_shard(source: Source, entity: Entity, shard: tuple[int, int], progress: bool | None) -> Source:
    """The source with the rows whose entity is in a shard, given by its number and how many there are."""
    return _of_entities(source, entity, lambda names: shard_of(names, shard[1]) == shard[0], "shard", progress)


def _of_entities(
    source: Source, entity: Entity, chosen: Callable[[list[Any]], Bools], what: str, progress: bool | None
) -> Source:
    """The source with the rows of some entities; `chosen` tells for distinct entities which these are."""
    entity_column(source.schema, entity, source.label)  # refuses values that no entity has

    def flags_of(unit: Unit) -> Bools:
        flags = [np.empty(0, np.bool_)]
        for row, batch in read(unit, entity_columns(entity)):
            names, places = entities_of_rows(source, entity, batch.columns, row)
            flags.append(chosen(names)[places])
        return np.concatenate(flags)

    return with_rows(source, flags_of, what, progress)
