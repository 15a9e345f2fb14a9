"""The shape of the package: its public names, the direction of its imports, the size of its files."""

import ast
import subprocess
import sys
from pathlib import Path

import tensorstash as ts

PACKAGE = Path(ts.__file__).parent
# upstream first: a module imports only those above it, but for interop, which is imported where it is used
MODULES = [
    "arrays",
    "checks",
    "errors",
    "expression",
    "jobs",
    "progress",
    "limits",
    "schema",
    "times",
    "units",
    "paths",
    "pool",
    "alike",
    "evaluate",
    "calendar",
    "derive",
    "filter",
    "statistics",
    "files",
    "sources",
    "segment",
    "blocks",
    "directory",
    "nameless",
    "share",
    "inventory",
    "plan",
    "fingerprint",
    "arrange",
    "decode",
    "fixed",
    "hashing",
    "static",
    "summary",
    "stash",
    "keys",
    "ingest",
    "load",
    "intervals",
    "runs",
    "slots",
    "gaps",
    "parts",
    "spans",
    "fill",
    "valid",
    "gather",
    "order",
    "windows",
    "moments",
    "scaling",
    "instance",
    "cast",
    "cross",
    "describe",
    "sampler",
    "buffers",
    "loader",
    "interop",
    "plot",
    "cli",
    "__main__",
]
PUBLIC = [
    "Blocks",
    "Cast",
    "ColumnError",
    "DataError",
    "InstanceNorm",
    "Lanes",
    "Loader",
    "NoMemoryError",
    "Plan",
    "Sampler",
    "Scaler",
    "SchemaError",
    "SegmentError",
    "SourceError",
    "Stash",
    "Windows",
    "attach",
    "calendar",
    "collect",
    "column",
    "crossed",
    "hashed",
    "is_valid",
    "load",
    "open",
    "plan",
    "plot_coverage",
    "plot_series",
    "remove",
    "segments",
]


def imports(module: str) -> list[str]:
    """The modules of the package that a module imports when it is imported."""
    tree = ast.parse((PACKAGE / f"{module}.py").read_text())
    names = [node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)]
    return [name.removeprefix("tensorstash.") for name in names if name.startswith("tensorstash")]


def test_the_list_of_modules_is_complete() -> None:
    assert sorted(MODULES) == sorted(path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__")


def test_imports_point_upstream() -> None:
    for k, module in enumerate(MODULES):
        assert set(imports(module)) <= set(MODULES[:k]), module


def test_public_names() -> None:
    modules = {*MODULES, "tensorstash"}
    names = sorted(name for name in dir(ts) if not name.startswith("_"))
    assert [name for name in names if name not in modules or callable(getattr(ts, name))] == PUBLIC


def test_files_are_short() -> None:
    assert {path.name for path in PACKAGE.glob("*.py") if len(path.read_text().splitlines()) > 400} == set()


def test_sampling_touches_neither_polars_nor_pyarrow() -> None:
    """What uses them hangs in a forked child: after the load they could as well be gone."""
    program = """
import sys, numpy as np, tensorstash as ts
stash = ts.load({"t": np.arange(50), "y": np.zeros(50)}, ["y"], time="t")
assert "polars" not in sys.modules
sys.modules.update(dict.fromkeys(["polars", "pyarrow", "pandas", "matplotlib"]))
windows = ts.Windows(stash, 4, 2, require=["y"])
for part in windows.split(25):
    for batch in ts.Loader(part, 8, shuffle=True):
        part.anchors([0])
        print(repr(part), len(batch["y"]))
        break
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.count("Windows: ") == 2
