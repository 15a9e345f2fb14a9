"""`ts.each` in windows of one stash: each row beside the column of the whole pack over the same slots."""

import os
import pickle
import textwrap
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import tensorstash as ts
from tensorstash.errors import NoWindowError
from tests import kernel, processes
from tests.data import DTYPES, FILLS, column
from tests.variates import check_rows, same

pytestmark = pytest.mark.filterwarnings("ignore:Gaps cost")


@pytest.fixture(params=kernel.WAYS, autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test here runs with the kernel, where it was compiled, and without."""
    kernel.take(request.param, monkeypatch)


ROWS = 40


def stash_of(kind: str, width: int, missing: bool = False) -> ts.Stash:
    """A pack "x" of a dtype, a column "c" of it, two series whose times have gaps."""
    values = column(kind, ROWS * (width + 1)).reshape(ROWS, width + 1)
    if missing and values.is_floating_point():
        values[7, 0] = float("nan")
    fill = FILLS.get(kind)
    table = {"e": [0] * 25 + [1] * 15, "t": [*range(12), *range(14, 27), *range(15)], "x": values[:, :width]}
    chosen = {name: ts.column(name, fill=fill) for name in ("x", "c")}
    return ts.load(table | {"c": values[:, width]}, chosen, entity="e", time="t")


def spans_of(*packs: str, past: Any = -5) -> dict[str, Any]:
    """Spans of `ts.each`, and those of the packs over the same slots."""
    spans: dict[str, Any] = {"past": (ts.each(*packs), past, 0), "next": (ts.each(*packs), 0, 3)}
    spans["lag"] = (ts.each(*packs), -6, 0, 2)
    for pack in packs:
        spans |= {f"past {pack}": (pack, past, 0), f"next {pack}": (pack, 0, 3), f"lag {pack}": (pack, -6, 0, 2)}
    return spans


def check(batch: dict[str, torch.Tensor], *packs: str) -> None:
    for name in ("past", "next", "lag"):
        check_rows(batch, name, [f"{name} {pack}" for pack in packs])
    assert batch["past.window"] is batch["next.window"] is batch["lag.window"]


@given(
    kind=st.sampled_from([*DTYPES]),
    width=st.integers(1, 9),
    masked=st.booleans(),
    lead=st.booleans(),
    packs=st.sampled_from([("x",), ("x", "c"), ("c", "x"), ("c",)]),
    ids=st.lists(st.integers(0, 11), max_size=9),
)
@settings(max_examples=80)
def test_rows_are_the_columns_of_whole_packs(
    kind: str, width: int, masked: bool, lead: bool, packs: tuple[str, ...], ids: list[int]
) -> None:
    more: dict[str, Any] = {"min_history": 1, "min_horizon": 0} if lead else {}
    windows = ts.Windows(
        stash_of(kind, width), spans=spans_of(*packs), gaps="mask" if masked else "split", frequency=1, **more
    )
    check(windows[ids], *packs)
    check(next(iter(ts.Loader(windows, 7, shuffle=True))), *packs)


def test_the_oracle_can_fail() -> None:
    windows = ts.Windows(stash_of("f32", 3), spans=spans_of("x", "c"), gaps="mask", frequency=1, min_history=1)
    batch = windows[[0, 9]]
    check(batch, "x", "c")
    for name in ("past", "past.variate", "past.observed"):
        with pytest.raises(AssertionError):
            check(batch | {name: batch[name].flip(0)}, "x", "c")


@pytest.mark.parametrize("size", [1, 3, 64])
def test_lengths_drawn_at_random(size: int) -> None:
    past = ts.Draw(-8, -2, step=2)
    spans = spans_of("x", "c", past=past) | {"other": ("c", ts.Draw(-6, -5), 0)}
    windows = ts.Windows(stash_of("f32", 4), spans=spans, min_history=2)
    lengths = set[int]()
    for batch in ts.Loader(windows, size, shuffle=True):
        check(batch, "x", "c")
        lengths.update(batch["past.observed"].sum(1).tolist())
    assert len(lengths) > 3


def test_what_belongs_to_windows_has_a_row_for_each() -> None:
    table = {"e": ["a"] * 6 + ["b"] * 6, "t": [*range(6)] * 2, "x": np.arange(24.0).reshape(12, 2)}
    stash = ts.load(table | {"size": [1.5] * 6 + [2.5] * 6}, ["x"], static=["size"], entity="e", time="t")
    spans = {"past": (ts.each("x"), -2, 0), "ago": ts.During("x", -3, 0, max_rows=3)}
    windows = ts.Windows(stash, spans=spans, at={"e": ["b", "a", "b"], "t": [3, 5, 4], "size2": [1, 2, 3]})
    batch = windows[:]
    assert batch["past"].tolist() == [[14, 16], [15, 17], [6, 8], [7, 9], [16, 18], [17, 19]]
    assert batch["size"].tolist() == [2.5, 1.5, 2.5]
    assert batch["size2"].tolist() == [1, 2, 3]
    assert batch["ago"].shape == (3, 3, 2)
    assert batch["size"][batch["past.window"]].tolist() == [2.5, 2.5, 1.5, 1.5, 2.5, 2.5]
    by_time = next(iter(ts.Loader(windows, None, order=ts.ByTime(), with_ids=True)))
    assert by_time["past"].tolist() == [[14, 16], [15, 17]]


def test_values_of_the_calendar_are_computed_in_empty_slots() -> None:
    time = np.arange("2024-01-01", "2024-01-11", dtype="M8[D]")[[0, 1, 2, 5, 6, 9]]
    columns = {"c": ts.calendar("day", "dayofweek"), "m": ts.calendar("month")}
    stash = ts.load({"time": time}, columns, time="time")
    spans = {"past": (ts.each("c", "m"), -4, 0), "past c": ("c", -4, 0), "past m": ("m", -4, 0)}
    windows = ts.Windows(stash, spans=spans, gaps="mask", frequency="1d", min_history=2, min_horizon=0)
    batch = windows[:]
    check_rows(batch, "past", ["past c", "past m"])
    assert not batch["past.observed"].all()
    assert batch["past"].min() >= 0


def test_require_judges_all_columns() -> None:
    stash = stash_of("f32", 3, missing=True)
    spans = {"past": (ts.each("c", "x"), -3, 0)}
    every, kept = ts.Windows(stash, spans=spans), ts.Windows(stash, spans=spans, require=["past"])
    whole = every[:]
    complete = [not bool(whole["past"][whole["past.window"] == k].isnan().any()) for k in range(len(every))]
    assert len(kept) == sum(complete) < len(every)
    assert same(kept[:]["past"], every[np.flatnonzero(complete)]["past"])
    nothing = ts.load({"a": [1.0, 2.0, 3.0], "b": [float("nan")] * 3})
    with pytest.raises(NoWindowError, match="each of the 2 windows has too many in 'past'"):
        ts.Windows(nothing, spans={"past": (ts.each("a", "b"), -2, 0)}, require=["past"])


def test_one_window_has_all_its_rows() -> None:
    windows = ts.Windows(stash_of("i16", 3), spans={"past": (ts.each("x"), -4, 0), "c": ("c", 0, 1)})
    whole, one = windows[:], windows[5]
    assert one.keys() == whole.keys()
    assert torch.equal(one["past"], whole["past"][15:18])
    assert one["past.window"].tolist() == [0, 0, 0]
    assert one["past.variate"].tolist() == [0, 1, 2]
    assert one["c"].shape == (1,)
    dataset: Any = windows
    loaded = [*DataLoader(dataset, batch_size=4)]
    assert loaded[1]["past"].shape == (4, 3, 4)
    assert torch.equal(loaded[1]["past"].flatten(0, 1), whole["past"][12:24])
    by_sampler: Any = DataLoader(dataset, sampler=ts.Sampler(windows, 4), batch_size=None)
    assert torch.equal(next(iter(by_sampler))["past"], whole["past"][:12])


def test_a_batch_of_no_window() -> None:
    stash = ts.load({"t": np.arange(5), "x": np.arange(10.0).reshape(5, 2)}, ["x"], time="t")
    empty = ts.Windows(stash, spans={"past": (ts.each("x"), -2, 0)})[[]]
    assert empty["past"].shape == (0, 2)
    assert empty["past.window"].shape == (0,)


def test_parts_know_their_spans() -> None:
    windows = ts.Windows(stash_of("f32", 3), spans={"past": (ts.each("x", "c", max_variates=2), -4, 0)})
    train, _ = windows.split(10)
    assert "past=each(x, c, max_variates=2)[-4:0]" in repr(train)
    assert train.fingerprint()["variates"] == {"x": 3, "c": 1}
    assert [span.columns for span in windows.spans] == [("x", "c")]
    assert repr(ts.each("x", max_variates=2)) == "each('x', max_variates=2)"
    assert ts.each("x") == ts.each("x")
    assert len({ts.each("x"), ts.each("x"), ts.each("c")}) == 2


def test_windows_are_pickled() -> None:
    loader = ts.Loader(ts.Windows(stash_of("f32", 3).share("each"), spans=spans_of("x")), 4, shuffle=True)
    copy = pickle.loads(pickle.dumps(loader))
    batch, again = next(iter(loader)), next(iter(copy))
    assert batch.keys() == again.keys()
    assert all(same(again[name], tensor) for name, tensor in batch.items())


FORKED = """
        import os, torch, numpy as np, tensorstash as ts
        torch.set_num_threads(2)
        stash = ts.load({"x": np.arange(40.0).reshape(20, 2)})
        loader = ts.Loader(ts.Windows(stash, spans={"past": (ts.each("x"), -3, 0)}), 4)
        if os.fork() == 0:
            assert next(iter(loader))["past"][:2].tolist() == [[0, 2, 4], [1, 3, 5]]
            os._exit(0)
        raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


@pytest.mark.host("the process that it starts takes its own way")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@kernel.needed
def test_a_forked_process_gathers() -> None:
    done = processes.run(textwrap.dedent(FORKED), warn="ignore")  # it forks with threads, which is the point here
    assert (done.returncode, done.stderr) == (0, "")


def test_the_same_windows_on_the_newest_rows() -> None:
    def stash(first: int) -> ts.Stash:
        at = np.arange(first, 50)
        return ts.load({"t": at, "x": at[:, None] * 3.0 + np.arange(3), "c": at * 1.0}, ["x", "c"], time="t")

    windows = ts.Windows(stash(0), spans={"past": (ts.each("x", "c"), -4, 0), "next": ("c", 0, 2)}, min_horizon=0)
    whole, tail = windows.latest()[:], windows.on(stash(40)).latest()[:]
    assert whole.keys() == tail.keys()
    assert all(same(whole[name], tail[name]) for name in whole)
