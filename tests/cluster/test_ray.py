"""A real Ray cluster of two nodes on this machine: shards, with workers and a node that are killed meanwhile.

It reaches inside `cluster/resume.py` to see when a run notes a shard.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tensorstash as ts
from tensorstash.cluster import resume
from tests.cluster.test_shard import COLUMNS, KEYS, files, table

# Ray Data warns of itself
pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")]
ray = pytest.importorskip("ray", reason='Ray is not installed: pip install "tensorstash[ray]"')

STORE = 80_000_000  # bytes of each node's object store
S = 6


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two nodes of one CPU each."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    node: dict[str, Any] = {"num_cpus": 1, "object_store_memory": STORE}
    found = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    ray.init(address=found.address, log_to_driver=False)  # before there is another node that it could choose
    found.add_node(wait=True, **node)
    yield found
    ray.shutdown()
    found.shutdown()


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of which each row group is a block."""
    pq.write_table(table(), tmp_path / "a.parquet", row_group_size=37)
    ts.cluster.shard(tmp_path / "a.parquet", COLUMNS, shards=S, to=tmp_path / "one", **KEYS)
    return tmp_path / "a.parquet"


def workers(cluster: Any) -> list[psutil.Process]:
    """The processes of the cluster that run tasks."""
    parents = [psutil.Process(about.process.pid) for node in cluster.list_all_nodes() for about in _raylets(node)]
    children = [child for parent in parents for child in parent.children(recursive=True)]
    return [child for child in children if child.name().startswith(("ray::_", "ray::IDLE"))]  # not Ray's own agents


def _raylets(node: Any) -> list[Any]:
    return [about for about in node.all_processes["raylet"] if about.process.poll() is None]


def test_the_bytes_are_those_of_one_machine(cluster: Any, source: Path, tmp_path: Path) -> None:
    made = ts.cluster.shard(source, COLUMNS, shards=S, to=tmp_path / "ray", engine="ray", **KEYS)
    assert files(tmp_path / "ray") == files(tmp_path / "one")
    assert ts.cluster.open(tmp_path / "ray").manifest == made
    engines: list[tuple[str, Literal["ray"] | None]] = [("a", None), ("b", "ray")]
    for name, engine in engines:
        ts.cluster.shard(table(), shards=S, to=tmp_path / name, engine=engine, **KEYS)
    assert files(tmp_path / "a") == files(tmp_path / "b")
    odd = pa.table({"e": ["a", "b", "c"] * 2, "d": pa.array([1, 2, None] * 2, pa.timestamp("s"))})
    odd = odd.append_column("wide", pa.array([1, 2, 3, 4, 5, 6]).cast(pa.decimal256(60, 2)))
    fills: dict[str, Any] = {"d": ts.column("d", fill=0), "wide": "wide"}
    ts.cluster.shard(odd, fills, entity="e", shards=S, to=tmp_path / "c")
    ts.cluster.shard(odd, fills, entity="e", shards=S, to=tmp_path / "d", engine="ray")
    assert files(tmp_path / "c") == files(tmp_path / "d")
    twice = pa.table({"e": ["a", "a"], "t": [1, 1], "y": [1.0, 2.0]})
    with pytest.raises(ts.errors.DataError, match=r"entity 'a' has t 1 in source rows 0 and 1"):
        ts.cluster.shard(twice, entity="e", time="t", shards=2, to=tmp_path / "twice", engine="ray")


def test_a_ray_dataset_is_a_source(cluster: Any, source: Path) -> None:
    dataset = ray.data.read_parquet(str(source))
    chosen: dict[str, Any] = {"columns": {"x": ts.column("x", fill=-1.0), "y": "y"}, **KEYS}
    rows = sorted(ts.load(dataset, **chosen).to_polars().rows())
    assert rows == sorted(ts.load(source, **chosen).to_polars().rows())
    doubled = dataset.map_batches(lambda frame: frame.assign(x=frame["x"] * 2), batch_format="pandas")
    assert ts.load(doubled, ["x"], **KEYS)["x"].nansum() == 2 * ts.load(source, ["x"], **KEYS)["x"].nansum()


def test_workers_and_a_node_are_killed(
    cluster: Any, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first shard all workers are killed, after the second a node, and with it what its object store held."""
    plain = resume.ShardingRun.add
    killed = []

    def add(self: Any, number: int, done: Any) -> None:
        plain(self, number, done)
        if len(self.reports) == 1:
            for process in workers(cluster):
                os.kill(process.pid, signal.SIGKILL)
                killed.append(process.pid)
        if len(self.reports) == 2:
            cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
            killed.append("node")

    monkeypatch.setattr(resume.ShardingRun, "add", add)
    ts.cluster.shard(source, COLUMNS, shards=S, to=tmp_path / "ray", engine="ray", **KEYS)
    assert len(killed) > 1
    assert killed[-1] == "node"
    assert files(tmp_path / "ray") == files(tmp_path / "one")
