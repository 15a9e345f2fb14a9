"""The inside of `sources/parquet.py`: which leaves of a file belong to a column."""

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as pads

from tensorstash.sources.file import here
from tensorstash.sources.parquet import RowGroups
from tests.oracle_load import write_parquet


def test_the_leaf_of_a_name_with_a_dot_is_checked_too(tmp_path: Path) -> None:
    table = pa.table({"a": [{"b": 1, "c": 2}], "d.e": [3], "d": [4]})
    path = write_parquet(tmp_path / "one.parquet", [table])
    groups = RowGroups(pads.ParquetFileFormat().make_fragment(str(path), here()))
    assert [sorted(groups._leaves([name])) for name in ("a", "d.e", "d")] == [[0, 1], [2], [2, 3]]

    write_parquet(path, [table.select(["d.e", "d"])])
    groups = RowGroups(pads.ParquetFileFormat().make_fragment(str(path), here()))
    assert [groups._leaves([name]) for name in ("d.e", "d")] == [[0], [1, 0]]
