"""The version, the changelog and the citation agree, and what is packed is what is needed."""

import re
from pathlib import Path

import pytest

from tests.project import addressed, releases

NEXT = "## Unreleased\n\n### Added\n\n- B.\n\n"
LAST = "## 0.2.0 (2026-11-22)\n\n### Changed\n\n- A.\n\n### Fixed\n\n- A.\n\n## 0.1.9 (2026-01-01)\n"
CITATION = "title: a\nversion: 0.2.0\ndate-released: 2026-11-22\nlicense: b\n"
SECTIONS = "['Changed', 'Added', 'Removed', 'Fixed', 'Security']"


def test_the_changelog_and_the_citation_fit_the_version() -> None:
    assert releases.here() == []


@pytest.mark.parametrize(
    ("changelog", "tag", "found"),
    [
        (NEXT + LAST, None, []),
        (LAST, "v0.2.0", []),
        (
            NEXT + LAST,
            "v0.2.0",
            ["the tag is v0.2.0, pyproject.toml says 0.2.0, the changelog begins with ['Unreleased']"],
        ),
        (
            LAST,
            "v0.3.0",
            ["the tag is v0.3.0, pyproject.toml says 0.2.0, the changelog begins with ['0.2.0 (2026-11-22)']"],
        ),
        (
            LAST.replace(" (2026-11-22)", ""),
            None,
            ["the changelog has '0.2.0'; write 'Unreleased' or '0.2.0 (2026-12-31)'"],
        ),
        (LAST + NEXT, None, ["the changelog's newest release comes first, 'Unreleased' before it"]),
        (LAST.replace("0.1.9", "0.2.1"), None, ["the changelog's newest release comes first, 'Unreleased' before it"]),
        (LAST.replace("0.2.0", "0.10.0"), None, ["the changelog is at 0.10.0, pyproject.toml at 0.2.0"]),
        (
            LAST.replace("### Changed", "### Fixed"),
            None,
            [f"0.2.0 (2026-11-22) has the sections ['Fixed', 'Fixed']; each comes once, in the order {SECTIONS}"],
        ),
    ],
)
def test_what_does_not_fit_is_said(changelog: str, tag: str | None, found: list[str]) -> None:
    assert releases.problems(changelog, CITATION, "0.2.0", tag) == found


def test_another_version_in_the_citation_is_said() -> None:
    assert releases.problems(LAST, CITATION.replace("0.2", "0.3"), "0.2.0") == ["CITATION.cff has not version 0.2.0"]


def test_another_date_in_the_citation_is_said() -> None:
    citation = CITATION.replace("11-22", "11-20")
    assert releases.problems(LAST, citation, "0.2.0") == []
    said = ["CITATION.cff is not released on 2026-11-22, as the changelog says"]
    assert releases.problems(LAST, citation, "0.2.0", "v0.2.0") == said


def test_a_date_in_the_citation_before_any_release_is_said() -> None:
    said = ["CITATION.cff has a date of release, and the changelog has none"]
    assert releases.problems(NEXT, CITATION, "0.2.0") == said
    assert releases.problems(NEXT, CITATION.replace("date-released: 2026-11-22\n", ""), "0.2.0") == []


def test_pages_deny_a_release_as_long_as_the_changelog_has_none() -> None:
    texts = {name: (releases.ROOT / name).read_text("utf-8") for name in releases.PAGES}
    released = re.search(r"^## \d", (releases.ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    expected = [] if released else [f"{name} says that there is no release" for name in texts]
    assert releases.denials(texts) == expected


def test_a_recipe_that_asks_for_something_else_is_said() -> None:
    recipe, pyproject = ((releases.ROOT / name).read_text("utf-8") for name in ("recipe/recipe.yaml", "pyproject.toml"))
    assert releases.recipe_problems(recipe, pyproject) == []
    newer = recipe.replace("numpy >=1.26", "numpy >=2.0").replace(f'"{releases.version()}"', '"9.9.9"')
    assert releases.recipe_problems(newer, pyproject) == [
        "the recipe of conda has '- numpy >=1.26' on one side only",
        "the recipe of conda has '- numpy >=2.0' on one side only",
        f"the recipe of conda has not version {releases.version()}",
    ]


def test_a_prepared_tree_is_the_release_of_its_tag(tmp_path: Path) -> None:
    for name in (*releases.VERSIONS, "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((releases.ROOT / name).read_text("utf-8"), "utf-8")
    (tmp_path / "CHANGELOG.md").write_text(NEXT, "utf-8")
    releases.prepare(tmp_path, "0.10.2", "2031-01-31")
    changelog, citation, recipe = (
        (tmp_path / name).read_text("utf-8") for name in ("CHANGELOG.md", "CITATION.cff", "recipe/recipe.yaml")
    )
    assert releases.problems(changelog, citation, "0.10.2", "v0.10.2") == []
    assert '\n  version: "0.10.2"\n' in recipe
    assert '\nversion = "0.10.2"\n' in (tmp_path / "pyproject.toml").read_text("utf-8")


def test_every_issue_form_asks_for_the_info_command() -> None:
    forms = [path for path in (releases.ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config"]
    assert len(forms) == 3
    for form in forms:
        assert "`tensorstash info`" in form.read_text("utf-8"), form.name


def test_the_package_is_typed_and_the_sdist_has_what_its_tests_read() -> None:
    assert (releases.ROOT / "tensorstash" / "py.typed").is_file()
    packed = re.findall(r'^    "([^"]+)",$', sdist_table(), re.MULTILINE)
    assert [name for name in packed if not (releases.ROOT / name).exists()] == []
    assert {"CITATION.cff", "CHANGELOG.md", "SECURITY.md", "docs", "tests", "tensorstash", "hatch_build.py"} <= {
        *packed
    }


def test_packages_have_the_address_of_the_repository(tmp_path: Path) -> None:
    """Every link leads to a file of the repository, pictures to their bytes, and the metadata reads."""
    for name in ("README.md", "pyproject.toml"):
        (tmp_path / name).write_text((releases.ROOT / name).read_text("utf-8"), "utf-8")
    addressed.main(tmp_path, "https://example.org/owner/name/", "v0.2.0")
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)]+)\)", (tmp_path / "README.md").read_text("utf-8"))
    assert len(links) > 20
    for mark, link in links:
        base = f"https://example.org/owner/name/{'raw' if mark else 'blob'}/v0.2.0/"
        assert link.startswith(base), link
        assert (releases.ROOT / link.removeprefix(base).split("#")[0]).exists(), link
    tomllib = pytest.importorskip("tomllib", reason="tomllib is part of Python from 3.11 on")
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == "tensorstash"
    assert project["urls"]["Repository"] == "https://example.org/owner/name"
    assert project["urls"]["Documentation"] == "https://owner.github.io/name/"
    assert project["urls"]["Changelog"] == "https://example.org/owner/name/blob/v0.2.0/CHANGELOG.md"


def sdist_table() -> str:
    text = (releases.ROOT / "pyproject.toml").read_text("utf-8")
    return text.split("[tool.hatch.build.targets.sdist]")[1].split("\n[")[0]
