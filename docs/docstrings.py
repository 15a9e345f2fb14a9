"""Where napoleon would misread our docstrings: several errors in a paragraph, colons in properties."""

import re

_NAMED = re.compile(r"(?<=[.;]) (?=[A-Z]\w*(?:Error|Warning)\b[^.:]*: )")


def keep_colons(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Put an empty comment in front of a property's text: napoleon takes what precedes a colon there for a type."""
    if what == "property":
        lines[:0] = ["..", ""]


def list_errors(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Put every error of `Raises:` and `Warns:` on one line; Sphinx hands in the lines, and takes them changed."""
    for head in ("Raises:", "Warns:"):
        if head not in lines:
            continue
        start = lines.index(head) + 1
        end = next((k for k in range(start, len(lines)) if not lines[k].strip()), len(lines))
        paragraph = " ".join(line.strip() for line in lines[start:end])
        lines[start:end] = [f"    {error}" for error in _NAMED.split(paragraph)]
