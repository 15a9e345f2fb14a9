"""Computed columns of shared and saved stashes, and in other processes."""

import math
import threading
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import tensorstash as ts
from tests import processes
from tests.oracle_load import run_python, write_parquet
from tests.sources.expressions import a, b, doubled, f


@pytest.mark.usefixtures("shm")
def test_the_same_expressions_attach_and_others_load(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "one.parquet", [pa.table({"a": [1, 2], "f": [0.25, 3.75]})])
    calls: list[dict[str, Any]] = [
        {"x": a + 1},
        {"x": a + 2},
        {"x": a + 1.0},
        {"x": f.round(0)},
        {"x": f.round(1)},
        {"x": a.is_in([1])},
        {"x": a.is_in([2])},
        {"x": [a + 1, f]},
        {"x": '[(col("a")) + (dyn int: 1)]'},
    ]
    labels = []
    for columns in calls[:-1]:
        made = ts.load(path, columns, share="derived")
        again = ts.load(path, columns, share="derived")
        assert made.path == again.path
        assert made["x"].equal(again["x"])
        labels.append(made.path)
    assert len(set(labels)) == len(labels)
    with pytest.raises(ts.errors.ColumnError, match="has no column"):
        ts.load(path, calls[-1], share="derived")


@pytest.mark.usefixtures("shm")
def test_another_process_attaches_what_this_one_has_computed(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "one.parquet", [pa.table({"a": [1, 2], "s": ["x", "y"], "t": [1, 2]})])
    program = """
import sys, polars as pl, tensorstash as ts
a, s = pl.col("a"), pl.col("s")
columns = {"x": a.is_in([2, 5]), "y": [a + 1.5, pl.when(s == "x").then(a).otherwise(-a)], "z": a.hash(),
           "e": s.replace_strict({"x": 1, "y": 2}), "u": pl.struct(a.alias("q")).struct.field("q")}
stash = ts.load(sys.argv[1], columns, share="derived")
print(stash.path, [tensor.tolist() for tensor in stash.values()])
"""
    first, second = run_python(program, path), run_python(program, path)
    assert first == second
    assert ts.shared.list().height == 1
    assert "[[False, True], [[2.5, 1.0], [3.5, -2.0]], [" in first


@pytest.mark.usefixtures("shm")
def test_the_inputs_of_a_frame_decide_what_is_attached() -> None:
    """Also where they give the same values; and what is no input does not."""
    paths = [
        ts.load({"a": [1, value], "z": [value, other]}, {"x": a > 0}, share="derived").path
        for value, other in ((2, 0), (2, 1), (3, 1))
    ]
    assert paths[0] == paths[1] != paths[2]


@pytest.mark.usefixtures("shm")
def test_python_functions_are_refused_with_share_and_not_without() -> None:
    lock = threading.Lock()

    def locked(value: int) -> int:
        with lock:
            return value + 1

    for function in (doubled, locked, math.factorial):
        expression = a.map_elements(function, return_dtype=pl.Int64)
        assert ts.load({"a": [1]}, {"x": expression})["x"].tolist() in ([1], [2])
        with pytest.raises(ValueError, match="cannot compare Python functions"):
            ts.load({"a": [1]}, {"x": ["a", expression]}, share="derived")
    shared = ts.load({"a": [1]}, {"x": a.map_elements(doubled, return_dtype=pl.Int64)}).share("derived")
    assert ts.attach("derived")["x"].tolist() == shared["x"].tolist() == [2]


def test_a_saved_stash_says_what_its_columns_are_of(tmp_path: Path) -> None:
    ts.load({"a": [1], "b": [2.0]}, {"x": [a, b / 2]}).save(tmp_path / "one.safetensors")
    assert list(ts.open(tmp_path / "one.safetensors").about("x").members) == ["a", '[(col("b")) / (dyn int: 2)]']


def test_a_load_without_expressions_does_not_import_polars() -> None:
    program = """
import sys, numpy as np, tensorstash as ts
ts.load({"t": np.arange(3).astype("M8[s]"), "y": [1.0, 2.0, 3.0]}, {"y": "y", "c": ts.calendar("hour")}, time="t")
print("polars" in sys.modules)
"""
    done = processes.run(program, warn="default", bare=True)
    assert done.stdout.strip() == "False", done.stderr


def test_a_forked_child_of_a_process_with_polars_is_refused_instead_of_waiting() -> None:
    program = """
import multiprocessing, warnings
import polars as pl, tensorstash as ts

warnings.simplefilter("ignore")
pl.DataFrame({"x": range(10**6)}).select(pl.col("x").sort(descending=True))
source = {"a": [1.0, 2.0]}
context = multiprocessing.get_context("fork")
told = context.SimpleQueue()


def work():
    told.put(ts.load(source, ["a"])["a"].tolist())
    for call in (lambda: ts.load(source, {"x": pl.col("a") * 2}), lambda: ts.load(source).describe()):
        try:
            call()
        except RuntimeError as error:
            told.put(str(error))


child = context.Process(target=work, daemon=True)
child.start()
child.join(60)
if child.exitcode == 0:
    print(told.get(), *{told.get() for _ in range(2)})
"""
    assert run_python(program) == (
        "[1.0, 2.0] A forked process cannot compute with polars that its parent has used, because its threads do not "
        "survive a fork. Start processes with 'spawn' or 'forkserver', or load before the fork."
    )
