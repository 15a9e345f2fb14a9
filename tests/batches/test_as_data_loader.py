"""A loader that is taken for a `DataLoader` of PyTorch: it refuses, and what it says to write serves."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Subset, random_split

import tensorstash as ts
from tests import processes
from tests.batches.test_frameworks import needs
from tests.oracle_load import like

WINDOWS = ts.Windows(ts.load({"y": np.arange(30.0)}), history=3)


def test_a_loader_has_no_numbers() -> None:
    loader: Any = ts.Loader(WINDOWS, 4)
    with pytest.raises(TypeError, match=like("no batch of a number, got [0]. Write next(iter(loader)) ... windows.")):
        loader[0]
    assert next(iter(loader))["y"].equal(WINDOWS[:4]["y"].to(loader.device))
    assert loader.dataset[5]["y"].equal(WINDOWS[5]["y"])
    assert len([*DataLoader(loader.dataset, 4)]) == len(loader)


@pytest.mark.parametrize("batch_size", [None, 4])
def test_a_loader_is_no_data_set(batch_size: int | None) -> None:
    wrapped: Any = DataLoader(ts.Loader(WINDOWS, 4), batch_size=batch_size)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=like("no batch of a number, got [0]. ... takes the windows.")):
        next(iter(wrapped))


def test_a_loader_is_no_iterator() -> None:
    loader: Any = ts.Loader(WINDOWS, 4)
    with pytest.raises(TypeError, match=like("A loader begins a pass with iter(). Write next(iter(loader)), or")):
        next(loader)
    assert len(next(iter(loader))["y"]) == 4


@pytest.mark.parametrize("kind", ["Subset", "random_split"])
def test_a_subset_is_an_order(kind: str) -> None:
    dataset: Any = WINDOWS
    subset: Any = Subset(dataset, [7, 3, 9]) if kind == "Subset" else random_split(dataset, [3, 25])[0]
    with pytest.raises(TypeError, match=like("Write ts.Loader(subset.dataset, ..., order=subset.indices)")):
        ts.Loader(subset, 2)
    loader = ts.Loader(subset.dataset, 2, order=subset.indices, with_ids=True)
    assert [k for batch in loader for k in batch["window"].tolist()] == [*subset.indices]


@pytest.mark.parametrize("kind", [ts.Loader, DataLoader])
def test_a_loader_of_a_loader_takes_its_dataset(kind: Any) -> None:
    with pytest.raises(TypeError, match=r"got a (Data)?Loader\. Give ts\.Loader its dataset\.$"):
        ts.Loader(kind(WINDOWS, 4), 4)
    assert len(ts.Loader(kind(WINDOWS, 4).dataset, 4)) == 7


def test_what_has_a_dataset_of_another_kind_gets_no_remedy_that_fails() -> None:
    for other in (Subset([1, 2], [0]), DataLoader([1, 2])):  # type: ignore[arg-type, var-annotated]
        with pytest.raises(TypeError, match=r"got a \w+\.$"):
            ts.Loader(other, 4)  # type: ignore[arg-type]


ACCELERATE = """
import numpy as np, tensorstash as ts
from accelerate import Accelerator, skip_first_batches

windows = ts.Windows(ts.load({"y": np.arange(30.0)}), history=3)
loader, accelerator = ts.Loader(windows, 4, shuffle=True), Accelerator(cpu=True)
assert accelerator.prepare(loader) is loader
for wrong in (skip_first_batches, accelerator.skip_first_batches, accelerator.prepare_data_loader):
    try:
        wrong(loader)
    except TypeError as error:
        print(error)
whole = [batch["y"] for batch in ts.Loader(windows, 4, shuffle=True)]
for _ in zip(range(2), loader):
    pass
again = ts.Loader(windows, 4, shuffle=True)
again.load_state_dict(loader.state_dict())
assert all(one.equal(two["y"]) for one, two in zip(whole[2:], again, strict=True))
"""


@pytest.mark.host("the processes that it starts take their own way")
@needs("accelerate")
def test_accelerate_neither_skips_nor_copies_a_loader() -> None:
    """It would make a `DataLoader` of the windows, without the transforms, the device and the ranks of the loader."""
    done = processes.run(ACCELERATE, warn="ignore")
    assert done.returncode == 0, done.stderr
    (said,) = {*done.stdout.splitlines()}
    assert done.stdout.count(said) == 3
    assert said == (
        "A ts.Loader is used as it is, because it knows its rank and continues from load_state_dict(). Leave out "
        "prepare_data_loader() and skip_first_batches(), and give transformers' Trainer ignore_data_skip=True."
    )


def test_torch_still_takes_the_windows_themselves() -> None:
    batch = next(iter(DataLoader(WINDOWS, 4)))  # type: ignore[arg-type]
    assert batch["y"].equal(WINDOWS[torch.arange(4)]["y"])
