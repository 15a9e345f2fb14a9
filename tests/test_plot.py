"""The picture of coverage: every state against a loop over single ticks of time, and what is drawn of it."""

import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from unittest import mock

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

import tensorstash as ts
from tensorstash import plot

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


def slow_coverage(entities: list[Series], most_bins: int) -> tuple[list[list[int]], list[int]]:
    """The state of every single tick, and of a bin the gravest of its ticks."""
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
                ticks.update(dict.fromkeys(range(before + step, after), 3))
            elif after - before < step:
                ticks[after] = 3
        states.append([max(ticks[tick] for tick in range(*ends)) for ends in pairwise(edges)])
    return states, edges


series_of_any_shape = st.integers(1, 5).flatmap(
    lambda step: st.dictionaries(
        st.integers(0, 20).map(lambda k: k * step) | st.integers(0, 60), st.booleans(), min_size=1
    )
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(series_of_any_shape, min_size=1, max_size=4),
    st.sampled_from([1, 3, 7, 500]),
    st.sampled_from(["number", "text", "pack"]),
)
def test_a_bin_shows_the_gravest_of_its_ticks(entities: list[Series], most_bins: int, kind: str) -> None:
    with mock.patch.object(plot, "_BINS", most_bins):
        states, edges = plot.coverage(load(entities, kind), np.arange(len(entities)))
    assert (states.tolist(), edges.tolist()) == slow_coverage(entities, most_bins)


def test_the_oracle_can_fail() -> None:
    entities: list[Series] = [{0: False, 1: True, 2: False, 5: False, 6: False}]
    assert slow_coverage(entities, 500)[0] == [[1, 2, 1, 3, 3, 1, 1]]
    assert slow_coverage([{**entities[0], 1: False}], 500)[0] != [[1, 2, 1, 3, 3, 1, 1]]
    assert slow_coverage([{**entities[0], 3: False}], 500)[0] != [[1, 2, 1, 3, 3, 1, 1]]


def test_only_the_chosen_entities_are_looked_at() -> None:
    entities: list[Series] = [{0: False, 1: False}, {1: True, 2: False}, {2: False, 3: True}]
    states, _ = plot.coverage(load(entities), np.array([2, 0]))
    assert states.tolist() == [[0, 0, 1, 2], [1, 1, 0, 0]]


def test_without_time_the_bins_count_the_rows_of_each_entity() -> None:
    stash = ts.load({"k": ["a", "b", "b", "b"], "y": [1.0, 2.0, float("nan"), 4.0]}, ["y"], entity="k")
    states, edges = plot.coverage(stash, np.arange(2))
    assert states.tolist() == [[1, 0, 0], [1, 2, 1]]
    assert edges.tolist() == [0, 1, 2, 3]


def test_edges_are_exact_over_centuries_of_nanoseconds() -> None:
    days = np.arange("1750-01-01", "2200-01-01", dtype="datetime64[D]").astype("datetime64[ns]")
    states, edges = plot.coverage(ts.load({"t": days, "y": np.zeros(len(days))}, ["y"], time="t"), np.array([0]))
    low, length = int(days[0].astype(np.int64)), len(days) * 86_400 * 10**9
    assert edges.tolist() == [low + k * length // 500 for k in range(501)]
    assert states.tolist() == [[1] * 500]


def test_a_missing_month_is_a_gap_and_months_of_unequal_length_are_none() -> None:
    months = np.arange("2020-01", "2024-01", dtype="datetime64[M]")
    whole = ts.load({"t": months.astype("datetime64[s]"), "y": np.zeros(48)}, ["y"], time="t")
    assert set(plot.coverage(whole, np.array([0]))[0][0].tolist()) == {1}
    kept = np.delete(months, 30).astype("datetime64[s]")
    states, edges = plot.coverage(ts.load({"t": kept, "y": np.zeros(47)}, ["y"], time="t"), np.array([0]))
    gap = np.flatnonzero(states[0] == 3)
    assert len(states[0]) == (kept[-1] - kept[0]) // np.timedelta64(28, "D") + 1
    assert set(states[0].tolist()) == {1, 3}
    assert kept[29].astype(np.int64) < edges[gap[0] + 1]
    assert edges[gap[-1]] < kept[30].astype(np.int64)


def test_what_is_drawn_is_the_coverage_on_the_given_axes_with_names_and_units() -> None:
    hours = np.array(["2024-01-01T00", "2024-01-01T01", "2024-01-01T03"], "datetime64[ms]")
    frame = pl.DataFrame({"station": ["x", "x", "y"], "hour": hours, "y": [1.0, None, 2.0]})
    stash = ts.load(frame.with_columns(pl.col("hour").dt.replace_time_zone("UTC")), entity="station", time="hour")
    given_axes = Figure().subplots()
    axes = ts.plot_coverage(stash, axes=given_axes)
    assert axes is given_axes
    (mesh,) = axes.collections
    drawn = mesh.get_array()
    assert drawn is not None
    np.testing.assert_array_equal(drawn, plot.coverage(stash, np.arange(2))[0])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["x", "y"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("hour (UTC)", "station")
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        "no rows",
        "complete",
        "any value missing",
        "gap in time",
    ]


def test_axes_are_labelled_without_names_to_take() -> None:
    axes = ts.plot_coverage(ts.load({"y": np.zeros(3)}))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("row of the entity", "entity")


def test_of_many_entities_200_at_equal_distances_are_drawn_and_the_label_says_so() -> None:
    lengths = np.arange(1, 400)
    stash = ts.load({"k": np.repeat(lengths, lengths), "y": np.zeros(lengths.sum())}, ["y"], entity="k")
    axes = ts.plot_coverage(stash)
    drawn = axes.collections[0].get_array()
    assert drawn is not None
    np.testing.assert_array_equal(drawn.sum(1), np.arange(1, 400, 2))
    assert axes.get_ylabel() == "k, 200 of 399"


def test_a_stash_without_rows_is_an_empty_picture() -> None:
    frame = pl.DataFrame(schema={"k": pl.String, "t": pl.Datetime("us"), "y": pl.Float32})
    axes = ts.plot_coverage(ts.load(frame, entity="k", time="t"))
    assert axes.get_ylabel() == "k"


def test_without_matplotlib_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(
        ImportError, match=r"^plot_coverage draws with matplotlib: pip install 'tensorstash\[plot\]'\.$"
    ):
        ts.plot_coverage(ts.load({"y": [1.0]}))
