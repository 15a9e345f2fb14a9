"""The inside of orders, for tests of their ids at single positions."""

from typing import Any

from tensorstash.sampling.bind import bound
from tensorstash.sampling.order import Count, Ids, SequenceOrder
from tests.epochs import ordered


def ids_at(order: Any, n: int, seed: int, epoch: int) -> Ids:
    """The ids of an epoch of `n` windows, as a function of positions."""
    made = bound(**({"shuffle": False, "order": None} | ordered(order)), dataset=Count(n))
    assert isinstance(made, SequenceOrder)
    return made.at(seed, epoch)
