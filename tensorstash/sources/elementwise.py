"""Polars expressions on Arrow arrays: refused unless each row is computed by itself, then evaluated piece by piece."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tensorstash.columns.expression import Compute, Expression, text_of
from tensorstash.columns.types import from_arrow, is_bfloat16
from tensorstash.common.forks import check_pool
from tensorstash.errors import DataError, SchemaError

if TYPE_CHECKING:
    import polars as pl

_REMEDY = "Compute it before loading, or per batch in a transform."
_REMEDIES = {
    ".python_udf(": "Take map_elements, or say map_batches(..., is_elementwise=True) where it is so.",
    ".str.strptime(": "Give it the format, which it takes from other rows otherwise.",
}
_RANDOM = re.compile(r"\.(sample|sample_n|sample_fraction|shuffle)\(")  # in a list, where polars needs no other row


def bind(expression: Expression, name: str, fields: Sequence[pa.Field], where: str) -> tuple[pa.DataType, Compute]:
    """The type of the values, and how they are computed; `fields` are those of the inputs."""
    import polars as pl

    check_pool()
    expr, columns = expression.expr, expression.columns
    try:
        dtypes = [_dtype(about) for about in fields]
        nothing = pl.DataFrame(schema=dict(zip(columns, dtypes)))
        dtype = nothing.lazy().select(expr.alias(name)).collect_schema()[name]
        check_rows(expr, nothing)
    except SchemaError:
        raise
    except (Exception, pl.exceptions.PanicException) as error:
        shown = ", ".join(f"{about.name!r} is {about.type}" for about in fields)
        raise SchemaError(
            f"An expression must suit its columns; {name!r} cannot be computed from {where}, where {shown}: "
            f"{_first_line(error)}. Cast the columns, or the result."
        ) from error

    arrow = _arrow(name, dtype)

    def compute(arrays: Sequence[pa.Array], place: str) -> pa.Array:
        try:
            inputs = [_series(*one).alias(column) for column, *one in zip(columns, arrays, fields, dtypes)]
            values = pl.DataFrame(inputs).with_columns(expr.alias(name))[name]
            if values.dtype != dtype:
                raise TypeError(f"its values are {values.dtype}, not {dtype}")
        except (Exception, pl.exceptions.PanicException) as error:  # of polars or of a function
            raise DataError(
                f"An expression must have a value in every row; {name!r} fails in {place}: {_first_line(error)}. "
                "Let it be null there, as cast(..., strict=False) does, or leave such rows out with filter=."
            ) from error
        return values.to_arrow()

    return arrow, compute


def _arrow(name: str, dtype: Any) -> pa.DataType:
    """The Arrow type of values of a polars type, if a stash can hold them."""
    import polars as pl

    try:
        arrow = pl.Series(name, [], dtype).to_arrow().type
        from_arrow(name, pa.field(name, arrow))
    except (SchemaError, pa.ArrowException) as error:
        raise SchemaError(
            f"A stash holds numbers, booleans, text, dates, times and pl.Array of numbers; the expression {name!r} "
            f"gives {dtype}. Cast it."
        ) from error
    return arrow


def _first_line(error: BaseException) -> str:
    """What went wrong, without the query in which polars found it."""
    return str(error).strip("'\" ").replace("\\n", "\n").partition("\n")[0].rstrip(".")


# Rows


def check_rows(expr: "pl.Expr", nothing: "pl.DataFrame") -> None:
    """Refuse values that depend on other rows, on chance, or on what the process has read before."""
    import polars as pl

    culprit = _beyond_rows(expr, nothing)
    if culprit is not None:
        shown = text_of(culprit)
        remedy = next((hint for sign, hint in _REMEDIES.items() if sign in shown), _REMEDY)
        raise SchemaError(
            f"Expressions are computed piece by piece, so that a value must come from its own row alone; {shown} also "
            f"looks at others. {remedy}"
        )
    if _RANDOM.search(str(expr)) or _ranks_at_random(expr):
        raise SchemaError(f"An expression has the same values every time; {text_of(expr)} is random. {_REMEDY}")
    whole = expr.meta.undo_aliases()
    for part in _parts(expr, nothing):
        with suppress(pl.exceptions.PolarsError):  # what stands for the elements of a list has no type elsewhere
            types = nothing.lazy().select(part).collect_schema().dtypes()
            if types == [pl.Categorical] and part.meta.undo_aliases().meta.ne(whole):
                raise SchemaError(
                    f"The codes of a pl.Categorical depend on what was read before; {text_of(part)} is one. Leave the "
                    "text as it is, which becomes codes in the stash, or cast it to pl.Enum([...])."
                )


def _ranks_at_random(expr: "pl.Expr") -> bool:
    """Whether equal elements of a list are ranked by chance, which is in no text of an expression."""
    with suppress(Exception):  # whatever a function raises that cannot be pickled
        return b"method\xa6Random" in expr.meta.serialize()
    return False


def _beyond_rows(expr: "pl.Expr", nothing: "pl.DataFrame") -> "pl.Expr | None":
    """The smallest part of an expression that needs more than its own row."""
    import polars as pl

    if _is_by_row(expr, nothing):
        return None
    for part in expr.meta.pop(schema=nothing.schema):
        if part.meta.root_names():
            with suppress(pl.exceptions.PolarsError):  # what stands for the elements of a list has no type elsewhere
                if (culprit := _beyond_rows(part, nothing)) is not None:
                    return culprit
    return expr


def _is_by_row(expr: "pl.Expr", nothing: "pl.DataFrame") -> bool:
    """Whether polars takes a slice of the rows before it computes the expression, and not after.

    It does so if all parts are elementwise, once types are known; `meta.is_row_separable` asks the outermost part only.
    """
    plan = nothing.lazy().with_columns(expr.alias("")).slice(1, 1).explain()
    steps = (line.strip() for line in plan.splitlines())
    return next(step for step in steps if step and not step.startswith("simple")).startswith("WITH_COLUMNS")


def _parts(expr: "pl.Expr", nothing: "pl.DataFrame") -> "Iterator[pl.Expr]":
    yield expr
    for part in expr.meta.pop(schema=nothing.schema):
        yield from _parts(part, nothing)


# Arrow to polars


def _dtype(about: pa.Field) -> Any:
    """The type that polars gives a column."""
    import polars as pl

    if pa.types.is_dictionary(about.type) and about.metadata:
        with suppress(pa.ArrowException):
            found = pl.Series(pl.from_arrow(pa.schema([about]).empty_table())).dtype
            if isinstance(found, pl.Enum):
                return found
    return _series(pa.nulls(0, about.type), about, None).dtype


def _series(array: pa.Array, about: pa.Field, dtype: Any) -> "pl.Series":
    """A column for polars; texts are plain, because each piece has a dictionary of its own, or none."""
    import polars as pl

    if pa.types.is_dictionary(array.type):
        if pa.types.is_string_view(array.type.value_type):
            array = pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(pa.large_string()))
        array = array.dictionary_decode()
    if pa.types.is_date64(array.type):
        array = array.cast(pa.date32())
    series = pl.Series(pl.from_arrow(_float32(array) if is_bfloat16(about) else array))
    return series.cast(dtype) if isinstance(dtype, pl.Enum) else series


def _float32(bits: pa.Array) -> pa.Array:
    """The values of bfloat16, which neither Arrow nor polars has, from its bits."""
    if pa.types.is_fixed_size_list(bits.type):
        size = bits.type.list_size
        items = _float32(bits.values.slice(bits.offset * size, len(bits) * size))
        return pa.FixedSizeListArray.from_arrays(items, size, mask=bits.is_null() if bits.null_count else None)
    mask = bits.is_null().to_numpy(zero_copy_only=False) if bits.null_count else None
    plain = bits.fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array((plain.astype(np.uint32) << 16).view(np.float32), mask=mask)
