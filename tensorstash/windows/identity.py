"""What windows are: which rows they hold, how far they look back and what their numbers mean, in a few plain values."""

import math
import zlib
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray

from tensorstash.common.calendar import Calendar
from tensorstash.common.checks import is_integer
from tensorstash.common.frequency import Frequency
from tensorstash.stash.header import names_checksum
from tensorstash.stash.stash import Stash
from tensorstash.windows.meaning import OF_VALUES, meaning, plain
from tensorstash.windows.placement import Placement
from tensorstash.windows.time_spans import TimeSpan

OF_ROWS = {  # fields of which each shard of some data has its own, or which the manifest of all decides
    *("windows", "entities", "rows", "first_time", "last_time", "names", "offsets", "runs", "row_times"),
    *("known_times", "entities_in_tables", "cover", "variates", "frequency"),
}


def meanings(placement: Placement) -> dict[str, dict[str, Any]]:
    """What the entries of a batch mean: columns of spans, static columns and labels by name, and the clock."""
    stash, points = placement.stash, placement.points
    columns = {}
    for name, held in columns_of(placement).items():
        columns[name] = meaning(held.stash, held.name)
        if held.empty is not None and not held.stash.about(held.name).calendar:
            columns[name]["empty"] = plain(held.empty.view(held.stash[held.name].dtype).item())
    static = {name: meaning(stash, name) for name in stash.static}
    return {
        "clock": clock_of(stash) | {f"of {name}": clock_of(table) for name, table in tables_of(placement).items()},
        "columns": columns,
        "static": static,
        "labels": {} if points is None else dict(points.kinds),
    }


class Held(NamedTuple):
    """A column of the spans: where it is, and what empty slots hold."""

    stash: Stash
    name: str
    empty: torch.Tensor | None


def columns_of(placement: Placement) -> dict[str, Held]:
    """The columns of the spans: those of the windows' stash by their names, those of a table behind its name."""
    fills = placement.fills or {}
    names = dict.fromkeys(name for span in placement.slot_spans for name in span.columns)
    found = {name: Held(placement.stash, name, fills.get(name)) for name in names}
    for time_span in placement.time_spans:
        table = "" if time_span.table.name is None else f"{time_span.table.name}."
        for span in time_span.spans:
            held = Held(time_span.stash, span.column, time_span.fills[span.column])
            found[f"{table}{span.column}"] = held
    return found


def tables_of(placement: Placement) -> dict[str, Stash]:
    """The tables of windows by name."""
    every = ((time_span.table.name, time_span.stash) for time_span in placement.time_spans)
    return {name: stash for name, stash in every if name is not None}


def clock_of(stash: Stash) -> dict[str, Any]:
    """The unit and the zone of the times, as far as there are any."""
    if stash.time_name is None:
        return {}
    clock = {"unit": stash.clock.unit or "integers"}
    if stash.known is not None:
        clock["known unit"] = stash.known_clock.unit or "integers"
    return clock if stash.clock.zone is None else clock | {"zone": stash.clock.zone}


def fingerprint(placement: Placement) -> dict[str, Any]:
    """A small identity in plain values, without paths or values of columns.

    It differs if windows hold other rows, or if their numbers mean something else. The same numbers in another floating
    type, scaled, or with other values for what is missing, are the same to a run that resumes.
    """
    return placement_identity(placement) | of_numbers(meanings(placement))


def of_numbers(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What the entries of a batch mean, without what a state may change."""
    some = ("columns", "static")
    return {**found, **{part: {name: _of_numbers(traits) for name, traits in found[part].items()} for part in some}}


def _of_numbers(traits: Mapping[str, Any]) -> dict[str, Any]:
    kept = {trait: value for trait, value in traits.items() if trait not in OF_VALUES}
    return {trait: value for trait, value in kept.items() if trait != "type" or "float" not in value}


def placement_identity(placement: Placement) -> dict[str, Any]:
    """Which rows windows hold, in plain values."""
    stash = placement.stash
    first, last = stash.time_range
    spans: dict[str, list[Any]] = {
        span.name: [span.column, span.start if span.draw is None else str(span.draw), span.stop, span.step]
        for span in placement.slot_spans
    }
    for time_span in placement.time_spans:
        spans |= _in_time(time_span)
    cover, step = placement.cover, placement.slots.frequency
    has_own = any(time_span.table.name is None for time_span in placement.time_spans)
    others = [time_span for time_span in placement.time_spans if time_span.table.name is not None]
    # which entity of its table each entity of the windows has
    numbers = [time_span.table.entity for time_span in others if time_span.table.entity is not None]
    some = {
        "cover": None if cover is None else [cover.span.name, _checksum([cover.low, cover.high])],
        "variates": widths_of(placement) or None,
        "row_times": stash.times_checksum if has_own else None,
        "known_times": stash.info.known.checksum if has_own and stash.info.known is not None else None,
        "tables": {name: _table(stash) for name, stash in tables_of(placement).items()} or None,
        "entities_in_tables": _checksum(numbers) if others else None,
        "calendar": step.identity if isinstance(step, Calendar) else None,
        # the times of empty slots, and what is found by them
        "frequency": f"{step.count} {step.kind}"
        if isinstance(step, Frequency) and placement.fills is not None
        else None,
    }
    return {
        "windows": len(placement),
        "entities": len(placement.offsets) - 1,
        "rows": stash.rows,
        "first_time": first,
        "last_time": last,
        "spans": spans,
        **placement.strides.given,
        "stride": placement.intervals.stride,  # also where it is 1
        "names": names_checksum(stash),
        "offsets": stash.segment.checksums["__offsets"],
        "runs": _runs(placement),
        **{name: value for name, value in some.items() if value is not None},
    }


def widths_of(placement: Placement) -> dict[str, int]:
    """How many columns the packs of `ts.each` have, by name."""
    names = dict.fromkeys(name for span in placement.slot_spans if span.variates is not None for name in span.columns)
    return {name: math.prod(placement.stash[name].shape[1:]) for name in names}


def _runs(placement: Placement) -> int:
    """A checksum of where the windows are."""
    points, intervals = placement.points, placement.intervals
    where = (
        (intervals.guide.base, intervals.guide.ends) if points is None else (points.slot, points.time, points.entity)
    )
    return _checksum([*where, *(() if placement.fills is None else placement.slots.fragments[:2])])


def _checksum(arrays: Iterable[NDArray[Any]]) -> int:
    return reduce(lambda crc, array: zlib.crc32(array.tobytes(), crc), arrays, 0)


def _table(stash: Stash) -> dict[str, Any]:
    """Which rows a table has, for which entities and times."""
    first, last = stash.time_range
    return {
        "rows": stash.rows,
        "first_time": first,
        "last_time": last,
        "names": names_checksum(stash),
        "offsets": stash.segment.checksums["__offsets"],
        "row_times": stash.times_checksum,
        **({} if stash.info.known is None else {"known_times": stash.info.known.checksum}),
    }


def _in_time(time_span: TimeSpan) -> dict[str, list[Any]]:
    bounds = [int(text) if is_integer(text) else str(text) for text in (time_span.start.text, time_span.stop.text)]
    aged, table = {span.name for span in time_span.ages}, list[str]()
    if time_span.table.name is not None:
        table = [f"of {time_span.table.name}", *(f"by {name}" for name in time_span.table.by or ())]
    return {
        span.name: [
            span.column,
            *bounds,
            time_span.max_rows,
            time_span.closed,
            *(["in buckets"] * (time_span.every is not None)),
            *(["age"] * (f"{span.name}.age" in aged)),
            *table,
        ]
        for span in time_span.spans
    }


def needs(placement: Placement) -> dict[str, Any]:
    """What `Windows.needs` returns."""
    found: dict[str, Any] = {"slots": placement.history, "during": {}}
    for part in placement.time_spans:
        text, name = part.start.text, part.table.name
        starts = {span.name: int(text) if is_integer(text) else str(text) for span in part.spans}
        if name is not None:
            found.setdefault("tables", {}).setdefault(name, {}).update(starts)
        elif part.start.steps < 0:
            found["during"].update(starts)
    return found
