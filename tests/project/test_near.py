"""The tests that `make near` runs: of a small tree of files, and of this one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.near import ROOT, near

TREE = {
    "tests/conftest.py": "from tests import shared\n",
    "tests/shared.py": "",
    "tests/sharedness.py": "",
    "tests/through.py": "from tests.shared import VALUE\n",
    "tests/of_itself.py": "from tests.of_itself import VALUE\n",
    "tests/windows/test_one.py": "from tests import data, shared\n",
    "tests/windows/test_other.py": "import pytest\n\nfrom tests.sharedness import VALUE\n",
    "tests/sampling/helper.py": "from tests import (\n    data,\n    through,\n)\n",
    "tests/sampling/test_through.py": "from tests.sampling import helper\n",
    "tests/batches/test_program.py": 'run("python", "-m", "tests.shared")\n',
    "tests/batches/test_fixture.py": "from tests.windows.test_one import port as port\n",
    "tests/stash/test_alone.py": "shared = 1\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_shared_module_is_near_to_the_files_that_use_it_also_through_others(tree: Path) -> None:
    program, fixture = "tests/batches/test_program.py", "tests/batches/test_fixture.py"
    one, through = "tests/windows/test_one.py", "tests/sampling/test_through.py"
    assert near(["tests/shared.py"], tree) == [fixture, program, through, one]
    assert near(["tests/through.py"], tree) == [through]
    assert near(["tests/windows/test_one.py"], tree) == [fixture, "tests/windows"]
    assert near(["tests/sharedness.py"], tree) == ["tests/windows/test_other.py"]
    assert near(["tests/of_itself.py", "tests/gone.py", "README.md"], tree) == []


def test_a_room_is_near_to_its_tests_and_each_is_named_once(tree: Path) -> None:
    assert near(["tensorstash/windows/slots.py", "tests/shared.py", "tensorstash/serving/open.py"], tree) == [
        "tests/batches/test_fixture.py",
        "tests/batches/test_program.py",
        "tests/sampling/test_through.py",
        "tests/windows",
    ]
    assert near(["tests/conftest.py", "tensorstash/windows/slots.py"], tree) == ["tests"]


def test_make_runs_what_is_near(tmp_path: Path) -> None:
    """With a `git` that names a shared module of this tree."""
    git = tmp_path / "git"
    git.write_text('#!/bin/sh\n[ "$*" = "diff --name-only main" ] && echo tests/everywhere.py\n')
    git.chmod(0o700)
    command = ["make", "--dry-run", "near", "SINCE=main", f"PYTHON={sys.executable}"]
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    made = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert {"tests/transforms/test_scaled_windows.py", "tests/windows/test_everywhere.py"} <= {*made.stdout.split()}
