"""How close the Loader's loop comes to the raw gather: ratios of one run, over 20 M rows of 8 float32 columns.

    python benchmarks/bench_batch.py            # about two minutes, 3 GB
    python benchmarks/bench_batch.py --quick    # the same on 1 M rows, to see that it runs

The raw gather is `index_select` of a strided view, with the positions computed before, into one reused result. Every
contestant draws fresh random windows; its batches are compared with plain slices before it is timed. Contestants take
turns in short rounds, and ratios are taken round by round, so that a change of the machine's speed affects all of them.
"""

import argparse
import statistics
import time
import timeit
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import tensorstash as ts
from tensorstash.batches.buffers import Pool
from tensorstash.gather.gather import as_batch, positions, select
from tensorstash.native.permutation import BLOCK, shuffled
from tensorstash.windows.intervals import intervals, locate

COLUMNS = 8
ROUNDS = 15


@dataclass(frozen=True)
class Case:
    """One layout and window, and the data that both sides gather from."""

    stash: ts.Stash
    packed: bool
    batch: int
    rows: int  # of a window

    @property
    def nbytes(self) -> int:
        return self.batch * self.rows * COLUMNS * 4

    @property
    def steps(self) -> int:
        """Batches in one round: enough to hide the clock, few enough to alternate often."""
        return max(20, 200_000_000 // self.nbytes)


def data(rows: int, packed: bool) -> ts.Stash:
    """Values that say where they come from: column c, row r holds r * 8 + c, modulo 2**24 to be exact in float32."""
    table = (torch.arange(rows)[:, None] * COLUMNS + torch.arange(COLUMNS)) % (1 << 24)
    if packed:
        return ts.load({"x": table.float()})
    return ts.load({f"c{k}": table[:, k].float() for k in range(COLUMNS)})


def bare(case: Case) -> Iterator[dict[str, torch.Tensor]]:
    """`index_select` into one reused result, positions ready: one call for a pack, one for all separate columns."""
    block = case.stash._blocks[0]
    row = COLUMNS if case.packed else 1
    view = block.items.as_strided((len(block.items) // row - case.rows + 1, case.rows * row), (row, 1))
    columns = torch.arange(1 if case.packed else COLUMNS)[:, None] * block.stride
    generator = torch.Generator().manual_seed(0)
    ready = [
        (columns + torch.randint(case.stash.rows - case.rows + 1, (case.batch,), generator=generator)).view(-1)
        for _ in range(case.steps * (ROUNDS + 1))  # never the same twice: the caches are larger than one round
    ]
    out = torch.empty((len(ready[0]), case.rows * row), dtype=torch.int32)
    while True:
        for places in ready:
            torch.index_select(view, 0, places, out=out)
            yield {"all": out}


def loop(case: Case, prefetch: int | None = 0) -> Iterator[dict[str, torch.Tensor]]:
    """The whole Loader loop: order, lookup, gather, recycled memory."""
    windows = ts.Windows(case.stash, history=case.rows)
    loader = ts.Loader(windows, case.batch, shuffle=True, prefetch=prefetch, tail="drop")
    while True:
        yield from loader


def fancy(case: Case) -> Iterator[dict[str, torch.Tensor]]:
    """What people write by hand: an index matrix per column."""
    generator = torch.Generator().manual_seed(0)
    slots = torch.arange(case.rows)
    while True:
        starts = torch.randint(case.stash.rows - case.rows + 1, (case.batch,), generator=generator)
        index = starts[:, None] + slots
        yield {name: column[index] for name, column in case.stash.items()}


def verify(case: Case) -> None:
    """What the Loader and the index matrix yield are slices of the columns."""
    for batch in (next(loop(case)), next(fancy(case))):
        name = next(iter(batch))
        first = batch[name][..., 0].reshape(case.batch, -1)[:, 0].long().tolist()
        for k, value in enumerate(first[:64]):
            # several rows hold the same value modulo 2**24; one of them must be the window
            starts = range(value // COLUMNS, case.stash.rows - case.rows + 1, (1 << 24) // COLUMNS)
            assert any(
                all(torch.equal(batch[c][k], case.stash[c][start : start + case.rows]) for c in batch)
                for start in starts
            )


def seconds(batches: Iterator[dict[str, torch.Tensor]], steps: int) -> float:
    began = time.perf_counter()
    for _ in range(steps):
        next(batches)
    return (time.perf_counter() - began) / steps


def compare(case: Case, contestants: dict[str, Callable[[Case], Iterator[dict[str, torch.Tensor]]]]) -> None:
    """Print each contestant's speed, as a ratio to the raw gather and in GB/s: medians over the rounds."""
    running = {name: make(case) for name, make in contestants.items()}
    for batches in running.values():
        seconds(batches, case.steps // 2 + 1)
    steps = {name: max(2, case.steps // (10 if name == "fancy" else 1)) for name in running}
    rounds = [{name: seconds(batches, steps[name]) for name, batches in running.items()} for _ in range(ROUNDS)]
    for name in running:
        ratio = statistics.median(round_["bare"] / round_[name] for round_ in rounds)
        spent = statistics.median(round_[name] for round_ in rounds)
        speed = f"{case.nbytes / spent / 1e9:5.2f} GB/s   {spent * 1e6:7.0f} us a batch"
        print(f"    {name:12s} {ratio:5.2f} of raw    {speed}")


def breakdown(case: Case) -> None:
    """Where the loop's time beside the raw gather goes, each part alone and in a warm cache."""
    windows = ts.Windows(case.stash, history=case.rows)
    loader = ts.Loader(windows, case.batch, shuffle=True, tail="drop")
    plan, (passes, start) = windows._plan, loader.sampler._begin()
    steps = next(passes.groups(start))
    index = positions(plan, windows._anchor_slots(steps.ids))
    pool = Pool(plan.groups[0], 3)
    buffer = pool.take(case.batch)
    parts: dict[str, tuple[Callable[[], object], int]] = {
        "order": (lambda: next(passes.groups(start)), len(steps.ids)),
        "lookup and positions": (lambda: positions(plan, windows._anchor_slots(steps.ids)), len(steps.ids)),
        "take a buffer": (lambda: pool.take(case.batch), 1),
        "gather": (lambda: select(plan, index, range(1), [[buffer]]), 1),
        "views of the columns": (lambda: as_batch(plan, [buffer]), 1),
    }
    for name, (part, per_call) in parts.items():
        spent = min(timeit.repeat(part, number=20, repeat=20)) / 20 / per_call
        print(f"    {name:22s} {spent * 1e6:6.1f} us a batch")


def order_and_lookup() -> None:
    """Nanoseconds per id of the shuffled order and of the search for its interval."""
    print("\norder and lookup: ns per id")
    for runs in (1, 1000, 1_000_000):
        for n in (10**6, 10**8, 10**10, 10**12):
            if n < runs:
                continue
            counts = np.full(runs, n // runs, np.int64)
            counts[: n % runs] += 1
            first = np.concatenate([[0], np.cumsum(counts + 100)[:-1]])  # 100 rows between the runs' windows
            within = intervals(first, counts, 1)
            order = shuffled(n, 0, 0)
            at = np.arange(BLOCK) + n // 3
            ids = order(at)
            k = int(ids[5]) * runs // n
            assert abs(int(locate(within, ids[5:6])[0]) - int(ids[5]) - 100 * k) <= 100
            parts = (lambda order=order, at=at: order(at), lambda within=within, ids=ids: locate(within, ids))
            one, two = (min(timeit.repeat(part, number=5, repeat=10)) / 5 / BLOCK * 1e9 for part in parts)
            print(f"    n = 10^{len(str(n)) - 1:<2d}  {runs:9,d} runs   {one:5.1f} + {two:5.1f} = {one + two:5.1f}")


def training(stash: ts.Stash) -> None:
    """The defaults against prefetch=0, and prefetch=2 beside them, around a real training step."""
    print("\ntraining loop on all threads: time per step, as a ratio to prefetch=0")
    windows = ts.Windows(stash, history=96, horizon=24)
    for width in (16, 256, 2048):
        model = torch.nn.Sequential(torch.nn.Linear(96, width), torch.nn.ReLU(), torch.nn.Linear(width, 24))
        optimizer = torch.optim.SGD(model.parameters(), 1e-9)

        def step(batch: dict[str, torch.Tensor], model: torch.nn.Module = model, optimizer: Any = optimizer) -> None:
            series = torch.cat([column * 1e-7 for column in batch.values()])
            loss = torch.nn.functional.mse_loss(model(series[:, :96]), series[:, 96:])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

        loaders = {p: iter(_endless(ts.Loader(windows, 256, shuffle=True, prefetch=p))) for p in (0, None, 2)}
        rounds = [{p: _train(batches, step) for p, batches in loaders.items()} for _ in range(ROUNDS)]
        spent = statistics.median(round_[0] for round_ in rounds)
        ratios = {p: statistics.median(round_[p] / round_[0] for round_ in rounds) for p in (None, 2)}
        print(f"    hidden {width:5d}: {spent * 1e3:6.2f} ms; default {ratios[None]:.2f}, prefetch=2 {ratios[2]:.2f}")


def _endless(loader: ts.Loader) -> Iterator[dict[str, torch.Tensor]]:
    while True:
        yield from loader


def _train(batches: Iterator[dict[str, torch.Tensor]], step: Callable[[dict[str, torch.Tensor]], None]) -> float:
    began = time.perf_counter()
    for _ in range(12):
        step(next(batches))
    return (time.perf_counter() - began) / 12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1 M rows, to see that it runs")
    rows = 1_000_000 if parser.parse_args().quick else 20_000_000
    threads = torch.get_num_threads()
    print(f"torch {torch.__version__}, numpy {np.__version__}, {threads} threads, {rows:,} rows x {COLUMNS} float32")
    for packed in (False, True):
        stash = data(rows, packed)
        for batch, length in ((1024, 120), (64, 32)):
            case = Case(stash, packed, batch, length)
            verify(case)
            for count in dict.fromkeys((1, threads)):
                torch.set_num_threads(count)
                print(f"\n{'packed' if packed else 'separate'}, {batch} windows of {length} rows, {count} threads")
                compare(case, {"bare": bare, "loop": loop, "fancy": fancy})
            torch.set_num_threads(1)
            breakdown(case)
        if not packed:
            torch.set_num_threads(threads)
            training(stash)
    order_and_lookup()


if __name__ == "__main__":
    main()
