"""Parts whose targets are mostly missing, as in rows that are known ahead, are warned of once, with what avoids it."""

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorstash as ts
from tensorstash.stash.missing import missing_rows
from tests.words import Int64s

ROWS, AHEAD = 400, 60
SPANS = {"past": ("y", -20, 0), "target": ("y", 0, 10), "known": ("c", 0, 10)}

Parts = Callable[[ts.Windows], Any]


def stash(entities: int = 1, missing: Int64s | None = None, column: Any = "y") -> ts.Stash:
    """Series whose last rows are known ahead: their target is missing."""
    times, values = np.tile(np.arange(ROWS), entities), np.ones(ROWS * entities)
    values[times >= ROWS - AHEAD if missing is None else missing] = np.nan
    columns = {"y": column, "c": "c", "ok": ts.is_valid("y")}
    rows = {"e": np.repeat(np.arange(entities), ROWS), "t": times, "y": values, "c": times * 1.0}
    return ts.load(rows, columns, entity="e", time="t")


def said(windows: ts.Windows, parts: Parts) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        parts(windows)
    assert {warning.filename for warning in caught} <= {__file__}
    return [str(warning.message) for warning in caught]


CASES: dict[str, tuple[Parts, str]] = {
    "split": (
        lambda windows: windows.split(300),
        r"Part 2 of 2 has 6\d% of the values of 'target' missing, before it 0%",
    ),
    "three parts": (lambda windows: windows.split(200, 330), r"Part 3 of 3 has 9\d%"),
    "two of three": (lambda windows: windows.split(325, 370), r"Part 3 of 3 has 100% .*; 1 more parts are such"),
    "fraction": (lambda windows: windows.split_fraction(0.8), r"Part 2 of 2 has 7\d%"),
    "folds": (lambda windows: windows.folds(4, 20), r"The test part of fold 3 of 4 has 100% .*; 2 more parts are such"),
    "a fold": (lambda windows: windows.folds(2, 40), r"The test part of fold 1 of 2 has 100% .*before it \d%, as"),
}


@pytest.mark.parametrize("entities", [1, 7])
@pytest.mark.parametrize("column", ["y", ts.column("y", fill=0.0)], ids=["NaN", "filled"])
@pytest.mark.parametrize("case", CASES)
def test_a_part_without_targets_is_named_once_with_what_avoids_it(case: str, column: Any, entities: int) -> None:
    parts, words = CASES[case]
    data = stash(entities, column=column)
    (text,) = said(ts.Windows(data, spans=SPANS), parts)
    assert re.match(words, text), text
    options = re.search(r"ts\.Windows\(\.\.\., (.*)\)\.$", text)
    assert options is not None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "require= leaves out")
        windows = eval(f"ts.Windows(data, spans=spans, {options[1]})", {"ts": ts, "data": data, "spans": SPANS})
        assert said(windows, parts) == [w for w in said(windows, parts) if "has no window" in w]
    assert not windows[:]["target"].isnan().any()


def test_points_name_their_argument_too() -> None:
    data, at = stash(), {"e": np.zeros(370, np.int64), "t": np.arange(20, 390)}
    (text,) = said(ts.Windows(data, spans=SPANS, at=at), lambda windows: windows.split(300))
    assert "require=['target'], unmatched='drop')" in text
    windows = ts.Windows(data, spans=SPANS, at=at, require=["target"], unmatched="drop")
    assert said(windows, lambda windows: windows.split(300)) == []


def test_empty_slots_of_a_horizon_count_as_missing() -> None:
    data = stash()
    padded = ts.Windows(data, spans=SPANS, min_horizon=1)
    (text,) = said(padded, lambda windows: windows.split(300))
    assert "'target'" in text


@pytest.mark.parametrize(
    "missing",
    [np.zeros(ROWS, bool), np.arange(ROWS) % 3 > 0, np.arange(ROWS) >= ROWS - 20, np.arange(ROWS) < 60],
    ids=["none", "everywhere", "few", "at the start"],
)
def test_other_missing_values_are_no_reason(missing: Any) -> None:
    windows = ts.Windows(stash(missing=missing), spans=SPANS)
    assert said(windows, lambda windows: windows.split(300)) == []
    assert said(windows, lambda windows: windows.folds(2, 40)) == []
    assert said(windows, lambda windows: windows.split()) == []


def test_windows_without_a_horizon_and_long_ones_are_not_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many windows and slots there are, at most 128 x 64 rows of a part are looked at."""
    data = stash(20)
    read: list[int] = []

    def counted(of: ts.Stash, name: str) -> Any:
        test = missing_rows(of, name)

        def noted(rows: Int64s) -> Any:
            read.append(len(rows))
            return test(rows) if test else None

        return None if test is None else noted

    monkeypatch.setattr("tensorstash.windows.known_ahead.missing_rows", counted)
    said(ts.Windows(data, history=20), lambda windows: windows.split(300))
    assert read == []
    said(ts.Windows(data, spans={"y": ("y", 0, 100)}), lambda windows: windows.split(200))
    assert read
    assert max(read) <= 128 * 64
    said(ts.Windows(data, spans={"p": ("y", -2, 0), "y": ("y", 0, 2**39)}, min_horizon=0), lambda w: w.split(200))
    assert max(read) <= 128 * 64
