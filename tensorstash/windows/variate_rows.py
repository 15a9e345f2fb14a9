"""Spans of `ts.each` in batches of windows: their entries, which have a row for each column of each window."""

from collections.abc import Sequence

import numpy as np
import torch

from tensorstash.gather.layout import Batch
from tensorstash.gather.span import Span
from tensorstash.gather.variates import VariatePlan, VariateRows, rows_of
from tensorstash.windows.chain import Located


def check_undrawn(spans: Sequence[Span]) -> None:
    """Raise `TypeError` if the columns of a window are drawn by its position in a run."""
    for span in spans:
        if span.variates is not None and span.variates.most is not None:
            raise TypeError(
                "max_variates= draws the columns of each window by its position in the run, which only a ts.Loader "
                f"knows; got {span.variates!r}. Use ts.Loader, or leave out max_variates=."
            )


def rows_in(plan: VariatePlan, located: Located) -> VariateRows:
    """The rows of windows; without hashes, all columns of a pack."""
    keys = [located.keys[name] for name in plan.variates.columns if name in located.keys]
    return rows_of(plan, located.component, len(located.ids), np.stack(keys) if keys else None)


def one_by_one(plans: Sequence[VariatePlan], batch: Batch, count: int) -> list[Batch]:
    """The windows of a batch, each with all its rows of such spans, `(variates, time)`, as a batch of its own."""
    each = {name: tensor.unbind() for name, tensor in batch.items()}
    for plan in plans:
        rows = batch[f"{plan.spans[0].name}.window"].numpy()
        counts = np.bincount(rows, minlength=count).tolist()  # by numpy, because torch's threads do not survive a fork
        first = torch.from_numpy(np.zeros_like(rows))
        for span in plan.spans:
            names = [span.name, *(f"{span.name}.{entry}" for entry in ("observed", "variate", "pack"))]
            each |= {name: torch.split_with_sizes(batch[name], counts) for name in names if name in batch}
            each[f"{span.name}.window"] = torch.split_with_sizes(first, counts)
    return [dict(zip(each, window)) for window in zip(*each.values())]
