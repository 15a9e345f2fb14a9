"""Spans of `ts.each` from packs in the memory of a device. The host computes which rows a batch has, and sends that."""

from typing import Any, NamedTuple

import numpy as np
import torch

from tensorstash.gather.by_torch import ByComponent
from tensorstash.gather.computed import ComputedValues, computed_values
from tensorstash.gather.gather import gather_on_device
from tensorstash.gather.layout import Batch
from tensorstash.gather.rows import InSlots
from tensorstash.gather.variates import VariatePlan, in_slots, named
from tensorstash.windows.chain import Located
from tensorstash.windows.variate_rows import rows_in


class DeviceRows(NamedTuple):
    """The rows of a batch for a device."""

    packs: list[int]  # the numbers of the packs that occur, ascending
    counts: list[int]  # the rows of each
    order: Any  # (rows,) of the rows by packs
    window: Any  # of each row its window and the number of its pack
    pack: Any
    slots: InSlots  # with the column of each row
    computed: list[ComputedValues]  # the values of empty slots


def rows_on_host(plan: VariatePlan, located: Located) -> DeviceRows:
    """The rows of windows, to be sent to a device."""
    rows = rows_in(plan, located)
    slots = in_slots(plan, rows, located.anchors, located.skips)
    packs, counts = np.unique(rows.component, return_counts=True)
    order = np.argsort(rows.component, kind="stable")
    computed = [values for one in plan.gather.computed for values in computed_values(one, rows.component, slots)]
    return DeviceRows(packs.tolist(), counts.tolist(), order, rows.window, rows.pack, slots, computed)


def gather_variates(plan: VariatePlan, of: DeviceRows) -> Batch:
    """The entries of the spans of a batch; the tensors of its rows are on the device."""
    alone = len(of.packs) == 1
    indexes = () if alone else torch.split_with_sizes(of.order, of.counts)
    parts: ByComponent = [(of.packs[0], None)] if alone else [*zip(of.packs, indexes)]
    batch = gather_on_device([plan.gather], [of.slots], parts, of.computed)
    numbers = {"window": of.window, "variate": of.slots.variates, "pack": of.pack}
    return batch | named(plan, {name: tensor.clone() for name, tensor in numbers.items()})  # views would keep all
