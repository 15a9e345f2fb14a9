"""Making shards: what is in them, and runs that were ended, repeated, or called with something else.

It reaches inside `cluster` for its manifests, its store and its writer.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tensorstash.cluster import resume
from tensorstash.cluster.manifest import Manifest, ShardRecord, from_json, seal
from tensorstash.cluster.rows_by_shard import SourceRows
from tensorstash.cluster.shard_file import ShardReport, ShardWriter
from tensorstash.cluster.store import Store
from tests import processes
from tests.cases_load import cases
from tests.cluster.test_sharding import by_definition

S = 5


def table(rows: int = 400) -> pa.Table:
    """Rows of many entities, mixed, with missing values; every value says where it comes from."""
    place = np.arange(rows)
    rng = np.random.default_rng(7)
    return pa.table(
        {
            "name": pa.array([f"s{k}" for k in rng.integers(0, 23, rows)]),
            "part": pa.array(rng.integers(0, 2, rows), pa.int16()),
            "hour": pa.array([datetime(2024, 1, 1) + timedelta(hours=int(k)) for k in place], pa.timestamp("us")),
            "x": pa.array(place * 1.5, mask=place % 11 == 0),
            "y": pa.array(place * 3, pa.int32()),
            "sky": pa.array([f"w{k % 7}" for k in place], mask=place % 13 == 0),
            "list": pa.array([[float(k), k + 0.5] for k in place], pa.list_(pa.float64())),
            "flag": pa.array(place % 3 == 0),
        }
    )


COLUMNS: dict[str, Any] = {
    "pack": ["x", "y"],
    "twice": pl.col("x") * 2,
    "sky": ts.column("sky", fill="none"),
    "plain_sky": "sky",
    "list": "list",
    "flag": "flag",
}
KEYS: dict[str, Any] = {"entity": ["name", "part"], "time": "hour", "dtype": torch.float32}


def files(where: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(where.iterdir()) if not path.name.startswith(".")}


def with_words(columns: dict[str, Any], manifest: Manifest) -> dict[str, Any]:
    """The columns with the vocabularies of the manifest, as a load by itself would need them."""
    fills = {"sky": "none"}
    return columns | {
        name: ts.column("sky", vocabulary=words, fill=fills.get(name)) for name, words in manifest.vocabularies.items()
    }


def same(one: ts.Stash, other: ts.Stash) -> bool:
    """Whether two stashes hold the same rows in the same order."""
    assert one.entities == other.entities
    assert one.offsets.equal(other.offsets)
    assert (one.time is None) == (other.time is None)
    assert one.time is None or other.time is None or one.time.equal(other.time)
    for ours, theirs in ((one, other), (one.static, other.static)):
        assert [*ours] == [*theirs]
        for name, tensor in ours.items():
            assert tensor.dtype == theirs[name].dtype
            assert torch.equal(tensor.nan_to_num(-1.25), theirs[name].nan_to_num(-1.25)), name
            about, their = one.about(name), other.about(name)
            assert (about.members, about.low, about.high, about.nulls) == (
                their.members,
                their.low,
                their.high,
                their.nulls,
            )
    return True


@pytest.mark.parametrize("size", [37, 400])
def test_every_shard_is_what_a_load_of_it_gives(tmp_path: Path, size: int) -> None:
    """However large the row groups are."""
    pq.write_table(table(), tmp_path / "a.parquet", row_group_size=size)
    chosen: dict[str, Any] = {**KEYS, "filter": [("y", ">=", 30)]}
    made = ts.cluster.shard(tmp_path / "a.parquet", COLUMNS, shards=S, to=tmp_path / "to", **chosen)
    whole = ts.load(tmp_path / "a.parquet", COLUMNS, **chosen)
    assert made.vocabularies == {name: tuple(whole.vocabulary(name)) for name in ("sky", "plain_sky")}
    assert made.types["pack"] == "float32 x 2"
    for k, record in enumerate(made.shards):
        stash = ts.open(tmp_path / "to" / record.file)
        alone = ts.load(tmp_path / "a.parquet", with_words(COLUMNS, made), shard=(k, S), **chosen)
        assert same(stash, alone)
        assert (record.rows, record.entities) == (stash.rows, len(stash.entities))
        assert record.bytes == (tmp_path / "to" / record.file).stat().st_size
    assert made.rows == whole.rows
    assert from_json((tmp_path / "to" / "manifest.json").read_text(), "the manifest") == made
    assert sorted(files(tmp_path / "to")) == sorted(
        ["index.safetensors", "manifest.json", *(record.file for record in made.shards)]
    )


def test_a_manifest_prints_what_the_shards_hold(tmp_path: Path) -> None:
    made = ts.cluster.shard(table(), COLUMNS, shards=S, to=tmp_path / "few", **KEYS)
    assert repr(made) == (
        "Manifest: 400 rows of 46 entities in 5 shards, for up to 5 nodes\n"
        "  pack float32 x 2, twice float32, sky int32, plain_sky int32, list float32 x 2, flag bool"
    )
    many = {f"column_{k:03}": [0.5] for k in range(300)} | {"e": ["a"]}
    alone = ts.cluster.shard(many, entity="e", shards=2, to=tmp_path / "many")
    first = "  column_000 float64, column_001 float64, column_002 float64, column_003 float64, column_004 float64,…"
    assert repr(alone).splitlines() == ["Manifest: 1 row of 1 entity in 2 shards, for up to 1 node", first]


def test_events_of_one_time_keep_the_order_of_the_source(tmp_path: Path) -> None:
    """In batches of any size, and with spans in time over the shards."""
    rows = np.random.default_rng(0).permutation(600)
    events = pa.table({"e": rows % 7, "t": rows // 40, "y": rows.astype(np.float32)})
    pq.write_table(events, tmp_path / "events.parquet", row_group_size=50)
    chosen: dict[str, Any] = {"entity": "e", "time": "t", "duplicates": "keep"}
    made = ts.cluster.shard(tmp_path / "events.parquet", ["y"], shards=S, to=tmp_path / "to", **chosen)
    for k, record in enumerate(made.shards):
        assert same(ts.open(tmp_path / "to" / record.file), ts.load(events, ["y"], shard=(k, S), **chosen))
    windows = ts.cluster.windows(ts.cluster.open(tmp_path / "to"), spans={"past": ts.During("y", -3, 0, max_rows=9)})
    assert sum(int(batch["valid"].sum()) for batch in ts.Loader(windows, 64)) == 600
    with pytest.raises(ts.errors.DataError, match="A time occurs once in each entity"):
        ts.cluster.shard(events, ["y"], shards=S, to=tmp_path / "refused", entity="e", time="t")


@pytest.mark.parametrize("series", [1, 400])
def test_rows_in_long_stretches_and_in_short_ones(tmp_path: Path, series: int) -> None:
    """Long ones are not sorted by shard, and a shard may have several in a batch."""
    place = np.arange(12_000)
    names = place // 1000 if series == 1 else place % series
    source = pa.table({"e": names, "t": place, "y": place * 2})
    ts.cluster.shard(source, ["y"], entity="e", time="t", shards=3, to=tmp_path)
    for k in range(3):
        alone = ts.load(source, ["y"], entity="e", time="t", shard=(k, 3))
        assert same(ts.open(tmp_path / f"shard-{k:05}.safetensors"), alone)


@settings(max_examples=25)
@given(st.data())
def test_every_kind_of_column(data: st.DataObject) -> None:
    """All Arrow types that a stash can hold survive the way through the pieces."""
    case = data.draw(cases("table").filter(lambda case: case.entity is not None))
    source = pa.concat_tables(case.pieces())
    columns = {name: ts.column(name, fill=held.fill) for name, held in case.columns.items()}
    chosen: dict[str, Any] = {"entity": "entity_", "time": None if case.time is None else "time_"}
    with TemporaryDirectory() as to:
        made = ts.cluster.shard(source, columns, shards=3, to=to, **chosen)
        texts = {
            name: ts.column(name, vocabulary=words, fill=case.columns[name].fill)
            for name, words in made.vocabularies.items()
        }
        for k, record in enumerate(made.shards):
            alone = ts.load(source, columns | texts, shard=(k, 3), **chosen)
            assert same(ts.open(Path(to) / record.file), alone)


def test_more_shards_than_entities(tmp_path: Path) -> None:
    made = ts.cluster.shard(table(), ["x", "sky", "list"], shards=200, to=tmp_path, entity="name", time="hour")
    found = [ts.open(tmp_path / record.file) for record in made.shards]
    assert sum(stash.rows for stash in found) == 400
    assert {stash.rows for stash in found} > {0}
    for k, stash in enumerate(found):
        assert [by_definition(name, 200) for name in stash.entities] == [k] * len(stash.entities)


def test_static_columns_and_tables(tmp_path: Path) -> None:
    names = sorted(set(table()["name"].to_pylist()))
    stores = pl.DataFrame({"name": names, "region": [f"r{k % 3}" for k in range(len(names))]})
    chosen: dict[str, Any] = {"entity": "name", "time": "hour"}
    made = ts.cluster.shard(table(), ["x"], static=stores, shards=3, to=tmp_path, **chosen)
    assert made.vocabularies == {"region": ("r0", "r1", "r2")}
    whole = ts.load(table(), ["x"], static=stores, **chosen)
    for record in made.shards:
        stash = ts.open(tmp_path / record.file)
        expected = [int(name[1:]) for name in stash.entities]
        assert len(expected) == len(stash.static["region"])
        words = [stash.vocabulary("region")[code] for code in stash.static["region"].tolist()]
        theirs = [whole.static["region"][whole.entities.index(name)] for name in stash.entities]
        assert words == [whole.vocabulary("region")[int(code)] for code in theirs]


@pytest.mark.parametrize(
    ("step", "frequency"),
    [(timedelta(hours=1), "1h"), (timedelta(days=1), "1d"), (timedelta(days=7), "7d"), (None, "1mo")],
)
def test_the_frequency_is_that_of_all_shards(tmp_path: Path, step: timedelta | None, frequency: str) -> None:
    begin = datetime(2020, 1, 1)
    times = (
        [begin + k * step for k in range(24)] if step else [datetime(2020 + k // 12, k % 12 + 1, 1) for k in range(24)]
    )
    odd = [begin + timedelta(minutes=13 * k) for k in range(5)]
    data: dict[str, Any] = {"e": [f"e{k}" for k in range(9) for _ in times] + ["odd"] * 5, "t": [*times] * 9 + odd}
    data["y"] = [*range(9 * len(times) + 5)]
    made = ts.cluster.shard(data, ["y"], entity="e", time="t", shards=8, to=tmp_path)
    assert made.frequency == frequency


def test_integer_times_and_no_times(tmp_path: Path) -> None:
    data = {"e": [1, 1, 1, 2], "t": [0, 15, 30, 7], "y": [1, 2, 3, 4]}
    assert ts.cluster.shard(data, ["y"], entity="e", time="t", shards=2, to=tmp_path / "a").frequency == 15
    assert ts.cluster.shard(data, ["y"], entity="e", shards=2, to=tmp_path / "b").frequency is None


# Runs that go on


def call(where: Path, **other: Any) -> Manifest:
    chosen: dict[str, Any] = {"columns": COLUMNS, "shards": S, "to": where, **KEYS}
    given = chosen | other
    source = given.pop("source", table())
    return ts.cluster.shard(source, **given)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the shards that are written."""
    numbers: list[int] = []
    plain = ShardWriter.write

    def noted(self: Any, number: int, rows: pa.Table) -> Any:
        numbers.append(number)
        return plain(self, number, rows)

    monkeypatch.setattr(ShardWriter, "write", noted)
    return numbers


def test_a_run_that_is_repeated_writes_nothing(tmp_path: Path, written: list[int]) -> None:
    first = call(tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert call(tmp_path) == first
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    assert sorted(written) == [*range(S)]


def test_a_run_goes_on_with_the_shards_that_are_right(
    tmp_path: Path, written: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is missing, one was damaged since, one was never written: these are made, to the same bytes."""
    call(tmp_path / "whole")
    plain = resume.ShardingRun.add

    def stopped(self: Any, number: int, done: Any) -> None:
        plain(self, number, done)
        if number == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(resume.ShardingRun, "add", stopped)
        with pytest.raises(KeyboardInterrupt):
            call(tmp_path / "to")
    assert not (tmp_path / "to" / "manifest.json").exists()
    with pytest.raises(ts.errors.SegmentError, match=r"manifest\.json does not exist\. Make the shards, or resume"):
        ts.cluster.open(tmp_path / "to")
    (tmp_path / "to" / "shard-00001.safetensors").unlink()
    damage(tmp_path / "to" / "shard-00002.safetensors")
    del written[:]
    call(tmp_path / "to")
    assert sorted(written) == [1, 2, 4]
    assert files(tmp_path / "to") == files(tmp_path / "whole")


def test_of_many_shards_several_are_noted_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Because all are written again; a run that is killed makes at most a small part again."""
    sizes: list[int] = []
    plain = Store.write

    def noted(self: Store, name: str, text: str) -> None:
        sizes.append(len(text))
        plain(self, name, text)

    monkeypatch.setattr(Store, "write", noted)
    found = resume.ShardingRun(Store(str(tmp_path)), {}, {})
    for number in range(1000):
        found.add(number, ShardReport(ShardRecord(f"shard-{number}", 1, 1, 8192, "0f"), {}, {}, ()))
        there = json.loads((tmp_path / "partial.json").read_text())["shards"]
        assert number + 1 - len(there) <= (number + 1) // 32
    assert len(sizes) < 300


def damage(path: Path) -> None:
    """Change a byte of a column."""
    raw = bytearray(path.read_bytes())
    at = raw.rfind(b"}", 0, 30_000) + 8192
    raw[at] ^= 1
    path.chmod(0o600)
    path.write_bytes(raw)


def test_only_a_damaged_shard_is_made_again(tmp_path: Path, written: list[int]) -> None:
    call(tmp_path)
    before = files(tmp_path)
    damage(tmp_path / "shard-00002.safetensors")
    assert files(tmp_path) != before
    del written[:]
    call(tmp_path)
    assert written == [2]
    assert files(tmp_path) == before


def test_a_damaged_index_is_made_again_alone(tmp_path: Path, written: list[int]) -> None:
    call(tmp_path)
    before = files(tmp_path)
    damage(tmp_path / "index.safetensors")
    del written[:]
    call(tmp_path)
    assert written == []
    assert files(tmp_path) == before


@pytest.mark.parametrize("damaged", ["{", '{"version": 1}', '{"version": 2, "shards": []}'])
def test_a_manifest_that_cannot_be_read_is_made_again(tmp_path: Path, damaged: str) -> None:
    """Damaged, or of another version: the error of `open` says to call again."""
    call(tmp_path)
    before = files(tmp_path)
    (tmp_path / "manifest.json").unlink()
    (tmp_path / "manifest.json").write_text(damaged)
    with pytest.warns(UserWarning, match=r"manifest.*All of them are made again now"):
        call(tmp_path)
    assert files(tmp_path) == before


@pytest.mark.parametrize("damaged", ["{", "[]", '{"arguments": {}, "shards": {"0": 3}}', '{"shards": 3}'])
def test_notes_of_a_run_that_cannot_be_read_are_dropped(tmp_path: Path, damaged: str) -> None:
    call(tmp_path / "whole")
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "partial.json").write_text(damaged)
    call(tmp_path / "to")
    assert files(tmp_path / "to") == files(tmp_path / "whole")


def test_a_run_that_failed_before_its_first_shard_binds_nobody(tmp_path: Path) -> None:
    with pytest.raises(ts.errors.DataError, match="in source rows"):
        call(tmp_path, source=pa.concat_tables([table(3), table(3)]))
    assert call(tmp_path).rows == 400


def test_calls_for_one_directory_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second waits, and is then refused, as it is of another source; one of the same source finds the shards."""
    plain, entered, told = SourceRows.by_shard, threading.Event(), threading.Event()

    def slowly(*given: Any) -> Any:
        entered.set()
        assert told.wait(60)
        return plain(*given)

    monkeypatch.setattr(SourceRows, "by_shard", slowly)
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(call, tmp_path)
        assert entered.wait(60)
        same, other = pool.submit(call, tmp_path), pool.submit(call, tmp_path, source=table(399))
        time.sleep(0.3)
        assert not same.done()
        assert not other.done()
        told.set()
        assert first.result(60) == same.result(60) == ts.cluster.open(tmp_path).manifest
        with pytest.raises(ts.errors.SegmentError, match="were made from another source"):
            other.result(60)


def test_a_run_whose_notes_are_replaced_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Object stores have no locks: whoever comes last sees that somebody else was there."""
    plain = resume.ShardingRun.finish

    def late(self: Any, manifest: Manifest) -> None:
        self.store.write("partial.json", seal({"arguments": {"source": "another"}, "shards": {}}))
        plain(self, manifest)

    monkeypatch.setattr(resume.ShardingRun, "finish", late)
    with pytest.raises(
        ts.errors.SegmentError, match=r"^Only one call at a time may make shards in a place; another has written"
    ):
        call(tmp_path)
    assert not (tmp_path / "manifest.json").exists()


@pytest.mark.parametrize("time", [None, "t"])
def test_rows_keep_the_order_of_the_source(tmp_path: Path, time: str | None) -> None:
    """Of an entity without times, whatever the order in which its rows are read and partitioned."""
    rows = 5000
    data = pa.table({"e": np.arange(rows) * 7 % 11, "t": np.arange(rows) // 11, "y": np.arange(rows)})
    pq.write_table(data, tmp_path / "a.parquet", row_group_size=61)
    made = ts.cluster.shard(tmp_path / "a.parquet", ["y"], entity="e", time=time, shards=4, to=tmp_path / "to")
    stashes = [ts.open(tmp_path / "to" / record.file) for record in made.shards]
    found = {name: stash.series(name)["y"].tolist() for stash in stashes for name in stash.entities if stash.rows}
    assert found == {e: [k for k in range(rows) if k * 7 % 11 == e] for e in range(11)}


@pytest.mark.parametrize(
    "values",
    [
        pa.array([Decimal("0.5"), None, Decimal("-3.25"), Decimal(10) ** 40], pa.decimal256(60, 2)),
        pa.array([1, None, 3, 4], pa.int16()).cast(pa.float16()),
        pa.array([-(2**62), None, 0, 2**62], pa.timestamp("s")),
        pa.array([-5, None, 0, 7], pa.timestamp("us", "+02:00")),
        pa.array([1, None, 86_399, 3], pa.time32("s")),
        pa.array([0, None, 86_400_000, 172_800_000], pa.int64()).cast(pa.date64()),
        pa.array([1, None, 2**62, 3], pa.duration("s")),
        pa.array([[Decimal("0.5")], [Decimal("1.25")], [Decimal(7)], [Decimal(-2)]], pa.list_(pa.decimal128(9, 2), 1)),
    ],
    ids=lambda values: str(values.type),
)
def test_types_that_polars_does_not_hold(tmp_path: Path, values: pa.Array) -> None:
    fill = 0.0 if pa.types.is_decimal(values.type) or pa.types.is_floating(values.type) else 0
    source = pa.table({"e": ["a", "b", "a", "c"], "x": values})
    columns = {"x": ts.column("x", fill=fill)}
    ts.cluster.shard(source, columns, entity="e", shards=3, to=tmp_path)
    for k in range(3):
        alone = ts.load(source, columns, entity="e", shard=(k, 3))
        assert same(ts.open(tmp_path / f"shard-{k:05}.safetensors"), alone)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"shards": 6}, "were made with shards=5, and now it is 6"),
        ({"entity": "name"}, r"were made with entity=\['name', 'part'\], and now it is 'name'"),
        ({"dtype": torch.float64}, "were made with dtype=torch.float32, and now it is torch.float64"),
        ({"source": table(399)}, r"were made from another source: the pyarrow Table \(\w{16}\), and now it is the py"),
    ],
)
def test_shards_of_something_else_are_left_alone(tmp_path: Path, other: dict[str, Any], message: str) -> None:
    call(tmp_path)
    before = files(tmp_path)
    with pytest.raises(ts.errors.SegmentError, match=f"^Sharding resumes only with the same .*{message}"):
        call(tmp_path, **other)
    assert files(tmp_path) == before


KILLED = """
import sys, os, signal
from tensorstash.cluster import resume
plain = resume.ShardingRun.add
def add(self, number, done):
    plain(self, number, done)
    if number == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
resume.ShardingRun.add = add
from tests.cluster.test_shard import call
from pathlib import Path
if __name__ == "__main__":
    call(Path(sys.argv[1]))
"""


@pytest.mark.parametrize("at", [0, 4])
def test_a_killed_run_leaves_nothing_half_made(tmp_path: Path, at: int) -> None:
    call(tmp_path / "whole")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = processes.run(KILLED, tmp_path / "to", at, env={**os.environ, "TMPDIR": str(temporary)})
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert [*temporary.iterdir()] == []
    made = {f"shard-{k:05}.safetensors" for k in range(at + 1)}
    assert {*files(tmp_path / "to")} >= {"partial.json", *made}  # and maybe the one that was written beside it
    assert not (tmp_path / "to" / "manifest.json").exists()
    call(tmp_path / "to")
    assert files(tmp_path / "to") == files(tmp_path / "whole")
    assert {path.name for path in (tmp_path / "to").iterdir()} == {*files(tmp_path / "whole")}  # hidden ones too


def test_a_source_must_not_change_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(table(), tmp_path / "a.parquet")
    plain: Callable[..., Any] = SourceRows.by_shard

    def changing(*given: Any) -> Any:
        rows_of = plain(*given)
        pq.write_table(table(50), tmp_path / "a.parquet")
        return rows_of

    monkeypatch.setattr(SourceRows, "by_shard", changing)
    with pytest.raises(ts.errors.SourceError, match="A source must not change while it is loaded"):
        call(tmp_path / "to", source=tmp_path / "a.parquet")


def test_rows_are_named_as_in_the_source(tmp_path: Path) -> None:
    twice = pa.table({"e": ["a", "b", "a", "c", "a", "b"], "t": [0, 1, 2, 3, 4, 1], "y": [0.0] * 6})
    pq.write_table(twice, tmp_path / "x.parquet", row_group_size=3)
    message = r"entity 'b' has t 1 in source rows 1 \(.*x\.parquet, row group 0\) and 5 \(.*x\.parquet, row group 1\)"
    with pytest.raises(ts.errors.DataError, match=message):
        ts.cluster.shard(tmp_path / "x.parquet", ["y"], entity="e", time="t", shards=3, to=tmp_path / "to")


def test_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r'^engine must be None or "ray", got \'dask\'\.$'):
        call(tmp_path, engine="dask")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r'^engine="ray" needs Ray\. Install it: pip install "tensorstash\[ray\]"\.$'):
        call(tmp_path, engine="ray")


def test_helpful_errors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^shards must be at most 4,096, got 5,000\.$"):
        call(tmp_path, shards=5000)
    with pytest.raises(ValueError, match=r"^Rows go to shards by their entity; got no entity="):
        call(tmp_path, entity=None)
    (tmp_path / "file").write_text("x")
    with pytest.raises(ts.errors.SegmentError, match="file cannot be opened: Not a directory"):
        call(tmp_path / "file")
