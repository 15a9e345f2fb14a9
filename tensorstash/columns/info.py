"""The metadata of a stash, to and from JSON: its rows, entity and time columns, and other columns."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from tensorstash.columns.codec import PLAIN, Hashed, Validity
from tensorstash.columns.column import COUNTS, Column, Unit
from tensorstash.common.clock import Clock
from tensorstash.common.frequency import frequency


@dataclass(frozen=True, slots=True)
class TimeInfo:
    """The times of a stash, or its known times: their name, their unit and zone, the first and the last one."""

    source: str
    unit: Unit | None
    zone: str | None
    low: int | None
    high: int | None
    checksum: int | None = None  # CRC-32 of all of them, in the order of the rows
    duplicates: bool = False  # of the times: whether any entity has several rows at one time
    events: bool = False  # of known times: whether rows of one time are events, not versions of which the newest counts
    is_first: bool = False  # whether the rows of an entity are ordered by the known time before the time
    expression: str | None = None  # what known times were computed by, as `expression.kept` writes it


@dataclass(frozen=True, slots=True)
class StashInfo:
    """The metadata of a stash, without its tensors."""

    rows: int
    columns: tuple[Column, ...]
    static: tuple[Column, ...]  # with a value per entity
    entity: str | tuple[str, ...] | None
    time: TimeInfo | None
    known: TimeInfo | None = None
    expressions: tuple[tuple[str, str], ...] = ()  # the members that are expressions, as `expression.kept` writes them
    frequency: int | str | None = None  # the step of time, if it was given or the rows of another stash have told it


def to_header(info: StashInfo) -> dict[str, Any]:
    """The metadata for the header of a segment, which has the types and shapes of the tensors itself."""
    columns, static = (
        [{name: getattr(column, name) for name in _OF_COLUMN} for column in part]
        for part in (info.columns, info.static)
    )
    time, known = ({} if times is None else asdict(times) for times in (info.time, info.known))
    return {
        "rows": info.rows,
        "columns": columns,
        "static": static,
        "entity": info.entity,
        "time": time,
        "known": known,
        "frequency": info.frequency,
        "expressions": info.expressions,
    }


def from_header(header: object, tensors: Mapping[str, Any]) -> StashInfo:
    """Parse the metadata of a segment with these tensors, each of which has a `dtype` and a `shape`.

    A `ValueError` names what is wrong in them.
    """
    fields = _fields(header, _STASH, "the schema")
    columns, static = (tuple(_column(item, part, tensors) for item in fields[part]) for part in ("columns", "static"))
    info = StashInfo(**{**fields, "columns": columns, "static": static})
    lists = [("columns", columns), ("entity", info.entity), *(("members", c.members) for c in (*columns, *static))]
    if empty := [name for name, values in lists if values == ()]:
        raise ValueError(f"{empty[0]!r} is empty")
    for column in (*columns, *static):
        if column.unit not in _UNITS.get(column.kind, (None,)):
            raise ValueError(f"'unit' of a {column.kind} is {column.unit!r}")
    time, known = info.time, info.known
    if known is not None and (known.checksum is None or time is None or (time.unit is None) != (known.unit is None)):
        raise ValueError("'known' has no checksum, or does not suit 'time'")
    if info.frequency is not None:
        if info.time is None:
            raise ValueError("'frequency' needs 'time'")
        frequency(info.frequency, Clock(info.time.unit, info.time.zone), None)
    return info


def _column(header: object, part: str, tensors: Mapping[str, Any]) -> Column:
    fields = _fields(header, _column_hints(), f"a value in {part!r}")
    is_validity, buckets = fields.pop("is_validity"), fields.pop("buckets")
    codec = Validity() if is_validity else PLAIN if buckets is None else Hashed(buckets)
    fields["packed"] |= len(fields["members"]) > 1
    if (name := fields["name"]) not in tensors:
        raise ValueError(f"column {name!r} has no tensor")
    return Column(**fields, dtype=tensors[name].dtype, shape=tensors[name].shape[1:], codec=codec)


# what the header says of a column, in its order there
_SETTINGS = ("empty", "calendar", "is_validity", "is_scaled", "buckets", "packed")
_OF_COLUMN = ("name", "members", "kind", "unit", "zone", "fill", *COUNTS, *_SETTINGS)
_STASH = {
    "rows": int,
    "columns": list,
    "static": list,
    "entity": str | tuple[str, ...] | None,
    "time": TimeInfo | None,
    "known": TimeInfo | None,
    "expressions": tuple[tuple[str, str], ...],
    "frequency": int | str | None,
}
_TICKS = ("s", "ms", "us", "ns")
_UNITS: dict[str, tuple[str | None, ...]] = {"timestamp": _TICKS, "time": _TICKS, "duration": _TICKS, "date": ("d",)}


# defaults of fields that files of earlier releases lack
_ABSENT = dict[str, Any](
    **dict.fromkeys(COUNTS),  # of those that may be None
    static=[],
    empty=None,
    calendar=[],
    is_validity=False,
    is_scaled=False,
    buckets=None,
    checksum=None,
    duplicates=False,
    events=False,
    is_first=False,
    known={},
    expressions=[],
    frequency=None,
    expression=None,
    packed=False,
)


def _fields(value: object, hints: Mapping[str, Any], what: str) -> dict[str, Any]:
    """The fields of a JSON object in their annotated types; fields without an annotation are ignored."""
    if type(value) is not dict:
        raise ValueError(f"{what} is {value!r}")
    value = _ABSENT | value
    if missing := hints.keys() - value.keys():
        raise ValueError(f"{min(missing)!r} is missing")
    return {name: _parsed(hints[name], value[name], repr(name)) for name in hints}


def _parsed(hint: Any, value: Any, what: str) -> Any:
    """A value from JSON in the annotated type of its field; lists become tuples."""
    for kind, origin, items in _alternatives(hint):
        if type(value) is kind and (kind is not int or -(1 << 63) <= value < 1 << 64):
            return value
        if origin is dict and type(value) is dict:
            return kind(**_fields(value, _hints(kind), what)) if value else None
        if origin is tuple and type(value) is list and (items[-1] is ... or len(items) == len(value)):
            return tuple(_parsed(items[0], item, f"a value in {what}") for item in value)
        if origin is Literal and value in items:
            return value
    raise ValueError(f"{what} is {value!r}")


@cache
def _alternatives(hint: Any) -> tuple[tuple[Any, Any, tuple[Any, ...]], ...]:
    """The types that an annotation allows, each with its origin, which is `dict` for a dataclass, and its arguments."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return tuple((kind, dict if is_dataclass(kind) else get_origin(kind), get_args(kind)) for kind in kinds)


_hints = cache(get_type_hints)


@cache
def _column_hints() -> dict[str, Any]:
    of_column = _hints(Column) | {"is_validity": bool, "buckets": int | None}
    return {name: of_column[name] for name in _OF_COLUMN}
