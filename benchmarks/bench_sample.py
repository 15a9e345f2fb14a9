"""What sampling costs: ids per second, blocks against shuffled windows, masked against strided, building `Windows`.

    python benchmarks/bench_sample.py            # some minutes, 5 GB
    python benchmarks/bench_sample.py --quick    # the same, small, to see that it runs

Results are checked before they are timed: orders give every id once, batches are slices of the columns, and the number
of windows is the computed one. Memory is that of a fresh process per case: all data are read first, free memory is
given back (`malloc_trim`), the kernel's record of the peak is reset (`/proc/self/clear_refs`), and the growth is the
peak (`VmHWM`) minus what was resident before (`VmRSS`). Where a system has none of these, the growth is unknown.

Each section is a function in `SECTIONS`; `--only NAME` runs one of them.
"""

import argparse
import ctypes
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tensorstash as ts
from tensorstash.sampling.by_time import ByTimeOrder
from tensorstash.sampling.components import components
from tensorstash.sampling.mixed import MixedOrder
from tensorstash.sampling.order import Count, Order
from tensorstash.sampling.sections import sections

COLUMNS = 8
BATCH = 1024
ORDERS: dict[str, dict[str, Any]] = {
    "sequential": {},
    "shuffled": {"shuffle": True},
    "blocks of 96": {"order": ts.Blocks(96)},
    "1024 lanes": {"order": ts.Lanes(BATCH)},
}


# Memory, in a process of its own


def resident() -> int:
    """Bytes of this process that are in memory now, shared pages that it has touched included."""
    return _status("VmRSS")


def reset_peak() -> None:
    """Give free memory back to the system, and let the kernel's record of the peak begin again at what is resident."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", "ascii")


def peak() -> int:
    """The most bytes that were in memory since `reset_peak`."""
    return _status("VmHWM")


def _status(name: str) -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text("ascii").splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def grown(work: Callable[[], object]) -> int | None:
    """By how many bytes the process grows at most while it works; `None` where the system does not tell."""
    try:
        reset_peak()
    except (OSError, AttributeError):  # no Linux, or no glibc
        return None
    before = resident()
    kept = work()
    growth = peak() - before
    del kept
    return growth


def in_fresh_process(work: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """What a function returns in a new interpreter with as many threads of torch as this one."""
    context, threads = multiprocessing.get_context("spawn"), torch.get_num_threads()
    with ProcessPoolExecutor(1, context, torch.set_num_threads, (threads,)) as pool:
        return pool.submit(work, *arguments).result()


def megabytes(nbytes: int | None) -> str:
    return "unknown" if nbytes is None else f"{nbytes / 1e6:6.1f} MB"


def best(work: Callable[[], object], repeats: int = 5) -> float:
    """Seconds of the fastest of several runs."""
    spent = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        spent.append(time.perf_counter() - began)
    return min(spent)


# Ids per second


def orders(quick: bool) -> None:
    """Ids per second of each order at any number of windows, the cost of a state, and the memory."""
    print(f"\norders: batches of {BATCH} ids from ts.Sampler, best of 5; growth of memory from the first id on")
    for name in ORDERS:
        for power in (6, 9, 12):
            told = in_fresh_process(order_case, name, 10**power, 1 << (18 if quick else 22))
            print(
                f"    {name:13s} 10^{power:<2d} windows  {told['ids_per_second'] / 1e6:7.1f} M ids/s  "
                f"first batch {told['first'] * 1e3:5.1f} ms  state {told['state'] * 1e6:4.1f} us  "
                f"{megabytes(told['growth'])}"
            )


def order_case(name: str, n: int, count: int) -> dict[str, Any]:
    def sampler(epoch: int) -> ts.Sampler:
        made = ts.Sampler(n, BATCH, **ORDERS[name], seed=0)
        made.set_epoch(epoch)
        return made

    def take(epoch: int) -> int:
        """About `count` ids of as many epochs as they need."""
        taken = 0
        while taken < count:
            for ids in sampler(epoch):
                taken += len(ids)
                if taken >= count:
                    break
            epoch += 1
        return taken

    # the code and its libraries are in memory before the peak is reset
    next(iter(ts.Sampler(10**5, BATCH, **ORDERS[name])))
    growth = grown(lambda: take(0))
    check_ids(sampler(1), n, min(n, count))
    first = best(lambda: next(iter(sampler(2))))
    seconds = [best(lambda k=k: take(k), 1) for k in range(3, 8)]  # type: ignore[misc]
    asked = sampler(3)
    state = best(lambda: [asked.state_dict() for _ in range(1000)]) / 1000
    return {"ids_per_second": count / min(seconds), "first": first, "state": state, "growth": growth}


def check_ids(sampler: ts.Sampler, n: int, count: int) -> None:
    """The first ids of an epoch are distinct and in range; all of them, where all are taken."""
    taken: list[Any] = []
    for ids in sampler:
        taken.append(ids)
        if sum(map(len, taken)) >= count:
            break
    ids = np.unique(np.concatenate(taken))
    assert len(ids) == sum(map(len, taken))
    assert ids[0] >= 0
    assert ids[-1] < n
    assert count < n or np.array_equal(ids, np.arange(n))


# Weights, times and mixes


def further(quick: bool) -> None:
    """Ids per second, the cost of making, and the memory of the orders that hold a table or have components."""
    print(f"\nfurther orders: batches of {BATCH} ids, best of 5; making and its memory; growth from the first id on")
    powers = {"weighted": (6, 8), "by time": (6, 8), "mix of 4": (6, 8, 12), "mix of 1000": (6, 8, 12)}
    for name, own in powers.items():
        for power in own:
            n = 10 ** min(power, 6) if quick and power < 12 else 10**power
            told = in_fresh_process(further_case, name, n, 1 << (18 if quick else 22))
            print(
                f"    {name:13s} {n:>17,d} windows  {told['ids_per_second'] / 1e6:7.1f} M ids/s  made in "
                f"{told['making']:6.2f} s with {megabytes(told['held'])}  then {megabytes(told['growth'])}"
            )


def further_case(name: str, n: int, count: int) -> dict[str, Any]:
    source = np.random.default_rng(0).random(n, np.float32) if name == "weighted" else None
    ordering_of(name, 10**4, source)  # the code is in memory
    held = grown(lambda: ordering_of(name, n, source))
    began = time.perf_counter()
    made = ordering_of(name, n, source)
    making = time.perf_counter() - began

    def take(epoch: int) -> int:
        sampler, taken = ts.Sampler(n, BATCH, order=made, steps=count // BATCH), 0
        sampler.set_epoch(epoch)
        for ids in sampler:
            taken += len(ids)
        return taken

    growth = grown(lambda: take(0))
    seconds = min(best(lambda k=k: take(k), 1) for k in range(1, 6))  # type: ignore[misc]
    return {"ids_per_second": take(0) / seconds, "making": making, "held": held, "growth": growth}


@dataclass
class Made:
    """An order that was made before."""

    order: Order

    def bind(self, _: Any) -> Order:
        return self.order


def ordering_of(name: str, n: int, weights: Any) -> Any:
    """The order of `n` windows: of weights, of cross-sections of 500, or of components from n / 10 up."""
    if name == "weighted":
        return Made(ts.Weighted(weights[:n]).bind(Count(n)))
    if name == "by time":
        table = sections(lambda ids: ids % max(1, n // 500), n)
        return Made(ByTimeOrder(table, shuffle=True))
    count = int(name.removeprefix("mix of "))
    parts = np.diff(np.linspace(0, n, count + 1).astype(np.int64)).tolist()
    of = components({f"part {k}": size for k, size in enumerate(parts)})
    return Made(MixedOrder(of, n, shuffle=True))


def mixing(quick: bool) -> None:
    """GB/s of whole loaders over one stash, and over as many rows in 4 and in 1,000 stashes, which take turns."""
    rows, batch, length = (400_000 if quick else 20_000_000), 1024, 120
    table = (torch.arange(rows)[:, None] * COLUMNS + torch.arange(COLUMNS)) % (1 << 24)

    def windows(low: int, high: int) -> ts.Windows:
        return ts.Windows(ts.load({f"c{k}": table[low:high, k].float() for k in range(COLUMNS)}), history=length)

    def mix(count: int) -> ts.Mix:
        edges = np.linspace(0, rows, count + 1).astype(int).tolist()
        return ts.Mix({f"part {k}": windows(low, high) for k, (low, high) in enumerate(pairwise(edges))})

    sources: dict[str, ts.Windows | ts.Mix] = {
        "one stash": windows(0, rows),
        "4 stashes": mix(4),
        "1,000 stashes": mix(1000),
    }
    steps, nbytes = (3 if quick else 60), batch * length * COLUMNS * 4
    running = {name: endless(ts.Loader(source, batch, shuffle=True, seed=1)) for name, source in sources.items()}
    first = {}
    for name, batches in running.items():
        first[name] = spend(batches, 1)
        made = next(batches)["c0"]  # consecutive rows of one stash
        assert torch.equal(made, (made[:, :1].long() + COLUMNS * torch.arange(length)).fmod(1 << 24).float())
        spend(batches, steps)
    rounds = [{name: spend(batches, steps) / steps for name, batches in running.items()} for _ in range(15)]
    print(f"\nmixing: {batch} windows of {length} rows x {COLUMNS} float32, {rows:,} rows; medians of 15 rounds")
    for name in running:
        ratio = statistics.median(one[name] / one["one stash"] for one in rounds)
        spent = statistics.median(one[name] for one in rounds)
        print(
            f"    {name:13s} {ratio:5.2f} times the time  {nbytes / spent / 1e9:5.2f} GB/s  "
            f"first batch {1e3 * first[name]:6.1f} ms"
        )


# Blocks against shuffled windows


def gathering(quick: bool) -> None:
    """GB/s of whole loaders, one order each, which take turns in short rounds."""
    rows = 1_000_000 if quick else 20_000_000
    table = (torch.arange(rows)[:, None] * COLUMNS + torch.arange(COLUMNS)) % (1 << 24)
    stash = ts.load({f"c{k}": table[:, k].float() for k in range(COLUMNS)})
    del table
    for batch, length in ((1024, 120), (64, 32)):
        windows = ts.Windows(stash, history=length)
        orders = {"shuffled": {"shuffle": True}, f"blocks of {batch}": {"order": ts.Blocks(batch)}, "sequential": {}}
        check_batches(windows, batch, orders)
        nbytes = batch * length * COLUMNS * 4
        print(f"\ngathering: {batch} windows of {length} rows x {COLUMNS} float32, {rows:,} rows; medians of 15 rounds")
        for threads in dict.fromkeys((1, torch.get_num_threads())):
            compare(windows, batch, orders, nbytes, threads)


def check_batches(windows: ts.Windows, batch: int, orders: dict[str, Any]) -> None:
    """A few batches of each loader are the slices that their ids say."""
    for order in orders.values():
        loader = ts.Loader(windows, batch, **order, seed=1, with_ids=True)
        for _, made in zip(range(3), loader):
            for k in (0, batch // 2, batch - 1):
                start = int(made["window"][k])
                for name, column in windows.stash.items():
                    assert torch.equal(made[name][k], column[start : start + windows.length])


def compare(windows: ts.Windows, batch: int, orders: dict[str, Any], nbytes: int, threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    steps = max(20, 200_000_000 // nbytes)
    running = {name: endless(ts.Loader(windows, batch, **order, seed=1, tail="drop")) for name, order in orders.items()}
    for batches in running.values():
        spend(batches, steps)
    rounds = [{name: spend(batches, steps) / steps for name, batches in running.items()} for _ in range(15)]
    for name in running:
        ratio = statistics.median(round_["shuffled"] / round_[name] for round_ in rounds)
        spent = statistics.median(round_[name] for round_ in rounds)
        low, high = min(round_[name] for round_ in rounds), max(round_[name] for round_ in rounds)
        print(
            f"    {threads} threads  {name:15s} {ratio:5.2f} of shuffled  {nbytes / spent / 1e9:5.2f} GB/s  "
            f"(rounds {nbytes / high / 1e9:.2f} to {nbytes / low / 1e9:.2f})"
        )
    torch.set_num_threads(before)


def endless(loader: ts.Loader) -> Iterator[dict[str, torch.Tensor]]:
    while True:
        yield from loader


def spend(batches: Iterator[dict[str, torch.Tensor]], steps: int) -> float:
    began = time.perf_counter()
    for _ in range(steps):
        next(batches)
    return time.perf_counter() - began


# Masked against strided windows


def masking(quick: bool) -> None:
    """Whole loaders over windows with empty slots, against the same rows without a time: ratio by share of gaps."""
    rows, batch, length = (200_000 if quick else 5_000_000), 1024, 120
    table = (torch.arange(rows)[:, None] * COLUMNS + torch.arange(COLUMNS)) % (1 << 24)
    columns = {f"c{k}": table[:, k].float() for k in range(COLUMNS)}
    strided = ts.Windows(ts.load(columns), history=length)
    print(f"\nmasking: {batch} windows of {length} slots x {COLUMNS} float32, {rows:,} rows; medians of 15 rounds")
    for every in (rows, 10_000, 1_000, 100):
        times = torch.arange(rows) + torch.arange(rows) // every
        masked = ts.Windows(ts.load(columns | {"t": times}, [*columns], time="t"), history=length, gaps="mask")
        share = check_masked(masked, every)
        steps = 5 if quick else 30
        running = {way: endless(ts.Loader(way, batch, shuffle=True, seed=1)) for way in (masked, strided)}
        for batches in running.values():
            spend(batches, steps)
        rounds = [{way: spend(batches, steps) / steps for way, batches in running.items()} for _ in range(15)]
        ratio = statistics.median(one[masked] / one[strided] for one in rounds)
        spent = {way: 1000 * statistics.median(one[way] for one in rounds) for way in running}
        print(
            f"    {share:4.0%} of the windows with empty slots: {ratio:5.2f} times the time, "
            f"{spent[masked]:.2f} ms and {spent[strided]:.2f} ms a batch"
        )


def check_masked(windows: ts.Windows, every: int) -> float:
    """Each slot holds its row or nothing, in a sample of windows; the share of them that have an empty slot."""
    ids = torch.from_numpy(np.random.default_rng(0).integers(0, len(windows), 2000))
    batch = windows[ids]
    slots = ids[:, None] + torch.arange(windows.length)
    empty = slots % (every + 1) == every
    row = slots - (slots + 1) // (every + 1)
    for k in range(COLUMNS):
        expected = ((row * COLUMNS + k) % (1 << 24)).float().masked_fill(empty, float("nan"))
        assert torch.equal(batch[f"c{k}"].nan_to_num(-1), expected.nan_to_num(-1))
        assert torch.equal(batch[f"c{k}.observed"], ~empty)
    return float(empty.any(1).float().mean())


# Building windows


@dataclass(frozen=True)
class Series:
    """Entities of equally many rows, with a gap in time after every so many rows of each."""

    entities: int
    rows: int  # of each entity
    whole: int  # rows from one gap to the next

    def stash(self) -> ts.Stash:
        """Integer times, `y` float16 with a NaN in the middle between gaps, `week` true for 120 rows of 168."""
        t = np.tile(np.arange(self.rows), self.entities)
        t += t // self.whole
        y = np.ones(len(t), np.float16)
        y[self.whole // 2 :: self.whole] = np.nan
        week = np.tile(np.arange(168) < 120, len(t) // 168 + 1)[: len(t)]
        source: dict[str, Any] = {"t": t, "y": y, "week": week}
        if self.entities > 1:
            source["e"] = np.repeat(np.arange(self.entities), self.rows)
        return ts.load(source, ["y", "week"], entity="e" if self.entities > 1 else None, time="t")


def plain(stash: ts.Stash, length: int) -> ts.Windows:
    return ts.Windows(stash, length - 2, 2, columns=["y"])


def without_frequency(stash: ts.Stash, length: int) -> ts.Windows:
    return ts.Windows(stash, length - 2, 2, columns=["y"], frequency=1)


def required(stash: ts.Stash, length: int) -> ts.Windows:
    return ts.Windows(stash, length - 2, 2, columns=["y"], require=["y"])


def anchored(stash: ts.Stash, length: int) -> ts.Windows:
    return ts.Windows(stash, length - 2, 2, columns=["y"], where="week")


def masked(stash: ts.Stash, length: int) -> ts.Windows:
    return ts.Windows(stash, length - 2, 2, columns=["y"], gaps="mask")


WAYS = {
    "Windows": plain,
    "frequency=1": without_frequency,
    'require=["y"]': required,
    'where="week"': anchored,
    'gaps="mask"': masked,
}


def building(quick: bool) -> None:
    """Seconds and temporary memory of `Windows` and of its splits."""
    shrink = 100 if quick else 1
    cases = {
        "1 M entities of 20 rows": (Series(1_000_000 // shrink, 20, 20), 8),
        "10^8 rows, 10^5 gaps": (Series(1, 10**8 // shrink, 1000), 96),
    }
    for title, (series, length) in cases.items():
        print(f"\nbuilding windows of {length} rows: {title}{' / 100' if quick else ''}; best of 5, then memory")
        for line in in_fresh_process(building_case, series, length)["lines"]:
            print(f"    {line}")


def building_case(series: Series, length: int) -> dict[str, Any]:
    stash = series.stash()
    assert stash.time is not None
    fault_in = (int(stash.time.sum()), int(stash["week"].sum()), int(stash["y"].view(torch.int16).sum()))
    assert fault_in[1] > 0
    plain(ts.load({"t": np.arange(100), "y": np.zeros(100)}, time="t"), 10)  # the code is in memory
    lines = []
    windows = plain(stash, length)
    assert len(windows) == series.entities * (series.rows // series.whole) * (series.whole - length + 1)
    ways: dict[str, Callable[[], ts.Windows]] = {
        name: lambda way=way: way(stash, length)  # type: ignore[misc]
        for name, way in WAYS.items()
    }
    ways["split"] = lambda: windows.split(series.rows // 2)[0]
    ways["split_fraction"] = lambda: windows.split_fraction(0.8)[0]
    if series.entities > 1:
        ways["split_entities"] = lambda: windows.split_entities(0.8)[0]
    for name, way in ways.items():
        growth, seconds = grown(way), best(way)
        made = way()
        result = nbytes_of(made)
        same_runs = made.placement.slots is windows.placement.slots
        shared = nbytes_of(windows) - nbytes_of(windows, runs=False) if same_runs else 0
        above = None if growth is None else growth - result + shared
        lines.append(
            f"{name:15s} {seconds:6.3f} s  {len(made):11,d} windows  {result / 1e6:6.1f} MB held, "
            f"{megabytes(above)} above that at the peak"
        )
    return {"lines": lines}


def nbytes_of(windows: ts.Windows, runs: bool = True) -> int:
    """Bytes of the arrays that windows consist of; parts of windows share their runs."""
    within = windows.placement.intervals
    slots = windows.placement.slots
    of_runs = slots.first.nbytes + slots.rows.nbytes + slots.joined.nbytes if runs else 0
    return within.guide.records.nbytes + within.guide.table.nbytes + of_runs


SECTIONS: dict[str, Callable[[bool], None]] = {
    "orders": orders,
    "further": further,
    "mixing": mixing,
    "gathering": gathering,
    "masking": masking,
    "building": building,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small, to see that it runs")
    parser.add_argument("--only", choices=SECTIONS, help="run one section")
    given = parser.parse_args()
    print(f"torch {torch.__version__}, numpy {np.__version__}, {torch.get_num_threads()} threads")
    for name, section in SECTIONS.items():
        if given.only in (None, name):
            section(given.quick)


if __name__ == "__main__":
    main()
