"""Small batches are made a few at a time, in shared memory, and each is as if it had been made alone."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

import tensorstash as ts
from tests import oracle
from tests.data import Table
from tests.epochs import ids_of

SPANS = {"past": ("f32", -4, 0), "next": ("f32", 0, 4), "pack": ("pack", -4, 2), "flag": ("flag", 0, 2)}


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """The number of torch's threads, of which several share a call that fills the memory of many steps."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def windows() -> ts.Windows:
    return ts.Windows(Table([250, 250], [*range(250), *range(250)]).stash(), spans=SPANS)


@pytest.mark.parametrize("batch_size", [1, 7, 64, 486, 1000])
@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.usefixtures("threads")
def test_each_batch_is_that_of_its_ids_up_to_the_last(batch_size: int, prefetch: int) -> None:
    own = windows()
    loader = ts.Loader(own, batch_size, shuffle=True, prefetch=prefetch)
    ids = ids_of(loader.sampler)
    for batch, some in zip(list(loader), ids, strict=True):
        expected = own[some]
        assert list(batch) == list(expected)
        assert all(oracle.same(batch[name], expected[name]) for name in expected)


def test_entries_come_in_the_order_of_their_spans_whichever_share_memory() -> None:
    spans = {"past": ("f32", -4, 0), "pack": ("pack", -4, 2), "next": ("f32", 0, 4), "flag": ("flag", 0, 2)}
    own = ts.Windows(Table([250, 250], [*range(250), *range(250)]).stash(), spans=spans)
    for batch in ts.Loader(own, 7, with_valid=True):
        assert list(batch) == [*spans, "valid"]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_writing_into_a_batch_leaves_the_autograd_of_others_alone(prefetch: int) -> None:
    """Not even the other columns of the batch notice. Views of one `unbind` would share a counter of writes."""
    weight = torch.ones(4, requires_grad=True)
    batches = list(ts.Loader(windows(), 8, prefetch=prefetch))
    losses = [(weight * batch["past"]).sum() for batch in batches]
    for batch in batches:
        batch["next"].zero_()
    for batch in batches[::2]:
        batch["past"].zero_()
    for loss in losses[1::2]:
        loss.backward()  # type: ignore[no-untyped-call]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        losses[0].backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.usefixtures("threads")
def test_a_kept_batch_keeps_at_most_the_batches_made_with_it(prefetch: int, way: str) -> None:
    loader = ts.Loader(windows(), 8, prefetch=prefetch, with_ids=True, with_valid=True)
    steps = len(loader.dataset) // 8 if way == "host" else 1
    for batch in loader:
        # on the host, columns of one item size share their memory
        assert batch["past"].untyped_storage().nbytes() == steps * (1 if way == "resident" else 2) * 8 * 4 * 4
        assert batch["window"].untyped_storage().nbytes() == steps * 8 * 8
        assert batch["valid"].untyped_storage().nbytes() == steps * 8
        break
    places = [batch["past"].data_ptr() for batch in list(loader)]
    assert len(places) == len(set(places))


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_transform_that_writes_in_place_touches_one_batch(prefetch: int) -> None:
    own, seen = windows(), []

    def double(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        assert all(tensor._version == 0 for tensor in batch.values())
        seen.append(batch["past"].clone())
        batch["past"].mul_(2)
        return batch

    expected = [batch["past"].clone() for batch in ts.Loader(own, 8, shuffle=True)]
    batches = list(ts.Loader(own, 8, shuffle=True, prefetch=prefetch, transform=[double]))
    for batch, before, plain in zip(batches, seen, expected, strict=True):
        assert torch.equal(before, plain)
        assert torch.equal(batch["past"], 2 * plain)
        assert [tensor._version for tensor in batch.values()] == [1] + [0] * (len(batch) - 1)


@pytest.mark.host("it looks at memory of the host")
def test_the_memory_of_a_portion_is_used_again_when_no_batch_of_it_is_held() -> None:
    loader = ts.Loader(ts.Windows(ts.load({"y": np.arange(50_000.0)}), 4), 8)
    held, used = [], set()
    for k, batch in enumerate(loader):
        used.add(batch["y"].untyped_storage().data_ptr())
        if k % 500 == 0:
            held.append(batch)
        del batch
    assert len(held) < len(used) <= len(held) + 3
    assert [int(batch["y"][0, 0]) for batch in held] == [4000 * k for k in range(len(held))]
