"""A scaler with statistics by entity: entities are matched by name, in any windows, stash or mix."""

import json
from typing import cast

import numpy as np
import pytest
import torch

import tensorstash as ts
from tests.oracle_load import like
from tests.transforms.scalers import panel, series
from tests.words import Unknown


@pytest.mark.parametrize("slots", [1, 7, 8, 9, 24, 31])
@pytest.mark.parametrize("layout", ["whole", "slice", "one window"])
def test_windows_of_many_entities_are_scaled_each_by_its_own(slots: int, layout: str) -> None:
    stash = panel([40, 50, 60, 70], holes=0)
    windows = ts.Windows(stash, history=slots)
    scaler = ts.Scaler.fit(windows, ["x", "y"], by="entity").bind(windows)
    ids = np.random.default_rng(0).integers(len(windows), size=50)
    batch = windows[ids] | {"entity": windows.anchors(ids)["entity"]}
    if layout == "slice":
        batch = {name: tensor[::2] for name, tensor in batch.items()}
    if layout == "one window":
        batch = {name: tensor[3] for name, tensor in batch.items()}
    before = {name: tensor.double().clone() for name, tensor in batch.items()}
    scaler(batch)
    entity = batch["entity"].reshape(-1).tolist()
    for name in ("x", "y"):
        shape = (len(entity), *stash[name].shape[1:])
        for k, (mine, old) in enumerate(
            zip(batch[name].reshape(-1, slots, *shape[1:]), before[name].view(-1, slots, *shape[1:]))
        ):
            expected = (old - scaler.center[name][entity[k]]) / scaler.scale[name][entity[k]]
            np.testing.assert_allclose(mine, expected, rtol=0, atol=1e-9)
    restored = scaler.inverse(batch)
    for name in ("x", "y"):
        np.testing.assert_allclose(restored[name], before[name], rtol=0, atol=1e-9)


def test_predictions_need_an_entity_each() -> None:
    stash = ts.load({"e": ["a", "a", "b", "b"], "y": [0.0, 2.0, 10.0, 30.0]}, ["y"], entity="e")
    scaler = ts.Scaler.fit(stash, ["y"], by="entity").bind(stash)
    values = torch.zeros(2, 3)
    with pytest.raises(ValueError, match=like("one number for each of 2 windows ... 1")):
        scaler.inverse(values, "y", torch.tensor([0]))
    with pytest.raises(TypeError, match=like("integers ... torch.float32")):
        scaler.inverse(values, "y", torch.tensor([0.0, 1.0]))
    for wrong, bad in (([0, 2], 2), ([-1, 0], -1)):
        with pytest.raises(IndexError, match=f"the entities 0 to 1; the batch has entity {bad}"):
            scaler.inverse(values, "y", torch.tensor(wrong))
    for wrong_values, shown in (([1.0], "a list"), (values.to(torch.complex64), "torch.complex64")):
        with pytest.raises(TypeError, match=like(f"real numbers ... {shown}")):
            scaler.inverse(wrong_values, "y")  # type: ignore[arg-type]


def test_entities_that_the_scaler_does_not_know_are_refused() -> None:
    stash = ts.load({"y": np.arange(10.0), "e": ["a"] * 5 + ["b"] * 5}, ["y"], entity="e")
    scaler, windows = ts.Scaler.fit(stash, ["y"], by="entity").bind(stash), ts.Windows(stash, 3)
    for bad in (-1, 2):
        message = f"entities 0 to 1 ... entity {bad} ... scaler.bind(windows)"
        with pytest.raises(IndexError, match=like(message)):
            scaler(windows[[0]] | {"entity": torch.tensor([bad])})


@pytest.mark.parametrize("json_between", [False, True])
@pytest.mark.parametrize("made", ["windows", "stash"])
def test_entities_are_matched_by_name(made: str, json_between: bool) -> None:
    both, later = series({"a": 10.0, "b": 500.0}), series({"b": 500.0})
    source = both if made == "stash" else ts.Windows(both, 2)
    scaler = ts.Scaler.fit(source, ["y"], by="entity")
    if json_between:
        scaler = ts.Scaler.from_state(json.loads(json.dumps(scaler.state_dict())))
    loader = ts.Loader(ts.Windows(later, 2, columns=["y"]), 10, with_ids=True, transform=[scaler])
    (batch,) = loader
    assert batch["entity"].tolist() == [0] * 5
    assert batch["y"].abs().eq(1).all()
    assert scaler.bind(later).inverse(batch["y"], "y", batch["entity"]).sub(500).abs().eq(1).all()
    bound = cast("ts.Scaler", loader.transform[0])
    assert bound.entities == ["b"]
    assert bound.state_dict() == scaler.state_dict()
    assert bound.bind(both).entities == ["a", "b"]


def test_entities_of_several_columns_and_integers_are_matched_by_name() -> None:
    table = {"e": [1, 1, 1, 2, 2, 2], "f": ["x", "x", "y", "x", "x", "y"], "y": [1.0, 3.0, 5.0, 20.0, 40.0, 7.0]}
    many = ts.load(table, ["y"], entity=["e", "f"])
    with pytest.warns(UserWarning, match="No value, or only one"):
        scaler = ts.Scaler.fit(many, ["y"], by="entity")
    scaler = ts.Scaler.from_state(json.loads(json.dumps(scaler.state_dict())))
    one = ts.load({"e": [2, 2], "f": ["x", "x"], "y": [20.0, 40.0]}, ["y"], entity=["e", "f"])
    assert scaler.bind(one).entities == [(2, "x")]
    assert scaler.bind(one).center["y"].tolist() == [30.0]


def test_an_unknown_entity_is_an_error_or_takes_pooled_statistics() -> None:
    train, new = series({"a": 10.0, "b": 500.0}), series({"b": 500.0, "c": 255.0})
    windows = ts.Windows(new, 2, columns=["y"])
    scaler = ts.Scaler.fit(train, ["y"], by="entity")
    with pytest.raises(ts.errors.DataError, match=like("1 of 2 are unknown ... 'c' ... unknown='pooled'")):
        ts.Loader(windows, 4, with_ids=True, transform=[scaler])
    pooled = ts.Scaler.fit(train, ["y"])
    scaler = ts.Scaler.fit(train, ["y"], by="entity", unknown="pooled")
    scaler = ts.Scaler.from_state(json.loads(json.dumps(scaler.state_dict())))
    (batch,) = ts.Loader(windows, 10, with_ids=True, transform=[scaler])
    assert batch["y"][:5].abs().eq(1).all()
    expected = (new["y"][6:8] - pooled.center["y"]) / pooled.scale["y"]
    assert batch["y"][5].equal(expected)
    assert len(scaler.entities) == len(scaler.center["y"]) - 1 == 2
    assert scaler.bind(new).bind(train).center["y"].equal(scaler.center["y"])  # nothing was forgotten meanwhile
    with pytest.raises(IndexError, match=like("entities 0 to 1 ... entity 2")):  # the pooled row is no entity
        scaler.bind(new).inverse(torch.zeros(1, 1), "y", torch.tensor([2]))
    for by, unknown in ((None, "pooled"), ("entity", "global")):
        with pytest.raises(ValueError, match=like(f"unknown ... {unknown!r}")):
            ts.Scaler.fit(train, ["y"], by=by, unknown=unknown)  # type: ignore[arg-type]


def test_a_number_of_an_entity_says_nothing_without_its_windows() -> None:
    """By hand a scaler must be told of which windows the numbers are, fitted just now or made from a state."""
    stash, other = series({"a": 10.0, "b": 1004.0}), series({"b": 1004.0})
    fitted = ts.Scaler.fit(stash, ["y"], by="entity")
    (batch,) = ts.Loader(ts.Windows(other, 2), 9, with_ids=True)
    raw = batch["y"].clone()
    for scaler in (fitted, ts.Scaler.from_state(fitted.state_dict())):
        for call in (scaler, scaler.inverse):
            with pytest.raises(ValueError, match=like("must be bound first ... scaler.bind(windows)")):
                call(batch)
        with pytest.raises(ValueError, match=like("must be bound first ... scaler.bind(windows)")):
            scaler.inverse(batch["y"], "y", batch["entity"])
        bound = scaler.bind(other)
        assert bound(dict(batch))["y"].abs().eq(1).all()
        assert bound.inverse(batch["y"], "y", batch["entity"]).allclose(raw)
        assert bound.inverse(batch)["y"].allclose(raw)


def test_numbers_of_one_stash_are_not_those_of_a_mix() -> None:
    """Components count their entities from 0, and shards count through."""
    one, two = series({"a": 10.0, "b": 500.0}), series({"a": -70.0})
    parts = {name: ts.Windows(stash, 2, columns=["y"]) for name, stash in (("one", one), ("two", two))}
    mix = ts.Mix(parts)
    alone, together = (ts.Scaler.fit(source, ["y"], by="entity").bind(source) for source in (one, mix))
    mixed, plain = (next(iter(ts.Loader(windows, 3, with_ids=True))) for windows in (mix, parts["one"]))
    with pytest.raises(ValueError, match=like("bound to one stash knows no components ... scaler.bind(mix)")):
        alone(mixed)
    with pytest.raises(ValueError, match=like("knows no components")):
        alone.inverse(mixed["y"], "y", mixed["entity"], mixed["source"])
    with pytest.raises(ValueError, match=like("needs the entity of each window, and in a mix its component")):
        together(plain)
    entity = torch.tensor([0, 1])
    with pytest.raises(IndexError, match=like("the entities 0 to 0 ... entity 1")):  # the second component has one
        together.inverse(torch.zeros(2, 3), "y", entity, torch.tensor([0, 1]))
    with pytest.raises(IndexError, match=like("the components 0 to 1 ... component -1")):
        together.inverse(torch.zeros(2, 3), "y", entity, torch.tensor([0, -1]))
    with pytest.raises(ValueError, match=like("source must have one number for each of 2 windows, got 1")):
        together.inverse(torch.zeros(2, 3), "y", entity, torch.tensor([0]))
    with pytest.raises(TypeError, match=like("source must be a tensor of integers, got [0, 1]")):
        together.inverse(torch.zeros(2, 3), "y", entity, [0, 1])  # type: ignore[call-overload]


@pytest.mark.parametrize("unknown", ["error", "pooled"])
def test_entities_of_a_mix_are_matched_by_component_and_name(unknown: Unknown) -> None:
    stashes = {"one": series({"a": 10.0, "b": 500.0}), "two": series({"a": -70.0})}
    mix = ts.Mix({name: ts.Windows(stash, 2, columns=["y"]) for name, stash in stashes.items()})
    scaler = ts.Scaler.fit(mix, ["y"], by="entity", unknown=unknown)
    assert scaler.entities == [("one", "a"), ("one", "b"), ("two", "a")]
    scaler = ts.Scaler.from_state(json.loads(json.dumps(scaler.state_dict())))
    swapped = ts.Mix({name: ts.Windows(stashes[name], 2, columns=["y"]) for name in ("two", "one")})
    for batch in ts.Loader(swapped, 6, with_ids=True, transform=[scaler]):
        assert batch["y"].abs().eq(1).all()
    other = ts.Mix({"three": ts.Windows(stashes["two"], 2, columns=["y"])})
    if unknown == "error":
        with pytest.raises(ts.errors.DataError, match=like("unknown ... ('three', 'a')")):
            scaler.bind(other)
    else:
        assert scaler.bind(other).center["y"][0].equal(ts.Scaler.fit(mix, ["y"]).center["y"][0])
