"""A copy of a stash whose columns are scaled once, so that no batch needs to be scaled."""

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch

from tensorstash.columns.column import Column, ColumnCounts, with_counts
from tensorstash.columns.info import to_header
from tensorstash.common.checks import shown
from tensorstash.common.dtypes import DTYPES, as_array, as_integers, one_nan
from tensorstash.common.text import type_text
from tensorstash.errors import SchemaError
from tensorstash.segments.draft import Draft
from tensorstash.segments.limits import check_free, memory_limits
from tensorstash.segments.segment import Segment
from tensorstash.stash.stash import Stash
from tensorstash.transforms.bound import check_unscaled
from tensorstash.transforms.scaling import ScaleConstants

_BLOCK = 1 << 18  # numbers scaled at a time, so few that they stay in the processor's cache

Tables = Mapping[str, tuple[torch.Tensor, torch.Tensor]]  # the centre and the scale of each column, (groups, *pack)


def check_stash(stash: object, columns: Iterable[str]) -> None:
    """Raise an error for what is no stash, and for columns that are scaled already or computed in empty slots."""
    if not isinstance(stash, Stash):
        raise TypeError(
            f"transform() takes a stash, got {type_text(stash)}. Write scaler.transform(windows.stash) for windows, "
            "and scaler(batch) for a batch."
        )
    check_unscaled(stash, columns)
    for name in columns:
        if stash.about(name).calendar:
            raise SchemaError(
                "A column of ts.calendar cannot be scaled in a stash, because windows compute its values in empty "
                f"slots; {name!r} is one. Leave it out of the scaler, or scale each batch: transform=[scaler]."
            )


def scaled_stash(stash: Stash, tables: Tables, group: torch.Tensor | None, dtype: torch.dtype | None) -> Stash:
    """A private copy of a stash with scaled columns.

    Args:
        stash: the columns.
        tables: the constants of each column to scale.
        group: `(rows,)`, the group of each row; `None`: all rows are in the first one.
        dtype: of the scaled columns; `None` keeps the dtype of each.
    """
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype in DTYPES and dtype.is_floating_point):
        raise TypeError(f"dtype must be a floating dtype, such as torch.float32, got {shown(dtype)}.")
    for name in tables:
        if not stash[name].dtype.is_floating_point:
            raise SchemaError(
                f"A scaled column must be floating; {name!r} is {stash[name].dtype}. Load it with "
                f"ts.column({name!r}, dtype=torch.float32)."
            )
    segment = stash.segment
    entries = sorted(segment.entries.values(), key=lambda entry: entry.start)
    kept = [entry for entry in entries if entry.name not in segment.checksums]
    to = {entry.name: dtype or entry.dtype if entry.name in tables else entry.dtype for entry in kept}
    check_free(
        sum(math.prod(entry.shape) * to.get(entry.name, entry.dtype).itemsize for entry in entries),
        memory_limits(),
        "A stash must fit into free memory",
        "a scaled copy",
        "Take a narrower dtype=, or scale each batch: transform=[scaler].",
    )
    draft = Draft([(entry.name, to[entry.name], entry.shape) for entry in kept], kept[0].start)
    columns = {about.name: about for about in stash.info.columns}
    for name, table in tables.items():
        columns[name] = _write_scaled(draft, columns[name], stash[name], table, group)
    for name in to.keys() - tables.keys():
        _write(draft, name, 0, stash[name] if name in stash else segment.tensor(name))
    for name in segment.checksums:
        blob = segment.blob(name)
        draft.blob(name, as_integers(blob).numpy(), blob.dtype)
    draft.seal(to_header(replace(stash.info, columns=tuple(columns.values()))))
    made = Segment(os.dup(draft.fd))
    made.populate()
    return Stash(made)


def _write(draft: Draft, name: str, row: int, values: torch.Tensor) -> None:
    draft.write(name, row, as_integers(values.contiguous()).numpy())


def _write_scaled(
    draft: Draft,
    about: Column,
    column: torch.Tensor,
    table: tuple[torch.Tensor, torch.Tensor],
    group: torch.Tensor | None,
) -> Column:
    """Scale a column block by block, in the wider of its old and new dtype; returns it with its new counts."""
    dtype = draft.entries[about.name].dtype
    wide, scaled = torch.promote_types(column.dtype, dtype), replace(about, dtype=dtype, is_scaled=True)
    constants = ScaleConstants.of(*table, like=torch.empty(0, dtype=wide))
    rows = max(1, _BLOCK // constants.items)
    counts = ColumnCounts(nulls=about.nulls)
    for start in range(0, len(column), rows):
        block = column[start : start + rows].to(wide, copy=True)
        constants.scale_in_place(block[:, None], None if group is None else group[start : start + rows], inverse=False)
        block = one_nan(block.to(dtype))
        _write(draft, about.name, start, block)
        counts += ColumnCounts.of(as_array(block), scaled)
    return with_counts(scaled, counts)
