"""`ts.load(..., file=)` in processes that have little memory or disk, that are killed, interrupted, or many."""

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import tensorstash as ts
from tests.oracle_load import run_python, write_parquet
from tests.processes import Child, run, start
from tests.spaces import memory_cgroup, mounting

ROWS, COLUMNS, GROUPS = 50_000, 40, 50  # ROWS in each of GROUPS row groups: 420 MB as a stash
SUMS = [sum(range(100)) * ROWS // 100 * GROUPS, (sum(range(100)) + 3900) * ROWS // 100 * GROUPS]  # of c0 and c39


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files that are small and quickly written, of rows in order and of row groups that come last to first."""
    columns: dict[str, Any] = {f"c{k}": np.arange(ROWS, dtype=np.float32) % 100 + k for k in range(COLUMNS)}
    pieces = []
    for group in range(GROUPS):
        keys = {"e": pa.array([f"e{group // 10}"] * ROWS), "t": np.arange(group * ROWS, (group + 1) * ROWS)}
        pieces.append(pa.table(keys | columns))
    directory = tmp_path_factory.mktemp("on_disk")
    return {
        "in order": write_parquet(directory / "one.parquet", pieces),
        "backwards": write_parquet(directory / "other.parquet", pieces[::-1]),
    }


# What a load takes beside the file

# Says how much it has beside files before a load, waits for a line, and prints the peak until the end of the load.
MEASURED = """
import json, sys, threading, time
import tensorstash as ts

source, path = sys.argv[1:]
columns = [f"c{k}" for k in range(40)]
ts.load(source, ["c0"], entity="e", time="t")  # imports, threads and pools

def anonymous():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) * 1024

def watch():
    while not done.wait(0.002):
        found.append(anonymous())

done, before = threading.Event(), anonymous()
print(before, flush=True)
sys.stdin.readline()
found = [before]
watcher = threading.Thread(target=watch)
watcher.start()
stash = ts.load(source, columns, entity="e", time="t", file=path)
done.set()
watcher.join()
sums = [int(stash[name].to(int).sum()) for name in ("c0", "c39")]
print(json.dumps([max(found) - before, len(found), stash.segment.size, sums]))
"""


def finished(process: Child) -> Any:
    process.stdin.write("\n")
    done = process.finish()
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(("order", "keys"), [("in order", 0), ("backwards", 24 * ROWS * GROUPS)])
def test_a_load_takes_a_fifth_of_the_stash_beside_the_file(
    order: str, keys: int, tables: dict[str, Path], tmp_path: Path
) -> None:
    grown, looked, size, sums = finished(start(MEASURED, tables[order], tmp_path / "x"))
    assert size > 400e6
    assert looked > 20
    assert grown < size / 5 + keys
    assert sums == SUMS


def test_a_load_needs_no_room_for_the_file_in_memory(tables: dict[str, Path], tmp_path: Path) -> None:
    """In a cgroup, which counts the pages of files too."""
    size = 4 * (COLUMNS + 2) * ROWS * GROUPS
    with memory_cgroup() as (cgroup, limit), start(MEASURED, tables["in order"], tmp_path / "x") as process:
        before = int(process.stdout.readline())
        (cgroup / "cgroup.procs").write_text(str(process.pid))
        (cgroup / limit).write_text(str(size // 3))  # of pages from now on, with those copied from the template
        *_, measured, sums = finished(process)
        assert before > 0
    assert measured >= size
    assert sums == SUMS


def test_a_full_disk_is_refused_first_and_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = """
import os, sys
import numpy as np
import tensorstash as ts
if sys.argv[2]:  # the mount of another test could not be made
    from tensorstash.segments import limits, publish
    publish.disk_limit = lambda fd, path: limits.Limit(8_000_000, f"in {path}", "Make room there.")
try:
    ts.load({"y": np.zeros(2_000_000)}, file=sys.argv[1] + "/x", progress=False)
except ts.errors.NoMemoryError as error:
    print(error)
print(os.listdir(sys.argv[1]))
"""
    small = tmp_path / "small"
    mounted = bool(mounting(small, "8m", capsys))
    done = run(program, small, "" if mounted else "fake", mount=(small, "8m") if mounted else None)
    assert done.returncode == 0, done.stderr
    message, left = done.stdout.splitlines()
    assert message.startswith("A stash must fit onto its disk; the mapping needs 16 MB and 8 MB are free in ")
    assert left == "[]"


# Kills, Ctrl-C, and many processes

LOAD = """
import sys
import tensorstash as ts
ts.load  # imported before the signals come
print("ready", flush=True)
sys.stdin.readline()
stash = ts.load(sys.argv[1], entity="e", time="t", file=sys.argv[2], progress="show" in sys.argv)
print(stash.rows, int(stash["c39"].to(int).sum()), stash.path)
"""

STOPPED = """
import os, sys
import tensorstash as ts
source, path = sys.argv[1:]
ts.load({"y": [1.0]}), ts.plan(source).rows  # imports all: an interrupt amid an import is told by Python itself
print("ready", flush=True)
sys.stdin.readline()
try:
    while True:
        ts.load(source, entity="e", time="t", file=path, progress=False)
        os.unlink(path)
except KeyboardInterrupt:
    print("stopped")
if os.path.exists(path):  # Ctrl-C came after it was published
    print(ts.open(path).rows)
    os.unlink(path)
"""


def let_go(process: Child) -> None:
    """Let it load, once it is ready."""
    assert process.stdout.readline() == "ready\n"
    process.stdin.write("\n")
    process.stdin.flush()


# Children of one process that has imported everything, and has no threads yet
KILLED = """
import json, os, random, signal, sys, time
import tensorstash as ts
source, directory, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
path, left = os.path.join(directory, "x"), []

def load():
    child = os.fork()
    if not child:
        try:
            ts.load(source, ["c38", "c39"], entity="e", time="t", file=path, progress=False)
        finally:
            os._exit(0)
    return child

begin = time.perf_counter()
os.waitpid(load(), 0)
seconds = time.perf_counter() - begin
os.unlink(path)
for _ in range(rounds):
    child = load()
    time.sleep(random.uniform(0, seconds))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if os.path.exists(path):
        assert int(ts.open(path)["c39"].max()) == 138
        os.unlink(path)
    left += [name for name in os.listdir(directory) if not name.endswith(".lock")]
os.waitpid(load(), 0)
print(json.dumps([left, os.listdir(directory)]))
"""


def test_a_process_that_is_killed_leaves_no_part_of_a_file(
    tables: dict[str, Path], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """It leaves its lock, at most, which the next load removes."""
    rounds = pytestconfig.getoption("rounds")
    assert json.loads(run_python(KILLED, tables["in order"], tmp_path, rounds)) == [[], ["x"]]
    assert int(ts.open(tmp_path / "x")["c39"].to(torch.int64).sum()) == SUMS[1]


def test_what_a_killed_process_leaves_under_a_temporary_name_the_next_load_removes(tmp_path: Path) -> None:
    """Where the file system has no files without names."""
    program = """
import os, signal, sys
del os.O_TMPFILE
import tensorstash as ts
if "killed" in sys.argv:
    os.fsync = lambda fd: os.kill(os.getpid(), signal.SIGKILL)
ts.load({"y": [1.0]}, file=sys.argv[1])
"""
    assert run(program, tmp_path / "x", "killed").returncode == -signal.SIGKILL
    assert len(os.listdir(tmp_path)) == 2
    run_python(program, tmp_path / "x")
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("delay", [0.1, 0.6])
def test_ctrl_c_leaves_nothing(delay: float, tables: dict[str, Path], tmp_path: Path) -> None:
    with start(STOPPED, tables["in order"], tmp_path / "x") as process:
        let_go(process)
        time.sleep(delay)
        process.kill(signal.SIGINT)
        done = process.finish()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout in ("stopped\n", f"stopped\n{ROWS * GROUPS}\n")
    assert os.listdir(tmp_path) == []


def test_of_several_processes_one_writes_and_the_others_open_its_file(tables: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "x"
    with start(LOAD, tables["in order"], path, "show") as one, start(LOAD, tables["in order"], path, "show") as two:
        for process in (one, two):
            let_go(process)
        said = [process.finish() for process in (one, two)]
    assert [done.stdout for done in said] == [f"{ROWS * GROUPS} {SUMS[1]} {path}\n"] * 2
    assert sorted(" rows/s" in done.stderr for done in said) == [False, True]
    assert os.listdir(tmp_path) == ["x"]


def test_who_waits_for_a_load_waits_until_the_timeout_and_gets_its_error(
    tables: dict[str, Path], tmp_path: Path
) -> None:
    path = tmp_path / "x"
    with start(LOAD, tables["in order"], path) as loader:
        let_go(loader)
        while not os.listdir(tmp_path):  # its lock
            time.sleep(0.01)
        loader.kill(signal.SIGSTOP)
        waiting = rf"Process {loader.pid} is loading {re.escape(str(path))}; timeout= is over\. "
        with pytest.raises(TimeoutError, match=rf"\A{waiting}Wait longer, or end that process\.\Z"):
            ts.load(tables["in order"], entity="e", time="t", file=path, timeout=0.1)
        loader.kill(signal.SIGKILL)
    assert ts.load(tables["in order"], ["c39"], entity="e", time="t", file=path, timeout=600).rows == ROWS * GROUPS
    assert os.listdir(tmp_path) == ["x"]
