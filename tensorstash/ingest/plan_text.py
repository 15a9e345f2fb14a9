"""The text of a plan: a line per column, aligned."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

import pyarrow as pa

from tensorstash.columns.codec import Validity
from tensorstash.columns.column import Column, fits
from tensorstash.common.clock import zone_of
from tensorstash.common.html import cut
from tensorstash.errors import DataError
from tensorstash.sources.scan import Range

HEAD = ("column", "from", "source", "kind", "dtype", "nulls", "min", "max", "MB")
NUMBERS = ("nulls", "min", "max", "MB")
_WIDEST = 26  # characters of a minimum or maximum that are shown: a time with its zone


def column_line(
    column: Column, rows: int, types: Mapping[str, str], ranges: Mapping[str, Range], role: str = ""
) -> tuple[str, ...]:
    """The line of a column with `rows` values, or in the role "static", "time", "known" or "partition key".

    `types` and `ranges` are those of the source columns.
    """
    origin = ", ".join(column.members) if column.members != (column.name,) else ""
    source = ", ".join(dict.fromkeys(_without_unit(types[member]) for member in column.members))
    words = (role, "" if role in ("time", "known") else column.kind, column.unit, column.zone)
    kind = " ".join(word for word in words if word)
    dtype = str(column.dtype).removeprefix("torch.") + "".join(f" x {size}" for size in column.shape)
    megabytes = f"{rows * column.row_bytes / 1e6:,.1f}"
    most = f"<= {megabytes}" if role == "static" else megabytes  # the number of entities is at most that of rows
    cells = _range_cells(_range(column, ranges), column.zone)
    return column.name, origin, source, kind, dtype, *cells, most


def _without_unit(name: str) -> str:
    """A type of Arrow; the unit and the zone of times stand in the kind."""
    return name.partition("[")[0] if name.startswith(("timestamp", "duration", "time", "date")) else name


def entity_lines(entity: Column, types: Mapping[str, str], ranges: Mapping[str, Range]) -> list[tuple[str, ...]]:
    """A line for each source column of the entity; a stash keeps no tensor of these columns."""
    return [
        (member, "", _without_unit(types[member]), "entity", "", *_range_cells(ranges.get(member, Range())), "")
        for member in entity.members
    ]


def type_name(arrow: pa.DataType) -> str:
    """An Arrow type, without the width of its indices where it is a dictionary."""
    return f"dictionary of {arrow.value_type}" if pa.types.is_dictionary(arrow) else str(arrow)


def _range(column: Column, ranges: Mapping[str, Range]) -> Range:
    """The range over all members of a column. A mask shows only nulls, because it does not hold the values."""
    members = [ranges.get(member, Range()) for member in column.members]
    nulls = None if any(member.nulls is None for member in members) else sum(member.nulls or 0 for member in members)
    is_list = bool(column.shape) and len(members) == 1
    if isinstance(column.codec, Validity) or is_list or any(member.low is None for member in members):
        return Range(nulls)
    return Range(nulls, min(member.low for member in members), max(member.high for member in members))


def _range_cells(values: Range, zone: str | None = None) -> tuple[str, str, str]:
    """Nulls, minimum and maximum as text; times in their zone."""
    low, high = (_cut(_in_zone(value, zone)) for value in (values.low, values.high))
    return "" if values.nulls is None else f"{values.nulls:,}", low, high


def _in_zone(value: Any, zone: str | None) -> Any:
    if zone is not None and isinstance(value, datetime):
        with suppress(DataError, OverflowError):  # a zone or a year that Python does not know: then it stays in UTC
            return value.astimezone(zone_of(zone))
    return value


def _cut(value: Any) -> str:
    text = "" if value is None else f"{value + 0.0:g}" if isinstance(value, float) else str(value)
    if isinstance(value, datetime):
        text = value.isoformat(" ", "auto" if value.second or value.microsecond else "minutes").replace("+00:00", "Z")
    return cut(text, _WIDEST)


def losses(column: Column, ranges: Mapping[str, Range]) -> Iterator[str]:
    """A note for each member with a value that its column's type cannot hold."""
    for member in column.members:
        values = ranges.get(member, Range())
        for value in (values.low, values.high):
            if column.kind == "number" and isinstance(value, (int, float)) and not fits(value, column.dtype):
                cannot = f"which {column.dtype} cannot hold: a load will refuse it. Widen dtype=."
                yield f"{member!r} has the value {value:g}, {cannot}"
                break
