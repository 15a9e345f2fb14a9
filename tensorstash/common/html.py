"""HTML for notebooks: tables whose text is escaped, and stays short whatever the data."""

import html
from collections.abc import Iterable, Sequence

from tensorstash.common.text import cut

_LONGEST = 80  # the most characters of a text


def table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A table with a head."""

    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cut(cell, _LONGEST))}</{tag}>" for cell in cells) + "</tr>"

    return f"<table>{row(head, 'th')}{''.join(row(cells, 'td') for cells in body)}</table>"
