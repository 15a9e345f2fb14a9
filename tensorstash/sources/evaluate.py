"""Polars expressions on Arrow arrays: their type, and their values piece by piece."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tensorstash.columns.expression import Compute, Expression
from tensorstash.columns.polars_texts import first_line, is_wrong_length
from tensorstash.columns.types import from_arrow, is_bfloat16
from tensorstash.common.forks import check_pool
from tensorstash.errors import DataError, SchemaError
from tensorstash.sources.elementwise import check_elementwise, check_repeatable
from tensorstash.sources.views import without_views

if TYPE_CHECKING:
    import polars as pl


def bind(expression: Expression, name: str, fields: Sequence[pa.Field], where: str) -> tuple[pa.DataType, Compute]:
    """The type of the values, and a function that computes them; `fields` are the fields of the input columns.

    Each value comes from its own row.
    """
    inputs, dtype = _typed(expression, name, fields, where, check_elementwise)
    return _arrow_type(name, dtype), _computing(expression.expr, name, inputs, dtype, _without_value)


def bind_per_entity(
    expression: Expression, name: str, fields: Sequence[pa.Field], where: str, grouped: bool
) -> tuple[pa.DataType, Compute]:
    """As `bind`, for values that come from the rows of an entity, which are in order.

    The function takes the number of the entity of each row first, then the inputs. If the rows are not `grouped`, all
    of them are one entity.
    """
    import polars as pl

    inputs, dtype = _typed(expression, name, fields, where, check_repeatable)
    # longer than the names of the inputs. Polars adds floats in another order where it knows that keys are sorted:
    # these numbers are not marked so, as the names of the entities are not
    entity = max(expression.columns, key=len, default="entity") + "_"
    expr = expression.expr.over(entity) if grouped else expression.expr
    number = _Input(entity, pa.field(entity, pa.int32()), pl.Int32)
    return _arrow_type(name, dtype), _computing(expr, name, [number, *inputs], dtype, _failed_over_rows)


@dataclass(frozen=True, slots=True)
class _Input:
    """A column of an expression: its name there, its field in the source, and its polars type."""

    name: str
    field: pa.Field
    dtype: Any


def _typed(
    expression: Expression,
    name: str,
    fields: Sequence[pa.Field],
    where: str,
    check: "Callable[[pl.Expr, pl.DataFrame], None]",
) -> tuple[list[_Input], Any]:
    """The inputs of an expression and the polars type of its values; `check` refuses it by what it is."""
    import polars as pl

    check_pool()
    try:
        inputs = [_Input(column, about, _polars_type(about)) for column, about in zip(expression.columns, fields)]
        nothing = pl.DataFrame(schema={one.name: one.dtype for one in inputs})
        dtype = nothing.lazy().select(expression.expr.alias(name)).collect_schema()[name]
        check(expression.expr, nothing)
    except SchemaError:
        raise
    except (Exception, pl.exceptions.PanicException) as error:
        shown = ", ".join(f"{about.name!r} is {about.type}" for about in fields)
        raise SchemaError(
            f"An expression must suit its columns; {name!r} cannot be computed from {where}, where {shown}: "
            f"{first_line(error)}. Cast the columns, or the result."
        ) from error
    return inputs, dtype


def _computing(
    expr: "pl.Expr",
    name: str,
    inputs: Sequence[_Input],
    dtype: Any,
    failed: Callable[[str, str, BaseException], DataError],
) -> Compute:
    """The function that computes an expression from the arrays of its inputs; `failed` makes its error."""
    import polars as pl

    def compute(arrays: Sequence[pa.Array], place: str) -> pa.Array:
        try:
            columns = [_series(array, one.field, one.dtype).alias(one.name) for array, one in zip(arrays, inputs)]
            values = pl.DataFrame(columns).with_columns(expr.alias(name))[name]
            if values.dtype != dtype:
                raise TypeError(f"its values are {values.dtype}, not {dtype}")
        except (Exception, pl.exceptions.PanicException) as error:  # raised by polars or by a Python function
            raise failed(name, place, error) from error
        return values.to_arrow()

    return compute


def _failed_over_rows(name: str, place: str, error: BaseException) -> DataError:
    if not is_wrong_length(error):
        return _without_value(name, place, error)
    return DataError(
        f"An expression over the rows of an entity gives a value for each row, or one for all; {name!r} does not in "
        f"{place}: {first_line(error)}. Let values be null instead of leaving rows out."
    )


def _without_value(name: str, place: str, error: BaseException) -> DataError:
    return DataError(
        f"An expression must have a value in every row; {name!r} fails in {place}: {first_line(error)}. "
        "Let it be null there, as cast(..., strict=False) does, or leave such rows out with filter=."
    )


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
