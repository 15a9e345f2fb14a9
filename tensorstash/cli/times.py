"""The times of a source, as `inspect` shows them: frequency, gaps, duplicates and zone."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorstash.columns.spec import is_valid
from tensorstash.common.dtypes import Bools, Int64s
from tensorstash.common.text import counted
from tensorstash.errors import TensorstashError
from tensorstash.ingest.load import load
from tensorstash.stash.stash import Stash
from tensorstash.windows.runs import find_runs

_BLOCK = 1 << 20  # rows compared at a time


@dataclass(frozen=True, slots=True)
class Times:
    """What there is to know of the times of a source."""

    facts: dict[str, Any]  # plain values; if a load would be refused, only why
    stash: Stash | None  # the columns of entity and time


def times_of(source: Any, given: Mapping[str, Any]) -> Times:
    """Load the columns of entity and time, and look at them.

    Args:
        source: what `load` takes.
        given: the other arguments of `load`, with a time column.
    """
    keys = {name: value for name, value in given.items() if name not in ("columns", "static", "dtype")}
    if keys.get("known") is None:
        keys["duplicates"] = "keep"  # they are counted
    try:
        stash = load(source, {"has_time": is_valid(given["time"])}, **keys)
        return Times(_facts(stash), stash)
    except (TensorstashError, ValueError) as error:
        return Times({"refused": str(error)}, None)


def _facts(stash: Stash) -> dict[str, Any]:
    """With known times, where a time has several versions, the order of rows in place of frequency and gaps."""
    facts: dict[str, Any] = {
        "column": stash.time_name,
        "unit": stash.clock.unit,
        "zone": stash.clock.zone,
        "entity": [*stash.entity_names],
        "entities": len(stash.offsets) - 1,
    }
    if stash.known is not None:
        names = [str(stash.time_name), str(stash.known_name)]
        return facts | {"order": names[::-1] if stash.is_by_known else names}
    offsets, times = _without_duplicates(stash)
    runs = find_runs(offsets, times, stash.clock, None, None)
    return facts | {
        "frequency": None if runs.frequency is None else runs.frequency.text,
        "gaps": len(runs.first) - int(np.count_nonzero(np.diff(offsets))),
        "most_common_gaps": dict(runs.steps),
        "duplicates": stash.rows - len(times),
        "longest_run": int(runs.rows.max(initial=0)),
        "shortest_run": int(runs.rows.min(initial=stash.rows)),
    }


def lines_of(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The facts as pairs of texts."""
    if "refused" in facts:
        return [("load", "refused"), ("why", facts["refused"])]
    unit, zone = facts["unit"], facts["zone"]
    lines = [
        ("zone", zone or ("none" if unit else "none, the times are integers")),
        ("entities", f"{facts['entities']:,}"),
    ]
    if "order" in facts:
        return [*lines, ("order of rows", " and then by ".join(facts["order"]))]
    steps = ", ".join(f"{count:,} of {step}" for step, count in facts["most_common_gaps"].items())
    duplicates = "none"
    if facts["duplicates"]:
        remedy = 'a load refuses them without duplicates="keep"' if facts["entity"] else "name the column of --entity"
        duplicates = f"{counted(facts['duplicates'], 'row')} with the time of the row before: {remedy}"
    return [
        *lines,
        ("frequency", facts["frequency"] or "none"),
        ("gaps", f"{facts['gaps']:,}" + (f", by their steps: {steps}" if steps else "")),
        ("duplicates", duplicates),
        ("rows without a gap", f"{facts['shortest_run']:,} to {facts['longest_run']:,}"),
    ]


def _without_duplicates(stash: Stash) -> tuple[Int64s, Int64s]:
    """The offsets of the entities and the times, each time of an entity once."""
    assert stash.time is not None
    offsets, times = stash.offsets.numpy(), stash.time.numpy()
    again = _is_again(offsets, times)
    if not again.any():
        return offsets, times
    return offsets - np.append(0, np.cumsum(again))[offsets], times[~again]


def _is_again(offsets: Int64s, times: Int64s) -> Bools:
    """Which rows have the time of the row before them, in the same entity."""
    again = np.zeros(len(times), np.bool_)
    for start in range(0, len(times) - 1, _BLOCK):
        stop = min(start + _BLOCK, len(times) - 1)
        again[start + 1 : stop + 1] = times[start + 1 : stop + 1] == times[start:stop]
    again[offsets[:-1][np.diff(offsets) > 0]] = False
    return again
