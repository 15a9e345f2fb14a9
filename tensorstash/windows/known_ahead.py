"""Rows that are known ahead have no target yet: a warning of parts of windows that mostly end in them."""

from collections.abc import Sequence

import numpy as np

from tensorstash.common.warn import warn
from tensorstash.stash.missing import missing_rows
from tensorstash.windows.placement import Placement
from tensorstash.windows.slots import nearest_rows

_WINDOWS = 128  # of a part, evenly spaced
_SLOTS = 64  # of the horizon of each, evenly spaced
_MOST = 0.5  # share of the values


def warn_of_missing(parts: Sequence[tuple[str, Placement, Placement]]) -> None:
    """Warn of a part in which most values of a span ahead are missing, unless they are so in the part before it.

    `parts` have a name and the part before it. A sample is looked at, whatever the number of windows.
    """
    told = []
    for what, before, part in parts:
        shares, others = (_missing(some) for some in (part, before))
        told += [
            (what, name, share, others[name])
            for name, share in shares.items()
            if share > max(_MOST, 2 * others.get(name, 1.0))
        ]
    if not told:
        return
    what, name, share, other = told[-1]
    names, count = [*dict.fromkeys(name for _, name, _, _ in told)], len({what for what, *_ in told})
    dropped = "" if parts[0][2].points is None else ", unmatched='drop'"
    warn(
        f"{what} has {share:.0%} of the values of {name!r} missing, before it {other:.0%}, as rows that are known "
        f"ahead have no value yet{f'; {count - 1} more parts are such' if count > 1 else ''}. Leave such windows out: "
        f"ts.Windows(..., require={names}{dropped})."
    )


def _missing(placement: Placement) -> dict[str, float]:
    """The share of missing values, and of slots without a row, in the horizons of some windows, by span.

    Only spans whose columns had missing values can lack some.
    """
    shares: dict[str, float] = {}
    if not len(placement):
        return shares
    anchors = placement.anchor_slots(np.unique(np.linspace(0, len(placement) - 1, _WINDOWS).astype(np.int64)))
    for span in placement.slot_spans:
        slots = range(max(span.start, span.start % span.step), span.stop, span.step)
        tests = [test for name in span.columns if (test := missing_rows(placement.stash, name)) is not None]
        if slots and tests:
            some = np.array(slots[:: -(-len(slots) // _SLOTS)])
            rows, distance = nearest_rows(placement.slots, anchors[:, None] + some)
            empty = distance.reshape(-1) != 0
            shares[span.name] = float(np.mean([(empty | test(rows.reshape(-1))).mean() for test in tests]))
    return shares
