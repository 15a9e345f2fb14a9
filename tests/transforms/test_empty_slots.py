"""Empty slots keep their fill, bit by bit: the oracle scales slot by slot.

Of a bound scaler, where that is NaN, they are scaled like others: NaN stays, what a transform put there does not.
"""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests.transforms.test_scaled_stash import bits

pytestmark = pytest.mark.filterwarnings("ignore:Gaps")

FILLS = (float("nan"), -0.0, 0.0, 7.5, float("inf"))


def windows_of(items: int, dtype: torch.dtype, empty: float | None) -> ts.Windows:
    rng = np.random.default_rng(items)
    t = np.concatenate([np.flatnonzero(rng.random(60) < 0.7) for _ in range(3)])
    table = {"e": np.repeat([0, 1, 2], [len(part) for part in np.split(t, np.flatnonzero(np.diff(t) < 0) + 1)]), "t": t}
    table |= {f"c{k}": rng.normal(k, 3, len(t)) for k in range(items)}
    table["c0"][::5] = np.nan
    names: Any = "c0" if items == 1 else [f"c{k}" for k in range(items)]
    stash = ts.load(table, {"x": ts.column(names, dtype=dtype, empty=empty)}, entity="e", time="t")
    return ts.Windows(stash, history=9, gaps="mask", min_history=2)


def expected(
    scaler: ts.Scaler, batch: dict[str, torch.Tensor], dtype: torch.dtype, *, everywhere: bool
) -> torch.Tensor:
    made = batch["x"].clone()
    wide = torch.promote_types(dtype, torch.float32)
    for k, slot in itertools.product(range(made.shape[0]), range(made.shape[1])):
        if everywhere or batch["x.observed"][k, slot]:
            group = 0 if scaler.by is None else int(batch["entity"][k])
            center, scale = (table["x"][group].to(wide) for table in (scaler.center, scaler.scale))
            value = ((batch["x"][k, slot].to(wide) - center) / scale).to(dtype)
            made[k, slot] = (
                value.nan_to_num(float("nan"), float("inf"), -float("inf")) if dtype.itemsize == 2 else value
            )
    return made


@given(
    items=st.sampled_from([1, 3, 70]),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.float16, torch.bfloat16]),
    empty=st.sampled_from([None, 0.0]),
    by=st.sampled_from([None, "entity"]),
    earlier=st.lists(st.sampled_from(FILLS), max_size=3),
    apart=st.booleans(),
    bound=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=150)
def test_whatever_a_transform_before_has_put_there(
    items: int,
    dtype: torch.dtype,
    empty: float | None,
    by: Any,
    earlier: list[float],
    apart: bool,
    bound: bool,
    seed: int,
) -> None:
    windows = windows_of(items, dtype, empty)
    batch = next(iter(ts.Loader(windows, 20, shuffle=True, seed=seed, with_ids=True)))
    generator = torch.Generator().manual_seed(seed)
    for fill in earlier:
        where = ~batch["x.observed"] & (torch.rand(batch["x.observed"].shape, generator=generator) < 0.5)
        batch["x"][where] = fill
    if apart:  # not contiguous
        batch["x"] = batch["x"].transpose(0, 1).contiguous().transpose(0, 1)
    scaler, bound = ts.Scaler.fit(windows, ["x"], by=by), bound or by == "entity"
    scaler = scaler.bind(windows) if bound else scaler
    made = expected(scaler, batch, dtype, everywhere=bound and empty is None)
    assert torch.equal(bits(scaler(batch)["x"]), bits(made))


def test_gradients_flow_through_values_and_through_what_empty_slots_hold() -> None:
    windows = windows_of(3, torch.float64, 0.0)
    batch, scaler = windows[:6], ts.Scaler.fit(windows, ["x"])
    leaf = batch["x"].clone().requires_grad_()
    batch["x"] = leaf * 1
    torch.autograd.backward(scaler(batch)["x"].nan_to_num(0).sum())
    held = batch["x.observed"][..., None] & ~leaf.isnan()
    inverse = (1 / scaler.scale["x"][0]).expand(leaf.shape)
    assert leaf.grad is not None
    torch.testing.assert_close(leaf.grad, torch.where(held, inverse, (~batch["x.observed"])[..., None].double()))
