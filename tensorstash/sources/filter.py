"""The condition on rows in any form of `filter=`."""

import math
import pickle
import sys
from collections.abc import Iterable, Sized
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import reduce
from hashlib import blake2b
from numbers import Integral, Real
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tensorstash.columns.expression import Expression, is_expression, member_of
from tensorstash.columns.types import is_number, is_text, value_type
from tensorstash.common.checks import is_listed, shown
from tensorstash.common.text import type_text
from tensorstash.errors import SchemaError
from tensorstash.sources.iso_times import without_zeros
from tensorstash.sources.pyarrow_texts import has_positions
from tensorstash.sources.read import Wanted
from tensorstash.sources.storage import decoded

_COMPARISONS = {"=": eq, "==": eq, "!=": ne, "<": lt, ">": gt, "<=": le, ">=": ge}
_OPERATORS = (*_COMPARISONS, "in", "not in")
_FEW_VALUES = 64  # so many values of a list are compared one by one
_LISTS = (list, tuple, set, frozenset, range)
_APART = (bool, np.bool_, date)  # in a list with values of other types, Arrow would convert one to the other
_LEAST, _MOST = 1e-20, 1e38  # of floats that are compared with decimals digit by digit: a decimal has at most 76
_UNITS = ("s", "ms", "us", "ns")

Clauses = tuple[tuple[tuple[str, str, Any], ...], ...]  # OR of ANDs of (column, operator, value)


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition on rows."""

    expression: pc.Expression
    clauses: Clauses | None = None  # if the filter was given as tuples
    formula: Expression | None = None  # a polars expression, whose values are in the column that `expression` names

    def key(self) -> str:
        """A hash of the condition."""
        if self.formula is not None:
            return self.formula.key()
        return blake2b(pickle.dumps(self.expression), digest_size=16).hexdigest()

    @property
    def named(self) -> frozenset[str]:
        """The columns in the condition; empty for a pyarrow expression, which does not list them."""
        if self.formula is not None:
            return frozenset(self.formula.columns)
        return frozenset(name for clause in self.clauses or () for name, _, _ in clause)

    @property
    def mentions(self) -> str:
        """A pyarrow expression as text, in which the names of its columns stand; empty for other conditions."""
        return "" if self.named else str(self.expression)

    def fitted(self, schema: pa.Schema) -> "Filter":
        """The filter with values in the types of their columns."""
        if self.clauses is None:
            return self
        clauses = tuple(tuple((*term[:2], _fitted(term, schema)) for term in clause) for clause in self.clauses)
        return Filter(_any_clause(clauses), clauses)

    def names(self, schema: pa.Schema) -> list[str]:
        """The columns of a schema that the filter names; for a pyarrow expression possibly too many, never too few."""
        return Wanted(self.named, self.mentions).among(schema.names)

    def for_statistics(self, schema: pa.Schema) -> pc.Expression | None:
        """The part that minima and maxima can decide. They do not count NaN, which pyarrow ignores."""
        if self.formula is not None:
            return None
        types = {name: value_type(schema.field(name).type) for name in self.names(schema)}
        floating = {name for name, arrow in types.items() if pa.types.is_floating(arrow) or pa.types.is_nested(arrow)}
        if self.clauses is None:
            return None if floating else self.expression
        clauses = [
            [term for term in clause if term[0] in schema.names and (term[0] not in floating or _excludes_nan(term))]
            for clause in self.fitted(schema).clauses or ()
        ]
        return _any_clause(clauses) if all(clauses) else None


def parse(condition: Any) -> Filter:
    """Parse `filter=`: an expression, a list of tuples (all must hold), or a list of such lists (one must hold)."""
    if is_expression(condition):
        formula = member_of(condition)
        if isinstance(formula, Expression):
            return Filter(pc.field("filter="), formula=formula)
        return Filter(pc.field(str(formula)))
    if isinstance(condition, pc.Expression):
        if has_positions(condition):
            raise ValueError(
                f"A filter must name its columns; {condition} refers to one by its number. Write pc.field('name')."
            )
        return Filter(condition)
    is_nested = isinstance(condition, list) and condition and all(isinstance(item, list) for item in condition)
    groups: Any = condition if is_nested else [condition]
    for group in groups:
        if (
            not isinstance(group, list)
            or not group
            or not all(
                isinstance(term, tuple)
                and len(term) == 3
                and isinstance(term[0], str)
                and isinstance(term[1], str)
                and term[1] in _OPERATORS
                for term in group
            )
        ):
            raise TypeError(
                "filter= is an expression, such as pl.col('t') > 5 or pyarrow.compute.field('t') > 5, a list of tuples "
                "(column, operator, value), or a list of such lists, of which one must hold; operators are "
                f"{', '.join(_OPERATORS)}; got {shown(condition)}."
            )
    clauses = tuple(tuple((*term[:2], _checked(*term)) for term in group) for group in groups)
    return Filter(_any_clause(clauses), clauses)


def _any_clause(clauses: Iterable[Iterable[tuple[str, str, Any]]]) -> pc.Expression:
    terms = ([_holds(*term) for term in clause] for clause in clauses)
    return reduce(or_, (reduce(and_, clause) for clause in terms))


def _holds(name: str, operator: str, value: Any) -> pc.Expression:
    """The condition of one term. A null satisfies none; `in` is == joined by or, `not in` is != joined by and."""
    column = pc.field(name)
    if operator in _COMPARISONS:
        return _COMPARISONS[operator](column, _for_arrow(value))
    values = _as_array(value).drop_null()
    is_member = _is_member(column, values) if len(values) else pc.scalar(False)
    return is_member if operator == "in" else ~is_member & column.is_valid()


def _as_array(value: Any) -> pa.Array:
    """The values of a list."""
    return decoded(pa.array([*map(_for_arrow, value)] if isinstance(value, _LISTS) else value))


def _for_arrow(value: Any) -> Any:
    """A value that pyarrow takes: large integers as decimals, times of numpy in days or hours as those of Python."""
    if isinstance(value, np.datetime64) and np.datetime_data(value.dtype)[0] not in _UNITS:
        time = value.item()
        if isinstance(time, int):  # Python has none that is so fine, or so far away
            raise TypeError("no time of Python")
        return time
    is_large = isinstance(value, (int, np.unsignedinteger)) and not -(2**63) <= value < 2**63
    return Decimal(int(value)) if is_large else value


def _is_member(column: pc.Expression, values: pa.Array) -> pc.Expression:
    """Whether the column equals a value.

    Arrow's `is_in` rounds values to the column's type, and takes -0.0 and 0.0 for different values.
    """
    if len(values) <= _FEW_VALUES:
        return reduce(or_, (column == value for value in values))
    # this comparison fails for columns of another kind, such as booleans, which the others would convert
    of_kind = column == values[0]
    if not pa.types.is_floating(values.type):
        return of_kind | column.isin(values)
    floats = [value for value in values.to_pylist() if not math.isnan(value)]
    zeros = [0.0, -0.0] if 0.0 in floats else []
    return of_kind | column.cast(pa.float64(), safe=False).isin([*floats, *zeros])


def _checked(name: str, operator: str, value: Any) -> Any:
    """The value with its times as Arrow; raises if no column can be compared with it. Its column is checked later."""
    text = " ".join(repr(value).split())
    several = isinstance(value, Sized) and is_listed(value)
    if several and str(getattr(value, "dtype", "")).lower() == "object":  # of which Arrow would make times of one kind
        pandas = sys.modules.get("pandas")  # where there is none, neither is its NA
        value = [*value] if pandas is None else pandas.Series([*value], dtype=object).dropna().tolist()
    if operator in ("in", "not in") and not several:
        raise TypeError(
            f"The operator {operator!r} needs a list of values; {name!r} is compared with {text}. Write [{text}]."
        )
    if isinstance(value, _LISTS) and any(isinstance(item, float) for item in value):
        # Arrow takes decimals with whole numbers, not with floats
        has_decimal = any(isinstance(item, Decimal) for item in value)
        value = value if has_decimal else _as_floats(name, value)
    try:
        given = [_for_arrow(item) for item in value if item is not None] if isinstance(value, _LISTS) else []
        if (several and operator in _COMPARISONS) or len({type(item) in _APART for item in given}) > 1:
            raise TypeError
        exact = _exact(value)
        _holds(name, operator, exact)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        how = f"To compare with several values, write ({name!r}, 'in', [...])"
        if operator not in _COMPARISONS and isinstance(value, _LISTS):
            types = ", ".join(sorted({type(item).__name__ for item in value if item is not None}))
            how = f"Write values of one type, and times that all have a zone or all none; those of the list are {types}"
        raise TypeError(
            f"filter= compares a column with numbers, texts, dates and times; {name!r} is compared with {text}, "
            f"{type_text(value)}. {how}."
        ) from error
    if operator in _COMPARISONS and not pa.scalar(_for_arrow(exact)).is_valid:
        raise ValueError(
            f"A comparison with a null is never true; filter= has ({name!r}, {operator!r}, {text}). Write an "
            f"expression: pc.field({name!r}).is_null(), or ~pc.field({name!r}).is_null()."
        )
    return exact


def _as_floats(name: str, value: Any) -> Any:
    """Numbers, alone or in a list, as floats: Arrow refuses some integers that a float can hold, and half floats.

    A decimal is the nearest float, which Arrow often misses.
    """
    if isinstance(value, _LISTS):
        return [_as_floats(name, item) for item in value]
    number = _number(value)
    if number is None:
        return value
    if not isinstance(number, float) and number == int(number) != float(number):
        raise ValueError(
            f"Floats must be compared with numbers that a float can hold; filter= compares {name!r} with {value}. "
            f"Write the nearest float, {float(value)!r}."
        )
    return float(number)


def _number(value: Any) -> int | float | Decimal | None:
    """A number as one of Python, which compares all of its own exactly; `None` for what is none."""
    if isinstance(value, (bool, np.timedelta64)) or not isinstance(value, (Real, Decimal)):
        return None  # numpy calls its durations integers
    if isinstance(value, Integral):
        return int(value)
    return value if isinstance(value, Decimal) else float(value)


def _as_integers(operator: str, value: Any, kind: pa.DataType) -> Any:
    """Numbers, alone or in a list, as integers with the same result: Arrow would round the column, or overflow."""
    widest, low, high = (pa.uint64(), 0, 2**64) if kind == pa.uint64() else (pa.int64(), -(2**63), 2**63)
    if operator not in _COMPARISONS:
        array = _as_array(value)
        if not is_number(array.type) or pa.types.is_boolean(array.type):
            return value
        return pa.array([int(n) for n in array.drop_null().to_pylist() if low <= n < high and n == int(n)], widest)
    number = _number(value)
    if number is None or isinstance(number, Decimal):
        return value
    whole = number if isinstance(number, int) else _whole(operator, number, low - 1, high)
    return pa.scalar(whole, widest) if low <= whole < high else pa.scalar(Decimal(whole))


def _whole(operator: str, value: float, below: int, above: int) -> int:
    """The integer with which every integer between two others compares as with a float."""
    if math.isnan(value):
        return above if operator in (">", ">=") else below
    bounded = min(max(value, below), above)
    if operator in ("<", ">="):
        return math.ceil(bounded)
    return math.floor(bounded) if operator in ("<=", ">") or bounded == int(bounded) else below


def _as_decimals(operator: str, value: Any, kind: pa.DataType) -> Any:
    """Numbers, alone or in a list, as decimals: Arrow would make floats of the column, and not always the nearest."""
    if operator not in _COMPARISONS:
        items = [_as_decimals("==", item, kind) for item in _as_array(value).to_pylist() if item is not None]
        are_numbers = all(isinstance(item, (pa.Scalar, float)) for item in items)
        # the column has no others
        return [item for item in items if getattr(item, "type", None) == kind] if are_numbers else value
    number = _number(value)
    if number is None or (isinstance(number, float) and number and not _LEAST <= abs(number) <= _MOST):
        return value
    exact = pa.scalar(Decimal(str(number)))
    with suppress(pa.ArrowException):
        if (fitted := exact.cast(kind)).as_py() == exact.as_py():  # decimals of 32 bits overflow in silence
            return fitted
    return exact.cast(pa.decimal256(exact.type.precision, exact.type.scale))


def _fitted(term: tuple[str, str, Any], schema: pa.Schema) -> Any:
    """The value of a term in the type of its column: numbers, and dates and texts in ISO 8601 as dates and times."""
    name, operator, value = term
    index = schema.get_field_index(name)
    kind = value_type(schema.field(index).type) if index >= 0 else pa.null()
    array = None if operator in _COMPARISONS else _as_array(value)
    if pa.types.is_floating(kind):
        is_exact = array is not None and array.type in (pa.float32(), pa.float64())
        return array if is_exact else _as_floats(name, value if array is None else array.to_pylist())
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return (_as_integers if pa.types.is_integer(kind) else _as_decimals)(operator, value, kind)
    return _as_times(name, value, array, kind) if pa.types.is_date(kind) or pa.types.is_timestamp(kind) else value


def _as_times(name: str, value: Any, array: pa.Array | None, kind: pa.DataType) -> Any:
    """Times as Arrow compares them with a column of this kind; `array` has those of a list."""
    items = [_for_arrow(value)] if array is None else [*value] if isinstance(value, _LISTS) else [array]
    if array is not None and (pa.types.is_date(array.type) or is_text(array.type) or pa.types.is_null(array.type)):
        items = array.to_pylist()
    _check_zones(name, value, items, kind)
    # no time of the column equals one between its ticks
    if array is not None and pa.types.is_timestamp(array.type):
        times = _as_time(array, kind)
        ticks = times.cast(kind, safe=False)
        return ticks.filter(pc.equal(ticks.cast(times.type, safe=False), times))
    given = [item for item in items if item is not None]
    scalars = [time for item in given if (time := _as_time(item, kind)) is not None]
    if len(scalars) < len(given):
        return value
    if array is None:
        return scalars[0]
    return [tick for time in scalars if (tick := time.cast(kind, safe=False)).cast(time.type, safe=False) == time]


def _check_zones(name: str, value: Any, items: Iterable[Any], kind: pa.DataType) -> None:
    """Raise if a column of times with a zone is compared with one without, or the other way round."""
    zone = getattr(kind, "tz", None)
    if all(_has_zone(item) in (None, zone is not None) for item in items):
        return
    if zone is not None:
        whose, other, how = f"The times of {name!r} have a zone", "none", f"one with a zone, or a text: it is in {zone}"
    elif pa.types.is_date(kind):
        whose, other, how = "Dates have no zone", "one", "a date"
    else:
        whose, other, how = f"The times of {name!r} have no zone", "one", "one without a zone"
    raise SchemaError(
        f"{whose} and must not be compared with a time that has {other}; filter= compares {name!r} with "
        f"{' '.join(repr(value).split())}. Write {how}."
    )


def _has_zone(value: Any) -> bool | None:
    """Whether a time has a zone; `None` for what is no time, and for texts without a zone, which have the column's."""
    if isinstance(value, str):
        return True if _read(value, pa.timestamp("s", "UTC")) is not None else None
    if isinstance(value, (datetime, np.datetime64)):
        return getattr(value, "tzinfo", None) is not None
    kind = getattr(value, "type", None)
    return kind.tz is not None if isinstance(kind, pa.TimestampType) else None


def _as_time(value: Any, kind: pa.DataType) -> Any:
    """A time of Arrow, or an array of times: of a text, in the zone of the column, or midnight of a date there.

    `None` for any other value.
    """
    is_zoned, is_day = pa.types.is_timestamp(kind) and kind.tz is not None, type(value) is date
    has_zone = None if isinstance(value, str) else _has_zone(value)
    if has_zone is not None or (is_day and not is_zoned):
        times = value if hasattr(value, "type") else pa.scalar(_for_arrow(value))
        # Arrow compares few units in two zones
        return times.cast(pa.timestamp(times.type.unit, kind.tz)) if has_zone else times
    if not isinstance(value, str) and not is_day:
        return None
    time = _read(str(value), kind)
    if time is None and is_zoned and (local := _read(str(value), pa.timestamp(kind.unit))) is not None:
        midnight = {"ambiguous": "earliest", "nonexistent": "latest"} if is_day else {}
        with suppress(pa.ArrowException):
            return pc.assume_timezone(local, kind.tz, **midnight)
    return time


def _read(text: str, kind: pa.DataType) -> pa.Scalar | None:
    """The time of a text in the type of a column, or in a finer unit, with which Arrow compares exactly."""
    coarsest = _UNITS.index(getattr(kind, "unit", "s"))
    for finer in (kind, *(pa.timestamp(unit, getattr(kind, "tz", None)) for unit in _UNITS[coarsest:])):
        with suppress(pa.ArrowException):
            return pa.scalar(without_zeros(text)).cast(finer)
    return None


def _excludes_nan(term: tuple[str, str, Any]) -> bool:
    return term[1] in _COMPARISONS and term[1] != "!=" and not (isinstance(term[2], float) and math.isnan(term[2]))


def _exact(value: Any) -> Any:
    """Times of pandas and polars as Arrow: pyarrow would convert them to `datetime`, which rounds to microseconds."""
    polars, pandas = sys.modules.get("polars"), sys.modules.get("pandas")
    if polars is not None and isinstance(value, polars.Series):
        return value.to_arrow()
    several = isinstance(value, _LISTS)
    items = [_plain(item) for item in (value if several else [value])]
    value = items if several else items[0]
    if pandas is None or not any(isinstance(item, (pandas.Timestamp, pandas.Timedelta)) for item in items):
        return value
    times = pandas.Series(items)
    if times.dtype.kind not in "mM":
        raise TypeError("times of one kind and zone")
    array = pa.array(times)
    return array if several else array[0]


def _plain(value: Any) -> Any:
    """A scalar of Arrow as an object of Python, but for times of day and moments, which may have nanoseconds."""
    is_exact = isinstance(value, pa.Scalar) and (not pa.types.is_temporal(value.type) or pa.types.is_date(value.type))
    return value.as_py() if is_exact else value
