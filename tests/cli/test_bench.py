"""The inside of `cli/bench.py`: the three ways that are compared, and the items of the slow ones."""

from collections.abc import Iterator

import numpy as np
import torch

import tensorstash as ts
from tensorstash.cli.bench import Items, Pass, bench, in_turns, long_enough, result, taking


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
    assert [one.way for one in results] == ["tensorstash", "DataLoader, 0 workers", "DataLoader, 1 workers"]
    for one in results:
        assert one.seconds_to_first_batch > 0
        assert 0 < one.slowest <= one.windows_per_second <= one.fastest
        assert one.passes >= 3


class Slow:
    """Batches of two windows, of which some are made together with the first; the clock says how long that takes."""

    def __init__(self, steps: int = 4) -> None:
        self.now, self.steps, self.begun = 0.0, steps, 0

    def clock(self) -> float:
        return self.now

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        self.begun += 1
        for step in range(self.steps):
            self.now += 9.0 if step == 0 else 1.0
            yield {"x": torch.zeros(2)}


def test_a_pass_counts_from_its_beginning() -> None:
    loader = Slow()
    assert taking(loader, loader.clock) == Pass(windows=8, seconds=12.0, first=9.0)
    done = result("slow", 9.0, [Pass(8, 2.0, 1.0), Pass(8, 4.0, 1.0), Pass(8, 1.0, 0.5)])
    assert (done.windows_per_second, done.slowest, done.fastest) == (4.0, 2.0, 8.0)


def test_loaders_take_turns_and_end_their_passes() -> None:
    one, other = Slow(), Slow()
    other.clock = one.clock  # type: ignore[method-assign]
    passes = in_turns({"one": one, "other": other}, seconds=30.0, clock=one.clock)
    assert [*map(len, passes.values())] == [5, 5]  # of 12 seconds each, until 60 have gone by
    assert len(in_turns({"one": one}, seconds=0.1, clock=one.clock)["one"]) == 3
    assert {done.windows for done in passes["one"]} == {8}


def test_passes_are_long_enough_whatever_the_time_of_the_run() -> None:
    made = []

    class Fast(Slow):
        def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
            for _ in range(self.steps):
                self.now += 0.001
                yield {"x": torch.zeros(2)}

    times = Fast()

    def loader_of(steps: int) -> Fast:
        made.append(steps)
        times.steps = steps
        return times

    long_enough(loader_of, times.clock)
    assert made == [20, 40, 80, 160]  # 160 ms
