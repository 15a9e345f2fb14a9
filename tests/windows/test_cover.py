"""`cover`: windows that show each row once, against sets of rows in plain Python."""

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests.oracle_load import like

pytestmark = pytest.mark.filterwarnings("ignore:.* series end before|Gaps make:UserWarning")


@dataclass
class Case:
    """Rows `(entity, time)` of a panel, and the windows over them."""

    events: list[tuple[int, int]]
    gaps: str
    history: int
    horizon: int
    span: tuple[int, int]
    more: dict[str, int]  # min_history, min_horizon

    @property
    def stash(self) -> ts.Stash:
        columns = {"e": [e for e, _ in self.events], "t": [t for _, t in self.events]}
        return ts.load(columns | {"row": np.arange(len(self.events)) * 1.0}, ["row"], entity="e", time="t")

    def windows(self) -> "ts.Windows | None":
        spans: dict[str, Any] = {"whole": ("row", -self.history, self.horizon), "part": ("row", *self.span)}
        frequency: dict[str, Any] = {} if self.gaps == "ignore" else {"frequency": 1}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            try:
                return ts.Windows(self.stash, spans=spans, gaps=self.gaps, **frequency, **self.more)  # type: ignore[arg-type]
            except ts.errors.NoWindowError:
                return None

    def runs(self) -> Iterator[dict[int, int]]:
        """The row of each slot that has one, for each run; its first row is in slot 0."""
        run: dict[int, int] = {}
        before: tuple[int, int] | None = None
        for row, (entity, time) in enumerate(self.events):
            step = 1 if before is None else time - before[1]
            if before is not None and (entity != before[0] or (self.gaps == "split" and step > 1)):
                yield run
                run = {}
            slot = max(run) + (step if self.gaps == "mask" else 1) if run else 0
            run[slot] = row
            before = entity, time
        yield run

    def starts(self, run: dict[int, int]) -> range:
        """The slots at which windows of a run may start."""
        lead = self.history - self.more.get("min_history", self.history)
        tail = self.horizon - self.more.get("min_horizon", self.horizon)
        return range(-lead, max(run) + 1 + tail - self.history - self.horizon + 1)

    def shown_by(self, run: dict[int, int], start: int) -> list[int]:
        """The rows that the span of a window shows."""
        first, stop = (start + self.history + edge for edge in self.span)
        return [run[slot] for slot in range(first, stop) if slot in run]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    one = st.tuples(st.integers(0, 3), st.integers(0, 25))
    events = sorted(draw(st.lists(one, min_size=2, max_size=40, unique=True)))
    history, horizon = draw(st.tuples(st.integers(0, 5), st.integers(0, 4)).filter(any))
    start = draw(st.integers(-history, horizon - 1))
    stop = draw(st.integers(start + 1, horizon))
    more = {}
    if history and draw(st.booleans()):
        more["min_history"] = draw(st.integers(int(not horizon), history))
    if horizon and draw(st.booleans()):
        more["min_horizon"] = draw(st.integers(int(not history), horizon))
    return Case(events, draw(st.sampled_from(["split", "mask", "ignore"])), history, horizon, (start, stop), more)


def covered(windows: ts.Windows, *args: Any, **more: Any) -> tuple["ts.Windows | None", int]:
    """The windows that cover, and how many rows a warning or an error counts that are in none."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            cover, said = windows.cover(*args, **more), ""
        except ts.errors.NoWindowError as error:
            cover, said = None, str(error)
    said = said or "".join(str(one.message) for one in caught)
    assert all(one.filename == __file__ for one in caught)
    count = re.search(r"none of these ([\d,]+) rows|([\d,]+) of [\d,]+ rows are in no", said)
    return cover, 0 if count is None else int((count[1] or count[2]).replace(",", ""))


def rows_once(windows: ts.Windows, span: str = "part", ids: Any = slice(None)) -> list[int]:
    """The rows in slots that are not repeated, in order of the windows."""
    batch = windows[ids]
    once = ~batch[f"{span}.repeated"]
    if f"{span}.observed" in batch:
        once &= batch[f"{span}.observed"]
    return [int(row) for row in batch[span][once].tolist()]


def check(case: Case, windows: ts.Windows, low: "int | None", high: "int | None") -> None:
    wanted = {
        row
        for row, (_, time) in enumerate(case.events)
        if (low is None or time >= low) and (high is None or time < high)
    }
    every = [(run, start) for run in case.runs() for start in case.starts(run)]
    possible = wanted & {row for run, start in every for row in case.shown_by(run, start)}
    cover, missing = covered(windows, "part", low, high)
    assert (cover is None) == (not possible)
    assert missing == len(wanted) - len(possible)
    if cover is None:
        return
    assert rows_once(cover) == sorted(possible)
    allowed = [case.shown_by(run, start) for run, start in every]
    batch, length = cover[:], case.span[1] - case.span[0]
    held = [[int(row) for row in rows if row >= 0] for rows in batch["part"].tolist()]
    assert all(rows in allowed for rows in held)
    once = ~batch["part.repeated"] & (batch["part"] >= 0)
    assert bool(once.any(1).all())  # no window is in vain
    if case.gaps != "mask":  # nor is there one too many
        counts = [len(possible & {*run.values()}) for run in case.runs()]
        assert len(cover) == sum(-(-count // length) for count in counts)
    for window, rows in enumerate(held):  # a piece is moved back only to end with its run, or as far as windows reach
        if rows and bool(batch["part.repeated"][window, batch["part"][window] >= 0][0]):
            (run,) = [run for run in case.runs() if rows[0] in run.values()]
            reach = max(row for start in case.starts(run) for row in case.shown_by(run, start))
            if low is None or case.events[rows[0]][1] >= low:
                assert rows[-1] == reach
    # what is before `start`, from `stop` on and outside of the run is not shown
    assert set(rows_once(cover)) <= wanted


RANGES = st.tuples(st.none() | st.integers(0, 20), st.none() | st.integers(1, 8))


@settings(max_examples=600)
@given(cases(), RANGES)
def test_each_row_is_shown_once_and_others_are_counted(case: Case, low_and_length: tuple[Any, Any]) -> None:
    windows, (low, length) = case.windows(), low_and_length
    if windows is not None:
        check(case, windows, low, length if low is None or length is None else low + length)


def test_the_oracle_of_covers_can_fail() -> None:
    case = Case([(0, t) for t in range(7)], "split", 3, 0, (-3, 0), {})
    windows = case.windows()
    assert windows is not None
    check(case, windows, None, None)
    with pytest.raises(AssertionError):
        check(Case(case.events[:6], "split", 3, 0, (-3, 0), {}), windows, None, None)


def daily(lengths: dict[str, int], **more: Any) -> ts.Stash:
    """Daily series; `row` numbers all rows."""
    frames = [
        pl.DataFrame({"id": [name] * n}).with_columns(t=pl.date(2024, 1, 1) + pl.duration(days=pl.int_range(n)))
        for name, n in lengths.items()
    ]
    frame = pl.concat(frames).with_columns(row=pl.int_range(pl.len()).cast(pl.Float32))
    frame = frame.with_columns(bad=pl.col("row") % 7 == 0)
    columns = {"row": "row", "bad": ts.column("bad", empty=False)}
    return ts.load(frame, columns, entity="id", time="t", **more)


SERIES = {"a": 23, "b": 40, "c": 17}
SPANS = {"x": ("row", -6, 0), "label": ("bad", -6, 0)}


def machines(**more: Any) -> ts.Windows:
    return ts.Windows(daily(SERIES), spans=SPANS, **more)


def test_what_is_made_of_these_windows_is_kept_or_means_nothing() -> None:
    windows = machines()
    whole = windows.cover("x")
    assert rows_once(whole, "x") == [*range(80)]
    same = [
        machines(stride=4).cover("x"),
        machines(where="bad").cover("x"),
        machines(stride=4, align="end").cover("x"),
        windows.split("2024-01-15")[1].cover("x"),
        windows.latest().cover("x"),
        whole.cover("x"),
        windows.cover("label").cover("x"),
    ]
    assert all(one.fingerprint() == whole.fingerprint() for one in same)
    for one in same:
        assert [*one[[0]]] == ["x", "label", "x.repeated"]
    assert windows.cover("x").latest().fingerprint() == windows.latest().fingerprint()
    assert "x.repeated" not in windows.cover("x").latest()[[0]]
    assert windows.cover("x").on(windows.stash).fingerprint() == windows.fingerprint()
    different = [windows.cover("label"), windows.cover("x", "2024-01-02"), windows.cover("x", None, "2024-01-30")]
    assert len({str(one.fingerprint()) for one in (*different, whole)}) == 4


def test_entities_that_are_chosen_stay_chosen() -> None:
    windows, own = machines(), {"a": range(23), "b": range(23, 63), "c": range(63, 80)}
    for part in (windows.of(["a", "c"]).cover("x"), windows.cover("x").of(["a", "c"])):
        assert rows_once(part, "x") == [*own["a"], *own["c"]]
    halves = windows.split_entities(0.5, seed=2)
    assert sorted(row for half in halves for row in rows_once(half.cover("x"), "x")) == [*range(80)]
    with pytest.raises(ts.errors.NoWindowError, match=like("cover shows rows from start= on ... there is none")):
        windows.of(["a", "c"]).cover("x", "2024-02-01")


def test_in_a_part_in_time_each_row_comes_once_too() -> None:
    """What a window of another part shows is not repeated."""
    for part in machines().cover("x").split("2024-01-10"):
        rows = rows_once(part, "x")
        assert rows == sorted({*rows})
        assert {*rows} == {int(row) for row in part[:]["x"].flatten().tolist()}


def test_require_is_told_and_leaves_out_nothing() -> None:
    stash = ts.load({"t": range(9), "y": [0.0, 1, 2, np.nan, 4, 5, np.nan, 7, 8]}, ["y"], time="t")
    windows = ts.Windows(stash, 2, require=["y"])
    with pytest.warns(UserWarning, match=like("cover shows every row, so require= and min_rows= leave out")):
        cover = windows.cover()
    assert len(cover) == 5
    windows = ts.Windows(stash, spans={"x": ("y", -2, 0), "d": ts.During("y", -3, 0, max_rows=3, min_rows=3)})
    with pytest.warns(UserWarning, match=like("cover shows every row, so require= and min_rows= leave out")):
        assert len(windows.cover()) == 5


def test_a_long_gap_has_no_windows() -> None:
    times = [*range(6), *range(10**9, 10**9 + 5)]
    windows = ts.Windows(ts.load({"t": times, "row": np.arange(11.0)}, ["row"], time="t"), 4, gaps="mask", stride=10**8)
    cover = windows.cover()
    assert len(cover) == 4
    assert rows_once(cover, "row") == [*range(11)]


def test_rows_known_ahead_are_shown_and_integers_need_no_value() -> None:
    frame = pl.DataFrame({"t": range(10), "y": [*map(float, range(7)), None, None, None], "n": range(10)})
    windows = ts.Windows(ts.load(frame, ["y", "n"], time="t"), spans={"past": ("y", -2, 0), "known": ("n", 0, 4)})
    cover, missing = covered(windows, "known")
    assert cover is not None
    assert missing == 2
    assert cover[:]["known"][~cover[:]["known.repeated"]].tolist() == [*range(2, 10)]


def test_frames_hold_each_row_once() -> None:
    windows = machines(min_history=1)
    stash, cover = windows.stash, windows.cover("x")
    scores = cover[:]["x"] * 2
    frame = cover.to_frame(slice(None), scores, ["score"], origin=True, step=True)
    assert frame["score"].to_list() == [2.0 * row for row in range(80)]
    rows = stash.to_polars()
    assert frame.select("id", "t").equals(rows.select("id", "t"))
    assert frame["step"].to_list()[:23] == [1, 2, 3, 4, 5, 6] * 3 + [2, 3, 4, 5, 6]
    assert (frame["t"].dt.ordinal_day() - frame["anchor"].dt.ordinal_day() == frame["step"] - 6).all()
    two = ts.Windows(stash, spans={"past": ("row", -3, 0), "next": ("row", 0, 4), "more": ("row", 0, 6)})
    ahead, _ = covered(two, "next")
    assert ahead is not None
    shown = ahead.to_frame(slice(None), ahead[:]["next"])
    assert shown["value"].to_list() == rows_once(ahead, "next")
    with pytest.raises(ValueError, match=like("predictions must have shape (17, 4)")):
        ahead.to_frame(slice(None), ahead[:]["more"])


def test_windows_in_any_order_and_one_by_one() -> None:
    cover = machines().cover("x")
    batch, ids = cover[:], np.random.default_rng(0).permutation(len(cover))
    some = cover[ids]
    assert torch.equal(some["x.repeated"], batch["x.repeated"][torch.from_numpy(ids)])
    for k, window in enumerate(cover.__getitems__([*range(len(cover))])):
        assert torch.equal(window["x.repeated"], batch["x.repeated"][k])
        assert torch.equal(cover[k]["x.repeated"], batch["x.repeated"][k])
    assert torch.equal(cover[[3]]["x.repeated"], batch["x.repeated"][[3]])
    loader = torch.utils.data.DataLoader(cover, batch_size=5)  # type: ignore[arg-type,var-annotated]
    assert torch.equal(torch.cat([part["x.repeated"] for part in loader]), batch["x.repeated"])


def scored(loaders: "list[ts.Loader]") -> list[int]:
    """The rows in slots that are not repeated, of windows that are no filler, in all batches."""
    found: list[int] = []
    for loader in loaders:
        for batch in loader:
            once = ~batch["x.repeated"].cpu()
            if "x.observed" in batch:
                once &= batch["x.observed"].cpu()
            if "valid" in batch:
                once &= batch["valid"].cpu()[:, None]
            found += [int(row) for row in batch["x"].cpu()[once].tolist()]
    return sorted(found)


@pytest.mark.parametrize("tail", ["keep", "pad"])
@pytest.mark.parametrize("order", [None, "shuffle", "blocks", "by time", "ids"])
@pytest.mark.parametrize("resident", [False, True])
def test_ranks_score_each_row_once(order: "str | None", tail: Any, resident: bool) -> None:
    cover = machines(min_history=1).cover("x")
    orders: dict[Any, dict[str, Any]] = {
        None: {},
        "shuffle": {"shuffle": True, "seed": 3},
        "blocks": {"order": ts.Blocks(2)},
        "by time": {"order": ts.ByTime()},
        "ids": {"order": [*range(len(cover))][::-1]},
    }
    options: dict[str, Any] = {"resident": resident, "device": "cpu"} if resident else {}
    loaders = [
        ts.Loader(cover, 2, num_replicas=3, rank=rank, tail=tail, **orders[order], **options) for rank in range(3)
    ]
    assert scored(loaders) == [*range(80)]


def test_it_resumes_on_other_ranks() -> None:
    cover = machines().cover("x")
    first = [ts.Loader(cover, 2, shuffle=True, num_replicas=2, rank=rank) for rank in range(2)]
    batches = [next(iter(loader)) for loader in first]
    before = sorted(
        int(row) for batch in batches for row in batch["x"][~batch["x.repeated"] & batch["valid"][:, None]].tolist()
    )
    rest = [ts.Loader(cover, 3, shuffle=True, num_replicas=3, rank=rank) for rank in range(3)]
    for loader in rest:
        loader.load_state_dict(first[0].state_dict())
    assert sorted(before + scored(rest)) == [*range(80)]
    with pytest.raises(ValueError, match=like("these differ: cover: ['x', ... in the state, ['label',")):
        ts.Loader(machines().cover("label"), 2, shuffle=True).load_state_dict(first[0].state_dict())


@pytest.mark.parametrize("resident", [False, True])
def test_a_mix_scores_the_rows_of_all(resident: bool) -> None:
    one = ts.Windows(daily({"a": 20, "b": 9}), spans=SPANS).cover("x")
    two = ts.Windows(daily({"z": 31, "y": 4}), spans=SPANS, min_history=1).cover("x")
    mix = ts.Mix({"one": one, "two": two})
    options: dict[str, Any] = {"resident": True, "device": "cpu"} if resident else {}
    assert scored([ts.Loader(mix, 4, shuffle=True, **options)]) == sorted([*range(29), *range(35)])
    with pytest.raises(ts.errors.SchemaError, match=like("must have the same span of cover")):
        ts.Mix({"one": one, "two": machines()})


def test_weights_packing_and_variates_know_what_is_repeated() -> None:
    cover = machines(min_history=1).cover("x")
    whole = cover[:]
    (batch,) = ts.Loader(cover, len(cover), order=ts.Weighted([1.0] * len(cover)), with_ids=True)
    assert torch.equal(batch["x.repeated"], whole["x.repeated"][batch["window"]])
    for pack in (ts.PackSequences("x", "label"), ts.PackSequences("x", length=8)):
        (batch,) = ts.Loader(cover, len(cover), transform=[pack])
        held = batch["x"][~batch["x.repeated"]]
        if "x.segment" in batch:
            held = batch["x"][~batch["x.repeated"] & (batch["x.segment"] > 0)]
        assert sorted(held.tolist()) == [*range(80)]
    each = ts.Windows(daily(SERIES), spans={"x": (ts.each("row"), -6, 0)}).cover()
    for batch in (each[:], ts.PackSequences("x")(each[:])):
        assert torch.equal(batch["x.repeated"], machines().cover("x")[:]["x.repeated"])


def test_windows_that_do_not_follow_each_other_have_no_lanes() -> None:
    with pytest.raises(ValueError, match=like("ts.Lanes needs windows each of which continues the one before")):
        ts.Loader(machines(stride=6).cover("x"), 2, order=ts.Lanes(2))


def test_they_go_to_other_processes() -> None:
    stash = daily(SERIES)
    cover = ts.Windows(stash, spans=SPANS).cover("x")
    with torch.multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(rows_once, (cover, "x")) == [*range(80)]


def test_memory_grows_with_runs() -> None:
    cover = ts.Windows(daily({"a": 5000, "b": 4003}), spans=SPANS).cover("x")
    assert len(cover.placement.intervals.guide.base) <= 4
