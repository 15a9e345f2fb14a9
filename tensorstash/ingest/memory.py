"""Checks that a load fits into memory, or onto its disk, before anything is allocated."""

from collections.abc import Sequence

from tensorstash.columns.column import Column
from tensorstash.segments.limits import Limit, check_free, memory_limits

_SORT_BYTES = 16  # bytes per row: its run, if each row is one, held twice for a moment; then its place and its time


def check_columns(nbytes: int, source: str, limits: Sequence[Limit], on_disk: bool = False) -> None:
    """Raise `NoMemoryError` if the columns do not fit."""
    check_free(
        nbytes,
        limits,
        "A stash must fit onto its disk" if on_disk else "A stash must fit into free memory",
        source,
        "Load fewer columns, or a narrower dtype; print(ts.plan(...)) shows what each costs.",
    )


def check_static(static: Sequence[Column], entities: int, source: str) -> None:
    """Raise `NoMemoryError` if static columns do not fit, once the keys have told the number of entities."""
    if not static:
        return
    # while the values are gathered there is a second copy of them, and the row of each value
    check_free(
        entities * sum(2 * column.row_bytes + 8 for column in static),
        memory_limits(),
        f"Static columns take one value per entity, and there are {entities:,} entities",
        source,
        "Leave some out of static=.",
    )


def check_sorting(rows: int, source: str) -> None:
    """Raise `NoMemoryError` if rows cannot be sorted in memory. Only their keys tell whether they must be."""
    check_free(
        rows * _SORT_BYTES,
        memory_limits(),
        "Rows that are not grouped by entity, in ascending order, and ordered by time are sorted in memory",
        source,
        "Sort the source, or load fewer columns.",
    )
