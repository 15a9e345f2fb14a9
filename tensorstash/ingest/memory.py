"""Checks that a load fits into memory, or onto its disk, before anything is allocated."""

from collections.abc import Sequence

import pyarrow as pa

from tensorstash.columns.column import Column
from tensorstash.segments.limits import Limit, check_free, memory_limits
from tensorstash.sources.spool import Spool

_SORT_BYTES = 24  # per row: its entity, its place there before and after sorting, and the times once more
_PLACE_BYTES = 8  # per row: where in the stash it goes
_ENTITY_COPIES = 4  # of the inputs and values of an entity: as they come, in order, and what polars makes of them


def check_columns(nbytes: int, source: str, limits: Sequence[Limit], on_disk: bool = False) -> None:
    """Refuse columns that do not fit."""
    check_free(
        nbytes,
        limits,
        "A stash must fit onto its disk" if on_disk else "A stash must fit into free memory",
        source,
        "Load fewer columns, or a narrower dtype; print(ts.plan(...)) shows what each costs.",
    )


def sorting_bytes(rows: int) -> int:
    """Bytes of memory for sorting rows that are not grouped by entity and ordered by time."""
    return rows * _SORT_BYTES


def temporary_bytes(rows: int, types: Sequence[pa.DataType]) -> int:
    """Bytes of a temporary file for columns of these types and the place of each row; texts and lists are left out."""
    return rows * (_PLACE_BYTES + sum(map(_row_bytes, types)))


def temporary_file(nbytes: int) -> Spool:
    """The file in which the input of `ts.per_entity` is sorted; refused without room for so many bytes."""
    return Spool("The input of ts.per_entity", nbytes)


def _row_bytes(arrow: pa.DataType) -> int:
    """Bytes of one value, where all have one size."""
    if pa.types.is_dictionary(arrow):
        return _row_bytes(arrow.value_type)
    if pa.types.is_fixed_size_list(arrow):
        return int(arrow.list_size) * _row_bytes(arrow.value_type)
    return -(-arrow.bit_width // 8) if pa.types.is_primitive(arrow) or pa.types.is_decimal(arrow) else 0


def check_entity(
    rows: int, inputs: Sequence[pa.DataType], columns: Sequence[Sequence[pa.DataType]], who: str, source: str
) -> None:
    """Refuse an entity of so many rows if what is computed over all its rows does not fit into memory.

    Of each column the types of its values are given: only those of one column are held at a time.
    """
    row_bytes = sum(map(_row_bytes, inputs)) + max(sum(map(_row_bytes, values)) for values in columns)
    check_free(
        rows * (_PLACE_BYTES + _ENTITY_COPIES * row_bytes),
        memory_limits(),
        f"ts.per_entity computes over all rows of an entity at a time, and {who} has {rows:,} rows",
        source,
        "Leave out some of its columns, or load fewer rows with filter=.",
    )


def check_static(static: Sequence[Column], entities: int, source: str) -> None:
    """Refuse static columns that do not fit. The number of entities is known only when the keys have been read."""
    # while the values are gathered there is a second copy of them, and the row of each value
    check_free(
        entities * sum(2 * column.row_bytes + 8 for column in static),
        memory_limits(),
        f"Static columns take one value per entity, and there are {entities:,} entities",
        source,
        "Leave some out of static=.",
    )


def check_sorting(rows: int, source: str) -> None:
    """Refuse rows that cannot be sorted in memory. Whether they must be is known only when the keys have been read."""
    check_free(
        sorting_bytes(rows),
        memory_limits(),
        "Rows that are not grouped by entity and ordered by time are sorted in memory",
        source,
        "Sort the source, or load fewer columns.",
    )
