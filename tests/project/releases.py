"""What a release needs to agree on: the version, the changelog, the citation and the tag.

python -m tests.project.releases v0.2.0  # fails if this tree is not that release
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/index.md", "docs/start/install.md")  # how to install it
SECTIONS = ["Changed", "Added", "Removed", "Fixed", "Security"]


def version() -> str:
    """The version of the package, which pyproject.toml alone says."""
    (found,) = re.findall(r'^version = "([^"]+)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    return str(found)


def problems(changelog: str, citation: str, version: str, tag: str | None = None) -> list[str]:
    """What does not fit together; with a tag, also what keeps this tree from being that release."""
    found = []
    heads = re.findall(r"^## (.*)$", changelog, re.MULTILINE)
    wrong = [head for head in heads if not re.fullmatch(r"Unreleased|\d+\.\d+\.\d+ \(\d{4}-\d{2}-\d{2}\)", head)]
    found += [f"the changelog has {head!r}; write 'Unreleased' or '0.2.0 (2026-12-31)'" for head in wrong]
    released = [head.split(" ")[0] for head in heads if head != "Unreleased" and head not in wrong]
    dates = [head[-11:-1] for head in heads if head != "Unreleased" and head not in wrong]
    if "Unreleased" in heads[1:] or released != sorted(released, key=numbers, reverse=True):
        found.append("the changelog's newest release comes first, 'Unreleased' before it")
    if released and numbers(released[0]) > numbers(version):
        found.append(f"the changelog is at {released[0]}, pyproject.toml at {version}")
    if f"\nversion: {version}\n" not in citation:
        found.append(f"CITATION.cff has not version {version}")
    if tag is not None and dates and f"\ndate-released: {dates[0]}\n" not in citation:
        found.append(f"CITATION.cff is not released on {dates[0]}, as the changelog says")
    if not dates and "\ndate-released: " in citation:
        found.append("CITATION.cff has a date of release, and the changelog has none")
    for part in re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]:
        sections = re.findall(r"^### (.*)$", part, re.MULTILINE)
        if sections != [section for section in SECTIONS if section in sections]:
            found.append(
                f"{part.splitlines()[0]} has the sections {sections}; each comes once, in the order {SECTIONS}"
            )
    if tag is not None and (tag != f"v{version}" or released[:1] != [version] or "Unreleased" in heads):
        found.append(f"the tag is {tag}, pyproject.toml says {version}, the changelog begins with {heads[:1]}")
    return found


def numbers(text: str) -> list[int]:
    """`"0.10.2"` as `[0, 10, 2]`, so that versions compare."""
    return [int(part) for part in text.split(".")]


def denials(texts: dict[str, str]) -> list[str]:
    """The pages that still say how to do without a release."""
    pattern = "There is no release yet|From a clone, until there is a release"
    return [f"{name} says that there is no release" for name, text in texts.items() if re.search(pattern, text)]


def here(tag: str | None = None) -> list[str]:
    """The problems of this tree."""
    changelog, citation = ((ROOT / name).read_text("utf-8") for name in ("CHANGELOG.md", "CITATION.cff"))
    pages = {name: (ROOT / name).read_text("utf-8") for name in PAGES}
    return problems(changelog, citation, version(), tag) + (denials(pages) if tag is not None else [])


if __name__ == "__main__":
    sys.exit("\n".join(here(sys.argv[1])))
