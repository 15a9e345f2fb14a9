"""What stands in empty slots: computed calendar columns, `empty=` and `fill=`."""

from datetime import datetime
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests import oracle
from tests.oracle_load import like

pytestmark = pytest.mark.filterwarnings("ignore:Gaps (cost|make)")

CALENDAR = {
    "when": ts.calendar("hour", "dayofweek", "month"),
    "long": ts.calendar("dayofyear", "day"),
    "phase": ts.calendar("hour", "month", cyclic=True),
    "scaled": ts.calendar("dayofweek", "day", scaled=True),
}
SPANS = {name: (name, -4, 3) for name in CALENDAR} | {"y": ("y", -4, 3), "lag": ("when", -3, 3, 2)}


def regular(every: str, zone: str | None, count: int, start: datetime) -> pl.Series:
    first = pl.Series("t", [start]).dt.replace_time_zone(zone, ambiguous="earliest")
    return pl.concat([first.dt.offset_by(f"{k * int(every[:-1])}{every[-1]}") for k in range(count)])


@settings(max_examples=40)
@given(
    st.sampled_from(["1h", "6h", "1d"]),
    st.sampled_from([None, "Europe/Berlin", "America/New_York"]),
    st.sampled_from([datetime(2024, 3, 29), datetime(2023, 12, 30, 12), datetime(2024, 11, 1)]),
    st.sampled_from([torch.float32, torch.float16, torch.bfloat16, torch.float64]),
    st.sets(st.integers(0, 39), min_size=1, max_size=20),
    st.integers(0, 4),
    st.integers(0, 3),
)
def test_calendar_columns_are_those_of_the_whole_series(
    every: str,
    zone: str | None,
    start: datetime,
    dtype: torch.dtype,
    gone: set[int],
    least: int,
    least_horizon: int,
) -> None:
    """In gaps, in front of and behind the data: as if every row had been there."""
    whole = pl.DataFrame({"t": regular(every, zone, 60, start), "y": np.arange(60.0)})
    kept = whole[10:50].filter(~pl.col("y").is_in([10.0 + k for k in gone]))
    if kept["t"].diff().drop_nulls().len() < 2:
        return
    columns: dict[str, Any] = CALENDAR | {"y": "y"}
    stash, full = (ts.load(frame, columns, time="t", dtype=dtype) for frame in (kept, whole))
    arguments: dict[str, Any] = {"spans": SPANS, "gaps": "mask", "frequency": every}
    windows = ts.Windows(stash, **arguments, min_history=least, min_horizon=least_horizon)
    reference = ts.Windows(full, **arguments)

    times, wanted = windows.anchors(slice(None))["time"], reference.anchors(slice(None))["time"]
    ids = torch.searchsorted(wanted, times)
    assert wanted[ids].equal(times)
    found, expected = windows[:], reference[ids]
    for name in (*CALENDAR, "lag"):
        assert oracle.same(found[name], expected[name])
    observed = found["y.observed"]
    assert found["y"][observed].equal(expected["y"][observed])
    assert found["y"][~observed].isnan().all()
    batches = [*ts.Loader(windows, 7)]
    assert oracle.same(torch.cat([batch["phase"] for batch in batches]), found["phase"])


def test_without_a_step_of_time_calendar_columns_need_a_value() -> None:
    times = np.array(["2024-01-01", "2024-01-02", "2024-01-05"], "M8[D]")
    stash = ts.load({"t": times, "y": np.ones(3)}, {"day": ts.calendar("day"), "y": "y"}, time="t")
    with pytest.raises(
        ts.errors.SchemaError, match=r"^An empty slot has a time only if the step of time is known, and so 'day' of"
    ):
        ts.Windows(stash, 2, gaps="ignore", min_history=1)
    assert ts.Windows(stash, 2, 2, frequency="1d", gaps="mask").latest()[0]["day"].tolist() == [[4], [5], [6], [7]]


def test_the_calendar_of_a_stash_is_kept_in_its_file(tmp_path: Any) -> None:
    times = np.array(["2024-01-01", "2024-01-02", "2024-01-03"], "M8[D]")
    stash = ts.load({"t": times}, {"day": ts.calendar("day", cyclic=True)}, time="t")
    stash.save(tmp_path / "s.safetensors")
    opened = ts.open(tmp_path / "s.safetensors")
    assert opened.about("day") == stash.about("day")
    assert opened.about("day").calendar == (("day", "sin"), ("day", "cos"))
    assert oracle.same(*(ts.Windows(one, 2, 1).latest()[:]["day"] for one in (stash, opened)))


def test_missing_values_and_empty_slots_may_differ() -> None:
    data: dict[str, Any] = {
        "t": [1, 2, 4],
        "y": [1.0, None, 3.0],
        "n": [1, None, 3],
        "word": ["a", None, "b"],
        "flag": [True, False, True],
    }
    one: Any = np.int64(-9)
    true: Any = torch.tensor(True)
    columns = {
        "y": ts.column("y", fill=-1.0, empty=float("nan")),
        "only": ts.column("y", empty=7.0),
        "n": ts.column("n", fill=0, empty=one),
        "word": ts.column("word", fill="none", empty="closed"),
        "known": ts.column("word", vocabulary=["b", "closed", "a"], empty="closed"),
        "flag": ts.column("flag", empty=true),
    }
    stash = ts.load(data, columns, time="t")
    assert stash.about("word").empty == "closed"
    assert stash.vocabulary("word") == ["a", "b", "closed", "none"]
    batch = ts.Windows(stash, history=4, gaps="mask")[0]
    assert batch["y"].nan_to_num(-5).tolist() == [1, -1, -5, 3]
    assert batch["only"].nan_to_num(-5).tolist() == [1, -5, 7, 3]
    assert batch["n"].tolist() == [1, 0, -9, 3]
    assert [stash.vocabulary("word")[code] for code in batch["word"].tolist()] == ["a", "none", "closed", "b"]
    assert batch["known"].tolist() == [2, -1, 1, 0]
    assert batch["flag"].tolist() == [True, False, True, True]
    same = ts.load(data, {"n": ts.column("n", fill=0)}, time="t")
    assert ts.Windows(same, history=4, gaps="mask")[0]["n"].tolist() == [1, 0, 0, 3]


@pytest.mark.parametrize(
    ("column", "error", "message"),
    [
        (
            ts.column("y", dtype=torch.uint8, fill=0, empty=300),
            ValueError,
            "empty= must be a value of its column; 'x' is torch.uint8, which cannot hold 300",
        ),
        (
            ts.column("y", empty="none"),
            ValueError,
            "empty ... 'x' is torch.int64, which cannot hold 'none'",
        ),
        (ts.column("word", empty=3), ValueError, "empty ... 'x' is a category, which cannot hold 3"),
        (
            ts.column("word", vocabulary=["a"], empty="b"),
            ValueError,
            "empty ... 'b' is not in the vocabulary of 'x'",
        ),
    ],
)
def test_what_is_no_value_of_a_column_cannot_stand_in_empty_slots(
    column: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=like(message)):
        ts.load({"y": [1, 2], "word": ["a", "a"]}, {"x": column})
