"""Which slots of a span hold values, and which values were filled in: the one answer for every transform."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from tensorstash.common.dtypes import as_array
from tensorstash.errors import SchemaError
from tensorstash.gather.span import Span
from tensorstash.stash.missing import places_of_flags
from tensorstash.stash.stash import Stash
from tensorstash.transforms.bound import Source, columns_in, parts_in, spans_in, stash_of
from tensorstash.transforms.entries import span_of
from tensorstash.windows.identity import columns_of
from tensorstash.windows.placement import Placement
from tensorstash.windows.windows import Windows

# of each of its columns, whether a span has values also in slots without a row; spans without any are left out
Computed = Mapping[str, tuple[bool, ...]]

_NONE: Computed = {}


class Flags(NamedTuple):
    """A span of `ts.is_valid` flags for a column of another span."""

    span: str
    packs: int  # how many packs its rows are of; 0: it is not of `ts.each`
    pack: int  # which of them has the flags
    column: int  # the column that they are for, among those of the other span
    places: tuple[int, ...]  # of each number of that column the place of its flag, or -1


def computed_in(source: Source, spans: Collection[str]) -> dict[str, tuple[bool, ...]]:
    """Those of some spans that are of `ts.calendar`, whose empty slots hold values computed from their time.

    Empty slots have no time in spans in time. Without a known step of time they hold NaN, which no transform changes.
    For a stash, all columns of `ts.calendar` count, because the windows that its scaler is for are not known yet.
    """
    part = parts_in(source)[0]  # all parts have the same spans, of columns that mean the same
    of_slots, about = spans_in(part) if isinstance(part, Stash) else part.placement.slot_spans, stash_of(part).about
    found = {one.name: tuple(bool(about(name).calendar) for name in one.columns) for one in of_slots}
    return {span: found[span] for span in spans if any(found.get(span, ()))}


def nan_filled_in(source: Source, spans: Iterable[str]) -> dict[str, tuple[bool, ...]]:
    """Those of some spans whose empty slots hold NaN in all parts: scaled or not, they are the same."""
    parts, columns = [part for part in parts_in(source) if isinstance(part, Windows)], columns_in(source)
    held = [column for part in parts for column in columns_of(part.placement).values()]
    others = {
        column.name
        for column in held
        if column.empty is not None and not column.empty.view(column.stash[column.name].dtype).isnan()
    }
    return {span: (True,) for span in spans if parts and span in columns and others.isdisjoint(columns[span])}


def holds_value(batch: Mapping[str, object], name: str, computed: Computed = _NONE) -> torch.Tensor | None:
    """Which slots of a span hold a value, with as many dimensions as the span has; `None`: all slots."""
    span, flags, of_columns = span_of(batch, name), f"{name}.observed", computed.get(name, (False,))
    if f"{name}.segment" in batch:
        held = span_of(batch, f"{name}.segment") > 0
    elif flags not in batch or all(of_columns):
        return None
    else:
        held = span_of(batch, flags)
        if held.dtype != torch.bool or held.shape != span.shape[: held.ndim]:
            shape = tuple(span.shape[: max(1, held.ndim)])
            raise ValueError(f"{flags!r} must be {shape} bool, got {tuple(held.shape)} {held.dtype}.")
        if any(of_columns):
            pack = span_of(batch, f"{name}.pack")
            held = held | torch.tensor(of_columns, device=pack.device)[pack][:, None]
    return held.view(*held.shape, *[1] * (span.ndim - held.ndim))


def change_values(span: torch.Tensor, held: torch.Tensor | None, change: Callable[[torch.Tensor], object]) -> None:
    """Let a function, which leaves NaN as it is, change a span in place; slots that hold no value are restored."""
    # on a device a look at the flags would wait for all queued work
    if held is None or (held.is_cpu and held.numpy().all()):
        change(span)
    elif held.is_cpu and span.is_contiguous() and not span.requires_grad:  # by numpy, several times as fast as by torch
        slots, empty = as_array(span).reshape(held.numel(), -1), np.flatnonzero(~held.numpy())
        fills = slots.take(empty, 0)
        change(span)
        if not np.isnan(fills).all():
            slots[empty] = fills
    else:
        before = span.clone()
        change(span)
        span.copy_(torch.where(held, span, before))


def flags_in(source: Source, span: str) -> tuple[Flags, ...]:
    """The flags that say which values of a span were filled in: of the same stash, over the same slots.

    Components of a mix must agree on the columns that all have.
    """
    found: dict[Flags, tuple[int, ...]] = {}  # by the same without `places`
    for part in parts_in(source) if span in columns_in(source) else ():
        for one in _flags_in(part, span):
            key = one._replace(places=())
            known = found.get(key, ())
            if any(here != there for here, there in zip(one.places, known)):
                raise SchemaError(
                    f"The flags {one.span!r} must stand in the same order in all components of a mix, as the columns "
                    f"of {span!r} do. Load ts.is_valid of the same list of columns as the pack."
                )
            found[key] = max(one.places, known, key=len)
    return tuple(key._replace(places=places) for key, places in found.items() if max(places, default=-1) >= 0)


def _flags_in(part: Windows | Stash, span: str) -> Iterator[Flags]:
    stash, beside = (part, spans_in(part)) if isinstance(part, Stash) else same_slots(part.placement, span)
    (values,) = (one for one in beside if one.name == span)
    for other in beside:
        for pack, column in enumerate(other.columns):
            if not stash.about(column).is_validity or (other.variates is not None and values.variates is None):
                continue
            for number, name in enumerate(values.columns):
                places = places_of_flags(stash.about(name), stash.about(column), math.prod(stash[name].shape[1:]))
                if max(places) >= 0 and other.variates is not None and other.variates.most is not None:
                    raise ValueError(
                        f"Flags in rows must be those of all columns, got {other.variates} in {other.name!r}. Leave "
                        "out max_variates= there, or take the whole pack, without ts.each."
                    )
                packs = 0 if other.variates is None else len(other.columns)
                yield Flags(other.name, packs, pack, number, places)


def same_slots(placement: Placement, span: str) -> tuple[Stash, Sequence[Span]]:
    """The stash of a span, and the spans over its slots."""
    for time_span in placement.time_spans:
        if any(one.name == span for one in time_span.spans):
            return time_span.stash, time_span.spans
    (slots,) = (one.slots for one in placement.slot_spans if one.name == span)
    return placement.stash, [one for one in placement.slot_spans if one.slots == slots]


def which_count(
    batch: Mapping[str, object], span: str, every: Sequence[Flags], held: torch.Tensor | None
) -> torch.Tensor | None:
    """Which values of a span count: those in slots that hold one, unless their flags are false; `None`: all."""
    values, counts = span_of(batch, span), held
    for one in every:
        flags = span_of(batch, one.span).to(torch.bool)
        of_rows = f"{span}.variate" in batch
        flags = _of_rows(batch, span, one, flags) if of_rows else _of_items(one, flags)
        if flags.shape[:2] != values.shape[:2]:
            raise ValueError(
                f"The flags {one.span!r} must have the slots of {span!r}, {tuple(values.shape[:2])}, got "
                f"{tuple(flags.shape)}. Change both spans, or none."
            )
        flags = flags.reshape(values.shape)
        counts = flags if counts is None else counts & flags
    return counts


def _of_items(one: Flags, flags: torch.Tensor) -> torch.Tensor:
    """The flags of each number of a pack, `(batch, time, items)`; where it has none they are true."""
    flags = flags[..., None].flatten(2)
    if one.places == (*range(flags.shape[2]),):
        return flags
    places = torch.tensor(one.places, device=flags.device)
    return flags.index_select(2, places.clamp(min=0)) | (places < 0)


def _of_rows(batch: Mapping[str, object], span: str, one: Flags, flags: torch.Tensor) -> torch.Tensor:
    """The flags of each row, `(rows, time)`; those of other packs and of columns without flags are true."""
    window, variate, pack = (span_of(batch, f"{span}.{entry}") for entry in ("window", "variate", "pack"))
    places = torch.tensor([*one.places, -1], device=variate.device)
    place = places[variate.clamp(max=len(one.places))].where(pack == one.column, -1)
    if not one.packs:
        found = flags[..., None].flatten(2)[window, :, place.clamp(min=0)]
    else:  # the columns of each window and pack follow each other
        windows, packs = (span_of(batch, f"{one.span}.{entry}") for entry in ("window", "pack"))
        first = torch.searchsorted(windows * one.packs + packs, window * one.packs + one.pack)
        found = flags[first + place.clamp(min=0)]
    return found | (place < 0)[:, None]
