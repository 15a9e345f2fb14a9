"""What a notebook shows: escaped, under 100 kB, and what windows say of their spans."""

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
    page = stash._repr_html_()
    assert len(page.encode()) < 100_000
    assert "<script" not in page
    parsed(page)
    assert "<p>and 201 more columns</p>" in page


def test_windows_show_their_spans() -> None:
    stash = ts.load({"t": np.arange(10), "y": np.arange(10.0)}, ["y"], time="t")
    spans = {"past": ("y", -4, 0, 2), "next": ("y", 0, 2), "near": ts.During("y", -15, 5, max_rows=4)}
    text = "past=y[-4:0:2], next=y[0:2], near=y[-15, 5), at most 4"
    assert repr(ts.Windows(stash, spans=spans)).endswith(text)


def test_the_sizes_of_a_stash_and_of_its_plan_add_up() -> None:
    rows = 400_000
    frame = {"t": np.arange(rows), "x": np.zeros(rows, np.float32), "y": np.zeros(rows)}
    plan = ts.plan(frame, ["x", "y"], time="t")
    for shown in (plan, plan.load()):
        caption, *lines = repr(shown).splitlines()
        sizes = [float(size) for line in lines for size in re.findall(r"  (\d+\.\d)(?=  |$)", line)]
        assert sizes == [1.6, 3.2, 3.2]
        assert f"{rows:,} rows, 8.0 MB" in caption
