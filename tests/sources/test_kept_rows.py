"""The inside of `sources/kept_rows.py`: how many rows a filter is asked about at a time."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import tensorstash as ts
from tensorstash.sources import kept_rows, parquet


def test_long_texts_are_compared_a_few_rows_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dictionary of one long text, which stands in every row of a small file, needs little memory."""
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 299 + [1], pa.int32()), ["x" * 100_000, "a"])
    pq.write_table(pa.table({"s": texts, "n": range(300)}), tmp_path / "s.parquet", compression="zstd")
    assert (tmp_path / "s.parquet").stat().st_size < 20_000
    sizes = []
    mask = kept_rows._mask

    def noted(batch: pa.RecordBatch, expression: pc.Expression) -> Any:
        sizes.append(len(batch))
        return mask(batch, expression)

    monkeypatch.setattr(kept_rows, "_mask", noted)
    monkeypatch.setattr(kept_rows, "_TEXT_BYTES", 1_000_000)
    monkeypatch.setattr(parquet, "_MOST_BYTES", 1_000_000)
    for condition, kept in (([("s", "==", "a")], [299]), ([("s", "!=", "a"), ("n", "<", 15)], [*range(15)])):
        assert ts.load(tmp_path / "s.parquet", ["n"], filter=condition)["n"].tolist() == kept
    assert max(sizes) == 10
