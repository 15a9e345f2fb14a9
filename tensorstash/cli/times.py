"""The times of a source, as `inspect` shows them: zone, frequency and gaps."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tensorstash.columns.spec import is_valid
from tensorstash.errors import TensorstashError
from tensorstash.ingest.load import load
from tensorstash.windows.runs import find_runs


def times_of(source: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """What there is to know of the times of a source, as plain values; if a load would be refused, only why.

    Args:
        source: what `load` takes.
        given: the other arguments of `load`, with a time column.
    """
    keys = {name: value for name, value in given.items() if name not in ("columns", "static", "dtype")}
    try:
        stash = load(source, {"has_time": is_valid(given["time"])}, **keys)
    except (TensorstashError, ValueError) as error:
        return {"load": "refused", "why": str(error)}
    offsets = stash.offsets.numpy()
    facts = {"unit": stash.clock.unit, "zone": stash.clock.zone, "entities": len(offsets) - 1}
    if stash.time is None or stash.known is not None:  # versions of a time have no steps
        return facts
    runs = find_runs(offsets, stash.time.numpy(), stash.clock, None)
    return facts | {
        "frequency": None if runs.frequency is None else runs.frequency.text,
        "gaps": len(runs.first) - int(np.count_nonzero(np.diff(offsets))),
        "most_common_gaps": dict(runs.steps),
        "shortest_run": int(runs.rows.min(initial=stash.rows)),
        "longest_run": int(runs.rows.max(initial=0)),
    }


def lines_of(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The facts as pairs of texts."""
    return [(name.replace("_", " "), _text(value)) for name, value in facts.items()]


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{count:,} of {step}" for step, count in value.items()) or "none"
    return "none" if value is None else f"{value:,}" if isinstance(value, int) else value
