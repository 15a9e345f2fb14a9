"""The numbers of entities and codes: ascending, whatever the order of files, row groups and rows, or as in `like=`."""

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests.oracle_load import write_parquet

pytestmark = pytest.mark.filterwarnings("ignore:Column 's' is text")  # some texts of the tests read as numbers

TEXTS = st.sampled_from(["", "a", "A", "a\0", "b", "Z", "ü", "z", "日本", "\uffff", "\U0001f600", "10", "9"])
INTEGERS = st.sampled_from([-(2**63), -1, 0, 9, 10, 2**62])
Row = tuple[Any, Any, int]  # entity, text, value


def rows_of(entities: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Row]]:
    return st.lists(st.tuples(entities, st.none() | TEXTS, st.integers(0, 99)), max_size=25)


ROWS = rows_of(TEXTS) | rows_of(INTEGERS)


def table_of(rows: list[Row], dictionary: bool = False) -> pa.Table:
    """Columns e, s and y; entities are texts if there are none."""
    entities = pa.array([entity for entity, _, _ in rows], pa.int64() if rows and isinstance(rows[0][0], int) else None)
    texts = pa.array([text for _, text, _ in rows], pa.string())
    return pa.table(
        {
            "e": entities.cast(pa.string()) if pa.types.is_null(entities.type) else entities,
            "s": texts.dictionary_encode() if dictionary else texts,
            "y": pa.array([value for _, _, value in rows], pa.int64()),
        }
    )


def by_entity(stash: ts.Stash) -> dict[Any, list[tuple[str | None, int]]]:
    """The texts and values of each entity, found by the numbers."""
    names: list[str | None] = [*stash.vocabulary("s"), None]
    found = {}
    for number, entity in enumerate(stash.entities):
        rows = slice(*stash.offsets[number : number + 2].tolist())
        found[entity] = [
            (names[code], value) for code, value in zip(stash["s"][rows].tolist(), stash["y"][rows].tolist())
        ]
    return found


@settings(max_examples=150)
@given(rows=ROWS, cuts=st.lists(st.integers(0, 25), max_size=4), dictionary=st.booleans())
@example(rows=[("b", "x", 0), ("b", "y", 1), ("a", "x", 2)], cuts=[2], dictionary=False)  # whole groups change places
def test_entities_and_codes_are_numbered_by_the_sorted_values(
    rows: list[Row], cuts: list[int], dictionary: bool
) -> None:
    table, edges = table_of(rows, dictionary), [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    pieces = pa.concat_tables([table[a:b] for a, b in pairwise(edges)])
    stash = ts.load(pieces, {"s": "s", "y": "y", "key": "e"}, entity="e", static=None)
    entities = sorted({entity for entity, _, _ in rows})
    assert stash.entities == entities
    assert stash.vocabulary("s") == sorted({text for _, text, _ in rows} - {None})
    assert by_entity(stash) == {
        entity: [(text, value) for name, text, value in rows if name == entity] for entity in entities
    }
    if stash.about("key").kind == "category":
        assert stash.vocabulary("key") == entities


@settings(max_examples=100)
@given(data=st.data(), several=st.booleans(), fill=st.sampled_from([None, "m", "a"]))
def test_like_keeps_numbers_and_appends_new_ones_in_ascending_order(
    data: st.DataObject, several: bool, fill: str | None
) -> None:
    kind = data.draw(st.sampled_from([TEXTS, INTEGERS]))
    before, after = (data.draw(rows_of(kind).filter(bool)) for _ in range(2))
    entity: Any = ["e", "s"] if several else "e"
    if several:
        before, after = ([(e, text or "", value) for e, text, value in rows] for rows in (before, after))
    first = ts.load(table_of(before), ["s", "y"], entity=entity)
    columns: dict[str, Any] = {"s": ts.column("s", fill=fill), "y": "y"}
    second = ts.load(table_of(after), columns, entity=entity, like=first)

    found = {(e, text) if several else e for e, text, _ in after}
    assert second.entities == [*first.entities, *sorted(found - {*first.entities})]
    known = first.vocabulary("s")
    texts: set[Any] = {fill if text is None else text for _, text, _ in after} | {fill}
    assert second.vocabulary("s") == [*known, *sorted(texts - {None, *known})]
    expected = {
        name: [
            (fill if text is None else text, value) for e, text, value in after if ((e, text) if several else e) == name
        ]
        for name in second.entities
    }
    assert by_entity(second) == expected
    codes = [code for code in second["s"].tolist() if code >= 0]
    assert (second.about("s").low, second.about("s").high) == (min(codes, default=None), max(codes, default=None))
    again = ts.load(table_of(after[::-1]), columns, entity=entity, like=first)
    assert (again.entities, again.vocabulary("s")) == (second.entities, second.vocabulary("s"))


def test_the_order_of_files_and_row_groups_does_not_number_anything(tmp_path: Path) -> None:
    pieces = [table_of([("b", "y", 1), ("c", "x", 2)]), table_of([("a", "z", 3), ("b", "w", 4)])]
    write_parquet(tmp_path / "groups.parquet", pieces)
    for names in (["1", "2"], ["2", "1"]):
        for name, piece in zip(names, pieces):
            (tmp_path / "_".join(names)).mkdir(exist_ok=True)
            write_parquet(tmp_path / "_".join(names) / f"{name}.parquet", [piece])
    stashes = [ts.load(tmp_path / name, entity="e") for name in ("groups.parquet", "1_2", "2_1")]
    for stash in stashes:
        assert stash.entities == ["a", "b", "c"]
        assert stash.vocabulary("s") == ["w", "x", "y", "z"]


def test_a_join_gives_the_same_numbers_at_every_load() -> None:
    """Polars brings the rows of a join in an order that changes from run to run."""
    generator = np.random.default_rng(0)
    items = generator.permutation(5000)
    sales = pl.LazyFrame({"item": items % 1000, "day": items // 1000, "sold": items})
    names = pl.LazyFrame({"item": np.arange(1000), "name": [f"item {k * 7919 % 1000}" for k in range(1000)]})
    joined = sales.join(names, on="item").with_columns(kind="k" + pl.col("name").str.slice(5, 1))
    stashes = [ts.load(joined, ["kind", "sold"], entity="name", time="day") for _ in range(3)]
    for stash in stashes:
        assert stash.entities == sorted(f"item {k}" for k in range(1000))
        assert stash.vocabulary("kind") == [f"k{digit}" for digit in range(10)]
        assert torch.equal(stash["sold"], stashes[0]["sold"])
        assert torch.equal(stash["kind"], stashes[0]["kind"])


# like=


def today() -> dict[str, Any]:
    return {"e": ["b", "d", "b"], "t": [1, 1, 2], "y": [1.0, 2.0, 3.0], "zone": [4, 5, 4], "kind": ["k", None, "k"]}


def yesterday() -> ts.Stash:
    source = {"e": ["a", "b", "c"], "t": [0, 0, 0], "y": [0.0] * 3, "kind": ["z", "y", "x"]}
    return ts.load(source, ["y"], entity="e", time="t", static=["kind"])


def test_entities_without_rows_have_the_static_values_of_like_or_missing_ones() -> None:
    static = {"zone": ts.column("zone", dtype=torch.float64), "kind": "kind", "filled": ts.column("zone", fill=-7)}
    stash = ts.load(today(), ["y"], entity="e", time="t", static=static, like=yesterday())
    assert stash.entities == ["a", "b", "c", "d"]
    assert stash.offsets.tolist() == [0, 0, 2, 2, 3]
    assert stash.vocabulary("kind") == ["x", "y", "z", "k"]
    assert stash.static["kind"].tolist() == [2, 3, 0, -1]  # of like=: a and c
    assert stash.static["filled"].tolist() == [-7, 4, -7, 5]
    assert [str(value) for value in stash.static["zone"].tolist()] == ["nan", "4.0", "nan", "5.0"]
    assert (stash.about("kind").missing, stash.about("zone").missing) == (1, 2)
    with pytest.raises(ts.errors.DataError, match=r"'zone' has 1 null in entities of like= without rows, such as 'a'"):
        ts.load(today(), ["y"], entity="e", time="t", static=["zone"], like=yesterday())


def test_a_static_table_needs_no_row_for_entities_without_rows() -> None:
    table = {"e": ["a", "b", "d"], "size": [1.5, 2.5, 4.5], "name": ["q", "z", "p"]}
    stash = ts.load(today(), ["y"], entity="e", time="t", static=pl.DataFrame(table), like=yesterday())
    assert stash.static["size"].nan_to_num(0).tolist() == [1.5, 2.5, 0, 4.5]
    assert [(*stash.vocabulary("name"), None)[code] for code in stash.static["name"].tolist()] == ["q", "z", None, "p"]


def test_series_without_rows_go_through_everything() -> None:
    stash = ts.load(today(), ["y", "kind", "e"], entity="e", time="t", like=yesterday())
    assert stash.series("a")["y"].tolist() == []
    assert stash.vocabulary("e") == ["b", "d"]  # like= has no column "e"
    described = stash.describe(["y"], by="entity")
    assert described.select("e", "count").rows() == [("a", 0), ("b", 2), ("c", 0), ("d", 1)]
    assert stash.to_polars().select("e", "t", "y").rows() == [("b", 1, 1.0), ("b", 2, 3.0), ("d", 1, 2.0)]
    assert stash.to_arrow()["e"].to_pylist() == ["b", "b", "d"]
    assert "4 entities" in repr(stash)
    choices: list[dict[str, Any]] = [{}, {"gaps": "mask"}, {"gaps": "ignore"}]
    for options in choices:
        windows = ts.Windows(stash, spans={"past": ("y", -1, 0)}, frequency=None if options else 1, **options)
        assert windows[:]["past"].flatten().tolist() == [1.0, 3.0, 2.0]
        assert windows.to_frame([0, 2], torch.zeros(2, 1))["e"].to_list() == ["b", "d"]
    assert len(windows.split_entities(0.5, seed=0)[0]) + len(windows.split_entities(0.5, seed=0)[1]) == 3
    weighted = ts.Loader(windows, batch_size=2, order=ts.Weighted([1.0, 1.0, 1.0, 1.0], per="entity"), seed=0)
    assert sum(len(batch["past"]) for batch in weighted) == 3
    with pytest.warns(UserWarning, match="'a'"):  # fewer than two values
        scaler = ts.Scaler.fit(windows, ["y"], by="entity")
    assert len(scaler.center["y"]) == 4
    ahead = ts.Windows(stash, spans={"past": ("y", -1, 0), "next": ("y", 0, 1)}, min_horizon=0, gaps="ignore")
    assert len(ahead.latest()) == 2
    ts.plot.coverage(stash)
    with pytest.raises(ValueError, match=r"this entity has none"):
        ts.plot.series(stash, "a", ["y"])


def test_like_is_part_of_the_key() -> None:
    try:
        paths = {
            ts.load(today(), ["y"], entity="e", time="t", share="numbers-like", like=like).path
            for like in (None, yesterday(), yesterday(), ts.load({"e": ["d"], "y": [0]}, ["y"], entity="e"))
        }
        assert len(paths) == 3
        assert len({os.path.basename(str(path)) for path in paths}) == 3
    finally:
        ts.shared.remove("numbers-like")


@pytest.mark.parametrize(
    ("entity", "like", "kind", "message"),
    [
        ("e", 7, TypeError, "like= must be a stash, or the path of a saved one, got an int"),
        (["e", "zone"], "stash", ValueError, r"as many entity columns"),
        ("zone", "stash", ts.errors.SchemaError, "'zone' is int64 in the mapping, and like= has 'a' there"),
    ],
)
def test_a_wrong_like_is_refused(entity: Any, like: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        ts.load(today(), ["y"], entity=entity, like=yesterday() if like == "stash" else like)


# The order of files


def test_numbers_in_paths_are_read_as_numbers(tmp_path: Path) -> None:
    for number in (1, 2, 10):
        write_parquet(tmp_path / f"part-{number}.parquet", [pa.table({"y": [number]})])
    names = [tmp_path / f"part-{number}.parquet" for number in (1, 2, 10)]
    for source in (tmp_path, str(tmp_path / "part-*.parquet"), names):
        assert ts.load(source)["y"].tolist() == [1, 2, 10]
    for reordered in (names[::-1], [str(tmp_path / "part-2*"), str(tmp_path / "part-1*")]):
        with pytest.warns(UserWarning, match=r"natural order of their paths.* without time="):
            assert ts.load(reordered)["y"].tolist() == [1, 2, 10]
    assert ts.load(names[::-1], ["y"], time="y")["y"].tolist() == [1, 2, 10]
