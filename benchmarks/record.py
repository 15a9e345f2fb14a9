"""Results of benchmarks: `benchmarks/results/<kind of machine>/<benchmark>.json`, with the machine and the versions.

`RESULTS=FOLDER` writes them, and reads them, elsewhere.
"""

import argparse
import datetime
import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

RESULTS = Path(os.environ.get("RESULTS") or Path(__file__).parent / "results")
QUICK = RESULTS / "quick"

Row = dict[str, Any]


def arguments(doc: str | None) -> argparse.ArgumentParser:
    """The arguments that all benchmarks have: `--quick`."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small, to see that it runs; its times say nothing")
    return parser


def save(
    name: str,
    rows: Sequence[Row],
    libraries: Sequence[str] = ("tensorstash", "torch", "numpy", "polars"),
    quick: bool = False,
    device: str = "",
) -> Path:
    """Write the rows of one benchmark, and what they were measured on; the file is replaced whole.

    Quick runs have a folder of their own, `quick`. `device` is the name of an accelerator that took part.
    """
    found = about(libraries) | ({"device": device} if device else {})
    path = RESULTS / ("quick" if quick else kind(found)) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"about": found, "rows": list(rows)}, indent=1) + "\n")
    return path


def saved(path: Path) -> tuple[Row, list[Row]]:
    """What `save` has written: about the run, and its rows."""
    found = json.loads(path.read_text())
    return found["about"], found["rows"]


def kinds(name: str) -> dict[str, tuple[Row, list[Row]]]:
    """What is saved of a benchmark, by the kind of machine."""
    return {path.parent.name: saved(path) for path in sorted(RESULTS.glob(f"*/{name}.json")) if path.parent != QUICK}


def names() -> list[str]:
    """The benchmarks of which something is saved."""
    return sorted({path.stem for path in RESULTS.glob("*/*.json") if path.parent != QUICK})


def kind(about: Row) -> str:
    """The folder of a kind of machine, such as `amd-epyc-2-cores-32-mb`; the name of an accelerator comes last."""
    words = re.sub(r"\((r|tm)\)|processor|cpu|@[^,]*", "", label(about).lower())
    return "-".join(re.findall(r"[a-z0-9]+", words))


def about(libraries: Sequence[str]) -> Row:
    """The date, the command, the machine, and the versions of the libraries that are installed."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "command": shlex.join(["python", os.path.relpath(sys.argv[0]), *sys.argv[1:]]),
        **machine(),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "versions": {name: found for name in libraries if (found := _version(name))},
    }


def caption(about: Row) -> str:
    """What is known of the machine, the versions, the date, and how rounds were kept, in a line."""
    parts = [
        ", ".join(filter(None, [about["processor"], about.get("model"), f"{about['cores']} cores"])),
        about.get("device", ""),
        ", ".join(f"{level} {megabytes:g} MB" for level, megabytes in about.get("caches_mb", {}).items()),
        f"{about['memory_gb']} GB" if "memory_gb" in about else "",
        ", ".join(f"{name} {choice}" for name, choice in about.get("huge_pages", {}).items()),
        f"Python {about['python']}" if "python" in about else "",
        ", ".join(f"{name} {version}" for name, version in about["versions"].items()),
        about["date"],
    ]
    return "; ".join(filter(None, parts))


def label(about: Row) -> str:
    """The kind of machine as the head of a column: its processor, cores, largest cache and accelerator."""
    caches = about.get("caches_mb", {}).values()
    cache = [f"{max(caches):.0f} MB"] if caches else []
    return ", ".join([about["processor"], f"{about['cores']} cores", *cache, *filter(None, [about.get("device")])])


def title(row: Mapping[str, Any]) -> str:
    """A contestant, with its workers, threads and shape where these are not what one expects."""
    extra = [f"{row[what]} {what}" for what, usual in (("threads", 1), ("workers", 0)) if row.get(what, usual) != usual]
    return ", ".join(filter(None, [row["name"], *extra, row.get("shape")]))


def is_ours(row: Row) -> bool:
    return str(row["name"]).startswith("tensorstash")


def round_number(value: float) -> str:
    """A figure in two digits below 10, else in three: 1.1, 12, 0.0042, 35k, 1.72M."""
    if value < 10:
        return f"{value:.2g}"
    unit = next(((size, unit) for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if value >= size), (1, ""))
    return f"{value / unit[0]:.3g}{unit[1]}"


def machine() -> Row:
    """The processor and its caches, the memory, and the pages in which data may lie."""
    fields = dict(re.findall(r"^(.*?)\t*: (.*)$", _text("/proc/cpuinfo"), re.MULTILINE))
    return {
        "processor": fields.get("model name") or platform.processor() or platform.machine(),
        "model": " ".join(fields[name] for name in ("vendor_id", "cpu family", "model") if name in fields),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "caches_mb": caches(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9),
        "page_kb": os.sysconf("SC_PAGESIZE") // 1024,
        "huge_pages": {name: chosen(name) for name in ("enabled", "shmem_enabled")},
    }


def caches() -> dict[str, float]:
    """The sizes of the data caches that the first core uses, in MB, by their level."""
    found = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, what, size = (_text(folder / name).strip() for name in ("level", "type", "size"))
        if what != "Instruction" and size.endswith("K"):
            found[f"L{level}"] = int(size[:-1]) / 1024
    return found


def chosen(name: str) -> str | None:
    """Which of the choices of a setting of huge pages is made."""
    made = re.search(r"\[(\w+)\]", _text(f"/sys/kernel/mm/transparent_hugepage/{name}"))
    return made and made[1]


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
