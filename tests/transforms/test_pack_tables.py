"""`ts.PackSequences` over buckets and known times: windows by hand from the rows of the source, slot by slot."""

from itertools import pairwise
from typing import Any, NamedTuple

import polars as pl
import pytest
import torch

import tensorstash as ts
from tests import kernel
from tests.late_device import LateCopies
from tests.oracle_load import like

HOURS = 40
RUNS = [
    (run + lead, run, 100.0 * run + lead, -1.0 * run)
    for run in range(-8, HOURS, 4)
    for lead in range(1, 13)
    if (7 * run + lead) % 3  # so that many hours have no row, and others only an older version
]
PRICES = [(t, t / 4) for t in range(0, HOURS, 5)]
SPANS: dict[str, Any] = {
    "wind": ts.During("wind", 0, 6, every=1, age=True, table="runs"),
    "gust": ts.During("gust", 0, 6, every=1, table="runs"),
    "seen": ts.During("wind", -12, 0, max_rows=8, age=True, table="runs"),
    "price": ts.During("price", -12, 0, every=3, age=True, table="prices"),
    "y": ts.During("y", -4, 0, every=2),
}


def windows_of() -> ts.Windows:
    """An hour each, beside runs every 4 hours and a price every 5 hours."""
    own = ts.load({"t": range(HOURS), "y": [float(t) for t in range(HOURS)]}, ["y"], time="t")
    runs = pl.DataFrame(RUNS, ["valid", "run", "wind", "gust"], orient="row")
    prices = pl.DataFrame(PRICES, ["t", "price"], orient="row")
    tables = {
        "runs": ts.load(runs, ["wind", "gust"], time="valid", known="run"),
        "prices": ts.load(prices, ["price"], time="t"),
    }
    return ts.Windows(own, spans=SPANS, tables=tables)


class Row(NamedTuple):
    """What a slot with a row holds."""

    value: float
    age: int
    delay: int


def by_hand(name: str, t: int) -> list[Row]:
    """The rows of one window, without empty slots. All windows are closed on the right: without a horizon."""
    if name in ("wind", "gust", "seen"):
        newest = {run[0]: run for run in sorted(RUNS, key=lambda run: run[1]) if run[1] <= t}
        begin, end = (t - 12, t) if name == "seen" else (t, t + 6)
        rows = [newest[time] for time in sorted(newest) if begin < time <= end][-8:]
        return [Row(row[3 if name == "gust" else 2], t - row[0], t - row[1]) for row in rows]
    every, start, table = (3, -12, PRICES) if name == "price" else (2, -4, [(k, float(k)) for k in range(HOURS)])
    found = []
    for begin in range(t + start, t, every):
        inside = [(time, value) for time, value in table if begin < time <= begin + every]
        found += [Row(value, t - time, 0) for time, value in inside[-1:]]
    return found


def check(batch: dict[str, torch.Tensor], name: str, times: list[int], length: int | None) -> None:
    """Every window is what it is by hand, and nothing else is in the batch."""
    rows = [by_hand(name, t) for t in times]
    entries = {name: 0, **({f"{name}.age": 1} if SPANS[name].age else {})}
    if name in ("wind", "seen"):
        entries[f"{name}.delay"] = 2
    for entry, field in entries.items():
        wanted = [[row[field] for row in window] for window in rows]
        if length is None:
            offsets = batch[f"{name}.offsets"].tolist()
            assert [batch[entry][a:b].tolist() for a, b in pairwise(offsets)] == wanted
            assert len(batch[entry]) == offsets[-1]
        else:
            places = zip(*(batch[f"{name}.{part}"].tolist() for part in ("row", "start", "length")))
            found = [batch[entry][row, start : start + size].tolist() for row, start, size in places]
            assert found == wanted
            assert int((batch[f"{name}.segment"] > 0).sum()) == sum(map(len, wanted))
    assert f"{name}.observed" not in batch


@pytest.mark.parametrize("way", [*kernel.WAYS, "late"])
@pytest.mark.parametrize("length", [None, 13])
def test_buckets_and_versions_are_packed_without_empty_slots(
    length: int | None, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spans over one stretch together, with their ages and delays."""
    if way == "late":
        monkeypatch.setattr("tensorstash.batches.loader.copies_to", lambda _: LateCopies())
    else:
        kernel.take(way, monkeypatch)
    windows = windows_of()
    packs = [ts.PackSequences("wind", "gust", length=length)]
    packs += [ts.PackSequences(name, length=length) for name in ("seen", "price", "y")]
    slots = dict.fromkeys(SPANS, 0)
    for batch in ts.Loader(windows, 9, shuffle=True, seed=1, with_ids=True, transform=packs):
        times = batch["anchor"].tolist()
        for name in SPANS:
            check({entry: tensor.cpu() for entry, tensor in batch.items()}, name, times, length)
            slots[name] += sum(len(by_hand(name, t)) for t in times)
    widths = {name: windows[0][name].shape[0] for name in SPANS}
    assert all(0.3 < slots[name] / (len(windows) * widths[name]) < 1 for name in SPANS)


def test_spans_of_other_slots_and_their_distances_are_refused() -> None:
    windows = windows_of()
    with pytest.raises(ValueError, match=like("those of 'seen' differ from those of 'wind'")):
        ts.Loader(windows, 4, transform=[ts.PackSequences("wind", "seen")])
    with pytest.raises(ValueError, match="ages and delays of a span are packed with it"):
        ts.PackSequences("wind", "wind.delay")(windows[:])
