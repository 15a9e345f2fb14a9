"""Keys in the paths of partitioned files: columns, and a filter by them leaves whole files unread."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests.oracle_load import write_parquet


def partitioned(directory: Path) -> Path:
    for year in (2023, 2024):
        for place in ("Oslo", "São Paulo", None):
            name = "__HIVE_DEFAULT_PARTITION__" if place is None else place.replace(" ", "%20")
            path = directory / f"year={year}" / f"place={name}"
            path.mkdir(parents=True)
            write_parquet(path / "0.parquet", [pa.table({"y": [year, year + 1]})])
    return directory


def test_partition_keys_are_columns(tmp_path: Path) -> None:
    stash = ts.load(partitioned(tmp_path / "d"))
    assert list(stash) == ["y", "year", "place"]
    assert stash["year"].tolist() == [2023] * 6 + [2024] * 6
    assert stash["year"].dtype == torch.int64
    names = [None if code < 0 else stash.vocabulary("place")[code] for code in stash["place"].tolist()]
    assert names == ["Oslo", "Oslo", "São Paulo", "São Paulo", None, None] * 2 or names == (
        ["Oslo"] * 2 + ["São Paulo"] * 2 + [None] * 2
    )


def test_partition_keys_exclude_files_unread(tmp_path: Path) -> None:
    root = partitioned(tmp_path / "d")
    for path in root.glob("year=2024/place=Oslo/*"):
        path.write_bytes(b"no Parquet at all")
    with pytest.raises(ts.errors.SourceError, match=r"year=2024/place=Oslo/0\.parquet is not a readable"):
        ts.load(root)
    conditions: list[Any] = [
        [("year", "==", 2023)],
        pc.field("year") < 2024,
        (pc.field("year") == 2023) & (pc.field("y") > 0),
    ]
    for condition in conditions:
        stash = ts.load(root, ["y", "place"], filter=condition)
        assert stash["y"].tolist() == [2023, 2024] * 3
    assert ts.load(root, ["y"], filter=[("place", "==", "São Paulo")])["y"].tolist() == [2023, 2024, 2024, 2025]
    assert ts.load(root, ["y"], filter=pc.field("place").is_null())["y"].tolist() == [2023, 2024, 2024, 2025]
    assert ts.load(root, ["y"], filter=[("year", "==", 1999)]).rows == 0
    assert ts.plan(root, ["y"], filter=[("year", "==", 2023)]).rows == 6
    assert ts.load(str(root / "year=2023" / "*" / "*"), entity="place", filter=[("place", "!=", "x")]).entities == [
        "Oslo",
        "São Paulo",
    ]


def test_keys_that_only_some_paths_have_are_a_difference(tmp_path: Path) -> None:
    root = partitioned(tmp_path / "d")
    write_parquet(root / "year=2024" / "1.parquet", [pa.table({"y": [1]})])
    with pytest.raises(ts.errors.SourceError, match=r"need the same columns and types: .*1\.parquet has no column 'pl"):
        ts.load(root)
    assert ts.load(root, ["y", "year"]).rows == 13


def test_a_column_of_the_file_goes_before_a_key_of_its_path(tmp_path: Path) -> None:
    (tmp_path / "y=7").mkdir()
    write_parquet(tmp_path / "y=7" / "0.parquet", [pa.table({"y": [1, 2], "k": [3, 4]})])
    assert ts.load(tmp_path)["y"].tolist() == [1, 2]
    assert ts.load(tmp_path, ["k"], filter=[("y", "==", 2)])["k"].tolist() == [4]


@pytest.mark.filterwarnings("ignore:Column 'k' is text")  # most of them may read as numbers
@example(["1", "02", "-3"], [1, 2, -3])
@example(["1", "x"], None)
@example(["1" * 19], None)
@given(st.lists(st.text("01²-_x", min_size=1, max_size=3), min_size=1, max_size=3), st.just(None))
@settings(max_examples=30)
def test_keys_are_integers_only_where_all_are(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], numbers: list[int] | None
) -> None:
    root = tmp_path_factory.mktemp("keys")
    for text in dict.fromkeys(texts):
        (root / f"k={text}").mkdir()
        write_parquet(root / f"k={text}" / "0.parquet", [pa.table({"y": [0]})])
    stash = ts.load(root)
    if stash["k"].dtype == torch.int64:
        assert sorted(stash["k"].tolist()) == sorted(int(text) for text in dict.fromkeys(texts))
    else:
        assert numbers is None
        assert sorted(stash.vocabulary("k")) == sorted(dict.fromkeys(texts))
