"""The example of distributed training, under torchrun: a rank is killed, and the job goes on with fewer."""

import os
import re
import subprocess
import warnings
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

import tensorstash as ts
from tests import processes
from tests.project.pages import blocks

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "train_ddp.py"
WEATHER = ROOT / "examples" / "data" / "nyc_weather.parquet"
NUMBER = r"([\d,]+\.?\d*)"


def torchrun(ranks: int, *script: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a script as one job of so many ranks, with one thread each."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    program = "from torch.distributed.run import main; main()"
    launch = ["--standalone", f"--nproc-per-node={ranks}", *script]
    return processes.run(program, *launch, env=environment, cwd=cwd, warn="ignore", nested=True)


def train(ranks: int, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return torchrun(ranks, EXAMPLE, "--out", out, *options)


@pytest.mark.usefixtures("shm")
def test_the_script_of_the_page_runs_on_two_ranks_and_goes_on_with_three(tmp_path: Path) -> None:
    page = ROOT / "docs" / "how-to" / "torchrun.md"
    (script,) = blocks(page)
    (tmp_path / "examples").symlink_to(EXAMPLE.parent, target_is_directory=True)
    (tmp_path / "train.py").write_text(script)
    done = torchrun(2, "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"```text\n{done.stdout}```" in page.read_text()
    (tmp_path / "train.py").write_text(script.replace('["epoch"], 2)', '["epoch"], 3)'))
    done = torchrun(3, "train.py", cwd=tmp_path)
    assert done.stdout == "epoch 2: 30 steps of 3 x 256 windows\n", done.stderr


def number_of_windows() -> int:
    stash = ts.load(WEATHER, {"x": ["temp", "dewp", "humid"], "y": "temp"}, entity="origin", time="time_hour")
    spans = {"past": ("x", -96, 0), "target": ("y", 0, 24)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return len(ts.Windows(stash, spans=spans, require=["past", "target"]).split("2013-10-01")[0])


def test_a_killed_job_goes_on_with_fewer_ranks_and_sees_every_window_once(shm: Path, tmp_path: Path) -> None:
    checkpoint, windows = tmp_path / "train_ddp.pt", number_of_windows()
    killed = train(4, tmp_path, "--kill-at", "50", "--every", "20")
    assert killed.returncode != 0
    assert re.search(r"rank +: 3 .*\n +exitcode +: -9 ", killed.stderr), killed.stderr
    assert "every window once" not in killed.stdout
    (segment,) = shm.iterdir()  # it outlives its job
    inode = segment.stat().st_ino
    assert ts.shared.list()["users"].to_list() in ([0], [None])

    # of 50 steps, those up to the last checkpoint count; the ten after it are done again
    found = torch.load(checkpoint, weights_only=True)
    assert found["loader"]["consumed"] == found["seen"].sum() == 40 * 4 * 32
    assert found["seen"].max() == 1

    resumed = train(3, tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert "goes on after 5,120 windows of epoch 0\n" in resumed.stdout
    assert f"epoch 0: every window once, {windows:,} of them; " in resumed.stdout
    found = torch.load(checkpoint, weights_only=True)
    assert found["seen"].tolist() == [1] * windows
    assert (found["loader"]["epoch"], found["loader"]["consumed"]) == (1, 0)
    assert segment.stat().st_ino == inode
    check_memory(resumed.stdout, 3, segment.stat().st_size)


def check_memory(printed: str, ranks: int, nbytes: int) -> None:
    """Every rank has attached and holds its part; the parts add up to one copy."""
    line = (
        rf"^rank (\d): ts\.load took {NUMBER} ms; PSS {NUMBER} MB, page tables {NUMBER} MB; "
        rf"its part of the data {NUMBER} MB$"
    )
    found = re.findall(line, printed, re.MULTILINE)
    assert [int(rank) for rank, *_ in found] == [*range(ranks)]
    total = re.search(rf"; {NUMBER} MB are data, which is {NUMBER} copies of {NUMBER} MB$", printed, re.MULTILINE)
    assert total is not None, printed
    data, copies, copy = (float(text.replace(",", "")) for text in total.groups())
    assert copy == pytest.approx(nbytes / 2**20, abs=0.06)
    assert 0 < data <= 1.02 * copy + 0.06
    assert 0.5 < copies <= 1.02


READER = """
import os, sys, tensorstash as ts, torch
from pathlib import Path
torch.set_num_threads(1)
stash = ts.attach("large")
inode = os.fstat(stash.segment.fd).st_ino
assert sum(float(column.sum()) for column in stash.values()) == 0.0
print("read", flush=True)
sys.stdin.readline()
size, inside = 0, False
for line in Path("/proc/self/smaps").read_text().splitlines():
    first, *rest = line.split()
    if not first.endswith(":"):
        inside = rest[3] == str(inode)
    elif inside and first == "Pss:":
        size += int(rest[0]) * 1024
print(size, stash.private_bytes(), flush=True)
sys.stdin.readline()
"""


@pytest.mark.usefixtures("shm")
def test_processes_that_have_read_everything_hold_one_copy_together() -> None:
    """By proportional set size: of a page that n processes have mapped, each is charged the nth part."""
    stash = ts.load({f"c{k}": torch.zeros(2_000_000) for k in range(4)}, share="large")
    size = stash.segment.size
    del stash
    with ExitStack() as stack:
        readers = [stack.enter_context(processes.start(READER)) for _ in range(3)]
        assert [reader.stdout.readline() for reader in readers] == ["read\n"] * 3
        answers = []
        for reader in readers:
            reader.stdin.write("weigh\n")
            reader.stdin.flush()
            answers.append([int(text) for text in reader.stdout.readline().split()])
        assert ts.shared.list()["users"].to_list() in ([3], [None])
    assert 0.98 * size <= sum(pss for pss, _ in answers) <= 1.02 * size
    assert [private for _, private in answers] == [0, 0, 0]
