"""Parts of a split, against loops over windows and cuts, and what a scaler that is fitted on a part sees."""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts

pytestmark = pytest.mark.filterwarnings("ignore:(Gaps|All values are equal):UserWarning")

ROW = ts.column("row", empty=-1.0)
LATE = ts.column("late", empty=1.0)
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """Rows of events, and the arguments of windows over them."""

    events: list[tuple[int, int]]  # (entity, time), sorted
    history: int
    horizon: int
    reach: tuple[int, int, str | None] | None
    gaps: str
    options: dict[str, Any]

    def stash(self, late: Sequence[float]) -> ts.Stash:
        """With the number of each row, and what the caller says of it."""
        entities, times = zip(*self.events)
        rows = [*map(float, range(len(times)))]
        table = {"e": entities, "t": times, "row": rows, "late": late}
        columns = {"row": ROW, "late": LATE}
        return ts.load(table, columns, entity="e", time="t", duplicates="keep")

    def windows(self, late: Sequence[float]) -> ts.Windows | None:
        """The windows; `None` if there is none."""
        spans: dict[str, Any] = {}
        for column in ("row", "late"):
            if self.history:
                spans[f"past_{column}"] = (column, -self.history, 0)
            if self.horizon:
                spans[f"next_{column}"] = (column, 0, self.horizon)
            if self.reach is not None:
                begin, end, closed = self.reach
                spans[f"near_{column}"] = ts.During(column, begin, end, max_rows=16, closed=closed)  # type: ignore[arg-type]
        try:
            return ts.Windows(self.stash(late), spans=spans, gaps=self.gaps, **self.options)  # type: ignore[arg-type]
        except ts.errors.NoWindowError:
            return None

    @property
    def entities(self) -> dict[int, list[int]]:
        """The times of each entity."""
        return {e: [t for other, t in self.events if other == e] for e, _ in self.events}

    def judged(self, t: int, rows: Key) -> list[int]:
        """The times of the slots of a window that must lie in a part, by its time and the rows of its spans."""
        if self.gaps == "ignore":
            return [self.events[int(row)][1] for row in rows]
        if self.horizon:
            return [t + (self.options.get("closed") == "right") + k for k in range(self.horizon)]
        return [t - k for k in range(self.history)]

    def is_inside(self, key: Key, low: float, high: float) -> bool:
        """Whether a window belongs to the part between two cuts, as the page says."""
        _, t, past, after, _ = key
        points = "at" in self.options
        held = self.judged(t, after if self.horizon else past) if self.horizon or not points else []
        if not all(low <= time < high for time in held) or (points and not low <= t < high):
            return False
        if not held and not points and not low <= t < high:  # a row and its spans in time
            return False
        if self.reach is None or self.reach[1] <= 0:
            return True
        _, end, closed = self.reach
        return t + end + ((closed or self.side) == "right") <= high

    @property
    def side(self) -> str:
        if "at" in self.options:
            return str(self.options.get("closed", "left"))
        return "left" if self.horizon else "right"


def keys(windows: ts.Windows) -> list[Key]:
    """What identifies each window: its entity and time, and the rows of its spans."""
    if not len(windows):
        return []
    anchors, batch = windows.anchors(slice(None)), windows[:]
    spans = [
        [tuple(rows) for rows in batch[name].tolist()] if name in batch else [()] * len(windows)
        for name in ("past_row", "next_row", "near_row")
    ]
    return [*zip(anchors["entity"].tolist(), anchors["time"].tolist(), *spans)]


def share_cut(times: list[int], fraction: float) -> float:
    """The time at which `split_fraction` cuts an entity."""
    row = math.floor(len(times) * fraction + 0.5)
    return times[row] if row < len(times) else times[-1] + 1


@st.composite
def cases(draw: st.DrawFn) -> Case:
    ties = draw(st.booleans())
    one = st.tuples(st.integers(0, 2), st.integers(0, 8 if ties else 14))
    events = sorted(draw(st.lists(one, min_size=2, max_size=24, unique=not ties)))
    gaps = "ignore" if len({*events}) < len(events) else draw(st.sampled_from(["ignore", "split", "mask"]))
    reach = draw(
        st.none()
        | st.tuples(st.integers(-6, 2), st.integers(1, 5), st.sampled_from([None, "left", "right"])).map(
            lambda parts: (parts[0], parts[0] + parts[1], parts[2])
        )
    )
    history, horizon = draw(st.integers(0, 3)), draw(st.integers(0, 2))
    if not history + horizon and reach is None:
        history = 1
    if gaps == "mask" and not history + horizon:
        gaps = "split"
    options: dict[str, Any] = {}
    if gaps != "ignore" and history + horizon:
        options["frequency"] = 1
        if horizon and draw(st.booleans()):
            options["min_horizon"] = draw(st.integers(0 if history else 1, horizon))
    if draw(st.booleans()):
        times = draw(st.lists(one, min_size=1, max_size=12))
        options |= {"at": {"e": [e for e, _ in times], "t": [t for _, t in times]}, "unmatched": "drop"}
        options["closed"] = draw(st.sampled_from(["left", "right"]))
    return Case(events, history, horizon, reach, gaps, options)


def check_parts(case: Case, parts: Sequence[ts.Windows], every: list[Key], cuts: dict[int, list[float]]) -> None:
    """Each part has exactly the windows that lie between its cuts, `cuts` by entity."""
    names = [*case.entities]
    for k, part in enumerate(parts):
        expected = []
        for key in every:
            edges = [-math.inf, *cuts[names[key[0]]], math.inf]
            if case.is_inside(key, edges[k], edges[k + 1]):
                expected.append(key)
        assert keys(part) == expected, k


def check_scaler(part: ts.Windows) -> None:
    """No row that the part holds is late."""
    if not len(part):
        return
    held = part[:]
    assert all(bool((held[name] == 1).all()) for name in held if name.endswith("late"))
    if any(bool(held[f"{name}.observed"].any()) for name in ("near_late",) if f"{name}.observed" in held) or (
        part.history + part.horizon
    ):
        try:
            scaler = ts.Scaler.fit(part, ["late"], kind="minmax")
        except ts.errors.DataError as error:
            none = ("only missing values", "at least one row")  # windows without any row
            assert any(text in str(error) for text in none)  # noqa: PT017
            return
        assert (scaler.center["late"].item(), scaler.scale["late"].item()) == (1, 1)


@settings(max_examples=500)
@given(cases(), st.lists(st.integers(-1, 15), min_size=1, max_size=3, unique=True))
def test_split_gives_each_part_the_windows_between_its_cuts(case: Case, cuts: list[int]) -> None:
    cuts = sorted(cuts)
    windows = case.windows([3.0 if t >= cuts[0] else 1.0 for _, t in case.events])
    if windows is None:
        return
    parts = windows.split(*cuts)
    check_parts(case, parts, keys(windows), {e: [*map(float, cuts)] for e in case.entities})
    check_scaler(parts[0])


@settings(max_examples=500)
@given(cases(), st.lists(st.sampled_from([0.05, 0.2, 0.4, 0.5, 0.7, 0.97]), min_size=1, max_size=3, unique=True))
def test_split_fraction_cuts_each_entity_at_a_time(case: Case, fractions: list[float]) -> None:
    """Rows of one time are on one side of the cut, whatever fraction of the rows they are."""
    cuts = {e: [share_cut(times, f) for f in sorted(fractions)] for e, times in case.entities.items()}
    windows = case.windows([3.0 if t >= cuts[e][0] else 1.0 for e, t in case.events])
    if windows is None:
        return
    parts = windows.split_fraction(*sorted(fractions))
    check_parts(case, parts, keys(windows), cuts)
    check_scaler(parts[0])


@settings(max_examples=150)
@given(cases(), st.integers(1, 3), st.integers(1, 4), st.integers(0, 3), st.booleans())
def test_the_training_part_of_a_fold_sees_only_what_is_before_its_test_part(
    case: Case, count: int, step: int, gap: int, expanding: bool
) -> None:
    windows = case.windows([1.0] * len(case.events))
    if windows is None or "at" in case.options or (case.reach is not None and case.reach[1] > 0):
        return
    try:
        folds = windows.folds(count, f"{step}i", gap=f"{gap}i" if gap else 0, expanding=expanding)
    except ts.errors.DataError:
        return
    for train, test in folds:
        first = min(t for _, t, *_ in keys(test))
        seen = {int(row) for _, _, *spans in keys(train) for rows in spans for row in rows if row >= 0}
        assert all(case.events[row][1] < first - gap for row in seen)


@settings(max_examples=100)
@given(cases(), st.sampled_from([0.2, 0.5, 0.7]), st.integers(-3, 3))
def test_split_entities_gives_all_windows_of_an_entity_to_one_part(case: Case, fraction: float, seed: int) -> None:
    windows = case.windows([1.0] * len(case.events))
    if windows is None:
        return
    one, two = map(keys, windows.split_entities(fraction, seed=seed))
    assert {e for e, *_ in one}.isdisjoint(e for e, *_ in two)
    assert sorted([*one, *two]) == sorted(keys(windows))


def test_rows_of_one_time_are_not_divided() -> None:
    times = [0, 1, 2, 3, 3, 3, 3, 7, 8, 9]
    stash = ts.load({"t": times, "row": [*map(float, range(10))]}, ["row"], time="t", duplicates="keep")
    windows = ts.Windows(stash, spans={"past": ts.During("row", -2, 0, max_rows=8)})
    train, valid = windows.split_fraction(0.5)
    assert [windows.anchors(range(10))["time"].tolist()[: len(train)], len(valid)] == [[0, 1, 2], 7]
    assert ts.Scaler.fit(train, ["row"], kind="minmax").rows == 3


def test_a_horizon_at_points_ends_before_the_cut_also_where_its_slots_are_empty() -> None:
    stash = ts.load({"t": [0, 1, 2, 5, 6], "row": [0.0, 1.0, 2.0, 3.0, 4.0]}, ["row"], time="t")
    windows = ts.Windows(stash, 1, 2, gaps="mask", at={"t": [1, 2, 3]})
    for cut, sizes in ((3, (1, 1)), (4, (2, 0)), (5, (3, 0))):
        assert tuple(map(len, windows.split(cut))) == sizes


def texts_of(make: Callable[[], object]) -> list[str]:
    """The warnings of a call, which point to this file."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make()
    assert all(one.filename == __file__ for one in caught)
    return [str(one.message) for one in caught]


def days(count: int = 30, entities: int = 1) -> ts.Stash:
    """A daily series of each entity."""
    times = np.arange("2024-01-01", np.datetime64("2024-01-01") + count, dtype="M8[D]")
    table = {"e": np.repeat(np.arange(entities), count), "t": np.tile(times, entities), "y": np.ones(count * entities)}
    return ts.load(table, ["y"], entity="e", time="t")


def test_a_part_that_is_empty_although_its_cuts_lie_in_the_data_is_told() -> None:
    windows = ts.Windows(days(), 7, 5)
    (told,) = texts_of(lambda: windows.split("2024-01-27"))
    assert told.startswith(
        "Part 2 of 2 has no window: none of the 19 windows lies in it, with its whole horizon; the times of the stash"
    )
    assert texts_of(lambda: windows.split("2024-01-20", "2024-01-23")) == [], "it may be a pause"
    (told,) = texts_of(lambda: ts.Windows(days(), 7).split("2024-01-05"))
    assert "Part 1 of 2 has no window: none of the 24 windows lies in it," in told
    spans = {"next": ts.During("y", "0d", "9d", max_rows=9)}
    points = {"e": np.zeros(3, np.int64), "t": np.arange("2024-01-04", "2024-01-07", dtype="M8[D]")}
    (told,) = texts_of(lambda: ts.Windows(days(), spans=spans, at=points).split("2024-01-05"))
    assert "Part 1 of 2 has no window: none of the" in told
    assert texts_of(lambda: windows.split("2024-01-20")) == []
    empty = windows.split("2024-01-27")[1]
    assert texts_of(lambda: empty.split("2024-01-20")) == [], "it was told before"


def test_a_part_of_fractions_or_of_entities_that_is_empty_is_told() -> None:
    windows = ts.Windows(days(entities=3), 7, 5)
    (told,) = texts_of(lambda: windows.split_fraction(0.5, 0.9))
    assert "Part 3 of 3 has no window: none of the 57 windows lies in it" in told
    (told,) = texts_of(lambda: windows.split_entities(0.9))
    assert told.startswith("Part 2 of 2 has no window: none of the 57 windows lies in it")
    assert told.endswith("Choose other cuts or fractions, or shorter windows.")
    assert texts_of(lambda: (windows.split_fraction(0.5), windows.split_entities(0.5))) == []


@pytest.mark.parametrize("seed", [0.5, "a", None, True, [1]])
def test_entities_are_shuffled_by_an_integer(seed: Any) -> None:
    windows = ts.Windows(days(entities=9), 7, 5)
    with pytest.raises(ValueError, match=r"seed must be an integer, got"):
        windows.split_entities(0.5, seed=seed)
    assert windows.split_entities(0.5, seed=np.int32(3))[0].fingerprint() == (  # type: ignore[arg-type]
        windows.split_entities(0.5, seed=3)[0].fingerprint()
    )


@pytest.mark.parametrize("expanding", ["no", 0, None])
def test_folds_expand_or_not(expanding: Any) -> None:
    with pytest.raises(TypeError, match="expanding must be True or False, got"):
        ts.Windows(days(), 7, 5).folds(2, "3d", expanding=expanding)


def test_the_oracle_of_cuts_can_fail() -> None:
    case = Case([(0, t) for t in (0, 1, 1, 2)], 1, 1, None, "ignore", {})
    windows = case.windows([1.0, 3.0, 3.0, 3.0])
    assert windows is not None
    every = keys(windows)
    with pytest.raises(AssertionError):
        check_parts(case, windows.split(1), every, {0: [2.0]})
    with pytest.raises(AssertionError):
        check_scaler(windows)
    assert [*pairwise([share_cut([0, 1, 1, 2], f) for f in (0.5, 0.75, 0.97)])] == [(1, 2), (2, 3)]
