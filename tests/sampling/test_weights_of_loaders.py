"""Weights through loaders: by name, by column and by number, and other ones for the passes that come."""

from collections import Counter
from typing import Any, Literal

import numpy as np
import pytest
import torch

import tensorstash as ts
from tests.sampling.test_orders_of_loaders import weights, windows


def test_each_number_of_entities_weighs_what_it_says() -> None:
    """By name, by a static column and by numbers the draws are the same; by a column those of its values at anchors."""
    count, days = 3, 40
    rows = {
        "e": np.repeat(["a", "b", "c"], days),
        "t": np.tile(np.arange(days), count),
        "y": np.arange(count * days) % 7,
        "size": np.repeat([1.0, 0.0, 3.0], days),
    }
    stash = ts.load(rows, ["y"], static=["size"], entity="e", time="t")
    made = ts.Windows(stash, history=2, horizon=1, columns=["y"])

    def ids(weights: Any, per: Literal["window", "entity"]) -> list[int]:
        loader = ts.Loader(made, 50, order=ts.Weighted(weights, per=per, epoch_size=2000), with_ids=True)
        return [k for batch in loader for k in batch["window"].tolist()]

    named = ids({"a": 1, "b": 0, "c": 3}, "entity")
    assert named == ids("size", "entity") == ids([1, 0, 3], "entity") == ids(torch.tensor([2.0, 0, 6]), "entity")
    entities = Counter(made.anchors(named)["entity"].tolist())
    assert entities[1] == 0
    assert abs(entities[0] - 500) < 5 * (2000 * 0.25 * 0.75) ** 0.5
    anchors = [made.stash.offsets[e] + t for e, t in zip(*map(torch.Tensor.tolist, made.anchors(slice(None)).values()))]
    values = [int(stash["y"][row]) for row in anchors]
    assert ids("y", "window") == ids(values, "window")


def test_other_weights_are_of_the_next_pass_and_in_the_state() -> None:
    half = np.arange(len(windows())) % 2
    loader = ts.Loader(windows(), 4, order=ts.Weighted(half), with_ids=True)
    before = loader.state_dict()
    seen: list[int] = []
    for k, batch in enumerate(loader):
        seen += batch["window"].tolist()
        if k == 1:
            loader.set_weights(1 - half)
            assert loader.state_dict()["fingerprint"] == before["fingerprint"]
            assert loader.state_dict()["consumed"] == 8
    assert {k % 2 for k in seen} == {1}
    state = loader.state_dict()  # the epoch is over, and nothing refers to the old weights any more
    assert state["fingerprint"]["weights"] != before["fingerprint"]["weights"]
    after = [batch["window"].tolist() for batch in loader]
    assert {k % 2 for ids in after for k in ids} == {0}
    again = ts.Loader(windows(), 4, order=ts.Weighted(1 - half), with_ids=True)
    again.load_state_dict(state)
    assert [batch["window"].tolist() for batch in again] == after
    old = ts.Loader(windows(), 4, order=ts.Weighted(half))
    message = r"these differ: weights: the weights differ\."
    with pytest.raises(ValueError, match=message):
        old.load_state_dict(state)
    old.set_weights(1 - half)
    old.load_state_dict(state)


def test_a_pass_left_early_shows_its_own_weights_until_the_next_begins() -> None:
    loader = ts.Loader(windows(), 4, order=ts.Weighted(weights()))
    next(iter(loader))
    state = loader.state_dict()
    loader.set_weights(np.ones(len(windows())))
    assert loader.state_dict() == state
    next(iter(loader))
    assert loader.state_dict()["fingerprint"] != state["fingerprint"]


def test_a_sampler_alone_draws_by_weights_of_windows() -> None:
    sampler = ts.Sampler(4, 3, order=ts.Weighted([0, 1, 0, 3], epoch_size=8))
    assert [*sampler] == [[3, 3, 3], [3, 3, 3], [1, 3]]
    assert repr(sampler).startswith("Sampler: 8 windows weighted by window with seed 0, 3 steps of 3, ")
