"""Every node holds everything: the plain script under torchrun with two agents, and the example for Ray Train.

Two directories for shared segments stand for two machines.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Timer
from typing import Any

import psutil
import pytest

from tests.cluster.nodes import PATIENCE, ROOT, end, environment, machines_of, torchrun
from tests.project.pages import blocks

pytestmark = pytest.mark.cluster

WINDOWS = 16_907


@pytest.fixture
def machines() -> Iterator[list[Path]]:
    with machines_of(2) as found:
        yield found


def test_torchrun_on_two_nodes_holds_one_copy_on_each(machines: list[Path], tmp_path: Path) -> None:
    told = torchrun(machines, 2, ROOT / "examples" / "train_ddp.py", "--out", tmp_path)
    assert f"epoch 0: every window once, {WINDOWS:,} of them" in told[0]
    copies = re.search(r"which is ([\d.]+) copies", told[0])
    assert copies is not None
    assert 1.98 < float(copies[1]) < 2.02
    assert [len([*place.iterdir()]) for place in machines] == [1, 1]


@pytest.fixture
def cluster(machines: list[Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two nodes of one CPU each."""
    cluster_utils = pytest.importorskip(
        "ray.cluster_utils", reason='Ray is not installed: pip install "tensorstash[ray]"'
    )
    # Ray notices late that a node is gone, and waits so long for workers on it before it goes on with fewer; workers
    # that start must need less on a slow machine
    waits = {"RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "60"}
    for name, value in environment(RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0", **waits).items():
        monkeypatch.setenv(name, value)
    node: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80_000_000}
    monkeypatch.setenv("TENSORSTASH_DIR", str(machines[0]))
    found = cluster_utils.Cluster(
        initialize_head=True, head_node_args={**node, "include_dashboard": True}
    )  # Ray Train asks it
    found.add_node(wait=True, env_vars={"TENSORSTASH_DIR": str(machines[1])}, **node)
    yield found
    found.shutdown()


def train(cluster: Any, out: Path, *options: str) -> Iterator[str]:
    """The lines that the example prints, while it runs."""
    command = [sys.executable, str(ROOT / "examples" / "train_ray.py"), "--out", str(out), "--workers", "2", *options]
    own = environment(RAY_ADDRESS=cluster.address)
    with psutil.Popen(command, env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        late = Timer(PATIENCE, end, [process])
        late.start()
        try:
            yield from process.stdout
        finally:
            late.cancel()
            end(process)
    assert process.returncode == 0


def test_the_code_on_the_page_of_ray_goes_on_after_an_error(cluster: Any, tmp_path: Path) -> None:
    """Workers raise one at step 30, and others take up the checkpoint of step 20."""
    (tmp_path / "examples").symlink_to(ROOT / "examples", target_is_directory=True)
    page = ROOT / "docs" / "how-to" / "ray.md"
    code = "\n".join(blocks(page))
    reports, raised = "            if step % 20 == 0:\n", tmp_path / "raised"
    raises = f"            if step == 30 and not Path({str(raised)!r}).exists():\n"
    raises += f"                Path({str(raised)!r}).touch()\n                1 / 0\n"
    assert reports in code
    (tmp_path / "page.py").write_text(code.replace(reports, raises + reports) + "\nprint(result.metrics)\n")
    done = subprocess.run(
        [sys.executable, str(tmp_path / "page.py")],
        cwd=tmp_path,
        env=environment(RAY_ADDRESS=cluster.address),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert raised.exists()
    assert done.stdout.splitlines()[-1] == "{'epoch': 1}"
    (shown,) = re.findall(r"^```text\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert shown in done.stdout


# Ray may start the workers again once more than it needs to, such as when it finds a node gone while they start
STORY = r"2 workers for [\d,]+ windows of epoch 0, (then \d workers for [\d,]+ windows of epoch 0, )*then {} workers: "


def test_ray_train_goes_on_after_a_worker_is_killed(cluster: Any, machines: list[Path], tmp_path: Path) -> None:
    *lines, last = train(cluster, tmp_path, "--kill-at", "90", "--every", "40", "--least", "2")
    assert re.match(STORY.format(2) + r"every window once per epoch; the last error was \d", last), [*lines, last]
    assert [len([*place.iterdir()]) for place in machines] == [1, 1]


def test_ray_train_goes_on_with_fewer_workers_after_a_node_is_lost(cluster: Any, tmp_path: Path) -> None:
    """In the same epoch: a report waits until Ray has kept the one before."""
    gone, lines = False, []
    for line in train(cluster, tmp_path, "--every", "40"):
        lines.append(line)
        if not gone and "Reporting training result 3" in line:
            gone = True
            cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
    assert gone, lines
    assert re.match(STORY.format(1) + r"every window once per epoch; the last error was \d", lines[-1]), lines
