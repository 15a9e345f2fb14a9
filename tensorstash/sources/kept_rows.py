"""The rows that a load keeps, found by reading the columns that decide it before the others."""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tensorstash.columns.names import field_of
from tensorstash.columns.types import is_text
from tensorstash.errors import DataError, SchemaError, unknown
from tensorstash.sources.pyarrow_texts import missing_column
from tensorstash.sources.read import Source, Unit, with_rows
from tensorstash.sources.storage import decoded, without_views

if TYPE_CHECKING:
    from tensorstash.sources.filter import Filter

_TEXT_BYTES = 1 << 26  # bytes of one text column that are decoded at a time


def filtered(source: Source, condition: "Filter", names: Sequence[str], progress: bool | None) -> Source:
    """The source with the rows that the filter keeps; `names` are the columns of the filter."""

    def flags_of(unit: Unit, _: int, batch: pa.RecordBatch) -> NDArray[np.bool_]:
        rows = _rows_at_a_time(batch)
        starts = range(0, max(1, batch.num_rows), rows)
        try:
            return np.concatenate([_mask(batch.slice(at, rows), condition.expression) for at in starts])
        except pa.ArrowException as error:  # a division by zero, for example
            raise DataError(f"filter= must have a value for every row; in {unit.place} it fails: {error}.") from error

    return with_rows(source, names, flags_of, "filter", progress)


def _rows_at_a_time(batch: pa.RecordBatch) -> int:
    """How many rows to compare at a time: a long text in a dictionary may be the value of every row."""
    dictionaries = [without_views(array.dictionary) for array in batch.columns if pa.types.is_dictionary(array.type)]
    lengths = [pc.max(pc.binary_length(texts)).as_py() for texts in dictionaries if is_text(texts.type)]
    return max(1, _TEXT_BYTES // max((length or 1 for length in lengths), default=1))


def _mask(batch: pa.RecordBatch, expression: pc.Expression) -> NDArray[np.bool_]:
    """Where an expression is true: neither false nor null."""
    import pyarrow.dataset as pads  # here, because it is slow to import

    arrays = [*map(decoded, batch.columns)]
    # nothing in Arrow compares half floats
    wide = [array.cast(pa.float32()) if pa.types.is_float16(array.type) else array for array in arrays]
    plain = pa.table(wide, names=batch.schema.names)
    kept = pads.dataset(plain).to_table(columns={"kept": expression}, use_threads=False)["kept"]
    if not pa.types.is_boolean(kept.type):
        raise pa.ArrowTypeError(f"its values are {kept.type}, not true or false")
    return np.asarray(pc.fill_null(kept, False).combine_chunks().to_numpy(zero_copy_only=False))


def columns_of(condition: "Filter", schema: pa.Schema, where: str) -> list[str]:
    """The columns that the filter uses; raise if it cannot be evaluated."""
    names = sorted(condition.named) or condition.names(schema)
    fields = [field_of(schema, name, where) for name in names]
    if condition.formula is not None:
        return names
    try:
        _mask(_nothing(fields), condition.expression)
    except (pa.ArrowException, TypeError, ValueError, KeyError) as error:
        if (missing := missing_column(error)) is not None:
            raise unknown(missing, schema.names, where) from error
        shown = ", ".join(f"{field.name!r} is {field.type}" for field in fields)
        raise SchemaError(
            f"filter= must be true or false for every row of {where}, where {shown}: {error}. Compare each column with "
            "values of its type, a time with a datetime or a text in ISO 8601."
        ) from error
    for field in list(fields):
        rest = [other for other in fields if other is not field]
        with suppress(pa.ArrowException):
            _mask(_nothing(rest), condition.expression)
            fields = rest  # the name occurs only in a value of the expression
    return [field.name for field in fields]


def _nothing(fields: Sequence[pa.Field]) -> pa.RecordBatch:
    """A row of nulls: without a row, some functions do not check types, and a batch needs a column to have rows."""
    arrays = {field.name: pa.nulls(1, field.type) for field in fields}
    return pa.record_batch(arrays or {"": pa.nulls(1)})
