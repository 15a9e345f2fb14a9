"""A loader as HTML: where batches go, their order, and what each of their windows holds."""

import html
from collections.abc import Iterable

from tensorstash.common.html import table
from tensorstash.windows.contents import Batch

_MOST = 20  # entries of a window


def as_html(caption: str, parts: Iterable[object], batch: Batch) -> str:
    """The lines of `print`, without the spans of the windows, and a table of the entries of a batch."""
    notes = (html.escape(str(part).splitlines()[0].partition(";")[0]) for part in parts)
    lines = "".join(f"<p>{note}</p>" for note in notes)
    entries = [(name, str(of.dtype).removeprefix("torch."), str(tuple(of.shape[1:]))) for name, of in batch.items()]
    more = f"<p>and {len(entries) - _MOST:,} more entries</p>" if len(entries) > _MOST else ""
    head = f"<p><b>Loader</b>: {html.escape(caption)}</p>{lines}<p>Each window, before transforms:</p>"
    return f"{head}{table(('entry', 'dtype', 'shape'), entries[:_MOST])}{more}"
