"""The metadata of a stash, to and from JSON: its rows, entity and time columns, and other columns."""

from dataclasses import asdict, dataclass, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tensorstash.columns.column import Fill, Kind, Number


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """What `stash.about(name)` returns: how a column was loaded, and what was counted during the load.

    Example:
        >>> import tensorstash as ts
        >>> about = ts.load({"y": [1.5, None, 0.5]}).about("y")
        >>> about.kind, about.missing, about.low, about.high
        ('number', 1, 0.5, 1.5)
    """

    name: str
    """The column's name in the stash."""
    members: tuple[str, ...]
    """The source columns or expressions it is made of; several in a pack."""
    kind: Kind
    """`"number"` (booleans too), `"category"` (codes of a vocabulary), `"hashed"`, or the kind of a time."""
    unit: str | None
    """Of times: `"s"`, `"ms"`, `"us"`, `"ns"` or `"d"`."""
    zone: str | None
    """Of timestamps: their time zone."""
    fill: Fill | None
    """The value of `fill=`, which replaces missing values of the source."""
    nulls: int
    """Nulls in the rows of the source."""
    missing: int
    """NaN or code -1 in the stash, without values replaced by `fill=`; in a static column counted once per entity."""
    unknown: int | None
    """Values that are not in the given vocabulary, counted like `missing`; `None` if no vocabulary was given."""
    low: Number | None
    """The least value or code; `None` if all are missing."""
    high: Number | None
    """The greatest value or code."""
    empty: Fill | None = None
    """The value of `empty=`, for slots of windows without a row."""
    calendar: tuple[tuple[str, str], ...] = ()
    """The field and form of each member that `ts.calendar` made."""
    is_validity: bool = False
    """Whether `ts.is_valid` made it."""
    is_scaled: bool = False
    """Whether `Scaler.apply` has scaled it."""
    buckets: int | None = None
    """Of hashed codes: the number of buckets."""

    @property
    def is_coded(self) -> bool:
        """Whether it holds codes, with -1 for a missing value."""
        return self.kind in ("category", "hashed")


@dataclass(frozen=True, slots=True)
class TimeInfo:
    """The time column of a stash: its name in the source, its unit and zone, the first and the last time."""

    source: str
    unit: str | None
    zone: str | None
    low: int | None
    high: int | None
    duplicates: bool = False  # whether an entity has several rows of one time
    checksum: int | None = None  # of all times in the order of the rows


@dataclass(frozen=True, slots=True)
class StashInfo:
    """The metadata of a stash, without its tensors."""

    rows: int
    columns: tuple[ColumnInfo, ...]
    static: tuple[ColumnInfo, ...]
    entity: str | tuple[str, ...] | None
    time: TimeInfo | None


def to_header(info: StashInfo) -> dict[str, Any]:
    """The metadata as it stands in the header of a segment."""
    return asdict(info) | {"time": {} if info.time is None else asdict(info.time)}


def from_header(header: object) -> StashInfo:
    """Parse the metadata of a segment. A `ValueError` names what is wrong in it."""
    if isinstance(header, dict) and header.get("time") == {}:
        header = header | {"time": None}
    info: StashInfo = _parsed(StashInfo, header, "the schema")
    columns = (*info.columns, *info.static)
    lists = [("columns", info.columns), ("entity", info.entity), *(("members", column.members) for column in columns)]
    if empty := [name for name, values in lists if values == ()]:
        raise ValueError(f"{empty[0]!r} is empty")
    _check_range("rows", info.rows, 0)
    for column in columns:
        if column.unit not in _UNITS.get(column.kind, (None,)):
            raise ValueError(f"'unit' of a {column.kind} is {column.unit!r}")
        for name in ("nulls", "missing", "unknown"):
            _check_range(name, getattr(column, name), 0)
    if info.time is not None:
        if info.time.unit not in (None, *_TICKS, "d"):
            raise ValueError(f"'unit' is {info.time.unit!r}")
        for name in ("low", "high"):
            _check_range(name, getattr(info.time, name), -(1 << 63))
    return info


_TICKS = ("s", "ms", "us", "ns")
_UNITS: dict[str, tuple[str | None, ...]] = {"timestamp": _TICKS, "time": _TICKS, "duration": _TICKS, "date": ("d",)}


# defaults of fields that files of earlier releases lack
_ABSENT = dict[str, Any](
    static=[],
    unknown=None,
    empty=None,
    calendar=[],
    is_validity=False,
    is_scaled=False,
    buckets=None,
    duplicates=False,
    checksum=None,
)


def _check_range(name: str, number: int | None, least: int) -> None:
    if number is not None and not least <= number < 1 << 63:
        raise ValueError(f"{name!r} is {number}")


def _parsed(hint: Any, value: Any, what: str) -> Any:
    """A value from JSON in the annotated type of its field; lists become tuples."""
    for kind in get_args(hint) if isinstance(hint, UnionType) else (hint,):
        items = get_args(kind)
        if is_dataclass(kind) and type(value) is dict:
            made: Any = kind
            hints = _hints(made)
            value = _ABSENT | value
            if missing := hints.keys() - value.keys():
                raise ValueError(f"{min(missing)!r} is missing")
            return made(**{name: _parsed(hints[name], value[name], repr(name)) for name in hints})
        if get_origin(kind) is tuple and type(value) is list and (items[-1] is ... or len(items) == len(value)):
            return tuple(_parsed(items[0], item, f"a value in {what}") for item in value)
        if type(value) is kind or (get_origin(kind) is Literal and value in items):
            return value
    raise ValueError(f"{what} is {value!r}")


_hints = cache(get_type_hints)
