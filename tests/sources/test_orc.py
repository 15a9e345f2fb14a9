"""ORC: every type as Parquet has it, stripes in batches, and processes that end.

It reaches inside `sources/orc.py` for small batches.
"""

import datetime as dt
import os
import signal
import sys
import time
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem
from pyarrow import orc

import tensorstash as ts
from tensorstash.sources import orc as inside
from tensorstash.sources.orc_process import Decoder, stripe
from tests.oracle_load import like
from tests.processes import start

ROWS = 3000
HELD = """
import sys, time, tensorstash as ts
plan = ts.plan(sys.argv[1], ["int64"])
print(plan.rows, flush=True)
time.sleep(600)
"""
FORKED = """
import os, sys, tensorstash as ts
plan = ts.plan(sys.argv[1], ["int64"])
print(plan.rows, flush=True)
if os.fork() == 0:
    sys.stdin.readline()
    print(plan.load().rows, flush=True)
    os._exit(0)
os.wait()
"""


def table() -> pa.Table:
    """Every type that ORC has, and a name with a dot."""
    rows = np.arange(ROWS)
    times = [dt.datetime(1969, 12, 31, 23, 59, 59, 999_999) + dt.timedelta(seconds=int(row)) for row in rows % 1000]
    return pa.table(
        {
            "id": [f"séries {row // 1000}" for row in rows],
            "t": pa.array(times, pa.timestamp("ns")),
            "utc": pa.array(times, pa.timestamp("ns", "UTC")),
            "day": pa.array(rows.astype(np.int32), pa.date32()),
            "bool": pa.array([None if row % 7 == 3 else row % 3 == 0 for row in rows]),
            **{f"int{bits}": rows.astype(f"int{bits}") for bits in (8, 16, 32, 64)},
            "float32": rows.astype(np.float32) / 7,
            "float64": pa.array([None if row % 5 == 1 else row / 7 for row in rows]),
            "a.b": pa.array([Decimal(int(row)) / 4 for row in rows], pa.decimal128(20, 2)),
            "s": [{"u": row / 2, "v": [int(row), 2]} for row in rows],
            "list": [[row / 4, 1.0, -2.0] for row in rows],
        }
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    orc.write_table(table(), tmp_path / "x.orc", stripe_size=4096, row_index_stride=1000)
    assert orc.ORCFile(tmp_path / "x.orc").nstripes > 1
    return tmp_path / "x.orc"


def decoders(parent: int = os.getpid()) -> list[int]:
    """The processes that decode ORC for a process."""
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*") if decodes(folder.name, f"PPid:\t{parent}\n")]


def decodes(process: int | str, status: str = "") -> bool:
    """Whether a process decodes ORC, with these lines in its status. One that has ended has no command line."""
    folder = Path("/proc", str(process))
    try:
        return "orc_process" in (folder / "cmdline").read_text() and status in (folder / "status").read_text()
    except OSError:  # it is gone
        return False


@pytest.mark.parametrize("rows", [7, 1 << 18])
def test_every_type_is_as_in_parquet(rows: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "BATCH_ROWS", rows)
    pq.write_table(table(), path.with_suffix(".parquet"))
    columns = ["utc", "day", "int8", "int16", "int32", "int64", "float32", "float64", "s.u", "s.v", "list"]
    asked: dict[str, Any] = {name.replace(".", "_"): name for name in [*columns, "a.b"]}
    asked["bool"] = ts.column("bool", fill=False)
    arguments: dict[str, Any] = {
        "entity": "id",
        "time": "t",
        "filter": [("int64", ">", 10), ("day", "<", "1978-01-01")],
    }
    one, other = (ts.load(path.with_suffix(ending), asked, **arguments) for ending in (".orc", ".parquet"))
    assert (one.entities, one.describe().rows(), list(one)) == (other.entities, other.describe().rows(), list(other))
    for name in other:
        assert one[name].dtype == other[name].dtype
        assert one[name].numpy().tobytes() == other[name].numpy().tobytes()


def test_times_that_do_not_fit_into_nanoseconds_are_refused(tmp_path: Path) -> None:
    orc.write_table(pa.table({"y": [1], "t": pa.array([dt.datetime(3000, 1, 1)])}), tmp_path / "x.orc")
    with pytest.raises(ts.errors.SourceError, match=like("stripe 0 cannot be decoded: column 't': ORC timestamp (3")):
        ts.load(tmp_path / "x.orc", ["y"], time="t")


def test_a_file_without_rows_or_columns(tmp_path: Path) -> None:
    orc.write_table(pa.table({"y": pa.array([], pa.float32())}), tmp_path / "x.orc")
    assert ts.plan(tmp_path / "x.orc").rows == 0
    orc.write_table(pa.table({}), tmp_path / "x.orc")
    with pytest.raises(ValueError, match="A stash has at least one column"):
        ts.load(tmp_path / "x.orc")


def test_a_process_that_is_killed_is_an_error_and_the_next_load_goes_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = Decoder.answers

    def killed(decoder: Decoder, function: Any, *arguments: Any) -> Any:
        if function is stripe:
            decoder._process.kill()
        return answers(decoder, function, *arguments)

    monkeypatch.setattr(Decoder, "answers", killed)
    with pytest.raises(ts.errors.SourceError, match=like("x.orc, stripe 0 cannot") + r".*its process \(Killed\)"):
        ts.load(path, ["int64"])
    monkeypatch.undo()
    assert ts.load(path, ["int64"])["int64"].tolist() == [*range(ROWS)]


def test_a_forked_child_uses_no_process_of_its_parent(path: Path) -> None:
    """Both would take answers that are meant for the other one. What fails in one of several stripes is read again."""
    orc.write_table(table(), path)
    with start(FORKED, path, warn="ignore") as caller:
        assert caller.stdout.readline() == f"{ROWS}\n"
        begun = decoders(caller.pid)
        assert begun
        for process in begun:
            os.kill(process, signal.SIGKILL)
        caller.stdin.write("\n")
        caller.stdin.flush()
        assert caller.stdout.readline() == f"{ROWS}\n"


def test_what_a_process_prints_is_no_answer(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.with_name("sitecustomize.py").write_text("print('good morning')")
    monkeypatch.setenv("PYTHONPATH", str(path.parent))
    assert ts.load(path, ["int64"]).rows == ROWS


def test_files_of_parquet_between_them_begin_no_processes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, begin = list[Decoder](), Decoder.__init__

    def counted(decoder: Decoder) -> None:
        begun.append(decoder)
        begin(decoder)

    monkeypatch.setattr(Decoder, "__init__", counted)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    pq.write_table(table(), path.with_name("y.parquet"))
    path.with_name("z.orc").write_bytes(path.read_bytes())
    assert ts.load(path.parent, ["int64"])["int64"].tolist() == [*range(ROWS)] * 3
    assert len(begun) == 1


class Unknown(LocalFileSystem):  # type: ignore[misc]
    """A file system of a module that another process cannot import."""

    protocol = "unknown"
    __module__ = "unknown"


def test_a_file_system_that_only_this_process_knows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("unknown")
    module.Unknown = Unknown
    monkeypatch.setitem(sys.modules, "unknown", module)
    with pytest.raises(ts.errors.SourceError, match=like("x.orc is not a readable ... No module named 'unknown'")):
        ts.load(path, ["int64"], filesystem=Unknown())


def test_processes_end_with_the_load_and_with_their_caller(path: Path) -> None:
    ts.load(path, ["int64"])
    assert not decoders()
    with start(HELD, path) as caller:
        assert caller.stdout.readline() == f"{ROWS}\n"
        begun = decoders(caller.pid)
        assert begun
        caller.kill(signal.SIGKILL)
    while any(map(decodes, begun)):
        time.sleep(0.01)
