"""The same rows in the forms that sources have, and the comparison of two stashes bit by bit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import tensorstash as ts
from tests.oracle_load import run_python


class Producer:
    """A stream that can be read again and again, and tells nothing else."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


def _file(table: pa.Table, path: Path, group: int = 3) -> Path:
    pq.write_table(table, path / "one.parquet", row_group_size=group)
    return path / "one.parquet"


def _files(table: pa.Table, path: Path) -> Path:
    (path / "many").mkdir(exist_ok=True)
    half = table.num_rows // 2
    pq.write_table(table.slice(0, half), path / "many" / "a.parquet")
    pq.write_table(table.slice(half), path / "many" / "b.parquet", row_group_size=2)
    return path / "many"


def _ipc(table: pa.Table, path: Path) -> Path:
    with pa.ipc.new_file(path / "one.arrow", table.schema) as file:
        file.write_table(table, 2)
    return path / "one.arrow"


FORMS: dict[str, Callable[[pa.Table, Path], Any]] = {
    "table": lambda table, _: table,
    "slice": lambda table, _: pa.concat_tables([table, table]).slice(table.num_rows),
    "file": _file,
    "files": _files,
    "ipc": _ipc,
    "polars": lambda table, _: pl.DataFrame(table),
    "stream": lambda table, _: Producer(table),
}


def bits(stash: ts.Stash) -> dict[str, Any]:
    """Everything that a stash holds, in a form in which NaN is equal to NaN."""
    tensors = {**stash, **{f"static {name}": values for name, values in stash.static.items()}}
    if stash.time is not None:
        tensors["time"] = stash.time
    found: dict[str, Any] = {
        name: (tensor.dtype, tuple(tensor.shape), tensor.contiguous().numpy().tobytes())
        for name, tensor in tensors.items()
    }
    texts = [name for name in (*stash, *stash.static) if stash.about(name).kind == "category"]
    found |= {f"vocabulary {name}": stash.vocabulary(name) for name in texts}
    about = {name: stash.about(name) for name in (*stash, *stash.static)}
    found |= {f"about {name}": (one.nulls, one.missing, one.low, one.high) for name, one in about.items()}
    return found | {"entities": stash.entities, "offsets": stash.offsets.tolist(), "clock": stash.clock}


_PROGRAM = """
import sys, threading
from pathlib import Path
import polars as pl, pyarrow as pa, tensorstash as ts

def anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

source = {"t": [0], "y": [[1.0]]}
ts.load(source, ["y"], layout="lists")
source = sys.argv[1]
before = highest = anonymous()
done = threading.Event()

def watch():
    global highest
    while not done.wait(0.002):
        highest = max(highest, anonymous())

watcher = threading.Thread(target=watch)
watcher.start()
stash = CALL
done.set()
watcher.join()
print(f"{stash.rows} rows, {len(stash.entities)} entities;{(highest - before) // 1000}")
"""


def peak_of(call: str, source: Path) -> tuple[str, int]:
    """What a load in a process of its own gives, and by how many MB its anonymous memory grows in the meantime."""
    stash, _, peak = run_python(_PROGRAM.replace("CALL", call), source).partition(";")
    return stash, int(peak)
