"""A polars LazyFrame as batches: collected piece by piece, with its columns and, where it is safe, the filter."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, or_
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tensorstash.columns.polars_texts import first_line
from tensorstash.common.forks import check_pool
from tensorstash.errors import SourceError
from tensorstash.sources.filter import Filter

if TYPE_CHECKING:
    import polars as pl

_COMPARISONS = {"=": eq, "==": eq, "<": lt, "<=": le, ">": gt, ">=": ge}
_ROWS = 65_536


def lazy_batches(
    frame: "pl.LazyFrame", condition: Filter | None
) -> tuple[pa.Schema, Callable[[Sequence[str]], Iterable[pa.RecordBatch]]]:
    """The schema of a frame, and how the batches of some columns are collected."""
    import polars as pl

    check_pool()
    if not hasattr(frame, "collect_batches"):
        raise TypeError("polars hands out a LazyFrame in batches from 1.34 on. Update it, or call .collect() first.")
    try:
        schema = frame.collect_schema()
    except pl.exceptions.PolarsError as error:
        raise _refused(error) from error
    predicate = _predicate(condition, schema)
    if predicate is not None:
        frame = frame.filter(predicate)

    def batches(names: Sequence[str]) -> Iterable[pa.RecordBatch]:
        try:
            for piece in frame.select(names).collect_batches(chunk_size=_ROWS, maintain_order=True):
                yield from piece.to_arrow().to_batches()
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            raise _refused(error) from error

    return pl.DataFrame(schema=schema).to_arrow().schema, batches


def _refused(error: BaseException) -> SourceError:
    return SourceError(f"The polars LazyFrame cannot be collected: {first_line(error)}")


def _predicate(condition: Filter | None, schema: Mapping[str, Any]) -> "pl.Expr | None":
    """A condition that keeps every row that the filter keeps, and fewer of the others; `None` if none is known."""
    if condition is None or condition.clauses is None:
        return None
    clauses = [[one for term in clause if (one := _term(*term, schema)) is not None] for clause in condition.clauses]
    return reduce(or_, (reduce(and_, clause) for clause in clauses)) if all(clauses) else None


def _term(name: str, operator: str, value: Any, schema: Mapping[str, Any]) -> "pl.Expr | None":
    """A comparison with the same meaning in polars and in pyarrow, except that polars may keep more rows with NaN."""
    import polars as pl

    if operator in _COMPARISONS and _is_alike(value, schema.get(name)):
        return _COMPARISONS[operator](pl.col(name), value)
    if operator == "in" and isinstance(value, (list, tuple)) and all(_is_alike(one, schema.get(name)) for one in value):
        return pl.col(name).is_in(list(value))
    return None


def _is_alike(value: Any, dtype: Any) -> bool:
    """Whether both libraries compare a value with a column of this type exactly, without rounding either."""
    import polars as pl

    if dtype is None:
        return False
    if type(value) is int:
        return bool(dtype.is_integer() and dtype not in (pl.Int128, pl.UInt128) and abs(value) < 2**63)
    exact = {float: pl.Float64, str: pl.String, date: pl.Date}
    if type(value) is datetime:
        return dtype in (pl.Datetime("us"), pl.Datetime("ns")) and value.tzinfo is None
    return bool(exact.get(type(value)) == dtype)
