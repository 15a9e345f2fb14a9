"""filter=: the rows that a plain loop over them keeps, and what is not decoded for it."""

import math
import operator
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tensorstash.sources import kept_rows, row_groups
from tests.ingest.test_unwanted_columns import damage
from tests.oracle_load import like, write_ipc, write_parquet

TYPES = {"k": pa.int32(), "v": pa.float64(), "w": pa.string(), "d": pa.date32(), "row": pa.int64()}
VALUES: dict[str, list[Any]] = {
    "k": [0, 1, 2, 3, None],
    "v": [-1.5, 0.0, 2.5, math.inf, math.nan, None],
    "w": ["a", "b", "", "ü", None],
    "d": [0, 1, 5, None],
}
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
Rows = list[dict[str, Any]]
Term = tuple[str, str, Any]


def satisfies(row: dict[str, Any], term: Term) -> bool:
    """One row, one term: a null satisfies none; `in` is == joined by or, `not in` is != joined by and."""
    name, op, value = term
    cell = row[name]
    if op == "in":
        return any(satisfies(row, (name, "==", item)) for item in value)
    if op == "not in":
        return all(satisfies(row, (name, "!=", item)) for item in value)
    return cell is not None and COMPARE[op](cell, value)


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
            assert plan.planned.kept <= plan.planned.pieces


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


@pytest.mark.parametrize("as_file", [False, True])
def test_half_precision_is_compared(as_file: bool, tmp_path: Path) -> None:
    table = pa.table({"h": pa.array(np.array([0.5, 1.5, np.nan, 1.0], np.float16)), "k": [0, 1, 2, 3]})
    source = str(write_parquet(tmp_path / "h.parquet", [table])) if as_file else table
    kept = {(">", 0.75): [1, 3], ("in", (1.0, 0.5)): [0, 3], ("not in", (1.0,)): [0, 1, 2], ("==", 1.5): [1]}
    for (comparison, value), rows in kept.items():
        assert ts.load(source, ["k"], filter=[("h", comparison, value)])["k"].tolist() == rows


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


# What is decoded


def many_groups(path: Path) -> Path:
    """Ten row groups of 100 rows; t, s and f grow from one to the next."""
    rows = np.arange(1000)
    table = pa.table(
        {
            "t": pa.array(rows, pa.timestamp("s")),
            "s": [f"s{row // 100}" for row in rows],
            "f": rows * 0.5,
            "y": rows,
            "z": -rows,
        }
    )
    return write_parquet(path, [table.slice(k, 100) for k in range(0, 1000, 100)])


@pytest.mark.parametrize(
    ("condition", "decoded", "rows"),
    [
        ([("s", "==", "s3")], [3], range(300, 400)),
        ([("s", "in", ["s3", "s7"])], [3, 7], [*range(300, 400), *range(700, 800)]),
        (pc.field("t") >= pa.scalar(750, pa.timestamp("s")), [7, 8, 9], range(750, 1000)),
        ((pc.field("y") < 150) | (pc.field("s") == "s9"), [0, 1, 9], [*range(150), *range(900, 1000)]),
        ([("f", "<", 60.0)], [0, 1], range(120)),
        ([("f", ">", 60.0), ("f", "<=", 110.0)], [1, 2], range(121, 221)),
        ([("s", "==", "none")], [], []),
    ],
    ids=lambda given: str(given)[:40],
)
def test_row_groups_that_statistics_exclude_are_not_decoded(
    condition: Any, decoded: list[int], rows: Any, tmp_path: Path
) -> None:
    """All pages of the other row groups are damaged, and no reader is made for them."""
    path = many_groups(tmp_path / "one.parquet")
    meta = pq.ParquetFile(path).metadata
    for group in set(range(10)) - set(decoded):
        for k in range(5):
            chunk = meta.row_group(group).column(k)
            begin = min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
            damage(path, begin + chunk.total_compressed_size // 2, begin + chunk.total_compressed_size)
    seen: list[int] = []
    real = pq.ParquetFile.iter_batches

    def counted(self: Any, *arguments: Any, row_groups: list[int], **options: Any) -> Any:
        for batch in real(self, *arguments, row_groups=row_groups, **options):
            seen.extend(row_groups)
            yield batch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pq.ParquetFile, "iter_batches", counted)
        plan = ts.plan(path, ["y"], filter=condition)
        assert seen == []
        assert (plan.rows, plan.planned.kept, plan.planned.pieces) == (len(rows), len(decoded), 10)
        assert sorted(seen) == decoded
        stash = ts.load(path, ["y"], filter=condition)
    assert sorted(set(seen)) == decoded
    assert stash["y"].tolist() == list(rows)


def test_of_row_groups_without_a_kept_row_only_the_filter_is_read(tmp_path: Path) -> None:
    """Statistics do not tell for an expression of floats; the filter's own column does."""
    path = many_groups(tmp_path / "one.parquet")
    meta = pq.ParquetFile(path).metadata
    for group in range(2, 10):
        chunk = meta.row_group(group).column(3)
        damage(path, chunk.data_page_offset, chunk.data_page_offset + 20)
    assert ts.load(path, ["y"], filter=pc.field("f") < 60.0)["y"].tolist() == list(range(120))
    with pytest.raises(ts.errors.SourceError, match=r", row group 2 cannot be decoded: .*\. Write the file again\.\Z"):
        ts.load(path, ["y"], filter=pc.field("f") < 110.0)


def test_columns_of_the_filter_are_not_kept_and_others_are_not_read(tmp_path: Path) -> None:
    path = many_groups(tmp_path / "one.parquet")
    plan = ts.plan(path, ["y"], filter=[("s", "==", "s3"), ("f", ">", 170.0)])
    assert plan.skipped == ("t", "z")
    assert list(ts.load(path, ["y"], filter=[("s", "==", "s3")])) == ["y"]
    # the name of a column that only stands in a value is none of the filter's
    renamed = pa.table({"kind": ["y", "z"], "y": [1, 2], "z": pa.array([{"a": 1}] * 2)})
    write_parquet(tmp_path / "two.parquet", [renamed])
    plan = ts.plan(tmp_path / "two.parquet", ["y"], filter=pc.field("kind") == "z")
    assert (plan.rows, plan.skipped) == (1, ("z",))


def test_only_columns_of_the_filter_are_converted_of_frames_and_mappings() -> None:
    odd = [object(), object()]
    sources: list[Any] = [
        {"odd": odd, "y": [1, 2], "k": [5, 6]},
        pd.DataFrame({"odd": odd, "y": [1, 2], "k": [5, 6]}),
    ]
    conditions: list[Any] = [pc.field("k") > 5, [("k", ">", 5)]]
    for source in sources:
        for condition in conditions:
            assert ts.load(source, ["y"], filter=condition)["y"].tolist() == [2]


def test_a_large_row_group_is_filtered_batch_by_batch(tmp_path: Path) -> None:
    rows = 300_001
    kept = np.random.default_rng(0).random(rows) < 0.3
    kept[140_000:280_000] = False
    table = pa.table({"kept": kept, "y": np.arange(rows), "s": pa.array((np.arange(rows) % 7).astype(str))})
    sources: list[Any] = [write_parquet(tmp_path / "one.parquet", [table]), table]
    for source in sources:
        stash = ts.load(source, ["y", "s"], filter=pc.field("kept"))
        assert np.array_equal(stash["y"].numpy(), np.flatnonzero(kept))
        assert [stash.vocabulary("s")[code] for code in stash["s"][:50]] == [
            str(y % 7) for y in stash["y"][:50].tolist()
        ]


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


# Partition keys


def partitioned(directory: Path) -> Path:
    for year in (2023, 2024):
        for place in ("Oslo", "São Paulo", None):
            name = "__HIVE_DEFAULT_PARTITION__" if place is None else place.replace(" ", "%20")
            path = directory / f"year={year}" / f"place={name}"
            path.mkdir(parents=True)
            write_parquet(path / "0.parquet", [pa.table({"y": [year, year + 1]})])
    return directory


def test_partition_keys_are_columns(tmp_path: Path) -> None:
    stash = ts.load(partitioned(tmp_path / "d"))
    assert list(stash) == ["y", "year", "place"]
    assert stash["year"].tolist() == [2023] * 6 + [2024] * 6
    assert stash["year"].dtype == torch.int64
    names = [None if code < 0 else stash.vocabulary("place")[code] for code in stash["place"].tolist()]
    assert names == ["Oslo", "Oslo", "São Paulo", "São Paulo", None, None] * 2 or names == (
        ["Oslo"] * 2 + ["São Paulo"] * 2 + [None] * 2
    )


def test_partition_keys_exclude_files_unread(tmp_path: Path) -> None:
    root = partitioned(tmp_path / "d")
    for path in root.glob("year=2024/place=Oslo/*"):
        path.write_bytes(b"no Parquet at all")
    with pytest.raises(ts.errors.SourceError, match=r"year=2024/place=Oslo/0\.parquet is not a readable"):
        ts.load(root)
    conditions: list[Any] = [
        [("year", "==", 2023)],
        pc.field("year") < 2024,
        (pc.field("year") == 2023) & (pc.field("y") > 0),
    ]
    for condition in conditions:
        stash = ts.load(root, ["y", "place"], filter=condition)
        assert stash["y"].tolist() == [2023, 2024] * 3
    assert ts.load(root, ["y"], filter=[("place", "==", "São Paulo")])["y"].tolist() == [2023, 2024, 2024, 2025]
    assert ts.load(root, ["y"], filter=pc.field("place").is_null())["y"].tolist() == [2023, 2024, 2024, 2025]
    assert ts.load(root, ["y"], filter=[("year", "==", 1999)]).rows == 0
    assert ts.plan(root, ["y"], filter=[("year", "==", 2023)]).rows == 6
    assert ts.load(str(root / "year=2023" / "*" / "*"), entity="place", filter=[("place", "!=", "x")]).entities == [
        "Oslo",
        "São Paulo",
    ]


def test_keys_that_only_some_paths_have_are_a_difference(tmp_path: Path) -> None:
    root = partitioned(tmp_path / "d")
    write_parquet(root / "year=2024" / "1.parquet", [pa.table({"y": [1]})])
    with pytest.raises(ts.errors.SourceError, match=r"need the same columns and types: .*1\.parquet has no column 'pl"):
        ts.load(root)
    assert ts.load(root, ["y", "year"]).rows == 13


def test_a_column_of_the_file_goes_before_a_key_of_its_path(tmp_path: Path) -> None:
    (tmp_path / "y=7").mkdir()
    write_parquet(tmp_path / "y=7" / "0.parquet", [pa.table({"y": [1, 2], "k": [3, 4]})])
    assert ts.load(tmp_path)["y"].tolist() == [1, 2]
    assert ts.load(tmp_path, ["k"], filter=[("y", "==", 2)])["k"].tolist() == [4]


@pytest.mark.filterwarnings("ignore:Column 'k' is text")  # most of them may read as numbers
@example(["1", "02", "-3"], [1, 2, -3])
@example(["1", "x"], None)
@example(["1" * 19], None)
@given(st.lists(st.text("01²-_x", min_size=1, max_size=3), min_size=1, max_size=3), st.just(None))
@settings(max_examples=30)
def test_keys_are_integers_only_where_all_are(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], numbers: list[int] | None
) -> None:
    root = tmp_path_factory.mktemp("keys")
    for text in dict.fromkeys(texts):
        (root / f"k={text}").mkdir()
        write_parquet(root / f"k={text}" / "0.parquet", [pa.table({"y": [0]})])
    stash = ts.load(root)
    if stash["k"].dtype == torch.int64:
        assert sorted(stash["k"].tolist()) == sorted(int(text) for text in dict.fromkeys(texts))
    else:
        assert numbers is None
        assert sorted(stash.vocabulary("k")) == sorted(dict.fromkeys(texts))


# Errors


@pytest.mark.parametrize(
    "wrong", ["y > 5", [], [[]], ["y", ">", 5], [("y", "like", 5)], [("y", ">")], ("y", ">", 5), [[("y", ">", 5)], []]]
)
def test_what_is_no_filter_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"\Afilter= is an expression, as .*; got .*\.\Z"):
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
    odd: list[Any] = [pl.Series([1.0]), torch.tensor(1.0), object()]
    for value in odd:
        shown = " ".join(repr(value).split())
        message = f"'y' is compared with {shown}, a {type(value).__name__}"
        with pytest.raises(TypeError, match=like(message)):
            ts.load({"y": [1.0]}, filter=[("y", "==", value)])
    for values in ([1.0], (1.0,), {1.0}, range(2), pl.Series([1.0]), np.ones(1), pa.array([1.0])):
        assert ts.load({"y": [1.0, 2.0]}, filter=[("y", "in", values)])["y"].tolist() == [1.0]


def test_a_filter_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    when = pa.array([1], pa.timestamp("us", "UTC"))
    table = pa.table({"temp": [1.0], "name": ["x"], "when": when, "bits": pa.array([1], pa.uint16())})
    fields = [*[*table.schema][:3], pa.field("bits", pa.uint16(), metadata={"tensorstash.dtype": "bfloat16"})]
    table = table.cast(pa.schema(fields))
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
        with pytest.raises(
            ts.errors.SchemaError, match=r"'bits' is bfloat16, which Arrow lacks\. Filter by another column\.\Z"
        ):
            ts.load(source, ["name"], filter=[("bits", ">", 1)])


@pytest.mark.parametrize("dtype", [pl.Float32, pl.Float64])
def test_floats_are_compared_with_integers_that_a_float_holds(dtype: type[pl.DataType]) -> None:
    """Arrow itself refuses integers beyond 2**24 or 2**53, even if a float holds them."""
    frame = pl.DataFrame({"f": pl.Series([1.0, 2.0**24, 2.0**60, None], dtype=dtype), "row": range(4)})
    kept = {("==", 2**60): [2], ("in", (1, 2**60)): [0, 2], ("in", (0.5, 2**24)): [1], (">", 2**24 + 1): [2]}
    for source in (frame, frame.lazy()):
        for (operator_, value), rows in kept.items():
            assert ts.load(source, ["row"], filter=[("f", operator_, value)])["row"].tolist() == rows
        for operator_, value in (("==", 2**53 + 1), ("in", (2**53 + 1,)), ("not in", [0.5, 2**53 + 1])):
            with pytest.raises(
                ValueError, match=like("a float can hold ... 'f' with 9007199254740993. Write ... 9007199254740992.0.")
            ):
                ts.load(source, ["row"], filter=[("f", operator_, value)])


@pytest.mark.parametrize("dtype", [pa.int64(), pa.uint32(), pa.int8()])
def test_integers_are_compared_with_floats_exactly(dtype: pa.DataType) -> None:
    """As Python compares them. Arrow itself rounds the column to float32 where the float fits that, or refuses it."""
    beyond = [2**24 + 1, 2**53 + 1, 2**63 - 1, -(2**63), -(2**60)] if dtype == pa.int64() else []
    values = [0, 1, 2, 100, None, *beyond, *([2**24 + 1, 2**32 - 1] if dtype == pa.uint32() else [])]
    table = pa.table({"n": pa.array(values, dtype), "row": range(len(values))})
    for value in (0.5, -0.5, 1.0, 2.0**24, 2.0**53, -(2.0**60), 1e18):
        for name, holds in COMPARE.items():
            if name in ("==", "!=") and not value.is_integer():
                continue  # no integer is equal to it, which nobody asks
            expected = [row for row, n in enumerate(values) if n is not None and holds(n, value)]
            assert ts.load(table, ["row"], filter=[("n", name, value)])["row"].tolist() == expected
        expected = [row for row, n in enumerate(values) if n is not None and n in (value, 1)]
        assert ts.load(table, ["row"], filter=[("n", "in", [value, 1])])["row"].tolist() == expected


NUMBERS: dict[pa.DataType, list[float | None]] = {
    pa.int64(): [0, 1, 2**24 + 1, 2**53 + 1, 2**53, 2**63 - 1, -(2**63), None],
    pa.float32(): [0.5, 1.0, 2.0**24, 2.0**60, None],
    pa.float64(): [0.5, 1.0, 2.0**24 + 1, 2.0**60, None],
    pa.float16(): [0.5, 1.0, 2048.0, None],
}


@pytest.mark.parametrize("arrow", NUMBERS, ids=str)
@pytest.mark.parametrize("form", ["field of a struct", "dictionary"])
def test_numbers_inside_structs_and_dictionaries_are_compared_exactly(
    form: str, arrow: pa.DataType, tmp_path: Path
) -> None:
    """As in plain columns, integers beside floats and floats beside integers."""
    numbers = NUMBERS[arrow]
    column = pa.array(
        [None if n is None else np.float16(n) for n in numbers] if arrow == pa.float16() else numbers, arrow
    )
    if form == "dictionary":
        places = [None if n is None else place for place, n in enumerate(numbers)]
        name, wrapped = "n", pa.DictionaryArray.from_arrays(pa.array(places, pa.int8()), column.drop_null())
    else:
        name, wrapped = "s.n", pa.StructArray.from_arrays([column], ["n"])
    table = pa.table({name[0]: wrapped, "row": range(len(numbers))})
    sources: list[Any] = [table]
    if arrow != pa.float16():  # which Parquet lists as bytes
        sources.append(write_parquet(tmp_path / "n.parquet", [table.slice(0, 2), table.slice(2)]))
    values = (1, 2**24, 2**24 + 2, 0.5, 1.0, 2.0**24, 2.0**53) if arrow == pa.int64() else (1, 0.5, 2**60, 2**24 + 1)
    for source in sources:
        for value in values:
            for op, holds in COMPARE.items():
                if op in ("==", "!=") and arrow == pa.int64() and not float(value).is_integer():
                    continue  # no integer is equal to it, which nobody asks
                expected = [row for row, n in enumerate(numbers) if n is not None and holds(n, value)]
                assert ts.load(source, ["row"], filter=[(name, op, value)])["row"].tolist() == expected, (op, value)
            expected = [row for row, n in enumerate(numbers) if n is not None and n in (value, 1)]
            assert ts.load(source, ["row"], filter=[(name, "in", [value, 1])])["row"].tolist() == expected
        if arrow == pa.float64():
            with pytest.raises(ValueError, match=like(f"a float can hold ... {name!r} with 9007199254740993")):
                ts.load(source, ["row"], filter=[(name, ">", 2**53 + 1)])


@pytest.mark.parametrize("values", [[4, True, 3.5], [1.5, True, 4], [True, 4], [None, False, 2]])
def test_truth_values_beside_numbers_are_refused(values: list[Any]) -> None:
    for column in ([1, 4], [1.0, 4.0], [True, False]):
        with pytest.raises(TypeError, match=like("filter= compares a column with numbers, texts, dates and times")):
            ts.load({"x": column}, filter=[("x", "in", values)])


def test_integers_beyond_the_type_of_a_column_are_compared_as_polars_compares_them() -> None:
    frame = pl.DataFrame({"i8": pl.Series([1, -128, None], dtype=pl.Int8), "row": range(3)})
    i8 = pl.col("i8")
    for condition in (i8.ne_missing(-129), i8.eq_missing(2**70), i8 != 300, i8.is_in([300]), i8 > -129):
        for source in (frame, frame.lazy()):
            expected = frame.filter(condition)["row"].to_list()
            assert ts.load(source, ["row"], filter=condition)["row"].tolist() == expected


def test_a_filter_that_fails_for_a_row_is_refused_with_the_place(tmp_path: Path) -> None:
    table = pa.table({"a": [1, 2], "b": [1, 0]})
    path = write_parquet(tmp_path / "one.parquet", [table.slice(0, 1), table.slice(1)])
    message = f"in {path}, row group 1 it fails: divide by zero"
    with pytest.raises(ts.errors.DataError, match=like(message)):
        ts.load(path, ["a"], filter=pc.divide(pc.field("a"), pc.field("b")) > 0)


MOMENTS = {
    "2024-03-31": datetime(2024, 3, 31),
    "2024-03-31 01:30": datetime(2024, 3, 31, 1, 30),
    "2024-03-31 03:30:00.25": datetime(2024, 3, 31, 3, 30, 0, 250_000),
    "2024-04-01": datetime(2024, 4, 1),
}


@pytest.mark.parametrize("kind", [pl.Date(), pl.Datetime("ms"), pl.Datetime("ns", "Europe/Berlin")])
@pytest.mark.parametrize("form", ["frame", "file"])
def test_texts_are_times_where_the_column_holds_times(kind: Any, form: str, tmp_path: Path) -> None:
    times = pl.Series([*MOMENTS.values(), None])
    if kind == pl.Date():
        times = times.cast(kind)
    else:
        times = times.dt.replace_time_zone(kind.time_zone).dt.cast_time_unit(kind.time_unit)
    frame = pl.DataFrame({"n": range(5), "t": times})
    frame.write_parquet(tmp_path / "t.parquet", row_group_size=2)
    source: Any = frame if form == "frame" else tmp_path / "t.parquet"
    for k, text in enumerate(MOMENTS):
        written = text[:10] if kind == pl.Date() else text
        for op in (*COMPARE, "in", "not in"):
            several = op in ("in", "not in")
            kept = ts.load(source, ["n"], filter=[("t", op, [written] if several else written)])["n"].tolist()
            term = ("t", op, [times[k]] if several else times[k])
            expected = [row["n"] for row in frame.to_dicts() if row["t"] is not None and satisfies(row, term)]
            assert kept == expected, (op, text)


def test_each_text_of_a_list_is_a_time_of_its_own() -> None:
    times = pl.datetime_range(datetime(2024, 1, 1), datetime(2024, 1, 4), "1d", time_zone="Europe/Berlin", eager=True)
    frame = pl.DataFrame({"n": range(4), "t": times, "day": times.dt.date()})
    for texts in (["2024-01-02", "2024-01-02T23:00:00Z"], ["2024-01-02", None, "2024-01-03T00:00+01:00"]):
        assert ts.load(frame, ["n"], filter=[("t", "in", texts)])["n"].tolist() == [1, 2]
        assert ts.load(frame, ["n"], filter=[("t", "not in", texts)])["n"].tolist() == [0, 3]
    assert ts.load(frame, ["n"], filter=[("day", "in", ["2024-01-02", None])])["n"].tolist() == [1]


@pytest.mark.parametrize(("zone", "day"), [("Europe/Berlin", "2024-01-02"), ("America/Havana", "2024-11-03")])
def test_a_date_begins_in_the_zone_of_the_times(zone: str, day: str) -> None:
    """At midnight there, as a text of the same day, and not in UTC; a clock that shows midnight twice begins with the
    first."""
    first = datetime.fromisoformat(day)
    times = pl.datetime_range(first - timedelta(days=2), first + timedelta(days=2), "1h", time_zone="UTC", eager=True)
    frame = pl.DataFrame({"t": times.dt.convert_time_zone(zone)})
    expected = frame.filter(pl.col("t").dt.date() >= first.date())["t"].dt.timestamp().to_list()
    stash = ts.load(frame, {"n": ts.calendar("hour")}, time="t", filter=[("t", ">=", first.date())])
    assert stash.time is not None
    assert stash.time.tolist() == expected
    several = ts.load(frame, {"n": ts.calendar("hour")}, time="t", filter=[("t", "in", [first.date()])])
    assert several.time is not None
    assert several.time.tolist() == expected[:1]


@pytest.mark.parametrize("several", [False, True])
def test_dates_are_not_compared_with_a_time_that_has_a_zone(several: bool) -> None:
    frame = pl.DataFrame({"day": [date(2024, 1, 1), date(2024, 1, 2)]})
    for moment in (datetime(2024, 1, 2, tzinfo=timezone.utc), pd.Timestamp("2024-01-02", tz="UTC")):
        term = ("day", "in", [moment]) if several else ("day", ">=", moment)
        with pytest.raises(ts.errors.SchemaError, match=like("Dates have no zone ... 'day'")):
            ts.load(frame, ["day"], filter=[term])
    assert ts.load(frame, ["day"], filter=[("day", ">=", datetime(2024, 1, 2))]).rows == 1


@pytest.mark.parametrize("text", ["2024-13-01", "march", "2024-03-31 02:30", "2024-10-27 02:30", ""])
def test_a_text_that_is_no_time_is_refused(text: str) -> None:
    frame = pl.DataFrame({"t": [datetime(2024, 1, 1)]}).with_columns(pl.col("t").dt.replace_time_zone("Europe/Berlin"))
    with pytest.raises(ts.errors.SchemaError, match=like("filter= must be ... a time with a datetime or a text")):
        ts.load(frame, ["t"], filter=[("t", ">=", text)])


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


def test_long_texts_are_compared_a_few_rows_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dictionary of one long text, which stands in every row of a small file, needs little memory."""
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 299 + [1], pa.int32()), ["x" * 100_000, "a"])
    pq.write_table(pa.table({"s": texts, "n": range(300)}), tmp_path / "s.parquet", compression="zstd")
    assert (tmp_path / "s.parquet").stat().st_size < 20_000
    sizes = []
    mask = kept_rows._mask

    def noted(batch: pa.RecordBatch, expression: pc.Expression) -> Any:
        sizes.append(len(batch))
        return mask(batch, expression)

    monkeypatch.setattr(kept_rows, "_mask", noted)
    monkeypatch.setattr(kept_rows, "_TEXT_BYTES", 1_000_000)
    monkeypatch.setattr(row_groups, "_MOST_BYTES", 1_000_000)
    for condition, kept in (([("s", "==", "a")], [299]), ([("s", "!=", "a"), ("n", "<", 15)], [*range(15)])):
        assert ts.load(tmp_path / "s.parquet", ["n"], filter=condition)["n"].tolist() == kept
    assert max(sizes) == 10


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_nanoseconds_of_pandas_and_polars_are_kept(zone: str | None) -> None:
    pd = pytest.importorskip("pandas")
    first = 1_700_000_000_000_000_000
    counts = [first, first + 1, first + 999, first + 1000, first + 1001]
    table = pa.table({"t": pa.array(counts, pa.timestamp("ns", zone)), "y": range(5)})

    def kept(operator_: str, value: Any) -> list[int]:
        return ts.load(table, ["y"], filter=[("t", operator_, value)])["y"].tolist()

    times = [pd.Timestamp(count, tz=zone) if zone else pd.Timestamp(count) for count in counts]
    for k, time in enumerate(times):
        assert kept("==", time) == [k]
        assert kept("<", time) == [*range(k)]
        assert kept(">=", time) == [*range(k, 5)]
        for several in (
            [time],
            (time,),
            {time},
            [None, time],
            pd.Series([time]),
            pl.Series([time.value]).cast(pl.Datetime("ns", zone)),
        ):
            assert kept("in", several) == [k]
    assert kept("in", [times[1], times[3].to_pydatetime()]) == [1, 3]
    assert kept("not in", times[1:]) == [0]
    if zone is None:
        assert kept("in", [times[1], np.datetime64(counts[4], "ns")]) == [1, 4]
    with pytest.raises(TypeError, match=r"\Afilter= compares a column with numbers, texts, dates and times; 't' is "):
        kept("in", [times[1], "2024-01-01"])
    with pytest.raises(TypeError, match=r"\Afilter= compares a column with numbers, texts, dates and times; 't' is "):
        kept("in", [times[1], pd.Timestamp(0, tz=None if zone else "UTC")])


def test_nanoseconds_of_durations_are_kept() -> None:
    pd = pytest.importorskip("pandas")
    table = pa.table({"d": pa.array([0, 1, 1000, 1001], pa.duration("ns")), "y": range(4)})
    for k, count in enumerate([0, 1, 1000, 1001]):
        for value in (pd.Timedelta(count), np.timedelta64(count, "ns")):
            assert ts.load(table, ["y"], filter=[("d", "==", value)])["y"].tolist() == [k]
        assert ts.load(table, ["y"], filter=[("d", "in", [pd.Timedelta(count)])])["y"].tolist() == [k]


def test_nanoseconds_decide_which_stash_is_attached(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    table, label = pa.table({"t": pa.array([0, 1, 2], pa.timestamp("ns"))}), f"test-filter-{tmp_path.name}"
    for count in range(3):
        stash = ts.load(table, ["t"], filter=[("t", "==", pd.Timestamp(count))], share=label)
        assert stash["t"].tolist() == [count]
    ts.shared.remove(label)
