"""The order that the arguments `shuffle=` and `order=` name, for given windows."""

from typing import Any, Protocol

from tensorstash.common.checks import bound_anew, flag, shown
from tensorstash.common.text import type_text
from tensorstash.sampling.order import Count, Order
from tensorstash.sampling.ordinary import Ordinary
from tensorstash.sampling.own_ids import OwnIds
from tensorstash.sampling.several import Several
from tensorstash.windows.windows import Windows

Dataset = Windows | Several | Count  # what a sampler draws from


class Bindable(Protocol):
    """What `order=` takes, such as `ts.Blocks(size)`."""

    def bind(self, windows: Any) -> Order:
        """The order of these windows, a new object: loaders of other windows may share this one."""


def bound(shuffle: object, order: Any, dataset: Dataset) -> Order:
    """The order of windows by the arguments of a sampler."""
    shuffle = flag(shuffle, "shuffle", "Give any other order as order=.")
    if isinstance(dataset, Several):
        if order is not None:
            raise ValueError(
                "order must be left out for a mix or shards, because an order is of the windows of one stash. Use "
                "shuffle=True (permuted) or False (interleaved)."
            )
        return dataset.order(shuffle=shuffle)
    if order is None:
        return Ordinary(len(dataset), shuffle=shuffle)
    if shuffle:
        raise ValueError("shuffle=True and order= each set the order, so only one may be given. Leave one out.")
    if isinstance(order, type) or not hasattr(order, "bind"):
        return OwnIds(order, len(dataset))
    made = bound_anew(order, dataset)
    if not isinstance(made, Order):
        raise TypeError(f"bind(windows) of order= must return an Order; {shown(order)} returned {type_text(made)}.")
    return made
