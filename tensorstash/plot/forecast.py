"""`ts.plot.forecast`: one window and its prediction."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.checks import array_of, shown
from tensorstash.plot.axes import COLOURS, check_axes, pyplot

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from matplotlib.axes import Axes

_TRUTH, _PREDICTION, _BAND = COLOURS
_DASHED = (4, 1)

Numbers = NDArray[np.float64]


def forecast(
    history: torch.Tensor,
    truth: torch.Tensor | None = None,
    prediction: "torch.Tensor | pl.DataFrame | pd.DataFrame | None" = None,
    quantiles: torch.Tensor | None = None,
    *,
    axes: "Axes | None" = None,
) -> "Axes":
    """Draw the history of one window, the truth after it, and a prediction with bands between its quantiles.

    The axis counts slots from the anchor, or shows the times of a frame. NaN breaks a line.

    Args:
        history: `(history,)` values before the anchor.
        truth: `(horizon,)` values from the anchor on; `None` if they are not known yet.
        prediction: `(horizon,)`; `None` draws the middle one of an odd number of quantiles. Or the rows of
            `Windows.to_frame` for one window, in polars or pandas: its values, or its quantiles if it has several, and
            their times.
        quantiles: `(horizon, n)`, ascending along the last dimension. A band lies between the first and the last one,
            a darker one between the second and the last but one, and so on.
        axes: the axes to draw on; `None` makes a figure.

    Returns:
        The axes.

    Raises:
        ValueError: a tensor of another shape, or quantiles that do not ascend. ImportError: matplotlib is missing; the
            message names the extra.

    Example:
        >>> import pytest, torch, tensorstash as ts
        >>> matplotlib = pytest.importorskip("matplotlib")
        >>> matplotlib.use("Agg")
        >>> axes = ts.plot.forecast(torch.arange(6.0), torch.tensor([6.0, 7.0]), torch.tensor([6.5, 6.5]))
        >>> [text.get_text() for text in axes.get_legend().get_texts()]
        ['history', 'truth', 'prediction']
    """
    plt = pyplot("forecast")
    if axes is not None:
        check_axes(plt, axes)
    times, when = None, "slots from the anchor"
    if prediction is not None and not isinstance(prediction, torch.Tensor):
        prediction, framed, times, when = _of_frame(prediction)
        quantiles = quantiles if framed is None else framed
    past = _numbers(history, "history")
    ahead = _checked({"truth": truth, "prediction": prediction, "quantiles": quantiles})
    before, after = np.arange(-len(past), 0), np.arange(max(map(len, ahead.values()), default=0))
    if times is not None:  # the history is spaced as the first two times
        before, after = times[0] + (times[1] - times[0]) * before, times
    if axes is None:
        _, axes = plt.subplots(figsize=(10, 3), layout="constrained")
    axes.plot(before, past, color=_TRUTH, linewidth=1, label="history")
    if "truth" in ahead:
        # joined to the history, or the line would have a gap
        joined = np.concatenate([past[-1:], ahead["truth"]])
        slots = np.concatenate([before[-1:], after])
        axes.plot(slots, joined, color=_TRUTH, linewidth=1, dashes=_DASHED, label="truth")
    if "quantiles" in ahead:
        bands = ahead["quantiles"]
        pairs = bands.shape[1] // 2
        for k in range(pairs):
            axes.fill_between(
                after,
                bands[:, k],
                bands[:, -1 - k],
                color=_BAND,
                alpha=0.8 / pairs,
                linewidth=0,
                label="quantiles" if k == 0 else None,
            )
    if "prediction" in ahead:
        axes.plot(after, ahead["prediction"], color=_PREDICTION, linewidth=1.5, label="prediction")
    if times is None:
        axes.axvline(-0.5, color="grey", linewidth=0.8, linestyle=":")
    axes.set_xlabel(when)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _of_frame(
    frame: "pl.DataFrame | pd.DataFrame",
) -> tuple[torch.Tensor | None, torch.Tensor | None, NDArray[Any], str]:
    """The prediction or the quantiles, which are the last columns of a frame; the times before them, and their name."""
    import polars as pl

    if not (hasattr(frame, "columns") and hasattr(frame, "shape")):
        raise TypeError(f"prediction must be a tensor, or a frame of Windows.to_frame, got {shown(frame)}.")
    frame = frame if isinstance(frame, pl.DataFrame) else pl.DataFrame(frame)  # of pandas
    first = next(k for k in range(len(frame.columns) + 1) if all(dtype.is_float() for dtype in frame.dtypes[k:]))
    if not 0 < first < len(frame.columns) or frame.dtypes[first - 1] in (pl.String, pl.Categorical, pl.Object):
        raise ValueError(f"prediction must be a frame of Windows.to_frame, got the columns {frame.columns}.")
    time = frame.to_series(first - 1)
    times = (time.dt.replace_time_zone(None) if hasattr(time.dtype, "time_zone") else time).to_numpy()
    values = torch.from_numpy(frame[:, first:].to_numpy().copy())
    if len(times) < 2 or (np.diff(times) <= np.zeros(1, np.diff(times).dtype)).any():
        raise ValueError("prediction must have the rows of one window, at least two; filter the frame by its entity.")
    return (values[:, 0], None, times, time.name) if values.shape[1] == 1 else (None, values, times, time.name)


def _checked(given: Mapping[str, object]) -> dict[str, Numbers]:
    """Truth, prediction and quantiles as arrays, where given; the prediction may be the middle quantile."""
    arrays = {name: _numbers(values, name) for name, values in given.items() if values is not None}
    if len({len(values) for values in arrays.values()}) > 1:
        listed = ", ".join(f"{name} has {len(values)}" for name, values in arrays.items())
        raise ValueError(f"Truth, prediction and quantiles must have one length, the horizon; {listed}.")
    if "quantiles" in arrays:
        bands = arrays["quantiles"]
        if (np.diff(bands, axis=1) < 0).any():
            raise ValueError(
                "Quantiles must ascend along the last dimension; these do not. Use quantiles.sort(-1).values."
            )
        if bands.shape[1] % 2:
            arrays.setdefault("prediction", bands[:, bands.shape[1] // 2])
    return arrays


def _numbers(values: object, name: str) -> Numbers:
    if not isinstance(values, torch.Tensor):
        raise ValueError(f"{name} must be a tensor, got a {type(values).__name__}.")
    shape = {"history": "(history,)", "quantiles": "(horizon, n)"}.get(name, "(horizon,)")
    dimensions = 2 if name == "quantiles" else 1
    if values.ndim != dimensions:
        remedy = " Take one window of the batch and one column of a pack." if values.ndim > dimensions else ""
        raise ValueError(f"{name} must have the shape {shape}, got {tuple(values.shape)}.{remedy}")
    return array_of(values.detach().to(torch.float64), name)
