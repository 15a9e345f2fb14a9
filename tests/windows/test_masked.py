"""Windows with empty slots, `gaps="mask"` and `min_history=`, against an oracle that walks slot by slot."""

import math
import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests import oracle
from tests.data import FILLS, Table, spans, tables
from tests.epochs import ordered
from tests.oracle import Slot
from tests.oracle_load import like

pytestmark = pytest.mark.filterwarnings("ignore:Gaps (cost|make)")

Spans = dict[str, tuple[str, int, int, int]]


def hull(chosen: Spans) -> tuple[int, int]:
    """History and horizon of spans."""
    return max(0, *(-begin for _, begin, _, _ in chosen.values())), max(0, *(end for _, _, end, _ in chosen.values()))


@st.composite
def cases(draw: st.DrawFn, names: tuple[str, ...] = ("f32", "f64", "pack", "i16", "u64", "flag")) -> dict[str, Any]:
    """The arguments of windows that may have empty slots."""
    chosen = draw(spans(names))
    history, horizon = hull(chosen)
    least = least_horizon = None
    if history >= (horizon == 0):
        least = draw(st.one_of(st.none(), st.integers(int(horizon == 0), history)))
    if horizon >= (history == 0):
        least_horizon = draw(st.one_of(st.none(), st.integers(int(history == 0), horizon)))
    padded = least is not None or least_horizon is not None
    return {
        "spans": chosen,
        "min_history": least,
        "min_horizon": least_horizon,
        "gaps": draw(st.sampled_from(["mask", "mask", "split", "ignore"] if padded else ["mask"])),
        "stride": draw(st.integers(1, 4)),
    }


def expected_windows(stash: ts.Stash, case: dict[str, Any]) -> list[list[Slot]]:
    return oracle.slot_windows(expected_runs(stash, case), sum(hull(case["spans"])), case["stride"])


def expected_runs(stash: ts.Stash, case: dict[str, Any]) -> list[list[Slot]]:
    history, horizon = hull(case["spans"])
    lead = 0 if case["min_history"] is None else history - case["min_history"]
    frequency = None if case["gaps"] == "ignore" else oracle.most_common_step(oracle.series_of(stash))
    tail = 0 if case["min_horizon"] is None else horizon - case["min_horizon"]
    return oracle.slot_runs(stash, frequency, case["gaps"] == "mask", lead, tail)


def without_step(stash: ts.Stash) -> bool:
    """Whether no entity has two rows, so that there is no step of time."""
    return oracle.most_common_step(oracle.series_of(stash)) is None


def span_slots(window: list[Slot], span: tuple[str, int, int, int], history: int) -> list[Slot]:
    _, begin, end, step = span
    return window[history + begin : history + end : step]


def check_batch(stash: ts.Stash, chosen: Spans, windows: list[list[Slot]], batch: dict[str, torch.Tensor]) -> None:
    """Every value is that of its row, or the fill; `observed` says which."""
    history, _ = hull(chosen)
    assert list(batch) == [*chosen, *(f"{name}.observed" for name in chosen)]
    for name, span in chosen.items():
        column = stash[span[0]]
        fill = torch.full_like(column[:1], FILLS.get(span[0], math.nan))[0]
        slots = [span_slots(window, span, history) for window in windows]
        values = [[fill if slot.row is None else column[slot.row] for slot in own] for own in slots]
        assert oracle.same(batch[name], torch.stack([torch.stack(row) for row in values]))
        assert batch[f"{name}.observed"].tolist() == [[slot.row is not None for slot in own] for own in slots]


@settings(max_examples=150)
@given(tables(), cases(), st.data())
def test_every_window_is_what_the_oracle_finds_slot_by_slot(
    table: Table, case: dict[str, Any], data: st.DataObject
) -> None:
    stash = table.stash(fills=True)
    expected = expected_windows(stash, case)
    if not expected:
        with pytest.raises(ts.errors.DataError, match=r"^Windows need \d+ .*; the longest of"):
            ts.Windows(stash, **case)
        return

    windows = ts.Windows(stash, **case)

    assert len(windows) == len(expected)
    ids = data.draw(st.lists(st.integers(-len(expected), len(expected) - 1), min_size=1, max_size=8))
    chosen = [expected[i] for i in ids]
    batch = windows[ids]
    check_batch(stash, case["spans"], chosen, batch)
    one = {name: tensor[None] for name, tensor in windows[ids[0]].items()}
    check_batch(stash, case["spans"], chosen[:1], one)
    assert pickle.loads(pickle.dumps(windows.placement.slots)).total == sum(map(len, expected_runs(stash, case)))


@settings(max_examples=150)
@given(tables(), cases(("f32", "pack", "i16")), st.data())
def test_require_takes_empty_slots_as_missing_but_for_those_behind_a_run(
    table: Table, case: dict[str, Any], data: st.DataObject
) -> None:
    stash = table.stash(fills=True)
    chosen = case["spans"]
    history, horizon = hull(chosen)
    require = data.draw(st.lists(st.sampled_from([*chosen, "f32", "pack"]), min_size=1, max_size=2, unique=True))
    judged = [chosen.get(name, (name, -history, horizon, 1)) for name in require]

    def whole(window: list[Slot]) -> bool:
        slots = [(span[0], slot) for span in judged for slot in span_slots(window, span, history)]
        seen = [(name, slot) for name, slot in slots if slot.behind is None]
        return all(
            slot.row is not None and not oracle.is_missing(stash[name][slot.row].tolist()) for name, slot in seen
        )

    expected = expected_windows(stash, case)
    kept = [window for window in expected if whole(window)]
    if not kept:
        with pytest.raises(
            ts.errors.DataError, match=r"^(Windows need|require= keeps the windows without a missing value)"
        ):
            ts.Windows(stash, **case, require=require)
        return

    windows = ts.Windows(stash, **case, require=require)

    check_batch(stash, chosen, kept, windows[:])


@settings(max_examples=150)
@given(tables(), cases(("f32",)), st.data())
def test_where_asks_for_a_row_at_the_anchor(table: Table, case: dict[str, Any], data: st.DataObject) -> None:
    stash = table.stash(fills=True)
    mask = data.draw(st.lists(st.booleans(), min_size=stash.rows, max_size=stash.rows))
    history, horizon = hull(case["spans"])
    expected = expected_windows(stash, case)
    anchors = [window[history - (horizon == 0)].row for window in expected]
    kept = [window for window, row in zip(expected, anchors) if row is not None and mask[row]]
    if not kept:
        with pytest.raises(
            ts.errors.DataError, match=r"^(Windows need|where= keeps the windows whose anchor is at a true row)"
        ):
            ts.Windows(stash, **case, where=mask)
        return

    check_batch(stash, case["spans"], kept, ts.Windows(stash, **case, where=mask)[:])


@pytest.mark.filterwarnings("ignore:Part .* missing, before it:UserWarning")
@settings(max_examples=100)
@given(tables(), cases(("f32",)), st.lists(st.integers(-60, 120), unique=True, max_size=3))
def test_split_judges_empty_slots_by_the_time_they_stand_for(
    table: Table, case: dict[str, Any], cuts: list[int]
) -> None:
    """The lead of a run has no time and is not judged."""
    stash = table.stash(fills=True)
    history, horizon = hull(case["spans"])
    expected = expected_windows(stash, case)
    if not expected or case["gaps"] == "ignore" or without_step(stash):
        return
    edges = [-(10**9), *sorted(cuts), 10**9]

    parts = ts.Windows(stash, **case).split(*sorted(cuts))

    assert len(parts) == len(cuts) + 1
    for part, low, high in zip(parts, edges, edges[1:]):
        inside = [
            window
            for window in expected
            if all(slot.time is None or low <= slot.time < high for slot in window[history * (horizon > 0) :])
        ]
        assert len(part) == len(inside)
        if inside:
            check_batch(stash, case["spans"], inside, part[:])


@pytest.mark.filterwarnings("ignore:.* missing, before it")  # of one window, say
@settings(max_examples=150)
@given(tables(), cases(("f32",)), st.floats(0.05, 0.95))
def test_split_fraction_and_split_entities_divide_slots(table: Table, case: dict[str, Any], fraction: float) -> None:
    stash = table.stash(fills=True)
    history, horizon = hull(case["spans"])
    expected = expected_windows(stash, case)
    if not expected:
        return
    windows = ts.Windows(stash, **case)
    offsets = stash.offsets.tolist()
    assert stash.time is not None
    times = stash.time.tolist()
    cut = [low + math.floor((high - low) * fraction + 0.5) for low, high in pairwise(offsets)]
    moments = [times[row] if row < high else times[high - 1] + 1 for row, high in zip(cut, offsets[1:])]

    def side(window: list[Slot]) -> int | None:
        """0 before the cut, 1 from it on; a slot behind a run whose time is not known goes with its last row."""
        judged = window[history * (horizon > 0) :]
        told = [times[slot.behind] if slot.time is None and slot.behind is not None else slot.time for slot in judged]
        before = [time < moments[window[0].entity] for time in told if time is not None]
        if all(before):
            return 0
        return None if any(before) else 1

    for k, part in enumerate(windows.split_fraction(fraction)):
        inside = [window for window in expected if side(window) == k]
        assert len(part) == len(inside)
        if inside:
            check_batch(stash, case["spans"], inside, part[:])
    drawn = windows.split_entities(fraction, seed=3)
    found = [np.repeat(np.arange(len(offsets) - 1), part.per_entity()["count"]).tolist() for part in drawn]
    assert sorted([*found[0], *found[1]]) == sorted(window[0].entity for window in expected)
    assert not set(found[0]) & set(found[1])


@settings(max_examples=150)
@given(tables(), cases(("f32",)))
def test_anchors_and_frames_give_empty_slots_their_time(table: Table, case: dict[str, Any]) -> None:
    stash = table.stash(fills=True)
    history, horizon = hull(case["spans"])
    expected = expected_windows(stash, case)
    if not expected:
        return
    windows = ts.Windows(stash, **case)
    ids = np.arange(len(windows))
    at = [window[history - (horizon == 0)] for window in expected]
    if any(slot.time is None for slot in at):
        with pytest.raises(ValueError, match=r"^The time of a slot without a row follows from the step of time, which"):
            windows.anchors(ids)
        return

    anchors = windows.anchors(ids)
    assert anchors["entity"].tolist() == [slot.entity for slot in at]
    assert anchors["time"].tolist() == [slot.time for slot in at]

    steps = [(window[history:] if horizon else window[:history]) for window in expected]
    if any(slot.time is None and slot.behind is not None for one in steps for slot in one):
        return
    predictions = torch.arange(len(steps) * len(steps[0]), dtype=torch.float32).view(len(steps), -1)
    frame = windows.to_frame(ids, predictions)
    flat = [(slot, k) for k, slot in enumerate(slot for one in steps for slot in one) if slot.time is not None]
    assert frame["time_"].to_list() == [slot.time for slot, _ in flat]
    assert frame["value"].to_list() == [float(k) for _, k in flat]


@settings(max_examples=80)
@given(tables(), cases(("f32", "i16")), st.integers(1, 5), st.integers(1, 3), st.data())
def test_loaders_of_all_ranks_hand_out_each_window_once(
    table: Table, case: dict[str, Any], batch_size: int, ranks: int, data: st.DataObject
) -> None:
    stash = table.stash(fills=True)
    history, horizon = hull(case["spans"])
    expected = expected_windows(stash, case)
    if not expected or any(window[history - (horizon == 0)].time is None for window in expected):
        return
    shuffle: Any = data.draw(st.sampled_from([False, True, ts.Blocks(3)]))
    windows, seen = ts.Windows(stash, **case), []
    for rank in range(ranks):
        loader = ts.Loader(
            windows,
            batch_size,
            **ordered(shuffle),
            num_replicas=ranks,
            rank=rank,
            with_ids=True,
            prefetch=data.draw(st.integers(0, 2)),
        )
        for batch in loader:
            valid = batch.pop("valid", torch.ones(len(batch["window"]), dtype=torch.bool))
            ids = batch.pop("window")
            seen += ids[valid].tolist()
            assert batch.pop("anchor").tolist() == windows.anchors(ids)["time"].tolist()
            del batch["entity"], batch["window.key"]
            check_batch(stash, case["spans"], [expected[i] for i in ids.tolist()], batch)
    assert sorted(seen) == list(range(len(expected)))


def daily(days: list[str], **arguments: Any) -> ts.Windows:
    times = np.array(days, "M8[D]")
    stash = ts.load({"t": times, "y": np.arange(len(days), dtype=np.float32)}, ["y"], time="t")
    return ts.Windows(stash, gaps="mask", **arguments)


@pytest.mark.parametrize(
    ("days", "frequency", "row"),
    [
        (["2024-01-31", "2024-02-29", "2024-05-31"], "1mo", [0, 1, None, None, 2]),
        (["2024-01-04", "2024-01-05", "2024-01-10"], "1bd", [0, 1, None, None, 2]),
        (["2024-03-30", "2024-03-31", "2024-04-02"], "1d", [0, 1, None, 2]),
        (["2023-12-31", "2024-12-31", "2026-12-31"], "1y", [0, 1, None, 2]),
    ],
)
def test_calendar_steps_leave_empty_slots(days: list[str], frequency: str, row: list[int | None]) -> None:
    windows = daily(days, history=len(row), frequency=frequency)
    assert len(windows) == 1
    assert windows[0]["y.observed"].tolist() == [k is not None for k in row]
    assert windows[0]["y"].nan_to_num(-1).tolist() == [-1 if k is None else k for k in row]


def test_a_step_that_is_no_whole_number_of_steps_ends_the_run() -> None:
    stash = ts.load({"t": [0, 10, 20, 44, 54, 74], "y": np.arange(6.0)}, ["y"], time="t")
    windows = ts.Windows(stash, history=3, gaps="mask", frequency=10)
    assert len(ts.Windows(stash, history=1, gaps="mask", frequency=10)) == 3 + 4
    assert windows[:]["y"].nan_to_num(-1).tolist() == [[0, 1, 2], [3, 4, -1], [4, -1, 5]]
    within = ts.Windows(stash, history=8, gaps="mask", frequency=10, tolerance=5)
    assert within[0]["y.observed"].sum() == 6
    assert len(within) == 1


def test_across_a_change_of_the_clock_hours_are_counted_in_utc_and_days_on_the_wall() -> None:
    hours = pl.datetime_range(
        pl.datetime(2024, 3, 30, time_zone="Europe/Berlin"),
        pl.datetime(2024, 4, 2, time_zone="Europe/Berlin"),
        "1h",
        eager=True,
    )
    frame = pl.DataFrame({"t": hours, "y": np.arange(len(hours), dtype=np.float32)})
    gone = frame.remove(pl.col("y").is_in([20.0, 30.0, 31.0]))
    windows = ts.Windows(ts.load(gone, ["y"], time="t"), history=len(hours), gaps="mask")
    assert windows[0]["y"].isnan().nonzero().flatten().tolist() == [20, 30, 31]
    assert windows.anchors([0])["time"].tolist() == [hours.dt.epoch("us")[-1]]
    midnights = frame.filter(pl.col("t").dt.hour() == 0).remove(pl.col("t").dt.day() == 1)
    days = ts.Windows(ts.load(midnights, ["y"], time="t"), history=4, gaps="mask", frequency="1d")
    assert days[0]["y.observed"].tolist() == [True, True, False, True]


def test_what_is_wrong_is_said() -> None:
    timed = ts.load({"t": [1, 2, 4], "y": [1.0, 2.0, 3.0], "n": [1, 2, 3]}, ["y", "n"], time="t")
    untimed = ts.load({"y": [1.0, 2.0]})
    message = "column 'n' is torch.int64, which has none for missing"
    with pytest.raises(ts.errors.SchemaError, match=like(message)):
        ts.Windows(timed, history=2, gaps="mask")
    message = "gaps='mask' needs times, and this stash has none"
    with pytest.raises(ValueError, match=like(message)):
        ts.Windows(untimed, history=2, gaps="mask")
    with pytest.raises(ValueError, match=r"min_history.*got 0"):
        ts.Windows(untimed, history=2, min_history=0)
    with pytest.raises(ValueError, match=r"min_history.*got 3"):
        ts.Windows(untimed, history=2, min_history=3)


@pytest.mark.filterwarnings("default")
def test_more_empty_slots_than_rows_are_worth_a_warning() -> None:
    stash = ts.load({"t": [1, 2, 3, 1000], "y": np.zeros(4)}, ["y"], time="t")
    message = "the most common other steps are 997 (1 times)"
    with pytest.warns(UserWarning, match=like(message)):
        windows = ts.Windows(stash, history=2, gaps="mask")
    assert len(windows) == 999


def test_text_and_times_have_their_fill_in_empty_slots() -> None:
    data = {"t": [1, 2, 4], "kind": ["a", "b", "a"], "other": ["p", "q", "r"], "y": [1.0, 2.0, 3.0]}
    stash = ts.load(data, {"kind": ts.column("kind", fill="none"), "other": "other"}, time="t")
    assert stash.vocabulary("kind") == ["a", "b", "none"]
    batch = ts.Windows(stash, history=4, gaps="mask")[0]
    assert batch["kind"].tolist() == [0, 1, 2, 0]
    assert batch["other"].tolist() == [0, 1, -1, 2]


def test_states_tell_windows_apart_that_differ_in_their_empty_slots_alone() -> None:
    one, two = (
        daily(["2024-01-01", "2024-01-02", "2024-01-04"], history=2),
        daily(["2024-01-01", "2024-01-03", "2024-01-04"], history=2),
    )
    assert len(one) == len(two)
    assert one.fingerprint()["runs"] != two.fingerprint()["runs"]


def test_lanes_reset_where_a_run_begins() -> None:
    stash = ts.load({"t": [1, 2, 3, 5, 6, 20, 21, 22, 23], "y": np.arange(9.0)}, ["y"], time="t")
    windows = ts.Windows(stash, history=2, stride=2, min_history=1, frequency=1)
    loader = ts.Loader(windows, 1, order=ts.Lanes(1))
    assert [(batch["y"].nan_to_num(-1)[0].tolist(), bool(batch["reset"])) for batch in loader] == [
        ([-1, 0], True),
        ([1, 2], False),
        ([-1, 3], True),
        ([-1, 5], True),
        ([6, 7], False),
    ]
