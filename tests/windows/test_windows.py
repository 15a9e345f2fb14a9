"""Windows against the oracle: which there are, and what they hold, by slices, ids and tensors."""

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests import oracle
from tests.data import Table, spans, tables
from tests.oracle_load import like
from tests.words import Gaps

pytestmark = pytest.mark.filterwarnings("ignore:Gaps cost")


def hull(chosen: dict[str, tuple[str, int, int, int]]) -> tuple[int, int]:
    """History and horizon of spans."""
    return max(0, *(-begin for _, begin, _, _ in chosen.values())), max(0, *(end for _, _, end, _ in chosen.values()))


def expected_starts(stash: ts.Stash, length: int, stride: int, gaps: str) -> list[int]:
    series = oracle.series_of(stash)
    frequency = oracle.most_common_step(series) if gaps == "split" and stash.time is not None else None
    return oracle.starts(series, length, stride, frequency)


def check_batch(windows: ts.Windows, ids: list[int], anchors: list[int], batch: dict[str, torch.Tensor]) -> None:
    assert list(batch) == [span.name for span in windows.spans]
    for span in windows.spans:
        rows = [oracle.span(windows.stash[span.column], anchors[i], span.start, span.stop, span.step) for i in ids]
        assert oracle.same(batch[span.name], torch.stack(rows))


@settings(max_examples=150)
@given(tables(), spans(), st.integers(1, 4), st.sampled_from(["split", "ignore"]), st.booleans(), st.data())
def test_every_window_is_the_slice_that_the_oracle_takes(
    table: Table, chosen: dict[str, Any], stride: int, gaps: Gaps, timed: bool, data: st.DataObject
) -> None:
    stash = table.stash(timed)
    history, horizon = hull(chosen)
    expected = expected_starts(stash, history + horizon, stride, gaps)
    if not expected:
        with pytest.raises(ts.errors.DataError, match=r"Windows need \d+ consecutive rows; the longest of"):
            ts.Windows(stash, spans=chosen, stride=stride, gaps=gaps)
        return

    windows = ts.Windows(stash, spans=chosen, stride=stride, gaps=gaps)

    anchors = [start + history for start in expected]
    assert windows.placement.anchor_slots(np.arange(len(windows))).tolist() == anchors
    ids = data.draw(st.lists(st.integers(-len(anchors), len(anchors) - 1), min_size=1, max_size=8))
    batch = windows[ids]
    check_batch(windows, ids, anchors, batch)
    check_batch(windows, [ids[0]], anchors, {name: tensor[None] for name, tensor in windows[ids[0]].items()})


@settings(max_examples=100)
@given(tables(), spans(("f32", "pack", "i16")), st.integers(1, 3), st.data())
def test_require_drops_exactly_the_windows_with_a_missing_value(
    table: Table, chosen: dict[str, Any], stride: int, data: st.DataObject
) -> None:
    stash = table.stash()
    history, horizon = hull(chosen)
    require = data.draw(st.lists(st.sampled_from([*chosen, "f32", "pack", "i16"]), max_size=3, unique=True))
    expected = expected_starts(stash, history + horizon, stride, "split")
    judged = [chosen.get(name, (name, -history, horizon, 1)) for name in require]

    def whole(start: int) -> bool:
        pieces = [oracle.span(stash[c], start + history, begin, end, step).tolist() for c, begin, end, step in judged]
        return not any(oracle.is_missing(value) for piece in pieces for value in piece)

    kept = [start for start in expected if whole(start)]
    if not kept:
        with pytest.raises(
            ts.errors.DataError, match=r"^(Windows need|require= keeps the windows without a missing value)"
        ):
            ts.Windows(stash, spans=chosen, stride=stride, require=require)
        return

    windows = ts.Windows(stash, spans=chosen, stride=stride, require=require)

    assert windows.placement.anchor_slots(np.arange(len(windows))).tolist() == [start + history for start in kept]


@pytest.mark.filterwarnings("ignore:.* missing, before it")  # of one window, say
@settings(max_examples=100)
@given(tables(), st.integers(1, 4), st.integers(0, 4), st.integers(1, 3), st.lists(st.integers(-60, 90), unique=True))
def test_split_gives_each_part_the_windows_that_are_judged_between_its_cuts(
    table: Table, history: int, horizon: int, stride: int, cuts: list[int]
) -> None:
    stash = table.stash()
    expected = expected_starts(stash, history + horizon, stride, "split")
    if not expected:
        return
    times = table.times
    edges = [-(10**9), *sorted(cuts), 10**9]
    parts = ts.Windows(stash, history, horizon, columns=["f32"], stride=stride).split(*sorted(cuts))

    assert len(parts) == len(cuts) + 1
    for part, low, high in zip(parts, edges, edges[1:]):
        judged = range(history, history + horizon) if horizon else range(history)
        inside = [s for s in expected if all(low <= times[s + k] < high for k in judged)]
        assert part.placement.anchor_slots(np.arange(len(part))).tolist() == [s + history for s in inside]


@settings(max_examples=60)
@given(tables(), st.integers(0, 2), st.integers(0, 2))
def test_tolerance_allows_jitter(table: Table, tolerance: int, more: int) -> None:
    stash, frequency = table.stash(), max(1, 2 * tolerance + more)
    expected = oracle.starts(oracle.series_of(stash), 3, 1, frequency, tolerance)
    if not expected:
        return

    windows = ts.Windows(stash, 3, columns=["f32"], frequency=frequency, tolerance=tolerance)

    assert windows.placement.anchor_slots(np.arange(len(windows))).tolist() == [start + 3 for start in expected]


@pytest.mark.parametrize("frequency", [None, "1h"])
def test_a_tolerance_that_hides_missing_rows_is_refused(frequency: str | None) -> None:
    times = np.arange("2024-01-01", "2024-01-03", dtype="M8[h]").astype("M8[us]")
    stash = ts.load({"t": np.delete(times, 20), "y": np.ones(47)}, time="t")
    assert len(ts.Windows(stash, 2, frequency=frequency, tolerance="30m")) == 45
    with pytest.raises(ValueError, match=like("tolerance must be at most half of the frequency '1h', got '31m'")):
        ts.Windows(stash, 2, frequency=frequency, tolerance="31m")
    with pytest.raises(ValueError, match=like("frequency '1mo', got '15d'")):
        ts.Windows(stash, 1, frequency="1mo", tolerance="15d")


@pytest.mark.parametrize(
    ("call", "fragment"),
    [
        (lambda windows: windows.split("9999-01-01"), "A cut must fit into 64 bits, as the times in 'ns' of the stash"),
        (lambda windows: ts.Windows(windows.stash, 1, stride=2**63), "stride must be < 2**40, got 9223372036854775808"),
        (
            lambda windows: ts.Windows(windows.stash, 1, frequency="9" * 20 + "h"),
            "frequency must be at most 2**61 ticks of",
        ),
        (lambda windows: ts.Windows(windows.stash, 1, frequency="9" * 20 + "y"), "must be at most 2**61 ticks"),
    ],
)
def test_numbers_beyond_64_bits_are_refused(call: Callable[[ts.Windows], object], fragment: str) -> None:
    stash = ts.load(
        {"t": np.arange("2024-01-01", "2024-01-09", dtype="M8[D]").astype("M8[ns]"), "y": np.ones(8)}, time="t"
    )
    with pytest.raises(ValueError, match=like(fragment)):
        call(ts.Windows(stash, 1))


@settings(max_examples=80)
@given(tables(), st.integers(1, 4), st.integers(0, 3), st.integers(1, 3), st.data())
def test_where_keeps_exactly_the_windows_anchored_at_true_rows(
    table: Table, history: int, horizon: int, stride: int, data: st.DataObject
) -> None:
    """Whatever it leaves out, the stride goes on from the first valid window of each run."""
    stash = table.stash()
    mask = data.draw(st.lists(st.booleans(), min_size=stash.rows, max_size=stash.rows))
    expected = expected_starts(stash, history + horizon, stride, "split")
    if not expected:
        return
    kept = [start for start in expected if mask[start + history - (horizon == 0)]]
    if not kept:
        with pytest.raises(
            ts.errors.DataError, match=r"^where= keeps the windows whose anchor is at a true row; none of"
        ):
            ts.Windows(stash, history, horizon, columns=["f32"], stride=stride, where=mask)
        return

    windows = ts.Windows(stash, history, horizon, columns=["f32"], stride=stride, where=mask)

    assert windows.placement.anchor_slots(np.arange(len(windows))).tolist() == [start + history for start in kept]


def test_where_names_a_boolean_column() -> None:
    stash = Table([9], range(9)).stash()
    windows = ts.Windows(stash, 2, 1, columns=["i64"], where="flag")
    assert windows.placement.anchor_slots(np.arange(len(windows))).tolist() == [3, 6]
    with pytest.raises(
        ValueError,
        match=like("where ... got (9,) of int64"),
    ):
        ts.Windows(stash, 2, where="i64")


@pytest.mark.filterwarnings("ignore:Part .* missing, before it:UserWarning")
@settings(max_examples=80)
@given(
    tables(),
    st.integers(1, 4),
    st.integers(0, 3),
    st.lists(st.sampled_from([0.1, 0.25, 0.5, 0.7, 0.9]), unique=True),
)
def test_split_fraction_cuts_each_entity_after_its_own_share(
    table: Table, history: int, horizon: int, fractions: list[float]
) -> None:
    stash = table.stash()
    expected = expected_starts(stash, history + horizon, 1, "split")
    if not expected:
        return
    judged = range(history, history + horizon) if horizon else range(history)
    owner = [
        (one, row - one.first)
        for one in oracle.series_of(stash)
        for row in range(one.first, one.first + len(one.times))
    ]

    def part_of(row: int) -> int:
        series, place = owner[row]
        return sum(place >= math.floor(len(series.times) * fraction + 0.5) for fraction in sorted(fractions))

    parts = ts.Windows(stash, history, horizon, columns=["f32"]).split_fraction(*sorted(fractions))

    assert len(parts) == len(fractions) + 1
    for k, part in enumerate(parts):
        inside = [start for start in expected if all(part_of(start + j) == k for j in judged)]
        assert part.placement.anchor_slots(np.arange(len(part))).tolist() == [start + history for start in inside]


def test_split_entities_gives_every_window_to_one_part_by_its_entity() -> None:
    lengths = [5, 3, 8, 1, 6, 7, 4, 9, 2, 5]
    stash = Table(lengths, [t for length in lengths for t in range(length)]).stash()
    windows = ts.Windows(stash, 2, 1, columns=["f32"])
    seen = set()
    for seed in range(5):
        parts = windows.split_entities(0.5, 0.8, seed=seed)
        entities = [set(part.anchors(slice(None))["entity"].tolist()) for part in parts]
        assert all(one.isdisjoint(two) for one, two in zip(entities, [*entities[1:], entities[0]]))
        rows = sorted(row for part in parts for row in part.placement.anchor_slots(np.arange(len(part))).tolist())
        assert rows == windows.placement.anchor_slots(np.arange(len(windows))).tolist()
        seen.add(tuple(map(tuple, entities)))
    assert len(seen) > 1
    again = windows.split_entities(0.5, 0.8, seed=4)
    assert [part.fingerprint() for part in again] == [part.fingerprint() for part in parts]


@pytest.mark.parametrize("fractions", [(0.0,), (1.0,), (0.5, 0.5), (0.7, 0.2), ("0.5",), (None,)])
def test_fractions_ascend_between_nothing_and_all(fractions: tuple[Any, ...]) -> None:
    message = f"must lie in (0, 1) and ascend, got {', '.join(map(repr, fractions))}."
    for split in (small().split_fraction, small().split_entities):
        with pytest.raises(ValueError, match=like(message)):
            split(*fractions)


def test_the_oracle_can_fail() -> None:
    """A window that is one row off, or of another dtype, is noticed."""
    stash = Table([10], range(10)).stash()
    windows = ts.Windows(stash, 3, columns=["f32"])
    batch = windows[[0, 5]]
    anchors = list(range(3, 11))
    check_batch(windows, [0, 5], anchors, batch)

    with pytest.raises(AssertionError, match="assert"):
        check_batch(windows, [0, 5], [anchor + 1 for anchor in anchors[:-1]] + [10], batch)
    with pytest.raises(AssertionError, match="assert"):
        check_batch(windows, [0, 5], anchors, {"f32": batch["f32"].double()})


# Access


def small(**arguments: Any) -> ts.Windows:
    return ts.Windows(Table([6, 5], [*range(6), *range(5)]).stash(), 2, 1, columns=["i64", "pack"], **arguments)


def test_a_slice_and_a_tensor_select_as_a_list_does() -> None:
    windows = small()
    assert len(windows) == 7
    for ids in (slice(1, 6, 2), torch.tensor([1, 3, 5]), np.array([1, 3, 5], np.int32), (1, 3, -2)):
        assert oracle.same(windows[ids]["i64"], windows[[1, 3, 5]]["i64"])
    assert windows[[]]["pack"].shape == (0, 3, 3)


def test_an_integer_of_any_library_is_one_window() -> None:
    windows = small()
    same: tuple[Any, ...] = (
        3,
        np.int8(3),
        np.array(3),
        torch.tensor(3),
        torch.tensor(3, dtype=torch.uint8),
        -4,
        torch.tensor(-4),
    )
    for one in same:
        assert windows[one]["i64"].tolist() == windows[[3]]["i64"][0].tolist()
    for several in (torch.tensor([3]), np.array([3])):
        assert windows[several]["i64"].shape == (1, 3)
    with pytest.raises(TypeError, match=like("Ids must be one-dimensional integers, got True.")):
        windows[True]
    for wrong in (torch.tensor(3.0), torch.tensor(True), np.array(3.0)):
        with pytest.raises(TypeError, match=r"got (float32|float64|bool) of shape"):
            windows[wrong]


def test_a_batch_is_a_copy() -> None:
    """Even consecutive windows, which could be a view, do not alias the stash."""
    windows = small()
    before = windows.stash["i64"].clone()
    windows[0:4]["i64"].zero_()
    windows[0]["i64"].zero_()
    assert windows.stash["i64"].equal(before)


def test_ids_outside_are_an_index_error() -> None:
    with pytest.raises(IndexError, match=like("Ids must lie in [-7, 7), got 7.")):
        small()[[0, 7]]
    with pytest.raises(IndexError, match=like("Ids must lie in [-7, 7), got -8.")):
        small()[-8]
    with pytest.raises(TypeError, match=like("got float64 of shape (1,).")):
        small()[np.array([0.5])]


def test_anchors_name_entity_and_time() -> None:
    """The anchor is the first row of the horizon; without a horizon it is the last row."""
    table = Table([6, 5], [*range(10, 16), *range(50, 55)])
    windows = ts.Windows(table.stash(), 2, 1, columns=["i64"])
    anchors = windows.anchors([0, 3, 4, -1])
    assert anchors["entity"].tolist() == [0, 0, 1, 1]
    assert anchors["time"].tolist() == [12, 15, 52, 54]
    last = ts.Windows(table.stash(), 3, columns=["i64"]).anchors([0, -1])
    assert last["entity"].tolist() == [0, 1]
    assert last["time"].tolist() == [12, 54]
    assert list(ts.Windows(table.stash(timed=False), 3, columns=["i64"]).anchors([0])) == ["entity"]


def test_the_fingerprint_is_equal_for_equal_windows_only() -> None:
    one, two = small().fingerprint(), small().fingerprint()
    assert one == two
    assert one["windows"] == 7
    assert one["spans"] == {"i64": ["i64", -2, 1, 1], "pack": ["pack", -2, 1, 1]}
    assert small(stride=2).fingerprint()["runs"] != one["runs"]
    assert (one["entities"], one["rows"], one["first_time"], one["last_time"]) == (2, 11, 0, 5)


def test_windows_of_a_private_stash_are_not_pickled() -> None:
    windows = small()
    windows[[0]]
    with pytest.raises(TypeError, match=like("A private stash lives in the memory of its process and cannot be")):
        pickle.dumps(windows)


@pytest.mark.usefixtures("shm")
def test_the_table_that_entities_are_found_by_is_not_pickled() -> None:
    rows = np.arange(4500)
    stash = ts.load({"e": rows // 9, "y": rows / 2}, ["y"], entity="e", share="pickled")
    windows = ts.Windows(stash, history=3)
    before = pickle.dumps(windows)
    assert windows.anchors(slice(None))["entity"].tolist() == np.repeat(np.arange(500), 7).tolist()
    assert len(pickle.dumps(windows)) == len(before)


def test_the_repr_says_what_a_window_is() -> None:
    assert repr(small()) == (
        "Windows: 7 of 2 + 1 rows every 1, stride 1, in 2 intervals of 2 entities; i64=i64[-2:1], pack=pack[-2:1]"
    )


def test_any_kind_of_integer_is_a_number_of_rows() -> None:
    stash = Table([6], range(6)).stash()
    one = ts.Windows(stash, np.int64(2), np.int32(1), columns=["f32"], stride=np.int8(2), require=None)  # type: ignore[arg-type]
    two = ts.Windows(stash, spans={"f32": ("f32", np.int64(-2), torch.tensor(1))}, stride=2)
    assert one.fingerprint() == two.fingerprint()


def test_a_text_column_can_be_required() -> None:
    stash = ts.load({"word": ["a", None, "b", "c", "d"]})
    windows = ts.Windows(stash, 2, require=["word"])
    assert windows[:]["word"].tolist() == [[1, 2], [2, 3]]


def test_windows_are_copied_over_one_stash() -> None:
    windows = small()
    twin = copy.deepcopy(windows)
    assert twin.stash is windows.stash
    assert oracle.same(twin[[3]]["pack"], windows[[3]]["pack"])
