"""The inside of `ingest/write.py`: what is read of a draft again."""

from typing import Any

import pyarrow as pa
import pytest

import tensorstash as ts
from tensorstash.segments.draft import Draft


def test_a_text_column_that_needs_no_renumbering_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts of the first batch get ascending codes at once."""
    read: list[str] = []
    real = Draft.read

    def noted(self: Draft, name: str, start: int, rows: int) -> Any:
        read.append(name)
        return real(self, name, start, rows)

    monkeypatch.setattr(Draft, "read", noted)
    assert ts.load({"s": ["b", "c", "a"] * 3})["s"].tolist() == [1, 2, 0] * 3
    assert read == []
    monkeypatch.setattr("tensorstash.sources.tables._SMALL_ROWS", 1)  # so that the chunks are decoded one by one
    later = [pa.table({"s": ["b", "c"]}), pa.table({"s": ["a", "d"]})]  # whichever is decoded first
    ts.load(pa.concat_tables(later))
    assert read == ["s"]
