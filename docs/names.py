"""Names of the API as users write them, `ts.Windows`, and links from wherever a page writes one."""

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.domains.python import PythonDomain

_PAGE = re.compile(r"docs/([\w/-]+)\.md")
_NAME = re.compile(r"(ts\.[A-Za-z_][\w.]*)(\(.*\))?", re.DOTALL)


def shorten(app: Sphinx, document: nodes.document) -> None:
    """Write `ts.` for the name of the package in front of what a page describes."""
    for prefix in document.findall(addnodes.desc_addname):
        short = re.sub(r"^tensorstash\.", "ts.", prefix.astext())
        prefix.children = [nodes.Text(short)]


def link(app: Sphinx, document: nodes.document, page: str) -> None:
    """Make links of code that is the name of something in the API, or a call of it, or the file of a page."""
    domain = app.env.domains["py"]
    assert isinstance(domain, PythonDomain)
    for literal in [*document.findall(nodes.literal)]:
        if isinstance(literal.parent, nodes.reference) or _is_heading(literal):
            continue
        file = _PAGE.fullmatch(literal.astext())
        if file is not None and file[1] in app.env.found_docs:
            reference = nodes.reference("", "", internal=True, refuri=app.builder.get_relative_uri(page, file[1]))
            literal.replace_self(reference)
            reference += nodes.Text(app.env.titles[file[1]].astext())
            continue
        match = _NAME.fullmatch(literal.astext())
        if match is None:
            continue
        found: Any = domain.objects.get(f"tensorstash.{match[1].removeprefix('ts.')}")
        if found is None or found.docname == page:
            continue
        target = app.builder.get_relative_uri(page, found.docname) + f"#{found.node_id}"
        reference = nodes.reference("", "", internal=True, refuri=target)
        literal.replace_self(reference)
        reference += literal


def _is_heading(node: nodes.Node) -> bool:
    return isinstance(node.parent, nodes.title)
