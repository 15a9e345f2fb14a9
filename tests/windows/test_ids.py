"""Ids of every type, wherever ids come in: they are judged before they are cast, which could wrap or cut them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Subset

import tensorstash as ts
from tests.oracle_load import like

COUNT = 11
WINDOWS = ts.Windows(ts.load({"t": np.arange(COUNT + 1), "y": np.arange(COUNT + 1.0)}, time="t"), history=2)
MIX = ts.Mix({"a": WINDOWS})
NAMES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
EDGES = [0, 1, COUNT - 1, COUNT, COUNT + 1, 2**7, 2**8 - 1, 2**15, 2**16 - 1, 2**31, 2**32 - 1, 2**53 + 1, 2**63 - 1]
EDGES += [2**63, 2**64 - COUNT, 2**64 - 1, 2**64, 2**70]

Taken = Callable[[Any], list[int]]  # the windows of the ids that are given


def loaded(ids: Any) -> list[int]:
    batches = [*ts.Loader(WINDOWS, 3, order=ids, with_ids=True)] if len(ids) else []
    return [k for batch in batches for k in batch["window"].tolist()]


def sampled(ids: Any) -> list[int]:
    return [k for step in ts.Sampler(COUNT, 3, order=ids) for k in step] if len(ids) else []


def in_frame(ids: Any) -> list[int]:
    times: list[int] = WINDOWS.to_frame(ids, torch.zeros(len(ids), 2))["t"].to_list()
    return times[::2]


FROM_THE_END: dict[str, Taken] = {
    "windows[ids]": lambda ids: WINDOWS[ids]["y"][:, 0].long().tolist(),
    "mix[ids]": lambda ids: MIX[ids]["y"][:, 0].long().tolist(),
    "__getitems__": lambda ids: [int(one["y"][0]) for one in WINDOWS.__getitems__(ids)],
    "anchors": lambda ids: (WINDOWS.anchors(ids)["time"] - 1).tolist(),
    "to_frame": in_frame,
}
FROM_ZERO: dict[str, Taken] = {"order of a loader": loaded, "order of a sampler": sampled}
ALL = FROM_THE_END | FROM_ZERO

NUMBERS = st.lists(st.integers(-COUNT - 2, COUNT + 1) | st.sampled_from([*EDGES, *(-k for k in EDGES)]), max_size=4)


def forms(numbers: list[int]) -> dict[str, Any]:
    """The numbers as everything that holds them exactly."""
    made: dict[str, Any] = {"list": numbers, "objects": np.array(numbers, object)}
    for name in NAMES:
        limits = np.iinfo(name)
        if all(limits.min <= k <= limits.max for k in numbers):
            made[name] = np.array(numbers, name)
            made[f"torch {name}"] = torch.tensor(numbers, dtype=getattr(torch, name))
            made[f"list of {name}"] = [made[name].dtype.type(k) for k in numbers]
    return made


@pytest.mark.parametrize("name", ALL)
@given(NUMBERS)
@settings(max_examples=60)
def test_integers_of_any_type_are_the_windows_they_name_or_an_index_error(name: str, numbers: list[int]) -> None:
    least = -COUNT if name in FROM_THE_END else 0
    outside = [k for k in numbers if not least <= k < COUNT]
    for form, ids in forms(numbers).items():
        if outside:
            with pytest.raises(IndexError, match=like(f"Ids must lie in [{least}, {COUNT}), got {outside[0]}")):
                ALL[name](ids)
        else:
            assert ALL[name](ids) == [k % COUNT for k in numbers], form


WRONG: dict[str, Any] = {
    "bools": np.array([True, False]),
    "a mask": torch.arange(COUNT) > 3,
    "a list of bools": [True, False],
    "a bool among integers": [3, True],
    "a bool of numpy among integers": [3, np.True_],
    "a bool of torch among integers": np.array([3, torch.tensor(True)], object),
    "floats": np.array([1.0, 2.0]),
    "a list of floats": [1.0, 2.0],
    "a float among integers": [1, 2.0],
    "a float among large integers": [2.0, 2**70],
    "floats of torch": torch.tensor([1.0]),
    "complex numbers": torch.tensor([1j]),
    "texts": ["1"],
    "bytes": [b"1"],
    "None": [None],
    "times": np.array(["2024-01-01"], "datetime64[s]"),
    "durations": np.array([1], "timedelta64[s]"),
    "a matrix": np.array([[1, 2]]),
    "a list of lists": [[1, 2]],
    "a ragged list": [[1], [2, 3]],
    "a sparse tensor": torch.tensor([1, 0]).to_sparse(),
    "objects": np.array([1, "a"], object),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("name", ALL)
def test_what_is_no_integer_is_a_type_error(name: str, wrong: str) -> None:
    with pytest.raises(TypeError, match=r"^(Ids|order) must ") as caught:
        ALL[name](WRONG[wrong])
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("name", FROM_THE_END)
def test_a_mask_becomes_ids_as_the_message_says(name: str) -> None:
    mask = np.arange(COUNT) > 8
    with pytest.raises(TypeError, match=like("For a mask write np.flatnonzero(mask).")):
        FROM_THE_END[name](mask)
    assert FROM_THE_END[name](np.flatnonzero(mask)) == [9, 10]


@pytest.mark.parametrize("ids", [[], (), np.array([]), torch.tensor([]), np.array([], np.uint8), slice(0, 0)])
def test_no_ids_are_no_windows(ids: Any) -> None:
    assert WINDOWS[ids]["y"].shape == (0, 2)
    assert len(WINDOWS.anchors(ids)["time"]) == 0


@given(st.integers(-COUNT - 2, COUNT + 1) | st.sampled_from([*EDGES, *(-k for k in EDGES)]))
def test_one_integer_of_any_type_is_one_window(number: int) -> None:
    scalars = [number] + [form.reshape(-1)[0] for name, form in forms([number]).items() if "list" not in name]
    scalars += [form.reshape(()) for name, form in forms([number]).items() if "list" not in name]
    for one in scalars:
        for sampled in (WINDOWS, MIX):
            if -COUNT <= number < COUNT:
                assert sampled[one]["y"].tolist() == [number % COUNT, number % COUNT + 1]
            else:
                with pytest.raises(IndexError, match=like(f"Ids must lie in [-11, 11), got {number}")):
                    sampled[one]


@given(NUMBERS)
@settings(max_examples=60)
def test_a_subset_of_pytorch_names_the_same_windows(numbers: list[int]) -> None:
    """Its indices in a `DataLoader`, and as `order=`."""
    for ids in forms(numbers).values():
        loader: Any = DataLoader(Subset(WINDOWS, ids), batch_size=2)  # type: ignore[arg-type]
        if all(-COUNT <= k < COUNT for k in numbers):
            assert [k for batch in loader for k in batch["y"][:, 0].tolist()] == [k % COUNT for k in numbers]
        else:
            # it gives a list of tensors, of which numpy takes none beyond 64 bits
            with pytest.raises((IndexError, TypeError), match=r"^Ids must (lie in \[-11, 11\)|be one array, list)"):
                list(loader)
