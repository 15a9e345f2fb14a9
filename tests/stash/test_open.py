"""`ts.open`: what is no stash, and what a pickle of an opened stash knows."""

import pickle
from pathlib import Path

import numpy as np
import pytest

import tensorstash as ts


def test_a_pickle_of_an_opened_stash_knows_its_file(tmp_path: Path) -> None:
    path = tmp_path / "stash.safetensors"
    ts.load({"y": np.arange(5.0)}).save(path)
    opened = ts.open(path)
    pickled = pickle.dumps(opened)
    assert pickle.loads(pickled)["y"].equal(opened["y"])
    ts.load({"y": np.arange(4.0)}).save(path)
    with pytest.raises(
        ts.errors.SegmentError, match=r"was saved again since this stash was pickled\. Open it again: ts\.open\("
    ):
        pickle.loads(pickled)


def test_a_directory_is_no_stash(tmp_path: Path) -> None:
    with pytest.raises(
        ts.errors.SegmentError, match=rf"^{tmp_path} is not a whole stash: it is not a regular file\. Make it"
    ):
        ts.open(tmp_path)
