"""States: from every step of an epoch, into other ranks and batch sizes, exactly the windows that are left."""

import copy
import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests import oracle, processes
from tests.epochs import (
    KINDS,
    OF_NUMBERS,
    TAILS,
    loaders_of,
    numbers,
    order_of,
    ordered,
    shuffle_of,
    steps_of,
    taken,
    windows_of,
)
from tests.oracle_load import like
from tests.words import Tail

State = dict[str, Any]

N = 37
ELASTIC = [kind for kind in KINDS if kind != "lanes"]


def through_json(state: State) -> State:
    return json.loads(json.dumps(state))


def through_torch(state: State) -> State:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def stopped(loaders: list[ts.Loader], done: int, through: Callable[[State], State]) -> tuple[list[int], State]:
    """The windows of `done` steps, and the state that every rank gives with the last batch in hand."""
    ids: list[int] = []
    for _, step in zip(range(done), steps_of(loaders)):
        ids += taken(N, step)
    states = [loader.state_dict() for loader in loaders]
    assert states == [states[0]] * len(states)
    return ids, through(states[0])


def rest(loaders: list[ts.Loader], state: State) -> list[int]:
    """The windows of the pass that follows a state."""
    for loader in loaders:
        loader.load_state_dict(state)
    return [k for step in steps_of(loaders) for k in taken(N, step)]


@pytest.mark.parametrize("kind", ELASTIC)
@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("ranks", range(1, 5))
def test_a_state_of_any_step_goes_on_with_any_ranks_and_batch_size(ranks: int, tail: Tail, kind: str) -> None:
    """Both together are the epoch in its order; after its last step it is the next epoch, neither empty nor skipped."""
    order, following = order_of(kind, N), order_of(kind, N, epoch=1)
    steps = len(loaders_of(N, ranks, 4, kind, tail)[0])
    for done in range(steps + 1):
        through = through_torch if done % 2 else through_json
        before, state = stopped(loaders_of(N, ranks, 4, kind, tail), done, through)
        assert before == order[: state["consumed"]]
        assert state["consumed"] == min(4 * ranks * done, N)
        for next_ranks in range(1, 5):
            batch_size = (3, 5)[(done + next_ranks) % 2]
            after = rest(loaders_of(N, next_ranks, batch_size, kind, tail), state)
            left = len(order) - len(before)
            expected, size = (order[len(before) :], next_ranks * batch_size)
            if not left or (tail == "drop" and left < size):
                expected, left = following, N
            assert after == (expected[: left // size * size] if tail == "drop" else expected)


@pytest.mark.parametrize("tail", ["keep", "pad"])
def test_a_state_of_lanes_goes_on_with_any_ranks_of_as_many_rows(tail: Tail) -> None:
    """The same windows, and the same rows go on: the hidden states of a recurrent model stay what they are."""

    def rows(loaders: list[ts.Loader]) -> list[tuple[list[int], list[bool]]]:
        return [
            (taken(N, step), [reset for batch in step for reset in batch["reset"].tolist()])
            for step in steps_of(loaders)
        ]

    shapes = [(1, 12), (2, 6), (3, 4), (4, 3)]
    whole = rows(loaders_of(N, 1, 12, "lanes", tail))
    assert [len(ids) for ids, _ in whole] == [12, 12, 12, 1]
    for ranks, batch_size in shapes:
        for done in range(len(whole)):
            before, state = stopped(loaders_of(N, ranks, batch_size, "lanes", tail), done, through_json)
            assert before == [k for ids, _ in whole[:done] for k in ids]
            for next_ranks, next_size in shapes:
                loaders = loaders_of(N, next_ranks, next_size, "lanes", tail)
                for loader in loaders:
                    loader.load_state_dict(state)
                after = rows(loaders)
                assert [ids for ids, _ in after] == [ids for ids, _ in whole[done:]]
                assert after[:-1] == whole[done:-1]  # the last step is shared out, so that rows move


def test_a_state_of_lanes_is_refused_where_rows_would_be_others() -> None:
    state = loaders_of(N, 3, 4, "lanes")[0].state_dict()
    with pytest.raises(ValueError, match=like("these differ: order: '12 lanes' in the state, '8 lanes' here. B")):
        loaders_of(N, 2, 4, "lanes")[0].load_state_dict(state)


LEGS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(0, 6)), min_size=2, max_size=8)


@settings(max_examples=60)
@given(LEGS, st.sampled_from(ELASTIC), st.sampled_from(["keep", "pad"]))
def test_a_run_that_is_resumed_again_and_again_takes_every_window_of_every_epoch_once(
    legs: list[tuple[int, int, int]], kind: str, tail: Tail
) -> None:
    """Several times in one epoch and over its end, each time with other ranks and another batch size."""
    state, ids = None, []
    for ranks, batch_size, steps in legs:
        loaders = loaders_of(N, ranks, batch_size, kind, tail)
        for loader in loaders:
            if state is not None:
                loader.load_state_dict(through_json(state))
        done = 0
        while done < steps:
            for step in steps_of(loaders):
                ids += taken(N, step)
                done += 1
                if done == steps:
                    break
        state = loaders[-1].state_dict()
    orders = [order_of(kind, N, epoch=epoch) for epoch in range(len(ids) // N + 1)]
    assert ids == [k for order in orders for k in order][: len(ids)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_saved_with_the_last_batch_in_hand_or_after_it_neither_empties_nor_skips_an_epoch(kind: str) -> None:
    (loader,) = loaders_of(N, 1, 8, kind)
    states = []
    for _ in loader:
        in_hand = loader.state_dict()
    states = [in_hand, loader.state_dict()]
    assert [(state["epoch"], state["consumed"]) for state in states] == [(0, N), (1, 0)]
    for state in states:
        assert rest(loaders_of(N, 1, 8, kind), state) == order_of(kind, N, 8, epoch=1)
        # a script that counts epochs itself and saved with the last batch in hand has nothing left of that epoch
        (again,) = loaders_of(N, 1, 8, kind)
        again.load_state_dict(state)
        again.set_epoch(state["epoch"])
        assert [k for batch in again for k in numbers(N, batch)] == order_of(kind, N, 8, 1)[: N - state["consumed"]]
        again.set_epoch(state["epoch"] + 1)
        assert [k for batch in again for k in numbers(N, batch)] == order_of(kind, N, 8, state["epoch"] + 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_brings_its_epoch_and_the_seed_of_its_permutation(kind: str) -> None:
    """The loader that takes it up was made with another seed and stood in another epoch."""
    (loader,) = loaders_of(N, 1, 8, kind, seed=3)
    loader.set_epoch(5)
    _, state = stopped([loader], 2, through_json)
    (other,) = loaders_of(N, 1, 8, kind, seed=4)
    other.set_epoch(1)
    assert rest([other], state) == order_of(kind, N, 8, 5, seed=3)[16:]
    assert [k for batch in other for k in numbers(N, batch)] == order_of(kind, N, 8, 6, seed=3)


@pytest.mark.parametrize("kind", KINDS)
def test_states_are_the_same_with_and_without_prefetch(kind: str) -> None:
    """Batches that were gathered ahead and never handed out do not count."""
    told = []
    for prefetch in (0, 1, 4):
        (loader,) = loaders_of(N, 1, 8, kind)
        loader.prefetch = prefetch
        told.append([(loader.state_dict(), numbers(N, batch)) for batch in loader])
    assert told == [told[0]] * 3
    assert [state["consumed"] for state, _ in told[0]] == [8, 16, 24, 32, 37]


@pytest.mark.usefixtures("processes_from_the_template")
def test_the_state_of_a_sampler_in_a_data_loader_without_workers_counts_its_batches() -> None:
    windows = windows_of(N)
    for done in range(1, 6):
        sampler = ts.Sampler(N, 8, shuffle=True)
        loader = torch.utils.data.DataLoader(windows, sampler=sampler, batch_size=None)  # type: ignore[arg-type, var-annotated]
        ids = [k for _, batch in zip(range(done), loader) for k in numbers(N, batch)]
        again = ts.Sampler(N, 8, shuffle=True)
        again.load_state_dict(sampler.state_dict())
        again.set_epoch(0)
        assert np.concatenate([ids, *again]).tolist() == order_of("shuffled", N)


def test_the_state_of_a_sampler_in_a_data_loader_with_workers_counts_what_they_have_been_asked_for() -> None:
    """So that a script sets what it has seen itself."""
    windows, sampler = windows_of(N), ts.Sampler(N, 8, shuffle=True)
    loader: Any = torch.utils.data.DataLoader(
        windows,  # type: ignore[arg-type]
        sampler=sampler,
        batch_size=None,
        num_workers=1,
        prefetch_factor=2,
        multiprocessing_context="spawn",
    )
    ids = [k for _, batch in zip(range(1), loader) for k in numbers(N, batch)]
    assert sampler.state_dict()["consumed"] == 3 * 8
    again = ts.Sampler(N, 8, shuffle=True)
    again.load_state_dict(sampler.state_dict() | {"consumed": len(ids)})
    assert np.concatenate([ids, *again]).tolist() == order_of("shuffled", N)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loader_goes_back_to_an_earlier_state_of_its_own(kind: str) -> None:
    """A state is a snapshot: what the loop does after it does not change it, nor does a loader that takes it up."""
    (loader,) = loaders_of(N, 1, 8, kind)
    kept = []
    for batch in loader:
        state = loader.state_dict()
        kept.append((state, copy.deepcopy(state), numbers(N, batch)))
    order = order_of(kind, N, 8)
    for state, as_saved, ids in kept:
        assert state == as_saved
        if state["consumed"] < N:
            assert rest([loader], state) == order[order.index(ids[-1]) + 1 :]
        assert state == as_saved


PROGRAM = """
import json, sys
import numpy as np, tensorstash as ts
loader = ts.Loader(ts.Windows(ts.load({"y": np.arange(39)}), 3), 8, order=ts.Blocks(5))
if len(sys.argv) == 2:
    loader.load_state_dict(json.loads(sys.argv[1]))
for step, batch in enumerate(loader):
    print(json.dumps(batch["y"][:, 0].tolist()))
    if len(sys.argv) == 1 and step == 1:
        print(json.dumps(loader.state_dict()))
        break
"""


def test_a_new_process_needs_nothing_but_the_state() -> None:
    """There is no buffer of shuffled windows, and no generator, that a state would have to bring."""

    def run(*arguments: str) -> list[str]:
        return processes.run(PROGRAM, *arguments).stdout.splitlines()

    *before, state = run()
    steps = oracle.steps(order_of("blocks", N), 8, 1, "keep")
    assert [json.loads(line) for line in before + run(state)] == [ids for ((ids, _),) in steps]


@pytest.mark.parametrize("kind", OF_NUMBERS)
def test_a_state_is_as_small_at_any_number_of_windows_and_any_step(kind: str) -> None:
    """Plain values and no permutation, so that one can be taken at every step."""
    for n in (10, 10**6, 10**12):
        sampler = ts.Sampler(n, 4, **ordered(shuffle_of(kind, 4)))
        for _, _ids in zip(range(3), sampler):
            assert len(json.dumps(sampler.state_dict())) < 200
    state = loaders_of(N, 1, 8, kind)[0].state_dict()
    assert len(json.dumps(state)) < 600
    fingerprint = state.pop("fingerprint")
    assert {type(value) for value in (*state.values(), *fingerprint.values())} <= {int, str, dict}


def two_series(names: list[str], texts: list[str]) -> ts.Loader:
    source = {"e": ["a"] * 50 + ["b"] * 50, "t": [*range(50)] * 2, "y": np.arange(100.0)}
    source |= {"e": np.repeat(names, 50), "s": np.tile(texts, 50)}
    stash = ts.load(source, ["y", "s"], entity="e", time="t")
    return ts.Loader(
        ts.Windows(stash, spans={"y": ("y", -2, 0), "s": ("s", -2, 0)}), batch_size=8, shuffle=True, seed=0
    )


@pytest.mark.parametrize(
    ("names", "texts", "differs"),
    [(["a", "c"], ["x", "y"], "names"), (["a", "b"], ["x", "z"], r"columns\.s\.vocabulary")],
)
def test_a_state_is_of_the_same_entities_and_vocabularies(names: list[str], texts: list[str], differs: str) -> None:
    """Everything else of the two is equal."""
    state = two_series(["a", "b"], ["x", "y"]).state_dict()
    two_series(["a", "b"], ["x", "y"]).load_state_dict(state)
    with pytest.raises(ValueError, match=rf"these differ: {differs}: ") as raised:
        two_series(names, texts).load_state_dict(state)
    assert "; " not in str(raised.value).partition("these differ: ")[2]


@pytest.mark.parametrize("fingerprint", [{}, [], "windows", 5, None])
def test_a_state_without_a_fingerprint_is_refused(fingerprint: object) -> None:
    loader = two_series(["a", "b"], ["x", "y"])
    with pytest.raises(ValueError, match=r"A state must have the fingerprint of its windows"):
        loader.load_state_dict(loader.state_dict() | {"fingerprint": fingerprint})


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"seed": "x"}, r"seed of a state must be an integer, got 'x'"),
        ({"epoch": 2**62}, r"fewer than 2\*\*62 windows, got epoch 4611686018427387904"),
    ],
)
def test_values_of_a_state_that_cannot_be_are_refused(entry: dict[str, Any], message: str) -> None:
    windows = two_series(["a", "b"], ["x", "y"]).dataset
    for source in (windows, ts.Mix({"one": windows, "two": windows})):
        loader = ts.Loader(source, batch_size=8, shuffle=True, seed=0)
        with pytest.raises(ValueError, match=message):
            loader.load_state_dict(loader.state_dict() | entry)


def test_the_seed_is_taken_from_the_state() -> None:
    first = two_series(["a", "b"], ["x", "y"])
    other = ts.Loader(first.dataset, batch_size=8, shuffle=True, seed=2)
    other.load_state_dict(first.state_dict())
    assert [batch["y"].tolist() for batch in other] == [batch["y"].tolist() for batch in first]
