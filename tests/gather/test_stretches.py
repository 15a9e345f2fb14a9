"""Rows of a stretch of time in every column: the newest at the end, empty slots in front, beside a loop over rows."""

from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests import oracle
from tests.gather.cases import EMPTY, NAMES, Slots, columns, values

EVENTS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12)), min_size=1, max_size=30).map(sorted)
POINTS = st.lists(st.tuples(st.integers(0, 2), st.integers(-2, 15)), min_size=1, max_size=8)


def stash_of(events: list[tuple[int, int]]) -> ts.Stash:
    keys = {"e": [e for e, _ in events], "t": [t for _, t in events]}
    chosen = {name: ts.column(name, empty=EMPTY.get(name)) for name in NAMES}
    return ts.load(keys | columns(len(events)), chosen, entity="e", time="t", duplicates="keep")


def rows_of(events: list[tuple[int, int]], e: int, t: int, begin: int, end: int, most: int) -> Slots:
    """The newest rows of an entity with times in `[t + begin, t + end)`."""
    found = [row for row, (entity, time) in enumerate(events) if entity == e and t + begin <= time < t + end]
    newest = found[-most:]
    return [None] * (most - len(newest)) + newest


@settings(max_examples=80)
@given(
    EVENTS,
    POINTS,
    st.lists(
        st.tuples(st.sampled_from(NAMES), st.integers(-9, -1), st.integers(0, 9), st.integers(1, 4), st.booleans()),
        min_size=1,
        max_size=4,
    ),
)
def test_a_stretch_holds_the_newest_rows_of_its_column(
    events: list[tuple[int, int]], points: list[tuple[int, int]], stretches: list[tuple[str, int, int, int, bool]]
) -> None:
    entities = {e for e, _ in events}
    points = [(e, t) for e, t in points if e in entities]
    if not points:
        return
    stash = stash_of(events)
    spans = {
        f"span {k}": ts.During(name, begin, begin + 1 + length, max_rows=most, age=age)
        for k, (name, begin, length, most, age) in enumerate(stretches)
    }
    windows = ts.Windows(
        stash, spans=spans, at=pl.DataFrame({"e": [e for e, _ in points], "t": [t for _, t in points]})
    )
    batch = windows[:]
    for k, (name, begin, length, most, age) in enumerate(stretches):
        own = [rows_of(events, e, t, begin, begin + 1 + length, most) for e, t in points]
        assert oracle.same(batch[f"span {k}"], values(stash, name, own)), name
        assert batch[f"span {k}.observed"].tolist() == [[row is not None for row in slots] for slots in own]
        if age:
            ages = [[0 if row is None else t - events[row][1] for row in slots] for slots, (_, t) in zip(own, points)]
            assert batch[f"span {k}.age"].tolist() == ages
    for some in ([0], [len(points) - 1, 0, 0]):
        for key, tensor in windows[some].items():
            assert oracle.same(tensor, batch[key][some]), key


@pytest.mark.parametrize("name", NAMES)
def test_stretches_stand_beside_spans_in_slots(name: str) -> None:
    """In one batch, each with its own empty slots, over every column."""
    times = [0, 1, 2, 3, 5, 6, 9, 10, 11]
    chosen: dict[str, Any] = {one: ts.column(one, empty=EMPTY.get(one)) for one in (name, "u8")}
    stash = ts.load(columns(len(times)) | {"t": times}, chosen, time="t")
    spans: dict[str, Any] = {
        "slots": (name, -3, 1),
        "rows": ts.During(name, -4, 0, max_rows=3),
        "other": ("u8", -1, 1),
        "last": ts.During("u8", -1, 0, max_rows=1, age=True),
    }
    windows = ts.Windows(stash, spans=spans, gaps="mask", frequency=1)
    anchors = windows.anchors(slice(None))["time"].tolist()
    assert anchors == [*range(3, 12)]
    row = {time: k for k, time in enumerate(times)}
    batch = windows[:]
    slots = [[row.get(t + k) for k in range(-3, 1)] for t in anchors]
    assert oracle.same(batch["slots"], values(stash, name, slots))
    assert batch["slots.observed"].tolist() == [[one is not None for one in own] for own in slots]
    events = [(0, time) for time in times]
    rows = [rows_of(events, 0, t, -4, 0, 3) for t in anchors]
    assert oracle.same(batch["rows"], values(stash, name, rows))
    last = [rows_of(events, 0, t, -1, 0, 1) for t in anchors]
    assert oracle.same(batch["last"], values(stash, "u8", last))
    assert batch["last.age"].tolist() == [[int(own[0] is not None)] for own in last]


def test_loaders_take_stretches_in_any_order() -> None:
    events = sorted((k % 3, k * k % 29) for k in range(120))
    stash = stash_of(events)
    spans = {name: ts.During(name, -6, 0, max_rows=4) for name in NAMES}
    frame = pl.DataFrame({"e": [k % 3 for k in range(50)], "t": [k * 7 % 31 for k in range(50)]})
    windows = ts.Windows(stash, spans=spans, at=frame)
    expected = windows[:]
    for batch in ts.Loader(windows, 7, shuffle=True, prefetch=2, with_ids=True):
        assert all(oracle.same(batch[name], tensor[batch["window"]]) for name, tensor in expected.items())
