"""What a notebook shows: escaped, under 100 kB, and drawn where the rows are."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

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
    loader = ts.Loader(windows, 8)._repr_html_()
    for page in (stash._repr_html_(), windows._repr_html_(), loader):
        assert len(page.encode()) < 100_000
        assert "<script" not in page
        parsed(page)
    assert "<p>and 200 more columns</p>" in stash._repr_html_()
    assert "<p>20 of 1,000 entities:</p>" in stash._repr_html_()
    assert "<p>and 280 more entries</p>" in loader


def test_windows_show_their_spans_and_the_first_windows() -> None:
    days = np.arange("2024-01-01", "2024-01-11", dtype="M8[D]")
    stash = ts.load({"e": ["a & b"] * 10, "t": days, "y": np.arange(10.0)}, ["y"], entity="e", time="t")
    windows = ts.Windows(stash, spans={"past": ("y", -4, 0, 2), "next": ("y", 0, 1)})
    page = parsed(windows._repr_html_())
    cells = [[cell.text for cell in row] for row in page.iter("tr")]
    assert cells[:2] == [["window", "e", "t of the anchor"], ["0", "a & b", "2024-01-05"]]
    _, spans, past, _ = page.iter("{http://www.w3.org/2000/svg}svg")
    (strokes,) = spans.iter("{http://www.w3.org/2000/svg}path")
    assert strokes.get("d") == "M110 7h98M306 7h98M502 21h98"
    drawn = [path.get("d") for path in past.iter("{http://www.w3.org/2000/svg}path")]
    assert drawn == ["M0 38L180 2", "M200 38L380 2", "M400 38L580 2"]


@pytest.mark.parametrize("value", [np.nan, np.inf, 1.7e308, 0.0])
def test_values_of_any_size_are_drawn(value: float) -> None:
    stash = ts.load({"y": [value, -value, 1.0, value], "b": [True, False, True, True]})
    page = ts.Windows(stash, history=3)._repr_html_()
    parsed(page)
    assert not re.search(r"nan|inf", page)


def test_packs_and_halves_are_drawn_by_their_first_number() -> None:
    stash = ts.load({"a": np.arange(5.0), "b": np.arange(5.0)}, {"x": ["a", "b"]}, dtype=torch.bfloat16)
    assert "x, window 2" in ts.Windows(stash, history=3)._repr_html_()


def test_without_linesor_windows_there_is_no_picture() -> None:
    stash = ts.load({"y": np.zeros(0)})
    assert "<svg" not in stash._repr_html_()
    one = ts.Windows(ts.load({"t": [1, 2, 3, 4], "y": np.zeros(4)}, ["y"], time="t"), history=1, horizon=1)
    assert "There is no window." in one.split(2)[0]._repr_html_()


def test_the_newest_windows_are_drawn_near_their_times() -> None:
    hours = np.arange("2023-01-01", "2024-01-01", dtype="M8[h]")
    stash = ts.load({"t": hours, "y": np.zeros(len(hours))}, ["y"], time="t")
    page = ts.Windows(stash, history=24, horizon=6).latest()._repr_html_()
    assert ">2023-12-31 00:00:00<" in page
    assert ">2023-01-01 00:00:00<" not in page
    assert ">2023-01-01 00:00:00<" in stash._repr_html_()


def test_plans_scalers_and_mixes_are_tables() -> None:
    data = {"e": ["a&b", "c"] * 8, "y": np.arange(16.0)}
    plan, stash = ts.plan(data, ["y"], entity="e"), ts.load(data, ["y"], entity="e")
    windows = ts.Windows(stash, history=2)
    mix = ts.Mix({f"<{k}>": windows for k in range(9)})
    for shown, cells in (
        (plan, ["Plan", "y", "float64", "page tables: 0.0 MB in each process"]),
        (ts.Scaler.fit(windows, ["y"]), ["Scaler", "y", "7.5"]),
        (mix, ["Mix", "<0>", "14", "and 1 more"]),
    ):
        found = [text.strip() for text in parsed(shown._repr_html_()).itertext()]
        assert [cell for cell in cells if cell not in found] == []


def test_loaders_show_their_order_and_the_entries_of_a_window() -> None:
    data = {"<e>": ["a&b"] * 6, "x": np.arange(6.0), "k": np.arange(6, dtype=np.int16), "size": [3] * 6}
    stash = ts.load(data, {"<x>": ["x", "x"], "k": ts.column("k", empty=0)}, entity="<e>", static=["size"])
    spans = {"past": ("<x>", -2, 0), "next": ("k", 0, 1)}
    windows = ts.Windows(stash, spans=spans, min_history=1)
    loader = ts.Loader(windows, 4, shuffle=True, seed=7, prefetch=1)
    position = loader.state_dict()
    page = parsed(loader._repr_html_())
    assert [[cell.text for cell in row] for row in page.iter("tr")] == [
        ["entry", "dtype", "shape"],
        *[[name, str(values.dtype)[6:], str(tuple(values.shape))] for name, values in windows[0].items()],
    ]
    lines = ["".join(line.itertext()) for line in page.iter("p")]
    assert lines[:2] == ["Loader: to cpu, prefetch 1", str(loader.sampler)]
    assert lines[2] == str(windows).partition(";")[0]
    assert loader.state_dict() == position
    mix = ts.Loader(ts.Mix({"<a>": windows, "b": windows}), 4)
    assert "<p>Mix: 10 windows an epoch, of 2 components with 10 windows</p>" in mix._repr_html_()
    parsed(mix._repr_html_())
