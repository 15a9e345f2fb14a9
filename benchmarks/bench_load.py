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
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import csv

COLUMNS = 12
THREADS = 2
POPULATE_READ = 22  # MADV_POPULATE_READ
CHECKED = 1000  # rows whose values are compared, beside a sum over all

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Case:
    """A file, and what a load of it has to hold."""

    path: str
    rows: int
    columns: list[str]
    places: list[int]  # some rows of the stash
    values: dict[str, list[float]]  # what stands there
    sums: dict[str, int]  # of each column's bits, modulo 2**64
    form: str  # "plain" without entity and time, "keys" with them, or a layout

    @property
    def nbytes(self) -> int:
        return self.rows * 4 * len(self.columns)


# The data


def column(index: int, rows: int) -> NDArray[np.float32]:
    """Noise, or in every other column a rounded random walk."""
    rng = np.random.default_rng(index)
    noise = rng.standard_normal(rows, dtype=np.float32)
    return noise if index % 2 else np.round(np.cumsum(noise), 2).astype(np.float32)


def write(path: Path, table: pa.Table, group: int) -> None:
    if path.suffix == ".csv":
        csv.write_csv(table, path)
    else:
        pq.write_table(table, path, row_group_size=group, compression="snappy", write_page_checksum=True)


def numbers(path: Path, rows: int, columns: int, group: int, wanted: Sequence[int]) -> Case:
    """Columns without keys."""
    table = {}
    for index in range(columns):
        table[f"c{index}"] = column(index, rows)
    write(path, pa.table(table), group)
    return _case(path, {f"c{index}": table[f"c{index}"] for index in wanted}, form="plain")


def _case(path: Path, arrays: Arrays, form: str) -> Case:
    rows = len(next(iter(arrays.values())))
    places = np.sort(np.random.default_rng(0).integers(0, rows, CHECKED))
    values = {name: array[places].tolist() for name, array in arrays.items()}
    sums = {name: _sum(array) for name, array in arrays.items()}
    return Case(str(path), rows, list(arrays), places.tolist(), values, sums, form)


def _sum(array: NDArray[Any]) -> int:
    return int(array.view(np.uint32).sum(dtype=np.uint64))


def panels(directory: Path, rows: int, entities: int, group: int) -> dict[str, Case]:
    """The same rows grouped by entity, interleaved by time, and with the times of each entity in disorder."""
    hours = rows // entities
    arrays = {f"c{index}": column(index, hours * entities) for index in range(COLUMNS)}
    codes = np.repeat(np.arange(entities, dtype=np.int32), hours)
    times = np.tile(np.arange(hours, dtype=np.int64) * 3600, entities)
    names = pa.array([f"station {k:05}" for k in range(entities)])
    rng = np.random.default_rng(1)
    orders = {
        "grouped": None,
        "interleaved": np.arange(rows).reshape(entities, hours).T.reshape(-1),
        "disordered": np.concatenate([k * hours + rng.permutation(hours) for k in range(entities)]),
    }
    cases = {}
    for kind, order in orders.items():
        path = directory / f"{kind}.parquet"
        source: dict[str, Any] = {
            "station": pa.DictionaryArray.from_arrays(pa.array(codes if order is None else codes[order]), names),
            "hour": pa.array(times if order is None else times[order], pa.timestamp("s")).cast(pa.timestamp("ms")),
        }
        source |= {name: array if order is None else array[order] for name, array in arrays.items()}
        write(path, pa.table(source), group)
        cases[kind] = _case(path, arrays, form="keys")
    return cases


def short_series(directory: Path, series: int, length: int, group: int) -> dict[str, Case]:
    """Series of one length: a row for each time, and a row for each series."""
    arrays = {"c0": column(0, series * length)}
    names = pa.array([f"series {k:07}" for k in range(series)])
    starts = np.arange(series, dtype=np.int64) * 3600
    hours = (starts[:, None] + 3600 * np.arange(length)).reshape(-1)
    flat = {
        "station": names.take(pa.array(np.repeat(np.arange(series), length))),
        "hour": pa.array(hours, pa.timestamp("s")).cast(pa.timestamp("ms")),
        "c0": arrays["c0"],
    }
    write(directory / "flat.parquet", pa.table(flat), group)
    lists = {
        "station": names,
        "start": pa.array(starts, pa.timestamp("s")).cast(pa.timestamp("ms")),
        "c0": pa.ListArray.from_arrays(pa.array(np.arange(series + 1) * length, pa.int32()), arrays["c0"]),
    }
    write(directory / "lists.parquet", pa.table(lists), max(group // length, 1))
    cases = {"a row for each time": "keys", 'layout="lists"': "lists"}
    paths = (directory / "flat.parquet", directory / "lists.parquet")
    return {title: _case(path, arrays, form) for (title, form), path in zip(cases.items(), paths)}


def many_columns(directory: Path, series: int, length: int) -> dict[str, Case]:
    """The same values below one another, and a column for each series."""
    arrays = {"c0": column(0, series * length)}
    hours = pa.array(np.arange(length, dtype=np.int64) * 3600, pa.timestamp("s")).cast(pa.timestamp("ms"))
    names = pa.array([f"series {k:05}" for k in range(series)])
    flat = {
        "station": pa.DictionaryArray.from_arrays(
            pa.array(np.repeat(np.arange(series, dtype=np.int32), length)), names
        ),
        "hour": pa.concat_arrays([hours] * series),
        "c0": arrays["c0"],
    }
    write(directory / "flat.parquet", pa.table(flat), 1_000_000)
    each = dict(zip(names.to_pylist(), arrays["c0"].reshape(series, length)))
    write(directory / "wide.parquet", pa.table({"hour": hours} | each), 1_000_000)
    write(directory / "wide.csv", pa.table({"hour": hours} | each), 1_000_000)
    cases = {"a row for each time": ("flat.parquet", "keys"), 'layout="wide"': ("wide.parquet", "wide")}
    cases['layout="wide", CSV'] = ("wide.csv", "wide")
    return {title: _case(directory / path, arrays, form) for title, (path, form) in cases.items()}


# Contestants: each loads a case, and returns the columns


def load(case: Case) -> Arrays:
    import tensorstash as ts

    if case.form == "plain":
        stash = ts.load(case.path, case.columns, progress=False)
    elif case.form == "keys":
        stash = ts.load(case.path, case.columns, entity="station", time="hour", progress=False)
    elif case.form == "lists":
        time_ = ts.regular("start", "1h")
        stash = ts.load(case.path, case.columns, layout="lists", entity="station", time=time_, progress=False)
    else:
        import torch

        layout: dict[str, Any] = {"layout": "wide", "entity": "station", "time": "hour", "dtype": torch.float32}
        return {"c0": ts.load(case.path, progress=False, **layout)["value"].numpy()}
    return {name: tensor.numpy() for name, tensor in stash.items()}


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
    import tensorstash as ts

    stash = ts.load(case.path, case.columns, schema=dict.fromkeys(case.columns, "float32"), progress=False)
    return {name: tensor.numpy() for name, tensor in stash.items()}


def read_csv(case: Case) -> Arrays:
    """The reader of pyarrow, then a copy of each column into one array."""
    pa.set_cpu_count(THREADS)
    types = dict.fromkeys(case.columns, pa.float32())
    table = csv.read_csv(
        case.path, convert_options=csv.ConvertOptions(column_types=types, include_columns=case.columns)
    )
    return {name: np.concatenate([c.to_numpy() for c in table[name].chunks]) for name in case.columns}


CONTESTANTS: dict[str, Callable[[Case], Arrays]] = {
    "ts.load": load,
    "row groups, pwrite": by_groups,
    "batches, pwrite": by_batches,
    "read_table + copy": read_table,
    "polars": polars,
}


CSV_CONTESTANTS: dict[str, Callable[[Case], Arrays]] = {"ts.load, CSV": load_csv, "csv.read_csv + copy": read_csv}


# One run in a fresh process


def child(name: str, path: str) -> None:
    """Import and warm up, wait to be sent off, load, compare, and tell the seconds."""
    case = Case(**json.loads(Path(path).read_text()))
    _warm(name)
    print("ready", flush=True)
    input()
    began, busy = time.perf_counter(), time.process_time()
    found = (CONTESTANTS | CSV_CONTESTANTS)[name](case)
    print(time.perf_counter() - began, time.process_time() - busy, flush=True)
    for column_, array in found.items():
        assert array[case.places].tolist() == case.values[column_], column_
        assert _sum(array) == case.sums[column_], column_
    assert list(found) == case.columns
    print("same", flush=True)


def _warm(name: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        ending = "csv" if name in CSV_CONTESTANTS else "parquet"
        small = numbers(Path(directory) / f"warm.{ending}", 1000, 2, 500, [0, 1])
        (CONTESTANTS | CSV_CONTESTANTS)[name](small)
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
        "--only", choices=["wide", "giant", "few", "keys", "csv", "layouts"], help="one of the comparisons"
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
        for each in (_wide, _giant, _few, _keys, _csv, _layouts):
            if asked.only in (None, each.__name__.removeprefix("_")):
                each(Path(name), scale, rounds)
                for path in [*Path(name).glob("*.parquet"), *Path(name).glob("*.csv")]:
                    path.unlink()


def _wide(directory: Path, scale: int, rounds: int) -> None:
    rows, group = 20_000_000 // scale, 1_000_000 // scale
    case = numbers(directory / "wide.parquet", rows, COLUMNS, group, range(COLUMNS))
    turns = [(contestant, contestant, case) for contestant in CONTESTANTS]
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


def _csv(directory: Path, scale: int, rounds: int) -> None:
    rows = 4_000_000 // scale
    case = numbers(directory / "numbers.csv", rows, COLUMNS, rows, range(COLUMNS))
    turns = [(contestant, contestant, case) for contestant in CSV_CONTESTANTS]
    compare(f"{rows:,} rows x {COLUMNS} float32, CSV", turns, rounds, directory / "about")


def _layouts(directory: Path, scale: int, rounds: int) -> None:
    series, length = 1_000_000 // scale, 20
    cases = short_series(directory, series, length, 1_000_000 // scale)
    turns = [(title, "ts.load", case) for title, case in cases.items()]
    compare(f"{series:,} series of {length} float32, by ts.load", turns, rounds, directory / "about")
    series, length = 1000, 20_000 // scale
    columns = many_columns(directory, series, length)
    turns = [(title, "ts.load", case) for title, case in columns.items()]
    compare(f"{series:,} series of {length:,} float32, by ts.load", turns, rounds, directory / "about")


if __name__ == "__main__":
    main()
