"""What the numbers of a column mean: what the stashes of a mix, and of a state and the run that resumes it, share."""

import math
import zlib
from collections.abc import Sequence
from typing import Any

from tensorstash.columns.column import Column, Fill
from tensorstash.stash.header import names_checksum
from tensorstash.stash.stash import Stash

_LONGEST = 120  # the most characters of a list of members that is written out

# of each trait its name in messages, in the order in which they are compared, and what makes it alike
TRAITS = {
    "type": ("type", "Load both with the same dtype=, or ts.column(..., dtype=...)."),
    "kind": ("kind", "Load the column from the same kind of values in both."),
    "unit": ("unit", "Convert it to one unit before loading."),
    "zone": ("time zone", "Convert it to one time zone before loading."),
    "fields": ("fields", "Take the same fields of ts.calendar in the same order."),
    "shape": (
        "shape",
        "Pack as many columns in both loads, take ts.each of the column in spans=, which has a row for each of its "
        "columns, or leave it out with columns= or spans=.",
    ),
    "members": ("members", "Pack the same columns in the same order."),
    "buckets": ("number of buckets", "Give both the same number in ts.hashed."),
    "vocabulary": ("vocabulary", "Give both one vocabulary=, or load one with like= of the other."),
    "fill": ("fill=", "Give both the same."),
    "empty": ("value in empty slots", "Give both the same empty=."),
    "validity": ("columns marked by the ts.is_valid", "Take ts.is_valid of the same columns."),
    "scaling": ("scaling", "Apply a scaler to both, or to neither."),
}
# a component without empty slots needs no value for them, and a column of lists has no names for its items
OPTIONAL = {"empty", "members"}
OF_PACKS = {"shape", "members"}  # components may differ in these if each column is a row of its own
OF_VALUES = {"fill", "empty", "scaling"}  # what a state may change


def meaning(stash: Stash, name: str) -> dict[str, Any]:
    """What the numbers of a column mean, in plain values that JSON keeps; what a column does not have is left out.

    A column is known by its name in the stash, whatever its source; only the members of a pack are told apart.
    """
    about, entry = stash.about(name), stash.segment.tensors[name]
    found = {
        "type": str(entry.dtype).removeprefix("torch."),
        "kind": None if about.kind == "number" else about.kind,
        "unit": about.unit,
        "zone": about.zone,
        "fields": [name if form == "number" else f"{form} of {name}" for name, form in about.calendar] or None,
        "members": _short(about.members) if len(about.members) > 1 and not about.calendar else None,
        "shape": [*entry.shape[1:]] or None,
        "buckets": about.buckets,
        "vocabulary": names_checksum(stash, name) if about.kind == "category" else None,
        "fill": plain(about.fill),
        "validity": _short(_marked(stash, about)) if about.is_validity else None,
        "scaling": "applied" if about.is_scaled else None,
    }
    return {trait: value for trait, value in found.items() if value is not None}


def plain(fill: Fill | None) -> Fill | None:
    """The value for empty slots or missing values so that JSON keeps it, and that equals itself."""
    return str(fill) if isinstance(fill, float) and not math.isfinite(fill) else fill


def _marked(stash: Stash, mask: Column) -> list[str]:
    """The columns whose values `ts.is_valid` marks; if none is loaded, its sources."""
    every = (*stash.info.columns, *stash.info.static)
    marked = [about.name for about in every if about.members == mask.members and not about.is_validity]
    return marked or [*mask.members]


def _short(names: Sequence[str]) -> list[str] | str:
    """The names, or the first one, their number and a checksum if they are many."""
    text = repr([*names])
    return [*names] if len(text) <= _LONGEST else f"{names[0]}, ... ({len(names)}, CRC {zlib.crc32(text.encode()):08x})"
