"""What a batch of windows holds, and the batches of `windows[ids]`.

In this order: the spans; `<span>.observed`, where slots may be empty; static columns; the other columns of an `at=`
frame, or `<span>.repeated` of `cover`; the spans of `ts.each`, with what each of their rows is. A `Loader` adds its
entries, such as `valid` and ids, before the columns of the frame.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.dtypes import as_array
from tensorstash.gather.gather import GatherPlan, compile_plan, gather
from tensorstash.gather.layout import Batch
from tensorstash.gather.memory import Memory
from tensorstash.gather.span import Draw, Span, draws_of
from tensorstash.gather.variates import Take, VariatePlan, gather_rows, new_memory, variate_plans
from tensorstash.windows.chain import Chain, Located
from tensorstash.windows.ids import Ids, check_ids
from tensorstash.windows.variate_rows import check_undrawn, one_by_one, rows_in


@dataclass(frozen=True, eq=False)
class Contents:
    """What the batches of windows hold, and how that is gathered."""

    chain: Chain

    @cached_property
    def plans(self) -> list[GatherPlan]:
        """How batches are gathered, for each kind of rows that windows have; compiled for the first batch."""
        return [compile_plan(spans, memories) for spans, memories in self.spans_and_memories()]

    def spans_and_memories(self) -> list[tuple[Sequence[Span], list[Memory]]]:
        """The spans in slots, and those of each stretch of time, and what they are gathered from."""
        first, parts = self.chain.placements[0], list[tuple[Sequence[Span], list[Memory]]]()
        if self.chain.has_slots:
            parts.append((first.whole_spans, [placement.memory for placement in self.chain.placements]))
        for time_spans in self.chain.time_spans:
            spans = (*time_spans[0].spans, *time_spans[0].ages)
            parts.append((spans, [time_span.memory for time_span in time_spans]))
        return parts

    @cached_property
    def variate_plans(self) -> tuple[VariatePlan, ...]:
        """How spans of `ts.each` are gathered."""
        spans = self.chain.placements[0].slot_spans
        if all(span.variates is None for span in spans):
            return ()
        return variate_plans(spans, [placement.memory for placement in self.chain.placements])

    @cached_property
    def draws(self) -> list[Draw]:
        """The draws of the windows' spans, in the order of their numbers."""
        return draws_of(self.chain.placements[0].slot_spans)

    @cached_property
    def drawn_packs(self) -> list[str]:
        """The packs of which a `Loader` draws columns for each window."""
        drawn = [plan.variates.columns for plan in self.variate_plans if plan.variates.most is not None]
        return [*dict.fromkeys(name for names in drawn for name in names)]

    @cached_property
    def window_bytes(self) -> int:
        """Of a window in a batch; where windows have different numbers of rows, their mean."""
        counts = np.array([len(placement) for placement in self.chain.placements])
        rows = [int(counts @ plan.most_rows) * plan.gather.window_bytes for plan in self.variate_plans]
        return sum(plan.window_bytes for plan in self.plans) + sum(rows) // max(1, len(self.chain))

    @cached_property
    def static(self) -> dict[str, tuple[NDArray[Any], torch.dtype]]:
        """The static columns as arrays, with the entities of all stashes one after the other, and their types."""
        first, *more = (placement.stash.static for placement in self.chain.placements)
        every = {name: [as_array(part[name]) for part in (first, *more)] for name in first}  # by numpy, as in `beside`
        return {name: (np.concatenate(parts) if more else parts[0], first[name].dtype) for name, parts in every.items()}

    def beside(self, located: Located) -> Batch:
        """The entries of a batch that are not gathered in windows: its static columns, and other arrays.

        By numpy, because torch's threads do not survive a fork. Arrays are copied, as they may be parts of larger ones.
        """
        batch: Batch = {}
        if located.static_rows is not None:
            for name, (items, dtype) in self.static.items():
                values = torch.from_numpy(items.take(located.static_rows, 0))
                batch[name] = values if values.dtype == dtype else values.view(dtype)
        for name, entry in located.entries.items():
            batch[name] = torch.from_numpy(entry.copy())
        return batch

    def of_rows(self, located: Located, take: Take) -> Batch:
        """The entries of all spans of `ts.each` in a batch, `(rows, ...)`, their values in memory that `take` gives."""
        batch: Batch = {}
        for plan in self.variate_plans:
            batch |= gather_rows(plan, rows_in(plan, located), located.anchors, located.skips, take)
        return batch

    def batch(self, ids: Ids) -> Batch:
        """The batch of windows in fresh memory; that of no window says what the entries of all are."""
        chain, located = self.chain, self.chain.locate(check_ids(ids, len(self.chain)))
        rows = chain.static_rows(located, chain.entities(located)) if self.static else None
        located = located._replace(static_rows=rows, entries=chain.labels(located))
        batch = gather(self.plans, chain.rows(located), located.component) | self.beside(located)
        return batch | self.of_rows(located, new_memory)

    def window_or_batch(self, ids: int | Ids) -> Batch:
        """One window, tensors `(time, ...)`, for an integer; else a batch, tensors `(batch, time, ...)`."""
        check_undrawn(self.chain.placements[0].slot_spans)
        if isinstance(ids, int) and not isinstance(ids, bool):
            ids = np.array(ids)
        if isinstance(ids, (np.ndarray, np.integer, torch.Tensor)) and not ids.ndim:
            return one_by_one(self.variate_plans, self.batch(ids.reshape(1)), 1)[0]
        return self.batch(ids)  # type: ignore[arg-type]  # a boolean is refused there

    def each_window(self, ids: Ids) -> list[Batch]:
        """The windows of a batch one by one, which share its memory: PyTorch's `__getitems__`."""
        for draw in self.draws:
            raise TypeError(
                "A ts.Draw needs the position of each window in the run, which PyTorch's DataLoader does not pass on; "
                f"got {draw}. Use ts.Loader."
            )
        check_undrawn(self.chain.placements[0].slot_spans)
        numbers = check_ids(ids, len(self.chain))
        return one_by_one(self.variate_plans, self.batch(numbers), len(numbers))

    def __getstate__(self) -> dict[str, Any]:
        """Without the cached properties, which hold addresses."""
        return {"chain": self.chain}
