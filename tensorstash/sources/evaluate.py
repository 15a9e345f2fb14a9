"""Polars expressions on Arrow arrays: their type, and their values piece by piece."""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tensorstash.columns.expression import Compute, Expression
from tensorstash.columns.polars_texts import first_line
from tensorstash.columns.types import from_arrow, is_bfloat16
from tensorstash.common.forks import check_pool
from tensorstash.errors import DataError, SchemaError
from tensorstash.sources.elementwise import check_elementwise
from tensorstash.sources.views import without_views

if TYPE_CHECKING:
    import polars as pl


def bind(expression: Expression, name: str, fields: Sequence[pa.Field], where: str) -> tuple[pa.DataType, Compute]:
    """The type of the values, and a function that computes them; `fields` are the fields of the input columns."""
    import polars as pl

    check_pool()
    expr, columns = expression.expr, expression.columns
    try:
        dtypes = [_polars_type(about) for about in fields]
        nothing = pl.DataFrame(schema=dict(zip(columns, dtypes)))
        dtype = nothing.lazy().select(expr.alias(name)).collect_schema()[name]
        check_elementwise(expr, nothing)
    except SchemaError:
        raise
    except (Exception, pl.exceptions.PanicException) as error:
        shown = ", ".join(f"{about.name!r} is {about.type}" for about in fields)
        raise SchemaError(
            f"An expression must suit its columns; {name!r} cannot be computed from {where}, where {shown}: "
            f"{first_line(error)}. Cast the columns, or the result."
        ) from error

    arrow = _arrow_type(name, dtype)

    def compute(arrays: Sequence[pa.Array], place: str) -> pa.Array:
        try:
            inputs = [_series(*one).alias(column) for column, *one in zip(columns, arrays, fields, dtypes)]
            values = pl.DataFrame(inputs).with_columns(expr.alias(name))[name]
            if values.dtype != dtype:
                raise TypeError(f"its values are {values.dtype}, not {dtype}")
        except (Exception, pl.exceptions.PanicException) as error:  # raised by polars or by a Python function
            raise DataError(
                f"An expression must have a value in every row; {name!r} fails in {place}: {first_line(error)}. "
                "Let it be null there, as cast(..., strict=False) does, or leave such rows out with filter=."
            ) from error
        return values.to_arrow()

    return arrow, compute


def _arrow_type(name: str, dtype: Any) -> pa.DataType:
    """The Arrow type that polars exports a polars type as; refused if a stash cannot hold it."""
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


def _polars_type(about: pa.Field) -> Any:
    """The polars type that an Arrow column is imported as."""
    import polars as pl

    if pa.types.is_dictionary(about.type) and about.metadata:
        with suppress(pa.ArrowException):
            found = pl.Series(pl.from_arrow(pa.schema([about]).empty_table())).dtype
            if isinstance(found, pl.Enum):
                return found
    return _series(pa.nulls(0, about.type), about, None).dtype


def _series(array: pa.Array, about: pa.Field, dtype: Any) -> "pl.Series":
    """An Arrow array as a polars series. Text is decoded, because the dictionaries of different pieces differ."""
    import polars as pl

    if pa.types.is_dictionary(array.type):
        array = without_views(array).dictionary_decode()
    if pa.types.is_date64(array.type):
        array = array.cast(pa.date32())
    series = pl.Series(pl.from_arrow(_float32(array) if is_bfloat16(about) else array))
    return series.cast(dtype) if isinstance(dtype, pl.Enum) else series


def _float32(bits: pa.Array) -> pa.Array:
    """The float32 values of bfloat16 bits: neither Arrow nor polars has the type."""
    if pa.types.is_fixed_size_list(bits.type):
        size = bits.type.list_size
        items = _float32(bits.values.slice(bits.offset * size, len(bits) * size))
        return pa.FixedSizeListArray.from_arrays(items, size, mask=bits.is_null() if bits.null_count else None)
    mask = bits.is_null().to_numpy(zero_copy_only=False) if bits.null_count else None
    plain = bits.fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array((plain.astype(np.uint32) << 16).view(np.float32), mask=mask)
