"""Static columns with `like=`: read where the source has them, and the reference's for entities without rows."""

from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests.oracle_load import bits, like

KEYS: dict[str, Any] = {"entity": "e", "time": "t"}
SCHEMA: dict[str, Any] = {
    "e": pl.String,
    "t": pl.Int64,
    "y": pl.Float64,
    "text": pl.String,
    "size": pl.Float64,
    "rank": pl.Int64,
    "since": pl.Datetime("us"),
}
COLUMNS = ["text", "size", "rank", "since"]
STATIC: dict[str, Any] = {
    "text": "text",
    "named": ts.column("text", fill="q"),
    "given": ts.column("text", vocabulary=["q", "b"]),
    "bucket": ts.hashed("text", 5),
    "size": "size",
    "half": ts.column("size", dtype=torch.bfloat16, fill=-3.0),
    "ok": ts.is_valid("size"),
    "rank": ts.column("rank", fill=-1),
    "number": ts.column("rank", vocabulary=[3, 0], fill=0),
    "both": ts.column(["size", "size"], dtype=torch.float32),
    "since": ts.column("since", fill=7),
}
VALUES = st.tuples(
    st.none() | st.sampled_from([*"abcq"]), st.none() | st.integers(0, 4).map(float), st.none() | st.integers(0, 4)
)
DAYS = [datetime(2024, 1, 1 + k) for k in range(5)]
ENTITIES = st.dictionaries(st.sampled_from([*"abcdef"]), VALUES, max_size=5)


def frame(entities: dict[str, Any], time: int) -> pl.DataFrame:
    """Two rows of each entity."""
    rows = [
        (name, time + k, 1.0, *values, None if values[2] is None else DAYS[values[2]])
        for k in range(2)
        for name, values in entities.items()
    ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def static_of(stash: ts.Stash) -> dict[str, Any]:
    """All that a stash says of its static columns, but for the nulls of its rows."""
    abouts = {name: stash.about(name) for name in stash.static}
    counts = ("kind", "fill", "missing", "unknown", "low", "high")
    return {
        name: (
            tensor.dtype,
            tensor.double().nan_to_num(-99).tolist(),
            [getattr(abouts[name], count) for count in counts],
            stash.vocabulary(name) if abouts[name].kind == "category" else None,
        )
        for name, tensor in stash.static.items()
    }


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=100)
@given(
    known=ENTITIES.filter(bool),
    today=ENTITIES,
    names=st.lists(st.sampled_from([*STATIC]), min_size=1, unique=True),
    lacks=st.lists(st.sampled_from(COLUMNS), unique=True),
    are_named=st.booleans(),
    unknown=st.sampled_from(["keep", "drop"]),
)
def test_values_are_those_of_the_rows_and_else_of_the_reference(
    known: dict[str, Any], today: dict[str, Any], names: list[str], lacks: list[str], are_named: bool, unknown: Any
) -> None:
    """As of a source in which each entity has rows: today's, or else those of the reference."""
    static = {name: STATIC[name] for name in names}
    old, new = frame(known, 0), frame(today, 2)
    reference = ts.load(old, ["y"], static=static, **KEYS).without_rows()
    rows = new if are_named else new.drop(lacks)
    whole = frame(known | today, 2)
    for column in {*COLUMNS} & {*lacks} - {*rows.columns}:
        values = dict(old.select("e", column).iter_rows())
        whole = whole.with_columns(pl.Series(column, [values.get(name) for name in whole["e"]], SCHEMA[column]))
    expected = ts.load(whole, ["y"], static=static, like=reference, unknown=unknown, **KEYS)
    stash = ts.load(rows, like=reference, unknown=unknown, static=static if are_named else None)
    assert stash.entities == expected.entities
    found, wanted = static_of(stash), static_of(expected)
    assert found == {name: wanted[name] for name in found}
    assert {*found} == {*names}


ROWS: dict[str, Any] = {"e": ["a", "b"], "t": [1, 1], "y": [1.0, 3.0], "reg": ["N", "S"], "size": [4, 5]}
LATER: dict[str, Any] = {"e": ["c", "a"], "t": [2, 2], "y": [5.0, 6.0], "reg": ["S", "N"], "size": [6, 4]}


def reference(**options: Any) -> ts.Stash:
    return ts.load(ROWS, ["y"], **KEYS, **{"static": ["reg", "size"], **options}).without_rows()


@pytest.mark.parametrize("static", [None, ["reg", "size"]])
@pytest.mark.parametrize("form", ["mapping", "lazy", "parquet", "csv"])
def test_new_entities_have_the_values_of_the_source(form: str, static: Any, tmp_path: Path) -> None:
    source: Any = LATER
    if form == "lazy":
        source = pl.LazyFrame(LATER)
    elif form == "parquet":
        pl.DataFrame(LATER).write_parquet(source := tmp_path / "later.parquet")
    elif form == "csv":
        pl.DataFrame(LATER).write_csv(source := tmp_path / "later.csv")
    stash = ts.load(source, like=reference(), static=static)
    assert stash.entities == ["a", "b", "c"]
    assert (stash.static["reg"].tolist(), stash.static["size"].tolist()) == ([0, 1, 1], [4, 5, 6])
    assert (stash.vocabulary("reg"), stash.about("size").high) == (["N", "S"], 6)


def test_a_plan_says_which_columns_come_from_the_source() -> None:
    lacks = {name: values for name, values in LATER.items() if name != "reg"}
    plan = ts.plan(lacks, like=reference(static=["reg", "size"]), unknown="keep")
    origin = {told["column"]: (told["from"], told["source"]) for told in plan.facts}
    assert (origin["reg"], origin["size"]) == ((["like="], []), (["size"], ["int64"]))
    assert plan.skipped == ()
    stash = plan.load()
    assert [*stash.static] == [*reference().static] == ["reg", "size"]
    assert (stash.static["reg"].tolist(), stash.static["size"].tolist()) == ([0, 1, -1], [4, 5, 6])


def test_lists_and_fields_are_found() -> None:
    def rows(entities: str, k: int) -> pl.DataFrame:
        place = [{"at": [float(k), float(j)]} for j, _ in enumerate(entities)]
        return pl.DataFrame({"e": [*entities], "t": [k] * len(entities), "y": [1.0] * len(entities), "place": place})

    first = ts.load(rows("ab", 1), ["y"], static={"at": "place.at"}, **KEYS)
    stash = ts.load(rows("cb", 2), like=first)
    assert stash.static["at"].tolist() == [[1.0, 0.0], [2.0, 1.0], [2.0, 0.0]]
    for lacks in (rows("ab", 2).drop("place"), rows("ab", 2).with_columns(place=pl.struct(on=pl.lit(1)))):
        assert ts.load(lacks, like=first).static["at"].tolist() == [[1.0, 0.0], [1.0, 1.0]]


def test_a_column_of_another_kind_is_not_that_of_the_reference() -> None:
    other = LATER | {"reg": [0.5, 0.25]}
    stash = ts.load(other, like=reference(static=["reg"]))
    assert stash.static["reg"].tolist() == [0, 1, -1]
    times = ROWS | {"since": pl.Series([1, 2]).cast(pl.Datetime("us"))}
    first = ts.load(times, ["y"], static={"since": ts.column("since", fill=-1)}, **KEYS)
    stash = ts.load(LATER | {"since": pl.Series([3, 3]).cast(pl.Datetime("ms"))}, like=first)
    assert stash.static["since"].tolist() == [1, 2, -1]
    with pytest.raises(ts.errors.DataError, match=like("one value in each entity ... 'size'")):
        ts.load(LATER | {"e": ["a", "a"], "t": [2, 3]}, like=reference(static=["size"]))


def test_a_scaled_column_is_not_that_of_a_source() -> None:
    stash = ts.load(ROWS | {"f": [0.5, 1.5]}, ["y"], static=["f"], **KEYS)
    scaled = ts.Scaler.fit(stash, ["f"]).transform(stash)
    for static, expected in ((None, [-1.0, 1.0, -9.0]), (["f"], [0.75, -9.0, 0.25])):
        found = ts.load(LATER | {"f": [0.25, 0.75]}, ["y"], like=scaled, static=static)
        assert found.static["f"].nan_to_num(-9).tolist() == expected


def test_codes_of_a_given_vocabulary_are_no_codes_of_texts() -> None:
    """A code behind the vocabulary stands for no name; where texts are numbered it would be a new one's."""
    first = reference(static={"reg": ts.column("reg", vocabulary=["N"])})
    later = {name: values[:1] for name, values in LATER.items()}
    assert ts.load(later, like=first, static=["reg"]).static["reg"].tolist() == [-1, -1, 1]
    same = {"reg": ts.column("reg", vocabulary=["N"])}
    assert ts.load(later, like=first, static=same).static["reg"].tolist() == [0, 1, 1]
    other = {"reg": ts.column("reg", vocabulary=["S"])}
    assert ts.load(later, like=first, static=other).static["reg"].tolist() == [-1, -1, 0]


def test_floats_are_cast_and_other_types_are_not_mixed() -> None:
    first = ts.load(ROWS | {"f": [0.5, 1.5]}, ["y"], static=["f", "size"], **KEYS)
    later = LATER | {"f": [0.25, 0.5]}
    stash = ts.load(later, like=first, dtype=torch.float16)
    assert (stash.static["f"].dtype, stash.static["f"].tolist()) == (torch.float16, [0.5, 1.5, 0.25])
    small = later | {"size": np.array([6, 4], np.int32)}
    assert ts.load(small, like=first).static["size"].tolist() == [4, 5, 6]  # in the type of the reference
    with pytest.raises(ts.errors.DataError, match=like("1 null in entities of like= without rows, such as 'b'")):
        ts.load(small, like=first, static=["size"])


def test_without_entities_the_one_series_keeps_its_value() -> None:
    rows = pl.DataFrame({"y": [1.0, 2.0], "reg": ["N", "N"]})
    first = ts.load(rows, ["y"], static=["reg"])
    for static in (None, ["reg"]):
        assert ts.load(rows.clear(), like=first, static=static).static["reg"].tolist() == [0]


def test_a_part_of_the_path_is_kept_where_there_are_no_files(tmp_path: Path) -> None:
    for place in ("north", "south"):
        (tmp_path / place).mkdir()
        pl.DataFrame({"e": [place], "t": [1], "y": [1.0]}).write_parquet(tmp_path / place / "rows.parquet")
    first = ts.load(tmp_path, ["y"], static={"place": ts.path("parent")}, **KEYS)
    rows = {"e": ["south", "west"], "t": [2, 2], "y": [2.0, 2.0]}
    assert ts.load(rows, like=first).static["place"].tolist() == [0, 1, -1]
    assert bits(ts.load(tmp_path, like=first)) == bits(first)


@pytest.mark.usefixtures("shm")
def test_a_shared_copy_is_of_the_columns_that_were_read(tmp_path: Path) -> None:
    """Of references with the same values, which are read from other columns, and of sources with and without them."""
    rows, later = pl.DataFrame(ROWS), pl.DataFrame(LATER).with_columns(pl.Series("other", ["N", "N"]))
    first = [ts.load(rows.rename({"reg": name}), ["y"], static={"reg": name}, **KEYS) for name in ("reg", "other")]
    filled = ts.load(rows, ["y"], static={"reg": ts.column("reg", fill="N")}, **KEYS)
    later.write_parquet(tmp_path / "later.parquet")
    for source in (later, tmp_path / "later.parquet"):
        stashes = [ts.load(source, like=stash, share="like") for stash in (*first, filled)]
        assert [stash.static["reg"].tolist() for stash in stashes] == [[0, 1, 1], [0, 1, 0], [0, 1, 1]]
        assert len({stash.path for stash in stashes}) == 3
    lacks = ts.load(later.drop("reg"), like=first[0], share="like")
    assert lacks.static["reg"].tolist() == [0, 1, -1]
