"""The inside of `common/checks.py`: which values are integers, and which are flags."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorstash as ts
from tensorstash.common.checks import at_least, is_integer
from tests.oracle_load import like


@pytest.mark.parametrize("value", [3, np.int8(3), np.uint64(3), np.array(3), torch.tensor(3), torch.tensor([3])])
def test_integers_of_any_library_are_taken(value: Any) -> None:
    assert is_integer(value)
    assert at_least(3, value, "count") == 3


@pytest.mark.parametrize(
    "value",
    [True, 3.0, "3", None, np.float32(3), np.array([3.0]), np.array([1, 2]), torch.tensor(3.0), torch.tensor([1, 2])],
)
def test_other_values_are_refused(value: Any) -> None:
    """Arrays and tensors of floats have an `__index__` too."""
    assert not is_integer(value)
    with pytest.raises(ValueError, match=like(f"count ... got {value!r}")):
        at_least(0, value, "count")


def test_a_tensor_without_a_value_is_no_integer() -> None:
    assert not is_integer(torch.zeros(1, dtype=torch.int64, device="meta"))


def test_a_cut_that_is_no_integer_is_refused() -> None:
    windows = ts.Windows(ts.load({"t": [1, 2, 3], "y": [0.0] * 3}, ["y"], time="t"), 1)
    with pytest.raises(ValueError, match=like("A cut is an integer, as the times are; got tensor([1.]).")):
        windows.split(torch.tensor([1.0]))


STASH = ts.load({"t": [1, 2, 3, 4], "y": [0.0, 1.0, 2.0, 3.0]}, ["y"], time="t")
WINDOWS = ts.Windows(STASH, 1)
PACKED = ts.load({"a": [1.0, 2.0], "b": [3.0, 5.0]}, {"x": ["a", "b"]})
PREDICTED = ts.Windows(STASH, 1, 1)
FLAGS: dict[str, Callable[[Any], object]] = {
    "shuffle": lambda flag: ts.Loader(WINDOWS, 2, shuffle=flag).sampler.state_dict()["order"],
    "shuffle of ts.ByTime": lambda flag: ts.Loader(WINDOWS, None, order=ts.ByTime(shuffle=flag)).state_dict()["order"],
    "with_ids": lambda flag: [*next(iter(ts.Loader(WINDOWS, 2, with_ids=flag)))],
    "with_valid": lambda flag: [*next(iter(ts.Loader(WINDOWS, 2, with_valid=flag)))],
    "resident": lambda flag: ts.Loader(WINDOWS, 2, resident=flag).resident,
    "expanding": lambda flag: [len(train) for train, _ in WINDOWS.folds(2, 1, expanding=flag)],
    "age": lambda flag: [*ts.Windows(STASH, spans={"x": ts.During("y", -2, 0, max_rows=2, age=flag)})[0]],
    "cyclic": lambda flag: ts.calendar("hour", cyclic=flag),
    "scaled": lambda flag: ts.calendar("hour", scaled=flag),
    "origin": lambda flag: PREDICTED.to_frame([0], torch.zeros(1, 1), origin=flag).columns,
    "step": lambda flag: PREDICTED.to_frame([0], torch.zeros(1, 1), step=flag).columns,
    "together": lambda flag: repr(ts.Scaler.fit(ts.Windows(PACKED, 1), ["x"], together=flag)),
    "overwrite": lambda flag: [*ts.load({"y": [1.0]}, file="y.safetensors", overwrite=flag)],
    "progress": lambda flag: [*ts.load({"y": [1.0]}, progress=flag)],
    "strict": lambda flag: [*ts.attach("flags", strict=flag)],
}


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.usefixtures("shm")
def test_flags_are_truth_values_of_python_or_numpy(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ts.load({"y": [1.0]}, share="flags")
    for flag in (True, False):
        assert FLAGS[name](np.bool_(flag)) == FLAGS[name](flag)
    for other in (1, 0, "yes", torch.tensor(True)):
        with pytest.raises(TypeError, match=like(f"{name} must be True")):
            FLAGS[name](other)


@pytest.mark.usefixtures("shm")
def test_share_may_be_a_truth_value_of_numpy() -> None:
    values: list[Any] = [np.False_, np.True_, True]
    labels = [ts.load({"y": [1.0]}, share=value).segment.label for value in values]
    assert labels[0] is None
    assert labels[1] == labels[2]
    assert labels[1] is not None
