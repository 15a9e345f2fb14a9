"""Processes that want the same segment: one loads, the others wait; some are killed; somebody cleans up meanwhile."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tensorstash as ts
from tests import processes
from tests.oracle_load import write_parquet
from tests.spaces import mounting

TOTAL = sum(range(300_000))


def race(*arguments: object, mount: tuple[Path, str] | None = None) -> Any:
    done = processes.run("from tests import race; race.main()", *arguments, mount=mount)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def source(path: Path, damaged: bool = False) -> Path:
    """A file of 300 row groups, which takes long enough to be stopped in the middle."""
    pieces = [pa.table({"y": np.arange(k * 1000, (k + 1) * 1000)}) for k in range(300)]
    write_parquet(path, pieces, use_dictionary=False, compression="none")
    if damaged:
        data = bytearray(path.read_bytes())
        last = data.rindex(np.arange(299_500, 299_510).tobytes())
        data[last] ^= 1
        path.write_bytes(data)
    return path


@pytest.mark.parametrize("changes", [[], ["nolock"], ["notmpfile"], ["nolock", "notmpfile"]], ids=" ".join)
def test_processes_may_be_killed_at_any_moment(
    changes: list[str], shm: Path, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others get whole data, all from one segment, and nothing is left: no name, and no memory without a name."""
    own = mounting(shm, "256m", capsys)
    found = race("kill", pytestconfig.getoption("rounds"), *changes, mount=(shm, "256m") if own else None)
    assert found["failures"] == [], found
    assert found["left"] == []
    assert found["killed"] > 0
    assert found["survived"] > 0
    assert found["lost"] == 0 or not own


def test_nothing_in_use_is_collected(shm: Path, pytestconfig: pytest.Config) -> None:
    rounds = 3 * pytestconfig.getoption("rounds")
    found = race("collect", rounds)
    assert found["read"] == [[rounds, 0]] * 3
    assert found["removed"] > 0
    assert found["left"] == []


def test_the_same_call_everywhere_loads_once(shm: Path, tmp_path: Path) -> None:
    found = race("same", source(tmp_path / "y.parquet"))
    assert [line["sum"] for line in found] == [TOTAL] * 6
    assert len({line["inode"] for line in found}) == 1
    assert sum(line["loaded"] for line in found) == 1
    assert len(ts.shared.list()) == 1


def test_a_failed_load_is_reported_to_those_who_waited_and_not_repeated(shm: Path, tmp_path: Path) -> None:
    path = source(tmp_path / "y.parquet", damaged=True)
    message = (
        rf"^{re.escape(str(path))}, row group 299 cannot be decoded: column 'y': could not verify page integrity, .*\. "
        r"Write the file again\.$"
    )
    with pytest.raises(ts.errors.SourceError, match=message) as alone:
        ts.load(path)
    found = race("fail", path)
    errors = {line["error"] for line in found}
    assert errors == {f"tensorstash.errors.SourceError: {alone.value}"}
    assert [line["loaded"] for line in found].count(True) == 2  # the loader, and who came later
    assert found[-1]["loaded"]


def test_waiting_ends_with_the_timeout_with_ctrl_c_or_with_the_end_of_the_loader(shm: Path, tmp_path: Path) -> None:
    found = race("wait", source(tmp_path / "y.parquet"))
    assert found["killed"] == []
    progress = rf"Process {found['loader']} is loading race-[0-9a-f]{{16}}"
    (timeout,) = found["timeout"]
    message = rf"builtins\.TimeoutError: {progress}; timeout= is over\. Wait longer, or end that process\."
    assert re.fullmatch(message, timeout["error"])
    (interrupted,) = found["interrupted"]
    assert interrupted["error"] == "builtins.KeyboardInterrupt: "
    (patient,) = found["patient"]
    assert patient["sum"] == TOTAL
    assert (timeout["loaded"], interrupted["loaded"], patient["loaded"]) == (False, False, True)
    assert timeout["said"] == []
    for waiter in (interrupted, patient):
        assert len(waiter["said"]) == 1
        assert re.fullmatch(rf"{progress}; waiting for it\.", waiter["said"][0])
