"""What type checkers find in a script of a user: the types that it reveals, and the arguments that are refused.

`make types` runs this with `--user-types`, behind mypy over the package, whose cache it takes: half a minute goes into
the types of torch. The first line of the script makes mypy there as strict as it is for a user.
"""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = """\
# mypy: warn-return-any, no-warn-unreachable
from collections.abc import Iterable
from datetime import timedelta
from typing import cast

import torch
import tensorstash as ts

columns = {"x": ["open", "volume"], "y": "close", "hour": ts.calendar("hour", cyclic=True)}
stash = ts.load("prices.parquet", columns, entity="symbol", time="day", duplicates="keep", share="prices")
reveal_type(stash)  # Stash
reveal_type(stash["y"])  # Tensor
reveal_type(stash.rows)  # int
spans = {"past": ("x", -96, 0), "seen": ts.During("y", "-7d", "0d", max_rows=99), "target": ("y", 0, 24)}
windows = ts.Windows(stash, spans=spans, gaps="mask", min_history=24)
reveal_type(len(windows))  # int
reveal_type(windows[0]["past"])  # Tensor
train, valid = windows.split("2024-01-01")
reveal_type(train)  # Windows
reveal_type(windows.folds(3, timedelta(days=7)))  # list[tuple[Windows, Windows]]
scaler = ts.Scaler.fit(train, ["x", "y"], by="entity", unknown="pooled")
reveal_type(scaler.center)  # dict[str, Tensor]
loader = ts.Loader(train, 256, order=ts.Weighted("y", per="window"), tail="pad", with_ids=True, transform=[scaler])
for batch in loader:
    reveal_type(batch)  # dict[str, Tensor]
    reveal_type(scaler.inverse(batch["target"], "y"))  # Tensor
reveal_type(loader.state_dict())  # dict[str, Any]


def as_pair(batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return batch["past"], batch["target"]


for pair in cast("Iterable[tuple[torch.Tensor, torch.Tensor]]", ts.Loader(train, 256, transform=[scaler, as_pair])):
    reveal_type(pair)  # tuple[Tensor, Tensor]
events = ts.Windows(stash, spans={"past": ts.During("x", "-90d", "0d", max_rows=256, closed="left")}, closed="right")

ts.load("prices.parquet", duplicates="last")  # refused
ts.Windows(stash, 96, gaps="fill")  # refused
ts.Windows(stash, 96, closed="both")  # refused
ts.Windows(stash, 96, unmatched="skip")  # refused
ts.During("x", "-90d", "0d", max_rows=256, closed="both")  # refused
ts.Scaler.fit(train, ["y"], kind="max")  # refused
ts.Scaler.fit(train, ["y"], by=["series"])  # refused
ts.InstanceNorm("past", kind="robust")  # refused
ts.Cast({"past": torch.float16}, on="cpu")  # refused
ts.Weighted("y", per="row")  # refused
ts.Loader(train, 256, tail="last")  # refused
ts.Loader(train, 256, transform=scaler)  # refused
ts.cluster.shard("prices.parquet", entity="symbol", to="shards", engine="dask")  # refused
stash.describe(by="day")  # refused
stash["y"].reshape("flat")  # refused
ts.lode("prices.parquet")  # refused
"""
Found = tuple[dict[int, str], set[int]]  # what is revealed, and where something is refused, by line


def short(name: str) -> str:
    """A type without the modules of its names."""
    return re.sub(r"\b(?:\w+\.)+", "", name)


def expected() -> Found:
    revealed, refused = {}, set()
    for number, line in enumerate(SCRIPT.splitlines(), 1):
        code, _, said = line.partition("  # ")
        if said == "refused":
            refused.add(number)
        elif code.lstrip().startswith("reveal_type"):
            revealed[number] = said
    return revealed, refused


def by_mypy(path: Path) -> Found:
    options = ["--hide-error-codes", "--no-error-summary", "--show-absolute-path"]
    command = [sys.executable, "-m", "mypy", *options, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    notes = re.findall(r"^\S+?:(\d+): note: Revealed type is \"(.*)\"$", done.stdout, re.MULTILINE)
    errors = re.findall(r"^\S+?:(\d+): error: ", done.stdout, re.MULTILINE)
    assert done.stderr == ""
    return {int(line): short(name) for line, name in notes}, {*map(int, errors)}


def by_pyright(path: Path) -> Found:
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT)], "include": [path.name]}
    (path.parent / "pyrightconfig.json").write_text(json.dumps(settings))
    options = ["--outputjson", "--pythonpath", sys.executable, "--project", str(path.parent)]
    command = [sys.executable, "-m", "basedpyright", *options]
    done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False)
    revealed, refused = {}, set()
    for found in json.loads(done.stdout)["generalDiagnostics"]:
        line = found["range"]["start"]["line"] + 1
        if found["severity"] == "information":
            revealed[line] = short(re.findall(r" is \"(.*)\"$", found["message"])[0])
        else:
            refused.add(line)
    return revealed, refused


@pytest.mark.parametrize("check", [by_mypy, by_pyright])
def test_what_a_strict_checker_finds_in_a_script(check: object, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    if not pytestconfig.getoption("user_types"):
        pytest.skip("takes the cache of mypy over the package: make types")
    if check is by_pyright and find_spec("basedpyright") is None:
        pytest.skip("basedpyright is not installed")
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    found = by_pyright(script) if check is by_pyright else by_mypy(script)
    assert found == expected()
