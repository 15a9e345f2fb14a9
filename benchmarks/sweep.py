"""How the loop scales: windows/s along one axis at a time, relative to the raw gather on the same rows.

    python benchmarks/sweep.py            # about seven minutes, 5 GB
    python benchmarks/sweep.py --quick    # small, to see that it runs

The raw gather is `index_select` of a strided view into one reused result, at random rows, with the positions computed
before. It is the cost of a loop that neither finds its windows nor gives its batches away. At every point a batch of
the Loader is compared with plain slices first. Then loop and raw gather take turns in short rounds; the ratio is the
median over the rounds. The kernel's own gather of random rows takes turns with them too, and a point that is further
from it than we want is told. torch has one thread, except along the axis of threads. Each value encodes its column and
row.
"""

import argparse
import json
import os
import secrets
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import record
import torch
from team import Team, held, weigh

import tensorstash as ts
from tensorstash.native import kernel

ROUNDS = 9
NATIVE = 0.6  # the least ratio to the bare native gather that we want, for batches of at least `LARGE` bytes
LARGE = 256 << 10
OVER = 9.0  # microseconds, the most beyond the native gather for smaller ones
SECONDS = 0.15  # of the loop in one round
LABEL = "sweep"


@dataclass(frozen=True)
class Case:
    """The data of one point, and how it is cut into batches."""

    stash: ts.Stash
    batch: int = 1024
    length: int = 120
    replicas: int = 1
    rank: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of a batch."""
        items = sum(column[0].numel() * column.itemsize for column in self.stash.values())
        return self.batch * self.length * items


# The data


def values(rows: int, columns: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """`(rows, columns)`: what stands in row r, column c follows from r and c, and is exact in the dtype."""
    table = torch.empty((rows, columns), dtype=dtype)
    step = (1 << 22) // columns
    for begin in range(0, rows, step):
        end = min(begin + step, rows)
        table[begin:end] = value(torch.arange(begin, end)[:, None], torch.arange(columns), dtype)
    return table


def value(row: torch.Tensor, column: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A number that neighbouring rows and columns do not share: 15 bits of a product with an odd constant."""
    return (((row * 97 + column * 7919 + 1) * 2654435761 >> 16) & 0x7FFF).to(dtype)


def separate(rows: int, columns: int = 8, entities: int = 1) -> ts.Stash:
    table = values(rows, columns)
    named = {f"c{k}": table[:, k] for k in range(columns)}
    if entities == 1:
        return ts.load(named)
    return ts.load({**named, "entity": np.arange(rows) // (rows // entities)}, [*named], entity="entity")


def packed(rows: int, columns: int = 8, dtype: torch.dtype = torch.float32) -> ts.Stash:
    return ts.load({"x": values(rows, columns, dtype)})


# Both sides


def loop(case: Case) -> Iterator[dict[str, torch.Tensor]]:
    """The whole Loader loop: order, lookup, gather, recycled memory."""
    windows = ts.Windows(case.stash, history=case.length)
    loader = ts.Loader(
        windows, case.batch, shuffle=True, tail="drop", prefetch=0, num_replicas=case.replicas, rank=case.rank
    )
    while True:
        yield from loader


def bare(case: Case) -> Callable[[int], float]:
    """Seconds of so many gathers at random rows; the positions are made ready before the clock starts."""
    (block,) = case.stash.blocks
    row = block.items.numel() // case.stash.rows if len(block.names) == 1 else 1
    view = block.items.as_strided((len(block.items) // row - case.length + 1, case.length * row), (row, 1))
    columns = torch.arange(len(block.names))[:, None] * (block.stride // row)
    out = torch.empty((len(block.names) * case.batch, case.length * row), dtype=block.items.dtype)
    generator = torch.Generator().manual_seed(case.rank)

    def gather(steps: int) -> float:
        starts = torch.randint(case.stash.rows - case.length + 1, (steps, case.batch), generator=generator)
        ready = [(columns + some).view(-1) for some in starts]
        began = time.perf_counter()
        for places in ready:
            torch.index_select(view, 0, places, out=out)
        return time.perf_counter() - began

    return gather


def bare_native(case: Case) -> Callable[[int], float] | None:
    """The same by the kernel, if it is there: gathers at random rows into one reused result, in one call each."""
    (plan,) = ts.Windows(case.stash, history=case.length).chain.plans
    native = plan.executor
    if not isinstance(native, kernel.Compiled):
        return None
    spans = [case.batch * case.length * column[0].nbytes for column in case.stash.values()]
    out = torch.empty(sum(spans), dtype=torch.uint8)
    rng = np.random.default_rng(case.rank)

    def gather(steps: int) -> float:
        to = [out.data_ptr() + begin for begin in np.cumsum([0, *spans[:-1]]).tolist()]
        ready = rng.integers(case.length, case.stash.rows + 1, (steps, case.batch))
        began = time.perf_counter()
        for anchors in ready:
            kernel.gather(native, anchors, to)
        return time.perf_counter() - began

    return gather


def timed(batches: Iterator[object], steps: int) -> float:
    """Seconds of so many steps of the loop."""
    began = time.perf_counter()
    for _ in range(steps):
        next(batches)
    return time.perf_counter() - began


def verify(case: Case) -> None:
    """The windows of a batch are the rows that their numbers say, with the values that these rows were given."""
    windows = ts.Windows(case.stash, history=case.length)
    each = case.stash.rows // (len(case.stash.offsets) - 1)
    batch = next(iter(ts.Loader(windows, case.batch, shuffle=True, with_ids=True)))
    ids = batch["window"]
    assert len(windows) == (len(case.stash.offsets) - 1) * (each - case.length + 1)
    assert len(set(ids.tolist())) == min(case.batch, len(windows))
    rows = (ids + ids // (each - case.length + 1) * (case.length - 1))[:256, None] + torch.arange(case.length)
    for k, (name, column) in enumerate(case.stash.items()):
        expected = value(rows[..., None], torch.arange(column[0].numel()) + k, column.dtype)
        assert torch.equal(batch[name][:256].reshape(expected.shape), expected), name


def point(quick: bool, axis: str, at: int, case: Case, layout: str) -> record.Row:
    """One row of the results, printed."""
    verify(case)
    batches, gather, native = loop(case), bare(case), bare_native(case)
    timed(batches, 3)
    if native is not None:
        native(3)  # the pages of its result are there
    steps = 3 if quick else max(3, int(SECONDS / (timed(batches, 3) / 3)))
    rounds, over = [], []
    for _ in range(3 if quick else ROUNDS):
        rounds.append((timed(batches, steps), gather(steps)))
        if native is not None:
            over.append((rounds[-1][0] / steps, native(steps) / steps))
    spent = statistics.median(ours for ours, _ in rounds) / steps
    found: record.Row = {
        "axis": axis,
        "value": at,
        "layout": layout,
        "batch": case.batch,
        "length": case.length,
        "threads": torch.get_num_threads(),
        "windows_per_s": case.batch / spent,
        "bare_windows_per_s": case.batch * steps / statistics.median(other for _, other in rounds),
        "gb_per_s": case.nbytes / spent / 1e9,
        "ratio": statistics.median(other / ours for ours, other in rounds),
        "us_per_batch": spent * 1e6,
    }
    if over:
        found["native_ratio"] = statistics.median(other / ours for ours, other in over)
        found["us_over_native"] = statistics.median(ours - other for ours, other in over) * 1e6
    tell(found)
    if over and found["threads"] == 1 and not meets(case.nbytes, found["native_ratio"], found["us_over_native"]):
        print(
            f"{'':18}short of the target: {NATIVE} of the native gather, or below {LARGE:,} bytes {OVER:.0f} us over it"
        )
    return found


def meets(nbytes: int, ratio: float, over: float) -> bool:
    """Whether a point is as near to the bare native gather as we want the loop to be."""
    return ratio >= NATIVE if nbytes >= LARGE else over <= OVER


def tell(row: record.Row) -> None:
    sum_of_pss = native = ""
    if "native_ratio" in row:
        native = f"  {row['native_ratio']:.2f} of the native gather, {row['us_over_native']:5.1f} us over it"
    if "pss_mb" in row:
        sum_of_pss = (
            f"  PSS of all {row['pss_mb']:,.0f} MB, of the segment {row['segment_mb'] / row['copy_mb']:.3f} copies"
        )
    print(
        f"    {row['axis']:12} {row['value']:>13,}  {row['layout']:10} {row['ratio']:5.2f} of raw   "
        f"{row['windows_per_s']:11,.0f} windows/s  {row['gb_per_s']:6.2f} GB/s{native}{sum_of_pss}",
        flush=True,
    )


# The axes


def threads(quick: bool) -> Iterator[record.Row]:
    rows = 100_000 if quick else 10_000_000
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    counts = sorted({min(2**k, cores) for k in range(10)})
    for layout, stash in ("separate", separate(rows)), ("packed", packed(rows)):
        for count in counts:
            torch.set_num_threads(count)
            yield point(quick, "threads", count, Case(stash), layout)
    torch.set_num_threads(1)


def batches_and_lengths(quick: bool) -> Iterator[record.Row]:
    rows = 100_000 if quick else 10_000_000
    for layout, stash in ("separate", separate(rows)), ("packed", packed(rows)):
        for batch in (64, 1024) if quick else (16, 64, 256, 1024, 4096, 16384):
            yield point(quick, "batch size", batch, Case(stash, batch), layout)
        for length in (8, 128) if quick else (1, 8, 32, 128, 512, 2048):
            yield point(quick, "length", length, Case(stash, 256, length), layout)


def columns(quick: bool) -> Iterator[record.Row]:
    for count in (1, 4) if quick else (1, 2, 4, 8, 16, 32, 64):
        rows = 50_000 if quick else 4_000_000
        yield point(quick, "columns", count, Case(separate(rows, count), 256), "separate")
        yield point(quick, "columns", count, Case(packed(rows, count), 256), "packed")


def windows(quick: bool) -> Iterator[record.Row]:
    """Up to 10^9 windows of one column of 2 bytes: few bytes in each, so that finding them is all but everything."""
    for power in (4, 5) if quick else (5, 6, 7, 8, 9):
        case = Case(packed(10**power + 119, 1, torch.int16), 4096)
        yield point(quick, "windows", 10**power, case, "int16")
        del case


def entities(quick: bool) -> Iterator[record.Row]:
    rows = 100_000 if quick else 10_000_000
    for power in (0, 2, 4) if quick else (0, 1, 2, 3, 4, 5, 6):
        yield point(quick, "entities", 10**power, Case(separate(rows, 8, 10**power), 1024, 8), "separate")


def ranks(quick: bool) -> Iterator[record.Row]:
    """Processes that share one segment, a thread each; each gathers its part of every step."""
    stash = packed(100_000 if quick else 32_000_000).share(LABEL)
    nbytes, copy = Case(stash).nbytes, stash.nbytes
    del stash
    steps, rounds = (3, 2) if quick else (200, 7)
    for size in (1, 2) if quick else (1, 2, 4, 8):
        with Team(size, __file__, "--serve", str(size)) as team:
            before = team.ask("weigh")
            team.ask("open {member}")
            found = [(max(team.ask(f"loop {steps}")), max(team.ask(f"bare {steps}"))) for _ in range(rounds)]
            after, segment = team.ask("weigh"), team.ask("held")
        spent = statistics.median(ours for ours, _ in found) / steps
        row: record.Row = {
            "axis": "ranks",
            "value": size,
            "layout": "packed",
            "batch": 1024,
            "length": 120,
            "threads": 1,
            "windows_per_s": size * 1024 / spent,
            "bare_windows_per_s": size * 1024 * steps / statistics.median(other for _, other in found),
            "gb_per_s": size * nbytes / spent / 1e9,
            "ratio": statistics.median(other / ours for ours, other in found),
            "us_per_batch": spent * 1e6,
            "copy_mb": copy / 1e6,
            "segment_mb": sum(segment),
            "pss_mb": sum(weight["pss"] for weight in after) - sum(weight["pss"] for weight in before),
        }
        tell(row)
        yield row
    ts.shared.remove(LABEL)


def serve(replicas: int) -> None:
    """One rank: do what each line of the input says, and answer with a line of JSON."""
    torch.set_num_threads(1)
    batches: Iterator[object] = iter(())
    gather: Callable[[int], float] = lambda _: 0.0  # noqa: E731
    for line in sys.stdin:
        answer: object = None
        match line.split():
            case ["open", rank]:
                case = Case(ts.attach(LABEL), replicas=replicas, rank=int(rank))
                verify(case)
                case.stash["x"].sum()  # every page of the segment is in the page tables of every rank
                batches, gather = loop(case), bare(case)
                timed(batches, 2)
            case ["loop", steps]:
                answer = timed(batches, int(steps))
            case ["bare", steps]:
                answer = gather(int(steps))
            case ["weigh"]:
                answer = weigh()
            case ["held"]:
                answer = held(str(case.stash.path))
        print(json.dumps(answer), flush=True)


AXES = {
    "threads": threads,
    "batches": batches_and_lengths,
    "columns": columns,
    "windows": windows,
    "entities": entities,
    "ranks": ranks,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small data, to see that it runs")
    parser.add_argument("--only", choices=AXES, help="one of the axes; nothing is saved")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    torch.set_num_threads(1)
    shared = Path("/dev/shm") / f"tensorstash-bench-{secrets.token_hex(4)}"
    os.environ["TENSORSTASH_DIR"] = str(shared)
    try:
        rows = [row for name in ([options.only] if options.only else AXES) for row in AXES[name](options.quick)]
    finally:
        shutil.rmtree(shared, ignore_errors=True)
    if not options.only:
        print(record.save("sweep", rows, quick=options.quick))


if __name__ == "__main__":
    main()
