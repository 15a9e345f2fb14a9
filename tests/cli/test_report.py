"""`tensorstash inspect --html` and `tensorstash bench`: what the page says, that its code runs, and who is compared."""

import html
import json
import re
import sys
from base64 import b64decode
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
        ["zone", "none"],
        ["entities", "2"],
        ["gaps", "4, by their steps: 2 of 2h, 2 of 3h"],
        ["duplicates", "none"],
        ["rows without a gap", "10 to 79"],
    ):
        assert line in cells
    assert "<b>" not in page
    (picture,) = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    assert b64decode(picture).startswith(b"\x89PNG")
    # nothing is loaded from elsewhere
    assert not re.search(r"(src|href)=(?!\"data:)|url\(|@import", page)


def test_without_matplotlib_the_page_says_how_to_see_the_picture(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    page = page_of(file, "--columns", "y", "--entity", "<b>", "--time", "t")
    assert "<img" not in page
    assert "pip install 'tensorstash[plot]'" in page
    assert ["frequency", "1h"] in cells_of(page)


def test_the_code_of_the_page_runs(file: Path) -> None:
    page = page_of(file, "--columns", "x=y", "--entity", "<b>", "--time", "t", "--dtype", "float32")
    (code,) = re.findall(r"<pre><code>(.*?)</code></pre>", page, re.DOTALL)
    program = html.unescape(code).replace("history=96", "history=4") + "\nprint(stash, batch['x'].shape)\n"
    done = processes.run(program, warn="ignore")
    assert done.stdout.startswith("Stash: 234 rows, 2 entities (<b>)")
    assert done.stdout.splitlines()[-1].endswith("torch.Size([106, 28])")


def test_without_times_the_page_says_how_to_see_them(file: Path) -> None:
    assert "Name the columns of time and entity to see coverage" in page_of(file, "--columns", "y")


def test_times_of_several_series_without_an_entity_are_duplicates(file: Path) -> None:
    cells = dict(line for line in cells_of(page_of(file, "--columns", "y", "--time", "t")) if len(line) == 2)
    assert cells["duplicates"] == "117 rows with the time of the row before: name the column of --entity"
    assert (cells["frequency"], cells["gaps"]) == ("1h", "2, by their steps: 1 of 2h, 1 of 3h")


def test_a_load_that_would_be_refused_says_why(tmp_path: Path) -> None:
    path = tmp_path / "nulls.parquet"
    pl.DataFrame({"t": [1, None, 3], "y": [0.0, 1.0, 2.0]}).write_parquet(path)
    assert "<p>A load is refused: " in page_of(path, "--time", "t")
    assert "\n  load  refused\n  why   " in run("inspect", str(path), "--time", "t")
    assert "null" in json.loads(run("inspect", str(path), "--time", "t", "--json"))["times"]["refused"]


def test_the_page_of_a_table_with_known_times_says_how_rows_are_ordered(tmp_path: Path) -> None:
    frame = pl.DataFrame({"e": ["a", "a", "b"], "t": [1, 2, 1], "k": [5, 5, 5], "y": [0.0, 1.0, 2.0]})
    for runs, order in (
        (frame, "k and then by t"),
        (frame.with_columns(k=pl.Series([5, 6, 7]), t=1), "t and then by k"),
    ):
        runs.write_parquet(tmp_path / "runs.parquet")
        page = page_of(tmp_path / "runs.parquet", "--columns", "y", "--entity", "e", "--time", "t", "--known", "k")
        assert ["order of rows", order] in cells_of(page)
        (code,) = re.findall(r"<pre><code>(.*?)</code></pre>", page, re.DOTALL)
        assert processes.run(html.unescape(code) + "print(stash.known_name, stash.rows)").stdout == "k 3\n"


def test_the_bench_command_prints_a_line_for_each(file: Path) -> None:
    options = ["--columns", "y", "--entity", "<b>", "--time", "t", "--history", "4", "--horizon", "1"]
    printed = run("bench", str(file), *options, "--seconds", "0.1", "--workers", "1")
    table = printed.split("\n\n")[-1].splitlines()
    assert table[0].split() == ["first", "batch", "windows/s", "range"]
    assert [line.split("  ")[0] for line in table[1:]] == [
        "tensorstash",
        "DataLoader, 0 workers",
        "DataLoader, 1 workers",
    ]
