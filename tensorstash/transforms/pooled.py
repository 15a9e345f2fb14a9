"""Statistics over the rows of all components of a mix together."""

from collections.abc import Sequence

import numpy as np
import torch

from tensorstash.common.checks import at_least
from tensorstash.common.dtypes import Int64s
from tensorstash.native.permutation import shuffled
from tensorstash.sampling.mix import Mix
from tensorstash.stash.moments import Rows, sampled
from tensorstash.transforms.sharded import Together
from tensorstash.transforms.statistics import Doubt, fit_together, rows_seen, spans_of


def pooled(mix: Mix, columns: list[str], kind: str, sample: int | None, seed: int) -> Together:
    """One centre and scale for all components; those without windows have no rows."""
    some = [windows for windows in mix.windows.values() if len(windows)]
    seen = [rows_seen(windows) for windows in some]
    rows = [Rows(one.low, one.high, np.array([0, own.stash.rows])) for one, own in zip(seen, some)]
    spans = spans_of(some[0], some[0].stash, columns)
    which = drawn(sum(map(len, rows)), sample, seed)
    centers, scales = {}, {}
    doubts: list[Doubt] = []
    for name in dict.fromkeys(spans.values()):
        parts = [(own.stash[name], one) for own, one in zip(some, rows)]
        center, scale, doubt = fit_together(parts if which is None else _sampled(parts, which), kind, name)
        shape = (1, *some[0].stash[name].shape[1:])
        centers[name], scales[name] = (torch.from_numpy(x.reshape(shape).copy()) for x in (center, scale))
        doubts += doubt
    return Together(sum(map(len, rows)) if which is None else len(which), spans, centers, scales, doubts)


def drawn(count: int, sample: int | None, seed: int) -> Int64s | None:
    """Which of `count` rows the statistics are taken over, ascending; `None` for all."""
    if sample is None or at_least(1, sample, "sample") >= count:
        return None
    return np.sort(shuffled(count, seed, 0)(np.arange(sample)))


def _sampled(parts: Sequence[tuple[torch.Tensor, Rows]], which: Int64s) -> list[tuple[torch.Tensor, Rows]]:
    """The rows with the numbers `which` among the rows of all parts."""
    ends = np.cumsum([len(rows) for _, rows in parts])
    cuts = np.split(which, np.searchsorted(which, ends[:-1]))
    return [sampled(column, rows, own - (end - len(rows))) for (column, rows), own, end in zip(parts, cuts, ends)]
