"""How close `ts.load` comes to the fastest way of getting Parquet into memory: ratios of one run.

    python benchmarks/bench_load.py            # about a quarter of an hour, 4 GB on disk in the temporary directory
    python benchmarks/bench_load.py --quick    # the same on a twentieth of the rows, to see that it runs

Each contestant runs in a fresh process with two threads, reads a file that the page cache holds, and writes all values
into memory that it allocates and maps itself. The clock includes this, since allocating and mapping memory is a good
part of the work. The values are compared with the data before a time counts. Contestants take turns, and the best turn
counts. The peak is the growth of the process's anonymous memory while it runs, sampled every 3 ms from outside. The
loaded columns lie in a file in memory, which counts as shared memory and is reported beside the peak; contestants that
keep them in anonymous memory (`read_table`, polars) have them in their peak.
"""

import argparse
import json
import mmap
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from load_data import (
    BUCKETS,
    COLUMNS,
    Arrays,
    Case,
    numbers,
    panels,
    small_files,
    sum_of,
    texts,
)
from pyarrow import csv

THREADS = 2
POPULATE_READ = 22  # MADV_POPULATE_READ
LABEL = "bench-load"


# Contestants: each loads a case, and returns the columns


def load(case: Case, share: str | None = None, file: str | None = None) -> Arrays:
    import tensorstash as ts

    entity, hour = ("station", "hour") if case.form == "keys" else (None, None)
    stash = ts.load(case.path, case.columns, entity=entity, time=hour, share=share, file=file, progress=False)
    return {name: tensor.numpy() for name, tensor in stash.items()}


def load_shared(case: Case) -> Arrays:
    return load(case, share=LABEL)


def load_file(case: Case) -> Arrays:
    """The disk is waited for: the file is whole on it when the load ends."""
    return load(case, file=f"{case.path}.safetensors")


def load_coded(case: Case) -> Arrays:
    import tensorstash as ts

    return {"id": ts.load(case.path, ["id"], progress=False)["id"].numpy()}


def load_hashed(case: Case) -> Arrays:
    import tensorstash as ts

    return {"id": ts.load(case.path, {"id": ts.hashed("id", BUCKETS)}, progress=False)["id"].numpy()}


def decode(case: Case) -> Arrays:
    """Decoding alone, by several threads, results dropped: no load can be faster."""
    meta = pq.read_metadata(case.path)

    def work(group: int) -> int:
        with pq.ParquetFile(
            case.path, metadata=meta, pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=True
        ) as file:
            batches = file.iter_batches(262_144, row_groups=[group], columns=case.columns, use_threads=False)
            return sum(batch.num_rows for batch in batches)

    with ThreadPoolExecutor(THREADS) as pool:
        assert sum(pool.map(work, range(meta.num_row_groups))) == case.rows
    return {}


def encode(case: Case) -> Arrays:
    """`read_table`, then the codes of Arrow, made to ascend."""
    codes = pq.read_table(case.path)["id"].combine_chunks().dictionary_encode()
    order = pc.array_sort_indices(codes.dictionary).to_numpy()
    numbers = np.empty(len(order), np.int32)
    numbers[order] = np.arange(len(order), dtype=np.int32)
    return {"id": numbers[codes.indices.to_numpy()]}


def by_groups(case: Case) -> Arrays:
    """A thread decodes a whole row group, and writes it into place."""

    def read(file: pq.ParquetFile, group: int) -> list[pa.Table]:
        return [file.read_row_group(group, columns=case.columns, use_threads=False)]

    return _in_threads(case, read)


def by_batches(case: Case) -> Arrays:
    """The same in batches of 262,144 rows, which needs less memory."""

    def read(file: pq.ParquetFile, group: int) -> Any:
        return file.iter_batches(262_144, row_groups=[group], columns=case.columns, use_threads=False)

    return _in_threads(case, read)


def _in_threads(case: Case, read: Callable[[pq.ParquetFile, int], Any]) -> Arrays:
    meta = pq.read_metadata(case.path)
    starts = np.cumsum([0, *(meta.row_group(k).num_rows for k in range(meta.num_row_groups))]).tolist()
    fd = os.memfd_create("destination")
    os.posix_fallocate(fd, 0, case.nbytes)

    def work(group: int) -> None:
        at = starts[group]
        with pq.ParquetFile(
            case.path, metadata=meta, pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=True
        ) as file:
            for piece in read(file, group):
                for k, array in enumerate(piece.columns):
                    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
                    row = at
                    for chunk in chunks:
                        os.pwrite(fd, chunk.to_numpy(), (k * case.rows + row) * 4)
                        row += len(chunk)
                at += piece.num_rows

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(meta.num_row_groups)))
    memory = mmap.mmap(fd, case.nbytes)
    memory.madvise(POPULATE_READ)
    flat = np.frombuffer(memory, np.float32).reshape(-1, case.rows)
    return dict(zip(case.columns, flat))


def read_table(case: Case) -> Arrays:
    """`read_table`, then a copy of each column into one array, as most scripts do."""
    table = pq.read_table(case.path, columns=case.columns)
    return {name: np.concatenate([c.to_numpy() for c in table[name].chunks]) for name in case.columns}


def polars(case: Case) -> Arrays:
    import polars as pl

    frame = pl.read_parquet(case.path, columns=case.columns).rechunk()
    return {name: frame[name].to_numpy() for name in case.columns}


def load_csv(case: Case) -> Arrays:
    import torch

    import tensorstash as ts

    stash = ts.load(case.path, case.columns, dtype=torch.float32, progress=False)
    return {name: tensor.numpy() for name, tensor in stash.items()}


def read_csv(case: Case) -> Arrays:
    """The reader of pyarrow alone: its result is a table in pieces."""
    assert _csv_table(case).num_rows == case.rows
    return {}


def _csv_table(case: Case) -> pa.Table:
    pa.set_cpu_count(THREADS)
    types = dict.fromkeys(case.columns, pa.float32())
    return csv.read_csv(case.path, convert_options=csv.ConvertOptions(column_types=types, include_columns=case.columns))


def read_csv_and_copy(case: Case) -> Arrays:
    """The same, then a copy of each column into one array."""
    table = _csv_table(case)
    return {name: np.concatenate([c.to_numpy() for c in table[name].chunks]) for name in case.columns}


# contestants of the widest comparison
WIDE = [
    "ts.load",
    "ts.load, share=",
    "ts.load, file=",
    "decoding alone",
    "row groups, pwrite",
    "batches, pwrite",
    "read_table + copy",
    "polars",
]

CONTESTANTS: dict[str, Callable[[Case], Arrays]] = {
    "ts.load": load,
    "ts.load, share=": load_shared,
    "ts.load, file=": load_file,
    "decoding alone": decode,
    "row groups, pwrite": by_groups,
    "batches, pwrite": by_batches,
    "read_table + copy": read_table,
    "polars": polars,
    "codes": load_coded,
    "read_table + encode": encode,
    "ts.hashed": load_hashed,
    "ts.load, CSV": load_csv,
    "csv.read_csv": read_csv,
    "csv.read_csv + copy": read_csv_and_copy,
}


# One run in a fresh process


def child(name: str, path: str) -> None:
    """Import and warm up, wait to be sent off, load, compare, and tell the seconds."""
    case = Case(**json.loads(Path(path).read_text()))
    _warm(name)
    print("ready", flush=True)
    input()
    began, busy = time.perf_counter(), time.process_time()
    found = CONTESTANTS[name](case)
    print(time.perf_counter() - began, time.process_time() - busy, flush=True)
    for column_, array in found.items():
        assert array[case.places].tolist() == case.values[column_], column_
        assert sum_of(array) == case.sums[column_], column_
    assert list(found) == case.columns or name in ("decoding alone", "csv.read_csv")
    print("same", flush=True)
    _clean(name, case)


def _clean(name: str, case: Case) -> None:
    """Remove what a load would find again."""
    import tensorstash as ts

    if name == "ts.load, share=":
        ts.shared.remove(LABEL)
    Path(f"{case.path}.safetensors").unlink(missing_ok=True)


def _warm(name: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        if name in ("codes", "ts.hashed", "read_table + encode"):
            coded, hashed = texts(Path(directory) / "warm.parquet", 1000, 100, 500)
            small = hashed if name == "ts.hashed" else coded
        else:
            ending = "csv" if "csv" in name.lower() else "parquet"
            small = numbers(Path(directory) / f"warm.{ending}", 1000, 2, 500, [0, 1])
        CONTESTANTS[name](small)
        _clean(name, small)
    pa.default_memory_pool().release_unused()


@dataclass(frozen=True)
class Run:
    """What one run took."""

    seconds: float
    busy: float  # seconds of the processors, which other programs on the machine disturb less
    peak: float  # MB of anonymous memory


def run(name: str, case: Case, about: Path) -> Run:
    about.write_text(json.dumps(case.__dict__))
    environment = os.environ | {"OMP_NUM_THREADS": str(THREADS), "POLARS_MAX_THREADS": str(THREADS)}
    command = [sys.executable, __file__, "--child", name, str(about)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        before = highest = _anonymous(process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
        while not select.select([process.stdout], [], [], 0.003)[0]:
            highest = max(highest, _anonymous(process.pid))
        seconds, busy = map(float, process.stdout.readline().split())
        assert process.stdout.readline() == "same\n"
    return Run(seconds, busy, (highest - before) / 1e6)


def _anonymous(pid: int) -> int:
    with open(f"/proc/{pid}/status") as file:
        return next((int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon")), 0)


def compare(title: str, turns: Sequence[tuple[str, str, Case]], rounds: int, about: Path) -> None:
    """Let contestants take turns, and print the best of each, as ratios to the first."""
    print(f"\n{title}")
    results: dict[str, list[Run]] = {label: [] for label, _, _ in turns}
    for _ in range(rounds):
        for label, name, case in turns:
            results[label].append(run(name, case, about))
    first = results[turns[0][0]]
    for label, _, case in turns:
        runs = results[label]
        best, busy = min(r.seconds for r in runs), min(r.busy for r in runs)
        ratios = min(r.seconds for r in first) / best, min(r.busy for r in first) / busy
        print(
            f"    {label:20s} {ratios[0]:5.2f} {best:6.2f} s {case.nbytes / best / 1e6:6.0f} MB/s "
            f"  busy {ratios[1]:5.2f} {busy:6.2f} s   +{max(r.peak for r in runs):5.0f} MB"
            f"   ({' '.join(f'{r.seconds:.2f}' for r in runs)})",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the rows, to see that it runs")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contestant")
    parser.add_argument(
        "--only",
        choices=["wide", "giant", "few", "keys", "files", "texts", "csv"],
        help="one of the comparisons",
    )
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(*asked.child)
        return
    scale, rounds = (20, 1) if asked.quick else (1, asked.rounds)
    print(f"pyarrow {pa.__version__}, numpy {np.__version__}, {os.cpu_count()} cores, {THREADS} threads")
    print("speed relative to the first line, best time, the same in processor time, highest peak, all times")
    with tempfile.TemporaryDirectory() as name:
        for each in (_wide, _giant, _few, _keys, _files, _texts, _csv):
            if asked.only in (None, each.__name__.removeprefix("_")):
                each(Path(name), scale, rounds)
                for path in [*Path(name).glob("*.parquet"), *Path(name).glob("*.csv")]:
                    path.unlink()


def _wide(directory: Path, scale: int, rounds: int) -> None:
    rows, group = 20_000_000 // scale, 1_000_000 // scale
    case = numbers(directory / "wide.parquet", rows, COLUMNS, group, range(COLUMNS))
    turns = [(contestant, contestant, case) for contestant in WIDE]
    compare(f"{rows:,} rows x {COLUMNS} float32, {rows // group} row groups", turns, rounds, directory / "about")


def _giant(directory: Path, scale: int, rounds: int) -> None:
    rows = 10_000_000 // scale
    case = numbers(directory / "giant.parquet", rows, COLUMNS, rows, range(COLUMNS))
    turns = [(contestant, contestant, case) for contestant in ("ts.load", "row groups, pwrite", "batches, pwrite")]
    compare(f"{rows:,} rows x {COLUMNS} float32, one row group", turns, rounds, directory / "about")


def _few(directory: Path, scale: int, rounds: int) -> None:
    rows = 2_000_000 // scale
    group = rows // 4
    few = numbers(directory / "many.parquet", rows, 200, group, [7, 150])
    alone = numbers(directory / "two.parquet", rows, 2, group, [0, 1])
    turns = [("2 of 200 columns", "ts.load", few), ("2 of 2 columns", "ts.load", alone)]
    compare(f"{rows:,} rows, 2 of 200 columns, 4 row groups", turns, rounds, directory / "about")


def _keys(directory: Path, scale: int, rounds: int) -> None:
    rows = 20_000_000 // scale
    cases = panels(directory, rows, 1000, 1_000_000 // scale)
    turns = [(kind, "ts.load", case) for kind, case in cases.items()]
    compare(f"{rows:,} rows x {COLUMNS} float32 of 1,000 entities, by ts.load", turns, rounds, directory / "about")


def _files(directory: Path, scale: int, rounds: int) -> None:
    files = 10_000 // scale
    case = small_files(directory / "files", files, 100)
    turns = [(name, name, case) for name in ("ts.load", "read_table + copy", "polars")]
    compare(f"{files:,} files of 100 rows; only ts.load reads entity and time", turns, rounds, directory / "about")


def _texts(directory: Path, scale: int, rounds: int) -> None:
    rows, distinct = 10_000_000 // scale, 1_000_000 // scale
    coded, hashed = texts(directory / "texts.parquet", rows, distinct, rows // 10)
    turns = [(name, name, coded) for name in ("codes", "read_table + encode")]
    compare(
        f"{rows:,} texts, {distinct:,} of them distinct",
        [*turns, ("ts.hashed", "ts.hashed", hashed)],
        rounds,
        directory / "about",
    )


def _csv(directory: Path, scale: int, rounds: int) -> None:
    rows = 4_000_000 // scale
    case = numbers(directory / "numbers.csv", rows, COLUMNS, rows, range(COLUMNS))
    turns = [(name, name, case) for name in ("ts.load, CSV", "csv.read_csv", "csv.read_csv + copy")]
    compare(f"{rows:,} rows x {COLUMNS} float32, CSV", turns, rounds, directory / "about")


if __name__ == "__main__":
    main()
