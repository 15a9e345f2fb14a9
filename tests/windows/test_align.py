"""`align=`: from where the stride is counted, against an oracle that looks at every window."""

import pickle
from contextlib import suppress
from datetime import date, timedelta
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
from tests.oracle_load import like
from tests.windows.test_masked import cases, check_batch, expected_runs, hull, without_step

pytestmark = pytest.mark.filterwarnings(
    "ignore:(Gaps|require=|Part|.* entities have no window|.* series end before|.* missing, before it)"
)


def is_aligned(run: list[Slot], k: int, case: dict[str, Any], align: Any, step: int | None) -> bool:
    """Whether the window from slot k of a run on is a whole number of strides from where they are counted."""
    history, horizon = hull(case["spans"])
    length = history + horizon
    if align == "start":
        return k % case["stride"] == 0
    if align == "end":
        whole = [i for i in range(len(run) - length + 1) if all(slot.behind is None for slot in run[i : i + length])]
        return (k - max(whole, default=0)) % case["stride"] == 0
    first = next(i for i, slot in enumerate(run) if slot.row is not None)
    anchor, time = k + history - (horizon == 0), run[first].time
    assert step is not None
    assert time is not None
    return (time + (anchor - first) * step - align) // step % case["stride"] == 0


def aligned_windows(stash: ts.Stash, case: dict[str, Any], align: Any) -> list[list[Slot]]:
    """Every window of the arguments that is aligned, as its slots."""
    step = None if case["gaps"] == "ignore" else oracle.most_common_step(oracle.series_of(stash))
    length = sum(hull(case["spans"]))
    return [
        run[k : k + length]
        for run in expected_runs(stash, case)
        for k in range(len(run) - length + 1)
        if is_aligned(run, k, case, align, step)
    ]


@st.composite
def aligned_cases(draw: st.DrawFn) -> tuple[dict[str, Any], Any]:
    case = draw(cases(("f32", "pack", "i16")))
    if draw(st.booleans()):
        least = hull(case["spans"])[0] if case["min_history"] is None else case["min_history"]
        case |= {"gaps": "split", "min_history": least}
    words: list[Any] = ["start", "end"]
    times = [] if case["gaps"] == "ignore" else [draw(st.integers(-200, 300))] * 3
    return {**case, "stride": draw(st.integers(1, 9))}, draw(st.sampled_from(words + times))


@settings(max_examples=150)
@given(tables(), aligned_cases())
def test_windows_are_counted_from_where_align_says(table: Table, made: tuple[dict[str, Any], Any]) -> None:
    (case, align), stash = made, table.stash(fills=True)
    if isinstance(align, int) and without_step(stash):
        return
    expected = aligned_windows(stash, case, align)
    if not expected:
        with pytest.raises(
            ts.errors.NoWindowError, match=r"^(Windows need \d+|Windows are counted by strides, and with)"
        ):
            ts.Windows(stash, **case, align=align)
        return

    windows = ts.Windows(stash, **case, align=align)

    check_batch(stash, case["spans"], expected, windows[:])
    assert pickle.loads(pickle.dumps(windows.placement.intervals)).stride == case["stride"]
    default = ts.Windows(stash, **case)
    if case["stride"] == 1 or align == "start":  # then it says nothing
        assert windows.fingerprint() == default.fingerprint()
        assert repr(windows) == repr(default)
    else:
        assert windows.fingerprint()["align"] == align
        assert windows.fingerprint() != default.fingerprint()


@settings(max_examples=40)
@given(tables(), aligned_cases(), st.lists(st.integers(-60, 120), unique=True, max_size=2), st.data())
def test_parts_and_requirements_only_take_windows_away(
    table: Table, made: tuple[dict[str, Any], Any], cuts: list[int], data: st.DataObject
) -> None:
    (case, align), stash = made, table.stash(fills=True)
    if (isinstance(align, int) and without_step(stash)) or not aligned_windows(stash, case, align):
        return
    windows = ts.Windows(stash, **case, align=align)
    every = {tuple(slots) for slots in anchors(windows)}
    parts = [*windows.split_entities(0.5, seed=1), *windows.split_fraction(0.6)]
    if case["gaps"] != "ignore":
        parts += windows.split(*sorted(cuts))
    name = data.draw(st.sampled_from([*case["spans"], "f32"]))
    with suppress(ts.errors.NoWindowError):
        parts.append(ts.Windows(stash, **case, align=align, require=[name]))
    for part in parts:
        assert {tuple(slots) for slots in anchors(part)} <= every
    again = windows.on(stash)
    assert again.fingerprint() == windows.fingerprint()
    assert repr(again) == repr(windows)


def anchors(windows: ts.Windows) -> list[list[int]]:
    """The slot of the anchor of each window, in a list of its own."""
    return windows.placement.anchor_slots(np.arange(len(windows)))[:, None].tolist()


def in_steps(frequency: str, kept: int, day: date, steps: int) -> date:
    """A day some steps later, one calendar day or month after the other."""
    if frequency == "1bd":
        while steps:
            day += timedelta(1 if steps > 0 else -1)
            steps -= (day.weekday() < 5) * (1 if steps > 0 else -1)
        return day
    months = day.year * 12 + day.month - 1 + steps * {"1mo": 1, "1q": 3}[frequency]
    following = date((months + 1) // 12, (months + 1) % 12 + 1, 1)
    last = following - timedelta(1)
    return last.replace(day=min(kept, last.day))


@settings(max_examples=60)
@given(
    st.sampled_from(["1mo", "1q", "1bd"]),
    st.sampled_from([1, 15, 30, 31]),
    st.lists(st.integers(1, 3), min_size=3, max_size=25),
    st.integers(0, 40),
    st.integers(-300, 1200),
    st.integers(2, 7),
    st.sampled_from(["split", "mask"]),
)
def test_calendar_steps_are_counted_across_gaps(
    frequency: str, kept: int, gaps: list[int], begin: int, after: int, stride: int, how: Any
) -> None:
    first = date(2020, 1, 31) if frequency != "1bd" else date(2020, 1, 6)
    steps = np.cumsum([begin, *gaps]).tolist()
    days = [in_steps(frequency, kept, first, step) for step in steps]
    moment = date(2019, 1, 1) + timedelta(after)
    stash = ts.load({"t": days, "y": np.arange(len(days), dtype=np.float32)}, ["y"], time="t")
    at = 0
    while in_steps(frequency, kept, first, at) < moment:
        at += 1
    while in_steps(frequency, kept, first, at - 1) >= moment:
        at -= 1
    runs = [[*range(steps[0], steps[-1] + 1)]] if how == "mask" else runs_of(steps)
    expected = [k for run in runs for k in run[1:] if (k - at) % stride == 0]
    arguments: dict[str, Any] = {"history": 1, "horizon": 1, "gaps": how, "frequency": frequency, "stride": stride}
    if not expected:
        with pytest.raises(
            ts.errors.NoWindowError, match=r"^(Windows need \d+|Windows are counted by strides, and with)"
        ):
            ts.Windows(stash, **arguments, align=moment)
        return

    windows = ts.Windows(stash, **arguments, align=moment)

    days_since = windows.anchors(np.arange(len(windows)))["time"].tolist()
    seen = [date(1970, 1, 1) + timedelta(days=day) for day in days_since]
    assert seen == [in_steps(frequency, kept, first, k) for k in expected]


def runs_of(steps: list[int]) -> list[list[int]]:
    """The steps in runs without a gap."""
    runs: list[list[int]] = []
    for step in steps:
        if not runs or step != runs[-1][-1] + 1:
            runs.append([])
        runs[-1].append(step)
    return runs


def test_days_are_counted_on_the_wall_and_jitter_is_no_step() -> None:
    days = pl.datetime_range(
        pl.datetime(2024, 3, 20, time_zone="Europe/Berlin"),
        pl.datetime(2024, 4, 20, time_zone="Europe/Berlin"),
        "1d",
        eager=True,
    )
    berlin = ts.load(pl.DataFrame({"t": days, "y": np.arange(len(days), dtype=np.float32)}), ["y"], time="t")
    weekly = ts.Windows(berlin, history=1, horizon=1, stride=7, align="2024-01-01")
    assert weekly.anchors(range(len(weekly)))["time"].tolist() == [
        time for time, day in zip(days.dt.epoch("us").to_list(), days.dt.weekday()) if day == 1
    ]
    assert "stride 7 from 2024-01-01 00:00:00+01:00" in repr(weekly)
    jitter = np.arange(40) * 60 + np.arange(40) * 7 % 11 - 5
    late = ts.load({"t": jitter, "y": np.arange(40.0)}, ["y"], time="t")
    windows = ts.Windows(late, history=1, horizon=1, stride=10, frequency=60, tolerance=10, align=-1200)
    assert windows[:]["y"][:, 1].tolist() == [10, 20, 30]
    inside = ts.Windows(late, history=1, horizon=1, stride=10, frequency=60, tolerance=10, align=1200)
    assert inside[:]["y"][:, 1].tolist() == [10, 20, 30]
    behind = ts.Windows(late, history=1, horizon=1, stride=10, frequency=60, tolerance=10, align=6000)
    assert behind[:]["y"][:, 1].tolist() == [10, 20, 30]


def shops(rows: tuple[int, int] = (40, 25)) -> dict[str, Any]:
    """Two series that begin at different times."""
    first, second = rows
    return {
        "e": ["a"] * first + ["b"] * second,
        "t": [*range(first), *range(13, 13 + second)],
        "y": np.arange(first + second, dtype=np.float32),
    }


@pytest.mark.parametrize("align", ["end", 4])
def test_loaders_mixes_and_ranks_sample_aligned_windows(align: Any) -> None:
    stash = ts.load(shops(), ["y"], entity="e", time="t")
    windows = ts.Windows(stash, 3, 2, stride=7, align=align)
    times = windows.anchors(range(len(windows)))["time"].tolist()
    assert times == ([3, 10, 17, 24, 31, 38, 22, 29, 36] if align == "end" else [4, 11, 18, 25, 32, 18, 25, 32])
    every = sorted(windows[:]["y"][:, 0].tolist())
    for order in ({"shuffle": True}, {"order": ts.Blocks(2)}, {"order": ts.ByTime()}):
        seen, first, state = [], [], {}
        for rank in range(2):
            loader = ts.Loader(windows, 2, **order, num_replicas=2, rank=rank)
            for step, batch in enumerate(loader):
                valid = batch.get("valid", torch.ones(len(batch["y"]), dtype=torch.bool))
                seen += batch["y"][valid, 0].tolist()
                if step == 0:
                    first += batch["y"][valid, 0].tolist()
                    state = loader.state_dict()
        assert sorted(seen) == every
        resumed = ts.Loader(windows.on(stash), 3, **order)
        resumed.load_state_dict(state)
        rest = [value for batch in resumed for value in batch["y"][:, 0].tolist()]
        assert sorted(first + rest) == every
    mix = ts.Mix({"all": windows, "two": ts.Windows(stash, 3, 2, stride=5)})
    mixed = [value for batch in ts.Loader(mix, 3, shuffle=True) for value in batch["y"][:, 0].tolist()]
    assert sorted(mixed) == sorted(every + ts.Windows(stash, 3, 2, stride=5)[:]["y"][:, 0].tolist())
    newest = windows.latest()
    assert newest.anchors([0, 1])["time"].tolist() == [40, 38]
    folds = windows.folds(2, 7)
    assert {time for pair in folds for part in pair for time in part.anchors(range(len(part)))["time"].tolist()} <= {
        *times
    }


@pytest.mark.parametrize("align", ["end", 4])
def test_shards_are_aligned_as_one_stash(align: Any, tmp_path: Path) -> None:
    frame = pl.DataFrame(shops())
    ts.cluster.shard(frame, ["y"], entity="e", time="t", to=tmp_path / "shards", shards=3)
    shards = ts.cluster.open(tmp_path / "shards")
    whole = ts.Windows(ts.load(frame, ["y"], entity="e", time="t"), 3, 2, stride=7, align=align)
    windows = ts.cluster.windows(shards, history=3, horizon=2, stride=7, align=align)
    batches = ts.Loader(windows, 3, with_valid=True)
    seen = [value for batch in batches for value in batch["y"][batch["valid"], 0].tolist()]
    assert sorted(seen) == sorted(whole[:]["y"][:, 0].tolist())
    assert windows.fingerprint()["align"] == align


def test_the_newest_window_of_each_run_is_there_even_without_a_whole_horizon() -> None:
    stash = ts.load(shops((9, 4)), ["y"], entity="e", time="t")
    windows = ts.Windows(stash, 3, 2, stride=4, align="end", min_horizon=0)
    assert windows.anchors(range(len(windows)))["time"].tolist() == [3, 7, 16]
    short = ts.Windows(stash, 3, 2, stride=50, align="end", min_history=0, min_horizon=0)
    assert short.anchors(range(len(short)))["time"].tolist() == [7, 15]


def test_series_without_an_anchor_are_told() -> None:
    stash = ts.load(shops((40, 3)), ["y"], entity="e", time="t")
    with pytest.warns(UserWarning, match=like("1 without a window that the stride counts (lower ... such as 'b'")):
        windows = ts.Windows(stash, 1, 1, stride=10, align=0)
    assert windows.per_entity()["count"].tolist() == [3, 0]
    with pytest.raises(
        ts.errors.NoWindowError,
        match=like("with stride 1000 from 500 no run has one: lower stride=, or leave out align=."),
    ):
        ts.Windows(stash, 1, 1, stride=1000, align=500)
    assert not len(windows.on(ts.load(shops((2, 2)), ["y"], entity="e", time="t")))


def test_times_that_cannot_be_counted_from_are_refused() -> None:
    one = ts.load({"e": ["a", "b"], "t": [1, 2], "y": [0.0, 0.0]}, ["y"], entity="e", time="t")
    with pytest.raises(ValueError, match=like("no entity has two rows ... frequency=")):
        ts.Windows(one, 1, stride=2, align=0)
    assert len(ts.Windows(one, 1, stride=2, align=0, frequency=1)) == 1
    stash = ts.load(shops(), ["y"], entity="e", time="t")
    with pytest.raises(ValueError, match=like("align= must lie within 2**62 ticks of the times")):
        ts.Windows(stash, 1, stride=2, align=1 << 62)
    far = ts.Windows(stash, 1, stride=2, align=-(1 << 61))
    assert far[:]["y"][:, 0].tolist() == [*range(0, 40, 2), *range(41, 65, 2)]
    with pytest.raises(ValueError, match=like("align= must be left out with at=")):
        ts.Windows(stash, 1, at=pl.DataFrame({"e": ["a"], "t": [5]}), align="end")
    in_time = {"past": ts.During("y", -3, 0, max_rows=3)}
    assert len(ts.Windows(stash, spans=in_time, stride=9, align="end")) == 8
    with pytest.raises(ValueError, match=like("align= at a time counts steps of time ... spans in time alone")):
        ts.Windows(stash, spans=in_time, stride=9, align=3)
