"""The memory of a segment as gather needs it: columns of one item size side by side."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import torch

from tensorstash.errors import SegmentError
from tensorstash.segments.format import pages
from tensorstash.segments.segment import Segment


@dataclass(frozen=True, slots=True)
class Block:
    """Columns of one item size side by side: column k begins at item `k * stride` of `items`."""

    items: torch.Tensor  # (n,) integers of that size
    names: tuple[str, ...]
    stride: int


def blocks_of(columns: Mapping[str, torch.Tensor], segment: Segment) -> list[Block]:
    """One block per item size, and one per column of more dimensions."""
    shared: dict[int, list[str]] = {}
    packs = []
    for name, tensor in columns.items():
        if tensor.ndim > 1:
            packs.append([name])
        else:
            shared.setdefault(tensor.itemsize, []).append(name)
    return [_block(names, segment) for names in (*shared.values(), *packs)]


def _block(names: list[str], segment: Segment) -> Block:
    entries = sorted((segment.entries[name] for name in names), key=lambda entry: entry.begin)
    size = entries[0].dtype.itemsize
    stride = pages(entries[0].nbytes)
    if any(two.begin - one.begin != stride for one, two in pairwise(entries)):
        raise SegmentError("Columns of one item size must stand side by side in a segment. Save the stash again.")
    count = ((len(entries) - 1) * stride + entries[-1].nbytes) // size
    items = segment.items(entries[0].begin, count, f"int{8 * size}")
    return Block(items, tuple(entry.name for entry in entries), stride // size)
