"""Data sets of xarray are refused with the line that loads them."""

import re

import numpy as np
import pytest

import tensorstash as ts


def test_a_dataset_of_xarray_is_loaded_as_the_frame_that_the_error_says() -> None:
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    hours = np.array(["2024-01-01T00", "2024-01-01T01"], "M8[ns]")
    values = {"temp": (("time", "station"), np.arange(6.0).reshape(2, 3))}
    dataset = xarray.Dataset(values, {"time": hours, "station": ["a", "b", "c"]})
    with pytest.raises(TypeError, match=r" Load dataset\.to_dataframe\(\)\.\Z") as refused:
        ts.load(dataset, ["temp"], entity="station", time="time")
    assert len(str(refused.value)) < 400
    line = re.search(r" Load (.*)\.\Z", str(refused.value))
    assert line is not None
    stash = ts.load(eval(line[1], {"dataset": dataset}), ["temp"], entity="station", time="time")
    assert (stash.entities, stash["temp"].tolist()) == (["a", "b", "c"], [0.0, 3.0, 1.0, 4.0, 2.0, 5.0])
