"""Docstrings name several errors in a paragraph; napoleon wants each on a line of its own."""

import re

_NAMED = re.compile(r"(?<=[.;]) (?=[A-Z]\w*(?:Error|Warning)\b[^.:]*: )")


def list_errors(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Put every error of `Raises:` and `Warns:` on one line; Sphinx hands in the lines, and takes them changed."""
    for head in ("Raises:", "Warns:"):
        if head not in lines:
            continue
        start = lines.index(head) + 1
        end = next((k for k in range(start, len(lines)) if not lines[k].strip()), len(lines))
        paragraph = " ".join(line.strip() for line in lines[start:end])
        lines[start:end] = [f"    {error}" for error in _NAMED.split(paragraph)]
