"""Spans: which slots of which columns a window holds, relative to its anchor."""

import operator
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from tensorstash.columns.names import check_name
from tensorstash.common.checks import at_least, is_integer, names_in, shown
from tensorstash.common.text import type_text
from tensorstash.errors import ColumnError, SchemaError, unknown
from tensorstash.gather.each import Variates
from tensorstash.gather.span import Draw, Span
from tensorstash.stash.stash import Stash
from tensorstash.windows.during import During
from tensorstash.windows.tables import check_used, table_named

_LONGEST = 1 << 40  # slots before or after an anchor: far longer than any run, and sums of them fit into int64


def make_spans(  # noqa: PLR0917  in the order of `Windows`
    stash: Stash,
    history: int | None,
    horizon: int,
    columns: Sequence[str] | None,
    spans: Mapping[str, Any] | None,
    tables: Mapping[str, Stash],
) -> tuple[tuple[Span, ...], dict[str, During]]:
    """The checked spans that the arguments of `Windows` ask for: in slots, and in time."""
    in_time: dict[str, During] = {}
    if isinstance(history, Mapping):
        raise TypeError("history= is a number of slots, got a mapping. Write spans=: ts.Windows(stash, spans={...}).")
    if spans is None:
        if history is None:
            raise ValueError("A window needs a length: give history= (and horizon=), or spans=.")
        before, after = slot_count(1, history, "history"), slot_count(0, horizon, "horizon")
        names = [*stash] if columns is None else names_in(columns, "columns")
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"columns must have each name once, got {twice[0]!r} twice. Leave one out.")
        made = [Span(name, name, -before, after) for name in names]
    elif history is not None or horizon or columns is not None:
        raise ValueError("spans must be given without history, horizon and columns: it defines the whole window.")
    elif not isinstance(spans, Mapping):
        raise TypeError(f"spans must be a mapping from names to (column, start, stop), got {type_text(spans)}.")
    else:
        in_time = {name: span for name, span in spans.items() if isinstance(span, During)}
        made = [_span(name, span) for name, span in spans.items() if name not in in_time]
    if not made and not in_time:
        raise ValueError("A window must have at least one span, got none.")
    for span in made:
        _check(span, stash, stash, None)
    for name, during in in_time.items():
        rows = stash if during.table is None else table_named(during.table, tables)
        _check(Span(name, during.column, -1, 0), stash, rows, during.table)
    check_used(tables, {during.table for during in in_time.values() if during.table is not None})
    return tuple(made), in_time


def _check(span: Span, stash: Stash, rows: Stash, table: str | None) -> None:
    """Raise unless a span may have its name beside the static columns of a stash, and `rows` has its column."""
    if not isinstance(span.name, str):
        raise TypeError(f"Names of spans must be strings, got {span.name!r}. Write {str(span.name)!r}.")
    check_name(span.name, "a span", "spans", (span.column, span.start, span.stop))
    if not isinstance(span.column, str):  # a `During` may have been given anything
        raise TypeError(
            f"A span must name one column, got {shown(span.column)} for {span.name!r}. To have several in one tensor, "
            "load them as one: columns={'name': [...]}."
        )
    for name in span.columns:
        if name not in rows:
            raise unknown_name(name, rows, rows, "the stash" if table is None else f"the table {table!r}", "column")
    if span.variates is not None:
        _check_alike(span.variates, rows)
    if span.name in stash.static:
        raise SchemaError(
            f"A span must not have the name of a static column, got {span.name!r}. Give the span another name."
        )


def unknown_name(name: str, stash: Stash, known: Iterable[str], where: str, what: str) -> ColumnError:
    """The error for a name that is no column of rows; it may be something else of the stash."""
    if name in stash.static:
        return ColumnError(
            f"{where} has no {what} {name!r}: it is a static column, which every batch has without a span. Leave it "
            "out here."
        )
    if name in (stash.time_name, stash.known_name, *stash.entity_names):
        return ColumnError(
            f"{where} has no {what} {name!r}: it has the times or the entities of the rows. To have it in batches, "
            "name it in columns= of the load too."
        )
    return unknown(name, known, where, what)


def _check_alike(variates: Variates, stash: Stash) -> None:
    """Refuse columns that cannot be rows of one tensor."""
    first = variates.columns[0]
    for name in variates.columns:
        if stash[name].dtype != stash[first].dtype:
            raise SchemaError(
                f"The columns of a ts.each must have one dtype; {first!r} is {stash[first].dtype}, {name!r} is "
                f"{stash[name].dtype}. Load them with one dtype=, or give each a span of its own."
            )
        if stash[name].ndim > 2:
            raise SchemaError(
                f"The columns of a ts.each must have one or several numbers in a row; {name!r} has "
                f"{tuple(stash[name].shape[1:])}. Give it a span of its own: ({name!r}, -96, 0)."
            )


def slot_count(least: int, value: object, what: str, below: int = _LONGEST) -> int:
    """A checked number of slots, at least `least` and so small that sums fit into int64."""
    given = what if is_integer(value) else f"{what}, a number of slots such as 24 for a day of hours,"
    return at_least(least, value, given, below=below)


def _span(name: str, parts: Any) -> Span:
    rule = "A span must be (column, start, stop) or (column, start, stop, step)"
    if isinstance(parts, (str, range)) or not isinstance(parts, Sequence):
        column = parts if isinstance(parts, (str, Variates)) else "x"
        raise TypeError(f"{rule}, got {shown(parts)} for {name!r}. The past 96 are ({column!r}, -96, 0).")
    whole = f"got {shown(tuple(parts))} for {name!r}"
    draw = parts[1] if len(parts) > 1 and isinstance(parts[1], Draw) else None
    numbers = parts[1:] if draw is None else (draw.low, *parts[2:])
    if len(parts) not in (3, 4) or not all(is_integer(value) for value in numbers):
        column, *others = parts or [None]
        is_time = isinstance(column, str) and any(isinstance(value, (str, timedelta)) for value in others)
        stretch = f"Stretches of time are ts.During({column!r}, '-4d', '0d', max_rows=96)."
        slots = "Slots are integers, such as -96 and 0, and a start may be a ts.Draw."
        raise ValueError(f"{rule}, in slots, {whole}. {stretch if is_time else slots}")
    start, stop, *step = map(operator.index, numbers)
    variates = parts[0] if isinstance(parts[0], Variates) else None
    span = Span(
        name, parts[0] if variates is None else str(variates), start, stop, step[0] if step else 1, draw, variates
    )
    if draw is not None:
        _check_draw(span, draw)
    if max(map(abs, (span.start, span.stop, span.step))) >= _LONGEST:
        raise ValueError(f"The numbers of a span must lie between -2**40 and 2**40, {whole}.")
    if span.step < 1 or not len(span):
        past = (parts[0], min(-abs(start), -abs(stop), -1), 0)
        raise ValueError(
            f"A span must have start < stop and step >= 1, {whole}. Slots before the anchor are negative, as in {past}."
        )
    return span


def _check_draw(span: Span, draw: Draw) -> None:
    if draw.high >= span.stop:
        raise ValueError(
            f"A drawn start must lie before the stop of its span, got {draw} and the stop {span.stop} for "
            f"{span.name!r}. Slots before the anchor are negative, as in ts.Draw(-128, -16)."
        )
    if span.step > 0 and draw.step % span.step:
        raise ValueError(
            f"The step of a draw must be a multiple of the step of its span, got {draw.step} and {span.step} for "
            f"{span.name!r}."
        )
