"""In what two fingerprints differ, for errors."""

from collections.abc import Iterator, Mapping
from typing import Any

from tensorstash.common.text import told


def differences(saved: Mapping[str, Any], here: Mapping[str, Any], within: str = "") -> Iterator[str]:
    """The fields that differ, with their values in a state and here; fields of a dict have dotted names."""
    for name in dict.fromkeys([*here, *saved]):
        old, new = saved.get(name), here.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from differences(old, new, f"{within}{name}.")
        elif _differs(old, new):
            yield f"{within}{name}: {told(old)} in the state, {told(new)} here"


def _differs(old: object, new: object) -> bool:
    """Whether two values differ; what has no truth value, such as an array, does."""
    try:
        return bool(old != new)
    except Exception:  # values of any library, which compare in their own way
        return True
