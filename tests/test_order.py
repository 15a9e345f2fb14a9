"""The order of an epoch: a permutation, uniform where it is drawn as a whole, the same for ever."""

import math
from collections import Counter

import numpy as np
import pytest

from tensorstash.arrays import Int64s
from tensorstash.order import Blocks, Lanes, order, shuffled

LIMIT = 5.0  # standard deviations that a statistic may be off; seeds are fixed, so nothing is left to chance


def whole(n: int, seed: int, epoch: int = 0) -> Int64s:
    return shuffled(n, seed, epoch)(np.arange(n))


def chi_square_deviation(counts: Int64s) -> float:
    """How many standard deviations a chi-square statistic of equally likely cells is off."""
    expected = counts.sum() / counts.size
    statistic = ((counts - expected) ** 2).sum() / expected
    return float((statistic - (counts.size - 1)) / math.sqrt(2 * (counts.size - 1)))


def is_odd(permutation: Int64s) -> bool:
    """Whether the number of transpositions that make it is odd: counted by its cycles."""
    seen, cycles, following = set[int](), 0, permutation.tolist()
    for start in range(len(following)):
        at = start
        cycles += at not in seen
        while at not in seen:
            seen.add(at)
            at = following[at]
    return (len(following) - cycles) % 2 == 1


def test_every_small_n_gives_a_permutation() -> None:
    for n in range(3001):
        assert np.array_equal(np.sort(whole(n, seed=n)), np.arange(n)), n


@pytest.mark.parametrize("power", range(12, 21))
def test_sizes_around_powers_of_two_give_permutations(power: int) -> None:
    for n in (2**power - 1, 2**power, 2**power + 1):
        assert np.array_equal(np.sort(whole(n, seed=power)), np.arange(n)), n


@pytest.mark.parametrize("n", [2**32 + 1, 10**12, 2**62])
def test_huge_n_maps_distinct_positions_to_distinct_ids(n: int) -> None:
    step = n // 200_000
    ids = shuffled(n, 0, 0)(np.arange(0, n, step))
    assert len(np.unique(ids)) == len(ids)
    assert ids.min() >= 0
    assert ids.max() < n


def test_positions_are_answered_in_any_order_and_number() -> None:
    """Random access: a piece of the order is the piece of the whole."""
    for n in (1000, 100_000):
        full, order = whole(n, seed=3), shuffled(n, 3, 0)
        some = np.array([n - 1, 0, 17, 17, 5])
        assert np.array_equal(order(some), full[some])


@pytest.mark.parametrize("n", range(2, 8))
def test_all_permutations_of_few_ids_are_equally_likely(n: int) -> None:
    draws = 30 * math.factorial(n)
    counted = Counter(tuple(whole(n, seed).tolist()) for seed in range(draws))
    counts = np.array([*counted.values(), *[0] * (math.factorial(n) - len(counted))])
    assert abs(chi_square_deviation(counts)) < LIMIT


@pytest.mark.parametrize("n", [50, 70_001])
def test_every_id_is_as_likely_at_every_position(n: int) -> None:
    cells = 50
    counts = np.zeros((cells, cells), np.int64)
    for seed in range(4000 if n < 1000 else 40):
        ids = whole(n, seed)
        np.add.at(counts, (np.arange(n) * cells // n, ids * cells // n), 1)
    # within one permutation the cells are negatively correlated, so the statistic is small rather than large
    assert chi_square_deviation(counts) < LIMIT


@pytest.mark.parametrize("n", [65_537, 100_000])
def test_neighbours_in_the_order_are_unrelated(n: int) -> None:
    """Pairs of consecutive ids fall equally into all cells of the plane, near and far."""
    cells = 64
    for shift in (1, 2, 256):
        counts = np.zeros((cells, cells), np.int64)
        for seed in range(20):
            ids = whole(n, seed) * cells // n
            np.add.at(counts, (ids[:-shift], ids[shift:]), 1)
        assert abs(chi_square_deviation(counts)) < LIMIT
        steps = np.concatenate([np.diff(whole(n, seed)) % n for seed in range(20)]) * 1000 // n
        assert abs(chi_square_deviation(np.bincount(steps, minlength=1000))) < LIMIT


@pytest.mark.parametrize("n", [2, 16, 64, 256, 65_536, 65_537, 65_792])
def test_odd_and_even_permutations_both_occur(n: int) -> None:
    assert {is_odd(whole(n, seed)) for seed in range(12)} == {True, False}


def test_epochs_and_seeds_differ() -> None:
    for n in (1000, 100_000):
        orders = [whole(n, seed, epoch) for seed in range(3) for epoch in range(3)]
        for one in range(len(orders)):
            for two in range(one):
                assert (orders[one] == orders[two]).mean() < 0.01


# Users resume in the middle of these orders: a release that changes one of them breaks their runs.
GOLDEN = {
    (1, 0, 0): [0],
    (7, 0, 0): [4, 5, 0, 3, 1, 6],
    (7, 0, 1): [4, 0, 3, 1, 2, 5],
    (7, 1, 0): [3, 6, 4, 1, 5, 2],
    (1000, 0, 0): [26, 563, 382, 135, 410, 983],
    (65536, 0, 0): [17262, 58513, 42479, 52714, 10938, 58427],
    (65537, 0, 0): [13219, 64749, 64433, 14580, 4384, 46975],
    (65537, 0, 1): [47462, 60133, 60030, 12678, 63567, 45323],
    (1000003, 12345, 7): [817779, 291221, 410279, 568569, 684043, 317306],
    (1000000000, 0, 0): [149642539, 895073430, 219680272, 840185951, 115184848, 527864702],
    (1000000000000, -1, 3): [581149449620, 24683923424, 108434847447, 331170382911, 643840671305, 442874644862],
}


GOLDEN_BLOCKS = [636, 637, 638, 639, 160, 161, 746, 747]


@pytest.mark.parametrize(("n", "seed", "epoch"), GOLDEN)
def test_the_order_never_changes(n: int, seed: int, epoch: int) -> None:
    assert shuffled(n, seed, epoch)(np.arange(min(n, 6))).tolist() == GOLDEN[n, seed, epoch]


@pytest.mark.parametrize("size", [1, 2, 7, 96, 5000])
@pytest.mark.parametrize("n", [0, 1, 6, 7, 8, 96, 1000, 3001])
def test_blocks_keep_the_time_order_and_take_every_window_once(n: int, size: int) -> None:
    for seed in range(5):
        ids = order(Blocks(size), n, seed, 0)(np.arange(n)).tolist()
        assert sorted(ids) == list(range(n))
        whole = [ids[k : k + size] for k in range(0, n - size + 1, size)]
        left_over = n - size * sum(block == list(range(block[0], block[0] + size)) for block in whole)
        assert left_over < 2 * size
        assert len({block[0] % size for block in whole[: (n - left_over) // size]}) <= 1


def test_blocks_begin_elsewhere_and_come_in_another_order_in_each_epoch() -> None:
    n, size = 100_000, 10
    orders = [order(Blocks(size), n, 0, epoch)(np.arange(n)) for epoch in range(20)]
    assert len({int(ids[0]) % size for ids in orders}) > 5
    assert len({int(ids[0]) for ids in orders}) == 20
    first = np.array([ids[k] for ids in orders for k in range(0, n - size, size)]) * 50 // n
    assert abs(chi_square_deviation(np.bincount(first, minlength=50))) < LIMIT


def test_the_order_of_blocks_never_changes() -> None:
    assert order(Blocks(4), 1000, 3, 1)(np.array([0, 1, 2, 3, 4, 5, 998, 999])).tolist() == GOLDEN_BLOCKS


def test_a_block_has_a_window() -> None:
    with pytest.raises(ValueError, match=r"^A block has at least one window; got size=0\.$"):
        Blocks(0)


@pytest.mark.parametrize("count", [1, 2, 7, 30])
@pytest.mark.parametrize("n", [0, 1, 6, 7, 8, 29, 100])
def test_lanes_are_pieces_of_the_sequential_order_side_by_side(n: int, count: int) -> None:
    lengths = [n // count + (lane < n % count) for lane in range(count)]
    begins = [sum(lengths[:lane]) for lane in range(count)]
    pieces = [list(range(begin, begin + length)) for begin, length in zip(begins, lengths)]
    expected = [piece[step] for step in range(max(lengths)) for piece in pieces if step < len(piece)]
    ids = order(Lanes(count), n, 0, 0)(np.arange(n))
    assert ids.tolist() == expected
    lane, at = Lanes(count).places(n, ids)
    assert [pieces[k][j] for k, j in zip(lane, at)] == expected


def test_there_is_a_lane() -> None:
    with pytest.raises(ValueError, match=r"^There is at least one lane; got count=0\.$"):
        Lanes(0)


def test_n_has_a_limit() -> None:
    with pytest.raises(ValueError, match=r"^n lies in \[0, 2\*\*62\]; got -1\.$"):
        shuffled(-1, 0, 0)
