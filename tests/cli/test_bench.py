"""The inside of `cli/bench.py`: the three ways that are compared, and the items of the slow ones."""

import numpy as np
import torch

import tensorstash as ts
from tensorstash.cli.bench import Items, bench


def test_items_are_the_windows() -> None:
    stash = ts.load({"e": list("aaabbbb"), "x": np.arange(7.0), "y": np.arange(7)}, ["x", "y"], entity="e")
    windows = ts.Windows(stash, spans={"past": ("x", -2, 0), "next": ("y", 0, 1)})
    items = Items(windows, torch.from_numpy(windows.placement.anchor_slots(np.arange(len(windows)))))
    assert len(items) == len(windows) == 3
    for k in range(3):
        assert {name: tensor.tolist() for name, tensor in items[k].items()} == {
            name: tensor.tolist() for name, tensor in windows[k].items()
        }


def test_the_bench_measures_three_ways() -> None:
    windows = ts.Windows(ts.load({"x": np.arange(1000, dtype=np.int16)}), history=8, horizon=2)
    results = list(bench(windows, batch_size=32, workers=1, seconds=0.2))
    assert [one.way for one in results] == ["tensorstash", "DataLoader, 0 workers", "DataLoader, 1 workers"]
    for one in results:
        assert one.seconds_to_first_batch > 0
        assert one.windows_per_second > 0
        assert 0 < one.share_waiting < 1
        assert one.bytes > 10_000_000  # an interpreter
