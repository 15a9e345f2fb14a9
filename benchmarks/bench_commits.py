"""The Loader's whole loop, of this checkout and of another one, over sizes of batches, layouts and orders.

    git worktree add ../before COMMIT && (cd ../before && python hatch_build.py)    # compiles its kernel
    python benchmarks/bench_commits.py ../before                  # seven minutes on two cores, 3 GB
    python benchmarks/bench_commits.py ../before --only mixed     # cells whose names have the word
    python benchmarks/bench_commits.py . --quick

Each checkout has a process of its own, which keeps its loaders. The two take turns, cell by cell and round by round, on
one thread. First they take the same windows, whose bytes must be equal. A cell is slower if its whole range of rounds
lies below 0.95 of the other's speed.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import Any

import known
import numpy as np
import record
import torch
from processes import Team
from timing import Rounds, endless, taking

import tensorstash as ts

ROOT = Path(__file__).parents[1]
ROWS, LENGTH, HISTORY = 6_000_000, 120, 96
NBYTES = 600_000_000  # of the batches of a round: a shorter one shows the state of the machine alone
CHECKED = 3  # first batches whose bytes are compared


@cache
def stash_of(layout: str, rows: int) -> ts.Stash:
    return known.packed(rows) if layout == "packed" else known.separate(rows)


def windows_of(layout: str, rows: int) -> ts.Windows:
    return ts.Windows(stash_of(layout, rows), history=LENGTH)


def in_order(layout: str, rows: int, batch: int) -> ts.Loader:
    return ts.Loader(windows_of(layout, rows), batch)


def shuffled(layout: str, rows: int, batch: int) -> ts.Loader:
    return ts.Loader(windows_of(layout, rows), batch, shuffle=True, tail="drop")


def spans(layout: str, rows: int, batch: int) -> ts.Loader:
    reach = {"past": (-HISTORY, 0), "future": (0, LENGTH - HISTORY)}
    parts = {f"{name} {part}": (name, *slots) for name in stash_of(layout, rows) for part, slots in reach.items()}
    windows = ts.Windows(stash_of(layout, rows), spans=parts, require=[*parts])
    return ts.Loader(windows, batch, shuffle=True, tail="drop")


def mixed(layout: str, rows: int, batch: int) -> ts.Loader:
    whole = windows_of(layout, rows)
    parts = {f"part {k}": part for k, part in enumerate(whole.split_fraction(0.25, 0.5, 0.75), 1)}
    return ts.Loader(
        ts.Mix(parts, weights={name: k for k, name in enumerate(parts, 1)}), batch, shuffle=True, tail="drop"
    )


def weighted(layout: str, rows: int, batch: int) -> ts.Loader:
    windows = windows_of(layout, rows)
    weights = np.random.default_rng(0).random(len(windows))
    return ts.Loader(windows, batch, order=ts.Weighted(weights), tail="drop")


ORDERS: dict[str, Callable[[str, int, int], ts.Loader]] = {
    "in order": in_order,
    "shuffled": shuffled,
    "spans": spans,
    "mixed": mixed,
    "weighted": weighted,
}
CELLS = [*product(ORDERS, (32, 1024, 4096), ("separate", "packed"))]


def title(cell: tuple[str, int, str]) -> str:
    order, batch, layout = cell
    return f"{order}, {batch:,} windows, {layout}"


def serve(rows: int, threads: int = 1) -> None:
    """Take the batches of a cell for each line of input; the first line of a cell is answered with their bytes."""
    torch.set_num_threads(threads)
    turns: dict[str, Callable[[], float]] = {}
    for line in sys.stdin:
        order, batch, layout = json.loads(line)
        if line in turns:
            print(json.dumps(turns[line]()), flush=True)
            continue
        batches = endless(ORDERS[order](layout, rows, batch))
        turns = {line: taking(batches, max(8, NBYTES * rows // ROWS // (batch * LENGTH * known.COLUMNS * 4)))}
        digest = blake2b(digest_size=16)
        for entry in _first(batches):
            digest.update(entry)
        print(json.dumps([digest.hexdigest(), str(Path(str(ts.__file__)).parents[1])]), flush=True)


def _first(batches: Iterator[dict[str, torch.Tensor]]) -> Iterator[bytes]:
    for _ in range(CHECKED):
        batch = next(batches)
        for name in sorted(batch):
            yield name.encode()
            yield batch[name].contiguous().numpy().tobytes()


def compare(teams: dict[str, Team], roots: dict[str, Path], cell: tuple[str, int, str], rounds: int) -> Rounds:
    """The rounds of a cell, the first of which warms up."""
    line = json.dumps(cell)
    said = {name: team.ask(line)[0] for name, team in teams.items()}
    assert len({digest for digest, _ in said.values()}) == 1, f"the batches differ: {title(cell)}"
    assert {name: root for name, (_, root) in said.items()} == {name: str(root) for name, root in roots.items()}
    seconds: dict[str, list[float]] = {name: [] for name in teams}
    for k in range(rounds + 1):
        for name in [*teams][:: 1 if k % 2 else -1]:
            seconds[name].append(teams[name].ask(line)[0])
    return Rounds({name: own[1:] for name, own in seconds.items()})


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("other", type=Path, nargs="?", help="the root of another checkout, whose kernel is compiled")
    parser.add_argument("--only", default="", help="cells whose names have this text")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    rows = ROWS // 20 if options.quick else ROWS
    if options.serve:
        serve(rows)
        return
    roots = {"here": ROOT, "other": options.other.resolve()}
    quick, slower = ["--quick"] if options.quick else [], []
    with ExitStack() as stack:
        teams = {
            name: stack.enter_context(Team(1, __file__, "--serve", *quick, root=root)) for name, root in roots.items()
        }
        made: list[dict[str, Any]] = []
        for cell in CELLS:
            if options.only not in title(cell):
                continue
            found = compare(teams, roots, cell, 1 if options.quick else options.rounds)
            speed = found.ratio("here", "other")
            slower += [title(cell)] if speed.high < 0.95 else []
            print(f"{title(cell):34} {found.median('here') * 1e6:9.1f} us   {speed} times as fast", flush=True)
            made.append(found.row(section="Commits", case=title(cell)))
    print(f"slower: {'; '.join(slower) or 'none'}")
    record.save("bench_commits", made, quick=options.quick)


if __name__ == "__main__":
    main()
