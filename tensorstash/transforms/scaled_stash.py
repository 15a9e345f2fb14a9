"""A copy of a stash whose columns are scaled once, so that no batch needs to be scaled."""

import math
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakValueDictionary

import torch

from tensorstash.columns.column import with_counts, with_more
from tensorstash.columns.info import to_header
from tensorstash.common.checks import shown
from tensorstash.common.dtypes import DTYPES, as_array, as_integers, one_nan
from tensorstash.common.text import type_text
from tensorstash.errors import SchemaError
from tensorstash.sampling.ranks import present_ranks
from tensorstash.segments.directory import Name
from tensorstash.segments.draft import Draft
from tensorstash.segments.limits import Limit, check_free, memory_limits
from tensorstash.segments.publish import UnpublishedFile, obtain
from tensorstash.segments.segment import Segment
from tensorstash.stash.stash import Stash
from tensorstash.transforms.bound import check_unscaled, column_of
from tensorstash.transforms.groups import check_known, groups_of_codes
from tensorstash.transforms.scaling import ScaleConstants
from tensorstash.windows.windows import Windows

if TYPE_CHECKING:
    from tensorstash.transforms.scaler import Scaler

_BLOCK = 1 << 18  # numbers scaled at a time, so few that they stay in the processor's cache

# the scaled copies of each stash that somebody holds, by what makes them what they are
_copies: WeakKeyDictionary[Stash, WeakValueDictionary[str, Stash]] = WeakKeyDictionary()


def _key(scaler: "Scaler", dtype: torch.dtype | None, source: str) -> str:
    """A hash of the constants of a scaler and of the name of what they scale."""
    digest = blake2b(repr((source, scaler.by, dtype)).encode(), digest_size=8)
    for name, center in scaler.center.items():
        digest.update(repr((name, center.shape)).encode())
        for constants in (center, scaler.scale[name]):
            digest.update(constants.contiguous().numpy().tobytes())
    return digest.hexdigest()


def _groups(scaler: "Scaler", stash: Stash) -> torch.Tensor | None:
    """`(rows,)`, the group of each row; `None`: all are in the first one."""
    if scaler.by is None:
        return None
    if scaler.by == "entity":
        return torch.arange(len(stash.entities)).repeat_interleave(stash.offsets.diff())
    group = groups_of_codes(stash[scaler.by], len(scaler.entities))
    if scaler.unknown == "error":
        for name in scaler.center:
            check_known(stash[name], group == len(scaler.entities), scaler.by)
    return group


def check_scalable(stash: Stash, columns: Iterable[str]) -> None:
    """Raise an error for columns that are scaled already, computed in empty slots, or not floating."""
    check_unscaled(stash, columns)
    for name in columns:
        if stash.about(name).calendar:
            raise SchemaError(
                "A column of ts.calendar cannot be scaled in a stash, because windows compute its values in empty "
                f"slots; {name!r} is one. Leave it out of the scaler, or scale each batch: transform=[scaler]."
            )
        if not (dtype := column_of(stash, name).dtype).is_floating_point:
            raise SchemaError(
                f"A scaled column must be floating; {name!r} is {dtype}. Load it with "
                f"ts.column({name!r}, dtype=torch.float32)."
            )


def check_transformed(source: object, dtype: object) -> None:
    """Raise `TypeError` for what is neither windows nor a stash, and for a dtype in which nothing can be scaled."""
    if not isinstance(source, (Stash, Windows)):
        raise TypeError(
            f"transform() takes windows or a stash, got {type_text(source)}. Scale the components of a mix one by "
            "one, and a batch with scaler(batch)."
        )
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype in DTYPES and dtype.is_floating_point):
        raise TypeError(f"dtype must be a floating dtype, such as torch.float32, got {shown(dtype)}.")


def check_no_tables(windows: Windows, columns: Collection[str]) -> None:
    """Raise `ValueError` for scaled columns of a table, whose rows windows of several entities may see."""
    for part in windows.placement.time_spans:
        for span in part.spans:
            if part.table.name is not None and span.column in columns:
                raise ValueError(
                    f"A scaler by entity goes by the entity of the window, and {span.name!r} has rows of the table "
                    f"{part.table.name!r}. Scale each batch: transform=[scaler]."
                )


def scaled_once(stash: Stash, scaler: "Scaler", dtype: torch.dtype | None, label: str | None) -> Stash:
    """The scaled copy of a stash: the one that somebody holds already, if there is one.

    Raises `ValueError` if each of several ranks would have a private copy of a stash that they share.
    """
    ranks = present_ranks()[0]
    if label is None and stash.path is not None and ranks > 1:
        raise ValueError(
            f"Ranks that share a stash share its scaled copy too, or each of {ranks} ranks would hold one. Write "
            "scaler.transform(windows, share='scaled'), or scale each batch: transform=[scaler]."
        )
    copies = _copies.setdefault(stash, WeakValueDictionary())
    key = _key(scaler, dtype, str(label))
    found = copies.get(key)
    if found is None:
        found = copies[key] = scaled_stash(stash, scaler, dtype, label)
    return found


def scaled_stash(stash: Stash, scaler: "Scaler", dtype: torch.dtype | None, label: str | None) -> Stash:
    """A private copy of a stash with scaled columns; with a label, the one that all processes of this machine share.

    The scaler is bound to the stash. A private copy has the values as they are now, a shared one those that were
    loaded; `dtype` is that of the scaled columns, and `None` keeps that of each.
    """
    if label is None:
        draft = _written(stash, scaler, dtype, None, memory_limits())
        made = Segment(os.dup(draft.fd))
        made.populate()
        return Stash(made)

    def build(target: UnpublishedFile) -> None:
        _written(Stash(Segment(os.dup(stash.segment.fd))), scaler, dtype, target.fd, target.limits())

    return Stash(obtain(Name(label, _key(scaler, dtype, _identity(stash.segment))), build, None))


def _identity(segment: Segment) -> str:
    """What tells the bytes of a segment from those of any other, in all processes of this machine."""
    if segment.path is not None:
        status = os.fstat(segment.fd)
        return repr((status.st_dev, status.st_ino, status.st_mtime_ns, segment.crc))
    digest = blake2b()
    for _, chunk in segment.chunks():
        digest.update(chunk)
    return digest.hexdigest()


def _written(
    stash: Stash, scaler: "Scaler", dtype: torch.dtype | None, fd: int | None, limits: Sequence[Limit]
) -> Draft:
    """The segment of a scaled copy, in an empty file, or without one in memory."""
    segment, groups = stash.segment, _groups(scaler, stash)
    entries = sorted(segment.tensors.values(), key=lambda entry: entry.start)
    kept = [entry for entry in entries if entry.name not in segment.checksums]
    to = {entry.name: dtype or entry.dtype if entry.name in scaler.center else entry.dtype for entry in entries}
    check_free(
        sum(math.prod(entry.shape) * to[entry.name].itemsize for entry in entries),
        limits,
        "A stash must fit into free memory",
        "a scaled copy",
        "Take a narrower dtype=, or scale each batch: transform=[scaler].",
    )
    draft = Draft([(entry.name, to[entry.name], entry.shape) for entry in kept], kept[0].start, fd)
    about = {column.name: column for column in (*stash.info.columns, *stash.info.static)}
    for name in [entry.name for entry in entries]:
        is_static = name in segment.checksums
        values = segment.blob(name) if is_static else stash[name] if name in stash else segment.tensor(name)
        if name not in scaler.center:
            _put(draft, name, 0, values, is_static=is_static)
            continue
        row, scaled = 0, replace(about[name], dtype=to[name], is_scaled=True)
        about[name] = with_counts(scaled, as_array(values[:0]), scaled.nulls)
        like = torch.empty(0, dtype=torch.promote_types(values.dtype, to[name]))
        constants = ScaleConstants.of(scaler.center[name], scaler.scale[name], like)
        rows = max(1, len(values) if is_static else _BLOCK // constants.items)
        for block in _scaled(values, to[name], constants, None if is_static else groups, rows):
            _put(draft, name, row, block, is_static=is_static)
            row, about[name] = row + len(block), with_more(about[name], with_counts(scaled, as_array(block)))
    columns, static = (tuple(about[one.name] for one in every) for every in (stash.info.columns, stash.info.static))
    draft.seal(to_header(replace(stash.info, columns=columns, static=static)))
    return draft


def _put(draft: Draft, name: str, row: int, values: torch.Tensor, *, is_static: bool) -> None:
    numbers = as_integers(values.contiguous()).numpy()
    if is_static:
        draft.blob(name, numbers, values.dtype)
    else:
        draft.write(name, row, numbers)


def _scaled(
    values: torch.Tensor, dtype: torch.dtype, constants: ScaleConstants, groups: torch.Tensor | None, rows: int
) -> Iterator[torch.Tensor]:
    """A scaled column, so many rows at a time, scaled in the dtype of the constants and rounded once."""
    for start in range(0, max(1, len(values)), rows):
        block = values[start : start + rows].to(constants.center.dtype, copy=True)
        group = None if groups is None else groups[start : start + rows]
        constants.scale_in_place(block, group, inverse=False)
        yield one_nan(block.to(dtype))
