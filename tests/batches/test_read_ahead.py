"""The inside of `batches/read_ahead.py`: which pages are asked for, when, and that no batch changes."""

import itertools
import mmap
import os
import resource
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tensorstash.batches import host, read_ahead
from tensorstash.batches.read_ahead import ranges
from tensorstash.segments.segment import Segment
from tests import kernel
from tests.batches.test_loader import run
from tests.epochs import ordered
from tests.words import Gaps

Asked = list[tuple[str | None, list[int], list[int]]]  # the path, and where ranges begin and end

pytestmark = [
    pytest.mark.host("it asks for pages before a batch takes any way"),
    pytest.mark.filterwarnings("ignore:Gaps cost"),
    pytest.mark.skipif(not hasattr(resource, "RUSAGE_THREAD"), reason="pages are asked for on Linux only"),
]


def saved(path: Path, rows: int = 8_000, first: int = 0) -> ts.Stash:
    """Columns of several sizes, whose values are their rows."""
    row = np.arange(first, first + rows)
    data = {"y": row.astype(np.float32), "z": row.astype(np.float64), "a": row, "b": row}
    return ts.load(data, {"y": "y", "z": "z", "pack": ["a", "b"]}, dtype=None, file=path)


def pages(begins: Any, ends: Any) -> set[int]:
    """The numbers of the pages in ranges."""
    return {
        page for begin, end in zip(begins, ends) for page in range(begin // mmap.PAGESIZE, -(-end // mmap.PAGESIZE))
    }


def pages_of_rows(stash: ts.Stash, column: str, rows: list[int]) -> set[int]:
    """The pages that hold some rows of a column, row by row."""
    entry = stash.segment.tensors[column]
    size = entry.nbytes // stash.rows
    ends = [(entry.start + row * size, entry.start + (row + 1) * size) for row in rows]
    return pages(*zip(*ends)) if ends else set()


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a pass have many portions."""
    monkeypatch.setattr(host, "together", lambda nbytes: max(1, min(16, (1 << 19) // nbytes)))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What was asked of the system."""
    found: Asked = []
    whole = Segment.will_need

    def will_need(segment: Segment, begins: Any, ends: Any) -> None:
        found.append((segment.path, begins.tolist(), ends.tolist()))
        whole(segment, begins, ends)

    monkeypatch.setattr(Segment, "will_need", will_need)
    return found


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every portion have read many pages."""
    monkeypatch.setattr(read_ahead, "pages_read", lambda *_: 1_000_000)


@settings(max_examples=30)
@given(data=st.data())
def test_the_ranges_are_the_pages_of_the_rows_of_windows(data: st.DataObject) -> None:
    """Windows show which rows they hold, because values are rows; NaN stands for an empty slot."""
    rows = data.draw(st.integers(200, 2500))
    gaps: Gaps = data.draw(st.sampled_from(["ignore", "mask"]))
    row, random = np.arange(rows), np.random.default_rng(data.draw(st.integers(0, 99)))
    columns = {"y": row.astype(np.float32), "z": row.astype(np.float64), "wide": np.repeat(row[:, None] + 0.0, 300, 1)}
    columns["t"] = np.cumsum(np.where(random.random(rows) < 0.05, random.integers(1, 9, rows), 1))
    slots = st.tuples(
        st.sampled_from(["y", "z", "wide"]), st.integers(-20, 8), st.integers(1, 12), st.sampled_from([1, 2, 5])
    )
    drawn = data.draw(st.lists(slots, min_size=1, max_size=3))
    spans = {f"s{k}": (name, begin, begin + count * step, step) for k, (name, begin, count, step) in enumerate(drawn)}
    with tempfile.TemporaryDirectory() as folder:
        stash = ts.load(columns, ["y", "z", "wide"], time="t", file=Path(folder) / "x", progress=False)
        windows = ts.Windows(stash, spans=spans, gaps=gaps, frequency=1 if gaps == "mask" else None)
        ids = np.array(data.draw(st.lists(st.integers(0, len(windows) - 1), min_size=1, max_size=20)))
        chain = windows.contents.chain
        (begins, ends), *_ = ranges(chain, chain.locate(ids)).values()
        needed: set[int] = set()
        for name, (column, *_) in spans.items():
            shown = windows[ids][name].flatten(2)[..., 0] if column == "wide" else windows[ids][name]
            needed |= pages_of_rows(stash, column, shown[~shown.isnan()].long().tolist())
        if gaps == "ignore":
            assert needed == pages(begins, ends)
        assert needed <= pages(begins, ends)  # rows between those of a step may lie in another page
        assert (begins % mmap.PAGESIZE == 0).all()
        assert (begins < ends).all()
        assert (ends[:-1] < begins[1:]).all()  # neither overlapping nor neighbours
        assert (ends <= os.path.getsize(Path(folder) / "x")).all()


def pages_of_windows(stash: ts.Stash, firsts: list[int], length: int) -> set[int]:
    """The pages of all columns for windows without gaps."""
    rows = [*{row for first in firsts for row in range(first, first + length)}]
    return set().union(*(pages_of_rows(stash, name, rows) for name in stash))


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize(("shuffle", "batch"), [(True, 700), (ts.Blocks(50), 600), (False, 1000)])
@pytest.mark.usefixtures("cold")
def test_the_pages_of_the_next_two_steps_are_asked_for(
    asked: Asked, tmp_path: Path, shuffle: Any, batch: int, prefetch: int
) -> None:
    """From the fifth step on, when two have read from the disk: those of each step exactly once."""
    windows = ts.Windows(saved(tmp_path / "x"), 30, horizon=2)
    loader, known = ts.Loader(windows, batch, **ordered(shuffle), seed=3, with_ids=True, prefetch=prefetch), []
    for step, made in enumerate(loader):
        known.append(made["window"].tolist())
        assert prefetch or len(asked) == (0 if step < 2 else min(step + 2, len(loader) - 1) - 3)
    found = [pages(begins, ends) for _, begins, ends in asked]
    assert found == [pages_of_windows(windows.stash, ids, 32) for ids in known[4:]]


@pytest.mark.usefixtures("cold")
def test_of_a_mix_the_pages_of_saved_components_are_asked_for(asked: Asked, tmp_path: Path) -> None:
    in_memory = ts.load({"y": np.arange(3000, dtype=np.float32)})
    stashes = {"one": saved(tmp_path / "one"), "memory": in_memory, "two": saved(tmp_path / "two")}
    mix = ts.Mix({name: ts.Windows(stash, spans={"y": ("y", 0, 32)}) for name, stash in stashes.items()})
    expected = []
    for batch in [*ts.Loader(mix, 4200, shuffle=True, with_ids=True)][4:]:
        for source, name in ((0, "one"), (2, "two")):
            firsts = batch["window"][batch["source"] == source].tolist()
            rows = [row for first in firsts for row in range(first, first + 32)]
            expected.append((str(tmp_path / name), pages_of_rows(stashes[name], "y", rows)))
    assert [(path, pages(begins, ends)) for path, begins, ends in asked] == expected


OF_TABLE: dict[str, Any] = {"behind": {"stop": 0, "max_rows": 8}, "buckets": {"stop": 40, "every": 10}}


def table_of(random: np.random.Generator, path: Path, **keys: Any) -> ts.Stash:
    """Some rows of each time, versions of it or events, in a file whose values of `x` are rows."""
    time = random.permutation(30_000) // 3
    frame = {"t": time, "known": time - random.permutation(30_000), "x": np.arange(30_000)}
    order = ts.load(frame, ["x"], time="t", **keys)["x"].numpy()  # that of the rows in a stash
    row = np.arange(30_000)
    in_order: dict[str, Any] = {name: frame[name][order] for name in ("t", "known")}
    in_order |= {"x": row, "wide": np.repeat(row[:, None] + 0.0, 64, 1)}
    return ts.load(in_order, [ts.column("x", empty=-1), "wide"], time="t", file=path, **keys)


@pytest.mark.parametrize("keys", [{"known": "known"}, {"duplicates": "keep"}], ids=["versions", "events"])
@pytest.mark.parametrize("own_on_disk", [False, True])
@pytest.mark.parametrize("stretch", OF_TABLE)
@pytest.mark.usefixtures("cold")
def test_the_pages_of_tables_are_asked_for(
    asked: Asked, tmp_path: Path, stretch: str, own_on_disk: bool, keys: dict[str, Any]
) -> None:
    """Those of rows that windows see, with their times, whether the rows follow each other or are picked one by one."""
    table = table_of(np.random.default_rng(0), tmp_path / "table", **keys)
    assert table["x"].equal(torch.arange(30_000))
    of_table = {"start": -40, "table": "table", **OF_TABLE[stretch]}
    spans = {"y": ("y", -2, 1), "x": ts.During("x", age=True, **of_table), "wide": ts.During("wide", **of_table)}
    file: dict[str, Any] = {"file": tmp_path / "own"} if own_on_disk else {}
    own = ts.load({"t": np.arange(10_000), "y": np.arange(10_000.0)}, ["y"], time="t", **file)
    windows = ts.Windows(own, spans=spans, tables={"table": table})
    wanted: list[tuple[str, set[int]]] = []
    for batch in [*ts.Loader(windows, 150, shuffle=True, seed=3, steps=6)][4:]:
        if own_on_disk:
            wanted.append((str(tmp_path / "own"), pages_of_rows(own, "y", batch["y"].unique().int().tolist())))
        rows = batch["x"][batch["x.observed"]].unique().tolist()
        columns = ["x", "wide", "__time", *(["__known"] if "known" in keys else [])]
        wanted.append((str(tmp_path / "table"), set().union(*(pages_of_rows(table, name, rows) for name in columns))))
    assert len(wanted) == 2 * (1 + own_on_disk)
    assert [(path, pages(begins, ends)) for path, begins, ends in asked] == wanted


def evict(path: Path) -> None:
    """Take a file out of the page cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def same(made: list[dict[str, torch.Tensor]], wanted: list[dict[str, torch.Tensor]]) -> bool:
    """Whether batches are equal."""
    alike = [
        one.keys() == other.keys() and all(one[k].equal(other[k]) for k in one) for one, other in zip(made, wanted)
    ]
    return len(made) == len(wanted) and all(alike)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_of_a_file_that_is_read_from_the_disk_are_those_of_memory(
    asked: Asked, tmp_path: Path, prefetch: int
) -> None:
    """And a state of such a run goes on in memory."""
    path = tmp_path / "x"
    kept = {name: tensor.numpy().copy() for name, tensor in saved(path, 1_000_000).items()}
    kept |= {"a": kept["pack"][:, 0], "b": kept.pop("pack")[:, 1]}
    in_memory = ts.Windows(ts.load(kept, {"y": "y", "z": "z", "pack": ["a", "b"]}), 16)

    def some(windows: ts.Windows, steps: int, state: Any = None) -> tuple[list[dict[str, torch.Tensor]], Any]:
        loader = ts.Loader(windows, 20, shuffle=True, with_ids=True, prefetch=prefetch)
        loader.load_state_dict(state or loader.state_dict())
        return [*itertools.islice(loader, steps)], loader.state_dict()

    wanted, state = some(in_memory, 100)
    evict(path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    opened = ts.Windows(ts.open(path), 16)
    made, own_state = some(opened, 100)
    assert same(made, wanted)
    assert own_state == state
    assert same(some(in_memory, 40, own_state)[0], some(opened, 40, state)[0])
    if resource.getrusage(resource.RUSAGE_SELF).ru_majflt - before < 100:
        pytest.skip(f"{path} does not leave the page cache, so nothing is read from the disk")
    assert asked


def test_nothing_is_asked_for_where_the_file_is_in_memory(asked: Asked, tmp_path: Path) -> None:
    stash = saved(tmp_path / "x")
    for tensor in stash.values():
        tensor.sum()
    for shuffle in (True, ts.Blocks(40), False):
        assert sum(len(batch["y"]) for batch in ts.Loader(ts.Windows(stash, 4), 64, **ordered(shuffle))) == 8_000 - 3
    assert asked == []


@pytest.mark.usefixtures("cold")
def test_nothing_is_asked_for_where_the_stash_is_no_file(asked: Asked) -> None:
    shared = ts.load({"y": np.arange(1000.0)}, share="read-ahead-test")
    try:
        for stash in (shared, ts.load({"y": np.arange(1000.0)})):
            assert len([*ts.Loader(ts.Windows(stash, 4), 64, shuffle=True)]) == 16
    finally:
        ts.shared.remove("read-ahead-test")
    assert asked == []


FORKED = """
    import os, numpy as np, tensorstash as ts
    from tensorstash.batches import read_ahead
    read_ahead.pages_read = lambda *_: 1_000_000
    windows = ts.Windows(ts.load({"y": np.arange(20_000.0)}, file="PATH"), 10)
    begun = iter(ts.Loader(windows, 3000, shuffle=True))
    heads = [next(begun)["y"][:, 0] for _ in range(3)]
    if os.fork() == 0:
        rest = [batch["y"][:, 0] for batch in begun]
        assert sorted(float(y) for part in heads + rest for y in part) == [*range(19_991)]
        for prefetch in (0, 2):
            assert sum(len(batch["y"]) for batch in ts.Loader(windows, 3000, prefetch=prefetch)) == len(windows)
        os._exit(0)
    raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


@kernel.needed
def test_a_forked_process_asks_for_pages_too(tmp_path: Path) -> None:
    done = run(FORKED.replace("PATH", str(tmp_path / "x")))
    assert (done.returncode, done.stderr) == (0, "")
