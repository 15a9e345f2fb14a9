"""Files of other writers: `pytest --corpora=DIR tests/sources/test_corpora.py` loads all of a folder."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from tests.corpus import ENDINGS, MOST
from tests.oracle_load import write_ipc, write_parquet
from tests.processes import run

PROGRAM = "import runpy; runpy.run_module('tests.corpus', run_name='__main__')"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "foreign" not in metafunc.fixturenames:
        return
    given = metafunc.config.getoption("--corpora")
    if given is None:
        skipped = pytest.mark.skip(reason="needs files of other writers: --corpora=DIR")
        metafunc.parametrize("foreign", [pytest.param(None, marks=skipped)], ids=["none"])
        return
    folder = Path(given)
    files = sorted(path for path in folder.rglob("*") if path.name.endswith(ENDINGS) and path.is_file())
    if not files:
        raise pytest.UsageError(f"--corpora=DIR holds Parquet or Arrow files; {given} holds none.")
    metafunc.parametrize("foreign", files, ids=[str(path.relative_to(folder)) for path in files])


def verdicts(path: Path) -> list[tuple[str, str]]:
    """What became of each column of a file, in a process of its own."""
    done = run(PROGRAM, path, warn="default")
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["peak"] <= MOST
    return [(name, verdict) for name, verdict in found["verdicts"]]


def test_a_column_is_equal_or_refused(foreign: Path) -> None:
    wrong = [(name, verdict) for name, verdict in verdicts(foreign) if verdict.startswith("wrong")]
    assert wrong == []


def test_the_judge_tells_equal_refused_and_damaged(tmp_path: Path) -> None:
    table = pa.table({"i": [1, None], "m": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64()))})
    path = write_parquet(tmp_path / "one.parquet", [table])
    both = [("i", "equal"), ("i in Arrow", "equal"), ("m", "refused"), ("m in Arrow", "refused")]
    assert verdicts(path) == both
    assert verdicts(write_ipc(tmp_path / "one.arrow", [table], None)) == both
    path.write_bytes(path.read_bytes()[:-9])
    assert verdicts(path) == [("", "damaged")]
