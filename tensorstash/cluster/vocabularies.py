"""The vocabularies of a whole source, for loads of its shards: equal texts have equal codes in all of them."""

from dataclasses import replace
from typing import Any

import pyarrow.compute as pc

from tensorstash.columns.codec import Ascending, Given
from tensorstash.columns.column import Column
from tensorstash.common.threads import in_threads
from tensorstash.ingest.choice import Choice
from tensorstash.sources.read import Source, Unit, read
from tensorstash.sources.streams import plain


def with_vocabularies(choice: Choice) -> Choice:
    """The choice, in which each text column has the vocabulary of the whole source."""
    columns, static = ([_with_vocabulary(c, choice.source) for c in part] for part in (choice.columns, choice.static))
    return replace(choice, columns=tuple(columns), static=tuple(static))


def _with_vocabulary(column: Column, source: Source) -> Column:
    def texts_of(unit: Unit, _: object) -> set[Any]:
        batches = (plain(batch) for _, batch in read(unit, column.members))
        return {text for batch in batches for text in pc.unique(batch.column(0)).to_pylist()}

    if not isinstance(column.codec, Ascending):
        return column
    texts: set[Any] = {column.fill, column.empty}
    texts.update(*in_threads(source.units, texts_of))
    vocabulary = tuple(sorted(texts - {None}))
    return replace(column, codec=Given(vocabulary)) if vocabulary else column
