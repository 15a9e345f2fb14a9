"""Directories that are tables of Delta, Hudi, Iceberg and Lance; `tests/adapters/test_lake.py` has real ones."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tensorstash as ts
from tests.command_line import invoke
from tests.oracle_load import like

# for each format: the files of its log, the directory of its data, and the line that reads it
FORMATS = {
    "Delta": (["_delta_log/00000000000000000000.json"], "p=a", "ts.load(pl.scan_delta('{root}'))"),
    "Hudi": (
        [".hoodie/hoodie.properties"],
        "2024/05",
        "ts.load(pa.Table.from_batches(hudi.HudiTableBuilder.from_base_uri('{root}').build().read()))",
    ),
    "Iceberg": (
        [f"metadata/{name}.metadata.json" for name in ("00009-f", "00010-a", "00002-c")],
        "data/p=a",
        "ts.load(pl.scan_iceberg('{root}/metadata/00010-a.metadata.json'))",
    ),
}


def write_table(root: str, name: str, system: Any) -> str:
    """Two Parquet files and the log of a format; returns the directory of the files."""
    logs, below, _ = FORMATS[name]
    for path in logs:
        system.makedirs(f"{root}/{path}".rpartition("/")[0], exist_ok=True)
        system.pipe_file(f"{root}/{path}", b"{}")
    system.makedirs(f"{root}/{below}", exist_ok=True)
    for k in range(2):
        with system.open(f"{root}/{below}/{k}.parquet", "wb") as file:
            pq.write_table(pa.table({"y": [k, k + 10]}), file)
    return f"{root}/{below}"


def check_refused(source: Any, name: str, shown: str, **options: Any) -> None:
    line = FORMATS[name][2].format(root=shown)
    fragment = like(f"'{shown}' is a table of {name}, and its log says which rows are in it: {line}.")
    for look in (lambda: ts.load(source, **options), lambda: ts.plan(source, **options).rows):
        with pytest.raises(ts.errors.SourceError, match=fragment):
            look()


@pytest.mark.parametrize("name", FORMATS)
def test_a_directory_or_glob_of_a_table_is_refused_at_any_depth(name: str, tmp_path: Path) -> None:
    root = str(tmp_path / "house" / "table")
    data = write_table(root, name, fsspec.filesystem("file"))
    (tmp_path / "link").symlink_to(data)
    sources = [root, f"{root}/", data, f"{data}/*.parquet", f"{root}/**/*.parquet", tmp_path, tmp_path / "link"]
    for source in [*sources, [f"{data}/0.parquet", data], f"{tmp_path}/*/table/**"]:
        check_refused(source, name, root)


@pytest.mark.parametrize("name", FORMATS)
def test_files_that_are_named_one_by_one_are_read(name: str, tmp_path: Path) -> None:
    """As those that a log lists."""
    data = write_table(str(tmp_path / "table"), name, fsspec.filesystem("file"))
    assert ts.load(f"{data}/0.parquet")["y"].tolist() == [0, 10]
    assert ts.load([f"{data}/{k}.parquet" for k in range(2)])["y"].tolist() == [0, 10, 1, 11]


@pytest.mark.parametrize("name", FORMATS)
def test_a_table_in_an_object_store(name: str) -> None:
    system = fsspec.filesystem("memory")
    data = write_table("/test-lake/table", name, system)
    try:
        for path in ("/test-lake", "/test-lake/table", data, f"{data}/*.parquet", "/test-lake/table/**/*.parquet"):
            check_refused(path, name, "memory:///test-lake/table", filesystem=system)
            check_refused(f"memory:/{path}", name, "memory:///test-lake/table")
        assert ts.load(f"memory:/{data}/1.parquet")["y"].tolist() == [1, 11]
    finally:
        system.rm("/test-lake", recursive=True)


@pytest.mark.parametrize("name", FORMATS)
def test_a_path_from_here_is_shown_from_here(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was given, or, of a directory within the table, so that the line of the message reads the table."""
    data = write_table(str(tmp_path / "house" / "table"), name, fsspec.filesystem("file"))
    monkeypatch.chdir(tmp_path)
    below = FORMATS[name][1]
    for source in ("house/table", "house", Path("house/table"), "house/**/*.parquet", f"house/table/{below}/*.parquet"):
        check_refused(source, name, "house/table")
    monkeypatch.chdir(data)
    check_refused("*.parquet", name, "/".join([".."] * len(below.split("/"))))


def test_what_only_looks_like_a_log_is_no_table(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for name in ("data", "metadata", "_versions", "_symlink_format_manifest"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes.json").write_text("{}")
    pq.write_table(pa.table({"y": [1, 2]}), data / "0.parquet")
    for source in (tmp_path, data, f"{data}/*.parquet"):
        assert ts.load(source)["y"].tolist() == [1, 2]


def test_a_directory_of_lance(tmp_path: Path) -> None:
    root = tmp_path / "x.lance"
    for name in ("_versions/1.manifest", "data/0.lance"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"LANC")
    line = like(f"'{root}' is a table of Lance, ... ts.load(lance.dataset('{root}')).")
    for source in (root, f"{root}/"):
        with pytest.raises(ts.errors.SourceError, match=line):
            ts.load(source)


def test_inspect_refuses_a_table(tmp_path: Path) -> None:
    write_table(str(tmp_path), "Delta", fsspec.filesystem("file"))
    with pytest.raises(ts.errors.SourceError, match=like(f"ts.load(pl.scan_delta('{tmp_path}'))")):
        invoke("inspect", str(tmp_path))


@pytest.mark.parametrize(
    ("module", "kind", "line"),
    [
        ("deltalake.table", "DeltaTable", "Load pl.scan_delta(table)."),
        ("pyiceberg.table", "Table", "Load pl.scan_iceberg(table)."),
        ("builtins", "HudiTable", "Load pa.Table.from_batches(table.read())."),
    ],
)
def test_tables_of_their_packages_are_refused_with_the_line_that_reads_them(module: str, kind: str, line: str) -> None:
    """They are known by their names, so that their packages need not be there."""
    make: Callable[[], Any] = type(kind, (), {"__module__": module})
    with pytest.raises(TypeError, match=like(f"got {module}.{kind}. {line}")):
        ts.load(make())
