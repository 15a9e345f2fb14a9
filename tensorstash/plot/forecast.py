"""`ts.plot.forecast`: the past of a series and predictions behind it."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.checks import array_of, shown
from tensorstash.common.clock import Clock
from tensorstash.common.text import type_text
from tensorstash.plot.axes import COLOURS, WIDTH, label_times, pyplot

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from matplotlib.axes import Axes
    from matplotlib.patches import Patch

_TRUTH, _PREDICTION, _BAND = COLOURS
_DASHED = (4, 1)
_OPAQUE = 0.8  # of all bands of a window that lie upon each other
_MOST_BANDS = 3  # that the legend names

Numbers = NDArray[np.float64]


def forecast(
    history: torch.Tensor,
    truth: torch.Tensor | None,
    prediction: "pl.DataFrame | pd.DataFrame",
    *,
    axes: "Axes | None" = None,
) -> "Axes":
    """Draw the history of a series, the truth after it, and predictions with bands between their quantiles.

    The axis shows the times of the frame, in their zone, which its label names. The legend names the quantiles as the
    columns of the frame are named. NaN breaks a line. A frame of `to_frame(origin=True)` may hold several windows of
    one entity: each is a line, with a dot at its start.

    Args:
        history: `(history,)` values before the first time of the frame.
        truth: `(horizon,)` values, one for each different time of the frame, in order; `None` if they are not known
            yet.
        prediction: the rows of `Windows.to_frame` for one window, in polars or pandas, with `origin=True` for several
            of one entity: their times, and their values or several quantiles, which ascend. A band lies between the
            first and the last quantile, a darker one between the second and the last but one, and so on; the line is
            the middle one of an odd number.
        axes: the axes to draw on; `None` makes a figure.

    Returns:
        The axes.

    Raises:
        ValueError: a tensor of another shape, a frame of other rows, or quantiles that do not ascend. ImportError:
            matplotlib is missing; the message names the extra.

    Example:
        >>> import pytest, torch, tensorstash as ts
        >>> matplotlib = pytest.importorskip("matplotlib")
        >>> matplotlib.use("Agg")
        >>> windows = ts.Windows(ts.load({"day": range(8), "sold": range(8)}, time="day"), history=6, horizon=2)
        >>> sold = windows[[0]]["sold"]
        >>> frame = windows.to_frame([0], torch.tensor([[6.5, 6.5]]))
        >>> axes = ts.plot.forecast(sold[0, :6], sold[0, 6:], frame)
        >>> [text.get_text() for text in axes.get_legend().get_texts()]
        ['history', 'truth', 'prediction']
    """
    plt = pyplot("forecast", axes)
    time, zone, values, windows = _of_frame(prediction)
    times, past = time.to_numpy(), _numbers(history, "history")
    every = np.unique(times)
    before = every[0] + (every[1] - every[0]) * np.arange(-len(past), 0)  # spaced as the first two times
    if axes is None:
        _, axes = plt.subplots(figsize=(WIDTH, 3), layout="constrained")
    axes.plot(before, past, color=_TRUTH, linewidth=1, label="history")
    if truth is not None:
        ahead = _numbers(truth, "truth")
        if len(ahead) != len(every):
            raise ValueError(f"There must be a value for each time of the frame, {len(every)}; truth has {len(ahead)}.")
        # joined to the history, or the line would have a gap
        joined, slots = np.concatenate([past[-1:], ahead]), np.concatenate([before[-1:], every])
        axes.plot(slots, joined, color=_TRUTH, linewidth=1, dashes=_DASHED, label="truth")
    for number, rows in enumerate(windows):
        _draw(axes, times[rows], values.to_numpy()[rows], "_prediction" if number else "prediction")
        if len(windows) > 1 and values.shape[1] % 2:
            axes.lines[-1].set(marker=".", markevery=[0])
    label_times(axes, time.name, Clock("us" if time.dtype.is_temporal() else None, zone))
    handles = [*axes.get_legend_handles_labels()[0], *_bands(values.columns)]
    axes.legend(handles=handles, loc="best", fontsize="small", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _draw(axes: "Axes", times: NDArray[Any], quantiles: Numbers, label: str) -> None:
    """The bands of one window, one upon the other, and the middle line."""
    pairs, is_odd = divmod(quantiles.shape[1], 2)
    for k in range(pairs):
        low, high = quantiles[:, k], quantiles[:, -1 - k]
        axes.fill_between(times, low, high, color=_BAND, alpha=_OPAQUE / pairs, linewidth=0)
    if is_odd:
        axes.plot(times, quantiles[:, pairs], color=_PREDICTION, linewidth=1.5, label=label)


def _bands(names: list[str]) -> list["Patch"]:
    """The bands in the legend, as dark as they are where they lie upon wider ones; of many the widest and narrowest."""
    from matplotlib.patches import Patch

    pairs = len(names) // 2
    alphas = [1 - (1 - _OPAQUE / pairs) ** (k + 1) for k in range(pairs)]
    bands = [Patch(fc=_BAND, alpha=alphas[k], label=f"{names[k]} to {names[-1 - k]}") for k in range(pairs)]
    return bands if len(bands) <= _MOST_BANDS else [bands[0], bands[-1]]


def _of_frame(frame: Any) -> "tuple[pl.Series, str | None, pl.DataFrame, list[NDArray[np.int64]]]":
    """The times of a frame, in UTC, their zone, its values, and the rows of each window.

    Values stand in its last columns, and the times before them and before `anchor` and `step`.
    """
    import polars as pl

    if not (hasattr(frame, "columns") and hasattr(frame, "shape")):
        raise TypeError(f"prediction must be a frame of Windows.to_frame, got {shown(frame)}.")
    frame = frame if isinstance(frame, pl.DataFrame) else pl.DataFrame(frame)  # of pandas
    first = next(k for k in range(len(frame.columns) + 1) if all(dtype.is_float() for dtype in frame.dtypes[k:]))
    if not 0 < first < len(frame.columns) or frame.dtypes[first - 1] in (pl.String, pl.Categorical, pl.Object):
        raise ValueError(f"prediction must be a frame of Windows.to_frame, got the columns {frame.columns}.")
    keys = frame.columns[:first]
    if keys[1:] and keys[-1] == "step":
        keys.pop()
    origin = keys.pop() if keys[1:] and keys[-1] == "anchor" else None
    *entities, name = keys
    time, zone, values = frame[name], getattr(frame.schema[name], "time_zone", None), frame[:, first:]
    if zone is not None:  # where local times may occur twice
        time = time.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    times, origins = time.to_numpy(), np.zeros(len(frame)) if origin is None else frame[origin].to_numpy()
    _, seen, number = np.unique(origins, return_index=True, return_inverse=True)
    windows = [np.flatnonzero(number == k) for k in np.argsort(seen)]
    steps = [np.diff(times[rows]) for rows in windows]
    is_ascending = all((step > np.zeros(1, step.dtype)).all() for step in steps)
    if not is_ascending or len(np.unique(times)) < 2 or any(frame[key].n_unique() > 1 for key in entities):
        raise ValueError(
            "prediction must have the rows of one window, at least two, or those of several windows of one entity with "
            "their origins. Filter the frame by its entity, or take to_frame(origin=True)."
        )
    if (np.diff(values.to_numpy(), axis=1) < 0).any():
        raise ValueError("Quantiles must ascend along the last dimension; these do not. Use quantiles.sort(-1).values.")
    return time, zone, values, windows


def _numbers(values: object, name: str) -> Numbers:
    if not isinstance(values, torch.Tensor) or values.ndim != 1:
        got = tuple(values.shape) if isinstance(values, torch.Tensor) else type_text(values)
        raise ValueError(f"{name} must be a tensor of one dimension, got {got}. Take one window and one column.")
    return array_of(values.detach().to(torch.float64), name)
