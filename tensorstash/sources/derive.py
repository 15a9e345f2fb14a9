"""Columns that are computed while a source is read: the same scan with more fields, whose inputs need not be kept."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from tensorstash.columns.calendar import Moment
from tensorstash.columns.expression import Compute, Expression, Formula
from tensorstash.columns.names import field_of
from tensorstash.columns.spec import Columns, ColumnSpec, named
from tensorstash.errors import SchemaError
from tensorstash.sources.evaluate import bind
from tensorstash.sources.scan import Scan, Unit

_LONGEST = 80  # characters of the name of a formula


@dataclass(frozen=True, slots=True)
class Derived:
    """A column that a formula computes."""

    field: pa.Field
    inputs: tuple[str, ...]
    compute: Compute


def without_formulas(
    columns: Columns, argument: str, time: str | None, formulas: dict[str, Formula]
) -> dict[str, ColumnSpec]:
    """The same columns with a name in the place of each formula; the `formulas` by their names grow."""

    def name_of(source: str | Formula) -> str:
        if isinstance(source, str):
            return source
        if isinstance(source, Expression) and source.is_column:
            return source.columns[0]
        text = source.text(time)
        if len(text) > _LONGEST:
            text = text[: _LONGEST - 1] + "…"
        number, name = 1, text
        while name in formulas and not _same(formulas[name], source):
            number += 1
            name = f"{text} #{number}"
        formulas[name] = source
        return name

    return {name: replace(spec, source=_each(spec.source, name_of)) for name, spec in named(columns, argument)}


def with_keys(columns: Columns, argument: str) -> list[tuple[str, ColumnSpec]]:
    """The same columns with a key in the place of each formula, as bytes, which no column is named by."""

    def key(source: "str | Formula") -> Any:
        return source if isinstance(source, str) else source.key().encode()

    return [(name, replace(spec, source=_each(spec.source, key))) for name, spec in named(columns, argument)]


def _each(source: Any, change: Callable[[Any], Any]) -> Any:
    return tuple(map(change, source)) if isinstance(source, tuple) else change(source)


def _same(one: Formula, other: Formula) -> bool:
    if isinstance(one, Expression) and isinstance(other, Expression):
        return bool(one.expr.meta.eq(other.expr))
    return one == other


def bound(formulas: Mapping[str, Formula], time: str | None, scanned: Scan) -> tuple[Derived, ...]:
    """The formulas with the types of what they read; those that cannot be computed are refused."""
    derived = []
    for name, formula in formulas.items():
        inputs = formula.inputs(time)
        fields = [field_of(scanned.schema, column, scanned.label) for column in inputs]
        if name in scanned.schema.names:
            raise SchemaError(
                f"An expression is known by its text, and {scanned.label} has a column of that name, {name!r}. Rename "
                "the column."
            )
        assert isinstance(formula, (Expression, Moment))
        how = bind(formula, name, fields, scanned.label) if isinstance(formula, Expression) else formula.bind(fields)
        derived.append(Derived(pa.field(name, how[0]), inputs, how[1]))
    return tuple(derived)


def with_derived(scanned: Scan, derived: Sequence[Derived]) -> Scan:
    """A scan that has the derived columns behind its own."""
    if not derived:
        return scanned
    by_name = {column.field.name: column for column in derived}
    schema = pa.schema([*scanned.schema, *(column.field for column in derived)])
    units = tuple(replace(unit, read=partial(_read, unit, by_name)) for unit in scanned.units)
    return replace(scanned, schema=schema, units=units)


def _read(unit: Unit, derived: Mapping[str, Derived], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The batches of a unit with columns of its own and computed ones; only what these need is read."""
    wanted = [(name,) if name not in derived else derived[name].inputs for name in names]
    inputs = list(dict.fromkeys(name for group in wanted for name in group))
    for batch in unit.read(inputs):
        own = dict(zip(inputs, batch.columns))
        arrays = [own[name] if name not in derived else _computed(derived[name], own, unit.place) for name in names]
        yield pa.RecordBatch.from_arrays(arrays, names=list(names))


def _computed(column: Derived, own: Mapping[str, pa.Array], place: str) -> pa.Array:
    return column.compute([own[name] for name in column.inputs], place)
