"""Statistics of a stash: a line per column, or per entity and column; a pack has a line per member."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tensorstash.common.checks import names_in, one_of
from tensorstash.common.dtypes import Int64s
from tensorstash.common.forks import check_pool
from tensorstash.errors import ColumnError
from tensorstash.native.permutation import shuffled
from tensorstash.stash.missing import values_of
from tensorstash.stash.row_statistics import Rows, Values, extremes, mean_and_variance, quantiles, sampled

if TYPE_CHECKING:
    import polars as pl

    from tensorstash.stash.stash import Stash

Figures = dict[str, NDArray[Any]]  # by name `(groups, items)`, where items are the numbers of one row

_SAMPLE = 100_000  # rows of a group from which its quartiles are computed
_QUANTILES = {"25%": 0.25, "50%": 0.5, "75%": 0.75}
_NUMBERS = ("mean", "std", "min", *_QUANTILES, "max")
_FIGURES = ("count", "missing", *_NUMBERS)


def describe(stash: "Stash", columns: Sequence[str] | None, by: str | None) -> "pl.DataFrame":
    """The frame that `Stash.describe` returns."""
    import polars as pl

    from tensorstash.stash.interop import entity_parts

    check_pool()
    one_of(by, (None, "entity"), "by")
    names = [*stash, *(stash.static if by is None else ())] if columns is None else names_in(columns, "columns")
    if not names:
        raise ValueError("columns must name at least one column, got none.")
    lines = pl.concat([_lines(stash, name, _figures(stash, name, by)) for name in names])
    lines = lines.sort("group", maintain_order=True)
    keys = [part.gather(lines["group"]) for part in (entity_parts(stash) if by == "entity" else ())]
    keys = [key.alias(f"entity.{key.name}") if key.name in ("column", *_FIGURES) else key for key in keys]
    return pl.DataFrame(keys + lines.drop("group").get_columns())


def _lines(stash: "Stash", name: str, figures: Figures) -> "pl.DataFrame":
    """The lines of a column, `(groups * items)`, with the number of the group; figures that it does not have are null.

    A mean or an extreme of no values is null too.
    """
    import polars as pl

    items, groups = _items(stash, name), len(figures["count"])
    others = {"column": pl.String, **dict.fromkeys(_NUMBERS, pl.Float64)}
    cells: dict[str, Any] = {"group": np.repeat(np.arange(groups), len(items)), "column": items * groups}
    cells |= {key: figures[key].ravel().tolist() if key in figures else None for key in _FIGURES}
    return pl.DataFrame(cells, {key: others.get(key, pl.Int64) for key in cells}).fill_nan(None)


def _items(stash: "Stash", name: str) -> list[str]:
    members = stash.about(name).members
    if len(members) > 1:
        return [f"{name}.{member}" for member in members]
    return [name + "".join(f"[{k}]" for k in place) for place in np.ndindex(values_of(stash, name).pack)]


def _figures(stash: "Stash", name: str, by: str | None) -> Figures:
    if name in stash.static and by is not None:
        raise ColumnError(f"A static column has one value in each entity; {name!r} is one. Describe it without by=.")
    column = values_of(stash, name)
    total = len(column.numbers)
    offsets = np.array([0, total]) if by is None else stash.offsets.numpy()
    rows, sizes = Rows(np.array([0]), np.array([total]), offsets), np.diff(offsets)
    if stash.about(name).is_coded:
        is_code = column.numbers >= 0
        column = Values(column.numbers, is_code if column.valid is None else column.valid & is_code)
    with np.errstate(invalid="ignore", over="ignore"):  # infinite values have no mean
        count, low, high = extremes(column, rows)
        figures: Figures = {"count": count, "missing": sizes[:, None] - count}
        if stash.about(name).is_coded:
            return figures
        _, mean, variance = mean_and_variance(column, rows)
        if (sizes > _SAMPLE).any():
            column, rows = sampled(column, rows, spread_sample(sizes, _SAMPLE))
        _, quartiles = quantiles([(column, rows)], (*_QUANTILES.values(),))
        spread = np.sqrt(variance * count / np.where(count > 1, count - 1, np.nan))
    figures |= {"mean": np.where(count > 0, mean, np.nan), "std": spread, "min": low, "max": high}
    return figures | dict(zip(_QUANTILES, quartiles))


def spread_sample(sizes: Int64s, most: int) -> Int64s:
    """At most `most` rows of each group, ascending: one is drawn from each of `most` equal parts of its rows."""
    taken = np.minimum(sizes, most)
    group = np.repeat(np.arange(len(sizes)), taken)
    k = np.arange(len(group)) - np.repeat(np.cumsum(taken) - taken, taken)
    whole, rest = np.divmod(sizes[group], taken[group])
    low, high = (edge * whole + edge * rest // taken[group] for edge in (k, k + 1))
    drawn = shuffled(1 << 62, 0, 0)(np.arange(len(group)))
    return (np.cumsum(sizes) - sizes)[group] + low + drawn % (high - low)
