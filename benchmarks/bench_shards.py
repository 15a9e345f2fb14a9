"""Making shards and opening them: the time and the memory of each way, beside a load of the same data.

    python benchmarks/bench_shards.py            # three minutes, 4 GB of disk
    python benchmarks/bench_shards.py --quick    # small, to see that it runs

Each way runs in processes of its own. The peak is that of the sum of their anonymous and shared memory (RssAnon and
RssShmem), sampled while they run, less what the imports of the first have taken; pages of files, which the system takes
back when it needs them, do not count.
"""

import argparse
import json
import shutil
import statistics
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

import tensorstash as ts

COLUMNS = 8
SHARDS = 16
LABEL = "bench-shards"
NAMES = [f"c{k}" for k in range(COLUMNS)]
WAYS = ["ts.load", "ts.load, file=", "shard"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--way", help="what a process of the benchmark does")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    if options.way is not None:
        print(json.dumps(work(options.way, options.folder)))
        return
    entities, rows, rounds = (50, 200, 1) if options.quick else (1000, 20_000, options.rounds)
    with tempfile.TemporaryDirectory(prefix="bench-shards-") as folder:
        for order in ("by series",) if options.quick else ("by series", "by time"):
            write(Path(folder), entities, rows, order)
            measure(Path(folder), order, rounds)


def write(folder: Path, entities: int, rows: int, order: str) -> None:
    """A Parquet file whose rows are grouped by series, or ordered by time; each value says where it stands."""
    e, t = np.divmod(np.arange(entities * rows), rows)
    if order == "by time":
        t, e = np.divmod(np.arange(entities * rows), entities)
    columns = {name: (e * rows + t + k).astype(np.float32) for k, name in enumerate(NAMES)}
    pq.write_table(pa.table({"e": e, "t": t, **columns}), folder / "data.parquet", row_group_size=1 << 20)


def measure(folder: Path, order: str, rounds: int) -> None:
    """All ways, taking turns."""
    nbytes = (folder / "data.parquet").stat().st_size
    print(f"\n{order}: a file of {nbytes / 1e6:,.0f} MB, {SHARDS} shards")
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            found[way].append(run(folder, way)[:2])
    for way, values in found.items():
        seconds, peak = (statistics.median(value[k] for value in values) for k in (0, 1))
        ratio = statistics.median(mine[0] / theirs[0] for mine, theirs in zip(values, found[WAYS[0]]))
        print(f"  {way:<18} {seconds:8.2f} s, {ratio:5.2f} times {WAYS[0]}   peak {peak / 1e6:8,.0f} MB")
    for way in ("open, mapped", "open, copies", "open, attached"):
        times = [run(folder, way)[2] for _ in range(rounds if way != "open, copies" else 1)]
        print(f"  {way:<18} {statistics.median(times) * 1000:8.1f} ms to the first batch")
    for label in {*ts.shared.list()["label"]}:
        if label.startswith(f"{LABEL}."):
            ts.shared.remove(label)


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
