"""The plan: what a load will hold and cost, said before anything is decoded."""

import gc
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import psutil
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests.cases_load import cases
from tests.oracle_load import FORMS, Form, descriptors, exact, like, looked_at, source_of, whole, write_parquet
from tests.spaces import limit

PAGE = 4096


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=5)
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
    assert (plan.choice.entity is None, plan.choice.time is None) == (case.entity is None, case.time is None)


def test_a_stash_takes_the_bytes_of_its_plan() -> None:
    """Counted in pages, with the times; the static columns, entities and texts of a plan are not known yet."""
    rows = 1_000_000
    data = {"t": np.arange(rows), "y": np.zeros(rows, np.float32), "s": ["a"] * rows, "size": np.zeros(rows)}
    arguments: dict[str, Any] = {"columns": ["y", "s"], "time": "t", "static": ["size"]}
    planned = ts.plan(data, **arguments)
    shown = re.search(r"rows, ([\d.]+) MB", repr(ts.load(data, **arguments)))
    assert shown is not None
    assert f"{planned.nbytes / 1e6:,.1f} to 24.0 MB" in repr(planned)
    assert planned.nbytes / 1e6 <= float(shown[1]) + 0.05 <= planned.nbytes / 1e6 + 0.1


def test_more_columns_than_a_header_has_room_for_are_refused_before_they_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tensorstash.ingest.survey.MAX_HEADER", 200_000)
    data = {f"c{k}": [0.5] for k in range(100)}
    for call in (looked_at, ts.load):
        with pytest.raises(ts.errors.SchemaError, match=like("for 100 columns of the mapping ... or pack them")):
            call(data)
    assert ts.load(data, {"x": [*data]})["x"].shape == (1, 100)


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
  column  source                kind                dtype          MB
  x       float, double         number              float64 x 2  20.0
  temp    float                 number              float32       5.0
  sky     dictionary of string  category            int32         5.0
  y       double                number              float16       2.5
  origin  string                entity
  hour    timestamp             time Europe/Berlin  int64        10.0
from: x = temp, dewp; y = dewp
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
        with pytest.raises(ts.errors.SourceError, match=r"cannot be decoded: .*\. Write the file again\.\Z"):
            ts.load(path, [name])


def test_a_plan_allocates_nothing(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "one.parquet", [pa.table({"y": [1]})])
    gc.collect()
    before = descriptors()
    plan = ts.plan(path, {"x": ts.column(["y"] * 100_000, dtype=torch.float64)})
    assert plan.nbytes == 802_816
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
            repr(ts.plan(source, **arguments))


def test_a_source_without_rows_has_a_plan() -> None:
    plan = ts.plan({"y": pa.array([], pa.float32())})
    assert (plan.rows, plan.nbytes) == (0, 0)
    assert "0 rows, 0.0 MB" in str(plan)


def test_a_key_of_the_paths_has_a_plan(tmp_path: Path) -> None:
    (tmp_path / "station=C").mkdir()
    write_parquet(tmp_path / "station=C" / "0.parquet", [pa.table({"t": [1, 2], "y": [0.5, 1.5]})])
    for columns in (["y"], None):
        assert ts.plan(tmp_path, columns, entity="station", time="t").rows == 2
    assert ts.load(tmp_path, ["y"], entity="station", time="t").entities == ["C"]


def test_a_plan_tells_masks_keys_of_paths_and_the_row_groups_that_are_left(tmp_path: Path) -> None:
    path = tmp_path / "k=7" / "m.parquet"
    path.parent.mkdir()
    piece = pa.table({"a": ["x", None], "b": [1, 2], "t": pa.array([1, 2], pa.timestamp("s", "UTC")), "n": [0, 0]})
    write_parquet(path, [piece, piece.set_column(1, "b", pa.array([5, 6]))])
    plan = ts.plan(
        tmp_path, {"m": ts.is_valid(["a", "b"]), "one": ts.is_valid("b"), "k": "k"}, time="t", filter=[("b", ">", 5)]
    )
    lines = [" | ".join(re.split(" {2,}", line.strip())) for line in str(plan).splitlines()]
    assert lines == [
        f"{tmp_path}: 1 rows, 0.0 MB of {plan.free / 1e6:,.0f} MB free",
        "column | source | kind | dtype | MB",
        "m | string, int64 | number | bool x 2 | 0.0",
        "one | int64 | number | bool | 0.0",
        "k | int64 | partition key number | int64 | 0.0",
        "t | timestamp | time UTC | int64 | 0.0",
        "from: m = a, b; one = b",
        "filter: keeps rows of 1 of 2 row groups",
        "skipped: n",
    ]


# Loading


def test_a_plan_loads_what_it_shows(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "x.parquet", [pa.table({"t": [2, 1], "y": [1.0, 2.0], "z": [1, 2]})])
    plan = ts.plan(path, ["y"], time="t")
    assert "2 rows" in repr(plan)
    for stash in (plan.load(), plan.load(file=tmp_path / "x.safetensors"), ts.plan(path, ["y"], time="t").load()):
        assert (stash["y"].tolist(), stash.rows, [*stash]) == ([2.0, 1.0], plan.rows, ["y"])


def test_a_plan_that_was_not_printed_attaches_without_reading(tmp_path: Path, shm: Path) -> None:
    """Also when the rows are named by a version, and the source cannot be read any more."""
    rows = pl.LazyFrame({"y": [1.0, 2.0]})
    kept = ts.plan(rows, ["y"]).load(share="rows", version="monday")
    fails = pl.LazyFrame({"y": [1.0]}).map_batches(_fails)
    again = ts.plan(fails, ["y"]).load(share="rows", version="monday")
    assert again["y"].tolist() == kept["y"].tolist() == [1.0, 2.0]


def _fails(frame: pl.DataFrame) -> pl.DataFrame:
    raise AssertionError(f"read {frame.columns}")


def test_files_that_change_between_a_plan_and_its_load_are_refused(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "x.parquet", [pa.table({"y": [1.0]})])
    plan = ts.plan(path, ["y"])
    assert plan.rows == 1
    write_parquet(path, [pa.table({"y": [1.0, 2.0]})])
    with pytest.raises(
        ts.errors.SourceError, match=like("between a plan and its load ... x.parquet did. Make the plan")
    ):
        plan.load()
    assert ts.plan(path, ["y"]).load().rows == 2


def test_a_plan_that_nothing_was_asked_of_loads_files_as_they_are_then(tmp_path: Path) -> None:
    plan = ts.plan(tmp_path / "x.parquet", ["y"])
    write_parquet(tmp_path / "x.parquet", [pa.table({"y": [1.0, 2.0]})])
    assert plan.load()["y"].tolist() == [1.0, 2.0]


def test_values_that_change_in_place_after_a_plan_are_filtered_anew() -> None:
    data = {"y": np.array([1.0, -1.0]), "t": np.arange(2)}
    plan = ts.plan(data, filter=[("y", ">", 0)])
    assert plan.rows == 1
    data["y"] *= -1
    stash = plan.load()
    assert (stash["y"].tolist(), stash["t"].tolist()) == ([1.0], [1])


@pytest.mark.parametrize("other", [np.zeros(3), np.zeros(2, np.float32)])
def test_a_mapping_with_other_rows_or_types_after_a_plan_is_loaded_as_it_is_then(other: np.ndarray[Any, Any]) -> None:
    data: dict[str, Any] = {"y": np.zeros(2)}
    plan = ts.plan(data)
    assert plan.rows == 2
    data["y"] = other
    assert exact(plan.load()["y"].tolist(), ts.load(data)["y"].tolist())


def test_a_reader_is_read_once_by_its_plan() -> None:
    reader = pa.table({"y": [1.0, 2.0]}).to_reader()
    plan = ts.plan(reader)
    assert "2 rows" in repr(plan)
    assert plan.load()["y"].tolist() == plan.load()["y"].tolist() == [1.0, 2.0]


def test_a_lazy_frame_is_collected_once_by_its_plan() -> None:
    """Its rows have no fixed order, so another collection could give other ones than those that were printed."""
    calls: list[int] = []

    def counted(rows: pl.DataFrame) -> pl.DataFrame:
        calls.append(rows.height)
        return rows

    frame = pl.LazyFrame({"y": [1.0, 2.0]}).map_batches(counted)
    plan = ts.plan(frame)
    assert (plan.rows, len(calls)) == (2, 1)
    assert plan.load()["y"].tolist() == [1.0, 2.0]
    assert len(calls) == 1


def test_a_plan_warns_in_the_line_that_loads_it() -> None:
    plan = ts.plan({"s": ["a", "b"]}, {"s": ts.column("s", vocabulary=["c"])})
    said = "No value of 's' is in the given vocabulary"
    with pytest.warns(UserWarning, match=said) as of_plan:
        plan.load()
    with pytest.warns(UserWarning, match=said) as of_load:
        ts.load({"s": ["a"]}, {"s": ts.column("s", vocabulary=["c"])})
    assert of_plan[0].filename == of_load[0].filename == __file__


@pytest.mark.parametrize(
    "arguments",
    [
        {"share": "x", "file": "x"},
        {"share": "a/b"},
        {"overwrite": True},
        {"timeout": 1},
        {"version": "monday"},
        {"share": "x", "timeout": -1},
        {"share": "x", "version": ""},
        {"share": "x", "version": 1},
        {"progress": 1},
        {"file": 1},
    ],
    ids=str,
)
def test_a_plan_refuses_to_load_what_load_refuses_before_it_reads(arguments: dict[str, Any]) -> None:
    source = pl.LazyFrame({"y": [1.0]}).map_batches(_fails)
    with pytest.raises((TypeError, ValueError)) as loaded:
        ts.load(source, ["y"], **arguments)
    with pytest.raises(type(loaded.value), match=whole(str(loaded.value))):
        ts.plan(source, ["y"]).load(**arguments)


def test_a_load_with_too_little_room_is_refused_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TENSORSTASH_DIR", str(tmp_path / "shared"))
    room = limit(1000, "in the attic", "Make it larger.")
    monkeypatch.setattr("tensorstash.segments.publish.disk_limit", lambda *_: room)
    with pytest.raises(ts.errors.NoMemoryError, match=r"4\.1 kB and 1\.0 kB are free in the attic\. Make it larger\."):
        ts.plan({"y": [1.0]}).load(file=tmp_path / "x")
    assert os.listdir(tmp_path) == []
