"""Batches from several stashes: each window is that of its own stash, wherever the columns lie there."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests import oracle
from tests.epochs import ids_of
from tests.gather.cases import NAMES, Batch, Case, Series, series, spans
from tests.words import Gaps

pytestmark = pytest.mark.filterwarnings("ignore:Gaps (cost|make)")
ORDERS = (NAMES, NAMES[::-1], (*NAMES[5:], *NAMES[:5]))


def expected(cases: list[Case], parts: list[ts.Windows], ids: list[int], filled: bool) -> Batch:
    """Window by window, each from the stash whose turn it is; of a stash without empty slots all slots are observed."""
    rows: list[Batch] = []
    for one in ids:
        number, part = one, 0
        while number >= len(parts[part]):
            number -= len(parts[part])
            part += 1
        batch = cases[part].expected(parts[part].stash, [number])
        if filled:
            whole = {f"{name}.observed": torch.ones(batch[name].shape[:2], dtype=torch.bool) for name in cases[0].spans}
            batch = {name: batch[name] for name in cases[0].spans} | whole | batch
        rows.append(batch)
    return {name: torch.cat([row[name] for row in rows]) for name in rows[0]}


def check(batch: Batch, wanted: Batch) -> None:
    assert list(batch) == list(wanted)
    for name, tensor in wanted.items():
        assert oracle.same(batch[name], tensor), name


@settings(max_examples=100)
@given(
    st.lists(st.tuples(series(), st.sampled_from(["mask", "split", "ignore"])), min_size=1, max_size=4),
    spans(),
    st.data(),
)
def test_each_window_is_that_of_its_own_stash(
    kinds: list[tuple[Series, Gaps]], chosen: dict[str, Any], data: st.DataObject
) -> None:
    cases = [Case(own, chosen, gaps) for own, gaps in kinds]
    cases = [case for case in cases if case.expected_slots()]
    if not cases:
        return
    parts = [case.windows(case.series.stash(ORDERS[k % 3])) for k, case in enumerate(cases)]
    mix = ts.Mix({f"part {k}": part for k, part in enumerate(parts)})
    filled = any(case.filled for case in cases)
    count = sum(map(len, parts))
    ids = data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=12))
    check(mix[ids], expected(cases, parts, ids, filled))
    check({name: tensor[None] for name, tensor in mix[ids[0]].items()}, expected(cases, parts, ids[:1], filled))

    loader = ts.Loader(mix, 5, shuffle=True, prefetch=data.draw(st.sampled_from([0, 2])))
    steps = ids_of(loader.sampler)
    for batch, own in zip(loader, steps, strict=True):
        check(batch, expected(cases, parts, own, filled))


def test_windows_of_one_of_many_stashes() -> None:
    """Others of the mix may not have a window in a batch."""
    chosen = {"past": ("f32", -2, 0, 1), "grid": ("grid", -1, 2, 2)}
    cases = [Case(Series([[True, k % 2 == 0, True] + [True] * 3]), chosen, "mask") for k in range(40)]
    parts = [case.windows(case.series.stash(("grid", "f32", "u8"))) for case in cases]
    mix = ts.Mix({str(k): part for k, part in enumerate(parts)})
    for ids in ([len(mix) - 1] * 3, [5], [5, len(mix) - 1, 0, 5]):
        check(mix[ids], expected(cases, parts, ids, filled=True))


def test_the_values_of_empty_slots_are_those_of_each_stash() -> None:
    """Computed from the times of each."""
    parts = {}
    for name, first in (("one", "2024-01-30"), ("two", "2024-02-27")):
        times = np.datetime64(first) + np.array([0, 1, 3])
        stash = ts.load({"t": times, "y": [1.0, 2.0, 3.0]}, {"y": "y", "day": ts.calendar("day")}, time="t")
        parts[name] = ts.Windows(stash, 4, columns=["day", "y"], gaps="mask")
    batch = ts.Mix(parts)[[0, 1, 0]]
    assert batch["day"][..., 0].tolist() == [[30, 31, 1, 2], [27, 28, 29, 1], [30, 31, 1, 2]]
    assert batch["day.observed"].tolist() == [[True, True, False, True]] * 3
