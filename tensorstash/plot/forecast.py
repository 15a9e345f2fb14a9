"""`ts.plot.forecast`: one window and its prediction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    truth: torch.Tensor | None = None,
    prediction: "torch.Tensor | pl.DataFrame | pd.DataFrame | None" = None,
    quantiles: torch.Tensor | None = None,
    *,
    axes: "Axes | None" = None,
) -> "Axes":
    """Draw the history of one window, the truth after it, and a prediction with bands between its quantiles.

    The axis counts slots from the anchor, or shows the times of a frame, in their zone, which its label names. The
    legend names the quantiles as the columns of the frame are named, else by their numbers. NaN breaks a line. A frame
    of `to_frame(origin=True)` may hold several windows of one entity: each is a line, with a dot at its start.

    Args:
        history: `(history,)` values before the anchor; of several windows, before the first time of the frame.
        truth: `(horizon,)` values from the anchor on; `None` if they are not known yet. Of several windows, one value
            for each different time of the frame, in order.
        prediction: `(horizon,)`; `None` draws the middle one of an odd number of quantiles. Or the rows of
            `Windows.to_frame` for one window, in polars or pandas, with `origin=True` for several of one entity: its
            values, or its quantiles if it has several, and their times.
        quantiles: `(horizon, n)`, ascending along the last dimension. A band lies between the first and the last one,
            a darker one between the second and the last but one, and so on. `None`: no band, unless a frame has some.
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
    plt = pyplot("forecast", axes)
    frame_rows = None
    if prediction is not None and not isinstance(prediction, torch.Tensor):
        frame_rows = _of_frame(prediction)
        values = torch.from_numpy(frame_rows.values.to_numpy().copy())
        prediction, quantiles = (values[:, 0], quantiles) if values.shape[1] == 1 else (None, values)
    past, ahead = _numbers(history, "history"), _checked({"prediction": prediction, "quantiles": quantiles})
    if truth is not None:
        ahead["truth"] = _numbers(truth, "truth")
    rows: NDArray[Any] = np.arange(max(map(len, ahead.values()), default=0)) if frame_rows is None else frame_rows.times
    windows = [np.arange(len(rows))] if frame_rows is None else frame_rows.windows
    times, before = np.unique(rows), np.arange(-len(past), 0)
    expected = {"truth": len(times), "prediction": len(rows), "quantiles": len(rows)}
    if any(len(numbers) != expected[name] for name, numbers in ahead.items()):
        listed = ", ".join(f"{name} has {len(numbers)}" for name, numbers in ahead.items())
        raise ValueError(f"There must be a value for each time of the horizon, {len(times)}; {listed}.")
    if frame_rows is not None:  # the history is spaced as the first two times
        before = times[0] + (times[1] - times[0]) * before
    if axes is None:
        _, axes = plt.subplots(figsize=(WIDTH, 3), layout="constrained")
    axes.plot(before, past, color=_TRUTH, linewidth=1, label="history")
    if "truth" in ahead:
        # joined to the history, or the line would have a gap
        joined, slots = np.concatenate([past[-1:], ahead["truth"]]), np.concatenate([before[-1:], times])
        axes.plot(slots, joined, color=_TRUTH, linewidth=1, dashes=_DASHED, label="truth")
    for number, own in enumerate(windows):
        label = "_prediction" if number else "prediction"
        _draw(axes, rows[own], {name: ahead[name][own] for name in ahead if name != "truth"}, label)
        if len(windows) > 1 and "prediction" in ahead:
            axes.lines[-1].set(marker=".", markevery=[0])
    if frame_rows is None:
        axes.axvline(-0.5, color="grey", linewidth=0.8, linestyle=":")
        axes.set_xlabel("slots from the anchor")
    else:
        label_times(axes, frame_rows.name, frame_rows.clock)
    handles = [*axes.get_legend_handles_labels()[0], *_bands(ahead.get("quantiles"), frame_rows)]
    axes.legend(handles=handles, loc="best", fontsize="small", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _draw(axes: "Axes", times: NDArray[Any], ahead: Mapping[str, Numbers], label: str) -> None:
    """The bands of one window, one upon the other, and its line."""
    quantiles = ahead.get("quantiles", np.empty((len(times), 0)))
    pairs = quantiles.shape[1] // 2
    for k in range(pairs):
        low, high = quantiles[:, k], quantiles[:, -1 - k]
        axes.fill_between(times, low, high, color=_BAND, alpha=_OPAQUE / pairs, linewidth=0)
    if "prediction" in ahead:
        axes.plot(times, ahead["prediction"], color=_PREDICTION, linewidth=1.5, label=label)


def _bands(quantiles: Numbers | None, frame_rows: "_FrameRows | None") -> list["Patch"]:
    """The bands in the legend, as dark as they are where they lie upon wider ones; of many the widest and narrowest."""
    from matplotlib.patches import Patch

    count = 0 if quantiles is None else quantiles.shape[1]
    levels = [f"quantiles {k + 1}" for k in range(count)] if frame_rows is None else frame_rows.values.columns
    ends = [levels[-1 - k].removeprefix("quantiles ") for k in range(count // 2)]
    alphas = [1 - (1 - _OPAQUE / len(ends)) ** (k + 1) for k in range(len(ends))]
    bands = [Patch(fc=_BAND, alpha=alpha, label=f"{low} to {high}") for alpha, low, high in zip(alphas, levels, ends)]
    return bands if len(bands) <= _MOST_BANDS else [bands[0], bands[-1]]


@dataclass(frozen=True, slots=True)
class _FrameRows:
    """The rows of a frame of `Windows.to_frame`, of the windows of one entity."""

    values: "pl.DataFrame"  # predictions, or their quantiles
    times: NDArray[Any]  # of each row, in UTC
    windows: Sequence[NDArray[np.int64]]  # the rows of each
    name: str  # of the times
    clock: Clock


def _of_frame(frame: "pl.DataFrame | pd.DataFrame") -> _FrameRows:
    """Read a frame: values stand in its last columns, and the times before them and before `anchor` and `step`."""
    import polars as pl

    if not (hasattr(frame, "columns") and hasattr(frame, "shape")):
        raise TypeError(f"prediction must be a tensor, or a frame of Windows.to_frame, got {shown(frame)}.")
    frame = frame if isinstance(frame, pl.DataFrame) else pl.DataFrame(frame)  # of pandas
    first = next(k for k in range(len(frame.columns) + 1) if all(dtype.is_float() for dtype in frame.dtypes[k:]))
    if not 0 < first < len(frame.columns) or frame.dtypes[first - 1] in (pl.String, pl.Categorical, pl.Object):
        raise ValueError(f"prediction must be a frame of Windows.to_frame, got the columns {frame.columns}.")
    keys = frame.columns[:first]
    if keys[1:] and keys[-1] == "step":
        keys.pop()
    origin = keys.pop() if keys[1:] and keys[-1] == "anchor" else None
    *entities, name = keys
    time, zone = frame[name], getattr(frame.schema[name], "time_zone", None)
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
    return _FrameRows(frame[:, first:], times, windows, name, Clock("us" if time.dtype.is_temporal() else None, zone))


def _checked(given: Mapping[str, object]) -> dict[str, Numbers]:
    """Prediction and quantiles as arrays, where given; the prediction may be the middle quantile."""
    arrays = {name: _numbers(values, name) for name, values in given.items() if values is not None}
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
    shape = {"history": "(history,)", "quantiles": "(horizon, n)"}.get(name, "(horizon,)")
    if not isinstance(values, torch.Tensor) or values.ndim != shape.count(",") + (name == "quantiles"):
        got = tuple(values.shape) if isinstance(values, torch.Tensor) else type_text(values)
        raise ValueError(f"{name} must be a tensor of the shape {shape}, got {got}. Take one window and one column.")
    return array_of(values.detach().to(torch.float64), name)
