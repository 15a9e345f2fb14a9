"""Statistics of a stash: a line per column, or per entity and column."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.checks import at_least, names_in
from tensorstash.common.dtypes import Int64s
from tensorstash.common.forks import check_pool
from tensorstash.errors import ColumnError
from tensorstash.native.permutation import shuffled
from tensorstash.stash.moments import Rows, extremes, moments, quantiles, sampled
from tensorstash.stash.protocol import StashLike

if TYPE_CHECKING:
    import polars as pl

Table = dict[str, NDArray[Any]]  # (groups, items) each: items are the numbers of one row

_BLOCK = 1 << 22  # codes that are sorted together
_QUANTILES = {"25%": 0.25, "50%": 0.5, "75%": 0.75}
_NUMBERS = ("mean", "std", "min", *_QUANTILES, "max")


def describe(
    stash: StashLike, columns: Sequence[str] | None, by: str | None, sample: int | None, seed: int
) -> "pl.DataFrame":
    """The frame that `Stash.describe` returns."""
    import polars as pl

    from tensorstash.stash.interop import entity_parts

    check_pool()
    if by not in (None, "entity"):
        raise ValueError(f"by= is None or 'entity'; got {by!r}.")
    most = None if sample is None else at_least(1, sample, "sample")
    names = [*stash, *(stash.static if by is None else ())] if columns is None else names_in(columns, "columns")
    if not names:
        raise ValueError("columns= names at least one column; none was given.")
    tables = [_table(stash, name, by, most, seed) for name in names]
    items = [item for name in names for item in _items(stash, name)]
    whole = {key: np.concatenate([table[key] for table in tables], axis=1) for key in tables[0]}
    groups = len(whole["count"])
    lines: list[pl.Series] = []
    for part in entity_parts(stash) if by == "entity" else ():
        clear = f"entity.{part.name}" if part.name in ("column", *whole) else part.name
        lines.append(part.gather(np.repeat(np.arange(groups), len(items))).alias(clear))
    lines.append(pl.Series("column", items * groups, dtype=pl.String))
    for key, values in whole.items():
        if key == "top":
            lines.append(pl.Series(key, values.ravel().tolist(), dtype=pl.String))
        else:
            lines.append(pl.Series(key, values.ravel()).fill_nan(None) if key in _NUMBERS else _counts(key, values))
    return pl.DataFrame(lines)


def _counts(name: str, values: NDArray[Any]) -> "pl.Series":
    """Integers; -1 becomes null."""
    import polars as pl

    flat = pl.Series(name, values.ravel())
    return flat.set(flat < 0, None)


def _items(stash: StashLike, name: str) -> list[str]:
    """The names of the components of one row."""
    tensor, members = _tensor(stash, name), stash.about(name).members
    if len(members) > 1:
        return [f"{name}.{member}" for member in members]
    return [name + "".join(f"[{k}]" for k in place) for place in np.ndindex(tuple(tensor.shape[1:]))]


def _tensor(stash: StashLike, name: str) -> torch.Tensor:
    return stash.static[name] if name in stash.static else stash[name]


def _table(stash: StashLike, name: str, by: str | None, most: int | None, seed: int) -> Table:
    tensor = _tensor(stash, name)
    if name in stash.static and by is not None:
        raise ColumnError(f"A static column has one value in each entity; {name!r} is one. Describe it without by=.")
    offsets = np.array([0, len(tensor)]) if by is None else stash.offsets.numpy()
    rows = Rows(np.array([0]), np.array([len(tensor)]), offsets)
    if stash.about(name).is_coded:
        return _of_codes(stash, name, tensor, rows)
    return _of_numbers(tensor, rows, most, seed)


def _of_numbers(tensor: torch.Tensor, rows: Rows, most: int | None, seed: int) -> Table:
    with np.errstate(invalid="ignore", over="ignore"):  # infinite values have no mean
        count, mean, variance = moments(tensor, rows)
        _, low, high = extremes(tensor, rows)
        sizes = np.diff(rows.offsets)
        if most is not None and (sizes > most).any():
            tensor, rows = sampled(tensor, rows, spread_sample(sizes, most, seed))
        _, found = quantiles(tensor, rows, (*_QUANTILES.values(),))
        spread = np.sqrt(variance * count / np.where(count > 1, count - 1, np.nan))
    own = {"count": count, "missing": sizes[:, None] - count, "mean": np.where(count > 0, mean, np.nan), "std": spread}
    none = {"distinct": np.full(count.shape, -1), "top": np.full(count.shape, None)}
    return own | {"min": low} | dict(zip(_QUANTILES, found)) | {"max": high} | none


def spread_sample(sizes: Int64s, most: int, seed: int) -> Int64s:
    """At most so many rows of each group, ascending: its rows are cut into equal stretches, and one drawn of each."""
    taken = np.minimum(sizes, most)
    group = np.repeat(np.arange(len(sizes)), taken)
    k = np.arange(len(group)) - np.repeat(np.cumsum(taken) - taken, taken)
    whole, rest = np.divmod(sizes[group], taken[group])
    low, high = (at * whole + at * rest // taken[group] for at in (k, k + 1))
    drawn = shuffled(1 << 62, seed, 0)(np.arange(len(group)))
    return (np.cumsum(sizes) - sizes)[group] + low + drawn % (high - low)


def _of_codes(stash: StashLike, name: str, codes: torch.Tensor, rows: Rows) -> Table:
    vocabulary = None if stash.about(name).kind == "hashed" else stash.vocabulary(name)
    group, code, times = _counted(codes, rows.offsets)
    known = (code >= 0) if vocabulary is None else (code >= 0) & (code < len(vocabulary))
    count, distinct = (np.zeros(rows.groups, np.int64) for _ in range(2))
    np.add.at(count, group[code >= 0], times[code >= 0])
    np.add.at(distinct, group[known], 1)
    group, code, times = group[known], code[known], times[known]
    first = _starts(group)
    most = np.repeat(np.maximum.reduceat(times, first), np.diff(first, append=len(times))) if len(times) else times
    group, code = group[times == most], code[times == most]
    first = _starts(group)  # of equally common ones
    top = np.full(rows.groups, None)
    top[group[first]] = [str(k) if vocabulary is None else str(vocabulary[k]) for k in code[first].tolist()]
    empty = np.full((rows.groups, 1), np.nan)
    own = {"count": count[:, None], "missing": (np.diff(rows.offsets) - count)[:, None]}
    return own | dict.fromkeys(_NUMBERS, empty) | {"distinct": distinct[:, None], "top": top[:, None]}


def _counted(codes: torch.Tensor, offsets: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Each pair of group and code that occurs, and how often it occurs."""
    size = int(codes.max()) + 2 if len(codes) else 1
    keys, times = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for begin in range(0, len(codes), _BLOCK):
        end = min(begin + _BLOCK, len(codes))
        ends = np.clip(offsets, begin, end)
        group = np.repeat(np.arange(len(offsets) - 1), ends[1:] - ends[:-1])
        found = np.unique(group * size + codes[begin:end].numpy() + 1, return_counts=True)
        keys.append(found[0])
        times.append(found[1])
    every = np.concatenate(keys)
    order = np.argsort(every, kind="stable")  # which is fast, because the keys of each block ascend
    every = every[order]
    first = _starts(every)
    total = np.add.reduceat(np.concatenate(times)[order], first) if len(first) else np.zeros(0, np.int64)
    return every[first] // size, every[first] % size - 1, total


def _starts(values: Int64s) -> Int64s:
    """Where each value begins among ascending ones."""
    return np.flatnonzero(np.diff(values, prepend=values[:1] - 1))
