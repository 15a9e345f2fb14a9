"""`window.key`: a hash of the position in the run, whatever the ranks, batch sizes, legs and passes."""

import hashlib
import json
import struct
from collections.abc import Iterator
from typing import Any

import pytest

import tensorstash as ts
from tests.batches.golden import shards_of
from tests.sampling.test_orders_of_loaders import CASES as DRAWN
from tests.sampling.test_orders_of_loaders import SEED, Case

EXACT: dict[str, Any] = {"sequential": False, "shuffled": True, "blocks": ts.Blocks(4)}
CASES = DRAWN | {name: Case(shuffle, lambda _: []) for name, shuffle in EXACT.items()}
MASK = (1 << 64) - 1


def mixed(x: int) -> int:
    """The finalizer of SplitMix64."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def hashed(seed: int, epoch: int, position: int, number: int = 0) -> int:
    """The hash of a position, as an unsigned number; number 0 is the key, the others are draws."""
    text = f"tensorstash key 1, seed {seed}, epoch {epoch}, number {number}"
    first, second = struct.unpack("<2Q", hashlib.blake2b(text.encode()).digest()[:16])
    return mixed(mixed(position ^ first) ^ second)


def key(seed: int, epoch: int, position: int) -> int:
    (number,) = struct.unpack("<q", struct.pack("<Q", hashed(seed, epoch, position)))
    return int(number)


def keys_of(loaders: list[ts.Loader], most: int | None = None) -> Iterator[tuple[list[int], list[int]]]:
    """The keys of each step over all ranks, without filler and of the filler alone."""
    passing = [iter(loader) for loader in loaders]
    while most is None or most > 0:
        step = [next(batches, None) for batches in passing]
        if None in step:
            return
        most = None if most is None else most - 1
        pairs = [
            (key, valid)
            for batch in step
            if batch is not None
            for key, valid in zip(
                batch["window.key"].tolist(), batch.get("valid", batch["window"] >= 0).tolist(), strict=True
            )
        ]
        yield [key for key, valid in pairs if valid], [key for key, valid in pairs if not valid]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("tail", ["keep", "pad"])
@pytest.mark.parametrize("ranks", [1, 3])
def test_keys_are_hashes_of_the_positions_in_the_epoch(ranks: int, tail: str, name: str) -> None:
    loaders, n = CASES[name].loaders(ranks, 2, tail=tail), 0
    for epoch in range(2):
        position = 0
        for keys, filler in keys_of(loaders):
            assert keys == [key(SEED, epoch, position + k) for k in range(len(keys))]
            assert {*filler} <= {key(SEED, epoch, position)}, "filler repeats the first window of its step"
            position += len(keys)
        n = n or position
        assert position == n == loaders[0].sampler.n


@pytest.mark.parametrize("name", CASES)
def test_a_resumed_run_has_the_keys_of_a_whole_one(name: str) -> None:
    case = CASES[name]
    whole = [key for _ in range(2) for keys, _ in keys_of(case.loaders(1, 4)) for key in keys]
    state, seen = None, []
    for ranks, size, steps in [(2, 1, 2), (1, 3, 1), (3, 2, None)]:
        loaders = case.loaders(ranks, size)
        for loader in loaders:
            if state is not None:
                loader.load_state_dict(state)
        seen += [key for keys, _ in keys_of(loaders, steps) for key in keys]
        state = json.loads(json.dumps(loaders[0].state_dict()))
    assert seen == whole[: len(seen)]
    assert len(seen) == loaders[0].sampler.n


def test_passes_of_steps_go_on_with_the_positions_of_their_epochs() -> None:
    loaders = DRAWN["mix, shuffled"].loaders(2, 2, steps=3)
    seen = [key for _ in range(4) for keys, _ in keys_of(loaders) for key in keys]
    assert seen == [key(SEED, epoch, k) for epoch in range(3) for k in range(17)][: len(seen)]
    assert len(seen) > 40


def test_keys_follow_the_seed_of_a_loaded_state() -> None:
    first, other = (ts.Loader(DRAWN["by time"].source(), 4, seed=seed, with_ids=True) for seed in (1, 2))
    other.load_state_dict(first.state_dict())
    assert [*keys_of([other])] == [*keys_of([first])]


@pytest.mark.filterwarnings("ignore:The windows of .* uneven")
@pytest.mark.parametrize("shuffle", [False, True])
def test_over_shards_each_window_has_the_same_key_on_any_number_of_nodes(shuffle: bool) -> None:
    """And no two windows of an epoch have one key."""
    layouts = []
    for nodes in (1, 2, 3):
        keys: dict[tuple[int, int], int] = {}
        for node in range(nodes):
            windows = shards_of("few masked", 5, nodes, node)
            loader = ts.Loader(windows, 4, shuffle=shuffle, seed=SEED, num_replicas=nodes, rank=node, with_ids=True)
            for batch in loader:
                numbers = (batch[name].tolist() for name in ("source", "window", "window.key", "valid"))
                keys |= {(shard, window): key for shard, window, key, valid in zip(*numbers) if valid}
        layouts.append(keys)
    assert layouts[0] == layouts[1] == layouts[2]
    assert len(layouts[0]) == len({*layouts[0].values()}) == len(shards_of("few masked", 5))
    assert {*layouts[0].values()} == {key(SEED, 0, k) for k in range(len(layouts[0]))}
