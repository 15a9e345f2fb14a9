"""Steps of months keep the day of the month: the last day, or one that shorter months have cut. Oracle: pandas."""

from datetime import date, time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

import tensorstash as ts
from tests.oracle_load import like

pytestmark = pytest.mark.filterwarnings("ignore:.* series end before")

MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
OFFSETS = ["ME", "MS", "2ME", "4ME", "6ME"]
OFFSETS += [f"{alias}-{month}" for alias in ("QE", "QS", "YE", "YS") for month in MONTHS]
DAYS = [28, 29, 30, 31]  # of every month, cut where it is shorter
COLUMNS = {"y": "y", "when": ts.calendar("month", "day", "dayofyear")}
HORIZON = 5


@cache
def every(rule: str | int, end: str = "2200-12-31") -> list[date]:
    """All times of a rule from 1900 on: an offset of pandas, or a day of the month."""
    starts = pd.date_range("1900-01-01", end, freq="MS" if isinstance(rule, int) else rule, unit="s")
    if isinstance(rule, str):
        return starts.date.tolist()
    return [start.replace(day=min(rule, start.days_in_month)).date() for start in starts]


def stretches(times: list[date], count: int = 40) -> list[tuple[int, int]]:
    """The first and the end of stretches of these times, each with more of them before and behind it."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(2, 15, count)
    return [(int(low), int(low + size)) for low, size in zip(rng.integers(5, len(times) - 20, count), sizes)]


def frame(series: list[list[date]], kind: str) -> pl.DataFrame:
    """A row for each time of each series, whose number is the entity, in a type of times."""
    rows = {"e": np.repeat(np.arange(len(series)), [*map(len, series)]), "t": [day for days in series for day in days]}
    return pl.DataFrame(rows).with_columns(y=1.0, t=in_kind(pl.col("t"), kind))


def in_kind(days: Any, kind: str) -> Any:
    """Days as dates, or at half past six in the morning of a zone."""
    if kind == "date":
        return days
    return days.cast(pl.Datetime("us")).dt.offset_by("6h30m").dt.replace_time_zone(kind)


def fields(days: list[date]) -> list[list[int]]:
    """The calendar fields of `COLUMNS`."""
    return [[day.month, day.day, day.timetuple().tm_yday] for day in days]


def days_of(frame: pl.DataFrame) -> list[date]:
    return frame["t"].dt.date().to_list()


@pytest.mark.parametrize("rule", [*OFFSETS, *DAYS])
@pytest.mark.parametrize("kind", ["date", "Europe/Berlin"])
def test_slots_before_between_and_after_rows_have_the_times_of_the_rule(rule: str | int, kind: str) -> None:
    # polars knows no changes of clocks after 2099
    times, rng = every(rule, "2200-12-31" if kind == "date" else "2099-12-31"), np.random.default_rng(1)
    whole = stretches(times)
    # the first two rows stay, and the last one
    kept = [[times[k] for k in range(a, z) if k in (a, a + 1, z - 1) or rng.random() < 0.6] for a, z in whole]
    stash = ts.load(frame(kept, kind), COLUMNS, entity="e", time="t")
    before, size = 3, max(z - a for a, z in whole)
    spans = {"past": ("y", -size - before, 0), "when": ("when", -size - before, HORIZON)}
    newest = ts.Windows(stash, spans=spans, gaps="mask", min_history=1, min_horizon=0).latest()
    batch = newest[:]
    for k, (a, z) in enumerate(whole):
        there = batch["past.observed"][k, a - z :].tolist()
        assert [day for day, is_row in zip(times[a:z], there) if is_row] == kept[k]
        expected = fields(times[a - before : z + HORIZON])
        assert batch["when"][k, -len(expected) :].tolist() == expected
    future = newest.to_frame(range(len(whole)), torch.zeros(len(whole), HORIZON))
    assert days_of(future) == [day for _, z in whole for day in times[z : z + HORIZON]]
    if kind != "date":
        assert {*future["t"].dt.time()} == {time(6, 30)}


@pytest.mark.parametrize("rule", [*OFFSETS, *DAYS])
def test_the_times_of_a_rule_are_one_run_whatever_few_of_them_there_are(rule: str | int) -> None:
    times = every(rule)
    for begin, size in enumerate((2, 3, 5)):
        series = [times[k : k + size] for k in range(200, 250)]
        for days in series[begin::12]:
            assert len(ts.Windows(ts.load(frame([days], "date"), ["y"], time="t"), 1, size - 1, min_history=1)) == 1, (
                days
            )
    assert len(ts.Windows(ts.load(frame(series, "date"), ["y"], entity="e", time="t"), size)) == len(series)


def mixed() -> list[list[date]]:
    """Series of months that each keep another day, up to the 28th of February."""
    return [every(rule)[800:1442] for rule in ("ME", 28, 29, 30, "MS")]


@pytest.mark.parametrize("rows", [1, 2, 14])
@pytest.mark.parametrize("given", ["reference", "path", "stash", "tail"])
def test_a_service_forecasts_what_the_whole_data_do(rows: int, given: str, tmp_path: Path) -> None:
    """Of the last rows alone, none tells the 28th of February from the last day, nor from the 30th."""
    stash = ts.load(frame(mixed(), "date"), COLUMNS, entity="e", time="t")
    windows = ts.Windows(stash, spans={"past": ("y", -1, 0), "when": ("when", 0, 3)})
    stash.without_rows().save(path := tmp_path / "reference.safetensors")
    tail = [days[-rows:] for days in mixed()]
    others: dict[str, Any] = {"reference": stash.without_rows(), "path": path, "stash": stash}
    others["tail"] = ts.load(frame([days[:5] for days in mixed()], "date"), like=path).without_rows()
    served = windows.on(ts.load(frame(tail, "date"), like=others[given])).latest()
    expected = windows.latest()[:]
    assert expected["when"][:, 0, 1].tolist() == [31, 28, 29, 30, 1]
    assert {name: served[:][name].tolist() for name in expected} == {name: expected[name].tolist() for name in expected}


def test_only_entities_of_the_reference_have_what_it_saw() -> None:
    """Series 1 has no rows, the last one is new, and of series 0 a row shows that its days are not last days."""
    series = [every("ME")[100:120], every("ME")[100:120], every(30)[100:110]]
    reference = ts.load(frame(series, "date"), COLUMNS, entity="e", time="t").without_rows()
    rows = pl.DataFrame({"e": [0, 0, 2, 3], "t": [date(2023, 1, 30), *[date(2023, 2, 28)] * 3], "y": 1.0})
    newest = ts.Windows(ts.load(rows, like=reference), spans={"y": ("y", -1, 0), "when": ("when", 0, 1)}).latest()
    assert newest[:]["when"][:, 0, 1].tolist() == [30, 30, 31]


def test_a_reference_without_the_days_opens_and_goes_by_the_rows_it_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that an earlier release has written; this one writes none for steps that are no months."""
    stash = ts.load(frame(mixed(), "date"), COLUMNS, entity="e", time="t")
    with monkeypatch.context() as patch:
        patch.setattr("tensorstash.stash.without_rows.kept_days", lambda _: None)
        reference = stash.without_rows()
    assert "__month_days" in stash.without_rows().segment.tensors
    assert "__month_days" not in reference.segment.tensors
    tail = ts.load(frame([days[-2:] for days in mixed()], "date"), like=reference)
    newest = ts.Windows(tail, spans={"y": ("y", -1, 0), "when": ("when", 0, 1)}).latest()
    assert newest[:]["when"][:, 0, 1].tolist() == [31, 28, 29, 30, 1]
    days = pl.date_range(date(2024, 1, 1), date(2024, 3, 1), "1d", eager=True)
    daily = ts.load(pl.DataFrame({"t": days, "y": 1.0}), COLUMNS, time="t")
    assert "__month_days" not in daily.without_rows().segment.tensors


def test_other_days_of_a_reference_are_another_shared_copy(shm: Path) -> None:
    del shm
    rows = frame([[date(2023, 2, 28)]], "date")
    for rule, day in (("ME", 31), (30, 30)):
        seen = ts.load(frame([every(rule)[100:120]], "date"), COLUMNS, entity="e", time="t")
        for reference in (seen, seen.without_rows()):
            stash = ts.load(rows, like=reference, share="months")
            newest = ts.Windows(stash, spans={"y": ("y", -1, 1)}, frequency="1mo", min_horizon=0).latest()
            assert days_of(newest.to_frame([0], torch.zeros(1, 1))) == [date(2023, 3, day)]


def test_points_and_cuts_between_rows_go_by_the_last_day() -> None:
    days = [date(2023, 1, 31), date(2023, 2, 28), date(2023, 5, 31), date(2023, 6, 30)]
    stash = ts.load(pl.DataFrame({"t": days, "y": [1.0, 2.0, 5.0, 6.0]}), ["y"], time="t")
    spans = {"past": ("y", -1, 0), "next": ("y", 0, 1)}
    times = [date(2022, 12, 31), date(2023, 3, 30), date(2023, 3, 31), date(2023, 4, 1), date(2023, 7, 29)]
    at = pl.DataFrame({"t": times})
    windows = ts.Windows(stash, spans=spans, gaps="mask", at=at, min_history=0, min_horizon=0, unmatched="drop")
    # in January: the slot before it ends December, which is more than a step ahead
    assert windows.points is not None
    assert windows.points.tolist() == [1, 2, 3, 4]
    assert windows[:]["past"].nan_to_num(0).tolist() == [[2.0], [2.0], [0.0], [6.0]]
    masked = ts.Windows(stash, spans=spans, gaps="mask")
    train, valid = masked.split(date(2023, 3, 29))
    assert [window.anchors([0])["time"].tolist() for window in (train, valid)] == [
        masked.anchors([0])["time"].tolist(),
        masked.anchors([1])["time"].tolist(),
    ]


def test_folds_of_last_days_cut_between_the_slots() -> None:
    days = every("ME")[1:75]
    windows = ts.Windows(ts.load(frame([days], "date"), ["y"], time="t"), 2, 1)
    anchors = windows.anchors(range(len(windows)))["time"].tolist()
    lengths: list[tuple[int | str, int]] = [(1, 1), ("1mo", 1), (3, 3), ("1q", 3), ("1y", 12)]
    for step, months in lengths:
        for k, (train, test) in enumerate(windows.folds(4, step)):
            first = len(anchors) - (4 - k) * months
            assert test.anchors(range(len(test)))["time"].tolist() == anchors[first : first + months]
            assert len(train) == first


def test_slots_that_would_lie_after_the_last_date_are_refused() -> None:
    """The last day of a month may not fit where its 28th does."""
    last = pl.Series([2**31 - 1 - 28 * 31, 2**31 - 1 - 27 * 31], dtype=pl.Int32).cast(pl.Date)
    stash = ts.load(pl.DataFrame({"t": last, "y": 1.0}), ["y"], time="t")
    with pytest.raises(ts.errors.DataError, match=like("Empty slots after the last row have times")):
        ts.Windows(stash, 1, 30, frequency="1mo", min_horizon=0)
