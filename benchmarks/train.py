"""What a user sees: epochs of small models, fed by tensorstash and in other ways; where nothing is won, it says so.

    python benchmarks/train.py                     # about twelve minutes on two cores, 12 GB of memory
    python benchmarks/train.py --brief --steps 25  # ours, by hand and a `DataLoader`, about four minutes
    python benchmarks/train.py --series 3000       # fewer short series than 30,000
    python benchmarks/train.py --quick             # small: do all feeds yield the same windows?
    python benchmarks/train.py --only tensorstash,dataset
    python benchmarks/train.py --device cuda       # the model is there: ours copied, resident, and the usual data set

Two data sets: one long series of 7 variables, all predicted, batches of 32 windows of 96 + 24 steps, as TSLib trains;
and 30,000 series of 100 steps, half of them with a gap, one variable predicted from 4, batches of 256 windows of 48 +
12 steps. Both have 4 columns that are known in the future, the short ones two static codes. Every feed hands out all
of that whatever the model takes, as TSLib's loaders do, and scaled by the mean and deviation of all rows. The models
are DLinear, an LSTM, a PatchTST and a TFT, each in some 10 to 30 lines of `feeds/models.py`.

Each feed runs in a process of its own, with all cores for torch. Before it is timed, it makes a whole epoch of a small
file, which must be the windows of that file, each once, and the windows of its first batches must be in the large file.
Of feeds that draw windows at random, each window must be in the file. Then all feeds train by turns, at least
`--steps` steps and a second, while the others are stopped. An epoch is its first step plus the others at their mean:
one that takes longer is not run to its end. Figures are medians of rounds. Waiting is the time inside `next`. Memory is
the proportional set size of the process and its workers while they train. It runs on Linux only. On a device, waiting
does not count what the device waits for while the loop runs ahead of it; the seconds do.
"""

import argparse
import importlib.util
import os
import signal
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import record
from contestants.process import Process
from contestants.serve import answer
from device import name_of
from feeds import BRIEF, FEEDS, ON_DEVICE, OURS, USUAL, Feed, by_case, share_of
from feeds.models import MODELS
from feeds.run import Run
from feeds.task import Task, expected, long_series, short_series, write
from record import title

from tensorstash.batches.devices import device_of

LIBRARIES = ("tensorstash", "torch", "numpy", "pandas", "pytorch-forecasting", "neuralforecast", "darts")


@dataclass(frozen=True)
class Effort:
    """How large the data are, and how much of an epoch is trained in each of the rounds."""

    long_steps: int = 20_000
    series: int = 30_000
    steps: int = 50
    seconds: float = 1.0
    rounds: int = 3
    patience: float = 600.0
    threads: int = os.cpu_count() or 1
    device: str = "cpu"


@dataclass(frozen=True)
class Running:
    """The process of a feed, and how long its first batch took."""

    process: Process
    first_batch_s: float


QUICK = Effort(long_steps=600, series=60, steps=3, seconds=0.0, rounds=1, threads=1)
SMALL = Effort(long_steps=600, series=60)  # of the file whose epochs are made whole


# In the process that measures


def tasks(folder: Path, effort: Effort) -> dict[str, Task]:
    found = {
        "one long series": long_series(str(folder / f"long{effort.long_steps}.parquet"), effort.long_steps, 32),
        "many short series": short_series(str(folder / f"short{effort.series}.parquet"), effort.series, 256),
    }
    for task in found.values():
        write(task)
    return found


def compare(feeds: Sequence[Feed], effort: Effort, models: Sequence[str]) -> tuple[list[record.Row], list[str]]:
    """A row for each model and feed over each data set; and what failed."""
    rows: list[record.Row] = []
    failed: list[str] = []
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        small = tasks(folder, SMALL)
        for data, task in tasks(folder, effort).items():
            np.save(folder / "keys.npy", expected(task))
            with ExitStack() as stack:
                running: dict[Feed, Running] = {}
                for feed in feeds:
                    if feed.single and task.targets > 1:
                        print(f"{data}: {title(asdict(feed))} left out, because it is driven with one target")
                        continue
                    print(f"{data}: {title(asdict(feed))} ...", end=" ", file=sys.stderr, flush=True)
                    command = [sys.executable, __file__, "--serve"]
                    process = stack.enter_context(Process(command, folder, effort.patience))
                    try:
                        running[feed] = begin(process, feed, task, small[data], effort)
                    except (RuntimeError, OSError) as error:
                        failed.append(f"{data}: {title(asdict(feed))}: {error}")
                        print("failed", file=sys.stderr)
                rows += measured(running, data, effort, models)
    return rows, failed


def begin(process: Process, feed: Feed, task: Task, small: Task, effort: Effort) -> Running:
    """Check the windows of a feed, and stop its process until it trains."""
    module, function = feed.place.split(".")
    given = asdict(replace(task, workers=feed.workers, device=effort.device))
    process.ask("open", module, function, given, effort.threads)
    shown = process.ask("whole", small.path, feed.drawn)
    seconds = process.ask("begin", str(Path(task.path).with_name("keys.npy")))
    process.freeze()
    print(f"{shown} windows of a small file, first batch after {seconds:.2f} s", file=sys.stderr)
    return Running(process, seconds)


def measured(running: Mapping[Feed, Running], data: str, effort: Effort, models: Sequence[str]) -> Iterator[record.Row]:
    """Rounds of all feeds by turns, model by model."""
    for model in models:
        rounds = [
            {feed: one_round(each.process, model, effort) for feed, each in running.items()}
            for _ in range(effort.rounds)
        ]
        for feed, each in running.items():
            own = [found[feed] for found in rounds]
            yield {
                "data": data,
                "model": model,
                "name": feed.name,
                "workers": feed.workers,
                "note": feed.note,
                **{key: statistics.median(found[key] for found in own) for key in own[0]},
                "epochs_s": [found["epoch_s"] for found in own],
                "epoch_low_s": min(found["epoch_s"] for found in own),
                "epoch_high_s": max(found["epoch_s"] for found in own),
                "first_batch_s": each.first_batch_s,
            }


def one_round(process: Process, model: str, effort: Effort) -> dict[str, float]:
    process.resume()
    found: dict[str, float] = process.ask("train", model, effort.steps, effort.seconds)
    process.freeze()
    return found


# What is printed


def print_table(rows: Sequence[record.Row]) -> None:
    for name, group in by_case(rows).items():
        ours = next((row for row in group if row["name"] == OURS), None)
        heads = ("epoch, s", "from", "to", "waiting", "MB")
        print(f"\n{name:34}" + "".join(f"{head:>10}" for head in heads) + "  ours beside it")
        for row in sorted(group, key=lambda row: row["epoch_s"]):
            times = [f"{row[key]:.3g}" for key in ("epoch_s", "epoch_low_s", "epoch_high_s")]
            cells = (*times, f"{row['waiting']:.0%}", f"{row['memory_mb']:,.0f}")
            beside = "" if ours is None or row is ours else f"{share_of(ours, row)}"
            print(f"    {title(row):30}{''.join(f'{cell:>10}' for cell in cells)}  {beside}".rstrip())


def verdicts(rows: Sequence[record.Row]) -> list[str]:
    """What tensorstash gains for each model over the usual data set, and beside the fastest other feed."""
    found = []
    for name, group in by_case(rows).items():
        ours = [row for row in group if row["name"] == OURS]
        others = sorted((row for row in group if not record.is_ours(row)), key=lambda row: row["epoch_s"])
        usual = [row for row in others if row["name"] == USUAL][:1]
        if ours and usual:
            beside = usual if usual[0] is others[0] else [usual[0], others[0]]
            shares = [f"{share_of(ours[0], row)}, beside {title(row)}" for row in beside]
            found.append(f"{name}: {'; '.join(shares)}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few steps over small files; times say little")
    parser.add_argument("--brief", action="store_true", help="ours scaled once, by hand, and the usual data set alone")
    parser.add_argument("--only", default="", help="names of feeds, or parts of them, with commas; nothing is saved")
    parser.add_argument(
        "--models", nargs="+", choices=[*MODELS], default=[*MODELS], help="some of them; saved only with --device"
    )
    parser.add_argument("--series", type=int, default=Effort.series, help="short series")
    parser.add_argument("--steps", type=int, default=Effort.steps, help="trained in each round, at least")
    parser.add_argument("--rounds", type=int, default=Effort.rounds)
    parser.add_argument("--device", default="", help="of the model, with the feeds that go there: cuda, xpu, cpu")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        answer(Run)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that processes and files go, however it ends
    wanted = [part.strip().lower() for part in options.only.split(",")]
    offered = ON_DEVICE if options.device else FEEDS
    every = [feed for feed in offered if feed.name in BRIEF or not options.brief]
    chosen = [feed for feed in every if any(part in feed.name.lower() for part in wanted)]
    if missing := sorted({feed.needs for feed in chosen if not importlib.util.find_spec(feed.needs)}):
        print(f"Not installed, and left out: {', '.join(missing)}; see benchmarks/peers.txt.")
    effort = QUICK if options.quick else Effort(series=options.series, steps=options.steps, rounds=options.rounds)
    present = [feed for feed in chosen if feed.needs not in missing]
    device = device_of(options.device or None)
    rows, failed = compare(present, replace(effort, device=str(device)), options.models)
    if options.quick:
        print("Too short to say anything about speed.")
    print_table(rows)
    print("", *verdicts(rows), sep="\n")
    if failed:
        sys.exit("\n".join(["failed:", *failed]))
    if not options.only and (options.device or options.models == [*MODELS]):
        name = "train_device" if options.device else "train"
        path = record.save(name, rows, LIBRARIES, quick=options.quick, device=name_of(device))
        print(f"\nSaved in {path}")


if __name__ == "__main__":
    main()
