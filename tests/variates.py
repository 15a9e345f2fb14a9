"""Rows of `ts.each` the slow way: from whole packs in the same batch, and from the data by hand."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray

import tensorstash as ts

Batch = dict[str, torch.Tensor]


def rows_of_packs(batch: Batch, packs: Sequence[str], windows: int) -> Iterator[tuple[int, int, int]]:
    """The window, the number of the pack and the column of each row; `packs` are spans of whole packs."""
    for window in range(windows):
        for number, pack in enumerate(packs):
            for column in range(batch[pack][window].flatten(1).shape[1] if batch[pack].ndim > 2 else 1):
                yield window, number, column


def check_rows(batch: Batch, name: str, packs: Sequence[str]) -> None:
    """A span of `ts.each` holds what the spans of its packs over the same slots hold."""
    windows = len(batch[packs[0]])
    expected = [*rows_of_packs(batch, packs, windows)]
    assert batch[name].shape[:1] == (len(expected),)
    for entry in ("window", "variate", "pack"):
        assert batch[f"{name}.{entry}"].dtype == torch.int64
    for row, (window, number, column) in enumerate(expected):
        told = [int(batch[f"{name}.{entry}"][row]) for entry in ("window", "pack", "variate")]
        assert told == [window, number, column]
        whole = batch[packs[number]][window]
        values = whole.reshape(len(whole), -1)[:, column]
        assert same(batch[name][row], values)
        assert (f"{name}.observed" in batch) == (f"{packs[number]}.observed" in batch)
        if f"{name}.observed" in batch:
            assert torch.equal(batch[f"{name}.observed"][row], batch[f"{packs[number]}.observed"][window])


def same(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether two tensors have the same bits, up to those of NaN and the sign of 0."""
    if one.dtype != two.dtype or one.shape != two.shape:
        return False
    if not one.is_floating_point():
        return torch.equal(one, two)
    missing = one.isnan()
    return torch.equal(missing, two.isnan()) and torch.equal(one.masked_fill(missing, 0), two.masked_fill(missing, 0))


# ---- By hand ----

STEPS = {"15m": timedelta(minutes=15), "1h": timedelta(hours=1), "1d": timedelta(days=1), "1mo": None}
BEGIN = datetime(2001, 1, 1)


def moved(time: datetime, step: str, count: int) -> datetime:
    """The time `count` steps later."""
    length = STEPS[step]
    if length is not None:
        return time + count * length
    months = time.year * 12 + time.month - 1 + count
    return time.replace(year=months // 12, month=months % 12 + 1)


@dataclass(frozen=True)
class DataSet:
    """Some series of one frequency, some of their rows missing; the values tell where they stand."""

    number: int
    step: str
    widths: tuple[int, int]  # of the packs "x" and "c"
    series: tuple[tuple[int, frozenset[int]], ...]  # of each the steps, and those of them without a row

    def rows(self, series: int) -> list[int]:
        """The steps of a series that have a row."""
        length, missing = self.series[series]
        return [at for at in range(length) if at not in missing]

    def value(self, series: int, at: int, column: int) -> float:
        """Of a column of both packs, at a step of a series."""
        return self.number * 1e12 + series * 1e10 + at * 100 + column

    def stash(self) -> ts.Stash:
        """The data set, loaded."""
        rows = [*map(self.rows, range(len(self.series)))]
        series, at = np.repeat(np.arange(len(rows)), [*map(len, rows)]), np.concatenate(rows).astype(np.int64)
        count = sum(self.widths)
        values = self.number * 1e12 + series[:, None] * 1e10 + at[:, None] * 100.0 + np.arange(count)
        columns = {f"v{k}": values[:, k] for k in range(count)}
        first, second = [*columns][: self.widths[0]], [*columns][self.widths[0] :]
        packs = {"x": first, "c": second}
        return ts.load(
            {"series": series, "time": self.times(at), **columns}, packs, entity="series", time="time", static=None
        )

    def times(self, at: NDArray[np.int64]) -> NDArray[np.datetime64]:
        """The times of steps."""
        length = STEPS[self.step]
        if length is None:
            return (np.datetime64("2001-01", "M") + at).astype("M8[us]")
        return np.datetime64(BEGIN, "us") + at * np.timedelta64(length)

    def step_of(self, anchor: int) -> int:
        """The step at a time in microseconds since 1970."""
        time = datetime(1970, 1, 1) + timedelta(microseconds=anchor)
        length = STEPS[self.step]
        if length is None:
            return (time.year - BEGIN.year) * 12 + time.month - BEGIN.month
        return (time - BEGIN) // length

    def window(
        self, series: int, anchor: int, slots: range, packs: Sequence[int]
    ) -> list[tuple[int, int, list[float]]]:
        """The pack, the column and the values of each row of a window, NaN where there is no row."""
        (length, missing), at = self.series[series], self.step_of(anchor)
        held = {at + j for j in slots if 0 <= at + j < length} - missing
        rows = []
        for number, pack in enumerate(packs):
            for column in range(self.widths[pack]):
                place = column + (self.widths[0] if pack else 0)
                values = [self.value(series, at + j, place) if at + j in held else float("nan") for j in slots]
                rows.append((number, column, values))
        return rows


@st.composite
def data_sets(draw: st.DrawFn, number: int) -> DataSet:
    """Widths of 1 to 40, series of 5 to 100,000 rows, minutes to months."""
    step = draw(st.sampled_from([*STEPS]))
    long = draw(st.integers(0, 15)) == 0 and step != "1mo"
    series = []
    for _ in range(draw(st.integers(1, 3))):
        length = 100_000 if long else draw(st.integers(5, 60))
        missing = {*draw(st.lists(st.integers(1, length - 2), max_size=3))}
        series.append((length, frozenset(missing)))
        long = False
    widths = draw(st.integers(1, 4 if series[0][0] > 1000 else 40)), draw(st.integers(1, 3))
    return DataSet(number, step, widths, tuple(series))


def mixes() -> st.SearchStrategy[list[DataSet]]:
    """A few data sets."""
    return st.integers(1, 4).flatmap(lambda count: st.tuples(*map(data_sets, range(count))).map(list))


@lru_cache(maxsize=8)
def loaded(data: DataSet) -> ts.Stash:
    """Many mixes are of the same few data sets."""
    return data.stash()


def windows_of(sets: Sequence[DataSet], spans: Mapping[str, object], **arguments: Any) -> dict[str, ts.Windows]:
    """Windows with empty slots in the middle, before and after the series."""
    return {
        f"set {k}": ts.Windows(
            loaded(data), spans=spans, gaps="mask", frequency=data.step, min_history=1, min_horizon=0, **arguments
        )
        for k, data in enumerate(sets)
    }


# ---- Chronos-2 ----


def chronos_batch(
    tasks: Sequence[tuple[NDArray[np.floating[Any]], int, int]], cuts: Sequence[int], context: int, horizon: int
) -> dict[str, torch.Tensor]:
    """`Chronos2Dataset._build_batch` in training, written anew, for tasks `(rows, targets, known covariates)` and cuts.

    Rows are targets, past-only covariates and known covariates. Contexts are padded with NaN on the left.
    """
    contexts, targets, covariates, groups = [], [], [], []
    for group, ((values, count, known), cut) in enumerate(zip(tasks, cuts)):
        contexts.append(values[:, max(0, cut - context) : cut])
        target = values[:, cut : cut + horizon].copy()
        target[count:] = np.nan
        targets.append(target)
        covariate = values[:, cut : cut + horizon].copy()
        covariate[: len(values) - known] = np.nan
        covariates.append(covariate)
        groups += [group] * len(values)
    longest = max(part.shape[1] for part in contexts)
    padded = [np.pad(part, ((0, 0), (longest - part.shape[1], 0)), constant_values=np.nan) for part in contexts]
    named = {"context": padded, "future_target": targets, "future_covariates": covariates}
    tensors = {name: torch.from_numpy(np.concatenate(parts)) for name, parts in named.items()}
    return tensors | {"group_ids": torch.tensor(groups)}
