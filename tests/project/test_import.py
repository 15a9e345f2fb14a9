"""What is imported when: a rank does without the libraries that only a load needs, the command line without torch."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tensorstash as ts
from tensorstash.common.public import NAMES
from tests import processes

EXTRA = {"TensorstashError", "NoWindowError"}  # the base, and a subclass of a subclass
SLOW = ["pandas", "polars", "pyarrow", "matplotlib", "ray", "click"]


def run(program: str, *arguments: str, environment: dict[str, str] | None = None) -> str:
    command = [sys.executable, "-c", program, *arguments]
    settings = {**os.environ, **(environment or {})}
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=True, env=settings).stdout


def run_after_torch(program: str, *arguments: str, environment: dict[str, str] | None = None) -> str:
    """The same in a process that has imported torch already, and nothing of ours."""
    settings = {**os.environ, **(environment or {})}
    done = processes.run(program, *arguments, env=settings, warn="default", bare=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_process_after_torch_has_imported_neither_the_package_nor_an_engine() -> None:
    program = "import sys; print([name for name in sys.argv[1:] if name in sys.modules])"
    assert run_after_torch(program, "torch", "tensorstash", *SLOW) == "['torch']\n"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "small.safetensors"
    ts.load({"e": ["a"] * 20, "t": [*range(20)], "y": [0.5] * 20}, ["y"], entity="e", time="t").save(path)
    return path


def test_the_package_alone_imports_nothing() -> None:
    program = "import sys, tensorstash; dir(tensorstash); print([name for name in sys.argv[1:] if name in sys.modules])"
    assert run(program, *SLOW, "torch", "numpy") == "[]\n"


def test_a_rank_that_opens_a_stash_imports_no_engine(saved: Path) -> None:
    program = """
import sys, tensorstash as ts
windows = ts.Windows(ts.open(sys.argv[1]), 4, 2, require=["y"])
scaler = ts.Scaler.fit(windows, ["y"], by="entity")
loader = ts.Loader(windows, 4, shuffle=True, transform=[ts.Cast({}), scaler], with_ids=True)
for batch in loader:
    batch["y"]
repr(loader), repr(windows), loader.state_dict(), ts.Mix({"a": windows}), ts.Weighted([1.0]), ts.ByTime()
print([name for name in sys.argv[2:] if name in sys.modules])
"""
    assert run_after_torch(program, str(saved), *SLOW) == "[]\n"


def test_a_service_of_polars_frames_imports_neither_pandas_nor_what_reads_files(tmp_path: Path) -> None:
    """pyarrow imports pandas by itself, wherever it is installed, to make an array of a list or of numpy's values."""
    program = """
import sys, polars as pl, tensorstash as ts
hours = pl.datetime_range(pl.datetime(2024, 1, 1), pl.datetime(2024, 1, 2), "1h", eager=True)
rows = pl.DataFrame({"e": ["a", "b"] * 25, "t": hours.repeat_by(2).explode(), "y": [0.5, None] * 25})
size = pl.col("e").replace_strict({"a": 1.0, "b": 2.0})
rows = rows.with_columns(k=pl.when(pl.col("y") == 0.5).then(pl.lit("x")), size=size, e2=1)
columns = {"y": "y", "there": ts.is_valid("y"), "k": "k", "twice": pl.col("y") * 2, "h": ts.calendar("hour")}
columns |= {"hash": ts.hashed("k", 9), "given": ts.column("k", vocabulary=["x"]), "f": ts.column("y", fill=0.0)}
ts.load(rows, columns, entity=["e", "e2"], time="t")
stash = ts.load(rows, columns, entity="e", time="t", static=["size"])
stash.without_rows().save(sys.argv[1])
scaler = ts.Scaler.fit(stash, ["y"], by="entity")
rows = pl.concat([rows, rows[:1].with_columns(e=pl.lit("c"))])
tail = ts.load(rows, like=sys.argv[1], unknown="drop")
windows = ts.Windows(tail, 3, 1, frequency="1h")
newest = windows.latest()
batch = next(iter(ts.Loader(newest, 2, transform=[scaler], with_ids=True)))
newest.to_frame([0, 1], batch["y"][:, -1:])
points = windows.on(tail, at=rows.filter(pl.col("t") == hours[9]).select("e", "t", price="y")[:2])
points.to_frame([0, 1], points[:]["f"][:, -1:])
print([name for name in sys.argv[2:] if name in sys.modules])
"""
    unwanted = ["pandas", "pyarrow.fs", "pyarrow.dataset", "pyarrow.parquet", "pyarrow.csv", "fsspec"]
    assert run_after_torch(program, str(tmp_path / "reference.safetensors"), *unwanted) == "[]\n"


@pytest.fixture
def trained(tmp_path: Path) -> str:
    """A folder with what a service has: a reference, a scaler, and rows."""
    hours = pl.datetime_range(pl.datetime(2024, 1, 1), pl.datetime(2024, 1, 2), "1h", eager=True)
    rows = pl.DataFrame({"e": ["a", "b"] * 25, "t": hours.repeat_by(2).explode(), "y": [0.5 * k for k in range(50)]})
    rows = rows.with_columns(kind=pl.col("e"), sky=pl.when(pl.col("y") > 3).then(pl.lit("clear")))
    columns: dict[str, Any] = {"y": "y", "pack": ["y", "y"], "sky": ts.column("sky", fill="none")}
    columns |= {"given": ts.column("sky", vocabulary=["clear"]), "hour": ts.calendar("hour")}
    columns |= {"twice": pl.col("y") * 2, "there": ts.is_valid("y")}
    stash = ts.load(rows, columns, entity="e", time="t", static=["kind"])
    stash.without_rows().save(tmp_path / "reference.safetensors")
    scaler = ts.Scaler.fit(stash, ["y"], by="entity").state_dict()
    (tmp_path / "scaler.json").write_text(json.dumps(scaler), "utf-8")
    rows.write_ipc(tmp_path / "rows.arrow")
    return str(tmp_path)


# starts as a service does, and then answers
STARTED = """
import json, os, sys, polars as pl, torch, tensorstash as ts
from pathlib import Path
folder = Path(sys.argv[1])
reference = ts.open(folder / "reference.safetensors")
scaler = ts.Scaler.from_state(json.loads(folder.joinpath("scaler.json").read_text()))
rows = pl.read_ipc(folder / "rows.arrow")
def answer():
    spans = {"past": ("y", -4, 0), "packs": ("pack", -4, 0), "sky": ("sky", -4, 0), "hour": ("hour", -4, 2)}
    newest = ts.Windows(ts.load(rows, like=reference, unknown="drop"), spans=spans, gaps="mask", min_horizon=0).latest()
    batch = next(iter(ts.Loader(newest, len(newest), transform=[scaler], with_ids=True)))
    values = scaler.bind(newest).inverse(batch["past"][:, -2:], "y", entity=batch["entity"])
    return newest.to_frame(range(len(newest)), values, names=["y"])["y"].round(3).to_list()
"""


@pytest.mark.parametrize("native", ["0", "1"])
def test_the_first_request_after_a_reference_is_opened_imports_nothing_anew(trained: str, native: str) -> None:
    program = f"""{STARTED}
before = set(sys.modules)
assert answer() == [23.0, 24.0, 23.5, 24.5]
libraries = ("tensorstash", "pyarrow", "polars", "pandas", "torch", "numpy")
print([name for name in set(sys.modules) - before if name.split(".")[0] in libraries])
"""
    assert run_after_torch(program, trained, environment={"TENSORSTASH_NATIVE": native}) == "[]\n"


def test_a_process_may_fork_after_it_has_opened_a_reference(trained: str) -> None:
    """Servers open what all workers need, then fork; expressions need the threads of polars, which a fork loses."""
    program = STARTED.replace(
        "rows = ",
        "opened = os.fork()\nif opened: sys.exit(os.waitstatus_to_exitcode(os.waitpid(opened, 0)[1]))\nrows = ",
    )
    program += "torch.set_num_threads(1)\nprint(answer())"
    assert run_after_torch(program, trained) == "[23.0, 24.0, 23.5, 24.5]\n"


def test_to_open_a_reference_imports_neither_polars_nor_pandas_and_draws_no_number(trained: str) -> None:
    program = """
import random, sys, numpy as np, torch, tensorstash as ts
def states():
    return [random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()]
before = states()
ts.open(sys.argv[1] + "/reference.safetensors")
assert states() == before
print([name for name in ("pandas", "polars") if name in sys.modules])
"""
    assert run_after_torch(program, trained) == "[]\n"


def test_a_forked_process_with_several_threads_opens_a_reference(trained: str) -> None:
    program = """
import os, sys, torch, tensorstash as ts
torch.set_num_threads(2)
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(ts.open(sys.argv[1] + "/reference.safetensors").entities)
"""
    assert run_after_torch(program, trained) == "['a', 'b']\n"


def test_a_rank_that_attaches_what_another_has_loaded_imports_no_engine(tmp_path: Path) -> None:
    pq.write_table(pa.table({"e": ["a"] * 20, "t": range(20), "y": [0.5] * 20}), tmp_path / "y.parquet")
    program = """
import sys, tensorstash as ts
stash = ts.load(sys.argv[1], ["y"], entity="e", time="t", share="attached")
for batch in ts.Loader(ts.Windows(stash, 4, 2), 4, shuffle=True):
    batch["y"]
print([name for name in sys.argv[2:] if name in sys.modules])
"""
    environment = {"TENSORSTASH_DIR": str(tmp_path / "shared")}
    engines = ["pandas", "polars", "pyarrow.dataset", "pyarrow.compute", "pyarrow.parquet", "fsspec"]
    arguments = (str(tmp_path / "y.parquet"), *engines)
    assert run_after_torch(program, *arguments, environment=environment) != "[]\n"  # the first one loads
    assert run_after_torch(program, *arguments, environment=environment) == "[]\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["--help"],
        ["ls"],
        ["ls", "--json"],
        ["rm", "shown"],
        ["prune"],
        ["load", "--help"],
        ["info", "-h"],
    ],
)
def test_commands_that_only_list_and_remove_do_without_torch(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORSTASH_DIR", str(tmp_path / "shared"))
    ts.load({"y": [1.0]}, share="shown")
    program = """
import sys
from tensorstash.__main__ import main
slow, sys.argv[1:] = sys.argv[1].split(), sys.argv[2:]
try:
    main()
finally:
    print([name for name in slow if name in sys.modules])
"""
    slow = " ".join(["torch", "numpy", *SLOW[:-1]])
    assert run(program, slow, *arguments).splitlines()[-1] == "[]"


def test_completion_does_without_torch() -> None:
    program = "import sys\nfrom tensorstash.__main__ import main\ntry: main()\nfinally: print('torch' in sys.modules)"
    environment = {"_TENSORSTASH_COMPLETE": "bash_complete", "COMP_WORDS": "tensorstash pr", "COMP_CWORD": "1"}
    assert run(program, environment=environment).splitlines() == ["plain,prune", "False"]


def test_a_fork_before_anything_is_used_is_noticed() -> None:
    program = """
import os, sys, tensorstash, torch
torch.set_num_threads(2)
if os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
try:
    tensorstash.Windows(tensorstash.load({"y": [1.0, 2.0]}), 1)[:]
except RuntimeError as error:
    print(error)
"""
    assert run_after_torch(program, environment={"TENSORSTASH_NATIVE": "0"}).startswith(
        "A forked process can gather on one thread only"
    )


def test_type_checkers_see_what_is_imported_later() -> None:
    assert ts.__file__ is not None
    tree = ast.parse(Path(ts.__file__).read_text("utf-8"))
    block = next(part for part in tree.body if isinstance(part, ast.If))
    shown = {
        f"{part.module}.{alias.name}" for part in block.body if isinstance(part, ast.ImportFrom) for alias in part.names
    }
    later = {f"tensorstash.{public.home}.{name}" for name, public in NAMES.items() if public.kind != "module"}
    assert shown == later | {f"tensorstash.{public.home}" for public in NAMES.values() if public.kind == "module"}
    with pytest.raises(AttributeError, match="has no attribute 'Lodaer'"):
        ts.Lodaer  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (ts.shared, ["list", "prune", "remove"]),
        (ts.plot, ["coverage", "forecast", "series", "windows"]),
        (ts.cluster, sorted(ts.cluster.__all__)),
        (ts.errors, sorted({error.__name__ for error in ts.errors.TensorstashError.__subclasses__()} | EXTRA)),
    ],
)
def test_modules_show_what_users_call(module: object, names: list[str]) -> None:
    assert dir(module) == names
    assert all(getattr(module, name).__module__.startswith("tensorstash.") for name in names)
