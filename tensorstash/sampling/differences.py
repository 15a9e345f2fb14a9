"""In what a state differs from a sampler, for errors."""

from collections.abc import Iterator, Mapping
from typing import Any

from tensorstash.common.checks import is_integer
from tensorstash.common.text import told

_MOST_LINES = 8  # of differences in an error

# fingerprints have checksums of these
_CHECKSUMS = {
    "names": "the names of the entities differ",
    "offsets": "the entities have other numbers of rows",
    "runs": "the windows are at other rows (gaps, where=, at=, a split or the spans)",
    "row_times": "the times of the rows differ",
    "known_times": "the times at which rows became known differ",
    "entities_in_tables": "entities have other rows of a table",
    "vocabulary": "the texts, or their codes, differ",
    "weights": "the weights differ",
    "times": "the times of the windows differ",
}


def differences(saved: Mapping[str, Any], here: Mapping[str, Any], within: str = "") -> Iterator[str]:
    """The fields that differ, with their values in a state and here; fields of a dict have dotted names."""
    for name in dict.fromkeys([*here, *saved]):
        old, new = saved.get(name), here.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from differences(old, new, f"{within}{name}.")
        elif _differs(old, new):
            are_sums = all(value is None or is_integer(value) for value in (old, new))
            words = _CHECKSUMS.get(name) if are_sums and within != "variates." else None  # which has names of columns
            yield f"{within}{name}: {words or f'{told(old)} in the state, {told(new)} here'}"


def _differs(old: object, new: object) -> bool:
    """Whether two values differ; what has no truth value, such as an array, does."""
    try:
        return bool(old != new)
    except Exception:  # values of any library, which compare in their own way
        return True


def check_alike(state: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Raise `ValueError` if a state is of other windows or of another order."""
    saved, here = state["fingerprint"], ours["fingerprint"]
    if not isinstance(saved, Mapping) or "windows" not in saved:
        raise ValueError(
            f"A state must have the fingerprint of its windows, got {saved!r}. Load the state as state_dict() returned "
            "it."
        )
    order, expected = ({name: of[name] for name in ("version", "order")} for of in (state, ours))
    # a sampler alone knows only the number of windows, and another order has other fields
    if "columns" not in saved or "columns" not in here or order != expected:
        saved, here = ({name: of[name] for name in here if name in saved} for of in (saved, here))
    if lines := [*differences(order, expected), *differences(saved, here)]:
        more = f"; and {len(lines) - _MOST_LINES:,} more" if len(lines) > _MOST_LINES else ""
        raise ValueError(
            f"A state must continue the same windows in the same order; these differ: {'; '.join(lines[:_MOST_LINES])}"
            f"{more}. Build the windows and the loader as they were built when the state was saved."
        )
