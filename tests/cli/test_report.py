"""`tensorstash inspect --html` and `tensorstash bench`: what the page says, that its code runs, and who is compared."""

import html
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests import processes
from tests.command_line import run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    hours = np.delete(np.arange("2024-01-01", "2024-01-06", dtype="M8[h]"), [10, 11, 40])
    frame = pl.DataFrame(
        {"<b>": ["a", "b"] * len(hours), "t": np.repeat(hours.astype("M8[us]"), 2), "y": np.arange(2.0 * len(hours))}
    )
    frame.write_parquet(tmp_path / "a&b.parquet")
    return tmp_path / "a&b.parquet"


def page_of(file: Path, *options: str) -> str:
    target = file.with_name("report.html")
    assert run("inspect", str(file), *options, "--html", str(target)).splitlines()[-1] == f"wrote {target}"
    return target.read_text("utf-8")


def cells_of(page: str) -> list[list[str]]:
    rows = re.findall(r"<tr>(.*?)</tr>", page)
    return [[html.unescape(cell) for cell in re.findall(r"<t[dh]>(.*?)</t[dh]>", row)] for row in rows]


def test_the_page_shows_types_ranges_coverage_gaps_and_frequency(file: Path) -> None:
    page = page_of(file, "--columns", "y", "--entity", "<b>", "--time", "t")
    cells = cells_of(page)
    assert ["y", "", "double", "number", "float64", "0", "0", "233", "0.0"] in cells
    for line in (
        ["frequency", "1h"],
        ["entities", "2"],
        ["gaps in time", "4"],
        ["gaps of 2h", "2"],
        ["gaps of 3h", "2"],
        ["rows of the longest stretch without a gap", "79"],
        ["rows of the shortest", "10"],
    ):
        assert line in cells
    assert "<svg" in page
    assert "<b>" not in page
    # nothing is loaded from elsewhere
    assert not re.search(r"(src|href)=|url\(|@import", page)


def test_the_code_of_the_page_runs(file: Path) -> None:
    page = page_of(file, "--columns", "x=y", "--entity", "<b>", "--time", "t", "--dtype", "float32")
    (code,) = re.findall(r"<pre><code>(.*?)</code></pre>", page, re.DOTALL)
    program = html.unescape(code).replace("history=96", "history=4") + "\nprint(stash, batch['x'].shape)\n"
    done = processes.run(program, warn="ignore")
    assert done.stdout.startswith("Stash: 234 rows, 2 entities (<b>)")
    assert done.stdout.splitlines()[-1].endswith("torch.Size([106, 28])")


def test_without_times_the_page_says_how_to_see_them(file: Path) -> None:
    assert "Name the columns of time and entity to see coverage" in page_of(file, "--columns", "y")


def test_a_load_that_would_be_refused_says_why(file: Path) -> None:
    page = html.unescape(page_of(file, "--columns", "y", "--time", "t"))
    times = "the series (no entity= was given) has t 2024-01-01 00:00:00 in source rows 0"
    assert f"<p>A load is refused: A time occurs once in each entity; {times}" in page


def test_the_page_of_a_table_with_known_times_says_how_rows_are_ordered(tmp_path: Path) -> None:
    frame = pl.DataFrame({"e": ["a", "a", "b"], "t": [1, 2, 1], "k": [5, 5, 5], "y": [0.0, 1.0, 2.0]})
    for runs, order in (
        (frame, "k and then by t"),
        (frame.with_columns(k=pl.Series([5, 6, 7]), t=1), "t and then by k"),
    ):
        runs.write_parquet(tmp_path / "runs.parquet")
        page = page_of(tmp_path / "runs.parquet", "--columns", "y", "--entity", "e", "--time", "t", "--known", "k")
        assert f"Rows are ordered by {order}." in page
        assert "<svg" in page
        (code,) = re.findall(r"<pre><code>(.*?)</code></pre>", page, re.DOTALL)
        assert processes.run(html.unescape(code) + "print(stash.known_name, stash.rows)").stdout == "k 3\n"


def test_the_bench_command_prints_a_line_for_each(file: Path) -> None:
    options = ["--columns", "y", "--entity", "<b>", "--time", "t", "--history", "4", "--horizon", "1"]
    printed = run("bench", str(file), *options, "--seconds", "0.1", "--workers", "1")
    table = printed.split("\n\n")[-1].splitlines()
    assert table[0].split() == ["first", "batch", "windows/s", "waiting", "memory"]
    assert [line.split("  ")[0] for line in table[1:]] == [
        "tensorstash",
        "DataLoader, 0 workers",
        "DataLoader, 1 workers",
    ]
