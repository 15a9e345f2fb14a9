"""The inside of `sampling/components.py`: the draws of a mix are those of the definition in Python's integers."""

import hashlib
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorstash.errors import ColumnError
from tensorstash.sampling.components import components, mix_draws
from tests.orders import component_window
from tests.sampling.test_tree import chosen

LIMIT = 5.0  # standard deviations that a statistic may be off; seeds are fixed, so nothing is left to chance
SIZES = st.lists(st.one_of(st.integers(1, 6), st.integers(4090, 4100), st.integers(1, 2**40)), min_size=1, max_size=6)


def named(sizes: list[int]) -> dict[str, int]:
    return {f"part {k}": size for k, size in enumerate(sizes)}


@given(SIZES, st.data(), st.integers(-2, 2), st.integers(0, 2**40), st.integers(1, 3000), st.booleans())
@settings(max_examples=60)
def test_a_draw_is_what_the_definition_says(
    sizes: list[int], data: st.DataObject, seed: int, first: int, step: int, shuffle: bool
) -> None:
    weights = {name: data.draw(st.integers(1, 9)) for name in named(sizes)}
    of, positions = components(named(sizes), weights), first + step * np.arange(40)
    at = mix_draws(of, shuffle, seed)
    for again in (positions, positions + 7, positions[::-1]):  # also from what was kept
        component, ids = at(again)
        expected_component, index = chosen(of.tree, again)
        assert np.array_equal(component, expected_component)
        for c, k, found in zip(component.tolist(), index.tolist(), ids.tolist()):
            assert found == (component_window(seed, f"part {c}", sizes[c], k) if shuffle else k % sizes[c])


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_component_shows_all_of_its_windows_before_it_repeats_one(shuffle: bool) -> None:
    sizes = {"tiny": 3, "small": 4096, "large": 4097, "larger": 70_000}
    of = components(sizes, dict.fromkeys(sizes, 1))
    at, shown = mix_draws(of, shuffle, 0), [np.empty(0, np.int64)] * 4
    for first in range(0, 400_000, 9973):
        component, ids = at(np.arange(first, min(first + 9973, 400_000)))
        shown = [np.append(before, ids[component == c]) for c, before in enumerate(shown)]
    for ids, size in zip(shown, sizes.values()):
        epochs = ids[: len(ids) // size * size].reshape(-1, size)
        assert (np.sort(epochs, axis=1) == np.arange(size)).all()
        left = ids[epochs.size :]
        assert len(np.unique(left)) == len(left)
        if shuffle and len(epochs) > 1:
            assert (epochs[0] != epochs[1]).any()


@given(st.lists(st.one_of(st.integers(0, 9), st.integers(4090, 5000)), min_size=1, max_size=6).filter(any))
@settings(max_examples=30)
def test_without_weights_an_epoch_shows_every_window_once(sizes: list[int]) -> None:
    n = sum(sizes)
    for epoch in (0, 1, 12):
        component, ids = mix_draws(components(named(sizes), None), True, 0)(np.arange(epoch * n, (epoch + 1) * n))
        assert sorted(zip(component.tolist(), ids.tolist())) == [(c, k) for c, m in enumerate(sizes) for k in range(m)]


def test_equal_components_do_not_run_in_lockstep() -> None:
    for size in (500, 50_000):
        component, ids = mix_draws(components({"a": size, "b": size}, None), True, 0)(np.arange(1000))
        assert (ids[component == 0] == ids[component == 1]).mean() < 0.02


def test_seeds_and_epochs_differ() -> None:
    for size in (1000, 100_000):
        rows = [
            mix_draws(components({"a": size}, None), True, seed)(np.arange(3 * size))[1].reshape(3, -1)
            for seed in range(3)
        ]
        orders = np.concatenate(rows)
        for one in range(9):
            for two in range(one):
                assert (orders[one] == orders[two]).mean() < 0.01


def deviation(counts: np.ndarray[Any, Any]) -> float:
    """How many standard deviations a chi-square statistic of equally likely cells is off."""
    expected = counts.sum() / counts.size
    return float((((counts - expected) ** 2).sum() / expected - (counts.size - 1)) / math.sqrt(2 * (counts.size - 1)))


@pytest.mark.parametrize("n", range(2, 7))
def test_all_permutations_of_few_windows_are_equally_likely(n: int) -> None:
    """Over the epochs of one component."""
    epochs = 30 * math.factorial(n)
    ids = mix_draws(components({"a": n}, None), True, 0)(np.arange(epochs * n))[1].reshape(epochs, n)
    counted = Counter(map(tuple, ids.tolist()))
    assert abs(deviation(np.array([*counted.values(), *[0] * (math.factorial(n) - len(counted))]))) < LIMIT


def test_every_window_is_as_likely_at_every_position() -> None:
    for n, epochs in ((50, 4000), (20_011, 100)):
        ids = mix_draws(components({"a": n}, None), True, 1)(np.arange(n * epochs))[1]
        place = np.arange(n * epochs) % n
        counts = np.bincount(place * 50 // n * 50 + ids * 50 // n, minlength=2500)
        assert deviation(counts) < LIMIT  # within one permutation cells are negatively correlated
        pairs = ids[:-1] * 50 // n * 50 + ids[1:] * 50 // n
        assert n < 100 or abs(deviation(np.bincount(pairs, minlength=2500))) < LIMIT


def test_positions_are_answered_in_any_order() -> None:
    sizes = dict(zip("abcdefgh", (1, 5, 4096, 4097, 10**6, 2, 3, 10**9)))
    of = components(sizes, {name: k + 0.5 for k, name in enumerate(sizes)})
    positions = np.random.default_rng(0).integers(0, 10**12, 300)
    positions[::3] %= 1000
    whole = mix_draws(of, True, 0)(positions)
    one_by_one = [mix_draws(of, True, 0)(np.array([position])) for position in positions]
    for k in (0, 1):
        assert np.array_equal(whole[k], np.concatenate([pair[k] for pair in one_by_one]))
    assert [len(array) for array in mix_draws(of, True, 0)(np.empty(0, np.int64))] == [0, 0]


# Users resume in the middle of these rows: a release that changes one of them breaks their runs.
GOLDEN_DIGESTS = {
    ("tiny", 0, 0, True): "e20389c1b6a16044",
    ("tiny", 1000000000000, 5, True): "d1c02c48cf7c5cd2",
    ("edge", 0, 0, True): "b425d9d5bf1f3258",
    ("edge", 1000000000, 0, False): "35fd0bbdc0eb8e7a",
    ("large", 0, 0, True): "e5c8615da930faa5",
    ("large", 1000000000000000, 12345, True): "792eafbc07f8c22e",
    ("large", 1000000000000, 0, False): "08bd3770280d77f5",
    ("many", 0, 0, True): "e909abc064cc276f",
    ("many", 10000000000, -1, True): "89bc644a4422d698",
}
MIXES: dict[str, dict[str, int]] = {
    "tiny": {"a": 1, "b": 5, "c": 3},
    "edge": {"a": 4096, "b": 4097},
    "large": {"a": 10**6, "b": 10**9, "c": 65_536, "d": 10**12},
    "many": {f"part {k}": 1 + k**3 for k in range(100)},
}


@pytest.mark.parametrize(("kind", "first", "seed", "shuffle"), GOLDEN_DIGESTS)
def test_no_draw_ever_changes(kind: str, first: int, seed: int, shuffle: bool) -> None:
    sizes = MIXES[kind]
    weights = {name: 1 / (k + 1) for k, name in enumerate(sizes)}
    component, ids = mix_draws(components(sizes, weights), shuffle, seed)(np.arange(first, first + 10_000))
    digest = hashlib.blake2b(component.astype("<i4").tobytes() + ids.astype("<i8").tobytes(), digest_size=8).hexdigest()
    assert digest == GOLDEN_DIGESTS[kind, first, seed, shuffle]


def test_wrong_components_and_weights_are_errors_that_say_which() -> None:
    sizes = {"web": 5, "power": 7, "none": 0}
    for weights, message in (
        ({"web": 1, "power": -1, "none": 0}, r"Weights must be finite and >= 0, got -1 for component 'power'\."),
        (
            {"web": 1, "power": math.nan, "none": 0},
            r"Weights must be finite and >= 0, got nan for component 'power'\.",
        ),
        (
            {"web": math.inf, "power": 1, "none": 0},
            r"Weights must be finite and >= 0, got inf for component 'web'\.",
        ),
        (
            {"web": 1, "none": 0},
            r"weights.*'power' has none",
        ),
        (
            {"web": 1, "power": 1, "none": 0.1},
            r"A component with a weight must have windows; 'none' has none\. Leave it out, or give it 0\.",
        ),
        (dict.fromkeys(sizes, 0), r"all 3 are 0"),
    ):
        with pytest.raises(ValueError, match=message):
            components(sizes, weights)
    with pytest.raises(ColumnError, match=r"did you mean 'power'\?"):
        components(sizes, {**dict.fromkeys(sizes, 0), "power": 1, "pover": 1})
    with pytest.raises(TypeError, match=r"Weights of a mix must be numbers, got"):
        components(sizes, {"web": "1", "power": 1, "none": 0})  # type: ignore[dict-item]  # wrong on purpose
    refused: tuple[Any, ...] = (True, np.False_, torch.tensor(True))
    for wrong in refused:
        with pytest.raises(TypeError, match=r"must be numbers, got .*(True|False).* for .*'power'.* 0 to leave"):
            components({"web": 5, "power": 7}, {"web": 0.5, "power": wrong})
    with pytest.raises(ValueError, match=r"got none"):
        components({}, None)
    with pytest.raises(ValueError, match=r"its 2 components have none"):
        components({"a": 0, "b": 0}, None)


def test_permutations_are_the_same_one_after_the_other_and_all_at_once() -> None:
    sizes = {"a": 50_000, "b": 5000, "c": 300_000}
    together = mix_draws(components(sizes, None), True, 3)(np.arange(5000))
    pieces = [mix_draws(components(sizes, None), True, 3)(np.arange(first, first + 50)) for first in range(0, 5000, 50)]
    for k in (0, 1):
        assert np.array_equal(together[k], np.concatenate([piece[k] for piece in pieces]))
