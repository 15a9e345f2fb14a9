"""Whole cross-sections: `ts.ByTime` without a batch size, on any number of ranks, resumed, and in processes."""

import copy
import itertools
import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import tensorstash as ts
from tests import processes
from tests.sampling.test_orders_of_loaders import CASES, of_times, taken, windows


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 40])
def test_without_a_batch_size_each_rank_has_one_whole_time(ranks: int, shuffle: bool) -> None:
    """Rank r has time number step * ranks + r; a rank without a time repeats that of the first rank, as filler."""
    loaders = CASES["by time, shuffled" if shuffle else "by time"].loaders(ranks, None)
    for epoch in range(2):
        groups = of_times(epoch, shuffle)
        steps = [groups[k : k + ranks] for k in range(0, len(groups), ranks)]
        assert [len(loader) for loader in loaders] == [len(steps)] * ranks
        for rank, loader in enumerate(loaders):
            made = [*copy.deepcopy(loader)]
            assert [batch["window"].tolist() for batch in made] == [
                step[rank] if rank < len(step) else step[0] for step in steps
            ]
            has_time = [[rank < len(step)] * len(batch["window"]) for step, batch in zip(steps, made)]
            assert [batch["valid"].tolist() for batch in made if "valid" in batch] == (has_time if ranks > 1 else [])
        assert taken(loaders) == [[k for group in step for k in group] for step in steps]
        assert loaders[0].state_dict()["epoch"] == epoch + 1


def test_whole_times_go_on_after_the_times_that_all_ranks_have_had() -> None:
    """After s steps the first s * ranks times are consumed, and other ranks have the next ones."""
    case, groups = CASES["by time, shuffled"], of_times(0, True)
    for ranks, others in ((1, 3), (2, 1), (2, 3), (3, 2), (4, 2)):
        for steps in range(1, len(groups) // ranks + 1):
            loaders = case.loaders(ranks, None)
            taken(loaders, steps)
            state = loaders[0].state_dict()
            assert state["consumed"] == sum(map(len, groups[: steps * ranks]))
            resumed = case.loaders(others, None)
            for loader in resumed:
                loader.load_state_dict(state)
            left = groups[steps * ranks :] or of_times(1, True)
            assert taken(resumed) == [
                [k for group in left[k : k + others] for k in group] for k in range(0, len(left), others)
            ]


def test_a_state_in_the_middle_of_a_time_leaves_the_rest_of_that_time() -> None:
    """Of a run with a batch size; no window is lost or comes twice, and all other times are whole."""
    case, groups = CASES["by time"], of_times(0, False)
    (loader,) = case.loaders(1, 1)
    done = [*itertools.accumulate(map(len, groups))]
    k = next(k for k, group in enumerate(groups) if len(group) > 1)
    taken([loader], done[k] - 1)
    resumed = case.loaders(2, None)
    for one in resumed:
        one.load_state_dict(loader.state_dict())
    first = [batch["window"].tolist() for batch in (next(iter(copy.deepcopy(one))) for one in resumed)]
    assert first == [groups[k][-1:], groups[k + 1]]
    assert [k for step in taken(resumed) for k in step] == [*itertools.chain(*groups)][done[k] - 1 :]


@pytest.mark.parametrize("name", ["by time", "by time, shuffled"])
def test_passes_of_steps_take_whole_times(name: str) -> None:
    """No step mixes two epochs: the ranks without a time in the last step of an epoch have filler."""
    case = CASES[name]
    for ranks in (1, 2, 4):
        loaders, plain = case.loaders(ranks, None, steps=3), case.loaders(ranks, None)
        steps = [step for _ in range(6) for step in taken(loaders)]
        assert steps == [step for _ in range(12) for step in taken(plain)][: len(steps)]
        assert len(steps) == 18
        jumped = case.loaders(ranks, None, steps=3)
        for loader in jumped:
            loader.set_epoch(4)
        assert taken(jumped) == steps[12:15]


@pytest.mark.parametrize("arguments", [{"prefetch": 2}, {"resident": True}, {"resident": True, "prefetch": 1}])
def test_whole_times_are_the_same_with_prefetch_and_resident_columns(arguments: dict[str, Any]) -> None:
    for rank in range(3):
        plain, other = (
            ts.Loader(windows(), None, order=ts.ByTime(), num_replicas=3, rank=rank, with_ids=True, **more)
            for more in ({}, arguments)
        )
        for one, two in itertools.zip_longest(plain, other):
            assert one.keys() == two.keys()
            for entry, values in one.items():
                assert torch.equal(values, two[entry]), entry


def test_torch_takes_whole_times_from_a_sampler() -> None:
    """With a worker; filler is not marked there, so the first rank's time comes twice in the last step."""
    groups, ranks = of_times(0, False), 4
    steps = [groups[k : k + ranks] for k in range(0, len(groups), ranks)]
    for rank in (0, 3):
        sampler = ts.Sampler(windows(), order=ts.ByTime(), num_replicas=ranks, rank=rank)
        dataset: Any = windows()
        loader: Any = torch.utils.data.DataLoader(dataset, sampler=sampler, batch_size=None, num_workers=rank // 3)
        expected = [windows()[step[rank] if rank < len(step) else step[0]] for step in steps]
        for batch, own in itertools.zip_longest(loader, expected):
            assert torch.equal(batch["past"], own["past"])


# Ranks over a day, computed in the loop; also in the rest of an epoch that other processes have begun
PROGRAM = """
import json, sys, torch, tensorstash as ts
torch.set_num_threads(1)
windows = ts.Windows(ts.load(sys.argv[1], entity="stock", time="day"), spans={"past": ("price", -3, 1)})

def ranks(state):
    loader = ts.Loader(windows, order=ts.ByTime(shuffle=True), seed=5, with_ids=True)
    if state is not None:
        loader.load_state_dict(state)
    found, states = [], []
    for batch in loader:
        momentum = batch["past"][:, -1] - batch["past"][:, 0]
        rank = momentum.argsort().argsort() / (len(momentum) - 1)
        own = batch["valid"] if "valid" in batch else slice(None)
        found.append([batch[name][own].tolist() for name in ("anchor", "entity")] + [rank[own].tolist()])
        states.append(loader.state_dict())
    return found, states

whole, states = ranks(None)
print(json.dumps([states, whole, ranks(json.loads(sys.argv[2]))[0]]))
"""

Ranks = dict[tuple[int, int], float]  # of each day and stock


def in_processes(count: int, path: Path, state: Any = None) -> tuple[list[Any], list[Ranks], list[Ranks]]:
    """The states after each step of an epoch, what all processes have found in each, and in the epoch after `state`."""
    with ExitStack() as stack:
        children = [
            stack.enter_context(
                processes.start(
                    PROGRAM,
                    path,
                    json.dumps(state),
                    env=os.environ | {"RANK": str(rank), "WORLD_SIZE": str(count)},
                )
            )
            for rank in range(count)
        ]
        ended = [child.finish() for child in children]
    assert [child.returncode for child in ended] == [0] * count, [child.stderr for child in ended]
    states, whole, rest = zip(*(json.loads(child.stdout) for child in ended))
    assert [*states] == [states[0]] * count
    return states[0], joined(whole), joined(rest)


def joined(told: tuple[Any, ...]) -> list[Ranks]:
    """What all processes have found in each step; none finds what another has."""
    steps = [[row for days, stocks, ranks in step for row in zip(days, stocks, ranks)] for step in zip(*told)]
    assert len({len(steps_of_one) for steps_of_one in told}) == 1
    found = [{(day, stock): rank for day, stock, rank in rows} for rows in steps]
    assert [*map(len, found)] == [*map(len, steps)]
    return found


def test_ranks_over_a_day_are_the_same_numbers_in_any_number_of_processes(tmp_path: Path) -> None:
    """Compared with polars, which ranks the whole day; also where a run goes on in more processes."""
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(
        {"stock": f"s{k:02}", "day": day, "price": float(price)}
        for k in range(23)
        for day, price in zip(range(k % 7, 20), rng.permutation(20000)[: 20 - k % 7])
    )
    path = tmp_path / "prices.parquet"
    frame.write_parquet(path)
    moved = frame.with_columns(by=(pl.col("price") - pl.col("price").shift(3)).over("stock", order_by="day"))
    ranked = moved.drop_nulls().with_columns(rank=(pl.col("by").rank("ordinal").over("day") - 1).cast(pl.Float32))
    of_day = ranked.with_columns(rank=pl.col("rank") / (pl.len().over("day") - 1).cast(pl.Float32))
    expected = {(day, int(stock[1:])): rank for day, stock, rank in of_day.select("day", "stock", "rank").iter_rows()}
    _, alone, _ = in_processes(1, path)
    states, two, _ = in_processes(2, path)
    _, four, rest = in_processes(4, path, states[2])
    for steps, days in ((alone, 1), (two, 2), (four, 4), (rest, 4)):
        assert [len({day for day, _ in step}) for step in steps[:-1]] == [days] * (len(steps) - 1)
    for found in (alone, two, four, two[:3] + rest):
        assert sum(map(len, found)) == len(expected)
        assert {of: rank for step in found for of, rank in step.items()} == expected
