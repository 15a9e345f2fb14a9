"""Windows of shards with tables beside them, which every node holds whole.

Several nodes in one process reach inside `cluster`, as in `nodes.py`.
"""

import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

import tensorstash as ts
from tensorstash.cluster.exchange import RankCounts, count_of_each_shard
from tensorstash.cluster.sharded_windows import ShardedWindows, counts_of_node, shared_fingerprint
from tensorstash.cluster.shards import Shards
from tests import kernel
from tests.cluster.nodes import (
    LENGTHS,
    State,
    expected,
    loaders_of,
    names_of,
    on_nodes,
    seen_in,
    state_of,
    steps_of,
)
from tests.cluster.nodes import table as table_of_shards
from tests.oracle_load import like

pytestmark = pytest.mark.filterwarnings("ignore:The windows of 6 shards are uneven:UserWarning")

SITES = ("north", "east", "south")
ENTITIES: dict[str, Any] = {"entity": "e", "time": "t"}
IN_TIME: dict[str, Any] = {
    "wind": ts.During("wind", 0, 4, every=1, age=True, table="runs", by="site"),
    "price": ts.During("price", -6, 0, max_rows=3, age=True, table="prices"),
    "near": ts.During("y", -4, 1, max_rows=3, table="others"),
    "own": ts.During("y", -5, 0, every=1),
}
SPANS: dict[str, Any] = {"past": ("y", -2, 0)} | IN_TIME


def frame(turn: int = 0) -> pl.DataFrame:
    """Entities of various lengths, each at a site, which `turn` exchanges."""
    columns = pl.DataFrame(table_of_shards()).drop("sky", "size")
    sites = {f"e{k}": [*SITES, "west"][(k + turn) % 4] for k in range(len(LENGTHS))}
    return columns.with_columns(site=pl.col("e").replace_strict(sites))


def tables_of(spans: dict[str, Any]) -> dict[str, ts.Stash]:
    """The tables that spans take rows from."""
    named = {span.table for span in spans.values() if isinstance(span, ts.During)}
    return {name: table for name, table in tables().items() if name in named}


def tables(late: int = 1) -> dict[str, ts.Stash]:
    """Runs every 3 steps of time, known `late` after they begin, prices without entities, and most entities again."""
    runs = [
        (s, run + k, run, 100.0 * run + k + len(s) / 10) for s in SITES for run in range(-6, 60, 3) for k in range(9)
    ]
    frame_of_runs = pl.DataFrame(runs, ["site", "valid", "run", "wind"], orient="row")
    prices = {"t": [*range(0, 60, 2)], "price": [float(k) for k in range(0, 60, 2)]}
    others = frame().filter(pl.col("e") != "e3").with_columns(pl.col("y") * 10)
    return {
        "runs": ts.load(frame_of_runs, ["wind"], entity="site", time="valid", known=pl.col("run") + late),
        "prices": ts.load(prices, ["price"], time="t"),
        "others": ts.load(others, ["y"], **ENTITIES),
    }


def cut(to: Path, turn: int = 0) -> Path:
    ts.cluster.shard(frame(turn), ["y"], **ENTITIES, static=["site"], shards=6, to=to)
    return to


def windows_of(shards: Shards) -> ShardedWindows:
    return ts.cluster.windows(shards, spans=SPANS, tables=tables())


def whole(spans: dict[str, Any] = SPANS) -> ts.Windows:
    """The windows of one stash."""
    return ts.Windows(ts.load(frame(), ["y"], **ENTITIES, static=["site"]), spans=spans, tables=tables_of(spans))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cut(tmp_path_factory.mktemp("shards"))


@pytest.mark.parametrize("way", kernel.WAYS)
@pytest.mark.parametrize(("nodes", "ranks", "batch_size"), [(1, 2, 7), (2, 2, 5), (3, 1, 4)])
@pytest.mark.parametrize("spans", [SPANS, IN_TIME])
def test_every_window_comes_once_as_of_one_stash(
    path: Path, way: str, nodes: int, ranks: int, batch_size: int, spans: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entities have other numbers in each shard, and find their rows in the tables by their names or sites."""
    kernel.take(way, monkeypatch)
    one = whole(spans)
    about = one.anchors(range(len(one)))
    number = {pair: k for k, pair in enumerate(zip(about["entity"].tolist(), about["time"].tolist()))}

    def make(shards: Shards) -> ShardedWindows:
        return ts.cluster.windows(shards, spans=spans, tables=tables())

    loaders, seen = loaders_of(on_nodes(path, nodes, make), ranks, batch_size), []
    for step in steps_of(loaders):
        seen += seen_in(step, loaders)
        for batch, loader in zip(step, loaders):
            names = names_of(loader.dataset)
            entities = [one.stash.entities.index(names[entity]) for entity in batch["entity"].tolist()]
            wanted = one[[number[pair] for pair in zip(entities, batch["anchor"].tolist())]]
            for name in wanted.keys() - {"site"}:  # codes differ, as the order of entities does
                assert batch[name].numpy().tobytes() == wanted[name].numpy().tobytes(), name
    assert sorted(seen) == expected(one)
    flags = whole()[:]
    assert all(flags[f"{name}.observed"].any() and not flags[f"{name}.observed"].all() for name in IN_TIME)


@pytest.mark.parametrize("seed", range(5))
def test_an_epoch_goes_on_over_other_nodes_and_ranks(path: Path, seed: int) -> None:
    rng, seen = random.Random(seed), list[Any]()
    state: State | None = None
    for last in (False, False, True):
        loaders = loaders_of(on_nodes(path, rng.choice([1, 2, 3]), windows_of), rng.choice([1, 2]), 5, seed=5)
        for loader in loaders:
            loader.load_state_dict(state or loader.state_dict())
        for _, step in zip(range(1_000 if last else rng.randint(2, 5)), steps_of(loaders)):
            seen += seen_in(step, loaders)
        state = state_of(loaders)
    assert sorted(seen) == expected(whole())


def test_a_state_of_other_tables_is_refused(path: Path, tmp_path: Path) -> None:
    """Other known times, and other entities of a table for the entities of the same rows."""
    (one,) = loaders_of(on_nodes(path, 1, windows_of), 1, 4)
    next(iter(one))
    state = one.state_dict()
    loaders_of(on_nodes(path, 1, windows_of), 1, 4)[0].load_state_dict(state)

    def later(shards: Shards) -> ShardedWindows:
        return ts.cluster.windows(shards, spans=SPANS, tables=tables(late=2))

    for where, make in ((path, later), (cut(tmp_path, turn=1), windows_of)):
        (other,) = loaders_of(on_nodes(where, 1, make), 1, 4)
        with pytest.raises(ValueError, match=like("must continue the same windows ... these differ")):
            other.load_state_dict(state)


def test_nodes_with_other_tables_are_told(path: Path) -> None:
    """When they exchange counts; here the nodes are in one process."""
    nodes = [ts.cluster.open(path, node, 2) for node in range(2)]
    own = [ts.cluster.windows(shards, spans=SPANS, tables=tables(late)) for shards, late in zip(nodes, (1, 2))]
    told = [
        RankCounts(node, 2, shared_fingerprint(windows), counts_of_node(windows)) for node, windows in enumerate(own)
    ]
    with pytest.raises(ValueError, match=like("windows of the same arguments, columns and tables, got")):
        count_of_each_shard(told, 6)


def test_splits_are_those_of_one_stash(path: Path) -> None:
    """Stretches ahead over known times are inputs."""
    for cut_at in (9, 20):
        own = windows_of(ts.cluster.open(path, 0, 1)).split(cut_at)
        assert [len(part) for part in own] == [len(part) for part in whole().split(cut_at)]


def test_a_scaler_takes_the_columns_of_shards_and_not_those_of_tables(path: Path) -> None:
    (windows,) = on_nodes(path, 1, windows_of)
    spans = {name: span for name, span in SPANS.items() if name != "near"}
    (alone,) = on_nodes(path, 1, lambda shards: ts.cluster.windows(shards, spans=spans, tables=tables_of(spans)))
    assert torch.allclose(ts.Scaler.fit(alone, ["y"]).center["y"], ts.Scaler.fit(whole(spans), ["y"]).center["y"])
    with pytest.raises(ValueError, match=like("'wind' is a static column, or one of a table")):
        ts.Scaler.fit(alone, ["wind"])
    with pytest.raises(ts.errors.SchemaError, match=like("of one stash ... 'y' from 2")):
        ts.Scaler.fit(windows, ["y"])
    scaler = ts.Scaler.fit(tables()["runs"], ["wind"])
    batch = next(iter(ts.Loader(windows, 6, transform=[scaler])))
    plain = next(iter(ts.Loader(windows, 6)))
    scaled = (plain["wind"] - scaler.center["wind"]) / scaler.scale["wind"]
    assert torch.allclose(batch["wind"], scaled, equal_nan=True)
