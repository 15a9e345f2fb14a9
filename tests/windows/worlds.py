"""Random stashes with tables beside them, as frames of nanoseconds too."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

import tensorstash as ts
from tests.windows.seen import NS, Seen, Table, moved, seen
from tests.words import Side

HOUR, DAY = 3600 * 10**9, 86_400 * 10**9
BEGIN = 1_711_670_400 * 10**9  # 2024-03-29, two days before clocks change in Berlin
SITES = ["north", "east", "south", "west"]
SIDES: tuple[Side | None, ...] = (None, "left", "right")
UNITS = ("ns", "us", "ms", "d")


def times_of(ns: "pl.Series | list[int]", unit: str, zone: str | None) -> pl.Series:
    """Nanoseconds as a column of times."""
    series = pl.Series("", ns, dtype=pl.Int64)
    if unit == "d":
        return (series // DAY).cast(pl.Int32).cast(pl.Date)
    times = (series // NS[unit]).cast(pl.Datetime(unit))  # type: ignore[arg-type]
    return times.dt.replace_time_zone("UTC").dt.convert_time_zone(zone) if zone else times


@dataclass
class World:
    """A stash of regular series and a table beside it, both as frames of nanoseconds too."""

    random: np.random.Generator
    own_unit: str
    unit: str
    zone: str | None
    form: str  # of the entities of the table: "same", "by", "none"
    known: str | None = None  # the unit of known times
    events: bool = False
    step: int = field(init=False)
    table: Table = field(init=False)

    def __post_init__(self) -> None:
        self.step = DAY if self.own_unit == "d" else HOUR
        rows, random = int(self.random.integers(0, 60)), self.random
        step, tick = (DAY, DAY) if self.unit == "d" else (HOUR // 2, NS[self.unit])
        time = BEGIN + random.integers(-8, 40, rows) * step + random.integers(-1, 2, rows) * tick * (step != DAY)
        frame = pl.DataFrame({"entity": random.choice(SITES[1:], rows), "time": time})
        if self.form == "none":
            frame = frame.drop("entity")
        if self.known is not None:
            late, tick = (6, DAY) if self.known == "d" else (40, NS[self.known])
            step = DAY if self.known == "d" else HOUR
            known = BEGIN + random.integers(-4, late, rows) * step + random.integers(-1, 2, rows) * tick * (step != DAY)
            frame = frame.with_columns(known=pl.Series(known))
        if not self.events:
            frame = frame.unique([name for name in ("entity", "time", "known") if name in frame.columns])
            frame = frame.sample(fraction=1.0, shuffle=True, seed=int(random.integers(99)))
        value = [None if random.random() < 0.2 else float(k) for k in range(len(frame))]
        self.table = Table(frame.with_columns(value=pl.Series(value, dtype=pl.Float64)), self.events)

    def loaded(self) -> ts.Stash:
        """The table as a stash."""
        frame = self.table.frame
        columns = {"valid_at": times_of(frame["time"], self.unit, self.zone)}
        if self.known is not None:
            columns["issued"] = times_of(frame["known"], self.known, self.zone)
        kept = frame.select(pl.exclude("time", "known")).with_columns(**columns)
        more: dict[str, Any] = {} if self.known is None else {"known": "issued"}
        entity = "entity" if "entity" in frame.columns else None
        duplicates: Any = "keep" if self.events else "error"
        return ts.load(kept, ["value"], entity=entity, time="valid_at", duplicates=duplicates, **more)

    def own(self) -> tuple[ts.Stash, pl.DataFrame]:
        """A stash of regular series, and its frame of nanoseconds: `series`, `time`, `y`."""
        offset = int(self.random.integers(0, 2)) * NS[self.own_unit] * (self.own_unit != "d")
        parts = []
        names = SITES[:3] if self.form != "by" else ["k1", "k2", "k3"]
        for name in names:
            first, count = int(self.random.integers(-3, 3)), int(self.random.integers(3, 9))
            times = [BEGIN + (first + k) * self.step + offset for k in range(count)]
            parts.append(pl.DataFrame({"series": [name] * count, "time": times}))
        frame = pl.concat(parts).with_row_index("y")
        loaded = frame.with_columns(time=times_of(frame["time"], self.own_unit, self.zone))
        static = pl.DataFrame({"series": names, "site": [SITES[0], SITES[3], None][: len(names)]})
        stash = ts.load(loaded, ["y"], entity="series", time="time", static=static if self.form == "by" else None)
        return stash, frame

    def entity_of(self, series: str) -> str | None:
        """The entity of the table that a series has."""
        return {"k1": SITES[0], "k2": SITES[3], "k3": None}[series] if self.form == "by" else series

    @property
    def tick(self) -> int:
        """The finest unit in nanoseconds."""
        return min(NS[unit] for unit in (self.own_unit, self.unit, self.known) if unit is not None)


# a stretch, the slots of max_rows, and the buckets that divide it
HOURS = [("-12h", "0h", 5, "2h"), ("-3h", "3h", 4, "30m"), ("0h", "6h", 3, "1h"), ("-7h", "-1h", 30, "3h")]
CALENDAR = [("-1d", "0d", 9, None), ("-1mo", "-1d", 3, None), ("-2d", "1d", 40, None)]
DAYS = [("-4d", "0d", 3, "2d"), ("-2d", "2d", 9, "1d"), ("0d", "3d", 2, "1d")]


def spans_of(world: World) -> dict[str, ts.During]:
    """A few spans over the table, with every kind of bound."""
    random, spans = world.random, {}
    stretches = DAYS if world.tick == DAY else [*HOURS, *CALENDAR, *([] if world.zone else DAYS)]
    if world.known is not None:  # a stretch that ends later than t needs every=
        stretches = [stretch for stretch in stretches if stretch[3] or stretch[1] != "1d"]
    for k in range(3):
        start, stop, most, every = stretches[random.integers(len(stretches))]
        by_time = every is not None and (random.random() < 0.5 or (world.known is not None and stop[0] not in "-0"))
        spans[f"s{k}"] = ts.During(
            "value",
            start,
            stop,
            max_rows=None if by_time else most,
            every=every if by_time else None,
            age=True,
            closed=SIDES[random.integers(3)],
            table="others",
            by="site" if world.form == "by" else None,
        )
    return spans


def expected_of(world: World, span: ts.During, series: str, t: int, side: str) -> Seen:
    """What one window sees of a span."""
    closed, zone = span.closed or side, world.zone
    bounds = moved(t, str(span.start), zone), moved(t, str(span.stop), zone)
    every = None if span.every is None else moved(t, str(span.every), None) - t
    slots = span.max_rows or (bounds[1] - bounds[0]) // (every or 1)
    return seen(world.table, world.entity_of(series), t, bounds, closed, slots, every)


def world_of(seed: int, form: str, versions: str) -> World:
    """A world of units and zones that the seed decides; `versions` is "none", "known" or "events"."""
    random = np.random.default_rng(seed)
    own, unit, known = (str(unit) for unit in random.choice(UNITS, 3))
    zone = [None, "Europe/Berlin", "UTC"][random.integers(3)]
    if versions == "none":
        return World(random, own, unit, None if "d" in (own, unit) else zone, form)
    return World(random, own, unit, None if "d" in (own, unit, known) else zone, form, known, versions == "events")


def at_points(world: World, closed: Side) -> tuple[ts.Windows, dict[str, list[Seen]]]:
    """Windows at any times, in any order, and what each sees of each span."""
    arguments, expected = points_of(world, closed)
    return ts.Windows(**arguments), expected


def points_of(world: World, closed: Side) -> tuple[dict[str, Any], dict[str, list[Seen]]]:
    """The arguments of such windows, and what each sees."""
    stash, frame = world.own()
    picked, random, tick = world.random.integers(0, len(frame), 12), world.random, NS[world.own_unit]
    series = frame["series"].gather(picked)
    moved = random.integers(-20, 20, 12) * (world.step // 2 // tick) + random.integers(-1, 2, 12)
    times = (frame["time"].gather(picked) // tick + pl.Series(moved)) * tick
    at = pl.DataFrame({"series": series, "time": times_of(times, world.own_unit, world.zone)})
    spans = spans_of(world)
    expected = {
        name: [expected_of(world, span, s, t, closed) for s, t in zip(series, times)] for name, span in spans.items()
    }
    tables = {"others": world.loaded()}
    return {"stash": stash, "spans": spans, "tables": tables, "at": at, "closed": closed}, expected
