"""The state of a scaler: plain, whole, and checked field by field."""

import copy
import json
import math
import pickle
from typing import Any, Literal

import pytest
import torch

import tensorstash as ts
from tests.oracle_load import like
from tests.transforms.scalers import panel, series


def test_the_state_is_plain_and_whole() -> None:
    stash = panel([50, 30])
    for by in (None, "entity"):
        scaler = ts.Scaler.fit(stash, ["x", "y"], kind="robust", by=by).bind(stash)
        batch = {"x": stash["x"][:8].view(2, 4, 3).clone(), "entity": torch.tensor([0, 1])}
        expected = scaler({name: tensor.clone() for name, tensor in batch.items()})["x"]
        others = [
            ts.Scaler.from_state(json.loads(json.dumps(scaler.state_dict()))),
            pickle.loads(pickle.dumps(scaler)),
            copy.deepcopy(scaler),
        ]
        for other in others:
            assert other.state_dict() == scaler.state_dict()
            assert repr(other) == repr(scaler)
            assert other.bind(stash)({name: tensor.clone() for name, tensor in batch.items()})["x"].equal(expected)


@pytest.mark.parametrize("by", [None, "entity"])
def test_a_bound_scaler_has_the_state_of_the_one_that_was_fitted(by: Literal["entity"] | None) -> None:
    stash = series({"a": 10.0, "b": 500.0})
    scaler = ts.Scaler.fit(ts.Windows(stash, spans={"past": ("y", -2, 0)}), ["y"], by=by)
    bound = scaler.bind(ts.Windows(stash, spans={"next": ("y", 0, 1)}))
    assert bound.state_dict() == scaler.state_dict()
    assert bound.bind(ts.Windows(stash, spans={"later": ("y", 1, 2)})).scaled_spans == ("past", "later")


def test_a_scaler_says_what_it_is() -> None:
    stash = ts.load({"e": list("aaabbb"), "y": [0.0, 1.0, 2.0, 10.0, 20.0, 30.0]}, ["y"], entity="e")
    windows = ts.Windows(stash, spans={"past": ("y", -2, 0), "next": ("y", 0, 1)})
    assert repr(ts.Scaler.fit(windows, ["y"], kind="minmax", by="entity")) == (
        "Scaler: minmax by entity, 2 of them, of the 6 rows seen\n  y  center 0, 10  scale 2, 20  for past, next"
    )


def test_a_state_lacks_nothing_of_a_scaler_by_entity() -> None:
    scaler = ts.Scaler.fit(series({"a": 10.0, "b": 500.0}), ["y"], by="entity")
    with pytest.raises(ValueError, match=like("lacks entities, unknown")):
        state = scaler.state_dict()
        ts.Scaler.from_state({name: state[name] for name in state if name not in ("entities", "unknown")})
    for damaged in ({"entities": ["a"]}, {"unknown": "pooled"}):
        with pytest.raises(ValueError, match=like("damaged: it needs center and scale")):
            ts.Scaler.from_state(state | damaged)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (["columns", "y", "center", 0], "x", "damaged"),
        (["columns", "y", "center", 0], [1.0, 2.0], "damaged"),
        (["columns", "y", "center"], 5.0, "damaged"),
        (["columns", "y", "scale", 1], 0.0, "damaged: it needs a scale above 0"),
        (["columns", "y", "scale", 1], math.nan, "damaged: it needs a scale above 0"),
        (["columns", "y", "scale", 1], 10**400, "damaged"),
        (["columns", "y"], {}, "damaged: 'center'"),
        (["columns"], {}, "damaged: it needs columns"),
        (["columns"], [], "damaged"),
        (["spans"], 5, "damaged"),
        (["spans", "y"], "z", "damaged: it needs spans of its columns"),
        (["entities"], 5, "damaged"),
        (["entities", 0], "b", "damaged: it needs distinct names"),
        (["entities", 0], ["b", {}], "damaged: it needs names of entities, got {}"),
        (["rows"], [], "damaged: it needs rows"),
        (["variates"], {"z": ["x"]}, "damaged: it needs spans of its columns"),
        (["computed"], {"y": [1]}, "damaged: it needs computed"),
        (["computed"], {"z": [True]}, "damaged"),
    ],
)
def test_each_field_of_a_state_is_checked(field: list[Any], value: Any, message: str) -> None:
    scaler = ts.Scaler.fit(series({"a": 10.0, "b": 500.0}), ["y"], by="entity")
    state = json.loads(json.dumps(scaler.state_dict()))
    assert ts.Scaler.from_state(state).state_dict() == state
    part = state
    for name in field[:-1]:
        part = part[name]
    part[field[-1]] = value
    with pytest.raises(ValueError, match=like(message)):
        ts.Scaler.from_state(state)
