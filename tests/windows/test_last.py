"""Parts and folds at the end of each series, against loops over its rows, and against what others make of it.

What GluonTS, Nixtla and darts do is written anew here, from their documents.
"""

import math
import warnings
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests.oracle_load import like
from tests.windows.test_splits import Case, cases, check_parts, keys

pytestmark = pytest.mark.filterwarnings(
    "ignore:(Gaps|All values are equal):UserWarning", "ignore:.* of the values of .* missing:UserWarning"
)

LENGTHS = st.lists(st.integers(1, 6), min_size=1, max_size=3)
DAY = np.timedelta64(1, "D")


def counts_slots(case: Case) -> bool:
    """Whether windows know the step of time; else slots are rows."""
    return case.gaps != "ignore" and case.history + case.horizon > 0


def last_cuts(case: Case, lengths: Sequence[int], has_value: Sequence[bool]) -> dict[int, list[float]]:
    """The time of each cut of each entity, by a loop over its rows from the last one with a value."""
    cuts: dict[int, list[float]] = {}
    for entity, times in case.entities.items():
        values = [has for (e, _), has in zip(case.events, has_value) if e == entity]
        last = max((k for k, has in enumerate(values) if has), default=None)
        cuts[entity] = []
        for k in range(len(lengths)):
            slots = sum(lengths[k:])
            if last is None:
                cut = -math.inf
            elif counts_slots(case):
                cut = times[last] + 1 - slots
            else:
                cut = times[last + 1 - slots] if last + 1 >= slots else -math.inf
            cuts[entity].append(cut)
    return cuts


def are_too_long(case: Case, cuts: dict[int, list[float]], has_value: Sequence[bool]) -> bool:
    """Whether the first cut is before all rows of all entities with a value."""
    with_value = {e for (e, _), has in zip(case.events, has_value) if has}
    return all(cuts[e][0] < times[0] for e, times in case.entities.items() if e in with_value)


@settings(max_examples=500)
@given(cases(), LENGTHS, st.data())
def test_split_last_cuts_each_entity_behind_its_own_end(case: Case, lengths: list[int], data: st.DataObject) -> None:
    some = st.lists(st.booleans(), min_size=len(case.events), max_size=len(case.events))
    has_value = data.draw(st.none() | some)
    present = [True] * len(case.events) if has_value is None else has_value
    windows = case.windows([1.0 if has else math.nan for has in present])
    if windows is None:
        return
    of, cuts = None if has_value is None else "late", last_cuts(case, lengths, present)
    if not any(present):
        with pytest.raises(ts.errors.NoWindowError, match="has no value in these entities"):
            windows.split_last(*lengths, of=of)
    elif are_too_long(case, cuts, present):
        with pytest.raises(
            ts.errors.NoWindowError, match=like("The parts of split_last must fit into at least one series")
        ):
            windows.split_last(*lengths, of=of)
    else:
        check_parts(case, windows.split_last(*lengths, of=of), keys(windows), cuts)


def test_the_oracle_of_ends_can_fail() -> None:
    case = Case([(0, t) for t in (0, 1, 2, 5)], 1, 1, None, "mask", {"frequency": 1})
    windows = case.windows([1.0] * 4)
    assert windows is not None
    parts, every = windows.split_last(3), keys(windows)
    check_parts(case, parts, every, {0: [3]})
    with pytest.raises(AssertionError):
        check_parts(case, parts, every, {0: [2]})


def panel(lengths: dict[str, int], ahead: int = 0, **more: Any) -> ts.Stash:
    """Daily series that begin together and end at different times; `y` is missing in the last `ahead` rows."""
    frames = []
    for name, n in lengths.items():
        y = np.arange(n, dtype=np.float64)
        y[max(0, n - ahead) :] = np.nan
        frames.append(pl.DataFrame({"id": [name] * n, "ds": np.datetime64("2024-01-01") + np.arange(n) * DAY, "y": y}))
    frame = pl.concat(frames).with_columns(x=pl.int_range(pl.len()).cast(pl.Float64))
    return ts.load(frame, ["y", "x"], entity="id", time="ds", **more)


SERIES = {"a": 60, "b": 45, "c": 30}


def pairs_of(windows: ts.Windows) -> list[tuple[str, int]]:
    """The name and the day of the anchor of each window, counted from the first day."""
    about = windows.anchors(slice(None))
    days = about["time"].numpy() - int(np.datetime64("2024-01-01").astype(int))
    return [(windows.stash.entities[e], int(day)) for e, day in zip(about["entity"].tolist(), days)]


@pytest.mark.parametrize("h", [1, 4])
@pytest.mark.parametrize(("val_size", "test_size"), [(5, 7), (7, 14), (4, 4)])
def test_it_is_val_size_and_test_size_of_nixtla(h: int, val_size: int, test_size: int) -> None:
    """The last `test_size` values of a series are tested on, the `val_size` before them validated, the rest trained."""
    windows = ts.Windows(panel(SERIES), 3, h)
    parts = windows.split_last(val_size, test_size)
    expected: list[list[tuple[str, int]]] = [[], [], []]
    for name, n in SERIES.items():
        role = [0] * (n - val_size - test_size) + [1] * val_size + [2] * test_size
        for anchor in range(3, n - h + 1):
            roles = {*role[anchor : anchor + h]}
            if len(roles) == 1:
                expected[roles.pop()].append((name, anchor))
    assert [pairs_of(part) for part in parts] == expected


@pytest.mark.parametrize(("offset", "h", "count", "distance"), [(-7, 7, 1, None), (-12, 3, 4, None), (-12, 3, 5, 2)])
def test_it_is_the_offset_splitter_of_gluonts(offset: int, h: int, count: int, distance: int | None) -> None:
    """Training series end before the offset; the labels of windows begin at it, one `distance` after the other."""
    past = 5
    windows = ts.Windows(panel(SERIES), spans={"past": ("y", -past, 0), "label": ("y", 0, h)})
    train, test = windows.split_last(-offset)
    shown: list[tuple[list[float], list[float]]] = []
    inside: list[tuple[list[float], list[float]]] = []
    for n in SERIES.values():
        target = [*map(float, range(n))]
        before = target[:offset]
        inside += [(before[k - past : k], before[k : k + h]) for k in range(past, len(before) - h + 1)]
        for k in range(count):
            start = n + offset + k * (distance or h)
            shown.append((target[start - past : start], target[start : start + h]))
    batch = train[:]
    assert [*zip(batch["past"].tolist(), batch["label"].tolist())] == inside
    batch = test[:]
    held = [*zip(batch["past"].tolist(), batch["label"].tolist())]
    assert len(held) == len(SERIES) * (-offset - h + 1)
    assert [pair for pair in held if pair in shown] == shown


@pytest.mark.parametrize(("h", "n_windows", "step_size"), [(1, 3, 1), (4, 3, 1), (2, 4, 3), (3, 2, 5)])
def test_folds_of_entities_are_the_cross_validation_of_nixtla(h: int, n_windows: int, step_size: int) -> None:
    """Its window k of a series is forecast from `n - test_size + k * step_size`, where test_size = h + the steps."""
    windows = ts.Windows(panel(SERIES), 3, h)
    folds = windows.folds(n_windows, step_size, per="entity")
    for k, (train, test) in enumerate(folds):
        about = test.per_entity()
        newest = pairs_of(test)
        last = [newest[first + count - 1] for first, count in zip(about["first"].tolist(), about["count"].tolist())]
        starts = {name: n - (h + step_size * (n_windows - 1)) + k * step_size for name, n in SERIES.items()}
        assert last == [*starts.items()]
        assert about["count"].tolist() == [step_size] * len(SERIES)
        first_tested = {name: start - step_size + 1 for name, start in starts.items()}
        trained = [(name, t) for name in SERIES for t in range(3, first_tested[name] - h + 1)]
        assert pairs_of(train) == trained


def slow_folds(
    times: dict[str, list[int]],
    sizes: tuple[int, int],
    arguments: tuple[int, int, int, bool],
    ends: dict[str, int],
) -> list[tuple[list[tuple[str, int]], list[tuple[str, int]]]]:
    """The anchors of the folds of each entity, by loops over windows of whole runs; `ends` are their last values."""
    (history, horizon), (count, step, gap, expanding) = sizes, arguments
    made: list[tuple[list[tuple[str, int]], list[tuple[str, int]]]] = [([], []) for _ in range(count)]
    for name, rows in times.items():
        there = {*rows}
        reach = range(-history, horizon)
        anchors = [t for t in range(min(rows), max(rows) + 2) if all(t + k in there for k in reach)]
        whole = [t for t in anchors if t + horizon - 1 <= ends[name]]
        if not whole:
            continue
        stop = whole[-1] + 1
        for k in range(count):
            cut = stop + (k - count) * step
            start = -math.inf if expanding else whole[0] + k * step
            made[k][0].extend((name, t) for t in anchors if start <= t and t + horizon - 1 < cut - gap)
            made[k][1].extend((name, t) for t in anchors if cut <= t < cut + step)
    return made


@settings(max_examples=300)
@given(
    st.lists(st.sets(st.integers(0, 30), min_size=1, max_size=24), min_size=1, max_size=3),
    st.tuples(st.integers(1, 3), st.integers(1, 2)),
    st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(0, 2), st.booleans()),
    st.data(),
)
def test_folds_count_back_from_the_last_anchor_of_each_entity(
    rows: list[set[int]], sizes: tuple[int, int], arguments: tuple[int, int, int, bool], data: st.DataObject
) -> None:
    times = {f"e{k}": sorted(one) for k, one in enumerate(rows)}
    known = {name: data.draw(st.integers(0, len(one) - 1)) for name, one in times.items()}
    table = [(name, t, 1.0 if k <= known[name] else math.nan) for name, one in times.items() for k, t in enumerate(one)]
    stash = ts.load(pl.DataFrame(table, ["e", "t", "y"], orient="row"), entity="e", time="t")
    of = data.draw(st.sampled_from([None, "y"]))
    ends = {name: one[-1] if of is None else one[known[name]] for name, one in times.items()}
    expected = slow_folds(times, sizes, arguments, ends)
    count, step, gap, expanding = arguments
    try:
        windows = ts.Windows(stash, *sizes, frequency=1)
    except ts.errors.NoWindowError:
        return
    if not all(train and test for train, test in expected):
        with pytest.raises(ts.errors.DataError, match=r"Folds need|A fold must have"):
            windows.folds(count, step, gap=gap, expanding=expanding, per="entity", of=of)
        return
    for length in (step, f"{step}i"):  # slots, and a duration, which is as long here
        found = windows.folds(count, length, gap=gap, expanding=expanding, per="entity", of=of)
        for pair, both in zip(found, expected):
            for part, wanted in zip(pair, both):
                about = part.anchors(slice(None))
                names = [stash.entities[e] for e in about["entity"].tolist()]
                assert [*zip(names, about["time"].tolist())] == wanted


def test_folds_of_a_column_end_with_its_latest_value() -> None:
    """One cut for all, where rows are known ahead: the last test window ends with the latest value of any series."""
    stash, plain = panel(SERIES, ahead=10), panel({name: n - 10 for name, n in SERIES.items()})
    spans = {"past": ("y", -3, 0), "target": ("y", 0, 4)}
    found = ts.Windows(stash, spans=spans).folds(3, 5, of="y")
    expected = ts.Windows(plain, spans=spans).folds(3, 5)
    for (train, test), (other_train, other_test) in zip(found, expected):
        of_a, other_of_a = ([pair for pair in pairs_of(part) if pair[0] == "a"] for part in (test, other_test))
        assert of_a == other_of_a
        assert len(of_a) == 5
        assert {*pairs_of(other_train)} <= {*pairs_of(train)}
    each = ts.Windows(stash, spans=spans).folds(3, 5, per="entity", of="y")
    for pair, other in zip(each, ts.Windows(plain, spans=spans).folds(3, 5, per="entity")):
        assert [pairs_of(part) for part in pair] == [pairs_of(part) for part in other]


def test_parts_with_rows_known_ahead_are_warned_of_and_of_moves_the_cut() -> None:
    stash = panel(SERIES, ahead=10)
    windows = ts.Windows(stash, spans={"past": ("y", -3, 0), "target": ("y", 0, 4)})
    with pytest.warns(UserWarning, match=r"Part 2 of 2 has 100% of the values of 'target' missing"):
        windows.split_last(9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train, test = windows.split_last(24, of="y")
    ends = {name: n - 10 for name, n in SERIES.items()}
    assert pairs_of(train) == [(name, t) for name, end in ends.items() for t in range(3, end - 24 - 3)]
    assert pairs_of(test) == [(name, t) for name, end in ends.items() for t in range(max(3, end - 24), end + 7)]


def test_without_times_slots_are_rows() -> None:
    stash = ts.load({"e": [*"aaaaaabbbb"], "y": [*map(float, range(10))]}, ["y"], entity="e")
    windows = ts.Windows(stash, 1, 1)
    train, valid, test = windows.split_last(1, 2)
    rows = [part[:]["y"][:, 1].tolist() for part in (train, valid, test)]
    assert rows == [[1, 2], [3, 7], [4, 5, 8, 9]]
    folds = windows.folds(1, 1, gap=1, per="entity")
    assert [[part[:]["y"][:, 1].tolist() for part in pair] for pair in folds] == [[[1, 2, 3, 7], [5, 9]]]
    with pytest.raises(ValueError, match=like("folds needs times, and this stash has none")):
        windows.folds(1, 1)
    with pytest.raises(ValueError, match=like("folds needs times, and this stash has none")):
        windows.folds(1, "1d", per="entity")


@pytest.mark.parametrize("gaps", ["split", "mask"])
def test_slots_of_jittered_times_are_counted_in_their_run(gaps: Any) -> None:
    """A cut that multiplied the step would drift by many slots: the steps are 15 and 16 in turn, or 16 alone."""
    for steps in ([15, 16] * 100, [16] * 200, [14, 14, 15] * 70):
        times = np.cumsum(steps)
        stash = ts.load({"t": times, "y": np.arange(len(times)) * 1.0}, ["y"], time="t")
        windows = ts.Windows(stash, 2, 1, frequency=15, tolerance=1, gaps=gaps)
        for length in (1, 28, 100, 150):
            train, test = windows.split_last(length)
            assert test[:]["y"][:, 2].tolist() == [*map(float, range(len(times) - length, len(times)))]
            assert len(train) + len(test) == len(windows)
            for per in (None, "entity"):
                ((_, test),) = windows.folds(1, length, per=per)
                assert test[:]["y"][:, 2].tolist() == [*map(float, range(len(times) - length, len(times)))]


@pytest.mark.parametrize("step", ["1mo", "1q", "1bd", "1d"])
@pytest.mark.parametrize("zone", [None, "America/New_York"])
def test_calendar_steps_count_from_the_end_of_each_series(step: str, zone: str | None) -> None:
    """Last days of months, business days, and days across a change of the clock."""
    if step in ("1mo", "1q"):
        first = pl.datetime_range(datetime(2020, 1, 1), datetime(2026, 1, 1), step, eager=True, time_zone=zone)
        times = first.dt.month_end()
    else:
        times = pl.datetime_range(datetime(2024, 2, 20), datetime(2024, 4, 1), "1d", eager=True, time_zone=zone)
        times = times.filter(times.dt.weekday() < 6) if step == "1bd" else times
    lengths = {"a": len(times), "b": len(times) - 3}
    frame = pl.concat([pl.DataFrame({"e": [name] * n, "t": times[:n]}) for name, n in lengths.items()])
    stash = ts.load(frame.with_columns(y=pl.int_range(pl.len()).over("e")), ["y"], entity="e", time="t")
    windows = ts.Windows(stash, 1, 1, frequency=step)
    for length in range(1, 12):
        expected = [k for n in lengths.values() for k in range(n - length, n)]
        assert windows.split_last(length)[1][:]["y"][:, 1].tolist() == expected
        assert windows.folds(1, length, per="entity")[0][1][:]["y"][:, 1].tolist() == expected


def test_a_part_is_cut_where_its_entities_end() -> None:
    windows = ts.Windows(panel(SERIES), 3, 1)
    train, test = windows.split_last(10)
    assert [len(part) for part in train.split_last(4)] == [len(train), 0]
    assert [len(part) for part in test.split_last(4)] == [18, 12]
    other = windows.on(panel({"a": 50}))
    assert train.on(panel({"a": 50})).fingerprint() == other.fingerprint()


def test_entities_of_several_columns_end_each_for_itself() -> None:
    rows = [(store, item, t) for store, item, n in (("x", 1, 9), ("x", 2, 5), ("y", 1, 7)) for t in range(n)]
    stash = ts.load(
        pl.DataFrame(rows, ["store", "item", "t"], orient="row").with_columns(y=1.0),
        ["y"],
        entity=["store", "item"],
        time="t",
    )
    train, test = ts.Windows(stash, 1, 1).split_last(2)
    assert [part.per_entity()["count"].tolist() for part in (train, test)] == [[6, 2, 4], [2, 2, 2]]


def test_times_at_the_end_of_their_type_do_not_wrap() -> None:
    least = -(2**63)
    rows = {"e": [*"aabbbb"], "t": [least, least + 10, *range(least, least + 40, 10)], "y": [1.0] * 6}
    windows = ts.Windows(ts.load(rows, ["y"], entity="e", time="t"), 1)
    parts = windows.split_last(1, 3)
    assert [part.per_entity()["count"].tolist() for part in parts] == [[0, 0], [0, 1], [2, 3]]


def test_what_folds_per_entity_refuse() -> None:
    windows = ts.Windows(panel(SERIES), 3, 1)
    for wrong in ("time", "entities", 1, True):
        with pytest.raises(ValueError, match=like('per must be None or "entity", got')):
            windows.folds(1, 1, per=wrong)  # type: ignore[arg-type]
    events = ts.Windows(panel(SERIES), 3, 1, gaps="ignore")
    with pytest.raises(ValueError, match=like("step in slots needs the step of time ... per='entity'")):
        events.folds(1, 1)
    with pytest.raises(ValueError, match=like("step in slots needs the step of time")):
        events.folds(1, 1, gap="1d", per="entity")
    assert [len(test) for _, test in events.folds(2, 3, per="entity")] == [9, 9]
    assert [len(test) for _, test in events.folds(2, "3d", per="entity")] == [9, 9]
    with pytest.raises(ts.errors.ColumnError, match="has no column"):
        windows.folds(1, 1, of="z")
    nothing = ts.load({"t": range(9), "y": [math.nan] * 9}, ["y"], time="t")
    empty, none = ts.Windows(nothing, 2, 1), "'y' has no value in these entities"
    with pytest.raises(ts.errors.NoWindowError, match=none):
        empty.split_last(2, of="y")
    for per in (None, "entity"):
        with pytest.raises(ts.errors.NoWindowError, match=none):
            empty.folds(1, 1, of="y", per=per)


@pytest.mark.parametrize("gaps", ["split", "ignore"])
def test_points_before_a_series_are_before_a_cut_at_its_first_row(gaps: Any) -> None:
    """A cut further back is before them; steps of time go on before the first row, rows do not."""
    at = {"id": ["b", "b", "a"], "ds": [date(2023, 12, 31), date(2024, 1, 4), date(2024, 1, 9)]}
    spans = {"near": ts.During("y", "-9d", "0d", max_rows=9)} | ({} if gaps == "ignore" else {"next": ("y", 0, 1)})
    windows = ts.Windows(panel({"a": 10, "b": 4}), spans=spans, at=pl.DataFrame(at), unmatched="drop")
    held = {length: [[*map(int, part.points)] for part in windows.split_last(length)] for length in (3, 4, 5)}  # type: ignore[arg-type]
    first = [] if gaps == "split" else [0]
    assert held == {3: [first, [1, 2]], 4: [first, [1, 2]], 5: [[], [*first, 1, 2]]}
