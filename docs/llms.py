"""Writes `llms.txt`: what the project is, and every page in the order of the site, for programs that read text."""

from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment


def write(app: Sphinx, exception: Exception | None) -> None:
    """Write the file into a finished site of HTML; links lead to the sources of the pages, which are Markdown."""
    if exception is None and app.builder.name == "html":
        (Path(app.outdir) / "llms.txt").write_text(text(app.env), "utf-8")


def text(env: BuildEnvironment) -> str:
    """A title, the first sentence of the site, and a list of links for each part of it."""
    root = env.config.root_doc
    parts = [f"# {env.config.project}\n\n> {first_paragraph(env, root)}"]
    for part in children(env, root):
        pages = [line(env, page) for page in [part, *below(env, part)]]
        parts.append(f"## {env.titles[part].astext()}\n\n" + "\n".join(pages))
    return "\n\n".join(parts) + "\n"


def line(env: BuildEnvironment, page: str) -> str:
    """A link to a page, and how the page begins."""
    suffix = Path(env.doc2path(page)).suffix
    return f"- [{env.titles[page].astext()}](_sources/{page}{suffix}.txt): {first_paragraph(env, page)}"


def first_paragraph(env: BuildEnvironment, page: str) -> str:
    """The text of the first paragraph of a page, on one line."""
    paragraph = next(iter(env.get_doctree(page).findall(nodes.paragraph)), None)
    return " ".join(paragraph.astext().split()) if paragraph else ""


def children(env: BuildEnvironment, page: str) -> list[str]:
    """The pages that the lists of contents of a page name, in their order."""
    return env.toctree_includes.get(page, [])


def below(env: BuildEnvironment, page: str) -> list[str]:
    """All pages below a page, depth first."""
    return [name for child in children(env, page) for name in [child, *below(env, child)]]
