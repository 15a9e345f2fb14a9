"""Every node holds everything: the plain script under torchrun with two agents, and the example for Ray Train.

Two directories for shared segments stand for two machines.
"""

import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
WINDOWS = 16_907


@pytest.fixture
def machines() -> Iterator[list[Path]]:
    """The directories for shared segments of two machines."""
    places = [Path("/dev/shm") / f"tensorstash-test-{secrets.token_hex(4)}" for _ in range(2)]
    yield places
    for place in places:
        shutil.rmtree(place, ignore_errors=True)


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **more}


def test_torchrun_on_two_nodes_holds_one_copy_on_each(machines: list[Path], tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launch = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2"]
    where = ["--master-addr=127.0.0.1", f"--master-port={port}"]
    script = [str(ROOT / "examples" / "train_ddp.py"), "--out", str(tmp_path)]
    agents = [
        subprocess.Popen(
            [*launch, f"--node-rank={node}", *where, *script],
            env=environment(TENSORSTASH_DIR=str(place)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for node, place in enumerate(machines)
    ]
    told = [agent.communicate(timeout=200)[0] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], told
    assert f"epoch 0: every window once, {WINDOWS:,} of them" in told[0]
    copies = re.search(r"which is ([\d.]+) copies", told[0])
    assert copies is not None
    assert 1.98 < float(copies[1]) < 2.02
    assert [len([*place.iterdir()]) for place in machines] == [1, 1]


@pytest.fixture
def cluster(machines: list[Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two nodes of two CPUs each."""
    cluster_utils = pytest.importorskip(
        "ray.cluster_utils", reason='Ray is not installed: pip install "tensorstash[ray]"'
    )
    # Ray notices late that a node is gone, and waits so long for workers on it before it goes on with fewer
    waits = {"RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "30"}
    for name, value in environment(RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0", **waits).items():
        monkeypatch.setenv(name, value)
    node: dict[str, Any] = {"num_cpus": 2, "object_store_memory": 80_000_000}
    monkeypatch.setenv("TENSORSTASH_DIR", str(machines[0]))
    found = cluster_utils.Cluster(
        initialize_head=True, head_node_args={**node, "include_dashboard": True}
    )  # Ray Train asks it
    found.add_node(wait=True, env_vars={"TENSORSTASH_DIR": str(machines[1])}, **node)
    yield found
    found.shutdown()


def train(cluster: Any, out: Path, *options: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / "train_ray.py"), "--out", str(out), *options],
        env=environment(RAY_ADDRESS=cluster.address),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_ray_train_goes_on_after_a_worker_and_a_node_are_killed(
    cluster: Any, machines: list[Path], tmp_path: Path
) -> None:
    """Four workers, of which one is killed; then two, after their node is gone: all in one epoch."""
    process = train(cluster, tmp_path, "--workers", "4", "--batch-size", "16", "--kill-at", "50")
    assert process.stdout is not None
    lines, gone = [], False
    for line in process.stdout:
        lines.append(line)
        if not gone and "then 4 workers" in line:  # it goes on after the first loss
            gone = True
            assert [len([*place.iterdir()]) for place in machines] == [1, 1]
            cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
    assert process.wait(60) == 0, "".join(lines)
    assert gone
    story = r"4 workers for [\d,]+ windows of epoch 0, then 4 workers for [\d,]+ windows of epoch 0, then 2 workers"
    assert re.match(rf"{story}: every window once per epoch; the last error was \d", lines[-1]), lines[-1]
