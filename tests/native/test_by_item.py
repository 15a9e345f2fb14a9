"""The inside of `native/kernel.py` where each item of a row is a source of its own: columns of packs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorstash.native import kernel, library
from tests.native.test_kernel import DTYPES, Int32s, Int64s, Results, World, seeds, span_of

pytestmark = pytest.mark.skipif(library.LIBRARY is None, reason=library.why())


class Apart(World):
    """Sources of packs of different widths, and the batches of their columns, slot by slot."""

    def __init__(self, seed: int, *, masked: bool, draws: int) -> None:
        super().__init__(seed, sources=1, masked=masked, packs=False, draws=draws)
        kinds = [DTYPES[self.rng.integers(4)] for _ in self.spans]
        widths = self.rng.choice([1, 2, 3, 5, 17, 40], 4).tolist()
        self.packs = [self._source([(dtype, (width,)) for dtype in kinds], masked) for width in widths]
        # the oracle sees a source for each column, with its numbers side by side
        self.sources = [
            kernel.Source([np.ascontiguousarray(pack[:, k]) for pack in of.columns], of.fragments, of.guide)
            for of, width in zip(self.packs, widths)
            for k in range(width)
        ]
        self.kinds = [(dtype, ()) for dtype in kinds]
        self.begins = np.cumsum([0, *widths])

    def columns_of_windows(self, most: int, some: bool) -> tuple[Int32s, Int64s]:
        """The columns of windows one window after the other, all or some of each, and their anchors."""
        which, anchors = list[Int32s](), list[Int64s]()
        while sum(len(columns) for columns in which) < most:
            pack = int(self.rng.integers(0, len(self.packs)))
            columns = np.arange(self.begins[pack], self.begins[pack + 1], dtype=np.int32)
            if some:
                columns = columns[self.rng.random(len(columns)) < 0.7]
            anchor = self.anchors((1,), self.begins[pack : pack + 1].astype(np.int32))
            which.append(columns)
            anchors.append(anchor.repeat(len(columns)))
        return np.concatenate(which), np.concatenate(anchors)


@given(
    seed=seeds,
    size=st.integers(1, 200),
    masked=st.booleans(),
    draws=st.integers(0, 2),
    threads=st.integers(1, 3),
    how=st.sampled_from(["scattered", "all columns", "some columns"]),
)
@settings(max_examples=300)
def test_columns_of_packs_are_those_of_separate_columns(
    seed: int, size: int, masked: bool, draws: int, threads: int, how: str
) -> None:
    world = Apart(seed, masked=masked, draws=draws)
    plan = kernel.compile_plan(world.spans, world.packs, world.history, world.horizon, by_item=True)
    plan.struct.streamed = world.streamed
    which = world.rng.integers(0, len(world.sources), size).astype(np.int32)
    anchors = world.anchors((size,), which)
    if how != "scattered":
        which, anchors = world.columns_of_windows(size, how == "some columns")
        size = len(which)
    results = Results(world, size)
    skips = world.skips(draws, size) if draws else None
    kernel.gather(
        plan, anchors, results.addresses(results.values), results.addresses(results.seen), which, skips, threads
    )
    for s in range(len(world.spans)):
        values, seen = world.expected(s, anchors, which, skips)
        assert np.array_equal(results.inside(results.values[s]), values)
        assert np.array_equal(results.inside(results.seen[s]), seen.reshape(-1))


def test_large_batches_of_long_windows() -> None:
    """So large that threads share them, and with rows of more than a cache line."""
    packs = [np.random.default_rng(width).random((3000, width)).astype(np.float32) for width in (30, 1, 7)]
    sources = [kernel.Source([pack]) for pack in packs]
    plan = kernel.compile_plan([span_of(-512, 512, 1, 0)], sources, 512, 0, by_item=True)
    rng = np.random.default_rng(0)
    which, anchors = np.tile(np.arange(38, dtype=np.int32), 24)[:900], rng.integers(512, 3000, 90).repeat(10)
    out = np.empty((900, 512), np.float32)
    kernel.gather(plan, anchors, [out.ctypes.data], None, which, threads=2)
    columns = [pack[:, k] for pack in packs for k in range(pack.shape[1])]
    for k, anchor, window in zip(which, anchors, out):
        assert np.array_equal(window, columns[k][anchor - 512 : anchor])


def test_the_number_of_a_column_that_is_not_there_is_refused() -> None:
    column = np.arange(20.0).reshape(10, 2)
    plan = kernel.compile_plan([span_of(0, 3, 1, 0)], [kernel.Source([column])], 0, 3, by_item=True)
    for bad in (-1, 2):
        with pytest.raises(IndexError, match=r"source, got 5 at index 0\."):
            kernel.gather(plan, np.array([5]), [0], None, np.array([bad], np.int32))


def test_a_source_without_columns_is_refused() -> None:
    source = kernel.Source([np.arange(9)])
    plan = kernel.compile_plan([span_of(0, 3, 1, 0)], [source], 0, 3, by_item=True)
    plan.sources["width"] = 0
    with pytest.raises(IndexError, match=r"source, got 5 at index 0\."):
        kernel.gather(plan, np.array([5]), [0])
