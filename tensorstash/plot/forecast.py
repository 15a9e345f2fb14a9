"""`ts.plot.forecast`: one window and its prediction."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.plot.axes import COLOURS, pyplot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TRUTH, _PREDICTION, _BAND = COLOURS
_DASHED = (4, 1)

Numbers = NDArray[np.float64]


def forecast(
    history: torch.Tensor,
    truth: torch.Tensor | None = None,
    prediction: torch.Tensor | None = None,
    quantiles: torch.Tensor | None = None,
    *,
    axes: "Axes | None" = None,
) -> "Axes":
    """Draw the history of one window, the truth after it, and a prediction with bands between its quantiles.

    The axis counts slots from the anchor. NaN breaks a line.

    Args:
        history: `(history,)` values before the anchor.
        truth: `(horizon,)` values from the anchor on; `None` if they are not known yet.
        prediction: `(horizon,)`; `None` draws the middle one of an odd number of quantiles.
        quantiles: `(horizon, n)`, ascending along the last dimension. Pairs of them, from the outermost inwards, are
            drawn as bands over each other.
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
    past = _numbers(history, "history", "(history,)")
    ahead = _checked({"truth": truth, "prediction": prediction, "quantiles": quantiles})
    if axes is None:
        _, axes = plt.subplots(figsize=(10, 3), layout="constrained")
    axes.plot(np.arange(-len(past), 0), past, color=_TRUTH, linewidth=1, label="history")
    if "truth" in ahead:
        joined = np.concatenate([past[-1:], ahead["truth"]])  # or the line would have a gap
        slots = np.arange(len(joined)) - len(past[-1:])
        axes.plot(slots, joined, color=_TRUTH, linewidth=1, dashes=_DASHED, label="truth")
    if "quantiles" in ahead:
        bands = ahead["quantiles"].T
        pairs = len(bands) // 2
        for k in range(pairs):
            band = axes.fill_between(
                np.arange(bands.shape[1]), bands[k], bands[-1 - k], color=_BAND, alpha=0.8 / pairs, linewidth=0
            )
            if k == 0:
                band.set_label("quantiles")
    if "prediction" in ahead:
        axes.plot(ahead["prediction"], color=_PREDICTION, linewidth=1.5, label="prediction")
    axes.axvline(-0.5, color="grey", linewidth=0.8, linestyle=":")
    axes.set_xlabel("slots from the anchor")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _numbers(values: object, name: str, shape: str) -> Numbers:
    """A tensor of that shape as an array."""
    if not isinstance(values, torch.Tensor):
        raise ValueError(f"{name} must be a tensor, got a {type(values).__name__}.")
    dimensions = len(shape.strip("(),").split(","))
    if values.ndim != dimensions:
        remedy = " Take one window of the batch and one column of a pack." if values.ndim > dimensions else ""
        raise ValueError(f"{name} must have the shape {shape}, got {tuple(values.shape)}.{remedy}")
    return values.detach().to("cpu", torch.float64).numpy()


def _checked(given: dict[str, object]) -> dict[str, Numbers]:
    """What is known after the anchor; a missing prediction is the middle one of an odd number of quantiles."""
    ahead = {
        name: _numbers(values, name, "(horizon, n)" if name == "quantiles" else "(horizon,)")
        for name, values in given.items()
        if values is not None
    }
    if len({len(values) for values in ahead.values()}) > 1:
        listed = ", ".join(f"{name} has {len(values)}" for name, values in ahead.items())
        raise ValueError(f"Truth, prediction and quantiles must have one length, the horizon; {listed}.")
    bands = ahead.get("quantiles")
    if bands is not None and (np.diff(bands, axis=1) < 0).any():
        raise ValueError("Quantiles must ascend along the last dimension; these do not. Use quantiles.sort(-1).values.")
    if bands is not None and bands.shape[1] % 2:
        ahead.setdefault("prediction", bands[:, bands.shape[1] // 2])
    return ahead
