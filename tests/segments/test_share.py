"""Shared stashes as their user sees them: load, attach, list, remove, collect; keys, references, stray writes.

It reaches inside `errors.py` for what a reader reports of an error of a loader.
"""

import gc
import os
import pickle
import re
import threading
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings

import tensorstash as ts
from tensorstash.errors import named_error
from tests.cases_load import cases
from tests.oracle_load import Case, check, like, run_python, write_parquet

pytestmark = pytest.mark.usefixtures("shm")


def small(label: str = "small", value: float = 1.0) -> ts.Stash:
    return ts.load({"y": [value, 2.0, 3.0], "s": ["a", None, "b"]}, share=label)


def inode(stash: ts.Stash) -> int:
    return os.fstat(stash.segment.fd).st_ino


@settings(max_examples=40)
@given(case=cases("table"))
def test_a_shared_stash_holds_what_the_rows_say(case: Case) -> None:
    """The one that was loaded, the one that was attached, and the shared copy of a private one."""
    table = pa.concat_tables(case.pieces())
    keys: dict[str, Any] = {"entity": "entity_" if case.entity else None, "time": "time_" if case.time else None}
    columns = {name: ts.column(name, fill=held.fill) for name, held in case.columns.items()}
    loaded = ts.load(table, columns, **keys, share="case")
    again = ts.load(table, columns, **keys, share="case")
    copied = case.load(table).share("copy")
    for stash in (loaded, again, ts.attach("case"), ts.attach("case", strict=True), copied, ts.attach("copy")):
        check(stash, case)
        assert repr(stash) == repr(loaded)
    assert inode(again) == inode(loaded) == inode(ts.attach("case")) != inode(copied)
    assert len(ts.shared.remove("case")) == len(ts.shared.remove("copy")) == 1


def test_the_same_call_attaches_and_another_does_not(tmp_path: Path) -> None:
    """Whatever changes a byte is another segment; the label and the names of things are not enough."""
    path = write_parquet(tmp_path / "one.parquet", [pa.table({"a": [1.0, 2.0], "b": [3.0, None], "t": [1, 2]})])
    calls: list[tuple[Any, dict[str, Any]]] = [
        (path, {}),
        (path, {"columns": ["a", "b"]}),
        (path, {"columns": ["b", "a"]}),
        (path, {"columns": {"a": "a", "b": "b", "c": "b"}}),
        (path, {"columns": {"x": ["a", "b"]}}),
        (path, {"columns": ["a", ts.column("b", fill=0)]}),
        (path, {"columns": ["a", ts.column("b", fill=1)]}),
        (path, {"columns": ["a", ts.column("b", dtype=torch.float16)]}),
        (path, {"columns": ["a", "b"], "dtype": torch.float32}),
        (path, {"columns": ["a", "b"], "time": "t"}),
        (path, {"columns": ["a", "b"], "entity": "t"}),
        ({"a": [1.0, 2.0]}, {}),
        ({"a": [1.0, 2.5]}, {}),
        ({"a": np.array([1.0, 2.0], np.float32)}, {}),
        ({"b": [1.0, 2.0]}, {}),
    ]
    first = [ts.load(source, **options, share="x") for source, options in calls]
    second = [ts.load(source, **options, share="x") for source, options in calls]
    assert [inode(stash) for stash in first] == [inode(stash) for stash in second]
    assert len({inode(stash) for stash in first}) == len(calls) == len(ts.shared.list())
    # the same in other words
    same: list[dict[str, Any]] = [
        {"columns": ("a", "b")},
        {"columns": {"a": "a", "b": "b"}},
        {"columns": [ts.column("a"), "b"]},
    ]
    assert {inode(ts.load(str(path), **options, share="x")) for options in same} == {inode(first[1])}
    assert len(ts.shared.remove("x")) == len(calls)


@pytest.mark.parametrize("form", ["polars", "pandas", "table", "dict"])
def test_only_the_used_columns_of_a_frame_count(form: str) -> None:
    def source(values: list[float], unused: list[float]) -> Any:
        arrays = {"y": values, "z": unused}
        return {"polars": pl.DataFrame, "pandas": pd.DataFrame, "table": pa.table, "dict": dict}[form](arrays)

    one = ts.load(source([1.0, 2.0], [3.0, 4.0]), ["y"], share="frame")
    assert inode(ts.load(source([1.0, 2.0], [5.0, 6.0]), ["y"], share="frame")) == inode(one)
    assert inode(ts.load(source([1.0, 7.0], [3.0, 4.0]), ["y"], share="frame")) != inode(one)


def test_a_changed_file_is_another_segment_and_the_old_one_keeps_working(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "one.parquet", [pa.table({"y": [1, 2]})])
    old = ts.load(path, share="changing")
    time.sleep(0.01)
    write_parquet(path, [pa.table({"y": [3, 4]})])
    new = ts.load(path, share="changing")
    assert (old["y"].tolist(), new["y"].tolist()) == ([1, 2], [3, 4])
    assert ts.attach("changing")["y"].tolist() == [3, 4]
    assert len(ts.shared.list()) == 2


@pytest.mark.parametrize("share", [None, "changing"], ids=["private", "shared"])
def test_a_file_that_changes_while_it_is_loaded_is_refused(share: str | None, tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "one.parquet", [pa.table({"y": [k]}) for k in range(300)])
    over = threading.Event()

    def touch() -> None:
        moment = 0
        while not over.wait(0.001):
            moment += 1
            os.utime(path, ns=(moment, moment))

    thread = threading.Thread(target=touch)
    thread.start()
    message = f"A source must not change while it is loaded; {path} did. Load it again."
    try:
        with pytest.raises(ts.errors.SourceError, match=like(message)):
            ts.load(path, share=share)
    finally:
        over.set()
        thread.join()
    assert ts.shared.list()["label"].to_list() == []
    assert ts.load(path, share=share)["y"].tolist() == list(range(300))


def test_files_that_come_and_go_between_a_plan_of_a_directory_and_its_load(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_parquet(tmp_path / f"{name}.parquet", [pa.table({"y": [1]})])
    plan = ts.plan(tmp_path)
    assert plan.rows == plan.load().rows == 2
    write_parquet(tmp_path / "c.parquet", [pa.table({"y": [1]})])
    message = "A source must not change between a plan and its load; {} did. Make the plan again."
    with pytest.raises(ts.errors.SourceError, match=like(message.format(tmp_path / "c.parquet"))):
        plan.load()
    os.remove(tmp_path / "c.parquet")
    os.remove(tmp_path / "a.parquet")
    with pytest.raises(ts.errors.SourceError, match=like(message.format(tmp_path / "a.parquet"))):
        plan.load()


def test_a_label_of_the_sources_name(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "-a b (1).v2.parquet", [pa.table({"y": [1, 2]})])
    for source in (path, str(path), [path], [str(path)], {"y": [1]}, pl.DataFrame({"y": [2]}), tmp_path / "-*.parquet"):
        ts.load(source, share=True)
    assert sorted(ts.shared.list()["label"]) == ["a-b-1-.v2", "dataframe", "dict", as_label(tmp_path.name)]


def as_label(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.+@=-]+", "-", name)


@pytest.mark.parametrize("label", ["", ".x", "a/b", "a b", "é", "x" * 101, "../x", "-x", "a\n", 3])
def test_a_label_that_is_no_name_is_refused(label: Any) -> None:
    with pytest.raises(ValueError, match=like(f"A label is ... got share={repr(label)[:50]}")):
        ts.load({"y": [1]}, share=label)
    for refuse in (ts.load({"y": [1]}).share, ts.attach, ts.shared.remove):
        with pytest.raises(ValueError, match=like(f"A label is ... got label={repr(label)[:50]}")):
            refuse(label)


@pytest.mark.parametrize("label", [["a"], 3, None, "a/b", ""])
def test_what_is_no_label_is_neither_attached_nor_removed(label: Any) -> None:
    rule = f"label ... up to 100 ... _.+@=- ... {label!r}"
    listing = "ts.shared.list()"
    with pytest.raises(ValueError, match=like(f"{rule} ... {listing}")):
        ts.attach(label)
    with pytest.raises(ValueError, match=like(f"{rule} ... Remove one label at a time ... {listing}")):
        ts.shared.remove(label)


def test_attach_takes_the_newest_of_a_label() -> None:
    for k in range(3):
        ts.load({"y": [k]}, share="a")
        ts.load({"y": [-k]}, share="a-b")
        time.sleep(0.01)  # the clock of a file system has steps
    assert (ts.attach("a")["y"].item(), ts.attach("a-b")["y"].item()) == (2, -2)


def test_an_unknown_label_is_refused_with_those_there_are(shm: Path) -> None:
    message = f"No segment in {shm} has the label 'smal'; "
    remedy = "Share one: ts.load(..., share='smal')."
    with pytest.raises(ts.errors.SegmentError, match=like(f"{message}there are no shared segments. {remedy}")):
        ts.attach("smal")
    _ = small("one"), small("two")
    with pytest.raises(ts.errors.SegmentError, match=like(f"{message}there are 'one', 'two'. {remedy}")):
        ts.attach("smal")


def test_segments_are_listed_with_their_users() -> None:
    begin = datetime.now(timezone.utc) - timedelta(seconds=1)
    one = small("one")
    time.sleep(0.01)
    two = [small("two") for _ in range(3)]
    frame = ts.shared.list()
    assert frame.schema == {
        "label": pl.String,
        "key": pl.String,
        "bytes": pl.Int64,
        "rows": pl.Int64,
        "columns": pl.Int64,
        "created": pl.Datetime("us", "UTC"),
        "users": pl.Int64,
    }
    assert frame["label"].to_list() == ["one", "two"]
    assert frame["users"].to_list() == [1, 3]
    assert frame["rows"].to_list() == [3, 3]
    assert frame["columns"].to_list() == [2, 2]
    assert one.path is not None
    assert one.path.endswith(f"/one-{frame['key'][0]}")
    assert frame["bytes"][0] == os.path.getsize(one.path)
    assert begin <= frame["created"].min() <= frame["created"].max() <= datetime.now(timezone.utc)  # type: ignore[operator]
    tensor = two[0]["y"]
    del two
    gc.collect()
    assert ts.shared.list()["users"].to_list() == [1, 1]  # a tensor is a user too
    assert tensor.tolist() == [1.0, 2.0, 3.0]


def test_a_damaged_segment_is_listed_and_refused_with_the_remedy(shm: Path) -> None:
    path = Path(str(small("bad").path))
    gc.collect()
    os.chmod(path, 0o600)
    path.write_bytes(path.read_bytes()[:-1])
    assert ts.shared.list().select("label", "rows", "columns", "users").rows() == [("bad", None, None, 0)]
    message = (
        rf"\A{path} is not a whole stash: its header cannot be read .*\. Remove it: ts\.shared\.remove\('bad'\)\.\Z"
    )
    with pytest.raises(ts.errors.SegmentError, match=message):
        ts.attach("bad")
    with pytest.raises(ts.errors.SegmentError, match=message):
        small("bad")
    assert ts.shared.remove("bad") == [path.name]
    assert small("bad")["y"].tolist() == [1.0, 2.0, 3.0]


def test_remove_takes_all_of_a_label_and_leaves_holders_their_data(shm: Path) -> None:
    held = [small("a", 1.0), small("a", 5.0)]
    other = small("a-b")
    names = sorted(os.path.basename(str(stash.path)) for stash in held)
    assert sorted(ts.shared.remove("a")) == names
    assert ts.shared.remove("a") == []
    assert [stash["y"][0].item() for stash in held] == [1.0, 5.0]
    assert os.listdir(shm) == [os.path.basename(str(other.path))]
    assert small("a")["y"].tolist() == [1.0, 2.0, 3.0]


def test_collect_goes_by_age_and_size_and_leaves_what_is_used() -> None:
    stashes = {}
    for k in range(4):
        stashes[k] = ts.load({"y": np.full(100_000, float(k))}, share=f"s{k}")
        time.sleep(0.01)
    size = os.path.getsize(str(stashes[0].path))
    names = {k: os.path.basename(str(stash.path)) for k, stash in stashes.items()}
    assert ts.shared.prune(older_than=timedelta(0), max_bytes=0) == []
    del stashes[0], stashes[1], stashes[3]
    gc.collect()
    assert ts.shared.prune() == []
    assert ts.shared.prune(older_than="1h", max_bytes=4 * size) == []
    assert ts.shared.prune(max_bytes=4 * size - 1) == [names[0]]
    assert ts.shared.prune(max_bytes=2 * size) == [names[1]]
    assert ts.shared.prune(older_than="0s") == [names[3]]
    assert ts.shared.list()["label"].to_list() == ["s2"]
    assert stashes[2]["y"][0] == 2.0
    with pytest.raises(ValueError, match=r"older_than.*got 'soon'"):
        ts.shared.prune(older_than="soon")


def test_limits_that_are_none_are_refused_also_where_nothing_is_shared() -> None:
    for age in (5, 1.5, np.timedelta64(1, "h")):
        message = like(f"older_than ... got {age!r}")
        with pytest.raises(ValueError, match=message):
            ts.shared.prune(older_than=age)  # type: ignore[arg-type]
    for most in ("1GB", True, [1]):
        with pytest.raises(ValueError, match=like(f"max_bytes ... number of bytes >= 0 ... {most!r}")):
            ts.shared.prune(max_bytes=most)  # type: ignore[arg-type]
    for less in (-1, float("nan")):
        with pytest.raises(ValueError, match=like(f"max_bytes ... 0 ... {less!r}")):
            ts.shared.prune(max_bytes=less)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=like("older_than ... got '-1d'")):
        ts.shared.prune(older_than=timedelta(-1))
    with pytest.raises(ValueError, match=like("older_than ... got '99999999999w'")):
        ts.shared.prune(older_than="99999999999w")
    assert ts.shared.prune(max_bytes=np.int64(0)) == []  # type: ignore[arg-type]


def test_what_killed_processes_left_is_collected(shm: Path) -> None:
    _ = small()
    left = [f"x-{'0' * 16}.tmp.{'1' * 16}", f"x-{'2' * 16}.lock"]
    for name in left:
        (shm / name).write_text("half")
    (shm / "of somebody else").write_text("stays")
    assert ts.shared.remove("y") == ts.shared.prune() == []
    assert sorted(os.listdir(shm))[:1] == ["of somebody else"]
    assert not set(left) & set(os.listdir(shm))
    (shm / "of somebody else").unlink()


def test_a_second_name_of_a_segment_in_use_is_collected_and_the_first_stays(shm: Path) -> None:
    """Without unnamed files a loader may be killed after it has given its file a name and before it takes the other."""
    stash = small()
    name = os.path.basename(str(stash.path))
    os.link(shm / name, shm / f"small-{'0' * 16}.tmp.{'1' * 16}")
    assert ts.shared.prune(max_bytes=0) == []
    assert os.listdir(shm) == [name]
    os.link(shm / name, shm / f"small-{'0' * 16}.tmp.{'1' * 16}")
    assert ts.shared.remove("small") == [name]
    assert os.listdir(shm) == []
    assert stash["y"].tolist() == [1.0, 2.0, 3.0]


def test_what_a_killed_loader_noted_stops_nobody(shm: Path) -> None:
    """Neither who it was, nor that it was about to report a failure, nor half of that."""
    name = os.path.basename(str(small().path))
    for note in (b"", b'{"pid": 1}\n', b'{"error": "SourceError", "message": "old"}\n', b'{"err', b"[]\n"):
        ts.shared.remove("small")
        (shm / f"{name}.lock").write_bytes(note)
        assert small()["y"].tolist() == [1.0, 2.0, 3.0]
        assert os.listdir(shm) == [name]


def test_the_error_of_another_process_keeps_its_type_where_it_can() -> None:
    for kind in (ts.errors.SourceError, ts.errors.ColumnError, ts.errors.NoMemoryError, ValueError, MemoryError):
        error = named_error(kind.__name__, "why")
        assert type(error) is kind
        assert str(error) == "why"
    for name in ("PanicException", "UnicodeDecodeError", "SystemExit", "print", "Iterable"):
        assert repr(named_error(name, "why")) == repr(RuntimeError(f"{name}: why"))


# References


def test_a_shared_stash_is_pickled_as_a_reference(shm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stash = ts.load({"y": np.zeros(1_000_000)}, share="big")
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        pickled = pickle.dumps(stash, protocol)
        assert len(pickled) < 200
        assert inode(pickle.loads(pickled)) == inode(stash)
    monkeypatch.setenv("TENSORSTASH_DIR", str(shm / "another"))
    assert inode(pickle.loads(pickled)) == inode(stash)
    assert not (shm / "another").exists()
    monkeypatch.setenv("TENSORSTASH_DIR", str(shm))
    strict = pickle.loads(pickle.dumps(ts.attach("big", strict=True)))
    assert strict.segment.strict
    ts.shared.remove("big")
    message = f"A shared stash is pickled by its name; {stash.path} has been removed since. Share it again, and pickle "
    with pytest.raises(ts.errors.SegmentError, match=like(message + "that.")):
        pickle.loads(pickled)


def test_a_segment_that_was_made_anew_is_not_taken_for_the_old_one(shm: Path) -> None:
    stash = small()
    pickled = pickle.dumps(stash)
    other = ts.load({"y": [0.5]}, share="small")
    os.replace(str(other.path), str(stash.path))
    with pytest.raises(ts.errors.SegmentError, match="has been removed since"):
        pickle.loads(pickled)


# Stray writes


def test_a_stray_write_stays_in_its_process_and_shows() -> None:
    stash = ts.load({"y": np.zeros(1 << 16), "z": np.zeros(1 << 16)}, share="written")
    other = ts.attach("written")
    assert (stash.private_bytes(), other.private_bytes()) == (0, 0)
    assert stash["y"].sum() == other["y"].sum() == 0
    assert (stash.private_bytes(), other.private_bytes()) == (0, 0)
    stash["y"][:512] = 1.0  # a page
    stash["z"][1024] = 1.0
    assert (stash.private_bytes(), other.private_bytes()) == (8192, 0)
    assert other["y"].sum() == other["z"].sum() == ts.attach("written")["y"].sum() == 0
    stash.share("copy")
    assert ts.attach("copy")["y"].sum() == 0  # what was loaded


def test_a_strict_stash_ends_whoever_writes() -> None:
    """Reading it is as always."""
    stash = ts.load({"y": [1.0, 2.0]}, share="strict")
    program = """
import faulthandler, os, signal, tensorstash as ts
stash = ts.attach("strict", strict=True)
print(stash["y"].tolist(), stash.private_bytes(), len(ts.Windows(stash, 1, 1)), flush=True)
pid = os.fork()
if not pid:
    stash["y"][0] = 5.0
    os._exit(0)
print(os.waitpid(pid, 0)[1] == signal.SIGSEGV)
"""
    assert run_python(program).splitlines() == ["[1.0, 2.0] 0 1", "True"]
    assert stash["y"].tolist() == [1.0, 2.0]
