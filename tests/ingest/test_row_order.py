"""The inside of `ingest/row_order.py`: where each row belongs, for keys in any order, cut anywhere, by an oracle."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tensorstash.ingest import row_order
from tensorstash.ingest.row_order import (
    ascend,
    by_entity,
    distinct,
    move_to_places,
    offsets_of,
    places_after,
    sort,
    streaks_between,
    streaks_of,
)
from tests.oracle_load import like, write_parquet

Row = tuple[int, int]  # entity, time


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few rows, so that their edges are everywhere."""
    monkeypatch.setattr(row_order, "_BLOCK", 5)


rows_in_any_order = st.lists(
    st.tuples(st.integers(0, 5), st.integers(-3, 12) | st.sampled_from([-(2**63), 2**62, 2**63 - 1])), max_size=40
) | st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), unique=True, max_size=40).map(sorted)


def streaks_in_pieces(codes: list[int], cuts: list[int], integer: type[np.signedinteger[Any]]) -> row_order.Streaks:
    edges = [0, *sorted(cut for cut in cuts if cut < len(codes)), len(codes)]
    parts = [(a, streaks_of(np.array(codes[a:b], np.int32))) for a, b in pairwise(edges)]
    starts = [(a + own[:-1]).astype(integer) for a, (own, _) in parts] + [np.array([len(codes)], integer)]
    return row_order.Streaks(np.concatenate(starts), np.concatenate([own for _, (_, own) in parts]))


@settings(max_examples=400)
@given(
    rows=rows_in_any_order,
    cuts=st.lists(st.integers(0, 40), max_size=6),
    integer=st.sampled_from([np.int32, np.int64]),
)
@example(rows=[(0, 1), (1, 1), (0, 2), (1, 0)], cuts=[2], integer=np.int32)
@example(rows=[(0, 2), (0, 1), (1, 1)], cuts=[1], integer=np.int32)
@example(rows=[(1, 0), (1, 1), (0, 5), (0, 6)], cuts=[1], integer=np.int64)
@example(rows=[(1, 0)] * 6, cuts=[], integer=np.int32)
def test_every_row_comes_to_its_place(rows: list[Row], cuts: list[int], integer: type[np.signedinteger[Any]]) -> None:
    """Also where some of the entities have no rows, and with equal times in the order of the source."""
    codes, times = [entity for entity, _ in rows], np.array([time for _, time in rows], np.int64)
    streaks = streaks_in_pieces(codes, cuts, integer)
    offsets = offsets_of(streaks, 6)
    assert offsets.tolist() == [sum(code < k for code in codes) for k in range(7)]
    for a, b in (*pairwise([0, *sorted(cut for cut in cuts if cut < len(rows))]), (0, len(rows))):
        assert streaks_between(offsets, a, b).tolist() == sorted(codes)[a:b]

    in_groups = sorted(range(len(rows)), key=codes.__getitem__)
    places = by_entity(streaks, offsets)
    assert (places is None) == (in_groups == [*range(len(rows))])
    places = np.arange(len(rows), dtype=integer) if places is None else places
    assert places.dtype == integer
    assert places.tolist() == [in_groups.index(row) for row in range(len(rows))]
    move_to_places(times, places)
    assert times.tolist() == [rows[row][1] for row in in_groups]
    assert distinct(times, offsets) == len({*rows})

    order = sorted(range(len(rows)), key=rows.__getitem__)
    ascending, _ = ascend([times], offsets)
    assert ascending == (rows == [] or [rows[row] for row in in_groups] == sorted(rows))
    places = places_after(places, sort([times], offsets, places.dtype))
    assert places.tolist() == [order.index(row) for row in range(len(rows))]
    assert times.tolist() == [rows[row][1] for row in order]
    equal = [k for k, (a, b) in enumerate(pairwise(sorted(rows))) if a == b]
    assert ascend([times], offsets) == (True, equal[0] if equal else None)


@pytest.mark.parametrize(
    ("rows", "known", "asked"),
    [
        ([("a", 1), ("a", 2), ("b", 1)], None, []),
        ([("a", 2), ("a", 1)], None, [2]),
        ([("b", 1), ("b", 2), ("a", 1)], None, [3]),
        ([("a", 1), ("b", 1)] * 3, None, [6, 6]),
        ([("a", 1), ("a", 2), ("b", 1)], [5, 5, 6], [2]),
    ],
)
def test_memory_is_checked_before_rows_are_sorted(
    rows: list[tuple[str, int]], known: list[int] | None, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As soon as the rows of an entity are not contiguous; known times are counted by entity."""
    found: list[int] = []
    monkeypatch.setattr("tensorstash.ingest.keys.check_sorting", lambda rows, *_: found.append(rows))
    data: dict[str, Any] = {"e": [e for e, _ in rows], "t": [t + 10 * k for k, (_, t) in enumerate(rows)]}
    if len({*rows}) == len(rows):
        data["t"] = [t for _, t in rows]
    ts.load(data | ({"k": known} if known else {}), ["t"], entity="e", time="t", known="k" if known else None)
    assert found == asked


def test_more_entities_than_sixteen_bits_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """numpy counts integers of 16 bits; longer ones take two rounds."""
    monkeypatch.undo()  # blocks of a few rows would take long here
    codes = np.random.default_rng(0).permutation(np.arange(300_000) % 100_000)
    stash = ts.load({"e": codes, "t": np.arange(300_000), "y": np.arange(300_000)}, ["e", "y"], entity="e", time="t")
    order = np.argsort(codes, kind="stable")
    assert stash.entities == [*range(100_000)]
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


@settings(max_examples=60)
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
    order = sorted(range(len(rows)), key=rows.__getitem__)
    assert stash.entities == sorted({names for names, _ in rows})
    assert stash.entity_names == tuple(parts)
    assert stash["y"].tolist() == order
    for k, part in enumerate(parts):
        values = [rows[row][0][k] for row in order]
        shown = stash[part].tolist()
        if stash.about(part).kind == "category":
            shown = [stash.vocabulary(part)[code] for code in shown]
            assert stash.vocabulary(part) == sorted({names[k] for names, _ in rows})
        assert shown == values
        assert stash.about(part).low == min(stash[part].tolist(), default=None)
        assert stash.about(part).high == max(stash[part].tolist(), default=None)
        assert stash.to_polars()[part].to_list() == values
        assert stash.to_arrow()[part].to_pylist() == values
    for k, name in enumerate(stash.entities):
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
            assert held.entities == [("A", 3), ("B", 3), ("B", 5)]
            assert held.series(("A", 3))["sold"].tolist() == [40.0, 20.0]
            assert held.series(["A", 3])["sold"].tolist() == [40.0, 20.0]
            assert held.static["size"].tolist() == [2, 1, 1]
            assert held.to_polars().rows()[0] == ("A", 3, 1, 40.0, 2)
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
        ([], TypeError, "entity= must be the name of a column or a list of names, got []."),
        (["e", 0], TypeError, "entity= must be the name of a column or a list of names, got ['e', 0]."),
        (7, TypeError, "entity= must be the name of a column or a list of names, got 7."),
        (["e", "f", "e"], ts.errors.SchemaError, "entity= must name each column once, got 'e' twice."),
        (
            ["e", "y"],
            ts.errors.SchemaError,
            "entity= must be text or integers; 'y' is double. Convert it to text.",
        ),
        (
            ["e", "f"],
            ts.errors.DataError,
            "Every row needs an entity ... column 'f' of the mapping is null in row 1",
        ),
        (["f", "zz"], ts.errors.ColumnError, "the mapping has no column 'zz'; it has 'e', 'f', 'y'."),
    ],
)
def test_entity_columns_that_cannot_be(entity: Any, kind: type[Exception], message: str) -> None:
    source = {"e": ["a", "b"], "f": pa.array([1, None]), "y": [0.5, 1.5]}
    with pytest.raises(kind, match=like(message)):
        ts.load(source, ["y"], entity=entity)


def test_a_stash_of_repeated_times_knows_it_wherever_it_is_kept(tmp_path: Path) -> None:
    data = {"card": ["b", "a", "b", "b"], "t": [2, 1, 1, 2], "y": [0, 1, 2, 3]}
    stash = ts.load(data, ["y"], entity="card", time="t", duplicates="keep")
    stash.save(tmp_path / "events.safetensors")
    opened = ts.open(tmp_path / "events.safetensors")
    for one in (stash, opened):
        assert one.time is not None
        assert one.info.time is not None
        assert (one["y"].tolist(), one.time.tolist(), one.info.time.duplicates) == ([1, 2, 0, 3], [1, 1, 2, 2], True)
        with pytest.raises(ts.errors.DataError, match="Take gaps='ignore'"):
            ts.Windows(one, 2)
        assert ts.Windows(one, 2, gaps="ignore")[:]["y"].tolist() == [[2, 0], [0, 3]]
    once = ts.load({"t": [1, 2, 3], "y": [0, 1, 2]}, ["y"], time="t", duplicates="keep")
    assert once.info.time is not None
    assert not once.info.time.duplicates
    assert len(ts.Windows(once, 2)) == 2
    with pytest.raises(ValueError, match='"error" or "keep"'):
        ts.load(data, ["y"], entity="card", time="t", duplicates="first")  # type: ignore[arg-type]


def test_the_error_of_rows_without_a_time_says_how_to_load_them() -> None:
    frame = pl.DataFrame({"who": [1, 1, 2, 2], "t": [None, 5, None, 6], "y": [70, 1, 80, 2]})
    with pytest.raises(ts.errors.DataError, match=r"filter=pyarrow.compute.field\('t'\).is_valid\(\)"):
        ts.load(frame, ["y"], entity="who", time="t")
    static = frame.filter(pl.col("t").is_null()).select("who", weight="y")
    stash = ts.load(frame, ["y"], entity="who", time="t", filter=pc.field("t").is_valid(), static=static)
    assert (stash["y"].tolist(), stash.static["weight"].tolist()) == ([1, 2], [70, 80])


def test_a_duplicate_time_names_all_parts_of_the_entity() -> None:
    source = {"e": ["a", "a", "a"], "f": [1, 2, 1], "t": [5, 5, 5], "y": [0, 0, 0]}
    message = (
        "A time occurs once in each entity; entity ('a', 1) has t 5 in source rows 0 and 2. Drop one, name the "
        "column that distinguishes the series as entity="
    )
    with pytest.raises(ts.errors.DataError, match=re.escape(message)):
        ts.load(source, ["y"], entity=["e", "f"], time="t")


def test_keys_may_be_columns_too(tmp_path: Path) -> None:
    table = pa.table({"e": ["b", "a", "b"], "n": [7, 7, 7], "t": [1, 1, 2], "y": [0.5, 1.5, 2.5]})
    path = write_parquet(tmp_path / "one.parquet", [table])
    stash = ts.load(path, {"who": "e", "n": "n", "when": "t", "y": "y"}, entity=["e", "n"], time="t")
    assert {name: tensor.tolist() for name, tensor in stash.items()} == {
        "who": [0, 1, 1],
        "n": [7, 7, 7],
        "when": [1, 1, 2],
        "y": [1.5, 0.5, 2.5],
    }
    assert stash.vocabulary("who") == ["a", "b"]
    columns: dict[str, Any] = {
        "n": ts.column("n", dtype=torch.int8),
        "t": ts.column("t", dtype=torch.float32),
        "p": ["t", "y"],
    }
    cast = ts.load(path, columns, entity=["e", "n"], time="t")
    assert [cast[name].dtype for name in columns] == [torch.int8, torch.float32, torch.float64]


def test_entities_that_read_as_numbers_are_labels() -> None:
    source = {"e": ["", "10", "9"], "y": [0.0, 1.0, 2.0]}
    assert ts.load(source, {"who": "e", "y": "y"}, entity="e").vocabulary("who") == ["", "10", "9"]
    with pytest.warns(UserWarning, match="most of its distinct values read as numbers"):
        ts.load(source, {"who": "e", "y": "y"})


def test_a_single_row_group_is_divided_by_columns(tmp_path: Path) -> None:
    rows = 1000
    table = pa.table({f"c{k}": np.arange(rows) * 10 + k for k in range(7)} | {"s": ["x", "y"] * (rows // 2)})
    path = write_parquet(tmp_path / "one.parquet", [table])
    stash = ts.load(path)
    for k in range(7):
        assert np.array_equal(stash[f"c{k}"].numpy(), np.arange(rows) * 10 + k)
    assert stash["s"].tolist() == [0, 1] * (rows // 2)


def test_texts_are_numbered_alike_whichever_thread_is_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first row group is the largest, so that others are done before it."""
    monkeypatch.undo()  # blocks of a few rows would take long here
    names = [f"name {k}" for k in range(3000)]
    pieces = [pa.table({"s": names[:2000] * 30}), *(pa.table({"s": names[k::-1][:5]}) for k in range(2000, 3000, 50))]
    path = write_parquet(tmp_path / "one.parquet", pieces)
    texts = [text for piece in pieces for text in piece["s"].to_pylist()]
    for _ in range(5):
        stash = ts.load(path)
        assert stash.vocabulary("s") == sorted(set(texts))
        vocabulary = stash.vocabulary("s")
        assert [vocabulary[code] for code in stash["s"].tolist()] == texts
        series = ts.load(path, ["s"], entity="s")
        assert series.entities == vocabulary
        assert series.offsets.tolist() == np.searchsorted(sorted(texts), [*vocabulary, "name A"]).tolist()
