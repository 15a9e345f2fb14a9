"""The inside of `native/caches.py`: what Linux tells of the caches, and what it leaves out."""

from pathlib import Path

import pytest

from tensorstash.native.caches import streamed_from


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        (("32K", "32K", "1024K", "32768K"), 8 << 20),
        (("48K", "2048K"), 512 << 10),
        ((), 1 << 62),
        (("", "1M", "K", "ÄK"), 1 << 62),
    ],
)
def test_batches_of_a_quarter_of_the_largest_cache(tmp_path: Path, sizes: tuple[str, ...], expected: int) -> None:
    for k, size in enumerate(sizes):
        (tmp_path / f"index{k}").mkdir()
        (tmp_path / f"index{k}" / "size").write_text(f"{size}\n", encoding="utf-8")
    (tmp_path / "index9" / "size").mkdir(parents=True)
    assert streamed_from(tmp_path) == expected
