"""The inside of `ingest/plan_text.py`: a plan tells columns from paths, `key=value`, from those of the files."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pytest

import tensorstash as ts
from tensorstash.ingest.plan_text import cells
from tests.oracle_load import write_parquet


def kinds(plan: Any) -> dict[str, str]:
    return {line[0]: line[3] for line in map(cells, plan.facts)}


def partitioned(directory: Path) -> Path:
    for year in (2023, 2024):
        for place in "ab":
            path = directory / f"year={year}" / f"place={place}"
            path.mkdir(parents=True)
            write_parquet(path / "0.parquet", [pa.table({"t": [year, year + 5], "y": [0.5, 1.5]})])
    return directory


@pytest.mark.parametrize("form", ["directory", "dataset"])
def test_a_key_of_paths_is_not_listed_as_a_column_of_the_files(tmp_path: Path, form: str) -> None:
    root = partitioned(tmp_path / "d")
    source: Any = root if form == "directory" else pads.dataset(root, partitioning="hive")
    assert kinds(ts.plan(source)) == {
        "t": "number",
        "y": "number",
        "year": "partition key number",
        "place": "partition key category",
    }
    chosen = ts.plan(source, {"x": ["y", "year"], "when": "year"}, entity="place")
    assert kinds(chosen) == {"x": "number", "when": "partition key number", "place": "entity"}


def test_a_key_of_paths_of_csv_files(tmp_path: Path) -> None:
    (tmp_path / "year=1").mkdir()
    (tmp_path / "year=1" / "0.csv").write_text("t,y\n1,0.5\n")
    assert kinds(ts.plan(tmp_path)) == {"t": "number", "y": "number", "year": "partition key number"}


def test_a_column_of_the_files_with_the_name_of_a_key_is_theirs(tmp_path: Path) -> None:
    (tmp_path / "y=7").mkdir()
    write_parquet(tmp_path / "y=7" / "0.parquet", [pa.table({"y": [1.0]})])
    assert kinds(ts.plan(tmp_path)) == {"y": "number"}
