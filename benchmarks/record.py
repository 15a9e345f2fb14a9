"""Results of benchmarks: a JSON file each under `benchmarks/results`, with the machine, the versions and the date."""

import datetime
import json
import os
import platform
import shlex
import statistics
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

RESULTS = Path(__file__).parent / "results"

Row = dict[str, Any]


def folder(quick: bool = False) -> Path:
    """The folder of results; quick runs have one of their own, since their figures mean nothing."""
    return RESULTS / "quick" if quick else RESULTS


def save(
    name: str,
    rows: Sequence[Row],
    libraries: Sequence[str] = ("tensorstash", "torch", "numpy"),
    quick: bool = False,
) -> Path:
    """Write the rows of one benchmark, and what they were measured on; the file is replaced whole."""
    path = folder(quick) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"about": about(libraries), "rows": list(rows)}, indent=1) + "\n")
    return path


def saved(name: str, quick: bool = False) -> tuple[dict[str, Any], list[Row]]:
    """What `save` has written: about the run, and its rows."""
    found = json.loads((folder(quick) / f"{name}.json").read_text())
    return found["about"], found["rows"]


def paired(ratios: Sequence[float]) -> Row:
    """Ratios to another contestant in the same rounds, as fields of a row: their median, lowest, highest, and all."""
    return {
        "ratio": statistics.median(ratios),
        "ratio_low": min(ratios),
        "ratio_high": max(ratios),
        "ratios": [*ratios],
    }


def about(libraries: Sequence[str]) -> dict[str, Any]:
    """The date, the command, the machine, and the versions of the libraries that are installed."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "command": shlex.join(["python", os.path.relpath(sys.argv[0]), *sys.argv[1:]]),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "versions": {name: found for name in libraries if (found := _version(name))},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
