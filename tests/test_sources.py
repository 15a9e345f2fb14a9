"""Files, Arrow streams and what else holds rows in memory; files that differ."""

import importlib.util
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tensorstash as ts
from tests.oracle_load import whole, write_ipc, write_parquet


def write_stream(path: Path, pieces: list[pa.Table], **options: Any) -> Path:
    """A stream with a record batch for each piece; dictionaries change on the way."""
    with pa.ipc.new_stream(path, pieces[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as stream:
        for piece in pieces:
            stream.write_table(piece)
    return path


@pytest.mark.parametrize("name", ["one.arrows", "one.arrow"])
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_stream_of_arrow(name: str, compression: str | None, tmp_path: Path) -> None:
    pieces = [
        pa.table({"x": [k * 1.5, 1.0], "s": pa.array(texts).dictionary_encode(), "y": [k, k + 10]})
        for k, texts in enumerate([["b", "a"], ["a", "b"], ["c", None]])
    ]
    path = write_stream(tmp_path / name, pieces, compression=compression)
    stash = ts.load(path, ["s", "y"])
    assert stash["y"].tolist() == [0, 10, 1, 11, 2, 12]
    assert (stash["s"].tolist(), stash.vocabulary("s")) == ([0, 1, 1, 0, 2, -1], ["b", "a", "c"])
    assert ts.plan(tmp_path).rows == 6
    write_ipc(tmp_path / "two.arrow", [pieces[0]], None)
    assert ts.load(tmp_path, ["y"])["y"].tolist() == [0, 10, 1, 11, 2, 12, 0, 10]


def test_a_stream_that_ends_too_early(tmp_path: Path) -> None:
    path = write_stream(tmp_path / "one.arrows", [pa.table({"y": np.arange(1000)})] * 3)
    data = path.read_bytes()
    for length in (len(data) - 100, len(data) // 2, 300, 10, 0):
        path.write_bytes(data[:length])
        with pytest.raises(ts.SourceError, match=rf"\A{path} is not a readable Parquet or Arrow IPC file: .+"):
            ts.load(path)


def test_one_file_under_two_spellings_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_parquet(tmp_path / "one.parquet", [pa.table({"y": [1, 2]})])
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "other.parquet").symlink_to(path)
    monkeypatch.chdir(tmp_path)
    spellings = [path, "one.parquet", "./one.parquet", "link/one.parquet", f"{tmp_path}//one.parquet", "other.parquet"]
    for two in spellings:
        assert ts.load([path, two])["y"].tolist() == [1, 2]
    assert ts.load([*spellings, "*.parquet", tmp_path])["y"].tolist() == [1, 2]


def test_record_batches() -> None:
    batch = pa.record_batch({"y": [1, 2], "z": ["a", "b"]})
    assert ts.load(batch, ["y"])["y"].tolist() == [1, 2]
    assert ts.plan(batch).source == "the pyarrow RecordBatch"
    reader = pa.RecordBatchReader.from_batches(batch.schema, [batch])
    with pytest.raises(
        TypeError, match=r"got pyarrow\.lib\.RecordBatchReader\. It can be read only once: call \.read_"
    ):
        ts.load(reader)
    assert reader.read_all().num_rows == 2


@pytest.mark.parametrize("kind", ["i2", "i4", "u8", "f4", "f8"])
def test_arrays_of_the_other_byte_order(kind: str) -> None:
    for order in "<>":
        values = np.arange(6, dtype=np.dtype(f"{order}{kind}"))
        stash = ts.load({"a": values, "b": values.reshape(3, 2).repeat(2, 0), "c": values[::-1]})
        assert stash["a"].tolist() == [0, 1, 2, 3, 4, 5]
        assert stash["b"].tolist() == [[0, 1], [0, 1], [2, 3], [2, 3], [4, 5], [4, 5]]
        assert stash["c"].tolist() == [5, 4, 3, 2, 1, 0]
        assert ts.load({"a": np.ma.masked_array(values.astype(f"{order}f8"), mask=np.arange(6) == 0)})["a"].nan_to_num(
            9
        ).tolist()[:2] == [9, 1]


@pytest.mark.skipif(importlib.util.find_spec("datasets") is None, reason="the package datasets is not installed")
def test_a_hugging_face_dataset(tmp_path: Path) -> None:
    """Its columns, in the order of its indices; what is not asked for may be anything."""
    import datasets

    columns = {
        "s": ["b", "a", "b", "c"],
        "t": [4, 3, 2, 1],
        "y": [0.5, None, 2.5, 3.5],
        "words": [["x"], [], ["y"], []],
    }
    held = datasets.Dataset.from_dict(columns)
    stash = ts.load(held, ["y"], entity="s", time="t")
    assert (stash.entities, stash["y"].nan_to_num(-1).tolist()) == (["b", "a", "c"], [2.5, 0.5, -1.0, 3.5])
    assert ts.plan(held, ["y"]).skipped == ("s", "t", "words")
    chosen = held.select([3, 0, 2])
    assert ts.load(chosen, ["t"])["t"].tolist() == [1, 4, 2]
    held.save_to_disk(str(tmp_path / "saved"))
    opened = datasets.load_from_disk(str(tmp_path / "saved")).with_format("torch").shuffle(seed=1)
    assert ts.load(opened, ["t"])["t"].tolist() == opened["t"][:].tolist()
    assert ts.load(tmp_path / "saved", ["t"])["t"].tolist() == [4, 3, 2, 1]  # it is a stream in an .arrow file
    long = datasets.Dataset.from_dict({"y": np.arange(300_000)})
    assert np.array_equal(ts.load(long)["y"].numpy(), np.arange(300_000))
    with pytest.raises(TypeError, match=r"got datasets\.dataset_dict\.DatasetDict\. Choose one of its splits\.\Z"):
        ts.load(datasets.DatasetDict({"train": held}))


def test_a_file_that_nobody_may_read(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "one.parquet", [pa.table({"y": [1]})])
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read every file")
    with pytest.raises(ts.SourceError, match=rf"\A{path} is not a readable Parquet or Arrow IPC file: .*Permission"):
        ts.load(path)


def test_arrays_in_a_list_are_no_paths() -> None:
    with pytest.raises(TypeError, match=r"\AA source is a path, a glob, .*; got builtins\.list\.\Z"):
        ts.load([np.arange(3)])
    with pytest.raises(ts.SourceError, match=whole("A source needs at least one file; the list of paths is empty.")):
        ts.load([])
