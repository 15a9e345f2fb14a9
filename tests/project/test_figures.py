"""Every figure of the README, and of what pages say of speed, is a key of the results that are kept."""

import re
from pathlib import Path
from statistics import median
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
KIND = "amd-epyc-2-cores-8-mb"  # of the table and the picture
LARGER = "amd-epyc-2-cores-32-mb"
INTEL = "intel-xeon-2-cores-260-mb"

# as the README calls it: as the results do
CONTESTANTS = {
    "tensorstash (packed)": "tensorstash (packed)",
    "`index_select` by hand, in huge pages": "strided index_select (huge pages)",
    "DataLoader, one packed slice a window": "DataLoader (one packed slice)",
    "darts 0.41": "darts",
    "DataLoader, eight slices a window": "DataLoader (dict of slices)",
}
UNMEASURED = ("Python 3.10 or later", "Apache-2.0")


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What is saved of a benchmark, by the kind of machine."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import record

    return record.kinds


def speeds(saved: Any) -> dict[str, str]:
    """Windows/s on one thread in two digits, by what the README calls the contestant."""
    _, rows = saved("compare")[KIND]
    common = {"workers": 0, "threads": 1, "shape": ""}
    found = {row["name"]: row for row in rows if all(row[key] == value for key, value in common.items())}
    return {name: f"{float(format(found[own]['windows_per_s'], '.2g')):,.0f}" for name, own in CONTESTANTS.items()}


def extent(saved: Any, kind: str, section: str, other: str, **labels: Any) -> tuple[float, float]:
    """The lowest and the highest median of how many times as fast the loop is as another contestant."""
    from timing import Rounds

    _, rows = saved("bench_batch")[kind]
    chosen = [row for row in rows if {"section": section, **labels}.items() <= row.items()]
    ratios = [Rounds(row["seconds"]).ratio("loop", other).median for row in chosen]
    return min(ratios), max(ratios)


def cache(saved: Any, kind: str) -> str:
    """The largest cache of a kind of machine, in MB."""
    about, _ = saved("bench_batch")[kind]
    return f"{max(about['caches_mb'].values()):.0f}"


def by_hand(saved: Any, kind: str) -> tuple[float, float]:
    return extent(saved, kind, "By hand", "index_select in chunks")


def test_every_figure_of_the_readme_is_in_the_results(saved: Any) -> None:
    import table

    about, rows = saved("compare")[KIND]
    readme = (ROOT / "README.md").read_text("utf-8")
    text = re.sub(r"```.*?```|^\d+\. ", "", readme, flags=re.DOTALL | re.MULTILINE)  # code, and what is counted
    text = " ".join(re.sub(r"\]\([^)]*\)", "]", text).split())
    figures = speeds(saved)
    row = next(row for row in rows if row["name"] == "tensorstash (packed)")
    here, larger, intel = (by_hand(saved, kind) for kind in (KIND, LARGER, INTEL))
    columns = round(row["gb_per_s"] * 1e9 / row["windows_per_s"] / row["width"] / 4)
    megabytes = row["rows"] * columns * 4 / 1e6
    batches = (
        f"batches of {row['batch']:,} random windows of {row['width']} steps, {megabytes:.0f} MB in {columns} columns"
    )
    expected = [
        batches,
        *(f"| {name} | {speed} |" for name, speed in figures.items()),
        f"with {cache(saved, KIND)} MB of cache",
        f"a loader is {table.ratio_of(row)} times as fast as a bare loop in C",
        f"{here[0]:.2f} to {here[1]:.2f} times as fast as they are there",
        f"{larger[0]:.2f} to {larger[1]:.2f} times as fast on such a server with {cache(saved, LARGER)} MB",
        f"and {intel[0]:.2f} to {intel[1]:.2f} times on an Intel Xeon server",
        *UNMEASURED,
    ]
    for sentence in expected:
        assert sentence in text, sentence
        text = text.replace(sentence, "")
    assert re.findall(r"[^|.]*\d[^|.]*", text) == []
    assert about["versions"]["darts"].startswith("0.41")
    assert (about["processor"], about["cores"]) == ("AMD EPYC", 2)


def test_the_ranges_over_all_kinds_of_machines_are_those_of_the_results(saved: Any) -> None:
    text = " ".join((ROOT / "docs" / "explanation" / "benchmarks.md").read_text("utf-8").split())
    kinds = saved("bench_batch")
    raw = [extent(saved, kind, "The whole loop", "raw gather", case="1,024 x 120, separate") for kind in kinds]
    hand = [by_hand(saved, kind) for kind in kinds]
    for of_kinds, end in ((raw, "times as fast as one bare"), (hand, "times as fast as the best lines by hand")):
        low, high = min(low for low, _ in of_kinds), max(high for _, high in of_kinds)
        assert f"{low:.1f} to {high:.1f} {end}" in text
    here, larger = (extent(saved, kind, "The whole loop", "loop, no prefetches") for kind in (KIND, LARGER))
    smaller = f"on the AMD server with {cache(saved, KIND)} MB of cache"
    assert f"{here[0]:.1f} to {here[1]:.1f} times as long {smaller}" in text
    assert f"{larger[0]:.1f} to {larger[1]:.1f} times on the one with {cache(saved, LARGER)} MB" in text


def test_batch_sizes_are_those_of_the_results(saved: Any) -> None:
    text = " ".join((ROOT / "docs" / "how-to" / "slow.md").read_text("utf-8").split())
    _, rows = saved("bench_batch")[KIND]
    sizes = {row["batch"]: median(row["seconds"]["loop"]) for row in rows if row["section"] == "Windows per batch"}
    speeds = [size / seconds / 1e6 for size, seconds in sizes.items()]
    assert f"gathers {min(speeds):.1f} to {max(speeds):.1f} million windows per second" in text
    assert f"in batches of {min(sizes):,} to {max(sizes):,} windows" in text


def test_the_memory_of_processes_is_that_of_the_results(saved: Any) -> None:
    text = (ROOT / "docs" / "explanation" / "memory.md").read_text("utf-8")
    _, (row,) = saved("bench_share")[KIND]
    for name, megabytes in row["megabytes"].items():
        assert f"| {name.removeprefix('processes: ')} | {megabytes:,.0f} |" in text


def test_first_batches_of_mixes_are_those_of_the_results(saved: Any) -> None:
    text = " ".join((ROOT / "docs" / "explanation" / "benchmarks.md").read_text("utf-8").split())
    _, (row,) = saved("bench_mix")[KIND]
    few, many = (f"{row['first'][name] * 1e3:.0f} ms" for name in ("4 stashes", "1,000 stashes"))
    assert f"after {few} with 4 stashes and after {many} with 1,000" in text


def test_the_page_of_results_is_made_from_them(saved: Any) -> None:
    import table

    assert (ROOT / "benchmarks" / "results" / "README.md").read_text("utf-8") == table.page()
    drawn = [(kind, name) for name in ("train", "compare") for kind in saved(name)]
    assert (KIND, "train") in drawn
    assert all((ROOT / "benchmarks" / "results" / kind / f"{name}.png").exists() for kind, name in drawn)
