"""Columns that nobody asked for are not decoded, not converted, and may hold anything."""

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tensorstash as ts
from tests.oracle_load import (
    write_ipc,
    write_parquet,
)


def damage(path: Path, begin: int, end: int) -> None:
    """Turn around the bits of some bytes of a file."""
    data = bytearray(path.read_bytes())
    data[begin:end] = bytes(byte ^ 0xFF for byte in data[begin:end])
    path.write_bytes(data)


@pytest.mark.parametrize("wanted", ["a", "b", "c"])
def test_unwanted_columns_of_a_parquet_file_are_not_decoded(wanted: str, tmp_path: Path) -> None:
    """Their pages are damaged: whoever decoded them would fail, as the last lines show."""
    rng = np.random.default_rng(0)
    table = pa.table({name: rng.random(1000) for name in "abc"})
    path = write_parquet(tmp_path / "one.parquet", [table.slice(0, 600), table.slice(600)])
    meta = pq.ParquetFile(path).metadata
    for group in range(meta.num_row_groups):
        for k, name in enumerate("abc"):
            chunk = meta.row_group(group).column(k)
            begin = min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
            if name != wanted:
                damage(path, begin + chunk.total_compressed_size // 2, begin + chunk.total_compressed_size)
    assert np.array_equal(ts.load(path, {"y": wanted})["y"].numpy(), table[wanted].to_numpy())
    unwanted = "abc".replace(wanted, "")[0]
    message = (
        rf"\A{path}, row group 0 cannot be decoded: .*CRC checksum verification failed.*\. Write the file again\.\Z"
    )
    with pytest.raises(ts.errors.SourceError, match=message):
        ts.load(path, [unwanted])


@pytest.mark.parametrize("wanted", ["a", "b", "c"])
def test_unwanted_columns_of_an_arrow_file_are_not_decoded(wanted: str, tmp_path: Path) -> None:
    """Neither for the rows nor for the plan; one bad column in a compressed file does not spoil the others."""
    rng = np.random.default_rng(0)
    # values that compress to almost nothing but the wanted ones, so that the damage cannot miss
    table = pa.table({name: rng.integers(0, 50, 20_000).astype(np.float64) for name in "abc"})
    paths = [write_ipc(tmp_path / f"{name}.arrow", [table.select([name])], "zstd") for name in "abc"]
    path = write_ipc(tmp_path / "one.arrow", [table.slice(0, 12_000), table.slice(12_000)], "zstd")
    assert path.stat().st_size > 2 * paths[0].stat().st_size
    data = path.read_bytes()
    for name in "abc".replace(wanted, ""):
        for piece in (table.slice(0, 12_000), table.slice(12_000)):
            body = pa.Codec("zstd", 1).compress(
                piece[name].chunk(0).buffers()[1].slice(piece[name].chunk(0).offset * 8, piece.num_rows * 8),
                asbytes=True,
            )
            at = data.find(body[:200])
            assert at > 0
            damage(path, at, at + 40)
    assert ts.plan(path, [wanted]).rows == 20_000
    assert np.array_equal(ts.load(path, [wanted])[wanted].numpy(), table[wanted].to_numpy())
    with pytest.raises(ts.errors.SourceError, match=rf"\A{path} is not a readable (Parquet|Arrow IPC) file: .*\Z"):
        ts.load(path, ["abc".replace(wanted, "")[-1]])


def test_unwanted_columns_of_frames_and_mappings_are_not_converted() -> None:
    """They hold what Arrow cannot hold."""
    odd = [object(), object()]
    for source in ({"odd": odd, "y": [1, 2]}, pd.DataFrame({"odd": odd, "y": [1, 2]})):
        assert ts.load(source, ["y"])["y"].tolist() == [1, 2]
    frame = pl.DataFrame({"odd": pl.Series(odd, dtype=pl.Object), "y": [1, 2]})
    assert ts.load(frame, ["y"])["y"].tolist() == [1, 2]


def test_an_unwanted_column_may_have_another_type_in_each_file(tmp_path: Path) -> None:
    """A column that is all null in one month is a common reason, and nobody asked for it."""
    write_parquet(tmp_path / "1.parquet", [pa.table({"y": [1], "remark": pa.array([None], pa.null())})])
    write_parquet(tmp_path / "2.parquet", [pa.table({"y": [2], "remark": ["late"]})])
    assert ts.load(tmp_path, ["y"])["y"].tolist() == [1, 2]
