"""Terms of filters, what one row says of them, and a Parquet file of ten row groups."""

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.oracle_load import write_parquet

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


Rows = list[dict[str, Any]]


Term = tuple[str, str, Any]


def satisfies(row: dict[str, Any], term: Term) -> bool:
    """One row, one term: a null satisfies none; `in` is == joined by or, `not in` is != joined by and."""
    name, op, value = term
    cell = row[name]
    if op == "in":
        return any(satisfies(row, (name, "==", item)) for item in value)
    if op == "not in":
        return all(satisfies(row, (name, "!=", item)) for item in value)
    return cell is not None and COMPARE[op](cell, value)


def many_groups(path: Path) -> Path:
    """Ten row groups of 100 rows; t, s and f grow from one to the next."""
    rows = np.arange(1000)
    table = pa.table(
        {
            "t": pa.array(rows, pa.timestamp("s")),
            "s": [f"s{row // 100}" for row in rows],
            "f": rows * 0.5,
            "y": rows,
            "z": -rows,
        }
    )
    return write_parquet(path, [table.slice(k, 100) for k in range(0, 1000, 100)])
