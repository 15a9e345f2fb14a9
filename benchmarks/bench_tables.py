"""Forecasts as they were known: 20 sites, three years of hours, a run every six hours with 72 leads (6.3 M versions).

    python benchmarks/bench_tables.py            # a minute, 1 GB
    python benchmarks/bench_tables.py --quick    # a thirtieth of it, to see that it runs

One thread, batches of 1,024 windows in one shuffled order, by the time of the processor. A window has the 48 hours from
its anchor on. That all ways make the same numbers is asserted on a few windows before anything is timed.

as known: `ts.During(..., every="1h", table="runs")` over a table with known times.
without versions: as many slots over a stash with one row for each hour and no known times, by `max_rows=`.
by hand: polars selects for each window what was known before its time.
"""

import itertools
import time
import tracemalloc

import numpy as np
import polars as pl
import record
import torch
from timing import Turn, calling, rounds_of, taking

import tensorstash as ts

SITES, RUN, LEADS, AHEAD, BATCH = 20, 6, 72, 48, 1024
TAKEN = 20  # batches of a turn: the first one finds the caches as the selection by hand has left them
BEGIN = pl.datetime(2021, 1, 1, time_unit="us")


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("--columns", type=int, default=1, help="columns of the table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    hours, rounds = (900, 2) if options.quick else (3 * 8766, 40)
    load, runs = made(hours, options.columns)
    names = [f"wind{k}" for k in range(options.columns)]
    stash = ts.load(load, names, entity="site", time="t", progress=False)
    table = ts.load(runs, names, entity="site", time="t", known="known", progress=False)
    print(f"{table.rows:,} versions of {options.columns} columns, in the order of known times: {table.is_by_known}")
    ahead = {name: ts.During(name, "0h", f"{AHEAD}h", every="1h", table="runs") for name in names}
    plain = {name: ts.During(name, "0h", f"{AHEAD}h", max_rows=AHEAD) for name in names}
    known = ts.Windows(stash, spans={"past": (names[0], -1, 1)} | ahead, tables={"runs": table})
    without = ts.Windows(stash, spans={"past": (names[0], -1, 1)} | plain)
    ids = np.random.default_rng(1).permutation(len(known))
    steps = ids[: len(ids) // BATCH * BATCH].reshape(-1, BATCH)
    by_hand = Selection(runs)
    check(known, by_hand, ids[:: len(ids) // 40], names)
    few = steps[0, : 8 if options.quick else 64]
    selecting = calling(lambda: [by_hand(*moment) for moment in moments(known, few)], time.process_time)
    turns: dict[str, Turn] = {
        "as known": taking((known[ids] for ids in itertools.cycle(steps)), TAKEN, time.process_time),
        "without versions": taking((without[ids] for ids in itertools.cycle(steps)), TAKEN, time.process_time),
        "by hand": lambda: selecting() * BATCH / len(few),
    }
    found = rounds_of(turns, rounds)
    found.show(f"a batch of {BATCH:,} windows")
    rows = [found.row(section="Forecasts as they were known", case=f"{BATCH:,} windows")]
    record.save("bench_tables", rows, quick=options.quick)
    print(f"memory beside the stashes: {memory(known, steps[0], len(names)):.1f} bytes a slot")


def made(hours: int, columns: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """A row for each site and hour, and all runs."""
    random = np.random.default_rng(0)
    lead = pl.DataFrame({"lead": range(1, LEADS + 1)})
    sites = pl.DataFrame({"site": [f"site {k:02}" for k in range(SITES)]})
    load = sites.join(pl.DataFrame({"hour": range(hours)}), how="cross")
    runs = sites.join(pl.DataFrame({"run": range(-LEADS, hours, RUN)}), how="cross").join(lead, how="cross")
    values = [
        {f"wind{k}": random.random(len(frame)).astype(np.float32) for k in range(columns)} for frame in (load, runs)
    ]
    at = BEGIN + pl.duration(hours=pl.col("hour"))
    valid = BEGIN + pl.duration(hours=pl.col("run") + pl.col("lead"))
    return (
        load.with_columns(t=at, **values[0]).drop("hour"),
        runs.with_columns(t=valid, known=BEGIN + pl.duration(hours=pl.col("run")), **values[1]).drop("run", "lead"),
    )


class Selection:
    """A selection for each window, on a frame of its site."""

    def __init__(self, runs: pl.DataFrame) -> None:
        self.of_site = {str(name): frame for (name,), frame in runs.partition_by("site", as_dict=True).items()}

    def __call__(self, site: str, t: int) -> pl.DataFrame:
        """The newest version known before t of each hour ahead."""
        moment = pl.lit(t).cast(pl.Datetime("us"))
        valid = pl.col("t")
        seen = self.of_site[site].filter(
            pl.col("known") < moment, valid >= moment, valid < moment + pl.duration(hours=AHEAD)
        )
        return seen.sort("known").unique("t", keep="last", maintain_order=True).sort("t")


def moments(windows: ts.Windows, ids: np.ndarray) -> list[tuple[str, int]]:
    """The site and the time of each window."""
    anchors = windows.anchors(ids)
    sites = [windows.stash.entities[k] for k in anchors["entity"].tolist()]
    return [*zip(sites, anchors["time"].tolist())]


def check(windows: ts.Windows, by_hand: Selection, ids: np.ndarray, names: list[str]) -> None:
    """Both ways make the same numbers; every hour ahead has a version."""
    batch = windows[ids]
    for k, moment in enumerate(moments(windows, ids)):
        seen = by_hand(*moment)
        for name in names:
            filled = batch[name][k][batch[f"{name}.observed"][k]]
            assert filled.numpy().tobytes() == seen[name].to_numpy().tobytes()
    assert float(torch.stack([batch[f"{name}.observed"].float().mean() for name in names]).mean()) > 0.9


def memory(windows: ts.Windows, ids: np.ndarray, columns: int) -> float:
    """Bytes of numpy's arrays that finding a batch takes at most, beside the batch, for each of its slots."""
    windows[ids]
    tracemalloc.start()
    windows.contents.chain.rows(windows.contents.chain.locate(ids))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most / (len(ids) * AHEAD * columns)


if __name__ == "__main__":
    main()
