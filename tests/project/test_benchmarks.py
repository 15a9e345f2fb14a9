"""The comparison with other libraries runs, and its check finds windows that are not in the file."""

import ast
import itertools
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

from tests import processes

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

pytestmark = pytest.mark.benchmarks


@pytest.fixture
def workload(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    from contestants import workload

    return workload


def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    env = os.environ | environment
    return processes.run(BENCHMARKS / "compare.py", "--quick", *arguments, env=env, warn="default", nested=True)


def test_every_contestant_that_is_installed_yields_windows_of_the_file() -> None:
    done = run()
    assert done.returncode == 0, done.stdout + done.stderr
    ((batches, contestants),) = re.findall(r"^Every window of the first (\d) batches of (\d+) cont", done.stdout, re.M)
    assert int(batches) == 3
    ratios = re.findall(r"^(\S.*?) {2,}\d+\.\d{4} ", done.stdout, re.M)
    assert len(ratios) == int(contestants) >= 38
    assert {"tensorstash (packed)", "tensorstash (packed), 2 threads", "DataLoader (dict of slices), 2 workers"} <= {
        *ratios
    }
    assert "Ahead of tensorstash" in done.stdout


def test_without_a_compiler_the_fastest_call_of_torch_is_the_limit(tmp_path: Path) -> None:
    done = run("--only", "c loop, strided", PATH=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Not installed, and left out: cc;" in done.stdout
    assert "Ratios are to strided index_select (packed, reused)." in done.stdout
    limits = re.findall(r"^strided index_select \(packed, reused\)(, .*?)? +1\.0000 ", done.stdout, re.M)
    assert limits == ["", ", batches of 32", ", 50,000 series of 200 steps"]


SHIFTED = """
class TensorDict:
    def __init__(self, columns, _):
        self.columns = columns

    def __getitem__(self, index):
        return {name: column[index - int(name == "x6")] for name, column in self.columns.items()}
"""


def test_a_library_that_is_broken_or_yields_other_windows_is_named(tmp_path: Path) -> None:
    (tmp_path / "tensordict.py").write_text(SHIFTED)
    (tmp_path / "grain.py").write_text("raise OSError('broken')")
    done = run("--only", "tensordict,grain", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "Every window" not in done.stdout
    failed = done.stderr[done.stderr.index("failed:\n") :]
    assert "tensordict index: AssertionError: x6: 64 windows are not in the file.\n" in failed
    assert re.search(r"^grain: it ended without an answer$(\n    .*)*OSError: broken$", failed, re.M), failed


@pytest.mark.parametrize("series", [1, 40])
def test_the_file_holds_what_windows_are_checked_against(workload: Any, tmp_path: Path, series: int) -> None:
    work = workload.Workload(str(tmp_path / "data.parquet"), series, steps=150, batch=8)
    workload.write(work)
    table = pq.read_table(work.path)
    rows = torch.arange(series * 150)
    assert torch.equal(torch.from_numpy(table["series"].to_numpy().copy()), (rows // 150).int())
    assert torch.equal(torch.from_numpy(table["t"].to_numpy().copy()), rows % 150)
    for k, name in enumerate(workload.NAMES):
        column = torch.from_numpy(table[name].to_numpy().copy())
        assert torch.equal(column, workload.values(rows, k))
        assert len(set(column.tolist())) == len(rows)


def test_the_check_of_a_batch_can_fail(workload: Any) -> None:
    work = workload.Workload("", series=3, steps=150, batch=4)
    starts = torch.tensor([0, 30, 150, 330])
    rows = starts[:, None] + torch.arange(120)
    good = {name: workload.values(rows, k) for k, name in enumerate(workload.NAMES)}
    assert workload.check(good, work).tolist() == starts.tolist()

    def refused(message: str, batch: dict[str, torch.Tensor], work: Any = work) -> None:
        with pytest.raises(AssertionError, match=message):
            workload.check(batch, work)

    across = {name: workload.values(rows + 1, k) for k, name in enumerate(workload.NAMES)}
    refused(r"^2 of 4 windows are not within one series\.$", across)
    wrong = good["x3"].clone()
    wrong[2, -1] += 1
    refused(r"^x3: 1 windows are not in the file\.$", good | {"x3": wrong})
    refused(r"^x3: 4 windows are not in the file\.$", good | {"x3": good["x2"]})
    refused(r"^x0: torch\.Size\(\[4, 120\]\), torch\.float64$", good | {"x0": good["x0"].double()})
    refused(r"^y: torch\.Size\(\[4, 119\]\), torch\.float32$", good | {"y": good["y"][:, :-1]})
    refused(r"^A batch has 4 windows instead of 5\.$", good, replace(work, batch=5))
    refused(r"windows are not within one series\.$", good, replace(work, series=2))


@pytest.mark.usefixtures("workload")
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_an_epoch_that_shows_a_window_twice_is_noticed(tmp_path: Path) -> None:
    from contestants import serve, workload

    work = workload.Workload(str(tmp_path / "data.parquet"), series=2, steps=135, batch=4)
    workload.write(work)
    run = serve.Run("hand")
    run.begin("packed", 1, vars(work))
    assert run.epoch() == work.windows == 32
    run.begin("packed", 1, vars(work))
    run.batches = itertools.chain([run.first], run.batches)
    with pytest.raises(AssertionError, match=r"^4 of 32 windows of an epoch are not new\.$"):
        run.epoch()


def test_more_rows_than_values_are_refused(workload: Any, tmp_path: Path) -> None:
    work = workload.Workload(str(tmp_path / "data.parquet"), series=17, steps=1_000_000, batch=4)
    with pytest.raises(ValueError, match=r"^The values of 16,777,216 rows tell them apart; got 17,000,000 rows\. Take"):
        workload.write(work)
    assert not any(tmp_path.iterdir())


@pytest.mark.usefixtures("workload")
def test_every_contestant_is_a_function_of_its_module() -> None:
    """Also of libraries that are not installed here, all of which are pinned, and of those that the README names."""
    from contestants import CONTESTANTS, FAMILIAR, PACKED

    pins = "".join((BENCHMARKS / name).read_text() for name in ("peers.txt", "peers_tsai.txt"))
    for each in CONTESTANTS:
        tree = ast.parse((BENCHMARKS / "contestants" / f"{each.module}.py").read_text())
        assert each.function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, each
        assert each.needs in ("cc", "torch") or f"{each.needs.replace('_', '-')}==" in pins
    assert {each.name for each in CONTESTANTS if each.is_familiar} == FAMILIAR.keys()
    assert {each.name for each in CONTESTANTS} >= {*PACKED, *(each.loop for each in CONTESTANTS)}
    told_apart = {(each.name, each.threads, each.workers, each.shape) for each in CONTESTANTS}
    assert len(told_apart) == len(CONTESTANTS)
