"""The request for the pieces of a source: what is computed is computed, and each text column has its vocabulary."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tensorstash.cluster.cut import words_of
from tensorstash.columns.codec import Appearance, Given
from tensorstash.columns.column import Column
from tensorstash.columns.spec import ColumnSpec
from tensorstash.ingest.plan import Survey
from tensorstash.ingest.request import Request, Specs
from tensorstash.sources.scan import read


def request_for_pieces(request: Request, found: Survey, words: Mapping[str, Any]) -> Request:
    """The request for the pieces; `words` are the values of each text column of the source, in their order."""
    planned = found.planned
    return replace(
        request,
        source=None,
        filesystem=None,
        columns=_with_words(request.columns, planned.columns, words),
        static=_with_words(request.static, planned.static, words),
        formulas={},
        filter=None,
        layout=None,
        schema={},
        table=None if found.table is None else _table(request, found.table),
    )


def vocabularies(plain: Request) -> dict[str, tuple[Any, ...]]:
    """The vocabulary of each column that has one, by the name of the column."""
    table: Specs = {} if plain.table is None else plain.table.columns or {}
    specs = {**(plain.columns or {}), **plain.static, **table}
    return {name: spec.codec.vocabulary for name, spec in specs.items() if isinstance(spec.codec, Given)}


def _with_words(specs: Specs | None, columns: Sequence[Column], words: Mapping[str, Any]) -> Specs:
    """The columns with the vocabularies of the whole source; all columns of the source are named."""
    found = {}
    for column in columns:
        spec = ColumnSpec(column.members[0]) if specs is None else specs[column.name]
        if column.codec == Appearance():
            # a load gives the fill the code of the place where the first null is
            seen: list[Any] = [column.fill if word is None else word for word in words[column.members[0]]]
            values: tuple[Any, ...] = tuple(
                word for word in dict.fromkeys([*seen, column.fill, column.empty]) if word is not None
            )
            spec = replace(spec, codec=Given(values)) if values else spec
        found[column.name] = spec
    return found


def _table(request: Request, table: Survey) -> Request:
    """The request for the table of static columns, with the vocabularies of the whole table."""
    assert request.table is not None
    texts = [column.members[0] for column in table.planned.columns if column.codec == Appearance()]
    words: dict[str, dict[str | None, None]] = {name: {} for name in texts}
    for unit in table.scanned.units:
        for name in texts:
            for _, batch in read(unit, [name]):
                words[name].update(dict.fromkeys(words_of(batch.column(0))))
    return replace(request.table, columns=_with_words(request.table.columns, table.planned.columns, words))
