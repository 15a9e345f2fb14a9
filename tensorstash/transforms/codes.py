"""Fitting by the codes of a column, as laboratory values need: each kind has its own centre and scale."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch

from tensorstash.errors import SchemaError, unknown
from tensorstash.stash.row_statistics import Rows, Values, sampled
from tensorstash.stash.stash import Stash
from tensorstash.transforms.bound import Source, parts_in, stash_of
from tensorstash.transforms.observed import same_slots


def check_coded(source: Source, by: str) -> None:
    """Raise an error unless `by` names a column of codes."""
    stash = stash_of(parts_in(source)[0])
    if by not in stash:
        coded = [name for name in stash if stash.about(name).kind == "category"]
        raise unknown(by, ["entity", *coded], "by=", "column of codes")
    if stash.about(by).kind != "category" or stash[by].ndim > 1:
        raise SchemaError(
            f"by= must be 'entity' or a single column of codes; {by!r} is {stash[by].dtype}. Load it as text, or with "
            "ts.column(..., vocabulary=[...])."
        )


def code_spans(source: Source, by: str, spans: Iterable[str]) -> dict[str, str]:
    """Maps each span to that of the codes in its slots; raises `ValueError` if there is none."""
    part, found = parts_in(source)[0], dict[str, str]()
    if isinstance(part, Stash):
        return dict.fromkeys(spans, by)
    whole = {span.name for span in part.placement.shown if span.variates is None}
    for name in spans:
        beside = same_slots(part.placement, name)[1] if name in whole else []
        codes = [span.name for span in beside if span.column == by and span.variates is None]
        if not codes:
            raise ValueError(
                f"A scaler by {by!r} needs the code of each slot; no span of {by!r} has the slots of {name!r}. Add one "
                "to spans=, with the same start and stop."
            )
        found[name] = codes[0]
    return found


Part = tuple[Values, Rows]


def by_code(parts: Sequence[Part], codes: Sequence[Part], count: int) -> list[Part]:
    """The values in the rows of all parts as one column, with a group for each of `count` codes."""
    code, numbers = (torch.cat([*map(_taken, every)]) for every in (codes, parts))
    code, order = code.sort(stable=True)
    edges = np.searchsorted(code.numpy(), np.arange(count + 1))
    return [(Values(numbers[order]), Rows(edges[:1], edges[-1:], edges))]


def _taken(part: Part) -> torch.Tensor:
    column, rows = part
    some, _ = sampled(column, rows, np.arange(len(rows)))
    numbers = some.numbers.double()
    return numbers if some.valid is None else numbers.masked_fill(~some.valid, math.nan)
