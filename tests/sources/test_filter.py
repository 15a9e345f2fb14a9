"""filter=: the rows that a plain loop over them keeps, in every form of a filter, and what is no filter."""

import math
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests.oracle_load import like, write_ipc, write_parquet
from tests.sources.filters import COMPARE, Rows, Term, many_groups, satisfies

TYPES = {"k": pa.int32(), "v": pa.float64(), "w": pa.string(), "d": pa.date32(), "row": pa.int64()}
VALUES: dict[str, list[Any]] = {
    "k": [0, 1, 2, 3, None],
    "v": [-1.5, 0.0, 2.5, math.inf, math.nan, None],
    "w": ["a", "b", "", "ü", None],
    "d": [0, 1, 5, None],
}


@st.composite
def terms(draw: st.DrawFn) -> Term:
    name = draw(st.sampled_from(["k", "v", "w"]))
    some = st.sampled_from([value for value in VALUES[name] if value is not None and str(value) != "nan"])
    op = draw(st.sampled_from([*COMPARE, "in", "not in"]))
    return name, op, draw(st.lists(some, min_size=1, max_size=3)) if op.endswith("in") else draw(some)


def table_of(rows: Rows) -> pa.Table:
    return pa.table({name: pa.array([row[name] for row in rows], TYPES[name]) for name in TYPES})


def sources_of(rows: Rows, cuts: list[int], directory: Path) -> dict[str, Any]:
    """The rows in every form of source."""
    table = table_of(rows)
    pieces = [table.slice(a, b - a) for a, b in pairwise(cuts)]
    for k, piece in enumerate(pieces):
        write_parquet(directory / f"{k}.parquet", [piece])
    stream = directory / "one.arrows"
    with pa.ipc.new_stream(stream, table.schema) as writer:
        for piece in pieces:
            writer.write_table(piece)
    return {
        "file": write_parquet(directory / "whole.pq", pieces),
        "files": directory / "[0-9]*.parquet",
        "arrow": write_ipc(directory / "one.arrow", pieces, "zstd"),
        "stream": stream,
        "table": pa.concat_tables(pieces) if pieces else table,
        "polars": pl.DataFrame(table),
        "mapping": {name: table[name].combine_chunks() for name in TYPES},
    }


@settings(max_examples=25)
@given(data=st.data())
def test_the_rows_are_those_that_a_loop_keeps(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    count = data.draw(st.integers(0, 30))
    cells = {
        name: data.draw(st.lists(st.sampled_from(VALUES[name]), min_size=count, max_size=count)) for name in VALUES
    }
    # pieces of one kind each, so that statistics exclude some
    order = sorted(range(count), key=lambda row: str(cells["k"][row])) if data.draw(st.booleans()) else range(count)
    rows = [{name: cells[name][row] for name in cells} | {"row": place} for place, row in enumerate(order)]
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, count), max_size=4))), count]
    groups = data.draw(st.lists(st.lists(terms(), min_size=1, max_size=3), min_size=1, max_size=2))
    expected = [row["row"] for row in rows if any(all(satisfies(row, term) for term in group) for group in groups)]
    written: Any = groups[0] if len(groups) == 1 and data.draw(st.booleans()) else groups
    for form, source in sources_of(rows, cuts, tmp_path_factory.mktemp("source")).items():
        # pyarrow keeps nulls with `not in`
        as_expression = form in ("file", "table") and not any(op == "not in" for group in groups for _, op, _ in group)
        for condition in (written, pq.filters_to_expression(groups)) if as_expression else (written,):
            plan = ts.plan(source, ["row"], filter=condition)
            stash = ts.load(source, ["row"], filter=condition)
            assert stash["row"].tolist() == expected, (form, groups)
            assert plan.rows == len(expected)
            assert len(plan.choice.source.units) <= plan.choice.source.pieces


FLOATS = [16777216.0, -0.0, math.nan, None, 0.1]


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(
    ("column", "values", "kept", "others"),
    [
        (pa.array(["a", None, "b"]), ["a"], [0], [2]),
        (pa.array(["a", None, "b"]).dictionary_encode(), ["a", None], [0], [2]),
        (pa.array([1, None, 2]), [1], [0], [2]),
        (pa.array(FLOATS, pa.float64()), [0.0], [1], [0, 2, 4]),
        (pa.array(FLOATS, pa.float64()), [0], [1], [0, 2, 4]),
        (pa.array(FLOATS, pa.float64()), [math.nan], [], [0, 1, 2, 4]),
        (pa.array(FLOATS, pa.float32()), [16777217.0], [], [0, 1, 2, 4]),
        (pa.array(FLOATS, pa.float32()), [0.1], [], [0, 1, 2, 4]),
        (pa.array([date(2024, 1, 1), None]), [date(2024, 1, 1)], [0], []),
    ],
)
def test_a_list_is_compared_value_by_value(
    column: pa.Array, values: list[Any], kept: list[int], others: list[int], many: bool, tmp_path: Path
) -> None:
    """A null satisfies no comparison, zeros are equal, NaN equals nothing, and no value is rounded."""
    if many and not isinstance(values[0], (date, int)):  # so many that they are looked up in a table
        values = [*values, *(f"z{k}" if isinstance(values[0], str) else 1000.5 + k for k in range(100))]
    table = pa.table({"x": column, "row": range(len(column))})
    for source in (table, pl.DataFrame(table).lazy(), write_parquet(tmp_path / "x.parquet", [table])):
        assert ts.load(source, ["row"], filter=[("x", "in", values)])["row"].tolist() == kept
        assert ts.load(source, ["row"], filter=[("x", "not in", values)])["row"].tolist() == others


@pytest.mark.parametrize(
    "condition",
    [
        pc.field("v") != 5.0,
        ~(pc.field("v") <= 5.0),
        pc.is_nan(pc.field("v")),
        [("v", "!=", 5.0)],
        [("v", "not in", [5.0])],
        [("v", "!=", 5.0), ("k", ">", 0)],
    ],
    ids=str,
)
def test_nan_is_not_forgotten_where_statistics_do_not_know_it(condition: Any, tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "one.parquet", [pa.table({"v": [5.0, math.nan], "k": [1, 2]})])
    assert ts.load(path, ["k"], filter=condition)["k"].tolist() == [2]


def test_entities_and_times_are_those_of_the_kept_rows(tmp_path: Path) -> None:
    rows = {
        "e": ["a", "b", "a", "b", "c"],
        "t": [3, 2, 1, 1, 1],
        "y": [0.0, 1.0, 2.0, 3.0, 4.0],
        "use": [1, 1, 1, 0, 0],
    }
    path = write_parquet(tmp_path / "one.parquet", [pa.table(rows).slice(0, 2), pa.table(rows).slice(2)])
    for source in (rows, path):
        stash = ts.load(source, ["y"], entity="e", time="t", filter=[("use", "==", 1)])
        assert (stash.entities, stash.offsets.tolist(), stash["y"].tolist()) == (["a", "b"], [0, 2, 3], [2.0, 0.0, 1.0])


def test_messages_name_the_rows_of_the_source(tmp_path: Path) -> None:
    """Not their number among those that were kept, or among those of the row groups that were read."""
    table = pa.table(
        {"g": [0, 0, 1, 1, 1, 2, 2], "t": [9, 9, 1, 2, 3, 2, 4], "use": [1, 1, 0, 1, 1, 1, 0], "y": [0] * 7}
    )
    path = write_parquet(tmp_path / "one.parquet", [table.slice(0, 2), table.slice(2, 3), table.slice(5)])
    where = f"3 ({path}, row group 1) and 5 ({path}, row group 2)"
    for source, rows in ((path, where), (table, "3 and 5")):
        with pytest.raises(
            ts.errors.DataError, match=rf"has t 2 in source rows {rows}\. Drop".replace("(", r"\(").replace(")", r"\)")
        ):
            ts.load(source, ["y"], time="t", filter=[("g", ">", 0), ("use", "==", 1)])


def test_a_shared_stash_of_another_filter_is_another(tmp_path: Path) -> None:
    path, label = many_groups(tmp_path / "one.parquet"), f"test-filter-{tmp_path.name}"
    try:
        first = ts.load(path, ["y"], filter=[("s", "==", "s3")], share=label)
        assert ts.load(path, ["y"], filter=pc.field("s") == "s3", share=label).path == first.path
        others = [[("s", "==", "s4")], pc.field("f") < 1.0, pc.field("f") < math.nextafter(1.0, 2.0), None]
        paths = {ts.load(path, ["y"], filter=other, share=label).path for other in others}
        assert len(paths | {first.path}) == 5
        mapping = {"y": [1, 2], "k": [1, 2]}
        assert ts.load(mapping, ["y"], filter=[("k", ">", 1)], share=label)["y"].tolist() == [2]
    finally:
        ts.shared.remove(label)


@pytest.mark.parametrize(
    "wrong", ["y > 5", [], [[]], ["y", ">", 5], [("y", "like", 5)], [("y", ">")], ("y", ">", 5), [[("y", ">", 5)], []]]
)
def test_what_is_no_filter_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"\Afilter= is an expression, such as .*; got .*\.\Z"):
        ts.load({"y": [1]}, filter=wrong)


def test_a_filter_names_its_columns(tmp_path: Path) -> None:
    """A number would count the columns that happen to be read."""
    table = pa.table({"a": [1, 2], "FieldPath(0)": [2, 1]})
    for source in (table, write_parquet(tmp_path / "one.parquet", [table])):
        for positional in (pc.field(0) == 2, (pc.field("a") > 0) & ~pc.field(1).is_null()):
            message = f"{positional} refers to one by its number"
            with pytest.raises(ValueError, match=like(message)):
                ts.load(source, filter=positional)
        assert ts.load(source, ["a"], filter=pc.field("FieldPath(0)") == 2)["a"].tolist() == [1]
    texts = {"a": [1, 2], "s": ["FieldPath(0)", "x"]}
    assert ts.load(texts, ["a"], filter=pc.field("s") == "FieldPath(0)")["a"].tolist() == [1]


def test_a_value_that_is_none_is_refused() -> None:
    for value, shown in ((2.0, "2.0"), ("abc", "'abc'"), (None, "None")):
        for operator_ in ("in", "not in"):
            message = f"{operator_!r} ... 'y' is compared with {shown} ... {shown}"
            with pytest.raises(TypeError, match=like(message)):
                ts.load({"y": ["a"]}, filter=[("y", operator_, value)])
    odd: list[Any] = [(pl.Series([1.0]), "a Series"), (torch.tensor(1.0), "a Tensor"), (object(), "an object")]
    for value, kind in odd:
        shown = " ".join(repr(value).split())
        message = f"'y' is compared with {shown}, {kind}"
        with pytest.raises(TypeError, match=like(message)):
            ts.load({"y": [1.0]}, filter=[("y", "==", value)])
    for values in ([1.0], (1.0,), {1.0}, range(2), pl.Series([1.0]), np.ones(1), pa.array([1.0])):
        assert ts.load({"y": [1.0, 2.0]}, filter=[("y", "in", values)])["y"].tolist() == [1.0]


def test_a_filter_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    when = pa.array([1], pa.timestamp("us", "UTC"))
    table = pa.table({"temp": [1.0], "name": ["x"], "when": when})
    path = write_parquet(tmp_path / "one.parquet", [table])
    for source, where in ((table, "the pyarrow Table"), (path, str(path))):
        unknown: list[Any] = [[("tmp", ">", 1)], pc.field("tmp") > 1]
        for condition in unknown:
            with pytest.raises(ts.errors.ColumnError, match=like(f"{where} ... did you mean 'temp'?")):
                ts.load(source, ["name"], filter=condition)
        zoned = pc.field("when") > pa.scalar(1, pa.timestamp("us"))
        unfit: list[Any] = [zoned, [("name", ">", 1)], pc.field("temp") + 1, pc.field("temp") == "x"]
        for condition in unfit:
            with pytest.raises(
                ts.errors.SchemaError, match=rf"\Afilter= must be true or false for every row of {where}, where"
            ):
                ts.load(source, ["name"], filter=condition)


def test_a_filter_that_fails_for_a_row_is_refused_with_the_place(tmp_path: Path) -> None:
    table = pa.table({"a": [1, 2], "b": [1, 0]})
    path = write_parquet(tmp_path / "one.parquet", [table.slice(0, 1), table.slice(1)])
    message = f"in {path}, row group 1 it fails: divide by zero"
    with pytest.raises(ts.errors.DataError, match=like(message)):
        ts.load(path, ["a"], filter=pc.divide(pc.field("a"), pc.field("b")) > 0)


@pytest.mark.parametrize(
    "expression",
    [
        pl.col("w") == "a",
        pl.col("v") > 0.0,
        pl.col("v").is_nan(),
        pl.col("k").is_null() | (pl.col("w") != "b"),
        pl.col("k").is_in([1, 3]) & pl.col("v").is_finite(),
        (pl.col("k") + pl.col("row")).cast(pl.Float64).sqrt() < pl.col("v"),
    ],
)
def test_an_expression_of_polars_keeps_the_rows_that_polars_keeps(
    expression: pl.Expr, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORSTASH_DIR", str(tmp_path / "shared"))
    rows = [
        {"k": k, "v": v, "w": w, "d": None, "row": 0} for k in VALUES["k"] for v in VALUES["v"] for w in VALUES["w"]
    ]
    rows = [row | {"row": number} for number, row in enumerate(rows)]
    kept = pl.DataFrame(table_of(rows)).filter(expression)["row"].to_list()
    assert 0 < len(kept) < len(rows)
    sources = sources_of(rows, [0, 40, 41, len(rows)], tmp_path)
    for form, source in {**sources, "lazy": pl.DataFrame(table_of(rows)).lazy()}.items():
        assert ts.load(source, ["row"], filter=expression)["row"].tolist() == kept, form
    shared = [ts.load(sources["file"], ["row"], filter=expression, share="expressed").path for _ in range(2)]
    assert shared[0] == shared[1] != ts.load(sources["file"], ["row"], filter=~expression, share="expressed").path
    ts.shared.remove("expressed")


def test_an_expression_of_polars_that_is_no_filter_is_refused() -> None:
    frame = pl.DataFrame({"y": [1.0, 2.0], "flag": [True, None]})
    assert ts.load(frame, ["y"], filter=pl.col("flag"))["y"].tolist() == [1.0]
    for source in (frame, frame.lazy()):
        with pytest.raises(ts.errors.SchemaError, match=like("filter= must be true or false ... double ... Compare")):
            ts.load(source, ["y"], filter=pl.col("y") * 2)
        with pytest.raises(ts.errors.SchemaError, match=like("each value must come from its own row")):
            ts.load(source, ["y"], filter=pl.col("y") > pl.col("y").mean())
        with pytest.raises(ts.errors.ColumnError, match=like("has no column 'z'")):
            ts.load(source, ["y"], filter=pl.col("z") > 1)
    with pytest.raises(ValueError, match=like("may stand for several")):
        ts.load(frame, ["y"], filter=pl.all() > 1)
