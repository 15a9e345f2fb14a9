"""Pictures of the forecasts of several windows, from frames of `to_frame(origin=True)`, against a loop over windows."""

from collections.abc import Callable, Iterator
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
import pytest
import torch

import tensorstash as ts
from tests.oracle_load import like

plt.switch_backend("Agg")


@pytest.fixture(autouse=True)
def closed_figures() -> Iterator[None]:
    yield
    plt.close("all")


def daily(time: str = "day", *, numbers: bool = False) -> ts.Windows:
    days: Any = np.arange(20) if numbers else np.datetime64("2024-01-01", "us") + np.arange(20) * np.timedelta64(1, "D")
    data = {"shop": [7] * 20 + [8] * 20, time: np.tile(days, 2), "y": np.arange(40.0)}
    return ts.Windows(ts.load(data, ["y"], entity="shop", time=time), history=3, horizon=4)


def drawn(axes: Any) -> list[tuple[list[Any], list[float]]]:
    """The times and values of the lines of predictions."""
    lines = [line for line in axes.lines if str(line.get_label()).endswith("prediction")]
    return [(np.asarray(line.get_xdata(orig=True)).tolist(), np.asarray(line.get_ydata()).tolist()) for line in lines]


def slow_lines(windows: ts.Windows, ids: list[int], values: torch.Tensor) -> list[tuple[list[Any], list[float]]]:
    frames = [windows.to_frame([one], values[k : k + 1]) for k, one in enumerate(ids)]
    return [(frame.to_series(1).to_list(), frame["value"].to_list()) for frame in frames]


@pytest.mark.parametrize("step", [False, True])
@pytest.mark.parametrize("pandas", [False, True])
@pytest.mark.parametrize(("numbers", "time"), [(False, "day"), (True, "day")])
@pytest.mark.parametrize("ids", [[5], [0, 2, 3], [2, 6], [9, 1]])
def test_each_window_is_a_line_at_its_own_times(
    ids: list[int], numbers: bool, time: str, pandas: bool, step: bool
) -> None:
    windows = daily(time, numbers=numbers)
    values = torch.arange(4.0 * len(ids)).view(-1, 4)
    frame = windows.to_frame(ids, values, origin=True, step=step)
    past = windows[[min(ids)]]["y"][0, :3]
    every = np.unique(frame[time].to_numpy())
    axes = ts.plot.forecast(past, torch.zeros(len(every)), frame.to_pandas() if pandas else frame)
    assert drawn(axes) == slow_lines(windows, ids, values)
    history, truth = axes.lines[:2]
    width = every[1] - every[0]
    assert np.array_equal(np.asarray(history.get_xdata(orig=True)), every[0] + width * np.arange(-3, 0))
    assert np.array_equal(np.asarray(truth.get_xdata(orig=True))[1:], every)
    assert axes.get_xlabel() == time
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["history", "truth", "prediction"]
    assert [line.get_marker() for line in axes.lines[2:]] == ["." if len(ids) > 1 else "None"] * len(ids)


def test_each_window_has_its_bands() -> None:
    windows, ids = daily(), [0, 6]
    quantiles = torch.arange(3.0).expand(2, 4, 3) + torch.tensor([0.0, 10.0])[:, None, None]
    axes = ts.plot.forecast(torch.zeros(3), None, windows.to_frame(ids, quantiles, origin=True))
    assert [values for _, values in drawn(axes)] == [[1.0] * 4, [11.0] * 4]
    spans = [band.get_paths()[0].get_extents().intervaly.tolist() for band in axes.collections]
    assert spans == [[0.0, 2.0], [10.0, 12.0]]
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["history", "prediction", "value_0 to value_2"]


WINDOWS = daily()
TWO = WINDOWS.to_frame([0, 1], torch.zeros(2, 4))
ENTITIES = WINDOWS.to_frame([0, 15], torch.zeros(2, 4), origin=True)
ORIGINS = WINDOWS.to_frame([0, 1], torch.zeros(2, 4), origin=True)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ts.plot.forecast(torch.zeros(1), prediction=TWO), "one window ... take to_frame(origin=True)"),
        (lambda: ts.plot.forecast(torch.zeros(1), prediction=ENTITIES), "of one entity ... Filter the frame"),
        (
            lambda: ts.plot.forecast(torch.zeros(1), prediction=pl.concat([ORIGINS, ORIGINS])),
            "the rows of one window",
        ),
        (
            lambda: ts.plot.forecast(torch.zeros(1), torch.zeros(4), ORIGINS),
            "a value for each time of the horizon, 5; ... truth has 4",
        ),
    ],
)
def test_frames_of_other_rows_are_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=like(message)):
        call()


def test_bands_alone_put_no_dots_on_the_history() -> None:
    windows = daily()
    frame = windows.to_frame([0, 6], torch.arange(2.0).expand(2, 4, 2), origin=True)
    axes = ts.plot.forecast(torch.zeros(3), None, frame)
    assert [line.get_marker() for line in axes.lines] == ["None"]
    assert len(axes.collections) == 2
