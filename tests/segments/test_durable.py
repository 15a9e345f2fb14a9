"""What is saved or published is on disk before its name is, and the name before the call returns."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tensorstash as ts
from tests.oracle_load import like, run_python

# Prints the calls that put a file on disk, in their order; `os.fsync` of a file says how large it is.
WATCHED = """
import os, stat, sys
calls = []

def watch(name):
    real = getattr(os, name)
    def called(*arguments, **options):
        if name == "fsync":
            about = os.fstat(arguments[0])
            calls.append("directory" if stat.S_ISDIR(about.st_mode) else f"file of {about.st_size}")
        else:
            calls.append(name)
        return real(*arguments, **options)
    setattr(os, name, called)

if "notmpfile" in sys.argv:
    del os.O_TMPFILE
import tensorstash as ts
stash = ts.load({"y": [1.0, 2.0]})
for name in ("fsync", "replace", "link"):
    watch(name)
"""


def watched(program: str, *arguments: object) -> list[str]:
    return run_python(f"{WATCHED}{program}\nprint(*calls, sep=chr(10))", *arguments).splitlines()


def test_a_saved_file_is_on_disk_before_it_has_its_name(tmp_path: Path) -> None:
    path = tmp_path / "stash.safetensors"
    calls = watched("stash.save(sys.argv[1])", path)
    assert calls == [f"file of {path.stat().st_size}", "link", "directory", "replace", "directory"]


@pytest.mark.parametrize("how", ["ts.load({'y': [1.0]}, share='durable')", "stash.share('durable')"])
@pytest.mark.parametrize("changes", [[], ["notmpfile"]], ids=["nameless", "named"])
def test_a_shared_segment_is_on_disk_before_it_has_its_name(how: str, changes: list[str], shm: Path) -> None:
    calls = watched(how, *changes)
    assert calls == [f"file of {os.path.getsize(str(ts.attach('durable').path))}", "link", "directory"]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "directory"])
def test_a_file_that_is_not_regular_is_neither_opened_nor_replaced(make: Callable[[Path], Any], tmp_path: Path) -> None:
    """Opening a pipe would wait for ever, and root would replace a device by a file."""
    path = tmp_path / "odd"
    make(path)
    message = like(f"{path} ... not a regular file")
    with pytest.raises(ts.errors.SegmentError, match=message):
        ts.open(path)
    before = path.stat()
    message = like(f"{path} exists")
    with pytest.raises(ts.errors.SegmentError, match=message):
        ts.load({"y": [1.0]}).save(path)
    assert os.path.samestat(path.stat(), before)
    assert os.listdir(tmp_path) == ["odd"]


def test_saving_to_a_link_replaces_what_it_points_to(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    for values in ([1.0], [2.0, 3.0]):
        ts.load({"y": values}).save(link)
        assert link.is_symlink()
        assert stat.S_ISREG(target.lstat().st_mode)
        assert ts.open(target)["y"].tolist() == values
