"""tensorstash compared with what people use instead, over one Parquet file, as ratios to a loop in C.

    python benchmarks/compare.py                         # all that is installed, about 15 minutes, 12 GB of memory
    python benchmarks/compare.py --brief                 # those of the README alone, about three minutes
    python benchmarks/compare.py --quick                 # a small file: does each yield windows that are in the file?
    python benchmarks/compare.py --only tensorstash,darts

The other libraries, in an environment of their own:

    python3.11 -m venv .venv-peers
    .venv-peers/bin/pip install -r benchmarks/peers.txt -e '.[plot]'
    .venv-peers/bin/pip install --no-deps -r benchmarks/peers_tsai.txt
    .venv-peers/bin/python benchmarks/compare.py

500 series of 20,000 steps, 8 float32 columns; batches of 1,024 random windows of 96 + 24 steps. Some run once more in
batches of 32, and over 50,000 series of 200 steps. Each contestant runs in a process of its own. Before it is timed,
every window of its first batches is looked up in the file, by its values, which tell the rows apart; afterwards so is
every window of later batches, and of an epoch of a small file, which must show each once, unless windows are drawn.

Speed is measured in rounds, with the C loop before and after each in a process that is there all the time, and the
ratio is taken round by round, since machines change their speed. While the C loop runs, the contestant is stopped with
its workers, so that they gain nothing and disturb nothing. All this is done in two processes one after the other,
each beside another process of the C loop, since gathering into fresh memory is faster in some processes than in others;
contestants that take long to start, or are below a tenth of the C loop, get one process. Figures are medians, with the
lowest and highest ratio of all rounds. Windows/s that are shown are the ratio times the median speed of the C loop, so
that two speeds stand to each other as their ratios do. What part of the C loop a contestant reaches is said of the loop
over columns of the same layout, packed or separate, which is a contestant too.

The first batch is timed from the imported libraries and the closed file, which the page cache holds, to the batch. Peak
memory is the largest of: the peak resident memory of the process, as the kernel recorded it; the same plus what was
written to unnamed files in memory and not mapped yet; and with workers, the proportional memory of all processes
between rounds. Libraries and interpreter count; the page cache counts only where it is mapped. It runs on Linux only.
"""

import argparse
import importlib.util
import itertools
import math
import shutil
import signal
import statistics
import sys
import textwrap
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import record
import table
from contestants import CONTESTANTS, FEW, OF_32, SHAPES, SHORT, Contestant
from contestants.process import Process
from contestants.serve import CHECKED, Run, answer
from contestants.workload import Workload, write
from record import is_ours, title

Row = dict[str, Any]

LIBRARIES = (
    *("tensorstash", "torch", "numpy", "pyarrow", "pandas", "darts", "datasets", "gluonts", "grain", "neuralforecast"),
    *("numba", "pytorch-forecasting", "tensordict", "torchrl", "tsai", "xarray", "xbatcher"),
)
LIMITS = ("c.loop", "hand.packed_reused")  # the first that is there
WHOLE = "a whole epoch"


@dataclass(frozen=True)
class Effort:
    """How much is measured: files of `(series, steps)`, and rounds of at least so many seconds or one batch."""

    large: tuple[int, int] = (500, 20_000)
    short: tuple[int, int] = (50_000, 200)
    few: tuple[int, int] = (500, 400)
    whole: tuple[int, int] = (20, 200)  # of which an epoch is looked at
    batch: int = 1024
    warm: float = 0.5
    scratch: str = ""  # a directory for temporary files
    processes: int = 2  # but one for who takes longer to start than `slow` seconds, or is slower than `low`
    slow: float = 10.0
    low: float = 0.1  # of the limit
    rounds: int = 3  # in each process
    seconds: float = 0.5
    limit_seconds: float = 0.2
    patience: float = 300.0  # for one answer
    shared: bool = False  # one process for all contestants of a module


QUICK = Effort(
    (40, 500),
    (80, 250),
    (40, 250),
    batch=64,
    warm=0.0,
    processes=1,
    rounds=1,
    seconds=0.0,
    limit_seconds=0.0,
    shared=True,
)


def workloads(folder: Path, effort: Effort) -> dict[str, Workload]:
    """What the contestants of each shape are given, and under `WHOLE` what all go through once."""
    sizes = {"": effort.large, OF_32: effort.large, SHORT: effort.short, FEW: effort.few, WHOLE: effort.whole}
    batches = {OF_32: 32, WHOLE: 16}
    return {
        shape: Workload(str(folder / f"{series}x{steps}.parquet"), series, steps, batches.get(shape, effort.batch))
        for shape, (series, steps) in sizes.items()
    }


@dataclass(frozen=True)
class Limit:
    """The process that all are compared with, and every speed that it has shown."""

    process: Process
    work: Workload
    row: Row
    seconds: float
    speeds: list[float] = field(default_factory=list)

    def speed(self) -> float:
        """Windows per second, now."""
        self.speeds.append(self.process.ask("speed", self.seconds))
        return self.speeds[-1]


def begin(process: Process, contestant: Contestant, work: Workload) -> Row:
    """Who it is, and its first batches, all of whose windows are in the file."""
    task = asdict(replace(work, workers=contestant.workers))
    first_batch_s = process.ask("begin", contestant.function, contestant.threads, task)
    series = process.ask("check")
    of_random_windows = work.series * -math.expm1(work.batch * math.log1p(-1 / work.series))
    notes = [contestant.note, f"{series:.0f} series in a batch" if series < of_random_windows * 0.8 else ""]
    return {
        "name": contestant.name,
        "note": "; ".join(filter(None, notes)),
        "threads": contestant.threads,
        "workers": contestant.workers,
        "rows": work.rows,
        "batch": work.batch,
        "width": work.width,
        "shape": contestant.shape,
        "series_per_batch": series,
        "first_batch_s": first_batch_s,
        "import_s": process.import_s,
    }


def measure(process: Process, contestant: Contestant, limit: Limit, effort: Effort) -> Row:
    row = begin(process, contestant, limit.work)
    process.ask("speed", effort.warm)
    process.freeze()
    speeds, ratios = [], []
    before = limit.speed()
    for _ in range(effort.rounds):
        process.resume()
        speeds.append(process.ask("speed", effort.seconds))
        process.freeze()
        after = limit.speed()
        ratios.append(2 * speeds[-1] / (before + after))
        before = after
    process.resume()
    process.ask("check")  # later batches too
    return row | figures(row, process, limit, speeds, ratios)


def figures(row: Row, process: Process, limit: Limit, speeds: Sequence[float], ratios: Sequence[float]) -> Row:
    speed = statistics.median(speeds)
    return {
        "ratio": statistics.median(ratios),
        "ratio_low": min(ratios),
        "ratio_high": max(ratios),
        "first_batch_ratio": row["first_batch_s"] / limit.row["first_batch_s"],
        "peak_ratio": process.peak / limit.process.peak,
        "windows_per_s": speed,
        "ratios": [*ratios],
        "speeds": [*speeds],
        "gb_per_s": speed * limit.work.window_bytes / 1e9,
        "peak_mb": process.peak / 1e6,
    }


def together(tries: Sequence[Row]) -> Row:
    """One row of those of several processes: the median of each figure, and all rounds."""
    rounds = {key: [value for row in tries for value in row[key]] for key in ("ratios", "speeds")}
    extremes = {"ratio_low": min(rounds["ratios"]), "ratio_high": max(rounds["ratios"])}
    return tries[0] | medians(tries) | extremes | rounds


def medians(rows: Sequence[Row]) -> Row:
    return {
        key: statistics.median(row[key] for row in rows) for key, value in rows[0].items() if isinstance(value, float)
    }


def compare(contestants: Sequence[Contestant], folder: Path, effort: Effort) -> tuple[list[Row], list[str]]:
    """A row for each contestant that got through, after the limit of its shape; and what failed."""
    rows: list[Row] = []
    failed: list[str] = []
    works = workloads(folder, effort)
    reference = next(each for each in CONTESTANTS if each.place in LIMITS and installed(each))
    with TemporaryDirectory() as scratch:
        effort = replace(effort, scratch=scratch)
        for shape in [shape for shape in SHAPES if any(each.shape == shape for each in contestants)]:
            limiting = replace(reference, shape=shape)
            chosen = [each for each in contestants if each.shape == shape and each != limiting]
            for work in (works[shape], works[WHOLE]):
                write(work)
            with ExitStack() as stack:
                limits = limits_of(limiting, works[shape], stack, effort)
                found = []
                for _, group in itertools.groupby(chosen, lambda each: each.module if effort.shared else each):
                    members = list(group)
                    tries = [attempt(members, limits[0], works[WHOLE], failed, effort)]
                    while tries[-1] and len(tries) < effort.processes and is_fast(tries[0].values(), effort):
                        limit = limits[len(tries)]
                        tries.append(attempt(members, limit, None, failed, effort))
                    found += [together([one[each] for one in tries if each in one]) for each in tries[0]]
                own = [each.row | figures(each.row, each.process, each, each.speeds, [1.0]) for each in limits]
                rows += [together(own), *found]
    return rows, failed


def limits_of(reference: Contestant, work: Workload, stack: ExitStack, effort: Effort) -> list[Limit]:
    """The limit at work in several processes that stay, one for each try of a contestant."""
    limits = []
    for _ in range(effort.processes):
        process = stack.enter_context(process_of(reference, effort))
        limits.append(Limit(process, work, begin(process, reference, work), effort.limit_seconds))
        process.weigh()
        limits[-1].speed()
    return limits


def attempt(
    members: Sequence[Contestant],
    limit: Limit,
    whole: Workload | None,
    failed: list[str],
    effort: Effort,
) -> dict[Contestant, Row]:
    """A row for each of them that gets through, in a new process; an epoch over `whole` last."""
    rows = {}
    with process_of(members[0], effort) as process:
        for each in members:
            print(f"{title(asdict(each))} ...", end=" ", file=sys.stderr, flush=True)
            began = time.perf_counter()
            try:
                row = measure(process, each, limit, effort)
                if whole is not None and not each.drawn:
                    process.ask("begin", each.function, each.threads, asdict(replace(whole, workers=each.workers)))
                    process.ask("epoch")
                rows[each] = row
                print(f"{row['ratio']:.4f}, after {time.perf_counter() - began:.0f} s", file=sys.stderr)
            except (RuntimeError, OSError) as error:
                failed.append(f"{title(asdict(each))}: {error}")
                print("failed", file=sys.stderr)
    return rows


def is_fast(rows: Iterable[Row], effort: Effort) -> bool:
    return all(row["import_s"] + row["first_batch_s"] < effort.slow and row["ratio"] > effort.low for row in rows)


def process_of(contestant: Contestant, effort: Effort) -> Process:
    return Process([sys.executable, __file__, "--serve", contestant.module], Path(effort.scratch), effort.patience)


def installed(contestant: Contestant) -> bool:
    if contestant.needs == "cc":
        return shutil.which("cc") is not None
    return importlib.util.find_spec(contestant.needs) is not None


# What is printed


def print_table(rows: Sequence[Row]) -> None:
    print(f"Ratios are to {rows[0]['name']}.\n")
    width = max(len(title(row)) for row in rows)
    heads = ("windows/s", "from", "to", "first", "peak", "windows/s", "GB/s", "first, s", "import, s", "peak, MB")
    print(" " * width + f"{'ratio of:':>10}\n" + " " * width + "".join(f"{head:>11}" for head in heads))
    for shape in dict.fromkeys(row["shape"] for row in rows):
        for row in sorted((row for row in rows if row["shape"] == shape), key=lambda row: -row["ratio"]):
            ratios = [f"{row[key]:.4f}" for key in ("ratio", "ratio_low", "ratio_high")]
            cells = (
                *ratios,
                f"{row['first_batch_ratio']:.2f}",
                f"{row['peak_ratio']:.2f}",
                f"{row['windows_per_s']:,.0f}",
                f"{row['gb_per_s']:.3f}",
                f"{row['first_batch_s']:.2f}",
                f"{row['import_s']:.1f}",
                f"{row['peak_mb']:,.0f}",
            )
            printed = "".join(f"{cell:>11}" for cell in cells)
            print(f"{title(row):<{width}}{printed}  {row['note']}".rstrip())


def print_losses(rows: Sequence[Row]) -> None:
    """Who is ahead of the best of tensorstash; in speed, of that on as many threads."""
    if not any(is_ours(row) for row in rows):
        return
    print("\nAhead of tensorstash, in ratios as above:")
    for shape in dict.fromkeys(row["shape"] for row in rows):
        own = [row for row in rows if row["shape"] == shape]
        for threads in (1, 2):
            alike = [row for row in own if row["threads"] == threads]
            print_ahead(", ".join(filter(None, ["windows/s", shape, f"torch threads: {threads}"])), alike, "ratio", -1)
    large = [row for row in rows if not row["shape"]]
    print_ahead("time to the first batch", large, "first_batch_ratio", 1)
    print_ahead("peak memory", large, "peak_ratio", 1)


def print_ahead(what: str, rows: Sequence[Row], key: str, sign: int) -> None:
    ordered = sorted(rows, key=lambda row: sign * row[key])
    for k, ours in enumerate(ordered):
        if is_ours(ours):
            ahead = [f"{title(row)} {row[key]:.2f}" for row in ordered[:k]]
            line = f"{what}, {title(ours)} {ours[key]:.2f}: {'; '.join(ahead) or 'nobody'}"
            print(textwrap.fill(line, 116, initial_indent="    ", subsequent_indent="        "))
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="check the windows of all on a small file; times say little"
    )
    parser.add_argument("--brief", action="store_true", help="those of the README alone")
    parser.add_argument("--only", default="", help="names, or parts of them, with commas between; nothing is saved")
    parser.add_argument("--folder", type=Path, help="where the Parquet files are made, and stay")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        answer(partial(Run, options.serve))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that processes and files go, however it ends
    wanted = [part.strip().lower() for part in options.only.split(",")]
    every = [each for each in CONTESTANTS if each.is_familiar or not options.brief]
    chosen = [each for each in every if any(part in each.name.lower() for part in wanted)]
    if not chosen:
        parser.error(f"--only fits none of: {', '.join(sorted({each.name for each in CONTESTANTS}))}.")
    if missing := sorted({each.needs for each in chosen if not installed(each)}):
        print(f"Not installed, and left out: {', '.join(missing)}; see benchmarks/peers.txt.")
    with TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        rows, failed = compare(
            [each for each in chosen if installed(each)], folder, QUICK if options.quick else Effort()
        )
    if options.quick:
        print("Too short to say anything about speed.")
    shown = table.at_one_speed(rows)
    print_table(shown)
    print_losses(shown)
    if not options.quick and not options.only and not failed:
        print(f"\nSaved in {record.save('compare', rows, LIBRARIES)}")
    if failed:
        sys.exit("\n".join(["failed:", *failed]))
    if options.quick:
        print(f"\nEvery window of the first {CHECKED} batches of {len(rows)} contestants is in the file.")


if __name__ == "__main__":
    main()
