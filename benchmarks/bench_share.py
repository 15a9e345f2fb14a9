"""One copy for all processes: how long attaching takes, and the memory of eight processes, against other ways to share.

    python benchmarks/bench_share.py            # some minutes; 9 GB of memory, 4 GB of disk
    python benchmarks/bench_share.py --quick    # small, to see that it runs

First a segment of 4 GB with 200 columns and 10^6 entity names is attached in fresh processes, many times. Then eight
processes open 1 GB of 8 float32 columns at the same time: as one shared stash, each with a private copy, as a data set
of Hugging Face `datasets` (Arrow, memory-mapped) and as a memory-mapped tensordict, where these are installed. The
first of them gathers the same random windows twice, then all read every value, then the memory of all is measured.
Files on disk have just been written and are in the page cache. Each value encodes its column and row and is compared.
"""

import argparse
import importlib.util
import json
import os
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from team import Team, weigh

import tensorstash as ts

COLUMNS = 8
WINDOW = 120
BATCH = 256
LABEL = "bench"

Touch = Callable[[], None]
Gather = Callable[[Any], dict[str, torch.Tensor]]  # starts of windows -> (windows, WINDOW) of each column


# The ways to share: each makes what all open, and opens it


def make_shared(folder: Path) -> None:
    load(folder, LABEL)


def open_shared(_: Path) -> tuple[Touch, Gather]:
    return of_stash(ts.attach(LABEL))


def make_nothing(_: Path) -> None:
    return


def open_private(folder: Path) -> tuple[Touch, Gather]:
    return of_stash(load(folder, None))


def load(folder: Path, share: str | None) -> ts.Stash:
    return ts.load(folder / "data.parquet", share=share, progress=False)


def of_stash(stash: ts.Stash) -> tuple[Touch, Gather]:
    windows = ts.Windows(stash, history=WINDOW)
    return lambda: read(stash), lambda starts: windows[starts]


def read(tensors: Any) -> None:
    for name in tensors.keys():  # noqa: SIM118  a tensordict iterates over rows
        tensors[name].sum()


def make_arrow(folder: Path) -> None:
    """What `datasets` makes of a Parquet file too: an Arrow stream on disk."""
    source = pq.ParquetFile(folder / "data.parquet")
    with source, pa.ipc.new_stream(folder / "data.arrow", source.schema_arrow) as stream:
        for batch in source.iter_batches(1 << 20):
            stream.write_batch(batch)


def open_arrow(folder: Path) -> tuple[Touch, Gather]:
    import datasets

    dataset = datasets.Dataset.from_file(str(folder / "data.arrow")).with_format("torch")

    def touch() -> None:
        for name in dataset.column_names:
            for chunk in dataset.data.column(name).chunks:
                chunk.to_numpy().sum()

    def gather(starts: Any) -> dict[str, torch.Tensor]:
        cut = [dataset[start : start + WINDOW] for start in starts.tolist()]
        return {name: torch.stack([window[name] for window in cut]) for name in cut[0]}

    return touch, gather


def make_tensordict(folder: Path) -> None:
    from tensordict import TensorDict

    stash = load(folder, None)
    TensorDict(dict(stash), [stash.rows]).memmap(str(folder / "tensordict"))


def open_tensordict(folder: Path) -> tuple[Touch, Gather]:
    from tensordict import TensorDict

    tensors = TensorDict.load_memmap(str(folder / "tensordict"))
    return lambda: read(tensors), lambda starts: tensors[torch.from_numpy(starts)[:, None] + torch.arange(WINDOW)]


WAYS: dict[str, tuple[str, Callable[[Path], None], Callable[[Path], tuple[Touch, Gather]]]] = {
    "tensorstash, shared": ("tensorstash", make_shared, open_shared),
    "tensorstash, private": ("tensorstash", make_nothing, open_private),
    "datasets, Arrow": ("datasets", make_arrow, open_arrow),
    "tensordict, memmap": ("tensordict", make_tensordict, open_tensordict),
}


# The processes: each does what a line of its input says, and answers with a line of JSON


def serve(way: str, folder: Path, rows: int) -> None:
    """Open, gather, read and weigh when the parent says so."""
    torch.set_num_threads(1)
    module, _, open_way = WAYS[way]
    __import__(module)
    touch: Touch = lambda: None  # noqa: E731
    gather: Gather = lambda _: {}  # noqa: E731
    for line in sys.stdin:
        answer: Any = None
        began = time.perf_counter()
        match line.split():
            case ["open"]:
                touch, gather = open_way(folder)
                answer = time.perf_counter() - began
            case ["pass", steps]:
                answer = gather_all(gather, rows, int(steps))
            case ["read"]:
                touch()
            case ["weigh"]:
                answer = weigh()
        print(json.dumps(answer), flush=True)


def gather_all(gather: Gather, rows: int, steps: int) -> float:
    """Windows per second of one pass over random windows, always the same ones."""
    starts = np.random.default_rng(0).integers(0, rows - WINDOW, (steps, BATCH))
    check(gather(starts[0]), starts[0])
    began = time.perf_counter()
    for some in starts:
        gather(some)
    return starts.size / (time.perf_counter() - began)


def check(batch: dict[str, torch.Tensor], starts: Any) -> None:
    at = torch.from_numpy(starts)[:, None] + torch.arange(WINDOW)
    for k in range(COLUMNS):
        assert torch.equal(batch[f"c{k}"], values(at, k))


# What is printed


def compare(folder: Path, rows: int, size: int, steps: int) -> None:
    """A line for every way."""
    write_data(folder, rows)
    copy = rows * COLUMNS * 4 / 1e6
    print(f"\n{size} processes, {rows:,} rows x {COLUMNS} float32 = {copy:,.0f} MB; memory by PSS, in MB")
    heads = ("made in", "open", "windows/s: first", "second", "all hold", "copies", "page tables")
    print(f"    {'':<22}" + "".join(f"{head:>{len(head) + 4}}" for head in heads))
    for way, (module, make, _) in WAYS.items():
        if importlib.util.find_spec(module) is None:
            print(f"    {way:<22}    {module} is not installed")
            continue
        began = time.perf_counter()
        make(folder)
        made = time.perf_counter() - began
        with Team(size, __file__, "--serve", way, str(folder), str(rows)) as team:
            before = team.ask("weigh")
            opened = statistics.median(team.ask("open"))
            first, second = (team.ask(f"pass {steps}", 1)[0] for _ in range(2))
            team.ask("read")
            after = team.ask("weigh")
        grown = sum(weight["pss"] for weight in after) - sum(weight["pss"] for weight in before)
        tables = max(weight["tables"] for weight in after)
        took = f"{opened:.2f} s" if opened >= 1 else f"{opened * 1000:.1f} ms"
        cells = f"{made:.1f} s", took, f"{first:,.0f}", f"{second:,.0f}", f"{grown:,.0f}", f"{grown / copy:.2f}"
        printed = zip((*cells, f"{tables:.1f}"), heads)
        print(f"    {way:<22}" + "".join(f"{cell:>{len(head) + 4}}" for cell, head in printed), flush=True)
        ts.shared.remove(LABEL)
    print(
        "    all hold: the growth from before open to after reading everything, of all together, in copies of the data"
    )


def values(row: Any, k: int) -> torch.Tensor:
    """Column k, row r holds r * 8 + k, modulo 2**24 to be exact in float32."""
    found: torch.Tensor = ((torch.as_tensor(row) * COLUMNS + k) % (1 << 24)).float()
    return found


def write_data(folder: Path, rows: int) -> None:
    schema = pa.schema([(f"c{k}", pa.float32()) for k in range(COLUMNS)])
    plain: dict[str, Any] = {"compression": "none", "use_dictionary": False}
    with pq.ParquetWriter(folder / "data.parquet", schema, **plain) as file:
        for begin in range(0, rows, 1 << 20):
            row = torch.arange(begin, min(begin + (1 << 20), rows))
            columns = [values(row, k).numpy() for k in range(COLUMNS)]
            file.write_table(pa.table(columns, schema))


ATTACH = """
import json, sys, time
import tensorstash as ts
times, work = [], []
for _ in range(int(sys.argv[1])):
    began, busy = time.perf_counter(), time.process_time()
    stash = ts.attach("bench")
    times.append(time.perf_counter() - began)
    work.append(time.process_time() - busy)
    del stash
began = time.perf_counter()
stash = ts.load(sys.argv[2], entity="entity", time="time", share="bench")
times.append(time.perf_counter() - began)
assert float(stash["c199"][-1]) == 199
began = time.perf_counter()
assert stash.entities[-1].startswith("station-")
times.append(time.perf_counter() - began)
print(json.dumps([times, work]))
"""


def attach(folder: Path, entities: int, rounds: int) -> None:
    """Milliseconds to attach a segment of 200 columns, in fresh processes."""
    path = folder / "wide.parquet"
    write_wide(path, entities)
    began = time.perf_counter()
    stash = ts.load(path, entity="entity", time="time", share=LABEL, progress=False)
    took, size = time.perf_counter() - began, stash.segment.size
    del stash
    command = [sys.executable, "-c", ATTACH, str(rounds), str(path)]
    found = [json.loads(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(10)]
    ts.shared.remove(LABEL)
    print(f"\na segment of {size / 1e9:.2f} GB, 200 columns, {entities:,} entity names; loaded in {took:.1f} s; ms")
    lines = {
        "attach, the first of a process": [times[0] for times, _ in found],
        "its processor time": [work[0] for _, work in found],
        "attach, any other": [spent for times, _ in found for spent in times[1:-2]],
        "its processor time ": [spent for _, work in found for spent in work[1:]],
        "ts.load(share=) that attaches": [times[-2] for times, _ in found],
        "entities: all names as a list": [times[-1] for times, _ in found],
    }
    for what, times in lines.items():
        ms = sorted(spent * 1000 for spent in times)
        print(f"    {what:<32} median {statistics.median(ms):8.2f}   worst of {len(ms):5,d} {ms[-1]:8.2f}")


def write_wide(path: Path, entities: int) -> None:
    """200 columns of a constant each, which is a small file, and five rows in every entity."""
    schema = pa.schema([("entity", pa.string()), ("time", pa.int64()), *((f"c{k}", pa.float32()) for k in range(200))])
    with pq.ParquetWriter(path, schema) as file:
        for begin in range(0, entities, 100_000):
            which = np.repeat(np.arange(begin, min(begin + 100_000, entities)), 5)
            names = pa.array([f"station-{k:07d}" for k in which.tolist()])
            columns = [np.full(len(which), k, np.float32) for k in range(200)]
            file.write_table(pa.table([names, np.arange(len(which)), *columns], schema))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="20 MB and three processes, to see that it runs")
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        way, folder, rows = options.serve
        serve(way, Path(folder), int(rows))
        return
    shared = Path("/dev/shm") / f"tensorstash-bench-{secrets.token_hex(4)}"
    os.environ["TENSORSTASH_DIR"] = str(shared)
    print(f"torch {torch.__version__}, {os.cpu_count()} cores, {shared.parent}")
    with tempfile.TemporaryDirectory() as folder:
        try:
            attach(Path(folder), 10_000 if options.quick else 1_000_000, 10 if options.quick else 100)
            rows, size, steps = (600_000, 3, 4) if options.quick else (32_000_000, 8, 40)
            compare(Path(folder), rows, size, steps)
        finally:
            shutil.rmtree(shared, ignore_errors=True)


if __name__ == "__main__":
    main()
