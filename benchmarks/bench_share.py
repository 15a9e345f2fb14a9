"""What all processes hold together that share one stash, and how fast they are, as the first of them is 1.

    python benchmarks/bench_share.py            # a minute, 3 GB
    python benchmarks/bench_share.py --quick

A shared stash of 1 GB, packed; batches of 1,024 windows of 120 rows; a thread for each process. Before they are
weighed, all have read every value, so that each has every page in its page tables. The memory is the sum of their
proportional set sizes, less what they took before they attached. It runs on Linux only.
"""

import argparse
import json
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import known
import record
import torch
from processes import Team, weigh
from timing import Rounds, endless, taking

import tensorstash as ts

LABEL, BATCH = "bench", 1024


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    folder = Path("/dev/shm") / f"tensorstash-bench-{secrets.token_hex(4)}"
    os.environ["TENSORSTASH_DIR"] = str(folder)
    try:
        rows = [*measured(options.quick)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    record.save("bench_share", rows, quick=options.quick)


def measured(quick: bool) -> Iterator[record.Row]:
    counts, steps, rounds = ((2,), 3, 1) if quick else ((1, 2, 4, 8), 200, 7)
    stash = known.packed(100_000 if quick else 32_000_000).share(LABEL)
    megabytes = stash.nbytes / 1e6
    del stash
    seconds: dict[str, list[float]] = {}
    held: dict[str, float] = {}
    for count in counts:
        name = f"processes: {count}"
        with Team(count, __file__, "--serve", str(count)) as team:
            before = sum(team.ask("weigh"))
            team.ask("open {member}")
            seconds[name] = [max(team.ask(f"take {steps}")) / count for _ in range(rounds)]
            held[name] = sum(team.ask("weigh")) - before
        print(f"{name}: {held[name]:,.0f} MB of all together, over a stash of {megabytes:,.0f} MB")
    found = Rounds(seconds)
    found.show("a batch of any of the processes")
    yield found.row(
        section="Processes that share one stash", case="a batch of any of them", megabytes=held, stash=megabytes
    )


def serve(count: int) -> None:
    """One of the processes: do what each line of the input says, and answer with a line of JSON."""
    torch.set_num_threads(1)
    batches: Iterator[Any] = iter(())
    for line in sys.stdin:
        answer: object = None
        match line.split():
            case ["open", rank]:
                stash = ts.attach(LABEL)
                stash["x"].sum()
                windows = ts.Windows(stash, history=120)
                loader = ts.Loader(windows, BATCH, shuffle=True, tail="drop", num_replicas=count, rank=int(rank))
                batches = endless(loader)
                known.check(next(batches))
            case ["take", steps]:
                answer = taking(batches, int(steps))()
            case ["weigh"]:
                answer = weigh()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
