"""Kinds of windows: one list for the tests of everything that samples, and for the net against an earlier commit.

A line of `ARGUMENTS` is arguments of `ts.Windows` over `stash_of`; what it lacks is `SPANS`, and a frequency of 1. The
net takes two lines at once.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import torch

import tensorstash
from tests.differential.library import ts

LENGTHS = {"ash": 23, "birch": 40, "cedar": 17, "elm": 31, "fir": 7}
SPANS: dict[str, Any] = {"past": ("y", -4, 0), "target": ("y", 0, 2)}
SHORT: dict[str, Any] = {"past": ("y", -2, 0), "target": ("y", 0, 1)}
DAYS = [day for day in range(0, 60) if day % 7 < 5 and day != 17]  # without weekends and a holiday
PRICES = {"t": [*range(0, 60, 3)], "price": [*map(float, range(20))]}

ARGUMENTS: dict[str, Callable[[], dict[str, Any]]] = {
    "from the end": lambda: {"spans": SHORT, "stride": 2, "align": "end"},
    "common origins": lambda: {"spans": SHORT, "stride": 2, "align": 8},
    "common origins over gaps": lambda: {"stride": 3, "align": 8, "gaps": "mask", "min_horizon": 1},
    "shares": lambda: {"gaps": "mask", "require": {"past": 0.75, "target": 0.5}},
    "rows": lambda: {"gaps": "mask", "require": {"y": "rows"}, "min_history": 1},
    "a calendar": lambda: {"frequency": DAYS},
    "a calendar with empty slots": lambda: {
        "frequency": DAYS,
        "gaps": "mask",
        "spans": SPANS | {"day": ("day", 0, 2)},
    },
    "a calendar and shares": lambda: {"frequency": DAYS, "gaps": "mask", "require": {"x": 0.8}, "align": 12},
    "each variate": lambda: {"frequency": DAYS, "spans": {"x": (ts.each("x"), -4, 0)}, "stride": 2, "align": "end"},
    "drawn": lambda: {"frequency": DAYS, "spans": {"past": ("y", ts.Draw(-6, -2), 0), "next": ("y", 0, 1)}},
    "tables": lambda: {
        "spans": SPANS | {"price": ts.During("price", -9, 0, max_rows=3, table="prices")},
        "tables": {"prices": ts.load(PRICES, ["price"], time="t")},
        "frequency": DAYS,
        "stride": 2,
        "align": "end",
    },
    "whole series": lambda: {
        "frequency": DAYS,
        "spans": {"past": ("y", 0, None), "x": ("x", 0, None)},
        "max_slots": 60,
    },
}

PARTS: dict[str, Callable[[tensorstash.Stash], tensorstash.Windows]] = {
    "chosen": lambda stash: plain(stash, frequency=DAYS, stride=2, align="end").of(["birch", "ash", "elm"]),
    "covering": lambda stash: plain(stash, frequency=DAYS, gaps="mask", min_history=0, min_horizon=1).cover("target"),
    "the last of each": lambda stash: plain(stash, frequency=DAYS, gaps="mask").split_last(9, 5)[1],
}

KINDS = [*ARGUMENTS, *PARTS]


def stash_of(dtype: torch.dtype | None = None) -> tensorstash.Stash:
    """Five series with gaps and missing values, whose values tell their row."""
    frames = []
    for k, (name, n) in enumerate(LENGTHS.items()):
        t = np.array(DAYS)[: n + 1]
        t = np.delete(t, 9) if n > 9 else t[:n]
        values = np.where(t % 11 == 3, np.nan, 1000.0 * k + t)
        frames.append(pl.DataFrame({"tree": [name] * len(t), "t": t, "y": values, "z": 1000.0 * k - t}))
    columns = {"y": "y", "x": ["y", "z"], "day": ts.calendar("time")}
    stash: tensorstash.Stash = ts.load(pl.concat(frames), columns, entity="tree", time="t", dtype=dtype)
    return stash


def plain(stash: tensorstash.Stash, **more: Any) -> tensorstash.Windows:
    """Windows with some arguments."""
    windows: tensorstash.Windows = ts.Windows(stash, **{"spans": SPANS, "frequency": 1, **more})
    return windows


def windows_of(kind: str, stash: tensorstash.Stash) -> tensorstash.Windows:
    """The windows of a kind."""
    return PARTS[kind](stash) if kind in PARTS else plain(stash, **ARGUMENTS[kind]())
