"""What a notebook shows: escaped, under 100 kB, and of windows some over all the data."""

import re
from xml.etree import ElementTree

import numpy as np

import tensorstash as ts


def parsed(page: str) -> ElementTree.Element:
    """A page that is not well-formed is an error."""
    return ElementTree.fromstring(f"<div>{page}</div>")


def test_many_columns_entities_and_spans_stay_under_100_kb() -> None:
    entities, rows = 1000, 150
    frame = {
        "e": np.repeat([f"<{k}>" + "e" * 200 for k in range(entities)], rows),
        "t": np.tile(np.arange(rows), entities),
    }
    frame["t"] = frame["t"] * 2 + np.random.default_rng(0).integers(0, 2, len(frame["t"]))
    names = [f"<script>{k}" + "c" * 200 for k in range(300)]
    stash = ts.load({**frame, **dict.fromkeys(names, np.zeros(rows * entities, np.int8))}, entity="e", time="t")
    windows = ts.Windows(stash, history=30, horizon=10, gaps="ignore")
    for page in (stash._repr_html_(), windows._repr_html_()):
        assert len(page.encode()) < 100_000
        assert "<script" not in page
        parsed(page)
    assert "<p>and 201 more columns</p>" in stash._repr_html_()


def cells_of(page: str) -> list[list[str | None]]:
    return [[cell.text for cell in row] for row in parsed(page).iter("tr")]


def test_anchors_after_the_rows_without_a_step_of_time_are_shown_behind_the_last_row() -> None:
    stash = ts.load({"e": [*"aaabb"], "t": [1, 2, 5, 1, 4], "y": [0.0] * 5}, ["y"], entity="e", time="t")
    windows = ts.Windows(stash, 2, 2, gaps="ignore", min_horizon=0)
    shown = cells_of(windows._repr_html_())[-3:]
    assert shown == [["0", "a", "1", "5", "5"], ["1", "a", "2", "after 5", "5"], ["2", "b", "1", "after 4", "4"]]


def test_windows_show_their_spans_and_three_windows_over_the_data() -> None:
    days = np.arange("2024-01-01", "2024-01-11", dtype="M8[D]")
    frame = {"e": ["a & b"] * 10 + ["c"] * 10, "t": np.tile(days, 2), "y": np.arange(20.0)}
    stash = ts.load(frame, ["y"], entity="e", time="t")
    windows = ts.Windows(stash, spans={"past": ("y", -4, 0, 2), "next": ("y", 0, 2)})
    assert cells_of(windows._repr_html_()) == [
        ["span", "column and slots"],
        ["past", "y[-4:0:2]"],
        ["next", "y[0:2]"],
        ["window", "e", "from", "anchor", "to"],
        ["0", "a & b", "2024-01-01", "2024-01-05", "2024-01-06"],
        ["4", "a & b", "2024-01-05", "2024-01-09", "2024-01-10"],
        ["9", "c", "2024-01-05", "2024-01-09", "2024-01-10"],
    ]
    assert cells_of(windows.latest()._repr_html_())[-1] == ["1", "c", "2024-01-07", "2024-01-11", "2024-01-12"]


def test_without_times_windows_reach_rows() -> None:
    windows = ts.Windows(ts.load({"y": np.arange(5.0)}), history=3, min_history=1, horizon=1)
    assert cells_of(windows._repr_html_())[-2:] == [["1", "0", "2", "2"], ["3", "1", "4", "4"]]


def test_windows_in_time_reach_the_bounds_of_their_spans() -> None:
    stash = ts.load({"t": [0, 10, 20], "y": np.zeros(3)}, ["y"], time="t")
    windows = ts.Windows(stash, spans={"past": ts.During("y", -15, 5, max_rows=4)})
    spans, example = cells_of(windows._repr_html_())[1], cells_of(windows._repr_html_())[-1]
    assert spans == ["past", "y(-15, 5], at most 4"]
    assert example == [str(len(windows) - 1), "5", "20", "25"]


def test_slots_without_a_known_step_show_the_nearest_rows() -> None:
    stash = ts.load({"t": [0, 7, 9], "y": np.zeros(3)}, ["y"], time="t")
    windows = ts.Windows(stash, history=2, min_history=1, gaps="ignore")
    assert cells_of(windows._repr_html_())[-3:] == [["0", "0", "0", "0"], ["1", "0", "7", "7"], ["2", "7", "9", "9"]]


def test_without_windows_there_are_only_the_spans() -> None:
    one = ts.Windows(ts.load({"t": [1, 2, 3, 4], "y": np.zeros(4)}, ["y"], time="t"), history=1, horizon=1)
    assert cells_of(one.split(2)[0]._repr_html_()) == [["span", "column and slots"], ["y", "y[-1:1]"]]


def test_the_sizes_of_a_stash_and_of_its_plan_add_up() -> None:
    rows = 400_000
    frame = {"t": np.arange(rows), "x": np.zeros(rows, np.float32), "y": np.zeros(rows)}
    plan = ts.plan(frame, ["x", "y"], time="t")
    for shown in (plan, plan.load()):
        caption, *lines = repr(shown).splitlines()
        sizes = [float(size) for line in lines for size in re.findall(r"  (\d+\.\d)(?=  |$)", line)]
        assert sizes == [1.6, 3.2, 3.2]
        assert f"{rows:,} rows, 8.0 MB" in caption


def test_plans_are_tables() -> None:
    plan = ts.plan({"e": ["a&b", "c"] * 8, "y": np.arange(16.0)}, ["y"], entity="e")
    found = [text.strip() for text in parsed(plan._repr_html_()).itertext()]
    assert [cell for cell in ("Plan", "y", "float64") if cell not in found] == []
