"""Inside `cluster/order.py`: layouts that change within an epoch, beside an oracle of single windows."""

import random
from collections.abc import Sequence
from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
import pytest

from tensorstash.cluster.legs import Leg, Legs, ShardTable, fold, remainder, shown_after
from tensorstash.cluster.order import ShardedOrder
from tensorstash.cluster.shards import assign
from tensorstash.sampling.components import components, mix_draws
from tensorstash.sampling.steps import Layout, Steps
from tests import kernel
from tests.words import Int64s

CASES = 300
Window = tuple[int, int]  # shard, and the number within it


class Oracle:
    """An epoch as a queue of windows for each shard. Every node mixes what its shards have left when a leg begins."""

    def __init__(self, rows: Sequence[int], queues: Sequence[Sequence[int]]) -> None:
        self.rows = rows
        self.queues = [list(queue) for queue in queues]

    def leg(self, nodes: int, size: int) -> tuple[list[list[Window]], int]:
        """The sequence of each node, and the number of steps in which all are shown."""
        sequences = []
        for shards in held(self.rows, nodes):
            left = {shard: list(self.queues[shard]) for shard in shards}
            sequences.append([(shard, left[shard].pop(0)) for shard in mixed({s: len(q) for s, q in left.items()})])
        longest = max(map(len, sequences))
        return sequences, longest // size + (longest % size > 0)

    def take(self, window: Window) -> None:
        assert self.queues[window[0]].pop(0) == window[1]


def held(rows: Sequence[int], nodes: int) -> list[list[int]]:
    """The shards of each node: the longest first, to the node with the fewest rows."""
    mine: list[list[int]] = [[] for _ in range(nodes)]
    for shard in sorted(range(len(rows)), key=lambda shard: (-rows[shard], shard)):
        mine[min(range(nodes), key=lambda node: (sum(rows[s] for s in mine[node]), node))].append(shard)
    return [sorted(shards) for shards in mine]


def mixed(weights: dict[int, int]) -> list[int]:
    """The shard at each position: down the tree of weights, with fractions, one position at a time."""
    nodes: list[tuple[int, int, Any]] = [(weight, k, s) for k, (s, weight) in enumerate(weights.items()) if weight]
    made = len(weights)
    if not nodes:
        return []
    while len(nodes) > 1:
        left, right, *nodes = sorted(nodes, key=lambda node: node[:2])
        nodes.append((left[0] + right[0], made, (left, right)))
        made += 1

    def at(node: Any, n: int) -> int:
        weight, _, inside = node
        if not isinstance(inside, tuple):
            return int(inside)
        left, right = inside
        before, after = (floor(Fraction(k * left[0], weight) + Fraction(1, 2)) for k in (n, n + 1))
        return at(left, before) if after > before else at(right, n - before)

    return [at(nodes[0], n) for n in range(nodes[0][0])]


def test_the_oracle_is_no_constant() -> None:
    assert mixed({4: 3, 7: 1}) == [4, 7, 4, 4]
    assert held([5, 1, 4, 4], 2) == [[0, 1], [2, 3]]


def split(own: ShardedOrder, ids: Int64s) -> tuple[Int64s, Int64s]:
    """The component of each window of a node, and its number there."""
    component = np.searchsorted(np.cumsum(own._components.sizes), ids, "right")
    return component, ids - own._components.first[component]


def sharding(table: ShardTable, nodes: int, node: int, shuffle: bool) -> ShardedOrder:
    shards = tuple(shard for shard in table.holds(nodes)[node] if table.windows[shard])
    of = components({f"shard {shard}": table.windows[shard] for shard in shards}, None)
    return ShardedOrder(table, node, nodes, shards, of, shuffle=shuffle)


def passing(
    table: ShardTable, nodes: int, ranks: int, batch: int, legs: Legs, most: int, **how: Any
) -> list[list[Any]]:
    """Up to `most` steps of all ranks: for each rank, per step, its windows, its filler, and the legs after it."""
    found = []
    for rank in range(nodes * ranks):
        own = sharding(table, nodes, rank // ranks, how["shuffle"])
        layout = Layout(nodes * ranks, rank, batch, "keep", varies=False)
        groups = own.steps(how["seed"], how["epoch"], legs or None, layout, most)
        found.append([step for group in groups for step in unpacked(own, group)])
    return found


def unpacked(own: ShardedOrder, group: Steps) -> list[tuple[list[Window], list[Window], Any]]:
    steps = []
    for ids, valid, legs in zip(group.ids, np.broadcast_to(group.valid, (len(group.ids), 1))[:, 0], group.progress):
        component, number = split(own, ids)
        windows = [(own._shards[c], int(k)) for c, k in zip(component, number)]
        steps.append((windows[:valid], windows[valid:], legs))
    return steps


def case(seed: int) -> tuple[random.Random, ShardTable, list[int]]:
    rng = random.Random(seed)
    shards = rng.randint(1, 12)
    windows = [rng.choice([0, rng.randint(1, 5), rng.randint(1, 60)]) for _ in range(shards)]
    rows = [count + rng.randint(0, 20) for count in windows]
    return rng, ShardTable(windows, lambda nodes: assign(rows, nodes)), rows


def fitting(rng: random.Random, table: ShardTable) -> tuple[int, int, int] | None:
    """A layout, every node of which has windows."""
    most = [n for n in range(1, 5) if all(any(table.windows[s] for s in own) for own in table.holds(n))]
    return (rng.choice(most), rng.randint(1, 3), rng.randint(1, 6)) if most else None


def ids_of(table: ShardTable, shard: int, seed: int, epoch: int, shuffle: bool) -> list[int]:
    """The order of a shard, as in a mix of this shard alone."""
    count = table.windows[shard]
    if not shuffle or not count:
        return [*range(count)]
    draws = mix_draws(components({f"shard {shard}": count}, None), True, seed)
    return draws(np.arange(count) + epoch * count)[1].tolist()


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("first", range(0, CASES, 50))
def test_legs_of_any_layouts_show_every_window_once(first: int, native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three layouts, each left at a random step, and a last one to the end: as the oracle says, window by window."""
    if not native:
        kernel.leave_out(monkeypatch)
    for number in range(first, first + 50):
        rng, table, rows = case(number)
        if fitting(rng, table) is None:
            continue
        how: dict[str, Any] = {"seed": number, "epoch": rng.randint(0, 3), "shuffle": rng.random() < 0.5}
        oracle = Oracle(rows, [ids_of(table, shard, **how) for shard in range(len(rows))])
        legs: Legs = ()
        for leg in range(4):
            layout = fitting(rng, table)
            assert layout is not None
            legs = check_leg(oracle, table, layout, legs, how, rng if leg < 3 else None)
        assert not any(oracle.queues)
        assert fold(table, legs) == [*table.windows]


def check_leg(
    oracle: Oracle, table: ShardTable, layout: tuple[int, int, int], legs: Legs, how: Any, rng: random.Random | None
) -> Legs:
    """Take some steps of a layout, or the rest of the epoch without `rng`; the legs behind them."""
    nodes, ranks, batch = layout
    if legs and legs[-1][:3] == layout:
        return legs if rng else rest_of_leg(oracle, table, legs, how)
    sequences, steps = oracle.leg(nodes, ranks * batch)
    assert remainder(table, fold(table, legs), nodes, ranks * batch).steps == steps
    taken = rng.randint(0, steps) if rng else steps
    found = passing(table, nodes, ranks, batch, legs, taken, **how)
    assert [len(steps) for steps in found] == [taken] * len(found)
    for step in range(taken):
        for node, sequence in enumerate(sequences):
            low, high = (len(sequence) * t // steps for t in (step, step + 1))
            own = found[node * ranks : (node + 1) * ranks]
            assert [window for rank in own for window in rank[step][0]] == sequence[low:high]
            shares = [len(rank[step][0]) for rank in own]
            assert max(shares) - min(shares) <= 1
            for windows, filler, _ in (rank[step] for rank in own):
                assert len(windows) + len(filler) == batch
                assert not sequence or set(filler) <= {sequence[low]}
            for window in sequence[low:high]:
                oracle.take(window)
        assert {rank[step][2] for rank in found} == {(*legs, Leg(*layout, step + 1))}
    legs = (*legs, Leg(*layout, taken)) if taken else legs
    assert fold(table, legs) == [n - len(queue) for n, queue in zip(table.windows, oracle.queues)]
    return legs


def rest_of_leg(oracle: Oracle, table: ShardTable, legs: Legs, how: Any) -> Legs:
    """The rest of the epoch in the layout of the last leg, which goes on."""
    nodes, ranks, batch, taken = legs[-1]
    found = passing(table, nodes, ranks, batch, legs, 10**9, **how)
    left = remainder(table, fold(table, legs[:-1]), nodes, ranks * batch).steps - taken
    assert [len(steps) for steps in found] == [left] * len(found)
    for step in range(left):
        for rank in found:
            for window in rank[step][0]:
                oracle.take(window)
    return (*legs[:-1], Leg(nodes, ranks, batch, taken + left)) if left else legs


@pytest.mark.parametrize("number", range(0, CASES, 10))
def test_a_leg_that_is_interrupted_goes_on_as_if_it_had_not_been(number: int) -> None:
    rng, table, _ = case(number)
    layout = fitting(rng, table)
    if layout is None:
        return
    how = {"seed": 1, "epoch": 0, "shuffle": True}
    whole = passing(table, *layout, (), 10**9, **how)
    steps = len(whole[0])
    stop = rng.randint(1, steps)
    legs = whole[0][stop - 1][2]
    assert legs == (Leg(*layout, stop),)
    again = passing(table, *layout, legs, 10**9, **how)
    assert [rank[stop:] for rank in whole] == again


def test_a_state_with_more_steps_than_there_are_is_refused() -> None:
    table = ShardTable([4, 4], lambda nodes: assign([4, 4], nodes))
    message = r"as are left, 2 for 2 nodes with 1 ranks and batches of 2, got 3"
    with pytest.raises(ValueError, match=message):
        fold(table, (Leg(2, 1, 2, 3),))


def test_steps_and_states_of_a_trillion_windows_are_a_few_integers() -> None:
    """4,096 shards, 1,250 nodes of 8 ranks: exact where float64 and int64 products would not be, and small."""
    rng = random.Random(0)
    windows = [rng.randint(1, 488_000_000) for _ in range(4096)]
    windows[0] += 10**12 - sum(windows)
    table = ShardTable(windows, lambda nodes: assign(windows, nodes))
    legs = (Leg(1250, 8, 1024, 10_000), Leg(1000, 8, 512, 7), Leg(1, 8, 64, 3))
    shown = fold(table, legs)
    assert all(0 <= some <= count for some, count in zip(shown, windows))
    part = remainder(table, fold(table, legs), 1250, 8 * 1024)
    assert part.steps == -(-max(part.totals) // (8 * 1024))
    assert sum(part.totals) + sum(shown) == 10**12
    assert sum(shown_after(part.steps, total, part.steps) for total in part.totals) == sum(part.totals)
    own = sharding(table, 1250, 7, True)
    layout = Layout(10_000, 7 * 8 + 3, 1024, "keep", varies=False)
    taken = 0
    for group in own.steps(0, 0, legs, layout, 100):
        assert group.ids.shape[1] == 1024
        taken += len(group.ids)
    assert taken == 100
    assert group.progress[-1] == (*legs, Leg(1250, 8, 1024, 100))
    alone = sharding(table, 1, 0, True)
    whole = next(alone.steps(0, 0, legs, Layout(8, 3, 1024, "keep", varies=False), 2))
    assert len({*zip(*(part.tolist() for part in split(alone, whole.ids.reshape(-1))))}) == whole.ids.size
    assert whole.valid.tolist() == [[1024]] * 2  # type: ignore[union-attr]
