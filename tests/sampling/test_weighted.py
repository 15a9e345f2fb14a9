"""The inside of `sampling/weighted.py`: draws by weights, by the definition in Python's integers, the same for ever."""

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorstash.errors import ColumnError
from tensorstash.sampling.draw_table import DrawTable, checked_weights, draw_table, entity_draws, owners, window_draws
from tensorstash.sampling.hashes import checksum
from tensorstash.sampling.weighted import Weighted, entity_table
from tests.orders import draw_hash, drawn, ends_of

LIMIT = 5.0  # standard deviations that a statistic may be off; seeds are fixed, so nothing is left to chance
WEIGHTS = st.one_of(
    st.just(0.0), st.floats(0, 1), st.floats(0, 1e300), st.floats(5e-324, 1e-300), st.integers(0, 5).map(float)
)


def window_table(weights: object, windows: int) -> DrawTable:
    return draw_table(checked_weights(weights, windows, "window", range(windows)))


@given(st.lists(WEIGHTS, min_size=1, max_size=40), st.integers(-3, 3), st.integers(0, 5), st.integers(0, 2**62))
@settings(max_examples=100)
def test_a_draw_is_what_the_definition_says(weights: list[float], seed: int, epoch: int, first: int) -> None:
    if not any(weights):
        weights[0] = 1.0
    shares = window_table(weights, len(weights))
    assert shares.ends.tolist() == ends_of(weights)
    positions = np.arange(first, first + 20)
    expected = [drawn(weights, seed, epoch, position) for position in positions.tolist()]
    assert window_draws(shares, seed, epoch)(positions).tolist() == expected


@given(st.lists(WEIGHTS, min_size=1, max_size=300), st.data())
@settings(max_examples=100)
def test_every_number_is_found_where_it_is(weights: list[float], data: st.DataObject) -> None:
    """Also at the edges, of which draws meet few."""
    weights[data.draw(st.integers(0, len(weights) - 1))] = 2.0
    shares = draw_table(np.array(weights))
    edges = np.concatenate([shares.ends, shares.ends - 1, [0, 2**52 - 1]])
    edges = edges[(edges >= 0) & (edges < 2**52)]
    expected = np.searchsorted(shares.ends, edges, "right")
    assert np.array_equal(owners(shares, edges), expected)
    assert np.array(weights)[expected].all()


def test_few_weights_among_many_zeros_are_found() -> None:
    """All in one cell of the table."""
    weights = np.zeros(300_000)
    some = np.array([7, 150_000, 150_001, 299_990])
    weights[some] = [1, 1e-3, 1, 1e-9]
    ids = window_draws(draw_table(weights), 0, 0)(np.arange(100_000))
    assert set(ids.tolist()) == {7, 150_000, 150_001}
    numbers = np.array([0, 2**52 - 1])
    assert owners(draw_table(weights), numbers).tolist() == [7, 299_990]


def deviation(counts: np.ndarray[Any, Any], shares: np.ndarray[Any, Any]) -> float:
    """How many standard deviations the chi-square statistic of counts is off."""
    expected = shares / shares.sum() * counts.sum()
    statistic = ((counts - expected) ** 2 / expected).sum()
    return float((statistic - (counts.size - 1)) / math.sqrt(2 * (counts.size - 1)))


@pytest.mark.parametrize("seed", range(3))
def test_windows_come_as_often_as_their_weights_say(seed: int) -> None:
    weights = np.random.default_rng(seed).gamma(0.5, size=500) + 0.01
    counts = np.bincount(window_draws(draw_table(weights), seed, seed)(np.arange(1_000_000)), minlength=500)
    assert abs(deviation(counts, weights)) < LIMIT
    assert abs(deviation(counts, weights[::-1])) > LIMIT, "the statistic can tell other weights"


@pytest.mark.parametrize("seed", range(3))
def test_windows_of_an_entity_are_equally_likely(seed: int) -> None:
    sizes = np.array([0, 1, 7, 300, 0, 64])
    first = np.concatenate([[0], np.cumsum(sizes)])
    weights = np.array([5.0, 1, 0.2, 3, 0, 2])
    shares = entity_table(weights, range(6), first)
    ids = entity_draws(shares, first, None, seed, 0)(np.arange(500_000))
    expected = np.repeat(weights / np.maximum(sizes, 1), sizes)
    assert abs(deviation(np.bincount(ids, minlength=372), expected)) < LIMIT


def test_consecutive_draws_are_unrelated() -> None:
    for gap in (1, 2, 1024):
        ids = window_draws(draw_table(np.ones(50)), 0, 0)(np.arange(500_000))
        pairs = np.bincount(ids[:-gap] * 50 + ids[gap:], minlength=2500)
        assert abs(deviation(pairs, np.ones(2500))) < LIMIT


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.data())
@settings(max_examples=50)
def test_a_draw_by_entity_is_what_the_definition_says(sizes: list[int], data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.floats(0, 9), min_size=len(sizes), max_size=len(sizes)))
    sizes[0], weights[0] = max(sizes[0], 1), max(weights[0], 0.5)
    first = np.concatenate([[0], np.cumsum(sizes)])
    shares = entity_table(weights, range(len(sizes)), first)
    expected = []
    for position in range(30):
        entity = drawn([weight * bool(size) for weight, size in zip(weights, sizes)], 4, 2, position)
        expected.append(first[entity] + draw_hash(4, 2, position, 1) % sizes[entity])
    assert entity_draws(shares, first, None, 4, 2)(np.arange(30)).tolist() == expected


def test_positions_are_answered_in_any_order_and_number() -> None:
    at = window_draws(draw_table(np.arange(1000)), 3, 0)
    some = np.array([10**12, 0, 17, 17, 5])
    assert at(some).tolist() == [int(at(np.array([position]))[0]) for position in some]
    assert at(np.empty(0, np.int64)).tolist() == []


# Users resume in the middle of these draws: a release that changes one of them breaks their runs.
GOLDEN = {
    (3, 0, 0): [2, 2, 2, 2, 2, 1],
    (1000, 0, 0): [492, 884, 507, 694, 843, 94],
    (1000, 0, 1): [780, 471, 89, 845, 594, 990],
    (1000, 1, 0): [781, 710, 547, 639, 69, 263],
    (100003, 12345, 7): [60939, 91810, 36882, 33270, 68459, 59775],
    (1048576, -1, 3): [789347, 22306, 481851, 811093, 199798, 287941],
}
GOLDEN_ENTITIES = {
    (3, 0, 0): [6, 7, 6, 8, 6, 2],
    (1000, 0, 0): [242106, 781950, 258036, 482046, 711174, 8933],
    (1000, 0, 1): [609932, 222702, 7943, 715225, 352964, 981438],
    (1000, 1, 0): [610142, 504201, 300061, 408486, 4797, 69230],
    (100003, 12345, 7): [3713668214, 8429168478, 1360342598, 1106915042, 4686673196, 3573068973],
    (1048576, -1, 3): [623069661100, 497561783, 232180945623, 657872769540, 39919505868, 82910179734],
}


@pytest.mark.parametrize(("n", "seed", "epoch"), GOLDEN)
def test_the_draws_never_change(n: int, seed: int, epoch: int) -> None:
    positions = np.array([0, 1, 2, 3, 1000, 10**12])
    weights = np.arange(n) % 7 * 0.1
    assert window_draws(draw_table(weights), seed, epoch)(positions).tolist() == GOLDEN[n, seed, epoch]
    first = np.arange(n + 1) ** 2
    assert (
        entity_draws(draw_table(weights), first, None, seed, epoch)(positions).tolist()
        == GOLDEN_ENTITIES[n, seed, epoch]
    )


def test_epochs_and_seeds_differ() -> None:
    shares = draw_table(np.ones(10_000))
    rows = [window_draws(shares, seed, epoch)(np.arange(1000)) for seed in range(3) for epoch in range(3)]
    for one in range(len(rows)):
        for two in range(one):
            assert (rows[one] == rows[two]).mean() < 0.01


def test_weights_are_taken_as_arrays_tensors_lists_and_mappings() -> None:
    expected = checksum(draw_table(np.array([1.0, 0, 2])).ends)
    for weights in ([1, 0, 2], np.array([1, 0, 2], np.uint8), torch.tensor([1.0, 0, 2], dtype=torch.bfloat16)):
        assert checksum(window_table(weights, 3).ends) == expected
    by_name = {"c": 2, "a": 1, "b": 0}
    assert checksum(entity_table(by_name, ["a", "b", "c"], np.array([0, 5, 6, 9])).ends) == expected
    assert checksum(window_table([True, False, True], 3).ends) == checksum(draw_table(np.array([1, 0, 1])).ends)


def test_the_checksum_tells_weights_apart_but_not_their_scale() -> None:
    assert checksum(draw_table(np.array([1.0, 2])).ends) == checksum(draw_table(np.array([2.0, 4])).ends)
    assert checksum(draw_table(np.array([1.0, 2])).ends) != checksum(draw_table(np.array([2.0, 1])).ends)


@pytest.mark.parametrize("n", [1 << 20, (1 << 20) - 1, 1_500_000])
def test_shares_take_at_most_16_bytes_a_weight(n: int) -> None:
    weights = np.ones(n, np.float32)
    tracemalloc.start()
    shares: DrawTable = draw_table(weights)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert shares.ends.nbytes + shares.cells.nbytes <= 12 * n + 8
    assert peak <= 16 * n + 2**22


def test_wrong_weights_are_errors_that_say_which() -> None:
    for weights, message in (
        ([1, -2.0, 3], r"got -2\.0 for window 1"),
        ([1, 2, math.nan], r"got nan for window 2"),
        ([math.inf, 2, 1], r"got inf for window 0"),
        ([0, 0, 0], r"all 3 are 0"),
        ([1, 2], r"got 2"),
        (
            [1e308, 1e308, 1e308],
            r"got 3 weights up to 1e\+308",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            window_table(weights, 3)
    for wrong, message in (
        ([[1.0, 2, 3]], r"got 2 dimensions of float64"),
        (["a", "b", "c"], r"got 'a' for window 0"),
    ):
        with pytest.raises(TypeError, match=message):
            window_table(wrong, 3)


def test_wrong_weights_of_entities_are_errors_that_say_which() -> None:
    names, first = ["ada", "bob"], np.array([0, 0, 4])

    def shares(weights: object) -> DrawTable:
        return entity_table(weights, names, first)

    with pytest.raises(ValueError, match=r"got -1 for entity 'bob'"):
        shares([0, -1])
    with pytest.raises(ValueError, match=r"got 4"):
        shares([0, 1, 2, 3])
    with pytest.raises(ColumnError, match=r"did you mean 'bob'\?"):
        shares({"ada": 1, "bab": 2})
    message = r"'bob' has none"
    with pytest.raises(ValueError, match=message):
        shares({"ada": 1})
    message = r"all 1 have 0"
    with pytest.raises(ValueError, match=message):
        shares({"ada": 1, "bob": 0})


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match=r"per.*got \'series\'"):
        Weighted([1], per="series")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"epoch_size.*got 0"):
        Weighted([1], epoch_size=0)
    message = r'with per="window", got a mapping'
    with pytest.raises(TypeError, match=message):
        Weighted({"a": 1})
    with pytest.raises(TypeError, match=r"weights.*got 3"):
        Weighted(3)
