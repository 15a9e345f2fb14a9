"""Which values of a span count: where a span of `ts.is_valid` over the same slots is false, a value was filled in."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch

from tensorstash.errors import SchemaError
from tensorstash.gather.span import Span
from tensorstash.stash.stash import Stash
from tensorstash.transforms.bound import Source, parts_in
from tensorstash.transforms.entries import span_of
from tensorstash.windows.windows import Windows


class Valid(NamedTuple):
    """A span of `ts.is_valid` flags for another span: for all of its values, or for one member of a pack."""

    span: str
    flag: int | None  # the position of the flags in their own pack; None: they have the shape of the values
    member: int | None  # the member that they are for


class ValidRows(NamedTuple):
    """A span of `ts.is_valid` flags for the rows of one pack in a span of `ts.each`."""

    span: str
    at: int | None  # where that is of `ts.each` too: which of its packs has the flags; None: it is a whole pack
    packs: int  # of the flags' span
    pack: int  # the pack of the values
    flags: tuple[int, ...]  # of each column of that pack, the column of its flags; -1: none


def validity_of(source: Source, span: str) -> tuple[Valid | ValidRows, ...]:
    """The spans of `ts.is_valid` that say which values of a span are missing: same source columns, same slots."""
    part = parts_in(source)[0]  # all parts have the same spans
    if isinstance(part, Windows) and any(s.name == span and s.variates is not None for s in part.spans):
        return tuple(_validity_of_rows(source, span))
    at = {name: (name, part, None) for name in part} if isinstance(part, Stash) else _places(part)
    if span not in at or at[span][0] not in at[span][1]:
        return ()
    column, stash, slots = at[span]
    members, found = stash.about(column).members, []
    for name, (other, _, others_slots) in at.items():
        if others_slots != slots or other not in stash or not stash.about(other).is_validity:
            continue
        flags = stash.about(other).members
        if flags == members:
            return (Valid(name, None, None),)
        found += [Valid(name, flags.index(one), k) for k, one in enumerate(members) if one in flags]
    return tuple(found)


def _places(windows: Windows) -> dict[str, tuple[str, Stash, object]]:
    """The column of each span, its stash, and a value that is equal for spans over the same slots."""
    placement, stash = windows.placement, windows.stash
    at: dict[str, tuple[str, Stash, object]] = {span.name: (span.column, stash, span.slots) for span in placement.spans}
    for number, time_span in enumerate(placement.time_spans):
        at |= {span.name: (span.column, time_span.stash, number) for span in time_span.shown}
    return at


def _validity_of_rows(source: Source, span: str) -> Iterator[ValidRows]:
    """The flags of each pack in a span of `ts.each`; components of a mix must agree on the columns that all have."""
    found: dict[ValidRows, tuple[int, ...]] = {}  # by the same without `flags`
    for part in parts_in(source):
        assert isinstance(part, Windows)
        for one in _flags_of_packs(part, span):
            key, known = one._replace(flags=()), found.get(one._replace(flags=()), ())
            if any(here != there for here, there in zip(one.flags, known)):
                raise SchemaError(
                    f"The flags {one.span!r} must stand in the same order in all components of a mix, as the columns "
                    f"of {span!r} do. Load ts.is_valid of the same list of columns as the pack."
                )
            found[key] = max(one.flags, known, key=len)
    yield from (key._replace(flags=flags) for key, flags in found.items() if max(flags, default=-1) >= 0)


def _flags_of_packs(windows: Windows, span: str) -> Iterator[ValidRows]:
    (values,) = (one for one in windows.spans if one.name == span)
    for other in windows.spans:
        columns = [name for name in other.columns if windows.stash.about(name).is_validity]
        if other.slots != values.slots or not columns:
            continue
        for pack, name in enumerate(values.columns):
            for column in columns:
                flags = _flags_of(windows.stash, name, column)
                at = None if other.variates is None else other.columns.index(column)
                if max(flags) >= 0:
                    _check_undrawn(other)
                yield ValidRows(other.name, at, len(other.columns), pack, flags)


def _check_undrawn(span: Span) -> None:
    if span.variates is not None and span.variates.most is not None:
        raise ValueError(
            f"Flags in rows must be those of all columns, got {span.variates} in {span.name!r}. Leave out "
            "max_variates= there, or take the whole pack, without ts.each."
        )


def _flags_of(stash: Stash, pack: str, column: str) -> tuple[int, ...]:
    """Of each column of a pack the column of its flags, or -1."""
    width, members, flags = math.prod(stash[pack].shape[1:]), stash.about(pack).members, stash.about(column).members
    if flags == members:  # of one column of lists there is one member
        return (*range(width),)
    return (
        tuple(flags.index(one) if one in flags else -1 for one in members) if len(members) == width else (-1,) * width
    )


def counted(
    batch: Mapping[str, object], span: str, valid: Sequence[Valid | ValidRows], has_row: torch.Tensor | None
) -> torch.Tensor | None:
    """Which values of a span count, by its empty slots and its flags; `None`: all values."""
    values, counts = span_of(batch, span), has_row
    for one in valid:
        flags = span_of(batch, one.span).to(torch.bool)
        if isinstance(one, ValidRows):
            flags = _of_rows(batch, span, one, flags)
        if flags.shape[:2] != values.shape[:2]:
            raise ValueError(
                f"The flags {one.span!r} must have the slots of {span!r}, {tuple(values.shape[:2])}, got "
                f"{tuple(flags.shape)}. Change both spans, or none."
            )
        if isinstance(one, Valid) and one.member is not None:
            flags = _of_member(values, one, flags)
        flags = flags.reshape(values.shape)
        counts = flags if counts is None else counts & flags
    return counts


def _of_member(values: torch.Tensor, valid: Valid, flags: torch.Tensor) -> torch.Tensor:
    """The flags of one member of a pack in the shape of the pack; all others are true."""
    of_pack = torch.ones_like(values, dtype=torch.bool)
    of_member = flags if flags.ndim == 2 else flags.flatten(2)[..., valid.flag]
    of_pack.view(*values.shape[:2], -1)[..., valid.member] = of_member
    return of_pack


def _of_rows(batch: Mapping[str, object], span: str, valid: ValidRows, flags: torch.Tensor) -> torch.Tensor:
    """The flags of each row, `(rows, time)`; those of other packs and of columns without flags are true."""
    window, variate, pack = (span_of(batch, f"{span}.{entry}") for entry in ("window", "variate", "pack"))
    columns = torch.tensor([*valid.flags, -1], device=variate.device)
    column = columns[variate.clamp(max=len(valid.flags))].where(pack == valid.pack, -1)
    if valid.at is None:
        found = flags.view(*flags.shape[:2], -1)[window, :, column.clamp(min=0)]
    else:  # the columns of each window and pack follow each other
        windows, packs = (span_of(batch, f"{valid.span}.{entry}") for entry in ("window", "pack"))
        first = torch.searchsorted(windows * valid.packs + packs, window * valid.packs + valid.at)
        found = flags[first + column.clamp(min=0)]
    return found | (column < 0)[:, None]
