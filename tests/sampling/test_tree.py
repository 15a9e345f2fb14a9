"""The inside of `sampling/tree.py`: the component of each position, by the rule, near its shares in every prefix."""

import hashlib
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorstash.sampling.tree import Tree, choose, counts, tree, whole_weights
from tests import orders
from tests.words import Int32s, Int64s

WEIGHTS = st.lists(st.integers(0, 50), min_size=1, max_size=20).filter(any)
HUGE = st.lists(st.one_of(st.integers(0, 50), st.integers(0, 2**54)), min_size=1, max_size=20).filter(any)


def chosen(of: Tree, positions: Int64s) -> tuple[Int32s, Int64s]:
    """The component of each position, and how many of all earlier positions belong to it."""
    component, index, before = choose(of, positions)
    return component, index + before[component]


@given(HUGE, st.one_of(st.integers(0, 200), st.integers(0, 2**61)), st.integers(1, 7))
@settings(max_examples=150)
def test_a_position_belongs_to_the_component_that_the_rule_says(weights: list[int], first: int, step: int) -> None:
    positions = first + step * np.arange(60)
    component, index = chosen(tree(weights), positions)
    expected = [orders.tree(weights).at(position) for position in positions.tolist()]
    assert list(zip(component.tolist(), index.tolist())) == expected


@given(HUGE, st.lists(st.integers(0, 2**48 - 1), min_size=1, max_size=30), st.integers(0, 2**60))
@settings(max_examples=150)
def test_positions_are_answered_in_any_order(weights: list[int], offsets: list[int], base: int) -> None:
    positions = base + np.array(offsets, np.int64)
    component, index = chosen(tree(weights), positions)
    node = orders.tree(weights)
    assert list(zip(component.tolist(), index.tolist())) == [node.at(position) for position in positions.tolist()]


@given(HUGE, st.integers(0, 2**61), st.integers(1, 50))
@settings(max_examples=100)
def test_counts_are_those_of_the_positions(weights: list[int], first: int, more: int) -> None:
    of = tree(weights)
    component, index = chosen(of, np.arange(first, first + more))
    before, after = counts(of, first), counts(of, first + more)
    assert sum(before) == first
    found = Counter(component.tolist())
    assert [two - one for one, two in zip(before, after)] == [found[k] for k in range(len(weights))]
    at = dict(enumerate(before))
    for k, own in zip(component.tolist(), index.tolist()):
        assert own == at[k]
        at[k] += 1


@given(WEIGHTS)
@settings(max_examples=100)
def test_shares_are_exact_after_each_sum_of_the_weights(weights: list[int]) -> None:
    of, total = tree(weights), sum(weights)
    assert counts(of, total) == weights
    assert counts(of, 10**15 * total) == [10**15 * weight for weight in weights]
    component, _ = chosen(of, np.arange(total))
    assert np.array_equal(component, chosen(of, np.arange(7 * total, 8 * total))[0])


def test_every_prefix_is_within_two_positions_of_the_shares() -> None:
    """The worst of many mixes is far below the bound, and above what any order could reach."""
    random, worst = np.random.default_rng(0), 0.0
    for k in range(600):
        size = int(random.integers(2, 40))
        drawn = (random.random(size), random.random(size) ** 8, random.pareto(0.7, size) + 1e-3)[k % 3]
        weights = [int(weight) + 1 for weight in drawn * (3, 50, 10_000)[k // 3 % 3]]
        n = min(sum(weights), 3000)
        component, _ = chosen(tree(weights), np.arange(n))
        so_far = np.cumsum(component[:, None] == np.arange(size), axis=0)
        due = np.outer(np.arange(1, n + 1), weights) / sum(weights)
        worst = max(worst, float(np.abs(so_far - due).max()))
    assert 0.9 < worst < 1.68


@given(st.lists(st.one_of(st.just(0.0), st.floats(0, 1e300), st.floats(0, 1)), min_size=1, max_size=50).filter(any))
@settings(max_examples=200)
def test_fractions_are_rounded_to_integers_that_sum_to_two_to_the_32(weights: list[float]) -> None:
    whole = whole_weights(weights)
    assert sum(whole) == 2**32
    total = sum(map(Fraction, weights))
    for weight, rounded in zip(weights, whole):
        share = Fraction(weight) * 2**32 / total
        assert (rounded > 0) == (weight > 0)
        assert abs(rounded - share) < 1 + (len(weights) if weight == max(weights) else 0)


def test_integers_stay_and_ties_go_to_the_first() -> None:
    assert whole_weights([3, 0, 10**15]) == [3, 0, 10**15]
    assert whole_weights([1.0, 1.0, 1.0]) == [1431655766, 1431655765, 1431655765]
    assert whole_weights([1, 1, 1.0]) == [1431655766, 1431655765, 1431655765]
    assert whole_weights([1.0, *[1e-20] * 3, 1.0]) == [2**31 - 2, 1, 1, 1, 2**31 - 1]
    assert tree([2, 1, 1]).nodes.child.tolist() == [~0, 1, ~1, ~2]
    assert tree([1, 1, 1, 1]).nodes.child.tolist() == [2, 1, ~2, ~3, ~0, ~1]


def test_a_single_component_has_all_positions() -> None:
    for weights, only in (([5], 0), ([0, 7, 0], 1)):
        component, index = chosen(tree(weights), np.array([3, 10**14, 0]))
        assert component.tolist() == [only] * 3
        assert index.tolist() == [3, 10**14, 0]
        assert counts(tree(weights), 9) == [9 * (k == only) for k in range(len(weights))]
    component, index = chosen(tree([1, 2]), np.empty(0, np.int64))
    assert len(component) == len(index) == 0


# Users resume in the middle of these rows: a release that changes one of them breaks their runs.
GOLDEN = {
    (1, 1): [0, 1, 0, 1, 0, 1, 0, 1],
    (3, 1): [0, 1, 0, 0, 0, 1, 0, 0],
    (5, 3, 2): [0, 1, 0, 2, 0, 1, 0, 2, 0, 1, 0, 1, 0, 2, 0, 1, 0, 2, 0, 1],
    (7, 0, 1, 1, 4): [0, 4, 0, 2, 0, 4, 0, 4, 0, 3, 0, 4, 0, 0, 4, 0, 2, 0, 4, 0, 4, 0, 3, 0, 4, 0],
}
GOLDEN_DIGESTS = {
    (2, 0): "9dd31a4ccce91c54",
    (4, 1000000000000): "29eaa9c7ee52a350",
    (100, 12345): "3a38f55f72ad214b",
    (1000, 1000000000000000): "85995928d6876a8a",
    (1000, 2305843009213693952): "752bf014d8586032",
}


@pytest.mark.parametrize("weights", GOLDEN)
def test_the_row_never_changes(weights: tuple[int, ...]) -> None:
    assert chosen(tree(weights), np.arange(len(GOLDEN[weights])))[0].tolist() == GOLDEN[weights]


@pytest.mark.parametrize(("components", "first"), GOLDEN_DIGESTS)
def test_no_position_ever_changes(components: int, first: int) -> None:
    weights = whole_weights([1 / (k + 1) ** 2 for k in range(components)])
    component, index = chosen(tree(weights), np.arange(first, first + 100_000))
    digest = hashlib.blake2b(component.astype("<i4").tobytes() + index.astype("<i8").tobytes(), digest_size=8)
    assert digest.hexdigest() == GOLDEN_DIGESTS[components, first]


def test_what_does_not_fit() -> None:
    message = r"got 2 components and a sum of 2,305,843,009,213,693,952"
    with pytest.raises(ValueError, match=message):
        tree([2**60, 2**60])
