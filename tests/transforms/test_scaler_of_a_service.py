"""A scaler from its state scales other data by the names of their entities, whatever numbers these have there."""

import json
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests.oracle_load import like


def load(names: list[Any], several: bool = False, **options: Any) -> ts.Stash:
    """Four rows of each entity, in an order of their own."""
    rows = [(name, k, hash_of(name) + k**2) for k in range(4) for name in names]
    data = {"e": [name for name, _, _ in rows], "f": [len(name) for name, _, _ in rows]}
    data |= {"t": [k for _, k, _ in rows], "y": [float(value) for _, _, value in rows]}
    return ts.load(data, ["y"], entity=["e", "f"] if several else "e", time="t", **options)


def hash_of(name: str) -> int:
    return sum(map(ord, name)) * (1 + len(name))


NAMES = st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=5, unique=True)


@settings(max_examples=60)
@given(NAMES, NAMES, st.booleans(), st.sampled_from(["none", "stash", "reference"]), st.randoms(use_true_random=False))
def test_each_entity_has_its_own_constants(
    fitted: list[str], served: list[str], several: bool, reference: str, luck: Any
) -> None:
    first = load(fitted, several)
    scaler = ts.Scaler.fit(first, ["y"], by="entity", unknown="pooled")
    state = json.loads(json.dumps(scaler.state_dict()))
    likes = {"none": None, "stash": first, "reference": first.without_rows()}
    luck.shuffle(served)
    stash = load(served, several, like=likes[reference], static=[])
    windows = ts.Windows(stash, spans={"past": ("y", -2, 0)})
    batch = next(iter(ts.Loader(windows, 99, transform=[ts.Scaler.from_state(state)], with_ids=True)))
    raw, group = windows[:]["past"], dict(zip(scaler.entities, range(len(scaler.entities))))
    for row, number in enumerate(batch["entity"].tolist()):
        which = group.get(stash.entities[number], len(group))
        center, scale = scaler.center["y"][which], scaler.scale["y"][which]
        assert torch.equal(batch["past"][row], (raw[row] - center) / scale)
    restored = ts.Scaler.from_state(state).bind(windows)
    assert torch.equal(restored.inverse(batch)["past"].nan_to_num(0).round(decimals=6), raw.round(decimals=6))


def test_an_entity_that_the_scaler_lacks_is_named() -> None:
    scaler = ts.Scaler.fit(load(["a", "b"]), ["y"], by="entity")
    with pytest.raises(ts.errors.DataError, match=like("1 of 3 are unknown, such as 'c'")):
        scaler.bind(load(["b", "c"], like=load(["a"])))


def test_a_scaler_is_bound_to_a_reference_and_back() -> None:
    stash = load(["a", "b", "c"])
    scaler = ts.Scaler.fit(stash, ["y"], by="entity")
    bound = scaler.bind(load(["b", "c"]).without_rows())
    assert bound.entities == ["b", "c"]
    assert torch.equal(bound.center["y"], scaler.center["y"][1:])
    assert bound.state_dict() == scaler.state_dict()
    assert torch.equal(bound.bind(stash.without_rows()).center["y"], scaler.center["y"])
