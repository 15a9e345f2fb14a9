"""A frame with a column of each type that expressions are made of, and the columns as polars writes them."""

from typing import Any

import numpy as np
import polars as pl

a, b, f, s, t, day, items, pair = (pl.col(name) for name in ("a", "b", "f", "s", "t", "day", "items", "pair"))


def frame(rows: int, seed: int = 0) -> pl.DataFrame:
    """A column of each type that expressions are made of, with nulls in all but the first."""
    rng = np.random.default_rng(seed)
    holes = rng.random(rows) < 0.2
    seconds = rng.integers(-(10**9), 2 * 10**9, rows)
    columns: dict[str, Any] = {
        "a": pl.Series(rng.integers(-50, 50, rows)),
        "b": pl.Series(rng.integers(1, 9, rows).astype(np.int32)),
        "f": pl.Series(np.where(rng.random(rows) < 0.1, np.nan, rng.normal(0, 30, rows))),
        "s": pl.Series([f"{'Zü' * (k % 2)}{k % 7}" for k in rng.integers(0, 99, rows).tolist()], dtype=pl.String),
        "t": pl.Series(seconds.astype("M8[s]").astype("M8[us]")).dt.replace_time_zone("UTC"),
        "day": pl.Series(seconds.astype("M8[s]").astype("M8[us]")).dt.date(),
        "items": pl.Series(rng.integers(0, 9, (rows, 3)).tolist(), dtype=pl.List(pl.Int64)),
        "pair": pl.Series(rng.random((rows, 2)).tolist(), dtype=pl.Array(pl.Float32, 2)),
    }
    hole = pl.Series(holes)
    made = pl.DataFrame(columns)
    return made.with_columns(pl.when(~hole).then(pl.col("f", "b", "s", "t", "day")))


def doubled(value: int) -> int:
    """What polars would advise against, if it could look into it."""
    return int(f"{value}") * 2
