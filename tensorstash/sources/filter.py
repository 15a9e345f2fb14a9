"""Which rows are loaded: a condition, evaluated on paths and statistics first, then on the columns that it names."""

import math
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import acero

from tensorstash.columns.names import field_of
from tensorstash.columns.types import is_bfloat16, is_text
from tensorstash.common.threads import each, threads
from tensorstash.errors import DataError, SchemaError, unknown
from tensorstash.sources.filter_values import exact
from tensorstash.sources.pyarrow_texts import has_positions, missing_column
from tensorstash.sources.scan import Scan, Unit, Wanted, read
from tensorstash.sources.views import without_views

_OPERATORS = ("=", "==", "!=", "<", ">", "<=", ">=", "in", "not in")
_ORDERED = ("=", "==", "<", ">", "<=", ">=")  # NaN satisfies none of these, so a range without NaN may exclude rows

Clauses = tuple[tuple[tuple[str, str, Any], ...], ...]  # OR of ANDs of (column, operator, value)


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition on rows."""

    expression: pc.Expression
    clauses: Clauses | None = None  # as it was given, if not as an expression

    def key(self) -> str:
        """A hash of the whole expression."""
        return blake2b(pickle.dumps(self.expression), digest_size=16).hexdigest()

    def add_to(self, wanted: Wanted) -> Wanted:
        """The wanted columns and those of the filter."""
        if self.clauses is None:
            return replace(wanted, mentions=str(self.expression))
        own = {name for clause in self.clauses for name, _, _ in clause}
        return wanted if wanted.names is None else replace(wanted, names=wanted.names | own)

    def names(self, schema: pa.Schema) -> list[str]:
        """The columns of a schema that the filter names; for an expression there may be too many, never too few."""
        return self.add_to(Wanted(frozenset())).among(schema.names)

    def for_statistics(self, schema: pa.Schema) -> pc.Expression | None:
        """The part that minima and maxima can decide: they leave out NaN, which pyarrow does not consider."""
        floating = {name for name in self.names(schema) if _holds_nan(schema.field(name).type)}
        if self.clauses is None:
            return None if floating else self.expression
        clauses = [
            [term for term in clause if term[0] in schema.names and (term[0] not in floating or _excludes_nan(term))]
            for clause in self.clauses
        ]
        return pq.filters_to_expression(clauses) if all(clauses) else None


def parse(given: Any) -> Filter | None:
    """Parse `filter=`: an expression, a list of tuples (all must hold), or a list of such lists (one must hold)."""
    if given is None:
        return None
    if isinstance(given, pc.Expression):
        if has_positions(given):
            raise ValueError(
                f"A filter names its columns; {given} refers to one by its number. Write pc.field('name')."
            )
        return Filter(given)
    groups: Any = (
        given if isinstance(given, list) and given and all(isinstance(item, list) for item in given) else [given]
    )
    for group in groups:
        if not isinstance(group, list) or not group or not all(map(_is_term, group)):
            raise TypeError(
                "filter= is an expression, as pyarrow.compute.field('t') > 5, a list of tuples (column, operator, "
                f"value), or a list of such lists, of which one must hold; operators are {', '.join(_OPERATORS)}; "
                f"got {given!r}."
            )
        for term in group:
            _check_value(*term)
    clauses = tuple(tuple((name, operator, exact(value)) for name, operator, value in group) for group in groups)
    return Filter(pq.filters_to_expression([[*clause] for clause in clauses]), clauses)


def _is_term(term: Any) -> bool:
    if not (isinstance(term, tuple) and len(term) == 3):
        return False
    return isinstance(term[0], str) and isinstance(term[1], str) and term[1] in _OPERATORS


def _check_value(name: str, operator: str, value: Any) -> None:
    """Refuse a value that no column can be compared with; whether it fits its column is checked later."""
    shown = " ".join(repr(value).split())
    if value is None and operator not in ("in", "not in"):
        raise ValueError(
            f"A comparison with a null is never true; filter= has ({name!r}, {operator!r}, None). Write an expression: "
            f"pc.field({name!r}).is_null(), or ~pc.field({name!r}).is_null()."
        )
    several = isinstance(value, Sized) and isinstance(value, Iterable) and not isinstance(value, (str, bytes))
    if operator in ("in", "not in") and not several:
        raise TypeError(
            f"The operator {operator!r} takes a list of values; {name!r} is compared with {shown}. Write [{shown}]."
        )
    try:
        pq.filters_to_expression([(name, operator, exact(value))])
    except OverflowError as error:
        raise ValueError(
            f"Integers in filter= lie in [-2**63, 2**63); {name!r} is compared with {shown}. For an unsigned one write "
            f"pc.field({name!r}) {operator} pa.scalar(..., pa.uint64())."
        ) from error
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise TypeError(
            f"filter= compares a column with numbers, texts, dates and times; {name!r} is compared with {shown}, "
            f"a {type(value).__name__}. For one of several values write ({name!r}, 'in', [...])."
        ) from error


def _holds_nan(arrow: pa.DataType) -> bool:
    plain = arrow.value_type if pa.types.is_dictionary(arrow) else arrow
    return bool(pa.types.is_floating(plain) or pa.types.is_nested(plain))


def _excludes_nan(term: tuple[str, str, Any]) -> bool:
    return term[1] in _ORDERED and not (isinstance(term[2], float) and math.isnan(term[2]))


# Rows


def filtered(scanned: Scan, condition: Filter, names: Sequence[str], progress: bool | None) -> Scan:
    """The scan of the rows that the filter keeps; `names`, the columns of the filter, are read for it."""
    return with_rows(scanned, partial(_judge, names, condition), "filter", progress)


Judge = Callable[
    [Unit], tuple[NDArray[np.uint8], int]
]  # one bit per row of a unit, set if it is kept, and their number


def with_rows(scanned: Scan, judge: Judge, what: str, progress: bool | None) -> Scan:
    """The scan of the rows that `judge` keeps; units without such rows are left out."""
    judged = each(judge, scanned.units, threads(), what, progress)
    units, start = [], 0
    for unit, (bits, rows) in zip(scanned.units, judged):
        if rows == unit.rows:
            units.append(replace(unit, start=start))
        elif rows:
            units.append(
                replace(unit, start=start, rows=rows, read=partial(_read, unit, bits), kept=_among(unit, bits))
            )
        start += rows
    return replace(scanned, units=tuple(units))


def _among(unit: Unit, bits: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The bits of a unit's rows, spread over the rows of the source of which it kept some before."""
    if unit.kept is None:
        return bits
    whole = np.unpackbits(unit.kept)
    whole[np.flatnonzero(whole)] = np.unpackbits(bits)[: unit.rows]
    return np.packbits(whole)


def _judge(names: Sequence[str], condition: Filter, unit: Unit) -> tuple[NDArray[np.uint8], int]:
    """One bit per row of a unit, set if the row is kept, and the number of set bits."""
    if not names:
        batches: Iterator[pa.RecordBatch] = iter([pa.record_batch({"": pa.nulls(unit.rows)})])
    else:
        batches = (batch for _, batch in read(unit, names))
    found = [_flags(batch, condition, unit.place) for batch in batches]
    flags = np.concatenate([np.empty(0, np.bool_), *found])
    return np.packbits(flags), int(np.count_nonzero(flags))


def _read(unit: Unit, bits: NDArray[np.uint8], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    at = 0
    for _, batch in read(unit, names):
        end = at + batch.num_rows
        flags = np.unpackbits(bits[at // 8 : -(-end // 8)])[at % 8 :][: batch.num_rows].view(np.bool_)
        at = end
        if flags.any():
            plain = pa.RecordBatch.from_arrays([*map(without_views, batch.columns)], names=batch.schema.names)
            yield plain.filter(pa.array(flags))


def _flags(batch: pa.RecordBatch, condition: Filter, place: str) -> NDArray[np.bool_]:
    try:
        return _mask(batch, condition.expression)
    except pa.ArrowException as error:  # a division by zero, for example
        raise DataError(f"filter= must have a value for every row; in {place} it fails: {error}.") from error


def _mask(batch: pa.RecordBatch, expression: pc.Expression) -> NDArray[np.bool_]:
    """Where an expression is true: neither false nor null."""
    plain = pa.table([_plain(column) for column in batch.columns], names=batch.schema.names)
    steps = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(plain)),
        acero.Declaration("project", acero.ProjectNodeOptions([expression], ["kept"])),
    ]
    kept = acero.Declaration.from_sequence(steps).to_table(use_threads=False)["kept"]
    if not pa.types.is_boolean(kept.type):
        raise pa.ArrowTypeError(f"its values are {kept.type}, not true or false")
    return np.asarray(pc.fill_null(kept, False).combine_chunks().to_numpy(zero_copy_only=False))


def _plain(array: pa.Array) -> pa.Array:
    """The values in a type that pyarrow has comparison functions for."""
    array = without_views(array)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def columns_of(condition: Filter, schema: pa.Schema, where: str) -> list[str]:
    """The columns that the filter uses; a filter that cannot be evaluated is refused."""
    if condition.clauses is not None:
        names = list(
            dict.fromkeys(field_of(schema, name, where).name for clause in condition.clauses for name, *_ in clause)
        )
    else:
        names = condition.names(schema)
    fields = [field_of(schema, name, where) for name in names]
    try:
        _mask(_nothing(fields), condition.expression)
    except (pa.ArrowException, TypeError, ValueError, KeyError) as error:
        if (missing := missing_column(error)) is not None:
            raise unknown(missing, schema.names, where) from error
        shown = ", ".join(f"{field.name!r} is {field.type}" for field in fields)
        raise SchemaError(
            f"filter= must be true or false for every row of {where}, where {shown}: {error}. Compare each column with "
            "values of its type, a time with a datetime."
        ) from error
    for field in list(fields):
        rest = [other for other in fields if other is not field]
        with suppress(pa.ArrowException):
            _mask(_nothing(rest), condition.expression)
            fields = rest  # the name only occurred in a value
    if odd := [field.name for field in fields if is_bfloat16(field)]:
        raise SchemaError(
            f"filter= compares columns of types that Arrow has; {odd[0]!r} is bfloat16, which Arrow lacks. "
            "Filter by another column."
        )
    return [field.name for field in fields]


def _nothing(fields: Sequence[pa.Field]) -> pa.RecordBatch:
    """A batch of one row of nulls with at least one column: without a row, some functions do not check types."""
    arrays = [pa.nulls(1, pa.string() if is_text(field.type) else field.type) for field in fields] or [pa.nulls(1)]
    return pa.RecordBatch.from_arrays(arrays, names=[field.name for field in fields] or [""])
