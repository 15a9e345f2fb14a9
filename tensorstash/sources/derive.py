"""Columns that are computed while a source is read: a scan with more columns. Their inputs need not be stored."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from tensorstash.columns.calendar import Moment
from tensorstash.columns.expression import Compute, Expression, Formula
from tensorstash.columns.names import field_of
from tensorstash.errors import SchemaError
from tensorstash.sources.evaluate import bind
from tensorstash.sources.scan import Scan, Unit


@dataclass(frozen=True, slots=True)
class Derived:
    """A column that a formula computes."""

    field: pa.Field
    inputs: tuple[str, ...]
    compute: Compute


def bound(formulas: Mapping[str, Formula], time: str | None, scanned: Scan) -> tuple[Derived, ...]:
    """The formulas bound to the types of their input columns; a formula that cannot be computed is refused."""
    derived = []
    for name, formula in formulas.items():
        inputs = formula.inputs(time)
        fields = [field_of(scanned.schema, column, scanned.label) for column in inputs]
        check_unlike_columns(name, scanned)
        if isinstance(formula, Expression):
            arrow, compute = bind(formula, name, fields, scanned.label)
        else:
            assert isinstance(formula, Moment)
            arrow, compute = formula.bind(fields)
        derived.append(Derived(pa.field(name, arrow), inputs, compute))
    return tuple(derived)


def check_unlike_columns(name: str, scanned: Scan) -> None:
    """Refuse a formula whose text is the name of a column."""
    if name in scanned.schema.names:
        raise SchemaError(
            f"An expression is known by its text, and {scanned.label} has a column of that name, {name!r}. Rename "
            "the column."
        )


def with_derived(scanned: Scan, derived: Sequence[Derived]) -> Scan:
    """The scan with the derived columns after its own."""
    if not derived:
        return scanned
    by_name = {column.field.name: column for column in derived}
    schema = pa.schema([*scanned.schema, *(column.field for column in derived)])
    units = tuple(replace(unit, read=partial(_read, unit, by_name)) for unit in scanned.units)
    return replace(scanned, schema=schema, units=units)


def _read(unit: Unit, derived: Mapping[str, Derived], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The batches of a unit, with its own columns and computed ones; only the columns needed for them are read."""
    wanted = [(name,) if name not in derived else derived[name].inputs for name in names]
    inputs = list(dict.fromkeys(name for group in wanted for name in group))
    for batch in unit.read(inputs):
        own = dict(zip(inputs, batch.columns))
        arrays = [own[name] if name not in derived else _computed(derived[name], own, unit.place) for name in names]
        yield pa.RecordBatch.from_arrays(arrays, names=list(names))


def _computed(column: Derived, own: Mapping[str, pa.Array], place: str) -> pa.Array:
    return column.compute([own[name] for name in column.inputs], place)
