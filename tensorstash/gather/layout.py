"""What the spans of a batch are: tensors in buffers, and whether their slots have a row. Both executors fill them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from tensorstash.common.dtypes import as_integers
from tensorstash.gather.span import Draw, Span

Batch = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class SpanGroup:
    """The spans of one item size, length and step, which share a buffer."""

    spans: tuple[Span, ...]
    names: tuple[str, ...]  # of the spans
    dtypes: tuple[torch.dtype, ...]  # of the spans
    dtype: torch.dtype  # of the buffer: the one floating dtype of all spans, else integers of their width
    shape: tuple[int, ...]  # of one window of one span: (time, ...)
    plain: bool  # whether all spans have the type of the buffer

    def buffer_shape(self, count: int) -> tuple[int, ...]:
        """The shape of the buffer for a batch of `count` windows: the spans one after the other."""
        return (len(self.spans) * count, *self.shape)

    @property
    def span_bytes(self) -> int:
        """Of one window of one span."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class ObservedLayout:
    """The `<span>.observed` tensors of batches, none if no slot may be empty; spans over the same slots share one."""

    slots: tuple[tuple[range, Draw | None], ...]  # of each of these tensors
    names: Mapping[str, int]  # `<span>.observed`, and which of the tensors it is

    def empty(self, count: int, device: torch.device | None) -> list[torch.Tensor]:
        """The tensors of `count` windows, for an executor to fill."""
        return [torch.empty(count, len(slots), dtype=torch.bool, device=device) for slots, _ in self.slots]

    def named(self, tensors: Sequence[torch.Tensor]) -> Batch:
        """The tensors as entries of a batch."""
        return {name: tensors[k] for name, k in self.names.items()}


class Buffers(NamedTuple):
    """What an executor fills: the spans of a plan in a number of windows, where their columns are."""

    values: Sequence[torch.Tensor]  # one per group, of its `buffer_shape` and dtype
    observed: Sequence[torch.Tensor]  # one for each of `ObservedLayout.slots`


def span_groups(spans: Sequence[Span], columns: Mapping[str, torch.Tensor], *, together: bool) -> tuple[SpanGroup, ...]:
    """The spans that share a buffer: those `together` of one item size, length and step; else each has its own."""
    alike: dict[tuple[str | int, int, int], list[Span]] = {}
    for span in spans:
        home = _home(span, columns[span.column]) if together else span.name
        alike.setdefault((home, len(span), span.step), []).append(span)
    return tuple(_group(members, columns) for members in alike.values())


def _home(span: Span, column: torch.Tensor) -> str | int:
    """What is equal for spans that may share a buffer: the size of their items, if a row has one."""
    return span.column if column.ndim > 1 or span.distance else column.itemsize


def _group(members: Sequence[Span], columns: Mapping[str, torch.Tensor]) -> SpanGroup:
    first = columns[members[0].column]
    dtypes = tuple(columns[span.column].dtype for span in members)
    typed = len(set(dtypes)) == 1 and dtypes[0].is_floating_point
    dtype = dtypes[0] if typed else as_integers(first[:0]).dtype
    names = tuple(span.name for span in members)
    of_row = first.shape[1:] if members[0].variates is None else ()
    return SpanGroup(tuple(members), names, dtypes, dtype, (len(members[0]), *of_row), {*dtypes} == {dtype})


def observed_layout(spans: Sequence[Span]) -> ObservedLayout:
    """The tensors for spans of which slots may be empty. Distances are 0 there, and have none."""
    slots = [*dict.fromkeys(span.slots for span in spans)]
    names = {f"{span.name}.observed": slots.index(span.slots) for span in spans if not span.distance}
    return ObservedLayout(tuple(slots), names)


def as_batch(groups: Sequence[SpanGroup], names: Sequence[str], buffers: Sequence[torch.Tensor]) -> Batch:
    """Filled buffers, on any device, as one `(batch, time, ...)` tensor per span, all views of them."""
    (batch,) = as_batches(groups, names, buffers, {}, 1)
    return batch


def as_batches(
    groups: Sequence[SpanGroup],
    names: Sequence[str],
    buffers: Sequence[torch.Tensor],
    rest: Mapping[str, torch.Tensor],
    steps: int,
) -> list[Batch]:
    """The batches of `steps` steps in filled buffers, beside the other tensors of `rest`.

    `names` are those of the spans in the order of a batch. Each tensor has a counter of writes of its own; entries that
    share a tensor in `rest` share one per batch. Keep the number of operations low: after a gather, their code is no
    longer in the CPU caches.
    """
    of_name: dict[str, Sequence[torch.Tensor]] = {}  # those of all batches
    for group, buffer in zip(groups, buffers):
        pieces = _pieces(group, buffer, steps)
        for j, name in enumerate(group.names):
            of_name[name] = pieces[j * steps : (j + 1) * steps]
    cuts = {id(tensor): _cut(tensor, steps) for tensor in rest.values()}
    for name, tensor in rest.items():
        of_name[name] = cuts[id(tensor)]
    batches: list[Batch] = [{} for _ in range(steps)]
    for name in (*names, *rest):  # takes less time than a `dict(zip(...))` per batch
        for batch, tensor in zip(batches, of_name[name]):
            batch[name] = tensor
    return batches


def _pieces(group: SpanGroup, buffer: torch.Tensor, steps: int) -> Sequence[torch.Tensor]:
    """The tensors of each span in a buffer, one for each step."""
    count = len(group.names)
    if group.plain:
        return _cut(buffer, count * steps)
    typed = map(_typed, _cut(buffer, count), group.dtypes)
    return [piece for span in typed for piece in _cut(span, steps)]


def _cut(tensor: torch.Tensor, count: int) -> Sequence[torch.Tensor]:
    # safe, because nothing writes into the whole tensor later; takes a quarter less time than `unsafe_chunk`
    return (tensor,) if count == 1 else tensor.unsafe_split_with_sizes([tensor.shape[0] // count] * count)


def _typed(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor if tensor.dtype == dtype else tensor.view(dtype)
