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
from click.testing import CliRunner

import tensorstash as ts
from tensorstash.cli.commands import commands
from tests.layouts import Producer

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
LISTS = FLAT.sort("t").with_row_index("n").with_columns(pl.col("n") // 15)  # parts of 15 hours, none with a gap
LISTS = (
    LISTS.select("n", "t", "x", "k", station=pl.lit("s") + (pl.col("n") % 2).cast(pl.String))
    .group_by("n", "station", maintain_order=True)
    .agg("x", "k", start=pl.col("t").first())
    .with_columns(height="station", every=pl.lit("1h"))
)
WIDE = FLAT.select("t", "k", a=pl.col("x"), b=pl.col("x") * 3, c=pl.col("x") - 1)
HEIGHTS = pl.DataFrame({"station": ["c", "a", "b"], "height": ["z", "x", "y"]})


def long_form(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows that a frame in one of the layouts stands for."""
    if "every" in frame.columns:
        hours = pl.int_ranges(pl.col("x").list.len())
        steps = frame.with_columns(n=hours).explode("x", "k", "n")
        return steps.with_columns(t=pl.col("start") + pl.duration(hours="n"))
    if "a" in frame.columns:
        rows = frame.unpivot(["a", "b", "c"], index=["t", "k"], variable_name="station", value_name="x")
        return rows.join(HEIGHTS, on="station", maintain_order="left")
    return frame


def expected(frame: pl.DataFrame) -> pl.DataFrame:
    rows = long_form(frame).filter(pl.col("k") > 2)
    names = rows["station"].unique(maintain_order=True)
    order = pl.col("station").replace_strict(names, range(len(names)))
    rows = rows.sort(order, "t")
    return rows.with_columns(twice=pl.col("k") * 2, lag=pl.col("x").shift(1).over("station"))


ARGUMENTS: dict[str, dict[str, Any]] = {
    "flat": {"time": "t", "static": ["height"]},
    "lists": {"time": ts.regular("start", "every"), "static": ["height"], "layout": "lists"},
    "wide": {"time": "t", "static": HEIGHTS, "layout": "wide"},
}
FRAMES = {"flat": FLAT, "lists": LISTS, "wide": WIDE}


def call(layout: str) -> dict[str, Any]:
    """The arguments of the load."""
    series = ["a", "b", "c"] if layout == "wide" else "x"
    columns = {"x": series, "twice": pl.col("k") * 2, "lag": ts.per_entity(pl.col("x").shift(1))}
    return {"columns": columns, "entity": "station", "filter": [("k", ">", 2)], **ARGUMENTS[layout]}


def check(stash: ts.Stash, frame: pl.DataFrame) -> None:
    rows = expected(frame)
    assert stash.entities == rows["station"].unique(maintain_order=True).to_list()
    for name in ("x", "twice", "lag"):
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
    "csv ;": _csv("csv", ";"),
    "tsv": _csv("tsv", "\t"),
    "several csv": _several("csv"),
    "several": _several("parquet"),
    "ipc": _ipc,
    "ipc stream": _ipc_stream,
    "batch": lambda frame, _: frame.to_arrow().combine_chunks().to_batches()[0],
    "lazy": lambda frame, path: pl.scan_parquet(_parquet(frame, path)),
    "dataset": lambda frame, path: pads.dataset(_parquet(frame, path)),
    "scanner": lambda frame, path: pads.dataset(_parquet(frame, path)).scanner(),
    "reader": lambda frame, _: frame.to_arrow().to_reader(7),
    "stream": lambda frame, _: Producer(frame.to_arrow()),
    "duckdb": lambda frame, path: duckdb.read_parquet(str(_parquet(frame, path))),
}
CSV = ("csv", "csv.gz", "csv.zst", "csv ;", "tsv", "several csv")  # they have no lists
CASES = [(layout, name) for layout in FRAMES for name in SOURCES if layout != "lists" or name not in CSV]


@pytest.mark.parametrize(("layout", "name"), CASES)
def test_every_source_takes_every_argument(layout: str, name: str, tmp_path: Path, shm: Path) -> None:
    frame, arguments = FRAMES[layout], call(layout)

    def source() -> Any:
        """A source that nothing has been read from, of the same files."""
        return found if isinstance(found, Path) else SOURCES[name](frame, tmp_path)

    found = SOURCES[name](frame, tmp_path)
    check(ts.load(source(), **arguments), frame)
    if name == "reader":
        with pytest.raises(ValueError, match="a RecordBatchReader can be read only once"):
            ts.plan(source(), **arguments)
    else:
        assert ts.plan(source(), **arguments).rows == len(expected(frame))
    shared, file = f"{layout}-{name}".translate(str.maketrans(" ;", "_s")), tmp_path / "x.safetensors"
    check(ts.load(source(), share=shared, **arguments), frame)
    check(ts.load(source(), file=file, **arguments), frame)
    inode = file.stat().st_ino
    check(ts.load(source(), file=file, **arguments), frame)
    assert file.stat().st_ino == inode
    ts.load(source(), share=shared, **arguments)
    assert [line["label"] for line in ts.shared.list().to_dicts()].count(shared) == 1
    if isinstance(found, Path):
        times = ["--start", "start", "--every", "every"] if layout == "lists" else ["--time", "t"]
        options = ["--entity", "station", *times, *([] if layout == "flat" else ["--layout", layout])]
        columns = ["--columns", "x=a,b,c", "--columns", "k"] if layout == "wide" else ["--columns", "x,k"]
        for command in (["inspect", str(found)], ["load", str(found), "--file", str(tmp_path / "y.safetensors")]):
            done = CliRunner().invoke(commands, [*command, *options, *columns])
            assert done.exit_code == 0, done.output
        assert ts.open(tmp_path / "y.safetensors").rows == len(long_form(frame))
