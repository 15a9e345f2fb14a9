"""`windows.gather(ids, out=)`: a batch written into the caller's tensors, wherever and however they lie."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests import oracle
from tests.gather.cases import NAMES, Batch, Case, Series, cases
from tests.oracle_load import like

pytestmark = pytest.mark.filterwarnings("ignore:Gaps (cost|make)")
# how the caller's tensors may lie: as fresh ones do, across, with holes, in a larger one, and turned around inside
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "plain": torch.zeros_like,
    "across": lambda one: torch.zeros(one.shape[::-1], dtype=one.dtype).permute(*range(one.dim())[::-1]),
    "with holes": lambda one: torch.zeros(one.shape[0], 2 * one.shape[1], *one.shape[2:], dtype=one.dtype)[:, ::2],
    "inside": lambda one: torch.zeros(one.shape[0] + 3, *one.shape[1:], dtype=one.dtype)[2:-1],
    "time first": lambda one: torch.zeros_like(one.transpose(0, 1).contiguous()).transpose(0, 1),
}


def some(gaps: str, names: tuple[str, ...] = NAMES) -> ts.Windows:
    times = [True, gaps != "mask", True, True] * 6
    spans = {f"{name} {step}": (name, -4, 3, step) for name in names for step in (1, 2, 5)}
    return Case(Series([times, times]), spans, gaps).windows()  # type: ignore[arg-type]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("gaps", ["split", "mask"])
def test_a_batch_is_written_into_tensors_of_any_layout(gaps: str, layout: str) -> None:
    windows = some(gaps)
    expected = windows[[3, 0, 7, 3]]
    out = {name: LAYOUTS[layout](one) for name, one in expected.items()}
    given_ = dict(out)
    returned = windows.gather([3, 0, 7, 3], out=out)
    assert list(returned) == list(out) == list(given_)
    for name, tensor in expected.items():
        assert returned[name] is out[name] is given_[name]
        assert oracle.same(out[name], tensor), name


@settings(max_examples=60)
@given(cases(), st.data())
def test_a_batch_that_is_used_again_holds_nothing_of_the_one_before(case: Case, data: st.DataObject) -> None:
    count = len(case.expected_slots())
    if not count:
        return
    windows = case.windows()
    size = data.draw(st.integers(1, 6))
    out = windows[[count - 1] * size]
    for _ in range(3):
        ids = data.draw(st.lists(st.integers(0, count - 1), min_size=size, max_size=size))
        windows.gather(ids, out=out)
        for name, tensor in case.expected(windows.stash, ids).items():
            assert oracle.same(out[name], tensor), name


def test_only_the_tensors_of_the_batch_are_written() -> None:
    """What lies beside them in a larger tensor stays, and so do entries of other names."""
    windows = some("mask", ("f32", "odd"))
    expected = windows[[1, 2]]
    large = {name: torch.full((6, *one.shape[1:]), 1, dtype=one.dtype) for name, one in expected.items()}
    out: Batch = {name: one[2:4] for name, one in large.items()} | {"mine": torch.ones(3)}
    windows.gather([1, 2], out=out)
    for name, one in large.items():
        assert oracle.same(one[2:4], expected[name])
        assert bool((one[[0, 1, 4, 5]] == 1).all())
    assert out["mine"].tolist() == [1.0] * 3


def test_static_columns_are_written_too() -> None:
    source = {"e": ["a", "a", "b", "b"], "y": [1.0, 2, 3, 4], "size": [5, 5, 6, 6]}
    windows = ts.Windows(ts.load(source, ["y"], entity="e", static=["size"]), 2)
    out = windows.gather([0, 0])
    assert windows.gather([1, 0], out=out)["size"].tolist() == [6, 5]
    with pytest.raises(ValueError, match=like("a (2,) torch.int64 tensor for 'size', got nothing")):
        windows.gather([0, 1], out={"y": torch.zeros(2, 2, dtype=torch.float64)})


def test_autograd_learns_that_a_tensor_is_written() -> None:
    windows = some("split", ("f32",))
    out = windows[[0, 1]]
    weight = torch.ones(7, requires_grad=True)
    loss = (weight * out["f32 1"]).sum()
    windows.gather([2, 3], out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: {}, "a (2, 3) torch.float64 tensor for 'y', got nothing"),
        (lambda out: {"y": out["y"][:1]}, "a (2, 3) torch.float64 tensor for 'y', got (1, 3) torch.float64"),
        (lambda out: {"y": out["y"][:, :2]}, "a (2, 3) torch.float64 tensor for 'y', got (2, 2) torch.float64"),
        (lambda out: {"y": out["y"].float()}, "a (2, 3) torch.float64 tensor for 'y', got (2, 3) torch.float32"),
        (lambda out: {"y": out["y"].numpy()}, "a (2, 3) torch.float64 tensor for 'y', got an ndarray"),
        (lambda out: {"y": out["y"].requires_grad_()}, "tensor for 'y', got one that requires a gradient"),
    ],
    ids=["nothing", "short", "narrow", "dtype", "array", "gradient"],
)
def test_a_tensor_that_does_not_fit_is_named(change: Callable[[Batch], Any], message: str) -> None:
    windows = ts.Windows(ts.load({"y": np.arange(6.0)}), 3)
    with pytest.raises(ValueError, match=like(message)):
        windows.gather([0, 1], out=change(windows[[0, 1]]))
