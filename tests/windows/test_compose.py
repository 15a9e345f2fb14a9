"""Ways of choosing windows, one after the other in any order: what is left, what may not leak, and what it costs."""

import math
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests import oracle
from tests.data import Table, tables
from tests.epochs import ordered

pytestmark = pytest.mark.filterwarnings("ignore:Gaps cost")

FRACTIONS = st.lists(st.sampled_from([0.2, 0.4, 0.5, 0.75, 0.9]), min_size=1, max_size=2, unique=True).map(sorted)
DIVISIONS = st.lists(
    st.one_of(
        st.tuples(st.just("split"), st.lists(st.integers(-45, 70), min_size=1, max_size=2, unique=True).map(sorted)),
        st.tuples(st.just("split_fraction"), FRACTIONS),
        st.tuples(st.just("split_entities"), FRACTIONS),
    ),
    min_size=1,
    max_size=3,
)


@dataclass(frozen=True)
class Rows:
    """The rows of a stash one by one."""

    entity: list[int]
    place: list[int]  # within the entity
    time: list[int]
    of_entity: list[int]  # rows of each entity

    def side(self, way: str, cuts: list[Any], row: int) -> int:
        """On which side of the cuts a row lies."""
        if way == "split":
            return sum(self.time[row] >= cut for cut in cuts)
        size = self.of_entity[self.entity[row]]
        return sum(self.place[row] >= math.floor(size * cut + 0.5) for cut in cuts)


def rows_of(stash: ts.Stash) -> Rows:
    series = oracle.series_of(stash)
    entity = [k for k, one in enumerate(series) for _ in one.times]
    place = [k for one in series for k in range(len(one.times))]
    times = [time for one in series for time in one.times]
    return Rows(entity, place, times, [len(one.times) for one in series])


@dataclass(frozen=True)
class Part:
    """Windows, the rows at which they start as the oracle finds them, and the choices that led here."""

    windows: ts.Windows
    starts: list[int]

    @property
    def anchors(self) -> list[int]:
        return [start + self.windows.history for start in self.starts]

    def rows(self) -> set[int]:
        """All rows of all windows."""
        return {start + k for start in self.starts for k in range(self.windows.length)}

    def judged(self) -> set[int]:
        """The rows that decide where a window belongs: its horizon, or without one all of it."""
        first = self.windows.history if self.windows.horizon else 0
        return {start + k for start in self.starts for k in range(first, self.windows.length)}


def divided(part: Part, way: str, cuts: list[Any], rows: Rows) -> list[Part]:
    """Every part of a division, and what the oracle says it holds."""
    parts = getattr(part.windows, way)(*cuts)
    assert len(parts) == len(cuts) + 1
    if way == "split_entities":
        # which entities are drawn is pinned below; here they are taken from a division of all windows of one row
        homes = entity_homes(part.windows.stash, cuts)
        return [Part(w, [s for s in part.starts if homes[rows.entity[s]] == k]) for k, w in enumerate(parts)]
    judged = range(part.windows.history, part.windows.length) if part.windows.horizon else range(part.windows.length)
    return [
        Part(w, [s for s in part.starts if all(rows.side(way, cuts, s + j) == k for j in judged)])
        for k, w in enumerate(parts)
    ]


def entity_homes(stash: ts.Stash, fractions: list[float]) -> dict[int, int]:
    single = ts.Windows(stash, 1, columns=["i64"])
    parts = single.split_entities(*fractions)
    return {e: k for k, part in enumerate(parts) for e in part.anchors(slice(None))["entity"].tolist()}


def check_no_leak(parts: list[Part], way: str, rows: Rows) -> None:
    """Siblings of one division: earlier ones do not look past the cut, and no row is judged in two of them."""
    for k, one in enumerate(parts):
        for two in parts[k + 1 :]:
            assert one.judged().isdisjoint(two.judged())
            if way == "split_entities":
                assert {rows.entity[row] for row in one.rows()}.isdisjoint(rows.entity[row] for row in two.rows())
                continue
            # history of the later part may reach back; nothing of the earlier part reaches over the cut
            assert one.rows().isdisjoint(two.judged())
            latest = {rows.entity[row]: rows.time[row] for row in sorted(one.rows())}
            earliest = {rows.entity[row]: rows.time[row] for row in sorted(two.judged(), reverse=True)}
            assert all(latest[e] < earliest[e] for e in latest.keys() & earliest.keys())
            if way == "split" and latest and earliest:
                assert max(latest.values()) < min(earliest.values())


def orders(windows: ts.Windows) -> list[tuple[Any, int]]:
    """Every order with a batch size, lanes where one window continues the one before."""
    made: list[tuple[Any, int]] = [(False, 4), (True, 3), (ts.Blocks(3), 3)]
    return made + ([(ts.Lanes(3), 3)] if windows.stride == windows.history else [])


def check_part(part: Part) -> None:
    """The windows that the oracle left, in its order, and each of them once in every order."""
    windows = part.windows
    assert len(windows) == len(part.starts)
    assert windows.placement.anchor_slots(np.arange(len(windows))).tolist() == part.anchors
    if not part.starts:
        with pytest.raises(ValueError, match=r"^dataset must hold at least one window"):
            ts.Loader(windows, 4)
        return
    for shuffle, batch_size in orders(windows):
        loader = ts.Loader(windows, batch_size, **ordered(shuffle), with_ids=True)
        taken = []
        for batch in loader:
            first = (batch["i64"][:, 0] // 16).tolist()
            assert [part.starts[k] for k in batch["window"].tolist()] == first
            taken += first
        assert sorted(taken) == part.starts


def chosen(
    stash: ts.Stash, starts: list[int], length: int, anchor: int, where: list[bool] | None, require: bool
) -> list[int]:
    """The starts that `where` and `require=["f32"]` leave."""
    holes = [oracle.is_missing(value) for value in stash["f32"].tolist()]
    return [
        start
        for start in starts
        if (where is None or where[start + anchor]) and not (require and any(holes[start : start + length]))
    ]


def built(
    stash: ts.Stash, history: int, horizon: int, stride: int, where: list[bool] | None, require: bool
) -> tuple[Part, list[int]]:
    """Windows that are chosen by rows, and the starts of all windows, chosen or not."""
    series = oracle.series_of(stash)
    every = oracle.starts(series, history + horizon, stride, oracle.most_common_step(series))
    starts = chosen(stash, every, history + horizon, history - (horizon == 0), where, require)
    assume(starts)
    windows = ts.Windows(
        stash,
        history,
        horizon,
        columns=["i64", "f32"],
        stride=stride,
        where=where,
        require=["f32"] if require else None,
    )
    return Part(windows, starts), every


@settings(max_examples=120)
@given(
    tables(most_entities=5, most_rows=40),
    st.integers(1, 3),
    st.integers(0, 3),
    st.integers(1, 3),
    st.booleans(),
    DIVISIONS,
    st.data(),
)
def test_choices_in_any_order_leave_what_the_oracle_leaves(
    table: Table, history: int, horizon: int, stride: int, require: bool, divisions: list[Any], data: st.DataObject
) -> None:
    stash = table.stash()
    where = data.draw(
        st.none() | st.lists(st.sampled_from([True, True, True, False]), min_size=stash.rows, max_size=stash.rows)
    )
    whole, every = built(stash, history, horizon, stride, where, require)
    rows, parts, pieces = rows_of(stash), [whole], len(whole.windows.placement.intervals.guide.base)
    for way, cuts in divisions:
        groups = [divided(part, way, cuts, rows) for part in parts]
        for group in groups:
            check_no_leak(group, way, rows)
        parts = [part for group in groups for part in group]
        pieces += 2 * len(cuts) * len(rows.of_entity)

        starts = [start for part in parts for start in part.starts]
        assert len(set(starts)) == len(starts)
        # the stride goes on from the first window of each run, whatever was left out
        assert set(starts) <= set(whole.starts) <= set(every)
        # intervals are cut, never listed window by window
        assert sum(len(part.windows.placement.intervals.guide.base) for part in parts) <= pieces
    for part in parts:
        check_part(part)


@settings(max_examples=40)
@given(tables(most_entities=5, most_rows=40), st.integers(1, 3), st.integers(0, 2), st.data())
def test_divisions_can_be_exchanged(table: Table, history: int, horizon: int, data: st.DataObject) -> None:
    """One after the other in either order: the same windows in the same parts."""
    whole, _ = built(table.stash(), history, horizon, data.draw(st.integers(1, 2)), None, False)
    (one, ones), (two, twos) = data.draw(st.tuples(DIVISIONS, DIVISIONS).map(lambda pair: (pair[0][0], pair[1][0])))
    by_one = [[p.fingerprint() for p in getattr(part, two)(*twos)] for part in getattr(whole.windows, one)(*ones)]
    by_two = [[p.fingerprint() for p in getattr(part, one)(*ones)] for part in getattr(whole.windows, two)(*twos)]
    assert by_one == [list(column) for column in zip(*by_two)]


def test_the_check_for_leaks_can_fail() -> None:
    """A training window that reaches one row over the cut is noticed."""
    stash = Table([20], range(20)).stash()
    rows = rows_of(stash)
    train, valid = ts.Windows(stash, 3, 2, columns=["i64", "f32"]).split(10)
    good = [Part(train, list(range(6))), Part(valid, list(range(7, 16)))]
    check_no_leak(good, "split", rows)
    for part in good:
        check_part(part)
    with pytest.raises(AssertionError, match="assert"):
        check_no_leak([Part(train, list(range(7))), good[1]], "split", rows)
    with pytest.raises(AssertionError, match="assert"):
        check_part(Part(train, list(range(1, 7))))


# A release that draws other entities would show a model in training the series that it is to be judged by.
GOLDEN_ENTITIES = {
    (10, 0): [[0, 3, 4, 5, 7, 8], [1, 9], [2, 6]],
    (10, 1): [[3, 4, 6, 7, 8, 9], [1, 5], [0, 2]],
    (12, 7): [[1, 4, 5, 7, 8, 10, 11], [0, 2, 9], [3, 6]],
}


@pytest.mark.parametrize(("count", "seed"), GOLDEN_ENTITIES)
def test_the_entities_of_each_part_never_change(count: int, seed: int) -> None:
    windows = ts.Windows(Table([2] * count, [0, 1] * count).stash(), 1, columns=["i64"])
    parts = windows.split_entities(0.6, 0.8, seed=seed)
    entities = [part.anchors(slice(None, None, 2))["entity"].tolist() for part in parts]
    assert entities == GOLDEN_ENTITIES[count, seed]


# Memory

ROWS = 4_000_000


def large(entities: int) -> ts.Stash:
    """A gap after every 5,000 rows and a missing value at every 20,000th, in each of a few equally long entities."""
    t = np.tile(np.arange(ROWS // entities), entities)
    y = np.ones(ROWS, np.float32)
    y[::20_000] = np.nan
    entity = np.repeat(np.arange(entities), len(t) // entities)
    return ts.load({"e": entity, "t": t + t // 5000, "y": y}, ["y"], entity="e", time="t")


def array_sizes(windows: ts.Windows) -> list[int]:
    within = windows.placement.intervals
    return [len(within.guide.base), len(within.guide.ends), len(within.guide.table)]


@pytest.mark.parametrize("entities", [1, 10])
def test_arrays_grow_with_runs_cuts_and_holes_and_never_with_windows(entities: int) -> None:
    stash = large(entities)
    runs, holes = ROWS // 5000, ROWS // 20_000
    where = np.arange(ROWS) % 10_000 < 6000
    windows = ts.Windows(stash, 4, 2, columns=["y"], require=["y"], where=where)
    parts = [windows]
    ways: list[Callable[[ts.Windows], tuple[ts.Windows, ...]]] = [
        lambda part: (part.of(part.stash.entities[::2]),),
        lambda part: part.split_last(30_000, 60_000),
        lambda part: part.split(120_000, 280_000),
        lambda part: part.split_fraction(0.25, 0.5),
        lambda part: part.split_entities(0.5),
    ]
    bound = runs + holes + ROWS // 10_000 + 4 * entities
    for way in ways:
        parts = [piece for part in parts for piece in way(part)]
        assert sum(len(part) for part in parts) > 100_000
        for part in parts:
            base, ends, guide = array_sizes(part)
            assert base == ends <= bound
            assert guide <= 8 * base + 1


def test_building_takes_less_memory_than_one_array_of_rows() -> None:
    """Rows are looked at a block at a time: times alone, 8 bytes a row, are 32 MB here."""
    stash = large(10)
    ways: dict[str, Callable[[], ts.Windows]] = {
        "windows": lambda: ts.Windows(stash, 4, 2, columns=["y"]),
        "require": lambda: ts.Windows(stash, 4, 2, columns=["y"], require=["y"]),
        "split": lambda: ts.Windows(stash, 4, 2, columns=["y"]).split(150_000)[0].split_fraction(0.5)[0],
        "last": lambda: ts.Windows(stash, 4, 2, columns=["y"]).split_last(150_000, of="y")[0].of(range(1, 9)),
    }
    for name, build in ways.items():
        tracemalloc.start()
        try:
            windows = build()
            held, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(windows) > 1_000_000
        assert held < 200_000, name
        assert peak < 24_000_000, name
