"""Static columns from a table with a row for each entity: joined by name, with every choice of `ts.column`."""

import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests.oracle_load import exact, like

SALES: dict[str, Any] = {"shop": ["B", "A", "B", "C"], "day": [1, 1, 2, 1], "sales": [1.0, 2.0, 3.0, 4.0]}
SHOPS = pl.DataFrame({"shop": ["A", "B", "C"], "size": [10, 20, 30], "region": ["SE", None, "NO"]})
TABLES: dict[str, Callable[[pl.DataFrame], Any]] = {
    "polars": lambda frame: frame,
    "pandas": lambda frame: frame.to_pandas(),
    "Arrow": lambda frame: frame.to_arrow(),
    "batch": lambda frame: pa.RecordBatch.from_pydict(frame.to_dict(as_series=False), frame.to_arrow().schema),
    "lazy": lambda frame: frame.lazy(),
    "chunks": lambda frame: pl.concat([frame[:1], frame[1:]], rechunk=False),
    "dictionaries": lambda frame: frame.with_columns(pl.col(pl.String).cast(pl.Categorical)),
}
CHOICES: dict[str, Any] = {
    "whole": ts.column("whole", dtype=torch.int16),
    "half": ts.column("number", dtype=torch.float16, fill=0.5),
    "text": "text",
    "filled": ts.column("text", fill="none"),
    "known": ts.column("text", vocabulary=["x", "y", "none"], fill="none"),
    "hashed": ts.hashed("text", 7),
    "pack": ["number", "whole"],
    "twice": pl.col("whole") * 2,
    "there": ts.is_valid("number"),
}


def load(**options: Any) -> ts.Stash:
    return ts.load(SALES, ["sales"], **{"entity": "shop", "time": "day"} | options)


def same_static(one: ts.Stash, other: ts.Stash) -> None:
    assert [*one.static] == [*other.static]
    for name, tensor in one.static.items():
        assert tensor.dtype == other.static[name].dtype
        assert exact(tensor.tolist(), other.static[name].tolist())
        assert one.vocabulary(name) == other.vocabulary(name) if one.about(name).kind == "category" else True
        for field in ("kind", "fill", "members", "missing", "unknown", "low", "high"):
            assert getattr(one.about(name), field) == getattr(other.about(name), field), (name, field)


entities = st.one_of(
    st.lists(st.tuples(st.sampled_from("abcdé")), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(-2, 3)), min_size=1, max_size=12),
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2)), min_size=1, max_size=12),
)


@pytest.mark.filterwarnings("ignore:The .* of static= has rows for entities:UserWarning")
@pytest.mark.filterwarnings("ignore:No value of:UserWarning")
@pytest.mark.parametrize("form", TABLES)
@settings(max_examples=25)
@given(data=st.data())
def test_a_table_is_joined_as_if_its_columns_stood_in_the_source(form: str, data: st.DataObject) -> None:
    """The oracle: the row of each entity is found by a loop and written into all its rows, which are then loaded."""
    rows = data.draw(entities)
    keys = [f"key{k}" for k in range(len(rows[0]))]
    more = [tuple("zz" if isinstance(part, str) else 99 for part in rows[0])] * data.draw(st.integers(0, 1))
    names = data.draw(st.permutations([*dict.fromkeys(rows), *more]))

    def draw(values: st.SearchStrategy[Any]) -> list[Any]:
        return [data.draw(values) for _ in names]

    table = pl.DataFrame(
        {key: [name[k] for name in names] for k, key in enumerate(keys)}
        | {
            "whole": draw(st.integers(-9, 9)),
            "number": pl.Series(draw(st.sampled_from([None, 1.5, 2.25])), dtype=pl.Float64),
            "text": pl.Series(draw(st.sampled_from([None, "x", "y", "zebra"])), dtype=pl.String),
        }
    )
    source = pl.DataFrame({key: [row[k] for row in rows] for k, key in enumerate(keys)} | {"y": range(len(rows))})
    written = source.with_columns(table[[names.index(row) for row in rows]].drop(keys))
    entity = keys if data.draw(st.booleans()) else keys[0] if len(keys) == 1 else keys
    stash = ts.load(source, ["y"], entity=entity, static=(TABLES[form](table), CHOICES))
    same_static(stash, ts.load(written, ["y"], entity=entity, static=CHOICES))
    assert stash["y"].tolist() == ts.load(source, ["y"], entity=entity)["y"].tolist()


@pytest.mark.parametrize("form", TABLES)
def test_without_a_choice_every_other_column_is_taken(form: str) -> None:
    stash = load(static=TABLES[form](SHOPS))
    assert stash.entities == ["A", "B", "C"]
    assert stash.static["size"].tolist() == [10, 20, 30]
    assert [None if k < 0 else stash.vocabulary("region")[k] for k in stash.static["region"].tolist()] == [
        "SE",
        None,
        "NO",
    ]


def test_the_entities_may_be_the_index_of_a_pandas_frame() -> None:
    same_static(load(static=SHOPS.to_pandas().set_index("shop")), load(static=SHOPS))


def test_a_batch_holds_what_the_table_says() -> None:
    windows = ts.Windows(load(static=(SHOPS, ["size"])), history=1)
    assert windows[:]["size"].tolist() == [10, 20, 20, 30]


def test_arrays_of_several_dimensions_keep_them() -> None:
    table = pa.table({"shop": ["C", "A", "B"], "at": pa.FixedSizeListArray.from_arrays(pa.array(range(6)), 2)})
    assert load(static=table).static["at"].tolist() == [[2, 3], [4, 5], [0, 1]]


def test_a_source_without_rows_has_no_entities_to_look_up() -> None:
    none = pl.DataFrame(SALES).clear()
    with pytest.warns(UserWarning, match=r"for entities that the source does not have: 'A', 'B', 'C'\. They are not"):
        stash = ts.load(none, ["sales"], entity="shop", static=(SHOPS, CHOICES_OF_SHOPS))
    assert {name: tuple(tensor.shape) for name, tensor in stash.static.items()} == {
        "size": (0,),
        "region": (0,),
        "both": (0, 2),
    }


CHOICES_OF_SHOPS: dict[str, Any] = {"size": "size", "region": "region", "both": ["size", "size"]}


def test_the_plan_shows_the_columns_and_their_cost() -> None:
    text = str(ts.plan(SALES, ["sales"], entity="shop", static=SHOPS))
    assert re.search(r"^  size +int64 +static number +int64 +<= 0\.0$", text, re.MULTILINE)
    assert re.search(r"^  region +string_view +static category +int32 +<= 0\.0$", text, re.MULTILINE)
    assert "0.0 to 0.0 MB" in text
    assert "skipped: day\n" in f"{text}\n"


def test_a_shared_copy_is_of_the_values_of_the_table(shm: Any) -> None:
    first = load(static=SHOPS, share="shops")
    load(static=SHOPS.clone(), share="shops")
    assert len(ts.shared.list()) == 1
    larger = SHOPS.with_columns(size=pl.col("size") + 1)
    other = load(static=larger, share="shops")
    load(static=(SHOPS, ["size"]), share="shops")
    load(share="shops")
    assert len(ts.shared.list()) == 4
    assert (first.static["size"].tolist(), other.static["size"].tolist()) == ([10, 20, 30], [11, 21, 31])


def test_a_lazy_table_is_collected_once(shm: Any) -> None:
    calls: list[int] = []

    def counted(rows: pl.DataFrame) -> pl.DataFrame:
        calls.append(rows.height)
        return rows

    stash = load(static=SHOPS.lazy().map_batches(counted), share="shops")
    assert (stash.static["size"].tolist(), calls) == ([10, 20, 30], [3])


def test_a_table_that_changes_after_a_plan_is_not_shared_as_another(tmp_path: Path, shm: Any) -> None:
    pl.DataFrame(SALES).write_parquet(tmp_path / "sales.parquet")
    shops = pd.DataFrame({"shop": ["A", "B", "C"], "size": [10, 20, 30]})
    options: dict[str, Any] = {"entity": "shop", "static": shops}
    plan = ts.plan(tmp_path / "sales.parquet", ["sales"], **options)
    assert "size" in repr(plan)
    shops.loc[:, "size"] += 1
    first = plan.load(share="shops").static["size"].tolist()
    second = ts.load(tmp_path / "sales.parquet", ["sales"], **options, share="shops").static["size"].tolist()
    assert (first, second) in (([10, 20, 30], [11, 21, 31]), ([11, 21, 31], [11, 21, 31]))


def test_a_table_may_have_a_column_with_the_name_of_a_path(tmp_path: Path, shm: Any) -> None:
    for name in SHOPS["shop"]:
        pl.DataFrame(SALES).filter(pl.col("shop") == name).write_parquet(tmp_path / f"{name}.parquet")
    options: dict[str, Any] = {"entity": ts.path("stem"), "static": SHOPS.rename({"shop": "ts.path.stem"})}
    shared = ts.load(tmp_path, ["sales"], **options, share="shops")
    same_static(shared, ts.load(tmp_path, ["sales"], **options))


def test_a_python_function_is_refused_where_the_table_is_shared(shm: Any) -> None:
    doubled = pl.col("size").map_batches(lambda size: size * 2, return_dtype=pl.Int64, is_elementwise=True)
    with pytest.raises(ValueError, match=r"Python"):
        load(static=(SHOPS, {"size": doubled}), share="shops")


def test_a_saved_stash_holds_them(tmp_path: Any) -> None:
    stash = load(static=SHOPS)
    stash.save(tmp_path / "saved")
    same_static(ts.open(tmp_path / "saved"), stash)


def test_a_stash_on_disk_is_of_the_values_of_the_table(tmp_path: Any) -> None:
    path = tmp_path / "shops.safetensors"
    for _ in range(2):
        same_static(load(static=SHOPS, file=path), load(static=SHOPS))
    with pytest.raises(ts.errors.SegmentError, match=r"^A file is opened as it is only if the same load made it; "):
        load(static=SHOPS.with_columns(size=pl.col("size") + 1), file=path)


# What does not fit


def test_rows_of_unknown_entities_are_named_and_not_used() -> None:
    more = pl.concat([SHOPS, pl.DataFrame({"shop": list("UVWXYZ"), "size": range(6), "region": ["??"] * 6})])
    message = "does not have: 'U', 'V', 'W', 'X', 'Y' and 1 more"
    with pytest.warns(UserWarning, match=like(message)):
        stash = load(static=more)
    assert stash.vocabulary("region") == ["NO", "SE"]
    same_static(stash, load(static=SHOPS))


def test_text_that_reads_as_numbers_is_warned_of() -> None:
    source = {"e": [*range(12)], "y": np.zeros(12)}
    table = pl.DataFrame({"e": range(12), "size": [f"{k}.5" for k in range(12)]})
    with pytest.warns(UserWarning, match=r"^Column 'size' is text, which is stored as codes, but most"):
        ts.load(source, ["y"], entity="e", static=table)


OF = "the polars frame of static="
WRONG: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "missing": (
        SHOPS[:1],
        {},
        ts.errors.DataError,
        f"A table of static columns has a row for each entity of the source; {OF} has none for 'B', 'C'. Add rows for "
        "them, or leave these entities out with filter=.",
    ),
    "twice": (
        SHOPS[[0, 1, 2, 1]],
        {},
        ts.errors.DataError,
        f"A table of static columns has one row for each entity; {OF} has 'B' in rows 1 and 3. Drop all but one.",
    ),
    "null": (
        SHOPS.with_columns(shop=pl.Series(["A", None, "C"])),
        {},
        ts.errors.DataError,
        f"column 'shop' of {OF} is null in row 1 (the first such). Fill or drop",
    ),
    "no entity column": (
        SHOPS.drop("shop"),
        {},
        ts.errors.ColumnError,
        f"{OF} has no column 'shop'; it has 'size', 'region'.",
    ),
    "nothing else": (
        SHOPS[["shop"]],
        {},
        ValueError,
        f"A stash has at least one column; none of {OF} was chosen. Name some in static=.",
    ),
    "the name of a column": (
        SHOPS.rename({"size": "sales"}),
        {},
        ts.errors.SchemaError,
        "A name stands for one column; 'sales' is in both columns= and static=. Leave it out of one, or give it "
        "another name there.",
    ),
    "the name of the time": (
        SHOPS.rename({"size": "day"}),
        {},
        ts.errors.SchemaError,
        f"'day' is a column of {OF}. Give it another name in static=.",
    ),
    "another kind": (
        SHOPS.with_columns(shop=pl.Series([1, 2, 3])),
        {},
        ts.errors.SchemaError,
        f"Entity columns have one kind of values; 'shop' is string in the mapping and int64 in {OF}. Convert one of "
        "them.",
    ),
    "no entity": (
        SHOPS,
        {"entity": None},
        ValueError,
        "Static columns of a table are joined by the entity columns; got a DataFrame as static= and no entity=. Name "
        "them as entity=.",
    ),
    "a stream": (
        SHOPS.to_arrow().to_reader(),
        {},
        TypeError,
        "static= must be a list of names or a mapping, got a RecordBatchReader.",
    ),
    "a text": ((SHOPS, "size"), {}, TypeError, "static= must be a list of names or a mapping, got the text 'size'. "),
    "not there": ((SHOPS, ["place"]), {}, ts.errors.ColumnError, f"{OF} has no column 'place'; it has 'shop', "),
    "a null": (
        SHOPS.with_columns(size=pl.Series([None, 1, 2])),
        {},
        ts.errors.DataError,
        f"Integers, booleans and times have no missing value; column 'size' has 1 null in {OF}. ",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_joined_is_refused(case: str) -> None:
    static, options, kind, message = WRONG[case]
    with pytest.raises(kind, match=re.escape(message)):
        load(static=static, **options)


def test_of_several_entity_columns_the_tuple_is_named() -> None:
    source = {"a": ["x", "x"], "b": [1, 2], "y": [0.0, 1.0]}
    table = pd.DataFrame({"b": [1], "a": ["x"], "size": [5]})
    with pytest.raises(ts.errors.DataError, match=r"the pandas frame of static= has none for \('x', 2\)\. Add rows"):
        ts.load(source, ["y"], entity=["a", "b"], static=table)


@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz", "TSV", "arrow", "feather", "arrows"])
@pytest.mark.parametrize("columns", [None, ["size"]])
def test_the_path_of_a_file_is_refused_with_its_frame(ending: str, columns: list[str] | None, tmp_path: Path) -> None:
    path = tmp_path / f"shops.{ending}"
    writers: dict[str, Callable[..., Any]] = {"parquet": SHOPS.write_parquet, "arrows": SHOPS.write_ipc_stream}
    text = SHOPS.write_csv(separator="\t" if ending == "TSV" else ",")
    if "sv" in ending.lower():
        path.write_bytes(gzip.compress(text.encode()) if "gz" in ending else text.encode())
    else:
        writers.get(ending, SHOPS.write_ipc)(path)
    for file in (path, str(path)):
        with pytest.raises(TypeError, match=re.escape("static= takes a file as its frame")) as told:
            load(static=file if columns is None else (file, columns))
    (frame,) = re.findall(r"Write static=(.*)\.$", str(told.value))
    assert load(static=eval(frame)).static["size"].equal(load(static=SHOPS).static["size"])


def test_nulls_are_refused_with_the_call_that_keeps_them() -> None:
    frame = SHOPS.with_columns(size=pl.Series([None, 1, 2]))
    with pytest.raises(ts.errors.DataError, match=like("column 'size' has 1 null")) as told:
        load(static=frame)
    forms = re.findall(r"static=(\(frame, .*?\}\))", str(told.value))
    assert len(forms) == 2
    for form in forms:
        kept = load(static=eval(form.replace("...", "-1"))).static["size"]
        assert kept.dtype in (torch.int64, torch.float32)
        assert not (kept[0] > 0)
