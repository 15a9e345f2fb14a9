"""The Loader's whole loop beside the raw gather of PyTorch, `memcpy`, and the fastest lines by hand.

    python benchmarks/bench_batch.py                 # about two minutes on two cores, 4 GB
    python benchmarks/bench_batch.py --only hand     # one section; nothing is saved
    python benchmarks/bench_batch.py --quick

10 M rows of 8 float32 columns, one thread where nothing else is said. The raw gather is one `index_select` of a strided
view for all columns, with positions that were computed before, into one reused result. `memcpy` copies as many bytes in
one piece, from a source larger than the caches. The kernel without its prefetches is compiled for this run. Every
contestant draws fresh random windows, and its results are checked before it is timed.
"""

import importlib.util
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import known
import numpy as np
import record
import torch
from contestants.hand import CHUNK, selecting
from timing import Rounds, Turn, endless, rounds_of, taking

import tensorstash as ts
from tensorstash.native import library

COLUMNS = known.COLUMNS
LINE = 64  # bytes of a line of the cache
NO_PREFETCH = "-D__builtin_prefetch(...)=((void)0)"

Batch = dict[str, torch.Tensor]
Batches = Iterator[Batch]


@dataclass(frozen=True)
class Effort:
    """How much is measured: rows of the stash, rounds, and the bytes that each contestant reads in a round."""

    rows: int = 10_000_000
    rounds: int = 15
    nbytes: int = 120_000_000  # enough to hide the clock, few enough to alternate often


QUICK = Effort(rows=300_000, rounds=1, nbytes=0)


@dataclass(frozen=True)
class Case:
    """A stash, and the windows and batches that all contestants make of it."""

    stash: ts.Stash
    batch: int
    length: int  # rows of a window

    @property
    def is_packed(self) -> bool:
        return len(self.stash) == 1

    @property
    def layout(self) -> str:
        return "packed" if self.is_packed else "separate"

    @property
    def nbytes(self) -> int:
        return self.batch * self.length * COLUMNS * 4

    @property
    def touched(self) -> int:
        """Bytes of the lines of the cache that a batch is read from."""
        row, count = (COLUMNS, 1) if self.is_packed else (1, COLUMNS)
        return count * self.batch * max(LINE, self.length * row * 4)

    def steps(self, nbytes: int) -> int:
        """Batches that read so many bytes together."""
        return max(8, nbytes // self.touched)


# The contestants


def loop(case: Case) -> Batches:
    """The whole loop: order, look-up, gather, recycled memory."""
    windows = ts.Windows(case.stash, history=case.length)
    yield from endless(ts.Loader(windows, case.batch, shuffle=True, tail="drop"))


def side_by_side(stash: ts.Stash) -> tuple[torch.Tensor, int]:
    """The memory of all columns as integers of 4 bytes, and how many of them lie between the beginnings of two."""
    entries = [stash.segment.tensors[name] for name in stash]
    first, stop = min(one.start for one in entries), max(one.start + one.nbytes for one in entries)
    items = stash.segment.items(first, (stop - first) // 4, torch.int32)
    return items, (sorted(one.start for one in entries)[-1] - first) // 4 // max(1, len(entries) - 1)


def raw_gather(case: Case) -> Batches:
    """`index_select` into one reused result: one call for a pack, one for all separate columns."""
    items, stride = side_by_side(case.stash)
    row, count = (COLUMNS, 1) if case.is_packed else (1, COLUMNS)
    view = items.as_strided((len(items) // row - case.length + 1, case.length * row), (row, 1))
    columns = torch.arange(count)[:, None] * stride
    generator = torch.Generator().manual_seed(0)
    ready = [
        (columns + torch.randint(case.stash.rows - case.length + 1, (case.batch,), generator=generator)).view(-1)
        for _ in range(case.steps(400_000_000))  # more than the caches hold
    ]
    out = torch.empty((count * case.batch, case.length * row), dtype=torch.int32)
    result = out.view(torch.float32)
    names = [*case.stash]
    batch = dict(zip(names, result.view(count, case.batch, case.length, *[row] * case.is_packed)))
    while True:
        for places in ready:
            torch.index_select(view, 0, places, out=out)
            yield batch


def memcpy(case: Case) -> Batches:
    """The bytes of a batch in one piece, each time from elsewhere in the columns."""
    (source, _), count = side_by_side(case.stash), case.nbytes // 4
    out, begin = torch.empty(count, dtype=torch.int32), 0
    while True:
        out.copy_(source[begin : begin + count])
        begin = (begin + 5 * count) % (len(source) - count)
        yield {"x": out.view(torch.float32).view(case.batch, case.length, COLUMNS)}


def with_library(batches: Batches, other: Any) -> Batches:
    """Each batch with another kernel, or with none."""
    while True:
        found, library.LIBRARY = library.LIBRARY, other
        try:
            batch = next(batches)
        finally:
            library.LIBRARY = found
        yield batch


def without_prefetches(folder: str) -> Any:
    """The kernel as it is, except that it does not ask for rows ahead; `None` without a compiler."""
    if importlib.util.find_spec("hatchling") is None or library.LIBRARY is None:
        return None
    sys.path.append(str(Path(__file__).parents[1]))
    from hatch_build import build

    target = Path(folder) / "gather.so"
    return None if build(target, NO_PREFETCH, "-w") else library.load(str(target))[0]


def in_spans(case: Case) -> Batches:
    """The same windows as a past of 96 slots and a future, by a loader."""
    spans = {"past": ("x", -96, 0), "future": ("x", 0, case.length - 96)}
    windows = ts.Windows(case.stash, spans=spans, require=[*spans])
    yield from endless(ts.Loader(windows, case.batch, shuffle=True, tail="drop"))


def chunked(case: Case, *, spans: bool = False, compiled: bool = False) -> Batches:
    """By hand: a pack in huge pages, one call into reused memory for 1,024 windows, then views of it.

    The call is `index_select`, or a loop that numba has compiled.
    """
    source = torch.from_numpy(case.stash["x"].numpy().copy())
    view = source.as_strided((case.stash.rows - case.length + 1, case.length * COLUMNS), (COLUMNS, 1))
    gather = importlib.import_module("contestants.numba").gathering(source) if compiled else selecting(view)
    chunk, generator = max(case.batch, CHUNK), torch.Generator().manual_seed(0)
    results = [torch.from_numpy(np.empty((chunk, view.shape[1]), np.float32)) for _ in range(2)]  # one may be held
    while True:
        for result in results:
            gather(torch.randint(len(view), (chunk,), generator=generator), result)
            for batch in result.view(-1, case.batch, case.length, COLUMNS).unbind():
                yield {"past": batch[:, :96], "future": batch[:, 96:]} if spans else {"x": batch}


def contest(contestants: dict[str, Batches], steps: int, rounds: int) -> Rounds:
    """Check the first batches of each, all but those of `memcpy`, and let them take turns."""
    turns: dict[str, Turn] = {}
    for name, batches in contestants.items():
        for _ in range(3):
            batch = next(batches)
            if name != "memcpy":
                known.check(batch)
        turns[name] = taking(batches, steps)
    return rounds_of(turns, rounds)


# The sections


def loops(effort: Effort) -> Iterator[record.Row]:
    """The loop beside the raw gather and memcpy, with its kernel, without its prefetches, and without it."""
    with tempfile.TemporaryDirectory() as folder:
        plain = without_prefetches(folder)
        for stash in (known.separate(effort.rows), known.packed(effort.rows)):
            for batch, length in ((1024, 120), (256, 336), (1024, 1), (64, 32)):
                case = Case(stash, batch, length)
                contestants = {"loop": loop(case), "raw gather": raw_gather(case), "memcpy": memcpy(case)}
                if plain is not None:
                    contestants["loop, no prefetches"] = with_library(loop(case), plain)
                contestants["loop, no kernel"] = with_library(loop(case), None)
                found = contest(contestants, case.steps(effort.nbytes), effort.rounds)
                title = f"{batch:,} x {length}, {case.layout}"
                found.show(title)
                yield found.row(section="The whole loop", case=title, layout=case.layout, batch=batch, length=length)


def sizes(effort: Effort) -> Iterator[record.Row]:
    """The loop by the number of windows of a batch."""
    stash = known.packed(effort.rows)
    for batch in (16, 64, 256, 1024, 4096, 16384):
        case = Case(stash, batch, 120)
        found = contest({"loop": loop(case), "raw gather": raw_gather(case)}, case.steps(effort.nbytes), effort.rounds)
        found.show(f"{batch:,} windows of 120 rows, packed: {batch / found.median('loop'):,.0f} windows/s")
        yield found.row(section="Windows per batch", case=f"{batch:,} x 120, packed", batch=batch)


def hand(effort: Effort) -> Iterator[record.Row]:
    """Small to large batches beside chunks by hand; rounds are long, because torch's threads spin after theirs."""
    stash, before = known.packed(effort.rows), torch.get_num_threads()
    is_compiled = importlib.util.find_spec("numba") is not None
    for threads in range(1, min(2, os.cpu_count() or 1) + 1):
        torch.set_num_threads(threads)
        for spans in (False, True):
            for batch in (32, 128, 1024, 4096):
                case = Case(stash, batch, 120)
                contestants = {"loop": in_spans(case) if spans else loop(case)}
                contestants["index_select in chunks"] = chunked(case, spans=spans)
                if is_compiled:
                    contestants["numba in chunks"] = chunked(case, spans=spans, compiled=True)
                found = contest(contestants, case.steps(3 * effort.nbytes), effort.rounds // 2 + 1)
                title = f"{batch:,} windows, {'past and future' if spans else 'one span'}, threads: {threads}"
                found.show(f"by hand: {title}")
                yield found.row(section="By hand", case=title, batch=batch, spans=1 + spans, threads=threads)
    torch.set_num_threads(before)


def empty_slots(effort: Effort) -> Iterator[record.Row]:
    """A loop over windows that all have empty slots, beside one over windows without any."""
    rows, rng = effort.rows, np.random.default_rng(0)
    missing = np.zeros(rows + 20, np.int64)
    missing[np.arange(0, rows, 20) + rng.integers(0, 20, len(range(0, rows, 20)))] = 1  # so that no window is whole
    times = np.cumsum(1 + missing[:rows])  # one step of time in twenty is missing
    columns = {f"c{k}": rng.random(rows, np.float32) for k in range(COLUMNS)}
    stash = ts.load({"t": times, **columns}, list(columns), time="t")
    made = {}
    ways: dict[str, Literal["ignore", "mask"]] = {"with empty slots": "mask", "whole": "ignore"}
    for name, gaps in ways.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            made[name] = ts.Windows(stash, history=120, gaps=gaps)
    own, ids = made["with empty slots"], rng.integers(0, len(made["with empty slots"]), 100)
    for window, last in zip(own[ids]["c3"], own.anchors(ids)["time"].tolist()):
        slots = np.arange(last - 119, last + 1)
        at = np.searchsorted(times, slots).clip(max=rows - 1)
        expected = np.where(times[at] == slots, columns["c3"][at], np.nan)
        assert np.isnan(expected).any()
        assert np.array_equal(window.numpy(), expected, equal_nan=True)
    turns = {name: taking(endless(ts.Loader(one, 1024, shuffle=True)), 40) for name, one in made.items()}
    found = rounds_of(turns, effort.rounds)
    found.show("1,024 windows of 120 slots, separate columns, some empty in each")
    yield found.row(section="Empty slots", case="1,024 x 120, separate")


SECTIONS: dict[str, Callable[[Effort], Iterator[record.Row]]] = {
    "loops": loops,
    "sizes": sizes,
    "hand": hand,
    "empty": empty_slots,
}


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("--only", choices=SECTIONS, help="one section; nothing is saved")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "Batches are gathered without the compiled kernel")
    print(library.why())
    effort = QUICK if options.quick else Effort()
    chosen = [options.only] if options.only else [*SECTIONS]
    rows = [row for name in chosen for row in SECTIONS[name](effort)]
    if not options.only:
        print(f"\nSaved in {record.save('bench_batch', rows, quick=options.quick)}")


if __name__ == "__main__":
    main()
