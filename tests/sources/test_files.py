"""Files, lists of files, globs and directories: their order, their columns, and files that cannot be read."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tensorstash as ts
from tests.oracle_load import (
    like,
    write_ipc,
    write_parquet,
)


def test_files_follow_each_other_in_the_order_of_their_paths(tmp_path: Path) -> None:
    for name, first in (("b", 10), ("a", 0), ("c", 20)):
        write_parquet(tmp_path / f"{name}.parquet", [pa.table({"y": [first, first + 1]})])
    expected = [0, 1, 10, 11, 20, 21]
    paths = [tmp_path / "c.parquet", str(tmp_path / "a.parquet"), tmp_path / "b.parquet"]
    sources: list[Any] = [
        sorted(map(str, paths)),
        tmp_path,
        str(tmp_path / "*.parquet"),
        [tmp_path / "?.parquet", tmp_path],
    ]
    for source in sources:
        assert ts.load(source)["y"].tolist() == expected
    for source in (paths, tuple(paths)):
        with pytest.warns(UserWarning, match="natural order of their paths"):
            assert ts.load(source)["y"].tolist() == expected


def test_a_directory_mixes_parquet_and_arrow_and_skips_other_files(tmp_path: Path) -> None:
    write_parquet(tmp_path / "1.parquet", [pa.table({"y": [1, 2], "s": ["a", "b"]})])
    write_parquet(tmp_path / "4.PQ", [pa.table({"y": [5], "s": ["b"]})])
    (tmp_path / "deep" / "er").mkdir(parents=True)
    text = pa.array(["c", "a"]).dictionary_encode()
    write_ipc(tmp_path / "deep" / "er" / "2.feather", [pa.table({"y": [6, 7], "s": text})], "zstd")
    write_ipc(tmp_path / "3.arrow", [pa.table({"y": [3, 4], "s": pa.array(["d", None], pa.large_string())})], None)
    (tmp_path / "README.txt").write_text("not data")
    stash = ts.load(tmp_path)
    assert stash["y"].tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert stash.vocabulary("s") == ["a", "b", "c", "d"]
    assert stash["s"].tolist() == [0, 1, 3, -1, 1, 2, 0]


def test_files_may_order_their_columns_differently_and_have_more(tmp_path: Path) -> None:
    one = write_parquet(tmp_path / "1.parquet", [pa.table({"a": [1], "b": [2.5]})])
    two = write_parquet(tmp_path / "2.parquet", [pa.table({"c": ["x"], "b": [4.5], "a": [3]})])
    three = write_ipc(tmp_path / "3.arrow", [pa.table({"b": [6.5], "c": [0], "a": [5]})], "lz4")
    stash = ts.load([one, two, three], ["a", "b"])
    assert {name: tensor.tolist() for name, tensor in stash.items()} == {"a": [1, 3, 5], "b": [2.5, 4.5, 6.5]}


def test_a_source_with_no_file(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no data")
    here = os.getcwd()
    for source, why in (
        (tmp_path / "missing.parquet", f"'{tmp_path}/missing.parquet' matches no file"),
        (str(tmp_path / "*.parquet"), f"'{tmp_path}/*.parquet' matches no file"),
        (
            tmp_path,
            f"the directory '{tmp_path}' holds no .parquet, .parq, .pq, .arrow, .feather, .ipc, .arrows, .orc, "
            ".csv, .csv.gz, .csv.zst, .tsv, .tsv.gz, .tsv.zst file",
        ),
        ([tmp_path / "*.pq"], f"'{tmp_path}/*.pq' matches no file"),
    ):
        message = f"at least one file; {why} (working directory '{here}')"
        with pytest.raises(ts.errors.SourceError, match=like(message)):
            ts.load(source)
    with pytest.raises(OSError, match=like("the list of paths is empty")):
        ts.load([])


def test_a_file_that_is_not_what_its_name_says(tmp_path: Path) -> None:
    good = write_parquet(tmp_path / "good.parquet", [pa.table({"y": [1, 2, 3]})])
    files = {
        "text.parquet": b"hello, this is not Parquet at all",
        "empty.parquet": b"",
        "cut.parquet": good.read_bytes()[:-20],
        "text.arrow": b"hello, this is not Arrow at all",
        "empty.feather": b"",
    }
    for name, data in files.items():
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(ts.errors.SourceError, match=rf"\A{path} is not a readable (Parquet|Arrow IPC) file: .+"):
            ts.load([good, path])


def test_a_footer_that_promises_more_rows_than_there_are(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "one.parquet", [pa.table({"x": range(100)})])
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    # 100 as Thrift writes it; the last of them is the number of rows of the row group
    at = data.rindex(b"\xc8\x01", len(data) - 8 - length)
    path.write_bytes(data[:at] + b"\xca\x01" + data[at + 2 :])
    assert pq.ParquetFile(path).metadata.row_group(0).num_rows == 101
    message = f"{path} is damaged: its row groups have 101 rows, its footer says 100"
    with pytest.raises(ts.errors.SourceError, match=like(message)):
        ts.load(path)


def test_files_that_differ_are_refused_with_all_differences(tmp_path: Path) -> None:
    tables = [
        pa.table({"y": [1], "s": ["a"], "t": pa.array([1], pa.timestamp("us"))}),
        pa.table(
            {"y": [True], "s": pa.array(["a"]).dictionary_encode(), "t": pa.array([1], pa.timestamp("us", "UTC"))}
        ),
        pa.table({"y": [1], "t": pa.array([1], pa.timestamp("us"))}),
    ]
    _, two, three = (write_parquet(tmp_path / f"{k}.parquet", [table]) for k, table in enumerate(tables))
    message = (
        f"{two} has 'y' as bool, not int64; {two} has 't' as timestamp[us, tz=UTC], not timestamp[us]; "
        f"{three} has no column 's'"
    )
    with pytest.raises(ts.errors.SourceError, match=like(message)):
        ts.load(tmp_path)


def test_of_many_differences_ten_are_shown(tmp_path: Path) -> None:
    write_parquet(tmp_path / "1.parquet", [pa.table({f"c{k}": [k] for k in range(14)})])
    two = write_parquet(tmp_path / "2.parquet", [pa.table({"c0": [1]})])
    shown = "; ".join(f"{two} has no column 'c{k}'" for k in range(1, 11))
    message = f"types: {shown}; and 3 more"
    with pytest.raises(ts.errors.SourceError, match=like(message)):
        ts.load(tmp_path)


def test_bookkeeping_files_of_a_directory_are_no_data(tmp_path: Path) -> None:
    table = pa.table({"y": [1, 2]})
    for name in ("a.PARQUET", ".ipynb_checkpoints/a.parquet", "_temporary/1.parquet", "sub/b.parquet"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        pq.write_table(table, path)
    assert ts.load(tmp_path)["y"].tolist() == [1, 2, 1, 2]
    assert ts.load(tmp_path / "_temporary" / "1.parquet").rows == 2


def test_the_footer_of_a_file_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With many columns and row groups it takes longer than the values."""
    path = tmp_path / "many.parquet"
    pq.write_table(pa.table({"t": range(100), "y": range(100)}), path, row_group_size=5)
    given, real = [], pq.ParquetFile

    def counted(*arguments: object, metadata: object = None, **options: object) -> object:
        given.append(metadata)
        return real(*arguments, metadata=metadata, **options)

    monkeypatch.setattr(pq, "ParquetFile", counted)
    assert ts.load(path, ["y"], time="t")["y"].tolist() == list(range(100))
    assert None not in given
    assert 0 < len(given) <= min(os.cpu_count() or 1, 8)  # one for each thread: those of the times read the values


def test_the_reader_of_texts_reads_the_other_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, rows = tmp_path / "one.parquet", 5000
    pq.write_table(pa.table({"id": ["a"] * rows, "t": range(rows), "y": range(rows)}), path)
    given, real = [], pq.ParquetFile

    def counted(*arguments: object, read_dictionary: object = None, **options: object) -> object:
        given.append(read_dictionary)
        return real(*arguments, read_dictionary=read_dictionary, **options)

    monkeypatch.setattr(pq, "ParquetFile", counted)
    assert ts.load(path, ["y"], entity="id", time="t")["y"].tolist() == list(range(rows))
    assert given == [None, ["id"]]  # the first one only tells whether the file is damaged
