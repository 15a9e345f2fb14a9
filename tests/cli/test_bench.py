"""The inside of `cli/bench.py`: the three ways that are compared, and the items of the slow ones."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

import tensorstash as ts
from tensorstash.cli.bench import Items, bench, long_enough, whole_pass
from tests.command_line import run


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
    results = bench(windows, batch_size=32, workers=1, seconds=0.1)
    assert [one["way"] for one in results] == ["tensorstash", "DataLoader, 0 workers", "DataLoader, 1 workers"]
    for one in results:
        assert one["seconds_to_first_batch"] > 0
        assert 0 < one["slowest"] <= one["windows_per_second"] <= one["fastest"]


def batches_of(now: list[float]) -> Callable[[int], list[dict[str, torch.Tensor]]]:
    """Loaders of so many steps of two windows each; some are made together with the first, which takes longer."""

    class Batches(list[dict[str, torch.Tensor]]):
        def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
            for step, batch in enumerate(super().__iter__()):
                now[0] += 0.009 if step == 0 else 0.001
                yield batch

    return lambda steps: Batches([{"x": torch.zeros(2)}] * steps)


def test_a_pass_counts_from_its_beginning_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("tensorstash.cli.bench.time.perf_counter", lambda: now[0])
    first, speed = whole_pass(batches_of(now)(10))
    assert first == pytest.approx(0.009)
    assert speed == pytest.approx(20 / 0.018)
    assert len([*long_enough(batches_of(now))]) == 160  # 80 steps take 88 ms


def test_the_bench_command_prints_a_line_for_each(tmp_path: Path) -> None:
    pl.DataFrame({"t": [*range(100)], "y": np.arange(100.0)}).write_parquet(tmp_path / "x.parquet")
    options = ["--columns", "y", "--time", "t", "--history", "4", "--horizon", "1", "--seconds", "0.1"]
    table = run("bench", str(tmp_path / "x.parquet"), *options, "--workers", "1").split("\n\n")[-1].splitlines()
    assert table[0].split() == ["first", "batch", "windows/s", "range"]
    assert [line.split("  ")[0] for line in table[1:]] == [
        "tensorstash",
        "DataLoader, 0 workers",
        "DataLoader, 1 workers",
    ]
