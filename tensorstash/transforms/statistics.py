"""The statistics that a `Scaler` is fitted on: which rows count, and a centre and a scale for each group of them."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch

from tensorstash.common.dtypes import Bools, Int64s
from tensorstash.errors import DataError, SchemaError, unknown
from tensorstash.stash.moments import Floats, Rows, extremes, moments, pooled_quantiles, quantiles
from tensorstash.stash.stash import Stash
from tensorstash.windows.intervals import covered, union
from tensorstash.windows.slots import rows_from
from tensorstash.windows.windows import Windows

Fitted = tuple[Int64s, Floats, Floats]  # count of values, centre and scale, (groups, items) each
Doubt = tuple[Literal["few", "equal"], str, Int64s]  # what is doubtful, in which column, in which entities

_FEWEST = 2  # values of an entity that has statistics of its own
_QUARTILES = (0.25, 0.5, 0.75)
_NAMED = 3  # entities or columns named in a warning


def check_kind(kind: str, by: str | None) -> None:
    """Refuse statistics that there are not."""
    if kind not in [*KINDS]:  # a list: what cannot be hashed is refused too
        raise ValueError(f"kind= is one of {', '.join(map(repr, KINDS))}; got {kind!r}.")
    if by not in (None, "entity"):
        raise ValueError(f"by= is None or 'entity'; got {by!r}.")


def rows_seen(source: Windows | Stash) -> Rows:
    """The rows that lie in a window, grouped by entity; all rows of a stash."""
    if isinstance(source, Stash):
        return Rows(np.array([0]), np.array([source.rows]), source.offsets.numpy())
    if not len(source):
        raise ValueError("A scaler is fitted on at least one window; these windows are empty. See the cuts of split().")
    low, high = (rows_from(source._layout.slots, edges) for edges in covered(source._intervals, source.length))
    some = low < high
    return Rows(*union(low[some], high[some]), source.stash.offsets.numpy())


def spans_of(source: Windows | Stash, stash: Stash, columns: list[str]) -> dict[str, str]:
    """Maps each span that will be scaled to its column."""
    if not columns:
        raise ValueError("columns= names at least one column; none was given.")
    for name in columns:
        tensor, kind = stash[name], stash.about(name).kind
        if kind != "number" or tensor.dtype == torch.bool:
            what = tensor.dtype if kind == "number" else kind
            raise SchemaError(f"Numbers are scaled; column {name!r} is {what}. Leave it out.")
    if isinstance(source, Stash):
        return {name: name for name in columns}
    spans = {span.name: span.column for span in source.spans if span.column in columns}
    for name in columns:
        if name not in spans.values():
            raise unknown(name, {span.column: None for span in source.spans}, "the spans of the windows")
    return spans


def fit_column(column: torch.Tensor, rows: Rows, kind: str, name: str) -> tuple[Floats, Floats, list[Doubt]]:
    """Centre and scale of a column, `(groups, items)`, and the groups for which they are not taken from the data."""
    with np.errstate(invalid="ignore", over="ignore"):  # infinite values are refused below
        fitted = KINDS[kind](column, rows)
        doubts: list[Doubt] = []
        if rows.groups > 1 and (fitted[0] < _FEWEST).any():
            every = KINDS[kind](column, Rows(rows.low, rows.high, rows.offsets[[0, -1]]))
            fitted, doubts = fill_few(fitted, every, name)
    count, center, scale = fitted
    doubts += checked(count, center, scale, name)
    return center, scale, doubts


def fill_few(each: Fitted, every: Fitted, name: str) -> tuple[Fitted, list[Doubt]]:
    """Entities with too few values take the statistics of all entities, `(1, items)`."""
    count, center, scale = each
    few: Bools = np.any(count < _FEWEST, axis=1)
    if not few.any():
        return each, []
    center[few], scale[few] = every[1], every[2]
    return (np.where(few[:, None], every[0], count), center, scale), [("few", name, np.flatnonzero(few))]


def fit_together(
    parts: Sequence[tuple[torch.Tensor, Rows]], kind: str, name: str
) -> tuple[Floats, Floats, list[Doubt]]:
    """Centre and scale, `(1, items)`, of a column over the rows of several stashes, each of which is one group."""
    with np.errstate(invalid="ignore", over="ignore"):
        if kind == "robust":
            count, center, scale = _quartiles(*pooled_quantiles(parts, _QUARTILES))
        else:
            count, center, scale = merged([KINDS[kind](column, rows) for column, rows in parts], kind)
    return center, scale, checked(count, center, scale, name)


def merged(parts: Sequence[Fitted], kind: str) -> Fitted:
    """The statistics of several parts, `(1, items)` each, taken together in their order."""
    count, center, scale = (np.concatenate([one[k] for one in parts]) for k in range(3))
    some = np.maximum(count.sum(0), 1)
    if kind == "standard":
        mean = (count * center).sum(0) / some
        center, scale = mean, np.sqrt((count * (scale**2 + (center - mean) ** 2)).sum(0) / some)
    else:
        high = np.fmax.reduce(center + scale)
        center = np.fmin.reduce(center)
        scale = high - center
    return count.sum(0)[None], center[None], scale[None]


def checked(count: Int64s, center: Floats, scale: Floats, name: str) -> list[Doubt]:
    """Refuse what is not finite, and let the scale of equal values be 1."""
    if not count.all() or not (np.isfinite(center) & np.isfinite(scale)).all():
        why = "infinite values" if count.all() else "no value but NaN"
        raise DataError(f"A scaler needs finite values; column {name!r} has {why} in the rows seen. Leave it out.")
    constant = np.flatnonzero((scale == 0).any(1))
    scale[scale == 0] = 1
    return [("equal", name, constant)] if len(constant) else []


def doubts_text(doubts: list[Doubt], entities: Sequence[Any] | None) -> str:
    """The warning that names the groups whose centre or scale is not from their own data; `entities` if by entity."""
    texts = []
    for kind, sentence in (("equal", "All values are equal, so the scale is 1"), ("few", "Too few values")):
        found = [(name, which) for what, name, which in doubts if what == kind]
        places = [
            repr(name) + (f" in {_entities(which, entities)}" if entities is not None else "") for name, which in found
        ]
        if places:
            rest = f" and {len(places) - _NAMED} more columns" if len(places) > _NAMED else ""
            remedy = "; these take the statistics of all entities" if kind == "few" else ""
            texts.append(f"{sentence}: {', '.join(places[:_NAMED])}{rest}{remedy}.")
    return " ".join(texts)


def _entities(which: Int64s, entities: Sequence[Any]) -> str:
    names = ", ".join(repr(entities[k]) for k in which[:_NAMED])
    return f"{len(which):,} of {len(entities):,} entities ({names}{', ...' if len(which) > _NAMED else ''})"


def _standard(column: torch.Tensor, rows: Rows) -> Fitted:
    count, mean, variance = moments(column, rows)
    return count, mean, np.sqrt(variance)


def _minmax(column: torch.Tensor, rows: Rows) -> Fitted:
    count, low, high = extremes(column, rows)
    return count, low, high - low


def _robust(column: torch.Tensor, rows: Rows) -> Fitted:
    return _quartiles(*quantiles(column, rows, _QUARTILES))


def _quartiles(count: Int64s, found: list[Floats]) -> Fitted:
    lower, median, upper = found
    return count, median, upper - lower


def _maxabs(column: torch.Tensor, rows: Rows) -> Fitted:
    count, low, high = extremes(column, rows)
    return count, np.zeros_like(low), np.maximum(np.abs(low), np.abs(high))


KINDS = {"standard": _standard, "minmax": _minmax, "robust": _robust, "maxabs": _maxabs}
