"""The inside of `ingest/bundles.py`: small units decoded together are one large unit, and errors name the small one."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tensorstash.ingest.bundles import bundles, each_or_all, read_bundle
from tensorstash.sources.read import Source, Unit

FILES = 300


def unit(start: int, rows: int, place: str = "unit") -> Unit:
    table = pa.table({"row": np.arange(start, start + rows)})
    return Unit(place, start, rows, lambda names: table.select(names).to_batches(), start)


def table(file: int, rows: int) -> pa.Table:
    rng = np.random.default_rng(file)
    return pa.table(
        {
            "shop": pa.array([f"shop {file % 70}"] * rows, pa.string() if file % 2 else pa.large_string()),
            "hour": pa.array(rng.permutation(rows) + 1000 * (file // 70)),
            "kind": pa.array([None if k % 11 == 3 else f"kind {(k + file) % 13}" for k in range(rows)]),
            "sales": pa.array(rng.standard_normal(rows), mask=rng.random(rows) < 0.1),
            "region": pa.array([file % 70 % 7] * rows),
        }
    )


def written(directory: Path) -> list[pa.Table]:
    """Small files, some of which are empty, have several row groups, or hold texts as dictionaries."""
    tables = [table(file, file * 7 % 50) for file in range(FILES)]
    for file, one in enumerate(tables):
        own = one if file % 5 else one.set_column(2, "kind", one["kind"].combine_chunks().dictionary_encode())
        pq.write_table(own, directory / f"{file:03}.parquet", row_group_size=20)
    return tables


@settings(max_examples=50)
@given(st.lists(st.sampled_from([0, 1, 100, 32_767, 32_768, 200_000]), min_size=1, max_size=700))
def test_bundles_are_the_units_in_their_order(sizes: list[int]) -> None:
    starts = np.cumsum([0, *sizes]).tolist()
    units = [Unit("", start, rows, lambda _: [], start) for start, rows in zip(starts, sizes)]
    found = bundles(Source("", pa.schema({}), (*units,), len(units)))
    assert [one for bundle in found for one in bundle] == units
    for bundle in found:
        if len(bundle) > 1:
            assert max(one.rows for one in bundle) < 32_768
            assert sum(one.rows for one in bundle) <= 131_072
            assert len(bundle) <= max(min(256, len(units) // 8), 8 if sum(sizes) < 32_768 else 1)


@pytest.mark.parametrize(("rows", "is_remote", "sizes"), [(1, False, [8]), (1, True, [1] * 8), (5000, False, [1] * 8)])
def test_few_units_are_left_to_all_threads_if_these_are_worth_it(rows: int, is_remote: bool, sizes: list[int]) -> None:
    units = tuple(unit(k * rows, rows) for k in range(8))
    found = bundles(Source("", pa.schema({}), units, len(units), is_remote=is_remote))
    assert [len(bundle) for bundle in found] == sizes


@pytest.mark.parametrize("sizes", [[5], [3, 4, 5], [0, 3, 0], [0, 0], [30_000] * 10])
def test_a_bundle_holds_the_rows_of_its_units(sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorstash.ingest.bundles._BYTES", 600_000)
    starts = np.cumsum([7, *sizes]).tolist()
    units = tuple(unit(start, rows) for start, rows in zip(starts, sizes))
    found = list(read_bundle(units, ["row"]))
    assert [start for start, batch in found if batch.num_rows] == [batch["row"][0].as_py() for _, batch in found]
    assert [row for _, batch in found for row in batch["row"].to_pylist()] == [*range(7, starts[-1])]
    assert len(found) == -(-sum(sizes) // 90_000)


def test_batches_without_rows_are_concatenated_too() -> None:
    """Fragments of pyarrow datasets may yield them."""
    empty = Unit("unit", 0, 0, lambda _: [pa.record_batch({"row": pa.array([], pa.int64())})], 0)
    assert [batch.num_rows for _, batch in read_bundle((empty,) * 3, ["row"])] == [0]


def test_a_bundle_that_fails_is_done_unit_by_unit() -> None:
    units = tuple(unit(k, 1, f"unit {k}") for k in range(4))

    def work(bundle: tuple[Unit, ...]) -> list[str]:
        if len(bundle) > 1:
            raise ts.errors.DataError("which one it is, is not known")
        return [one.place for one in bundle]

    assert each_or_all(units, work) == [["unit 0"], ["unit 1"], ["unit 2"], ["unit 3"]]
    assert each_or_all(units, len) == [4]


def test_many_small_files_are_one_large_one(tmp_path: Path, shm: Path) -> None:
    tables = written(tmp_path)
    columns: dict[str, Any] = {"sales": "sales", "kind": "kind", "h": ts.hashed("kind", 5), "both": ["sales", "region"]}
    cases: list[dict[str, Any]] = [
        {},
        {"entity": "shop", "time": "hour", "static": ["region"]},
        {"entity": "shop", "time": "hour", "filter": pc.field("region") > 3},
        {"entity": ["shop", "region"], "time": "hour", "share": "small-files"},
    ]
    one = pa.concat_tables([one.cast(tables[1].schema) for one in tables])
    for case in cases:
        asked = columns if "static" not in case else {k: v for k, v in columns.items() if k != "both"}
        files = ts.load(tmp_path, asked, dtype=ts.load({"x": [1.0]})["x"].dtype, **case)
        expected = ts.load(one, asked, dtype=files["sales"].dtype, **{k: v for k, v in case.items() if k != "share"})
        assert files.entities == expected.entities
        for name in (*expected, *expected.static):
            here, there = ({**stash, **stash.static}[name].numpy() for stash in (files, expected))
            np.testing.assert_array_equal(here, there)
            assert files.about(name) == expected.about(name)
        assert files.vocabulary("kind") == expected.vocabulary("kind")


@pytest.mark.parametrize("column", ["sales", "hour", "shop"])
def test_an_error_names_the_small_file(column: str, tmp_path: Path) -> None:
    rows = 12
    for file in range(FILES):
        values = {"shop": ["a"] * rows, "hour": np.arange(rows) + rows * file, "sales": np.arange(rows)}
        own = pa.table(values)
        if file == 177:
            holes = np.arange(rows) == 5
            own = own.set_column(
                own.schema.get_field_index(column),
                column,
                pa.array(own[column].to_pylist(), own[column].type, mask=holes),
            )
        pq.write_table(own, tmp_path / f"{file:03}.parquet")
    where = f"{tmp_path}/177.parquet, row group 0"
    if column == "sales":
        message = (
            f"Integers, booleans and times have no missing value; column 'sales' has 1 null in {where}. Keep "
            "nulls as NaN, ts.column('sales', dtype=torch.float32), or store a value that counts as data: "
            "ts.column('sales', fill=...)."
        )
    else:
        message = (
            f"a known time; column {column!r} of {tmp_path} is null in row 2,129 ({where}) "
            "(the first such). Fill or drop such rows"
        )
    with pytest.raises(ts.errors.DataError, match=re.escape(message)):
        ts.load(tmp_path, ["sales"], entity="shop", time="hour")


def test_a_damaged_small_file_is_named(tmp_path: Path) -> None:
    for file in range(FILES):
        pq.write_table(
            pa.table({"y": np.arange(100.0) + file}), tmp_path / f"{file:03}.parquet", write_page_checksum=True
        )
    path = tmp_path / "177.parquet"
    data = bytearray(path.read_bytes())
    data[300] ^= 1
    path.write_bytes(data)
    with pytest.raises(ts.errors.SourceError, match=rf"\A{path}, row group 0 cannot be decoded: "):
        ts.load(tmp_path)
