"""Pictures of splits and forecasts: every bar against a loop over windows, and what is refused."""

import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

import tensorstash as ts
from tests.oracle_load import like
from tests.words import Gaps

plt.switch_backend("Agg")


@pytest.fixture(autouse=True)
def closed_figures() -> Iterator[None]:
    yield
    plt.close("all")


def gappy() -> ts.Stash:
    times = [0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 0, 1, 2, 3, 4]
    names = ["a"] * 10 + ["b"] * 5
    return ts.load({"e": names, "t": times, "y": np.arange(15.0)}, ["y"], entity="e", time="t")


Bar = tuple[int, float, float, bool]  # entity, first time, last time, whether it is pale


def slow_bars(windows: ts.Windows) -> dict[int, list[Bar]]:
    """The pale and the full times of each window, one by one."""
    seen: dict[int, list[Bar]] = {}
    for i in range(len(windows)):
        about = windows.anchors([i])
        anchor, entity = int(about["time"]), int(about["entity"])
        for low, high, pale in (
            (anchor - windows.history, anchor - 1, True),
            (anchor, anchor + windows.horizon - 1, False),
        ):
            seen.setdefault(entity, []).extend((entity, time, time, pale) for time in range(low, high + 1))
    return seen


@pytest.mark.filterwarnings("ignore:Gaps cost")
@pytest.mark.parametrize("gaps", ["split", "mask"])
def test_bars_cover_the_times_of_the_windows_of_each_part(gaps: Gaps) -> None:
    windows = ts.Windows(gappy(), history=2, horizon=2, gaps=gaps, frequency=1)
    train, valid = windows.split(4)
    axes = ts.plot.windows({"train": train, "valid": valid})
    bars = [one for one in axes.patches if isinstance(one, Rectangle)]
    for part, colour, lane in ((train, "#1f6ba8", 0.1), (valid, "#d9702a", 0.5)):
        for pale in (True, False):
            drawn = {
                (int(bar.get_y() - lane + 0.001), time)
                for bar in bars
                if to_hex(bar.get_facecolor()) == colour and (bar.get_alpha() == 0.3) == pale
                for time in range(int(bar.get_x()), int(bar.get_x() + bar.get_width()) + 1)
            }
            slow = {(entity, t) for seen in slow_bars(part).values() for entity, t, _, p in seen if p == pale}
            assert drawn == slow
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["a", "b"]
    assert axes.get_xlabel() == "t"


def test_training_parts_have_one_hue_and_test_parts_another() -> None:
    windows = ts.Windows(ts.load({"t": range(90), "y": np.zeros(90)}, ["y"], time="t"), history=2, horizon=2)
    folds = windows.folds(12, 5)
    parts = {f"{name} {k}": part for k, fold in enumerate(folds) for name, part in zip(("train", "test"), fold)}
    legend = ts.plot.windows(parts).get_legend()
    assert legend is not None
    colours: dict[str, set[str]] = {"train": set(), "test": set()}
    for text, patch in zip(legend.get_texts(), legend.get_patches()):
        colours[text.get_text().split()[0]].add(to_hex(patch.get_facecolor()))
    assert len(colours["train"]) == len(colours["test"]) == 3
    assert all(colour[1:3] < colour[5:] for colour in colours["train"])  # blue: less red than blue
    assert all(colour[1:3] > colour[5:] for colour in colours["test"])  # orange


def test_of_many_quantiles_the_legend_names_the_widest_and_the_narrowest_band() -> None:
    legend = ts.plot.forecast(torch.zeros(2), quantiles=torch.arange(9.0).expand(3, 9)).get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()][2:] == [
        "quantiles 1 to 9",
        "quantiles 4 to 6",
    ]
    wide, narrow = legend.get_patches()
    assert wide.get_alpha() == pytest.approx(0.2)
    assert narrow.get_alpha() == pytest.approx(1 - 0.8**4)


def test_of_many_entities_some_are_drawn() -> None:
    stash = ts.load({"e": np.repeat(np.arange(100), 3), "y": np.zeros(300)}, ["y"], entity="e")
    axes = ts.plot.windows({"all": ts.Windows(stash, history=2)})
    assert axes.get_ylabel() == "e, 40 of 100"
    assert (len(axes.get_yticks()), axes.get_xlabel()) == (40, "row of the stash")
    assert len(axes.patches) == 80


def test_other_parts_are_refused() -> None:
    one, two = ts.Windows(gappy(), history=2), ts.Windows(gappy(), history=2)
    cases: list[tuple[Any, str]] = [
        ({}, "got {}"),
        ({"train": 5}, "'train' is an int"),
        ({"a": one, "b": 5}, "'b' is an int"),
        ({"a": one, "b": two}, "all of one stash ... Draw each stash separately"),
    ]
    for parts, message in cases:
        with pytest.raises(ValueError, match=like(message)):
            ts.plot.windows(parts)


def test_a_forecast_shows_history_truth_bands_and_the_middle_quantile() -> None:
    history, truth = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4.0, 5.0])
    quantiles = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 3.0, 4.0, 5.0, 6.0]])
    axes = ts.plot.forecast(history, truth, None, quantiles)
    past, future, line, _anchor = axes.lines
    assert (np.asarray(past.get_xdata()).tolist(), np.asarray(past.get_ydata()).tolist()) == ([-3, -2, -1], [1, 2, 3])
    assert (np.asarray(future.get_xdata()).tolist(), np.asarray(future.get_ydata()).tolist()) == ([-1, 0, 1], [3, 4, 5])
    assert (np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist()) == ([0, 1], [3, 4])
    bounds = [path.get_extents().get_points().tolist() for band in axes.collections for path in band.get_paths()]
    assert bounds == [[[0, 1], [1, 6]], [[0, 2], [1, 5]]]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [  # type: ignore[union-attr]
        "history",
        "truth",
        "prediction",
        "quantiles 1 to 5",
        "quantiles 2 to 4",
    ]


def test_a_forecast_of_a_model_on_given_axes() -> None:
    _, given = plt.subplots()
    prediction = torch.tensor([1.0, 2.0], requires_grad=True).to(torch.bfloat16)
    axes = ts.plot.forecast(torch.zeros(0), prediction=prediction, axes=given)
    assert axes is given
    assert [np.asarray(line.get_ydata()).tolist() for line in axes.lines[:2]] == [[], [1, 2]]


def test_the_legend_on_axes_of_a_grid_does_not_lie_on_their_title() -> None:
    figure, grid = plt.subplots(2, 3, layout="constrained")
    for axes in grid.ravel():
        ts.plot.forecast(torch.arange(9.0), torch.zeros(3), torch.ones(3), axes=axes)
        axes.set_title("plant 1")
    figure.canvas.draw()
    for axes in grid.ravel():
        assert not axes.get_legend().get_window_extent().overlaps(axes.title.get_window_extent())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ts.plot.forecast([1.0]), "history ... got a list"),  # type: ignore[arg-type]
        (
            lambda: ts.plot.forecast(torch.zeros(2, 3)),
            "history ... got (2, 3)",
        ),
        (
            lambda: ts.plot.forecast(torch.zeros(2), quantiles=torch.zeros(2)),
            "quantiles ... got (2,)",
        ),
        (
            lambda: ts.plot.forecast(torch.zeros(2), torch.zeros(3), torch.zeros(4)),
            "prediction has 4, truth has 3",
        ),
        (
            lambda: ts.plot.forecast(torch.zeros(2), quantiles=torch.tensor([[2.0, 1.0]])),
            "must ascend ... quantiles.sort(-1).values",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=like(message)):
        call()


@pytest.mark.parametrize("name", ["windows", "forecast"])
def test_without_matplotlib_the_error_names_the_extra(name: str) -> None:
    given: Any = {"a": ts.Windows(gappy(), history=1)} if name == "windows" else torch.zeros(2)
    with (
        mock.patch.dict(sys.modules, {"matplotlib.pyplot": None}),
        pytest.raises(
            ImportError, match=rf"^ts\.plot\.{name} draws with matplotlib: pip install 'tensorstash\[plot\]'\.$"
        ),
    ):
        getattr(ts.plot, name)(given)


def test_a_forecast_of_a_frame_stands_at_its_times() -> None:
    days = np.datetime64("2024-01-01", "us") + np.arange(9) * np.timedelta64(1, "D")
    windows = ts.Windows(ts.load({"day": days, "y": np.arange(9.0)}, time="day"), history=3, horizon=2)
    batch, ahead = windows[[1]], torch.tensor([[[4.0, 5.0, 6.0], [4.0, 5.5, 7.0]]])
    axes = ts.plot.forecast(
        batch["y"][0, :3], batch["y"][0, 3:], windows.to_frame([1], ahead, names=["low", "mid", "high"])
    )
    past, future, line = axes.lines
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["history", "truth", "prediction", "low to high"]
    assert np.array_equal(np.asarray(past.get_xdata()), days[1:4])
    assert np.array_equal(np.asarray(future.get_xdata()), days[3:6])
    assert np.array_equal(np.asarray(line.get_xdata()), days[4:6])
    assert np.asarray(line.get_ydata()).tolist() == [5.0, 5.5]
    assert axes.get_xlabel() == "day"
    axes = ts.plot.forecast(batch["y"][0, :3], prediction=windows.to_frame([1], ahead[..., 0]))
    assert np.asarray(axes.lines[1].get_ydata()).tolist() == [4.0, 4.0]
    with pytest.raises(ValueError, match=like("the rows of one window")):
        ts.plot.forecast(torch.zeros(1), prediction=windows.to_frame([1, 0], ahead[[0, 0], :, 0]))
    axes = ts.plot.forecast(batch["y"][0, :3], prediction=windows.to_frame([1], ahead[..., 0]).to_pandas())
    assert np.asarray(axes.lines[1].get_ydata()).tolist() == [4.0, 4.0]
    assert np.array_equal(np.asarray(axes.lines[1].get_xdata()), days[4:6])
    with pytest.raises(ValueError, match=like("a frame of Windows.to_frame")):
        ts.plot.forecast(torch.zeros(1), prediction=pl.DataFrame({"y": [1, 2]}))
