"""One load of every source beside polars: filter, expressions, static columns, plan, share, file, command line."""

import gzip
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.ipc
import pytest
from pyarrow import orc

import tensorstash as ts
from tests.command_line import run
from tests.oracle_load import Producer

START = datetime(2024, 1, 1)
FLAT = pl.DataFrame(
    {
        "station": ["bac"[k * k % 3] for k in range(40)],
        "t": [START + timedelta(hours=k * 17 % 40) for k in range(40)],
        "x": [k * 7 % 11 / 4 for k in range(40)],
        "k": [k * 3 % 10 for k in range(40)],
        "height": ["ba c"[k * k % 3 : k * k % 3 + 2] for k in range(40)],
    }
)
HEIGHTS = pl.DataFrame({"station": ["a", "b"], "height": ["x", "y"]})


def expected(static: str) -> pl.DataFrame:
    rows = FLAT.filter(pl.col("k") > 2)
    if static == "table":
        rows = rows.drop("height").join(HEIGHTS, on="station", maintain_order="left")
    return rows.sort("station", "t").with_columns(twice=pl.col("k") * 2)


ARGUMENTS: dict[str, Any] = {
    "columns": {"x": "x", "twice": pl.col("k") * 2},
    "entity": "station",
    "time": "t",
    "filter": [("k", ">", 2)],
}
STATIC: dict[str, Any] = {"column": ["height"], "table": HEIGHTS}


def check(stash: ts.Stash, static: str) -> None:
    rows = expected(static)
    assert stash.entities == rows["station"].unique().sort().to_list()
    for name in ("x", "twice"):
        assert stash[name].nan_to_num(-9).tolist() == rows[name].fill_null(-9).to_list(), name
    assert stash.time is not None
    ticks = rows["t"].dt.epoch({"s": "s", "ms": "ms", "us": "us", "ns": "ns"}[stash.clock.unit or ""])  # type: ignore[arg-type]
    assert stash.time.tolist() == ticks.to_list()
    heights = rows.group_by("station", maintain_order=True).first()["height"].to_list()
    assert [stash.vocabulary("height")[code] for code in stash.static["height"].tolist()] == heights


def _csv(ending: str, separator: str = ",") -> Callable[[pl.DataFrame, Path], Path]:
    def write(frame: pl.DataFrame, path: Path) -> Path:
        data = frame.write_csv(separator=separator).encode()
        whole = path / f"one.{ending}"
        if ending.endswith(".zst"):
            with pa.CompressedOutputStream(str(whole), "zstd") as file:
                file.write(data)
        else:
            whole.write_bytes(gzip.compress(data, mtime=0) if ending.endswith(".gz") else data)
        return whole

    return write


def _parquet(frame: pl.DataFrame, path: Path) -> Path:
    frame.write_parquet(path / "one.parquet", row_group_size=9)
    return path / "one.parquet"


def _ipc(frame: pl.DataFrame, path: Path) -> Path:
    frame.write_ipc(path / "one.feather", record_batch_size=7)
    return path / "one.feather"


def _orc(frame: pl.DataFrame, path: Path) -> Path:
    orc.write_table(frame.to_arrow(), path / "one.orc", stripe_size=1024, row_index_stride=1000)
    return path / "one.orc"


def _ipc_stream(frame: pl.DataFrame, path: Path) -> Path:
    table = frame.to_arrow()
    with pa.ipc.new_stream(path / "one.arrows", table.schema) as file:
        file.write_table(table, 7)
    return path / "one.arrows"


def _several(ending: str) -> Callable[[pl.DataFrame, Path], Path]:
    def write(frame: pl.DataFrame, path: Path) -> Path:
        (path / "many").mkdir()
        half = len(frame) // 2
        for name, part in (("a", frame[:half]), ("b", frame[half:])):
            whole = path / "many" / f"{name}.{ending}"
            part.write_parquet(whole) if ending == "parquet" else part.write_csv(whole)
        return path / "many"

    return write


SOURCES: dict[str, Callable[[pl.DataFrame, Path], Any]] = {
    "csv": _csv("csv"),
    "csv.gz": _csv("csv.gz"),
    "csv.zst": _csv("csv.zst"),
    "tsv": _csv("tsv", "\t"),
    "several csv": _several("csv"),
    "several": _several("parquet"),
    "ipc": _ipc,
    "orc": _orc,
    "ipc stream": _ipc_stream,
    "batch": lambda frame, _: frame.to_arrow().combine_chunks().to_batches()[0],
    "lazy": lambda frame, path: pl.scan_parquet(_parquet(frame, path)),
    "dataset": lambda frame, path: pads.dataset(_parquet(frame, path)),
    "scanner": lambda frame, path: pads.dataset(_parquet(frame, path)).scanner(),
    "reader": lambda frame, _: frame.to_arrow().to_reader(7),
    "stream": lambda frame, _: Producer(frame.to_arrow()),
    "duckdb": lambda frame, path: duckdb.read_parquet(str(_parquet(frame, path))),
}


@pytest.mark.parametrize("static", STATIC)
@pytest.mark.parametrize("name", SOURCES)
def test_every_source_takes_every_argument(name: str, static: str, tmp_path: Path, shm: Path) -> None:
    arguments = {**ARGUMENTS, "static": STATIC[static]}

    def source() -> Any:
        """A source that nothing has been read from, of the same files."""
        return made if isinstance(made, Path) else SOURCES[name](FLAT, tmp_path)

    made = SOURCES[name](FLAT, tmp_path)
    check(ts.load(source(), **arguments), static)
    plan = ts.plan(source(), **arguments)
    assert plan.rows == len(expected(static))
    check(plan.load(), static)
    label, file = name.translate(str.maketrans(" ;", "_s")), tmp_path / "x.safetensors"
    check(ts.load(source(), share=label, **arguments), static)
    check(ts.load(source(), file=file, **arguments), static)
    inode = file.stat().st_ino
    check(ts.load(source(), file=file, **arguments), static)
    assert file.stat().st_ino == inode
    ts.load(source(), share=label, **arguments)
    assert [line["label"] for line in ts.shared.list().to_dicts()].count(label) == 1
    if isinstance(made, Path):
        options = ["--entity", "station", "--time", "t", "--columns", "x,k"]
        for command in (["inspect", str(made)], ["load", str(made), "--file", str(tmp_path / "y.safetensors")]):
            run(*command, *options)
        assert ts.open(tmp_path / "y.safetensors").rows == len(FLAT)
