"""The shard of an entity, and loads of one shard."""

import datetime
import struct
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tensorstash.cluster import shard_of


def by_definition(value: Any, shards: int) -> int:
    """The published definition, written once more."""

    def text(part: Any) -> bytes:
        return (part.isoformat() if isinstance(part, datetime.date) else str(part)).encode("utf-8")

    whole = text(value)
    if isinstance(value, tuple):
        whole = b"".join(str(len(text(part))).encode() + b":" + text(part) for part in value)
    digest = blake2b(whole, digest_size=8, person=b"blake2b shard 1").digest()
    return int(struct.unpack("<Q", digest)[0]) % shards


GOLDEN = {  # never change these: shards that people have made depend on them
    "": 2232,
    "17": 1572,
    "ü": 3384,
    0: 1613,
    1: 3985,
    17: 1572,
    -5: 3929,
    2**64 - 1: 1094,
    datetime.date(2024, 1, 31): 1763,
    ("a", "b1"): 3957,
    ("ab", "1"): 1024,
}


def test_golden_shards() -> None:
    assert dict(zip(GOLDEN, shard_of(GOLDEN, 4096).tolist())) == GOLDEN
    assert shard_of(["JFK", "LGA", "EWR"], 64).tolist() == [9, 34, 63]
    assert shard_of(GOLDEN, 1).tolist() == [0] * len(GOLDEN)


ENTITIES = st.one_of(st.text(st.characters(codec="utf-8"), max_size=8), st.integers(-(2**63), 2**64 - 1), st.dates())


@given(st.lists(st.one_of(ENTITIES, st.tuples(ENTITIES, ENTITIES)), max_size=6), st.integers(1, 4096))
def test_shards_follow_the_definition(values: list[Any], shards: int) -> None:
    assert shard_of(values, shards).tolist() == [by_definition(value, shards) for value in values]


def test_shards_do_not_depend_on_the_type_that_stores_a_value() -> None:
    texts, numbers = ["a", "bb", "ü", "a"], [3, 1, 3, 200]
    for arrow in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
        assert shard_of(pa.array(texts, arrow), 99).tolist() == shard_of(texts, 99).tolist()
    for whole in (pa.uint8(), pa.int16(), pa.int64(), pa.uint64()):
        assert shard_of(pa.array(numbers, whole), 99).tolist() == shard_of(numbers, 99).tolist()
    assert shard_of(np.array(numbers, np.uint8), 99).tolist() == shard_of(torch.tensor(numbers), 99).tolist()
    days = np.array(["2024-01-31", "1969-12-31"], "datetime64[D]")
    assert shard_of(days, 99).tolist() == shard_of(days.tolist(), 99).tolist() == shard_of(pa.array(days), 99).tolist()


@pytest.mark.parametrize(
    ("value", "what"),
    [(None, "None, a NoneType"), (1.0, "1.0, a float"), (True, "True, a bool"), (b"a", "b'a', a bytes")],
)
def test_other_values_have_no_shard(value: Any, what: str) -> None:
    with pytest.raises(TypeError, match=f"^An entity must be a text, an integer or a date, got {what}\\.$"):
        shard_of([value], 4)


# Loads of one shard


def source(rows: int = 300) -> dict[str, Any]:
    """Rows of many entities, mixed, with distinct values."""
    place = np.arange(rows)
    return {
        "name": [f"s{k % 13}" for k in place],
        "part": (place % 3).astype(np.int16),
        "hour": place[::-1].copy(),
        "x": place * 1.5,
        "word": [f"w{k % 7}" for k in place],
    }


KEYS: dict[str, Any] = {"entity": ["name", "part"], "time": "hour"}


def rows_of(stash: ts.Stash) -> list[tuple[Any, ...]]:
    return stash.to_polars().rows()


@pytest.mark.parametrize("entity", ["name", ["name", "part"], "part"])
@pytest.mark.parametrize("arrow", [pa.string(), pa.dictionary(pa.int32(), pa.large_string())])
def test_the_loads_of_all_shards_are_the_whole(tmp_path: Path, entity: Any, arrow: pa.DataType) -> None:
    table = pa.table(source())
    table = table.set_column(0, "name", table["name"].cast(arrow))
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=40)
    whole = ts.load(tmp_path / "x.parquet", entity=entity, time="hour")
    names, rows = [], []
    for k in range(4):
        one = ts.load(tmp_path / "x.parquet", entity=entity, time="hour", shard=(k, 4))
        assert shard_of(one.entities, 4).tolist() == [k] * len(one.entities)
        assert one.entities == [name for name in whole.entities if by_definition(name, 4) == k]
        for name in one.entities:
            assert one.series(name)["x"].tolist() == whole.series(name)["x"].tolist()
        names += one.entities
        rows += rows_of(one)
    assert sorted(names) == sorted(whole.entities)
    assert sorted(rows) == sorted(rows_of(whole))


def test_only_row_groups_with_entities_of_the_shard_are_read(tmp_path: Path) -> None:
    table = pa.table({"e": np.repeat(np.arange(8), 10), "y": np.arange(80.0)})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=10)
    inside = [int(e) for e in range(8) if by_definition(int(e), 3) == 1]
    plan = ts.plan(tmp_path / "x.parquet", ["y"], entity="e", shard=(1, 3))
    assert (plan.rows, len(plan.choice.source.units), plan.choice.source.pieces) == (10 * len(inside), len(inside), 8)
    assert f"shard: keeps rows of {len(inside)} of 8 row groups" in repr(plan)
    raw = bytearray((tmp_path / "x.parquet").read_bytes())
    about = pq.ParquetFile(tmp_path / "x.parquet").metadata
    for group in {*range(8)}.difference(inside):  # values that are read there are an error
        chunk = about.row_group(group).column(1)
        begin = min(at for at in (chunk.dictionary_page_offset, chunk.data_page_offset) if at)
        raw[begin : begin + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    (tmp_path / "x.parquet").write_bytes(raw)
    assert ts.load(tmp_path / "x.parquet", ["y"], entity="e", shard=(1, 3)).entities == inside


@settings(max_examples=40)
@given(st.integers(1, 6), st.integers(0, 299), st.integers(1, 50))
def test_a_filter_comes_before_the_shard(shards: int, least: int, size: int) -> None:
    frame = pl.DataFrame(source())
    chosen = {"columns": ["x"], "filter": [("hour", ">=", least)], **KEYS}
    found = []
    for k in range(shards):
        stash = ts.load(frame.to_arrow().to_batches(max_chunksize=size)[0], shard=(k, shards), **chosen)
        found += rows_of(stash)
    whole = ts.load(frame.to_arrow().to_batches(max_chunksize=size)[0], **chosen)
    assert sorted(found) == sorted(rows_of(whole))


def test_rows_are_named_as_in_the_source(tmp_path: Path) -> None:
    table = pa.table({"e": ["a", "b", "c", "a", "b", "a"], "t": [0, 1, 2, 3, 4, 3], "y": [0.0] * 6})
    pq.write_table(table, tmp_path / "x.parquet")
    k = by_definition("a", 5)
    message = r"has t 3 in source rows 3 \(.*row group 0\) and 5 \("
    with pytest.raises(ts.errors.DataError, match=message):
        ts.load(tmp_path / "x.parquet", ["y"], entity="e", time="t", filter=[("t", ">", 0)], shard=(k, 5))


def test_a_null_is_in_no_shard() -> None:
    data = {"e": ["a", None, "b"], "y": [1, 2, 3]}
    with pytest.raises(
        ts.errors.DataError,
        match=r"^Every row needs an entity and a time, and with known= a known time; column 'e' of .* is null in row 1",
    ):
        ts.load(data, entity="e", shard=(0, 2))


def test_static_tables_are_of_the_shard_too() -> None:
    stores = pl.DataFrame({"name": [f"s{k}" for k in range(13)], "size": range(13)})
    for k in range(3):
        stash = ts.load(source(), ["x"], entity="name", time="hour", static=stores, shard=(k, 3))
        assert stash.static["size"].tolist() == [int(name[1:]) for name in stash.entities]


def test_copies_of_shards_are_apart(shm: Path, tmp_path: Path) -> None:
    for k in (0, 1):
        kept = ts.load(source(), ["x"], **KEYS, shard=(k, 2))
        shared = ts.load(source(), ["x"], **KEYS, shard=(k, 2), share="shards")
        on_disk = ts.load(source(), ["x"], **KEYS, shard=(k, 2), file=tmp_path / f"{k}.safetensors")
        assert rows_of(kept) == rows_of(shared) == rows_of(on_disk)
    assert ts.shared.list().height == 2
    with pytest.raises(ts.errors.SegmentError, match="holds another stash"):
        ts.load(source(), ["x"], **KEYS, shard=(1, 2), file=tmp_path / "0.safetensors")


@pytest.mark.parametrize(
    ("shard", "kind", "message"),
    [
        (3, TypeError, r"shard= must be a pair of a shard and the number of shards, such as \(0, 64\), got 3\."),
        ((2, 2), ValueError, r"The number of a shard in shard= must be < 2, got 2\."),
        ((0, 0), ValueError, r"shards must be an integer >= 1, got 0\."),
        ((0, 5000), ValueError, r"shards must be at most 4,096, got 5,000\."),
    ],
)
def test_wrong_shards(shard: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=f"^{message}$"):
        ts.load(source(), ["x"], **KEYS, shard=shard)


def test_a_shard_needs_entities() -> None:
    with pytest.raises(ValueError, match=r"^A shard is of entities; got shard=\(0, 2\) and no entity=\."):
        ts.load(source(), ["x"], shard=(0, 2))


def test_one_column_in_a_list_is_a_tuple() -> None:
    data = {"e": ["a", "b", "c", "d"], "y": [1, 2, 3, 4]}
    found = [ts.load(data, entity=["e"], shard=(k, 3)).entities for k in range(3)]
    assert [[by_definition(name, 3) for name in names] for names in found] == [[k] * len(found[k]) for k in range(3)]
    assert sorted(name for names in found for name in names) == [("a",), ("b",), ("c",), ("d",)]
