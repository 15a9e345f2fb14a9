"""Every figure of speed on a page is one of the results that are kept: `benchmarks/quotes.py` says which.

A figure of speed is a number before a unit of it (`SPEED`), a part such as "a tenth faster" (`PARTS`), and every number
below a table's head that names such a unit. Code that is executed is none, nor what it prints; a figure of another kind
is in `OTHERS`.
"""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import tensorstash as ts
from tensorstash.common.public import NAMES

ROOT = Path(__file__).parents[2]

ONE = r"\d+(?:[.,]\d+)*"
NUMBER = rf"{ONE}(?:\s*%)?(?:\s+(?:to|and|or)\s+{ONE})?"
UNITS = (
    *(r"times(?!\s+(?:are|of)\b)", "x", "windows/s", "GB/s", "ns", "us", "µs", "ms", "s", r"(?:micro|milli)?seconds?"),
    *(r"(?:million\s+)?(?:windows|tokens|values|rows|batches)\s+(?:per|a)\s+second", r"of\s+the\s+(?:time|speed)"),
)
SPEED = rf"(?<![\w.,^-]){NUMBER}\s*(?:{'|'.join(UNITS)})(?![\w/])"
SHARES = "half|third|quarter|fifth|sixth|seventh|eighth|ninth|tenth|twice|thrice"
MORE = r"as\s+(?:fast|long|slow)|faster|slower|longer|of\s+(?:the|their|its)\s+(?:time|speed)"
PARTS = rf"\b(?:{SHARES})s?\s+(?:{MORE})\b"
FIGURE = re.compile(f"{SPEED}|{PARTS}")
HEAD = r"(?:windows/s|PSS|\bms\b|, s\b)"
TABLE = re.compile(rf"^(?:\|.*{HEAD}.*\n(?:\|.*\n)+|```console\n.*\n.*{HEAD}.*\n(?:.*\n)+?```)", re.MULTILINE)
CODE = re.compile(r"^ *```(?:python|text|sh|yaml|bash|toml)\n.*?^ *```$", re.DOTALL | re.MULTILINE)

# what is no result of a benchmark, and why
OTHERS = {
    ("docs/decisions/0006-native-kernel.md", "300 microseconds"): "a constant of native/threads.c",
    ("docs/guide/command-line.md", "0.1 s"): "a constant of cli/bench.py",
    ("docs/guide/command-line.md", "0.7084 s"): "what a load of a small file prints",
    ("docs/guide/command-line.md", "45 times"): "a count of gaps",
    ("docs/how-to/slow.md", "88.000\nseconds"): "what the statistics of a pass print",
    ("docs/guide/devices.md", "120 times"): "how many windows of 120 slots show a row",
}


@pytest.fixture
def quotes(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import quotes

    return quotes


def pages() -> dict[str, str]:
    """The text of each page, without code; those of the reference are docstrings."""
    built = (ROOT / "docs" / "_build", ROOT / "docs" / "reference" / "api")
    paths = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    texts = {
        str(path.relative_to(ROOT)): CODE.sub("", path.read_text("utf-8"))
        for path in paths
        if not any(folder in path.parents for folder in built)
    }
    return texts | {f"ts.{name}": documented(getattr(ts, name)) for name in NAMES}


def documented(public: Any) -> str:
    """The docstrings of a public name, and of what is public in it."""
    inside = [getattr(public, name) for name in dir(public) if not name.startswith("_")]
    own = [each for each in inside if getattr(each, "__module__", "tensorstash").startswith("tensorstash")]
    return "\n".join(inspect.getdoc(each) or "" for each in [public, *own])


def figures(text: str) -> list[str]:
    """What looks like a figure of speed."""
    tables = [line for table in TABLE.findall(text) for line in table.splitlines()[2:] if re.search(r"\d", line)]
    return [*tables, *(match[0] for match in FIGURE.finditer(TABLE.sub("", text)))]


def test_every_figure_of_speed_is_a_quote_of_the_results(quotes: Any) -> None:
    texts = pages()
    for quote in quotes.quotes():
        match = quote.found(texts[quote.page])
        assert match.groups() == quote.figures, f"{quote.page}: python benchmarks/quotes.py writes {quote.figures}"
        texts[quote.page] = texts[quote.page].replace(match[0], "", 1)
    unknown = {(page, found) for page, text in texts.items() for found in figures(text)}
    assert unknown == OTHERS.keys(), "A figure of speed is a sentence in benchmarks/quotes.py, from a file of results."


@pytest.mark.parametrize(
    "text",
    [
        "it is 1.5 times as fast",
        "takes 0.68 to\n0.95 of the time",
        "some 100 ms",
        "reads 4.4 GB/s",
        "after 3.3 s on",
        "0.8 to 1.2 million windows per\nsecond",
        "a tenth faster",
        "a sixth of their speed",
        "|  | windows/s |\n| :-- | --: |\n| darts | 24,000 |\n",
    ],
)
def test_a_figure_of_speed_is_seen(text: str) -> None:
    assert figures(text)


@pytest.mark.parametrize("text", ["the int64 times of rows", "a tenth of the windows", "in `[t - 7d, t)`", "33 of 2h"])
def test_other_numbers_are_no_figures_of_speed(text: str) -> None:
    assert not figures(text)


def test_a_page_gets_the_figures_of_the_results(quotes: Any) -> None:
    quote = quotes.sentence("page.md", "is {} to {} times as fast as one.", "1.0", "1.25")
    assert quote.renewed("It is 0.9 to\n1.5 times as\nfast as one.") == "It is 1.0 to\n1.25 times as\nfast as one."
    with pytest.raises(ValueError, match=r"^page\.md has nothing like: "):
        quote.renewed("It is faster.")


def test_speeds_stand_to_each_other_as_their_ratios_do(quotes: Any) -> None:
    """Seconds and ratios that stand side by side come from the same medians."""
    import record
    import table
    from feeds import by_case, share_of

    for _, rows in record.kinds("compare").values():
        shown = {record.title(row): row for row in table.at_one_speed(rows)}
        limit = shown[record.title(rows[0])]
        for row in rows:
            if row["shape"] == limit["shape"]:
                speed = shown[record.title(row)]["windows_per_s"]
                assert speed / limit["windows_per_s"] == pytest.approx(row["ratio"])
    for _, rows in record.kinds("train").values():
        for own in by_case(rows).values():
            for ours in own:
                share = share_of(ours, own[0])
                assert share.share == ours["epoch_s"] / own[0]["epoch_s"]
                assert share.lowest <= share.share <= share.highest


def test_the_page_of_results_is_made_from_them(quotes: Any) -> None:
    import record
    import table

    assert (ROOT / "benchmarks" / "results" / "README.md").read_text("utf-8") == table.page()
    drawn = [(kind, name) for name in ("train", "compare") for kind in record.kinds(name)]
    assert len(drawn) >= 4
    assert all((ROOT / "benchmarks" / "results" / kind / f"{name}.png").exists() for kind, name in drawn)
