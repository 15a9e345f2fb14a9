"""Durations as other libraries write them, such as pandas' "60min" and "MS": the text to write instead."""

import re

import numpy as np

_WORDS = {
    "ns": "N nano nanos nanosecond nanoseconds",
    "us": "U micro micros microsecond microseconds",
    "ms": "L milli millis millisecond milliseconds",
    "s": "S sec secs second seconds",
    "m": "T min mins minute minutes minutely",
    "h": "H hr hrs hour hours hourly",
    "d": "D day days daily",
    "w": "W week weeks weekly",
    "bd": "B bday",
    "mo": "M MS ME month months monthly",
    "q": "Q QS QE quarter quarters quarterly",
    "y": "Y YS YE A AS AE year years yearly annual annually",
}
_UNITS = {word: unit for unit, words in _WORDS.items() for word in (unit, *words.split())}
_ALIAS = re.compile(r"(?:P|PT)?\s*(\d{0,9})\s*([A-Za-z]+)(?:-[A-Z]{3})?")


def meant_by(given: object) -> str | None:
    """The duration that a text of another library stands for, as polars writes it; `None` if it is not known.

    Frequencies of pandas have such a text, and `timedelta64` of numpy has a number and a unit.
    """
    text: object = getattr(given, "freqstr", given)
    if isinstance(given, np.timedelta64):
        named, size = np.datetime_data(given.dtype)
        text = f"{int(given.astype(np.int64)) * size}{named}"
    found = _ALIAS.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        return None
    word = "min" if found[0].startswith("PT") and found[2] == "M" else found[2]  # ISO 8601 has two meanings of M
    unit, count = _UNITS.get(word) or _UNITS.get(word.lower()), int(found[1] or 1)
    return f"{count}{unit}" if unit is not None and count else None
