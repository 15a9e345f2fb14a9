"""Remedies that messages name work, and what is near a limit is taken; the messages are in tests/messages."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tensorstash as ts

STASH = ts.load({"t": np.arange(20), "y": np.arange(20.0)}, ["y"], time="t")
WINDOWS = ts.Windows(STASH, 2, 1)


def test_only_a_stash_is_drawn() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: nothing is drawn")
    with pytest.raises(TypeError, match="got a NoneType"):
        ts.plot.coverage(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"windows\.stash"):
        ts.plot.series(WINDOWS, None, ["y"])  # type: ignore[arg-type]


def test_the_remedies_work() -> None:
    unsigned = ts.load({"a": np.array([2**63 + 1, 1], np.uint64), "y": [1.0, None]})
    assert unsigned["a"].tolist() == [2**63 + 1, 1]
    data = {"i": np.array([2**63 + 1, 1], np.uint64), "y": pa.array([1.0, None]).to_numpy(zero_copy_only=False)}
    expression = pc.field("i") == pa.scalar(2**63 + 1, pa.uint64())
    assert ts.load(data, ["y"], filter=expression)["y"].tolist() == [1.0]
    missing = ts.load({"i": [1, 2], "y": [1.0, None]}, ["i"], filter=pc.field("y").is_null())
    assert missing["i"].tolist() == [2]


def test_long_horizons_below_the_limit_are_taken() -> None:
    assert len(ts.Windows(STASH, 2, 2**39, min_horizon=0)) == 19
