"""Ctrl-C while a load is under way, in a real process: it ends soon, nothing stays, and the process goes on."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests import processes
from tests.oracle_load import write_parquet

PROGRAM = """
import gc, json, os, sys, threading, time
import pyarrow as pa
import tensorstash as ts

def memory():
    gc.collect()
    pa.default_memory_pool().release_unused()
    with open("/proc/self/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    return sum(int(lines[name].split()[0]) * 1024 for name in ("RssAnon", "RssShmem"))

path, share = sys.argv[1], sys.argv[2] or None
columns = [f"c{k}" for k in range(60)]
ts.load(path, ["c0"], share=share and "interrupt-small")
threads, files, before = set(threading.enumerate()), len(os.listdir("/proc/self/fd")), memory()
print("ready", flush=True)
try:
    while True:
        ts.load(path, columns, entity="e", time="t", share=share, progress=False)
        if share:
            ts.shared.remove(share)
except KeyboardInterrupt:
    print("stopped", flush=True)
if share and share in ts.shared.list()["label"].to_list():  # Ctrl-C came after it was published: it is whole then
    assert ts.attach(share).rows == 2_500_000
    ts.shared.remove(share)
gc.collect()  # the traceback
for _ in range(100):  # Ctrl-C may come while a thread is waited for, which then ends by itself
    if set(threading.enumerate()) != threads:
        time.sleep(0.1)
assert set(threading.enumerate()) == threads, threading.enumerate()
assert len(os.listdir("/proc/self/fd")) == files, os.listdir("/proc/self/fd")
grown = memory() - before
again = ts.load(path, columns[:2], entity="e", time="t", share=share)
print(json.dumps([grown, again.rows, float(again["c1"][5])]))
if share:
    ts.shared.remove(share), ts.shared.remove("interrupt-small")
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """600 MB as a stash, of a file that is small and quickly written: the same few row groups many times."""
    rows = 100_000
    columns: dict[str, Any] = {f"c{k}": np.arange(rows, dtype=np.float32) % 100 + k for k in range(60)}
    pieces = []
    for group in range(25):
        keys = {"e": pa.array(["x"] * rows), "t": np.arange(group * rows, (group + 1) * rows)}
        pieces.append(pa.table(keys | columns))
    return write_parquet(tmp_path_factory.mktemp("interrupt") / "one.parquet", pieces)


@pytest.mark.parametrize("delay", [0.1, 0.8])
@pytest.mark.parametrize("label", ["", "interrupt-test"], ids=["private", "shared"])
def test_an_interrupted_load_leaves_nothing_and_the_process_goes_on(
    shm: Path, table: Path, label: str, delay: float
) -> None:
    """Early, while the memory is taken and the keys are read, or later, among the columns."""
    with processes.start(PROGRAM, table, label) as child:
        assert child.stdout.readline() == "ready\n"
        time.sleep(delay)
        child.kill(signal.SIGINT)
        assert child.stdout.readline() == "stopped\n"
        done = child.finish()
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    grown, rows, value = json.loads(done.stdout)
    assert grown < 200e6  # a third of the stash
    assert (rows, value) == (2_500_000, 6.0)
