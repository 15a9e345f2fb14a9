"""The inside of `ingest/values.py`: bfloat16, beside torch's."""

import math

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorstash.common.dtypes import from_bfloat16
from tensorstash.ingest.values import to_bfloat16


@settings(max_examples=200)
@given(st.lists(st.floats(width=32) | st.sampled_from([math.nan, math.inf, -0.0, 3.39e38, -3.4e38]), max_size=20))
def test_bfloat16_is_rounded_as_torch_does(numbers: list[float]) -> None:
    singles = torch.tensor(numbers, dtype=torch.float32)
    expected = singles.to(torch.bfloat16)
    bits = to_bfloat16(singles.numpy())
    assert torch.equal(torch.from_numpy(bits).view(torch.bfloat16).nan_to_num(nan=7.0), expected.nan_to_num(nan=7.0))
    assert np.array_equal(from_bfloat16(bits), expected.float().numpy(), equal_nan=True)
