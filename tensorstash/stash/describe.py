"""Statistics of a stash: a line per column, or per entity and column; a pack has a line per member."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tensorstash.common.checks import at_least, integer, names_in, one_of
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

_BLOCK = 1 << 22  # codes counted at a time
_QUANTILES = {"25%": 0.25, "50%": 0.5, "75%": 0.75}
_NUMBERS = ("mean", "std", "min", *_QUANTILES, "max")
_FIGURES = ("count", "missing", *_NUMBERS, "distinct", "top")


def describe(
    stash: "Stash", columns: Sequence[str] | None, by: str | None, sample: int | None, seed: int
) -> "pl.DataFrame":
    """The frame that `Stash.describe` returns."""
    import polars as pl

    from tensorstash.stash.interop import entity_parts

    check_pool()
    one_of(by, (None, "entity"), "by")
    most = None if sample is None else at_least(1, sample, "sample")
    seed = integer(seed, "seed")
    names = [*stash, *(stash.static if by is None else ())] if columns is None else names_in(columns, "columns")
    if not names:
        raise ValueError("columns must name at least one column, got none.")
    lines = pl.concat([_lines(stash, name, _figures(stash, name, by, most, seed)) for name in names])
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
    others = {"group": pl.Int64, "column": pl.String, "top": pl.String, **dict.fromkeys(_NUMBERS, pl.Float64)}
    cells: dict[str, Any] = {"group": np.repeat(np.arange(groups), len(items)), "column": items * groups}
    cells |= {key: figures[key].ravel().tolist() if key in figures else None for key in _FIGURES}
    return pl.DataFrame(cells, {key: others.get(key, pl.Int64) for key in cells}).fill_nan(None)


def _items(stash: "Stash", name: str) -> list[str]:
    members = stash.about(name).members
    if len(members) > 1:
        return [f"{name}.{member}" for member in members]
    return [name + "".join(f"[{k}]" for k in place) for place in np.ndindex(values_of(stash, name).pack)]


def _figures(stash: "Stash", name: str, by: str | None, most: int | None, seed: int) -> Figures:
    if name in stash.static and by is not None:
        raise ColumnError(f"A static column has one value in each entity; {name!r} is one. Describe it without by=.")
    column = values_of(stash, name)
    count = len(column.numbers)
    offsets = np.array([0, count]) if by is None else stash.offsets.numpy()
    rows = Rows(np.array([0]), np.array([count]), offsets)
    if stash.about(name).is_coded:
        return _of_codes(stash, name, column, rows)
    return _of_numbers(column, rows, most, seed)


def _of_numbers(column: Values, rows: Rows, most: int | None, seed: int) -> Figures:
    with np.errstate(invalid="ignore", over="ignore"):  # infinite values have no mean
        count, mean, variance = mean_and_variance(column, rows)
        _, low, high = extremes(column, rows)
        sizes = np.diff(rows.offsets)
        if most is not None and (sizes > most).any():
            column, rows = sampled(column, rows, spread_sample(sizes, most, seed))
        _, quartiles = quantiles([(column, rows)], (*_QUANTILES.values(),))
        spread = np.sqrt(variance * count / np.where(count > 1, count - 1, np.nan))
    counts = {"count": count, "missing": sizes[:, None] - count}
    numbers = {"mean": np.where(count > 0, mean, np.nan), "std": spread, "min": low}
    return counts | numbers | dict(zip(_QUANTILES, quartiles)) | {"max": high}


def spread_sample(sizes: Int64s, most: int, seed: int) -> Int64s:
    """At most `most` rows of each group, ascending: one is drawn from each of `most` equal parts of its rows."""
    taken = np.minimum(sizes, most)
    group = np.repeat(np.arange(len(sizes)), taken)
    k = np.arange(len(group)) - np.repeat(np.cumsum(taken) - taken, taken)
    whole, rest = np.divmod(sizes[group], taken[group])
    low, high = (edge * whole + edge * rest // taken[group] for edge in (k, k + 1))
    drawn = shuffled(1 << 62, seed, 0)(np.arange(len(group)))
    return (np.cumsum(sizes) - sizes)[group] + low + drawn % (high - low)


def _of_codes(stash: "Stash", name: str, column: Values, rows: Rows) -> Figures:
    import polars as pl

    vocabulary = None if stash.about(name).kind == "hashed" else stash.vocabulary(name)
    pairs = _counted(column, rows.offsets)
    count, distinct, top = np.zeros(rows.groups, np.int64), np.zeros(rows.groups, np.int64), np.full(rows.groups, None)
    total = pairs.group_by("group").agg(pl.sum("times"))
    count[total["group"]] = total["times"]
    known = pairs if vocabulary is None else pairs.filter(pl.col("code") < len(vocabulary))
    # the lowest of equally common codes
    ordered = known.sort("times", "code", descending=[True, False]).group_by("group", maintain_order=True)
    common = ordered.agg(pl.len(), pl.first("code"))
    distinct[common["group"]] = common["len"]
    top[common["group"]] = [str(code if vocabulary is None else vocabulary[code]) for code in common["code"]]
    missing = np.diff(rows.offsets) - count
    return {"count": count, "missing": missing, "distinct": distinct, "top": top}


def _counted(column: Values, offsets: Int64s) -> "pl.DataFrame":
    """How many `times` each `code` occurs in each `group`."""
    import polars as pl

    codes, parts = column.numbers.numpy(), []
    for start in range(0, max(len(codes), 1), _BLOCK):
        block = codes[start : start + _BLOCK]
        ends = np.clip(offsets, start, start + len(block))
        group = np.repeat(np.arange(len(offsets) - 1), ends[1:] - ends[:-1])
        is_code = block >= 0
        if column.valid is not None:
            is_code &= column.valid[start : start + _BLOCK].numpy()
        pairs = pl.DataFrame({"group": group[is_code], "code": block[is_code]})
        parts.append(pairs.group_by("group", "code").len("times"))
    return pl.concat(parts).group_by("group", "code").agg(pl.sum("times"))
