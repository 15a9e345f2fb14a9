"""The golden table of messages: what users read, whole, in the files beside this one.

Each case is a name, a snippet, and the error or the warnings that the snippet ends with. A new case needs its name and
its snippet: `python -m pytest tests/messages --update-messages` runs all snippets and writes what they say, which is
then reviewed as a change of text. Other tests match fragments, so that better English breaks nothing but this table.
Texts of other libraries change with their versions, so no case holds one.
"""

import os
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch

import tensorstash as ts

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@dataclass(frozen=True)
class Case:
    """A snippet, and what it says."""

    name: str
    code: str
    said: str


def parse(text: str) -> list[Case]:
    """The cases of a file; each begins with its name."""
    cases = []
    for part in re.split(r"^# ", text, flags=re.MULTILINE)[1:]:
        name, *lines = part.strip().splitlines()
        code = [line[4:] for line in lines if line.startswith((">>> ", "... "))]
        cases.append(Case(name, "\n".join(code), "\n".join(lines[len(code) :])))
    return cases


def write(cases: list[Case]) -> str:
    """The text of a file."""
    parts = []
    for case in cases:
        first, *more = case.code.splitlines()
        lines = [f"# {case.name}", f">>> {first}", *(f"... {line}" for line in more)]
        parts.append("\n".join([*lines, case.said] if case.said else lines))
    return "\n\n".join(parts) + "\n"


def said(code: str, path: Path) -> str:
    """The error, or the warnings, that a snippet ends with; places have names."""
    table = {"shop": ["A", "A", "B", "B"], "day": [1, 2, 1, 2], "sold": [5.0, 6.0, 7.0, 8.0], "count": [1, 2, 3, 4]}
    names: dict[str, Any] = {
        "np": np,
        "warnings": warnings,
        "pa": pa,
        "pc": pc,
        "pl": pl,
        "torch": torch,
        "ts": ts,
        "path": path,
    }
    names |= {"table": table, "stash": ts.load(table, ["sold", "count"], entity="shop", time="day")}
    names["series"] = ts.load({"t": np.arange(20), "y": np.arange(20.0), "n": np.arange(20)}, ["y", "n"], time="t")
    names["windows"] = ts.Windows(names["series"], 3, 1)
    lines = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            exec(code, names)
        except Exception as error:
            lines.append(f"{type(error).__name__}: {error}")
    lines[:0] = [f"{warning.category.__name__}: {warning.message}" for warning in caught]
    text = "\n".join(lines)
    for place, name in {str(path): "PATH", os.environ["TENSORSTASH_DIR"]: "SHARED", os.getcwd(): "CWD"}.items():
        text = text.replace(place, name)
    return text


@pytest.mark.usefixtures("shm")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_messages_are_those_of_the_table(file: Path, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    cases = parse(file.read_text("utf-8"))
    assert cases, "a file without cases would test nothing"
    now = []
    for number, case in enumerate(cases):
        path = tmp_path / str(number)
        path.mkdir()
        now.append(Case(case.name, case.code, said(case.code, path)))
    if pytestconfig.getoption("--update-messages"):
        file.write_text(write(now), "utf-8")
        cases = now
    assert write(now) == write(cases), "after a review: python -m pytest tests/messages --update-messages"
    assert all(case.said for case in cases), "a snippet says nothing"
    assert write(cases) == file.read_text("utf-8")


def test_names_tell_cases_apart() -> None:
    names = [case.name for file in FILES for case in parse(file.read_text("utf-8"))]
    assert len(names) > 100
    assert len({*names}) == len(names)
