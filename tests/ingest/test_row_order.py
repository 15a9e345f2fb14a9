"""Where each row belongs: the keys in any order, cut anywhere, of one or several columns, against a slow oracle."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tensorstash.ingest import keys, row_order
from tensorstash.ingest.row_order import Arranger
from tests.oracle_load import whole, write_parquet

Row = tuple[int, int]  # entity, time


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few rows, so that their edges are everywhere."""
    monkeypatch.setattr(row_order, "_BLOCK", 5)
    monkeypatch.setattr(keys, "_BLOCK", 3)


def numbered(names: Sequence[Any]) -> list[int]:
    """Numbers in order of first appearance."""
    order = [*dict.fromkeys(names)]
    return [order.index(name) for name in names]


rows_in_any_order = st.lists(
    st.tuples(st.integers(0, 5), st.integers(-3, 12) | st.sampled_from([-(2**63), 2**62, 2**63 - 1])), max_size=40
) | st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), unique=True, max_size=40).map(sorted)


@settings(max_examples=400, deadline=None)
@given(rows=rows_in_any_order, timed=st.booleans(), cuts=st.lists(st.integers(0, 40), max_size=6))
@example(rows=[(0, 1), (1, 1), (0, 2), (1, 0)], timed=True, cuts=[2])
@example(rows=[(0, 2), (0, 1), (1, 1)], timed=True, cuts=[1])
def test_every_row_comes_to_its_place(rows: list[Row], timed: bool, cuts: list[int]) -> None:
    codes = numbered([entity for entity, _ in rows])
    times = [time for _, time in rows]
    edges = [0, *sorted(cut for cut in cuts if cut < len(rows)), len(rows)]
    asked: list[bool] = []
    arranger = Arranger(len(rows), lambda: asked.append(True), entities=0)
    for a, b in pairwise(edges):
        arranger.add(np.array(codes[a:b], np.int32), np.array(times[a:b], np.int64) if timed else None)
    moved = np.array(times, np.int64)
    found = arranger.finish(lambda: moved if timed else None)

    order = sorted(range(len(rows)), key=lambda row: (codes[row], times[row] if timed else row))
    twice = [(a, b) for a, b in pairwise(order) if timed and (codes[a], times[a]) == (codes[b], times[b])]
    assert arranger.offsets.tolist() == [sum(code < k for code in codes) for k in range(len(set(codes)) + 1)]
    assert asked == ([] if order == [*range(len(rows))] and not twice else [True])
    if twice:
        assert found is not None
        assert (found.rows, found.entity, found.time) == (twice[0], codes[twice[0][0]], times[twice[0][0]])
        return
    assert found is None
    assert arranger.arranged == (order == [*range(len(rows))])
    places = [order.index(row) for row in range(len(rows))]
    for a, b in (*pairwise(edges), (0, len(rows))):
        assert arranger.places(a, b).tolist() == places[a:b]
        assert arranger.codes(a, b).tolist() == codes[a:b]
        assert arranger.entities(a, b).tolist() == sorted(codes)[a:b]
    if timed:
        assert moved.tolist() == [times[row] for row in order]


def test_more_entities_than_sixteen_bits_count() -> None:
    """numpy counts integers of 16 bits; longer ones take two rounds."""
    codes = np.random.default_rng(0).permutation(np.arange(300_000) % 100_000)
    stash = ts.load({"e": codes, "t": np.arange(300_000), "y": np.arange(300_000)}, ["e", "y"], entity="e", time="t")
    firsts = list(dict.fromkeys(codes.tolist()))
    order = np.argsort(np.argsort(np.array(firsts))[codes], kind="stable")
    assert stash.entities == firsts
    assert np.array_equal(stash["y"].numpy(), order)
    assert np.array_equal(stash["e"].numpy(), codes[order])


# Several entity columns

TEXTS = st.sampled_from(["A", "", "Zü", "A\0"])
PARTS = {
    "text": (pa.string(), TEXTS),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), TEXTS),
    "large": (pa.uint64(), st.sampled_from([0, 7, 2**64 - 1])),
    "number": (pa.int32(), st.integers(-2, 2)),
}


@settings(max_examples=150, deadline=None)
@given(
    data=st.data(),
    parts=st.lists(st.sampled_from([*PARTS]), min_size=1, max_size=4, unique=True),
    in_order=st.booleans(),
)
def test_several_columns_tell_the_entities_apart(data: st.DataObject, parts: list[str], in_order: bool) -> None:
    row = st.tuples(st.tuples(*(PARTS[part][1] for part in parts)), st.integers(0, 30))
    rows: list[tuple[tuple[Any, ...], int]] = data.draw(st.lists(row, unique=True, max_size=30))
    if in_order:
        rows.sort()
    cut = data.draw(st.integers(0, len(rows)))
    columns: dict[str, Any] = {
        part: pa.array([names[k] for names, _ in rows], PARTS[part][0]) for k, part in enumerate(parts)
    }
    columns |= {"t": pa.array([time for _, time in rows], pa.int64()), "y": np.arange(len(rows))}
    table = pa.table(columns)
    stash = ts.load(pa.concat_tables([table[:cut], table[cut:]]), [*parts, "y", "t"], entity=parts, time="t")
    names = list(dict.fromkeys(names for names, _ in rows))
    order = sorted(range(len(rows)), key=lambda k: (names.index(rows[k][0]), rows[k][1]))
    assert stash.entities == names
    assert stash.entity_names == tuple(parts)
    assert stash["y"].tolist() == order
    for k, part in enumerate(parts):
        values = [rows[row][0][k] for row in order]
        shown = stash[part].tolist()
        if stash.about(part).kind == "category":
            shown = [stash.vocabulary(part)[code] for code in shown]
            assert stash.vocabulary(part) == list(dict.fromkeys(names[k] for names, _ in rows))
        assert shown == values
        assert stash.about(part).low == min(stash[part].tolist(), default=None)
        assert stash.about(part).high == max(stash[part].tolist(), default=None)
        assert stash.to_polars()[part].to_list() == values
        assert stash.to_arrow()[part].to_pylist() == values
    for k, name in enumerate(names):
        mine = [row for row in order if rows[row][0] == name]
        assert stash.series(name)["y"].tolist() == mine
        assert stash.offsets[k + 1] - stash.offsets[k] == len(mine)


def test_a_stash_of_several_entity_columns_is_shown_saved_and_shared(tmp_path: Path) -> None:
    sales = {
        "store": ["B", "A", "B", "A"],
        "item": [3, 3, 5, 3],
        "day": [1, 2, 1, 1],
        "sold": [10.0, 20.0, 30.0, 40.0],
        "size": [1, 2, 1, 2],
    }
    options: dict[str, Any] = {"entity": ["store", "item"], "time": "day", "static": ["size"]}
    stash = ts.load(sales, ["sold"], **options)
    assert repr(stash).splitlines()[0] == "Stash: 4 rows, 3 entities (store, item), 0.0 MB, day 1 to 2"
    stash.save(tmp_path / "sales.safetensors")
    shared = ts.load(sales, ["sold"], share="row_order-several", **options)
    try:
        for held in (stash, ts.open(tmp_path / "sales.safetensors"), shared, ts.attach("row_order-several")):
            assert held.entities == [("B", 3), ("A", 3), ("B", 5)]
            assert held.series(("A", 3))["sold"].tolist() == [40.0, 20.0]
            assert held.series(["A", 3])["sold"].tolist() == [40.0, 20.0]
            assert held.static["size"].tolist() == [1, 2, 1]
            assert held.to_polars().rows()[1] == ("A", 3, 1, 40.0, 2)
            with pytest.raises(ts.errors.ColumnError, match=r"\Athe stash has no entity \('A', 5\); did you mean .*\Z"):
                held.series(("A", 5))
        same = ts.load(sales, ["sold"], share="row_order-several", **options | {"entity": ("store", "item")})
        assert same.path == shared.path
    finally:
        ts.shared.remove("row_order-several")
    windows = ts.Windows(stash, history=1, horizon=1)
    assert windows.to_frame([0], torch.tensor([[0.5]])).rows() == [("A", 3, 2, 0.5)]
    lines = str(ts.plan(sales, ["sold"], **options)).splitlines()
    assert [line.split() for line in lines if "entity" in line and "static" not in line] == [
        ["store", "string", "entity"],
        ["item", "int64", "entity"],
    ]


@pytest.mark.parametrize(
    ("entity", "kind", "message"),
    [
        ([], TypeError, "entity= is the name of a column, or a list of names; got []."),
        (["e", 0], TypeError, "entity= is the name of a column, or a list of names; got ['e', 0]."),
        (7, TypeError, "entity= is the name of a column, or a list of names; got 7."),
        (["e", "f", "e"], ts.errors.SchemaError, "An entity column is named once; entity= has 'e' twice."),
        (
            ["e", "y"],
            ts.errors.SchemaError,
            "entity= names a text or integer column; 'y' is double. Convert it to text.",
        ),
        (
            ["e", "f"],
            ts.errors.DataError,
            "Every row needs an entity and a time; column 'f' is null in source row 1 (the first such). Drop those "
            "rows, or name them, before loading.",
        ),
        (["f", "zz"], ts.errors.ColumnError, "the mapping has no column 'zz'; it has 'e', 'f', 'y'."),
    ],
)
def test_entity_columns_that_cannot_be(entity: Any, kind: type[Exception], message: str) -> None:
    source = {"e": ["a", "b"], "f": pa.array([1, None]), "y": [0.5, 1.5]}
    with pytest.raises(kind, match=whole(message)):
        ts.load(source, ["y"], entity=entity)


def test_a_duplicate_time_names_all_parts_of_the_entity() -> None:
    source = {"e": ["a", "a", "a"], "f": [1, 2, 1], "t": [5, 5, 5], "y": [0, 0, 0]}
    message = (
        "A time occurs once in each entity; entity ('a', 1) has t 5 in source rows 0 and 2. Drop one, or name the "
        "column that distinguishes the series as entity=."
    )
    with pytest.raises(ts.errors.DataError, match=whole(message)):
        ts.load(source, ["y"], entity=["e", "f"], time="t")


# What is read, and how often


def test_a_column_that_is_a_key_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"e": ["b", "a", "b"], "n": [7, 7, 7], "t": [1, 1, 2], "y": [0.5, 1.5, 2.5]})
    path = write_parquet(tmp_path / "one.parquet", [table])
    read: list[list[str]] = []
    real = pq.ParquetFile.iter_batches

    def noted(self: Any, *arguments: Any, columns: list[str], **options: Any) -> Any:
        if arguments != (1,):  # one row shows whether a footer can be believed, and is not kept
            read.append(columns)
        return real(self, *arguments, columns=columns, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", noted)
    stash = ts.load(path, {"who": "e", "n": "n", "when": "t", "y": "y"}, entity=["e", "n"], time="t")
    assert sorted(read) == [["e", "n", "t"], ["y"]]
    assert {name: tensor.tolist() for name, tensor in stash.items()} == {
        "who": [0, 0, 1],
        "n": [7, 7, 7],
        "when": [1, 2, 1],
        "y": [0.5, 2.5, 1.5],
    }
    assert stash.vocabulary("who") == ["b", "a"]
    read.clear()
    columns: dict[str, Any] = {
        "n": ts.column("n", dtype=torch.int8),
        "t": ts.column("t", dtype=torch.float32),
        "p": ["t", "y"],
    }
    cast = ts.load(path, columns, entity=["e", "n"], time="t")
    assert [cast[name].dtype for name in columns] == [torch.int8, torch.float32, torch.float64]
    assert sorted({name for names in read[1:] for name in names}) == ["n", "t", "y"]


def test_a_single_row_group_is_divided_by_columns(tmp_path: Path) -> None:
    rows = 1000
    table = pa.table({f"c{k}": np.arange(rows) * 10 + k for k in range(7)} | {"s": ["x", "y"] * (rows // 2)})
    path = write_parquet(tmp_path / "one.parquet", [table])
    stash = ts.load(path)
    for k in range(7):
        assert np.array_equal(stash[f"c{k}"].numpy(), np.arange(rows) * 10 + k)
    assert stash["s"].tolist() == [0, 1] * (rows // 2)


def test_texts_are_numbered_as_they_appear_whichever_thread_is_first(tmp_path: Path) -> None:
    """The first row group is the largest, so that others are done before it."""
    names = [f"name {k}" for k in range(3000)]
    pieces = [pa.table({"s": names[:2000] * 30}), *(pa.table({"s": names[k::-1][:5]}) for k in range(2000, 3000, 50))]
    path = write_parquet(tmp_path / "one.parquet", pieces)
    texts = [text for piece in pieces for text in piece["s"].to_pylist()]
    for _ in range(5):
        stash = ts.load(path)
        assert stash.vocabulary("s") == list(dict.fromkeys(texts))
        vocabulary = stash.vocabulary("s")
        assert [vocabulary[code] for code in stash["s"]] == texts
