"""How the batches of windows are gathered: the plan that the room `gather` follows."""

from collections.abc import Mapping

import torch

from tensorstash.gather.empty import FillPlan
from tensorstash.gather.gather import GatherPlan, compile_plan
from tensorstash.gather.span import Span
from tensorstash.windows.known import computed
from tensorstash.windows.layout import Layout
from tensorstash.windows.slots import fragments_of


def compiled(
    layout: Layout, spans: tuple[Span, ...], fills: Mapping[str, torch.Tensor] | None, *, together: bool
) -> GatherPlan:
    """The plan for these spans; `fills` are the values of empty slots, `None` where there are no such slots."""
    filling = None
    if fills is not None:
        filling = FillPlan(
            fragments=fragments_of(layout.slots),
            history=layout.history,
            horizon=layout.horizon,
            spans=spans,
            fills=fills,
            computed=computed(layout, spans),
        )
    stash = layout.stash
    return compile_plan(stash._blocks, stash, spans, filling, together=together)
