"""From a request and the schema of its source to a choice: known before anything is decoded or allocated."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from tensorstash.columns.column import Column
from tensorstash.columns.expression import Expression, kept
from tensorstash.columns.names import field_of
from tensorstash.columns.resolve import check_comparable, entity_column, entity_columns, resolve, time_column
from tensorstash.columns.spec import ColumnSpec
from tensorstash.common.calendar import Calendar
from tensorstash.common.clock import Clock
from tensorstash.common.frequency import frequency
from tensorstash.common.text import size_text
from tensorstash.errors import ColumnError, DataError, SchemaError
from tensorstash.ingest.choice import Choice
from tensorstash.ingest.entities import of_shard, rows_of_like
from tensorstash.ingest.like import check_taken_over, column_like, entity_like, is_as_in, names_like
from tensorstash.ingest.plan_text import type_name
from tensorstash.ingest.request import Request, Specs, StepOrTimes
from tensorstash.ingest.same_names import check_names
from tensorstash.ingest.untimed import forgotten_time
from tensorstash.segments.format import MAX_HEADER
from tensorstash.sources.derive import bound, check_utf8, fields_of, with_plain_types
from tensorstash.sources.file import File
from tensorstash.sources.formats import format_of
from tensorstash.sources.given_times import calendar_of
from tensorstash.sources.iso_times import with_iso_time
from tensorstash.sources.kept_rows import columns_of, filtered
from tensorstash.sources.locate import kind_of
from tensorstash.sources.read import Source, with_derived
from tensorstash.sources.shapes import shaped
from tensorstash.sources.source import open_source

# what pandas calls a level of an index without a name in files, which only those want who name it
_INDEX = re.compile(r"__index_level_\d+__")
Inputs = Mapping[str, tuple[str, ...]]  # derived columns, and the source columns that each is computed from


def choose(request: Request, files: Sequence[File] | None, table: Choice | None, progress: bool | None) -> Choice:
    """Open the source, or its files; the only values read are those of the columns of the filter and the shard.

    Rows are chosen first; of those alone columns are computed. `table` has the static columns of a table.
    """
    opened = _opened(request, files, progress)
    fields = fields_of(opened, request.named, request.sought, request.wanted.mentions)
    typed = with_iso_time(with_plain_types(with_derived(opened, fields)), request.time)
    typed = with_iso_time(typed, request.known)
    formulas = bound(request.formulas, request.time, typed)
    computed = {column.field.name: column.inputs for column in (*fields, *formulas)}
    specs = _chosen_columns(request, typed.schema, computed)
    members = request.members.union(str(member) for spec in specs.values() for member in spec.members)
    # a wrong name is refused before the filter reads its columns
    _check_columns(request, typed, (*request.keys, *sorted(members.difference(request.formulas))))

    selected, filter_columns, strangers = _chosen_rows(request, typed, progress)
    # again for known=, which may name a formula: that is a column only now
    complete = with_iso_time(shaped(with_derived(selected, formulas), members), request.known)
    complete, of_like = _found_of_like(request, complete)
    members = members.union(*(map(str, spec.members) for spec in of_like.values()))

    # the stored types come last and win: a plan shows these, not what they are read as
    schemas = {name: schema for schema in (complete.schema, opened.schema) for name in schema.names}
    used = request.keys.union(members, filter_columns, *computed.values())
    choice = replace(
        _choice(request, complete, specs, {**request.static, **of_like}),
        read=tuple(name for name in schemas if name in used and name not in computed),
        skipped=tuple(name for name in schemas if name not in used),
        types={name: type_name(schema.field(name).type) for name, schema in schemas.items() if name in used},
        table=table,
        strangers=strangers,
        untimed=forgotten_time(request, typed),
    )
    check_names(choice)
    if choice.header_bytes > MAX_HEADER:
        raise SchemaError(
            f"The header of a stash has at most {size_text(MAX_HEADER)}; for {len(choice.columns):,} columns of "
            f"{complete.label} it may need {size_text(choice.header_bytes)}. Load fewer columns, or pack them: "
            'columns={"x": [...]}.'
        )
    return choice


def _opened(request: Request, files: Sequence[File] | None, progress: bool | None) -> Source:
    """The source as it is stored, with a label for messages; refuse keys whose type only values would tell."""
    source = open_source(request.source, files, request.wanted, request.filter, progress)
    if request.argument != "columns":
        source = replace(source, label=f"{source.label} of {request.argument}=")
    check_utf8(source)
    guessed = (pa.null(), pa.float64()) if files and format_of(files[0].name).footer is None else (pa.null(),)
    keys = [] if source.rows else [field for field in source.schema if field.name in request.keys]
    for field in keys:
        if field.type in guessed:
            kind = "pl.String" if field.name in entity_columns(request.entity) else "pl.Datetime"
            raise SchemaError(
                f"Entities and times need a type; {source.label} has no rows"
                f"{'' if request.filter is None else ', or none that filter= keeps,'} that tell the type of "
                f"{field.name!r}. Load a source with rows, or, with polars, a frame with types: "
                f"frame.cast({{{field.name!r}: {kind}}})."
            )
    return source


def _check_columns(request: Request, source: Source, names: Sequence[str]) -> None:
    try:
        for name in names:
            field_of(source.schema, name, source.label)
    except ColumnError as error:
        if "index" in names and kind_of(request.source) == "pandas.DataFrame" and None in request.source.index.names:
            raise ColumnError(
                f"{error} The index has no name: load frame.rename_axis('time') with time='time'."
            ) from None
        if "columns" not in request.of_like:
            raise
        raise ColumnError(f"{error} It is one of like=: add it to the source, or say what to load.") from None


def _chosen_columns(request: Request, schema: pa.Schema, derived: Inputs) -> Specs:
    """The requested columns; by default all source columns that are neither derived nor named by another argument."""
    if request.columns is not None:
        return request.columns
    named = request.keys.union(derived, *(spec.members for spec in request.static.values()))
    return {name: ColumnSpec((name,)) for name in schema.names if name not in named and not _INDEX.fullmatch(name)}


def _chosen_rows(request: Request, source: Source, progress: bool | None) -> tuple[Source, Sequence[str], str]:
    """The rows of the filter, the shard and `like=`, the columns that the filter reads, and a text for a warning."""
    chosen, filter_columns, strangers = source, list[str](), ""
    if request.filter is not None:
        condition = request.filter.fitted(source.schema)
        filter_columns = columns_of(condition, source.schema, source.label)
        flags = () if condition.formula is None else bound({"filter=": condition.formula}, request.time, source)
        if flags and flags[0].field.type != pa.bool_():
            raise SchemaError(
                f"filter= must be true or false for every row; {condition.formula!r} is {flags[0].field.type}. "
                "Compare it with a value."
            )
        chosen = filtered(with_derived(source, flags), condition, ["filter="] if flags else filter_columns, progress)
        chosen = replace(chosen, schema=source.schema)
    if request.shard is not None and request.entity is not None:
        chosen = of_shard(chosen, entity_column(source.schema, request.entity, source.label), request.shard, progress)
    if request.like is not None and request.entity is not None and request.unknown == "drop":
        entity = entity_column(source.schema, request.entity, source.label)
        names = names_like(request.like, entity, source.schema, source.label)
        chosen, strangers = rows_of_like(chosen, entity, names, progress)
    return chosen, filter_columns, strangers


def _found_of_like(request: Request, source: Source) -> tuple[Source, Specs]:
    """The static columns of `like=` that the source has, of the kind that they have there; and the source with them."""
    found: dict[str, ColumnSpec] = {}
    for name, spec in request.carried.items():
        members = [*map(str, spec.members)]
        if request.like is None or any(len(source.schema.get_all_field_indices(member)) != 1 for member in members):
            continue
        try:
            fixed = shaped(source, members)
            (column,) = resolve(fixed.schema, {name: spec}, request.dtype, source.label, "static")
        except (SchemaError, DataError):  # another kind of values
            continue
        if is_as_in(request.like, column):
            source, found[name] = fixed, spec
    return source, found


def _step(given: StepOrTimes, time: Column | None) -> int | str | Calendar | None:
    """The step of time as a header keeps it, or a calendar in the unit of the times."""
    if given is None or isinstance(given, Calendar) or time is None:
        return given
    clock = Clock(time.unit, time.zone)
    if isinstance(given, pa.ChunkedArray):
        return calendar_of(given, clock)
    step = frequency(given, clock, None)
    return step.count if clock.unit is None else step.text


def _choice(request: Request, source: Source, specs: Specs, of_entities: Specs) -> Choice:
    """The columns that a load makes of a source."""
    schema, where, like = source.schema, source.label, request.like
    columns, static = (
        tuple(
            column_like(column, spec, like, request.dtype, request.unknown)
            for column, spec in zip(resolve(schema, part, request.dtype, where, argument), part.values())
        )
        for part, argument in ((specs, request.argument), (of_entities, "static"))
    )
    if not columns:
        raise ValueError(
            f"A stash has at least one column; none of {where} was chosen. Name some in {request.argument}=."
        )
    entity = None if request.entity is None else entity_column(schema, request.entity, where)
    time = None if request.time is None else time_column(schema, request.time, where)
    if like is not None:
        of_like = columns if "columns" in request.of_like else ()
        times = (time,) if time is not None and "time" in request.of_like else ()
        check_taken_over(of_like, times, like, where, casts=request.dtype is not None)
    known = None if request.known is None else time_column(schema, request.known, where, "known")
    if time is not None and known is not None:
        check_comparable(time, known)
    return Choice(
        request=request,
        source=source,
        rows=source.rows,
        columns=columns,
        static=static,
        carried=() if like is None else tuple(like.about(name) for name in request.carried if name not in of_entities),
        entity=None if entity is None else entity_like(entity, like, schema, where),
        time=time,
        step=_step(request.frequency, time),
        known=known,
        expressions={n: kept(formula) for n, formula in request.formulas.items() if isinstance(formula, Expression)},
    )
