"""`ts.path`: a part of the path of each row's file as a column, an entity, a static column and in a filter."""

import gzip
from pathlib import Path
from typing import Any

import fsspec
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import tensorstash as ts
from tests.oracle_load import like, write_ipc, write_parquet

# in the order in which files are read
FILES = [("2024/007", [1, 2]), ("2024/x", [1, 2, 3]), ("2025/007", [3])]


def write(form: str, path: Path, days: list[int]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    table, whole = pa.table({"day": days, "y": [day / 4 for day in days]}), path.with_name(f"{path.name}.{form}")
    if form == "parquet":
        return write_parquet(whole, [table])
    if form == "ARROW":
        return write_ipc(whole, [table], None)
    if form == "orc":
        orc.write_table(table, whole)
        return whole
    text = pl.DataFrame(table).write_csv().encode()
    whole.write_bytes(gzip.compress(text) if form == "csv.gz" else text)
    return whole


def texts(stash: ts.Stash, name: str) -> list[str]:
    return [stash.vocabulary(name)[code] for code in {**stash, **stash.static}[name].tolist()]


@pytest.mark.parametrize("form", ["parquet", "ARROW", "orc", "csv", "csv.gz"])
def test_parts_of_paths_are_texts(form: str, tmp_path: Path) -> None:
    """Also those that are integers; and a name may have dots that are no ending of a format."""
    for name, days in FILES:
        write(form, tmp_path / name, days)
    columns: dict[str, Any] = {part: ts.path(part) for part in ("stem", "name", "parent")}
    columns |= {"given": ts.column(ts.path("stem"), vocabulary=["x"]), "n": pl.col(ts.path("parent")).str.len_bytes()}
    stash = ts.load(tmp_path, {"y": "y", **columns})
    stems = [Path(name).name for name, days in FILES for _ in days]
    assert texts(stash, "stem") == stems
    assert texts(stash, "name") == [f"{stem}.{form}" for stem in stems]
    assert texts(stash, "parent") == [Path(name).parent.name for name, days in FILES for _ in days]
    assert stash["given"].tolist() == [int(stem != "x") for stem in stems]
    assert stash["n"].tolist() == [4] * 6
    assert texts(ts.load(write(form, tmp_path / "a.b", [1]), {"s": ts.path("stem")}), "s") == ["a.b"]


@pytest.mark.parametrize("form", ["parquet", "ARROW", "orc", "csv"])
def test_a_file_for_each_series(form: str, tmp_path: Path) -> None:
    for name, days in FILES:
        write(form, tmp_path / name, days)
    year = pl.col(ts.path("parent")).cast(pl.Int32)
    stash = ts.load(tmp_path, entity=[ts.path("stem"), ts.path("parent")], time="day", static={"year": year})
    assert list(stash) == ["y"]
    assert stash.entity_names == ("ts.path.stem", "ts.path.parent")
    assert stash.entities == [("007", "2024"), ("007", "2025"), ("x", "2024")]
    assert (stash.offsets.tolist(), stash.static["year"].tolist()) == ([0, 2, 3, 6], [2024, 2025, 2024])
    plan = ts.plan(tmp_path, ["y"], entity=ts.path("stem"), time="day", filter=[(ts.path("parent"), "==", "2024")])
    assert (plan.rows, plan.load().entities) == (5, ["007", "x"])


def test_files_that_a_filter_excludes_are_not_opened(tmp_path: Path) -> None:
    write("parquet", tmp_path / "good", [1, 2])
    (tmp_path / "later.parquet").write_bytes(b"damaged")
    conditions: list[Any] = [[(ts.path("stem"), "==", "good")], pc.field(ts.path("stem")) == "good"]
    for condition in conditions:
        assert ts.load(tmp_path, ["y"], filter=condition)["y"].tolist() == [0.25, 0.5]


def test_a_path_in_another_file_system() -> None:
    system = fsspec.filesystem("memory")
    for name, days in FILES:
        with system.open(f"/test-paths/{name}.parquet", "wb") as file:
            pq.write_table(pa.table({"day": days}), file)
    stash = ts.load("memory://test-paths/", {"day": "day", "year": ts.path("parent")}, entity=ts.path("stem"))
    assert (stash.entities, texts(stash, "year")) == (["007", "x"], ["2024"] * 2 + ["2025"] + ["2024"] * 3)


def test_one_file_under_two_names_is_two_segments(tmp_path: Path, shm: Path) -> None:
    """The stamp of a file has its real path, which says nothing of the name that the source gave it."""
    real = write("parquet", tmp_path / "real" / "0", [1, 2])
    for name in ("a", "b"):
        (tmp_path / f"kind={name}").mkdir()
        (tmp_path / f"kind={name}" / f"{name}.parquet").symlink_to(real)
        stash = ts.load(tmp_path / f"kind={name}" / "*", ["y"], entity=ts.path("stem"), share="test-paths")
        assert stash.entities == [name]
        keys = ts.load(tmp_path / "kind=*" / f"{name}.parquet", ["kind"], share="test-keys")
        assert texts(keys, "kind") == [name] * 2


def test_like_takes_the_path_again(tmp_path: Path) -> None:
    for name in "ab":
        write("parquet", tmp_path / "old" / name, [1, 2])
    stash = ts.load(tmp_path / "old", ["y"], entity=ts.path("stem"), time="day")
    write("parquet", tmp_path / "new" / "b", [3])
    assert ts.load(tmp_path / "new", like=stash).entities == ["a", "b"]
    message = "ts.path('stem') is a part of the path of a file; a Table has no files. Load files, or name"
    table = pa.table({"symbol": ["b"], "day": [3], "y": [0.5]})
    with pytest.raises(ts.errors.SourceError, match=like(message)):
        ts.load(table, like=stash)
    assert ts.load(table, like=stash, entity="symbol").entities == ["a", "b"]


@pytest.mark.parametrize("arguments", [{"entity": ts.path("name")}, {"columns": {"s": ts.path("name")}}], ids=str)
def test_sources_without_files(arguments: dict[str, Any]) -> None:
    sources: list[Any] = [{"y": [1]}, pl.DataFrame({"y": [1]}), pl.LazyFrame({"y": [1]}), pa.table({"y": [1]})]
    for source in sources:
        with pytest.raises(ts.errors.SourceError, match=like("ts.path('name') is a part ... has no files. Load files")):
            ts.load(source, **arguments)


def test_other_parts_are_refused() -> None:
    with pytest.raises(ValueError, match=like("part must be ... stem ... got 'folder'")):
        ts.path("folder")  # type: ignore[arg-type]
