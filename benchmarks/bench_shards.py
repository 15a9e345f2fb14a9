"""Making shards and opening them: the time and the memory of each way, beside a load of the same data.

    python benchmarks/bench_shards.py            # three minutes, 4 GB of disk
    python benchmarks/bench_shards.py --quick    # small, to see that it runs

Each way runs in processes of its own. The peak is that of the sum of their anonymous and shared memory (RssAnon and
RssShmem), sampled while they run, less what the imports of the first have taken; pages of files, which the system takes
back when it needs them, do not count.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import record
from timing import Rounds

import tensorstash as ts

COLUMNS = 8
SHARDS = 16
LABEL = "bench-shards"
NAMES = [f"c{k}" for k in range(COLUMNS)]
WAYS = ["ts.load", "ts.load, file=", "shard"]
OPENED = ["open, mapped", "open, copies", "open, attached"]


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--way", help="what a process of the benchmark does")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    if options.way is not None:
        print(json.dumps(work(options.way, options.folder)))
        return
    entities, rows, rounds = (50, 200, 1) if options.quick else (1000, 20_000, options.rounds)
    with tempfile.TemporaryDirectory(prefix="bench-shards-") as folder:
        found = []
        for order in ("by series",) if options.quick else ("by series", "by time"):
            write(Path(folder), entities, rows, order)
            found += measure(Path(folder), order, rounds)
    record.save("bench_shards", found, quick=options.quick)


def write(folder: Path, entities: int, rows: int, order: str) -> None:
    """A Parquet file whose rows are grouped by series, or ordered by time; each value says where it stands."""
    e, t = np.divmod(np.arange(entities * rows), rows)
    if order == "by time":
        t, e = np.divmod(np.arange(entities * rows), entities)
    columns = {name: (e * rows + t + k).astype(np.float32) for k, name in enumerate(NAMES)}
    pq.write_table(pa.table({"e": e, "t": t, **columns}), folder / "data.parquet", row_group_size=1 << 20)


def measure(folder: Path, order: str, rounds: int) -> list[record.Row]:
    """All ways, taking turns."""
    nbytes = (folder / "data.parquet").stat().st_size
    turns = [{way: run(folder, way) for way in WAYS} for _ in range(rounds)]
    made = Rounds({way: [one[way][0] for one in turns] for way in WAYS})
    made.show(f"{order}: a file of {nbytes / 1e6:,.0f} MB, {SHARDS} shards")
    peaks = {way: max(one[way][1] for one in turns) / 1e6 for way in WAYS}
    print("at the peak:", ", ".join(f"{way} {peak:,.0f} MB" for way, peak in peaks.items()))
    once = "open, copies"  # later ones would attach
    opened = Rounds({way: [run(folder, way)[2] for _ in range(1 if way == once else rounds)] for way in OPENED})
    opened.show(f"{order}: to the first batch")
    for label in {*ts.shared.list()["label"]}:
        if label.startswith(f"{LABEL}."):
            ts.shared.remove(label)
    return [
        made.row(section="Making shards", case=order, peaks_mb=peaks),
        opened.row(section="Opening shards", case=order),
    ]


def run(folder: Path, way: str) -> tuple[float, float, float]:
    """Seconds of a way, its peak in bytes, and the seconds to its first batch, if it has batches."""
    command = [sys.executable, __file__, "--way", way, "--folder", str(folder)]
    process = psutil.Popen(command, stdout=subprocess.PIPE, text=True)
    peak = 0.0
    while process.poll() is None:
        peak = max(peak, memory(process))
        time.sleep(0.05)
    assert process.returncode == 0, way
    told: dict[str, Any] = json.loads(process.stdout.read())
    return told["seconds"], peak - told["base"], told.get("first", 0.0)


def memory(process: psutil.Process) -> float:
    """Bytes that this process and its children hold, other than of files."""
    total = 0
    with suppress(psutil.Error, OSError):  # one of them has just ended
        for one in (process, *process.children(recursive=True)):
            lines = Path(f"/proc/{one.pid}/status").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "RssShmem:")))
    return total * 1024.0


# In a process of its own


def work(way: str, folder: Path) -> dict[str, float]:
    """Do what is to be measured; the import is not."""
    chosen: dict[str, Any] = {"columns": NAMES, "entity": "e", "time": "t", "progress": False}
    for name in ("cluster", "load", "Windows", "Loader"):  # which are imported when they are first used
        getattr(ts, name)
    source, base = folder / "data.parquet", memory(psutil.Process())
    begin = time.perf_counter()
    if way == "ts.load":
        check(ts.load(source, **chosen))
    elif way == "ts.load, file=":
        check(ts.load(source, file=folder / "file.safetensors", **chosen))
        (folder / "file.safetensors").unlink()
    elif way == "shard":
        to = folder / "shards"
        shutil.rmtree(to, ignore_errors=True)
        begin = time.perf_counter()
        ts.cluster.shard(source, to=to, shards=SHARDS, **chosen)
    else:
        shards = ts.cluster.open(folder / "shards", 0, 2, share=None if way.endswith("mapped") else LABEL)
        windows = ts.Windows(next(iter(shards.stashes.values())), history=24, horizon=6)
        next(iter(ts.Loader(windows, 256, shuffle=True)))
        return {"base": base, "seconds": 0.0, "first": time.perf_counter() - begin}
    return {"base": base, "seconds": time.perf_counter() - begin}


def check(stash: ts.Stash) -> None:
    """Some values, which say where they stand."""
    rows = np.linspace(0, stash.rows - 1, 100).astype(int)
    offsets = stash.offsets.numpy()
    series = offsets[1]
    names = np.array(stash.entities)[np.searchsorted(offsets, rows, "right") - 1]
    assert stash.time is not None
    expected = (names * series + stash.time.numpy()[rows]).astype(np.float32)
    assert (stash["c0"].numpy()[rows] == expected).all()


if __name__ == "__main__":
    main()
