"""The site is built from the pages of this folder and the docstrings: `make site`, then `docs/_build/index.html`."""

import os
import sys
from importlib import metadata
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import commands  # noqa: E402  beside this file
import docstrings  # noqa: E402
import llms  # noqa: E402
import names  # noqa: E402
import outside  # noqa: E402
import search  # noqa: E402

from tensorstash.segments import shared  # noqa: E402

sys.modules["tensorstash.shared"] = shared  # where users find it, and where autodoc has to

project = "tensorstash"
release = metadata.version("tensorstash")
author = "The tensorstash authors"
copyright = author  # noqa: A001  Sphinx calls it so

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build"]
templates_path = ["_templates"]  # of the pages of the API
nitpicky = False  # types of torch and numpy are no targets here, and their inventories need a network
default_role = "code"  # docstrings write names in single backticks

copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

autodoc_typehints = "signature"
autodoc_member_order = "groupwise"
autodoc_default_options = {"members": True, "special-members": "__call__, __getitem__, __iter__, __len__"}
autosummary_ignore_module_all = False  # a page for each name that a page lists
autosummary_context = {"made": docstrings.MADE}
python_maximum_signature_line_length = 100
napoleon_numpy_docstring = False
napoleon_use_rtype = False

html_theme = "furo"
if repository := os.environ.get(
    "GITHUB_REPOSITORY"
):  # known only where the site is built for it; a fork has another one
    html_theme_options = {
        "source_repository": f"https://github.com/{repository}/",
        "source_branch": "main",
        "source_directory": "docs/",
        "announcement": f'<a href="https://github.com/{repository}">Source and issues on GitHub</a>',
    }
html_title = f"tensorstash {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).parent / "scorer.js")
html_show_copyright = False


def setup(app: Sphinx) -> None:
    """Take docstrings as they are meant, and write `llms.txt` beside the pages when they are done."""
    changes = docstrings.keep_colons, docstrings.list_errors, docstrings.lead_to_guide, docstrings.leave_out_skips
    for change in changes:
        app.connect("autodoc-process-docstring", change, priority=100)  # before napoleon
    app.connect("autodoc-process-docstring", docstrings.shorten_types, priority=900)  # behind napoleon
    app.connect("autodoc-process-signature", docstrings.name_types)
    app.connect("autodoc-skip-member", docstrings.leave_out_inside)
    app.connect("source-read", outside.include)
    app.connect("doctree-read", search.add_synonyms)
    app.add_directive("commands", commands.Commands)
    app.connect("doctree-read", names.shorten)
    app.connect("doctree-resolved", names.link)
    app.connect("build-finished", llms.write)
