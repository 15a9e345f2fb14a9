"""`ts.PackSequences` and `ts.Draw` in cases of other projects, and packed spans in time, against loops."""

from typing import Any

import numpy as np
import pytest
import torch

import tensorstash as ts
from tests import oracle
from tests.late_device import LateCopies
from tests.transforms.test_pack import kernel, slow_in_a_row, slow_rows  # noqa: F401  a fixture

pytestmark = pytest.mark.usefixtures("kernel")


# google/grain

THREE = [[1, 2, 3], [4, 5], [6]]
LENGTHS = [[[0], [1, 2]], [[0, 2], [1]], [[0, 1], [2]], [[0, 1, 2]], [[0, 1, 2]]]  # test_pack_sequences_length_3 to 7
FOUR = [[1, 2, 3, 4], [5, 6], [11, 12, 13, 14], [7]]
VECTORS = [[[0, 1], [1, 2], [2, 3]], [[3, 4], [4, 5]], [[5, 6]]]
SIZES = {(4, 8, 2): 10, (10, 15, 4): 20, (50, 70, 25, 40): 100, (10, 15, 4, 10): 20}  # test_packing_scenario_1 to 4
TOKENS = [[[[k + 0.5, 0.25]] for _ in range(3)] for k in range(3)]


@pytest.mark.parametrize("front", [False, True])
@pytest.mark.parametrize(
    ("windows", "length", "rows"),
    [
        pytest.param([*FOUR, [8]], 4, [[0], [2], [1, 3, 4]], id="test_pack_single_feature"),
        pytest.param(FOUR, 4, [[0], [2], [1, 3]], id="test_pack_single_feature_remainder_is_padded"),
        *((THREE, length, rows) for length, rows in enumerate(LENGTHS, 3)),
        pytest.param(VECTORS, 3, [[0], [1, 2]], id="test_pack_two_dimensional_features"),
        pytest.param(TOKENS, 4, [[0], [1], [2]], id="test_bfloat16, test_pack_sequences_into_multiple_batches"),
        *(([[n] * n for n in sizes], length, [[1, 2], [0, 3][: len(sizes) - 2]]) for sizes, length in SIZES.items()),
    ],
)
def test_rows_segments_and_positions(windows: list[Any], length: int, rows: list[list[int]], front: bool) -> None:
    """Their rows, by best fit, of which each span has its own; an empty one makes the number even."""
    dtype = torch.bfloat16 if windows is TOKENS else torch.int64
    slots, values = max(map(len, windows)), [torch.tensor(window, dtype=dtype) for window in windows]
    x = torch.full((len(windows), slots, *values[0].shape[1:]), -1, dtype=dtype)
    observed = torch.zeros(len(windows), slots, dtype=torch.bool)
    for k, window in enumerate(values):
        at = slice(slots - len(window), None) if front else slice(len(window))
        x[k, at], observed[k, at] = window, True
    packed = ts.PackSequences("x", length=length, multiple=2)({"x": x, "x.observed": observed})
    exact = torch.zeros(len(rows) + len(rows) % 2, length, *x.shape[2:], dtype=dtype)
    segment, position = torch.zeros(2, *exact.shape[:2], dtype=torch.int32)
    for r, members in enumerate(rows):
        begin = 0
        for number, k in enumerate(members, 1):
            at = slice(begin, begin + len(values[k]))
            exact[r, at], segment[r, at], position[r, at] = values[k], number, torch.arange(len(values[k]))
            begin += len(values[k])
    assert oracle.same(packed["x"], exact)
    assert (packed["x.segment"].tolist(), packed["x.position"].tolist()) == (segment.tolist(), position.tolist())


# SalesforceAIResearch/uni2ts


@pytest.mark.parametrize(("rows", "patch"), [(5, 1), (4, 1), (10, 2), (9, 2), (11, 2), (40, 2)])
def test_crops_of_five_to_ten_patches(rows: int, patch: int) -> None:
    """test_patch_crop: too short a series has no window. Ours are whole patches except where a series begins."""
    least, spans = 5 * patch, {"past": ("y", ts.Draw(-10 * patch, -5 * patch, step=patch), 0)}
    stash = ts.load({"y": np.arange(float(rows))})
    if rows < least:
        with pytest.raises(ts.errors.NoWindowError, match="longest"):
            ts.Windows(stash, spans=spans, min_history=least)
        return
    (batch,) = ts.Loader(ts.Windows(stash, spans=spans, min_history=least), 99, transform=[ts.PackSequences("past")])
    crops = [crop.tolist() for crop in batch["past"].tensor_split(batch["past.offsets"][1:-1].long())]
    for crop, end in zip(crops, range(least, rows + 1), strict=True):
        assert crop == [*range(end - len(crop), end)]
        assert least <= len(crop) <= 2 * least
        assert len(crop) % patch == 0 or len(crop) == end


@pytest.mark.parametrize(
    ("rows", "ahead", "windows", "distance", "offset"),
    [(100, 10, 1, 1, -10), (100, 2, 5, 2, -50), (100, 10, 1, 1, 50), (100, 10, 3, 10, -20), (20, 10, 1, 1, -30)],
)
def test_crops_for_evaluation(rows: int, ahead: int, windows: int, distance: int, offset: int) -> None:
    """test_eval_crop: a step of context and a horizon at cutoffs counted from the end or the beginning."""
    y = np.random.default_rng(0).standard_normal((rows, 3))
    stash, spans = ts.load({"t": np.arange(rows), "y": y}, time="t"), {"past": ("y", -1, 0), "next": ("y", 0, ahead)}
    cutoffs = [(offset if offset >= 0 else rows + offset) + k * distance for k in range(windows)]
    if min(cutoffs) < 1 or max(cutoffs) + ahead > rows:
        with pytest.raises(ts.errors.DataError, match="have none"):
            ts.Windows(stash, spans=spans, at={"t": cutoffs})
        return
    batch = ts.Windows(stash, spans=spans, at={"t": cutoffs})[:]
    for k, cutoff in enumerate(cutoffs):
        assert torch.cat([batch["past"][k], batch["next"][k]]).tolist() == y[cutoff - 1 : cutoff + ahead].tolist()


# Spans in time, packed


@pytest.mark.parametrize("length", [None, 9])
@pytest.mark.parametrize("late", [False, True])
def test_spans_in_time_are_packed_with_their_ages(length: int | None, late: bool, monkeypatch: Any) -> None:
    """Two columns over one stretch of time together, and another stretch by itself."""
    if late:
        monkeypatch.setattr("tensorstash.batches.loader.copies_to", lambda _: LateCopies())
    rng = np.random.default_rng(1)
    table = {"e": rng.integers(0, 5, 90), "t": rng.integers(0, 40, 90), "y": rng.random(90), "z": rng.random(90)}
    stash = ts.load(table, entity="e", time="t", duplicates="keep")
    spans = {
        "past": ts.During("y", -9, 0, max_rows=7, age=True),
        "code": ts.During("z", -9, 0, max_rows=7),
        "last": ts.During("y", -2, 0, max_rows=7, age=True),
    }
    windows = ts.Windows(stash, spans=spans, at={"e": rng.integers(0, 5, 50), "t": rng.integers(-3, 50, 50)})
    packs = [ts.PackSequences("past", "code", length=length), ts.PackSequences("last", length=length)]
    loader, plain = (ts.Loader(windows, 16, shuffle=True, transform=steps) for steps in (packs, []))
    for batch, whole in zip(loader, plain, strict=True):
        exact: dict[str, torch.Tensor] = {}
        for name in ("past", "code", "last", "past.age", "last.age"):
            whole[f"{name}.observed"] = whole[f"{name.removesuffix('.age')}.observed"]
            slow = slow_in_a_row(whole, name, 1) if length is None else slow_rows(whole, name, length, 1)
            exact |= {name: slow[name]} if name.endswith(".age") else slow
        assert batch.keys() == exact.keys()
        assert all(oracle.same(batch[name].cpu(), exact[name].cpu()) for name in exact)
    with pytest.raises(ValueError, match="those of 'last' differ from those of 'past'"):
        ts.Loader(windows, 16, transform=[ts.PackSequences("past", "last")])
    with pytest.raises(ValueError, match="ages and delays of a span are packed with it"):
        ts.PackSequences("past", "past.age")(windows[:])
