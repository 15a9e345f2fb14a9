"""A stash as text, from the header alone, and as HTML, with a picture that takes a few look-ups of times."""

import html

from tensorstash.common.html import lanes, table
from tensorstash.stash.coverage import coverage
from tensorstash.stash.protocol import StashLike

_MOST_COLUMNS = 100  # in a notebook


def as_text(stash: StashLike) -> str:
    """What `print` shows."""
    lines = _lines(stash)
    widths = [max(map(len, cells)) for cells in zip(*lines)]
    rows = ("  " + "  ".join(c.ljust(w) for c, w in zip(cells, widths)).rstrip() for cells in lines)
    return f"Stash: {_caption(stash)}\n" + "\n".join(rows)


def as_html(stash: StashLike) -> str:
    """What a notebook shows: the same, and a picture of the times that the entities cover."""
    head, *body = _lines(stash)
    more = f"<p>and {len(body) - _MOST_COLUMNS:,} more columns</p>" if len(body) > _MOST_COLUMNS else ""
    caption = f"<p><b>Stash</b>: {html.escape(_caption(stash))}</p>"
    return caption + table(head, body[:_MOST_COLUMNS]) + more + picture(stash)


def picture(stash: StashLike) -> str:
    """A lane per entity, the darker the more rows it has in a stretch of time; an empty text without rows."""
    if not stash.rows:
        return ""
    chosen, shares = coverage(stash)
    first, last = stash.time_range
    foot = ("first row", "last row")
    if first is not None and last is not None:
        foot = (stash.clock.format(first), stash.clock.format(last))
    labels = [str(stash.entities[k]) if stash.entity_names else "all rows" for k in chosen]
    count = len(stash.offsets) - 1
    some = f"<p>{len(chosen)} of {count:,} entities:</p>" if len(chosen) < count else ""
    return some + lanes(labels, shares, foot)


def _lines(stash: StashLike) -> list[tuple[str, ...]]:
    """A head and a line per column, with the number of unknown values if a column was given a vocabulary."""
    lines: list[tuple[str, ...]] = [("column", "dtype", "shape", "MB", "missing", "unknown")]
    info = stash._info
    for about in (*info.columns, *info.static):
        entry = stash._segment.entries[about.name]
        words = [str(entry.dtype).removeprefix("torch."), "static" if about in info.static else "", about.kind]
        note = " ".join(word for word in words if word not in ("", "number"))
        counts = (f"{about.missing:,}", "" if about.unknown is None else f"{about.unknown:,}")
        lines.append((about.name, note, str(entry.shape), f"{entry.nbytes / 1e6:,.1f}", *counts))
    return lines if any(line[-1] for line in lines[1:]) else [line[:-1] for line in lines]


def _caption(stash: StashLike) -> str:
    count = stash._segment.entries["__offsets"].shape[0] - 1
    entities = f"{count:,} entities ({', '.join(stash.entity_names)}), " if stash.entity_names else ""
    first, last = stash.time_range
    span = ""
    if first is not None and last is not None:
        span = f", {stash.time_name} {stash.clock.format(first)} to {stash.clock.format(last)}"
    return f"{stash.rows:,} rows, {entities}{stash.nbytes / 1e6:,.1f} MB{span}"
