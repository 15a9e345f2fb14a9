"""Spans: which rows of which column a window holds, relative to its anchor."""

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from tensorstash.columns.names import check_name
from tensorstash.common.checks import at_least, is_integer, names_in
from tensorstash.errors import SchemaError, unknown
from tensorstash.gather.span import Span
from tensorstash.stash.stash import Stash

_LONGEST = 1 << 40  # slots before or behind an anchor: far longer than any run, and sums of them fit into int64


def make_spans(
    stash: Stash,
    history: int | None,
    horizon: int,
    columns: Sequence[str] | None,
    spans: Mapping[str, Sequence[Any]] | None,
) -> tuple[Span, ...]:
    """The spans that the arguments of `Windows` ask for, checked."""
    if spans is None:
        if history is None:
            raise ValueError("A window needs a length: give history= (and horizon=), or spans=.")
        before, after = _length(1, history, "history"), _length(0, horizon, "horizon")
        names = [*stash] if columns is None else names_in(columns, "columns")
        made = [Span(name, name, -before, after) for name in names]
    elif history is not None or horizon or columns is not None:
        raise ValueError("spans= defines the whole window; leave history=, horizon= and columns= out.")
    elif not isinstance(spans, Mapping):
        raise TypeError(f"spans= is a mapping from names to (column, begin, end); got a {type(spans).__name__}.")
    else:
        made = [_span(name, span) for name, span in spans.items()]
    if not made:
        raise ValueError("A window needs at least one span; none was given.")
    for span in made:
        check_name(span.name, "a span", (span.column, span.begin, span.end), "spans")
        if not isinstance(span.column, str):
            raise TypeError(
                f"A span holds one column; {span.name!r} names {span.column!r}. To have several in one tensor, load "
                "them as one: columns={'name': [...]}."
            )
        if span.column not in stash:
            raise unknown(span.column, stash, "the stash")
        if span.name in stash.static:
            raise SchemaError(
                f"A batch has one tensor per name; {span.name!r} is a static column. Give the span another name."
            )
    return tuple(made)


def _length(least: int, given: int, what: str) -> int:
    if (length := at_least(least, given, what)) >= _LONGEST:
        raise ValueError(f"{what}= is below 2**40; got {length}. Take a shorter one.")
    return length


def _span(name: str, given: Sequence[Any]) -> Span:
    if not isinstance(name, str):
        raise TypeError(f"Spans are named by texts; got {name!r}. Write {str(name)!r}.")
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise TypeError(f"A span is (column, begin, end) or (column, begin, end, step); {name!r} is {given!r}.")
    if len(given) not in (3, 4) or not all(is_integer(value) for value in given[1:]):
        raise ValueError(
            f"A span is (column, begin, end) or (column, begin, end, step), in rows; {name!r} is {tuple(given)}."
        )
    span = Span(name, given[0], *map(operator.index, given[1:]))
    if max(map(abs, (span.begin, span.end, span.step))) >= _LONGEST:
        raise ValueError(f"The numbers of a span lie between -2**40 and 2**40; {name!r} is {tuple(given)}.")
    if span.step < 1 or not len(span):
        raise ValueError(f"A span has begin < end and step >= 1; {name!r} is {tuple(given)}.")
    return span


def judged_spans(spans: Sequence[Span], require: Sequence[str] | None, history: int, horizon: int) -> list[Span]:
    """The spans that `require=` names, and for the columns that it names the whole window."""
    named = {span.name: span for span in spans}
    names = [] if require is None else names_in(require, "require")
    return [named.get(name) or Span(name, name, -history, horizon) for name in names]
