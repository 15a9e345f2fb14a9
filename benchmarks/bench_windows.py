"""What is made of many windows without looking at them: 145,000 series of various lengths, 50 M windows.

    python benchmarks/bench_windows.py            # a minute, 2 GB
    python benchmarks/bench_windows.py --quick    # a hundredth of it, to see that it runs

One thread, by the time of the processor. That all windows are in their parts is asserted before anything is timed.

split_last: three parts, cut before the end of each series.
split: three parts, cut at the same times for all.
of: the windows of every other series, by name.
folds: three folds, each series from its own end.
cover: windows that show each row once.
"""

import time

import numpy as np
import pyarrow as pa
import record
import torch
from timing import Turn, calling, rounds_of

import tensorstash as ts

SERIES, PAST, AHEAD, LAST = 145_000, 14, 7, 28


def main() -> None:
    options = record.arguments(__doc__).parse_args()
    torch.set_num_threads(1)
    series, rounds = (SERIES // 100, 2) if options.quick else (SERIES, 10)
    lengths = np.random.default_rng(0).integers(130, 600, series)
    windows = made(lengths)
    names = [f"series {k:06}" for k in range(0, series, 2)]
    check(windows, lengths, names)
    turns: dict[str, Turn] = {
        "split_last": calling(lambda: windows.split_last(LAST, LAST), time.process_time),
        "split": calling(lambda: windows.split(300, 328), time.process_time),
        "of": calling(lambda: windows.of(names), time.process_time),
        "folds": calling(lambda: windows.folds(3, AHEAD, per="entity"), time.process_time),
        "cover": calling(lambda: windows.cover("y"), time.process_time),
    }
    found = rounds_of(turns, rounds)
    case = f"{series:,} series, {len(windows):,} windows"
    found.show(case)
    record.save("bench_windows", [found.row(section="Parts of many windows", case=case)], quick=options.quick)


def made(lengths: np.ndarray) -> ts.Windows:
    """Series that begin together and end at different times."""
    ends = np.cumsum(lengths)
    codes = pa.array(np.repeat(np.arange(len(lengths), dtype=np.int32), lengths))
    names = pa.DictionaryArray.from_arrays(codes, [f"series {k:06}" for k in range(len(lengths))])
    times = np.arange(ends[-1], dtype=np.int32) - np.repeat(ends - lengths, lengths).astype(np.int32)
    rows = pa.table({"series": names, "t": times, "y": np.zeros(ends[-1], np.float32)})
    stash = ts.load(rows, ["y"], entity="series", time="t", progress=False)
    return ts.Windows(stash, PAST, AHEAD)


def check(windows: ts.Windows, lengths: np.ndarray, names: list[str]) -> None:
    """The numbers of windows of each series, and its first and last ones, are those that its length says."""
    anchors = PAST, lengths - AHEAD  # of the first and of the last window
    edges = lengths - 2 * LAST, lengths - LAST
    stops = edges[0] - AHEAD, edges[1] - AHEAD, anchors[1]
    starts = np.full(len(lengths), anchors[0]), *edges
    for part, first, last in zip(windows.split_last(LAST, LAST), starts, stops, strict=True):
        _check_anchors(part, first, last)
    for part, k in zip((test for _, test in windows.folds(3, AHEAD, per="entity")), range(3), strict=True):
        cut = anchors[1] + 1 - (3 - k) * AHEAD
        _check_anchors(part, cut, cut + AHEAD - 1)
    chosen = np.arange(len(lengths)) % 2 == 0
    assert len(names) == chosen.sum()
    counts = windows.of(names).per_entity()["count"].numpy()
    assert (counts == np.where(chosen, anchors[1] - anchors[0] + 1, 0)).all()
    size = PAST + AHEAD
    assert (windows.cover("y").per_entity()["count"].numpy() == -(-lengths // size)).all()


def _check_anchors(part: ts.Windows, first: np.ndarray, last: np.ndarray) -> None:
    about = part.per_entity()
    assert (about["count"].numpy() == last - first + 1).all()
    assert (part.anchors(about["first"])["time"].numpy() == first).all()
    assert (part.anchors(about["first"] + about["count"] - 1)["time"].numpy() == last).all()


if __name__ == "__main__":
    main()
