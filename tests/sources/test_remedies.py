"""Sources that are refused with the line that works: each line is executed on what was refused."""

import base64
import bz2
import functools
import gzip
import http.server
import io
import json
import lzma
import re
import shutil
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import tensorstash as ts
from tests.oracle_load import like, write_parquet
from tests.processes import run

NAMES: dict[str, Any] = {"pl": pl, "pd": pd, "pa": pa, "np": np, "ts": ts}
FRAME = pd.DataFrame({"t": [1, 2], "y": [1.0, 2.0]})
POLARS = pl.DataFrame(FRAME)
POLARS.write_parquet(PARQUET_FILE := io.BytesIO())
PARQUET = PARQUET_FILE.getvalue()
BATCHES = [pa.record_batch({"t": [1], "y": [1.0]}), pa.record_batch({"t": [2], "y": [2.0]})]


def loaded_by_remedy(error: BaseException, **names: Any) -> ts.Stash:
    """What the source behind the last "Load" or "load" of a message gives."""
    line = re.search(r".*\b[Ll]oad (.+?)(?: with (entity='series'))?\.\Z", str(error), re.DOTALL)
    assert line is not None, error
    options = eval(f"dict({line[2] or ''})")
    return ts.load(eval(line[1], NAMES | names), ["y"], time="t", **options)


# What holds rows in another way


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ([{"t": 1, "y": 1.0}, {"t": 2, "y": 2.0}], "rows"),
        (BATCHES, "batches"),
        (tuple(BATCHES), "batches"),
        ([pa.Table.from_batches([batch]) for batch in BATCHES], "tables"),
        ([FRAME[:1], FRAME[1:]], "frames"),
        ([POLARS[:1], POLARS[1:]], "frames"),
        ([POLARS[:1].lazy(), POLARS[1:].lazy()], "frames"),
    ],
    ids=["dicts", "batches", "tuple", "tables", "pandas", "polars", "lazy"],
)
def test_lists_of_parts(source: Any, name: str) -> None:
    with pytest.raises(TypeError, match=like("A source is a path ... Load ")) as refused:
        ts.load(source)
    assert loaded_by_remedy(refused.value, **{name: source})["y"].tolist() == [1.0, 2.0]


SERIES = {
    "pandas": FRAME["y"],
    "nameless": pd.Series([1.0, 2.0]),
    "polars": POLARS["y"],
    "empty": pl.Series([1.0, 2.0]),
}


@pytest.mark.parametrize("series", SERIES.values(), ids=SERIES)
def test_a_series(series: Any) -> None:
    with pytest.raises(TypeError, match=like("Series. Load series.to_frame('y').")) as refused:
        ts.load(series)
    line = str(refused.value).rpartition("Load ")[2].removesuffix(".")
    assert ts.load(eval(line, {"series": series}))["y"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize("frame", [FRAME, POLARS], ids=["pandas", "polars"])
def test_a_frame_for_each_series(frame: Any) -> None:
    for options in ({"time": "t"}, {"columns": ["y"]}, {}):
        with pytest.raises(ts.errors.SchemaError, match=like("'A' is a DataFrame. If each frame")) as refused:
            ts.load({"A": frame, "B": frame}, **options)
    stash = loaded_by_remedy(refused.value, frames={"A": frame, "B": frame})
    assert (stash.entities, stash["y"].tolist()) == (["A", "B"], [1.0, 2.0, 1.0, 2.0])


def test_a_file_that_is_open(tmp_path: Path) -> None:
    with write_parquet(tmp_path / "0.parquet", [pa.table(FRAME)]).open("rb") as file:
        with pytest.raises(TypeError, match=like("Load its path, or pl.read_parquet(file).")) as refused:
            ts.load(file)
        line = str(refused.value).rpartition(", or ")[2].removesuffix(".")
        assert ts.load(eval(line, {"file": file, "pl": pl}))["y"].tolist() == [1.0, 2.0]


def test_messages_hold_no_whole_arrays() -> None:
    for source in ({"x": [object()] * 5000}, {f"c{k}": np.zeros(k) for k in range(5000)}, {"x": [{1: "a" * 5000}]}):
        with pytest.raises(ts.errors.TensorstashError) as refused:
            ts.load(source)
        assert len(str(refused.value)) < 400
    with pytest.raises(ts.errors.SourceError, match=like("'a' has 2 values and 'c' 1.")):
        ts.load({"a": [1, 2], "b": [1, 2], "c": [1]})


@pytest.mark.filterwarnings("ignore")  # those of ibis
def test_a_table_of_ibis_on_its_default_engine() -> None:
    """Ibis asks DuckDB for a method that its newer releases lack; other errors of an engine are told as ours."""
    ibis = pytest.importorskip("ibis", reason="ibis is not installed")
    for _ in range(2):
        table = ibis.memtable({"t": [2, 1], "y": [2.0, 1.0], "s": ["a", "1"]})
        assert ts.load(table, ["y"], time="t", filter=[("t", ">", 0)])["y"].tolist() == [1.0, 2.0]
        with pytest.raises(ts.errors.SourceError, match=like("the ibis Table cannot be read to its end: ")):
            ts.load(table.mutate(n=table.s.cast("int64")), ["n"])


# Paths and URLs


def test_a_url_that_a_path_has_shortened(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "0.parquet", [pa.table(FRAME)])
    with pytest.raises(ts.errors.SourceError, match=like("A URL is a text ... got 'file:/")) as refused:
        ts.load(Path(path.as_uri()))
    assert ts.load(eval(str(refused.value).rpartition("Write ")[2].removesuffix(".")), ["y"])["y"].tolist() == [
        1.0,
        2.0,
    ]
    with pytest.raises(ts.errors.SourceError, match=like("Write 's3://bucket/x.parquet'.")):
        ts.load(Path("s3://bucket/x.parquet"))


class Handler(http.server.SimpleHTTPRequestHandler):
    """Hands out files whole, or the part that is asked for."""

    ranges = True

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""

    def do_GET(self) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        path = Path(self.translate_path(self.path))
        if "forbidden" in self.path:
            self.send_error(403)
        elif asked is None or not self.ranges or not path.is_file():
            super().do_GET()
        else:
            data = path.read_bytes()
            first, last = int(asked[1]), min(int(asked[2]), len(data) - 1)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
            self.send_header("Content-Length", str(last - first + 1))
            self.end_headers()
            self.wfile.write(data[first : last + 1])


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Handler, "ranges", True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_files_of_a_web_server(web: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parquet(tmp_path / "0.parquet", [pa.table(FRAME)])
    (tmp_path / "0.csv").write_text("t,y\n1,1.0\n2,2.0\n")
    (tmp_path / "page.parquet").write_text("<!DOCTYPE html><html></html>")
    for name in ("0.parquet", "0.csv", "0.parquet?raw=true&token=secret", "0.csv?raw=true&token=secret"):
        assert ts.load(f"{web}/{name}", ["y"], time="t")["y"].tolist() == [1.0, 2.0]
        assert ts.plan(f"{web}/{name}").source == f"{web}/{name.partition('?')[0]}"
        given = ts.load(f"{web}/{name}", ["y"], time="t", filesystem=fsspec.filesystem("http"))
        assert given["y"].tolist() == [1.0, 2.0]
    refusals = {
        "none.parquet": f"'{web}/none.parquet' matches no file: 404 File not found.",
        "forbidden.parquet?token=secret": f"'{web}/forbidden.parquet' matches no file: 403 Forbidden.",
        "page.parquet": f"{web}/page.parquet is not a readable Parquet file: it is a web page. Take the",
    }
    for name, said in refusals.items():
        with pytest.raises(ts.errors.SourceError, match=like(said)) as refused:
            ts.load(f"{web}/{name}")
        assert "secret" not in str(refused.value)
    monkeypatch.setattr(Handler, "ranges", False)
    said = "0.parquet ... range requests ... whole files only. Download it"
    with pytest.raises(ts.errors.SourceError, match=like(said)) as refused:
        ts.load(f"{web}/0.parquet", ["y"])
    line = str(refused.value).rpartition("Download it: ")[2].removesuffix(".")
    eval(line, {"urllib": urllib, "url": f"{web}/0.parquet", "path": tmp_path / "here.parquet"})
    assert ts.load(tmp_path / "here.parquet", ["y"], time="t")["y"].tolist() == [1.0, 2.0]


def test_a_web_server_is_not_asked_for_logs_of_tables(
    web: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(Handler, "log_message", lambda self, *_: asked.append(self.path))
    (tmp_path / "data").mkdir()
    write_parquet(tmp_path / "data/0.parquet", [pa.table(FRAME)])
    assert ts.load(f"{web}/data/*.parquet", ["y"], time="t")["y"].tolist() == [1.0, 2.0]
    assert {path[:5] for path in asked} == {"/data"}


def test_a_web_server_that_is_not_there() -> None:
    with pytest.raises(ts.errors.SourceError, match=like("x.parquet' matches no file: Cannot connect to host")):
        ts.load("http://127.0.0.1:9/x.parquet")


# Files of other formats

OTHERS: dict[str, Callable[[Path], Any]] = {
    "x.json": lambda path: path.write_text(json.dumps([{"t": 1, "y": 1.0}, {"t": 2, "y": 2.0}])),
    "x.ndjson": lambda path: POLARS.write_ndjson(path),
    "x.jsonl": lambda path: POLARS.write_ndjson(path),
    "x.TXT": lambda path: FRAME.to_csv(path, index=False),
    "x.avro": lambda path: POLARS.write_avro(path),
    "x.pkl": lambda path: FRAME.to_pickle(path),
    "x.dta": lambda path: FRAME.to_stata(path, write_index=False),
    "x.npz": lambda path: np.savez(path, t=FRAME["t"], y=FRAME["y"]),
    "x.npy": lambda path: np.save(path, FRAME["y"]),
    "x.xlsx": lambda path: FRAME.to_excel(path, index=False),
    "pandas.h5": lambda path: FRAME.to_hdf(path, key="frame"),
    "x.hdf5": lambda path: write_hdf5(path),
    "3.nc": lambda path: FRAME.set_index("t").to_xarray().to_netcdf(path, engine="scipy"),
    "4.nc": lambda path: FRAME.set_index("t").to_xarray().to_netcdf(path, engine="h5netcdf"),
}
NEEDED = {
    "x.xlsx": ["openpyxl"],
    "pandas.h5": ["tables"],
    "x.hdf5": ["h5py"],
    "3.nc": ["xarray", "scipy"],
    "4.nc": ["xarray", "h5netcdf"],
}


def write_hdf5(path: Path) -> None:
    with pytest.importorskip("h5py").File(path, "w") as file:
        for name in FRAME:
            file[name] = FRAME[name]


def import_needed(name: str) -> dict[str, Any]:
    """The packages that the reader of a file needs, by their names in its line; skips if one is not installed."""
    found = [pytest.importorskip(one, reason=f"{one} is not installed") for one in NEEDED.get(name, [])]
    return {{"xarray": "xr"}.get(one.__name__, one.__name__): one for one in found}


def loaded_by_line(said: str, names: dict[str, Any], which: int = 0) -> list[float]:
    """The values that one of the lines behind "by its ending it is read" loads."""
    lines = re.findall(r"ts\.load\((.*?)\)(?=, or, |\.\Z)", said)
    source = eval(lines[which], NAMES | names)
    return ts.load(source)["x"].tolist() if ".npy'" in said else ts.load(source, ["y"], time="t")["y"].tolist()


@pytest.mark.parametrize("name", OTHERS)
def test_a_file_of_another_format_is_refused_with_its_reader(name: str, tmp_path: Path) -> None:
    names = import_needed(name)
    OTHERS[name](tmp_path / name)
    with pytest.raises(ts.errors.SourceError, match=like(f"{name} is not a readable Parquet ... by its")) as refused:
        ts.load(tmp_path / name)
    assert loaded_by_line(str(refused.value), names, -1 if name == "x.hdf5" else 0) == [1.0, 2.0]


@pytest.mark.parametrize("name", OTHERS)
def test_a_remote_file_of_another_format_is_downloaded_first(
    name: str, web: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = import_needed(name)
    OTHERS[name](tmp_path / name)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    url = f"{web}/{name}?token=secret"
    with pytest.raises(ts.errors.SourceError, match=like("once downloaded with urllib")) as refused:
        ts.load(url)
    assert "secret" not in str(refused.value)
    line = re.search(r"with (urllib.*?\)): ", str(refused.value))
    assert line is not None
    eval(line[1], {"urllib": urllib, "url": url})
    assert loaded_by_line(str(refused.value), names, -1 if name == "x.hdf5" else 0) == [1.0, 2.0]


PACKED: dict[str, Callable[[Path], Any]] = {
    "x.zip": lambda path: archive(path, "zip"),
    "zip.parquet": lambda path: archive(path, "zip"),
    "x.tar": lambda path: archive(path, "tar"),
    "x.tgz": lambda path: archive(path, "gztar"),
    "x.tar.gz": lambda path: archive(path, "gztar"),
    "x.TAR.BZ2": lambda path: archive(path, "bztar"),
    "x.tar.xz": lambda path: archive(path, "xztar"),
    "y.parquet.gz": lambda path: path.write_bytes(gzip.compress(PARQUET)),
    "y.parquet.bz2": lambda path: path.write_bytes(bz2.compress(PARQUET)),
    "y.parquet.xz": lambda path: path.write_bytes(lzma.compress(PARQUET)),
    "y.parquet.zst": lambda path: path.write_bytes(pa.Codec("zstd").compress(PARQUET, asbytes=True)),
    "x.7z": lambda path: subprocess.run(["7z", "a", path, path.parent / "inside"], check=True, capture_output=True),
}


def archive(path: Path, form: str) -> None:
    made = shutil.make_archive(str(path.with_name("made")), form, path.parent / "inside")
    Path(made).rename(path)


@pytest.mark.parametrize("name", PACKED)
def test_a_packed_file_is_refused_with_the_command_that_unpacks_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = {".bz2": "bunzip2", ".xz": "unxz", ".zst": "unzstd", ".7z": "7z"}.get(Path(name).suffix, "sh")
    if shutil.which(program) is None and ".tar" not in name:
        pytest.skip(f"{program} is not installed")
    folder = tmp_path / "it's packed"
    (folder / "inside").mkdir(parents=True)
    (folder / "inside/y.parquet").write_bytes(PARQUET)
    PACKED[name](folder / name)
    shutil.rmtree(folder / "inside")
    with pytest.raises(ts.errors.SourceError, match=like("it is packed. Unpack it, and load what ")) as refused:
        ts.load(folder / name)
    monkeypatch.chdir(folder)
    command = str(refused.value).rpartition("in it: ")[2].replace("python ", f"{sys.executable} ")
    subprocess.run(["sh", "-c", command], check=True, capture_output=True)
    (path,) = {*folder.glob("**/y.parquet")}
    assert ts.load(path, ["y"], time="t")["y"].tolist() == [1.0, 2.0]


def test_what_stands_in_place_of_a_file(tmp_path: Path) -> None:
    texts = {
        b"PK\x03\x04 and more": "it is packed. Unpack it, and load what is in it: python -m zipfile",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n": "it is what Git LFS keeps in place of a file",
        b"\n <HTML><body>": "it is a web page. Take the address of the file itself",
        b"nothing that is known": "in Python a frame that polars or pandas read",
    }
    for data, said in texts.items():
        (tmp_path / "x.parquet").write_bytes(data)
        with pytest.raises(ts.errors.SourceError, match=like(f"x.parquet is not a readable Parquet ... {said}")):
            ts.load(tmp_path)
    (tmp_path / "x.xlsx").write_bytes(b"PK\x03\x04")
    with pytest.raises(ts.errors.SourceError, match=like(f"ts.load(pd.read_excel('{tmp_path}/x.xlsx')).")):
        ts.load(tmp_path / "x.xlsx")


# Sources without rows

WITHOUT_ROWS: list[dict[str, Any]] = [
    {"time": "t"},
    {"entity": "e"},
    {"entity": "e", "time": "t"},
    {"entity": ["e"], "time": "t", "known": "k"},
    {"time": "t", "filter": [("y", ">", 0)]},
]


@pytest.mark.parametrize("keys", WITHOUT_ROWS, ids=str)
def test_a_source_without_rows_says_so_and_has_the_types_that_its_line_gives(
    keys: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "0.csv").write_text("t,e,k,y\n")
    empty = pl.DataFrame({"t": [], "e": [], "k": [], "y": []})
    empty.write_parquet(tmp_path / "0.parquet")
    mapping: dict[str, Any] = {name: [] for name in empty.columns}
    for source in (tmp_path / "0.csv", tmp_path / "0.parquet", empty, empty.to_arrow(), empty.to_pandas(), mapping):
        frame = pl.read_csv(tmp_path / "0.csv") if str(source).endswith(".csv") else empty
        with pytest.raises(ts.errors.SchemaError, match=like("need a type; ... has no rows")) as refused:
            ts.load(source, ["y"], **keys)
        assert loaded_with_types(refused.value, frame.cast({"y": pl.Float64}), keys).rows == 0


def loaded_with_types(error: BaseException, frame: pl.DataFrame, keys: dict[str, Any]) -> ts.Stash:
    """What is loaded once the line of the error, and those of errors that follow, were executed on the frame."""
    line = re.search(r" (frame\..*\))\.\Z", str(error))
    assert line is not None, error
    frame = eval(line[1], {"frame": frame, "pl": pl})
    try:
        return ts.load(frame, ["y"], **keys)
    except ts.errors.SchemaError as another:
        return loaded_with_types(another, frame, keys)


# Encrypted Parquet


@pytest.mark.parametrize("plaintext", [False, True])
def test_an_encrypted_file_is_loaded_as_a_dataset_with_its_keys(plaintext: bool, tmp_path: Path) -> None:
    pe = pytest.importorskip("pyarrow.parquet.encryption", reason="this pyarrow has no encryption")

    class Keys(pe.KmsClient):  # type: ignore[name-defined,misc]
        """Wraps keys without encrypting them."""

        def wrap_key(self, key: bytes, name: str) -> bytes:
            return base64.b64encode(name.encode() + b"|" + key)

        def unwrap_key(self, wrapped: bytes, _: str) -> bytes:
            return base64.b64decode(wrapped).partition(b"|")[2]

    connection, factory = pe.KmsConnectionConfig(), pe.CryptoFactory(lambda _: Keys())
    encryption = pe.EncryptionConfiguration(footer_key="f", column_keys={"c": ["y"]}, plaintext_footer=plaintext)
    path = tmp_path / "0.parquet"
    options = {"encryption_properties": factory.file_encryption_properties(connection, encryption)}
    with pq.ParquetWriter(path, pa.schema({"t": pa.int64(), "y": pa.float64()}), **options) as writer:
        writer.write_table(pa.table(FRAME[["t", "y"]]))
    if plaintext:
        assert ts.load(path, ["t"])["t"].tolist() == [1, 2]
    with pytest.raises(ts.errors.SourceError, match=like("t is encrypted. Decrypt it, or load a pyarrow")) as refused:
        ts.load(path, ["y"])
    assert "Write the file again" not in str(refused.value)
    decryption = pads.ParquetDecryptionConfig(factory, connection, pe.DecryptionConfiguration())
    line = str(refused.value).partition("has its keys: ")[2].removesuffix(".").replace("=...", "=decryption")
    names = {"pyarrow": pa, "path": path, "decryption": decryption}
    names |= {name: getattr(pads, name) for name in ("ParquetFileFormat", "ParquetFragmentScanOptions")}
    assert ts.load(eval(line, names), ["y"], time="t")["y"].tolist() == [1.0, 2.0]


# Damage, and what only looks like it


def test_names_in_paths_of_a_footer_that_are_not_utf8(tmp_path: Path) -> None:
    """Arrow does not show the names of the levels of a list, but the paths of its columns hold them."""
    table = pa.table({"l": [[k, k + 1] for k in range(9)], "s": [f"s{k}" for k in range(9)], "y": range(9)})
    path = write_parquet(tmp_path / "0.parquet", [table])
    data = path.read_bytes()
    for name in (b"list", b"element"):
        for at in [found.start() for found in re.finditer(name, data)]:
            path.write_bytes(data[:at] + b"\xff" + data[at + 1 :])
            for columns in (["l"], ["y"], ["s", "y"]):
                for condition in (None, [("y", ">=", 0)], [("s", "!=", "")]):
                    try:
                        stash = ts.load(path, columns, filter=condition)
                        repr(ts.plan(path, columns))
                    except ts.errors.SourceError as error:
                        assert "UTF-8" in str(error) or "cannot be decoded" in str(error)  # noqa: PT017
                    else:
                        assert stash.rows == 9


LITTLE_MEMORY = """
import resource, sys, numpy as np, pyarrow as pa, tensorstash as ts
ts.load(sys.argv[1], ["y"], time="t", filter=[("y", ">=", 0)])
size = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize")) << 10
resource.setrlimit(resource.RLIMIT_AS, (size + (8 << 20),) * 2)
for options in ({}, {"filter": [("y", ">=", 0)]}, {"time": "t"}):
    try:
        ts.load(sys.argv[2], ["y"], progress=False, **options)
        print("loaded")
    except ts.errors.NoMemoryError as error:
        print("allow this process more: ulimit -v" in str(error) or str(error))
"""


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_memory_that_a_process_may_not_have_is_no_damage(ending: str, tmp_path: Path) -> None:
    rows = 8_000_000
    table = pa.table({"y": np.zeros(rows), "t": np.arange(rows)})
    small, large = tmp_path / f"small.{ending}", tmp_path / f"large.{ending}"
    for path, part in ((small, table.slice(0, 10)), (large, table)):
        if ending == "parquet":
            pq.write_table(part, path, use_dictionary=False, compression="none", data_page_size=1 << 26)
        else:
            with pa.ipc.new_file(path, part.schema) as file:
                file.write_table(part)
    done = run(LITTLE_MEMORY, small, large, warn="default")
    assert done.stdout.split("\n")[:-1] == ["True"] * 3, done.stdout + done.stderr


# Many files, each of which is a series


@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv"])
def test_files_that_are_series_are_loaded_by_their_paths(ending: str, tmp_path: Path) -> None:
    for name in ("A", "B"):
        path = tmp_path / f"{name}.{ending}"
        if ending == "csv":
            POLARS.write_csv(path)
        elif ending == "arrow":
            POLARS.write_ipc(path)
        else:
            POLARS.write_parquet(path)
    paths = sorted(tmp_path.iterdir())
    sources: list[Any] = [tmp_path / f"*.{ending}", [str(path) for path in paths]]
    sources += [tmp_path] if ending != "csv" else []
    sources += [pads.dataset(tmp_path)] if ending == "parquet" else []
    for source in sources:
        with pytest.raises(ts.errors.DataError, match=like("If each file is a series, load ")) as refused:
            ts.load(source, ["y"], time="t")
        line = re.search(
            r"load (them|dataset\.files) with entity=(ts\.path\('stem'\))\. Else drop one", str(refused.value)
        )
        assert line is not None, refused.value
        files = source.files if line[1] == "dataset.files" else source
        stash = ts.load(files, ["y"], entity=eval(line[2], {"ts": ts}), time="t")
        assert stash.entities == ["A", "B"]
        assert stash["y"].tolist() == [1.0, 2.0, 1.0, 2.0]
    one = write_parquet(tmp_path / "C.parquet", [pa.table({"t": [1, 1], "y": [1.0, 2.0]})])
    with pytest.raises(
        ts.errors.DataError, match=like("source rows 0 ... and 1 ... row group 0). Drop one, name the column")
    ):
        ts.load(one, ["y"], time="t")
