"""Small saved stashes, and their headers read as the format says."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

import tensorstash as ts
from tests.oracle_load import like

PAGE = 4096


def small(path: Path) -> Path:
    """A saved stash of two columns and three rows."""
    ts.load({"y": [1.0, 2.0, 3.0], "s": ["a", None, "b"]}).save(path)
    return path


def header_of(path: Path) -> tuple[int, dict[str, Any]]:
    """Where the tensors begin, and the header, read as the format says and no further."""
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8:begin])
    return begin, header


def refused(path: Path, why: str) -> Any:
    message = f"{path} is not a whole stash: {why}. Make it again with stash.save(path)."
    return pytest.raises(ts.errors.SegmentError, match=like(message))


def umask() -> int:
    found = os.umask(0)
    os.umask(found)
    return found
