"""Text in every encoding that writers of Parquet use, wherever a column of text may stand."""

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tensorstash as ts
from tests.oracle_load import like

TEXTS = ["beta", "alpha", None, "beta", "gamma", "", "a rather long text, ä", "alpha"]
OTHERS = ["u", "v", "u", "v", "u", "v", "u", "w"]
DELTA = ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"]


def written(path: Path, encodings: dict[str, str], arrow: pa.DataType | None = None) -> Path:
    """Three row groups, with the columns `s` (with nulls), `e` and `y`."""
    arrow = arrow or pa.string()
    table = pa.table({"s": pa.array(TEXTS, arrow), "e": pa.array(OTHERS, arrow), "y": range(8)})
    pq.write_table(table, path, row_group_size=3, use_dictionary=False, column_encoding=encodings)
    about = pq.read_metadata(path).row_group(0)
    assert all(encodings[about.column(k).path_in_schema] in about.column(k).encodings for k in range(2))
    return path


def everywhere(path: Path) -> list[Any]:
    """What loads give with the texts as a column, entity, static column, hash, mask, in a filter, in an expression."""
    s, e = pl.col("s"), pl.col("e")
    columns: dict[str, Any] = {
        "s": "s",
        "hash": ts.hashed("s", 7),
        "known": ts.is_valid("s"),
        "fixed": ts.column("s", vocabulary=["alpha", "beta"]),
        "length": (s + e).str.len_bytes().fill_null(99),
    }
    plain = ts.load(path, columns)
    grouped = ts.load(path, ["y"], entity="e", static={"first": e + "!"}, filter=[("e", "!=", "v")])
    some = ts.load(path, ["y", "s"], filter=[("s", "in", ["alpha", "gamma"])])
    return [
        {name: plain[name].tolist() for name in columns},
        plain.vocabulary("s"),
        (grouped.entities, grouped["y"].tolist(), grouped.vocabulary("first")),
        (some["y"].tolist(), some.vocabulary("s")),
    ]


@pytest.mark.parametrize("one", DELTA)
@pytest.mark.parametrize("other", ["PLAIN", *DELTA])
def test_delta_encodings_give_what_plain_ones_give(one: str, other: str, tmp_path: Path) -> None:
    found = everywhere(written(tmp_path / "delta.parquet", {"s": one, "e": other}))
    assert found == everywhere(written(tmp_path / "plain.parquet", {"s": "PLAIN", "e": "PLAIN"}))
    assert found[1] == sorted(["beta", "alpha", "gamma", "", "a rather long text, ä"])


@pytest.mark.parametrize("arrow", [pa.large_string(), pa.string_view()])
def test_delta_encodings_of_other_types_of_text(arrow: pa.DataType, tmp_path: Path) -> None:
    plain = everywhere(written(tmp_path / "plain.parquet", {"s": "PLAIN", "e": "PLAIN"}))
    assert everywhere(written(tmp_path / "delta.parquet", {"s": DELTA[0], "e": DELTA[1]}, arrow)) == plain


def test_files_of_different_encodings_are_one_source(tmp_path: Path) -> None:
    for k, encoding in enumerate(["PLAIN", *DELTA]):
        written(tmp_path / f"{k}.parquet", {"s": encoding, "e": encoding})
    stash = ts.load(tmp_path, ["s", "e"])
    assert [stash.vocabulary("s")[code] if code >= 0 else None for code in stash["s"].tolist()] == TEXTS * 3
    assert [stash.vocabulary("e")[code] for code in stash["e"].tolist()] == OTHERS * 3


def test_files_of_version_2_of_duckdb(tmp_path: Path) -> None:
    """Few texts are written as dictionaries, many as DELTA_LENGTH_BYTE_ARRAY."""
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "duckdb.parquet"
    rows = "select 'few' || i % 3 as few, 'text ' || i as many, i as y from range(5000) numbers(i)"
    duckdb.sql(f"copy ({rows}) to '{path}' (format parquet, parquet_version v2, row_group_size 2048)")
    about = pq.read_metadata(path).row_group(0)
    assert about.column(1).encodings == ("DELTA_LENGTH_BYTE_ARRAY",)
    stash = ts.load(path, ["few", "many", "y"])
    assert stash.vocabulary("few") == ["few0", "few1", "few2"]
    texts = [f"text {k}" for k in range(5000)]
    many = stash.vocabulary("many")
    assert many == sorted(texts)
    assert [many[code] for code in stash["many"].tolist()] == texts
    assert stash["y"].tolist() == [*range(5000)]


def test_a_dictionary_in_an_encoding_that_pyarrow_cannot_read_as_one_is_an_error(tmp_path: Path) -> None:
    """The file asks for dictionaries itself, in the schema of Arrow that it carries."""
    path = tmp_path / "one.parquet"
    table = pa.table({"s": pa.array(TEXTS).dictionary_encode(), "y": range(8)})
    pq.write_table(table, path, use_dictionary=False, column_encoding={"s": DELTA[0], "y": "PLAIN"})
    assert ts.load(path, ["y"])["y"].tolist() == [*range(8)]
    with pytest.raises(ts.errors.SourceError, match=like(f"{path}, row group 0 cannot be decoded: column 's'")):
        ts.load(path, ["y", "s"])
    stash = ts.load(pl.scan_parquet(path), ["y", "s"])
    assert stash.vocabulary("s") == sorted({text for text in TEXTS if text is not None})
