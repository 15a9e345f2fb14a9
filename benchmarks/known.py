"""Columns whose values say where they stand, and the check of windows that were cut from them."""

import torch

import tensorstash as ts

COLUMNS = 8
MODULUS = 1 << 24  # of the values, which float32 holds exactly
CHECKED = 64  # windows of a batch


def table(rows: int, first: int = 0) -> torch.Tensor:
    """`(rows, 8)` float32: column c of row r holds r * 8 + c, modulo 2**24."""
    counted = torch.arange(first, first + rows)[:, None] * COLUMNS + torch.arange(COLUMNS)
    return (counted % MODULUS).float()


def packed(rows: int) -> ts.Stash:
    """All columns as one, `x`."""
    return ts.load({"x": table(rows)})


def separate(rows: int, first: int = 0) -> ts.Stash:
    """A column for each: `c0`, `c1`, ..."""
    values = table(rows, first)
    return ts.load({f"c{k}": values[:, k] for k in range(COLUMNS)})


def check(batch: dict[str, torch.Tensor]) -> None:
    """Fail unless the first windows of a batch are consecutive rows of all columns; spans follow each other."""
    windows = torch.stack([*batch.values()], -1) if "c0" in batch else torch.cat([*batch.values()], 1)
    for window in windows[:CHECKED].long():
        # so do the values of a window count on from its first one
        expected = window[0, 0] + torch.arange(window.numel()).view(window.shape)
        assert torch.equal(window, expected % MODULUS), "a window is not of rows that follow each other"
