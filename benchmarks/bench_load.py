"""Loading: time and peak memory of `ts.load` beside pyarrow and polars with a sort, and beside another checkout.

    python benchmarks/bench_load.py                     # a quarter of an hour, 4 GB of memory and 2 GB in TMPDIR
    python benchmarks/bench_load.py --quick             # small files, to see that it runs
    python benchmarks/bench_load.py --parent PATH       # beside another checkout, whose kernel is compiled
    python benchmarks/bench_load.py --only texts csv    # some of the cases

All contestants make the same columns, in the order of entity and time: `pyarrow` reads a table, sorts it where the rows
are out of order, and copies its columns; `polars` reads a frame, sorts it, and copies its columns. The bytes of the
columns are compared with those that were written, in every round. Contestants are processes that stay and take turns.
The peak is of a fresh process that has imported everything but what a load imports: the growth of its anonymous memory,
and for tensorstash the stash, which is no anonymous memory.
"""

from __future__ import annotations  # names of ts are imported on first use, and loads count them

import argparse
import compileall
import json
import re
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import record
import torch
from numpy.typing import NDArray
from processes import Team
from timing import Rounds

import tensorstash as ts

ROOT = Path(__file__).parents[1]
COLUMNS = 8
NAMES = [f"c{k}" for k in range(COLUMNS)]
TEXTS = ["few", "many"]

Arrays = dict[str, NDArray[Any]]


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("--parent", type=Path, help="the root of another checkout to compare with")
    parser.add_argument("--only", nargs="+", choices=CASES, default=[*CASES], help="some of the cases")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    roots = {"tensorstash": ROOT} | ({"parent": options.parent.resolve()} if options.parent else {})
    for root in roots.values():
        compileall.compile_dir(root / "tensorstash", quiet=1)
    rows = []
    with Contestants(roots) as contestants:
        for name in options.only:
            with tempfile.TemporaryDirectory() as folder:
                digest = digest_of(CASES[name].write(Path(folder), 100 if options.quick else 1))
                rows.append(compare(contestants, name, folder, digest, 1 if options.quick else options.rounds))
    record.save("bench_load", rows, ("tensorstash", "torch", "numpy", "polars", "pyarrow"), quick=options.quick)


@dataclass(frozen=True)
class Case:
    """Files or a table, what is loaded of them, and how the others read them."""

    title: str
    write: Callable[[Path, int], Arrays]  # into a folder, a fraction of the rows -> the columns that a load makes
    names: list[str]
    arrow: Callable[[Path], pa.Table]
    polars: Callable[[Path], pl.DataFrame]
    source: Callable[[Path], Any] = lambda folder: folder / "rows.parquet"
    filter: Any = None
    in_order: bool = True  # whether the rows are written in the order of entity and time


# What is written


def rows_of(series: int, hours: int) -> Arrays:
    """Hourly rows of each series, one series after the other."""
    rng, hour = np.random.default_rng(0), np.tile(np.arange(hours), series)
    keys = {"id": np.repeat([f"series {k:05d}" for k in range(series)], hours), "t": hour * 3600}
    return keys | {name: rng.standard_normal(len(hour)).astype(np.float32) for name in NAMES}


def sorted_rows(folder: Path, part: int, row_group: int = 250_000) -> Arrays:
    rows = rows_of(400, 10_000 // part)
    pq.write_table(pa.table(rows), folder / "rows.parquet", row_group_size=row_group)
    return {name: rows[name] for name in NAMES}


def unsorted_rows(folder: Path, part: int) -> Arrays:
    rows = rows_of(400, 10_000 // part)
    order = np.random.default_rng(1).permutation(len(rows["t"]))
    pq.write_table(pa.table(rows).take(pa.array(order)), folder / "rows.parquet", row_group_size=250_000)
    return {name: rows[name] for name in NAMES}


def wide_rows(folder: Path, part: int) -> Arrays:
    rows = rows_of(20, 500)
    others = {f"x{k}": rows[NAMES[k % COLUMNS]] for k in range(3000 // min(part, 10) - COLUMNS)}
    pq.write_table(pa.table(rows | others), folder / "rows.parquet", row_group_size=2500)
    return {name: rows[name] for name in NAMES}


def texts(folder: Path, part: int) -> Arrays:
    rows = rows_of(400, 5000 // part)
    rng, count = np.random.default_rng(2), len(rows["t"])
    codes = {"few": rng.integers(0, 7, count), "many": rng.integers(0, 100_000 // part, count)}
    made = {name: np.char.add("item ", np.char.zfill(codes[name].astype(str), 6)) for name in TEXTS}
    pq.write_table(pa.table({"id": rows["id"], "t": rows["t"]} | made), folder / "rows.parquet", row_group_size=250_000)
    return {name: np.unique(codes[name], return_inverse=True)[1].astype(np.int32) for name in TEXTS}


def small_files(folder: Path, part: int) -> Arrays:
    rows = rows_of(3000 // min(part, 20), 100)
    table = pa.table(rows)
    for k in range(len(table) // 100):
        pq.write_table(table[k * 100 : k * 100 + 100], folder / f"{k:04d}.parquet")
    return {name: rows[name] for name in NAMES}


def kept_nothing(folder: Path, part: int) -> Arrays:
    """No statistics tell that no row is kept: the times are whole hours."""
    return {name: values[:0] for name, values in sorted_rows(folder, part).items()}


def csv_rows(folder: Path, part: int) -> Arrays:
    rows = rows_of(50, 10_000 // part)
    made = {name: np.round(rows[name].astype(np.float64), 4) for name in NAMES}
    pl.DataFrame({"id": rows["id"], "t": rows["t"]} | made).write_csv(folder / "rows.csv")
    return {name: values.astype(np.float32) for name, values in made.items()}


def chunks(folder: Path, part: int) -> Arrays:
    """The table is cut when it is read: see `chunked`."""
    rows = rows_of(100, 10_000 // part)
    pq.write_table(pa.table(rows), folder / "rows.parquet")
    return {name: rows[name] for name in NAMES}


def chunked(folder: Path) -> pa.Table:
    """Chunks of ten rows."""
    table = pq.read_table(folder / "rows.parquet").combine_chunks()
    return pa.concat_tables([table[k : k + 10] for k in range(0, len(table), 10)])


# What is compared


def parquet(folder: Path, names: list[str], **options: Any) -> pa.Table:
    return pq.read_table(folder / "rows.parquet", columns=["id", "t", *names], **options)


def frame(folder: Path, names: list[str]) -> pl.DataFrame:
    return pl.read_parquet(folder / "rows.parquet", columns=["id", "t", *names])


def of_file(title: str, write: Callable[[Path, int], Arrays], names: list[str] = NAMES, **options: Any) -> Case:
    return Case(title, write, names, partial(parquet, names=names), partial(frame, names=names), **options)


ODD = [("t", "=", 1800)]
CASES = {
    "sorted": of_file("sorted rows, 4 M x 8", sorted_rows),
    "unsorted": of_file("unsorted rows, 4 M x 8", unsorted_rows, in_order=False),
    "group": of_file("one row group of 4 M rows x 8", partial(sorted_rows, row_group=4_000_000)),
    "wide": of_file("8 of 3,000 columns, 10,000 rows", wide_rows),
    "texts": of_file("two columns of text, 2 M rows", texts, TEXTS),
    "files": Case(
        "3,000 files of 100 rows",
        small_files,
        NAMES,
        pq.read_table,
        lambda folder: pl.read_parquet(folder / "*.parquet"),
        source=lambda folder: folder,
    ),
    "nothing": Case(
        "a filter that keeps none of 4 M rows",
        kept_nothing,
        NAMES,
        partial(parquet, names=NAMES, filters=ODD),
        lambda folder: pl.scan_parquet(folder / "rows.parquet").filter(pl.col("t") == 1800).collect(),
        filter=ODD,
    ),
    "csv": Case(
        "CSV, 500,000 rows x 8",
        csv_rows,
        NAMES,
        lambda folder: pyarrow.csv.read_csv(folder / "rows.csv"),
        lambda folder: pl.read_csv(folder / "rows.csv"),
        source=lambda folder: folder / "rows.csv",
    ),
    "chunks": Case(
        "a table of 100,000 chunks of ten rows",
        chunks,
        NAMES,
        chunked,
        lambda folder: pl.from_arrow(chunked(folder)),  # type: ignore[arg-type, return-value]
        source=chunked,
    ),
}


def digest_of(columns: Mapping[str, Any]) -> str:
    made = blake2b(digest_size=16)
    for name in sorted(columns):
        values = np.asarray(columns[name])
        made.update(repr((name, values.shape, values.dtype)).encode())
        made.update(np.ascontiguousarray(values).data)
    return made.hexdigest()


def by_tensorstash(case: Case, source: Any) -> Callable[[], Any]:
    options: dict[str, Any] = {"entity": "id", "time": "t", "dtype": torch.float32, "filter": case.filter}
    return lambda: ts.load(source, case.names, progress=False, **options)


def by_pyarrow(case: Case, folder: Path) -> Callable[[], Any]:
    def codes(column: pa.ChunkedArray) -> NDArray[Any]:
        whole = column.combine_chunks().dictionary_encode()
        ranks = np.argsort(np.asarray(pc.sort_indices(whole.dictionary)))
        return ranks.astype(np.int32)[np.asarray(whole.indices)]

    def load() -> Any:
        table = case.arrow(folder)
        if not case.in_order:
            table = table.sort_by([("id", "ascending"), ("t", "ascending")])
        columns = {name: table[name] for name in case.names}
        is_text = {name: pa.types.is_string(columns[name].type) for name in columns}
        arrays = {name: codes(columns[name]) if is_text[name] else np.asarray(columns[name]) for name in columns}
        return {name: torch.tensor(array, dtype=_dtype(is_text[name])) for name, array in arrays.items()}

    return load


def by_polars(case: Case, folder: Path) -> Callable[[], Any]:
    def load() -> Any:
        rows = case.polars(folder).sort("id", "t")
        is_text = {name: rows.schema[name] == pl.String for name in case.names}
        coded = [pl.col(name).rank("dense") - 1 if is_text[name] else pl.col(name) for name in case.names]
        columns = rows.select(coded)
        return {name: torch.tensor(columns[name].to_numpy(), dtype=_dtype(is_text[name])) for name in case.names}

    return load


def _dtype(is_text: bool) -> torch.dtype:
    return torch.int32 if is_text else torch.float32


def serve(way: str) -> None:
    """Load a case for each line of input, and answer with the seconds, the peak in MB, and the digest."""
    loads: dict[str, Callable[[], Any]] = {}
    for line in sys.stdin:
        what, name, folder = json.loads(line)
        if name not in loads:
            loads = {name: loading(CASES[name], way, Path(folder))}
        with Peak() if what == "weigh" else nullcontext() as peak:
            began = time.perf_counter()
            made = loads[name]()
            seconds = time.perf_counter() - began
        megabytes = None if peak is None else peak.megabytes + getattr(made, "nbytes", 0) / 1e6
        digest = digest_of({column: made[column] for column in CASES[name].names})
        del made
        told = {"seconds": seconds, "megabytes": megabytes, "digest": digest}
        print(json.dumps(told | {"root": str(Path(str(ts.__file__)).parents[1])}), flush=True)


def loading(case: Case, way: str, folder: Path) -> Callable[[], Any]:
    """How a contestant loads a case; a table in memory is made before the clock runs."""
    source = case.source(folder)
    if case.source is chunked:
        case = replace(case, arrow=lambda _: source, polars=lambda _: _frame_of(source))
    ways = {"pyarrow": partial(by_pyarrow, case, folder), "polars": partial(by_polars, case, folder)}
    return ways.get(way, partial(by_tensorstash, case, source))()


def _frame_of(table: pa.Table) -> pl.DataFrame:
    made = pl.from_arrow(table)
    assert isinstance(made, pl.DataFrame)
    return made


class Peak:
    """The highest growth of the anonymous memory of this process, looked at every 4 ms."""

    def __enter__(self) -> Peak:
        self.megabytes, self._before, self._stop = 0.0, _anonymous(), threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.004):
            self.megabytes = max(self.megabytes, _anonymous() - self._before)

    def __exit__(self, *_: object) -> None:
        self.megabytes = max(self.megabytes, _anonymous() - self._before)
        self._stop.set()
        self._thread.join()


def _anonymous() -> float:
    """MB of anonymous memory."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1e3


class Contestants:
    """Processes that load, one of each way, and fresh ones that are weighed."""

    def __init__(self, roots: dict[str, Path]) -> None:
        self.roots = {**roots, "pyarrow": ROOT, "polars": ROOT}
        self._stack = ExitStack()
        self._teams = {way: self._stack.enter_context(self._team(way)) for way in self.roots}

    def _team(self, way: str) -> Team:
        return Team(1, __file__, "--serve", way, root=self.roots[way])

    def load(self, way: str, name: str, folder: str, digest: str) -> float:
        """The seconds of a load."""
        return float(self._asked(self._teams[way], way, ["load", name, folder], digest)["seconds"])

    def weigh(self, way: str, name: str, folder: str, digest: str) -> float:
        """The peak of a fresh process, in MB."""
        with self._team(way) as fresh:
            return float(self._asked(fresh, way, ["weigh", name, folder], digest)["megabytes"])

    def _asked(self, team: Team, way: str, request: list[str], digest: str) -> dict[str, Any]:
        told: dict[str, Any] = team.ask(json.dumps(request))[0]
        assert told["digest"] == digest, f"{way} makes other columns of {request[1]}"
        assert told["root"] == str(self.roots[way])
        return told

    def __enter__(self) -> Contestants:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def compare(contestants: Contestants, name: str, folder: str, digest: str, rounds: int) -> record.Row:
    """The rounds of a case, the first of which warms up, and the peaks of fresh processes."""
    ways = [*contestants.roots]
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for k in range(rounds + 1):
        turn = ways[k // 2 % len(ways) :] + ways[: k // 2 % len(ways)]
        for way in turn if k % 2 else turn[::-1]:  # else each would always follow the same one, whose memory it gets
            seconds[way].append(contestants.load(way, name, folder, digest))
    found = Rounds({way: own[1:] for way, own in seconds.items()})
    found.show(CASES[name].title)
    weighed = ways[:1] if rounds == 1 else ways
    megabytes = {way: [contestants.weigh(way, name, folder, digest) for _ in range(rounds)] for way in weighed}
    peaks = (f"{way} {statistics.median(own):,.0f} MB" for way, own in megabytes.items())
    print("    peak memory:", ", ".join(peaks), flush=True)
    return found.row(section="Loading", case=CASES[name].title, megabytes=megabytes)


if __name__ == "__main__":
    main()
