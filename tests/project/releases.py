"""What a release needs to agree on: the version, the changelog, the citation, the recipe of conda and the tag.

python -m tests.project.releases prepare 0.2.0 2026-12-31  # writes version and date into the files
python -m tests.project.releases v0.2.0                    # fails if this tree is not that release
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/index.md", "docs/start/install.md")  # how to install it
VERSIONS = ("pyproject.toml", "CITATION.cff", "recipe/recipe.yaml")
CONDA = {"torch": "pytorch", "tzdata": "python-tzdata"}  # packages that have another name there
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


def recipe_problems(recipe: str, pyproject: str) -> list[str]:
    """What the recipe of conda says otherwise than pyproject.toml: the version, and what is needed to run."""
    (needed,) = re.findall(r"^dependencies = \[\n(.*?)^\]", pyproject, re.DOTALL | re.MULTILINE)
    asked = dict(re.findall(r'^    "([a-z]+)(>=[^"]+)"', needed, re.MULTILINE))
    asked = {"python": re.findall(r'^requires-python = "(.*)"$', pyproject, re.MULTILINE)[0]} | asked
    expected = [f"    - {CONDA.get(name, name)} {bound}" for name, bound in asked.items()]
    found = recipe.split("  run:\n")[1].split("\n\n", maxsplit=1)[0].splitlines()
    wrong = [f"the recipe of conda has {line.strip()!r} on one side only" for line in sorted({*found} ^ {*expected})]
    if f'\n  version: "{version()}"\n' not in recipe:
        wrong.append(f"the recipe of conda has not version {version()}")
    return wrong


def prepare(folder: Path, number: str, date: str) -> None:
    """Write a version and its date into the files that hold them; what comes next gets a heading when it comes."""
    for name in VERSIONS:
        path = folder / name
        quote = "" if name == "CITATION.cff" else '"'
        line = r'^( *version(?: =|:) )"?\d+\.\d+\.\d+"?$'
        changed = re.sub(line, rf"\g<1>{quote}{number}{quote}", path.read_text("utf-8"), flags=re.MULTILINE)
        if name == "CITATION.cff":
            changed = re.sub(r"^date-released: .*\n", "", changed, flags=re.MULTILINE)
            changed = re.sub(r"^(version: .*)$", rf"\1\ndate-released: {date}", changed, flags=re.MULTILINE)
        path.write_text(changed, "utf-8")
    changelog = folder / "CHANGELOG.md"
    changelog.write_text(changelog.read_text("utf-8").replace("## Unreleased", f"## {number} ({date})"), "utf-8")


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
    recipe, pyproject = ((ROOT / name).read_text("utf-8") for name in ("recipe/recipe.yaml", "pyproject.toml"))
    found = problems(changelog, citation, version(), tag) + recipe_problems(recipe, pyproject)
    return found + (denials(pages) if tag is not None else [])


def main(what: str, *arguments: str) -> None:
    """Prepare a release, or fail if this tree is not the one of a tag."""
    if what == "prepare":
        prepare(ROOT, *arguments)
    else:
        sys.exit("\n".join(here(what)))


if __name__ == "__main__":
    main(*sys.argv[1:])
