"""An elastic job of torchrun that grows: a second node joins within an epoch, and takes over its shards."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import tensorstash as ts
from tests.cluster.nodes import PATIENCE, cut, end, environment, expected, free_port, machines_of, whole

pytestmark = pytest.mark.cluster
SCRIPT = Path(__file__).with_name("rank_that_grows.py")


@pytest.fixture
def machines() -> Iterator[list[Path]]:
    with machines_of(2) as found:
        yield found


def start_agent(machine: Path, host: bool, port: int, log: Path, *script: object) -> psutil.Popen:
    """An agent of a job of one or two nodes. The one that is the host must live as long as the job."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1:2", "--nproc-per-node=1"]
    command += ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=grows"]
    # last_call_timeout is how long it waits for a second node before it starts with one
    command += [f"--rdzv-conf=is_host={int(host)},last_call_timeout=3", *map(str, script)]
    # otherwise the first node of PyTorch 2.13 does not tell the second one the address of a later round
    own = environment(TENSORSTASH_DIR=str(machine), TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
    with log.open("w") as out:
        return psutil.Popen(command, env=own, stdout=out, stderr=subprocess.STDOUT)


def test_a_node_joins_within_an_epoch(tmp_path: Path, machines: list[Path]) -> None:
    """Every window comes once, and the second node shows its part of those that are left."""
    path, checkpoint = cut(tmp_path / "cut", shards=9), tmp_path / "checkpoint.json"
    logs, port = [tmp_path / "0.log", tmp_path / "1.log"], free_port()
    agents = [start_agent(machines[0], True, port, logs[0], SCRIPT, path, tmp_path, 2)]
    try:
        late = time.monotonic() + PATIENCE
        while not checkpoint.exists() and agents[0].poll() is None and time.monotonic() < late:
            time.sleep(0.1)
        assert checkpoint.exists(), logs[0].read_text()
        agents.append(start_agent(machines[1], False, port, logs[1], SCRIPT, path, tmp_path, 2))
        psutil.wait_procs(agents, PATIENCE)
        codes = [agent.poll() for agent in agents]
    finally:
        for agent in agents:
            end(agent)
    assert codes == [0, 0], [log.read_text() for log in logs]
    told = json.loads(checkpoint.read_text())
    assert (told["nodes"][0], told["nodes"][-1]) == (1, 2)
    assert (told["state"]["epoch"], told["state"]["legs"]) == (1, [])
    windows = ts.Windows(whole(), spans={"past": ("y", -2, 0), "sky": ("sky", 0, 1)})
    assert sorted(map(tuple, told["seen"])) == expected(windows)
