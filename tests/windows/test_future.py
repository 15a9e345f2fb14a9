"""The future: the latest windows, folds, frames with times behind the data, against loops over entities and rows."""

import warnings
from datetime import datetime, timedelta
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
from tests.oracle_load import like
from tests.words import Gaps

pytestmark = pytest.mark.filterwarnings(
    "ignore:Gaps (cost|make)", "ignore:.* entities have no latest window", "ignore:.* series end before"
)


def anchor_rows(stash: ts.Stash, of: str | None) -> list[int | None]:
    """The row that each entity's latest window is behind."""
    found = []
    for one in oracle.series_of(stash):
        rows = [*range(one.first, one.first + len(one.times))]
        values = rows if of is None else [row for row in rows if not oracle.is_missing(stash[of][row].tolist())]
        found.append(values[-1] if values else None)
    return found


@settings(max_examples=150)
@given(tables(), st.integers(1, 5), st.integers(0, 4), st.sampled_from([None, "f32", "pack"]), st.booleans(), st.data())
def test_the_latest_windows_are_those_behind_the_last_rows(
    table: Table, history: int, horizon: int, of: str | None, masked: bool, data: st.DataObject
) -> None:
    stash = table.stash(fills=True)
    least = data.draw(st.none() | st.integers(1, history))
    require = data.draw(st.sampled_from([None, ["f32"]]))
    lead = 0 if least is None else history - least
    gaps: Gaps = "mask" if masked else "split"
    try:
        windows = ts.Windows(
            stash,
            history,
            horizon,
            columns=["f32", "i64"],
            gaps=gaps,
            min_history=least,
            min_horizon=0,
            require=require,
        )
    except ts.errors.DataError:  # there is no window at all
        return
    series = oracle.series_of(stash)
    runs = oracle.slot_runs(stash, oracle.most_common_step(series), masked, lead, horizon)
    expected, cut = [], False
    for entity, row in enumerate(anchor_rows(stash, of)):
        if row is None:
            continue
        (run,) = [run for run in runs if any(slot.row == row for slot in run)]
        cut |= run is not [run for run in runs if run[0].entity == entity][-1]
        anchor = [slot.row for slot in run].index(row) + 1
        window = run[anchor - history : anchor + horizon] if anchor >= history else []
        past = window[:history]
        bad = [slot.row is None or oracle.is_missing(stash["f32"][slot.row].tolist()) for slot in past]
        if window and not (require and any(bad)):
            expected.append(window)
    if cut or not expected:
        rules = r"^(The rows after the last value of|The latest window of|require= keeps|of= names a column)"
        with pytest.raises(ts.errors.DataError, match=rules):
            windows.latest(of)
        return

    newest = windows.latest(of)

    batch = newest[:]
    rows = [[-1 if slot.row is None else slot.row for slot in window] for window in expected]
    values = [[3 if row < 0 else int(stash["i64"][row]) for row in one] for one in rows]
    assert batch["i64"].tolist() == values
    assert batch["i64.observed"].tolist() == [[row >= 0 for row in one] for one in rows]
    ids = np.arange(len(newest))
    assert [one[history - 1].entity for one in expected] == newest.placement.window_entities(ids).tolist()
    label = history - (horizon == 0)
    if all(window[label].time is not None for window in expected):
        assert newest.anchors(slice(None))["time"].tolist() == [window[label].time for window in expected]


def hourly(count: int, zone: str | None = None, start: datetime = datetime(2024, 1, 1), every: str = "1h") -> pl.Series:
    first = pl.Series([start]).dt.replace_time_zone(zone)
    return pl.concat([first.dt.offset_by(f"{int(every[0]) * k}{every[1:]}") for k in range(count)]).alias("t")


@pytest.mark.parametrize(
    ("every", "zone", "start"),
    [
        ("1h", "Europe/Berlin", datetime(2024, 3, 30, 20)),
        ("1d", "Europe/Berlin", datetime(2024, 3, 20)),
        ("1mo", None, datetime(2023, 8, 31)),
        ("1q", "America/New_York", datetime(2020, 12, 31)),
        ("1w", None, datetime(2024, 1, 1)),
    ],
)
def test_frames_of_the_latest_windows_have_the_times_behind_the_data(
    every: str, zone: str | None, start: datetime
) -> None:
    """Across changes of the clock and ends of months, as polars counts from the first of all times."""
    times = hourly(16, zone, start, every)
    known = pl.DataFrame({"t": times[:12], "station": ["a"] * 12, "y": np.arange(12.0)})
    stash = ts.load(known, ["y"], entity="station", time="t")
    windows = ts.Windows(stash, history=3, horizon=4, frequency=every)
    frame = windows.latest().to_frame([0], torch.arange(4.0)[None])
    assert frame.columns == ["station", "t", "value"]
    assert frame["t"].to_list() == times[12:].to_list()
    assert frame["value"].to_list() == [0.0, 1.0, 2.0, 3.0]


def test_business_days_go_on_behind_a_weekend() -> None:
    days = np.array(["2024-01-02", "2024-01-03", "2024-01-04", "2024-01-05"], "M8[D]")
    stash = ts.load({"t": days, "y": np.arange(4.0)}, ["y"], time="t")
    newest = ts.Windows(stash, history=2, horizon=2, frequency="1bd").latest()
    assert newest.to_frame([0], torch.zeros(1, 2))["t"].cast(pl.String).to_list() == ["2024-01-08", "2024-01-09"]


def test_known_columns_are_seen_behind_the_last_value() -> None:
    data = {
        "e": ["a"] * 5 + ["b"] * 4 + ["c"],
        "t": [1, 2, 3, 4, 5, 1, 2, 3, 4, 9],
        "y": [1.0, 2.0, 3.0, None, None, 1.0, 2.0, 3.0, 4.0, None],
        "price": np.arange(10.0),
    }
    stash = ts.load(data, ["y", "price"], entity="e", time="t")
    windows = ts.Windows(stash, history=2, horizon=3)
    with pytest.warns(
        UserWarning, match=r"^1 of 3 entities have no latest window, such as .*: they have too few consecutive rows"
    ):
        newest = windows.latest(of="y")
    windows.latest(of="y")  # says it once per process
    batch = newest[:]
    assert batch["y"].nan_to_num(-1).tolist() == [[2, 3, -1, -1, -1], [3, 4, -1, -1, -1]]
    assert batch["price"].nan_to_num(-1).tolist() == [[1, 2, 3, 4, -1], [7, 8, -1, -1, -1]]
    assert newest.anchors([0, 1])["time"].tolist() == [4, 5]
    assert repr(newest).startswith("Windows: 2 of 2 + 3 slots every 1, stride 1,")
    loader = ts.Loader(newest, 2, with_ids=True)
    assert next(iter(loader))["anchor"].tolist() == [4, 5]


def test_a_gap_in_the_known_future_needs_a_mask() -> None:
    data = {"t": [1, 2, 3, 5], "y": [1.0, 2.0, 3.0, None], "price": [1.0, 2.0, 3.0, 4.0]}
    stash = ts.load(data, ["y", "price"], time="t")
    message = "The rows after the last value of 'y' ... Take gaps='mask'"
    with pytest.raises(ts.errors.DataError, match=like(message)):
        ts.Windows(stash, history=2, horizon=1).latest(of="y")
    newest = ts.Windows(stash, history=2, horizon=2, gaps="mask").latest(of="y")
    assert newest[0]["price"].nan_to_num(-1).tolist() == [2, 3, -1, 4]
    with pytest.raises(ts.errors.ColumnError, match=r"^the stash has no column 'z'"):
        newest.latest(of="z")
    message = "no entity has as many"
    with pytest.raises(ts.errors.DataError, match=like(message)):
        ts.Windows(ts.load({"t": [1, 2, 3, 9], "y": np.ones(4)}, ["y"], time="t"), 3, frequency=1).latest()


def test_the_latest_windows_do_not_depend_on_what_was_left_out() -> None:
    stash = ts.load({"t": np.arange(20), "y": np.arange(20.0)}, ["y"], time="t")
    windows = ts.Windows(stash, history=3, horizon=2, stride=4, where=np.arange(20) < 9)
    part, _ = windows.split(8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert part.latest().fingerprint() == windows.latest().fingerprint()
    assert windows.latest()[0]["y"].nan_to_num(-1).tolist() == [17, 18, 19, -1, -1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"history": 2, "horizon": 2, "min_horizon": 3}, "min_horizon ... got 3"),
        ({"history": 2, "min_horizon": 1}, "min_horizon ... got 1"),
        ({"history": 2, "horizon": 2, "min_horizon": -1}, "min_horizon ... got -1"),
        ({"spans": {"y": ("y", 0, 2)}, "min_horizon": 0}, "min_horizon ... got 0"),
    ],
)
def test_a_wrong_min_horizon_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=like(message)):
        ts.Windows(ts.load({"y": np.arange(9.0)}), **arguments)


# Folds


def expected_folds(
    stash: ts.Stash, windows: ts.Windows, count: int, step: int, gap: int, expanding: bool
) -> list[tuple[list[int], list[int]]]:
    """Ids of each part, window by window."""
    history, length = windows.history, windows.length
    label = history - (windows.horizon == 0)
    slots = oracle.slot_runs(
        stash, oracle.most_common_step(oracle.series_of(stash)), False, 0, windows.placement.slots.tail
    )
    every = oracle.slot_windows(slots, length, windows.stride)
    frequency = windows.placement.slots.frequency
    assert frequency is not None
    one: int = frequency.count
    anchors: list[int] = [window[label].time for window in every]  # type: ignore[misc]
    lasts: list[int] = [window[-1].time for window in every]  # type: ignore[misc]
    end = max(t for t, window in zip(anchors, every) if window[-1].behind is None) + one
    cuts = [end - (count - k) * step * one for k in range(count + 1)]
    found = []
    for k in range(count):
        start = min(anchors) + (0 if expanding else k * step * one)
        train = [i for i, t in enumerate(anchors) if t >= start and lasts[i] < cuts[k] - gap * one]
        found.append((train, [i for i, t in enumerate(anchors) if cuts[k] <= t < cuts[k + 1]]))
    return found


@settings(max_examples=150)
@given(
    tables(most_rows=40),
    st.integers(1, 3),
    st.integers(0, 3),
    st.integers(1, 3),
    st.integers(1, 6),
    st.integers(0, 3),
    st.booleans(),
    st.data(),
)
def test_folds_hold_the_windows_before_and_from_each_cut(
    table: Table, history: int, horizon: int, count: int, step: int, gap: int, expanding: bool, data: st.DataObject
) -> None:
    stash = table.stash(fills=True)
    least = data.draw(st.none() | st.integers(0, horizon))
    stride = data.draw(st.integers(1, 3))
    try:
        windows = ts.Windows(stash, history, horizon, columns=["i64"], stride=stride, min_horizon=least)
        whole = ts.Windows(stash, history, horizon, columns=["i64"], stride=1)
    except ts.errors.DataError:
        return
    if oracle.most_common_step(oracle.series_of(stash)) is None or (least is not None and not len(whole)):
        return
    every = np.arange(len(windows))
    try:
        expected = expected_folds(stash, windows, count, step, gap, expanding)
    except ValueError:  # no window has a whole horizon
        return
    if not all(train and test for train, test in expected):
        with pytest.raises(
            ts.errors.DataError, match=r"^A fold must have windows in both parts; fold \d of \d has no \w+ window"
        ):
            windows.folds(count, step, gap=gap, expanding=expanding)
        return

    found = windows.folds(count, step, gap=gap, expanding=expanding)

    slots = windows.placement.anchor_slots(every)
    for (train, test), parts in zip(expected, found, strict=True):
        assert [part.placement.anchor_slots(np.arange(len(part))).tolist() for part in parts] == [
            slots[train].tolist(),
            slots[test].tolist(),
        ]


def test_folds_count_back_by_the_calendar() -> None:
    days = np.arange("2023-01-01", "2024-01-01", dtype="M8[D]")
    windows = ts.Windows(ts.load({"t": days, "y": np.ones(365)}, ["y"], time="t"), history=30, horizon=7)
    edges = []
    for train, test in windows.folds(3, "1mo", gap="1w"):
        about = [part.anchors([0, -1])["time"].numpy().astype("M8[D]").astype(str).tolist() for part in (train, test)]
        edges.append((about[0][1], *about[1]))
    assert edges == [
        ("2023-09-12", "2023-09-26", "2023-10-25"),
        ("2023-10-12", "2023-10-26", "2023-11-25"),
        ("2023-11-12", "2023-11-26", "2023-12-25"),
    ]
    moving = windows.folds(2, "1mo", expanding=False)
    assert [train.anchors([0])["time"].numpy().astype("M8[D]").astype(str)[0] for train, _ in moving] == [
        "2023-01-31",
        "2023-02-28",
    ]


def test_durations_may_be_timedeltas() -> None:
    times = np.arange("2024-01-01", "2024-01-21", dtype="M8[D]")
    stash = ts.load({"t": times, "y": np.arange(20.0)}, ["y"], time="t")
    day = timedelta(days=1)
    windows = ts.Windows(stash, 2, 1, frequency=day, tolerance=timedelta(0))
    assert windows.fingerprint() == ts.Windows(stash, 2, 1, frequency="1d", tolerance="0d").fingerprint()
    for parts, others in zip(windows.folds(3, day, gap=2 * day), windows.folds(3, "1d", gap="2d")):
        assert [part.fingerprint() for part in parts] == [other.fingerprint() for other in others]


def test_wrong_folds_are_refused() -> None:
    windows = ts.Windows(ts.load({"t": np.arange(20), "y": np.ones(20)}, ["y"], time="t"), 3, 2)
    with pytest.raises(ValueError, match=r"count.*got 0"):
        windows.folds(0, 2)
    with pytest.raises(ValueError, match=r"step.*got 0"):
        windows.folds(2, 0)
    with pytest.raises(ValueError, match=r"gap.*got -1"):
        windows.folds(2, 2, gap=-1)
    with pytest.raises(ValueError, match=r"step.*got '1d'"):
        windows.folds(2, "1d")
    message = "fold 0 of 9 has no training window. Take"
    with pytest.raises(ts.errors.DataError, match=like(message)):
        windows.folds(9, 2)
    with pytest.raises(ValueError, match=r"^folds needs times, and this stash has none"):
        ts.Windows(ts.load({"y": np.ones(20)}), 3, 2).folds(2, 2)


@settings(max_examples=60)
@given(tables(), st.integers(1, 4), st.integers(-20, 60))
def test_per_entity_counts_the_windows_and_names_the_first(table: Table, history: int, cut: int) -> None:
    stash = table.stash()
    try:
        windows = ts.Windows(stash, history, columns=["i64"])
    except ts.errors.DataError:
        return
    for part in (windows, *windows.split(cut)):
        entities = part.anchors(slice(None))["entity"].tolist()
        found = part.per_entity()
        assert found["count"].tolist() == [entities.count(k) for k in range(len(table.lengths))]
        assert found["first"].tolist() == [sum(e < k for e in entities) for k in range(len(table.lengths))]
        assert found["count"].dtype == found["first"].dtype == torch.int64
