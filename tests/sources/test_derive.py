"""Columns that are computed while a source is read, beside the same expression on the whole frame at once."""

import datetime
import math
import subprocess
import sys
import threading
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tensorstash.sources.evaluate import is_elementwise
from tests.oracle_load import exact, like, run_python, write_parquet

Frames = Callable[[pl.DataFrame, list[int], Path], Any]

a, b, f, s, t, day, items, pair = (pl.col(name) for name in ("a", "b", "f", "s", "t", "day", "items", "pair"))


def frame(rows: int, seed: int = 0) -> pl.DataFrame:
    """A column of each type that expressions are made of, with nulls in all but the first."""
    rng = np.random.default_rng(seed)
    holes = rng.random(rows) < 0.2
    seconds = rng.integers(-(10**9), 2 * 10**9, rows)
    columns: dict[str, Any] = {
        "a": pl.Series(rng.integers(-50, 50, rows)),
        "b": pl.Series(rng.integers(1, 9, rows).astype(np.int32)),
        "f": pl.Series(np.where(rng.random(rows) < 0.1, np.nan, rng.normal(0, 30, rows))),
        "s": pl.Series([f"{'Zü' * (k % 2)}{k % 7}" for k in rng.integers(0, 99, rows).tolist()], dtype=pl.String),
        "t": pl.Series(seconds.astype("M8[s]").astype("M8[us]")).dt.replace_time_zone("UTC"),
        "day": pl.Series(seconds.astype("M8[s]").astype("M8[us]")).dt.date(),
        "items": pl.Series(rng.integers(0, 9, (rows, 3)).tolist(), dtype=pl.List(pl.Int64)),
        "pair": pl.Series(rng.random((rows, 2)).tolist(), dtype=pl.Array(pl.Float32, 2)),
    }
    hole = pl.Series(holes)
    made = pl.DataFrame(columns)
    return made.with_columns(pl.when(~hole).then(pl.col("f", "b", "s", "t", "day")))


def pieces(made: pl.DataFrame, cuts: list[int]) -> list[pa.Table]:
    table = made.to_arrow()
    return [table.slice(begin, end - begin) for begin, end in pairwise(cuts)]


def parquet(made: pl.DataFrame, cuts: list[int], directory: Path) -> Any:
    return write_parquet(directory / "one.parquet", pieces(made, cuts))


def table(made: pl.DataFrame, cuts: list[int], directory: Path) -> Any:
    return pa.concat_tables(pieces(made, cuts))


FORMS: list[Frames] = [parquet, table]


def stored(values: pl.Series) -> tuple[int | bool | None, list[Any]]:
    """What a stash must hold of values, and the fill that it needs where some are missing."""
    if values.dtype.is_temporal():
        values = values.to_physical()
    if values.dtype.is_float():
        return None, values.fill_null(math.nan).to_list()
    fill = True if values.dtype == pl.Boolean else 7 if values.dtype.is_integer() else None
    return fill, (values if fill is None else values.fill_null(fill)).to_list()


def held(stash: ts.Stash, name: str) -> list[Any]:
    """The same of a stash, texts instead of their codes."""
    found: list[Any] = stash[name].tolist()
    if stash.about(name).kind != "category":
        return found
    names = stash.vocabulary(name)
    return [None if code < 0 else names[code] for code in found]


def check(source: Any, made: pl.DataFrame, expressions: list[pl.Expr]) -> None:
    """Each expression by pieces equals the same on all rows, to the bit."""
    expected = {f"x{k}": stored(made.select(x=expression)["x"]) for k, expression in enumerate(expressions)}
    columns: dict[str, Any] = {
        name: ts.column(expression, fill=fill) for expression, (name, (fill, _)) in zip(expressions, expected.items())
    }
    stash = ts.load(source, columns)
    for expression, (name, (_, values)) in zip(expressions, expected.items()):
        assert exact(held(stash, name), values), str(expression)


def doubled(value: int) -> int:
    """What polars would advise against, if it could look into it."""
    return int(f"{value}") * 2


# What is computed

BY_ROW: list[pl.Expr] = [
    a - b,
    a * a,
    a / b,
    a // b,
    a % b,
    -a,
    f + a,
    f.log1p(),
    f.abs().sqrt().exp(),
    f.sin() * f.cos(),
    f.round(1),
    f.round(2),
    f.clip(-1, 1),
    f.clip(a, 50),
    f.fill_null(0),
    f.fill_nan(None).fill_null(a),
    f.is_nan(),
    f.is_null(),
    f.cast(pl.Float32),
    a.cast(pl.Int8),
    a.cast(pl.Int8) * 100,
    a > b,
    (a > 0) & (b < 5),
    a.is_between(-3, 3),
    a.is_in([1, 2, 3]),
    a.is_in(pl.lit(pl.Series([-1, -2])).implode()),
    a.is_in(items),
    a.replace({1: 100}),
    b.replace_strict({1: 10}, default=a),
    a.hash(),
    a.pow(2),
    b.bitwise_count_ones(),
    a.map_elements(doubled, return_dtype=pl.Int64),
    a.map_batches(lambda values: values + 1, return_dtype=pl.Int64, is_elementwise=True),
    pl.when(a > 0).then(f).otherwise(b),
    pl.when(a > 0).then(b),
    pl.coalesce(f.fill_nan(None), a),
    pl.max_horizontal(a, b),
    pl.sum_horizontal(a, b, f),
    pl.mean_horizontal("a", "f"),
    pl.any_horizontal(a > 0, b > 3),
    pl.struct(a.alias("x"), b.alias("y")).struct.field("y"),
    pl.concat_str(s, a.cast(pl.String), separator="-"),
    pl.format("{}/{}", s, b),
    s.str.len_chars(),
    s.str.to_uppercase(),
    s.str.contains("Z"),
    s.str.extract(r"(\d)").cast(pl.Int64),
    s.str.to_integer(strict=False),
    s.cast(pl.Categorical),
    s == "Zü1",
    t.dt.hour(),
    t.dt.convert_time_zone("America/New_York").dt.hour(),
    t.dt.truncate("1h"),
    t.dt.offset_by("1mo"),
    t.dt.date(),
    t - t.dt.truncate("1d"),
    t.dt.epoch("s"),
    day.dt.weekday(),
    day + datetime.timedelta(days=1),
    pl.date(2000 + b, 1, b),
    items.list.sum(),
    items.list.get(1),
    items.list.eval(pl.element().rank()).list.max(),
    items.list.contains(a),
    pair.arr.get(0),
    pair.arr.sum(),
    pair * 2,
    pl.concat_arr(a, a * 2),
    (a + b) * (a + b),
]


@pytest.mark.parametrize("form", FORMS)
def test_expressions_are_those_of_the_whole_frame(form: Frames, tmp_path: Path) -> None:
    made = frame(500)
    check(form(made, [0, 1, 2, 64, 65, 65, 300, 500], tmp_path), made, BY_ROW)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_pieces_of_any_size_give_the_same_bits(data: st.DataObject, tmp_path: Path) -> None:
    """Extreme integers wrap around, and floats are of all kinds; vectorized functions have rests of all lengths."""
    rows = data.draw(st.integers(1, 80))
    whole_numbers = st.integers(-(2**63), 2**63 - 1)
    made = pl.DataFrame(
        {
            "a": data.draw(st.lists(whole_numbers, min_size=rows, max_size=rows)),
            "f": data.draw(st.lists(st.none() | st.floats(), min_size=rows, max_size=rows)),
            "s": data.draw(st.lists(st.none() | st.text("aü\x00 ", max_size=3), min_size=rows, max_size=rows)),
        },
        schema={"a": pl.Int64, "f": pl.Float64, "s": pl.String},
    )
    cuts = sorted({0, rows, *data.draw(st.lists(st.integers(0, rows), max_size=6))})
    expressions = [
        a * 3 + 1,
        a - f,
        f.log1p(),
        f.exp() + f.sin() * f.tanh(),
        f.pow(0.3),
        pl.sum_horizontal(a, f, f * 2),
        pl.mean_horizontal(f, f.sqrt(), a),
        f.cast(pl.Float32),
        s.str.len_bytes(),
        s.str.to_uppercase() + "!",
        a.hash(3),
        pl.when(f > 0).then(a),
    ]
    check(table(made, cuts, tmp_path), made, expressions)


def test_more_rows_than_are_decoded_at_a_time_in_threads_and_out_of_order(tmp_path: Path) -> None:
    """Row groups of several batches; each value says from which row of which entity it is."""
    rows, entities = 700_000, 7
    order = np.random.default_rng(0).permutation(rows)
    made = pl.DataFrame({"e": order % entities, "t": order // entities, "v": order.astype(np.float64)})
    path = parquet(made, [0, 300_000, 300_001, 650_000, rows], tmp_path)
    columns: dict[str, Any] = {
        "v": "v",
        "w": pl.col("v") * 2 + pl.col("e"),
        "x": ["v", -pl.col("v"), pl.col("t") + pl.col("e") * 1000],
    }
    stash = ts.load(path, columns, entity="e", time="t", static={"ten": pl.col("e") * 10})
    assert stash.time is not None
    entity = torch.repeat_interleave(torch.tensor(stash.entities), stash.offsets.diff())
    assert stash["v"].equal((stash.time * entities + entity).double())
    assert stash["w"].equal(stash["v"] * 2 + entity)
    assert stash["x"].equal(torch.stack([stash["v"], -stash["v"], (stash.time + entity * 1000).double()], 1))
    assert stash.static["ten"].tolist() == [entity * 10 for entity in stash.entities]


# What may be an input


def test_types_that_a_stash_cannot_hold_may_be_inputs(tmp_path: Path) -> None:
    source = pa.table(
        {
            "price": pa.array([Decimal("1.25"), None, Decimal("3.50")], pa.decimal128(9, 2)),
            "point": pa.array([{"x": 1, "y": 2.5}, {"x": 3, "y": 4.5}, {"x": 5, "y": None}]),
            "tags": pa.array([["a"], [], ["b", "c"]]),
            "raw": pa.array([b"", b"12", b"1"]),
        }
    )
    columns: dict[str, Any] = {
        "price": pl.col("price").cast(pl.Float64),
        "x": pl.col("point").struct.field("x"),
        "tags": pl.col("tags").list.len(),
        "raw": pl.col("raw").bin.size(),
    }
    for given_ in (source, write_parquet(tmp_path / "a.parquet", [source[:2], source[2:]]), pl.DataFrame(source)):
        stash = ts.load(given_, columns)
        assert stash["price"].nan_to_num(-1).tolist() == [1.25, -1, 3.5]
        assert [stash[name].tolist() for name in ("x", "tags", "raw")] == [[1, 3, 5], [1, 0, 2], [0, 2, 1]]


def test_bfloat16_and_lists_of_it_are_float32_in_an_expression() -> None:
    values = torch.tensor([1.5, float("nan"), -0.0, 3.25]).bfloat16()
    stash = ts.load(
        {"h": values, "hh": torch.stack([values, values * 2], 1)}, {"x": pl.col("h") + 1, "y": pl.col("hh")}
    )
    assert stash["x"].dtype == torch.float32
    assert stash["x"].nan_to_num(9).tolist() == [2.5, 9, 1, 4.25]
    assert stash["y"].dtype == torch.bfloat16
    stash = ts.load({"hh": torch.stack([values, values * 2], 1)}, {"y": pl.col("hh") * 2})
    assert stash["y"].shape == (4, 2)
    assert stash["y"][3].tolist() == [6.5, 13.0]


@pytest.mark.parametrize(
    "arrow", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_text_of_all_kinds_is_text_in_an_expression(arrow: pa.DataType, tmp_path: Path) -> None:
    source = pa.table({"s": pa.array(["b", None, "a", "b"]).cast(arrow)})
    for given_ in (source, write_parquet(tmp_path / "a.parquet", [source[:1], source[1:]])):
        stash = ts.load(given_, {"x": s + "!", "less": ts.column(s < "b", fill=False)})
        assert stash.vocabulary("x") == ["a!", "b!"]
        assert stash["x"].tolist() == [1, -1, 0, 1]
        assert stash["less"].tolist() == [False, False, True, False]


def test_a_dictionary_of_string_views_with_a_null_in_it() -> None:
    names = pa.array(["x", None, "y"], pa.string_view())
    source = pa.table({"s": pa.DictionaryArray.from_arrays(pa.array([2, 1, 0, None], pa.int8()), names)})
    stash = ts.load(source, {"x": s.str.to_uppercase()})
    assert (stash["x"].tolist(), stash.vocabulary("x")) == ([1, -1, 0, -1], ["X", "Y"])


def test_an_enum_keeps_its_order(tmp_path: Path) -> None:
    """In Parquet its pieces have dictionaries in the order of their rows, and as text "large" is before "small"."""
    made = pl.DataFrame(
        {"size": ["large", "medium", "small", None]}, schema={"size": pl.Enum(["small", "medium", "large"])}
    )
    size = pl.col("size")
    made.write_parquet(tmp_path / "polars.parquet", row_group_size=1)
    for given_ in (made, made.to_arrow(), tmp_path / "polars.parquet", parquet(made, [0, 1, 2, 4], tmp_path)):
        columns: dict[str, Any] = {
            "big": ts.column(size >= "medium", fill=False),
            "code": ts.column(size.to_physical(), fill=9),
        }
        stash = ts.load(given_, columns)
        assert stash["big"].tolist() == [True, True, False, False]
        assert stash["code"].tolist() == [2, 1, 0, 9]


def test_keys_of_paths_columns_of_a_filter_entity_and_time_are_inputs(tmp_path: Path) -> None:
    for year in (2023, 2024):
        (tmp_path / f"year={year}" / "kind=odd").mkdir(parents=True)
        piece = pa.table({"e": ["B", "A"], "t": [year * 10, year * 10 + 1], "v": [year, 0]})
        write_parquet(tmp_path / f"year={year}" / "kind=odd" / "0.parquet", [piece[:1], piece[1:]])
    columns: dict[str, Any] = {
        "since": pl.col("t") - pl.col("year") * 10,
        "who": pl.col("e") + pl.col("kind"),
        "inverse": 1 / pl.col("v"),
    }
    stash = ts.load(tmp_path, columns, entity="e", time="t", filter=[("v", ">", 0)])
    assert (stash["since"].tolist(), stash["inverse"].tolist()) == ([0, 0], [1 / 2023, 1 / 2024])
    assert stash.vocabulary("who") == ["Bodd"]


def test_rows_that_a_filter_leaves_out_are_not_computed() -> None:
    source = {"s": ["1", "x", "3"]}
    assert ts.load(source, {"n": s.cast(pl.Int64)}, filter=[("s", "!=", "x")])["n"].tolist() == [1, 3]


def test_frames_of_pandas_datasets_and_mappings() -> None:
    columns: dict[str, Any] = {"x": a + pl.col("level"), "y": pl.col("m") * 2}
    values = pd.DataFrame({"a": [1.5, 2.5], "m": [1, 2], "unused": [{}, {}]}, index=pd.Index([10, 20], name="level"))
    stash = ts.load(values, columns)
    assert (stash["x"].tolist(), stash["y"].tolist()) == ([11.5, 22.5], [2, 4])
    mapping = {"a": torch.tensor([1.5, 2.5]), "level": np.ma.MaskedArray([10, 20], [False, True]), "m": np.eye(2)}
    stash = ts.load(mapping, columns)
    assert exact(stash["x"].tolist(), [11.5, math.nan])
    assert stash["y"].tolist() == [[2, 0], [0, 2]]


# How they are written


def test_an_expression_stands_wherever_the_name_of_a_column_does() -> None:
    source = {"a": [1, 2, None], "b": [2.0, math.nan, 4.0], "g": ["u", "v", "u"]}
    columns: dict[str, Any] = {
        "plain": b + 1,
        "pack": ["b", a * 2, b * a],
        "column": ts.column(a + 1, dtype=torch.float16, fill=-1),
        "packed": ts.column([a, b - 1], dtype=torch.bfloat16),
        "mask": ts.is_valid(a * b),
        "masks": ts.is_valid(["a", b * 1]),
        "same": pl.col("b"),
        "alias": (b * 2).alias("ignored"),
        "text": pl.col("g") + "?",
    }
    stash = ts.load(source, columns)
    assert list(stash) == list(columns)
    assert exact(stash["plain"].tolist(), [3.0, math.nan, 5.0])
    assert exact(stash["pack"].tolist(), [[2.0, 2.0, 2.0], [math.nan, 4.0, math.nan], [4.0, math.nan, math.nan]])
    assert (stash["column"].dtype, stash["column"].tolist()) == (torch.float16, [2, 3, -1])
    assert exact(stash["packed"].tolist(), [[1.0, 1.0], [2.0, math.nan], [math.nan, 3.0]])
    assert stash["packed"].dtype == torch.bfloat16
    assert stash["mask"].tolist() == [True, False, False]
    assert stash["masks"].tolist() == [[True, True], [True, False], [False, True]]
    assert stash["same"].isnan().tolist() == [False, True, False]
    assert exact(stash["alias"].tolist(), [4.0, math.nan, 8.0])
    assert stash.vocabulary("text") == ["u?", "v?"]
    halves = ts.load(source, {"x": b + 1, "y": ts.column(a * 1, fill=0)}, dtype=torch.float16)
    assert (halves["x"].dtype, halves["y"].dtype) == (torch.float16, torch.int64)
    single = ts.load(source, {"x": "b"}, entity="g", static={"upper": pl.col("g").str.to_uppercase()})
    assert single.static["upper"].tolist() == [0, 1]
    everything = ts.load(source, entity="g", static={"twice": pl.col("g") + pl.col("g")}, columns=["b"])
    assert everything.vocabulary("twice") == ["uu", "vv"]


def test_all_columns_are_loaded_beside_a_static_expression() -> None:
    stash = ts.load({"g": ["u", "v"], "n": [1, 2]}, entity="g", static={"m": pl.col("n") + 1})
    assert (list(stash), stash.static["m"].tolist()) == (["n"], [2, 3])


def test_in_a_list_an_expression_brings_its_name() -> None:
    source = {"a": [1], "b": [2]}
    stash = ts.load(
        source, ["b", pl.col("a"), (a + b).alias("sum"), ts.column((a - b).alias("a - b"), dtype=torch.int8)]
    )
    assert {name: tensor.tolist() for name, tensor in stash.items()} == {"b": [2], "a": [1], "sum": [3], "a - b": [-1]}
    for unnamed in (a + b, (a * 2).name.keep()):
        with pytest.raises(ValueError, match="An expression in a list needs a name"):
            ts.load(source, [unnamed])
    with pytest.raises(ts.errors.SchemaError, match=r"Column names must be unique; \['a'\]"):
        ts.load(source, ["a", (a + b).alias("a")])


def test_an_alias_of_a_column_is_another_name() -> None:
    source = {"a": [1, 2], "b": [3, 4], "s": ["x", "y"]}
    assert {**ts.load(source, [a.alias("b")])}["b"].tolist() == [1, 2]
    columns: dict[str, Any] = {
        "one": a.alias("q"),
        "pack": [b, a.alias("b")],
        "other": ts.column(b.alias("a"), dtype=torch.float32),
        "valid_s": ts.is_valid(s.alias("q")),
        "hash": ts.hashed(a.alias("q"), 9),
        "same": ts.hashed("a", 9),
    }
    stash = ts.load(source, columns)
    assert (stash["one"].tolist(), stash.about("one").members) == ([1, 2], ("a",))
    assert stash["pack"].tolist() == [[3, 1], [4, 2]]
    assert (stash["other"].dtype, stash["other"].tolist()) == (torch.float32, [3.0, 4.0])
    assert stash["valid_s"].tolist() == [True, True]
    assert torch.equal(stash["hash"], stash["same"])
    assert ts.plan(source, columns).planned.derived == {}


def test_keys_are_named_not_computed() -> None:
    wrong: list[Any] = [t, ["t"]]
    for time in wrong:
        with pytest.raises(TypeError, match="time must be the name of a column"):
            ts.load({"t": [1], "x": [2]}, ["x"], time=time)


def test_expressions_of_one_text_are_told_apart() -> None:
    """Polars writes neither the digits of a rounding nor the values of a series."""
    source = {"f": [1.256, 2.5]}
    columns: dict[str, Any] = {
        "one": f.round(1),
        "two": f.round(2),
        "again": f.round(1),
        "pack": [f.round(2), f.round(0)],
    }
    plan = ts.plan(source, columns)
    assert [*plan.planned.derived.values()] == [("f",)] * 3
    stash = ts.load(source, columns)
    assert stash["one"].tolist() == stash["again"].tolist() == [1.3, 2.5]
    assert stash["two"].tolist() == [1.26, 2.5]
    assert stash["pack"].tolist() == [[1.26, 1.0], [2.5, 2.0]]


# What it costs


def test_inputs_are_read_and_not_kept_and_nothing_else_is_read(tmp_path: Path) -> None:
    """The column that is no input holds text where its pages are: whoever decoded it would fail."""
    rng = np.random.default_rng(0)
    source = pa.table({name: rng.random(5000) for name in ("ask", "bid", "other")})
    path = write_parquet(tmp_path / "one.parquet", [source[:3000], source[3000:]])
    data = bytearray(path.read_bytes())
    meta = pq.read_metadata(path)
    for group in range(2):
        chunk = meta.row_group(group).column(2)
        begin = min(chunk.data_page_offset, chunk.dictionary_page_offset) + chunk.total_compressed_size // 2
        data[begin : begin + 100] = bytes(100)
    path.write_bytes(data)
    columns: dict[str, Any] = {"spread": pl.col("ask") - pl.col("bid")}
    plan, stash = ts.plan(path, columns), ts.load(path, columns)
    assert stash["spread"].numpy().tobytes() == (source["ask"].to_numpy() - source["bid"].to_numpy()).tobytes()
    assert (plan.nbytes, stash.nbytes) == (40_960, 40_000)
    assert (plan.planned.not_kept, plan.skipped) == (("ask", "bid"), ("other",))
    with pytest.raises(ts.errors.SourceError, match=r"cannot be decoded: .*\. Write the file again\.\Z"):
        ts.load(path, {"x": pl.col("other") + 1})


def test_only_inputs_of_a_mapping_are_converted() -> None:
    source = {"a": [1, 2], "b": [object(), object()]}
    assert ts.load(source, {"x": a + 1})["x"].tolist() == [2, 3]
    with pytest.raises(
        ts.errors.SchemaError, match=r"\AA column must be an array or a list of values of one type; 'b' is not: "
    ):
        ts.load(source, {"x": a + b})


def test_a_plan_says_what_is_computed_and_what_is_not_kept(tmp_path: Path) -> None:
    source = pa.table({"ask": [3, 4], "bid": [1.5, 2.5], "size": [1, 2], "z": [0, 0]})
    path = write_parquet(tmp_path / "one.parquet", [source])
    columns: dict[str, Any] = {"spread": pl.col("ask") - pl.col("bid"), "x": ["bid", pl.col("size").log1p()]}
    lines = repr(ts.plan(path, columns)).splitlines()
    assert lines[1].split() == ["column", "from", "source", "kind", "dtype", "MB"]
    assert [line.split()[0] for line in lines[2:4]] == ["spread", "x"]
    assert 'col("ask")' in lines[2]
    assert "log1p" in lines[3]
    assert lines[-2:] == ["read, not kept: ask, size", "skipped: z"]


def test_a_long_expression_has_a_short_name() -> None:
    long = pl.sum_horizontal(*[pl.col("a") * k for k in range(100)])
    (name,) = ts.plan({"a": [1]}, {"x": long}).planned.derived
    assert len(name) == 80
    assert name.endswith("…")
    assert ts.load({"a": [1]}, {"x": long})["x"].tolist() == [4950]


# What is refused

BEYOND_ROWS: list[pl.Expr] = [
    a.shift(1),
    a + a.shift(-1),
    a.diff().abs(),
    a.pct_change(),
    f.rolling_mean(3),
    f.rolling_mean_by("t", "2h"),
    f.rolling_map(lambda values: values.sum(), 2),
    a.rank(),
    a.sum().over("b"),
    (a + b).over("s"),
    a.cum_sum(),
    a.cum_max() - a,
    a.cumulative_eval(pl.element().sum()),
    a.mean(),
    a - a.mean(),
    (a - a.min()) / (a.max() - a.min()),
    a.clip(a.quantile(0.1), 9),
    pl.when(a > a.median()).then(1).otherwise(b),
    pl.sum_horizontal(a, b.max()),
    pl.coalesce(f, f.first()),
    pl.struct(a, b.cum_sum()).struct.field("b"),
    pl.format("{}", a.last()),
    a.sort(),
    a.reverse(),
    a.arg_sort(),
    a.unique(),
    a.is_duplicated(),
    a.is_first_distinct(),
    a.mode(),
    a.value_counts(),
    a.rle_id(),
    a.peak_max(),
    f.fill_null(strategy="forward"),
    f.fill_null(strategy="mean"),
    f.forward_fill(),
    f.fill_null(f.mean()),
    f.interpolate(),
    f.interpolate_by("a"),
    f.ewm_mean(alpha=0.5),
    f.ewm_mean_by("t", half_life="1h"),
    a.sample(3),
    a.shuffle(seed=1),
    a.filter(b > 2),
    a.drop_nulls(),
    a.head(2),
    a.gather([0]),
    a.get(0),
    a.implode(),
    items.explode(),
    a + pl.len(),
    a + pl.int_range(pl.len()),
    a + pl.lit(pl.Series([1, 2])),
    a.search_sorted(b),
    a.append(b),
    a.dot(b),
    pl.corr("a", "b"),
    pl.fold(pl.lit(0), lambda one, other: one + other, [a, b]),
    a.sum().rolling("t", period="2h"),
    a.map_batches(lambda values: values, return_dtype=pl.Int64),
    s.str.to_datetime(),  # guesses the format from the first rows
    a + pl.lit(2).sum(),
]


def test_what_depends_on_other_rows_is_refused() -> None:
    for expression in BEYOND_ROWS:
        # not every release of polars tells that the column of times of a rolling window is an input
        with pytest.raises(ts.errors.SchemaError, match=r"needs other rows|unable to find column"):
            ts.load(frame(9), {"x": expression})
    with pytest.raises(ts.errors.SchemaError, match="needs other rows"):
        repr(ts.plan(frame(9), {"x": a.shift(1)}))


def test_the_part_that_needs_other_rows_is_named_with_the_line_to_write_instead() -> None:
    for expression, part in (
        ((a - a.min()) / (a.max() - a.min()), a.min()),
        (pl.when(a > a.median()).then(1).otherwise(b), a.median()),
        ((a + b).over("s"), (a + b).over("s")),
        (pl.struct(a, b.cum_sum()).struct.field("b"), b.cum_sum()),
    ):
        message = f"{part} needs other rows ... pl.scan_parquet(path).with_columns(lag=pl.col('y').shift(1).over("
        with pytest.raises(ts.errors.SchemaError, match=like(message)):
            ts.load(frame(9), {"x": expression})


def test_what_polars_says_of_single_parts_is_no_test() -> None:
    """The premise of the check by what polars asks of a source; if it no longer holds, a shorter way may do."""
    schema = pl.Schema({"a": pl.Int64})
    assert (a - a.mean()).meta.is_row_separable()
    assert not is_elementwise(a - a.mean(), schema)
    assert is_elementwise(a - 1, schema)


def test_membership_in_another_column_is_refused() -> None:
    """The other column would be the values of one piece."""
    with (
        pytest.raises(
            ts.errors.SchemaError,
            match="needs other rows",
        ),
        pytest.deprecated_call(),
    ):
        ts.load(frame(9), {"x": a.is_in(b.cast(pl.Int64))})
    assert ts.load(frame(9), {"x": a.is_in(items)})["x"].dtype == torch.bool


def test_a_format_that_is_told_is_elementwise() -> None:
    assert ts.load({"s": ["2024-01-01"]}, {"x": s.str.to_date("%Y-%m-%d")})["x"].tolist() == [19723]


@pytest.mark.parametrize(
    "expression",
    [
        items.list.sample(1).list.first(),
        items.list.sample(1, seed=3).list.sum(),
        items.list.eval(pl.element().shuffle()).list.first(),
        items.list.eval(pl.element().rank("random")).list.first(),
    ],
)
def test_chance_is_refused(expression: pl.Expr) -> None:
    with pytest.raises(
        ts.errors.SchemaError,
        match="is random",
    ):
        ts.load(frame(9), {"x": expression})


def test_codes_of_a_categorical_are_refused_and_its_text_is_not() -> None:
    source = {"s": ["b", "a", "b"]}
    with pytest.raises(ts.errors.SchemaError, match=r"The codes of a pl.Categorical depend on what was read before"):
        ts.load(source, {"x": s.cast(pl.Categorical).to_physical()})
    assert ts.load(source, {"x": s.cast(pl.Categorical).alias("y")}).vocabulary("x") == ["a", "b"]
    assert ts.load(source, {"x": s.cast(pl.Enum(["a", "b"])).to_physical()})["x"].tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    "expression",
    [
        pl.all(),
        pl.col("a", "b") + 1,
        pl.col("^a.*$"),
        pl.selectors.numeric() * 2,
        pl.sum_horizontal(pl.all()),
        pl.col("point").struct.unnest(),
    ],
)
def test_expressions_of_several_columns_are_refused(expression: pl.Expr) -> None:
    with pytest.raises(ValueError, match="may stand for several"):
        ts.load({"a": [1], "b": [2]}, {"x": expression})


def test_constants_are_refused() -> None:
    for expression in (pl.lit(3), pl.lit("z") + "y", pl.len()):
        with pytest.raises(ValueError, match="An expression must name a column of the source"):
            ts.load({"a": [1]}, {"x": expression})


def test_what_a_stash_cannot_hold_is_refused() -> None:
    for expression, kind in (
        (pl.struct("a", "b"), r"Struct\({'a': Int64, 'b': Int64}\)"),
        (pl.concat_list("a", "b"), r"List\(Int64\)"),
        (a.cast(pl.Int128), "Int128"),
        (a.map_elements(doubled, return_dtype=pl.Object), "Object"),
    ):
        with pytest.raises(ts.errors.SchemaError, match=f"A stash holds numbers, .* gives {kind}"):
            ts.load({"a": [1], "b": [2]}, {"x": expression})
    with pytest.raises(ts.errors.SchemaError, match="A pack holds plain numbers"):
        ts.load({"a": [1], "s": ["x"]}, {"x": ["a", s.str.to_uppercase()]})


def test_helpful_errors(tmp_path: Path) -> None:
    source = pa.table({"ask": [3, 4, 5], "s": ["1", "x", "3"], "t": [1, 2, 3]})
    path = write_parquet(tmp_path / "one.parquet", [source[:1], source[1:]])
    ask = pl.col("ask")

    def refused(kind: type[Exception], fragment: str, columns: Any, given_: Any = path, **options: Any) -> None:
        with pytest.raises(kind, match=fragment):
            ts.load(given_, columns, **options)

    refused(ts.errors.ColumnError, "has no column 'asq'; did you mean 'ask' or 's'", {"x": pl.col("asq") + 1})
    refused(ts.errors.SchemaError, "An expression must suit its columns; .* where 's' is string", {"x": s + 1})
    refused(
        ts.errors.DataError,
        r"An expression must have a value in every row; .* fails in .*one\.parquet, row group 1: conversion",
        {"x": s.cast(pl.Int64)},
    )
    refused(ts.errors.DataError, "has 1 null in .*row group 0", {"x": ask // 0}, filter=[("t", "==", 1)])
    refused(ts.errors.DataError, "A cast must keep the values; 300", {"x": ts.column(ask * 100, dtype=torch.int8)})
    refused(ts.errors.SchemaError, "has the name of the entity or time column", {"t": pl.col("t") * 2}, time="t")
    name = '[(col("ask")) * (dyn int: 2)]'  # as polars prints the expression
    refused(
        ts.errors.SchemaError, "An expression is named by its text", {"x": ask * 2, "y": name}, {"ask": [1], name: [3]}
    )
    refused(
        ts.errors.SchemaError,
        "unable to parse time zone",
        {"x": t.dt.hour()},
        {"t": pa.array([0], pa.timestamp("s", "+05:30"))},
    )
    for wrong in (pl.Series([1]), 3, {"a": pl.col("a")}, [[ask]], a.is_null):
        refused(TypeError, "A column must be a name", {"x": wrong})
        with pytest.raises(TypeError, match="A column must be a name"):
            ts.column(wrong)  # type: ignore[arg-type]


def test_functions_that_fail_or_break_their_word() -> None:
    def fail(value: int) -> int:
        raise KeyError(value)

    with pytest.raises(ts.errors.DataError, match=r"fails in the mapping: 7\. Make it null"):
        ts.load({"a": [7]}, {"x": a.map_elements(fail, return_dtype=pl.Int64)})
    told = a.map_batches(lambda values: values, return_dtype=pl.Float64, is_elementwise=True)
    short = a.map_batches(lambda values: values.head(2), return_dtype=pl.Int64, is_elementwise=True)
    for expression in (told, short):
        with pytest.raises(ts.errors.DataError, match=r"must have a value in every row; .* fails in the mapping"):
            ts.load({"a": [7, 8, 9]}, {"x": expression})


# Shared


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
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


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
