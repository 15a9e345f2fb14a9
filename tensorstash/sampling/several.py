"""What a loader samples in place of windows: windows of several stashes together."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from tensorstash.common.dtypes import Int64s
from tensorstash.sampling.order import Order
from tensorstash.windows.contents import Contents
from tensorstash.windows.windows import Windows


class Several(ABC):
    """Windows of several stashes that a `Loader` samples in an order of their own."""

    kind: str  # what messages call them
    parts: Mapping[Any, Windows]  # the windows of each stash that this process has
    contents: Contents  # gathers the windows of all parts

    @abstractmethod
    def __len__(self) -> int:
        """The number of windows of all stashes together."""

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """A small JSON identity."""

    @abstractmethod
    def order(self, *, shuffle: bool) -> Order:
        """The order of a sampler over them; `order=` is refused."""

    def warning(self) -> str | None:
        """What a `Loader` over them warns of when it is made."""
        return None

    @abstractmethod
    def numbers(self) -> tuple[Int64s, Int64s]:
        """The number of each part in the batch entry `source`, and the number of its first entity in `entity`."""

    @abstractmethod
    def entities(self) -> tuple[list[Any], tuple[int, ...]]:
        """The names of the entities of all parts, and the position in them at which each part starts.

        If entities are numbered through all parts, each part starts at 0.
        """
