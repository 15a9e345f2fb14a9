"""Data for the tests of scalers, and what scikit-learn makes of them."""

from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

import tensorstash as ts
from tests.words import ScalerKind as Kind

THEIRS = {"standard": StandardScaler, "minmax": MinMaxScaler, "robust": RobustScaler, "maxabs": MaxAbsScaler}
KINDS = get_args(Kind)


def theirs(kind: str, values: NDArray[Any]) -> NDArray[np.float64]:
    """What scikit-learn makes of `(rows, items)`, in float64."""
    return THEIRS[kind]().fit_transform(values.astype(np.float64))


def panel(lengths: list[int], seed: int = 0, holes: float = 0.1) -> ts.Stash:
    """Entities on levels of their own, a pack of three, some values missing."""
    rng = np.random.default_rng(seed)
    rows = sum(lengths)
    level = np.repeat(rng.normal(0, 100, len(lengths)), lengths)
    table = rng.normal(level[:, None], [1, 2, 30], (rows, 3))
    y = rng.normal(level, 3)
    y[rng.random(rows) < holes] = np.nan
    entity = np.repeat(np.arange(len(lengths)), lengths)
    time = np.concatenate([np.arange(length) for length in lengths])
    return ts.load({"e": entity, "t": time, "y": y, "x": table}, ["y", "x"], entity="e", time="t")


def scaled(scaler: ts.Scaler, stash: ts.Stash, column: str) -> NDArray[Any]:
    """All rows of a column, scaled as one batch of a window."""
    span = next(span for span, of in scaler.spans.items() if of == column)
    return scaler({span: stash[column][None].clone()})[span][0].numpy()


def series(levels: dict[Any, float]) -> ts.Stash:
    """Two entity columns would be tuples; each entity has the values level - 1 and level + 1, again and again."""
    table = {"e": np.repeat([*levels], 6), "t": [*range(6)] * len(levels)}
    values = np.concatenate([level + np.array([-1.0, 1.0] * 3) for level in levels.values()])
    return ts.load({**table, "y": values, "z": values + 0.5}, ["y", "z"], entity="e", time="t")
