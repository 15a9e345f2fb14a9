"""`like=`: what a load takes over from another stash, and `unknown=`: what becomes of what that stash lacks."""

import base64
import json
import os
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests.cases_load import cases
from tests.oracle_load import bits, check, like, source_of, write_parquet
from tests.segments.test_headers import signed

HOURS = pl.datetime_range(pl.datetime(2024, 1, 1), pl.datetime(2024, 1, 2), "1h", eager=True)

# every way to ask for a column
COLUMNS: dict[str, Any] = {
    "plain": "x",
    "half": ts.column("x", dtype=torch.bfloat16, fill=0.5),
    "count": ts.column("n", dtype=torch.int16, empty=-1),
    "as_float": ts.column("n", dtype=torch.float32),
    "twice": pl.col("x") * 2,
    "pack": ["x", "n"],
    "single": ["x"],
    "computed": [pl.col("x") + pl.col("n"), "x"],
    "list": "pair",
    "shop": ts.column("shop", fill="none"),
    "given": ts.column("shop", vocabulary=["q", "p"]),
    "number": ts.column("n", vocabulary=[*range(9)], fill=3),
    "hashed": ts.hashed("shop", 7),
    "hour": ts.calendar("hour", "dayofyear"),
    "phase": ts.calendar("hour", cyclic=True),
    "scaled": ts.calendar("month", scaled=True),
    "ok": ts.is_valid("x"),
    "oks": ts.is_valid(["x", pl.col("n") + 1]),
    "when": "at",
    "speed": "wind.speed",
    "e": "e",
}


def table(entities: str = "ab") -> pl.DataFrame:
    count = len(HOURS)
    rng = np.random.default_rng(3)
    parts = [
        {
            "e": [name] * count,
            "t": HOURS,
            "x": rng.normal(size=count),
            "n": np.arange(count),
            "shop": rng.choice([*"pq"], count),
            "at": HOURS,
            "zone": [f"zone {name}"] * count,
            "size": [float(k)] * count,
        }
        for k, name in enumerate(entities)
    ]
    return pl.concat(map(pl.DataFrame, parts)).with_columns(
        x=pl.when(pl.col("n") % 5 == 1).then(None).otherwise(pl.col("x")),
        shop=pl.when(pl.col("n") % 7 == 1).then(None).otherwise(pl.col("shop")),
        pair=pl.concat_arr("n", "n"),
        wind=pl.struct(speed=pl.col("n") * 1.5),
    )


def load(frame: Any, columns: Any = COLUMNS, **options: Any) -> ts.Stash:
    return ts.load(frame, columns, **{"entity": "e", "time": "t", "static": ["zone", "size"], **options})


@pytest.fixture(scope="module")
def whole() -> ts.Stash:
    return load(table())


@pytest.fixture
def path(whole: ts.Stash, tmp_path: Path) -> Path:
    whole.without_rows().save(tmp_path / "reference.safetensors")
    return tmp_path / "reference.safetensors"


@pytest.mark.parametrize("form", ["table", "polars", "parquet"])
@settings(max_examples=60)
@given(data=st.data())
def test_the_same_rows_make_the_same_stash(
    form: Any, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Of every type, with nothing but the reference."""
    case = data.draw(cases(form))
    source = source_of(form, case, tmp_path_factory.mktemp("source"))
    stash = case.load(source)
    again = ts.load(source, like=stash.without_rows())
    check(again, case)
    assert bits(again) == bits(stash)
    assert [again.about(name) for name in again] == [stash.about(name) for name in stash]


@pytest.mark.parametrize("dtype", [None, torch.float16])
def test_a_saved_reference_takes_the_place_of_all_arguments(dtype: torch.dtype | None, tmp_path: Path) -> None:
    stash, path = load(table(), dtype=dtype), tmp_path / "reference.safetensors"
    stash.without_rows().save(path)
    for reference in (path, str(path), ts.open(path), stash):
        again = ts.load(table(), like=reference)
        assert bits(again) == bits(stash)
        assert [again.about(name) for name in again] == [stash.about(name) for name in stash]
        assert (again.entity_names, again.time_name, again.clock) == (("e",), "t", stash.clock)


def test_later_references_say_the_same(path: Path) -> None:
    again = ts.load(table(), like=path)
    assert bits(ts.load(table(), like=again.without_rows())) == bits(again)


def test_only_what_is_left_out_is_taken_over(whole: ts.Stash) -> None:
    frame = table().rename({"e": "station", "t": "moment"})
    frame = frame.with_columns(e=pl.col("station"), t=pl.col("moment"))
    stash = ts.load(frame, ["n"], like=whole)
    assert ([*stash], [*stash.static], stash.time_name) == (["n"], ["zone", "size"], "t")
    assert [*ts.load(frame, ["n"], static=[], like=whole).static] == []
    stash = ts.load(frame, {"n": "n"}, entity="station", time="moment", static=["size"], like=whole)
    assert (stash.entity_names, stash.time_name, [*stash.static]) == (("station",), "moment", ["size"])
    assert [*ts.load(table(), {"size": "size"}, like=whole).static] == ["zone"]  # the name is another column's here


def test_the_floating_type_is_taken_over_where_nothing_chooses_one(whole: ts.Stash) -> None:
    small = load(table(), {"x": "x", "y": "x", "n": "n"}, dtype=torch.float32)
    columns: dict[str, Any] = {"x": "x", "y": ts.column("x", dtype=torch.float16), "n": "n", "new": "x"}
    stash = load(table(), columns, like=small)
    types = {name: tensor.dtype for name, tensor in stash.items()}
    assert types == {"x": torch.float32, "y": torch.float16, "n": torch.int64, "new": torch.float64}
    assert stash.static["size"].dtype == torch.float32
    assert load(table(), columns, like=small, dtype=torch.float64)["x"].dtype == torch.float64
    assert ts.load(table(), like=small, dtype=torch.float64)["x"].dtype == torch.float64


def test_known_times_are_taken_over() -> None:
    frame = table().with_columns(issued=pl.col("t").dt.offset_by("-6h"))
    for known in ("issued", pl.col("issued") + pl.duration(hours=5), (pl.col("t") - pl.duration(hours=1)).alias("out")):
        stash = load(frame, {"x": "x"}, known=known)
        again = ts.load(frame, like=stash.without_rows())
        assert bits(again) == bits(stash)
        assert (again.known_name, again.known_clock, again.known_range) == (
            stash.known_name,
            stash.known_clock,
            stash.known_range,
        )
        assert again.known is not None
        assert stash.known is not None
        assert torch.equal(again.known, stash.known)
        assert load(frame, {"x": "x"}, like=stash).known is None  # time= is given here


# static columns


def test_static_columns_have_the_values_of_the_reference(path: Path, whole: ts.Stash) -> None:
    """Neither the rows nor a table have them."""
    rows = table("cab").drop("zone", "size")
    rows = rows.filter(pl.col("e") != "a")
    stash = ts.load(rows, like=path)
    assert stash.entities == ["a", "b", "c"]
    assert stash.vocabulary("zone") == whole.vocabulary("zone") == ["zone a", "zone b"]
    assert stash.static["zone"].tolist() == [0, 1, -1]
    assert stash.static["size"].nan_to_num(-1).tolist() == [0.0, 1.0, -1.0]
    assert (stash.about("zone").missing, stash.about("size").missing) == (1, 1)
    assert (stash.about("size").low, stash.about("size").high) == (0.0, 1.0)
    assert bits(ts.load(rows, like=stash.without_rows())) == bits(stash) | {
        f"about {name}": bits(stash)[f"about {name}"] for name in ("zone", "size")
    }


STATIC: dict[str, Any] = {
    "given": ts.column("zone", vocabulary=["zone b"]),
    "filled": ts.column("zone", fill="none"),
    "bucket": ts.hashed("zone", 5),
    "ok": ts.is_valid("size"),
    "minus": ts.column("size", fill=-3.0),
    "half": ts.column("size", dtype=torch.bfloat16),
    "both": ts.column(["size", "size"], dtype=torch.float32),
}


def test_static_columns_of_every_kind_are_carried(whole: ts.Stash) -> None:
    first = load(table(), ["x"], static=STATIC)
    stash = ts.load(table("abc").drop("size", "zone"), like=first.without_rows())
    expected = load(
        table("abc").with_columns(
            zone=pl.when(pl.col("e") != "c").then("zone"), size=pl.when(pl.col("e") != "c").then("size")
        ),
        ["x"],
        static=STATIC,
        like=first,
    )
    for name in STATIC:
        one, two = stash.static[name], expected.static[name]
        assert (one.dtype, one.shape) == (two.dtype, two.shape)
        assert one.nan_to_num(-9).tolist() == two.nan_to_num(-9).tolist(), name
        about, other = stash.about(name), expected.about(name)
        assert (about.missing, about.low, about.high, about.kind) == (other.missing, other.low, other.high, other.kind)
    assert stash.vocabulary("filled") == expected.vocabulary("filled")


def test_a_static_column_without_a_missing_value_needs_known_entities() -> None:
    first = ts.load(
        table().with_columns(rank=pl.col("size").cast(pl.Int64)), ["x"], entity="e", time="t", static=["rank"]
    )
    with pytest.raises(ts.errors.DataError, match=like("such as 'c' ... 'rank' is torch.int64 ... unknown='drop'")):
        ts.load(table("bc"), like=first)
    with pytest.warns(UserWarning, match=like("25 rows of 1 entity")):
        assert ts.load(table("bc"), like=first, unknown="drop").static["rank"].tolist() == [0, 1]


# what does not fit


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda frame: frame.drop("x"), "no column 'x'"),
        (lambda frame: frame.drop("t"), "no column 't'"),
        (lambda frame: frame.drop("e"), "no column 'e'"),
        (lambda frame: frame.with_columns(at=pl.col("n")), "kind of 'when' is number ... and timestamp in like="),
        (lambda frame: frame.with_columns(at=pl.col("at").dt.cast_time_unit("ms")), "unit of 'when' is ms ... us"),
        (lambda frame: frame.with_columns(at=pl.col("at").dt.replace_time_zone("UTC")), "zone of 'when' is UTC"),
        (lambda frame: frame.with_columns(pair=pl.concat_arr("n", "n", "n")), "shape of 'list' is (3,) ... (2,)"),
        (lambda frame: frame.with_columns(pair=pl.concat_arr("x", "x")), "'pair'"),
        (
            lambda frame: frame.with_columns(t=pl.col("t").dt.cast_time_unit("ns")),
            "unit of 't' is ns ... and us in like=",
        ),
        (
            lambda frame: frame.with_columns(t=pl.col("t").dt.replace_time_zone("UTC")),
            "zone of 't' is UTC ... and None",
        ),
        (lambda frame: frame.with_columns(n=pl.col("n") + 0.5), "'n'"),
        (lambda frame: frame.with_columns(e=pl.col("n")), "kind of 'e' is number"),
    ],
    ids=range(12),
)
def test_a_source_of_other_columns_is_told(
    change: Callable[[pl.DataFrame], pl.DataFrame], said: str, path: Path
) -> None:
    frame = table()
    kinds = (ts.errors.SchemaError, ts.errors.ColumnError, ts.errors.DataError)
    with pytest.raises(kinds, match=like(said)):
        ts.load(change(frame), like=path)


def test_a_wrong_reference_is_told(tmp_path: Path, whole: ts.Stash) -> None:
    (tmp_path / "text.csv").write_text("a,b\n1,2\n")
    for wrong in (tmp_path / "text.csv", tmp_path / "none.safetensors"):
        with pytest.raises(ts.errors.SegmentError, match=like(str(wrong.name))):
            ts.load(table(), like=wrong)
    number: Any = 7
    with pytest.raises(TypeError, match=like("a stash, or the path of a saved one, got an int")):
        ts.load(table(), like=number)
    scaled = ts.Scaler.fit(load(table(), ["x"]), ["x"]).transform(load(table(), ["x"]))
    with pytest.raises(ValueError, match=like("'x' of like= is scaled")):
        ts.load(table(), like=scaled)
    assert load(table(), ["x"], like=scaled).entities == ["a", "b"]
    with pytest.raises(ValueError, match=like("like= has ['e'] ... names ['e', 'shop']")):
        ts.load(table(), entity=["e", "shop"], like=whole)


# expressions


def test_python_functions_are_not_kept(tmp_path: Path) -> None:
    function = pl.col("x").map_batches(lambda values: values, is_elementwise=True)
    stash = load(table(), {"x": function, "n": "n"})
    stash.without_rows().save(tmp_path / "reference.safetensors")
    with pytest.raises(ValueError, match=like("no Python functions ... columns=")):
        ts.load(table(), like=tmp_path / "reference.safetensors")
    assert load(table(), {"x": function, "n": "n"}, like=stash).rows == stash.rows


def edited(path: Path, version: str, form: str | None = None) -> Path:
    """A copy of a saved stash with another version or form of its expressions; its checksums are right."""
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    fields = header["__metadata__"]
    schema = json.loads(fields["tensorstash.schema"])
    kept = schema["expressions"]
    schema["expressions"] = [[name, f"{version} {form or text.partition(' ')[2]}"] for name, text in kept]
    fields["tensorstash.schema"], fields["tensorstash.crc"] = json.dumps(schema), "0" * 8
    other = path.with_name("edited.safetensors")
    other.write_bytes(signed(header, data[begin:], begin + 65536))
    return other


class Bomb:
    """Runs when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("bombed",)


def test_nothing_in_a_file_is_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    form = pl.col("x").map_batches(len).meta.serialize()
    at = form.index(b"\x80\x05\x95")
    bomb = pickle.dumps(Bomb(), protocol=4)
    for crafted in (form, form[:at] + bomb + form[at + len(bomb) :], bomb):
        text = base64.b64encode(crafted).decode()
        with pytest.raises(ts.errors.SegmentError, match=like("expression of ... cannot be read")):
            ts.load(table(), like=edited(path, pl.__version__, text))
    assert not (tmp_path / "bombed").exists()


def test_an_expression_of_another_release_of_polars_is_refused(path: Path) -> None:
    other = edited(path, "0.1")
    with pytest.raises(ValueError, match=like("written by polars 0.1, and this is")):
        ts.load(table(), like=other)
    assert load(table(), like=other).rows == 50


def test_a_damaged_expression_is_refused(path: Path) -> None:
    for text in ("AAAA", "no base64", "!"):
        with pytest.raises(ts.errors.SegmentError, match=like("cannot be read ... columns=")):
            ts.load(table(), like=edited(path, pl.__version__, text))


# unknown=

NAMES = st.sampled_from([*"abcdefg"])


@settings(max_examples=80)
@given(
    known=st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=6),
    rows=st.lists(st.tuples(NAMES, st.none() | NAMES), max_size=20),
    fill=st.sampled_from([None, "a", "g"]),
    several=st.booleans(),
    pieces=st.integers(1, 4),
)
def test_unknown_names_are_kept_refused_or_dropped(
    known: list[tuple[str, str]], rows: list[tuple[str, str | None]], fill: str | None, several: bool, pieces: int
) -> None:
    """Dropped entities as if their rows were not there, dropped texts as if they were null."""
    key: Any = ["e", "s"] if several else "e"

    def source(rows: list[tuple[str, str | None]]) -> pa.Table:
        cut = -(-max(len(rows), 1) // pieces)
        schema = pa.schema({"e": pa.string(), "s": pa.string(), "x": pa.string(), "y": pa.int64()})
        parts = [rows[k : k + cut] for k in range(0, max(len(rows), 1), cut)]
        columns = ([(e, e, s, len(e)) for e, s in part] for part in parts)
        return pa.concat_tables(
            pa.Table.from_pylist([dict(zip(schema.names, row)) for row in part], schema=schema) for part in columns
        )

    columns: dict[str, Any] = {"x": ts.column("x", fill=fill), "y": "y"}
    reference = ts.load(source([*known]), columns, entity=key).without_rows()
    entities, texts = {*reference.entities}, {*reference.vocabulary("x")} | {fill}
    name = (lambda e: (e, e)) if several else (lambda e: e)
    strangers = {e for e, _ in rows if name(e) not in entities}
    kept = [(e, s) for e, s in rows if e not in strangers]
    others = {s for _, s in kept if s is not None and s not in texts}

    assert bits(ts.load(source(rows), like=reference, unknown="keep")) == bits(ts.load(source(rows), like=reference))
    if strangers or {s for _, s in rows if s not in texts} - {None}:
        with pytest.raises(ts.errors.DataError, match="unknown='error' takes only"):
            ts.load(source(rows), like=reference, unknown="error")
    else:
        assert bits(ts.load(source(rows), like=reference, unknown="error")) == bits(
            ts.load(source(rows), like=reference)
        )
    expected = ts.load(source([(e, None if s in others else s) for e, s in kept]), like=reference)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stash = ts.load(source(rows), like=reference, unknown="drop")
    said = [str(warning.message) for warning in caught]
    assert stash.entities == reference.entities
    assert stash.vocabulary("x") == reference.vocabulary("x")
    found, wanted = bits(stash), bits(expected)
    assert found.pop("about x")[0] == wanted.pop("about x")[0] - sum(
        s in others for _, s in kept
    )  # nulls of the source
    assert found == wanted
    assert len(said) == bool(strangers) + bool(others)
    if strangers:
        count = sum(e in strangers for e, _ in rows)
        assert f" {count} row" in said[0]
        assert f" of {len(strangers)} entit" in said[0]
        assert repr(name(min(strangers))) in said[0]
    if others:
        assert f" {sum(s in others for _, s in kept)} value" in said[-1]
        assert f" of 'x', such as {min(others)!r}" in said[-1]


def test_rows_are_dropped_from_files_too(path: Path, tmp_path: Path) -> None:
    pieces = [table("ab").to_arrow(), table("ca").to_arrow(), table("d").to_arrow()]
    source = write_parquet(tmp_path / "rows.parquet", [piece.slice(0, 20) for piece in pieces])
    with pytest.warns(UserWarning, match=like("40 rows of 2 entities ... such as 'c'")):
        stash = ts.load(source, like=path, unknown="drop")
    assert (stash.rows, stash.entities) == (20, ["a", "b"])
    plan = ts.plan(source, like=path, unknown="drop")
    assert plan.rows == 20
    assert "\nunknown='drop': keeps rows of 1 of 3 row groups\n" in repr(plan)
    assert "note: unknown='drop' leaves out 40 rows" in repr(plan)


def test_static_texts_are_dropped_too(whole: ts.Stash) -> None:
    frame = table().with_columns(zone=pl.when(pl.col("e") == "b").then(pl.lit("zone z")).otherwise("zone"))
    with pytest.warns(UserWarning, match=like("25 values of 'zone', such as 'zone z'")):
        stash = load(frame, like=whole, unknown="drop")
    assert stash.static["zone"].tolist() == [0, -1]
    joined = frame.unique("e", keep="first", maintain_order=True).select("e", "zone", "size")
    with pytest.warns(UserWarning, match=like("1 value of 'zone', such as 'zone z'")):
        assert load(frame, static=joined, like=whole, unknown="drop").static["zone"].tolist() == [0, -1]


def test_nothing_left_is_a_stash_without_rows(path: Path) -> None:
    with pytest.warns(UserWarning, match=like("50 rows of 2 entities")):
        stash = ts.load(table("xy"), like=path, unknown="drop")
    assert (stash.rows, stash.entities) == (0, ["a", "b"])


def test_unknown_needs_like(whole: ts.Stash) -> None:
    for unknown in ("drop", "error"):
        with pytest.raises(ValueError, match=like("there is no like=")):
            load(table(), unknown=unknown)
    with pytest.raises(ValueError, match=like("unknown must be ... got 'skip'")):
        load(table(), like=whole, unknown="skip")


def test_late_rows_find_their_places(path: Path) -> None:
    rows = table().drop("zone", "size")
    assert bits(ts.load(rows.sample(fraction=1.0, shuffle=True, seed=3), like=path)) == bits(ts.load(rows, like=path))


@pytest.mark.usefixtures("shm")
def test_a_shared_copy_is_of_its_reference(whole: ts.Stash) -> None:
    """The key covers what is taken over: columns, static values, and what becomes of others."""
    rows = table("abc").drop("zone", "size")
    other = table().with_columns(size=pl.col("size") + 1)
    loads: list[dict[str, Any]] = [
        {"like": whole},
        {"like": whole.without_rows()},  # also keeps the step of time, unless time= is given
        {"like": whole.without_rows(), "time": "t"},
        {"like": whole, "unknown": "drop"},
        {"like": load(other)},
        {"like": load(table(), ["x"])},
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        paths = [ts.load(rows, share="like", **options).path for options in loads]
    assert len({*paths}) == 5
    assert paths[0] == paths[2]


def test_a_plan_says_what_it_takes_over(path: Path) -> None:
    text = repr(ts.plan(table().drop("zone", "size"), like=path))
    assert "zone" in text
    assert "like=" in text


@pytest.mark.parametrize(("of_like", "entity"), [(["e"], "e"), ("e", ["e"])])
def test_a_column_alone_or_in_a_list_names_the_same_entities(of_like: Any, entity: Any) -> None:
    reference = ts.load({"e": ["a", "b"], "y": [0.0, 0.0]}, ["y"], entity=of_like)
    rows = {"e": ["a", "c", "b"], "y": [1.0, 2.0, 3.0]}
    with pytest.warns(UserWarning, match=like("leaves out 1 row of 1 entity that like= lacks, such as")):
        stash = ts.load(rows, ["y"], entity=entity, like=reference, unknown="drop")
    assert stash["y"].tolist() == [1.0, 3.0]


@pytest.mark.parametrize("unknown", ["keep", "error", "drop"])
@pytest.mark.parametrize("known", [1, 200])  # small vocabularies are looked up in another way
def test_entities_of_another_kind_are_refused_whatever_becomes_of_unknown_ones(known: int, unknown: Any) -> None:
    reference = ts.load({"e": [f"k{k}" for k in range(known)], "y": [0.0] * known}, ["y"], entity="e")
    with pytest.raises(ts.errors.SchemaError, match=like("'e' is int64 in the mapping, and like= has 'k0' there")):
        ts.load({"e": [5], "y": [1.0]}, ["y"], entity="e", like=reference, unknown=unknown)


def test_integers_that_have_no_common_type_are_refused() -> None:
    reference = ts.load({"e": np.array([-1]), "y": [0.0]}, ["y"], entity="e")
    with pytest.raises(ts.errors.DataError, match=like("have -1 and 9223372036854775809 together")):
        ts.load({"e": np.array([2**63 + 1], np.uint64), "y": [1.0]}, ["y"], entity="e", like=reference)


def test_rows_of_a_static_table_that_are_dropped_are_told() -> None:
    reference = ts.load({"e": ["a", "b"], "y": [0.0, 0.0]}, ["y"], entity="e")
    table = pl.DataFrame({"e": ["a", "b", "zz"], "v": [1, 2, 3]})
    with pytest.warns(
        UserWarning, match=like("1 entity that like= lacks, such as 'zz' of the polars frame of static=")
    ):
        stash = ts.load({"e": ["a"], "y": [1.0]}, ["y"], entity="e", like=reference, unknown="drop", static=table)
    assert stash.static["v"].tolist() == [1, 2]


@pytest.mark.parametrize("fill", [None, "NO"])
def test_a_static_column_that_is_taken_over_keeps_its_unknown_texts(fill: str | None) -> None:
    rows = {"e": ["a", "b"], "t": [1, 1], "y": [1.0, 2.0], "r": ["SE", "XX"]}
    static = {"r": ts.column("r", vocabulary=["SE", "NO"], fill=fill)}
    reference = ts.load(rows, ["y"], entity="e", time="t", static=static)
    stash = ts.load({"e": ["a", "c"], "t": [2, 2], "y": [1.0, 2.0]}, like=reference)
    assert stash.static["r"].tolist() == [0, 2, -1 if fill is None else 1]
    assert stash.about("r").unknown == 1
    assert stash.to_polars()["r"].to_list() == ["SE", fill]
