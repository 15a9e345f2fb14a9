"""Spans of `ts.each` in batches of windows: their entries, which have a row for each column of each window."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from tensorstash.gather.span import Span
from tensorstash.gather.variates import Take, VariatePlan, gather_rows, rows_of
from tensorstash.native.permutation import Uint64s
from tensorstash.windows.located import Located

Batch = dict[str, torch.Tensor]


def drawn_packs(spans: Sequence[Span]) -> list[str]:
    """The packs of which a `Loader` draws columns for each window."""
    drawn = [span.variates for span in spans if span.variates is not None and span.variates.most is not None]
    return [*dict.fromkeys(name for variates in drawn for name in variates.columns)]


def check_undrawn(spans: Sequence[Span]) -> None:
    """Raise `TypeError` if the columns of a window are drawn by its position in a run."""
    for span in spans:
        if span.variates is not None and span.variates.most is not None:
            raise TypeError(
                "max_variates= draws the columns of each window by its position in the run, which only a ts.Loader "
                f"knows; got {span.variates!r}. Use ts.Loader, or leave out max_variates=."
            )


def variate_entries(plans: Sequence[VariatePlan], located: Located, take: Take) -> Batch:
    """The entries of all spans of `ts.each` in a batch of windows, `(rows, ...)`.

    Args:
        plans: how the spans are gathered.
        located: the windows. Without hashes, all columns of a pack are rows.
        take: memory for the values.
    """
    batch: Batch = {}
    for plan in plans:
        rows = rows_of(plan, located.source, len(located.ids), keys_of(plan, located.keys))
        batch |= gather_rows(plan, rows, located.anchors, located.skips, take)
    return batch


def keys_of(plan: VariatePlan, keys: Mapping[str, Uint64s]) -> Uint64s | None:
    """The hashes by which the columns of a plan are drawn, `(packs, windows)`; `None`: all columns are rows."""
    if plan.variates.most is None or not keys:
        return None
    return np.stack([keys[name] for name in plan.variates.columns])


def _of_rows(span: Span) -> list[str]:
    return [f"{span.name}.{entry}" for entry in ("observed", "window", "variate", "pack")]


def one_by_one(plans: Sequence[VariatePlan], batch: Batch, count: int) -> list[Batch]:
    """The windows of a batch, each with all its rows of such spans, `(variates, time)`, as a batch of its own."""
    each = {name: tensor.unbind() for name, tensor in batch.items()}
    for plan in plans:
        rows = batch[f"{plan.spans[0].name}.window"].numpy()
        counts = np.bincount(rows, minlength=count).tolist()  # by numpy, because torch's threads do not survive a fork
        first = torch.from_numpy(np.zeros_like(rows))
        for span in plan.spans:
            entries = {name: batch.get(name) for name in (span.name, *_of_rows(span))}
            entries[f"{span.name}.window"] = first
            each |= {
                name: torch.split_with_sizes(entry, counts) for name, entry in entries.items() if entry is not None
            }
    return [dict(zip(each, window)) for window in zip(*each.values())]
