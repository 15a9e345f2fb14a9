"""The inside of segments: in memory they ask for huge pages, where mmap and the kernel know them; saved ones do not."""

import mmap
import os
import re
from pathlib import Path

import numpy as np
import pytest

import tensorstash as ts
from tensorstash.segments.segment import Segment
from tensorstash.stash.stash import Stash

OFFERED = Path("/sys/kernel/mm/transparent_hugepage").exists()


def stashes(folder: Path) -> dict[str, ts.Stash]:
    """A private one, a shared one and a saved one."""
    private = ts.load({"y": np.arange(100_000.0)})
    private.save(folder / "saved")
    return {"private": private, "shared": private.share("huge"), "saved": ts.open(folder / "saved")}


def flags(stash: ts.Stash) -> set[str]:
    """What the kernel says about the mapping of a segment."""
    begin = np.frombuffer(stash.segment.memory, np.uint8).ctypes.data
    text = Path("/proc/self/smaps").read_text()
    found = re.search(rf"^{begin:x}-.*?^VmFlags: (.*?)$", text, re.MULTILINE | re.DOTALL)
    assert found
    return {*found[1].split()}


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="this system does not list the advice of mappings")
def test_of_a_saved_segment_nothing_is_read_ahead_also_where_another_process_received_it(tmp_path: Path) -> None:
    ts.load({"y": np.arange(3.0)}).save(tmp_path / "saved")
    opened = ts.open(tmp_path / "saved")
    received = Stash(Segment(os.dup(opened.segment.fd), opened.path))  # as a descriptor comes to a child
    assert "rr" in flags(opened) & flags(received)


@pytest.mark.skipif(not OFFERED, reason="this kernel has no transparent huge pages")
def test_segments_in_memory_ask_for_huge_pages(shm: Path, tmp_path: Path) -> None:
    assert not shm.exists()
    asked = {name: "hg" in flags(stash) for name, stash in stashes(tmp_path).items()}
    assert asked == {"private": True, "shared": True, "saved": False}


def test_without_the_advice_segments_are_mapped_all_the_same(
    shm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    for stash in stashes(tmp_path).values():
        assert stash["y"].tolist() == list(range(100_000))
        assert not OFFERED or "hg" not in flags(stash)
    assert shm.exists()


def test_a_kernel_that_refuses_the_advice_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", 9_999, raising=False)  # as where none are built in: EINVAL
    assert ts.load({"y": np.arange(3.0)})["y"].tolist() == [0, 1, 2]
    with pytest.raises(OSError, match="Invalid argument"):
        mmap.mmap(-1, 4096).madvise(9_999)
