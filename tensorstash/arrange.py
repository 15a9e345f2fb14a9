"""The order of the rows of a stash: grouped by entity, ordered by time, each time once."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorstash.arrays import Int64s
from tensorstash.errors import DataError
from tensorstash.plan import Plan
from tensorstash.schema import Column
from tensorstash.times import Clock
from tensorstash.units import Scan

_BLOCK = 1 << 20  # rows looked at together

Codes = NDArray[np.integer[Any]]


def is_arranged(codes: Codes, times: Int64s | None, order: Int64s | None = None) -> bool:
    """Whether the rows, taken in `order`, are grouped and within a group strictly later than the row before."""
    for begin in range(0, len(codes) - 1, _BLOCK):
        rows: slice | Int64s = slice(begin, begin + _BLOCK + 1)
        if order is not None:
            rows = order[rows]
        code = codes[rows]
        if (code[1:] < code[:-1]).any():
            return False
        if times is not None:
            time = times[rows]
            if ((time[1:] <= time[:-1]) & (code[1:] == code[:-1])).any():
                return False
    return True


def arranged(codes: Codes, times: Int64s | None) -> Int64s:
    """The order that arranges the rows: `(rows,)`, stable where codes and times are equal."""
    order = np.argsort(codes, kind="stable")
    if times is None or is_arranged(codes, times, order):
        return order
    return np.lexsort((times, codes))


def first_duplicate(codes: Codes, times: Int64s, order: Int64s) -> tuple[int, int] | None:
    """Two rows of one entity with one time, if there are any; `order` arranges the rows."""
    for begin in range(0, len(order) - 1, _BLOCK):
        rows = order[begin : begin + _BLOCK + 1]
        same = (codes[rows[1:]] == codes[rows[:-1]]) & (times[rows[1:]] == times[rows[:-1]])
        if same.any():
            at = int(same.argmax())
            return int(rows[at]), int(rows[at + 1])
    return None


def duplicate_time(planned: Plan, scanned: Scan, entity: object, time: int, rows: tuple[int, int]) -> DataError:
    """The error for a time that stands twice in an entity."""
    assert planned.time is not None
    when = Clock(planned.time.unit, planned.time.zone).format(time)
    whose = f"entity {entity!r}" if planned.entity else "the series (no entity= was given)"
    first, second = map(scanned.name_row, rows)
    return DataError(
        f"A time stands once in each entity; {whose} has {planned.time.members[0]} {when} in source rows {first} and "
        f"{second}. Drop one, or name the column that tells them apart as entity=."
    )


def null_key(column: Column, scanned: Scan, row: int) -> DataError:
    """The error for a row without an entity or a time."""
    return DataError(
        f"Every row needs an entity and a time; column {column.members[0]!r} is null in source row "
        f"{scanned.name_row(row)} (the first such). Drop those rows, or name them, before loading."
    )
