"""The inside of `windows/contents.py`: the batch of no window has the entries that every way of making one makes."""

import warnings
from collections.abc import Callable

import numpy as np
import polars as pl
import pytest
import torch

import tensorstash as ts
from tests.batches.golden import SPANS, mix_of, stash_of, windows_of

EACH = {"past": (ts.each("pack", "f32"), -4, 0), "whole": ("pack", -4, 0), "next": (ts.each("f32"), 0, 2)}
STRETCH = ts.During("f32", "-6h", "0h", max_rows=4, age=True)


def of_points() -> ts.Windows:
    stash = ts.load({"t": np.arange(9), "y": np.arange(9.0)}, time="t")
    at = pl.DataFrame({"t": [4, 5, 6, 7, 8], "label": [1.5] * 5, "late": [True] * 5})
    return ts.Windows(stash, spans={"past": ("y", -3, 0), "before": ts.During("y", -2, 0, max_rows=2)}, at=at)


WORLDS: dict[str, Callable[[], ts.Windows | ts.Mix]] = {
    "whole": lambda: windows_of("whole"),
    "masked": lambda: windows_of("mask ends"),
    "mix": lambda: mix_of("few", "few masked"),
    "each": lambda: ts.Windows(stash_of("abc", 70, 0), spans=EACH, min_history=1),
    "points": of_points,
    "cover": lambda: windows_of("mask ends").cover("half"),
    "stretches": lambda: ts.Windows(stash_of("abc", 70, 0), spans={"past": SPANS["half"], "before": STRETCH}),
}


@pytest.mark.parametrize("world", WORLDS)
def test_names_order_dtypes_and_shapes_are_those_of_batches(world: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        windows = WORLDS[world]()
    said = _found(windows.contents.batch([]))
    assert [*said.items()] == [*_found(windows[[0, 3]]).items()]
    batch = next(iter(ts.Loader(windows, 3, with_ids=True, with_valid=True)))
    own = {"valid", "source", "window", "entity", "anchor", "window.key"}
    assert [*said.items()] == [item for item in _found(batch).items() if item[0] not in own]


def _found(batch: dict[str, torch.Tensor]) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    return {name: (tensor.dtype, tuple(tensor.shape[1:])) for name, tensor in batch.items()}
