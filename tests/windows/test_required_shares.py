"""Shares and `"rows"` in `require=`, against an oracle that looks at every slot of every window."""

import math
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests import oracle
from tests.data import Table, tables
from tests.oracle import Slot
from tests.windows.test_masked import cases, check_batch, expected_windows, hull, span_slots

pytestmark = pytest.mark.filterwarnings(
    "ignore:(Gaps|(Shard .*)?require=|.* entities have no window|.* series end before|.* have no latest window)"
)

SHARES = [0, 0.25, 0.3, 0.5, 0.6, 0.75, 0.8, 0.9, 1.0, "rows"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few rows, so that there are several."""
    monkeypatch.setattr("tensorstash.windows.require._BLOCK", 3)


def has_enough(stash: ts.Stash, name: str, slots: list[Slot], share: Any) -> bool:
    """Whether so many slots of a span hold a value of a column."""
    counted = [slot for slot in slots if slot.behind is None]
    missing = [slot.row is not None and oracle.is_missing(stash[name][slot.row].tolist()) for slot in counted]
    if share == "rows":
        return not any(missing)
    lacking = sum(slot.row is None or is_missing for slot, is_missing in zip(counted, missing))
    return lacking <= math.floor(len(counted) * (1 - share) + 1e-9)


def holey(table: Table, data: st.DataObject) -> ts.Stash:
    """The stash of a table with many values missing."""
    rows = sum(table.lengths)
    chance = data.draw(st.sampled_from([0.1, 0.3, 0.6, 0.9]))
    holes = np.flatnonzero(np.random.default_rng(data.draw(st.integers(0, 99))).random(rows) < chance)
    return Table(table.lengths, table.times, holes.tolist()).stash(fills=True)


@settings(max_examples=150)
@given(tables(), cases(("f32", "pack", "i16")), st.data())
def test_windows_hold_the_share_of_values_that_is_required(
    table: Table, case: dict[str, Any], data: st.DataObject
) -> None:
    stash, chosen = holey(table, data), case["spans"]
    history, horizon = hull(chosen)
    names = st.sampled_from([*chosen, "f32", "pack"])
    require: dict[str, Any] = data.draw(st.dictionaries(names, st.sampled_from(SHARES), min_size=1, max_size=3))
    judged = {name: chosen.get(name, (name, -history, horizon, 1)) for name in require}
    kept = [
        window
        for window in expected_windows(stash, case)
        if all(
            has_enough(stash, span[0], span_slots(window, span, history), require[name])
            for name, span in judged.items()
        )
    ]
    if not kept:
        with pytest.raises(
            ts.errors.NoWindowError, match=r"^(Windows need|require= keeps the windows without a missing value, or)"
        ):
            ts.Windows(stash, **case, require=require)
        return

    windows = ts.Windows(stash, **case, require=require)

    check_batch(stash, chosen, kept, windows[:])
    if set(require.values()) <= {1}:
        assert windows.fingerprint() == ts.Windows(stash, **case, require=[*require]).fingerprint()


def test_the_oracle_can_fail() -> None:
    stash = Table([4], [0, 1, 2, 3], [1]).stash(fills=True)
    slots = [Slot(0, row, row) for row in range(4)] + [Slot(0, None, 4)]
    assert [has_enough(stash, "f32", slots, share) for share in (0.6, 0.61, "rows")] == [True, False, False]
    assert [has_enough(stash, "i16", slots, share) for share in (0.8, 0.81, "rows")] == [True, False, True]


@settings(max_examples=60)
@given(tables(), st.sampled_from(SHARES), st.integers(1, 9), st.integers(0, 3), st.data())
def test_points_are_judged_as_windows_are(
    table: Table, share: Any, history: int, horizon: int, data: st.DataObject
) -> None:
    stash = holey(table, data)
    arguments: dict[str, Any] = {"history": history, "horizon": horizon, "columns": ["f32"], "gaps": "mask"}
    arguments |= {"min_history": 1, "require": {"f32": share}}
    assert stash.time is not None
    entities = np.repeat(np.arange(len(table.lengths)), table.lengths)
    frame = pl.DataFrame({"entity_": entities, "time_": stash.time.numpy()})
    closed = "left" if horizon else "right"  # without a horizon a window ends with its anchor

    def made(**more: Any) -> list[list[float]]:
        try:
            windows = ts.Windows(stash, **arguments, **more)
        except (ts.errors.NoWindowError, ts.errors.SchemaError):
            return []
        times = windows.anchors(range(len(windows)))
        keys = zip(times["entity"].tolist(), times["time"].tolist(), windows[:]["f32"].nan_to_num(-1).tolist())
        return [[entity, time, *values] for entity, time, values in keys]

    rows = {*zip(entities.tolist(), stash.time.tolist())}
    expected = [one for one in made() if (one[0], one[1]) in rows]  # a point is at the time of a row
    assert made(at=frame, closed=closed, unmatched="drop") == expected


@settings(max_examples=60)
@given(tables(), st.sampled_from(SHARES), st.integers(1, 9), st.integers(1, 4), st.data())
def test_latest_judges_the_slots_before_the_anchor(
    table: Table, share: Any, history: int, horizon: int, data: st.DataObject
) -> None:
    stash = holey(table, data)
    arguments: dict[str, Any] = {"history": history, "horizon": horizon, "columns": ["f32"], "gaps": "mask"}
    arguments |= {"min_history": 1, "min_horizon": 0, "frequency": 1}
    try:
        windows = ts.Windows(stash, **arguments)
        judged = ts.Windows(stash, **arguments, require={"f32": share})
    except ts.errors.NoWindowError:
        return
    newest = windows.latest()
    values = newest[:]["f32"][:, :history]
    observed = newest[:]["f32.observed"][:, :history]
    lacking = (values.isnan() & observed if share == "rows" else values.isnan()).sum(1)
    most = 0 if share == "rows" else math.floor(history * (1 - share) + 1e-9)
    expected = newest.anchors(range(len(newest)))["entity"][lacking <= most].tolist()
    if not expected:
        with pytest.raises(ts.errors.NoWindowError, match=r"^require= keeps the windows without a missing value, or"):
            judged.latest()
        return
    found = judged.latest()
    assert found.anchors(range(len(found)))["entity"].tolist() == expected


def test_flags_of_validity_drawn_spans_and_variates_are_judged() -> None:
    frame = {"t": range(12), "a": [1.0, None, None, *range(9)], "b": [*range(10), None, None]}
    columns = {"x": ts.column(["a", "b"], fill=0.0), "ok": ts.is_valid(["a", "b"])}
    stash = ts.load(frame, columns, time="t")
    lacks = [False, True, True, *[False] * 7, True, True]

    def kept(share: float, history: int) -> list[int]:
        most = math.floor(history * (1 - share) + 1e-9)
        return [k for k in range(12 - history + 1) if sum(lacks[k : k + history]) <= most]

    for share in (0.5, 0.75, 1.0):
        windows = ts.Windows(stash, 4, columns=["x"], require={"x": share})
        assert windows.placement.anchor_slots(np.arange(len(windows))).tolist() == [k + 4 for k in kept(share, 4)]
        each = ts.Windows(stash, spans={"past": (ts.each("x"), -4, 0)}, require={"past": share})
        assert len(each) == len(windows)
        drawn = ts.Windows(stash, spans={"past": ("x", ts.Draw(-4, -2), 0)}, require={"past": share})
        assert len(drawn) == len(windows)  # by the longest


def test_memory_does_not_grow_with_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """It grows with the changes of the verdict, and there are none here; memory of torch is not counted."""
    monkeypatch.setattr("tensorstash.windows.require._BLOCK", 1 << 13)

    def peak(rows: int) -> int:
        values = torch.arange(rows, dtype=torch.float32)
        values[torch.arange(rows) * 7 % 3 == 0] = float("nan")
        stash = ts.load({"y": values}, ["y"])
        tracemalloc.start()
        windows = ts.Windows(stash, 64, min_horizon=0, horizon=2, require={"y": 0.5})
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(windows) == rows - 63
        assert len(windows.placement.intervals.guide.base) == 1
        return found

    peak(1 << 14)  # what is imported and cached
    assert peak(1 << 19) < 1.2 * peak(1 << 16)


def test_long_gaps_cost_what_their_edges_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorstash.windows.require._BLOCK", 1 << 20)
    times = np.concatenate([np.arange(100), 10**15 + np.arange(100)])
    stash = ts.load({"t": times, "y": np.arange(200.0)}, ["y"], time="t")
    windows = ts.Windows(stash, 10, gaps="mask", require={"y": 0.6})
    assert len(windows) == 2 * (91 + 4)
    assert len(windows.placement.intervals.guide.base) == 2


def test_shards_require_what_one_stash_does(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    values = np.where(rng.random(200) < 0.3, np.nan, np.arange(200.0))
    frame = pl.DataFrame({"e": np.repeat([*"abcde"], 40), "t": [*range(40)] * 5, "y": values})
    ts.cluster.shard(frame, ["y"], entity="e", time="t", to=tmp_path / "shards", shards=3)
    require = {"y": 0.7}
    whole = ts.Windows(ts.load(frame, ["y"], entity="e", time="t"), 6, require=require)
    windows = ts.cluster.windows(ts.cluster.open(tmp_path / "shards"), history=6, require=require)
    seen = [batch["y"] for batch in ts.Loader(windows, 3)]
    key = {tuple(row) for row in torch.cat(seen).nan_to_num(-1).tolist()}
    assert key == {tuple(row) for row in whole[:]["y"].nan_to_num(-1).tolist()}
    assert len(windows) == len(whole)
