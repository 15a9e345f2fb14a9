"""Columns that are computed while a source is read, beside the same expression on the whole frame at once."""

import datetime
import math
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
from tests.oracle_load import exact, write_parquet
from tests.sources.expressions import a, b, day, doubled, f, frame, items, pair, s, t

Frames = Callable[[pl.DataFrame, list[int], Path], Any]


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


def test_texts_in_lists_and_structs_of_some_rows_are_inputs(tmp_path: Path) -> None:
    """polars has them as views, of which Arrow takes no rows."""
    texts = ["a", "a text too long to be inline", None]
    frame = pl.DataFrame({"n": [1, 2, 3], "wind": [{"from": {"name": text}} for text in texts]}).with_columns(
        list=pl.Series([[text] for text in texts]),
        pair=pl.Series([[text] * 2 for text in texts], dtype=pl.Array(str, 2)),
    )
    frame.write_ipc(tmp_path / "0.arrow", compat_level=pl.CompatLevel.newest())
    name, list_, pair = pl.col("wind").struct.field("from").struct.field("name"), pl.col("list"), pl.col("pair")
    for source in (frame, frame.lazy(), tmp_path):
        for formula in (name, list_.list.first(), pair.arr.last()):
            stash = ts.load(source, {"x": formula}, filter=[("n", ">", 1)])
            assert [stash.vocabulary("x")[code] if code >= 0 else None for code in stash["x"].tolist()] == texts[1:]


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
    with pytest.raises(ts.errors.SchemaError, match=r"Column names must be unique, got 'a' more than once"):
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
    assert ts.plan(source, columns).request.formulas == {}


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
    assert [formula.inputs(None) for formula in plan.request.formulas.values()] == [("f",)] * 3
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
    assert plan.skipped == ("other",)
    with pytest.raises(ts.errors.SourceError, match=r"cannot be decoded: .*\. Write the file again\.\Z"):
        ts.load(path, {"x": pl.col("other") + 1})


def test_only_inputs_of_a_mapping_are_converted() -> None:
    source = {"a": [1, 2], "b": [object(), object()]}
    assert ts.load(source, {"x": a + 1})["x"].tolist() == [2, 3]
    with pytest.raises(ts.errors.SchemaError, match=r"column 'b' of the mapping is a list, which cannot be conv"):
        ts.load(source, {"x": a + b})


def test_a_plan_says_what_is_computed(tmp_path: Path) -> None:
    source = pa.table({"ask": [3, 4], "bid": [1.5, 2.5], "size": [1, 2], "z": [0, 0]})
    path = write_parquet(tmp_path / "one.parquet", [source])
    columns: dict[str, Any] = {"spread": pl.col("ask") - pl.col("bid"), "x": ["bid", pl.col("size").log1p()]}
    lines = repr(ts.plan(path, columns)).splitlines()
    assert lines[1].split() == ["column", "source", "kind", "dtype", "MB"]
    assert [line.split()[0] for line in lines[2:5]] == ["spread", "x", "from:"]
    assert 'spread = [(col("ask"))' in lines[4]
    assert "log1p" in lines[4]
    assert lines[-1] == "skipped: z"


def test_a_long_expression_has_a_short_name() -> None:
    long = pl.sum_horizontal(*[pl.col("a") * k for k in range(100)])
    (name,) = ts.plan({"a": [1]}, {"x": long}).request.formulas
    assert len(name) == 80
    assert name.endswith("…")
    assert ts.load({"a": [1]}, {"x": long})["x"].tolist() == [4950]
