"""The times of a source, as `inspect` shows them: frequency, gaps, duplicates and zone."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tensorstash.columns.spec import is_valid
from tensorstash.common.dtypes import Int64s
from tensorstash.common.text import counted
from tensorstash.errors import TensorstashError
from tensorstash.ingest.load import load
from tensorstash.stash.stash import Stash
from tensorstash.windows.runs import find_runs


def times_of(source: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """What there is to know of the times of a source, as plain values; if a load would be refused, only why.

    Args:
        source: what `load` takes.
        given: the other arguments of `load`, with a time column.
    """
    keys = {name: value for name, value in given.items() if name not in ("columns", "static", "dtype")}
    if keys.get("known") is None:
        keys["duplicates"] = "keep"  # they are counted
    try:
        return _facts(load(source, {"has_time": is_valid(given["time"])}, **keys))
    except (TensorstashError, ValueError) as error:
        return {"refused": str(error)}


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
    runs = find_runs(offsets, times, stash.clock, None)
    return facts | {
        "frequency": None if runs.frequency is None else runs.frequency.text,
        "gaps": len(runs.first) - int(np.count_nonzero(np.diff(offsets))),
        "most_common_gaps": dict(runs.steps),
        "duplicates": stash.rows - len(times),
        "longest_run": int(runs.rows.max(initial=0)),
        "shortest_run": int(runs.rows.min(initial=stash.rows)),
    }


def _without_duplicates(stash: Stash) -> tuple[Int64s, Int64s]:
    """The offsets of the entities and the times, each time of an entity once."""
    assert stash.time is not None
    offsets, times = stash.offsets.numpy(), stash.time.numpy()
    again = np.diff(times, prepend=0) == 0
    again[offsets[:-1][np.diff(offsets) > 0]] = False
    return offsets - np.append(0, np.cumsum(again))[offsets], times[~again]


def lines_of(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The facts as pairs of texts."""
    if "refused" in facts:
        return [("load", "refused"), ("why", facts["refused"])]
    lines = [
        ("zone", facts["zone"] or ("none" if facts["unit"] else "none, the times are integers")),
        ("entities", f"{facts['entities']:,}"),
    ]
    if "order" in facts:
        return [*lines, ("order of rows", " and then by ".join(facts["order"]))]
    steps = ", ".join(f"{count:,} of {step}" for step, count in facts["most_common_gaps"].items())
    remedy = 'a load refuses them without duplicates="keep"' if facts["entity"] else "name the column of --entity"
    repeated = f"{counted(facts['duplicates'], 'row')} with the time of the row before: {remedy}"
    return [
        *lines,
        ("frequency", facts["frequency"] or "none"),
        ("gaps", f"{facts['gaps']:,}" + (f", by their steps: {steps}" if steps else "")),
        ("duplicates", repeated if facts["duplicates"] else "none"),
        ("rows without a gap", f"{facts['shortest_run']:,} to {facts['longest_run']:,}"),
    ]
