"""`ts.plot.forecast`: one window and its prediction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.checks import array_of, shown
from tensorstash.common.text import type_text
from tensorstash.plot.axes import COLOURS, WIDTH, check_axes, label_in_zone, pyplot, show_zone

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from matplotlib.axes import Axes
    from matplotlib.patches import Patch

_TRUTH, _PREDICTION, _BAND = COLOURS
_DASHED = (4, 1)
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
    framed = None
    if prediction is not None and not isinstance(prediction, torch.Tensor):
        framed = _of_frame(prediction)
        prediction, quantiles = framed.prediction, quantiles if framed.quantiles is None else framed.quantiles
    past = _numbers(history, "history")
    several = framed is not None and len(framed.windows) > 1
    ahead = _checked({"truth": None if several else truth, "prediction": prediction, "quantiles": quantiles})
    before, after = np.arange(-len(past), 0), np.arange(max(map(len, ahead.values()), default=0))
    distinct: NDArray[Any] = after
    windows: Sequence[NDArray[np.int64]] = [after]
    if framed is not None:  # the history is spaced as the first two times
        after, windows, distinct = framed.times, framed.windows, np.unique(framed.times)
        before = distinct[0] + (distinct[1] - distinct[0]) * before
    if several and truth is not None:
        ahead["truth"] = _truth_of_several(truth, len(distinct))
    if axes is None:
        _, axes = plt.subplots(figsize=(WIDTH, 3), layout="constrained")
    axes.plot(before, past, color=_TRUTH, linewidth=1, label="history")
    if "truth" in ahead:
        # joined to the history, or the line would have a gap
        joined = np.concatenate([past[-1:], ahead["truth"]])
        slots = np.concatenate([before[-1:], distinct])
        axes.plot(slots, joined, color=_TRUTH, linewidth=1, dashes=_DASHED, label="truth")
    for number, rows in enumerate(windows):
        one = {name: values[rows] for name, values in ahead.items() if name != "truth"}
        _draw(axes, after[rows], one, labelled=number == 0, dotted=len(windows) > 1)
    bands = _band_patches(ahead.get("quantiles"), None if framed is None else framed.levels)
    if framed is None:
        axes.axvline(-0.5, color="grey", linewidth=0.8, linestyle=":")
    elif framed.has_dates:
        show_zone(axes, framed.zone)
    axes.set_xlabel("slots from the anchor" if framed is None else label_in_zone(framed.name, framed.zone))
    handles = [*axes.get_legend_handles_labels()[0], *bands]
    axes.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(handles), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _draw(axes: "Axes", times: NDArray[Any], ahead: Mapping[str, Numbers], *, labelled: bool, dotted: bool) -> None:
    """The bands and the line of one window; `dotted`: with a dot at its start."""
    if "quantiles" in ahead:
        bands = ahead["quantiles"]
        pairs = bands.shape[1] // 2
        for k in range(pairs):
            axes.fill_between(times, bands[:, k], bands[:, -1 - k], color=_BAND, alpha=_alpha(pairs), linewidth=0)
    if "prediction" in ahead:
        (line,) = axes.plot(times, ahead["prediction"], color=_PREDICTION, linewidth=1.5)
        line.set_label("prediction" if labelled else "_prediction")
        if dotted:
            line.set(marker=".", markevery=[0])


def _alpha(pairs: int) -> float:
    """How opaque each of several bands is that lie one upon the other."""
    return 0.8 / pairs


def _band_patches(quantiles: Numbers | None, levels: Sequence[str] | None) -> list["Patch"]:
    """The bands in the legend, as dark as they are where they lie upon wider ones; of many the widest and narrowest."""
    from matplotlib.patches import Patch

    count = 0 if quantiles is None else quantiles.shape[1]
    pairs = count // 2
    patches = []
    for k in range(pairs) if pairs <= _MOST_BANDS else (0, pairs - 1):
        label = f"quantiles {k + 1} to {count - k}" if levels is None else f"{levels[k]} to {levels[-1 - k]}"
        patches.append(Patch(facecolor=_BAND, alpha=1 - (1 - _alpha(pairs)) ** (k + 1), label=label))
    return patches


@dataclass(frozen=True, slots=True)
class _Framed:
    """The rows of a frame of `Windows.to_frame`, of the windows of one entity."""

    prediction: torch.Tensor | None
    quantiles: torch.Tensor | None  # in place of the prediction, if a row has several values
    levels: Sequence[str]  # the names of the values
    times: NDArray[Any]  # of each row, in UTC
    windows: Sequence[NDArray[np.int64]]  # the rows of each
    name: str  # of the times
    zone: str | None
    has_dates: bool


def _of_frame(frame: "pl.DataFrame | pd.DataFrame") -> _Framed:
    """Read a frame: values stand in its last columns, and the times before them and before `anchor` and `step`.

    The column of times or an entity column may itself be named `anchor` or `step`: the first consistent reading holds.
    """
    import polars as pl

    if not (hasattr(frame, "columns") and hasattr(frame, "shape")):
        raise TypeError(f"prediction must be a tensor, or a frame of Windows.to_frame, got {shown(frame)}.")
    frame = frame if isinstance(frame, pl.DataFrame) else pl.DataFrame(frame)  # of pandas
    first = next(k for k in range(len(frame.columns) + 1) if all(dtype.is_float() for dtype in frame.dtypes[k:]))
    if not 0 < first < len(frame.columns) or frame.dtypes[first - 1] in (pl.String, pl.Categorical, pl.Object):
        raise ValueError(f"prediction must be a frame of Windows.to_frame, got the columns {frame.columns}.")
    for added in (["anchor", "step"], ["anchor"], ["step"], []):
        keys = frame.columns[: first - len(added)]
        if keys and frame.columns[len(keys) : first] == added and (found := _windows_of(frame, keys, added)):
            times, windows = found
            break
    else:
        raise ValueError(
            "prediction must have the rows of one window, at least two, or those of several windows of one entity with "
            "their origins. Filter the frame by its entity, or take to_frame(origin=True)."
        )
    values = torch.from_numpy(frame[:, first:].to_numpy().copy())
    one, many = (values[:, 0], None) if values.shape[1] == 1 else (None, values)
    dtype = frame.schema[keys[-1]]
    zone = dtype.time_zone if isinstance(dtype, pl.Datetime) else None
    return _Framed(one, many, frame.columns[first:], times, windows, keys[-1], zone, dtype.is_temporal())


def _windows_of(
    frame: "pl.DataFrame", keys: Sequence[str], added: Sequence[str]
) -> tuple[NDArray[Any], list[NDArray[np.int64]]] | None:
    """The times of the rows and the rows of each window; `None` unless there is one entity and times ascend in each."""
    import polars as pl

    *entities, named = keys
    time = frame[named]
    if isinstance(time.dtype, pl.Datetime) and time.dtype.time_zone is not None:  # where local times may occur twice
        time = time.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    times, windows = time.to_numpy(), [np.arange(len(frame))]
    if "anchor" in added:
        rows = frame.select("anchor", row=pl.int_range(pl.len())).group_by("anchor", maintain_order=True).agg("row")
        windows = [np.array(own, np.int64) for own in rows["row"]]
    steps = [np.diff(times[rows]) for rows in windows]
    if any(frame[name].n_unique() > 1 for name in entities) or len(np.unique(times)) < 2:
        return None
    return None if any((step <= np.zeros(1, step.dtype)).any() for step in steps) else (times, windows)


def _truth_of_several(truth: torch.Tensor, times: int) -> Numbers:
    values = _numbers(truth, "truth")
    if len(values) != times:
        raise ValueError(
            f"For several windows, truth must have a value for each different time of the frame, {times}, got "
            f"{len(values)}. Take those of the frame's times, each once."
        )
    return values


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
        raise ValueError(f"{name} must be a tensor, got {type_text(values)}.")
    shape = {"history": "(history,)", "quantiles": "(horizon, n)"}.get(name, "(horizon,)")
    dimensions = 2 if name == "quantiles" else 1
    if values.ndim != dimensions:
        remedy = " Take one window of the batch and one column of a pack." if values.ndim > dimensions else ""
        raise ValueError(f"{name} must have the shape {shape}, got {tuple(values.shape)}.{remedy}")
    return array_of(values.detach().to(torch.float64), name)
