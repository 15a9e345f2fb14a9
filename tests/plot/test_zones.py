"""The dates of pictures and of `inspect` are those of the wall clock in the zone of the times."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from zoneinfo import ZoneInfo

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.dates import num2date

import tensorstash as ts

plt.switch_backend("Agg")
HOURS = 40
# 2013-11-02 21:00 in New York, where the clock shows 01:00 twice in the night after it
START = datetime(2013, 11, 3, 1, tzinfo=timezone.utc)
ZONES = ["America/New_York", "Asia/Kolkata", "UTC", None]


@pytest.fixture(autouse=True)
def closed_figures() -> Iterator[None]:
    yield
    plt.close("all")


def hourly(zone: str | None) -> ts.Stash:
    moments = pl.Series("hour", [START + timedelta(hours=k) for k in range(HOURS)]).cast(pl.Datetime("us", "UTC"))
    times = moments.dt.replace_time_zone(None) if zone is None else moments.dt.convert_time_zone(zone)
    return ts.load(pl.DataFrame({"hour": times, "y": np.arange(float(HOURS))}), time="hour")


def clocks(axes: Axes) -> list[tuple[str, datetime]]:
    """The labels of ticks that show an hour, and the moments at which they stand."""
    axes.figure.canvas.draw()
    texts = [label.get_text() for label in axes.get_xticklabels()]
    moments = [num2date(place) for place in axes.get_xticks()]  # type: ignore[no-untyped-call]
    return [(text, moment) for text, moment in zip(texts, moments) if ":" in text]


def forecast_of(stash: ts.Stash) -> Axes:
    windows = ts.Windows(stash, history=6, horizon=30)
    batch = windows[[0]]
    return ts.plot.forecast(batch["y"][0, :6], batch["y"][0, 6:], windows.to_frame([0], batch["y"][:, 6:] + 1))


PICTURES: dict[str, Callable[[ts.Stash], Axes]] = {
    "coverage": ts.plot.coverage,
    "series": lambda stash: ts.plot.series(stash, None, ["y"])[0],
    "windows": lambda stash: ts.plot.windows(ts.Windows(stash, history=6, horizon=3)),
    "forecast": forecast_of,
}


@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize("zone", ZONES)
def test_the_dates_of_a_picture_are_in_the_zone_which_its_label_names(picture: str, zone: str | None) -> None:
    axes = PICTURES[picture](hourly(zone))
    assert axes.get_xlabel() == ("hour" if zone is None else f"hour ({zone})")
    shown = clocks(axes)
    assert len(shown) >= 3
    for text, moment in shown:
        assert text == f"{moment.astimezone(ZoneInfo(zone or 'UTC')):%H:%M}"


@pytest.mark.parametrize(
    ("step", "count", "shown", "beside"),
    [
        ("1h", 40, ["1 Oct", "12:00", "2 Oct", "12:00"], "2 Oct 2013"),
        ("1d", 40, ["1 Oct", "8 Oct", "1 Nov"], "2013"),
        ("1mo", 9, ["Oct", "Nov", "2014"], ""),
    ],
)
def test_dates_are_written_as_people_write_them(step: str, count: int, shown: list[str], beside: str) -> None:
    times = pl.datetime_range(datetime(2013, 10, 1), datetime(2099, 1, 1), step, eager=True)[:count]
    stash = ts.load(pl.DataFrame({"t": times, "y": np.arange(float(count))}), time="t")
    axes = ts.plot.series(stash, None, ["y"])[0]
    axes.figure.canvas.draw()
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert [text for text in labels if text in shown] == shown
    assert axes.xaxis.get_major_formatter().get_offset() == beside


@pytest.mark.parametrize("start", [datetime(2023, 2, 20), datetime(2024, 2, 20), datetime(2023, 12, 21)])
@pytest.mark.parametrize("days", [9, 12, 18, 24, 30, 36, 60])
def test_the_labels_of_days_do_not_overlap_where_a_month_ends(days: int, start: datetime) -> None:
    times = pl.datetime_range(start, interval="1d", end=start + timedelta(days=days), eager=True)
    stash = ts.load(pl.DataFrame({"t": times, "y": np.arange(len(times) + 0.0)}), time="t")
    windows = ts.Windows(stash, history=len(times) - 5, horizon=5)
    values = windows[[0]]["y"]
    axes = ts.plot.forecast(values[0, :-5], None, windows.to_frame([0], values[:, -5:]))
    axes.figure.canvas.draw()
    low, high = axes.get_xlim()
    labels = [label for place, label in zip(axes.get_xticks(), axes.get_xticklabels()) if low <= place <= high]
    extents = [label.get_window_extent() for label in labels if label.get_text()]
    assert len(extents) >= 2
    assert all(one.x1 < two.x0 for one, two in pairwise(extents))


def test_a_forecast_across_a_change_of_the_clock_stands_at_equal_steps() -> None:
    past, truth, prediction = forecast_of(hourly("America/New_York")).lines
    at = np.concatenate([np.asarray(line.get_xdata(orig=True)) for line in (past, prediction)])
    assert len(at) == 36
    assert set(np.diff(at).tolist()) == {timedelta(hours=1)}
    assert np.array_equal(np.asarray(truth.get_xdata(orig=True))[1:], at[6:])


def test_a_zone_that_this_machine_does_not_know_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    stash = hourly("Asia/Kolkata")
    monkeypatch.setattr("tensorstash.common.clock.ZoneInfo", lambda name: {}[name])
    with pytest.raises(ts.errors.DataError, match=r"'Asia/Kolkata' is neither.*Install tzdata"):
        ts.plot.coverage(stash)
