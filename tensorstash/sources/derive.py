"""Columns that are computed while a source is read: a scan with more columns. Their inputs need not be stored."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from tensorstash.columns.calendar import Moment
from tensorstash.columns.expression import Compute, Expression, Formula
from tensorstash.columns.names import field_of
from tensorstash.errors import SchemaError, SourceError, unknown
from tensorstash.sources.evaluate import bind
from tensorstash.sources.pyarrow_texts import may_mention
from tensorstash.sources.scan import Scan, Unit


@dataclass(frozen=True, slots=True)
class Derived:
    """A column that a formula computes."""

    field: pa.Field
    inputs: tuple[str, ...]
    compute: Compute


def bound(formulas: Mapping[str, Formula], time: str | None, scanned: Scan) -> tuple[Derived, ...]:
    """Bind formulas to the types of their input columns; raise if one cannot be computed."""
    derived = []
    for name, formula in formulas.items():
        inputs = formula.inputs(time)
        fields = [field_of(scanned.schema, column, scanned.label) for column in inputs]
        _check_unlike_columns(name, scanned)
        if isinstance(formula, Expression):
            arrow, compute = bind(formula, name, fields, scanned.label)
        else:
            assert isinstance(formula, Moment)
            arrow, compute = formula.bind(fields)
        derived.append(Derived(pa.field(name, arrow), inputs, compute))
    return tuple(derived)


def _check_unlike_columns(name: str, scanned: Scan) -> None:
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
    units = tuple(replace(unit, read=partial(_batches, unit, by_name)) for unit in scanned.units)
    return replace(scanned, schema=schema, units=units)


def _batches(unit: Unit, derived: Mapping[str, Derived], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The batches of a unit, with its own columns and computed ones; only the columns needed for them are read."""
    wanted = [(name,) if name not in derived else derived[name].inputs for name in names]
    inputs = list(dict.fromkeys(name for group in wanted for name in group))
    for batch in unit.read(inputs):
        columns = dict(zip(inputs, batch.columns))
        arrays = [
            columns[name] if name not in derived else _computed(derived[name], columns, unit.place) for name in names
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=list(names))


def _computed(column: Derived, columns: Mapping[str, pa.Array], place: str) -> pa.Array:
    return column.compute([columns[name] for name in column.inputs], place)


# Fields of struct columns by dotted path: "wind.speed" is the field "speed" of the column "wind"


def check_utf8(scanned: Scan) -> None:
    """Refuse columns and fields of columns whose names are not UTF-8."""
    try:
        waiting = [*scanned.schema]
        while waiting:
            field = waiting.pop()
            field.name  # noqa: B018  pyarrow decodes it here
            waiting += [field.type.field(k) for k in range(field.type.num_fields)]
    except UnicodeDecodeError as error:
        raise SourceError(
            f"Names of columns, and of fields in them, are text in UTF-8; {scanned.label} has others: {error}. Rename "
            "them."
        ) from error


def fields_of(scanned: Scan, names: Collection[str], mentions: str) -> tuple[Derived, ...]:
    """The fields in `names`, and those that the printed expression `mentions` may name; columns take precedence."""
    schema = scanned.schema
    mentioned = [] if not mentions else [path for path in _paths(schema) if may_mention(mentions, path)]
    wanted = dict.fromkeys([*sorted(name for name in names if "." in name), *mentioned])
    fields = (_field_of(scanned, name) for name in wanted if name not in schema.names)
    return tuple(field for field in fields if field is not None)


def _field_of(scanned: Scan, name: str) -> Derived | None:
    """The field of a path; `None` if it does not begin with the name of a struct column."""
    schema = scanned.schema
    root = next(
        (column for column in schema.names if name.startswith(f"{column}.") and _is_struct(schema, column)), None
    )
    if root is None:
        return None
    field = schema.field(root)
    path = _path(field.type, name[len(root) + 1 :])
    if path is None:
        raise unknown(name, _paths(pa.schema([field])), scanned.label)
    for index in path:
        arrow, field = field.type, field.type.field(index)
        if len(arrow.get_all_field_indices(field.name)) > 1:
            raise SchemaError(
                f"Fields of a column have names of their own; {root!r} of {scanned.label} has two {field.name!r}. "
                "Rename one."
            )
    return Derived(field.with_name(name), (root,), lambda arrays, _: pc.struct_field(arrays[0], path))


def _is_struct(schema: pa.Schema, name: str) -> bool:
    return len(schema.get_all_field_indices(name)) == 1 and pa.types.is_struct(schema.field(name).type)


def _path(arrow: pa.DataType, rest: str) -> list[int] | None:
    """The index of each step of a path; a name may hold dots itself."""
    if not pa.types.is_struct(arrow):
        return None
    for index in range(arrow.num_fields):
        field = arrow.field(index)
        if field.name == rest:
            return [index]
        if rest.startswith(f"{field.name}.") and (more := _path(field.type, rest[len(field.name) + 1 :])) is not None:
            return [index, *more]
    return None


def _paths(fields: Sequence[pa.Field] | pa.Schema, before: str = "") -> Iterator[str]:
    for field in fields:
        if before:
            yield before + field.name
        if pa.types.is_struct(field.type):
            inner = [field.type.field(k) for k in range(field.type.num_fields)]
            yield from _paths(inner, f"{before}{field.name}.")
