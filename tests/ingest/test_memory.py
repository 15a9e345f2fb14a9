"""The inside of `ingest/memory.py`: the room for static columns, looked at when the entities are known."""

import pytest
import torch

import tensorstash as ts
from tensorstash.ingest.memory import check_static as check_room
from tests.ingest.test_static_columns import plants


def test_static_columns_that_do_not_fit_are_refused_when_the_entities_are_known() -> None:
    wide = ts.column(["size"] * 1000, dtype=torch.float64)
    planned = ts.plan(plants(), ["power"], entity="plant", static={"wide": wide, "level": "level"})
    entities = planned.free // 8000
    message = (
        rf"\AStatic columns take one value per entity, and there are {entities:,} entities; the mapping needs "
        r"[\d,]+ MB and [\d,]+ MB are free in .*\. Leave some out of static=\.\Z"
    )
    with pytest.raises(ts.errors.NoMemoryError, match=message):
        check_room(planned.choice.static, entities, planned.source)
    check_room(planned.choice.static, 3, planned.source)
