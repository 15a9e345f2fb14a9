"""Columns of the calendar in spans in time: an empty slot has no time, and shows none."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts

FORMS = {
    "hour": ts.calendar("hour"),
    "year": ts.calendar("hour", "dayofyear"),  # int16
    "phase": ts.calendar("hour", cyclic=True),
    "scaled": ts.calendar("hour", "dayofweek", scaled=True),
}


def stash_of(hours: list[int], dtype: torch.dtype | None = None) -> ts.Stash:
    times = np.datetime64("2024-01-01", "s") + np.sort(np.array(hours)) * np.timedelta64(3600, "s")
    return ts.load({"t": times, "y": np.arange(float(len(hours)))}, {"y": "y", **FORMS}, time="t", dtype=dtype)


def slow(stash: ts.Stash, name: str, begin: int, most: int) -> list[list[list[float]]]:
    """Of each row the values of the newest rows of the hours (t + begin, t], with NaN or -1 in front, one by one."""
    assert stash.time is not None
    column, times = stash[name], [int(time) // 3600 for time in stash.time]
    nothing = [math.nan if column.is_floating_point() else -1] * column.shape[1]
    found = []
    for t in times:
        rows = [row for row, time in enumerate(times) if t + begin < time <= t][-most:]
        found.append([nothing] * (most - len(rows)) + [column[row].tolist() for row in rows])
    return found


def same(found: torch.Tensor, expected: list[list[list[float]]]) -> bool:
    return torch.equal(found.nan_to_num(-9), torch.tensor(expected, dtype=found.dtype).nan_to_num(-9))


@settings(max_examples=40)
@given(
    st.lists(st.integers(0, 200), min_size=1, max_size=12, unique=True),
    st.integers(1, 60),
    st.integers(1, 5),
    st.sampled_from([None, torch.float16, torch.float64]),
)
def test_an_empty_slot_is_nan_or_minus_one(hours: list[int], back: int, most: int, dtype: torch.dtype | None) -> None:
    stash = stash_of(hours, dtype)
    spans = {name: ts.During(name, f"-{back}h", "0h", max_rows=most) for name in FORMS}
    windows = ts.Windows(stash, spans=spans)
    (batch,) = ts.Loader(windows, len(windows))
    (resident,) = ts.Loader(windows, len(windows), device="cpu", resident=True)
    for name in FORMS:
        expected = slow(stash, name, -back, most)
        assert all(same(found[name], expected) for found in (windows[:], batch, resident))


def test_the_oracle_can_fail() -> None:
    stash = stash_of([0, 1])
    assert slow(stash, "hour", -5, 2) == [[[-1], [0]], [[0], [1]]]
    assert not same(torch.tensor([[[0], [0]], [[0], [1]]], dtype=torch.int8), slow(stash, "hour", -5, 2))


@pytest.mark.parametrize("name", [*FORMS])
def test_a_window_without_a_row_shows_no_time(name: str) -> None:
    stash = stash_of([0, 1])
    at = {"t": np.array(["2023-12-31"], "datetime64[s]")}
    (window,) = ts.Windows(stash, spans={"past": ts.During(name, "-5h", "0h", max_rows=3)}, at=at)[:]["past"]
    assert torch.isnan(window).all() if window.is_floating_point() else (window == -1).all()
