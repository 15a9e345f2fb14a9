"""What a loader samples in place of windows: windows of several stashes together."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tensorstash.common.dtypes import Int64s
from tensorstash.common.public import members
from tensorstash.sampling.order import Order
from tensorstash.windows.contents import Contents
from tensorstash.windows.windows import Windows


class Several(ABC):
    """Windows of several stashes that a `Loader` samples in an order of their own."""

    parts: Mapping[Any, Windows]  # the windows of each stash that this process has
    contents: Contents  # gathers the windows of all parts
    order: Callable[..., Order]  # makes the order of a sampler from its `shuffle=`; `order=` is refused
    numbers: tuple[Int64s, Int64s]  # of each part in the batch entry `source`, and of its first entity in `entity`
    entities: Sequence[Any] | None  # the names of all entities; `None`: each part numbers its own
    warning: str | None  # what a `Loader` over them warns of when it is made
    statistics: Callable[..., Any] | None  # of columns, for `Scaler.fit`; `None`: it reads the rows of all parts

    __dir__ = members

    @abstractmethod
    def __len__(self) -> int:
        """The number of windows of all stashes together."""

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """A small JSON identity."""
