"""How the batches of windows are gathered: the plan that the room `gather` follows."""

from collections.abc import Mapping

import torch

from tensorstash.gather.empty import FillPlan
from tensorstash.gather.gather import GatherPlan, compile_plan
from tensorstash.gather.span import Span
from tensorstash.windows.known import computed
from tensorstash.windows.layout import Layout
from tensorstash.windows.slots import fragments_of


def filling_of(layout: Layout, spans: tuple[Span, ...], fills: Mapping[str, torch.Tensor] | None) -> FillPlan | None:
    """How empty slots are filled; `fills` are their values, `None` where there are no such slots."""
    if fills is None:
        return None
    return FillPlan(
        fragments=fragments_of(layout.slots),
        history=layout.history,
        horizon=layout.horizon,
        spans=spans,
        fills=fills,
        computed=computed(layout, spans),
    )


def compiled(
    layout: Layout, spans: tuple[Span, ...], fills: Mapping[str, torch.Tensor] | None, *, together: bool
) -> GatherPlan:
    """The plan for these spans."""
    stash = layout.stash
    return compile_plan(stash._blocks, stash, spans, filling_of(layout, spans, fills), together=together)
