"""What the native kernel does alone, beside torch, numpy and memcpy: times of one run, over columns larger than caches.

    python benchmarks/bench_native.py            # about a minute, 1 GB
    python benchmarks/bench_native.py --quick    # the same on little data, to see that it runs

Every result is compared with that of torch or numpy before it is timed. Contestants take turns in short rounds, on one
thread; medians, and ratios taken round by round. `memcpy` copies as many bytes in one piece, from a source that is
larger than the caches.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.native import kernel, library
from tensorstash.native.guide import guide, locate_in_numpy
from tensorstash.native.permutation import BLOCK, epoch_keys, grid, walk
from tensorstash.windows.intervals import intervals

COLUMNS = 8
CASES = (  # layout, windows of a batch, rows of a window
    ("separate", 1024, 120),
    ("packed", 1024, 120),
    ("separate", 256, 336),
    ("packed", 256, 336),
    ("separate", 1024, 1),
    ("separate", 64, 32),
)

Run = Callable[[int], object]  # of a round


def main() -> None:
    arguments = argparse.ArgumentParser(description="The native kernel beside torch, numpy and memcpy.")
    arguments.add_argument("--quick", action="store_true", help="little data and few rounds")
    quick = arguments.parse_args().quick
    print(library.why())
    if library.LIBRARY is None:
        return
    torch.set_num_threads(1)
    rows, rounds = (200_000, 3) if quick else (10_000_000, 11)
    packed = (torch.arange(rows)[:, None] * COLUMNS + torch.arange(COLUMNS)).remainder_(1 << 24).float()
    separate = packed.T.contiguous()
    for layout, size, length in CASES:
        gathers(f"{size} x {length} {layout}", [packed] if layout == "packed" else [*separate], size, length, rounds)
    masked([*separate], rounds)
    orders(rounds)
    lookups(10_000 if quick else 1_000_000, rounds)


def gathers(name: str, columns: list[torch.Tensor], size: int, length: int, rounds: int) -> None:
    """The native gather beside one `index_select` for all columns, and beside memcpy."""
    rows, row = len(columns[0]), columns[0][:1].numel()
    calls = max(4, 60_000_000 // (size * length * 32))
    rng = np.random.default_rng(0)
    anchors = rng.integers(0, rows - length + 1, (calls * 8, size))
    block = torch.as_strided(columns[0], (len(columns) * rows * row,), (1,))
    view = block.as_strided((len(columns) * rows - length + 1, length * row), (row, 1))
    offsets = torch.arange(len(columns))[:, None] * rows
    places = [(offsets + torch.from_numpy(at)).view(-1).to(torch.int32) for at in anchors]
    plan = compiled(columns, length, None, None)
    out, other = (torch.empty(len(columns) * size, length * row) for _ in range(2))
    to = addresses(out, len(columns))
    source = block.view(-1)
    nbytes = out.numel()

    def native(k: int) -> None:
        for i in range(calls):
            kernel.gather(plan, anchors[k % 8 * calls + i], to)

    def bare(k: int) -> None:
        for i in range(calls):
            torch.index_select(view, 0, places[k % 8 * calls + i], out=other)

    def memcpy(k: int) -> None:
        for i in range(calls):
            begin = (k % 8 * calls + i) * nbytes % (len(source) - nbytes)
            other.view(-1).copy_(source[begin : begin + nbytes])

    native(0)
    bare(0)
    assert torch.equal(out, other)
    times = measured([native, bare, memcpy], rounds)
    report(name, [t / calls * 1e6 for t in medians(times)], ["native", "index_select", "memcpy"], "us a batch", times)


def masked(columns: list[torch.Tensor], rounds: int, size: int = 1024, length: int = 120) -> None:
    """Every window with empty slots, beside windows without."""
    rows = len(columns[0])
    counts = np.full(rows // 50, 50)
    row = np.cumsum(counts) - counts
    first = row + 5 * np.arange(len(row))  # an empty stretch of five slots after every fifty rows
    ends = np.append(first[1:], first[-1] + 50)
    fragments = (first, row, counts)
    plan = compiled(columns, length, fragments, kernel.pieces(ends[:, None], *guide_of(ends)))
    strided = compiled(columns, length, None, None)
    anchors = np.random.default_rng(0).integers(0, rows - length, (128, size))
    out, seen = torch.empty(len(columns) * size, length), torch.empty(len(columns) * size, length, dtype=torch.bool)
    to, flags = addresses(out, len(columns)), addresses(seen, len(columns))
    flags[1:] = [0] * (len(flags) - 1)  # spans of the same slots have one tensor together

    def with_empty(k: int) -> None:
        for i in range(16):
            kernel.gather(plan, anchors[k % 8 * 16 + i], to, flags)

    def without(k: int) -> None:
        for i in range(16):
            kernel.gather(strided, anchors[k % 8 * 16 + i], to)

    with_empty(0)
    slots = anchors[15][:, None] + np.arange(length)
    k = np.searchsorted(ends, slots, "right")
    held = slots - first[k] < counts[k]
    expected = np.where(held, columns[0].numpy()[np.where(held, row[k] + slots - first[k], 0)], np.float32(np.nan))
    assert np.array_equal(out[:size].numpy(), expected, equal_nan=True)
    assert np.array_equal(seen[:size].numpy(), held)
    times = measured([with_empty, without], rounds)
    names = ["with empty slots", "without"]
    report(f"{size} x {length} separate", [t / 16 * 1e6 for t in medians(times)], names, "us a batch", times)


def orders(rounds: int, n: int = 10**12) -> None:
    keys = epoch_keys(0, 0)
    own = kernel.permutations(np.array([[n, *grid(n), *keys]], np.uint64))
    positions = np.random.default_rng(0).integers(0, n, BLOCK)
    assert np.array_equal(kernel.permute(own, positions), walk(positions, n, keys))
    times = measured([lambda _: kernel.permute(own, positions), lambda _: walk(positions, n, keys)], rounds)
    report("order of 10^12", [t / BLOCK * 1e9 for t in medians(times)], ["native", "numpy"], "ns an id", times)


def lookups(runs: int, rounds: int) -> None:
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 200, runs)
    within = intervals(np.cumsum(counts + 50) - counts, counts, 1)
    pieces = kernel.pieces(within.guide.records, within.guide.table, within.guide.shift)
    ids = rng.integers(0, len(within), (16, BLOCK))

    def native(k: int) -> NDArray[np.int64]:
        return kernel.locate(pieces, 1, ids[k % 16])

    def numpy(k: int) -> NDArray[np.int64]:
        return locate_in_numpy(within.guide, 1, ids[k % 16])

    assert np.array_equal(native(0), numpy(0))
    times = measured([native, numpy], rounds)
    name = f"look-up in {runs:,} runs"
    report(name, [t / BLOCK * 1e9 for t in medians(times)], ["native", "numpy"], "ns an id", times)


def compiled(
    columns: list[torch.Tensor],
    length: int,
    fragments: tuple[NDArray[Any], NDArray[Any], NDArray[Any]] | None,
    pieces: kernel.Pieces | None,
) -> kernel.Compiled:
    """One span of `length` slots from the anchor on, of each column; NaN where a slot is empty."""
    empty = int(np.float32(np.nan).view(np.uint32))
    spans = [kernel.SlotRange(0, length, 1, empty)] * len(columns)
    return kernel.compile_plan(
        spans, [kernel.Source([one.numpy() for one in columns], fragments, pieces)], history=0, horizon=length
    )


def guide_of(ends: NDArray[np.int64]) -> tuple[NDArray[np.int32], int]:
    whole = guide(ends[:, None])
    return whole.table, whole.shift


def addresses(tensor: torch.Tensor, spans: int) -> list[int]:
    """Where each of the equal pieces of a tensor begins."""
    return [part.data_ptr() for part in tensor.chunk(spans)]


def measured(runs: list[Run], rounds: int) -> list[list[float]]:
    """Seconds of each contestant in each round; none follows on another's data, which would be in the caches."""
    times: list[list[float]] = [[] for _ in runs]
    for k in range(rounds + 1):
        for which, (run, own) in enumerate(zip(runs, times)):
            began = time.perf_counter()
            run(k + 3 * which)
            own.append(time.perf_counter() - began)
    return [own[1:] for own in times]


def medians(times: list[list[float]]) -> list[float]:
    return [statistics.median(own) for own in times]


def report(name: str, values: list[float], names: list[str], unit: str, times: list[list[float]]) -> None:
    """The medians, and how many times as long as the first each other one took."""
    shown = ", ".join(f"{who} {value:.1f}" for who, value in zip(names, values))
    ratios = (statistics.median(b / a for a, b in zip(times[0], own)) for own in times[1:])
    print(f"{name:32} {shown} {unit}; ratios {', '.join(f'{ratio:.2f}' for ratio in ratios)}")


if __name__ == "__main__":
    main()
