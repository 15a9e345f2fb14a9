"""What the documents say of the code: the tests that hold the promises, the rooms, the files and the targets exist."""

import ast
import contextlib
import inspect
import operator
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch.utils.data import DataLoader

import tensorstash as ts
from tests import processes
from tests.project.test_structure import ROOMS

ROOT = Path(__file__).parents[2]
PROMISES = ROOT / "docs" / "promises.md"
DOCUMENTS = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]


def rows(text: str) -> dict[int, list[str]]:
    """The tests that hold each promise, by its number."""
    found = re.findall(r"^\| +(\d+) \|.*\| (.*) \|$", text, re.MULTILINE)
    return {int(number): re.findall(r"`(tests/[^`]+)`", tests) for number, tests in found}


def missing(text: str) -> list[str]:
    """The tests of a table that do not exist."""
    tests = [node for own in rows(text).values() for node in own]
    return [node for node in tests if not exists(*node.split("::"))]


def exists(path: str, name: str) -> bool:
    file = ROOT / path
    tree = ast.parse(file.read_text("utf-8")) if file.exists() else ast.Module([], [])
    return any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body)


def test_every_promise_is_held_by_tests_that_exist() -> None:
    text = PROMISES.read_text("utf-8")
    assert [*rows(text)] == [*range(1, 11)]
    assert all(rows(text).values())
    assert missing(text) == []


def test_a_test_that_does_not_exist_is_named() -> None:
    wrong = ["tests/project/test_docs.py::test_none", "tests/none.py::test_none"]
    right = "tests/project/test_docs.py::test_a_test_that_does_not_exist_is_named"
    text = f"|  1 | A promise. | `{wrong[0]}`<br>`{right}` |\n| 2 | Another. | `{wrong[1]}` |\n"
    assert missing(text) == wrong


def test_the_rooms_of_the_architecture_are_those_of_the_package_in_their_order() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    table = re.findall(r"^\| ((?:`[^`]+`(?:, )?)+) \|", text, re.MULTILINE)
    named = [name.rstrip("/").removesuffix(".py") for cell in table for name in re.findall(r"`([^`]+)`", cell)]
    assert named == [room for room in ROOMS if room != "__main__"]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_targets_that_a_page_names_exist(path: Path) -> None:
    text = path.read_text("utf-8") if path.name != "CHANGELOG.md" else ""
    files = re.findall(
        r"(?<![\w./])(?:benchmarks|docs|examples|tensorstash|tests)/[\w./-]*\w\.(?:c|md|parquet|py|sh|txt)\b", text
    )
    assert [name for name in files if not (ROOT / name).exists()] == []
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z]+)`", text)) <= targets


def specs_in(text: str) -> list[str]:
    """The specs of columns and spans in a text outside of blocks whose arguments are all literals."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    found = []
    for code in re.findall(r"`(ts\.(?:calendar|column|Draw|During|hashed|is_valid)\([^`]*\))`", prose):
        with contextlib.suppress(SyntaxError):  # a sentence that leaves out the value of an argument
            call = ast.parse(" ".join(code.split()), mode="eval").body
            given = [*call.args, *(keyword.value for keyword in call.keywords)] if isinstance(call, ast.Call) else []
            literal = all(isinstance(part, (ast.Constant, ast.UnaryOp)) for part in given)
            if literal and not any(getattr(part, "value", None) is ... for part in given):
                found.append(ast.unparse(call))
    return found


def test_columns_and_spans_that_a_sentence_shows_are_accepted() -> None:
    texts = [path.read_text("utf-8") for path in (*DOCUMENTS, *sorted((ROOT / "tensorstash").rglob("*.py")))]
    specs = [spec for text in texts for spec in specs_in(text)]
    assert len(specs) >= 5
    for spec in specs:
        eval(spec, {"ts": ts})


def test_a_spec_in_a_sentence_that_is_refused_is_found() -> None:
    assert specs_in('Take `ts.calendar("day_of_week")`, `ts.hashed(..., 5)` or\n`ts.column(dtype=)`.') == [
        "ts.calendar('day_of_week')"
    ]


def unknown_in(text: str) -> list[str]:
    """What a text outside of blocks says of the API that is not so: names, and keywords of calls."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    found = []
    for name, arguments in re.findall(r"(?<!`)`ts\.(\w+(?:\.\w+)*)(\([^`]*\))?`", prose):
        try:
            named = operator.attrgetter(name)(ts)
        except AttributeError:
            found.append(f"ts.{name}")
            continue
        given = re.findall(r"(?<=[(, ])(\w+)=(?!=)", re.sub(r"\w\([^()]*\)", "", f" {arguments}")) if arguments else []
        taken = inspect.signature(named).parameters if given else {}
        found += [f"ts.{name}({keyword}=)" for keyword in given if keyword not in taken]
    return found


def test_names_and_keywords_that_a_sentence_shows_exist() -> None:
    """But for what the changelog says of names that are gone."""
    paths = [*DOCUMENTS, *sorted((ROOT / "tensorstash").rglob("*.py"))]
    texts = {path: path.read_text("utf-8") for path in paths if path.name != "CHANGELOG.md"}
    assert sum(len(re.findall(r"`ts\.\w+", text)) for text in texts.values()) > 200
    wrong = {str(path.relative_to(ROOT)): found for path, text in texts.items() if (found := unknown_in(text))}
    assert wrong == {}


def test_a_name_that_does_not_exist_is_found() -> None:
    text = "Take `ts.Windowz`, `ts.plot.map(stash)`, `ts.Loader(windows, workers=2)` or `ts.load(x, time=f(a=1))`."
    assert unknown_in(text) == ["ts.Windowz", "ts.plot.map", "ts.Loader(workers=)"]


def test_files_that_a_contributor_is_sent_to_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    table = text.split("## Where things go")[1]
    named = {name for name in re.findall(r"`([a-z_/]+(?:\.(?:py|c|txt)|/))`", table) if "/" in name}
    places = (ROOT, ROOT / "tensorstash")
    assert len(named) > 15
    assert [name for name in sorted(named) if not any((place / name).exists() for place in places)] == []


def test_ci_the_workflow_and_hooks_call_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for name in (".ci/run", ".github/workflows/ci.yml", ".pre-commit-config.yaml", "CONTRIBUTING.md"):
        called = re.findall(r"^[^#\n]*?`?\bmake ((?:[a-z]+ ?)+)", (ROOT / name).read_text("utf-8"), re.MULTILINE)
        assert called, name
        assert {target for line in called for target in line.split()} <= targets, name
    dry = subprocess.run(["make", "--dry-run", "check"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "ruff check" in dry.stdout


def test_the_readme_is_short_and_its_promises_are_those_of_the_page() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert len(readme.splitlines()) <= 150
    promised = re.findall(r"^\d+\. (.*)$", readme, re.MULTILINE)
    assert len(promised) == 4
    assert {*promised} <= {*re.findall(r"^\| +\d+ \| (.*?) \| `tests", PROMISES.read_text("utf-8"), re.MULTILINE)}
    (not_for,) = re.findall(r"^\*\*Not for\*\*(.*?)\n\n", readme, re.MULTILINE | re.DOTALL)
    assert "(docs/how-to/serve.md)" in not_for  # rows that arrive while one trains are not those that a service gets


def test_llms_txt_lists_the_pages_in_the_order_of_the_site(tmp_path: Path) -> None:
    """A site of three pages, built by the same hook."""
    pytest.importorskip("sphinx", reason="needs the extra docs")
    (tmp_path / "part").mkdir()
    (tmp_path / "index.md").write_text("# Site\n\nWhat it\nis.\n\n```{toctree}\npart/index\n```\n")
    (tmp_path / "part" / "index.md").write_text("# Part\n\nA part.\n\n```{toctree}\none\n```\n")
    (tmp_path / "part" / "one.md").write_text("# One\n\n```python\n1\n```\n\nIts *text*.\n")
    program = "import sys; from sphinx.cmd.build import main; sys.exit(main())"
    options = ["-W", "-q", "-b", "html", "-c", ROOT / "docs"]
    done = processes.run(program, *options, tmp_path, tmp_path / "out", warn="default")
    assert (done.returncode, done.stderr) == (0, "")
    source = "_sources/part/"
    assert (tmp_path / "out" / "llms.txt").read_text("utf-8") == (
        "# tensorstash\n\n> What it is.\n\n## Part\n\n"
        f"- [Part]({source}index.md.txt): A part.\n- [One]({source}one.md.txt): Its text.\n"
    )
    assert '"part/one"' in (tmp_path / "out" / "searchindex.js").read_text("utf-8")
    assert 'name="viewport"' in (tmp_path / "out" / "index.html").read_text("utf-8")


def listed(page: str) -> set[str]:
    """The names that get a page of their own from their docstrings."""
    text = (ROOT / "docs" / "reference" / page).read_text("utf-8")
    return set(re.findall(r"^   ([\w.]+)$", text, re.MULTILINE))


def test_the_reference_has_every_error() -> None:
    names = listed("api.md")
    errors = {name for name, value in vars(ts.errors).items() if isinstance(value, type) and name.endswith("Error")}
    assert len(errors) >= 7
    assert {f"errors.{name}" for name in errors} <= names
    table = (ROOT / "docs" / "reference" / "errors.md").read_text("utf-8")
    assert {*re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)} == errors - {"TensorstashError"}


def test_every_name_of_the_reference_leads_to_a_page_of_the_guide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from docstrings import GUIDES, PICTURES

    assert listed("api.md") == {*GUIDES}
    assert [page for page in GUIDES.values() if not (ROOT / "docs" / f"{page}.md").exists()] == []
    assert [name for name in PICTURES.values() if not (ROOT / "docs" / "pictures" / name).exists()] == []


def test_a_line_that_is_a_link_out_of_docs_is_the_text_itself_on_the_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from outside import include

    app: Any = SimpleNamespace(srcdir=ROOT / "docs")
    kept = "See [all](../../CHANGELOG.md).\n\n[memory](memory.md)\n"
    source = [f"[x](../../CHANGELOG.md)\n\n[y](../../benchmarks/results/README.md#comparepy)\n\n{kept}"]
    include(app, "explanation/page", source)
    whole, part, *rest = source[0].split("\n\n")
    assert whole == "```{include} ../../CHANGELOG.md\n:relative-docs: docs/\n:relative-images:\n```"
    assert ':start-after: "## compare.py"\n:end-before: "## bench_batch.py"\n' in part
    assert "\n\n".join(rest) == kept


def test_drawings_are_those_of_their_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from drawings import DRAWINGS

    for name, drawing in DRAWINGS.items():
        assert (ROOT / "docs" / "pictures" / f"{name}.svg").read_text("utf-8") == drawing(), "make pictures"


def test_the_messages_of_the_reference_are_those_of_the_package() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text("utf-8").split("\n## The most common ones\n")[1]
    messages = re.findall(r"^\| `(\w+ .*?)`", page, re.MULTILINE)
    assert len(messages) > 5
    package = "".join(path.read_text("utf-8") for path in (ROOT / "tensorstash").rglob("*.py"))
    assert [message for message in messages if f'"{message}' not in package] == []


def test_the_reference_has_every_environment_variable() -> None:
    files = [ROOT / "hatch_build.py", *(ROOT / "tensorstash").rglob("*.py")]
    used = {name for path in files for name in re.findall(r'"(TENSORSTASH_[A-Z_]+)"', path.read_text("utf-8"))}
    page = (ROOT / "docs" / "reference" / "environment.md").read_text("utf-8")
    assert set(re.findall(r"`(TENSORSTASH_[A-Z_]+)`", page)) == used


def test_every_argument_of_pytorchs_loader_is_translated_into_one_of_ours() -> None:
    page = (ROOT / "docs" / "coming-from" / "dataset.md").read_text("utf-8")
    rows = re.findall(
        r"^\| (.*?) \| (.*) \|$", page.split("\n## Arguments of `DataLoader`\n")[1].split("\n## ")[0], re.M
    )
    theirs = {name for left, _ in rows for name in re.findall(r"`(\w+)", left)}
    assert {*inspect.signature(DataLoader.__init__).parameters} - {"self"} <= theirs
    ours = {name for _, right in rows for name in re.findall(r"`(\w+)=", right)}
    assert {"device", "order", "prefetch", "seed", "tail", "transform"} == ours
    assert ours <= {*inspect.signature(ts.Loader).parameters}


def test_a_page_of_the_reference_has_its_picture_and_its_guide_behind_the_first_paragraph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from docstrings import lead_to_guide, leave_out_skips

    lines = ["A picture.", "", ">>> import pytest, numpy as np", '>>> plt = pytest.importorskip("matplotlib")']
    lead_to_guide(None, "function", "tensorstash.plot.series", None, None, lines)
    leave_out_skips(None, "function", "tensorstash.plot.series", None, None, lines)
    picture = [".. container:: picture", "", "   .. image:: /pictures/series.png", "      :alt: plot.series"]
    assert lines == ["A picture.", "", *picture, "", "Guide: :doc:`/guide/gallery`.", "", "", ">>> import numpy as np"]


def test_errors_of_a_docstring_are_listed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from docstrings import list_errors

    lines = ["What.", "", "Raises:", "    ValueError: wrong, see", "    that. KeyError: none. It says so. OSError,"]
    lines += ["    from `ts.load`: late.", "", "End."]
    list_errors(None, "function", "name", None, None, lines)
    assert lines == [
        "What.",
        "",
        "Raises:",
        "    ValueError: wrong, see that.",
        "    KeyError: none. It says so.",
        "    OSError: from `ts.load`: late.",
        "",
        "End.",
    ]
