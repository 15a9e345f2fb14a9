"""filter=: what is decoded, and what is not."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import tensorstash as ts
from tests.ingest.test_unwanted_columns import damage
from tests.oracle_load import write_parquet
from tests.sources.filters import many_groups


@pytest.mark.parametrize(
    ("condition", "decoded", "rows"),
    [
        ([("s", "==", "s3")], [3], range(300, 400)),
        ([("s", "in", ["s3", "s7"])], [3, 7], [*range(300, 400), *range(700, 800)]),
        (pc.field("t") >= pa.scalar(750, pa.timestamp("s")), [7, 8, 9], range(750, 1000)),
        ((pc.field("y") < 150) | (pc.field("s") == "s9"), [0, 1, 9], [*range(150), *range(900, 1000)]),
        ([("f", "<", 60.0)], [0, 1], range(120)),
        ([("f", ">", 60.0), ("f", "<=", 110.0)], [1, 2], range(121, 221)),
        ([("s", "==", "none")], [], []),
    ],
    ids=lambda given: str(given)[:40],
)
def test_row_groups_that_statistics_exclude_are_not_decoded(
    condition: Any, decoded: list[int], rows: Any, tmp_path: Path
) -> None:
    """All pages of the other row groups are damaged, and no reader is made for them."""
    path = many_groups(tmp_path / "one.parquet")
    meta = pq.ParquetFile(path).metadata
    for group in set(range(10)) - set(decoded):
        for k in range(5):
            chunk = meta.row_group(group).column(k)
            begin = min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
            damage(path, begin + chunk.total_compressed_size // 2, begin + chunk.total_compressed_size)
    seen: list[int] = []
    real = pq.ParquetFile.iter_batches

    def counted(self: Any, *arguments: Any, row_groups: list[int], **options: Any) -> Any:
        for batch in real(self, *arguments, row_groups=row_groups, **options):
            seen.extend(row_groups)
            yield batch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pq.ParquetFile, "iter_batches", counted)
        plan = ts.plan(path, ["y"], filter=condition)
        assert seen == []
        assert (plan.rows, len(plan.choice.source.units), plan.choice.source.pieces) == (len(rows), len(decoded), 10)
        assert sorted(seen) == decoded
        stash = ts.load(path, ["y"], filter=condition)
    assert sorted(set(seen)) == decoded
    assert stash["y"].tolist() == list(rows)


def test_of_row_groups_without_a_kept_row_only_the_filter_is_read(tmp_path: Path) -> None:
    """Statistics do not tell for an expression of floats; the filter's own column does."""
    path = many_groups(tmp_path / "one.parquet")
    meta = pq.ParquetFile(path).metadata
    for group in range(2, 10):
        chunk = meta.row_group(group).column(3)
        damage(path, chunk.data_page_offset, chunk.data_page_offset + 20)
    assert ts.load(path, ["y"], filter=pc.field("f") < 60.0)["y"].tolist() == list(range(120))
    with pytest.raises(ts.errors.SourceError, match=r", row group 2 cannot be decoded: .*\. Write the file again\.\Z"):
        ts.load(path, ["y"], filter=pc.field("f") < 110.0)


def test_columns_of_the_filter_are_not_kept_and_others_are_not_read(tmp_path: Path) -> None:
    path = many_groups(tmp_path / "one.parquet")
    plan = ts.plan(path, ["y"], filter=[("s", "==", "s3"), ("f", ">", 170.0)])
    assert plan.skipped == ("t", "z")
    assert list(ts.load(path, ["y"], filter=[("s", "==", "s3")])) == ["y"]
    # the name of a column that only stands in a value is none of the filter's
    renamed = pa.table({"kind": ["y", "z"], "y": [1, 2], "z": pa.array([{"a": 1}] * 2)})
    write_parquet(tmp_path / "two.parquet", [renamed])
    plan = ts.plan(tmp_path / "two.parquet", ["y"], filter=pc.field("kind") == "z")
    assert (plan.rows, plan.skipped) == (1, ("z",))


def test_only_columns_of_the_filter_are_converted_of_frames_and_mappings() -> None:
    odd = [object(), object()]
    sources: list[Any] = [
        {"odd": odd, "y": [1, 2], "k": [5, 6]},
        pd.DataFrame({"odd": odd, "y": [1, 2], "k": [5, 6]}),
    ]
    conditions: list[Any] = [pc.field("k") > 5, [("k", ">", 5)]]
    for source in sources:
        for condition in conditions:
            assert ts.load(source, ["y"], filter=condition)["y"].tolist() == [2]


def test_a_large_row_group_is_filtered_batch_by_batch(tmp_path: Path) -> None:
    rows = 300_001
    kept = np.random.default_rng(0).random(rows) < 0.3
    kept[140_000:280_000] = False
    table = pa.table({"kept": kept, "y": np.arange(rows), "s": pa.array((np.arange(rows) % 7).astype(str))})
    sources: list[Any] = [write_parquet(tmp_path / "one.parquet", [table]), table]
    for source in sources:
        stash = ts.load(source, ["y", "s"], filter=pc.field("kept"))
        assert np.array_equal(stash["y"].numpy(), np.flatnonzero(kept))
        assert [stash.vocabulary("s")[code] for code in stash["s"][:50]] == [
            str(y % 7) for y in stash["y"][:50].tolist()
        ]
