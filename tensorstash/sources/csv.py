"""Sources of CSV files: polars reads them as text, all rows decide the types, and checks find what it would misread."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from tensorstash.columns.types import value_type
from tensorstash.common.forks import check_pool
from tensorstash.common.progress import bar_of
from tensorstash.errors import SourceError
from tensorstash.sources.csv_errors import bad_line, check_header, check_texts, unreadable
from tensorstash.sources.csv_file import Csv, open_csv
from tensorstash.sources.csv_types import FLOATS, INTEGERS, NO_VALUES, TEXT, ColumnTexts, MisfitError, converted
from tensorstash.sources.file import File
from tensorstash.sources.filter import Filter
from tensorstash.sources.hive_keys import columns_of_keys, kept_files, key_types
from tensorstash.sources.read import Source, Unit, Wanted
from tensorstash.sources.streams import collected, kept_type, spooled_parts
from tensorstash.sources.unify import wider

_FIRST = 10_000  # rows whose types all others are tried with

Types = Mapping[str, pa.DataType]


def open_csv_files(
    files: Sequence[File], label: str, wanted: Wanted, condition: Filter | None, progress: bool | None
) -> Source:
    """Read the wanted columns into a file on disk, again if a row does not fit the types of the first rows."""
    check_pool()
    first = _opened(files[0], files, wanted)
    types = _types([first], wanted.among(dict.fromkeys(first.names)), _FIRST)
    types_of_keys = key_types(files)
    keys = {key: arrow for key, arrow in types_of_keys.items() if key not in first.names}
    notes: tuple[str, ...] = ()
    if wanted.names is None and types.get("") in (INTEGERS, NO_VALUES):  # an index of pandas, or commas at the ends
        wanted = Wanted(frozenset({*first.names, *keys}) - {""})
        types = {name: kind for name, kind in types.items() if name}
        notes = ("a column without a name is left out",)
    chosen = kept_files(files, keys, _schema(first, types, keys), condition)

    def tables() -> Iterator[Csv]:
        return (first if file == first.file else _opened(file, files, wanted) for file in chosen)

    def spooled(types: Types) -> tuple[Unit, ...]:
        whole = _schema(first, types, keys)
        names = wanted.among(whole.names)
        parts = (
            (
                str(table.file),
                _batches(table, names, whole, types, types_of_keys),
                columns_of_keys(table.file, stored, whole, types_of_keys),
            )
            for table in tables()
            for stored in [pa.schema([whole.field(key) for key in types_of_keys if key in table.names])]
        )
        return spooled_parts(parts, whole, label, bar)

    with bar_of(None, "parsing CSV", progress) as bar:
        try:
            units = spooled(types)
        except MisfitError:
            bar.begin("finding types of CSV")
            types = _types(tables(), [*types], None)
            bar.begin("parsing CSV")
            units = spooled(types)
    return Source(label, _schema(first, types, keys), units, len(units), notes, keys=frozenset(keys))


def _opened(file: File, files: Sequence[File], wanted: Wanted) -> Csv:
    with unreadable(file):
        table = open_csv(file, files)
        check_header(table, wanted)
    return table


def _types(tables: Iterable[Csv], names: Sequence[str], rows: int | None) -> Types:
    """The types of columns that fit the first `rows` of each file, or all of them."""
    columns = {name: ColumnTexts() for name in names}
    for table in tables:
        there = [name for name in names if name in table.names]
        with unreadable(table.file, table):
            frame = table.frame().select(there)
            for batch in collected(frame if rows is None else frame.head(rows)):
                for name, texts in zip(there, batch.columns):
                    columns[name].add(texts, table)
    check_texts(columns)
    return {name: texts.type for name, texts in columns.items()}


def _schema(table: Csv, types: Types, keys: Types) -> pa.Schema:
    """All columns of the source, with text as dictionaries; those that are not wanted have the null type."""
    loaded = {name: FLOATS if kind == NO_VALUES else kind for name, kind in types.items()}
    all_types = {**dict.fromkeys(filter(None, table.names), pa.null()), **loaded, **keys}
    return pa.schema({name: kept_type(arrow) for name, arrow in all_types.items()})


def _batches(
    table: Csv, names: Sequence[str], whole: pa.Schema, types: Types, types_of_keys: Types
) -> Iterator[pa.RecordBatch]:
    """The columns of a file among `names`, or nulls if it has none; raises if a line ends before one of them."""
    fields = [whole.field(key) for key in dict(table.file.keys)]
    # keys whose values the column of their name in other files can hold
    keys = [
        field.name
        for field in fields
        if (wide := wider(field, field.with_type(types_of_keys[field.name]))) is not None and wide.type == field.type
    ]
    if others := [name for name in names if name not in (types if name in table.names else keys)]:
        has = "has a" if others[0] in table.names else "has no"
        raise SourceError(
            f"All files of a source need the same columns; {table.file} {has} column {others[0]!r}. Leave the column "
            "out, or write all files with the same columns."
        )
    stored = [name for name in dict.fromkeys(table.names) if name in names]
    complete = True
    with unreadable(table.file, table):
        chosen = [converted(name, types.get(name, TEXT)) for name in stored or table.names[:1]]
        for batch in collected(table.frame().select(chosen)):
            complete = complete and not (stored and batch.column(len(stored) - 1).null_count)
            arrays = {name: batch.column(name).cast(value_type(whole.field(name).type)) for name in stored}
            yield pa.record_batch(arrays or {whole.names[0]: pa.nulls(len(batch))})
    if not complete and table.may_have_bad_line() and (error := bad_line(table)):
        raise error
