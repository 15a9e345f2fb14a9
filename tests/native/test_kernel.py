"""The inside of `native/kernel.py`, beside numpy and torch, exactly: gather, empty slots, order and look-up."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tensorstash.native import kernel, library
from tensorstash.native.guide import find_in_numpy, first_rows, first_rows_in_numpy, guide
from tensorstash.native.permutation import epoch_keys, grid, walk
from tensorstash.sampling.draw_table import draw_table, owners
from tensorstash.sampling.hashes import hashes
from tensorstash.sampling.tree import _down, tree
from tensorstash.windows.intervals import intervals
from tests.sampling.test_order import GOLDEN

pytestmark = pytest.mark.skipif(library.LIBRARY is None, reason=library.why())

Bools = NDArray[np.bool_]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
Uint8s = NDArray[np.uint8]
POISON = 0x5A  # what stands in a result before the kernel writes to it
DTYPES = (np.int8, np.int16, np.float32, np.float64)
seeds = st.integers(0, 2**32 - 1)


def pieces_of(ends: Int64s) -> kernel.Guide:
    return guide(ends[:, None])


def span_of(start: int, length: int, step: int = 1, empty: int = 0, draw: int = -1) -> library.SpanStruct:
    return library.SpanStruct(start=start, length=length, step=step, draw=draw, empty=empty)


# ---- Order ----


def permutations(*rows: tuple[int, ...]) -> Any:
    return kernel.permutations(np.array([[value % 2**64 for value in row] for row in rows], np.uint64))


SIZES = st.one_of(
    st.integers(1, 100),
    st.integers(1, 2**62),
    st.sampled_from([2**62, 2**62 - 1, 2**52, 2**52 - 2**27, 65_537, 10**12]),
)


@given(n=SIZES, seed=seeds, count=st.integers(1, 200))
@example(n=2**62, seed=0, count=64)
@settings(max_examples=150)
def test_the_order_is_that_of_numpy(n: int, seed: int, count: int) -> None:
    positions = np.random.default_rng(seed).integers(0, n, count)
    positions[0], positions[-1] = n - 1, 0
    keys = epoch_keys(seed, 3)
    own = permutations((n, *grid(n), *keys))
    assert np.array_equal(kernel.permute(own, positions), walk(positions, n, *grid(n), keys))


def test_golden_values() -> None:
    """Users resume in the middle of these orders. Smaller ones are drawn as a whole, and are not the kernel's."""
    large = {key: ids for key, ids in GOLDEN.items() if key[0] > 1 << 16}
    assert len(large) >= 3
    for (n, seed, epoch), ids in large.items():
        own = permutations((n, *grid(n), *epoch_keys(seed, epoch)))
        assert kernel.permute(own, np.arange(len(ids))).tolist() == ids


@given(sizes=st.lists(st.integers(1, 2**40), min_size=1, max_size=5), seed=seeds, count=st.integers(1, 200))
@settings(max_examples=50)
def test_each_position_in_a_permutation_of_its_own(sizes: list[int], seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    which = rng.integers(0, len(sizes), count).astype(np.int32)
    positions = rng.integers(0, np.array(sizes)[which])
    keys = [epoch_keys(seed, k) for k in range(len(sizes))]
    ids = kernel.permute(permutations(*((n, *grid(n), *own) for n, own in zip(sizes, keys))), positions, which)
    for k, n in enumerate(sizes):
        assert np.array_equal(ids[which == k], walk(positions[which == k], n, *grid(n), keys[k]))


def test_positions_outside_of_an_order_are_refused() -> None:
    own = permutations((100, *grid(100), *epoch_keys(0, 0)))
    for bad in (-1, 100, 2**62, -(2**63)):
        positions = np.append(np.arange(70), bad)
        with pytest.raises(IndexError, match=rf"lie in \[0, n\) of a permutation, got {bad} at index 70\."):
            kernel.permute(own, positions)
    for k in (-1, 1):
        with pytest.raises(IndexError, match=r"lie in \[0, n\) of a permutation, got 7 at index 1\."):
            kernel.permute(own, np.array([0, 7]), np.array([0, k], np.int32))
    for n, a, b in ((101, 10, 10), (0, 1, 1), (10, 2**31 + 1, 1), (10, -10, -1)):
        with pytest.raises(ValueError, match="The arguments of the kernel's permute contradict each other"):
            kernel.permute(permutations((n, a, b, *epoch_keys(0, 0))), np.array([0]))


# ---- Look-up ----


@given(counts=st.lists(st.sampled_from([1, 1, 2, 5, 1000, 10**7]), min_size=1, max_size=60), seed=seeds)
@example(counts=[10**7, *[1] * 200], seed=0)  # one entry of the table for two hundred pieces
@settings(max_examples=100)
def test_look_ups_are_those_of_numpy(counts: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = np.array(counts)
    within = intervals(np.cumsum(lengths * 3 + 7) - 7, lengths, 3)
    pieces = within.guide
    ids = np.concatenate([rng.integers(0, len(within), 150), within.guide.ends - 1, within.first_ids])
    assert np.array_equal(kernel.find(pieces, ids), find_in_numpy(pieces, ids))
    found, located = kernel.locate(pieces, 3, ids)
    assert np.array_equal(found, find_in_numpy(pieces, ids))
    assert np.array_equal(located, pieces.base[found] + 3 * ids)


def test_numbers_outside_of_the_pieces_are_refused() -> None:
    pieces = pieces_of(np.array([3, 10]))
    based = guide(np.array([[3, 0], [10, 5]]))
    for bad in (-1, 10, 2**62, -(2**63)):
        numbers = np.append(np.zeros(100, np.int64), bad)
        with pytest.raises(IndexError, match=rf"got {bad} at index 100\."):
            kernel.find(pieces, numbers)
        with pytest.raises(IndexError, match=rf"got {bad} at index 100\."):
            kernel.locate(based, 1, numbers)
    with pytest.raises(IndexError, match=r"got 0 at index 0\."):
        kernel.find(pieces_of(np.empty(0, np.int64)), np.array([0]))
    broken = kernel.Guide(np.array([[3], [10]]), 3, np.array([7, 7], np.int32))
    with pytest.raises(IndexError, match=r"got 9 at index 0\."):
        kernel.find(broken, np.array([9]))
    with pytest.raises(ValueError, match="The arguments of the kernel's locate contradict each other"):
        kernel.locate(pieces, 1, np.array([0]))  # without bases


# ---- Draws ----


@given(weights=st.lists(st.integers(0, 2**40), min_size=2, max_size=60), seed=seeds)
@example(weights=[1, *[2**40] * 3], seed=0)
@settings(max_examples=60)
def test_descents_are_those_of_numpy(weights: list[int], seed: int) -> None:
    of = tree([*weights, 1, 1])
    rest = np.random.default_rng(seed).integers(0, of.nodes.two_weight)
    nodes = replace(of.nodes, rest=rest, offset=rest / of.nodes.two_weight - 0.5)
    scattered = np.random.default_rng(seed).integers(0, 2**48 - 300, 200)
    following = [np.arange(first, first + count) for first, count in zip(scattered.tolist(), (300, 1, 2, 50, 9))]
    swapped = following[0].copy()
    swapped[[5, 6]] = swapped[[6, 5]]  # no run from the first number on, though a later one looks like it
    mixed = np.concatenate([scattered[:9], *following, following[0], scattered[:3]])
    for numbers in (scattered, mixed, swapped, following[0][::-1].copy()):
        leaf, index = _down(nodes, numbers)
        found = kernel.descend(nodes, numbers)
        assert np.array_equal(found[0], leaf)
        assert np.array_equal(found[1], index)


def test_descents_that_do_not_end_and_numbers_that_are_too_large_are_refused() -> None:
    halves = np.array([1]), np.array([2]), np.array([0]), np.array([0.5]), np.array([-0.5])
    for bad in (-1, 2**48, 2**62):
        with pytest.raises(IndexError, match=rf"Numbers must lie in \[0, 2\*\*48\), got {bad} at index 1\."):
            kernel.descend(kernel.Nodes(np.array([-1, -2], np.int32), *halves), np.array([7, bad]))
    for child in ([0, -1], [-1, 1]):
        with pytest.raises(ValueError, match="The arguments of the kernel's descend contradict each other"):
            kernel.descend(kernel.Nodes(np.array(child, np.int32), *halves), np.array([7]))


@given(count=st.integers(1, 300), zeros=st.booleans(), skewed=st.booleans(), seed=seeds)
@settings(max_examples=60)
def test_draws_are_those_of_numpy(count: int, zeros: bool, skewed: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.random(count) * (10.0 ** -rng.integers(0, 18, count) if skewed else 1)
    weights[rng.random(count) < 0.5 * zeros] = 0
    weights[rng.integers(count)] = 1
    shares = draw_table(weights)
    positions = rng.integers(0, 2**62, 200)
    keys = rng.integers(0, 2**64, 2, np.uint64)
    expected = owners(shares, (hashes(positions, *keys) >> np.uint64(12)).astype(np.int64))
    for table in (shares.cells.astype(np.int32), shares.cells.astype(np.int64)):
        own = kernel.draw(shares.ends, table, shares.shift, (int(keys[0]), int(keys[1])), positions)
        assert np.array_equal(own, expected)


def test_tables_that_lead_outside_of_the_weights_are_refused() -> None:
    shares = draw_table(np.ones(4))
    for table, shift in (
        (shares.cells[:-1], shares.shift),
        (shares.cells + np.int32(4), shares.shift),
        (shares.cells - np.int32(4), shares.shift),
        (shares.cells, -1),
        (shares.cells, 53),
    ):
        with pytest.raises(ValueError, match="The arguments of the kernel's draw contradict each other"):
            kernel.draw(shares.ends, np.ascontiguousarray(table), shift, (1, 2), np.arange(50))


# ---- Gather ----


class World:
    """Sources, spans and anchors drawn from a seed, and the batches that they must give, slot by slot."""

    def __init__(self, seed: int, *, sources: int, masked: bool, packs: bool = True, draws: int = 0) -> None:
        rng = self.rng = np.random.default_rng(seed)
        self.history, self.horizon = int(rng.integers(1, 40)), int(rng.integers(1, 40))
        self.spans = [self._span() for _ in range(rng.integers(1, 5))]
        if draws:  # also spans of equal slots that begin at other ones
            self.spans = [
                span_of(s.start, s.length, s.step, s.empty, int(rng.integers(-1, draws)))
                for s in (*self.spans, *self.spans[:1])
            ]
        shapes = [(), (3,), (2, 2), (40,)] if packs else [()]
        kinds = [(DTYPES[rng.integers(4)], shapes[rng.integers(len(shapes))]) for _ in self.spans]
        self.sources = [self._source(kinds, masked) for _ in range(sources)]
        self.kinds = kinds
        self.streamed = int(rng.choice([0, 1 << 62]))  # whether batches are written past the caches

    def _span(self) -> library.SpanStruct:
        begin = int(self.rng.integers(-self.history, self.horizon))
        step = int(self.rng.choice([1, 1, 2, 3, 7]))
        length = int(self.rng.integers(1, (self.horizon - 1 - begin) // step + 2))
        return span_of(begin, length, step, int(self.rng.integers(0, 2**63)))

    def _source(self, kinds: Sequence[tuple[Any, tuple[int, ...]]], masked: bool) -> kernel.Source:
        rng = self.rng
        rows = self.history + self.horizon + int(rng.integers(0, 300))
        columns = []
        for dtype, tail in kinds:
            bits = rng.integers(0, 256, (rows, math.prod(tail) * np.dtype(dtype).itemsize), np.uint8)
            columns.append(bits.view(dtype).reshape(rows, *tail))
        if not masked:
            return kernel.Source(columns)
        cuts = np.unique(np.append(rng.integers(0, rows, rng.integers(1, 30)), 0))
        counts = np.diff(cuts, append=rows)
        counts -= rng.integers(0, 2) * rng.integers(0, counts)  # in half of the worlds, rows that lie in no fragment
        gaps = rng.choice([0, 1, 3, 60], len(cuts))  # empty slots before each fragment
        first = np.cumsum(gaps + np.append(0, counts[:-1]))
        behind = rows - counts.sum() + rng.integers(0, 50)  # and behind the last one
        ends = np.append(first[1:], first[-1] + counts[-1] + behind)
        return kernel.Source(columns, kernel.Fragments(first, cuts, counts), pieces_of(ends))

    def bounds(self, source: int) -> tuple[int, int]:
        """The first and the last anchor with all slots."""
        own = self.sources[source]
        total = len(own.columns[0]) if own.guide is None else int(own.guide.ends[-1])
        return self.history, total - self.horizon

    def anchors(self, shape: tuple[int, ...], which: Int32s) -> Int64s:
        bounds = np.array([self.bounds(k) for k in range(len(self.sources))])
        return self.rng.integers(bounds[which, 0], bounds[which, 1] + 1).reshape(shape)

    def row(self, source: kernel.Source, slot: int) -> int:
        """The row of a slot, or -1."""
        if source.fragments is None:
            return slot
        inside = [row + slot - first for first, row, count in zip(*source.fragments) if first <= slot < first + count]
        return int(inside[0]) if inside else -1

    def skips(self, draws: int, size: int) -> Int64s:
        """What each window may leave out: at least one slot of each span is left."""
        most = [
            min([(s.length - 1) * s.step for s in self.spans if s.draw == draw], default=9) for draw in range(draws)
        ]
        return self.rng.integers(0, np.array(most)[:, None] + 1, (draws, size))

    def expected(self, s: int, anchors: Int64s, which: Int32s, skips: Int64s | None = None) -> tuple[Uint8s, Bools]:
        """The bytes of a span's windows, and which slots have a row."""
        span, (dtype, tail) = self.spans[s], self.kinds[s]
        width = np.dtype(dtype).itemsize
        empty = np.frombuffer(span.empty.to_bytes(8, "little")[:width] * math.prod(tail), np.uint8)
        values, seen = [], []
        for i, (anchor, k) in enumerate(zip(anchors.reshape(-1).tolist(), which.reshape(-1))):
            slots = range(anchor + span.start, anchor + span.start + span.length * span.step, span.step)
            left_out = 0 if skips is None or span.draw < 0 else skips[span.draw, i] // span.step
            rows = [self.row(self.sources[k], slot) if j >= left_out else -1 for j, slot in enumerate(slots)]
            bits = self.sources[k].columns[s].view(np.uint8).reshape(len(self.sources[k].columns[s]), -1)
            values += [bits[row] if row >= 0 else empty for row in rows]
            seen += [row >= 0 for row in rows]
        shape = (anchors.size, span.length)
        return np.array(values, np.uint8).reshape(-1), np.array(seen, bool).reshape(shape)


class Results:
    """Room for the batch of a call, poisoned, with a margin around each result that must stay as it was."""

    MARGIN = 32

    def __init__(self, world: World, size: int) -> None:
        lengths = [span.length for span in world.spans]
        items = [source[:1].nbytes for source in world.sources[0].columns]
        self.values = [self._room(size * n * width) for n, width in zip(lengths, items)]
        self.seen = [self._room(size * n) for n in lengths]

    def _room(self, nbytes: int) -> Uint8s:
        return np.full(nbytes + 2 * self.MARGIN, POISON, np.uint8)

    def addresses(self, rooms: list[Uint8s]) -> list[int]:
        return [room.ctypes.data + self.MARGIN for room in rooms]

    def inside(self, room: Uint8s) -> Uint8s:
        assert (room[: self.MARGIN] == POISON).all()
        assert (room[-self.MARGIN :] == POISON).all()
        return room[self.MARGIN : -self.MARGIN]

    def untouched(self) -> bool:
        return all((room == POISON).all() for rooms in (self.values, self.seen) for room in rooms)


def check(world: World, size: int, *, sourced: bool, observed: bool, draws: int = 0) -> None:
    plan = kernel.compile_plan(world.spans, world.sources, world.history, world.horizon)
    plan.struct.streamed = world.streamed
    which = world.rng.integers(0, len(world.sources), size).astype(np.int32)
    if not sourced:
        which[:] = 0
    anchors = world.anchors((size,), which)
    results = Results(world, size)
    flags = results.addresses(results.seen) if observed else None
    skips = world.skips(draws, size) if draws else None
    kernel.gather(plan, anchors, results.addresses(results.values), flags, which if sourced else None, skips)
    for s in range(len(world.spans)):
        values, seen = world.expected(s, anchors, which, skips)
        assert np.array_equal(results.inside(results.values[s]), values)
        if observed:
            assert np.array_equal(results.inside(results.seen[s]), seen.reshape(-1))


@given(seed=seeds, size=st.integers(0, 200), masked=st.booleans(), observed=st.booleans())
@settings(max_examples=150)
def test_windows_of_one_source(seed: int, size: int, masked: bool, observed: bool) -> None:
    check(World(seed, sources=1, masked=masked), size, sourced=False, observed=observed)


@given(seed=seeds, size=st.integers(1, 200), masked=st.booleans())
@settings(max_examples=60)
def test_windows_of_several_sources(seed: int, size: int, masked: bool) -> None:
    check(World(seed, sources=4, masked=masked), size, sourced=True, observed=True)


@given(seed=seeds, size=st.integers(1, 200), masked=st.booleans(), observed=st.booleans())
@settings(max_examples=100)
def test_windows_whose_first_slots_are_skipped(seed: int, size: int, masked: bool, observed: bool) -> None:
    world = World(seed, sources=2, masked=masked, draws=2)
    check(world, size, sourced=True, observed=observed, draws=2)


@pytest.mark.parametrize("skip", [-1, 5, 2**62])
def test_a_window_that_skips_all_slots_is_refused(skip: int) -> None:
    source, out = kernel.Source([np.arange(20)]), np.full(5, -1)
    plan = kernel.compile_plan([span_of(-5, 5, 1, 0, 0)], [source], 5, 0)
    with pytest.raises(ValueError, match="contradict each other"):
        kernel.gather(plan, np.array([9]), [out.ctypes.data], skips=np.array([[skip]]))
    assert (out == -1).all()


@pytest.mark.parametrize(
    "change",
    [{"sizes": [3, 2]}, {"sizes": [-1, 2]}, {"place": [0, 7]}, {"place": [-1, 4]}, {"used": [9]}, {"used": [-1]}],
)
def test_windows_that_do_not_fit_into_their_rows_are_not_packed(change: dict[str, list[int]]) -> None:
    """Nothing is written outside, whatever the numbers say."""
    numbers = {"sizes": [2, 2], "place": [0, 4], "used": [6]} | change
    sizes, place, used = (np.array(numbers[name]) for name in ("sizes", "place", "used"))
    room = np.full(8 + 2, -1, np.int32)
    how = kernel.packed(None, sizes, place, used, 2, 8)
    values = np.arange(4, dtype=np.int32)
    with pytest.raises(ValueError, match="contradict each other"):
        kernel.pack(how, values.ctypes.data, room[1:].ctypes.data, 4)
    assert (room == -1).all()
    with pytest.raises(ValueError, match="contradict each other"):
        kernel.best_fit(np.array([3, 9]), 8)


@pytest.mark.parametrize(
    "change", [{"place": [0, 3]}, {"place": [0, 0]}, {"used": [5]}, {"sizes": [2, 0]}, {"sizes": [3, 2]}]
)
def test_rows_that_windows_do_not_fill_one_after_the_other_are_not_marked(change: dict[str, list[int]]) -> None:
    numbers = {"sizes": [2, 2], "place": [0, 2], "used": [4]} | change
    sizes, place, used = (np.array(numbers[name]) for name in ("sizes", "place", "used"))
    segments, positions = np.full(8, -1, np.int32), np.full(8, -1, np.int32)
    observed = np.ones((2, 3), bool)
    with pytest.raises(ValueError, match="contradict each other"):
        kernel.mark(kernel.packed(observed, sizes, place, used, 3, 8), segments, positions)
    assert (positions == -1).all()


def test_the_oracle_can_fail() -> None:
    """A kernel that did nothing would not pass."""
    world = World(0, sources=1, masked=True)
    which = np.zeros(5, np.int32)
    values, _ = world.expected(0, world.anchors((5,), which), which)
    assert not (values == POISON).all()


@given(seed=seeds, masked=st.booleans(), sourced=st.booleans())
@settings(max_examples=60)
def test_anchors_outside_are_refused_before_anything_is_written(seed: int, masked: bool, sourced: bool) -> None:
    world = World(seed, sources=3 if sourced else 1, masked=masked)
    plan = kernel.compile_plan(world.spans, world.sources, world.history, world.horizon)
    which = world.rng.integers(0, len(world.sources), 100).astype(np.int32)
    good = world.anchors((100,), which)
    results = Results(world, 100)
    at = int(world.rng.integers(0, 100))
    low, high = world.bounds(int(which[at]))
    for bad in (low - 1, high + 1, -1, -(2**63), 2**63 - 1):
        anchors = good.copy()
        anchors[at] = bad
        with pytest.raises(IndexError, match=rf"source, got {bad} at index {at}\."):
            kernel.gather(plan, anchors, results.addresses(results.values), None, which if sourced else None)
    if sourced:
        for bad in (-1, 3):
            own = which.copy()
            own[at] = bad
            with pytest.raises(IndexError, match=rf"source, got .* at index {at}\."):
                kernel.gather(plan, good, results.addresses(results.values), None, own)
    assert results.untouched()


def test_fragments_with_rows_that_are_not_there_are_refused() -> None:
    column = np.arange(10)
    rows = np.array([5, 6])
    for row in (np.array([0, 5]), np.array([-1, 4]), np.array([0, 2**62])):
        fragments = kernel.Fragments(np.array([0, 5]), row, rows)
        source = kernel.Source([column], fragments, pieces_of(np.array([5, 11])))
        plan = kernel.compile_plan([span_of(0, 3, 1, 0)], [source], 0, 3)
        with pytest.raises(IndexError, match=r"source, got .* at index 0\."):
            kernel.gather(plan, np.array([0 if row[0] < 0 else 7]), [0])


def test_spans_outside_of_the_window_contradict_the_plan() -> None:
    source = kernel.Source([np.arange(10)])
    for span in ((-3, 1, 1), (0, 4, 1), (3, 1, 1), (0, 2, 3), (0, 0, 1), (0, 1, 0), (0, 2, 2**62), (0, 2**62, 1)):
        plan = kernel.compile_plan([span_of(*span, 0)], [source], 2, 3)
        with pytest.raises(ValueError, match="The arguments of the kernel's gather contradict each other"):
            kernel.gather(plan, np.array([5]), [0])


def test_long_windows_and_long_rows() -> None:
    """Longer than what is prefetched, and with rows of many cache lines."""
    rows = np.random.default_rng(0).random((500, 300))
    spans = [span_of(0, 200, 1, 0), span_of(-3, 40, 5, 0), span_of(7, 1, 1, 0)]
    plan = kernel.compile_plan(spans, [kernel.Source([rows] * 3)], 3, 200)
    anchors = np.array([3, 150, 300, 77])
    out = [np.empty((4, span.length, 300)) for span in spans]
    kernel.gather(plan, anchors, [one.ctypes.data for one in out])
    for span, one in zip(spans, out):
        slots = anchors[:, None] + span.start + span.step * np.arange(span.length)
        assert np.array_equal(one, rows[slots])


def test_long_windows_with_empty_slots() -> None:
    """Longer than what is cut at a time, and with more stretches of rows that do not follow each other."""
    rng = np.random.default_rng(0)
    apart = rng.choice([1, 1, 1, 1, 2, 5, 4000], 60_000)
    slot = np.cumsum(apart)
    rows = np.flatnonzero(rng.random(len(slot)) < 0.98)  # the others lie in no fragment
    cuts = np.flatnonzero((np.diff(rows, prepend=-9) != 1) | (np.diff(slot[rows], prepend=-9) != 1))
    first, row, counts = slot[rows[cuts]], rows[cuts], np.diff(cuts, append=len(rows))
    total = int(first[-1] + counts[-1])
    row_of = np.full(total, -1)
    row_of[slot[rows]] = rows
    columns = [rng.integers(1, 100, len(slot)).astype(dtype) for dtype in (np.int8, np.int16, np.int32, np.int64)] * 2
    spans = [span_of(0, 90_000, 1, 0)] * 4 + [span_of(7, 30_000, 3, 0)] * 4
    pieces = pieces_of(np.append(first[1:], total))
    plan = kernel.compile_plan(
        spans, [kernel.Source(columns, kernel.Fragments(first, row, counts), pieces)], 0, 100_000
    )
    anchors = rng.integers(0, total - 100_000, 3)
    out = [np.empty((3, span.length), column.dtype) for span, column in zip(spans, columns)]
    seen = [np.empty(one.shape, np.bool_) for one in out]
    to, own_flags = ([one.ctypes.data for one in some] for some in (out, seen))
    kernel.gather(plan, anchors, to, own_flags)
    for span, column, values, flags in zip(spans, columns, out, seen):
        own = row_of[anchors[:, None] + span.start + span.step * np.arange(span.length)]
        assert 0.001 < (own >= 0).mean() < 0.999
        assert np.array_equal(flags, own >= 0)
        assert np.array_equal(values, np.where(own >= 0, column[own], 0))


def test_arrays_that_c_would_read_wrongly_are_refused() -> None:
    source = kernel.Source([np.arange(10)])
    plan = kernel.compile_plan([span_of(0, 1, 1, 0)], [source], 0, 1)
    message = "The kernel takes arrays in one piece of {}.*; got {} items of {}. Use np.ascontiguousarray"
    with pytest.raises(TypeError, match=message.format("int64", 1, "int32")):
        kernel.gather(plan, np.array([5], np.int32), [0])
    with pytest.raises(TypeError, match=message.format("int32 and 2 items", 1, "int32")):
        kernel.gather(plan, np.array([5, 5]), [0], None, np.zeros(1, np.int32))
    with pytest.raises(TypeError, match=r"The kernel takes 1 addresses, got 2\."):
        kernel.gather(plan, np.array([5]), [0, 0])
    with pytest.raises(TypeError, match=message.format("int64", 5, "int64")):
        kernel.compile_plan([span_of(0, 1, 1, 0)], [kernel.Source([np.arange(10)[::2]])], 0, 1)
    with pytest.raises(ValueError, match=r"The columns of a source must have one number of rows, got \[1, 2\]\."):
        kernel.compile_plan([], [kernel.Source([np.arange(1), np.arange(2)])], 0, 1)


@settings(max_examples=60)
@given(
    numbers=st.lists(st.integers(-5, 5), max_size=40).map(sorted),
    cuts=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(-7, 7)), max_size=70),
)
def test_rows_are_found_in_ranges_as_by_searchsorted(numbers: list[int], cuts: list[tuple[int, int, int]]) -> None:
    """Also in ranges that share rows, are empty, or have equal numbers only."""
    ascending, count = np.array(numbers, np.int64), len(numbers)
    ranges = [(min(a, b, count), min(max(a, b), count), bound) for a, b, bound in cuts]
    low, high, bounds = (np.array([part[k] for part in ranges], np.int64) for k in range(3))
    expected = [a + int(np.searchsorted(ascending[a:b], bound)) for a, b, bound in ranges]
    for find in (first_rows, first_rows_in_numpy):
        assert find(ascending, low, high, bounds).tolist() == expected


def test_ranges_beyond_the_rows_are_refused() -> None:
    if library.LIBRARY is None:
        pytest.skip("the kernel was not compiled")
    for low, high in ((0, 4), (-1, 2), (2, 1)):
        with pytest.raises(IndexError, match="lie in their source"):
            first_rows(np.arange(3), np.array([low]), np.array([high]), np.array([1]))
