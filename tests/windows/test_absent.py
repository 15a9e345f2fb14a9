"""Warnings of entities without a window, and of series that ended at different times."""

import re
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests.oracle_load import like

COUNTS = re.compile(r"^(\d+) of (\d+) entities have no window: ")
REQUIRE = re.compile(r"^require= leaves out (\d+)% .*: (\d+) of (\d+) are left\.")
REASON = re.compile(r"(?:: |; )([\d,]+) with (too few rows|gaps|missing values)[^;]*such as '(\w+)'")


def texts_of(make: Callable[[], object]) -> list[str]:
    """The warnings of a call, without those of gaps."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make()
    return [str(warning.message) for warning in caught if not str(warning.message).startswith("Gaps")]


def silent(make: Callable[[], ts.Windows]) -> Sequence[object]:
    """The windows of a call, or none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return make()  # type: ignore[return-value]
        except ts.errors.NoWindowError:
            return ()


def times(first: str, step: str, count: int) -> list[Any]:
    """Times at a constant step."""
    end = pl.Series([first]).str.to_datetime().dt.offset_by(f"{count - 1}{step}").item()
    return pl.datetime_range(pl.lit(first).str.to_datetime(), end, f"1{step}", eager=True).to_list()


def panel(series: dict[str, list[Any]]) -> ts.Stash:
    rows = {
        "e": [name for name, at in series.items() for _ in at],
        "t": [time for at in series.values() for time in at],
    }
    return ts.load(rows | {"y": np.arange(float(len(rows["e"])))}, ["y"], entity="e", time="t")


def test_series_of_another_step_are_named() -> None:
    series = {"hourly": times("2024-01-01", "h", 2000)} | {name: times("2024-01-01", "d", 60) for name in ("a", "b")}
    message = (
        "2 of 3 entities have no window: 2 with gaps or another step of time than '1h' (load them separately, or see "
        "frequency= and gaps=), such as 'a'."
    )
    with pytest.warns(UserWarning, match=like(message)):
        windows = ts.Windows(panel(series), 24)
    assert windows.per_entity()["count"].tolist() == [0, 0, 1977]


def test_series_that_are_too_short_are_named() -> None:
    series = {f"s{k:02}": [*range(100 if k in (3, 30) else 7)] for k in range(52)}
    message = "50 of 52 entities have no window: 50 with too few rows, of which windows need 10 ... such as 's00'."
    with pytest.warns(UserWarning, match=like(message)):
        ts.Windows(panel(series), 8, 2)
    assert texts_of(lambda: ts.Windows(panel(series), 8, 2, min_history=5)) == []


def test_series_that_require_leaves_out_are_named() -> None:
    data = {"e": [*"aa"] * 10 + [*"bb"], "y": [1.0, 2.0] * 10 + [None, 3.0]}
    stash = ts.load(data, ["y"], entity="e")
    message = "1 of 2 entities have no window: 1 with missing values that require= does not allow, such as 'b'"
    with pytest.warns(UserWarning, match=like(message)):
        ts.Windows(stash, 2, require=["y"])
    assert texts_of(lambda: ts.Windows(stash, 2)) == []


def test_windows_that_require_leaves_out_are_counted_if_they_are_many() -> None:
    """More than a tenth, as of gaps; entities without a window have a warning of their own."""
    data = {"e": [*"a"] * 20 + [*"bb"], "y": [1.0] * 20 + [None, 3.0], "x": [None] * 2 + [1.0] * 20}
    stash = ts.load(data, ["y", "x"], entity="e")
    message = (
        "require= leaves out 15% of the windows ... empty slots: 17 of 20 are left. 'x' alone costs 2. "
        "Shorter windows lose fewer"
    )
    told, absent = texts_of(lambda: ts.Windows(stash, 2, require=["y", "x"]))
    assert re.search(like(message), told)
    assert absent.startswith("1 of 2 entities have no window: 1 with missing values")
    assert texts_of(lambda: ts.Windows(stash, 2, require=["x"])) == [], "a tenth is not more than a tenth"
    told, _ = texts_of(lambda: ts.Windows(stash, 2, min_history=1, require=["y"]))
    assert re.search(like("missing values or empty slots: 19 of 22 are left. Shorter"), told)
    assert texts_of(lambda: ts.Windows(stash, 2, where=np.arange(22) < 5)) == []


def test_the_warning_of_gaps_counts_windows_and_another_one_entities() -> None:
    stash = panel({"a": [*range(10)], "b": [*range(0, 20, 2)], "c": [1]})
    with pytest.warns(UserWarning, match="Gaps cost 50%"):
        ts.Windows(stash, 5)
    (absent,) = texts_of(lambda: ts.Windows(stash, 5))
    assert absent.startswith("2 of 3 entities have no window: 1 with too few rows, of which windows need 5 ")
    assert "), such as 'c'; 1 with gaps or another step of time than '1' " in absent
    assert absent.endswith("such as 'b'.")


def test_parts_and_filters_do_not_warn() -> None:
    stash = panel({"a": [*range(10)], "b": [*range(20, 30)]})
    assert texts_of(lambda: ts.Windows(stash, 3).split(15)) == []
    assert texts_of(lambda: ts.Windows(stash, 3, where=np.arange(20) < 5)) == []


@settings(max_examples=40)
@given(st.data())
def test_each_entity_without_a_window_counts_for_one_reason(data: st.DataObject) -> None:
    series = st.tuples(st.integers(1, 9), st.sampled_from([1, 1, 1, 3]), st.integers(0, 2))
    chosen = data.draw(st.lists(series, min_size=1, max_size=8))
    options: dict[str, Any] = data.draw(
        st.sampled_from([{}, {"gaps": "mask"}, {"min_history": 1}, {"min_horizon": 0}, {"gaps": "ignore"}])
    )
    names = [f"s{k}" for k in range(len(chosen))]
    rows = [
        (name, step * k, None if holes and k % holes == 0 else 1.0)
        for name, (count, step, holes) in zip(names, chosen)
        for k in range(count)
    ]
    frame = pl.DataFrame(rows, ["e", "t", "y"], orient="row", schema_overrides={"y": pl.Float64})
    stash = ts.load(frame, entity="e", time="t")
    require = data.draw(st.sampled_from([None, ["y"]]))
    if options.get("gaps") != "ignore":
        options = options | {"frequency": 1}
    made: list[ts.Windows] = []
    whole = len(silent(lambda: ts.Windows(stash, 3, 2, **options)))
    try:
        told = texts_of(lambda: made.append(ts.Windows(stash, 3, 2, require=require, **options)))
    except ts.errors.NoWindowError:
        return
    counts = made[0].per_entity()["count"].tolist()
    more = {"min_history": 2, "min_horizon": 2}.get(next(iter(options)), 0)  # slots outside the run
    between = 2 if options.get("gaps") == "mask" else 0  # empty slots after each row
    short = {
        name
        for name, (count, step, _), windows in zip(names, chosen, counts)
        if not windows and count + (count - 1) * between * (step == 3) + more < 5
    }
    absent = {name for name, windows in zip(names, counts) if not windows}
    of_require = [text for text in told if text.startswith("require=")]
    told = [text for text in told if text not in of_require]
    reasons = {kind: (int(number), name) for text in told for number, kind, name in REASON.findall(text)}
    assert bool(of_require) == (10 * len(made[0]) < 9 * whole)
    for text in of_require:
        assert [*map(int, REQUIRE.findall(text)[0][1:])] == [len(made[0]), whole]
    assert len(told) <= 1
    assert sum(number for number, _ in reasons.values()) == len(absent)
    assert all(name in absent for _, name in reasons.values())
    if "too few rows" in reasons:
        assert reasons["too few rows"] == (len(short), min(short))
    else:
        assert not short
    for text in told:
        total, _ = map(int, COUNTS.findall(text)[0])
        assert total == len(absent)


def test_latest_windows_that_end_earlier_are_named() -> None:
    stash = panel({"a": [*range(10)], "b": [*range(6)], "c": [*range(8)]})
    windows = ts.Windows(stash, 3, 1)
    message = "2 of 3 series end before 9, the last time of all; 'b' ends first, at 5."
    with pytest.warns(UserWarning, match=like(message)):
        windows.latest()
    assert texts_of(ts.Windows(panel({"a": [*range(10)], "b": [*range(4, 10)]}), 3, 1).latest) == []


def test_the_last_value_of_a_column_decides_whether_latest_windows_end_together() -> None:
    data = {"e": [*"aaaabbbb"], "t": [*range(4)] * 2, "y": [1.0, 2.0, None, None] * 2}
    assert texts_of(lambda: ts.Windows(ts.load(data, ["y"], entity="e", time="t"), 2, 1).latest("y")) == []
    data["y"] = [1.0, 2.0, 3.0, None, 1.0, 2.0, None, None]
    with pytest.warns(UserWarning, match=like("1 of 2 series end before 2 ... 'b' ends first, at 1.")):
        ts.Windows(ts.load(data, ["y"], entity="e", time="t"), 2, 1).latest("y")


def test_events_end_at_different_times() -> None:
    stash = panel({"a": [1, 5, 6], "b": [2, 9, 30]})
    newest = ts.Windows(stash, 2, 1, gaps="ignore").latest()
    with pytest.raises(ValueError, match=like("The time of a slot without a row ... Windows without a horizon go by")):
        newest.anchors([0, 1])
    assert newest.to_frame([0, 1], torch.zeros(2, 1)).rows() == [("a", None, 0.0), ("b", None, 0.0)]
    history = ts.Windows(stash, 2, gaps="ignore").latest()
    assert history.anchors([0, 1])["time"].tolist() == [6, 30]
    assert history.to_frame([0], torch.zeros(1, 2))["t"].to_list() == [5, 6]


def test_counting_reasons_can_fail() -> None:
    assert Counter(REASON.findall("2 of 3 entities have no window: 2 with gaps or a step, such as 'a' with 3.")) == {
        ("2", "gaps", "a"): 1
    }
