"""`PackSequences`: spans without empty slots, with windows one after the other or in rows of a fixed length."""

from dataclasses import dataclass

import numpy as np
import torch

from tensorstash.common.checks import at_least
from tensorstash.common.dtypes import Bools
from tensorstash.common.text import type_text
from tensorstash.errors import unknown
from tensorstash.gather.layout import Batch
from tensorstash.gather.variates import Take
from tensorstash.sampling.several import Several
from tensorstash.transforms.entries import check_batch, check_names, span_of
from tensorstash.transforms.observed import holds_value
from tensorstash.transforms.packing import Packing, mark, move, pack
from tensorstash.windows.windows import Windows

_MOST_SLOTS = 1 << 31


@dataclass(frozen=True, init=False)
class PackSequences:
    """Leaves out the empty slots of spans over the same slots, so that short windows need no padding.

    A slot is empty where `<span>.observed` is false; a packed batch has no `<span>.observed`. All other entries stay
    `(batch, ...)`. In a `Loader`, this transform and those before it run on the host, before the copy to a device, so
    it is refused with `resident=True`. Filler is packed like any window: `valid` tells which windows are filler.

    Without a length, windows follow each other in the order of the batch. Each span becomes `(slots, ...)`, and
    `<span>.offsets`, `(batch + 1,)` int32, has the slot at which each window starts and the last one stops.

    With a length, windows are placed by best fit, the longest first, in rows of that many slots. Each span becomes
    `(rows, length, ...)`, with 0 in empty slots. `<span>.segment`, `(rows, length)` int32, has for each slot the number
    of its window in the row, 1, 2, ..., or 0 for an empty slot; `<span>.position`, likewise, the number of slots since
    the first one of its window. `<span>.row`, `<span>.start` and `<span>.length`, `(batch,)` int64, have the row of
    each window, its first slot there, and its number of slots. A window of length 0 lies in no row, so its row and
    start mean nothing; a batch of only such windows has no rows.

    The spans of a `PackSequences` share these entries. Spans over other slots, or another span of time, need a
    `PackSequences` of their own. `<span>.age`, `<span>.delay` and `<span>.repeated` are packed with their span.

    Args:
        spans: the names of the spans.
        length: the number of slots of a row; `None`: windows follow each other, without rows.
        multiple: the number of rows is rounded up to a multiple of this number; without a length, that of slots. By
            default 1: neither is.

    Raises:
        ValueError: a span is named or packed twice, or is longer than a row, or spans have different slots.
        ColumnError: a batch lacks a span.

    Example:
        >>> import numpy as np, tensorstash as ts
        >>> stash = ts.load({"e": ["a"] * 3 + ["b"], "y": [1.0, 2.0, 3.0, 9.0]}, ["y"], entity="e")
        >>> windows = ts.Windows(stash, history=3, min_history=1)
        >>> batch = ts.PackSequences("y")(windows[:])
        >>> batch["y"].tolist(), batch["y.offsets"].tolist()
        ([1.0, 1.0, 2.0, 1.0, 2.0, 3.0, 9.0], [0, 1, 3, 6, 7])
        >>> batch = ts.PackSequences("y", length=4)(windows[:])
        >>> batch["y"]
        tensor([[1., 2., 3., 1.],
                [1., 2., 9., 0.]], dtype=torch.float64)
        >>> batch["y.segment"]
        tensor([[1, 1, 1, 2],
                [1, 1, 2, 0]], dtype=torch.int32)
        >>> batch["y.row"], batch["y.start"], batch["y.length"]
        (tensor([0, 1, 0, 1]), tensor([3, 0, 0, 2]), tensor([1, 2, 3, 1]))
    """

    spans: tuple[str, ...]
    length: int | None
    multiple: int
    runs_on_host = True

    def __init__(self, *spans: str, length: int | None = None, multiple: int = 1) -> None:
        check_names(spans, "ts.PackSequences")
        if not spans:
            raise ValueError("ts.PackSequences needs the name of at least one span, got none.")
        length = None if length is None else at_least(1, length, "length", below=_MOST_SLOTS)
        vars(self).update(spans=spans, length=length, multiple=at_least(1, multiple, "multiple", below=_MOST_SLOTS))

    @property
    def packed_spans(self) -> tuple[str, ...]:
        """The spans that later transforms find packed."""
        return self.spans

    def bind(self, windows: Windows | Several) -> "PackSequences":
        """The same transform, whose spans are known to be in the windows, over the same slots, and to fit a row.

        Args:
            windows: windows, or a mix. A `Loader` calls this with those that it samples.

        Raises:
            ColumnError: the windows have no such span. ValueError: the spans have different slots, or more than a row.

        Example:
            >>> import tensorstash as ts
            >>> windows = ts.Windows(ts.load({"y": [1.0, 2.0, 3.0]}), history=3)
            >>> ts.PackSequences("y", length=4).bind(windows)(windows[:])["y"].tolist()
            [[1.0, 2.0, 3.0, 0.0]]
        """
        if not isinstance(windows, (Windows, Several)):
            raise TypeError(
                f"Windows or a mix have the spans to pack, got {type_text(windows)}. Take those of batches."
            )
        placement = windows.contents.chain.placements[0]
        slots: dict[str, tuple[int, object]] = {
            one.name: (len(one), (one.slots, one.variates)) for one in placement.slot_spans
        }
        slots |= {one.name: (len(one), time_span) for time_span in placement.time_spans for one in time_span.spans}
        for name in self.spans:
            if name not in slots:
                raise unknown(name, slots, "the batch", "span")
            _check_slots(self, name, slots[name][0], slots[name] == slots[self.spans[0]])
        return PackSequences(*self.spans, length=self.length, multiple=self.multiple)

    def __call__(self, batch: Batch) -> Batch:
        """Replace the spans in the batch by tensors in fresh memory, and return the batch.

        Args:
            batch: a batch on the CPU.

        Raises:
            ColumnError: it lacks a span. ValueError: a span is longer than a row, packed already or on another device,
                or spans have different slots.
        """
        return self.pack_into(batch, lambda _, shape, dtype: torch.empty(shape, dtype=dtype))

    def pack_into(self, batch: Batch, take: Take) -> Batch:
        """Pack a batch as a call does, into memory that `take` returns for a name, a shape and a dtype."""
        check_batch(batch, "ts.PackSequences")
        shape, observed = self._slots(batch)
        packing = pack(observed, shape, self.length, self.multiple)
        rows = (packing.length,) if self.length is None else (len(packing.used), packing.length)
        entries = self._entries(packing, take)
        beside = [entry for name in self.spans for entry in _beside(batch, name)]
        for name in (*self.spans, *beside):
            span = batch[name]
            batch[name] = take(name, (*rows, *span.shape[2:]), span.dtype)
            move(packing, span, batch[name])
            batch.pop(f"{name}.observed", None)
        batch.update((f"{name}.{entry}", tensor) for name in self.spans for entry, tensor in entries.items())
        return batch

    def _entries(self, packing: Packing, take: Take) -> dict[str, torch.Tensor]:
        if self.length is None:
            if packing.room >= _MOST_SLOTS:
                raise ValueError(
                    f"A packed batch must have < 2**31 slots, because offsets are int32, got {packing.room:,}. Take "
                    "fewer windows per batch."
                )
            return {"offsets": torch.from_numpy(np.append(packing.place, packing.used).astype(np.int32))}
        shape = (len(packing.used), packing.length)
        marks = {name: take(f"{self.spans[0]}.{name}", shape, torch.int32) for name in ("segment", "position")}
        mark(packing, *(tensor.view(-1).numpy() for tensor in marks.values()))
        places = zip(("row", "start", "length"), (*np.divmod(packing.place, packing.length), packing.sizes))
        return marks | {name: torch.from_numpy(numbers) for name, numbers in places}

    def _slots(self, batch: Batch) -> tuple[tuple[int, int], Bools | None]:
        """`(batch, time)` of the spans, and which slots have a row."""
        first, *others = self.spans
        for name in self.spans:
            span = span_of(batch, name)
            if f"{name}.offsets" in batch or f"{name}.segment" in batch:
                raise ValueError(
                    f"A span must be packed once; {name!r} has been packed already. Leave out one ts.PackSequences."
                )
            if name in _beside(batch, name.rpartition(".")[0]):
                raise ValueError(
                    f"The ages and delays of a span are packed with it, as are flags of cover, got {name!r}. Leave it "
                    "out."
                )
            if span.ndim < 2:
                raise ValueError(f"A packed span must be (batch, time, ...); {name!r} is {tuple(span.shape)}.")
            if not span.is_cpu:
                raise ValueError(
                    f"ts.PackSequences runs on the host; {name!r} is on {span.device}. Pack it before the copy."
                )
        (windows, slots), marks = batch[first].shape[:2], batch.get(f"{first}.observed")
        held = holds_value(batch, first)
        _check_slots(self, first, slots, alike=True)
        for name in others:
            other = batch.get(f"{name}.observed")
            alike = other is marks or (other is not None and marks is not None and other.equal(marks))
            _check_slots(self, name, slots, alike and batch[name].shape[:2] == (windows, slots))
        if held is None:
            return (windows, slots), None
        return (windows, slots), np.ascontiguousarray(held.flatten(1).expand(windows, slots).numpy())


def _check_slots(pack: PackSequences, name: str, slots: int, alike: bool) -> None:
    if not alike:
        raise ValueError(
            f"The spans of a ts.PackSequences must have the same slots; those of {name!r} differ from those of "
            f"{pack.spans[0]!r}. Give {name!r} a ts.PackSequences of its own."
        )
    if pack.length is not None and slots > pack.length:
        raise ValueError(
            f"A span must fit into a row; {name!r} has {slots} slots and a row {pack.length}. Use length={slots}."
        )


def _beside(batch: Batch, name: str) -> list[str]:
    """The entries with the ages and delays of the rows of a span, and its flags of `cover`: no spans of their own."""
    entries = [f"{name}.age", f"{name}.delay"] if f"{name}.observed" in batch else []
    if f"{name}.variate" not in batch:
        entries.append(f"{name}.repeated")
    found = [entry for entry in entries if entry in batch and f"{entry}.observed" not in batch]
    return [entry for entry in found if batch[entry].shape[:2] == batch[name].shape[:2]]
