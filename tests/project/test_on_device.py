"""The script for a machine with an accelerator, tried on the CPU: what it writes, and what its status says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import kernel

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "on_device.sh"

pytestmark = [
    pytest.mark.benchmarks,
    pytest.mark.skipif(sys.platform != "linux", reason="the script needs timeout and bash 4"),
]


def run(folder: Path, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    env = os.environ | {"PYTHON": sys.executable, "OUT": str(folder)} | environment
    return subprocess.run([str(SCRIPT), *arguments], env=env, capture_output=True, text=True, check=False)


@kernel.needed  # or it would be compiled here
def test_a_step_that_fails_is_told_and_does_not_stop_the_next(tmp_path: Path) -> None:
    """The steps that take a minute and more are tried by their own tests: `tests` and `train`."""
    (tmp_path / "trace.json.gz").mkdir()
    done = run(tmp_path, "--device", "cpu", "--small", "--only", "trace,bench", TOTAL="4650")
    summary = (tmp_path / "summary.txt").read_text()
    assert done.stdout == summary
    said = {line[:7].strip(): line.rpartition("  ")[2] for line in summary.splitlines()[:3]}
    assert said == {"install": "ok", "bench": "ok", "trace": "failed"}, summary
    assert done.returncode == 8
    assert "resident gather" in summary
    assert "trace.json.gz" in (tmp_path / "log.txt").read_text().rpartition("== trace")[2]
    assert (tmp_path / "quick" / "bench_device.json").exists()


def test_without_time_nothing_is_begun(tmp_path: Path) -> None:
    done = run(tmp_path, "--device", "cpu", TOTAL="0")
    assert done.stdout.startswith("install     0 s  not begun: no time was left\n")
    assert done.returncode == 1


def test_an_environment_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    done = run(tmp_path, PYTHON=str(tmp_path / "no-python"))
    assert done.stdout.startswith("install     0 s  failed\n")
    assert done.returncode == 1
    assert "no-python" in (tmp_path / "log.txt").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fast"], "--fast is no option."),
        (["--device"], "--device needs a value."),
        (["--only", "tests,figures"], "figures is no step."),
    ],
)
def test_a_wrong_call_is_told(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = run(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr == f"{message} benchmarks/on_device.sh says at its top how it is called.\n"
