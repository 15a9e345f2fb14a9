"""A stash as text and as a table of HTML: from the header alone, whatever the size."""

import html

from tensorstash.stash.protocol import StashLike


def as_text(stash: StashLike) -> str:
    """What `print` shows."""
    lines = _lines(stash)
    widths = [max(map(len, cells)) for cells in zip(*lines)]
    rows = ("  " + "  ".join(c.ljust(w) for c, w in zip(cells, widths)).rstrip() for cells in lines)
    return f"Stash: {_caption(stash)}\n" + "\n".join(rows)


def as_html(stash: StashLike) -> str:
    """What a notebook shows."""

    def row(cells: tuple[str, ...], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    head, *body = _lines(stash)
    table = row(head, "th") + "".join(row(cells, "td") for cells in body)
    return f"<p><b>Stash</b>: {html.escape(_caption(stash))}</p><table>{table}</table>"


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
