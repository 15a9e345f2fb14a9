"""Batches are made on the host without torch's threads, which a forked child lacks: it would wait for them for ever."""

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import tensorstash as ts
from tests import kernel, processes
from tests.batches.golden import SPANS, cases, stash_of
from tests.batches.test_contents import WORLDS

pytestmark = [
    pytest.mark.host("it forks, or looks at what the host computes"),
    pytest.mark.filterwarnings("ignore:The windows of .* uneven"),
    pytest.mark.filterwarnings("ignore:Gaps cost"),
]

CASES = cases()
# these neither read nor write the values of several elements
PLAIN = {"aten.empty.memory_format", "aten.unsafe_split_with_sizes.default", "aten._local_scalar_dense.default"}


class NoArithmetic(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types here
    """Refuses every operation of torch but views, memory that is not filled, and single numbers."""

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        returned = operation._schema.returns
        is_view = bool(returned) and all(one.alias_info is not None and not one.alias_info.is_write for one in returned)
        assert is_view or str(operation) in PLAIN, f"{operation} is computed by the threads of torch"
        return operation(*args, **(kwargs or {}))


no_arithmetic: Any = NoArithmetic


def taken(batches: Iterator[Any]) -> int:
    return sum(1 for _ in batches)


@kernel.needed
@pytest.mark.parametrize("name", CASES)
def test_loaders_compute_nothing_with_torch(name: str) -> None:
    loader, sampled = CASES[name].loader(), CASES[name].sampled()
    with no_arithmetic():
        assert taken(iter(loader)) == len(loader)
        if hasattr(sampled, "__getitem__"):  # shards are sampled alone
            sampled[[0, 2]], sampled[1], sampled.__getitems__([1, 0])


@kernel.needed
@pytest.mark.parametrize("world", WORLDS)
def test_windows_of_every_kind_are_gathered_without_torch(world: str) -> None:
    windows = WORLDS[world]()
    loader = ts.Loader(windows, 3, with_ids=True, with_valid=True)
    with no_arithmetic():
        assert taken(iter(loader)) == len(loader)
        windows[[0, 3]], windows[1], windows.__getitems__([2, 0])


def test_arithmetic_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a transform, and of the way without the kernel."""
    windows = ts.Windows(stash_of(), spans=SPANS)

    def add(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return batch | {"past": batch["past"] + 1}

    with pytest.raises(AssertionError, match=r"^aten\.add\.Tensor is computed"), no_arithmetic():
        taken(iter(ts.Loader(windows, 3, transform=[add])))
    kernel.leave_out(monkeypatch)
    with pytest.raises(AssertionError, match=r"^aten\.\S+ is computed"), no_arithmetic():
        ts.Windows(stash_of(), spans=SPANS)[[0, 3]]


def forked(way: str) -> tuple[Counter[str], str]:
    """How often a child got the batches of its parent, others or a refusal, by kind of batch; and how it ended."""
    done = processes.run(f"from tests.batches import forked; forked.main({way!r})", warn="ignore")
    assert done.returncode == 0, done.stderr
    *said, code = done.stdout.splitlines()
    return Counter(" ".join(line.split()[:2]) for line in said), code


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@needs_fork
@kernel.needed
def test_a_forked_child_gathers_windows_of_every_kind_with_the_kernel() -> None:
    """Large batches, on two threads; none is refused."""
    found, code = forked("kernel")
    assert code == "0"
    kinds = found["same ids"]
    assert kinds > 20
    assert found.keys() == {"same ids", "same each", "same loader"}
    assert found["same each"] == found["same loader"] == kinds


@needs_fork
def test_a_forked_child_refuses_what_torch_would_gather() -> None:
    found, code = forked("torch")
    assert code == "0"
    assert found.keys() == {"refused ids", "refused each", "refused loader"}


@needs_fork
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere torch's threads may be others than those of OpenMP")
def test_a_forked_child_that_computes_with_torch_hangs() -> None:
    """So a gather that did would be found by these tests."""
    assert forked("arithmetic") == ({"torch computes": 1}, str(-signal.SIGALRM))
