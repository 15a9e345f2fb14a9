"""Sources in other file systems: a real S3 server, fsspec, and what is asked of them."""

import io
import math
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from pyarrow import fs

import tensorstash as ts
from tests.oracle_load import like, write_ipc

SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Of an S3 server in a process of its own."""
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        yield int(server.stdout.readline())
        assert server.stdin is not None
        server.stdin.close()


@pytest.fixture(scope="module")
def s3(port: int) -> fs.S3FileSystem:
    return fs.S3FileSystem(
        access_key="key",
        secret_key="secret",
        endpoint_override=f"127.0.0.1:{port}",
        scheme="http",
        region="us-east-1",
        allow_bucket_creation=True,
    )


@pytest.fixture
def bucket(s3: fs.S3FileSystem, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:60].strip("-")
    s3.create_dir(name)
    return name


def url(port: int, path: str) -> str:
    return f"s3://key:secret@{path}?endpoint_override=127.0.0.1%3A{port}&scheme=http&region=us-east-1"


def write(system: Any, path: str, **columns: Any) -> None:
    pq.write_table(pa.table(columns), path, filesystem=system)


def test_a_url_a_directory_a_glob_and_a_list_of_s3(port: int, s3: fs.S3FileSystem, bucket: str) -> None:
    for k, name in enumerate(["a/1", "a/b/2", "c/3"]):
        write(s3, f"{bucket}/{name}.parquet", y=[k, k + 10])
    write(s3, f"{bucket}/a/_temporary/9.parquet", y=[9])
    with s3.open_output_stream(f"{bucket}/a/notes.txt") as file:
        file.write(b"no data")
    expected = {
        f"{bucket}/a/1.parquet": [0, 10],
        f"{bucket}/a": [0, 10, 1, 11],
        f"{bucket}/a/": [0, 10, 1, 11],
        f"{bucket}/*/*.parquet": [0, 10, 2, 12],
        f"{bucket}/**/[23].parquet": [1, 11, 2, 12],
    }
    for path, values in expected.items():
        source = url(port, path)
        assert ts.load(source)["y"].tolist() == values
        assert ts.load([source, source])["y"].tolist() == values
        assert ts.load(path, filesystem=s3)["y"].tolist() == values
        assert ts.load([f"s3://{path}"], filesystem=s3)["y"].tolist() == values
        plan = ts.plan(source)
        assert (plan.rows, plan.source) == (len(values), f"s3://{path}")


def test_what_is_not_there_is_said_without_the_keys(port: int, bucket: str) -> None:
    for path, why in {
        f"{bucket}/no.parquet": f"'s3://{bucket}/no.parquet' matches no file",
        f"{bucket}/no/*.parquet": f"'s3://{bucket}/no/*.parquet' matches no file",
    }.items():
        with pytest.raises(ts.errors.SourceError, match=like(why)):
            ts.load(url(port, path))
    with pytest.raises(
        ts.errors.SourceError, match=r"\AThe file system of s3://none/x .*|.*'s3://none/x' matches no file\.\Z"
    ):
        ts.load(url(port, "none/x"))
    message = r"\AThe file system of odd://host/x\.parquet cannot be reached: .*odd\Z"
    with pytest.raises(ts.errors.SourceError, match=message):
        ts.load("odd://user:password@host/x.parquet?token=1")


def test_a_damaged_object_is_named(port: int, s3: fs.S3FileSystem, bucket: str) -> None:
    table = pa.table({"y": np.arange(5000)})
    pq.write_table(table, f"{bucket}/1.parquet", filesystem=s3, write_page_checksum=True)
    with s3.open_input_file(f"{bucket}/1.parquet") as file:
        data = bytearray(file.read())
    for name, damaged in {"2": data[:-100], "3": data[:200] + bytes(400) + data[600:], "4": b""}.items():
        with s3.open_output_stream(f"{bucket}/{name}.parquet") as file:
            file.write(bytes(damaged))
        sources = [url(port, f"{bucket}/{k}.parquet") for k in ("1", name)]
        with pytest.raises(
            ts.errors.SourceError, match=rf"\As3://{bucket}/{name}\.parquet.* (is not a readable|cannot be dec)"
        ):
            ts.load(sources)


def test_an_object_that_is_written_anew_is_another(port: int, s3: fs.S3FileSystem, bucket: str) -> None:
    """With the same size, within the second in which S3 tells the time."""
    label = f"test-remote-{port}"
    source = url(port, f"{bucket}/1.parquet")
    write(s3, f"{bucket}/1.parquet", y=[1])
    try:
        first = ts.load(source, share=label)
        assert ts.load(source, share=label).path == first.path
        before = s3.get_file_info(f"{bucket}/1.parquet")
        plan = ts.plan(source)
        assert (plan.rows, plan.load()["y"].tolist()) == (1, [1])
        write(s3, f"{bucket}/1.parquet", y=[2])
        with pytest.raises(
            ts.errors.SourceError,
            match=like(f"s3://{bucket}/1.parquet did"),
        ):
            plan.load()
        assert s3.get_file_info(f"{bucket}/1.parquet").size == before.size
        second = ts.load(source, share=label)
        assert (first["y"].tolist(), second["y"].tolist()) == ([1], [2])
        s3.delete_file(f"{bucket}/1.parquet")
        with pytest.raises(ts.errors.SourceError, match=r"between a plan and its load; .* did\. Make the plan"):
            plan.load()
    finally:
        ts.shared.remove(label)


def test_arrow_files_and_streams_in_s3(port: int, s3: fs.S3FileSystem, bucket: str, tmp_path: Path) -> None:
    table = pa.table({"x": [1.5, 2.5, 3.5], "y": [1, 2, 3]})
    write_ipc(tmp_path / "1.arrow", [table.slice(0, 2), table.slice(2)], None)
    with s3.open_output_stream(f"{bucket}/1.arrow") as file:
        file.write((tmp_path / "1.arrow").read_bytes())
    with s3.open_output_stream(f"{bucket}/2.arrows") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    assert ts.load(url(port, bucket), ["y"])["y"].tolist() == [1, 2, 3, 1, 2, 3]


# fsspec


class Counted(MemoryFileSystem):  # type: ignore[misc]
    """Counts the bytes that are read, and the files that are open at a time."""

    protocol = "counted"
    store: dict[str, Any] = {}  # noqa: RUF012  as its base has it
    pseudo_dirs = [""]  # noqa: RUF012
    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.lock, self.open_now, self.open_most, self.bytes = threading.Lock(), 0, 0, 0
        self.fails, self.most = "", math.inf

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        found = super()._open(path, mode, **options)
        return found if mode != "rb" else _CountedFile(self, path, found.getvalue())


class _CountedFile:
    """A file of its own for each reader."""

    mode, closed = "rb", False

    def __init__(self, system: Counted, path: str, data: bytes) -> None:
        self.system, self.path, self.file = system, path, io.BytesIO(data)
        with system.lock:
            system.open_now += 1
            system.open_most = max(system.open_most, system.open_now)

    def read(self, size: int = -1) -> bytes:
        if self.system.bytes > self.system.most or (self.system.fails and self.system.fails in self.path):
            raise OSError("the network is down")
        data = self.file.read(size)
        with self.system.lock:
            self.system.bytes += len(data)
        time.sleep(0.001)  # as a network would, so that others can be under way
        return data

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return True

    def seek(self, *place: int) -> int:
        return self.file.seek(*place)

    def tell(self) -> int:
        return self.file.tell()

    def flush(self) -> None:
        """There is nothing to write."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            with self.system.lock:
                self.system.open_now -= 1

    __del__ = close  # as a file of Python's


@pytest.fixture
def counted() -> Iterator[Counted]:
    Counted.store.clear()
    yield Counted()
    Counted.store.clear()


def test_urls_and_paths_of_fsspec() -> None:
    memory = fsspec.filesystem("memory")
    write(memory, "/test-remote/k=7/a b.parquet", y=[5])
    try:
        for source in ("memory://test-remote", "memory://test-remote/*/*.parquet", ["memory://test-remote/**"]):
            assert ts.load(source)["y"].tolist() == [5]
            assert ts.load(source)["k"].tolist() == [7]
        for source in ("/test-remote", "memory://test-remote", "/test-remote/k=7/a?b.parquet"):
            assert ts.load(source, ["y"], filesystem=memory)["y"].tolist() == [5]
    finally:
        memory.rm("/test-remote", recursive=True)


@pytest.mark.usefixtures("shm")
def test_a_local_file_system_is_this_machine(tmp_path: Path) -> None:
    write(None, str(tmp_path / "a.parquet"), y=[5])
    systems: list[Any] = [fs.LocalFileSystem(), LocalFileSystem()]
    here = ts.load(tmp_path, share="local")
    for system in systems:
        stash = ts.load(tmp_path, filesystem=system, share="local")  # of the same files
        assert (stash["y"].tolist(), stash.path) == ([5], here.path)
    assert ts.load(f"file://{tmp_path}")["y"].tolist() == [5]
    assert ts.load(f"file://{tmp_path}/*.parquet")["y"].tolist() == [5]


def test_only_the_needed_chunks_are_asked_for_and_few_files_at_a_time(counted: Counted) -> None:
    rng = np.random.default_rng(0)
    for k in range(40):
        write(counted, f"/d/{k:02}.parquet", **{f"c{j}": rng.random(2000) for j in range(30)})
    size = sum(counted.info(path)["size"] for path in counted.find("/d"))
    footers = 40 * pq.read_metadata("/d/00.parquet", filesystem=counted).serialized_size
    counted.bytes = counted.open_most = 0
    stash = ts.load("/d", ["c7"], filesystem=counted)
    assert stash.rows == 80_000
    # a footer is asked for with 64 KB, in which some columns may stand too
    assert counted.bytes < 40 * 65_536 + footers + size / 30 * 2
    assert counted.bytes < size * 0.4
    assert counted.open_most <= 16
    assert counted.open_now == 0


def test_a_failing_object_is_named(counted: Counted) -> None:
    for k in range(5):
        write(counted, f"/d/{k}.parquet", y=np.arange(300_000) * math.pi)
    counted.fails = "3.parquet"
    with pytest.raises(
        ts.errors.SourceError, match=r"\Acounted:///d/3\.parquet is not a readable .*: the network is down\Z"
    ):
        ts.load("/d", filesystem=counted)
    counted.fails, counted.most = "", 1_000_000  # the footers, but not all values
    with pytest.raises(
        ts.errors.SourceError,
        match=r"\Acounted:///d/\d\.parquet, row group 0 cannot be decoded: column 'y': the network ",
    ):
        ts.load("/d", filesystem=counted)


def test_what_is_no_file_system_is_refused() -> None:
    with pytest.raises(TypeError, match=like("filesystem= ... got a str")):
        ts.load("x.parquet", filesystem="s3")
    with pytest.raises(TypeError, match=like("filesystem= needs paths ... got a dict")):
        ts.load({"y": [1]}, filesystem=fs.LocalFileSystem())
