"""What a window may see of a table, asked of polars window by window: the oracle of spans over tables."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import polars as pl

NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "d": 86_400 * 10**9}


class Seen(NamedTuple):
    """The slots of one window: the value of each or `None`, and how long before t its time and its known time are."""

    observed: list[bool]
    values: list[Any]
    ages: list[int]
    delays: list[int]


@dataclass
class Table:
    """A table as a frame of nanoseconds: `entity`, `time` and `known`, if it has them, and `value`."""

    frame: pl.DataFrame  # in the order of the source
    events: bool = False  # rows of one time do not replace each other


@cache
def moved(t: int, by: str, zone: str | None) -> int:
    """A time in nanoseconds, moved by a duration of polars in a zone."""
    times = pl.Series([t]).cast(pl.Datetime("ns")).dt.replace_time_zone("UTC").dt.convert_time_zone(zone or "UTC")
    return int(times.dt.offset_by(by).dt.timestamp("ns")[0])


def seen(
    table: Table, entity: Any, t: int, bounds: tuple[int, int], closed: str, slots: int, every: int | None = None
) -> Seen:
    """The newest rows of an entity in a stretch, or those of its buckets, as they were known at t.

    `filter(known < t).sort("known").unique("time", keep="last")`: of each time the newest version. All in nanoseconds.
    """
    (begin, end), after, column = bounds, closed == "right", pl.col("time")
    frame = table.frame.with_row_index("row")
    if "entity" in frame.columns:
        frame = frame.filter(pl.col("entity").eq_missing(pl.lit(entity, pl.String)))
    frame = frame.filter((begin < column) & (column <= end) if after else (begin <= column) & (column < end))
    if "known" in frame.columns:
        frame = frame.filter(pl.col("known") <= t if after else pl.col("known") < t).sort("known", "row")
        if not table.events:
            frame = frame.unique("time", keep="last", maintain_order=True)
    frame = frame.sort("time", maintain_order=True)
    if every is None:
        newest = frame.tail(slots).to_dicts()
        rows = dict(enumerate(newest, slots - len(newest)))
    else:
        frame = frame.with_columns(slot=(column - begin - after) // every)
        rows = {row["slot"]: row for row in frame.unique("slot", keep="last", maintain_order=True).to_dicts()}
    picked = [rows.get(k) for k in range(slots)]
    return Seen(
        [row is not None for row in picked],
        [None if row is None else row["value"] for row in picked],
        [0 if row is None else t - row["time"] for row in picked],
        [0 if row is None or "known" not in row else t - row["known"] for row in picked],
    )


def check(batch: Mapping[str, Any], name: str, expected: Sequence[Seen], tick: int, *, known: bool) -> None:
    """Every value, flag, age and delay of a span with `age=True`; `tick` is the unit of ages in nanoseconds."""
    values = [[None if math.isnan(value) else value for value in row] for row in batch[name].tolist()]
    assert values == [one.values for one in expected]
    assert batch[f"{name}.observed"].tolist() == [one.observed for one in expected]
    assert batch[f"{name}.age"].tolist() == [[age // tick for age in one.ages] for one in expected]
    assert (f"{name}.delay" in batch) == known
    if known:
        assert batch[f"{name}.delay"].tolist() == [[delay // tick for delay in one.delays] for one in expected]
