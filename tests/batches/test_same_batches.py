"""Bit for bit the same batches, wherever the columns lie and however they are gathered."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import tensorstash as ts
from tests import oracle
from tests.data import DTYPES, Table
from tests.epochs import ids_of, ordered

Make = Callable[[ts.Stash, Path], ts.Stash]


def private(stash: ts.Stash, path: Path) -> ts.Stash:
    return stash


def opened(stash: ts.Stash, path: Path) -> ts.Stash:
    stash.save(path / "stash")
    return ts.open(path / "stash")


def shared(stash: ts.Stash, path: Path) -> ts.Stash:
    return stash.share("same")


STASHES: list[Make] = [private, opened, shared]  # ways to hold the same columns
ORDERS: dict[str, Any] = {"sequential": False, "shuffled": True, "blocks": ts.Blocks(96), "lanes": ts.Lanes(512)}
PACKED = [(f"{name}_past", name) for name in (*DTYPES, "pack")]
# every dtype, and a pack; batches are large enough for torch to gather them on several threads
SPANS = {name: (column, -24, 0) for name, column in PACKED} | {
    "target": ("f32", 0, 6),
    "daily": ("f64", -24, 6, 6),
    "packs": ("pack", -4, 4, 2),
}


@cache
def loaded() -> ts.Stash:
    times = [*range(9000), *range(9100, 16_000), *range(16_000)]  # a gap, and two entities
    return Table([15_900, 16_000], times, holes=[5, 8999, 20_000]).stash()


def loader_of(stash: ts.Stash, order: str, prefetch: int) -> ts.Loader:
    windows = ts.Windows(stash, spans=SPANS, stride=24, require=["target"])
    return ts.Loader(windows, 512, **ordered(ORDERS[order]), seed=11, tail="pad", prefetch=prefetch, with_ids=True)


@cache
def reference(order: str) -> list[dict[str, torch.Tensor]]:
    """The windows of every step gathered one by one from the columns of the loaded stash, by slices."""
    loader = loader_of(loaded(), order, 0)
    windows, made = loader.dataset, []
    for ids in ids_of(loader.sampler):
        anchors = oracle.anchor_rows(windows, ids)
        made.append(
            {
                span.name: torch.stack(
                    [oracle.span(loaded()[span.column], row, span.start, span.stop, span.step) for row in anchors]
                )
                for span in windows.spans
            }
        )
    return made


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.usefixtures("shm")
@pytest.mark.parametrize("make", STASHES)
@pytest.mark.parametrize("order", ORDERS)
def test_batches_are_the_same_bits_on_any_threads_with_and_without_prefetch(
    make: Make, order: str, threads: int, tmp_path: Path
) -> None:
    stash, expected = make(loaded(), tmp_path), reference(order)
    told = []
    for prefetch in (0, 4):
        made = list(loader_of(stash, order, prefetch))
        assert len(made) == len(expected) > 2
        for batch, exact in zip(made, expected):
            extra = {"valid", "window", "entity", "anchor", "window.key"} | ({"reset"} if order == "lanes" else set())
            assert batch.keys() == exact.keys() | extra
            assert all(oracle.same(batch[name], exact[name]) for name in exact)
        told.append([{name: batch[name].tolist() for name in sorted(extra)} for batch in made])
    assert told[0] == told[1] == extras(order)


@cache
def extras(order: str) -> list[dict[str, list[Any]]]:
    """What batches of the loaded stash carry beside their spans."""
    return [
        {name: tensor.tolist() for name, tensor in sorted(batch.items()) if name not in SPANS}
        for batch in loader_of(loaded(), order, 0)
    ]


@pytest.mark.usefixtures("shm")
@pytest.mark.parametrize("make", STASHES)
def test_states_and_orders_do_not_depend_on_where_the_columns_lie(make: Make, tmp_path: Path) -> None:
    stash = make(loaded(), tmp_path)
    for order in ORDERS:
        one, other = loader_of(loaded(), order, 0), loader_of(stash, order, 4)
        next(iter(one))
        other.load_state_dict(one.state_dict())
        assert other.state_dict() == one.state_dict()
