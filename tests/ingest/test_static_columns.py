"""Static columns: one value per entity, whatever the source, and the error where there are two."""

import multiprocessing
import pickle
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_series_equal

import tensorstash as ts
from tests.cases_load import cases
from tests.oracle_load import (
    LISTS,
    NUMBERS,
    TEXTS,
    Case,
    Form,
    Held,
    check,
    decoded,
    exact,
    flat,
    kind_of,
    like,
    looked_at,
    source_of,
    value,
    write_parquet,
)


def constant(case: Case) -> Case:
    """The case with the value of an entity's first row in all of its rows."""
    firsts: dict[Any, int] = {}
    names = case.entity.source if case.entity else [None] * case.rows
    rows = [firsts.setdefault(name, row) for row, name in enumerate(names)]
    columns = {
        name: Held(held.kind, [held.source[row] for row in rows], held.fill) for name, held in case.columns.items()
    }
    return replace(case, columns=columns)


def load(case: Case, source: Any, **options: Any) -> ts.Stash:
    """Every column of the case as itself and, as `s_...`, as a static one."""
    static = {f"s_{name}": ts.column(name, fill=held.fill) for name, held in case.columns.items()}
    return case.load(source, static=static, **options)


def first_rows(case: Case) -> list[int]:
    """The first source row of each entity."""
    if case.entity is None:
        return [0]
    return [case.entity.source.index(name) for name in sorted(set(case.entity.source))]


def plants() -> dict[str, Any]:
    return {
        "plant": ["b", "a", "b", "a", "c"],
        "hour": [1, 1, 0, 0, 5],
        "power": [0.5, 1.5, 2.5, 3.5, 4.5],
        "region": ["NO", None, "NO", None, "SE"],
        "size": [1.5, 2.5, 1.5, 2.5, np.nan],
        "level": [7, 8, 7, 8, 9],
    }


# Values


@pytest.mark.parametrize("form", ["file", "table"])
@settings(max_examples=60)
@given(data=st.data())
def test_a_static_column_has_the_value_of_each_entity(
    form: Form, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """In every way in which a column can stand in a source; the columns beside it are as without it."""
    case = constant(data.draw(cases(form)))
    directory = tmp_path_factory.mktemp("source")
    source = source_of(form, case, directory)
    if not case.rows and case.entity is None:
        with pytest.raises(
            ts.errors.DataError, match=r"; 's_c0' has none, because .+ has no rows\. Leave static= out, or "
        ):
            load(case, source)
        return
    stash = load(case, source)
    check(stash, case)
    check_static(stash, case)
    stash.save(directory / "saved")
    check_static(ts.open(directory / "saved"), case)
    frame = stash.to_polars()
    keys = [name for name in ("entity_", "time_") if name in case.all]
    assert frame.columns == [*keys, *case.columns, *stash.static]
    for name in case.columns:
        assert_series_equal(frame[f"s_{name}"], frame[name], check_names=False, check_exact=True)


def check_static(stash: ts.Stash, case: Case) -> None:
    rows = first_rows(case)
    assert list(stash.static) == [f"s_{name}" for name in case.columns]
    for name, held in case.columns.items():
        tensor, about = stash.static[f"s_{name}"], stash.about(f"s_{name}")
        assert tensor.dtype == held.kind.dtype
        assert tuple(tensor.shape) == (len(stash.entities), *held.kind.shape)
        stored = [held.stored[row] for row in rows]
        assert exact(decoded(stash, f"s_{name}", tensor), stored)
        assert about.missing == sum(v is None or v != v for v in flat(stored))  # noqa: PLR0124
        assert about.nulls == stash.about(name).nulls
        for key in ("kind", "unit", "zone", "fill", "members", "low", "high"):
            assert getattr(about, key) == getattr(stash.about(name), key)
        if held.kind.kind == "category":
            assert stash.vocabulary(f"s_{name}") == stash.vocabulary(name)


@settings(max_examples=60)
@given(
    entities=st.lists(st.integers(0, 5), min_size=1, max_size=40),
    dtype=st.sampled_from([None, torch.float16, torch.bfloat16, torch.float64]),
)
def test_packs_and_the_dtype_of_a_load(entities: list[int], dtype: torch.dtype | None) -> None:
    table = pa.table(
        {
            "e": entities,
            "y": np.arange(len(entities)),
            "lat": pa.array([float(k) for k in entities], pa.float32()),
            "lon": pa.array([None if k == 3 else k * 2.0 for k in entities], pa.float32()),
            "code": entities,
        }
    )
    static: dict[str, Any] = {
        "place": ["lat", "lon"],
        "pair": ts.column(["code", "lat"], dtype=torch.float64),
        "code": "code",
    }
    stash = ts.load(table, ["y"], entity="e", static=static, dtype=dtype)
    order = sorted(set(entities))
    assert stash.entities == order
    place, pair, code = stash.static.values()
    assert (place.dtype, pair.dtype, code.dtype) == (dtype or torch.float32, torch.float64, torch.int64)
    assert exact(place.tolist(), [[float(k), float("nan") if k == 3 else k * 2.0] for k in order])
    assert pair.tolist() == [[k, k] for k in order]
    assert code.tolist() == order


def test_without_an_entity_the_one_series_has_the_value() -> None:
    stash = ts.load({"y": [1, 2], "s": ["x", "x"], "z": [3, 3]}, ["y"], static=["s", "z"])
    assert (stash.static["s"].tolist(), stash.static["z"].tolist(), stash.entities) == ([0], [3], [None])
    message = "'y' has none, because the mapping has no rows"
    with pytest.raises(ts.errors.DataError, match=like(message)):
        ts.load({"y": pa.array([], pa.int64()), "x": pa.array([], pa.int64())}, static=["y"])


def test_a_day_without_rows_keeps_the_static_values_of_the_entities_of_like() -> None:
    frame = pl.DataFrame({"e": ["a", "b"], "x": [1.0, 2.0], "size": [3.0, 4.0], "kind": ["u", "v"], "floor": [1, 2]})
    known = ts.load(frame, ["x"], entity="e", static=["size", "kind", "floor"])
    for static in (["size", "kind", "floor"], None):
        quiet = ts.load(frame.clear(), ["x"], entity="e", static=static, like=known)
        assert (quiet.rows, quiet.entities, quiet.vocabulary("kind")) == (0, ["a", "b"], ["u", "v"])
        assert {name: values.tolist() for name, values in quiet.static.items()} == {
            "size": [3.0, 4.0],
            "kind": [0, 1],
            "floor": [1, 2],
        }


def test_a_static_column_that_like_lacks_is_missing_for_entities_without_rows() -> None:
    frame = pl.DataFrame({"e": ["a", "b"], "x": [1.0, 2.0], "size": [3.0, 4.0], "kind": ["u", "v"], "floor": [1, 2]})
    static: dict[str, Any] = {"size": "size", "kind": "kind", "floor": ts.column("floor", fill=-7)}
    known = ts.load(frame, ["x"], entity="e")
    quiet = ts.load(frame.clear(), ["x"], entity="e", static=static, like=known)
    assert (quiet.rows, quiet.entities, quiet.vocabulary("kind")) == (0, ["a", "b"], [])
    assert quiet.static["size"].isnan().tolist() == [True, True]
    assert (quiet.static["kind"].tolist(), quiet.static["floor"].tolist()) == ([-1, -1], [-7, -7])
    message = "1 null in entities of like= without rows, such as 'a'"
    with pytest.raises(ts.errors.DataError, match=like(message)):
        ts.load(frame.clear(), ["x"], entity="e", static=["floor"], like=known)


# What is not constant


@pytest.mark.parametrize("form", ["table", "file", "list"])
@settings(max_examples=60)
@given(data=st.data())
def test_another_value_is_refused_with_both_and_where_they_are(
    form: Form, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The first row in the source that differs from its entity's first, whoever decodes it and when."""
    case = constant(data.draw(cases(form, [*NUMBERS, *TEXTS, *LISTS, kind_of("bfloat16")])))
    if not case.rows:
        return
    name = data.draw(st.sampled_from(list(case.columns)))
    held = case.columns[name]
    for row in data.draw(st.lists(st.integers(0, case.rows - 1), max_size=4)):
        held.source[row] = data.draw(other_cells(held, row))
    directory = tmp_path_factory.mktemp("source")
    source = source_of(form, case, directory)
    pair = first_pair(case, held)
    if pair is None:
        check_static(load(case, source), case)
        return
    with pytest.raises(ts.errors.DataError, match=like(refusal(case, name, pair, form, directory))):
        load(case, source)


@st.composite
def other_cells(draw: st.DrawFn, held: Held, row: int) -> Any:
    kind = held.kind
    cells = [value(kind, 5, 40 + row), held.source[0]]
    if kind.floating and not kind.shape:
        cells += [0.0, -0.0, float("nan"), float("inf")]
    if not kind.shape and (kind.floating or kind.kind == "category" or held.fill is not None):
        cells.append(None)
    return draw(st.sampled_from(cells))


def first_pair(case: Case, held: Held) -> tuple[int, int] | None:
    firsts: dict[Any, int] = {}
    for row, stored in enumerate(held.stored):
        first = firsts.setdefault(case.entity.source[row] if case.entity else None, row)
        if not exact(stored, held.stored[first]):
            return first, row
    return None


def refusal(case: Case, name: str, pair: tuple[int, int], form: Form, directory: Path) -> str:
    held = case.columns[name]
    one, other = (flat([held.stored[row]]) for row in pair)
    item = next(k for k in range(len(one)) if not exact(one[k], other[k]))
    index = "".join(f"[{k}]" for k in np.unravel_index(item, held.kind.shape)) if held.kind.shape else ""
    shown = [
        ("null" if v[item] is None else repr(v[item])) if held.kind.kind == "category" else str(v[item])
        for v in (one, other)
    ]
    whose = f"entity {case.entity.source[pair[0]]!r}" if case.entity else "the series (no entity= was given)"
    rows = [f"{row}{place(case, row, form, directory)}" for row in pair]
    return (
        f"one value in each entity; 's_{name}'{index} of {whose} is {shown[0]} in source row {rows[0]} and {shown[1]} "
        f"in {rows[1]}. "
    )


def place(case: Case, row: int, form: Form, directory: Path) -> str:
    if form == "table":
        return ""
    piece = max(k for k, begin in enumerate(case.cuts[:-1]) if begin <= row)
    if form == "list":
        return f" ({directory}/part-{piece:03}/rows.parquet, row group 0)"
    return f" ({directory}/one.parquet, row group {piece})"


@pytest.mark.parametrize(
    ("static", "options", "message"),
    [
        (["size"], {}, "'size' of entity 'b' is 0.5 in source row 0 and 2.5 in 2"),
        ({"p": ["level", "hour"]}, {}, "'p'[1] of entity 'b' is 1 in source row 0 and 0 in 2"),
        (
            {"when": "stamp"},
            {},
            "'when' of entity 'b' is 1970-01-01 01:00:01+01:00 in source row 0 and 1970-01-01 01:00:00+01:00 in 2",
        ),
        ({"day": "day"}, {}, "'day' of entity 'b' is 1970-01-02 in source row 0 and 1970-01-01 in 2"),
        (["tenth"], {"dtype": torch.float32}, "'tenth' of entity 'b' is 0.1 in source row 0 and 0.2 in 2"),
        (["hole"], {}, "'hole' of entity 'b' is nan in source row 0 and 1.0 in 2"),
        (["text"], {}, "'text' of entity 'b' is 'x' in source row 0 and null in 2"),
        (
            ["region"],
            {"entity": None},
            "'region' of the series (no entity= was given) is 'NO' in source row 0 and null in 1",
        ),
    ],
)
def test_helpful_errors(static: Any, options: dict[str, Any], message: str) -> None:
    source = plants() | {
        "size": [0.5, 1.0, 2.5, 1.0, 4.0],
        "stamp": pa.array([1, 1, 0, 0, 5], pa.timestamp("s", "Europe/Oslo")),
        "day": pa.array([1, 1, 0, 0, 5], pa.date32()),
        "tenth": [0.1, 0.1, 0.2, 0.2, 0.5],
        "hole": [None, 1.0, 1.0, 1.0, 1.0],
        "text": ["x", "y", None, "y", "z"],
    }
    message = f"one value in each entity; {message}. "
    with pytest.raises(ts.errors.DataError, match=like(message)):
        ts.load(source, ["power"], static=static, **({"entity": "plant"} | options))


def test_values_are_compared_as_they_are_stored() -> None:
    """After fill and cast; bit by bit, but every NaN is the same."""
    nans = np.array([0x7FC00000, 0x7F800001, 0xFFC00000], np.uint32).view(np.float32)
    source = {"y": [1, 2, 3], "nan": nans, "fill": [0.5, None, np.nan], "near": [1.0, 1.0 + 1e-12, 1.0]}
    static: dict[str, Any] = {
        "nan": "nan",
        "fill": ts.column("fill", fill=0.5),
        "near": ts.column("near", dtype=torch.float32),
    }
    stash = ts.load(source, ["y"], static=static)
    assert stash.static["nan"].isnan().tolist() == [True]
    assert (stash.static["fill"].tolist(), stash.static["near"].tolist()) == ([0.5], [1.0])
    assert (stash.about("nan").missing, stash.about("fill").missing, stash.about("fill").nulls) == (1, 0, 1)
    with pytest.raises(ts.errors.DataError, match=r"'near' .* is 1\.0 in source row 0 and 1\.000000000001 in 1\. "):
        ts.load(source, ["y"], static=["near"])


# Names


def test_names_of_static_columns_follow_the_rules_of_columns() -> None:
    source = plants()
    message = "'size' is in both columns= and static="
    for function in (ts.load, looked_at):
        with pytest.raises(ts.errors.SchemaError, match=like(message)):
            function(source, ["size"], entity="plant", static=["size"])
    message = "a column is named 'entity' ... static="
    with pytest.raises(ts.errors.SchemaError, match=like(message)):
        ts.load(source, ["power"], static={"entity": "size"})
    message = "'plant' is made of 'size'. ... static="
    with pytest.raises(ts.errors.SchemaError, match=like(message)):
        ts.load(source, ["power"], entity="plant", static={"plant": "size"})
    message = "static= ... got the text 'size'. Write ['size'], or give the frame of a file, such as pl.scan_parquet"
    with pytest.raises(TypeError, match=like(message)):
        ts.load(source, ["power"], static="size")
    with pytest.raises(ts.errors.ColumnError, match=like("no column 'siz'; did you mean 'size'?")):
        ts.load(source, ["power"], static=["siz"])


def test_the_entity_may_be_a_static_column() -> None:
    stash = ts.load(plants(), ["power"], entity="plant", static=["plant"])
    assert (stash.static["plant"].tolist(), stash.vocabulary("plant")) == ([0, 1, 2], ["a", "b", "c"])
    assert stash.to_polars().columns == ["plant", "power"]


def test_without_columns_all_but_keys_and_static_columns_are_loaded() -> None:
    stash = ts.load(plants(), entity="plant", time="hour", static={"place": "region", "pack": ["size", "level"]})
    assert (list(stash), list(stash.static)) == (["power"], ["place", "pack"])
    with pytest.raises(ValueError, match=r"\AA stash has at least one column; none of the mapping was chosen\."):
        ts.load({"s": [1]}, static=["s"])


def test_a_static_column_is_no_column_of_the_mapping() -> None:
    stash = ts.load(plants(), ["power"], entity="plant", static=["region"])
    with pytest.raises(ts.errors.ColumnError, match=like("the stash has no column 'region'; it has 'power'")):
        stash["region"]
    assert list(stash.series("a")) == ["power"]
    assert ts.load({"y": [1]}).static == {}
    with pytest.raises(ts.errors.ColumnError, match=like("no column 'regio'; did you mean 'region'?")):
        stash.about("regio")
    stash = ts.load(plants(), ["power"], entity="plant", static=["size"])
    with pytest.raises(
        ts.errors.ColumnError,
        match=like("vocabulary ... 'size' holds torch.float64"),
    ):
        stash.vocabulary("size")


# Looks


def test_a_plan_shows_static_columns_and_what_they_take_at_most() -> None:
    rows = 1_250_000
    table = pa.table(
        {"e": np.arange(rows) // 1000, "y": np.zeros(rows), "s": ["x"] * rows, "a": np.zeros(rows), "z": np.zeros(rows)}
    )
    plan = ts.plan(table, ["y"], entity="e", static={"s": "s", "pack": ts.column(["a", "a"], dtype=torch.float32)})
    lines = [line.rstrip() for line in str(plan).splitlines()]
    assert (
        "\n".join(lines)
        == f"""\
the pyarrow Table: 1,250,000 rows, 10.0 to 25.0 MB of {plan.free / 1e6:,.0f} MB free
  column  source  kind             dtype             MB
  y       double  number           float64         10.0
  s       string  static category  int32         <= 5.0
  pack    double  static number    float32 x 2  <= 10.0
  e       int64   entity
from: pack = a, a
static: one value per entity; only a load counts the entities
skipped: z"""
    )
    assert plan.nbytes == -(-rows * 8 // 4096) * 4096
    assert [(column.name, column.shape) for column in plan.choice.static] == [("s", ()), ("pack", (2,))]


def test_a_stash_lists_its_static_columns() -> None:
    stash = ts.load(plants(), ["power"], entity="plant", static={"region": "region", "pack": ["size", "level"]})
    assert (
        repr(stash)
        == """\
Stash: 5 rows, 3 entities (plant), 0.0 MB
  column  dtype                  shape   MB   missing
  power   float64                (5,)    0.0  0
  region  int32 static category  (3,)    0.0  1
  pack    float64 static         (3, 2)  0.0  1"""
    )
    line = "<tr><td>region</td><td>int32 static category</td><td>(3,)</td><td>0.0</td><td>1</td></tr>"
    assert line in stash._repr_html_()


# Files and processes


def child(stash: ts.Stash, channel: Connection) -> None:
    channel.send(({name: tensor.tolist() for name, tensor in stash.static.items()}, stash.vocabulary("region")))


@pytest.mark.usefixtures("processes_from_the_template")
@pytest.mark.parametrize("saved", [False, True], ids=["private", "opened"])
def test_static_columns_go_to_other_processes(saved: bool, tmp_path: Path) -> None:
    stash = ts.load(plants(), ["power"], entity="plant", time="hour", static=["region", "level"])
    if saved:
        stash.save(tmp_path / "saved")
        stash = pickle.loads(pickle.dumps(ts.open(tmp_path / "saved")))
    context = multiprocessing.get_context("forkserver")
    here, there = context.Pipe()
    process = context.Process(target=child, args=(stash, there))
    process.start()
    try:
        assert here.poll(60)
        assert here.recv() == ({"region": [-1, 0, 1], "level": [8, 7, 9]}, ["NO", "SE"])
        process.join(60)
        assert process.exitcode == 0
    finally:
        process.kill()
        process.join()
        here.close()
        there.close()


def test_static_columns_are_read_in_one_pass_with_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "many.parquet"
    table = pa.table({"e": np.arange(100) // 50, "y": range(100), "s": np.arange(100) // 50})
    pq.write_table(table, path, row_group_size=5)
    read, real = [], pq.ParquetFile.iter_batches

    def counted(file: Any, *arguments: Any, columns: list[str], **options: Any) -> Any:
        read.append(columns)
        return real(file, *arguments, columns=columns, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", counted)
    stash = ts.load(path, ["y"], entity="e", static=["s"])
    assert stash.static["s"].tolist() == [0, 1]
    assert sorted(read) == [["e"]] * 20 + [["y", "s"]] * 20


def test_many_files_with_entities_across_them(tmp_path: Path) -> None:
    """Large enough for several threads and batches; entities interleaved in blocks of many sizes."""
    rows = 400_000
    entities = np.random.default_rng(0).integers(0, 1000, rows)
    entities[200_000:] = np.sort(entities[200_000:])
    table = pa.table({"e": entities, "y": np.arange(rows), "s": entities * 7, "t": [f"t{k}" for k in entities % 13]})
    for k in range(8):
        write_parquet(tmp_path / f"{k}.parquet", [table.slice(k * 50_000, 50_000)])
    stash = ts.load(tmp_path, ["y"], entity="e", static=["s", "t"])
    assert stash.entities == sorted(set(entities.tolist()))
    assert stash.static["s"].tolist() == [name * 7 for name in stash.entities]
    assert decoded(stash, "t", stash.static["t"]) == [f"t{name % 13}" for name in stash.entities]


def test_many_static_columns_with_long_names() -> None:
    """The header, whose room is laid out before it is known, holds them too."""
    names = [f"{'ü' * 500}{k}" for k in range(200)]
    stash = ts.load({"y": [1.0]} | {name: [f"text {name}"] for name in names}, ["y"], static=names)
    assert list(stash.static) == names
    assert [stash.vocabulary(name) for name in names] == [[f"text {name}"] for name in names]
