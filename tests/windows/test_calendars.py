"""Calendars: `frequency=` as all times that exist. Oracles: plain Python over places, and offsets of pandas."""

import pickle
import re
import tracemalloc
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tensorstash as ts
from tests import processes
from tests.oracle_load import bits, like

pytestmark = [
    pytest.mark.filterwarnings("ignore:.* series end before"),
    pytest.mark.filterwarnings("ignore:Gaps (cost|make)"),
    pytest.mark.filterwarnings("ignore:.* entities have no"),
    pytest.mark.filterwarnings("ignore:.*have no latest window"),
    pytest.mark.filterwarnings("ignore:Part .* has no window"),
    pytest.mark.filterwarnings("ignore:.* of the values of"),
]

COLUMNS = {"y": "y", "when": ts.calendar("time")}
HOLIDAYS = ["2024-05-01", "2024-05-09", "2024-12-25", "2024-12-26", "2025-01-01"]


def trading_days(start: str = "2024-04-22", end: str = "2024-06-14") -> list[date]:
    """Business days without holidays."""
    return pd.date_range(start, end, freq=pd.offsets.CustomBusinessDay(holidays=HOLIDAYS)).date.tolist()


def frame(times: Any) -> pl.DataFrame:
    """A row for each time, whose value is its number."""
    return pl.DataFrame({"t": times}).with_columns(y=pl.int_range(pl.len()).cast(pl.Float64))


# The oracle: windows as lists of places of the calendar


@dataclass(frozen=True)
class World:
    """Series with rows at some places of a calendar, the last of them without a value, because they are known ahead."""

    times: tuple[int, ...]
    places: tuple[tuple[int, ...], ...]  # of the rows of each entity
    ahead: int
    history: int
    horizon: int
    lead: int  # the most empty slots ahead of a run, and behind it
    tail: int
    gaps: Any
    stride: int

    def stash(self, **options: Any) -> ts.Stash:
        """The rows, whose values tell entity and place."""
        rows = [(e, self.times[p], self.value(e, p)) for e, places in enumerate(self.places) for p in places]
        columns = dict(zip(("e", "t", "y"), zip(*rows)))
        return ts.load(
            {
                "e": np.array(columns["e"], np.int64),
                "t": np.array(columns["t"], np.int64),
                "y": np.array(columns["y"], np.float64),
            },
            COLUMNS,
            entity="e",
            time="t",
            **options,
        )

    def value(self, entity: int, place: int) -> float:
        places = self.places[entity]
        known = place in places and (not self.ahead or place < places[-self.ahead :][0])
        return entity * 1000.0 + place if known else float("nan")

    def arguments(self) -> dict[str, Any]:
        spans = {"past": ("y", -self.history, 0), "next": ("y", 0, self.horizon)}
        spans["when"] = ("when", -self.history, self.horizon)
        least = {"min_history": self.history - self.lead, "min_horizon": self.horizon - self.tail}
        return {"spans": spans, "gaps": self.gaps, "stride": self.stride, **least}

    def runs(self) -> list[tuple[int, int, int]]:
        """The entity and the first and the last place of each run."""
        found = []
        for entity, places in enumerate(self.places):
            ends = [k for k, (one, two) in enumerate(pairwise(places)) if self.gaps == "split" and two - one != 1]
            first = [places[0], *(places[k + 1] for k in ends)]
            found += [*zip([entity] * len(first), first, [*(places[k] for k in ends), places[-1]])]
        return found

    def windows(self) -> list["Window"]:
        size = self.history + self.horizon
        return [
            Window(self, entity, anchor, first, last)
            for entity, first, last in self.runs()
            for anchor in range(
                first - self.lead + self.history, last + self.tail - size + 2 + self.history, self.stride
            )
        ]

    def exists(self, windows: "list[Window]") -> bool:
        """Whether all slots of windows have times."""
        return all(w.anchor >= self.history and w.anchor + self.horizon <= len(self.times) for w in windows)


@dataclass(frozen=True)
class Window:
    """A window, by the place of its anchor and those of the first and the last row of its run."""

    world: World
    entity: int
    anchor: int
    first: int
    last: int

    def places(self) -> range:
        return range(self.anchor - self.world.history, self.anchor + self.world.horizon)

    def has_row(self, place: int) -> bool:
        return self.first <= place <= self.last and place in self.world.places[self.entity]

    def is_from(self, place: int) -> bool:
        """Whether its anchor is not before a cut."""
        return place <= self.anchor

    def is_before(self, place: int, slot: int = 0) -> bool:
        """Whether a slot, counted from its anchor, is before a cut."""
        return self.anchor + slot < place


@st.composite
def worlds(draw: st.DrawFn) -> World:
    steps = draw(st.lists(st.sampled_from([1, 1, 2, 7, 100]), min_size=4, max_size=25))
    times = np.cumsum([draw(st.integers(-50, 50)), *steps]).tolist()
    places = st.sets(st.integers(0, len(times) - 1), min_size=1).map(lambda some: tuple(sorted(some)))
    whole = st.tuples(st.integers(0, len(times) - 1), st.integers(1, 12)).map(
        lambda pair: tuple(range(pair[0], min(len(times), sum(pair))))
    )
    history, horizon = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    return World(
        tuple(times),
        tuple(draw(st.lists(places | whole, min_size=1, max_size=3))),
        draw(st.integers(0, 2)),
        history,
        horizon,
        draw(st.integers(0, history - 1)),
        draw(st.integers(0, horizon)),
        draw(st.sampled_from(["split", "mask"])),
        draw(st.integers(1, 2)),
    )


def made(world: World, stash: ts.Stash, **options: Any) -> ts.Windows | None:
    """The windows of a world; `None` if it has none."""
    try:
        return ts.Windows(stash, **world.arguments(), **options)
    except ts.errors.NoWindowError:
        return None


def shown(windows: ts.Windows) -> list[tuple[Any, ...]]:
    """Entity, anchor and contents of all windows."""
    about, batch = windows.anchors(range(len(windows))), windows[:]
    values = (batch[name].nan_to_num(-1).tolist() for name in ("past", "next", "when"))
    return [*zip(about["entity"].tolist(), about["time"].tolist(), *values)]


def expected(world: World, windows: list[Window]) -> list[tuple[Any, ...]]:
    """The same by the oracle."""
    found = []
    for window in windows:
        values = [world.value(window.entity, p) if window.has_row(p) else float("nan") for p in window.places()]
        filled = [-1.0 if np.isnan(value) else value for value in values]
        times = [world.times[p] for p in window.places()]
        past, future = filled[: world.history], filled[world.history :]
        found.append((window.entity, world.times[window.anchor], past, future, times))
    return found


@given(worlds(), st.booleans())
def test_every_window_is_that_of_the_oracle(world: World, kept: bool) -> None:
    options: dict[str, Any] = {"frequency": list(world.times)}
    windows_of = world.windows()
    if not world.exists(windows_of):
        with pytest.raises(ts.errors.DataError, match=like("in the calendar ... more are needed")):
            ts.Windows(world.stash(), **world.arguments(), **options)
        return
    windows = made(world, world.stash(**options)) if kept else made(world, world.stash(), **options)
    assert (windows is None) == (not windows_of)
    if windows is not None:
        assert shown(windows) == expected(world, windows_of)
        assert windows.fingerprint()["calendar"] == {
            "times": len(world.times),
            "first": world.times[0],
            "last": world.times[-1],
            "checksum": windows.fingerprint()["calendar"]["checksum"],
        }


@given(worlds(), st.booleans())
def test_the_latest_windows_and_their_frame_follow_the_calendar(world: World, known_ahead: bool) -> None:
    stash = world.stash(frequency=list(world.times))
    # the calendar of the stash ends where it does, so the spans have no fields of the time
    spans = {"past": ("y", -world.history, 0), "next": ("y", 0, world.horizon)}
    try:
        windows = ts.Windows(stash, **world.arguments() | {"spans": spans})
    except ts.errors.NoWindowError:
        return
    anchors = {}
    for entity, first, last in world.runs():
        rows = [p for p in world.places[entity] if first <= p <= last]
        if known_ahead:
            rows = [p for p in rows if not np.isnan(world.value(entity, p))]
        if last == world.places[entity][-1] and rows and rows[-1] + 1 - world.history >= first - world.lead:
            anchors[entity] = rows[-1] + 1
    if known_ahead and world.gaps == "split" and world.ahead:
        return  # there may be a gap among the rows known ahead, which is an error
    missing = max((anchor + world.horizon - len(world.times) for anchor in anchors.values()), default=0)
    if not anchors:
        with pytest.raises(ts.errors.NoWindowError):
            windows.latest("y" if known_ahead else None)
        return
    if missing > 0:
        with pytest.raises(ts.errors.DataError, match=like(f"; {missing:,} more are needed")):
            windows.latest("y" if known_ahead else None)
        more = [*world.times, *(world.times[-1] + 3 * k + 1 for k in range(missing))]
        windows = windows.on(stash, frequency=more)
    else:
        more = list(world.times)
    newest = windows.latest("y" if known_ahead else None)
    about = newest.anchors(range(len(newest)))
    assert about["entity"].tolist() == [*anchors]
    assert about["time"].tolist() == [more[anchor] for anchor in anchors.values()]
    values = torch.arange(len(newest) * world.horizon).reshape(-1, world.horizon)
    predicted = newest.to_frame(range(len(newest)), values)
    future = [(e, more[a + k]) for e, a in anchors.items() for k in range(world.horizon)]
    assert [*zip(predicted["e"], predicted["t"])] == future
    assert predicted["value"].to_list() == values.flatten().tolist()


def place_of(world: World, moment: int) -> int:
    """The place of the first time at or after a moment."""
    return sum(time < moment for time in world.times)


@given(worlds(), st.integers(1, 3), st.integers(1, 4), st.integers(0, 2), st.booleans())
def test_folds_count_slots(world: World, count: int, step: int, pause: int, expanding: bool) -> None:
    windows_of = world.windows()
    if not windows_of or not world.exists(windows_of):
        return
    windows = ts.Windows(world.stash(), frequency=list(world.times), **world.arguments())
    whole = [w.anchor for w in windows_of if w.anchor + world.horizon - 1 <= w.last]
    folds = []
    for k in range(count if whole else 0):
        cut, end = (max(whole) + 1 + (k + j - count) * step for j in (0, 1))
        start = min(w.anchor for w in windows_of) + k * step
        train = [w for w in windows_of if w.is_before(max(cut, 0) - pause, world.horizon - 1)]
        test = [w for w in windows_of if w.is_from(cut) and w.is_before(end)]
        folds.append(([w for w in train if expanding or w.is_from(start)], test))
    if not folds or not all(train and test for train, test in folds):
        with pytest.raises(ts.errors.DataError):
            windows.folds(count, step, gap=pause, expanding=expanding)
        return
    for pair, parts in zip(folds, windows.folds(count, step, gap=pause, expanding=expanding), strict=True):
        assert [shown(part) for part in parts] == [expected(world, want) for want in pair]


@given(worlds(), st.data())
def test_a_cut_between_slots_means_the_next_slot(world: World, data: st.DataObject) -> None:
    windows_of = world.windows()
    if not windows_of or not world.exists(windows_of):
        return
    windows = ts.Windows(world.stash(), frequency=list(world.times), **world.arguments())
    cut = data.draw(st.integers(world.times[0] - 2, world.times[-1] + 2))
    place = place_of(world, cut)
    before, after = windows.split(cut)
    assert shown(before) == expected(world, [w for w in windows_of if w.is_before(place, world.horizon - 1)])
    assert shown(after) == expected(world, [w for w in windows_of if w.is_from(place)])


@given(worlds(), st.data())
def test_points_are_anchored_at_the_first_slot_from_them_on(world: World, data: st.DataObject) -> None:
    stash = world.stash(frequency=list(world.times))
    entity = data.draw(st.integers(0, len(world.places) - 1))
    moment = data.draw(st.integers(world.times[0] - 3, world.times[-1] + 3))
    spans = {"past": ("y", -world.history, 0), "next": ("y", 0, 1)}
    points = {"e": np.array([entity]), "t": np.array([moment])}
    least: dict[str, Any] = {"min_history": 0, "min_horizon": 0, "unmatched": "drop"}
    places, place = world.places[entity], place_of(world, moment)
    values = [world.value(entity, p) for p in range(place - world.history, place + 1)]
    # ahead of the first row by more than a slot there is no window, nor behind the last one
    if place < places[0] or place > places[-1] + 1:
        with pytest.raises(ts.errors.NoWindowError):
            ts.Windows(stash, spans=spans, gaps="mask", at=points, **least)
        return
    windows = ts.Windows(stash, spans=spans, gaps="mask", at=points, **least)
    found = torch.cat([windows[0]["past"], windows[0]["next"]])
    assert found.nan_to_num(-1).tolist() == [-1.0 if np.isnan(value) else value for value in values]


# Against pandas: rows at a few of the times, the calendar with all of them and those to come

OFFSETS: dict[str, tuple[Any, str, str]] = {
    "trading days": (pd.offsets.CustomBusinessDay(holidays=HOLIDAYS), "2024-04-01", "2025-01-31"),
    "opening hours": (
        pd.offsets.CustomBusinessHour(start="09:00", end="17:00", holidays=HOLIDAYS),
        "2024-04-29 09:00",
        "2024-05-24",
    ),
    "last trading days of quarters": (pd.offsets.BQuarterEnd(startingMonth=12), "2000-01-01", "2030-01-01"),
    "ends of quarters": (pd.offsets.QuarterEnd(startingMonth=12), "2000-01-01", "2030-01-01"),
    "first weekdays": (pd.offsets.WeekOfMonth(week=0, weekday=2), "2015-01-01", "2025-01-01"),
}
SHIFTS = [datetime(2024, 3, 28 + day, hour) for day in range(4) for hour in (6, 14, 22)]


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
@pytest.mark.parametrize("name", OFFSETS)
def test_slots_have_the_times_of_an_offset_of_pandas(name: str, zone: str | None) -> None:
    offset, start, end = OFFSETS[name]
    every = pd.date_range(start, end, freq=offset, unit="us")
    rng, horizon = np.random.default_rng(3), 6
    times = every.tz_localize(zone) if zone else every
    rows = np.flatnonzero(rng.random(len(times) - horizon) < 0.7)
    data = pd.DataFrame({"t": times[rows], "y": rows.astype(np.float64)})
    stash = ts.load(data, COLUMNS, time="t", frequency=times)
    spans = {"past": ("y", -9, 0), "when": ("when", -9, horizon)}
    newest = ts.Windows(stash, spans=spans, gaps="mask", min_horizon=0).latest()
    last = rows[-1]
    batch, expected_times = newest[:], times[last - 8 : last + 1 + horizon]
    assert batch["when"][0].tolist() == [int(time.value // 1000) for time in expected_times]
    assert batch["past"][0].nan_to_num(-1).tolist() == [k if k in rows else -1.0 for k in range(last - 8, last + 1)]
    assert batch["past.observed"][0].tolist() == [k in rows for k in range(last - 8, last + 1)]
    future = newest.to_frame([0], torch.zeros(1, horizon))["t"].to_list()
    local = [every[last + k + 1] for k in range(horizon)]
    assert [time.replace(tzinfo=None) for time in future] == [time.to_pydatetime() for time in local]
    for one, two in pairwise(local):  # the oracle is that of pandas
        assert one + offset == two


def test_a_holiday_is_no_slot() -> None:
    days = trading_days()
    rows = [day for day in days if day <= date(2024, 5, 8)]  # the 9th is a holiday
    windows = ts.Windows(ts.load(frame(rows), COLUMNS, time="t"), 5, 1, columns=["y"], frequency=days)
    assert len(windows) == len(rows) - 5
    newest = windows.latest()
    assert newest.to_frame([0], torch.zeros(1, 1))["t"].to_list() == [date(2024, 5, 10)]
    in_time = ts.Windows(ts.load(frame(rows), ["y"], time="t"), 5, 1, frequency="1bd")
    assert in_time.latest().to_frame([0], torch.zeros(1, 1))["t"].to_list() == [date(2024, 5, 9)]
    assert len(in_time) < len(windows)


def test_shifts_in_a_zone_whose_clock_changes() -> None:
    """Three shifts a day, also in the night in which Berlin puts its clocks forward."""
    times = pl.Series("t", SHIFTS).dt.replace_time_zone("Europe/Berlin")
    windows = ts.Windows(ts.load(frame(times[:9]), COLUMNS, time="t"), 4, 3, columns=["y"], frequency=times)
    assert len(windows) == 3
    assert windows.latest().to_frame([0], torch.zeros(1, 3))["t"].to_list() == times[9:].to_list()


# The forms of a calendar


def forms(days: list[date]) -> dict[str, Any]:
    moments = [datetime(day.year, day.month, day.day) for day in days]
    return {
        "list": moments,
        "tuple": (*moments,),
        "iterator": iter(moments),
        "texts": [str(day) for day in days],
        "numpy": np.array(days, "M8[D]").astype("M8[ns]"),
        "index": pd.DatetimeIndex(moments),
        "periods": pd.PeriodIndex(days, freq="D"),
        "Series of pandas": pd.Series(moments),
        "Series of polars": pl.Series(moments),
        "array of Arrow": pa.array(moments),
        "chunks of Arrow": pa.chunked_array([moments[:5], moments[5:]]),
        "dates": days,
        "dictionary of Arrow": pa.array(moments).dictionary_encode(),
        "categories": pl.Series([str(day) for day in days], dtype=pl.Categorical),
    }


@pytest.mark.parametrize("form", forms(trading_days()))
def test_a_calendar_is_any_sequence_of_times(form: str) -> None:
    days = trading_days()
    data = frame([datetime(day.year, day.month, day.day) for day in days[:20]])
    given_times = forms(days)[form]
    stash = ts.load(data, COLUMNS, time="t")
    windows = ts.Windows(stash, 3, 2, columns=["y"], frequency=given_times)
    again = ts.Windows(ts.load(data, COLUMNS, time="t", frequency=forms(days)[form]), 3, 2, columns=["y"])
    assert windows.fingerprint()["calendar"] == again.fingerprint()["calendar"]
    assert windows.fingerprint()["calendar"]["times"] == len(days)
    assert [*windows.latest().to_frame([0], torch.zeros(1, 2))["t"].dt.date()] == days[20:22]
    assert repr(windows).startswith("Windows: 16 of 3 + 2 rows of a calendar of 38 times")


def test_months_as_periods_and_dates_of_date_columns() -> None:
    months = pd.period_range("2023-01", periods=14, freq="M")
    data = pd.DataFrame({"t": months[:12], "y": np.arange(12.0)})
    windows = ts.Windows(ts.load(data, COLUMNS, time="t"), 3, 2, columns=["y"], frequency=months)
    assert [*windows.latest().to_frame([0], torch.zeros(1, 2))["t"].dt.month()] == [1, 2]
    days = trading_days()
    windows = ts.Windows(ts.load(frame(days[:9]), COLUMNS, time="t"), 3, 1, columns=["y"], frequency=days)
    assert windows.latest().to_frame([0], torch.zeros(1, 1))["t"].to_list() == days[9:10]


# How it travels


def forecast_days(windows: ts.Windows) -> list[date]:
    """The days of the horizon of the latest window."""
    frame = windows.latest().to_frame([0], torch.zeros(1, windows.horizon))
    days: list[date] = frame["t"].to_list()
    return days


def small(**options: Any) -> ts.Stash:
    days = trading_days()
    return ts.load(frame(days[:12]), COLUMNS, time="t", frequency=days, **options)


def test_it_travels_with_the_stash(tmp_path: Path, shm: Path) -> None:
    del shm
    days, stash = trading_days(), small()
    assert days[11:13] == [date(2024, 5, 8), date(2024, 5, 10)]
    stash.save(tmp_path / "saved.safetensors")
    stash.without_rows().save(tmp_path / "reference.safetensors")
    shared = small(share="days")
    tail = frame(days[7:12])
    others = {
        "shared": shared,
        "attached": ts.attach("days"),
        "shared later": stash.share("later"),
        "written": small(file=tmp_path / "written.safetensors"),
        "written and found": small(file=tmp_path / "written.safetensors"),
        "saved": ts.open(tmp_path / "saved.safetensors"),
        "pickled": pickle.loads(pickle.dumps(shared)),
        "like": ts.load(tail, like=stash),
        "like without rows": ts.load(tail, like=stash.without_rows()),
        "like of a file": ts.load(tail, like=tmp_path / "reference.safetensors"),
        "like of like": ts.load(tail, like=ts.load(tail, like=stash).without_rows()),
    }
    for name, other in others.items():
        windows = ts.Windows(other, 3, 2, columns=["y"])
        assert forecast_days(windows) == days[12:14], name
        assert windows.fingerprint()["calendar"] == ts.Windows(stash, 3, 2).fingerprint()["calendar"], name
    windows = pickle.loads(pickle.dumps(ts.Windows(shared, 3, 2, columns=["y"])))
    assert forecast_days(windows) == days[12:14]
    given_later = ts.Windows(ts.load(frame(days[:12]), ["y"], time="t", share="bare"), 3, 2, frequency=days)
    assert forecast_days(pickle.loads(pickle.dumps(given_later))) == days[12:14]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_it_travels_to_processes(method: str) -> None:
    """With a private stash, by descriptor."""
    windows = ts.Windows(small(), 3, 2, columns=["y"])
    found = processes.in_child(method, _first_anchor, windows.latest())
    assert found == [(trading_days()[12] - date(1970, 1, 1)).days]


def _first_anchor(windows: ts.Windows) -> Any:
    return windows.anchors([0])["time"].tolist()


def test_another_calendar_is_another_shared_copy(shm: Path, tmp_path: Path) -> None:
    del shm
    days = trading_days()
    stashes = [ts.load(frame(days[:9]), time="t", frequency=days[:n], share="days") for n in (20, 20, 30)]
    assert stashes[0].path == stashes[1].path != stashes[2].path
    chunks = pa.chunked_array([days[:5], days[5:20]])
    assert ts.load(frame(days[:9]), time="t", frequency=chunks, share="days").path == stashes[0].path
    ts.load(frame(days[:9]), time="t", frequency=days, file=tmp_path / "days.safetensors")
    with pytest.raises(ts.errors.SegmentError, match="overwrite=True"):
        ts.load(frame(days[:9]), time="t", frequency=days[:20], file=tmp_path / "days.safetensors")


def test_a_scaled_stash_keeps_it() -> None:
    stash = small()
    windows = ts.Windows(stash, 3, 2, columns=["y"])
    scaled = windows.on(ts.Scaler.fit(windows, ["y"]).transform(stash))
    assert forecast_days(scaled) == trading_days()[12:14]
    assert forecast_days(ts.Windows(scaled.stash, 3, 2, columns=["y"])) == trading_days()[12:14]


def test_shards_have_it(tmp_path: Path) -> None:
    days = trading_days()
    series = [frame(days[:12]).with_columns(e=pl.lit(name)) for name in "abcdef"]
    manifest = ts.cluster.shard(
        pl.concat(series), COLUMNS, entity="e", time="t", frequency=days, shards=2, to=tmp_path / "shards"
    )
    assert manifest.frequency is None
    windows = ts.cluster.windows(ts.cluster.open(tmp_path / "shards"), spans={"y": ("y", -9, 0), "t": ("when", 0, 2)})
    assert len(windows) == 6 * (12 - 9 - 2 + 1)
    described = windows.fingerprint()["calendar"]
    assert described["times"] == len(days)
    newest = [part.latest() for part in windows.parts.values()]
    assert all(part.to_frame([0], torch.zeros(1, 2))["t"].to_list() == days[12:14] for part in newest)
    manifest = ts.cluster.shard(
        pl.concat(series), COLUMNS, entity="e", time="t", frequency="2bd", shards=2, to=tmp_path / "others"
    )
    assert manifest.frequency == "2bd"


def test_a_reference_of_an_earlier_release_has_none() -> None:
    assert "__calendar" in small().segment.tensors
    assert "__calendar" not in ts.load(frame(trading_days()[:9]), time="t").segment.tensors


def test_a_step_of_text_is_kept_too() -> None:
    days = trading_days()
    stash = ts.load(frame([days[0], days[2], days[4]]), ["y"], time="t", frequency="1bd")
    assert repr(ts.Windows(stash, 3, gaps="mask")).startswith("Windows: 3 of 3 + 0 slots every 1bd")
    assert repr(ts.Windows(ts.load(frame(days[:1]), like=stash), 1)).startswith("Windows: 1 of 1 + 0 rows every 1bd")
    numbers = ts.load({"t": [0, 4, 8], "y": [1.0, 2.0, 3.0]}, ["y"], time="t", frequency=np.int64(2))
    assert repr(ts.Windows(numbers, 5, gaps="mask")).startswith("Windows: 1 of 5 + 0 slots every 2")


# Other data


def test_on_keeps_the_calendar_and_may_continue_it() -> None:
    days = trading_days()
    windows = ts.Windows(ts.load(frame(days[:12]), COLUMNS, time="t"), 3, 1, columns=["y"], frequency=days[:15])
    tomorrow = ts.load(frame(days[9:14]), COLUMNS, time="t")
    assert forecast_days(windows.on(tomorrow)) == [days[14]]
    later = ts.load(frame(days[9:20]), COLUMNS, time="t")
    with pytest.raises(ts.errors.DataError, match=like("a row at 2024-05-15, which is not in it")):
        windows.on(later)
    continued = windows.on(later, frequency=days)
    assert forecast_days(continued) == [days[20]]
    assert continued.fingerprint()["calendar"]["times"] == len(days)
    # a stash that brings a longer calendar needs no argument; one with another calendar does not change that of windows
    assert forecast_days(windows.on(ts.load(frame(days[9:20]), COLUMNS, time="t", frequency=days))) == [days[20]]
    other = ts.load(frame(days[9:14]), COLUMNS, time="t", frequency=days[9:])
    assert windows.on(other).fingerprint()["calendar"] == windows.fingerprint()["calendar"]
    for wrong in (days[1:], days[:14], [date(2024, 4, 20), *days]):
        with pytest.raises(ValueError, match=like("begins with the same 15 times, up to 2024-05-14")):
            windows.on(tomorrow, frequency=wrong)
    with pytest.raises(ValueError, match=like("continues the calendar of windows, and these have none")):
        ts.Windows(tomorrow, 1, columns=["y"]).on(tomorrow, frequency=days)


def test_windows_may_have_another_calendar_than_their_stash() -> None:
    stash, days = small(), trading_days()
    assert len(ts.Windows(stash, 12, columns=["y"])) == 1
    every = pd.date_range(days[0], days[-1]).date.tolist()
    with pytest.raises(ts.errors.NoWindowError, match=like("12 consecutive rows ... 5 in a calendar of 54 times")):
        ts.Windows(stash, 12, columns=["y"], frequency=every)
    assert len(ts.Windows(stash, 12, columns=["y"], frequency=every, gaps="mask")) == 17 - 12 + 1
    assert len(ts.Windows(stash, 12, columns=["y"], frequency="1d", gaps="mask")) == 17 - 12 + 1


def test_a_mix_has_a_calendar_for_each_component() -> None:
    days = trading_days()
    parts = {
        "days": ts.load(frame(days[:12]), COLUMNS, time="t", frequency=days),
        "fridays": ts.load(frame(days[:13:4]), COLUMNS, time="t", frequency=days[::4]),
    }
    spans = {"past": ("y", -2, 0), "when": ("when", -2, 2)}
    mix = ts.Mix({name: ts.Windows(stash, spans=spans, min_horizon=0) for name, stash in parts.items()})
    whens = mix[:]["when"].tolist()
    ticks = [(day - date(1970, 1, 1)).days for day in days]
    assert whens == [ticks[k : k + 4] for k in range(11)] + [ticks[k * 4 : k * 4 + 16 : 4] for k in range(3)]
    state = ts.Loader(mix, 2).state_dict()
    ts.Loader(mix, 2).load_state_dict(state)


def test_durations_of_folds_are_time() -> None:
    days = trading_days("2024-01-01", "2024-12-31")
    windows = ts.Windows(ts.load(frame(days[:-20]), COLUMNS, time="t"), 5, 2, columns=["y"], frequency=days)
    epoch = date(1970, 1, 1)
    anchors = [epoch + timedelta(days=k) for k in windows.anchors(range(len(windows)))["time"].tolist()]
    assert anchors == days[5 : len(days) - 21]
    stop = days[len(days) - 21]
    for k, (train, test) in enumerate(windows.folds(4, "7d", gap="3d")):
        cut, end = (stop - timedelta(days=7 * (4 - k - j)) for j in (0, 1))
        found = test.anchors(range(len(test)))["time"].tolist()
        assert [epoch + timedelta(days=day) for day in found] == [day for day in anchors if cut <= day < end]
        # both days of the horizon end before the pause
        assert len(train) == sum(day < cut - timedelta(days=3) for day in days[6:])


# The time of each slot


@pytest.mark.parametrize("kind", ["date", "us", "ns", "zone", "integers"])
def test_the_time_of_each_slot_is_a_column(kind: str) -> None:
    days = pl.date_range(date(2024, 1, 1), date(2024, 1, 9), "1d", eager=True)
    times: dict[str, pl.Series] = {
        "date": days,
        "us": days.cast(pl.Datetime("us")),
        "ns": days.cast(pl.Datetime("ns")),
        "zone": days.cast(pl.Datetime("us")).dt.replace_time_zone("Europe/Berlin"),
        "integers": days.to_physical(),
    }
    kept = frame(times[kind]).filter(pl.col("y") != 3)
    stash = ts.load(kept, COLUMNS, time="t")
    assert stash.time is not None
    assert (stash["when"].dtype, stash["when"].shape) == (torch.int64, (8,))
    assert stash["when"].equal(stash.time)
    spans = {"past": ("when", -7, 0), "next": ("when", 0, 2)}
    windows = ts.Windows(stash, spans=spans, gaps="mask", min_history=1, min_horizon=0)
    every = times[kind].to_physical().cast(pl.Int64)
    step = every[1] - every[0]
    for window, anchor in zip(shown_slots(windows), windows.anchors(range(len(windows)))["time"].tolist()):
        assert window == [anchor + k * step for k in range(-7, 2)]
    exported = stash.to_polars()
    assert exported["when"].to_list() == exported["t"].to_list()
    again = ts.load(kept, like=stash.without_rows())
    assert bits(again)["when"] == bits(stash)["when"]
    assert again["when"].shape == (8,)


def shown_slots(windows: ts.Windows) -> list[list[int]]:
    batch = windows[:]
    return torch.cat([batch["past"], batch["next"]], 1).tolist()


def test_fields_of_the_calendar_in_empty_slots_are_those_of_its_times() -> None:
    days = trading_days()
    rows = [day for day in days[:12] if day != date(2024, 4, 30)]
    stash = ts.load(frame(rows), {"y": "y", "when": ts.calendar("month", "day")}, time="t", frequency=days)
    windows = ts.Windows(stash, spans={"y": ("y", -12, 0), "when": ("when", -12, 2)}, gaps="mask", min_horizon=0)
    expected_fields = [[day.month, day.day] for day in days[:14]]
    assert windows.latest()[0]["when"].tolist() == expected_fields
    loader = ts.Loader(windows.latest(), 1, device="cpu")
    assert next(iter(loader))["when"][0].tolist() == expected_fields


def test_the_time_stands_alone() -> None:
    with pytest.raises(ValueError, match=like('"time" of ts.calendar stands alone')):
        ts.calendar("time", "hour")
    with pytest.raises(ValueError, match=like('"time" of ts.calendar stands alone')):
        ts.calendar("time", scaled=True)


# What is refused


def test_a_row_outside_of_the_calendar_is_named() -> None:
    days = trading_days()
    data = pl.DataFrame({"e": ["b", "b", "a", "a"], "t": [days[0], date(2024, 5, 1), days[0], days[1]], "y": 1.0})
    message = like("entity 'b' has a row at 2024-05-01, which is not in it. Add that time, or leave such rows out")
    with pytest.raises(ts.errors.DataError, match=message):
        ts.load(data, entity="e", time="t", frequency=days)
    with pytest.raises(ts.errors.DataError, match=message):
        ts.Windows(ts.load(data, entity="e", time="t"), 1, frequency=days)
    # the remedies
    more = sorted([*days, date(2024, 5, 1)])
    assert len(ts.Windows(ts.load(data, entity="e", time="t", frequency=more), 1)) == 4
    left = ts.load(data, entity="e", time="t", frequency=days, filter=[("t", "!=", date(2024, 5, 1))])
    assert left.rows == 3


def test_remedies_of_wrong_calendars_work() -> None:
    days = trading_days()
    stash = ts.load(frame(days[:9]), ["y"], time="t")
    descending: list[Any] = [[*days, days[3]], days[::-1]]
    for times in (*descending, pl.Series(days[::-1]), pa.array(days[::-1])):
        with pytest.raises(ValueError, match=like("Sort the times, each once: np.unique(times)")):
            ts.Windows(stash, 3, frequency=times)
        assert len(ts.Windows(stash, 3, frequency=np.unique(times))) == 7
    utc = pl.Series(days).cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
    naive = ts.load(frame(utc[:9].dt.replace_time_zone(None)), ["y"], time="t")
    zoned = ts.load(frame(utc[:9]), ["y"], time="t")
    moments, texts = pd.DatetimeIndex(days), [str(day) for day in days]
    wrong: list[tuple[ts.Stash, Any]] = [(stash, moments), (stash, texts), (stash, pl.Series(moments)), (stash, utc)]
    wrong += [(zoned, texts), (zoned, moments), (naive, utc), (naive, moments.tz_localize("UTC"))]
    for other, times in wrong:
        with pytest.raises(
            ts.errors.SchemaError, match=like("The times of frequency= must be a ... polars:")
        ) as caught:
            ts.Windows(other, 3, frequency=times)
        found = re.search(r"with polars: (.*)\.$", str(caught.value))
        assert found is not None
        assert len(ts.Windows(other, 3, frequency=eval(found[1], {"pl": pl, "np": np, "times": times}))) == 7
    with pytest.raises(ValueError, match="frequency must be a duration"):
        ts.Windows(stash, 3, frequency={*days})
    with pytest.raises(ts.errors.SchemaError, match=like("must be a date, as in the stash; the calendar is double")):
        ts.load(frame(days[:9]), time="t", frequency=[0.5, 1.5], share="floats")
    with pytest.raises(ValueError, match=like("frequency must be a duration ... a list of all times that exist")):
        ts.Windows(stash, 3, frequency=pd.offsets.CustomBusinessDay(holidays=HOLIDAYS))


def test_nothing_but_a_sum_of_places_is_computed_for_times_that_are_far_apart() -> None:
    """At both ends of 64 bits."""
    times = [-(2**63), -(2**63) + 5, 0, 2**62, 2**63 - 1]
    near = ts.load({"t": times[-2:], "y": [1.0, 2.0]}, COLUMNS, time="t", frequency=times)
    windows = ts.Windows(near, spans={"y": ("y", -1, 0), "when": ("when", -1, 1)})
    assert windows[0]["when"].tolist() == times[-2:]
    with pytest.raises(ts.errors.DataError, match=like("to 9223372036854775807; 1 more are needed")):
        windows.latest()


def test_plots_take_it() -> None:
    pytest.importorskip("matplotlib").use("Agg")
    days = trading_days()
    stash = ts.load(frame(days[:12]), ["y"], time="t")
    for one in (stash, ts.load(frame(days[:12]), ["y"], time="t", frequency=days)):
        frequency = days if one is stash else None
        states = ts.plot.coverage(one, frequency=frequency).get_legend()
        assert states is not None
        assert [text.get_text() for text in states.get_texts()] == ["complete"]
        ts.plot.series(one, None, ["y"], frequency=frequency)
    early = ts.Windows(stash, spans={"past": ("y", -3, 0)}, min_history=1, frequency=days)
    ts.plot.windows(early)


def test_memory_does_not_grow_with_windows_nor_rows() -> None:
    peaks = []
    for count in (20, 80):
        times = np.cumsum(np.random.default_rng(2).integers(1, 4, 20_010))
        data = {"e": np.repeat(np.arange(count), 20_000), "t": np.tile(times[:20_000], count)}
        stash = ts.load(data | {"y": np.zeros(20_000 * count, np.float32)}, COLUMNS, entity="e", time="t")
        tracemalloc.start()
        try:
            windows = ts.Windows(stash, 5, 2, frequency=times)
            windows.latest(), windows.split(int(times[9_000])), windows.folds(2, 100)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert len(windows) == count * (20_000 - 6)
    assert peaks[1] < peaks[0] + (1 << 20)  # a byte a window would be 1.2 MB
