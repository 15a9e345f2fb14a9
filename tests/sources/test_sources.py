"""Files, Arrow streams and what else holds rows in memory; files that differ. A test of units reads them inside."""

import importlib.util
import os
import pickle
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tensorstash as ts
from tensorstash.sources.read import read
from tests.oracle_load import like, looked_at, write_ipc, write_parquet


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
    assert (stash["s"].tolist(), stash.vocabulary("s")) == ([1, 0, 0, 1, 2, -1], ["a", "b", "c"])
    assert ts.plan(tmp_path).rows == 6
    write_ipc(tmp_path / "two.arrow", [pieces[0]], None)
    assert ts.load(tmp_path, ["y"])["y"].tolist() == [0, 10, 1, 11, 2, 12, 0, 10]


def test_a_stream_that_ends_too_early(tmp_path: Path) -> None:
    path = write_stream(tmp_path / "one.arrows", [pa.table({"y": np.arange(1000)})] * 3)
    data = path.read_bytes()
    for length in (len(data) - 100, len(data) // 2, 300, 10, 0):
        path.write_bytes(data[:length])
        with pytest.raises(ts.errors.SourceError, match=rf"\A{path} is not a readable (Parquet|Arrow IPC) file: .+"):
            ts.load(path)


def test_one_file_under_two_spellings_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_parquet(tmp_path / "one.parquet", [pa.table({"y": [1, 2]})])
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "other.parquet").symlink_to(path)
    monkeypatch.chdir(tmp_path)
    spellings = [path, "one.parquet", "./one.parquet", "link/one.parquet", f"{tmp_path}//one.parquet", "other.parquet"]
    for two in spellings:
        assert ts.load([path, two], ["y"], time="y")["y"].tolist() == [1, 2]
    assert ts.load([*spellings, "*.parquet", tmp_path], ["y"], time="y")["y"].tolist() == [1, 2]


def test_record_batches() -> None:
    batch = pa.record_batch({"y": [1, 2], "z": ["a", "b"]})
    assert ts.load(batch, ["y"])["y"].tolist() == [1, 2]
    assert ts.plan(batch).source == "the pyarrow RecordBatch"
    reader = pa.RecordBatchReader.from_batches(batch.schema, [batch])
    assert ts.load(reader, ["y"])["y"].tolist() == [1, 2]


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


@pytest.mark.parametrize(
    "series",
    [
        pl.Series([1_000, 1_001]).cast(pl.Datetime("ns")),
        pl.Series([1, 2]).cast(pl.Datetime("ms", "Europe/Vienna")),
        pl.Series([1, 2]).cast(pl.Duration("ns")),
        pl.Series([1.5, None], dtype=pl.Float32),
        pl.Series([None, None], dtype=pl.Float32),
        pl.Series([1, 2], dtype=pl.Int8),
        pl.Series([2**63 + 1, 2], dtype=pl.UInt64),
        pl.Series(["a", "b"], dtype=pl.Categorical),
        pl.Series([[1, 2], [3, 4]], dtype=pl.Array(pl.Int16, 2)),
    ],
    ids=repr,
)
def test_a_series_of_polars_is_the_column_of_a_frame(series: pl.Series) -> None:
    of_mapping, of_frame = ts.load({"x": series}), ts.load(pl.DataFrame({"x": series}))
    assert of_mapping.about("x") == of_frame.about("x")
    assert of_mapping["x"].dtype == of_frame["x"].dtype
    np.testing.assert_array_equal(of_mapping["x"].numpy(), of_frame["x"].numpy())


@pytest.mark.parametrize("make", [pl.DataFrame, dict])
def test_python_objects_in_polars_are_refused(make: Any) -> None:
    with pytest.raises(ts.errors.SchemaError, match=r"'x' in the .* holds Python objects"):
        ts.load(make({"y": pl.Series([1]), "x": pl.Series([object()])}))


def test_times_of_pandas_in_a_list_keep_their_nanoseconds() -> None:
    for kind in (pd.Timestamp, pd.Timedelta):
        stash = ts.load({"t": [kind(1), kind(2_000)]})
        assert stash["t"].tolist() == [1, 2_000]
        assert stash.about("t").unit == "ns"
    zoned = ts.load({"t": [pd.Timestamp(1, tz="Asia/Tokyo"), pd.Timestamp(2, tz="Asia/Tokyo")]})
    assert (zoned["t"].tolist(), zoned.about("t").zone) == ([1, 2], "Asia/Tokyo")


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
    assert (stash.entities, stash["y"].nan_to_num(-1).tolist()) == (["a", "b", "c"], [-1.0, 2.5, 0.5, 3.5])
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
    with pytest.raises(
        ts.errors.SourceError, match=rf"\A{path} is not a readable (Parquet|Arrow IPC) file: .*Permission"
    ):
        ts.load(path)


def test_arrays_in_a_list_are_no_paths() -> None:
    message = r"\AA source is a path, a glob, .*; got builtins\.list\. Concatenate frames first; .+\.\Z"
    with pytest.raises(TypeError, match=message):
        ts.load([np.arange(3)])
    with pytest.raises(ts.errors.SourceError, match=like("the list of paths is empty")):
        ts.load([])


# Files that differ


def write_all(directory: Path, *columns: dict[str, Any]) -> list[Path]:
    return [write_parquet(directory / f"{k}.parquet", [pa.table(held)]) for k, held in enumerate(columns)]


SECONDS = pa.array([1_700_000_000, 1_700_000_060], pa.timestamp("s", "Asia/Tokyo"))


@pytest.mark.parametrize(
    ("one", "other", "read"),
    [
        (pa.array([1, -2], pa.int32()), pa.array([2**40, 3], pa.int64()), pa.int64()),
        (pa.array([1, -2], pa.int8()), pa.array([200, 3], pa.uint8()), pa.int16()),
        (pa.array([1, 2], pa.uint16()), pa.array([2**32 - 1, 3], pa.uint32()), pa.uint32()),
        (pa.array([0.5, 1.5], pa.float32()), pa.array([0.1, None], pa.float64()), pa.float64()),
        (pa.array([0.5, 1.5], pa.float16()), pa.array([0.1, None], pa.float32()), pa.float32()),
        (SECONDS, SECONDS.cast(pa.timestamp("us", "Asia/Tokyo")), pa.timestamp("us", "Asia/Tokyo")),
        (SECONDS.cast(pa.timestamp("ns", "Asia/Tokyo")), SECONDS, pa.timestamp("ns", "Asia/Tokyo")),
        (pa.nulls(2), pa.array([0.5, 1.5]), pa.float64()),
        (pa.array([7, 8]).dictionary_encode(), pa.array([9, 10], pa.int32()), pa.int64()),
        (pa.array([[1], [2]], pa.list_(pa.int8(), 1)), pa.array([[3], [400]], pa.list_(pa.int16(), 1)), None),
    ],
    ids=lambda given: str(getattr(given, "type", given)),
)
def test_what_differs_safely_is_widened_and_said(one: pa.Array, other: pa.Array, read: Any, tmp_path: Path) -> None:
    for arrays in ((one, other, one), (other, one, other)):
        for k, array in enumerate(arrays):
            # in an Arrow file, which has all these types
            write_ipc(tmp_path / f"{k}.arrow", [pa.table({"y": array, "k": [k, k]})], None)
        plan, stash = ts.plan(tmp_path, ["y"]), ts.load(tmp_path, ["y"])
        assert len(plan.notes) == 1
        assert "'y' is read as " in plan.notes[0]
        assert plan.notes[0] in str(plan)
        found = stash["y"].nan_to_num(-1) if stash["y"].dtype.is_floating_point else stash["y"]
        wanted = [array.cast(read) if read else array for array in arrays]
        if read is not None and pa.types.is_timestamp(read):
            wanted = [array.view(pa.int64()) for array in wanted]
        assert found.tolist() == [-1 if value is None else value for array in wanted for value in array.to_pylist()]
        filtered = ts.load(tmp_path, ["y"], filter=[("k", "==", 1)])["y"]
        assert filtered.nan_to_num(-1).tolist() == found[2:4].tolist()


def test_times_of_different_units_are_equal_instants_as_keys(tmp_path: Path) -> None:
    write_all(tmp_path, {"t": SECONDS, "y": [1, 2]}, {"t": SECONDS.cast(pa.timestamp("ms", "Asia/Tokyo")), "y": [3, 4]})
    with pytest.raises(ts.errors.DataError, match=r"has t 2023-11-15 07:13:20\+09:00 in source rows 0 \(.*\) and 2 \("):
        ts.load(tmp_path, ["y"], time="t")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([1], pa.int64()), pa.array([1], pa.uint64())),
        (pa.array([1], pa.int8()), pa.array([1], pa.uint64())),
        (pa.array([0.5]), pa.array([1]).cast(pa.decimal128(19, 0))),
        (pa.array([True]), pa.array([1.0])),
        (pa.array([1], pa.int64()), pa.array(["1"])),
        (pa.array([True]), pa.array([1], pa.int8())),
        (pa.array([1], pa.timestamp("s")), pa.array([1], pa.timestamp("s", "UTC"))),
        (pa.array([1], pa.timestamp("s")), pa.array([1], pa.date32())),
        (pa.array([[1]], pa.list_(pa.int8(), 1)), pa.array([[1, 2]], pa.list_(pa.int8(), 2))),
    ],
    ids=lambda given: str(getattr(given, "type", given)),
)
def test_what_does_not_mean_the_same_is_refused(one: pa.Array, other: pa.Array, tmp_path: Path) -> None:
    for k, array in enumerate((one, other)):
        write_ipc(tmp_path / f"{k}.arrow", [pa.table({"y": array})], None)
    message = f"{tmp_path}/1.arrow has 'y' as {other.type}, not {one.type}. Leave such"
    with pytest.raises(ts.errors.SourceError, match=like(message)):
        looked_at(tmp_path)


def test_a_column_that_only_the_first_file_has_not(tmp_path: Path) -> None:
    paths = write_all(tmp_path, {"y": [1]}, {"y": [1], "z": [2]}, {"z": [2]})
    message = f"{paths[0]} has no column 'z'; {paths[2]} has no column 'y'. Leave such"
    with pytest.raises(ts.errors.SourceError, match=like(message)):
        ts.load(tmp_path, ["y", "z"])


def test_a_key_that_only_the_first_path_has_not(tmp_path: Path) -> None:
    (tmp_path / "k=1").mkdir()
    one, _ = (write_all(tmp_path / name, {"y": [1]})[0] for name in ("", "k=1"))
    with pytest.raises(ts.errors.SourceError, match=like(f"{one} has no column 'k'. Leave such")):
        ts.load(tmp_path, ["y", "k"])


def test_times_beyond_the_finest_unit_of_all_files_are_refused(tmp_path: Path) -> None:
    for k, (unit, time) in enumerate([("s", 10**15), ("ns", 1)]):
        write_ipc(tmp_path / f"{k}.arrow", [pa.table({"t": pa.array([time], pa.timestamp(unit)), "y": [1]})], None)
    message = (
        rf"\AA column needs one type for the values of all files; 't' is timestamp\[s\] in {tmp_path}/0\.arrow, "
        r"record batch 0, which does not fit into timestamp\[ns\]: .*\. Write all files with one type\.\Z"
    )
    for arguments in ({"time": "t"}, {"filter": [("t", ">", datetime(2000, 1, 1))]}):
        with pytest.raises(ts.errors.DataError, match=message):
            ts.load(tmp_path, ["y"], **arguments)


def test_names_that_stand_twice_come_with_their_file(tmp_path: Path) -> None:
    write_all(tmp_path, {"y": [1], "z": [1]})
    twice = pa.table([pa.array([1])] * 3, names=["y", "z", "z"])
    path = write_parquet(tmp_path / "1.parquet", [twice])
    message = f"{path} has 2 columns 'z'"
    for source in (tmp_path, path):
        assert ts.load(source, ["y"]).rows > 0
        with pytest.raises(ts.errors.SchemaError, match=like(message)):
            ts.load(source, ["z"])


def test_the_differences_of_many_files_are_found_before_anything_is_decoded(tmp_path: Path) -> None:
    table = pa.table({"y": np.zeros(50), "s": ["x"] * 50})
    for k in range(300):
        write_parquet(tmp_path / f"{k:03}.parquet", [table])
    assert ts.load(tmp_path, ["y"]).rows == 15_000
    write_parquet(tmp_path / "150.parquet", [table.rename_columns(["Y", "s"])])
    data = bytearray((tmp_path / "000.parquet").read_bytes())
    data[4:40] = bytes(36)
    (tmp_path / "000.parquet").write_bytes(data)
    with pytest.raises(ts.errors.SourceError, match=rf"{tmp_path}/150\.parquet has no column 'y'\. Leave such"):
        ts.load(tmp_path, ["y"])


@pytest.mark.parametrize("swapped", [False, True])
def test_a_column_that_only_some_files_have_is_an_error_in_either_order(swapped: bool, tmp_path: Path) -> None:
    """Also where all columns are loaded."""
    columns = [{"y": [1]}, {"y": [2], "z": [3]}]
    paths = write_all(tmp_path, *(columns[::-1] if swapped else columns))
    message = rf"\AAll files of a source need the same columns and types: {paths[swapped]} has no column 'z'\. "
    for call in (ts.load, looked_at):
        with pytest.raises(ts.errors.SourceError, match=message):
            call(tmp_path)
        with pytest.raises(ts.errors.SourceError, match=message):
            call(tmp_path, ["y", "z"])
        assert call(tmp_path, ["y"]).rows == 2


@pytest.mark.parametrize(
    ("whole_numbers", "floats", "read"),
    [
        (pa.int64(), pa.float64(), pa.float64()),
        (pa.int32(), pa.float32(), pa.float64()),
        (pa.int16(), pa.float32(), pa.float32()),
        (pa.uint64(), pa.float32(), pa.float64()),
        (pa.int8(), pa.float16(), pa.float16()),
    ],
    ids=str,
)
def test_integers_and_floats_of_one_column_are_floats(
    whole_numbers: pa.DataType, floats: pa.DataType, read: pa.DataType, tmp_path: Path
) -> None:
    """As pandas writes them: floats in the files that have missing values."""
    one = pa.table({"y": pa.array([3, 100], whole_numbers), "k": [0, 0]})
    two = pa.table({"y": pa.array([0.5, None, -2], pa.float32()).cast(floats), "k": [1, 1, 1]})
    for tables in ((one, two), (two, one)):
        for k, table in enumerate(tables):
            write_ipc(tmp_path / f"{k}.arrow", [table], None)
        stash = ts.load(tmp_path, ["y", "k"])
        assert stash["y"].dtype == ts.load(pa.table({"y": pa.array([], read)}))["y"].dtype
        assert sorted(stash["y"].nan_to_num(-1).tolist()) == [-2, -1, 0.5, 3, 100]
        if read != pa.float16():  # which filters have no functions for
            kept = ts.load(tmp_path, ["y"], filter=[("y", "<", 50)])
            assert sorted(kept["y"].tolist()) == [-2, 0.5, 3]
        assert f"'y' is read as {read}: " in ts.plan(tmp_path).notes[0]


def test_integers_that_are_no_floats_are_refused_among_floats(tmp_path: Path) -> None:
    paths = write_all(tmp_path, {"y": [1, 2**53 + 1]}, {"y": [0.5]})
    message = (
        rf"\AA column needs one type for the values of all files; 'y' is int64 in "
        rf"{paths[0]}, row group 0, which does not fit into double: .*\. Write all files with one type\.\Z"
    )
    with pytest.raises(ts.errors.DataError, match=message):
        ts.load(tmp_path)


# Files that are none


def test_files_of_other_formats_are_frames_first(tmp_path: Path) -> None:
    own = {".json": "pl.read_json", ".xlsx": "pd.read_excel", ".avro": "pl.read_avro"}
    for ending, reader in {**own, ".md": None}.items():
        path = tmp_path / f"one{ending}"
        path.write_text("t,y\n1,2\n")
        message = f"{path} is not a readable Parquet file: its format is not supported, or it is damaged. Give"
        if reader is not None:
            message = f"{path} is not a readable Parquet file: by its ending it is read as a frame or arrays: "
            message += f"ts.load({reader}({str(path)!r}))"
        for look in (ts.load, looked_at):
            with pytest.raises(ts.errors.SourceError, match=like(message)):
                look(path)
    path = write_parquet(tmp_path / "named.json", [pa.table({"y": [1]})])
    assert ts.load(path)["y"].tolist() == [1]


def test_what_is_no_regular_file_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.parquet")
    for path in (tmp_path / "pipe.parquet", Path(os.devnull)):
        message = f"{str(path)!r} is a pipe, a socket or a device"
        for source in (path, [path]):
            with pytest.raises(ts.errors.SourceError, match=like(message)):
                ts.load(source)
    with pytest.raises(ts.errors.SourceError, match=r"holds no \.parquet"):
        ts.load(tmp_path)


@pytest.mark.parametrize("name", ["one.arrow", "one.arrows"])
def test_an_arrow_file_without_columns(name: str, tmp_path: Path) -> None:
    make = pa.ipc.new_file if name.endswith("w") else pa.ipc.new_stream
    with make(tmp_path / name, pa.schema([])):
        pass
    for call in (ts.load, looked_at):
        with pytest.raises(ValueError, match=r"\AA stash has at least one column; none of .* was chosen\. Name some"):
            call(tmp_path / name)
        with pytest.raises(ts.errors.ColumnError, match=r"has no column 'y'"):
            call(tmp_path / name, ["y"])


def test_a_loop_of_links_and_links_to_a_file_load_it_once(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    path = write_parquet(tmp_path / "deep" / "one.parquet", [pa.table({"y": [1, 2]})])
    (tmp_path / "deep" / "loop").symlink_to(tmp_path)
    (tmp_path / "other.parquet").symlink_to(path)
    for pattern in ("**/*.parquet", "**/one.parquet", "*/*.parquet", "*.parquet", "deep"):
        assert ts.load(str(tmp_path / pattern))["y"].tolist() == [1, 2]
    assert ts.load(tmp_path)["y"].tolist() == [1, 2]


def test_a_file_that_is_rewritten_with_its_size_and_time_is_loaded_anew(tmp_path: Path) -> None:
    label = f"test-sources-{tmp_path.name}"
    path = write_parquet(tmp_path / "one.parquet", [pa.table({"y": [1, 2]})])
    assert ts.load(path, share=label)["y"].tolist() == [1, 2]
    before = path.stat()
    other = write_parquet(tmp_path / "other", [pa.table({"y": [3, 4]})]).read_bytes()
    with path.open("r+b") as file:
        file.write(other)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (before.st_size, before.st_mtime_ns, before.st_ino)
    assert ts.load(path, share=label)["y"].tolist() == [3, 4]
    ts.shared.remove(label)


def test_a_name_that_polars_cannot_export_is_refused(tmp_path: Path) -> None:
    table = pa.table({"x": [1.0, 2.0], "a\0b": [3.0, 4.0]})
    frame = pl.DataFrame(table)
    frame.write_csv(tmp_path / "x.csv")
    for source in (frame, frame.lazy(), tmp_path / "x.csv"):
        with pytest.raises(ts.errors.SchemaError, match="must not contain NUL"):
            ts.load(source)
    assert ts.load(table, {"y": pl.col("a\0b") + 1})["y"].tolist() == [4.0, 5.0]


# Sources that go to other processes


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_units_that_were_read_go_to_another_process(form: str, tmp_path: Path) -> None:
    """As those do of which several processes make shards. It asks the inside for the units."""
    path, table = tmp_path / f"one.{form}", pa.table({"t": range(100), "s": ["a", "b"] * 50})
    _ = write_parquet(path, [table]) if form == "parquet" else write_ipc(path, [table], None)
    source = ts.plan(path, ["s"], time="t").choice.source
    own = [[*read(unit, ["t", "s"])] for unit in source.units]
    theirs = [[*read(unit, ["t", "s"])] for unit in pickle.loads(pickle.dumps(source)).units]
    assert own == theirs
    assert own
