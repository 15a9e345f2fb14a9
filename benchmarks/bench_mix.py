"""A loop over a `ts.Mix` of 4 and of 1,000 stashes, beside one over a single stash of the same size.

    python benchmarks/bench_mix.py            # half a minute, 4 GB
    python benchmarks/bench_mix.py --quick

20 M rows of 8 separate float32 columns, batches of 1,024 windows of 120 rows, one thread.
"""

from itertools import pairwise

import known
import numpy as np
import record
import torch
from timing import calling, duration, endless, rounds_of, taking

import tensorstash as ts


def windows(first: int, last: int) -> ts.Windows:
    return ts.Windows(known.separate(last - first, first), history=120)


def mix(rows: int, count: int) -> ts.Mix:
    edges = np.linspace(0, rows, count + 1).astype(int).tolist()
    return ts.Mix({f"part {k}": windows(*some) for k, some in enumerate(pairwise(edges))})


def main() -> None:
    quick = record.arguments(__doc__).parse_args().quick
    torch.set_num_threads(1)
    rows, steps, rounds = (400_000, 3, 1) if quick else (20_000_000, 60, 15)
    sources: dict[str, ts.Windows | ts.Mix] = {"one stash": windows(0, rows)}
    sources |= {f"{count:,} stashes": mix(rows, count) for count in (4, 1000)}
    first, turns = {}, {}
    for name, source in sources.items():
        batches = endless(ts.Loader(source, 1024, shuffle=True, seed=1))
        first[name] = calling(lambda batches=batches: next(batches))()  # type: ignore[misc]
        known.check(next(batches))
        turns[name] = taking(batches, steps)
    found = rounds_of(turns, rounds)
    found.show("1,024 windows of 120 rows, 8 separate columns")
    print("first batch:", ", ".join(f"{name} {duration(seconds)}" for name, seconds in first.items()))
    record.save("bench_mix", [found.row(section="Mixes", case="1,024 x 120, separate", first=first)], quick=quick)


if __name__ == "__main__":
    main()
