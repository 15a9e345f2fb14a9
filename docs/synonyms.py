"""Keywords of pages: the words of `scorer.js` that lead to a page are found there even if its text has other words."""

import re
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

_WORDS = re.findall(r'(\w+): "([a-z-]+/[a-z-]+)"', (Path(__file__).parent / "scorer.js").read_text("utf-8"))


def add(app: Sphinx, document: nodes.document) -> None:
    """Name the words of a page in its head, where the search looks for them, too."""
    words = [word for word, page in _WORDS if page == app.env.docname]
    if words:
        document.append(nodes.meta(name="keywords", content=", ".join(words)))
