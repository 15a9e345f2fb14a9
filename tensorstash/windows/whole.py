"""Whole series: spans that reach to the end of the run, so that there is one window a run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tensorstash.common.checks import shown
from tensorstash.common.dtypes import Bools
from tensorstash.errors import DataError
from tensorstash.gather.span import Span
from tensorstash.stash.printed import entity_text
from tensorstash.stash.stash import Stash
from tensorstash.windows.runs import Runs
from tensorstash.windows.slots import number_slots, run_edges
from tensorstash.windows.spans import slot_count


def with_ends(spans: Mapping[str, Any] | None, max_slots: int | None) -> Mapping[str, Any] | None:
    """The spans with the most slots that a run may have in place of the stop `None`."""
    every = spans.items() if isinstance(spans, Mapping) else ()
    in_slots = {name: span for name, span in every if isinstance(span, Sequence) and not isinstance(span, str)}
    to_end = [name for name, span in in_slots.items() if len(span) > 2 and span[2] is None]
    if max_slots is None:
        if to_end:
            raise ValueError(
                f"A span to the end of its run, as {to_end[0]!r}, needs max_slots=, the most slots that a run may "
                "have: batches are as wide as the longest one."
            )
        return spans
    most = slot_count(1, max_slots, "max_slots")
    wrong = [tuple(span) for span in in_slots.values() if tuple(span[1:]) != (0, None)]
    if wrong or not in_slots:
        raise ValueError(
            "With max_slots= spans in slots are whole runs, such as ('x', 0, None), got "
            f"{shown(wrong[0]) if wrong else 'none'}. Write all spans so, or leave max_slots= out."
        )
    return {name: (span[0], 0, most) if name in in_slots else span for name, span in every}


def to_width(
    spans: tuple[Span, ...], stash: Stash, runs: Runs, chosen: Bools | None, *, joined: bool, is_kept: bool
) -> tuple[Span, ...]:
    """The spans as wide as the longest run of the chosen entities, or of a width that `is_kept`; none may be longer."""
    slots, most = number_slots(runs, stash, joined=joined, lead=0, tail=0), spans[0].stop
    (starts, stops), rows = run_edges(slots), slots.fragments.row[~slots.joined]
    entities = np.searchsorted(stash.offsets.numpy(), rows, "right") - 1
    lengths = (stops - starts) * (1 if chosen is None else chosen[entities])
    longest = int(lengths.max(initial=1))
    if longest > most:
        run = lengths.argmax()
        row, name = int(rows[run]), entity_text(stash, int(entities[run]))
        since = "" if stash.time is None else f" from {stash.clock.format(int(stash.time[row]))} on"
        limit = f"the width of these windows, {most:,}, which `on` keeps" if is_kept else f"max_slots={most}"
        remedy = "Make windows of the data with the longest run first" if is_kept else f"Give max_slots={longest}"
        raise DataError(
            f"The run of {name}{since} has {longest:,} slots, more than {limit}. {remedy}, or leave the series out."
        )
    return spans if is_kept else tuple(replace(span, stop=longest) for span in spans)
