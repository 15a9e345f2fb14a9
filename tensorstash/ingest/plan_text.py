"""What a plan says of each column, as cells of a table and as plain values."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time
from math import isfinite
from typing import Any

import pyarrow as pa

from tensorstash.columns.codec import Validity
from tensorstash.columns.column import Column, fits
from tensorstash.common.clock import zone_of
from tensorstash.common.text import cut
from tensorstash.errors import DataError
from tensorstash.sources.read import Range

HEAD = ("column", "from", "source", "kind", "dtype", "nulls", "min", "max", "MB")
CUTTABLE = ("source", "kind")
NUMBERS = ("nulls", "min", "max", "MB")
_WIDEST = 26  # characters of a minimum or maximum that are shown: a time with its zone
_WIDEST_TEXT = 12


@dataclass(frozen=True, slots=True)
class PlannedColumn:
    """What a plan says of a column; `None` and empty texts are not known, or say nothing of it."""

    name: str
    members: tuple[str, ...]  # the source columns
    types: tuple[str, ...]  # the different types of Arrow that these have
    role: str = ""  # "static", "entity", "time", "known" or "partition key"
    kind: str = ""
    unit: str | None = None
    zone: str | None = None
    dtype: str = ""
    shape: tuple[int, ...] = ()
    values: Range = Range()  # noqa: RUF009  frozen
    nbytes: int | None = None  # of a static column the most, because only a load counts the entities

    @property
    def cells(self) -> tuple[str, ...]:
        """Texts under `HEAD`."""
        origin = ", ".join(self.members) if self.members != (self.name,) else ""
        source = ", ".join(dict.fromkeys(map(_without_unit, self.types)))
        kind = " ".join(word for word in (self.role, self.kind, self.zone) if word)
        dtype = self.dtype + "".join(f" x {size}" for size in self.shape)
        low, high = _extent(*(_in_zone(value, self.zone) for value in (self.values.low, self.values.high)))
        nulls = "" if self.values.nulls is None else f"{self.values.nulls:,}"
        megabytes = "" if self.nbytes is None else f"{self.nbytes / 1e6:,.1f}"
        most = "<= " if self.role == "static" and megabytes else ""
        return self.name, origin, source, kind, dtype, nulls, low, high, most + megabytes

    @property
    def facts(self) -> dict[str, Any]:
        """The same as plain values, for JSON: numbers, lists, texts and null."""
        low, high = (_plain(_in_zone(value, self.zone)) for value in (self.values.low, self.values.high))
        return {
            "column": self.name,
            "from": [*self.members],
            "source": [*self.types],
            "role": self.role or None,
            "kind": self.kind or None,
            "unit": self.unit,
            "zone": self.zone,
            "dtype": self.dtype or None,
            "shape": [*self.shape],
            "nulls": self.values.nulls,
            "min": low,
            "max": high,
            "bytes": self.nbytes,
        }


def planned_column(
    column: Column, rows: int, types: Mapping[str, str], ranges: Mapping[str, Range], role: str = ""
) -> PlannedColumn:
    """A column with `rows` values; `types` and `ranges` are those of the source columns."""
    return PlannedColumn(
        column.name,
        column.members,
        tuple(dict.fromkeys(types[member] for member in column.members)),
        role,
        "" if role in ("time", "known") else column.kind,
        column.unit,
        column.zone,
        str(column.dtype).removeprefix("torch."),
        tuple(column.shape),
        _range(column, ranges),
        rows * column.row_bytes,
    )


def entity_columns(entity: Column, types: Mapping[str, str], ranges: Mapping[str, Range]) -> list[PlannedColumn]:
    """The source columns of the entity; a stash keeps no tensor of them."""
    return [
        PlannedColumn(member, (member,), (types[member],), "entity", values=ranges.get(member, Range()))
        for member in entity.members
    ]


def _without_unit(name: str) -> str:
    """A type of Arrow; the zone of times stands in the kind."""
    name = name.replace("large_string", "string")
    return name.partition("[")[0] if name.startswith(("timestamp", "duration", "time", "date")) else name


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


def _in_zone(value: Any, zone: str | None) -> Any:
    if zone is not None and isinstance(value, datetime):
        with suppress(DataError, OverflowError):  # a zone or a year that Python does not know: then it stays in UTC
            return value.astimezone(zone_of(zone))
    return value


def _extent(low: Any, high: Any) -> tuple[str, str]:
    """A minimum and a maximum; times of different days as days."""
    if isinstance(low, datetime) and isinstance(high, datetime) and low.date() != high.date():
        low, high = low.date(), high.date()
    return _cut(low), _cut(high)


def _cut(value: Any) -> str:
    text = "" if value is None else f"{value + 0.0:g}" if isinstance(value, float) else str(value)
    if isinstance(value, datetime):
        text = value.isoformat(" ", "auto" if value.second or value.microsecond else "minutes").replace("+00:00", "Z")
    return cut(text, _WIDEST_TEXT if isinstance(value, str) else _WIDEST)


def _plain(value: Any) -> Any:
    """A value of JSON: a time in ISO 8601, other values that JSON lacks as text."""
    if value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and isfinite(value)):
        return value
    return value.isoformat() if isinstance(value, (date, time)) else str(value)


def losses(column: Column, ranges: Mapping[str, Range]) -> Iterator[str]:
    """A note for each member with a value that its column's type cannot hold."""
    for member in column.members:
        values = ranges.get(member, Range())
        for value in (values.low, values.high):
            if column.kind == "number" and isinstance(value, (int, float)) and not fits(value, column.dtype):
                cannot = f"which {column.dtype} cannot hold: a load will refuse it. Widen dtype=."
                yield f"{member!r} has the value {value:g}, {cannot}"
                break
