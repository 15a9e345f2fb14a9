"""Sampling over shards: every window once over all nodes, the same state on every rank, what batches carry.

It reaches inside `cluster` to hold several nodes in one process, and for what they tell each other.
"""

import inspect
import pickle
import random
import re
import warnings
from contextlib import nullcontext
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorstash as ts
from tensorstash.cluster import exchange
from tensorstash.cluster.exchange import RankCounts, count_of_each_shard
from tensorstash.cluster.shard_statistics import of_all, of_node
from tensorstash.cluster.sharded_windows import ShardCount, ShardedWindows, counts_of_node, shared_fingerprint
from tensorstash.cluster.shards import Shards
from tensorstash.transforms.scaler import scaler_of
from tests import kernel
from tests.cluster.nodes import (
    Make,
    Seen,
    State,
    cut,
    expected,
    loaders_of,
    names_of,
    on_nodes,
    seen_in,
    state_of,
    steps_of,
    whole,
    windows_of,
)
from tests.words import By
from tests.words import ScalerKind as Kind

pytestmark = pytest.mark.filterwarnings("ignore:The windows of 6 shards are uneven:UserWarning")


def in_all(steps: list[list[Seen]]) -> list[Seen]:
    """The windows of several steps."""
    return sorted(chain(*steps))


SPANS = {"past": ("y", -2, 0), "sky": ("sky", 0, 1)}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cut(tmp_path_factory.mktemp("shards"))


@pytest.fixture(params=kernel.WAYS, autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test here runs with the kernel, where it was compiled, and without."""
    kernel.take(request.param, monkeypatch)


@pytest.mark.parametrize(("nodes", "ranks", "batch_size"), [(1, 1, 7), (1, 3, 4), (2, 1, 9), (2, 2, 5), (3, 2, 3)])
@pytest.mark.parametrize("shuffle", [True, False])
def test_every_window_comes_once_with_its_values(
    path: Path, nodes: int, ranks: int, batch_size: int, shuffle: bool
) -> None:
    stash = whole()
    one = ts.Windows(stash, spans=SPANS)
    about = one.anchors(range(len(one)))
    number = {pair: k for k, pair in enumerate(zip(about["entity"].tolist(), about["time"].tolist()))}
    loaders = loaders_of(on_nodes(path, nodes), ranks, batch_size, shuffle=shuffle)
    assert {len(loader) for loader in loaders} == {len(loaders[0])}
    seen, steps = [], 0
    for step in steps_of(loaders):
        seen += seen_in(step, loaders)
        steps += 1
        for batch, loader in zip(step, loaders):
            assert len(batch["past"]) == batch_size
            names = names_of(loader.dataset)
            for k in range(batch_size):
                entity = stash.entities.index(names[batch["entity"][k]])
                own = one[number[entity, int(batch["anchor"][k])]]
                assert torch.equal(batch["past"][k], own["past"])
                part = loader.dataset.parts[int(batch["source"][k])]
                assert part.stash.vocabulary("sky")[batch["sky"][k]] == stash.vocabulary("sky")[own["sky"]]
                assert batch["size"][k] == own["size"]
                assert torch.equal(part[int(batch["window"][k])]["past"], own["past"])
    assert sorted(seen) == expected(one)
    assert steps == len(loaders[0])


def test_orders_differ_between_epochs_and_do_not_depend_on_prefetch(path: Path) -> None:
    ahead, plain = (loaders_of(on_nodes(path, 2), 1, 8, prefetch=n) for n in (3, 0))
    epochs = []
    for _ in range(2):
        epochs.append([seen_in(step, plain) for step in steps_of(plain)])
        assert epochs[-1] == [seen_in(step, ahead) for step in steps_of(ahead)]
    assert epochs[0] != epochs[1]
    assert in_all(epochs[0]) == in_all(epochs[1])


@pytest.mark.parametrize("seed", range(20))
def test_an_epoch_goes_on_over_other_nodes_ranks_and_batch_sizes(path: Path, seed: int) -> None:
    """Several times within one epoch; with every state the same on all ranks."""
    rng = random.Random(seed)
    seen: list[Any] = []
    state: State | None = None
    layouts = []
    for last in (False, False, False, True):
        nodes = rng.choice([1, 2, 3])
        loaders = loaders_of(on_nodes(path, nodes), rng.choice([1, 2]), rng.choice([3, 5, 8]), seed=5)
        for loader in loaders:
            loader.load_state_dict(state or loader.state_dict())
        layouts.append((nodes, loaders[0].sampler.ranks[0] // nodes, loaders[0].sampler.batch_size))
        for k, step in enumerate(steps_of(loaders)):
            seen += seen_in(step, loaders)
            state = state_of(loaders)
            assert state["consumed"] == len(seen)
            if not last and k == rng.randint(0, 4):
                break
        assert state is not None
        legs = [tuple(leg[:3]) for leg in state["legs"]]
        if state["epoch"] == 1:
            break
        assert legs[-1] == layouts[-1]
        assert set(legs) <= set(layouts)
        if state["consumed"] == len(loaders[0].dataset) and not last:
            break  # the epoch was over already
    assert sorted(seen) == expected(ts.Windows(whole(), spans=SPANS))


def test_a_state_of_the_last_step_goes_on_with_the_next_epoch(path: Path) -> None:
    loaders = loaders_of(on_nodes(path, 2), 2, 6)
    states = [state_of(loaders) for _ in steps_of(loaders)]
    assert state_of(loaders)["epoch"] == 1
    assert state_of(loaders)["legs"] == []
    following = [seen_in(step, loaders) for step in steps_of(loaders)]
    for nodes in (2, 1):
        again = loaders_of(on_nodes(path, nodes), 2, 6)
        for loader in again:
            loader.load_state_dict(states[-1])
        found = [seen_in(step, again) for step in steps_of(again)]
        assert in_all(found) == in_all(following)
        assert nodes == 1 or found == following
        assert state_of(again)["epoch"] == 2


def test_passes_of_steps_go_on_over_epochs_and_set_epoch_finds_them(path: Path) -> None:
    loaders = loaders_of(on_nodes(path, 2), 1, 7, steps=5)
    epoch = len(loaders_of(on_nodes(path, 2), 1, 7)[0])
    assert [len(loader) for loader in loaders] == [5, 5]
    passes = [[seen_in(step, loaders) for step in steps_of(loaders)] for _ in range(2 * epoch)]
    row = [*chain(*passes)]
    assert len(row) == 10 * epoch
    for first in range(0, 10 * epoch, epoch):
        assert in_all(row[first : first + epoch]) == expected(ts.Windows(whole(), spans=SPANS))
    for number in (7, 0, 3):
        for loader in loaders:
            loader.set_epoch(number)
        found = [seen_in(step, loaders) for _, step in zip(range(3), steps_of(loaders))]
        assert found == passes[number][:3]
    state = state_of(loaders)
    assert (state["pass"], state["steps"]) == (3, 3)
    again = loaders_of(on_nodes(path, 1), 1, 20, steps=5)
    again[0].load_state_dict(state)
    assert len([*again[0]]) == 2


def test_a_global_batch_size_is_divided_among_all_ranks(path: Path) -> None:
    loaders = loaders_of(on_nodes(path, 2), 2, None, global_batch_size=12)
    assert {len(batch["past"]) for step in steps_of(loaders) for batch in step} == {3}
    assert state_of(loaders)["legs"] == []


def test_parts_of_a_split_are_those_of_one_stash(path: Path) -> None:
    """Also where a shard has no window in a part, and none at all."""
    makes: list[Make] = [
        lambda shards: windows_of(shards).split(9, 20)[0],
        lambda shards: windows_of(shards).split(9, 20)[2],
    ]
    for make, one in zip(makes, ts.Windows(whole(), spans=SPANS).split(9, 20)[::2]):
        loaders = loaders_of(on_nodes(path, 2, make), 1, 4)
        assert len(loaders[0].dataset) == len(one)
        assert sorted(w for step in steps_of(loaders) for w in seen_in(step, loaders)) == expected(one)
    train, _ = ts.Windows(whole(), spans=SPANS).split_fraction(0.7)
    loaders = loaders_of(on_nodes(path, 2, lambda shards: windows_of(shards).split_fraction(0.7)[0]), 1, 4)
    assert sorted(w for step in steps_of(loaders) for w in seen_in(step, loaders)) == expected(train)


def test_a_part_without_a_window_in_any_shard_is_warned_of(path: Path) -> None:
    (windows,) = on_nodes(path, 1)
    with pytest.warns(UserWarning, match=r"Part 2 of 2 has no window in the shards of this node, whose times go from "):
        windows.split(10**6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        windows.split(9, 20)
    with pytest.warns(
        UserWarning, match=r"Part 1 of 2 has no window in the shards of this node, whose times go from "
    ) as caught:
        windows.split_fraction(0.001)
    assert [one.filename for one in caught] == [__file__]


def test_windows_of_spans_in_time_alone_need_no_frequency(path: Path) -> None:
    spans = {"past": ts.During(next(iter(SPANS.values()))[0], -3, 0, max_rows=4)}
    (windows,) = on_nodes(path, 1, lambda shards: ts.cluster.windows(shards, spans=spans))
    assert len(windows) == len(ts.Windows(whole(), spans=spans))


def test_empty_slots_are_those_of_one_stash(path: Path) -> None:
    def masked(shards: Shards) -> ShardedWindows:
        return ts.cluster.windows(shards, spans=SPANS, gaps="mask", min_history=1)

    one = ts.Windows(whole(), spans=SPANS, gaps="mask", min_history=1)
    loaders = loaders_of(on_nodes(path, 2, masked), 2, 5)
    seen = []
    for step in steps_of(loaders):
        seen += seen_in(step, loaders)
        for batch in step:
            assert torch.equal(batch["past.observed"], ~batch["past"].isnan())
    assert sorted(seen) == expected(one)


def test_transforms_and_filler(path: Path) -> None:
    loaders = loaders_of(on_nodes(path, 3), 2, 4, transform=[ts.Cast({"past": torch.float64})])
    fillers = []
    for step in steps_of(loaders):
        for batch in step:
            assert batch["past"].dtype == torch.float64
            assert list(batch) == list(step[0])
        fillers.append(sum(int((~batch["valid"]).sum()) for batch in step))
    assert max(fillers) - min(fillers) <= 3  # spread: every node is at most one off in every step


def test_the_frequency_is_that_of_all_shards(tmp_path: Path) -> None:
    """By itself, a shard in which most steps are others would find another one."""
    names = [f"e{k}" for k in range(8) for _ in range(10)]
    times = [max(t, 2 * t - 1) if k in (0, 3) else t for k in range(8) for t in range(10)]
    columns = {"e": names, "t": times, "y": [0.0] * 80}
    ts.cluster.shard(columns, ["y"], entity="e", time="t", shards=64, to=tmp_path)
    shards = ts.cluster.open(tmp_path, 0, 1)
    message = (
        r"^Shard \d+: Gaps cost 89% of the windows: 1 of 9 are left at frequency '1'; the most common other steps are "
        r"2 \(8 times\)\. .* 1 more shards of this node have such a warning\.$"
    )
    with pytest.warns(UserWarning, match=message):
        windows = ts.cluster.windows(shards, 2)
    assert len(windows) == 6 * 9 + 2


def test_what_is_refused(path: Path) -> None:
    own = windows_of(ts.cluster.open(path, 0, 2))
    message = (
        "Each of 2 nodes must know how many windows the others hold. Call windows = "
        "ts.cluster.exchange_counts(windows) on every rank, after the last split and before the loader."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        ts.Loader(own, 4)
    assert repr(own) == "ShardedWindows: node 0 of 2 has 109 in 3 shards, and has not exchanged counts with the others"
    with pytest.raises(
        ValueError, match=r"^The 2 nodes exchange numbers through a process group, and there is none\. "
    ):
        ts.cluster.exchange_counts(own)
    here = on_nodes(path, 2)[0]
    with pytest.raises(ValueError, match="All nodes must have equally many ranks, got 3 ranks on 2 nodes"):
        ts.Loader(here, 4, num_replicas=3, rank=0)
    with pytest.raises(ValueError, match=r"^Ranks are numbered node by node; rank 2 of 4 is on node 1 of 2, and the "):
        ts.Loader(here, 4, num_replicas=4, rank=2)
    with pytest.raises(ValueError, match=r'^tail="drop" leaves out steps that are not full, but over shards filler '):
        ts.Loader(here, 4, tail="drop", num_replicas=2, rank=0)
    with pytest.raises(ValueError, match=r"^order must be left out for a mix or shards"):
        ts.Loader(here, 4, order=ts.Blocks(2), num_replicas=2, rank=0)
    with pytest.raises(ValueError, match=r"^order must be left out for a mix or shards"):
        ts.Loader(here, 4, order=[1, 2], num_replicas=2, rank=0)
    with pytest.raises(
        ValueError, match=r"^Each node must hold at least one window; node 6 of 7 holds none\. Use fewer"
    ):
        ts.Loader(on_nodes(path, 7)[0], 4, num_replicas=7, rank=0)
    with pytest.raises(ts.errors.NoWindowError, match=r"^Windows need 100 consecutive rows; the longest of "):
        ts.cluster.windows(ts.cluster.open(path, 0, 1), 100)
    with pytest.raises(
        TypeError, match=r"^ts\.cluster\.windows takes shards, ts\.cluster\.open\(\.\.\.\), got a Stash"
    ):
        ts.cluster.windows(whole(), 3)  # type: ignore[arg-type]


def test_states_of_other_windows_and_orders_are_refused(path: Path) -> None:
    (one,) = loaders_of(on_nodes(path, 1), 1, 4)
    next(iter(one))
    state = one.state_dict()
    assert state["legs"] == [[1, 1, 4, 1]]
    (other,) = loaders_of(on_nodes(path, 1, lambda shards: windows_of(shards).split(20)[0]), 1, 4)
    with pytest.raises(
        ValueError, match=r"^A state must continue the same windows in the same order; these differ: window"
    ):
        other.load_state_dict(state)
    with pytest.raises(ValueError, match=r"these differ: order: 'shards, shuffled' in the state, 'shards, interleav"):
        loaders_of(on_nodes(path, 1), 1, 4, shuffle=False)[0].load_state_dict(state)
    with pytest.raises(ValueError, match=r"lacks legs"):
        one.load_state_dict({name: value for name, value in state.items() if name != "legs"})
    with pytest.raises(
        ValueError, match=r"^legs must list \[nodes, ranks of a node, batch size, steps\] per layout, got"
    ):
        one.load_state_dict(state | {"legs": [[1, 2]]})
    with pytest.raises(ValueError, match=r"^A leg must have at most as many steps as are left"):
        one.load_state_dict(state | {"legs": [[1, 1, 4, 10_000]]})


def test_an_uneven_cut_is_told(path: Path) -> None:
    windows = on_nodes(path, 4)[0]
    message = (
        "The windows of 6 shards are uneven on 4 nodes: all take as many steps as the one with the most, so 25% of "
        "what they show is filler. Use more shards or fewer nodes."
    )
    with pytest.warns(UserWarning, match=f"^{re.escape(message)}$"):
        ts.Loader(windows, 4, num_replicas=4, rank=0)
    assert "; 24.7% filler, because nodes differ" in repr(windows)


def test_fingerprints_are_the_same_on_every_node(path: Path) -> None:
    found = [windows.fingerprint() for nodes in (1, 2, 3) for windows in on_nodes(path, nodes)]
    assert found == [found[0]] * 6
    one = ts.Windows(whole(), spans=SPANS).fingerprint()
    shared = ["windows", "entities", "rows", "first_time", "last_time", "spans", "stride"]
    assert {name: found[0][name] for name in shared} == {name: one[name] for name in shared}


@pytest.mark.parametrize("kind", ["standard", "minmax", "maxabs"])
@pytest.mark.parametrize("by", [None, "entity"])
def test_a_scaler_of_all_shards_is_that_of_one_stash(path: Path, kind: Kind, by: By | None) -> None:
    """And the same, bit by bit, however many nodes there are."""
    one = ts.Windows(whole(), spans=SPANS).split(20)[0]
    few = r"^No value, or only one, .*: 'y' in 2 of 13 entities \('e\d', 'e\d'\)\.$"
    warned = partial(pytest.warns, UserWarning, match=few) if by else nullcontext
    with warned():
        alone = ts.Scaler.fit(one, ["y"], kind=kind, by=by)
    (here,) = on_nodes(path, 1, lambda shards: windows_of(shards).split(20)[0])
    with warned():
        found = ts.Scaler.fit(here, ["y"], kind=kind, by=by)
    assert (found.rows, found.spans) == (alone.rows, alone.spans)
    names = names_of(here)
    order = [names.index(name) for name in one.stash.entities] if by else [0]
    torch.testing.assert_close(found.center["y"][order], alone.center["y"], rtol=1e-12, atol=0)
    torch.testing.assert_close(found.scale["y"][order], alone.scale["y"], rtol=1e-12, atol=0)
    with warned():
        assert ts.cluster.fit_scaler(here, ["y"], kind=kind, by=by).state_dict() == found.state_dict()
    for nodes in (2, 3):
        several = on_nodes(path, nodes, lambda shards: windows_of(shards).split(20)[0])
        told = [of_node(windows.parts, ["y"], kind, by, together=False) for windows in several for _ in range(2)]
        for windows in several:
            with warned():
                of_all_nodes = of_all(windows.shards.entity_offsets, told, kind, by, pooled=False)
                merged = scaler_of(windows, of_all_nodes, kind, by, "error")
            assert merged.state_dict() == found.state_dict()
    (loader,) = loaders_of([here], 1, 50, transform=[found])
    batch = next(iter(loader))
    raw = found.bind(here).inverse(batch)
    part = here.parts[int(batch["source"][7])]
    torch.testing.assert_close(raw["past"][7], part[int(batch["window"][7])]["past"])


def test_scalers_that_shards_cannot_have_are_refused(path: Path) -> None:
    here, _ = on_nodes(path, 2)
    with pytest.raises(ValueError, match=r"^2 nodes must .* ts\.cluster\.fit_scaler\(windows, columns\)"):
        ts.Scaler.fit(here, ["y"])
    with pytest.raises(
        ValueError, match=r"^The 2 nodes exchange numbers through a process group, and there is none\. "
    ):
        ts.cluster.fit_scaler(here, ["y"])
    (one,) = on_nodes(path, 1)
    with pytest.raises(ValueError, match=r"^kind=\"robust\" needs one stash"):
        ts.Scaler.fit(one, ["y"], kind="robust")
    with pytest.raises(ValueError, match=r"^sample= needs the rows of one stash\. Fit a scaler on "):
        ts.Scaler.fit(one, ["y"], sample=3)
    with pytest.raises(ts.errors.SchemaError, match=r"must be numeric; 'sky' is category"):
        ts.Scaler.fit(one, ["sky"])
    with pytest.raises(ValueError, match=r"at least one row, got none"):
        ts.Scaler.fit(one.split(1000)[1], ["y"])


def test_ranks_that_disagree_are_told_how() -> None:
    one, two, three = ShardCount(5, 0, 9, 1), ShardCount(6, 0, 9, 2), ShardCount(0)
    about = {"spans": {"past": ["y", -2, 0, 1]}, "stride": 1}
    first, second = RankCounts(0, 2, about, {0: one, 2: three}), RankCounts(1, 2, None, {1: two})
    assert count_of_each_shard([first, first, second], 3) == [one, two, three]

    def refused(message: str, *ranks: RankCounts) -> None:
        with pytest.raises(ValueError, match=message):
            count_of_each_shard(ranks, 3)

    refused("the same number of nodes, got 2 and 3", first, second, first._replace(nodes=3))
    refused("'stride': 1} and .*'stride': 2}", first, second._replace(windows=about | {"stride": 2}))
    refused("for shard 0, rank 1 has .*=6.* earlier rank has .*=5", first, first._replace(counts={0: two, 2: three}))
    refused(r"1 are held by none, such as shard 1: the ranks are on nodes \[0, 0\]", first, first)


def test_the_arguments_are_those_of_windows() -> None:
    ours, theirs = (inspect.signature(of).parameters for of in (ts.cluster.windows, ts.Windows))
    assert [*ours][1:] == [*theirs][1:]
    assert {name: one.default for name, one in ours.items()} == {
        "shards" if name == "stash" else name: one.default for name, one in theirs.items()
    }


def test_spans_in_time_work_on_shards_and_given_points_are_refused(tmp_path: Path) -> None:
    data = {"e": ["a", "a", "b", "c"], "t": [1, 5, 2, 2], "y": [1.0, 2.0, 3.0, 4.0]}
    ts.cluster.shard(data, ["y"], entity="e", time="t", shards=2, to=tmp_path)
    spans = {"past": ts.During("y", -9, 0, max_rows=2)}
    windows = ts.cluster.windows(ts.cluster.open(tmp_path), spans=spans)
    shown = [row for batch in ts.Loader(windows, 3) for row in batch["past"][batch["valid"]].nan_to_num(0).tolist()]
    assert sorted(shown) == [[0.0, 1.0], [0.0, 3.0], [0.0, 4.0], [1.0, 2.0]]
    with pytest.raises(ValueError, match="at= names points of one stash"):
        ts.cluster.windows(ts.cluster.open(tmp_path), spans=spans, at={"e": ["a"], "t": [6]})


@pytest.mark.parametrize("taken", [{"require": ["y"]}, {"where": "ok"}])
def test_a_shard_without_windows_is_no_error_of_the_job(tmp_path: Path, taken: dict[str, Any]) -> None:
    """Of two entities one has only missing values, alone in its shard."""
    values = np.where(np.arange(20) < 10, np.arange(20.0), np.nan)
    data = {"e": ["a"] * 10 + ["b"] * 10, "t": [*range(10)] * 2, "y": values, "ok": np.isfinite(values)}
    ts.cluster.shard(data, ["y", "ok"], entity="e", time="t", shards=4, to=tmp_path)
    chosen: dict[str, Any] = {"history": 2, **taken}
    sharded = ts.cluster.windows(ts.cluster.open(tmp_path), **chosen)
    whole = ts.Windows(ts.load(data, ["y", "ok"], entity="e", time="t"), **chosen)
    assert len(sharded) == len(whole) > 0
    assert len(sharded.parts) == 1


def test_a_job_without_windows_is_an_error_on_every_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"e": ["a"] * 10 + ["b"] * 10, "t": [*range(10)] * 2, "y": [float("nan")] * 20}
    ts.cluster.shard(data, ["y"], entity="e", time="t", shards=4, to=tmp_path)
    with pytest.raises(ts.errors.NoWindowError, match="require= keeps the windows without a missing value"):
        ts.cluster.windows(ts.cluster.open(tmp_path), history=2, require=["y"])
    nodes = [ts.cluster.windows(ts.cluster.open(tmp_path, k, 2), history=2, require=["y"]) for k in (0, 1)]
    ranks = [RankCounts(k, 2, shared_fingerprint(windows), counts_of_node(windows)) for k, windows in enumerate(nodes)]
    monkeypatch.setattr(exchange, "gather_from_ranks", lambda *_: ranks)
    for windows in nodes:
        with pytest.raises(ts.errors.NoWindowError, match="None of the 4 shards has a window"):
            ts.cluster.exchange_counts(windows)


def test_a_part_of_exchanged_windows_is_to_be_exchanged_itself(path: Path) -> None:
    here, _ = on_nodes(path, 2)
    assert len(here) == len(ts.Windows(whole(), spans=SPANS))
    with pytest.raises(
        ValueError, match=r"^Each of 2 nodes must know how many windows the others hold\. Call windows = "
    ):
        len(here.split(20)[0])


def test_windows_of_shards_have_a_function_of_their_own(path: Path) -> None:
    with pytest.raises(TypeError, match=r"got a Shards\. .*ts\.cluster\.windows\("):
        ts.Windows(ts.cluster.open(path), 2)  # type: ignore[arg-type]


def test_a_loader_is_pickled_with_its_place(path: Path) -> None:
    (windows,) = on_nodes(path, 1)
    loader = ts.Loader(windows, 8, shuffle=True, tail="pad")
    next(iter(loader))
    again = pickle.loads(pickle.dumps(loader))
    assert again.state_dict() == loader.state_dict()
    for one, two in zip(loader, again):
        assert torch.equal(one["past"], two["past"])


@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.parametrize("part", ["of", "train", "test"])
def test_chosen_entities_and_last_slots_are_those_of_one_stash(path: Path, nodes: int, part: str) -> None:
    names = [f"e{k}" for k in (10, 1, 3, 5, 8, 4, 12)]

    def made(windows: Any) -> Any:
        return windows.of(names) if part == "of" else windows.split_last(8, 5)[0 if part == "train" else 2]

    loaders = loaders_of(on_nodes(path, nodes, lambda shards: made(windows_of(shards))), 2, 4)
    seen = in_all([seen_in(step, loaders) for step in steps_of(loaders)])
    assert seen == expected(made(ts.Windows(whole(), spans=SPANS)))


@pytest.mark.parametrize("of", [None, "y"])
def test_last_slots_of_shards_whose_series_are_shorter_or_lack_the_values(tmp_path: Path, of: str | None) -> None:
    lengths = [3, 4, 12, 5, 15, 2, 9, 6]
    names = np.repeat([f"e{k}" for k in range(len(lengths))], lengths)
    y = np.where(np.isin(names, ["e2", "e6"]), np.nan, 1.0)  # of a shard each
    data = {"e": names, "t": np.concatenate([*map(np.arange, lengths)]), "y": y}
    ts.cluster.shard(data, ["y"], entity="e", time="t", shards=8, to=tmp_path)
    own = ts.cluster.windows(ts.cluster.open(tmp_path), 1, 1)
    alone = ts.Windows(ts.load(data, ["y"], entity="e", time="t"), 1, 1)
    for part, whole_part in zip(own.split_last(3, 8, of=of), alone.split_last(3, 8, of=of), strict=True):
        assert sorted(chain(*(expected(of_shard) for of_shard in part.parts.values()))) == expected(whole_part)
    with pytest.raises(ValueError, match=r"^A length of split_last must be an integer >= 1, got 0"):
        own.split_last(0)
