"""Windows that cannot be: wrong arguments, unknown columns, and data in which no window fits."""

from typing import Any

import numpy as np
import pytest

import tensorstash as ts
from tests.data import Table
from tests.oracle_load import like


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "A window needs a length: give history= (and horizon=), or spans=."),
        ({"history": 0}, "history ... got 0"),
        ({"history": 2, "horizon": -1}, "horizon ... got -1"),
        ({"history": 2, "horizon": 1.0}, "horizon ... got 1.0"),
        (
            {"spans": {"a": ("f32", -1, True)}},
            "A span must be ... got ('f32', -1, True) for 'a'",
        ),
        ({"history": 2, "stride": 0}, "stride ... got 0"),
        ({"history": 2, "columns": []}, "A window must have at least one span"),
        ({"history": 2, "gaps": "fill"}, "gaps ... got 'fill'"),
        (
            {"history": 2, "spans": {"a": ("f32", 0, 1)}},
            "spans must be given without history, horizon and columns",
        ),
        (
            {"spans": {"a": ("f32", 0)}},
            "A span must be ... got ('f32', 0) for 'a'",
        ),
        ({"spans": {"a": ("f32", 3, 1)}}, "start < stop and step >= 1, got ('f32', 3, 1) for 'a'"),
        ({"spans": {"a": ("f32", 0, 1, 0)}}, "start < stop and step >= 1, got ('f32', 0, 1, 0) for 'a'"),
        (
            {"history": 2, "frequency": "1h"},
            "frequency ... got '1h'",
        ),
        (
            {"history": 2, "gaps": "ignore", "frequency": 1},
            "frequency and tolerance must be left out with gaps='ignore'",
        ),
    ],
)
def test_wrong_arguments_say_the_rule_and_the_offender(arguments: dict[str, Any], message: str) -> None:
    stash = Table([6], range(6)).stash()
    with pytest.raises(ValueError, match=like(message)):
        ts.Windows(stash, **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"history": 2, "columns": "f32"}, "columns ... got the text 'f32'"),
        ({"history": 2, "require": "f32"}, "require ... got the text 'f32'"),
        ({"spans": [("f32", 0, 1)]}, "spans ... got a list"),
    ],
)
def test_a_text_is_no_list_of_names_and_a_list_no_mapping(arguments: dict[str, Any], message: str) -> None:
    stash = Table([6], range(6)).stash()
    with pytest.raises(TypeError, match=like(message)):
        ts.Windows(stash, **arguments)


def test_an_unknown_column_comes_with_the_nearest_names() -> None:
    stash = Table([6], range(6)).stash()
    with pytest.raises(
        ts.errors.ColumnError, match=like("the stash has no column 'f31'; did you mean 'f32' or 'f16' or 'bf16'?")
    ):
        ts.Windows(stash, 2, columns=["f31"])


def test_a_reserved_span_name_is_refused() -> None:
    stash = Table([6], range(6)).stash()
    with pytest.raises(
        ts.errors.SchemaError,
        match=like(
            "The names anchor, entity, reset, valid, window, names with a dot and names that begin with '__' are "
            "reserved; a span is named 'valid'. Give it another name"
        ),
    ):
        ts.Windows(stash, spans={"valid": ("f32", 0, 1)})


def test_no_valid_window_tells_the_longest_run_and_the_length_needed() -> None:
    stash = Table([5], [0, 1, 2, 5, 6]).stash()
    with pytest.raises(
        ts.errors.DataError,
        match=like(
            "Windows need 4 consecutive rows; the longest of 2 runs has 3 at frequency '1'; the most common "
            "other steps are 3 (1 times). Shorten history or horizon, give min_history=, or see frequency= and gaps=."
        ),
    ):
        ts.Windows(stash, 4)


def test_requiring_what_is_always_missing_says_so() -> None:
    stash = ts.load({"y": np.full(4, np.nan)})
    with pytest.raises(
        ts.errors.DataError,
        match=like("require ... each of the 3 windows has too many in 'y'"),
    ):
        ts.Windows(stash, 2, require=["y"])


def test_an_empty_stash_has_no_window() -> None:
    stash = ts.load({"y": np.empty(0)})
    with pytest.raises(ts.errors.DataError, match=like("the longest of 0 runs has 0. Shorten history")):
        ts.Windows(stash, 1)


def test_costly_gaps_warn_with_the_steps_and_the_remedies() -> None:
    days = np.array(["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04", "2024-01-05", "2024-01-08", "2024-01-09"])
    stash = ts.load({"day": days.astype("datetime64[D]"), "y": np.arange(7.0)}, ["y"], time="day")
    with pytest.warns(
        UserWarning,
        match=like("the most common other steps are 3d (1 times)"),
    ):
        ts.Windows(stash, 3)
    assert len(ts.Windows(stash, 3, frequency="1bd")) == 5


def test_what_is_no_stash_or_span_is_said() -> None:
    stash = ts.load({"y": np.arange(9.0)})
    remedy = r"For data of several machines, use ts\.cluster\.windows\(\.\.\.\)\."
    with pytest.raises(TypeError, match=rf"got a str\. {remedy}"):
        ts.Windows("stash", 3)  # type: ignore[arg-type]
    message = "A span must name one column, got ['y', 'y'] for 'a'"
    with pytest.raises(TypeError, match=like(message)):
        ts.Windows(stash, spans={"a": (["y", "y"], -1, 0)})
    message = "A span must be ... got None for 'a'"
    with pytest.raises(TypeError, match=like(message)):
        ts.Windows(stash, spans={"a": None})
    with pytest.raises(TypeError, match=r"got 1"):
        ts.Windows(stash, spans={1: ("y", -1, 0)})  # type: ignore[dict-item]
    with pytest.raises(ts.errors.SchemaError, match=r'Give it another name: spans=\{"new_name": \(\'y\', -1, 0\)\}\.$'):
        ts.Windows(stash, spans={"valid": ("y", -1, 0)})


def test_irregular_times_are_told_to_ignore_gaps() -> None:
    events = ts.load({"t": [0, 3, 4, 11, 18, 40, 41, 59], "y": np.arange(8.0)}, ["y"], time="t")
    with pytest.raises(
        ts.errors.NoWindowError, match="Times without a regular step, such as events, need gaps='ignore'"
    ):
        ts.Windows(events, 4)
    assert len(ts.Windows(events, 4, gaps="ignore")) == 5


def test_a_name_in_require_that_is_no_span_and_no_column_is_told_with_both() -> None:
    table = {"e": ["a", "b"], "y": [1.0, 2.0], "x": [1.0, 2.0], "size": [1.0, float("nan")]}
    stash = ts.load(table, ["y", "x"], entity="e", static=["size"])
    spans = {"past": ("y", -1, 0)}
    for name, hint in (("pst", "did you mean 'past'"), ("zzz", "it has 'past', 'y', 'x'"), ("size", "a static column")):
        with pytest.raises(ts.errors.ColumnError, match=f"the window has no span or column '{name}'.*{hint}"):
            ts.Windows(stash, spans=spans, require=[name])


@pytest.mark.parametrize(
    ("span", "past"), [(("y", 0, -48), -48), (("y", 96, 0), -96), (("y", 0, 0), -1), (("y", -8, 0, -1), -8)]
)
def test_a_span_that_ends_before_it_begins_is_told_how_the_past_is_written(span: Any, past: int) -> None:
    stash = ts.load({"y": np.ones(200)})
    with pytest.raises(ValueError, match=rf"start < stop and step >= 1, got .*, as in \('y', {past}, 0\)\."):
        ts.Windows(stash, spans={"past": span})
    assert ts.Windows(stash, spans={"past": ("y", past, 0)}).history == -past


def test_a_draw_from_the_shortest_past_is_told_to_begin_with_the_longest() -> None:
    stash = ts.load({"y": np.ones(200)})
    with pytest.raises(ValueError, match=r"low < high .* got Draw\(-16, -128\)\. .* slots is ts\.Draw\(-128, -16\)"):
        ts.Draw(-16, -128)
    with pytest.raises(ValueError, match=r"must lie before the stop .* as in ts\.Draw\(-128, -16\)"):
        ts.Windows(stash, spans={"past": ("y", ts.Draw(16, 128), 0)})
    assert ts.Windows(stash, spans={"past": ("y", ts.Draw(-128, -16), 0)}).history == 128


def test_a_window_that_is_too_long_is_told_with_the_slots_that_it_needs_and_what_lets_it_need_fewer() -> None:
    stash = ts.load({"t": np.arange(50), "y": np.ones(50)}, ["y"], time="t")
    message = "need 544 consecutive rows; the longest of 1 runs has 50 ... give min_history= or min_horizon="
    with pytest.raises(ts.errors.NoWindowError, match=like(message)):
        ts.Windows(stash, 512, 32)
    message = "need 64 consecutive slots; the longest of 1 runs has 50 ... lower min_history= or min_horizon="
    with pytest.raises(ts.errors.NoWindowError, match=like(message)):
        ts.Windows(stash, 512, 32, min_history=32)
    assert len(ts.Windows(stash, 512, 32, min_history=32, min_horizon=18)) == 1
    with pytest.raises(ts.errors.NoWindowError, match=r"give min_history=, or see frequency="):
        ts.Windows(stash, 512)
