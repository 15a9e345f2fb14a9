"""Checks that a load fits into memory, or onto its disk, before anything is allocated, and the error if it did not."""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tensorstash.columns.column import Column
from tensorstash.errors import NoMemoryError
from tensorstash.segments.limits import Limit, check_free, memory_limits

_SORT_BYTES = 16  # bytes per row: its run, if each row is one, held twice for a moment; then its place and its time
_NO_MEMORY = os.strerror(errno.ENOMEM), "can't start new thread"  # where libraries tell it in words alone


def check_columns(nbytes: int, source: str, limits: Sequence[Limit], on_disk: bool) -> None:
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


@contextmanager
def memory_told() -> Iterator[None]:
    """Raise `NoMemoryError` for every error of a load whose cause is that the system gave no memory or no thread."""
    try:
        yield
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None and not _lacks_memory(cause):
            cause = cause.__cause__
        if cause is None or isinstance(error, NoMemoryError):
            raise
        raise NoMemoryError(
            f"A load needs memory for its columns and beside them, and the system gave no more: {cause or 'no memory'}."
            " Load fewer columns or a narrower dtype, or allow this process more: ulimit -v shows its limit."
        ) from error


def _lacks_memory(error: BaseException) -> bool:
    """Whether an error means that this process may not have more memory, or addresses for another thread."""
    is_refused = isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM
    return is_refused or any(text in str(error) for text in _NO_MEMORY)
