"""The inside of `batches.host.py`: recycled memory of batches."""

import sys
from multiprocessing.reduction import ForkingPickler
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
import torch.multiprocessing  # which teaches the pickler tensors
from torch.utils.dlpack import from_dlpack, to_dlpack  # type: ignore[attr-defined]

import tensorstash as ts
from tensorstash.batches import host
from tensorstash.batches.host import Pool, together

pytestmark = pytest.mark.host("it looks at memory of the host")


def pool_of_two() -> Pool:
    windows = ts.Windows(ts.load({"y": np.arange(100.0)}), 3, 1)
    group = windows.contents.plans[0].groups[0]
    return Pool(group.buffer_shape(1), group.dtype, 2)


def test_a_buffer_is_used_again_when_its_last_view_is_gone() -> None:
    pool = pool_of_two()
    first = pool.take(10)
    address, held = first.data_ptr(), first[3:5]
    del first
    second = pool.take(10)
    assert second.data_ptr() != address
    del held
    assert pool.take(7).data_ptr() == address


def test_no_more_than_the_spare_buffers_are_kept() -> None:
    pool = pool_of_two()
    many = [pool.take(10) for _ in range(20)]
    assert len({tensor.data_ptr() for tensor in many}) == 20
    del many
    assert (len(pool.idle), len(pool._lent)) == (2, 0)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_plain_loop_makes_few_buffers(prefetch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call makes up to 128 batches, so an epoch of 249 ends with a small buffer, which a larger one may replace."""
    made: list[tuple[int, ...]] = []
    aligned = host._aligned

    def noted(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        made.append(shape)
        return aligned(shape, dtype)

    monkeypatch.setattr(host, "_aligned", noted)
    loader = ts.Loader(ts.Windows(ts.load({"y": np.arange(1991.0)}), 3, 1), 8, prefetch=prefetch)
    for _ in range(10):
        for _batch in loader:
            pass
    at_once = prefetch + 2  # those made ahead, the one that is taken, and that of the batch before, still named here
    assert len(loader) == 249
    assert len(made) <= 2 * at_once


def test_a_loop_that_kept_many_batches_leaves_few_buffers() -> None:
    loader = ts.Loader(ts.Windows(ts.load({"y": np.arange(1991.0)}), 3, 1), 8)
    kept = [batch for _ in range(10) for batch in loader]
    del kept
    assert [len(pool.idle) for pool in loader._memory.pools] == [3]  # type: ignore[union-attr]


def test_no_line_of_python_runs_when_a_batch_goes() -> None:
    """A Ctrl-C that arrives in one is printed and lost; the training loop that it was meant for goes on."""
    pool = pool_of_two()
    batch, lines = pool.take(10), []

    def tell(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            lines.append(frame.f_code.co_name)

    sys.setprofile(tell)
    del batch
    sys.setprofile(None)
    assert (lines, len(pool.idle)) == ([], 1)
    assert torch.is_tensor(pool.take(10))


SHARING: dict[str, Any] = {
    "share_memory_": lambda tensor: tensor.share_memory_(),
    "queue": lambda tensor: bytes(ForkingPickler.dumps(tensor)),  # what a queue of torch.multiprocessing puts
}
HOLDING: dict[str, tuple[Any, Any]] = {
    "array": (lambda tensor: tensor.numpy(), torch.from_numpy),
    "capsule": (to_dlpack, from_dlpack),
    "tensor": (lambda tensor: tensor[1:].view(-1), lambda tensor: tensor),
}


@pytest.mark.parametrize("batch_size", [4, 16, 700])
@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("sharing", SHARING)
@pytest.mark.parametrize("holding", HOLDING)
def test_what_is_held_stays_when_another_tensor_of_its_memory_is_shared(
    batch_size: int, prefetch: int, sharing: str, holding: str
) -> None:
    """torch moves the values of a whole storage; arrays and capsules still point to where they were."""
    hold, look = HOLDING[holding]
    stash = ts.load({"y": np.arange(3000.0), "z": np.arange(3000.0) + 0.5})
    held, loader = [], ts.Loader(ts.Windows(stash, 3), batch_size, prefetch=prefetch, shuffle=True)
    for step, batch in enumerate(loader):
        if step < 3:
            held.append((hold(batch["y"]), hold(batch["z"]), batch["y"].clone(), batch["z"].clone()))
            SHARING[sharing](batch["z"])
    del batch
    for _ in loader:
        pass
    for y, z, own_y, own_z in held:
        for kept, own in ((y, own_y), (z, own_z)):
            found = look(kept)
            assert torch.equal(found, own[1:].view(-1) if holding == "tensor" else own)


def test_small_batches_are_made_together() -> None:
    sizes = (1, 1 << 15, 1 << 16, 1 << 20, 3 << 20, 1 << 30)
    assert [together(nbytes) for nbytes in sizes] == [128, 128, 64, 4, 1, 1]
