"""Computes polars expressions on Arrow arrays, batch by batch."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tensorstash.columns.expression import Compute, Expression, printed, serialized
from tensorstash.columns.types import from_arrow
from tensorstash.common.forks import check_pool
from tensorstash.errors import DataError, SchemaError
from tensorstash.sources.storage import decoded

if TYPE_CHECKING:
    import polars as pl

# functions that draw random numbers for the elements of lists, in the MessagePack of a serialized expression
_RANDOM = (b"\x81\xa6Sample", b"\xa6method\xa7Shuffle", b"\xa6method\xa6Random")
_NO_VALUE = (
    "Make it null there, as cast(..., strict=False) does, cast its columns, or leave such rows out with filter=."
)
WHICH_HOUR = (  # of those that the clock shows twice, for the columns of the entity and the time
    "pl.when(pl.struct({}).is_first_distinct()).then(pl.lit('earliest')).otherwise(pl.lit('latest'))"
)
_LOCAL_TIME = re.compile(r"'(.+?)' is (ambiguous|non-existent) in time zone '(.+?)'")
_LOCAL_TIMES = {  # by what polars says of one
    "ambiguous": (
        "the local time {} occurs twice in {}. Write replace_time_zone(..., ambiguous='earliest') or 'latest'. If both "
        "hours have rows, tell them apart in a LazyFrame, by the columns of the entity and the time: ambiguous="
        f"{WHICH_HOUR.format('entity, time')}."
    ),
    "non-existent": (
        "the local time {} does not occur in {}. Name the zone of the times, such as 'UTC', or write "
        "replace_time_zone(..., non_existent='null'), and leave out rows whose time is null."
    ),
}


def bind(expression: Expression, name: str, fields: Sequence[pa.Field], where: str) -> tuple[pa.DataType, Compute]:
    """The type of an expression's values, and a function that computes them from its inputs, arrays of `fields`."""
    import polars as pl

    check_pool()
    try:
        schema = pl.Schema({column: _polars_type(field) for column, field in zip(expression.columns, fields)})
        dtype = pl.LazyFrame(schema=schema).select(expression.expr.alias(name)).collect_schema()[name]
        _check_elementwise(expression.expr, schema)
        _check_deterministic(expression.expr, schema)
    except SchemaError:
        raise
    except (Exception, pl.exceptions.PanicException) as error:
        types = ", ".join(f"{field.name!r} is {field.type}" for field in fields)
        raise SchemaError(
            f"An expression must suit its columns; {name!r} cannot be computed from {where}, where {types}: "
            f"{first_line(error)}. Cast the columns, or the result."
        ) from error
    return _arrow_type(name, dtype), _computing(expression.expr, name, schema, dtype)


def first_line(error: BaseException) -> str:
    """The message of an error of polars, without the query plan that may follow it."""
    return str(error).strip("'\" ").replace("\\n", "\n").partition("\n")[0].rstrip(".")


def explained(error: BaseException, remedy: str = "") -> str:
    """The message of an error of polars, and a remedy; that of a local time that the clock lacks or repeats is here."""
    why = first_line(error)
    if found := _LOCAL_TIME.search(why):
        return _LOCAL_TIMES[found[2]].format(found[1], repr(found[3]))
    return f"{why}. {remedy}".rstrip()


def _check_elementwise(expr: "pl.Expr", schema: "pl.Schema") -> None:
    """Raise if values depend on other rows, which a batch may not have."""
    import polars as pl

    if is_elementwise(expr, schema):
        return
    culprit = expr
    for part in _parts(expr, schema):  # whole before parts: the last one that fails is smallest
        with suppress(pl.exceptions.PolarsError):  # pl.element() has a type only inside its list
            if part.meta.root_names() and not is_elementwise(part, schema):
                culprit = part
    literals = [part for part in _parts(culprit, schema) if part.meta.is_literal()]
    # polars replaces comparisons with a null by one null for all rows
    if any(pl.select(part).to_series().null_count() for part in literals):
        raise SchemaError(
            f"A comparison with a null is never true; {printed(culprit)} has one. Write .is_null() or .is_not_null()."
        )
    raise SchemaError(
        "Expressions are computed batch by batch, so each value must come from its own row; "
        f"{printed(culprit)} needs other rows. Compute it in polars and load the LazyFrame: "
        "pl.scan_parquet(path).with_columns(lag=pl.col('y').shift(1).over('station', order_by='hour'))."
    )


def is_elementwise(expr: "pl.Expr", schema: "pl.Schema") -> bool:
    """Whether each value depends only on its own row.

    Polars replaces some comparisons with an integer beyond the type of the column by a constant, which is not
    elementwise to polars. So an expression is also elementwise if it is on wider integers.
    """
    import polars as pl

    if _needs_one_row(expr, schema):
        return True
    wide = pl.Schema({name: pl.Int128() if dtype.is_integer() else dtype for name, dtype in schema.items()})
    with suppress(pl.exceptions.PolarsError, pl.exceptions.PanicException):  # not all functions take such integers
        return _needs_one_row(expr, wide)
    return False


def _needs_one_row(expr: "pl.Expr", schema: "pl.Schema") -> bool:
    """Whether polars reads only the first row of a source to compute the first value.

    It does so only if every part is elementwise; `meta.is_row_separable` is about the outermost part only.
    """
    import polars as pl
    from polars.io.plugins import register_io_source

    asked: list[int | None] = []

    def source(_columns: Any, _predicate: Any, rows: int | None, _batch: Any) -> "Iterator[pl.DataFrame]":
        asked.append(rows)
        raise InterruptedError  # before polars computes anything

    with suppress(InterruptedError, pl.exceptions.ComputeError):
        register_io_source(source, schema=schema).with_columns(expr.alias("")).head(1).collect(engine="in-memory")
    return asked == [1]


def _check_deterministic(expr: "pl.Expr", schema: "pl.Schema") -> None:
    """Raise if values are random, or depend on what the process has read before."""
    import polars as pl

    form = serialized(expr)
    if form is not None and any(mark in form for mark in _RANDOM):
        raise SchemaError(
            f"An expression must have the same values every time; {printed(expr)} is random. Compute it before "
            "loading, or per batch in a transform."
        )
    whole = expr.meta.undo_aliases()
    for part in _parts(expr, schema):
        with suppress(pl.exceptions.PolarsError):  # pl.element() has a type only inside its list
            types = pl.LazyFrame(schema=schema).select(part).collect_schema().dtypes()
            if types == [pl.Categorical] and part.meta.undo_aliases().meta.ne(whole):
                raise SchemaError(
                    f"The codes of a pl.Categorical depend on what was read before; {printed(part)} is one. Leave "
                    "the text as it is, which becomes codes in the stash, or cast it to pl.Enum([...])."
                )


def _parts(expr: "pl.Expr", schema: "pl.Schema") -> "Iterator[pl.Expr]":
    yield expr
    for part in expr.meta.pop(schema=schema):
        yield from _parts(part, schema)


def _computing(expr: "pl.Expr", name: str, schema: "pl.Schema", dtype: Any) -> Compute:
    import polars as pl

    def compute(arrays: Sequence[pa.Array], place: str, _: object) -> pa.Array:
        try:
            series = [*map(_series, arrays, schema.values())]
            values = pl.DataFrame(dict(zip(schema, series))).with_columns(expr.alias(name))[name]
            if values.dtype != dtype:
                raise TypeError(f"its values are {values.dtype}, not {dtype}")
        except (Exception, pl.exceptions.PanicException) as error:  # raised by polars or by a Python function
            raise DataError(
                f"An expression must have a value in every row; {name!r} fails in {place}: "
                f"{explained(error, _NO_VALUE)}"
            ) from error
        return values.alias("").to_arrow()  # a name with a NUL would fail

    return compute


def _arrow_type(name: str, dtype: Any) -> pa.DataType:
    """The Arrow type of a polars type; raises if a stash cannot hold it."""
    import polars as pl

    try:
        arrow = pl.Series("", [], dtype).to_arrow().type
        from_arrow(name, pa.field(name, arrow))
    except (SchemaError, pa.ArrowException) as error:
        raise SchemaError(
            f"A stash holds numbers, booleans, text, dates, times and pl.Array of numbers; the expression {name!r} "
            f"gives {dtype}. Cast it{', such as .cast(pl.Float64)' if dtype == pl.Null else ''}."
        ) from error
    return arrow


def _polars_type(field: pa.Field) -> Any:
    import polars as pl

    if pa.types.is_dictionary(field.type) and field.metadata:  # the metadata may mark an enum
        with suppress(pa.ArrowException):
            dtype = pl.Series(pl.from_arrow(pa.schema([field]).empty_table())).dtype
            if isinstance(dtype, pl.Enum):
                return dtype
    return _series(pa.nulls(0, field.type), None).dtype


def _series(array: pa.Array, dtype: Any) -> "pl.Series":
    """An Arrow array as a polars series. Dictionaries are decoded, because they differ between batches."""
    import polars as pl

    if pa.types.is_dictionary(array.type):
        array = decoded(array)
    if pa.types.is_date64(array.type):
        array = array.cast(pa.date32())
    series = pl.Series(pl.from_arrow(array))
    return series.cast(dtype) if isinstance(dtype, pl.Enum) else series
