"""The plan: what a load will hold and cost, said before anything is decoded."""

import gc
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests.cases_load import cases
from tests.oracle_load import FORMS, Form, descriptors, source_of, whole, write_parquet

PAGE = 4096


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_load_holds_what_its_plan_says(
    form: Form, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    case = data.draw(cases(form))
    source = source_of(form, case, tmp_path_factory.mktemp("source"))
    keys: dict[str, Any] = {"entity": "entity_" if case.entity else None, "time": "time_" if case.time else None}
    columns = {name: ts.column(name, fill=held.fill) for name, held in list(case.columns.items())[:2]}
    plan, stash = ts.plan(source, columns, **keys), ts.load(source, columns, **keys)
    assert plan.rows == stash.rows == case.rows
    assert [(c.name, c.dtype, (plan.rows, *c.shape)) for c in plan.columns] == [
        (name, tensor.dtype, tuple(tensor.shape)) for name, tensor in stash.items()
    ]
    tensors = [*stash.values(), *([] if stash.time is None else [stash.time])]
    assert plan.nbytes == sum(-(-tensor.nbytes // PAGE) * PAGE for tensor in tensors)
    assert set(plan.skipped) == set(case.all) - set(columns) - {"entity_", "time_"}
    assert (plan.entity is None, plan.time is None) == (case.entity is None, case.time is None)


def test_a_printed_plan_is_a_table() -> None:
    rows = 1_250_000
    table = pa.table(
        {
            "origin": ["JFK"] * rows,
            "hour": pa.array(np.arange(rows), pa.timestamp("ms", "Europe/Berlin")),
            "temp": np.zeros(rows, np.float32),
            "dewp": np.zeros(rows),
            "sky": pa.array(["clear"] * rows).dictionary_encode(),
            "unused": np.zeros(rows),
            "other": np.zeros(rows),
        }
    )
    columns: dict[str, Any] = {
        "x": ["temp", "dewp"],
        "temp": "temp",
        "sky": "sky",
        "y": ts.column("dewp", dtype=torch.float16),
    }
    plan = ts.plan(table, columns, entity="origin", time="hour")
    lines = [line.rstrip() for line in str(plan).splitlines()]
    assert (
        "\n".join(lines)
        == f"""\
the pyarrow Table: 1,250,000 rows, 42.5 MB of {plan.free / 1e6:,.0f} MB free
  column  from        kind                   dtype          MB
  x       temp, dewp  number                 float64 x 2  20.0
  temp                number                 float32       5.0
  sky                 category               int32         5.0
  y       dewp        number                 float16       2.5
  origin              entity
  hour                time ms Europe/Berlin  int64        10.0
skipped: unused, other"""
    )


def test_free_memory_is_what_the_system_says() -> None:
    plan = ts.plan({"y": [1.0]})
    assert plan.free == pytest.approx(psutil.virtual_memory().available, rel=0.2)


def test_nothing_is_decoded_for_a_plan(tmp_path: Path) -> None:
    """The values of the file are destroyed; its schema and footer are not."""
    table = pa.table({"y": np.random.default_rng(0).random(5000), "z": np.random.default_rng(1).random(5000)})
    path = write_parquet(tmp_path / "one.parquet", [table.slice(0, 3000), table.slice(3000)])
    data = bytearray(path.read_bytes())
    for k in (1, 4, 6, 8):
        begin = len(data) * k // 10
        data[begin : begin + 100] = bytes(100)
    path.write_bytes(data)
    plan = ts.plan(path, ["y"])
    assert (plan.rows, plan.skipped) == (5000, ("z",))
    for name in "yz":
        with pytest.raises(ts.SourceError, match=r"cannot be decoded: .*\. Write the file again\.\Z"):
            ts.load(path, [name])


def test_a_plan_allocates_nothing(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "one.parquet", [pa.table({"y": [1]})])
    gc.collect()
    before = descriptors()
    ts.plan(path, {"x": ts.column(["y"] * 100_000, dtype=torch.float64)})
    assert descriptors() == before


def test_the_errors_of_a_plan_are_those_of_a_load() -> None:
    source = {"temp": [1.0], "name": ["x"]}
    wrong: list[dict[str, Any]] = [
        {"columns": ["tmp"]},
        {"columns": "temp"},
        {"columns": []},
        {"columns": {"valid": "temp"}},
        {"columns": ["temp"], "entity": "nam"},
        {"columns": ["temp"], "time": "name"},
        {"columns": ["temp"], "dtype": torch.int8},
        {"columns": [ts.column("name", dtype=torch.int8)]},
    ]
    for arguments in wrong:
        with pytest.raises((KeyError, TypeError, ValueError)) as loaded:
            ts.load(source, **arguments)
        with pytest.raises(type(loaded.value), match=whole(str(loaded.value))):
            ts.plan(source, **arguments)


def test_a_source_without_rows_has_a_plan() -> None:
    plan = ts.plan({"y": pa.array([], pa.float32())})
    assert (plan.rows, plan.nbytes) == (0, 0)
    assert "0 rows, 0.0 MB" in str(plan)
