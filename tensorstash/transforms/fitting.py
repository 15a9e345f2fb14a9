"""Fitting a `Scaler`: a centre and a scale for each group of the rows seen, and of which columns."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch

from tensorstash.common.checks import at_least, flag, integer, names_in, one_of, shown
from tensorstash.common.dtypes import Bools, Int64s
from tensorstash.errors import ColumnError, DataError, SchemaError, unknown
from tensorstash.native.permutation import shuffled
from tensorstash.sampling.several import Several
from tensorstash.stash.missing import values_of
from tensorstash.stash.row_statistics import (
    Floats,
    Rows,
    Values,
    extremes,
    flattened,
    mean_and_variance,
    quantiles,
    sampled,
)
from tensorstash.stash.stash import Stash
from tensorstash.transforms.bound import (
    Source,
    by_stash,
    check_alike,
    check_source,
    check_unscaled,
    column_of,
    columns_in,
    entries_in,
    parts_in,
    stash_of,
    stash_with,
)
from tensorstash.transforms.groups import check_coded
from tensorstash.transforms.rows_seen import entities_seen, one_group, rows_seen
from tensorstash.windows.windows import Windows

Part = tuple[Values, Rows]
Fitted = tuple[Int64s, Floats, Floats]  # count of values, centre and scale, (groups, items) each
Kind = Literal["standard", "minmax", "robust", "maxabs"]
Unknown = Literal["error", "pooled"]
Doubt = tuple[str, str, Int64s]  # the text of a warning, its column, its groups

NO_CODES = (None, "entity")  # of `by=`, which else names a column of codes
_FEW = (
    "No value, or only one, in the rows that the scaler has seen, so it takes the statistics of all of these rows; fit "
    "it on more rows for their own"
)
_EQUAL = "All values are equal, so the scale is 1"
NO_GROUPS = np.empty(0, np.int64)
_NAMED = 3  # entities or columns named in a warning
_FEWEST = 2  # values that an entity needs for statistics of its own
_QUARTILES = (0.25, 0.5, 0.75)
NO_WINDOWS = "A scaler must be fitted on at least one row, got none. Fit it on data with rows; see the cuts of split()."


@dataclass(frozen=True, slots=True)
class Statistics:
    """Centres and scales of columns, `(groups, *pack)` each, over the rows seen."""

    rows: int
    spans: dict[str, str]  # maps each span to scale to its column
    center: dict[str, torch.Tensor] = field(default_factory=dict)
    scale: dict[str, torch.Tensor] = field(default_factory=dict)
    doubts: list[Doubt] = field(default_factory=list)

    def add(
        self, name: str, pack: tuple[int, ...], fitted: Fitted, few: Int64s = NO_GROUPS, last: Fitted | None = None
    ) -> None:
        """Add a column; raises `DataError` if its statistics are not finite. The scale of equal values becomes 1.

        `fitted` has one number for each of a pack, or one for all; `few` are the groups with those of all rows, and
        `last` is a further group, for whatever is unknown.
        """
        equal = np.flatnonzero((fitted[2] == 0).any(1))
        count, center, scale = fitted if last is None else joined([fitted, last])
        if not count.all() or not (np.isfinite(center) & np.isfinite(scale)).all():
            why = "values that are infinite, or that float64 cannot square" if count.all() else "only missing values"
            raise DataError(
                f"A scaled column must have finite values; {name!r} has {why} in the rows seen. Leave it out."
            )
        self.doubts.extend((text, name, groups) for text, groups in ((_FEW, few), (_EQUAL, equal)) if len(groups))
        scale = np.where(scale == 0, 1, scale)
        tables = (np.broadcast_to(x, (len(x), math.prod(pack))) for x in (center, scale))
        self.center[name], self.scale[name] = (torch.tensor(x.reshape(-1, *pack)) for x in tables)


def statistics_of(
    source: Source,
    columns: list[str],
    members: Mapping[str, list[str]],
    kind: str,
    by: str | None,
    *,
    pooled: bool,
    together: bool,
    sample: int | None,
    seed: int,
) -> Statistics:
    """The statistics of a stash, or of the rows that windows see. With `pooled` a last group has those of all rows."""
    flag(together, "together")
    seed = integer(seed, "seed")
    _check_fitted(source, columns, by, in_members=bool(members), together=together, samples=sample is not None)
    if isinstance(source, Several) and source.statistics is not None:
        found: Statistics = source.statistics(columns, kind, by, pooled=pooled, together=together)
        return found
    parts = parts_in(source)
    spans = spans_of(parts[0], columns)
    result, total = Statistics(0, spans), 0
    for names in by_stash(parts[0], [*spans.values(), *columns]):
        stashes = [stash_with(part, names[0]) for part in parts]
        static = names[0] in stashes[0].static
        if by is not None and (static or stashes[0] is not stash_of(parts[0])):
            raise ValueError(
                f"by={by!r} needs rows of the entities of the windows; {names[0]!r} is "
                f"{'static' if static else 'a column of a table'}. Fit a scaler without by= for it."
            )
        seen = [entities_seen(part) if static else rows_seen(part, stash) for part, stash in zip(parts, stashes)]
        count, which = sum(map(len, seen)), None
        if not count:
            raise DataError(NO_WINDOWS)
        if sample is not None and (size := at_least(1, sample, "sample")) < count:
            count, which = size, np.sort(shuffled(count, seed, 0)(np.arange(size)))
        total += count
        codes = [] if by in NO_CODES else _chosen([Values(stash[by]) for stash in stashes], seen, which)
        for name in names:
            values, others = [values_of(stash, name) for stash in stashes], _others_in(stashes, name, members.get(name))
            rows = _chosen(values, seen, which)
            if together:
                rows = [all_of_pack(*part, name) for part in rows]
            of_all = partial(fit, [(column, one_group(own)) for column, own in rows if len(own)], kind, others)
            if by is None:
                result.add(name, values[0].pack, of_all())
                continue
            groups = _by_code(rows, codes, len(stashes[0].vocabulary(by))) if codes else rows
            fitted, few = _of_groups(groups, kind, others, of_all)
            result.add(name, values[0].pack, fitted, few, of_all() if pooled else None)
    return replace(result, rows=total)


def _check_fitted(
    source: Source, columns: list[str], by: str | None, *, in_members: bool, together: bool, samples: bool
) -> None:
    """Raise an error for a source and arguments that do not fit; `in_members`: of some packs not all members."""
    check_source(source)
    check_alike(source, columns)
    for part in parts_in(source):
        for name in columns:
            check_unscaled(stash_with(part, name), [name])
    if by not in NO_CODES:
        check_coded(source, str(by))
    in_part = isinstance(source, Several) and source.statistics is not None
    if samples and (in_part or (by == "entity" and isinstance(source, Several))):
        raise ValueError("sample= needs the rows of one stash. Fit a scaler on the windows of a component.")
    if (in_members or by not in NO_CODES) and (together or in_part):
        raise ValueError(
            "Members of a pack, and by= a column of codes, are not for together= or shards. Leave together= out, and "
            "on shards give columns= as a list, and by='entity' or none."
        )


def _chosen(columns: Sequence[Values], seen: Sequence[Rows], which: Int64s | None) -> list[Part]:
    """The rows seen of a column in each part, or those at the positions `which` among the rows of all parts."""
    if which is None:
        return [*zip(columns, seen)]
    ends = np.cumsum([len(rows) for rows in seen])
    cuts = np.split(which, np.searchsorted(which, ends[:-1]))
    return [sampled(values, rows, cut - (end - len(rows))) for values, rows, cut, end in zip(columns, seen, cuts, ends)]


def chosen_in(columns: Sequence[str] | Mapping[str, Sequence[str] | None]) -> tuple[list[str], dict[str, list[str]]]:
    """The names of columns, and the members to scale of those packs of which not all are."""
    if not isinstance(columns, Mapping):
        return names_in(columns, "columns"), {}
    some = {name: names_in(members, f"columns[{name!r}]") for name, members in columns.items() if members is not None}
    return names_in([*columns], "columns"), some


def _others_in(stashes: Sequence[Stash], name: str, members: Sequence[str] | None) -> list[int]:
    """The places in a pack of what is not to be scaled; `None` scales all members."""
    if members is None:
        return []
    first, *more = [stash.about(name) for stash in stashes]
    if len(first.members) < 2 or first.calendar or any(about.members != first.members for about in more):
        raise ValueError(
            f"Members are those of a pack of named columns, the same in all stashes; {name!r} is none. Write "
            f"{{{name!r}: None}} for the whole column."
        )
    if not members:
        raise ValueError(f"A pack must have a member to scale, got none for {name!r}. Leave it out.")
    for member in members:
        if member not in first.members:
            raise unknown(member, first.members, f"the pack {name!r}", "member")
    return [place for place, member in enumerate(first.members) if member not in members]


def _by_code(parts: Sequence[Part], codes: Sequence[Part], count: int) -> list[Part]:
    """The values in the rows of all parts as one column, with a group for each of `count` codes."""
    code, numbers = (torch.cat([*map(_taken, every)]) for every in (codes, parts))
    code, order = code.sort(stable=True)
    edges = np.searchsorted(code.numpy(), np.arange(count + 1))
    return [(Values(numbers[order]), Rows(edges[:1], edges[-1:], edges))]


def _taken(part: Part) -> torch.Tensor:
    column, rows = part
    some, _ = sampled(column, rows, np.arange(len(rows)))
    numbers = some.numbers.double()
    return numbers if some.valid is None else numbers.masked_fill(~some.valid, math.nan)


def _of_groups(
    parts: Sequence[Part], kind: str, others: list[int], of_all: Callable[[], Fitted]
) -> tuple[Fitted, Int64s]:
    """The statistics of the groups of all parts, one part after the other, and which of them are those of all rows.

    A group with too few values has those of its part; a group of a part without rows, those of all parts.
    """
    own = joined([fit([part], kind, others) for part in parts])
    if (own[0] >= _FEWEST).all():
        return own, NO_GROUPS
    of_parts = [fit([(column, one_group(rows))], kind, others) if len(rows) else of_all() for column, rows in parts]
    count, center, scale = joined(of_parts)
    part = np.repeat(np.arange(len(parts)), [rows.groups for _, rows in parts])  # of each group
    return fill_few(own, (count[part], center[part], scale[part]))


def joined(parts: Sequence[Fitted]) -> Fitted:
    """The groups of all parts, one part after the other."""
    count, center, scale = (np.concatenate([part[k] for part in parts]) for k in range(3))
    return count, center, scale


def all_of_pack(column: Values, rows: Rows, name: str) -> Part:
    """All numbers of a pack as those of a single column; raises `ValueError` if it is one."""
    if not column.pack:
        raise ValueError(
            f"together=True gives all columns of a pack one centre and one scale; {name!r} is no pack. Load the "
            'columns as one, columns={"x": ["a", "b"]}, or leave together= out.'
        )
    return flattened(column, rows)


def check_kind(kind: str, by: str | None, unknown: str) -> None:
    """Raise `ValueError` unless `kind`, `by` and `unknown` are allowed."""
    one_of(kind, get_args(Kind), "kind")
    if by is not None and not isinstance(by, str):
        raise ValueError(f"by must be None, 'entity' or the name of a column of codes, got {shown(by)}.")
    one_of(unknown, get_args(Unknown), "unknown")
    if unknown != "error" and by is None:
        raise ValueError(f"unknown must be 'error', or 'pooled' with by='entity', got {unknown!r} and by={by!r}.")


def spans_of(source: Windows | Stash, columns: list[str]) -> dict[str, str]:
    """Maps each span to scale to its column; raises an error if a column cannot be scaled."""
    if not columns:
        raise ValueError("columns must name at least one column, got none.")
    for name in columns:
        stash = stash_with(source, name)
        if name not in stash and name not in stash.static:
            raise _no_column(source, stash, name)
        tensor, kind = column_of(stash, name), stash.about(name).kind
        if kind != "number" or tensor.dtype == torch.bool:
            what = tensor.dtype if kind == "number" else kind
            raise SchemaError(f"A scaled column must be numeric; {name!r} is {what}. Leave it out.")
    if isinstance(source, Stash):
        return {name: name for name in columns}
    held = [*source.stash.static, *(name for names in columns_in(source).values() for name in names)]
    for name in columns:
        if name not in held:
            raise unknown(name, held, "a window")
    return {span: column for span, column in entries_in(source).items() if column in columns}


def _no_column(source: Windows | Stash, stash: Stash, name: str) -> ColumnError:
    """The error for a name that is no column of a stash; it may be that of a span, or inside a pack."""
    packs = [about for about in stash.info.columns if len(about.members) > 1]
    columns = {member: (about.name,) for about in packs for member in about.members} | columns_in(source)
    if name in columns:
        some = [*columns[name]] if name in columns_in(source) else {columns[name][0]: [name]}
        given = "windows" if isinstance(source, Windows) else "stash"
        return ColumnError(
            f"A scaler takes columns; {name!r} is of {' and '.join(map(repr, columns[name]))}. Write "
            f"ts.Scaler.fit({given}, {some})."
        )
    return unknown(name, stash, "the stash")


def fit(parts: Sequence[Part], kind: str, others: Sequence[int] = ()) -> Fitted:
    """The statistics of a column for each group of rows. Several parts, of one group each, are pooled.

    The `others` are not to be scaled, so their centre is 0 and their scale 1.
    """
    with np.errstate(invalid="ignore", over="ignore"):  # `Statistics.add` refuses what is not finite
        if kind == "robust":
            count, (lower, median, upper) = quantiles(parts, _QUARTILES)
            fitted = count, median, upper - lower
        else:
            fitted = merged([_fit(column, rows, kind) for column, rows in parts], kind)
    for array, value in zip(fitted, (_FEWEST, 0, 1)):
        array[:, [*others]] = value
    return fitted


def _fit(column: Values, rows: Rows, kind: str) -> Fitted:
    if kind == "standard":
        count, mean, variance = mean_and_variance(column, rows)
        return count, mean, np.sqrt(variance)
    count, low, high = extremes(column, rows)
    if kind == "minmax":
        return count, low, high - low
    return count, np.zeros_like(low), np.maximum(np.abs(low), np.abs(high))


def fill_few(own: Fitted, wider: Fitted) -> tuple[Fitted, Int64s]:
    """Replace statistics of too few values by those of more; returns the groups of these too.

    `wider` has as many groups, or one for all.
    """
    few: Bools = (own[0] < _FEWEST) & (own[0] != wider[0])
    count, center, scale = (np.where(few, pooled, single) for single, pooled in zip(own, wider))
    return (count, center, scale), np.flatnonzero(few.any(1))


def merged(parts: Sequence[Fitted], kind: str) -> Fitted:
    """The pooled statistics of several parts, `(1, items)` each, summed in their order."""
    if len(parts) == 1:
        return parts[0]
    count, center, scale = joined(parts)
    total = np.maximum(count.sum(0), 1)
    if kind == "standard":
        mean = (count * center).sum(0) / total
        center, scale = mean, np.sqrt((count * (scale**2 + (center - mean) ** 2)).sum(0) / total)
    else:
        high = np.fmax.reduce(center + scale)
        center = np.fmin.reduce(center)
        scale = high - center
    return count.sum(0)[None], center[None], scale[None]


def doubts_text(doubts: list[Doubt], names: Sequence[Any], by: str | None) -> str:
    """The warning that names the groups whose centre or scale is not from their own data; `names` are theirs."""
    many, texts = "entities" if by == "entity" else "codes", []
    for text in dict.fromkeys(text for text, *_ in doubts):
        places = [
            repr(name) + ("" if by is None else f" in {_groups(which, names, many)}")
            for other, name, which in doubts
            if other == text
        ]
        more = f" and {len(places) - _NAMED} more columns" if len(places) > _NAMED else ""
        texts.append(f"{text}: {', '.join(places[:_NAMED])}{more}.")
    return " ".join(texts)


def _groups(which: Int64s, names: Sequence[Any], many: str) -> str:
    some = ", ".join(repr(names[k]) for k in which[:_NAMED])
    return f"{len(which):,} of {len(names):,} {many} ({some}{', ...' if len(which) > _NAMED else ''})"
