"""A stash as text and as HTML, from the header alone."""

import html
from collections.abc import Iterable, Sequence
from textwrap import indent
from typing import TYPE_CHECKING

from tensorstash.common.text import aligned, counted, cut

if TYPE_CHECKING:
    from tensorstash.stash.stash import Stash

# in a notebook
_MOST_COLUMNS = 100
_LONGEST_TEXT = 80  # characters


def as_text(stash: "Stash") -> str:
    """What `print` shows."""
    return f"Stash: {_caption(stash)}\n" + indent(aligned(_lines(stash)), "  ")


def as_html(stash: "Stash") -> str:
    """What a notebook shows: the same as a table."""
    head, *body = _lines(stash)
    more = f"<p>and {len(body) - _MOST_COLUMNS:,} more columns</p>" if len(body) > _MOST_COLUMNS else ""
    return f"<p><b>Stash</b>: {html.escape(_caption(stash))}</p>{_table(head, body[:_MOST_COLUMNS])}{more}"


def entity_text(stash: "Stash", entity: int) -> str:
    """The name of an entity, the values of several columns one after the other; "all rows" if there is no entity."""
    if not stash.entity_names:
        return "all rows"
    name = stash.entity_at(entity)
    return ", ".join(map(str, name)) if isinstance(name, tuple) else str(name)


def _table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A table whose texts are escaped, and stay short whatever the data."""

    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cut(cell, _LONGEST_TEXT))}</{tag}>" for cell in cells) + "</tr>"

    return f"<table>{row(head, 'th')}{''.join(row(cells, 'td') for cells in body)}</table>"


def _lines(stash: "Stash") -> list[tuple[str, ...]]:
    """A head and a line for each tensor; the sizes add up to that of the caption.

    The numbers of unknown values are shown if a column was given a vocabulary.
    """
    info = stash.info
    lines: list[tuple[str, ...]] = [("column", "dtype", "shape", "MB", "missing", "unknown")]

    def add(name: str, tensor: str, words: Sequence[str | None], missing: str, unknown: str) -> None:
        entry = stash.segment.tensors[tensor]
        dtype = " ".join(filter(None, (str(entry.dtype).removeprefix("torch."), *words)))
        lines.append((name, dtype, str(entry.shape), f"{entry.nbytes / 1e6:,.1f}", missing, unknown))

    for column in (*info.columns, *info.static):
        words = ("static" if column in info.static else None, None if column.kind == "number" else column.kind)
        unknown = "" if column.unknown is None else f"{column.unknown:,}"
        add(column.name, column.name, words, f"{column.missing:,}", unknown)
    for tensor, role, times in (("__time", "time", info.time), ("__known", "known", info.known)):
        if times is not None:
            add(times.source, tensor, (role, times.unit, times.zone), "0", "")
    return lines if any(line[-1] for line in lines[1:]) else [line[:-1] for line in lines]


def _caption(stash: "Stash") -> str:
    count = stash.segment.tensors["__offsets"].shape[0] - 1
    entities = f"{counted(count, 'entity')} ({', '.join(stash.entity_names)}), " if stash.entity_names else ""
    names = {"__time", "__known", *(column.name for column in (*stash.info.columns, *stash.info.static))}
    nbytes = sum(entry.nbytes for name, entry in stash.segment.tensors.items() if name in names)
    times = [stash.clock.format(end) for end in stash.time_range if end is not None]
    span = f", {stash.time_name} {' to '.join(times)}" if times else ""
    times = [stash.known_clock.format(end) for end in stash.known_range if end is not None]
    known = f", known from {' to '.join(times)} ({stash.info.known.source})" if times and stash.info.known else ""
    return f"{stash.rows:,} rows, {entities}{nbytes / 1e6:,.1f} MB{span}{known}"
