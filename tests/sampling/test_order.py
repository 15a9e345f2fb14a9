"""The inside of `sampling/order.py` and `native/permutation.py`: permutations, uniform, the same for ever."""

import hashlib
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorstash.native.permutation import shuffled
from tensorstash.sampling.blocks import Blocks
from tensorstash.sampling.lanes import Lanes
from tests import orders
from tests.inside import ids_at
from tests.words import Int64s

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


@given(st.integers(0, 300) | st.integers(65_530, 65_545), st.integers(-2, 2**40), st.integers(0, 9), st.integers(1, 40))
@settings(max_examples=60)
def test_an_order_is_what_the_definition_says(n: int, seed: int, epoch: int, size: int) -> None:
    shown = range(n) if n < 1000 else [0, 1, n // 2, n - 1]
    keys = orders.keys(seed, epoch)
    assert whole(n, seed, epoch)[[*shown]].tolist() == [orders.permuted(n, position, keys) for position in shown]
    if n < 1000:
        assert ids_at(Blocks(size), n, seed, epoch)(np.arange(n)).tolist() == orders.blocks(n, size, seed, epoch)
        assert ids_at(Lanes(size), n, seed, epoch)(np.arange(n)).tolist() == orders.lanes(n, size)


def test_the_definition_can_tell_orders_apart() -> None:
    for n in (100, 70_000):
        first = [orders.permuted(n, 0, orders.keys(seed, epoch)) for seed in (0, 1) for epoch in (0, 1)]
        assert len({*first}) == 4


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
    draws = (30 if n < 7 else 10) * math.factorial(n)
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


GOLDEN_BLOCKS = {
    (4, 1000, 3, 1): [636, 637, 638, 639, 909, 624, 625, 746, 747],
    (96, 1000, 0, 0): [459, 460, 461, 462, 120, 767, 768, 998, 999],
    (7, 1_000_003, 12345, 7): [476763, 476764, 476765, 476766, 674010, 49418, 49419, 1000001, 1000002],
    (1024, 10**12, -1, 3): [
        542927093249,
        542927093250,
        542927093251,
        542927093252,
        683439725398,
        689617339905,
        689617339906,
        999999999998,
        999999999999,
    ],
}

GOLDEN_LANES = {
    (1, 7): [0, 1, 2, 3, 2, 3, 4, 5, 6],
    (3, 8): [0, 3, 6, 1, 6, 4, 7, 2, 5],
    (4, 10): [0, 3, 6, 8, 8, 4, 7, 2, 5],
    (8, 5): [0, 1, 2, 3, 1, 2, 3, 3, 4],
    (256, 1_000_003): [0, 3907, 7814, 11721, 87256, 130884, 134791, 257861, 261768],
    (1024, 10**12): [
        0,
        976562500,
        1953125000,
        2929687500,
        333333333333,
        488281250,
        1464843750,
        999023437499,
        999999999999,
    ],
}

# of all ids of an epoch as little-endian int64
GOLDEN_DIGESTS = {
    (False, 1000, 0): "7a4aec930eb259dc",
    (True, 7, 0): "b28bc93e4c98b5c9",
    (True, 1000, 0): "75e681546d16e857",
    (True, 65_536, 1): "e3546061aef574e2",
    (True, 65_537, 1): "dbc271a722a16e17",
    (True, 300_000, 2): "874a6ab8f60c4183",
    (Blocks(10), 1000, 0): "1131dc0522544520",
    (Blocks(4), 300_000, 1): "e7cb36621d7358ca",
    (Blocks(1024), 300_000, 2): "a457a3224b9f2690",
    (Lanes(16), 1000, 0): "bae860854178411e",
    (Lanes(1024), 300_000, 1): "c2c744b767e8404d",
}


@pytest.mark.parametrize(("n", "seed", "epoch"), GOLDEN)
def test_the_order_never_changes(n: int, seed: int, epoch: int) -> None:
    assert shuffled(n, seed, epoch)(np.arange(min(n, 6))).tolist() == GOLDEN[n, seed, epoch]


@pytest.mark.parametrize("size", [1, 2, 7, 96, 5000])
@pytest.mark.parametrize("n", [0, 1, 6, 7, 8, 96, 1000, 3001])
def test_blocks_keep_the_time_order_and_take_every_window_once(n: int, size: int) -> None:
    for seed in range(5):
        ids = ids_at(Blocks(size), n, seed, 0)(np.arange(n)).tolist()
        assert sorted(ids) == list(range(n))
        whole = [ids[k : k + size] for k in range(0, n - size + 1, size)]
        left_over = n - size * sum(block == list(range(block[0], block[0] + size)) for block in whole)
        assert left_over < 2 * size
        assert len({block[0] % size for block in whole[: (n - left_over) // size]}) <= 1


def test_blocks_begin_elsewhere_and_come_in_another_order_in_each_epoch() -> None:
    n, size = 100_000, 10
    orders = [ids_at(Blocks(size), n, 0, epoch)(np.arange(n)) for epoch in range(20)]
    assert len({int(ids[0]) % size for ids in orders}) > 5
    assert len({int(ids[0]) for ids in orders}) == 20
    first = np.array([ids[k] for ids in orders for k in range(0, n - size, size)]) * 50 // n
    assert abs(chi_square_deviation(np.bincount(first, minlength=50))) < LIMIT


def ends(n: int) -> Int64s:
    """A few positions at the beginning of an order, in its middle and at its end."""
    return np.array([k for k in (0, 1, 2, 3, n // 3, n // 2, n // 2 + 1, n - 2, n - 1) if k < n])


@pytest.mark.parametrize(("size", "n", "seed", "epoch"), GOLDEN_BLOCKS)
def test_the_order_of_blocks_never_changes(size: int, n: int, seed: int, epoch: int) -> None:
    assert ids_at(Blocks(size), n, seed, epoch)(ends(n)).tolist() == GOLDEN_BLOCKS[size, n, seed, epoch]


@pytest.mark.parametrize(("count", "n"), GOLDEN_LANES)
def test_the_order_of_lanes_never_changes(count: int, n: int) -> None:
    """Whatever the seed and the epoch."""
    for seed, epoch in ((0, 0), (5, 3)):
        assert ids_at(Lanes(count), n, seed, epoch)(ends(n)).tolist() == GOLDEN_LANES[count, n]


@pytest.mark.parametrize(("shuffle", "n", "epoch"), GOLDEN_DIGESTS)
def test_no_position_of_any_order_ever_changes(shuffle: Any, n: int, epoch: int) -> None:
    ids = ids_at(shuffle, n, 0, epoch)(np.arange(n))
    assert np.array_equal(np.sort(ids), np.arange(n))
    digest = hashlib.blake2b(ids.astype("<i8").tobytes(), digest_size=8).hexdigest()
    assert digest == GOLDEN_DIGESTS[shuffle, n, epoch]


def test_a_block_has_a_window() -> None:
    with pytest.raises(ValueError, match=r"size.*got 0"):
        Blocks(0)


@pytest.mark.parametrize("count", [1, 2, 7, 30])
@pytest.mark.parametrize("n", [0, 1, 6, 7, 8, 29, 100])
def test_lanes_are_pieces_of_the_sequential_order_side_by_side(n: int, count: int) -> None:
    assert ids_at(Lanes(count), n, 0, 0)(np.arange(n)).tolist() == orders.lanes(n, count)


def test_there_is_a_lane() -> None:
    with pytest.raises(ValueError, match=r"count.*got 0"):
        Lanes(0)


def test_n_has_a_limit() -> None:
    with pytest.raises(ValueError, match=r"got -1"):
        shuffled(-1, 0, 0)
