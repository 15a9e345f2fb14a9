"""The inside of `ingest/values.py`: units, times of day and bfloat16 from Arrow arrays, beside Python's integers."""

import math
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tensorstash.columns.column import Column, with_counts
from tensorstash.common.dtypes import from_bfloat16
from tensorstash.ingest.values import to_bfloat16, values

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@settings(max_examples=200)
@given(
    ticks=st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-100, 100).map(lambda k: k * 10**9), min_size=1),
    one=st.sampled_from([*PER_SECOND]),
    other=st.sampled_from([*PER_SECOND]),
    zone=st.sampled_from([None, "UTC", "America/New_York"]),
    kind=st.sampled_from(["timestamp", "duration"]),
)
def test_an_instant_is_the_same_in_every_unit_or_refused(
    ticks: list[int], one: Any, other: Any, zone: str | None, kind: Any
) -> None:
    arrow = pa.timestamp(one, zone) if kind == "timestamp" else pa.duration(one)
    column = Column("t", ("t",), torch.int64, kind=kind, unit=other, zone=zone)
    exact = [divmod(tick * PER_SECOND[other], PER_SECOND[one]) for tick in ticks]
    array = pa.array(ticks, pa.int64()).view(arrow)
    if any(rest or not -(2**63) <= whole_ < 2**63 for whole_, rest in exact):
        message = (
            rf"\ATimes keep their exact value in the unit of the column; column 't' is {one and '.+'} in here, and "
            rf"cannot be held in {other}: .+\. Write all files with one unit\.\Z"
        )
        with pytest.raises(ts.errors.DataError, match=message):
            values([array], column, "here")
        return
    found, _ = values([array], column, "here")
    stats = with_counts(column, found)
    assert found.tolist() == [whole_ for whole_, _ in exact]
    assert (stats.low, stats.high) == (min(found.tolist()), max(found.tolist()))


@pytest.mark.parametrize(("one", "other"), [*product(("s", "ms", "us", "ns"), repeat=2)], ids=str)
def test_a_time_of_day_is_the_same_in_every_unit(one: str, other: Any) -> None:
    ticks = [3600 * PER_SECOND[one], None, 7200 * PER_SECOND[one]]
    array = pa.array(ticks, pa.time32(one) if one in ("s", "ms") else pa.time64(one))
    column = Column("t", ("t",), torch.int64, kind="time", unit=other, fill=-1)
    found, _ = values([array], column, "here")
    assert found.tolist() == [3600 * PER_SECOND[other], -1, 7200 * PER_SECOND[other]]


def test_a_null_is_no_time_that_a_unit_cannot_hold() -> None:
    """What lies under a null is arbitrary."""
    ticks = pa.Array.from_buffers(
        pa.timestamp("s"), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([5, 2**62]).tobytes())]
    )
    column = Column("t", ("t",), torch.int64, kind="timestamp", unit="ns", fill=7)
    assert values([ticks], column, "here")[0].tolist() == [5 * 10**9, 7]


@settings(max_examples=200)
@given(st.lists(st.floats(width=32) | st.sampled_from([math.nan, math.inf, -0.0, 3.39e38, -3.4e38]), max_size=20))
def test_bfloat16_is_rounded_as_torch_does(numbers: list[float]) -> None:
    singles = torch.tensor(numbers, dtype=torch.float32)
    expected = singles.to(torch.bfloat16)
    bits = to_bfloat16(singles.numpy())
    assert torch.equal(torch.from_numpy(bits).view(torch.bfloat16).nan_to_num(nan=7.0), expected.nan_to_num(nan=7.0))
    assert np.array_equal(from_bfloat16(bits), expected.float().numpy(), equal_nan=True)
