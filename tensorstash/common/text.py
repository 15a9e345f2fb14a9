"""Text for people: sizes in bytes, counts, types, values, and lines with aligned columns."""

import zlib
from collections.abc import Collection, Sequence
from typing import Any

_LONGEST = 120  # characters of a value in a message
_TERMINAL = 80  # characters of a line of a table, with two before it
_NARROWEST = 6  # characters of a column that is cut


def size_text(nbytes: float) -> str:
    """A number of bytes, in MB from a million on: a need and what is free are compared in one unit."""
    if nbytes < 1000:
        return f"{nbytes:,.0f} bytes"
    return f"{nbytes / 1e3:,.1f} kB" if nbytes < 1_000_000 else f"{nbytes / 1e6:,.0f} MB"


def counted(number: int, what: str) -> str:
    """A number of things, named in the singular: "1 null", "2,000 nulls", "3 entities"."""
    if number == 1:
        return f"1 {what}"
    return f"{number:,} {what[:-1]}ies" if what.endswith("ty") else f"{number:,} {what}s"


def cut(text: str, most: int) -> str:
    """The text if it has at most `most` characters, else its beginning and an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def type_text(value: object) -> str:
    """The type of a value with its article: "a list", "an int"."""
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeioAEIO" or name == "ndarray" else f"a {name}"


def aligned(lines: Sequence[tuple[str, ...]], right: Collection[str] = (), cuttable: Collection[str] = ()) -> str:
    """Lines with aligned columns; the first line is the head, and columns without other text are left out.

    `right` are the heads of the columns that are aligned to the right. Those in `cuttable` are cut until a line has the
    width of a terminal, the widest first.
    """
    columns = [cells for cells in zip(*lines) if any(cells[1:])]
    widths = [max(map(len, cells)) for cells in columns]
    while sum(widths) + 2 * len(widths) > _TERMINAL:
        able = [k for k, cells in enumerate(columns) if cells[0] in cuttable and widths[k] > _NARROWEST]
        if not able:
            break
        widths[max(able, key=widths.__getitem__)] -= 1
    padded = [
        [(str.rjust if cells[0] in right else str.ljust)(cut(cell, width), width) for cell in cells]
        for cells, width in zip(columns, widths)
    ]
    return "\n".join("  ".join(cells).rstrip() for cells in zip(*padded))


def told(value: Any) -> str:
    """A value in a message; of a long one the start, and a checksum."""
    text = "none" if value is None else repr(value)
    return text if len(text) <= _LONGEST else f"{text[:80]}... (CRC {zlib.crc32(text.encode()):08x})"
