"""Durations as other libraries write them, such as pandas' "60min" and "MS": the text to write instead."""

import re

import numpy as np

from tensorstash.common.clock import NANOSECONDS

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
    "mo": "M MS ME BM BMS BME CBM CBMS CBME month months monthly",
    "q": "Q QS QE BQ BQS BQE quarter quarters quarterly",
    "y": "Y YS YE A AS AE BA BAS BY BYS BYE year years yearly annual annually",
}
_UNITS = {word: unit for unit, words in _WORDS.items() for word in (unit, *words.split())}
_SHORT = ("ns", "us", "ms", "s", "m", "h")  # units of fixed length: a duration is a sum of these, the longest first
_ALIAS = re.compile(r"(?:P|PT)?\s*(\d*\.?\d*)\s*([A-Za-z]+)(?:-[A-Z]{3})?")


def meant_by(given: object) -> str | None:
    """The duration that a text of another library stands for, as polars writes it; `None` if it is not known.

    Frequencies of pandas have such a text, and `timedelta64` of numpy has a number and a unit.
    """
    found = _parsed(given)
    if found is None or found[1] == ".":
        return None
    word = "min" if found[0].startswith("PT") and found[2] == "M" else found[2]  # ISO 8601 has two meanings of M
    unit = _UNITS.get(word) or _UNITS.get(word.lower())
    count = float(found[1] or 1)
    if unit is None or not 0 < count < 1e9:
        return None
    if unit not in _SHORT:
        return f"{int(count)}{unit}" if count == int(count) else None
    rest, meant = round(count * NANOSECONDS[unit]), ""
    for name in reversed(_SHORT):
        number, rest = divmod(rest, NANOSECONDS[name])
        meant += f"{number}{name}" if number else ""
    return meant


def frequency_for(given: object) -> str | None:
    """What to take in place of a frequency of another library that no duration stands for; `None` if nothing is known.

    Holidays are days without a row, and a month whose last weekday counts has no day that it begins on.
    """
    found = _parsed(given)
    if found is None:
        return None
    if found[2] == "C":
        return (
            "At '1bd' each holiday would be a gap: take gaps='ignore', or count the sessions and name them as time=, "
            "frame.with_columns(session=pl.col('date').rank('dense').cast(pl.Int64)) of polars."
        )
    is_business = re.match("C?B.", found[2]) is not None and found[2] in _UNITS
    return f"Write frequency={meant_by(given)!r}, tolerance='5d'." if is_business and meant_by(given) else None


def _parsed(given: object) -> re.Match[str] | None:
    """The number and the word of a duration of another library."""
    text: object = getattr(given, "freqstr", given)
    if isinstance(given, np.timedelta64):
        named, size = np.datetime_data(given.dtype)
        text = f"{int(given.astype(np.int64)) * size}{named}"
    return _ALIAS.fullmatch(text.strip()) if isinstance(text, str) else None
