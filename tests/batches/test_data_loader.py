"""PyTorch's `DataLoader` with `batch_size=` and its own samplers: the windows of a batch come from one gather."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Subset, random_split

import tensorstash as ts
from tests.batches.test_frameworks import left_behind, run_script, shared_memory, stash_of, windows_of
from tests.oracle_load import like

pytestmark = pytest.mark.host("it has no Loader")


@pytest.fixture(params=["rows", "masked, with static columns"])
def windows(request: pytest.FixtureRequest) -> Any:
    """Windows of distinct values; of the second kind, with empty slots, `observed` and what entities have."""
    times = [k for k in range(40) if request.param == "rows" or k % 7]
    source = {"t": times, "x": np.arange(2.0 * len(times)).reshape(-1, 2), "n": times, "size": [5] * len(times)}
    columns: dict[str, Any] = {"x": "x", "n": ts.column("n", empty=-1)}
    stash = ts.load(source, columns, time="t", static=["size"] if request.param != "rows" else None)
    spans = {"past": ("x", -4, 0), "target": ("n", 0, 2), "lag": ("n", -4, 0, 2)}
    return ts.Windows(stash, spans=spans, gaps="split" if request.param == "rows" else "mask", frequency=1)


def assert_same(batch: dict[str, torch.Tensor], exact: dict[str, torch.Tensor]) -> None:
    assert [*batch] == [*exact]
    for name, tensor in exact.items():
        assert (batch[name].dtype, batch[name].shape) == (tensor.dtype, tensor.shape)
        torch.testing.assert_close(batch[name], tensor, rtol=0, atol=0, equal_nan=True)


def one_by_one(windows: Any, ids: list[int]) -> list[dict[str, torch.Tensor]]:
    return [windows[k] for k in ids]


@pytest.mark.parametrize("size", [1, 5, 100])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_batch_is_that_of_windows_taken_one_by_one(windows: Any, size: int, shuffle: bool) -> None:
    generator = [torch.Generator().manual_seed(3) for _ in range(2)]
    batches = [*DataLoader(windows, size, shuffle, generator=generator[0])]
    samples: Any = one_by_one(windows, [*range(len(windows))])
    slow = [*DataLoader(samples, size, shuffle, generator=generator[1])]
    assert len(batches) == len(slow) == -(-len(windows) // size)
    for batch, exact in zip(batches, slow):
        assert_same(batch, exact)


def test_ids_may_be_few_many_negative_and_equal(windows: Any) -> None:
    for ids in ([], [3], [2, 2, -1, 0]):
        samples = windows.__getitems__(ids)
        assert len(samples) == len(ids)
        for sample, exact in zip(samples, one_by_one(windows, ids)):
            assert_same(sample, exact)
    with pytest.raises(IndexError, match=like("Ids must lie in ... got 1000")):
        windows.__getitems__([0, 1000])


def test_what_is_written_into_a_sample_reaches_no_other_and_not_the_stash(windows: Any) -> None:
    one, other = windows.__getitems__([0, 0])
    one["past"].fill_(-5)
    assert_same(other, windows[0])
    assert (windows[0]["past"] != -5).all()


def test_subsets_gather_too(windows: Any) -> None:
    train, rest = random_split(windows, [10, len(windows) - 10], torch.Generator().manual_seed(0))
    part: Any = Subset(train, [4, 1, 7])
    (samples,) = DataLoader(part, 8, collate_fn=list)
    assert len({sample["past"].untyped_storage().data_ptr() for sample in samples}) == 1, "of one gather"
    (batch,) = DataLoader(part, 8)
    assert_same(batch, windows[[train.indices[k] for k in (4, 1, 7)]])
    assert sum(len(batch["past"]) for batch in DataLoader(rest, 8)) == len(windows) - 10


def test_a_batch_sampler_as_the_sampler_takes_whole_batches(windows: Any) -> None:
    orders = [RandomSampler(windows, generator=torch.Generator().manual_seed(1)) for _ in range(2)]
    steps: list[Any] = [*BatchSampler(orders[0], 8, drop_last=False)]
    loader: Any = DataLoader(windows, batch_size=None, sampler=BatchSampler(orders[1], 8, drop_last=False))
    for batch, step in zip(loader, steps):
        assert_same(batch, windows[step])


WORKERS = """
if __name__ == "__main__":
    path, out = sys.argv[1:]
    made = {}
    for method in ("fork", "spawn"):
        generator = torch.Generator().manual_seed(3)
        loader = torch.utils.data.DataLoader(
            windows_of(ts.open(path)), 7, True, generator=generator, num_workers=2, multiprocessing_context=method
        )
        made[method] = [{name: tensor.clone() for name, tensor in batch.items()} for batch in loader]
    torch.save(made, out)
"""


def test_worker_processes_give_the_same(tmp_path: Path) -> None:
    stash = stash_of()
    stash.save(tmp_path / "stash")
    before = shared_memory()
    run_script(tmp_path, WORKERS, str(tmp_path / "stash"), str(tmp_path / "made"))
    assert left_behind(before) == set()
    own: Any = windows_of(stash)
    exact = [*DataLoader(own, 7, True, generator=torch.Generator().manual_seed(3))]
    made = torch.load(tmp_path / "made", weights_only=True)
    assert [*made] == ["fork", "spawn"]
    for batches in made.values():
        assert len(batches) == len(exact) == 9
        for batch, expected in zip(batches, exact):
            assert_same(batch, expected)
