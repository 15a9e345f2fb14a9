"""Gather by itself: positions of windows with slots empty in front, between and behind, against a list of slots."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tensorstash.gather.empty import anchor_rows, rows_of
from tensorstash.gather.gather import compile_plan, copy_into, gather, gather_into
from tensorstash.gather.span import Filling, Fragments, Span, Store
from tensorstash.native.guide import guide
from tests import oracle

STRETCHES = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 6)), min_size=1, max_size=6)


def plan_of(stretches: list[tuple[int, int]], behind: int, history: int, horizon: int) -> tuple[Filling, list[int]]:
    """The filling of stretches of (empty slots, rows), and the row of every slot, -1 for an empty one."""
    slots: list[int] = []
    first: list[int] = []
    row: list[int] = []
    rows: list[int] = []
    for empty, count in stretches:
        slots += [-1] * empty
        done = sum(rows)
        first.append(len(slots))
        row.append(done)
        rows.append(count)
        slots += range(done, done + count)
    slots += [-1] * behind
    begins, at, counts = (np.array(one, np.int64) for one in (first, row, rows))
    fragments = Fragments(begins, at, counts, guide(np.append(begins[1:], len(slots))[:, None]))
    return Filling(fragments, history, horizon, {}, {}), slots


@settings(max_examples=200)
@given(STRETCHES, st.integers(0, 5), st.integers(1, 4), st.integers(0, 4))
def test_rows_of_windows_are_those_of_their_slots(
    stretches: list[tuple[int, int]], behind: int, history: int, horizon: int
) -> None:
    plan, slots = plan_of(stretches, behind, history, horizon)
    starts = np.arange(len(slots) - history - horizon + 1)
    if not len(starts):
        return
    windows = [slots[start : start + history + horizon] for start in starts.tolist()]

    assert rows_of(plan, starts + history).tolist() == windows

    rows, whole = anchor_rows(plan, starts + history)
    for window, row, inside in zip(windows, rows.tolist(), whole.tolist()):
        # rows of two fragments follow one another where no slot between them is empty, and are gathered row by row
        joined = any(one[0] == 0 for one in stretches[1:])
        assert not inside or window == list(range(row - history, row + horizon))
        assert inside or joined or -1 in window


def test_a_batch_is_written_into_tensors_of_any_layout() -> None:
    stash = ts.load({"a": np.arange(40.0), "b": np.arange(40, 80), "p": np.arange(40, dtype=np.float32)})
    spans = (Span("a", "a", -3, 2), Span("far", "a", -9, 0, 5), Span("odd", "b", -4, 2, 2), Span("p", "p", -3, 2))
    store = Store(stash, lambda: stash.blocks, None)
    apart = compile_plan(spans, [store], together=False)
    anchors = np.array([9, 20, 11])
    expected = gather(compile_plan(spans, [store]), None, anchors)
    layouts: list[Any] = [
        lambda one: torch.zeros_like(one),
        lambda one: torch.zeros(*one.shape[::-1], dtype=one.dtype).T,
        lambda one: torch.zeros(len(one), 2 * one.shape[1], dtype=one.dtype)[:, ::2],
    ]
    for layout in layouts:
        out = {name: layout(one) for name, one in expected.items()}
        gather_into(apart, anchors, out)
        assert all(oracle.same(out[name], one) for name, one in expected.items())
    with pytest.raises(ValueError, match=r"^out must have a \(3, 5\) torch\.float64 tensor for 'a', got nothing\.$"):
        gather_into(apart, anchors, {})
    with pytest.raises(ValueError, match=r"out must have a \(2,\) torch\.int64 tensor for 'e', got \(3,\)"):
        copy_into({"e": torch.zeros(2, dtype=torch.int64)}, {"e": torch.zeros(3, dtype=torch.int64)})
