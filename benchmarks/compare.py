"""tensorstash beside what people use instead, over one Parquet file: ratios to a loop in C, and where tensorstash loses.

    python benchmarks/compare.py                         # all that is installed, about 15 minutes, 6 GB of memory
    python benchmarks/compare.py --quick                 # a small file: does each yield windows that are in the file?
    python benchmarks/compare.py --only tensorstash,darts

The other libraries, in an environment of their own:

    python3.11 -m venv .venv-peers
    .venv-peers/bin/pip install -r benchmarks/peers.txt -e .
    .venv-peers/bin/pip install --no-deps -r benchmarks/peers_tsai.txt
    .venv-peers/bin/python benchmarks/compare.py

500 series of 20,000 steps, 8 float32 columns; batches of 1,024 random windows of 96 + 24 steps. Each contestant runs in
a process of its own. Before it is timed, every window of its first batches is looked up in the file, by its values,
which tell the rows apart. Speed is measured in rounds, with the C loop before and after each in a process that is there
all the time, and the ratio is taken round by round, since machines change their speed; the median counts. While the
C loop runs, the contestant is stopped with its workers, which so gain nothing and disturb nothing.

The first batch is timed from the imported libraries and the closed file, which the page cache holds, to the batch. Peak
memory is the largest of: the resident memory of the process at any time, as the kernel noted; the same with what was
written to unnamed files in memory and not mapped yet; and with workers, the proportional memory of all processes
between rounds. Libraries and interpreter count, the page cache does not, unless it is mapped. Linux alone.
"""

import argparse
import importlib
import importlib.util
import itertools
import json
import os
import select
import shutil
import signal
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import record
from contestants import CONTESTANTS, Contestant
from contestants.workload import NAMES, Batch, Workload, check, write

Row = dict[str, Any]

CHECKED = 3  # batches
SAMPLE = 0.05  # seconds from one look at the memory to the next
LIBRARIES = ("tensorstash", "torch", "numpy", "pyarrow", "pandas", "darts", "datasets", "gluonts", "grain")
LIBRARIES += ("neuralforecast", "pytorch-forecasting", "tensordict", "torchrl", "tsai", "xarray", "xbatcher")


@dataclass(frozen=True)
class Effort:
    """How much is measured: files of `(series, steps)`, and rounds of at least so many seconds or one batch."""

    large: tuple[int, int] = (500, 20_000)
    small: tuple[int, int] = (500, 400)
    batch: int = 1024
    warm: float = 1.0
    rounds: int = 5
    seconds: float = 0.5
    limit_seconds: float = 0.2
    patience: float = 300.0  # for one answer
    together: bool = False  # one process for all contestants of a module


QUICK = Effort((40, 500), (40, 250), 64, warm=0.0, rounds=1, seconds=0.0, limit_seconds=0.0, together=True)
LIMITS = ("c.loop", "hand.packed_reused")  # the first that is there


# The process of a contestant: it does what a line of its input says, and answers with a line of JSON


def serve(module: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    import torch

    family = importlib.import_module(f"contestants.{module}")

    def answer(value: Any, error: str | None = None) -> None:
        print(json.dumps({"value": value, "error": error}), file=answers, flush=True)

    answer("ready")
    running: Iterator[Any] = iter(())
    for line in sys.stdin:
        try:
            match json.loads(line):
                case ["first", function, threads, described]:
                    running = iter(())  # ends the workers of the last one
                    work = Workload(**described)
                    torch.set_num_threads(threads)
                    began = time.perf_counter()
                    running = getattr(family, function)(work)
                    batch = next(running)
                    answer(time.perf_counter() - began)
                case ["check"]:
                    columns = getattr(family, "columns", plain)
                    more = itertools.islice(running, CHECKED - 1)
                    answer([check(columns(each, work), work) for each in itertools.chain([batch], more)][0])
                    del batch
                case ["run", seconds]:
                    answer(windows_per_second(running, seconds) * work.batch)
        except Exception as error:
            traceback.print_exc()
            answer(None, f"{type(error).__name__}: {error}")


def plain(batch: Any, _: Workload) -> Batch:
    return batch if isinstance(batch, dict) else dict(zip(NAMES, batch.unbind(2)))


def windows_per_second(batches: Iterator[Any], seconds: float) -> float:
    """Batches per second; each is held until the next one is there, as in a loop."""
    count, began = 0, time.perf_counter()
    while True:
        batch = next(batches)  # noqa: F841
        count += 1
        spent = time.perf_counter() - began
        if spent >= seconds:
            return count / spent


# The measuring process


class Process:
    """A process for contestants of one module, in a session of its own: its workers stop and end with it."""

    def __init__(self, module: str, log: Path, patience: float) -> None:
        self.log, self.patience, self.peak = log, patience, 0
        quiet = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TMPDIR": str(log.parent)}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with log.open("w") as stderr:
            self.child = subprocess.Popen(
                [sys.executable, __file__, "--serve", module],
                stderr=stderr,
                env=os.environ | quiet,
                start_new_session=True,
                **pipes,
            )
        self.began: float | None = time.perf_counter()
        self.import_s = 0.0

    def ready(self) -> None:
        """Wait until the process has imported what its contestants need."""
        if self.began is not None:
            self.answer()
            self.import_s, self.began = time.perf_counter() - self.began, None

    def ask(self, *request: Any) -> Any:
        self.child.stdin.write(json.dumps(request) + "\n")  # type: ignore[union-attr]
        self.child.stdin.flush()  # type: ignore[union-attr]
        return self.answer()

    def answer(self) -> Any:
        deadline = time.monotonic() + self.patience
        while not select.select([self.child.stdout], [], [], SAMPLE)[0]:
            self.peak = max(self.peak, resident(self.child.pid))
            if time.monotonic() > deadline:
                raise RuntimeError(f"no answer in {self.patience:.0f} s")
        line = self.child.stdout.readline()  # type: ignore[union-attr]
        answer = json.loads(line or '{"error": "it ended without an answer"}')
        if answer["error"]:
            said = self.log.read_text(errors="replace").splitlines()
            raise RuntimeError("\n    ".join([answer["error"], *said[-3:]]))
        return answer["value"]

    def freeze(self) -> None:
        os.killpg(self.child.pid, signal.SIGSTOP)
        self.weigh()

    def weigh(self) -> None:
        parent = psutil.Process(self.child.pid)
        family = [parent, *parent.children(recursive=True)]
        shared = 0
        if len(family) > 1:
            with suppress(psutil.Error):
                shared = sum(process.memory_full_info().pss for process in family)
        self.peak = max(self.peak, resident(self.child.pid), shared)

    def resume(self) -> None:
        os.killpg(self.child.pid, signal.SIGCONT)

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self.child.pid, signal.SIGKILL)
        self.child.communicate()


def resident(pid: int) -> int:
    """The most bytes that a process ever had in memory; or now, with what lies in its unnamed files unmapped."""
    sizes: dict[str, int] = {}
    held: dict[int, int] = {}
    with suppress(OSError):  # descriptors come and go
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.endswith(" kB"):
                name, size = line.split(":")
                sizes[name] = int(size.split()[0]) * 1024
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            if os.readlink(descriptor).startswith("/memfd:"):
                found = descriptor.stat()
                held[found.st_ino] = found.st_blocks * 512
    unmapped = max(0, sum(held.values()) - sizes.get("RssShmem", 0))
    return max(sizes.get("VmHWM", 0), sizes.get("VmRSS", 0) + unmapped)


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
        self.speeds.append(self.process.ask("run", self.seconds))
        return self.speeds[-1]


def begin(process: Process, contestant: Contestant, work: Workload) -> Row:
    """Who it is, and its first batches, all of whose windows are in the file."""
    process.ready()
    task = asdict(replace(work, workers=contestant.workers))
    first_batch_s = process.ask("first", contestant.function, contestant.threads, task)
    return {
        "name": contestant.name,
        "note": contestant.note,
        "threads": contestant.threads,
        "workers": contestant.workers,
        "rows": work.rows,
        "smaller": contestant.small,
        "series_per_batch": process.ask("check"),
        "first_batch_s": first_batch_s,
        "import_s": process.import_s,
    }


def measure(process: Process, contestant: Contestant, limit: Limit, effort: Effort) -> Row:
    row = begin(process, contestant, limit.work)
    process.ask("run", effort.warm)
    process.freeze()
    speeds, ratios = [], []
    before = limit.speed()
    for _ in range(effort.rounds):
        process.resume()
        speeds.append(process.ask("run", effort.seconds))
        process.freeze()
        after = limit.speed()
        ratios.append(2 * speeds[-1] / (before + after))
        before = after
    process.resume()
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
        "gb_per_s": speed * limit.work.window_bytes / 1e9,
        "peak_mb": process.peak / 1e6,
    }


def compare(contestants: Sequence[Contestant], folder: Path, effort: Effort) -> tuple[list[Row], list[str]]:
    """A row for each contestant that got through, the limits first; and what failed."""
    rows: list[Row] = []
    failed: list[str] = []
    reference = next(each for each in CONTESTANTS if each.place in LIMITS and installed(each))
    with TemporaryDirectory() as scratch, ExitStack() as stack:

        def process_of(contestant: Contestant, log: str) -> Process:
            return Process(contestant.module, Path(scratch) / log, effort.patience)

        limits = {}
        for small in sorted({False, *(each.small for each in contestants)}):
            series, steps = effort.small if small else effort.large
            work = Workload(str(folder / f"{series}x{steps}.parquet"), series, steps, effort.batch)
            write(work)
            process = stack.enter_context(process_of(reference, f"limit-{steps}"))
            row = begin(process, replace(reference, small=small), work)
            process.weigh()
            limits[small] = Limit(process, work, row, effort.limit_seconds)
            limits[small].speed()
        rest = [each for each in contestants if each != reference]
        for _, group in itertools.groupby(rest, lambda each: each.module if effort.together else each):
            members = list(group)
            with process_of(members[0], "contestant") as process:
                for each in members:
                    print(f"{title(asdict(each))} ...", end=" ", file=sys.stderr, flush=True)
                    try:
                        rows.append(measure(process, each, limits[each.small], effort))
                        print(f"{rows[-1]['ratio']:.4f}", file=sys.stderr)
                    except (RuntimeError, OSError) as error:
                        failed.append(f"{title(asdict(each))}: {error}")
                        print("failed", file=sys.stderr)
    first = [one.row | figures(one.row, one.process, one, one.speeds, [1.0]) for one in limits.values()]
    return first + rows, failed


def installed(contestant: Contestant) -> bool:
    if contestant.needs == "cc":
        return shutil.which("cc") is not None
    return importlib.util.find_spec(contestant.needs) is not None


# What is printed


def title(row: Row) -> str:
    about = [f"{row[name]} {name}" for name, usual in (("threads", 1), ("workers", 0)) if row[name] != usual]
    return ", ".join([row["name"], *about])


def print_table(rows: Sequence[Row]) -> None:
    limit = rows[0]["name"]
    print(f"\n{'':<43}{f'ratio to {limit}':>27}{'windows':>14}{'':>8}{'first':>8}{'import':>8}{'peak':>8}")
    heads = "windows/s", "first", "memory", "per second", "GB/s", "s", "s", "MB"
    widths = 11, 8, 8, 14, 8, 8, 8, 8
    print(f"{'':<43}" + "".join(f"{head:>{width}}" for head, width in zip(heads, widths)))
    for smaller in (False, True):
        chosen = [row for row in rows if row["smaller"] == smaller]
        if chosen and smaller:
            print(f"on {chosen[0]['rows']:,} rows alone, with ratios to {limit} there")
        for row in sorted(chosen, key=lambda row: -row["ratio"]):
            cells = (
                f"{row['ratio']:.4f}",
                f"{row['first_batch_ratio']:.2f}",
                f"{row['peak_ratio']:.2f}",
                f"{row['windows_per_s']:,.0f}",
                f"{row['gb_per_s']:.3g}",
                f"{row['first_batch_s']:.2f}",
                f"{row['import_s']:.1f}",
                f"{row['peak_mb']:,.0f}",
            )
            printed = "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths))
            print(f"{title(row):<43}{printed}  {remarks(row)}".rstrip())


def remarks(row: Row) -> str:
    few = row["series_per_batch"] < 64
    return "; ".join([f"{row['series_per_batch']} series in a batch"] * few + [row["note"]] * bool(row["note"]))


def print_losses(rows: Sequence[Row]) -> None:
    """Where others are ahead of the best of tensorstash, on as many threads."""
    print("\nahead of tensorstash")
    rows = [row for row in rows if not row["smaller"]]
    for threads in sorted({row["threads"] for row in rows}):
        alike = [row for row in rows if row["threads"] == threads]
        print_ahead(f"windows/s, {threads} threads" if threads > 1 else "windows/s, 1 thread", alike, "ratio", -1)
    print_ahead("seconds to the first batch", rows, "first_batch_ratio", 1)
    print_ahead("peak memory", rows, "peak_ratio", 1)


def print_ahead(what: str, rows: Sequence[Row], key: str, sign: int) -> None:
    ordered = sorted(rows, key=lambda row: sign * row[key])
    ours = next((k for k, row in enumerate(ordered) if row["name"].startswith("tensorstash")), None)
    if ours is not None:
        listed = [f"{title(row)} {row[key]:.2f}" for row in ordered[:ours]]
        print(f"    {what}, {ordered[ours][key]:.2f}: {'; '.join(listed) or 'nothing'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="check the windows of all on a small file; times say little"
    )
    parser.add_argument("--only", default="", help="names, or parts of them, with commas between; nothing is saved")
    parser.add_argument("--folder", type=Path, help="where the Parquet files are made, and found the next time")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    wanted = [part.strip().lower() for part in options.only.split(",")]
    chosen = [each for each in CONTESTANTS if any(part in each.name.lower() for part in wanted)]
    if missing := sorted({each.needs for each in chosen if not installed(each)}):
        print(f"not installed, and left out: {', '.join(missing)}; see benchmarks/peers.txt")
    with TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        rows, failed = compare(
            [each for each in chosen if installed(each)], folder, QUICK if options.quick else Effort()
        )
    print_table(rows)
    print_losses(rows)
    if not options.quick and not options.only and not failed:
        print(f"\nsaved in {record.save('compare', rows, LIBRARIES)}")
    if failed:
        sys.exit("\n".join(["failed:", *failed]))
    if options.quick:
        print(f"\nevery window of the first {CHECKED} batches of {len(rows)} contestants is in the file")


if __name__ == "__main__":
    main()
