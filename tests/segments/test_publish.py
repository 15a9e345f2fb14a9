"""The inside of `segments/publish.py`: the directory vanishes, memory fills up or the loader is killed meanwhile."""

import re
from pathlib import Path

import pytest

import tensorstash as ts
from tests import processes
from tests.oracle_load import run_python
from tests.spaces import mounting


@pytest.mark.parametrize("changes", ["", "del os.O_TMPFILE"], ids=["nameless", "named"])
def test_a_directory_that_vanishes_during_a_load(changes: str, shm: Path) -> None:
    program = f"""
import os, shutil
{changes}
import tensorstash as ts
from tensorstash.segments.directory import Name
from tensorstash.segments.draft import write
from tensorstash.segments.publish import obtain

whole = ts.load({{"y": [1.0, 2.0]}}).segment

def build(target):
    for begin, chunk in whole.chunks():
        write(target.fd, memoryview(chunk), begin)
    shutil.rmtree(os.environ["TENSORSTASH_DIR"])

print(ts.Stash(obtain(Name("gone", "0" * 16), build, None))["y"].tolist())
print([len(name) for name in os.listdir(os.environ["TENSORSTASH_DIR"])] if not {bool(changes)} else "")
"""
    assert run_python(program).splitlines()[0] == "[1.0, 2.0]"
    if not changes:
        assert ts.attach("gone")["y"].tolist() == [1.0, 2.0]


FILLS_UP = """
import os, sys
import numpy as np
import tensorstash as ts
from tensorstash.segments import limits, publish
room = limits.Limit(1 << 40, "in RAM", "")  # another process takes the memory after it was looked at
publish.directory_limit = publish.disk_limit = lambda fd, path: room
directory, how, order = os.environ["TENSORSTASH_DIR"], sys.argv[1], sys.argv[2]
if "named" in sys.argv:
    del os.O_TMPFILE
free = os.statvfs(directory).f_bfree
rows = 2_500_000
times = np.arange(rows)[:: -1 if order == "reversed" else 1]
asked = {"share": "full"} if how == "share" else {"file": directory + "/full.safetensors"}
try:
    ts.load({"t": times, "y": np.zeros(rows)}, ["y"], time="t", progress=False, **asked)
except ts.errors.NoMemoryError as error:
    print(error)
print(os.listdir(directory), free - os.statvfs(directory).f_bfree)
print(ts.load({"y": np.ones(1_250_000)}, **(asked | {"timeout": 600}))["y"].sum().item())
"""


@pytest.mark.parametrize("how", ["share", "file"])
@pytest.mark.parametrize("order", ["in order", "reversed"])
@pytest.mark.parametrize("named", ["", "named"])
def test_a_file_system_that_fills_up_during_a_load_is_an_error_that_leaves_nothing(
    how: str, order: str, named: str, shm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows in order are written piece by piece; others through a mapping, which would kill the process."""
    size = "33m" if order == "reversed" else "16m"  # room for the times, which are written first, but not for `y`
    if not mounting(shm, size, capsys):
        pytest.skip("mounting a tmpfs is not allowed here")
    done = processes.run(FILLS_UP, how, order, named, mount=(shm, size))
    assert done.returncode == 0, done.stderr
    message, left, later = done.stdout.splitlines()
    needed = r"A stash needs room for all its bytes; [\d.]+ [kM]B cannot be written: No space left on device\. "
    assert re.fullmatch(needed + r"Make room, or load fewer columns or a narrower dtype\.", message)
    assert left == "[] 0"
    assert later == "1250000.0"


def test_a_child_of_a_killed_loader_holds_neither_lock_nor_memory(shm: Path) -> None:
    """It inherits the descriptors, and with them the lock, unless something is done about it."""
    program = """
import os, signal, time, tensorstash as ts
from tensorstash.segments.directory import Name
from tensorstash.segments.draft import write
from tensorstash.segments.publish import obtain

name, (here, there) = Name("forked", "0" * 16), os.pipe()

def stuck(target):
    os.posix_fallocate(target.fd, 0, 1 << 20)
    if not os.fork():
        held = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if int(fd) > 2 and fd != "x"
                and os.path.exists(f"/proc/self/fd/{fd}")]
        count = sum(link.startswith(os.environ["TENSORSTASH_DIR"] + "/") for link in held)
        os.write(there, f"{os.getpid()} {count}".encode())
        time.sleep(100)
        os._exit(0)
    time.sleep(100)

loader = os.fork()
if not loader:
    obtain(name, stuck, None)
child, count = map(int, os.read(here, 100).split())
os.kill(loader, signal.SIGKILL)
os.waitpid(loader, 0)
whole = ts.load({"y": [1.0, 2.0]}).segment

def build(target):
    for begin, chunk in whole.chunks():
        write(target.fd, memoryview(chunk), begin)

print(count, ts.Stash(obtain(name, build, 20.0))["y"].tolist())
os.kill(child, signal.SIGKILL)
"""
    assert run_python(program) == "0 [1.0, 2.0]"
