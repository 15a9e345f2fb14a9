"""Derived columns: formulas, and fields of struct columns."""

from collections.abc import Iterator, Mapping, Set
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from tensorstash.columns.expression import Expression, Formula
from tensorstash.columns.extensions import extension_of, is_opaque, periods_of
from tensorstash.columns.names import field_of
from tensorstash.columns.time_fields import TIME
from tensorstash.columns.types import is_list, unstorable, value_type
from tensorstash.common.clock import epoch_hint
from tensorstash.errors import SchemaError, SourceError, unknown
from tensorstash.sources.evaluate import bind
from tensorstash.sources.pyarrow_texts import may_mention
from tensorstash.sources.read import Derived, Source, read, with_derived
from tensorstash.sources.storage import unwrapped, unwrapped_type


def bound(formulas: Mapping[str, Formula], time: str | None, source: Source) -> tuple[Derived, ...]:
    """Bind formulas to the types of their input columns; raise if one cannot be computed."""
    derived = []
    for name, formula in formulas.items():
        inputs = formula.inputs(time)
        fields = [field_of(source.schema, column, source.label) for column in inputs]
        if name in source.schema.names:
            raise SchemaError(
                f"An expression is named by its text, and {source.label} has a column of that name, {name!r}. Rename "
                "the column."
            )
        if isinstance(formula, Expression):
            arrow, compute = bind(formula, name, fields, source.label)
        else:
            if formula.field != TIME:
                _check_times(fields[0], source)
            arrow, compute = formula.bind(fields)
        derived.append(Derived(pa.field(name, arrow), inputs, compute))
    return tuple(derived)


def _check_times(field: pa.Field, source: Source) -> None:
    """Raise `SchemaError` for integer times, which have no fields such as the hour."""
    plain = value_type(field.type)
    if not pa.types.is_integer(plain):
        return
    batches = (batch.column(0).drop_null() for unit in source.units for _, batch in read(unit, [field.name]))
    first = next(
        (pc.min_max(values.cast(plain)).as_py() for values in batches if len(values)), {"min": None, "max": None}
    )
    raise SchemaError(
        f"ts.calendar needs times or dates; time={field.name!r} is {field.type}."
        f"{epoch_hint(field.name, first['min'], first['max']) or ' Convert it.'}"
    )


def check_utf8(source: Source) -> None:
    """Raise if the name of a column, or of a field of a column, is not UTF-8."""
    try:
        source.schema.names  # noqa: B018  pyarrow decodes them here
        waiting = [arrow for arrow in source.schema.types if arrow.num_fields]
        while waiting:
            arrow = waiting.pop()
            for field in map(arrow.field, range(arrow.num_fields)):
                field.name  # noqa: B018
                waiting.append(field.type)
    except UnicodeDecodeError as error:
        raise SourceError(
            f"Names of columns and of their fields must be UTF-8; {source.label} has others: {error}. Rename them."
        ) from error


def with_plain_types(source: Source) -> Source:
    """The source with each column in its plain type; reading a column whose stored values do not say it is an error."""
    # most columns are plain, and there may be thousands
    fields = (field for field in source.schema if field.metadata or not pa.types.is_primitive(field.type))
    return with_derived(source, [column for field in fields for column in _plain_column(field)])


def _plain_column(field: pa.Field) -> Iterator[Derived]:
    """The column in its plain type, if it has another."""
    arrow, inputs, item = unwrapped_type(field.type), (field.name,), field
    while is_list(item.type) or pa.types.is_fixed_size_list(item.type):
        item = item.type.value_field
    if is_opaque(item) or (item is not field and periods_of(item) is not None):
        yield Derived(field, inputs, partial(_refuse, item.with_name(field.name)))
    elif (periods := periods_of(field)) is not None:
        kind, begins = periods
        yield Derived(pa.field(field.name, kind), inputs, lambda arrays, *_: begins(unwrapped(arrays[0], arrow)))
    else:
        arrow = pa.bool_() if extension_of(field)[0] == "arrow.bool8" else arrow
        if arrow != field.type:
            yield Derived(field.with_type(arrow), inputs, lambda arrays, *_: unwrapped(arrays[0], arrow))


def _refuse(field: pa.Field, *_: object) -> pa.Array:
    raise unstorable(field)


# Fields of struct columns by dotted path: "wind.speed" is the field "speed" of the column "wind"


def fields_of(source: Source, names: Set[str], sought: Set[str], mentions: str) -> tuple[Derived, ...]:
    """The fields in `names`, those in `sought` that are there, and those that the expression `mentions` may name.

    Columns take precedence. The expression is printed.
    """
    columns = source.schema.names
    dotted = sorted(name for name in names | sought if "." in name and name not in columns)
    if not dotted and not mentions:
        return ()
    by_path: dict[str, list[Derived]] = {}
    for column in source.schema:
        for field in _fields(column.name, column.name, (), unwrapped_type(column.type)):
            by_path.setdefault(field.field.name, []).append(field)
    mentioned = (path for path in by_path if path not in columns and may_mention(mentions, path))
    chosen = []
    for name in dict.fromkeys([*dotted, *mentioned]):
        matches = by_path.get(name, [])
        siblings = [path for path, (field, *_) in by_path.items() if name.startswith(f"{field.inputs[0]}.")]
        if siblings and not matches and name in names:
            raise unknown(name, siblings, source.label)
        if len(matches) > 1:
            (root,) = matches[0].inputs
            raise SchemaError(
                f"Fields of a column must have different names; {root!r} of {source.label} has two "
                f"{name.removeprefix(root)[1:]!r}. Rename one."
            )
        chosen += matches
    return tuple(chosen)


def paths_in(column: pa.Field) -> list[str]:
    """The paths of all fields in a struct column; none of any other column."""
    return [field.field.name for field in _fields(column.name, column.name, (), unwrapped_type(column.type))]


def _fields(root: str, path: str, indices: tuple[int, ...], arrow: pa.DataType) -> Iterator[Derived]:
    """All fields in a struct column, at any depth; their names may contain dots."""
    for index in range(arrow.num_fields if pa.types.is_struct(arrow) else 0):
        field, name, below = arrow.field(index), f"{path}.{arrow.field(index).name}", (*indices, index)
        yield Derived(field.with_name(name), (root,), lambda structs, *_, at=below: _field_at(structs[0], at))
        yield from _fields(root, name, below, field.type)


def _field_at(structs: pa.Array, indices: tuple[int, ...]) -> pa.Array:
    return pc.struct_field(structs.storage if isinstance(structs, pa.ExtensionArray) else structs, indices)
