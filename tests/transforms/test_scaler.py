"""A scaler in use: batches scaled once, in their own memory, and back; predictions scaled back in new tensors."""

from typing import Any

import numpy as np
import pytest
import torch

import tensorstash as ts
from tests.data import DTYPES
from tests.oracle_load import like
from tests.transforms.scalers import panel, series
from tests.words import By


@pytest.mark.parametrize("by", [None, "entity"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_batch_is_scaled_in_its_own_memory_and_back(by: By | None, dtype: torch.dtype) -> None:
    stash = panel([50, 30, 20], holes=0)
    stash = ts.load(
        {"e": np.repeat([0, 1, 2], [50, 30, 20]), "x": stash["x"].to(dtype), "y": stash["y"].to(dtype)},
        ["x", "y"],
        entity="e",
    )
    spans: dict[str, Any] = {"x": ("x", -6, 0), "thin": ("x", -6, 0, 2), "y": ("y", -6, 0), "next": ("y", 0, 3)}
    windows = ts.Windows(stash, spans=spans)
    scaler = ts.Scaler.fit(windows, ["x", "y"], by=by).bind(windows)
    for batch in ts.Loader(windows, 16, shuffle=True, with_ids=True):
        before = {name: tensor.clone() for name, tensor in batch.items()}
        addresses = {name: tensor.data_ptr() for name, tensor in batch.items()}
        assert scaler(batch) is batch
        assert {name: tensor.data_ptr() for name, tensor in batch.items()} == addresses
        group = batch["entity"] if by else torch.zeros(len(batch["y"]), dtype=torch.int64)
        for name, (column, *_) in spans.items():
            shape = (-1, 1, 3) if column == "x" else (-1, 1)
            center, scale = (table[column][group].view(shape) for table in (scaler.center, scaler.scale))
            tolerance = 1e-12 if dtype == torch.float64 else 1e-4
            expected = (before[name].double() - center) / scale
            torch.testing.assert_close(batch[name].double(), expected, rtol=0, atol=tolerance)
            prediction = scaler.inverse(batch[name], column, batch["entity"] if by else None)
            assert prediction.dtype == dtype
            torch.testing.assert_close(prediction, before[name], rtol=0, atol=1e-4)
        assert scaler.inverse(batch) is batch
        for name in spans:
            torch.testing.assert_close(batch[name], before[name], rtol=0, atol=1e-4)
        for name in ("window", "entity", "anchor"):
            assert batch[name].equal(before[name])


def test_gradients_flow_through_the_inverse_of_a_prediction() -> None:
    scaler = ts.Scaler.fit(ts.load({"y": [0.0, 4.0]}), ["y"])
    prediction = torch.zeros(3, 5, requires_grad=True)
    quantiles = scaler.inverse(prediction[..., None].expand(3, 5, 7), "y")
    assert quantiles.shape == (3, 5, 7)
    (gradient,) = torch.autograd.grad(quantiles.sum(), prediction)
    assert gradient.eq(2 * 7).all()


@pytest.mark.parametrize("by", [None, "entity"])
@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES.values() if not dtype.is_floating_point])
def test_integer_predictions_become_floating_values(dtype: torch.dtype, by: By | None) -> None:
    stash = panel([50, 30], holes=0)
    scaler = ts.Scaler.fit(stash, ["x", "y"], by=by).bind(stash)
    entity = torch.tensor([1, 0]) if by else None
    for column, shape in (("y", (2, 4)), ("x", (2, 4, 3))):
        values = (torch.arange(24)[: int(np.prod(shape))].view(shape) % 3).to(dtype)
        found = scaler.inverse(values, column, entity)
        assert found.dtype == torch.get_default_dtype()
        assert found.equal(scaler.inverse(values.float(), column, entity))
        assert (found != found.round()).any()


@pytest.mark.parametrize("by", [None, "entity"])
def test_a_scaler_first_used_in_inference_mode_takes_part_in_training(by: By | None) -> None:
    """As in a check of the validation before the first epoch."""
    stash = panel([50, 30], holes=0)
    scaler = ts.Scaler.fit(stash, ["x", "y"], by=by).bind(stash)
    batch = {"y": torch.zeros(2, 4), "x": torch.zeros(2, 4, 3), "entity": torch.tensor([0, 1])}
    for inference in (True, False):
        with torch.inference_mode(inference):
            scaler({name: tensor.clone() for name, tensor in batch.items()})
            weight = torch.ones(2, 4, requires_grad=not inference)
            prediction = scaler.inverse(weight, "y", batch["entity"] if by else None)
    (gradient,) = torch.autograd.grad(prediction.sum(), weight)
    assert gradient.double().allclose(scaler.scale["y"][:, None].expand(-1, 4)[-2:], rtol=1e-6)


def test_a_batch_that_is_refused_stays_as_it_was() -> None:
    scaler = ts.Scaler.fit(ts.load({"y": [1.0, 2.0], "k": [1, 2]}), ["y", "k"])
    batch = {"y": torch.ones(1, 2), "k": torch.ones(1, 2, dtype=torch.int64)}
    with pytest.raises(ts.errors.SchemaError, match=like("floating ... 'k'")):
        scaler(batch)
    assert batch["y"].tolist() == [[1.0, 1.0]]


def test_one_window_without_a_batch_is_scaled_too() -> None:
    stash = panel([20], holes=0)
    scaler = ts.Scaler.fit(windows := ts.Windows(stash, history=4), ["x", "y"])
    alone, batch = scaler(windows[3]), scaler(windows[[3]])
    assert alone["x"].equal(batch["x"][0])
    assert alone["y"].equal(batch["y"][0])


def test_a_batch_that_does_not_fit_says_what_is_missing() -> None:
    stash = ts.load({"y": [1.0, 2.0], "x": torch.tensor([[1.0, 5.0], [2.0, 6.0]]), "k": [1, 2]})
    scaler, by_entity = (ts.Scaler.fit(stash, ["y", "x", "k"], by=by).bind(stash) for by in (None, "entity"))
    for error, one, batch, message in [
        (
            ValueError,
            scaler,
            {"past": torch.zeros(1, 2)},
            "'y', 'x', 'k' ... 'past' ... Fit it on windows",
        ),
        (
            ts.errors.SchemaError,
            scaler,
            {"k": torch.zeros(1, 2, dtype=torch.int64)},
            "floating ... 'k' is torch.int64 ... ts.Cast({'k': torch.float32})",
        ),
        (
            ValueError,
            scaler,
            {"x": torch.zeros(1, 2, 3)},
            "dimensions of 'x' ... (2,) ... (1, 2, 3)",
        ),
        (
            ValueError,
            by_entity,
            {"y": torch.zeros(1, 2)},
            "entity of each window ... with_ids=True",
        ),
    ]:
        with pytest.raises(error, match=like(message)):
            one(batch)
    with pytest.raises(ts.errors.ColumnError, match=like("no column 'past' ... 'y', 'x', 'k'")):
        scaler.inverse(torch.zeros(1), "past")
    with pytest.raises(ValueError, match=like("A state must have version, ... this one lacks version")):
        ts.Scaler.from_state({})


def test_autograd_learns_that_a_batch_was_scaled() -> None:
    stash = ts.load({"y": np.arange(10.0)})
    windows = ts.Windows(stash, 3)
    batch, weight = windows[:], torch.ones(3, dtype=torch.float64, requires_grad=True)
    loss = (weight * batch["y"]).sum()
    ts.Scaler.fit(windows, ["y"])(batch)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()  # type: ignore[no-untyped-call]


def test_predictions_of_a_pack_have_a_time_dimension() -> None:
    """Three steps of a pack of three could be taken for three columns."""
    stash = ts.load({"a": [1.0, 2.0], "b": [10.0, 20.0], "c": [5.0, 9.0]}, {"x": ["a", "b", "c"]})
    scaler = ts.Scaler.fit(stash, ["x"])
    with pytest.raises(ValueError, match=like("pack 'x' ... (batch, time, *pack) ... (4, 3)")):
        scaler.inverse(torch.zeros(4, 3), "x")
    assert scaler.inverse(torch.zeros(4, 3, 3), "x")[0, 0].tolist() == [1.5, 15.0, 7.0]


@pytest.mark.parametrize("by", [None, "entity"])
def test_slots_without_a_row_keep_their_fill(by: By | None) -> None:
    table = {"e": ["a"] * 4, "t": [0, 1, 3, 4], "k": [7, 8, 9, 10]}
    stash = ts.load(table, {"k": ts.column("k", dtype=torch.float32, empty=0)}, entity="e", time="t")
    windows = ts.Windows(stash, 5, gaps="mask", frequency=1)
    scaler = ts.Scaler.fit(windows, ["k"], by=by).bind(windows)
    batch = windows[:] | {"entity": torch.tensor([0])}
    assert scaler(batch)["k"][0, 2].item() == 0
    assert batch["k"][0, 0].item() < -1
    assert scaler.inverse(batch)["k"].tolist() == [[7, 8, 0, 9, 10]]


def test_a_span_is_scaled_by_its_own_column() -> None:
    stash = series({"a": 10.0})
    scaler = ts.Scaler.fit(ts.Windows(stash, spans={"past": ("y", -2, 0)}), ["y"])
    other = ts.Windows(stash, spans={"past": ("z", -2, 0), "next": ("y", 0, 1)})
    with pytest.raises(ts.errors.SchemaError, match=like("'past' ... column 'z' ... 'y'")):
        ts.Loader(other, 2, transform=[scaler])
    more = ts.Windows(stash, spans={"past": ("y", -2, 0), "next": ("y", 0, 1), "other": ("z", 0, 1)})
    (batch,) = ts.Loader(
        more, 5, transform=[scaler]
    )  # a span that the scaler was not fitted on, of a column that it was
    assert batch["next"].abs().eq(1).all()
    assert batch["other"].gt(9).all()


def test_a_loader_does_not_scale_a_span_twice() -> None:
    stash = series({"a": 10.0})
    windows = ts.Windows(stash, 2)
    y, z = (ts.Scaler.fit(windows, [name]) for name in ("y", "z"))
    with pytest.raises(ValueError, match=like("once ... 'y' ... two transforms")):
        ts.Loader(windows, 2, transform=[y, z, ts.Scaler.fit(windows, ["y"], kind="minmax")])
    assert len([*ts.Loader(windows, 5, transform=[y, z])]) == 1


@pytest.mark.parametrize("way", ["as it is", "cloned", "moved", "cast", "packed", "out", "inference"])
def test_every_call_scales_and_every_inverse_scales_back(way: str) -> None:
    """A batch does not know what was done to it, so a copy of it is scaled like itself."""
    windows = ts.Windows(ts.load({"y": np.arange(9.0)}), 2)
    scaler = ts.Scaler.fit(windows, ["y"])
    center, scale = scaler.center["y"].item(), scaler.scale["y"].item()
    raw = windows[:]["y"].clone()
    ways: dict[str, Any] = {
        "cloned": lambda batch: {name: tensor.clone() for name, tensor in batch.items()},
        "moved": lambda batch: {"y": torch.from_numpy(batch["y"].numpy().copy())},
        "cast": ts.Cast({"y": torch.float32}),
        "packed": lambda batch: {"y": ts.PackSequences("y")(batch)["y"].view(8, 2)},
    }
    with torch.inference_mode(way == "inference"):
        (batch,) = ts.Loader(windows, 8, transform=[scaler])
        batch = ways.get(way, lambda batch: batch)(batch)
        once, twice = ((raw - center) / scale, ((raw - center) / scale - center) / scale)
        for change, expected in (
            (lambda batch: batch, once),
            (scaler, twice),
            (scaler.inverse, once),
            (scaler.inverse, raw),
            (scaler.inverse, raw * scale + center),
        ):
            torch.testing.assert_close(change(batch)["y"].double(), expected, rtol=1e-5, atol=1e-5)


def test_what_has_bind_is_bound_when_the_loader_is_made() -> None:
    class Counting:
        def __init__(self, windows: ts.Windows | None = None) -> None:
            self.windows = windows

        def bind(self, windows: ts.Windows) -> "Counting":
            return Counting(windows)

        def __call__(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            assert self.windows is not None
            return batch | {"count": torch.tensor(len(self.windows))}

    windows = ts.Windows(series({"a": 10.0}), 2)
    assert next(iter(ts.Loader(windows, 2, transform=[Counting()])))["count"] == 5


def test_a_batch_is_scaled_back_in_place_and_predictions_in_new_tensors() -> None:
    stash = ts.load({"y": [1.0, 3.0]})
    scaler = ts.Scaler.fit(ts.Windows(stash, 1), ["y"])
    batch = scaler(ts.Windows(stash, 1)[:])
    span = batch["y"]
    assert scaler.inverse(span, "y").tolist() == [[1.0], [3.0]]
    assert span.tolist() == [[-1.0], [1.0]]
    with pytest.raises(TypeError, match=like("Predictions need a column. Write scaler.inverse(values, 'y').")):
        scaler.inverse(span)  # type: ignore[call-overload]
    for more in (("y",), (None, torch.tensor([0])), (None, None, torch.tensor([0]))):
        with pytest.raises(TypeError, match=like("inverse(batch) takes no column and no entities, got")):
            scaler.inverse(batch, *more)
    assert scaler.inverse(batch) is batch
    assert span.tolist() == [[1.0], [3.0]]
