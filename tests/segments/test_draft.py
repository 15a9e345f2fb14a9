"""The inside of `segments/draft.py`: a segment that is being written, allocated before it is mapped."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

import tensorstash as ts
from tensorstash.segments.draft import Draft
from tests.oracle_load import like
from tests.segments.files import PAGE


def test_rows_outside_a_tensor_are_refused() -> None:
    draft = Draft([("y", torch.float32, (4,))], PAGE)
    draft.write("y", 2, np.array([1, 2], np.float32))
    for row, count in ((-1, 1), (4, 1), (3, 2), (0, 5)):
        with pytest.raises(IndexError, match=like(f"rows must lie in [0, 4); got [{row}, {row + count})")):
            draft.write("y", row, np.zeros(count, np.float32))
    assert draft.array("y").tolist() == [0, 0, 1, 2]


def test_a_header_larger_than_its_room_is_refused() -> None:
    draft = Draft([("y", torch.float32, (4,))], PAGE)
    with pytest.raises(
        ts.errors.SegmentError, match=r"\AThe header needs 5,\d\d\d bytes; 4,096 were laid out for it\.\Z"
    ):
        draft.seal({"text": "x" * 5000})


def test_what_is_mapped_for_writing_is_allocated_before() -> None:
    """Or a full file system would kill the process that writes to it."""
    draft = Draft([("x", torch.float64, (1 << 18,)), ("y", torch.float64, (1 << 17,))], PAGE)
    assert os.fstat(draft.fd).st_size == draft.end == (3 << 20) + PAGE
    assert os.fstat(draft.fd).st_blocks == 0
    array = draft.array("y")
    assert os.fstat(draft.fd).st_blocks * 512 == array.nbytes == 1 << 20


def test_a_file_on_disk_is_allocated_at_once(tmp_path: Path) -> None:
    with open(tmp_path / "draft", "xb+") as file:
        draft = Draft([("y", torch.float64, (1 << 18,))], PAGE, file.fileno(), on_disk=True)
        assert os.fstat(draft.fd).st_blocks * 512 >= (1 << 21) + PAGE
