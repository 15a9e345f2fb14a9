"""A stash whose columns are scaled: they are written once, so that no batch needs to be scaled."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from tensorstash.columns.info import to_header
from tensorstash.common.dtypes import DTYPES, as_integers
from tensorstash.errors import SchemaError
from tensorstash.segments.draft import Draft
from tensorstash.segments.limits import check_free, memory_limits
from tensorstash.segments.segment import Segment
from tensorstash.stash.stash import Stash
from tensorstash.transforms.scaling import Constants

_BLOCK = 1 << 18  # numbers that are scaled at a time, and lie in the processor's cache

Tables = Mapping[str, tuple[torch.Tensor, torch.Tensor]]  # of each column its centre and its scale, (groups, *pack)


def columns_of(stash: object, names: Iterable[str]) -> dict[str, torch.Tensor]:
    """Columns of a stash; other things than a stash are refused."""
    if not isinstance(stash, Stash):
        raise TypeError(
            f"A scaler must be applied to a stash, got a {type(stash).__name__}. Of windows that is windows.stash; a "
            "batch is scaled by scaler(batch)."
        )
    return {name: stash[name] for name in names}


def scaled_stash(stash: Stash, tables: Tables, group: torch.Tensor | None, dtype: torch.dtype | None) -> Stash:
    """A private copy of a stash with scaled columns.

    Args:
        stash: the columns.
        tables: the constants of each column that is scaled.
        group: `(rows,)`, which centre and scale each row has; `None`: all have the first one.
        dtype: of the scaled columns; `None` keeps theirs.
    """
    _check(stash, tables, dtype)
    segment = stash.segment
    entries = sorted(segment.entries.values(), key=lambda entry: entry.begin)
    kept = [entry for entry in entries if entry.name not in segment.checksums]
    to = {entry.name: dtype or entry.dtype if entry.name in tables else entry.dtype for entry in kept}
    check_free(
        sum(math.prod(entry.shape) * to.get(entry.name, entry.dtype).itemsize for entry in entries),
        memory_limits(),
        "A stash must fit into free memory",
        "a scaled copy",
        "Take a narrower dtype=, or scale each batch: transform=[scaler].",
    )
    draft = Draft([(entry.name, to[entry.name], entry.shape) for entry in kept], kept[0].begin)
    ranges = {}
    for name, dtype_in_copy in to.items():
        if name in tables:
            ranges[name] = _write_all(draft, name, _blocks(stash[name], tables[name], group, dtype_in_copy))
        else:
            _write(draft, name, 0, stash[name] if name in stash else segment.tensor(name))
    for name in segment.checksums:
        blob = segment.blob(name)
        draft.blob(name, as_integers(blob).numpy() if blob.dtype == torch.bfloat16 else blob.numpy(), blob.dtype)
    return _finished(draft, stash, ranges)


def _check(stash: Stash, tables: Tables, dtype: torch.dtype | None) -> None:
    if dtype is not None and not (dtype in DTYPES and dtype.is_floating_point):
        raise TypeError(f"dtype must be a floating dtype, such as torch.float32, got {dtype!r}.")
    for name in tables:
        if not stash[name].dtype.is_floating_point:
            raise SchemaError(
                f"A scaled column must be floating; {name!r} is {stash[name].dtype}. Load it with "
                f"ts.column({name!r}, dtype=torch.float32)."
            )


def _write(draft: Draft, name: str, row: int, values: torch.Tensor) -> None:
    draft.write(name, row, as_integers(values.contiguous()).numpy())


def _blocks(
    column: torch.Tensor, table: tuple[torch.Tensor, torch.Tensor], group: torch.Tensor | None, dtype: torch.dtype
) -> Iterator[torch.Tensor]:
    """A column scaled block by block, in the wider of its dtype and `dtype`."""
    wide = torch.promote_types(column.dtype, dtype)
    constants = Constants.of(*table, like=torch.empty(0, dtype=wide))
    rows = max(1, _BLOCK // constants.items)
    for begin in range(0, len(column), rows):
        block = column[begin : begin + rows].to(wide, copy=True)
        constants.apply(block[:, None], None if group is None else group[begin : begin + rows], inverse=False)
        yield block.to(dtype)


def _write_all(draft: Draft, name: str, blocks: Iterable[torch.Tensor]) -> tuple[float, float] | None:
    """Write a tensor block by block; its least and its greatest value."""
    row, lows, highs = 0, [], []
    for block in blocks:
        _write(draft, name, row, block)
        row += len(block)
        there = block[~block.isnan()]
        if len(there):
            low, high = there.aminmax()
            lows.append(low.item())
            highs.append(high.item())
    return (min(lows), max(highs)) if lows else None


def _finished(draft: Draft, stash: Stash, ranges: Mapping[str, tuple[float, float] | None]) -> Stash:
    def about(column: Any) -> Any:
        if column.name not in ranges:
            return column
        low, high = ranges[column.name] or (None, None)
        return replace(column, low=low, high=high, is_scaled=True)

    info = replace(stash.info, columns=tuple(map(about, stash.info.columns)))
    made: Segment = draft.finish(to_header(info))
    made.populate()
    return Stash(made)
