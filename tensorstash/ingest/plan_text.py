"""The text of a plan: a line per column, aligned."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import torch

from tensorstash.columns.codec import Validity
from tensorstash.columns.column import Column
from tensorstash.sources.scan import Range

HEAD = ("column", "from", "source", "kind", "dtype", "nulls", "min", "max", "MB")
_WIDEST = 26  # characters of a minimum or maximum that are shown: a time with its zone


def column_line(column: Column, rows: int, types: Mapping[str, str], ranges: Mapping[str, Range]) -> tuple[str, ...]:
    """The line of a column with `rows` values; `types` and `ranges` are those of the source columns."""
    origin = ", ".join(column.members) if column.members != (column.name,) else ""
    source = ", ".join(dict.fromkeys(types[member] for member in column.members))
    shape = "".join(f" x {size}" for size in column.shape)
    kind = f"{column.kind} {_unit(column)}".strip()
    dtype = str(column.dtype).removeprefix("torch.") + shape
    about = _range_cells(_range(column, ranges))
    return column.name, origin, source, kind, dtype, *about, f"{rows * column.row_bytes / 1e6:,.1f}"


def static_line(column: Column, rows: int, types: Mapping[str, str], ranges: Mapping[str, Range]) -> tuple[str, ...]:
    """The line of a static column, which has at most as many values as there are rows."""
    name, origin, source, kind, *rest, most = column_line(column, rows, types, ranges)
    return name, origin, source, f"static {kind}", *rest, f"<= {most}"


def entity_lines(entity: Column, types: Mapping[str, str], ranges: Mapping[str, Range]) -> list[tuple[str, ...]]:
    """A line for each source column of the entity; a stash keeps no tensor of these columns."""
    return [
        (member, "", types[member], "entity", "", *_range_cells(ranges.get(member, Range())), "")
        for member in entity.members
    ]


def time_line(time: Column, rows: int, types: Mapping[str, str], ranges: Mapping[str, Range]) -> tuple[str, ...]:
    """The line of the time column."""
    _, _, source, _, *rest = column_line(time, rows, types, ranges)
    return time.members[0], "", source, f"time {_unit(time)}".rstrip(), *rest


def type_name(arrow: pa.DataType) -> str:
    """An Arrow type, without the width of its indices where it is a dictionary."""
    return f"dictionary of {arrow.value_type}" if pa.types.is_dictionary(arrow) else str(arrow)


def aligned(lines: Sequence[tuple[str, ...]]) -> str:
    """Cells aligned to the left, numbers in the last column to the right. Columns without any text are left out."""
    lines = [*zip(*[cells for cells in zip(*lines) if any(cells[1:])])]
    widths = [max(map(len, cells)) for cells in zip(*lines)]
    return "\n".join(
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(cells[:-1], widths)) + cells[-1].rjust(widths[-1] + 2)
        for cells in lines
    )


def _range(column: Column, ranges: Mapping[str, Range]) -> Range:
    """The range over all members of a column. A mask shows only nulls, because it does not hold the values."""
    found = [ranges.get(member, Range()) for member in column.members]
    nulls = None if any(about.nulls is None for about in found) else sum(about.nulls or 0 for about in found)
    is_list = bool(column.shape) and len(found) == 1
    if isinstance(column.codec, Validity) or is_list or any(about.low is None for about in found):
        return Range(nulls)
    return Range(nulls, min(about.low for about in found), max(about.high for about in found))


def _range_cells(about: Range) -> tuple[str, str, str]:
    return "" if about.nulls is None else f"{about.nulls:,}", _cut(about.low), _cut(about.high)


def _cut(value: Any) -> str:
    text = "" if value is None else f"{value + 0.0:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"


def _unit(column: Column) -> str:
    return " ".join(part for part in (column.unit, column.zone) if part)


def losses(column: Column, ranges: Mapping[str, Range]) -> Iterator[str]:
    """A note for each member with a value that its column's type cannot hold."""
    for member in column.members:
        about = ranges.get(member, Range())
        for value in (about.low, about.high):
            if column.kind == "number" and isinstance(value, (int, float)) and not _holds(column.dtype, value):
                cannot = f"which {column.dtype} cannot hold: a load will refuse it. Widen dtype=."
                yield f"{member!r} has the value {value:g}, {cannot}"
                break


def _holds(dtype: torch.dtype, value: float) -> bool:
    if not math.isfinite(value) or dtype == torch.bool:
        return True
    if dtype.is_floating_point:
        return bool(torch.tensor(float(value), dtype=torch.float64).to(dtype).isfinite())
    return torch.iinfo(dtype).min <= value <= torch.iinfo(dtype).max
