"""Writes the address of the repository into a checkout from which packages are built, for the page on the index.

    python -m tests.project.addressed https://example.org/owner/name v0.2.0

The links of README.md become absolute, and `[project.urls]` is added to pyproject.toml. The address is known only where
packages are built: a fork has another one.
"""

import re
import sys
from pathlib import Path

_RELATIVE = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)]+)\)")


def readme(text: str, address: str, revision: str) -> str:
    """The README with links and pictures at a revision of the repository."""

    def absolute(found: re.Match[str]) -> str:
        mark, words, path = found.groups()
        return f"{mark}[{words}]({address}/{'raw' if mark else 'blob'}/{revision}/{path})"

    return _RELATIVE.sub(absolute, text)


def pyproject(text: str, address: str, revision: str) -> str:
    """The settings with the URLs of the project."""
    owner, name = address.split("/")[-2:]
    urls = {
        "Repository": address,
        "Documentation": f"https://{owner.lower()}.github.io/{name}/",
        "Changelog": f"{address}/blob/{revision}/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }
    return "\n".join([text, "[project.urls]", *(f'{name} = "{url}"' for name, url in urls.items()), ""])


def main(folder: Path, address: str, revision: str) -> None:
    """Change the files of a checkout."""
    for name, change in (("README.md", readme), ("pyproject.toml", pyproject)):
        text = (folder / name).read_text("utf-8")
        (folder / name).write_text(change(text, address.rstrip("/"), revision), "utf-8")


if __name__ == "__main__":
    main(Path(), *sys.argv[1:])
