"""The inside of `transforms/scaling.py`: a subtraction and a division, beside a loop over windows and numbers."""

import pytest
import torch

from tensorstash.transforms import scaling
from tensorstash.transforms.scaling import ScaleConstants


def slow_scaled(
    values: torch.Tensor, center: torch.Tensor, scale: torch.Tensor, group: torch.Tensor | None, inverse: bool
) -> torch.Tensor:
    """One number of one window after the other; half types in float32, rounded once."""
    wide = torch.float64 if values.dtype == torch.float64 else torch.float32
    windows = values.reshape(len(values), -1, center[0].numel())
    for k, window in enumerate(windows):
        own = 0 if group is None else int(group[k])
        for item, (a, b) in enumerate(zip(center[own].reshape(-1).to(wide), scale[own].reshape(-1).to(wide))):
            column = window[:, item].to(wide)
            scaled = column * b + a if inverse else (column - a) / b
            window[:, item] = scaled.to(values.dtype)
    return windows.reshape(values.shape)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("pack", [(), (1,), (3,), (2, 5)])
@pytest.mark.parametrize("slots", [1, 7, 37])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("tile", [200, 1 << 20])
def test_scaling_is_one_subtraction_and_one_division(
    dtype: torch.dtype, pack: tuple[int, ...], slots: int, grouped: bool, tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "_TILE", tile)
    random = torch.Generator().manual_seed(slots)
    center, scale = (torch.rand(4, *pack, generator=random, dtype=torch.float64) + 0.1 for _ in range(2))
    values = (torch.randn(11, slots, *pack, generator=random) * 3).to(dtype)
    values.view(-1)[::13] = torch.nan
    group = torch.randint(0, 4, (11,), generator=random) if grouped else None
    made = ScaleConstants.of(center, scale, values)
    for inverse in (False, True):
        expected = slow_scaled(values.clone(), center, scale, group, inverse)
        for tensor in (values.clone(), torch.stack([values, values], -1)[..., 0]):  # in one piece, and not
            made.scale_in_place(tensor, group, inverse=inverse)
            assert torch.equal(tensor.nan_to_num(99), expected.nan_to_num(99))
    assert torch.equal(made.restored(values, group).nan_to_num(99), expected.nan_to_num(99))
    one, first = values[3].clone(), None if group is None else group[3]  # a single window
    made.scale_in_place(one, first, inverse=True)
    assert torch.equal(one.nan_to_num(99), expected[3].nan_to_num(99))


def test_the_slow_scaling_can_fail() -> None:
    center, scale, values = torch.tensor([[1.0]]), torch.tensor([[3.0]]), torch.rand(50, 1) + 2
    product = values * (1 / scale) - center / scale
    assert not torch.equal(slow_scaled(values.clone(), center, scale, None, False), product)


@pytest.mark.parametrize("table", [64, 1 << 18])
def test_tables_of_constants_by_entity_are_the_same_kept_or_not(table: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "_TABLE", table)
    random = torch.Generator().manual_seed(0)
    center, scale = (torch.rand(5, 3, generator=random, dtype=torch.float64) + 0.1 for _ in range(2))
    values, group = torch.randn(11, 37, 3, generator=random), torch.randint(0, 5, (11,), generator=random)
    expected = slow_scaled(values.clone(), center, scale, group, inverse=False)
    ScaleConstants.of(center, scale, values).scale_in_place(values, group, inverse=False)
    assert values.equal(expected)
