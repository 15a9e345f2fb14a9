"""The inside of `native/versions.py`: rows by times and known times, the kernel and numpy against loops over rows."""

import tracemalloc
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tensorstash.common.records import some_of
from tensorstash.native import kernel, library
from tensorstash.native.versions import BLOCK, Moments, Versions, pick, pick_in_numpy, reach_of, spacing_of
from tests.native.test_kernel import span_of

Int64s = NDArray[np.int64]
seeds = st.integers(0, 2**32 - 1)


@dataclass
class Case:
    """Rows of a few entities in the order of the load, and windows over them."""

    of: Versions
    offsets: Int64s
    at: Moments
    slots: int
    every: int | None


def case_of(seed: int, form: str, unit: int, every: bool, rows: int, most: int) -> Case:
    """Random rows: `form` says whether they have known times, in which order they lie, or are events."""
    random = np.random.default_rng(seed)
    entity = np.sort(random.integers(0, 3, rows))
    apart = int(random.integers(1, 4))
    time = random.integers(-most, most, rows) * apart
    known = random.integers(-most, most, rows)
    if form in ("by known", "by time"):  # (entity, time, known) is unique
        _, kept = np.unique(np.stack([entity, time, known]), axis=1, return_index=True)
        entity, time, known = entity[kept], time[kept], known[kept]
    keys = (time, known, entity) if form == "by known" else (known, time, entity)
    order = np.lexsort(keys)
    entity, time, known = entity[order], time[order], known[order]
    offsets = np.searchsorted(entity, range(4)).astype(np.int64)
    windows = int(random.integers(1, 12))
    whose = random.integers(0, 3, windows)
    slots, bucket = int(random.integers(1, 9)), int(random.integers(1, 5))
    begin = random.integers(-2 * most, 2 * most, windows) * unit + random.integers(0, unit, windows)
    length = slots * bucket if every else random.integers(0, 3 * most, windows) * unit
    of = Versions(
        times=time,
        known=None if form == "no known" else known,
        reach=reach_of(time, offsets) if form == "by known" else None,
        unit=unit,
        spacing=(spacing_of(time) if len(time) else 0) * unit or 1 << 62,
        all=form == "events",
    )
    late = random.integers(-most, 2 * most, windows)
    at = Moments(offsets[whose], offsets[whose + 1], begin, begin + length, None if form == "no known" else late)
    return Case(of, offsets, at, slots, bucket if every else None)


def slow_pick(case: Case) -> list[list[int]]:
    """Window by window and row by row."""
    of, at, picked = case.of, case.at, []
    for i in range(len(at.low)):
        seen: dict[Any, int] = {}
        for row in range(at.low[i], at.high[i]):
            if not at.start[i] <= of.times[row] * of.unit < at.stop[i]:
                continue
            if of.known is not None and at.late is not None and of.known[row] >= at.late[i]:
                continue
            key = row if of.all or of.known is None else of.times[row]
            if key not in seen or of.known is None or of.known[row] >= of.known[seen[key]]:
                seen[key] = row
        rows = sorted(seen.values(), key=lambda row: (of.times[row], row))
        if case.every is None:
            newest = rows[-case.slots :]
            picked.append([-1] * (case.slots - len(newest)) + newest)
            continue
        slots = [-1] * case.slots
        for row in rows:
            slots[(of.times[row] * of.unit - at.start[i]) // case.every] = row
        picked.append(slots)
    return picked


cases = st.builds(
    case_of,
    seeds,
    st.sampled_from(["no known", "by time", "by known", "events"]),
    st.sampled_from([1, 1, 3]),
    st.booleans(),
    st.sampled_from([0, 1, 20, 200, 900]),
    st.sampled_from([3, 12, 60]),
)


@given(case=cases)
@settings(max_examples=400)
def test_each_window_has_the_newest_known_rows(case: Case) -> None:
    expected = slow_pick(case)
    assert pick_in_numpy(case.of, case.at, case.slots, case.every).tolist() == expected
    if library.LIBRARY is not None:
        assert pick(case.of, case.at, case.slots, case.every).tolist() == expected


@given(case=cases, seed=seeds)
@settings(max_examples=40)
def test_a_window_has_the_same_rows_among_many(case: Case, seed: int) -> None:
    which = np.random.default_rng(seed).integers(0, len(case.at.low), 700)
    many = some_of(case.at, which)
    slow = slow_pick(case)
    expected = [slow[i] for i in which]
    assert pick_in_numpy(case.of, many, case.slots, case.every).tolist() == expected
    if library.LIBRARY is not None:
        assert pick(case.of, many, case.slots, case.every).tolist() == expected


@given(seed=seeds, rows=st.integers(0, 500), entities=st.integers(1, 40))
@example(seed=0, rows=2 * BLOCK, entities=1)
@settings(max_examples=100)
def test_the_reach_of_a_block_is_the_latest_time_so_far(seed: int, rows: int, entities: int) -> None:
    random = np.random.default_rng(seed)
    entity, times = np.sort(random.integers(0, entities, rows)), random.integers(-99, 99, rows)
    offsets = np.searchsorted(entity, range(entities + 1))
    reach = reach_of(times, offsets)
    assert len(reach) == rows // BLOCK
    for block, found in enumerate(reach.tolist()):
        last = (block + 1) * BLOCK - 1
        assert found == max(times[row] for row in range(last + 1) if entity[row] == entity[last])


@pytest.mark.skipif(library.LIBRARY is None, reason=f"not native: {library.why()}")
def test_no_row_is_read_behind_whole_blocks_that_are_too_early() -> None:
    """What it would read changes no row: only the sanitizer sees it."""
    times = np.arange(2 * BLOCK)
    reach = reach_of(times, np.array([0, len(times)]))
    of = Versions(times, known=times.copy(), reach=reach, unit=1, spacing=1, all=False)
    start = np.array([len(times) + 9])
    at = Moments(np.array([0]), np.array([len(times)]), start, start + 4, np.array([1 << 40]))
    for every in (None, 1):
        assert pick(of, at, 4, every).tolist() == [[-1] * 4]


@given(times=st.lists(st.integers(-1000, 1000), min_size=1), step=st.integers(1, 50))
def test_times_lie_on_a_grid(times: list[int], step: int) -> None:
    scaled = np.array(times) * step
    apart = spacing_of(scaled)
    assert (apart == 0) == (len(set(times)) == 1)
    assert not apart or (apart % step == 0 and not ((scaled - scaled[0]) % apart).any())


def test_many_windows_are_looked_at_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    case = case_of(5, "by known", 1, True, 900, 60)
    monkeypatch.setattr("tensorstash.native.versions._TOGETHER", 7)
    assert pick_in_numpy(case.of, case.at, case.slots, case.every).tolist() == slow_pick(case)


@pytest.mark.parametrize("every", [False, True])
def test_numpy_takes_little_memory_however_many_rows_may_matter(every: bool) -> None:
    case = case_of(5, "by known", 1, every, 900, 60)
    many = some_of(case.at, np.random.default_rng(0).integers(0, len(case.at.low), 4000))
    tracemalloc.start()
    try:
        picked = pick_in_numpy(case.of, many, case.slots, case.every)
        assert tracemalloc.get_traced_memory()[1] - picked.nbytes < 2 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(library.LIBRARY is None, reason=library.why())
@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"low": -1}, IndexError),
        ({"high": 10**6}, IndexError),
        ({"low": 10**6}, IndexError),
        ({"stop": -(10**9)}, IndexError),
        ({"start": -(2**63), "stop": 2**63 - 1}, IndexError),
    ],
)
def test_the_kernel_checks_windows_before_it_looks(change: dict[str, int], error: type[Exception]) -> None:
    case = case_of(3, "by known", 1, False, 200, 12)
    at = case.at._replace(**{name: np.full_like(case.at.low, value) for name, value in change.items()})
    with pytest.raises(error):
        pick(case.of, at, case.slots, None)


@pytest.mark.skipif(library.LIBRARY is None, reason=library.why())
def test_a_stretch_must_be_as_long_as_its_buckets() -> None:
    case = case_of(3, "by time", 1, True, 200, 12)
    with pytest.raises(IndexError):
        pick(case.of, case.at, case.slots + 1, case.every)
    with pytest.raises(ValueError, match="contradict"):
        pick(replace(case.of, unit=0), case.at, case.slots, case.every)


ITEMS = (np.int8, np.int16, np.float32, np.float64)


@pytest.mark.skipif(library.LIBRARY is None, reason=library.why())
@given(
    seed=seeds,
    windows=st.sampled_from([0, 1, 3, 40]),
    slots=st.sampled_from([1, 5, 300]),
    sources=st.integers(1, 3),
    streamed=st.sampled_from([0, 1 << 62]),
    threads=st.integers(1, 3),
    follows=st.sampled_from([0.0, 0.7, 0.98, 1.0]),
)
@settings(max_examples=150)
def test_rows_in_any_order_are_copied_and_other_slots_filled(
    seed: int, windows: int, slots: int, sources: int, streamed: int, threads: int, follows: float
) -> None:
    """A row follows the one before it as a rule, or hardly ever."""
    random = np.random.default_rng(seed)
    dtypes, widths = [ITEMS[k] for k in random.permutation(4)], random.integers(1, 4, 4)
    total = random.integers(1, 90, sources)
    columns = [
        [random.integers(0, 100, (rows, width)).astype(dtype) for dtype, width in zip(dtypes, widths)] for rows in total
    ]
    which = random.integers(0, sources, windows).astype(np.int32)
    first = random.integers(0, 90, (windows, 1)) + np.arange(slots)
    rows = np.where(random.random((windows, slots)) < follows, first, random.integers(-1, 90, (windows, slots)))
    rows = np.where(rows < total[which][:, None], rows, -1)
    empty = [int.from_bytes(np.array(3, dtype).tobytes(), "little") for dtype in dtypes]
    plan = kernel.compile_plan(
        [span_of(-slots, slots, 1, bits) for bits in empty],
        [kernel.Source(of_source) for of_source in columns],
        history=slots,
        horizon=0,
    )
    plan.struct.streamed = streamed
    targets = [np.full((windows, slots, width), 77, dtype) for dtype, width in zip(dtypes, widths)]
    observed = np.full((windows, slots), False)
    out = [target.ctypes.data for target in targets]
    flags = [observed.ctypes.data, 0, 0, 0]
    kernel.take(plan, rows, out, flags, None if sources == 1 else which, threads)
    for k in range(4):
        values = np.zeros((windows, slots, widths[k]), dtypes[k])
        for i in range(windows):
            column = columns[which[i]][k]
            values[i] = np.where(rows[i][:, None] < 0, dtypes[k](3), column[np.maximum(rows[i], 0)])
        assert np.array_equal(targets[k], values)
    assert np.array_equal(observed, rows >= 0)


@pytest.mark.skipif(library.LIBRARY is None, reason=library.why())
@pytest.mark.parametrize("row", [-2, 5, 2**62])
def test_the_kernel_copies_no_row_that_is_not_there(row: int) -> None:
    column, target = np.arange(5.0), np.zeros(3)
    plan = kernel.compile_plan([span_of(-3, 3, 1, 0)], [kernel.Source([column])], 3, 0)
    with pytest.raises(IndexError, match="Rows must lie in their source"):
        kernel.take(plan, np.array([[0, row, 1]]), [target.ctypes.data], [0])
    assert not target.any()


@pytest.mark.skipif(library.LIBRARY is None, reason=library.why())
def test_all_spans_of_rows_in_any_order_have_as_many_slots() -> None:
    column, target = np.arange(5.0), np.zeros(3)
    source = kernel.Source([column, column])
    for other in (span_of(-2, 2, 1, 0), span_of(-6, 3, 2, 0)):
        plan = kernel.compile_plan([span_of(-3, 3, 1, 0), other], [source], 6, 0)
        with pytest.raises(ValueError, match="contradict"):
            kernel.take(plan, np.array([[0, 1, 2]]), [target.ctypes.data] * 2, [0, 0])
    assert not target.any()
