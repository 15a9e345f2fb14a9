"""What the header of a stash says of its rows, its keys and each of its columns, to and from JSON."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, get_args

from tensorstash.columns.column import Fill, Kind, Number


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """What `stash.about(name)` returns: how a column was loaded, and what was counted meanwhile.

    Example:
        >>> import tensorstash as ts
        >>> about = ts.load({"y": [1.5, None, 0.5]}).about("y")
        >>> about.kind, about.missing, about.low, about.high
        ('number', 1, 0.5, 1.5)
    """

    name: str
    """The column's name in the stash."""
    members: tuple[str, ...]
    """The source columns, or the texts of the expressions, that it is made of: several in a pack."""
    kind: Kind
    """`"number"` (booleans too), `"category"` (codes of a vocabulary), `"hashed"`, or the kind of a time."""
    unit: str | None
    """Of times: `"s"`, `"ms"`, `"us"`, `"ns"` or `"d"`."""
    zone: str | None
    """Of timestamps: their time zone."""
    fill: Fill | None
    """The value of `fill=`, which stands where the source has none."""
    nulls: int
    """Nulls in the rows of the source."""
    missing: int
    """Missing values in the stash: NaN, or code -1. Of a static column they are counted once per entity."""
    unknown: int | None
    """Values that are not in the given vocabulary, counted like `missing`; `None` if no vocabulary was given."""
    low: Number | None
    """The least value or code that is not missing, `None` if there is none."""
    high: Number | None
    """The greatest one."""
    empty: Fill | None = None
    """The value of `empty=`, which stands in slots without a row."""
    calendar: tuple[tuple[str, str], ...] = ()
    """Field and form of each number of a column that `ts.calendar` made."""

    @property
    def is_coded(self) -> bool:
        """Whether it holds codes, and -1 for a missing value."""
        return self.kind in ("category", "hashed")


@dataclass(frozen=True, slots=True)
class TimeInfo:
    """The time column of a stash: its name in the source, its unit and zone, the first and the last time."""

    source: str
    unit: str | None
    zone: str | None
    low: int | None
    high: int | None


@dataclass(frozen=True, slots=True)
class StashInfo:
    """Everything that the header says of a stash, besides its tensors."""

    rows: int
    columns: tuple[ColumnInfo, ...]
    static: tuple[ColumnInfo, ...]
    entity: str | tuple[str, ...] | None
    time: TimeInfo | None


def to_header(info: StashInfo) -> dict[str, Any]:
    """The metadata of a segment, for JSON."""
    return asdict(info) | {"time": {} if info.time is None else asdict(info.time)}


def from_header(header: object) -> StashInfo:
    """The same from the metadata of a segment. A `ValueError` names what is wrong in it."""
    _check(header, (dict,), "the schema")
    assert isinstance(header, dict)
    entity, time = _get(header, "entity", (str, list, _NONE)), _get(header, "time", (dict,))
    columns = _get(header, "columns", (list,))
    if not columns:
        raise ValueError("'columns' is empty")
    return StashInfo(
        _count(header, "rows"),
        tuple(map(_column, columns)),
        tuple(map(_column, _get(header, "static", (list,)))) if "static" in header else (),
        _names(entity, "entity") if isinstance(entity, list) else entity,
        _time(time) if time else None,
    )


_NONE = type(None)
_TEXT = (str, _NONE)
_NUMBER = (int, float, bool, _NONE)


def _column(about: Any) -> ColumnInfo:
    _check(about, (dict,), "a column")
    kind = _get(about, "kind", (str,))
    if kind not in get_args(Kind):
        raise ValueError(f"'kind' is {kind!r}")
    return ColumnInfo(
        name=_get(about, "name", (str,)),
        members=_names(_get(about, "members", (list,)), "members"),
        kind=kind,
        unit=_unit(about),
        zone=_get(about, "zone", _TEXT),
        fill=_get(about, "fill", (str, *_NUMBER)),
        nulls=_count(about, "nulls"),
        missing=_count(about, "missing"),
        unknown=None if about.get("unknown") is None else _count(about, "unknown"),
        low=_get(about, "low", _NUMBER),
        high=_get(about, "high", _NUMBER),
        empty=_get(about, "empty", (str, *_NUMBER)) if "empty" in about else None,
        calendar=tuple(map(_moment, _get(about, "calendar", (list,)))) if "calendar" in about else (),
    )


def _moment(pair: Any) -> tuple[str, str]:
    _check(pair, (list,), "a pair in 'calendar'")
    field, form = _names(pair, "calendar")
    return field, form


def _time(about: Mapping[str, Any]) -> TimeInfo:
    return TimeInfo(
        source=_get(about, "source", (str,)),
        unit=_unit(about),
        zone=_get(about, "zone", _TEXT),
        low=_get(about, "low", (int, _NONE)),
        high=_get(about, "high", (int, _NONE)),
    )


def _unit(about: Mapping[str, Any]) -> str | None:
    unit: str | None = _get(about, "unit", _TEXT)
    if unit not in (None, "s", "ms", "us", "ns", "d"):
        raise ValueError(f"'unit' is {unit!r}")
    return unit


def _get(about: Mapping[str, Any], key: str, types: tuple[type, ...]) -> Any:
    if key not in about:
        raise ValueError(f"{key!r} is not there")
    return _check(about[key], types, repr(key))


def _count(about: Mapping[str, Any], key: str) -> int:
    found: int = _get(about, key, (int,))
    if found < 0:
        raise ValueError(f"{key!r} is {found}")
    return found


def _names(found: Iterable[object], what: str) -> tuple[str, ...]:
    names = tuple(_check(name, (str,), f"a name in {what!r}") for name in found)
    if not names:
        raise ValueError(f"{what!r} is empty")
    return names


def _check(found: Any, types: tuple[type, ...], what: str) -> Any:
    if type(found) not in types:
        raise ValueError(f"{what} is {found!r}")
    return found
