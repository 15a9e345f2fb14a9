"""A stash as text, from the header alone, and as HTML with a picture, which reads a few times of each entity."""

import html
from textwrap import indent

import numpy as np
from numpy.typing import NDArray

from tensorstash.common.clock import Clock
from tensorstash.common.dtypes import Int64s
from tensorstash.common.html import lanes, table
from tensorstash.common.text import aligned
from tensorstash.segments.format import pages
from tensorstash.stash.header import StashLike

_MOST_COLUMNS = 100  # in a notebook
_MOST_ENTITIES = 20
_BINS = 120
_FEW = 3  # a bin of more rows may lack one and still be full


def as_text(stash: StashLike) -> str:
    """What `print` shows."""
    return f"Stash: {_caption(stash)}\n" + indent(aligned(_lines(stash)), "  ")


def as_html(stash: StashLike) -> str:
    """What a notebook shows: the same with a picture of the times that the entities cover."""
    head, *body = _lines(stash)
    more = f"<p>and {len(body) - _MOST_COLUMNS:,} more columns</p>" if len(body) > _MOST_COLUMNS else ""
    caption = f"<p><b>Stash</b>: {html.escape(_caption(stash))}</p>"
    return caption + table(head, body[:_MOST_COLUMNS]) + more + picture(stash)


def picture(stash: StashLike, within: tuple[int, int] | None = None) -> str:
    """A lane per entity, darker where it has more rows, and darkest where no step seems to be missing.

    Lanes go along the times, or along the known times if these order the rows of an entity. `within` are the first and
    the last time that are drawn.
    """
    if not stash.rows:
        return ""
    chosen, shares = row_shares(stash, within)
    _, clock, whole = _axis(stash)
    first, last = within or whole
    foot = ("first row", "last row")
    if first is not None and last is not None:
        foot = (clock.format(first), clock.format(last))
    labels = [entity_text(stash, k) for k in chosen]
    count = len(stash.offsets) - 1
    caption = f"<p>{len(chosen)} of {count:,} entities:</p>" if len(chosen) < count else ""
    return caption + lanes(labels, shares, foot)


def entity_text(stash: StashLike, entity: int) -> str:
    """The name of an entity, the values of several columns one after the other; "all rows" if there is no entity."""
    if not stash.entity_names:
        return "all rows"
    name = stash.entities[entity]
    return ", ".join(map(str, name)) if isinstance(name, tuple) else str(name)


def chosen_entities(stash: StashLike, most: int) -> Int64s:
    """The indices of at most `most` entities at equal distances."""
    count = len(stash.offsets) - 1
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def row_shares(stash: StashLike, within: tuple[int, int] | None = None) -> tuple[list[int], NDArray[np.float64]]:
    """At most 20 entities at equal distances, as indices, and their rows per bin of time as shares of the largest bin.

    The shares, `(entities, bins)`, are found by bisection, which reads a few times per entity. Bins of equal length
    hold equally many steps of time, or one more: a bin with two rows fewer than the fullest has at most two thirds, so
    that a short gap is seen. Without a time column the bins divide row numbers.
    """
    offsets = stash.offsets.numpy()
    chosen = chosen_entities(stash, _MOST_ENTITIES).tolist()
    times, _, whole = _axis(stash)
    low, high = within or whole
    if times is None or low is None or high is None:
        low, high = 0, int(np.diff(offsets).max(initial=1)) - 1
    # in Python's integers: nanoseconds times a number of bins overflow
    bins = min(_BINS, high + 1 - low)
    edges = np.array([low + (high + 1 - low) * k // bins for k in range(bins)], np.int64)
    rows = np.zeros((len(chosen), bins), np.int64)
    for line, entity in zip(rows, chosen):
        first, end = int(offsets[entity]), int(offsets[entity + 1])
        if times is None:
            line[:] = np.diff(np.minimum(edges, end - first), append=end - first)
        else:
            seen = times[first : first + np.searchsorted(times[first:end], high, "right")]
            line[:] = np.diff(np.searchsorted(seen, edges), append=len(seen))
    most = max(int(rows.max(initial=0)), 1)
    return chosen, np.where(rows >= most - (most > _FEW), 1.0, np.minimum(rows / most, 2 / 3))


def _axis(stash: StashLike) -> tuple[Int64s | None, Clock, tuple[int | None, int | None]]:
    """The times by which the rows of an entity are ordered, their clock, and the first and the last of them."""
    if stash.is_by_known and stash.known is not None:
        return stash.known.numpy(), stash.known_clock, stash.known_range
    return None if stash.time is None else stash.time.numpy(), stash.clock, stash.time_range


def _lines(stash: StashLike) -> list[tuple[str, ...]]:
    """A head and a line per column; the numbers of unknown values are shown if a column was given a vocabulary."""
    lines: list[tuple[str, ...]] = [("column", "dtype", "shape", "MB", "missing", "unknown")]
    info = stash.info
    for column in (*info.columns, *info.static):
        entry = stash.segment.entries[column.name]
        words = [str(entry.dtype).removeprefix("torch."), "static" if column in info.static else "", column.kind]
        note = " ".join(word for word in words if word not in ("", "number"))
        counts = (f"{column.missing:,}", "" if column.unknown is None else f"{column.unknown:,}")
        lines.append((column.name, note, str(entry.shape), f"{entry.nbytes / 1e6:,.1f}", *counts))
    return lines if any(line[-1] for line in lines[1:]) else [line[:-1] for line in lines]


def _caption(stash: StashLike) -> str:
    count = stash.segment.entries["__offsets"].shape[0] - 1
    entities = f"{count:,} entities ({', '.join(stash.entity_names)}), " if stash.entity_names else ""
    nbytes = sum(pages(entry.nbytes) for entry in stash.segment.entries.values())  # counted as in a plan
    first, last = stash.time_range
    span = ""
    if first is not None and last is not None:
        span = f", {stash.time_name} {stash.clock.format(first)} to {stash.clock.format(last)}"
    first, last = stash.known_range
    if first is not None and last is not None:
        form = stash.known_clock.format
        span += f", known from {form(first)} to {form(last)} ({stash.known_name})"
    return f"{stash.rows:,} rows, {entities}{nbytes / 1e6:,.1f} MB{span}"
