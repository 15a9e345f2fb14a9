"""What a batch of windows holds, and the batches of `windows[ids]`.

In this order: the spans; `<span>.observed`, where slots may be empty; static columns; the other columns of an `at=`
frame; the spans of `ts.each`, with what each of their rows is. A `Loader` adds its entries, such as `valid` and ids,
before the columns of the frame.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch

from tensorstash.gather.gather import GatherPlan, copy_into, gather, gather_into, names_of
from tensorstash.gather.span import draws_of
from tensorstash.gather.variates import named, new_memory
from tensorstash.windows.ids import Ids, check_ids
from tensorstash.windows.located import Located
from tensorstash.windows.placement import Chain
from tensorstash.windows.variates import check_undrawn, one_by_one, variate_entries

Batch = dict[str, torch.Tensor]


class Entry(NamedTuple):
    """An entry of a batch: a tensor `(batch, *shape)`."""

    dtype: torch.dtype
    shape: tuple[int, ...]


def contents(chain: Chain) -> dict[str, Entry]:
    """The entries of a batch of windows, in their order. Those of `ts.each` have rows in place of windows."""
    spans, observed = _gathered(chain.plans)
    static = {name: Entry(tensor.dtype, tuple(tensor.shape[1:])) for name, tensor in chain.static.items()}
    nothing = chain.labels(chain.locate(np.empty(0, np.int64)))
    labels = {name: Entry(torch.from_numpy(values).dtype, ()) for name, values in nothing.items()}
    found = spans | observed | static | labels
    for plan in chain.variates:
        spans, observed = _gathered([plan.gather])
        number = Entry(torch.int64, ())
        found |= spans | observed | named(plan, {"window": number, "variate": number, "pack": number})
    return found


def _gathered(plans: list[GatherPlan]) -> tuple[dict[str, Entry], dict[str, Entry]]:
    """The spans of plans, and their `observed`."""
    spans, observed = dict[str, Entry](), dict[str, Entry]()
    for plan in plans:
        for group in plan.groups:
            spans |= {name: Entry(dtype, group.shape) for name, dtype in zip(group.names, group.dtypes)}
        if plan.flags is not None:
            lengths = [len(slots) for slots, _ in plan.flags.slots]
            observed |= {name: Entry(torch.bool, (lengths[k],)) for name, k in plan.flags.names.items()}
    return {name: spans[name] for name in names_of(plans)}, observed


def batch_of(chain: Chain, ids: Ids) -> Batch:
    """The batch of windows in fresh memory."""
    located = _locate(chain, ids)
    batch = gather(chain.plans, located.source, chain.rows(located)) | chain.beside(located)
    return batch | variate_entries(chain.variates, located, new_memory)


def _locate(chain: Chain, ids: Ids) -> Located:
    located = chain.locate(check_ids(ids, len(chain)))
    rows = chain.static_rows(located, chain.entities(located)) if chain.static else None
    return located._replace(static_rows=rows, entries=chain.labels(located))


def batch_into(chain: Chain, ids: Ids, out: Mapping[str, torch.Tensor]) -> Batch:
    """The batch in the tensors of an earlier one of as many windows."""
    if chain.placements[0].time_spans or chain.placements[0].points is not None or chain.variates:
        copy_into(batch_of(chain, ids), out)
    else:
        located = _locate(chain, ids)
        gather_into(chain.plan_apart, located.anchors, out)
        copy_into(chain.beside(located), out)
    return dict(out)


def window_or_batch(chain: Chain, ids: int | Ids) -> Batch:
    """One window, tensors `(time, ...)`, for an integer; else a batch, tensors `(batch, time, ...)`."""
    if chain.variates:
        check_undrawn(chain.placements[0].spans)
    if isinstance(ids, int) and not isinstance(ids, bool):
        ids = np.array(ids)
    if isinstance(ids, (np.ndarray, np.integer, torch.Tensor)) and not ids.ndim:
        return one_by_one(chain.variates, batch_of(chain, ids.reshape(1)), 1)[0]
    return batch_of(chain, ids)  # type: ignore[arg-type]  # a boolean is refused there


def each_window(chain: Chain, ids: Ids) -> list[Batch]:
    """The windows of a batch one by one, which share its memory: PyTorch's `__getitems__`."""
    if chain.drawn:
        (draw, *_) = draws_of(chain.placements[0].spans)
        raise TypeError(
            "A ts.Draw needs the position of each window in the run, which PyTorch's DataLoader does not pass on; "
            f"got {draw}. Use ts.Loader."
        )
    check_undrawn(chain.placements[0].spans)
    numbers = check_ids(ids, len(chain))
    return one_by_one(chain.variates, batch_of(chain, numbers), len(numbers))
