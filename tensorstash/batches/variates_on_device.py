"""Spans of `ts.each` from packs in the memory of a device. The host computes which rows a batch has, and sends that."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import torch

from tensorstash.gather.by_torch import Sources
from tensorstash.gather.computed import ComputedValues, computed_values
from tensorstash.gather.gather import gather
from tensorstash.gather.rows import InSlots
from tensorstash.gather.variates import VariatePlan, in_slots, named, rows_of
from tensorstash.windows.located import Located
from tensorstash.windows.variates import keys_of

Batch = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class DeviceRows:
    """The rows of a batch on their way to a device."""

    packs: list[int]  # the numbers of the packs that occur, ascending
    counts: list[int]  # the rows of each
    integers: Sequence[torch.Tensor]  # their order by packs, and of each row window, column, pack, anchor and skips
    computed: Sequence[ComputedValues]  # the values of empty slots

    @property
    def tensors(self) -> list[torch.Tensor]:
        """All that is sent."""
        return [*self.integers, *(tensor for one in self.computed for tensor in (one.at, one.values))]

    def received(self, tensors: Iterator[torch.Tensor]) -> "DeviceRows":
        """The same rows as they have arrived: the next of these tensors."""
        integers = [*islice(tensors, len(self.integers))]
        computed = [replace(one, at=next(tensors), values=next(tensors)) for one in self.computed]
        return DeviceRows(self.packs, self.counts, integers, computed)


def rows_on_host(plan: VariatePlan, located: Located) -> DeviceRows:
    """The rows of windows, to be sent to a device."""
    rows = rows_of(plan, located.source, len(located.ids), keys_of(plan, located.keys))
    slots = in_slots(plan, rows, located.anchors, located.skips)
    packs, counts = np.unique(rows.source, return_counts=True)
    arrays = [np.argsort(rows.source, kind="stable"), rows.window, rows.variate, rows.pack, slots.anchors]
    arrays += [] if slots.skips is None else [*slots.skips]
    return DeviceRows(
        packs=packs.tolist(),
        counts=counts.tolist(),
        integers=[torch.from_numpy(array) for array in arrays],
        computed=[values for one in plan.gather.computed for values in computed_values(one, rows.source, slots)],
    )


def gather_variates(plan: VariatePlan, rows: DeviceRows) -> Batch:
    """The entries of the spans of a batch; the tensors of its rows are on the device."""
    order, window, variate, pack, anchors, *skips = rows.integers
    alone = len(rows.packs) == 1
    parts: Sources = (
        [(rows.packs[0], None)] if alone else [*zip(rows.packs, torch.split_with_sizes(order, rows.counts))]
    )
    slots = InSlots(anchors, torch.stack(skips) if skips else None, variate)
    batch = gather([plan.gather], parts, [slots], rows.computed)
    numbers = {"window": window.clone(), "variate": variate.clone(), "pack": pack.clone()}  # views would keep all
    return batch | named(plan, numbers)
