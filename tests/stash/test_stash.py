"""The stash as its user sees it: a mapping of tensors, its entities and names, its look, its way to other processes."""

import copy
import gc
import multiprocessing
import os
import pickle
import re
import subprocess
import sys
import threading
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from polars.testing import assert_frame_equal

import tensorstash as ts
from tests.cases_load import cases
from tests.oracle_load import (
    KINDS,
    Case,
    Held,
    Kind,
    arranged,
    decoded,
    descriptors,
    exact,
    kind_of,
    like,
    run_python,
    value,
)

PRIVATE = (
    "A private stash lives in the memory of its process and cannot be pickled. Share it, stash.share(label), or save "
    "it, stash.save(path), and open it where it is needed: ts.open(path). (multiprocessing and DataLoader workers can "
    "take it as it is.)"
)


def loaded(case: Case) -> ts.Stash:
    return case.load(pa.concat_tables(case.pieces()))


def weather() -> ts.Stash:
    source = {
        "origin": ["JFK", "LGA", "JFK", "EWR", "LGA"],
        "hour": pa.array([3600, 3600, 0, 0, 0], pa.timestamp("s", "America/New_York")),
        "temp": np.array([1.5, np.nan, 2.5, 3.5, 4.5], np.float32),
        "wind": np.array([[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]], np.int16),
        "sky": ["clear", None, "rain", "clear", "rain"],
    }
    return ts.load(source, entity="origin", time="hour")


# A mapping


def test_a_stash_is_a_read_only_mapping() -> None:
    stash = weather()
    assert list(stash) == list(stash.keys()) == ["temp", "wind", "sky"]
    assert len(stash) == 3
    assert "temp" in stash
    assert "origin" not in stash
    assert stash.get("tmp") is None
    assert stash["temp"] is stash["temp"]
    assert dict(stash).keys() == dict(stash.items()).keys()
    for change in ("stash['temp'] = 1", "del stash['temp']"):
        with pytest.raises(TypeError, match="item"):
            exec(change, {"stash": stash})  # the type checker would refuse the plain statement


def test_an_unknown_column_comes_with_the_nearest_names() -> None:
    with pytest.raises(ts.errors.ColumnError, match=like("the stash has no column 'tmp'; did you mean 'temp'?")):
        weather()["tmp"]
    with pytest.raises(KeyError, match=like("the stash has no column 'xyz'; it has 'temp', 'wind', 'sky'.")):
        weather().about("xyz")
    with pytest.raises(KeyError, match=like("the stash has no column 'ski'; did you mean 'sky'?")):
        weather().vocabulary("ski")


def test_nbytes_are_those_of_the_columns() -> None:
    assert weather().nbytes == 5 * (4 + 4 + 4)


def test_a_stash_equals_itself_alone() -> None:
    """A comparison of tensors would have no truth value."""
    one, two = weather(), weather()
    assert one == one  # noqa: PLR0124
    assert one != two
    assert len({one, two}) == 2


# Entities, names, series


@settings(max_examples=60)
@given(case=cases("table"))
def test_a_series_is_the_rows_of_one_entity(case: Case) -> None:
    stash, expected = loaded(case), arranged(case)
    for k, (begin, end) in enumerate(pairwise(expected.offsets)):
        rows = expected.order[begin:end]
        series = stash.series(expected.entities[k])
        assert list(series) == [*(["time_"] if case.time else []), *case.columns]
        if case.time:
            assert series["time_"].tolist() == [case.time.source[row] for row in rows]
        for name, held in case.columns.items():
            assert exact(decoded(stash, name, series[name]), [held.stored[row] for row in rows])
            shared = series[name].untyped_storage().data_ptr() == stash[name].untyped_storage().data_ptr()
            assert shared or not stash[name].numel()  # views, no copies


def test_an_unknown_entity_comes_with_the_nearest_names() -> None:
    with pytest.raises(ts.errors.ColumnError, match=like("the stash has no entity 'JFX'; did you mean 'JFK'?")):
        weather().series("JFX")
    numbers = ts.load({"e": [7, 8], "y": [1, 2]}, ["y"], entity="e")
    assert numbers.series(np.int64(8))["y"].tolist() == [2]
    with pytest.raises(ts.errors.ColumnError, match=like("the stash has no entity 5; it has 7, 8.")):
        numbers.series(5)


def test_without_an_entity_there_is_one_series() -> None:
    stash = ts.load({"y": [1, 2]})
    assert (stash.entities, stash.offsets.tolist(), stash.entity_names, stash.time_name) == ([None], [0, 2], (), None)
    assert stash.series(None)["y"].tolist() == [1, 2]


def test_only_text_columns_have_a_vocabulary() -> None:
    stash = weather()
    assert stash.vocabulary("sky") == ["clear", "rain"]
    assert [-1 if code < 0 else stash.vocabulary("sky")[code] for code in stash["sky"]][:3] == [
        "clear",
        "rain",
        "clear",
    ]
    with pytest.raises(
        ts.errors.ColumnError,
        match=like("'temp' holds torch.float32"),
    ):
        stash.vocabulary("temp")


# Other libraries


@settings(max_examples=100)
@given(case=cases("table"))
def test_a_polars_frame_has_what_the_rows_say(case: Case) -> None:
    """Values and types; compared with the frame that polars itself makes of the rows."""
    order = arranged(case).order
    expected = [_series(name, held, [held.stored[row] for row in order]) for name, held in case.all.items()]
    names = [*(["entity_"] if case.entity else []), *(["time_"] if case.time else []), *case.columns]
    assert_frame_equal(loaded(case).to_polars(), pl.DataFrame(expected).select(names), check_exact=True)


def _series(name: str, held: Held, cells: list[Any]) -> pl.Series:
    kind = held.kind
    if name == "time_" and kind.kind == "number":
        return pl.Series(name, cells, pl.Int64)
    if kind.kind == "category":
        return pl.Series(name, cells, pl.String)
    if kind.dtype == torch.bfloat16:
        return pl.Series(name, cells, pl.Float32)
    plain = {"date64": pa.date32(), "dictionary_of_int64": pa.int64()}.get(kind.name, kind.arrow)
    return pl.from_arrow(pa.table({name: pa.array(cells, plain)}))[name]  # type: ignore[index]


def test_an_arrow_table_has_the_static_columns_too() -> None:
    """One of each type, repeated in every row of its entity, as in the polars frame."""
    static = {
        "name": ["north", None, "north"],
        "count": [7, 8, 9],
        "half": np.array([0.5, 1.5, np.nan], np.float16),
        "open": [True, False, True],
        "since": np.array(["2020-01-02", "1999-12-31", "1970-01-01"], "datetime64[D]"),
        "at": pa.array([1, 2, 3], pa.time32("s")),
    }
    e = [2, 0, 2, 1, 0, 2]
    source = {"e": [f"e{k}" for k in e], "y": np.arange(6)}
    source |= {name: pa.array(values).take(pa.array(e)) for name, values in static.items()}
    pack = {"pack": ["count", "half"]}
    own: dict[str, Any] = {name: name for name in static}
    stash = ts.load(pa.table(source), ["y"], entity="e", static=own | pack)
    table, frame = stash.to_arrow(), stash.to_polars()
    assert table.column_names == ["e", "y", *static, "pack"] == frame.columns
    for name, values in static.items():
        expected = pa.array(values).take(pa.array([0, 0, 1, 2, 2, 2])).to_pylist()
        assert exact(table[name].to_pylist(), expected), name
    assert exact(table["pack"].to_pylist(), frame["pack"].to_list())


def test_a_zone_without_a_name_goes_to_polars_and_into_the_repr() -> None:
    stash = ts.load({"t": pa.array([0, 60], pa.timestamp("s", "+05:30")), "y": [1, 2]}, ["y"], time="t")
    assert stash.clock.zone == "+05:30"
    assert repr(stash).splitlines()[0] == (
        "Stash: 2 rows, 0.0 MB, t 1970-01-01 05:30:00+05:30 to 1970-01-01 05:31:00+05:30"
    )
    assert stash.to_polars()["t"].dt.epoch("s").to_list() == [0, 60]


# Looks


def test_a_repr_says_what_there_is() -> None:
    assert (
        repr(weather())
        == """\
Stash: 5 rows, 3 entities (origin), 0.0 MB, hour 1969-12-31 19:00:00-05:00 to 1969-12-31 20:00:00-05:00
  column  dtype                          shape   MB   missing
  temp    float32                        (5,)    0.0  1
  wind    int16                          (5, 2)  0.0  0
  sky     int32 category                 (5,)    0.0  1
  hour    int64 time s America/New_York  (5,)    0.0  0"""
    )
    assert (
        repr(ts.load({"y": pa.array([], pa.float32())}))
        == """\
Stash: 0 rows, 0.0 MB
  column  dtype    shape  MB   missing
  y       float32  (0,)   0.0  0"""
    )
    empty = {"e": pa.array([], pa.string()), "t": pa.array([], pa.date32()), "y": pa.array([], pa.float32())}
    assert repr(ts.load(empty, ["y"], entity="e", time="t")).startswith("Stash: 0 rows, 0 entities (e), 0.0 MB\n")


def test_an_html_repr_says_the_same_and_escapes_names() -> None:
    stash = ts.load({"<b>": [1.0, None], "e": ["x", "y"]}, ["<b>"], entity="e")
    assert stash._repr_html_() == (
        "<p><b>Stash</b>: 2 rows, 2 entities (e), 0.0 MB</p><table>"
        "<tr><th>column</th><th>dtype</th><th>shape</th><th>MB</th><th>missing</th></tr>"
        "<tr><td>&lt;b&gt;</td><td>float64</td><td>(2,)</td><td>0.0</td><td>1</td></tr></table>"
    )


@pytest.mark.parametrize(
    ("ticks", "unit", "shown"),
    [
        ([1, 2], "ns", "1970-01-01 00:00:00.000000001 to 1970-01-01 00:00:00.000000002"),
        ([-1, 1500], "ms", "1969-12-31 23:59:59.999 to 1970-01-01 00:00:01.5"),
        ([-(2**62), 2**62], "s", None),
        ([-(2**63), 2**63 - 1], "us", None),
    ],
    ids=["ns", "ms", "far_s", "far_us"],
)
def test_a_time_of_any_size_can_be_printed(ticks: list[int], unit: str, shown: str | None) -> None:
    """Also those beyond the years that a datetime can hold."""
    stash = ts.load({"t": pa.array(ticks, pa.timestamp(unit)), "y": [1, 2]}, ["y"], time="t")
    caption = repr(stash).splitlines()[0]
    assert re.fullmatch(r"Stash: 2 rows, 0\.0 MB, t (.+ to .+)", caption)
    if shown is not None:
        assert caption.endswith(f"t {shown}")
    assert caption.removeprefix("Stash: ") in stash._repr_html_()


def test_printing_reads_no_data(tmp_path: Path) -> None:
    """No page of the mapped file comes into memory."""
    path = tmp_path / "stash.safetensors"
    rows = 1 << 20
    source = {"e": np.arange(rows) // 1000, "t": np.arange(rows), "y": np.zeros(rows), "s": ["a", "b"] * (rows // 2)}
    ts.load(source, ["y", "s"], entity="e", time="t").save(path)
    program = """
import sys
import tensorstash as ts

def resident(path):
    with open("/proc/self/smaps") as file:
        lines = file.read().splitlines()
    at = next(k for k, line in enumerate(lines) if line.endswith(path))
    return next(int(line.split()[1]) for line in lines[at:] if line.startswith("Rss:"))

stash = ts.open(sys.argv[1])
shown = repr(stash) + stash._repr_html_()
print(resident(sys.argv[1]), "1,048,576 rows, 1,049 entities (e)" in shown, stash.rows, stash.nbytes)
stash["y"].sum()
print(resident(sys.argv[1]) >= 8 * 1024)
"""
    assert run_python(program, path).splitlines() == [f"0 True {rows} {rows * 12}", "True"]


# Memory and processes


def test_tensors_outlive_their_stash(tmp_path: Path) -> None:
    stash = weather()
    stash.save(tmp_path / "saved")
    opened = ts.open(tmp_path / "saved")
    (tmp_path / "saved").unlink()
    kept = [stash["temp"], opened["temp"], stash.series("LGA")["temp"], opened.offsets]
    del stash, opened
    gc.collect()
    assert exact(kept[0].tolist(), [3.5, 2.5, 1.5, 4.5, float("nan")])
    assert exact(kept[1].tolist(), [3.5, 2.5, 1.5, 4.5, float("nan")])
    assert exact(kept[2].tolist(), [4.5, float("nan")])
    assert kept[3].tolist() == [0, 1, 3, 5]


def test_each_column_has_a_storage_of_its_own() -> None:
    """Or saving or sending one column would take all of them along."""
    stash = weather()
    for tensor in stash.values():
        assert tensor.untyped_storage().nbytes() == tensor.nbytes


def test_a_private_stash_is_not_pickled() -> None:
    stash = weather()
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match=like(PRIVATE)):
            pickle.dumps({"stash": stash}, protocol)


def test_a_deep_copy_of_a_model_or_a_data_set_takes_no_second_copy_of_the_stash() -> None:
    stash = weather()
    assert copy.deepcopy({"stash": stash})["stash"] is stash
    assert copy.copy(stash) is stash


def test_an_opened_stash_is_pickled_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ts.load({"y": np.zeros(100_000)}).save(tmp_path / "saved")
    monkeypatch.chdir(tmp_path)
    stash = ts.open("saved")
    pickled = pickle.dumps(stash)
    assert len(pickled) < 1000
    monkeypatch.chdir("/")
    assert torch.equal(pickle.loads(pickled)["y"], stash["y"])


def inode(stash: ts.Stash) -> tuple[int, int]:
    about = os.fstat(stash.segment.fd)
    return about.st_dev, about.st_ino


def child(stash: ts.Stash, channel: Connection) -> None:
    """Send back what is seen, write into everything, send back what is seen then; twice, the second by message."""
    for _ in range(2):
        first = {name: tensor.tolist() for name, tensor in stash.items()}
        for tensor in stash.values():
            tensor.zero_()
        zero = all(not bool(tensor.any()) for tensor in stash.values())
        channel.send((first, zero, inode(stash), list(stash.offsets.tolist()), stash.entities))
        stash = channel.recv()


@pytest.mark.usefixtures("processes_from_the_template")
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("saved", [False, True], ids=["private", "opened"])
# Python 3.12 warns of forks in a process with threads, which is what torch and this test are
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_stash_goes_to_other_processes_without_a_copy(method: str, saved: bool, tmp_path: Path) -> None:
    """As an argument and through a pipe: the same file, the same values, and no write of theirs comes back."""
    stash = ts.load({"e": ["a", "b", "a"], "y": [1, 2, 3], "x": [0.5, 1.5, 2.5]}, ["y", "x"], entity="e")
    if saved:
        stash.save(tmp_path / "saved")
        stash = ts.open(tmp_path / "saved")
    before = {"y": [1, 3, 2], "x": [0.5, 2.5, 1.5]}
    context = multiprocessing.get_context(method)
    here, there = context.Pipe()
    process = context.Process(target=child, args=(stash, there))  # type: ignore[attr-defined]
    process.start()
    try:
        for _ in range(2):
            assert here.poll(600)
            assert here.recv() == (before, True, inode(stash), [0, 2, 3], ["a", "b"])
            assert {name: tensor.tolist() for name, tensor in stash.items()} == before
            here.send(stash)
        process.join(600)
        assert process.exitcode == 0
    finally:
        process.kill()
        process.join()
        here.close()
        there.close()


def test_data_loader_workers_take_a_private_stash() -> None:
    program = """
import torch, tensorstash as ts

class Rows(torch.utils.data.Dataset):
    def __init__(self, stash):
        self.stash = stash
    def __len__(self):
        return self.stash.rows
    def __getitem__(self, row):
        return self.stash["y"][row]

if __name__ == "__main__":
    rows = Rows(ts.load({"y": list(range(10))}))
    print(torch.cat(list(torch.utils.data.DataLoader(rows, 5, num_workers=1))).tolist())
"""
    assert run_python(program) == str(list(range(10)))


def test_threads_may_use_a_stash_for_the_first_time_together() -> None:
    """What is decoded on first use is the same for all of them."""
    stash = weather()
    found: list[Any] = []
    barrier = threading.Barrier(4)

    def use() -> None:
        barrier.wait()
        found.append(
            (stash.entities, stash.offsets.tolist(), stash.series("LGA")["temp"][0].item(), stash.vocabulary("sky"))
        )

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [(["EWR", "JFK", "LGA"], [0, 1, 3, 5], 4.5, ["clear", "rain"])] * 4


def test_opening_keeps_two_descriptors_and_closes_them(tmp_path: Path) -> None:
    weather().save(tmp_path / "saved")
    gc.collect()
    before = descriptors()
    stash = ts.open(tmp_path / "saved")
    assert descriptors() - before == {str(tmp_path / "saved"): 2}
    del stash
    assert descriptors() == before


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.name))
def test_the_header_counts_what_is_missing(kind: Kind) -> None:
    """Nulls of the source, missing values and extremes of what is stored; NaN is neither low nor high."""
    cells = [value(kind, 3, row) for row in range(5)]
    stash = ts.load(Case({"x": Held(kind, cells)}, None, None, [0, 2, 5]).pieces()[0], ["x"])
    about, numbers = stash.about("x"), stash["x"].flatten().tolist()
    assert (about.nulls, about.missing, about.low, about.high) == (0, 0, min(numbers), max(numbers))
    if kind.floating and not kind.shape:
        only = Held(kind, [float("nan"), None])
        about = loaded(Case({"x": only}, None, None, [0, 2])).about("x")
        assert (about.nulls, about.missing, about.low, about.high) == (1, 2, None, None)
    assert kind_of(kind.name) is kind


@pytest.mark.parametrize("saved", [False, True])
def test_no_line_of_python_runs_when_a_stash_goes(saved: bool, tmp_path: Path) -> None:
    """A Ctrl-C that arrives in one is printed and lost; the loop that it was meant for goes on."""
    stash = weather()
    if saved:
        stash.save(tmp_path / "stash")
        stash = ts.open(tmp_path / "stash")
    gc.collect()
    files, lines = len(os.listdir("/proc/self/fd")), []

    def tell(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            lines.append(frame.f_code.co_qualname if hasattr(frame.f_code, "co_qualname") else frame.f_code.co_name)

    sys.setprofile(tell)
    del stash
    sys.setprofile(None)
    assert lines == []
    assert len(os.listdir("/proc/self/fd")) == files - 2  # its own and that of the mapping


def test_what_is_open_at_the_end_of_the_process_is_closed_without_a_warning() -> None:
    program = """
import tensorstash as ts, sys
stash = ts.load({"y": [1.0]})
cycle = [ts.load({"y": [2.0]})]
cycle.append(cycle)
print(stash["y"].item())
"""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    assert (done.stdout, done.stderr) == ("1.0\n", "")


def test_wrong_names_are_named() -> None:
    stash = ts.load({"e": ["a", "b"], "y": [1.0, 2.0]}, ["y"], entity="e")
    message = "stash[name] is one column, got ['y']. ... use together as one: columns={'name': [...]}."
    with pytest.raises(TypeError, match=like(message)):
        stash[["y"]]  # type: ignore[index]
    with pytest.raises(ts.errors.ColumnError, match=like("the stash has no column ['y']; it has 'y'.")):
        stash.about(["y"])  # type: ignore[arg-type]
    with pytest.raises(ts.errors.ColumnError, match=like("the stash has no entity {'a'}; it has 'a', 'b'.")):
        stash.series({"a"})
    assert 0 not in stash  # type: ignore[comparison-overlap]


def test_one_column_may_be_entity_and_time() -> None:
    stash = ts.load({"t": [1, 2], "y": [1.0, 2.0]}, ["y"], entity="t", time="t")
    assert stash.to_polars().to_dict(as_series=False) == {"t": [1, 2], "y": [1.0, 2.0]}


def test_counts_are_those_of_the_tensors_on_every_way_to_a_stash(tmp_path: Path) -> None:
    """Whoever writes a column counts it: a load, a file, a load that takes over entities, a scaled copy."""
    data = {
        "e": ["a", "a", "b"],
        "t": [1, 2, 1],
        "y": [0.5, None, -2.5],
        "word": ["x", None, "y"],
        "level": [2.0, 2.0, 3.0],
    }
    stash = ts.load(data, ["y", "word"], entity="e", time="t", static=["level"])
    stash.save(tmp_path / "saved")
    more = {"e": ["c", "b"], "t": [5, 6], "y": [7.0, None], "word": ["y", "y"]}
    ways = {
        "loaded": stash,
        "opened": ts.open(tmp_path / "saved"),
        "of others": ts.load(more, like=stash),
        "scaled": ts.Scaler.fit(ts.Windows(stash, 1, columns=["y"]), ["y"], kind="maxabs").transform(stash),
    }
    for way, one in ways.items():
        for name, tensor in {**one, **one.static}.items():
            about, values = one.about(name), [value for value in tensor.tolist() if value == value]  # noqa: PLR0124
            known = [value for value in values if not about.is_coded or value >= 0]
            missing = len(tensor) - len(known)
            assert (about.missing, about.low, about.high) == (missing, min(known), max(known)), (way, name)
