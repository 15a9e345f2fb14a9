"""Puts Markdown from outside of `docs/` where a page has a line with nothing but a link to it.

The site has the text itself; where the pages are read in the repository, the line is a link that can be followed.
"""

import re
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).parent.resolve()

_LINK = re.compile(r"^\[[^\]]*\]\(((?:\.\./)+[\w./-]+\.md)(?:#([\w-]+))?\)$", re.MULTILINE)


def include(app: Sphinx, page: str, source: list[str]) -> None:
    """Replace such lines of a page, which Sphinx hands in as a list of one text and takes changed."""
    folder = (Path(app.srcdir) / page).parent
    source[0] = _LINK.sub(lambda match: _directive(folder, match), source[0])


def _directive(folder: Path, link: "re.Match[str]") -> str:
    path, anchor = link.groups()
    file = folder / path
    if DOCS in file.resolve().parents:
        return link[0]
    options = [":relative-docs: docs/", ":relative-images:"]
    if anchor:
        heads = re.findall(r"^## .*$", file.read_text("utf-8"), re.MULTILINE)
        at = [re.sub(r"[^\w-]", "", head[3:].lower().replace(" ", "-")) for head in heads].index(anchor)
        options += [f':start-after: "{heads[at]}"', *[f':end-before: "{head}"' for head in heads[at + 1 : at + 2]]]
    return "\n".join([f"```{{include}} {path}", *options, "```"])
