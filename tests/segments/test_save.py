"""stash.save: a whole file or none, whoever reads or writes it meanwhile."""

import os
import threading
from pathlib import Path

import numpy as np
import pytest

import tensorstash as ts
from tests.oracle_load import run_python
from tests.segments.files import small


def test_a_saved_file_appears_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    """A limit on the size of files stands in for a full disk: what was there before stays, nothing else does."""
    path = small(tmp_path / "stash.safetensors")
    program = """
import os, resource, sys, numpy as np, tensorstash as ts
stash = ts.load({"y": np.ones(1_000_000)})
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    stash.save(sys.argv[1])
except ts.errors.NoMemoryError as error:
    print(error)
"""
    assert "cannot be written: File too large. Make room" in run_python(program, path)
    assert os.listdir(tmp_path) == ["stash.safetensors"]
    assert ts.open(path)["y"].tolist() == [1.0, 2.0, 3.0]


def test_saving_over_a_stash_that_is_in_use_leaves_its_readers_alone(tmp_path: Path) -> None:
    path = small(tmp_path / "stash.safetensors")
    reader = ts.open(path)
    ts.load({"y": [7.0]}).save(path)
    assert reader["y"].tolist() == [1.0, 2.0, 3.0]
    assert ts.open(path)["y"].tolist() == [7.0]
    reader.save(str(path))
    assert ts.open(path)["y"].tolist() == [1.0, 2.0, 3.0]
    ts.open(path).save(path)  # onto itself
    assert ts.open(path)["y"].tolist() == [1.0, 2.0, 3.0]


def test_saving_into_a_directory_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "stash.safetensors"
    with pytest.raises(ts.errors.SegmentError, match=f"existing directory; {path.parent} cannot be opened"):
        ts.load({"y": [1.0]}).save(path)


def test_what_a_killed_process_left_does_not_stop_a_save(tmp_path: Path) -> None:
    """In a container the next process has the same number."""
    path = tmp_path / "stash.safetensors"
    left = tmp_path / f"stash.safetensors.{os.getpid()}.tmp"
    left.write_text("half a stash")
    small(path)
    assert ts.open(path)["y"].tolist() == [1.0, 2.0, 3.0]


def test_threads_may_save_to_one_path(tmp_path: Path) -> None:
    """The last one stays, whole; nobody removes what another is writing."""
    path = tmp_path / "stash.safetensors"
    stashes = [ts.load({"y": np.full(200_000, float(k))}) for k in range(4)]
    failed: list[BaseException] = []

    def save(stash: ts.Stash) -> None:
        try:
            for _ in range(5):
                stash.save(path)
        except OSError as error:
            failed.append(error)

    threads = [threading.Thread(target=save, args=(stash,)) for stash in stashes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert os.listdir(tmp_path) == ["stash.safetensors"]
    assert len(set(ts.open(path)["y"].tolist())) == 1


def test_a_write_in_place_reaches_no_file_and_no_other_stash(tmp_path: Path) -> None:
    path = small(tmp_path / "stash.safetensors")
    before = path.read_bytes()
    one, two = ts.open(path), ts.open(path)
    private = ts.load({"y": [1.0, 2.0, 3.0]})
    one["y"].fill_(-1.0)
    private["y"].fill_(-1.0)
    assert one["y"].tolist() == private["y"].tolist() == [-1.0] * 3
    assert two["y"].tolist() == [1.0, 2.0, 3.0]
    assert path.read_bytes() == before
    one.save(tmp_path / "copy")
    private.save(tmp_path / "private")
    assert (tmp_path / "copy").read_bytes() == before
    assert ts.open(tmp_path / "private")["y"].tolist() == [1.0, 2.0, 3.0]
