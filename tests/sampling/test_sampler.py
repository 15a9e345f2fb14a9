"""Steps, ranks, tails and states: every id once, equal steps, and a state that goes on anywhere."""

import json
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests import oracle, orders, processes
from tests.epochs import loaders_of, valid_numbers
from tests.oracle_load import like
from tests.words import Tail

TAILS = ["keep", "pad", "drop"]

BLOCK = 1 << 15  # ids that are computed together


def steps_of(n: int, batch_size: int, ranks: int, tail: str, begin: int = 0) -> list[list[list[int]]]:
    """The ids of every step and rank, the obvious way."""
    order = orders.shuffled(n, 0, 0)
    return [[ids for ids, _ in step] for step in oracle.steps(order, batch_size, ranks, tail, begin)]


def sampler(n: int, batch_size: int, tail: Tail, ranks: int = 1, rank: int = 0) -> ts.Sampler:
    return ts.Sampler(n, batch_size, shuffle=True, num_replicas=ranks, rank=rank, tail=tail)


@settings(max_examples=150)
@given(st.integers(1, 60), st.integers(1, 7), st.integers(1, 9), st.sampled_from(TAILS))
def test_every_rank_takes_its_part_of_every_step(n: int, batch_size: int, ranks: int, tail: Tail) -> None:
    expected = steps_of(n, batch_size, ranks, tail)
    if not expected:
        with pytest.raises(ValueError, match=like(f'tail="drop" leaves nothing: {n} windows make no step of')):
            list(sampler(n, batch_size, tail, ranks, 0))
        return
    for rank in range(ranks):
        one = sampler(n, batch_size, tail, ranks, rank)
        assert len(one) == len(expected)
        assert [*one] == [step[rank] for step in expected]


@settings(max_examples=60)
@given(st.integers(1, 60), st.integers(1, 7), st.integers(1, 9), st.sampled_from(["keep", "pad"]))
def test_valid_ids_of_all_ranks_are_every_id_once(n: int, batch_size: int, ranks: int, tail: Tail) -> None:
    taken = []
    for rank in range(ranks):
        for batch in loaders_of(n, ranks, batch_size, tail=tail)[rank]:
            taken += valid_numbers(n, batch)
            assert len(batch["past"]) >= 1
    assert sorted(taken) == list(range(n))


@settings(max_examples=60)
@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 4), st.integers(1, 5), st.integers(1, 4), st.data())
def test_a_state_goes_on_with_any_batch_size_and_number_of_ranks(
    n: int, batch_size: int, ranks: int, next_batch: int, next_ranks: int, data: st.DataObject
) -> None:
    done = data.draw(st.integers(0, -(-n // (batch_size * ranks)) - 1))
    first = sampler(n, batch_size, "keep", ranks, 0)
    passing = iter(first)
    for _ in range(done):
        next(passing)
    state = first.state_dict()
    assert state["consumed"] == done * batch_size * ranks
    expected = steps_of(n, next_batch, next_ranks, "keep", begin=state["consumed"])
    for rank in range(next_ranks):
        second = sampler(n, next_batch, "keep", next_ranks, rank)
        second.load_state_dict(state)
        assert [*second] == [step[rank] for step in expected]
        assert second.state_dict()["epoch"] == 1


def test_steps_that_are_computed_together_are_the_steps_one_by_one() -> None:
    n = 3 * BLOCK + 1234
    for batch_size in (100, BLOCK + 1):
        one = ts.Sampler(n, batch_size, num_replicas=2, rank=1)
        ids = np.concatenate(list(one))
        size = 2 * batch_size
        whole = [np.arange(k + batch_size, k + size) for k in range(0, n - size + 1, size)]
        left = n % size
        assert np.array_equal(ids, np.concatenate([*whole, np.arange(n - left // 2, n)]))


def test_a_finished_pass_moves_on_to_the_next_epoch() -> None:
    one = sampler(10, 4, "keep")
    passes = [np.concatenate(list(one)).tolist() for _ in range(2)]
    assert passes == [orders.shuffled(10, 0, epoch) for epoch in range(2)]
    assert one.state_dict()["epoch"] == 2
    assert one.state_dict()["consumed"] == 0


def test_a_pass_that_is_left_is_over() -> None:
    """As with a DataLoader that shuffles: a loop with `break` sees another order each time, not one part for ever."""
    one = sampler(10, 4, "keep")
    for epoch in range(3):
        assert next(iter(one)) == orders.shuffled(10, 0, epoch)[:4]
        assert (one.state_dict()["epoch"], one.state_dict()["consumed"]) == (epoch, 4)


def test_a_pass_begins_with_its_first_step() -> None:
    """An iterator that was only made has used up nothing."""
    one = sampler(10, 4, "keep")
    for _ in range(3):
        iter(one)
    assert next(iter(one)) == orders.shuffled(10, 0, 0)[:4]


def test_set_epoch_in_a_pass_speaks_of_the_next_one() -> None:
    """The state of the pass under way goes on, so that a resume neither loses nor repeats windows."""
    one, taken = sampler(10, 4, "keep"), []
    for ids in one:
        one.set_epoch(7)
        taken += ids
        assert (one.state_dict()["epoch"], one.state_dict()["consumed"]) == (0, len(taken))
    assert taken == orders.shuffled(10, 0, 0)
    assert one.state_dict()["epoch"] == 7
    assert np.concatenate(list(one)).tolist() == orders.shuffled(10, 0, 7)


def test_a_state_that_is_loaded_during_a_pass_is_not_moved_by_what_is_left_of_it() -> None:
    one = sampler(10, 4, "keep")
    passing = iter(one)
    next(passing)
    state = one.state_dict()
    one.load_state_dict(state | {"epoch": 3})
    assert len(list(passing)) == 2
    assert one.state_dict() == state | {"epoch": 3}
    assert np.concatenate(list(one)).tolist() == orders.shuffled(10, 0, 3)[4:10]


def test_set_epoch_keeps_a_loaded_position_in_that_epoch_only() -> None:
    state = {**sampler(10, 4, "keep").state_dict(), "epoch": 3, "consumed": 8}
    for epoch, left in ((3, 2), (4, 10)):
        one = sampler(10, 4, "keep")
        one.load_state_dict(state)
        one.set_epoch(epoch)
        assert sum(map(len, one)) == left


def test_a_state_saved_with_the_last_batch_in_hand_gives_no_empty_epoch() -> None:
    one = sampler(10, 4, "keep")
    for ids in one:
        state = one.state_dict()
        assert len(ids)
    assert state["consumed"] == 10
    fresh, asked = sampler(10, 4, "keep"), sampler(10, 4, "keep")
    fresh.load_state_dict(state)
    assert np.concatenate(list(fresh)).tolist() == orders.shuffled(10, 0, 1)
    asked.load_state_dict(state)
    asked.set_epoch(0)
    assert list(asked) == []


def test_a_state_can_be_loaded_twice_in_an_epoch() -> None:
    one, taken = sampler(20, 3, "keep"), []
    for _ in range(3):
        passing = iter(one)
        taken += [next(passing), next(passing)]
        state = one.state_dict()
        one = sampler(20, 3, "keep")
        one.load_state_dict(state)
    taken += [*one]
    assert np.concatenate(taken).tolist() == orders.shuffled(20, 0, 0)


def test_the_state_brings_its_seed() -> None:
    old = ts.Sampler(10, 4, shuffle=True, seed=7)
    one = ts.Sampler(10, 4, shuffle=True, seed=8)
    one.load_state_dict(old.state_dict())
    assert np.concatenate(list(one)).tolist() == orders.shuffled(10, 7, 0)


def test_a_state_of_other_windows_is_refused_with_what_differs() -> None:
    state = ts.Sampler(10, 4, shuffle=True).state_dict()
    with pytest.raises(
        ValueError,
        match=like(
            "A state must continue the same windows in the same order; these differ: order: 'shuffled' in the state, "
            "'sequential' here; windows: 10 in the state, 11 here. Build the windows and the loader as they were built "
            "when the state was saved."
        ),
    ):
        ts.Sampler(11, 4).load_state_dict(state)


def test_a_state_with_the_last_whole_step_in_hand_gives_no_empty_epoch() -> None:
    """With tail="drop", what is left over is no step."""
    one = sampler(10, 4, "drop")
    for _ in one:
        state = one.state_dict()
    assert state["consumed"] == 8
    fresh = sampler(10, 4, "drop")
    fresh.load_state_dict(state)
    assert np.concatenate(list(fresh)).tolist() == orders.shuffled(10, 0, 1)[:8]


def test_a_state_that_lacks_something_says_what() -> None:
    with pytest.raises(ValueError, match=r"^A state must have version, epoch, .*; this one lacks consumed, epoch, "):
        ts.Sampler(10, 4).load_state_dict({"version": 1, "order": "sequential"})


def test_a_batch_may_be_larger_than_the_epoch() -> None:
    assert [*ts.Sampler(3, 2**31 - 1)] == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": -1, "batch_size": 1}, "n ... got -1"),
        ({"n": 1, "batch_size": 0}, "batch_size ... got 0"),
        ({"n": 1, "batch_size": 2.5}, "batch_size ... got 2.5"),
        ({"n": 1, "batch_size": 1, "seed": 0.5}, "seed ... got 0.5."),
        ({"n": 1, "batch_size": 1, "steps": 0}, "steps ... got 0"),
        (
            {"n": 1, "batch_size": None},
            "batch_size ... got None and None",
        ),
        (
            {"n": 1, "batch_size": 2, "global_batch_size": 4},
            "batch_size ... got 2 and 4",
        ),
        (
            {"n": 9, "batch_size": None, "global_batch_size": 4, "num_replicas": 3, "rank": 0},
            "global_batch_size ... got 4 for 3 ranks",
        ),
        ({"n": 1, "batch_size": 1, "tail": "cut"}, "tail ... got 'cut'"),
        ({"n": 1, "batch_size": 1, "rank": 1}, "num_replicas ... got None and 1"),
        (
            {"n": 1, "batch_size": 1, "num_replicas": 2, "rank": 2},
            "got rank=2, num_replicas=2",
        ),
    ],
)
def test_wrong_arguments_say_the_rule_and_the_offender(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=like(message)):
        ts.Sampler(**arguments)


def test_ranks_are_found_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of torchrun may be there, or the process group may come, after the sampler was made."""
    one = ts.Sampler(10, 2)
    assert ", 5 steps of 2, tail" in repr(one)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert "2 ranks, this is rank 1 (from environment)" in repr(one)
    assert [*one] == [[2, 3], [6, 7], [9]]


def test_the_process_group_tells_rank_and_size() -> None:
    program = """
import torch.distributed as dist, tensorstash as ts
sampler = ts.Sampler(4, 1)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
assert "this is rank 0 (from process group)" in repr(sampler), repr(sampler)
print(len(list(sampler)))
dist.destroy_process_group()
"""
    done = processes.run(program, warn="default")
    assert done.stdout == "4\n"


def test_a_process_group_with_more_ranks_than_data_ranks_is_told() -> None:
    """As under tensor parallelism; by a process group that only pretends to have other ranks."""
    program = """
import warnings, torch.distributed as dist, tensorstash as ts
from torch.testing._internal.distributed.fake_pg import FakeStore
dist.init_process_group("fake", store=FakeStore(), rank=5, world_size=8)
windows = ts.Windows(ts.load({"y": range(16)}), history=1)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    ts.Sampler(16, 2, num_replicas=8, rank=5)
    assert not caught, caught
    print([*ts.Sampler(16, 2, num_replicas=4, rank=2)])
    loader = ts.Loader(windows, 2, num_replicas=4, rank=2)
print([(one.filename, one.lineno) for one in caught])
assert len({str(one.message) for one in caught}) == 1
print(caught[0].message)
"""
    done = processes.run(program, warn="default")
    assert done.stdout == (
        "[[4, 5], [12, 13]]\n"
        "[('<string>', 10), ('<string>', 11)]\n"  # the lines of the sampler and of the loader
        "The process group has 8 ranks and num_replicas= is 4, so several ranks get the same windows. That is meant "
        "for ranks that share a part of the model (tensor, pipeline or context parallelism), with rank= "
        "their data rank, and for accelerator.prepare, which divides the batches itself; else leave both arguments "
        "out.\n"
    )


@pytest.mark.parametrize("shuffle", [ts.Lanes, ts.Blocks(3), "blocks", 1, None, [0, 1]])
def test_shuffle_is_true_or_false_and_any_other_order_is_named_by_order(shuffle: Any) -> None:
    with pytest.raises(TypeError, match=like(f"shuffle must be True or False, got {shuffle!r} ... order=")):
        ts.Sampler(10, 3, shuffle=shuffle)


@pytest.mark.parametrize("order", [ts.Lanes, "blocks", 1, True])
def test_what_is_no_order_is_refused(order: Any) -> None:
    with pytest.raises(TypeError, match=like("order must be one of ... such as a list, got")):
        ts.Sampler(10, 3, order=order)


@pytest.mark.parametrize("order", [ts.Blocks(3), ts.Lanes(3), [0, 1]])
def test_shuffle_and_order_are_not_given_together(order: Any) -> None:
    with pytest.raises(ValueError, match=like("shuffle=True and order= each set the order")):
        ts.Sampler(10, 3, shuffle=True, order=order)
    ts.Sampler(10, 3, shuffle=False, order=order)


def test_a_sampler_alone_takes_ids_of_the_callers_own() -> None:
    sampler = ts.Sampler(10, 2, order=[7, 3, 9])
    assert [*sampler] == [[7, 3], [9]]
    with pytest.raises(IndexError, match=like("Ids must lie in [0, 10), got 10 from order=")):
        next(iter(ts.Sampler(10, 2, order=[1, 10])))


@pytest.mark.parametrize("size", [0, 1.5, "3", True])
def test_sizes_of_blocks_and_counts_of_lanes_are_integers(size: Any) -> None:
    with pytest.raises(ValueError, match=like(f"size ... got {size!r}")):
        ts.Blocks(size)
    with pytest.raises(ValueError, match=like(f"count ... got {size!r}")):
        ts.Lanes(size)


def test_one_block_may_be_larger_than_any_number_of_windows() -> None:
    assert sorted(np.concatenate([*ts.Sampler(10, 3, order=ts.Blocks(10**20))]).tolist()) == list(range(10))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"consumed": 11}, "consumed ... got 11"),
        ({"consumed": -1}, "consumed ... got -1"),
        ({"consumed": 1.5}, "consumed ... got 1.5"),
        ({"epoch": "x"}, "epoch ... got 'x'"),
    ],
)
def test_a_state_of_nonsense_is_refused_when_it_is_loaded(change: dict[str, Any], message: str) -> None:
    one = ts.Sampler(10, 3)
    with pytest.raises(ValueError, match=like(message)):
        one.load_state_dict(one.state_dict() | change)
    with pytest.raises(TypeError, match=r"got a NoneType"):
        one.load_state_dict(None)  # type: ignore[arg-type]


def test_a_state_is_plain_whatever_integers_came_in() -> None:
    one = ts.Sampler(np.int64(5), np.int32(2), seed=np.int16(3), steps=np.uint8(4))  # type: ignore[arg-type]
    assert json.loads(json.dumps(one.state_dict())) == one.state_dict()


def test_an_epoch_before_the_first_is_refused() -> None:
    """A state with it could not be loaded."""
    for epoch in (-2, 0.5, None):
        with pytest.raises(ValueError, match=like(f"epoch ... got {epoch!r}")):
            ts.Sampler(10, 3).set_epoch(epoch)  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [65_537, 10**6, 10**9, 10**12])
def test_the_order_of_a_batch_takes_as_much_memory_however_many_windows_there_are(n: int) -> None:
    """The permutation is evaluated where it is asked for: neither in all positions, nor stored."""
    passing = iter(ts.Sampler(n, 64, shuffle=True))
    tracemalloc.start()
    try:
        ids = next(passing)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(np.unique(ids)) == 64
    assert most < 60 * BLOCK


@pytest.mark.parametrize(
    ("world_size", "rank"), [("2", "2"), ("2", "-1"), ("2", "a"), ("", "0"), ("0", "0"), ("1.0", "0")]
)
def test_a_rank_of_the_environment_is_one_of_its_ranks(
    world_size: str, rank: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 2 of 2 would get windows of the next step."""
    monkeypatch.setenv("WORLD_SIZE", world_size)
    monkeypatch.setenv("RANK", rank)
    with pytest.raises(ValueError, match=like(f"0 <= RANK < WORLD_SIZE, got {world_size!r} and {rank!r}. Set both")):
        list(ts.Sampler(10, 2))
    assert len([*ts.Sampler(10, 2, num_replicas=2, rank=1)]) == 3
    monkeypatch.delenv("RANK")
    assert len([*ts.Sampler(10, 2)]) == 5


def test_a_sampler_takes_a_number_or_windows() -> None:
    for wrong in (None, "10", 10.0, [1, 2], range(3)):
        with pytest.raises(TypeError, match=like("n must be the number of windows, or ts.Windows or a ts.Mix")):
            ts.Sampler(wrong, 2)  # type: ignore[arg-type]


def test_ids_in_a_set_have_no_order() -> None:
    for ids in ({3, 1}, frozenset({3, 1})):
        with pytest.raises(TypeError, match=like("order must be ... with a length and an order, such as a list, got")):
            ts.Sampler(10, 2, order=ids)
    assert [*ts.Sampler(10, 2, order=[*dict.fromkeys([3, 1])])] == [[3, 1]]
