"""Puts the words that people search for, which `scorer.js` lists by page, into the index of the site."""

import re
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

_LINE = re.compile(r'^  "([a-z/-]+)": "([a-z0-9_ ]+)",$', re.MULTILINE)
_SCORER = Path(__file__).with_name("scorer.js").read_text("utf-8")
SYNONYMS = {page: words.split() for page, words in _LINE.findall(_SCORER)}


def add_synonyms(app: Sphinx, doctree: nodes.document) -> None:
    """Add the words of a page as its keywords, which Sphinx indexes."""
    if words := SYNONYMS.get(app.env.docname):
        doctree.insert(0, nodes.meta(name="keywords", content=", ".join(words)))
