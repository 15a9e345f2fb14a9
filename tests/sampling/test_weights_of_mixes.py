"""`Loader.set_weights` for a mix: shares from each change on, draws that go on, and states that bring the weights."""

import json
import pickle
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests import kernel, orders
from tests.oracle_load import like

SIZES = {"small": 3, "middle": 17, "large": 5000}
SEED = 4
Weights = dict[str, int]
Drawn = list[tuple[int, int]]  # the component, and the window of it


@pytest.fixture(params=kernel.WAYS, autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test here runs with the kernel, where it was compiled, and without."""
    kernel.take(request.param, monkeypatch)


@cache
def parts() -> dict[str, ts.Windows]:
    return {name: ts.Windows(ts.load({"y": np.arange(n)}), history=1) for name, n in SIZES.items()}


def mix_of(weights: Weights | None, epoch_size: int) -> ts.Mix:
    return ts.Mix(parts(), weights, epoch_size)


def loaders_of(weights: Weights | None, epoch_size: int, ranks: int, size: int, **arguments: Any) -> list[ts.Loader]:
    given: dict[str, Any] = {"shuffle": True, "seed": SEED, "with_ids": True, "with_valid": True} | arguments
    return [
        ts.Loader(mix_of(weights, epoch_size), size, num_replicas=ranks, rank=rank, prefetch=2 * (rank % 2), **given)
        for rank in range(ranks)
    ]


def windows_in(batch: Any) -> Drawn:
    """Without filler."""
    return [
        (source, window)
        for source, window, valid in zip(*(batch[name].tolist() for name in ("source", "window", "valid")))
        if valid
    ]


@cache
def tree_of(*weights: int) -> orders.Node:
    return orders.tree([*weights])


@dataclass
class Slow:
    """The oracle: a tree of the weights from a position on, and a count of each component, one position at a time."""

    weights: Weights
    shuffle: bool = True
    counts: list[int] = field(default_factory=lambda: [0] * len(SIZES))
    since: int = 0
    first: list[int] = field(default_factory=lambda: [0] * len(SIZES))  # counts where the weights began to hold

    def change(self, weights: Weights) -> None:
        self.weights, self.since, self.first = weights, 0, [*self.counts]

    def next(self) -> tuple[int, int]:
        component, _ = tree_of(*self.weights.values()).at(self.since)
        (name, n), index = [*SIZES.items()][component], self.counts[component]
        self.since += 1
        self.counts[component] += 1
        for weight, before, now in zip(self.weights.values(), self.first, self.counts):
            assert abs(now - before - self.since * weight / sum(self.weights.values())) < 2
        return component, orders.component_window(SEED, name, n, index) if self.shuffle else index % n

    def take(self, count: int) -> Drawn:
        return [self.next() for _ in range(count)]


WEIGHTS = st.tuples(*[st.integers(0, 5)] * 3).filter(any).map(lambda weights: dict(zip(SIZES, weights)))
EPOCH = 23


def test_the_oracle_can_fail() -> None:
    one, two = (Slow(dict.fromkeys(SIZES, 1)) for _ in range(2))
    assert one.take(10) == two.take(10)
    two.change({"small": 1, "middle": 5, "large": 1})
    assert one.take(20) != two.take(20)


def resumed(loaders: list[ts.Loader], state: Any, epoch: int) -> list[ts.Loader]:
    """Loaders that go on from a state, if there is one, as a loop over epochs lets them."""
    for loader in loaders if state is not None else ():
        loader.load_state_dict(json.loads(json.dumps(state)))
        loader.set_epoch(epoch)
    return loaders


def taken(loaders: list[ts.Loader], steps: int) -> tuple[Drawn, bool]:
    """The windows of a few steps over all ranks, and whether the pass is complete."""
    passing = [iter(loader) for loader in loaders]
    seen: Drawn = []
    for _ in range(steps):
        step = [next(batches, None) for batches in passing]
        if step[0] is None:
            return seen, True
        seen += [drawn for batch in step if batch is not None for drawn in windows_in(batch)]
    return seen, False


@given(st.lists(WEIGHTS, min_size=6, max_size=6), st.data(), st.booleans())
@settings(max_examples=25)
def test_weights_that_change_five_times_in_a_run_resumed_on_other_ranks(
    weights: list[Weights], data: st.DataObject, shuffle: bool
) -> None:
    """Whatever weights the loaders are made with that load the state; a pass under way is not touched."""
    slow, state, made = Slow(weights[0], shuffle), None, weights[0]
    for epoch, following in enumerate([*weights[1:], None]):
        seen: Drawn = []
        is_over = False
        while not is_over:
            ranks, size, steps = (data.draw(st.integers(1, most)) for most in (3, 6, 5))
            loaders = resumed(loaders_of(made, EPOCH, ranks, size, shuffle=shuffle), state, epoch)
            drawn, is_over = taken(loaders, steps)
            seen += drawn
            state = loaders[0].state_dict()
            loaders[0].set_weights(data.draw(WEIGHTS))  # for a pass that does not come
            assert is_over or loaders[0].state_dict() == state
            made = data.draw(WEIGHTS)
        assert seen == slow.take(EPOCH)
        if following is not None:
            loaders += resumed(loaders_of(made, EPOCH, 1, 1, shuffle=shuffle), state, epoch + 1)
            for loader in loaders:
                loader.set_weights(following)
            slow.change(following)
            state = loaders[0].state_dict()
            assert all(loader.state_dict() == state for loader in loaders)
            assert (state["weights"], state["draws"]) == (following, dict(zip(SIZES, slow.first)))
            assert state["consumed"] == 0


def test_a_mix_without_weights_takes_those_of_a_state() -> None:
    (loader,) = loaders_of(dict.fromkeys(SIZES, 1), EPOCH, 1, 8)
    next(iter(loader))
    (other,) = resumed(loaders_of(None, EPOCH, 1, 8), loader.state_dict(), 0)
    slow = Slow(dict.fromkeys(SIZES, 1))
    assert [windows_in(batch) for batch in other] == [slow.take(8), slow.take(8), slow.take(7)][1:]


@given(WEIGHTS, st.lists(st.tuples(st.integers(0, 9), WEIGHTS), min_size=1, max_size=5), st.integers(1, 7))
@settings(max_examples=25)
def test_passes_of_steps_that_are_left_early_lose_no_window(
    weights: Weights, legs: list[tuple[int, Weights]], size: int
) -> None:
    """The next pass begins in the middle of an epoch, and there the weights begin to hold."""
    (loader,) = loaders_of(weights, EPOCH, 1, size, steps=10)
    slow, count = Slow(weights), 0
    for steps, following in [*legs, (10, weights)]:
        for taken, batch in enumerate(loader):
            drawn = windows_in(batch)
            assert drawn == slow.take(len(drawn))
            count += len(drawn)
            if taken == steps:
                break
        loader.set_weights(dict.fromkeys(SIZES, 1))  # the last of several changes counts
        loader.set_weights(following)
        slow.change(following)
    batch = next(iter(loader))
    assert windows_in(batch) == slow.take(len(batch["source"]))
    assert sum(loader.state_dict()["draws"].values()) == count


@given(WEIGHTS, WEIGHTS, st.integers(1, 5))
@settings(max_examples=15)
def test_after_an_epoch_that_was_left_early_draws_go_on_from_its_end(one: Weights, two: Weights, steps: int) -> None:
    (loader,) = loaders_of(one, EPOCH, 1, 4)
    slow = Slow(one)
    slow.take(EPOCH)
    for _ in zip(range(steps), loader):
        pass
    loader.set_weights(two)
    slow.change(two)
    again = pickle.loads(pickle.dumps(loader.sampler))
    expected = slow.take(EPOCH)
    assert [drawn for batch in loader for drawn in windows_in(batch)] == expected
    first = [0, SIZES["small"], SIZES["small"] + SIZES["middle"]]
    assert [k for ids in again for k in ids] == [first[component] + window for component, window in expected]


def test_the_windows_of_a_changed_pass_are_counted_by_component() -> None:
    equal, uneven = dict.fromkeys(SIZES, 1), {"small": 0, "middle": 1, "large": 3}
    (loader,) = loaders_of(equal, 24, 1, 6)
    for k, _ in enumerate(loader):
        if k == 1:
            loader.set_weights(uneven)
    assert loader.stats()["windows"] == dict.fromkeys(SIZES, 8)
    old = loader.state_dict()
    for _ in range(2):
        assert [*loader]
        assert loader.stats()["windows"] == {"small": 0, "middle": 6, "large": 18}
    counted = loader.stats()["windows"]
    loader.load_state_dict({**old, "weights": equal, "draws": dict.fromkeys(SIZES, 0), "epoch": 0})
    assert loader.stats()["windows"] == counted


def test_weights_are_no_part_of_the_fingerprint() -> None:
    states = [loaders_of(weights, EPOCH, 1, 4)[0].state_dict() for weights in (None, dict.fromkeys(SIZES, 2))]
    assert states[0]["fingerprint"] == states[1]["fingerprint"]
    assert "weights" not in states[0]["fingerprint"]
    assert [state["weights"] for state in states] == [SIZES, dict.fromkeys(SIZES, 2)]


def test_an_epoch_out_of_turn_is_refused_after_a_change() -> None:
    equal, uneven = dict.fromkeys(SIZES, 1), {"small": 0, "middle": 1, "large": 3}
    (loader,) = loaders_of(equal, EPOCH, 1, 8)
    loader.set_epoch(5)
    assert [*loader]
    loader.set_weights(uneven)
    for wrong in (0, 5, 7):
        with pytest.raises(ValueError, match=like(f"set_epoch() must give the next epoch, 6, ... got {wrong}.")):
            loader.set_epoch(wrong)
    loader.set_epoch(6)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    for wrong in (6, 8):  # epoch 6 is under way
        with pytest.raises(ValueError, match=like(f"the next epoch, 7, ... got {wrong}.")):
            loader.set_epoch(wrong)
    loader.set_epoch(7)
    rest = [windows_in(batch) for batch in batches]
    assert loader.state_dict()["epoch"] == 7
    for made in (equal, None):
        (again,) = loaders_of(made, EPOCH, 1, 8)
        again.load_state_dict(state)
        with pytest.raises(ValueError, match=like("the next epoch, 6, ... got 0.")):
            again.set_epoch(0)
        again.set_epoch(6)
        assert [windows_in(batch) for batch in again] == rest
    (passes,) = loaders_of(equal, EPOCH, 1, 8, steps=5)
    passes.set_weights(uneven)
    with pytest.raises(ValueError, match=like("the next pass, 0, ... got 3.")):
        passes.set_epoch(3)
    (fresh,) = loaders_of(equal, EPOCH, 1, 8)
    fresh.load_state_dict(loaders_of(equal, EPOCH, 1, 8)[0].state_dict())
    fresh.set_epoch(3)  # nothing has changed


def test_a_pass_that_was_overtaken_keeps_its_weights() -> None:
    """A state with other weights is loaded during a pass of several epochs, which goes on as it began."""
    one, two = dict.fromkeys(SIZES, 1), {"small": 0, "middle": 1, "large": 3}
    (whole,) = loaders_of(one, EPOCH, 1, 5, steps=20)
    (loader,) = loaders_of(one, EPOCH, 1, 5, steps=20)
    expected = [windows_in(batch) for batch in whole]
    batches = iter(loader)
    seen = [windows_in(next(batches))]
    (other,) = loaders_of(two, EPOCH, 1, 5, steps=20)
    loader.load_state_dict(other.state_dict())
    seen += [windows_in(batch) for batch in batches]
    assert seen == expected
    assert [windows_in(batch) for batch in loader] == [windows_in(batch) for batch in other]


def test_what_does_not_fit_is_refused_and_changes_nothing() -> None:
    equal = dict.fromkeys(SIZES, 1)
    (loader,) = loaders_of(equal, EPOCH, 1, 8)
    next(iter(loader))
    before = loader.state_dict()
    wrong: tuple[tuple[Any, Any, str], ...] = (
        ({"small": 1, "middle": 1}, ValueError, "weights must name each component; 'large' has none."),
        ({**equal, "lagre": 1}, ts.errors.ColumnError, "the mix has no component 'lagre'; did you mean 'large'?"),
        ({**equal, "large": -1}, ValueError, "must be finite and >= 0, got -1 for component 'large'"),
        ({**equal, "large": "1"}, TypeError, "must be numbers, got '1' for component 'large'"),
        (dict.fromkeys(SIZES, 0), ValueError, "At least one weight must be > 0"),
        ([1, 1, 1], TypeError, "a mapping from each name to a number, got [1, 1, 1]"),
        (None, TypeError, "a mapping from each name to a number, got None"),
    )
    for weights, kind, message in wrong:
        with pytest.raises(kind, match=like(message)):
            loader.set_weights(weights)
        assert loader.state_dict() == before
    with pytest.raises(TypeError, match=like("set_weights() needs a ts.Mix with weights=")):
        loaders_of(None, EPOCH, 1, 8)[0].set_weights(equal)
    with pytest.raises(TypeError, match=like("needs order=ts.Weighted(...) or a ts.Mix with weights=, and the order")):
        ts.Loader(parts()["large"], 8, shuffle=True).set_weights(equal)
    for field_, value, message in (
        ("draws", {"small": 1}, "draws of a state must have a number for each component"),
        ("draws", [0, 0, 0], "draws of a state must have a number for each component"),
        ("draws", dict.fromkeys(SIZES, -1), "draws of component 'small' must be an integer >= 0, got -1"),
        ("draws", dict.fromkeys(SIZES, 3), "must sum to at most its position, 8, got 9"),
        ("weights", {"small": 1}, "weights must name each component"),
    ):
        with pytest.raises(ValueError, match=like(message)):
            loader.load_state_dict({**before, field_: value})
        assert loader.state_dict() == before
    for lacking in ("weights", "draws"):
        with pytest.raises(ValueError, match=like(f"this one lacks {lacking}")):
            loader.load_state_dict({name: value for name, value in before.items() if name != lacking})


def test_large_positions_are_exact() -> None:
    """An epoch far out, whose position does not fit into the products of the tree in 64 bits."""
    equal, uneven = dict.fromkeys(SIZES, 1), {"small": 0, "middle": 1, "large": 3}
    (loader,) = loaders_of(equal, 3 << 20, 1, 8)
    loader.set_epoch(1 << 36)
    loader.set_weights(uneven)
    slow = Slow(uneven, counts=[1 << 56] * 3, first=[1 << 56] * 3)
    (batch,) = [batch for _, batch in zip(range(1), loader)]
    assert windows_in(batch) == slow.take(8)
    assert loader.state_dict()["draws"] == dict.fromkeys(SIZES, 1 << 56)
