"""Pictures: coverage against a loop over single ticks, lines against a loop over points, and what is drawn.

It reaches inside for the figures before they are drawn.
"""

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any
from unittest import mock

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

import tensorstash as ts
from tensorstash.plot.coverage import _coverage
from tensorstash.plot.series import _line
from tests.oracle_load import like

Series = dict[int, bool]  # time -> whether a value is missing there

plt.switch_backend("Agg")


@pytest.fixture(autouse=True)
def closed_figures() -> Iterator[None]:
    yield
    plt.close("all")


def load(entities: list[Series], kind: str = "number") -> ts.Stash:
    rows = [(name, time, missing) for name, series in enumerate(entities) for time, missing in sorted(series.items())]
    if kind == "text":
        values: list[object] = [None if missing else "dry" for _, _, missing in rows]
    elif kind == "pack":
        values = [[1.0, float("nan") if missing else 2.0] for _, _, missing in rows]
    else:
        values = [float("nan") if missing else 1.0 for _, _, missing in rows]
    dtype: pl.DataType = {"text": pl.String(), "pack": pl.Array(pl.Float32, 2), "number": pl.Float64()}[kind]
    frame = pl.DataFrame(
        {"k": [row[0] for row in rows], "t": [row[1] for row in rows], "ok": True, "y": pl.Series(values, dtype=dtype)}
    )
    return ts.load(frame, entity="k", time="t")


def covered(stash: ts.Stash, chosen: Any) -> tuple[Any, Any]:
    return _coverage(stash, chosen, [*stash], None)


def slow_coverage(entities: list[Series], most_bins: int) -> tuple[list[list[int]], list[int]]:
    """The state of every single tick, and of a bin the gravest of its ticks; a gap is less grave beside a row."""
    steps = Counter(after - before for series in entities for before, after in pairwise(sorted(series)))
    step = min(steps, key=lambda size: (-steps[size], size)) if steps else 1
    low, high = min(map(min, entities)), max(map(max, entities))
    bins = min(most_bins, (high - low) // step + 1)
    edges = [low + k * (high - low + step) // bins for k in range(bins + 1)]
    states = []
    for series in entities:
        ticks = dict.fromkeys(range(low, high + step), 0)
        for tick in range(min(series), max(series) + 1):
            ticks[tick] = 2 if series.get(tick, False) else 1
        for before, after in pairwise(sorted(series)):
            if after - before > step:
                ticks.update(dict.fromkeys(range(before + step, after), 4))
            elif after - before < step:
                ticks[after] = 4
        gravest = [max(ticks[tick] for tick in range(*ends)) for ends in pairwise(edges)]
        has_row = [any(tick in series for tick in range(*ends)) for ends in pairwise(edges)]
        states.append([3 if state == 4 and has else state for state, has in zip(gravest, has_row)])
    return states, edges


series_of_any_shape = st.integers(1, 5).flatmap(
    lambda step: st.dictionaries(
        st.integers(0, 20).map(lambda k: k * step) | st.integers(0, 60), st.booleans(), min_size=1
    )
)


@settings(max_examples=200)
@given(
    st.lists(series_of_any_shape, min_size=1, max_size=4),
    st.sampled_from([1, 3, 7, 500]),
    st.sampled_from(["number", "text", "pack"]),
)
def test_a_bin_shows_the_gravest_of_its_ticks(entities: list[Series], most_bins: int, kind: str) -> None:
    with mock.patch("tensorstash.plot.coverage._BINS", most_bins):
        states, edges = covered(load(entities, kind), np.arange(len(entities)))
    assert (states.tolist(), edges.tolist()) == slow_coverage(entities, most_bins)


def test_single_missing_hours_of_a_year_are_told_from_a_gap() -> None:
    hours = np.arange("2023-01-01", "2024-01-01", dtype="datetime64[h]").astype("datetime64[s]")
    kept = np.delete(hours, [*range(37, 4000, 37), *range(6000, 6100)])
    axes = ts.plot.coverage(ts.load({"t": kept, "y": np.zeros(len(kept))}, ["y"], time="t"))
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["complete", "some steps missing", "gap in time"]
    (drawn,) = [mesh.get_array() for mesh in axes.collections]
    assert drawn is not None
    counts = np.bincount(np.asarray(drawn).ravel(), minlength=5)
    assert 107 <= counts[3] <= 120
    assert counts[4] == 5


def test_the_oracle_can_fail() -> None:
    entities: list[Series] = [{0: False, 1: True, 2: False, 5: False, 6: False}]
    assert slow_coverage(entities, 500)[0] == [[1, 2, 1, 4, 4, 1, 1]]
    assert slow_coverage([{**entities[0], 1: False}], 500)[0] != [[1, 2, 1, 4, 4, 1, 1]]
    assert slow_coverage([{**entities[0], 3: False}], 500)[0] != [[1, 2, 1, 4, 4, 1, 1]]


def test_only_the_chosen_entities_are_looked_at() -> None:
    entities: list[Series] = [{0: False, 1: False}, {1: True, 2: False}, {2: False, 3: True}]
    states, _ = covered(load(entities), np.array([2, 0]))
    assert states.tolist() == [[0, 0, 1, 2], [1, 1, 0, 0]]


def test_without_time_the_bins_count_the_rows_of_each_entity() -> None:
    stash = ts.load({"k": ["a", "b", "b", "b"], "y": [1.0, 2.0, float("nan"), 4.0]}, ["y"], entity="k")
    states, edges = covered(stash, np.arange(2))
    assert states.tolist() == [[1, 0, 0], [1, 2, 1]]
    assert edges.tolist() == [0, 1, 2, 3]


def test_edges_are_exact_over_centuries_of_nanoseconds() -> None:
    days = np.arange("1750-01-01", "2200-01-01", dtype="datetime64[D]").astype("datetime64[ns]")
    states, edges = covered(ts.load({"t": days, "y": np.zeros(len(days))}, ["y"], time="t"), np.array([0]))
    low, length = int(days[0].astype(np.int64)), len(days) * 86_400 * 10**9
    assert edges.tolist() == [low + k * length // 500 for k in range(501)]
    assert states.tolist() == [[1] * 500]


def test_a_missing_month_is_a_gap_and_months_of_unequal_length_are_none() -> None:
    months = np.arange("2020-01", "2024-01", dtype="datetime64[M]")
    whole = ts.load({"t": months.astype("datetime64[s]"), "y": np.zeros(48)}, ["y"], time="t")
    assert set(covered(whole, np.array([0]))[0][0].tolist()) == {1}
    kept = np.delete(months, 30).astype("datetime64[s]")
    states, edges = covered(ts.load({"t": kept, "y": np.zeros(47)}, ["y"], time="t"), np.array([0]))
    gap = np.flatnonzero(states[0] > 2)
    assert len(states[0]) == (kept[-1] - kept[0]) // np.timedelta64(28, "D") + 1
    assert {4} <= set(states[0].tolist()) <= {1, 3, 4}
    assert kept[29].astype(np.int64) < edges[gap[0] + 1]
    assert edges[gap[-1]] < kept[30].astype(np.int64)


def test_what_is_drawn_is_the_coverage_on_the_given_axes_with_names_and_units() -> None:
    hours = np.array(["2024-01-01T00", "2024-01-01T01", "2024-01-01T03"], "datetime64[ms]")
    frame = pl.DataFrame({"station": ["x", "x", "y"], "hour": hours, "y": [1.0, None, 2.0]})
    stash = ts.load(frame.with_columns(pl.col("hour").dt.replace_time_zone("UTC")), entity="station", time="hour")
    given_axes = Figure().subplots()
    axes = ts.plot.coverage(stash, axes=given_axes)
    assert axes is given_axes
    (mesh,) = axes.collections
    drawn = mesh.get_array()
    assert drawn is not None
    np.testing.assert_array_equal(drawn, covered(stash, np.arange(2))[0])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["x", "y"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("hour (UTC)", "station")
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["no rows", "complete", "a value missing"]


def test_only_the_columns_asked_for_are_looked_at() -> None:
    stash = ts.load({"t": [1, 2], "y": [1.0, np.nan], "z": [1.0, 2.0]}, time="t")
    for columns, states in ((["z"], [1, 1]), (["y"], [1, 2]), (None, [1, 2])):
        (mesh,) = ts.plot.coverage(stash, columns=columns).collections
        assert np.asarray(mesh.get_array()).ravel().tolist() == states
    with pytest.raises(ts.errors.ColumnError, match="no column 'u'"):
        ts.plot.coverage(stash, columns=["u"])


def test_a_column_that_is_mostly_missing_does_not_mark_everything() -> None:
    nan = np.nan
    frame = {"t": range(4), "y": [1.0, nan, 1.0, 1.0], "gust": [nan, nan, nan, 1.0], "half": [nan, nan, 1.0, 1.0]}
    for columns, states, text in (
        (["t", "y", "gust"], [1, 2, 1, 1], "a value missing\n(not of 1 sparse column)"),
        (["t", "y", "gust", "half"], [2, 2, 1, 1], "a value missing\n(not of 1 sparse column)"),
        (["t", "gust"], [2, 2, 2, 1], "a value missing"),
    ):
        axes = ts.plot.coverage(ts.load({name: frame[name] for name in columns}, time="t"))
        assert np.asarray(axes.collections[0].get_array()).ravel().tolist() == states
        legend = axes.get_legend()
        assert legend is not None
        assert [label.get_text() for label in legend.get_texts()] == ["complete", text]
    wide = {"t": range(3), "y": np.zeros(3)} | {f"sparse {k}": [nan, nan, 1.0] for k in range(4)}
    legend = ts.plot.coverage(ts.load(wide | {"y": [0.0, nan, 0.0]}, time="t")).get_legend()
    assert legend is not None
    assert legend.get_texts()[-1].get_text() == "a value missing\n(not of 4 sparse columns)"


def test_a_legend_does_not_lie_on_a_title_that_is_set_afterwards() -> None:
    stash = load([{0: False, 1: True, 5: False}, {2: False, 3: False}])
    for axes in (ts.plot.coverage(stash), ts.plot.windows(ts.Windows(stash, history=1, columns=["ok"]))):
        axes.set_title("plant 1")
        axes.figure.canvas.draw()
        legend = axes.get_legend()
        assert legend is not None
        assert not legend.get_window_extent().overlaps(axes.title.get_window_extent())


def test_axes_are_labelled_without_names_to_take() -> None:
    axes = ts.plot.coverage(ts.load({"y": np.zeros(3)}))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["all rows"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("row of the entity", "")


def test_of_many_entities_200_at_equal_distances_are_drawn_and_the_label_says_so() -> None:
    lengths = np.arange(1, 400)
    stash = ts.load({"k": np.repeat(lengths, lengths), "y": np.zeros(lengths.sum())}, ["y"], entity="k")
    axes = ts.plot.coverage(stash)
    drawn = axes.collections[0].get_array()
    assert drawn is not None
    np.testing.assert_array_equal(drawn.sum(1), np.arange(1, 400, 2))
    assert axes.get_ylabel() == "k, 200 of 399"


def test_a_stash_without_rows_is_an_empty_picture() -> None:
    frame = pl.DataFrame(schema={"k": pl.String, "t": pl.Datetime("us"), "y": pl.Float32})
    axes = ts.plot.coverage(ts.load(frame, entity="k", time="t"))
    assert axes.get_ylabel() == "k"


def test_without_matplotlib_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(
        ImportError, match=r"^ts.plot.coverage draws with matplotlib: pip install 'tensorstash\[plot\]'\.$"
    ):
        ts.plot.coverage(ts.load({"y": [1.0]}))


# Series

Points = list[tuple[int, float, bool]]  # time, value, whether time steps are missing before it


@st.composite
def points(draw: st.DrawFn) -> Points:
    times = np.cumsum(draw(st.lists(st.integers(1, 9), min_size=1, max_size=60))).tolist()
    values = st.integers(-5, 5).map(float) | st.sampled_from([math.nan, math.inf])
    return [(time, draw(values), draw(st.integers(0, 5)) == 0) for time in times]


def slow_pieces(series: Points) -> list[list[tuple[int, float]]]:
    """The stretches of values without a gap or a missing value."""
    pieces: list[list[tuple[int, float]]] = []
    goes_on = False
    for time, value, gap in series:
        if not math.isfinite(value):
            goes_on = False
            continue
        if gap or not goes_on:
            pieces.append([])
        pieces[-1].append((time, value))
        goes_on = True
    return pieces


def drawn_pieces(times: NDArray[np.int64], values: NDArray[np.float64]) -> list[list[tuple[int, float]]]:
    pieces: list[list[tuple[int, float]]] = [[]]
    for time, value in zip(times.tolist(), values.tolist()):
        if math.isnan(value):
            assert pieces[-1][-1][0] == time  # steps must not be drawn on beyond the last value
            pieces.append([])
        else:
            pieces[-1].append((time, value))
    return pieces if pieces[0] else []


@settings(max_examples=300)
@given(points())
def test_a_line_is_open_at_gaps(series: Points) -> None:
    times, values, gaps = (np.array(column) for column in zip(*series))
    at, drawn, alone = _line(times, values, gaps)
    pieces = slow_pieces(series)
    assert drawn_pieces(at, drawn) == pieces
    lonely = [piece[0] for piece in pieces if len(piece) == 1]
    assert [*zip(at[alone].tolist(), drawn[alone].tolist())] == lonely


def test_the_oracle_of_lines_can_fail() -> None:
    nan = math.nan
    series = [(0, 1.0, True), (1, 2.0, False), (2, nan, False), (3, 4.0, False), (9, 5.0, True)]
    assert slow_pieces(series) == [[(0, 1.0), (1, 2.0)], [(3, 4.0)], [(9, 5.0)]]


def hourly() -> ts.Stash:
    hours = np.array([f"2024-01-01T{hour:02}" for hour in (0, 1, 2, 4, 5)] * 2, "datetime64[ms]")
    frame = pl.DataFrame(
        {
            "station": ["north"] * 5 + ["south"] * 5,
            "hour": hours,
            "temp": [0.0, 1.0, 2.0, 3.0, 4.0, 10.0, 11.0, None, 13.0, 14.0],
            "wind": [float(k) for k in range(10)],
            "sky": ["clear", "rain", "hail", "rain", None] * 2,
            "dry": [True, False] * 5,
        }
    )
    columns: dict[str, Any] = {
        "x": ["temp", "wind"],
        "temp": "temp",
        "sky": ts.column("sky", vocabulary=["rain", "clear"]),
        "bucket": ts.hashed("sky", 5),
        "dry": "dry",
    }
    zoned = frame.with_columns(pl.col("hour").dt.replace_time_zone("America/New_York"))
    return ts.load(zoned, columns, entity="station", time="hour")


def heights(line: Line2D) -> list[float]:
    return np.asarray(line.get_ydata()).tolist()


def test_each_column_has_axes_and_each_number_of_a_pack_a_line() -> None:
    stash = hourly()
    every = ts.plot.series(stash, "south", ["temp", "x", "sky", "bucket", "dry"])
    assert len(every) == 5
    assert all(one.figure is every[0].figure for one in every)
    assert [one.get_ylabel() for one in every] == ["temp", "x", "sky", "bucket", "dry"]
    assert (every[0].get_title("left"), every[-1].get_xlabel()) == ("station south", "hour (America/New_York)")
    lines, dots = every[0].lines[::2], every[0].lines[1::2]
    base = np.datetime64("2024-01-01T05", "ms")  # midnight in New York
    hour = np.timedelta64(1, "h")
    (line,) = lines
    at, drawn = (np.asarray(part) for part in line.get_data(orig=True))
    np.testing.assert_array_equal(at, [base, base + hour, base + hour, base + 4 * hour, base + 5 * hour])
    np.testing.assert_array_equal(drawn, [10.0, 11.0, np.nan, 13.0, 14.0])
    assert [heights(dot) for dot in dots] == [[]]
    legend = every[1].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["temp", "wind"]
    assert [text.get_text() for text in every[2].get_yticklabels()] == ["rain", "clear", "(unknown)"]
    sky = every[2].lines[0]
    assert sky.get_drawstyle() == every[4].lines[0].get_drawstyle() == "steps-post"
    np.testing.assert_array_equal(sky.get_ydata(), [1, 0, 2, np.nan, 0])
    assert [heights(dot) for dot in every[2].lines[1::2]] == [[0]]
    assert len({line.get_color() for line in every[1].lines[::2]}) == 2


def test_several_entities_are_lines_of_one_axes() -> None:
    stash = ts.load({"e": ["a", "a", "b", "b"], "t": [1, 2, 1, 2], "y": np.arange(4.0)}, ["y"], entity="e", time="t")
    (axes,) = ts.plot.series(stash, ["a", "b"], ["y"])
    assert [heights(line) for line in axes.lines[::2]] == [[0, 1], [2, 3]]
    assert [line.get_label() for line in axes.lines[::2]] == ["a", "b"]
    assert len({line.get_color() for line in axes.lines[::2]}) == 2
    assert axes.get_title("left") == "e"


def test_many_lines_differ_in_colour_or_dashes() -> None:
    values = np.arange(24.0).reshape(3, 8)
    (axes,) = ts.plot.series(ts.load({"t": [1, 2, 3], "l": values}, ["l"], time="t"), None, ["l"])
    lines = axes.lines[::2]
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 8
    assert [line.get_label() for line in lines] == [*"01234567"]
    assert [heights(line) for line in lines] == values.T.tolist()


def test_only_the_times_asked_for_are_drawn_on_the_given_axes() -> None:
    stash = hourly()
    grid = Figure().subplots(2)
    found = ts.plot.series(
        stash, "north", ["temp", "dry"], start="2024-01-01 01:00", stop="2024-01-01 05:00", axes=[*grid]
    )
    assert found == [*grid]
    assert [value for value in heights(found[0].lines[0]) if not math.isnan(value)] == [1, 2, 3]
    plain = ts.load({"y": [1.0, 2.0, 3.0]})
    (axes,) = ts.plot.series(plain, None, ["y"])
    assert (axes.get_xlabel(), axes.get_title("left")) == ("row of the entity", "")
    np.testing.assert_array_equal(axes.lines[0].get_data(), [[0, 1, 2], [1, 2, 3]])
    (axes,) = ts.plot.series(ts.load({"t": [5, 6, 8], "y": [1, 2, 3]}, time="t"), None, ["y"], start=6, frequency=1)
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), [2, np.nan, 3])


def test_what_cannot_be_drawn_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    stash = hourly()
    timeless = ts.load({"y": [1.0]})
    revised = ts.load({"t": [1, 1], "k": [2, 3], "y": [0.0, 1.0]}, ["y"], time="t", known="k")
    cases: list[tuple[type[Exception], Callable[[], Any], str]] = [
        (
            ts.errors.ColumnError,
            lambda: ts.plot.series(stash, "nort", ["temp"]),
            "the stash has no entity 'nort'; did you mean 'north'?",
        ),
        (
            ts.errors.ColumnError,
            lambda: ts.plot.series(stash, "north", ["tmp"]),
            "the stash has no column 'tmp'; did you mean 'temp'?",
        ),
        (
            TypeError,
            lambda: ts.plot.series(stash, "north", "temp"),
            "columns ... got the text 'temp'",
        ),
        (
            ValueError,
            lambda: ts.plot.series(stash, "north", []),
            "columns ... got none",
        ),
        (
            ValueError,
            lambda: ts.plot.series(stash, "north", ["temp"], start="2025-01-01"),
            "start ... got 2025-01-01 to None ... 2024-01-01 00:00:00-05:00 to ",
        ),
        (
            ValueError,
            lambda: ts.plot.series(timeless, None, ["y"], stop=5),
            "start= and stop= need a time column; this stash has none. Load it with time=.",
        ),
        (
            ValueError,
            lambda: ts.plot.series(stash, "north", ["temp"], axes=[]),
            "one for each of 1 columns, got []",
        ),
        (
            ValueError,
            lambda: ts.plot.series(stash, "north", ["temp"], axes=5),  # type: ignore[arg-type]
            "one for each of 1 columns, got 5",
        ),
        (
            ValueError,
            lambda: ts.plot.series(revised, None, ["y"]),
            "versions of times, known by 'k'",
        ),
        (
            ValueError,
            lambda: ts.plot.coverage(revised),
            "versions of times, known by 'k'",
        ),
    ]
    for kind, call, message in cases:
        with pytest.raises(kind, match=like(message)):
            call()
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(
        ImportError, match=r"^ts.plot.series draws with matplotlib: pip install 'tensorstash\[plot\]'\.$"
    ):
        ts.plot.series(timeless, None, ["y"])
