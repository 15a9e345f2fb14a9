"""The plan: what a load will hold and cost, said before anything is decoded."""

import dataclasses
import gc
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests.cases_load import cases
from tests.oracle_load import FORMS, Form, descriptors, like, source_of, whole, write_parquet
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
    assert (plan.entity is None, plan.time is None) == (case.entity is None, case.time is None)


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
    monkeypatch.setattr("tensorstash.ingest.plan.MAX_HEADER", 200_000)
    data = {f"c{k}": [0.5] for k in range(100)}
    for call in (ts.plan, ts.load):
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
  column  from        source                kind                   dtype          MB
  x       temp, dewp  float, double         number                 float64 x 2  20.0
  temp                float                 number                 float32       5.0
  sky                 dictionary of string  category               int32         5.0
  y       dewp        double                number                 float16       2.5
  origin              string                entity
  hour                timestamp             time ms Europe/Berlin  int64        10.0
page tables: 0.1 MB in each process
skipped: unused, other"""
    )


def test_a_plan_of_parquet_shows_its_statistics(tmp_path: Path) -> None:
    """Of all row groups; of a column that one of them tells nothing of, nothing."""
    pieces = [
        pa.table(
            {
                "e": ["a", "b"],
                "t": pa.array([k, k + 1], pa.timestamp("s", "UTC")),
                "f": pa.array([k * 1e5, None]),
                "empty": pa.nulls(2, pa.int8()),
                "text": ["x" * 40, "ü"],
                "nan": [math.nan, 1.0 - k],
                "n": pa.array([k, k], pa.timestamp("ns")),
            }
        )
        for k in range(2)
    ]
    write_parquet(tmp_path / "1.parquet", pieces[:1])
    write_parquet(tmp_path / "2.parquet", pieces)
    columns: dict[str, Any] = {
        "p": ["f", "nan"],
        "f": ts.column("f", dtype=torch.float16),
        "small": ts.column("f", dtype=torch.int16),
        "empty": "empty",
        "text": "text",
    }
    plan = ts.plan(tmp_path, columns, entity="e", time="t", filter=[("f", ">", 1.0)])
    day = "1970-01-01"
    lines = [" | ".join(re.split(" {2,}", line.strip())) for line in str(plan).splitlines()]
    assert lines == [
        f"{tmp_path}: 1 rows, 0.0 MB of {plan.free / 1e6:,.0f} MB free",
        "column | from | source | kind | dtype | nulls | min | max | MB",
        "p | f, nan | double | number | float64 x 2 | 3 | 0 | 100000 | 0.0",
        "f | double | number | float16 | 3 | 0 | 100000 | 0.0",
        "small | f | double | number | int16 | 3 | 0 | 100000 | 0.0",
        "empty | int8 | number | int8 | 6 | 0.0",
        "text | string | category | int32 | 0 | xxxxxxxxxxxxxxxxxxxxxxxxx… | ü | 0.0",
        "e | string | entity | 0 | a | b",
        f"t | timestamp | time ms UTC | int64 | 0 | {day} 00:00Z | {day} 00:00:02Z | 0.0",
        "page tables: 0.0 MB in each process",
        "filter: keeps rows of 1 of 3 row groups",
        "skipped: n",
        "note: 'f' has the value 100000, which torch.float16 cannot hold: a load will refuse it. Widen dtype=.",
        "note: 'f' has the value 100000, which torch.int16 cannot hold: a load will refuse it. Widen dtype=.",
    ]
    pq.write_table(pieces[0], tmp_path / "3.parquet", write_statistics=False)
    assert set(ts.plan(tmp_path, columns).ranges) == set()


def test_a_cast_that_a_plan_warns_of_is_one_that_a_load_refuses(tmp_path: Path) -> None:
    values = [65504.0, 65519.0, 65520.0, 1e39, -1e39, 255.0, 256.0, -1.0, 2.0**31]
    for value in values:
        path = write_parquet(tmp_path / "one.parquet", [pa.table({"y": [value]})])
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.uint8, torch.int32):
            columns = {"y": ts.column("y", dtype=dtype)}
            notes = ts.plan(path, columns).notes
            try:
                ts.load(path, columns)
            except ts.errors.DataError:
                assert len(notes) == 1
            else:
                assert notes == ()


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


def test_a_key_of_the_paths_has_a_plan_and_no_range(tmp_path: Path) -> None:
    (tmp_path / "station=C").mkdir()
    write_parquet(tmp_path / "station=C" / "0.parquet", [pa.table({"t": [1, 2], "y": [0.5, 1.5]})])
    for columns in (["y"], None):
        plan = ts.plan(tmp_path, columns, entity="station", time="t")
        assert (plan.rows, sorted(plan.ranges)) == (2, ["t", "y"])
    assert sorted(ts.plan(tmp_path).ranges) == ["t", "y"]
    assert ts.load(tmp_path, ["y"], entity="station", time="t").entities == ["C"]


def test_a_mask_has_nulls_and_no_range(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "m.parquet", [pa.table({"a": ["x", None], "b": [1, 2]})])
    plan = ts.plan(path, {"m": ts.is_valid(["a", "b"]), "one": ts.is_valid("b")})
    lines = [" | ".join(re.split(" {2,}", line.strip())) for line in str(plan).splitlines()]
    assert lines[2:4] == [
        "m | a, b | string, int64 | number | bool x 2 | 1 | 0.0",
        "one | b | int64 | number | bool | 0 | 0.0",
    ]


# With share=


def test_a_plan_notes_what_a_load_with_share_refuses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each note ends with the error of that load, and changes nothing else of the plan."""
    monkeypatch.setenv("TENSORSTASH_DIR", str(tmp_path / "shared"))
    source = {"a": [1.0, 2.0], "b": [1, 2]}
    calls = {"x": pl.col("a").map_batches(lambda s: s * 2, return_dtype=pl.Float64, is_elementwise=True)}
    tiny = [limit(1000, "in /dev/shm", "Make it larger.")]
    for share, columns in (("a b", ["a"]), (5, ["a"]), ("ok", calls), (True, ["a", "b"]), ("-", calls)):
        plain, plan = ts.plan(source, columns), ts.plan(source, columns, share=share)  # type: ignore[arg-type]
        begin = f"a load with share={share!r} will be refused: "
        if not plan.notes:
            assert ts.load(source, columns, share=share)["a"].tolist() == [1.0, 2.0]  # type: ignore[arg-type]
            continue
        with pytest.raises(ValueError, match=whole(plan.notes[0].removeprefix(begin))):
            ts.load(source, columns, share=share)  # type: ignore[arg-type]
        assert all(note.startswith(begin) for note in plan.notes)
        assert len(plan.notes) == 1 + (share == "-")
        assert dataclasses.replace(plan, notes=(), free=0) == dataclasses.replace(plain, free=0)
    monkeypatch.setattr("tensorstash.ingest.plan.memory_limits", lambda: tiny)
    (note,) = ts.plan(source, ["a"], share="room").notes
    assert note == (
        f"a load with share='room' will be refused: A stash must fit into free memory; {ts.plan(source).source} needs "
        "4.1 kB and 1.0 kB are free in /dev/shm. Make it larger. Load fewer columns, or a narrower dtype; "
        "print(ts.plan(...)) shows what each costs."
    )


def test_a_plan_notes_a_directory_that_is_not_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    monkeypatch.setenv("TENSORSTASH_DIR", str(tmp_path / "open"))
    (note,) = ts.plan({"y": [1]}, share="any").notes
    with pytest.raises(ts.errors.SegmentError, match=whole(note.partition("refused: ")[2])):
        ts.load({"y": [1]}, share="any")
    assert ts.plan({"y": [1]}, share=False).notes == ()
