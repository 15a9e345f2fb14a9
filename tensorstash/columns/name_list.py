"""The entities of a stash, and the texts of codes, as they lie in its segment: objects are made only of some."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tensorstash.common.dtypes import Int64s

if TYPE_CHECKING:
    import pyarrow as pa


class Texts:
    """Texts by their UTF-8 bytes, and where each begins in them: `(texts + 1,)`, at last the number of bytes."""

    def __init__(self, letters: NDArray[np.uint8], bounds: Int64s, damaged: Callable[[str], Exception] = ValueError):
        """`damaged` makes the error for bytes that are no text."""
        self.letters, self.bounds, self._damaged = letters, bounds, damaged

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __reduce__(self) -> tuple[Any, ...]:
        return Texts, (self.letters, self.bounds)

    def item(self, k: int) -> str:
        """A text by its number."""
        return self._decoded(self.letters[self.bounds.item(k) : self.bounds.item(k + 1)].tobytes())

    def tolist(self) -> list[str]:
        """All texts."""
        letters = self.letters.tobytes()
        return [self._decoded(letters[start:stop]) for start, stop in pairwise(self.bounds.tolist())]

    def _decoded(self, letters: bytes) -> str:
        try:
            return letters.decode()
        except UnicodeDecodeError as error:
            raise self._damaged(f"cannot be decoded: {error}") from None


Part = Texts | NDArray[Any]  # texts or integers


@dataclass(frozen=True, eq=False)
class Names(Sequence[Any]):
    """Names in the order of their numbers."""

    parts: tuple[Part, ...]  # the columns that names are made of
    are_tuples: bool

    def __len__(self) -> int:
        return len(self.parts[0])

    def __getitem__(self, k: Any) -> Any:
        values = tuple(part.item(k) for part in self.parts)
        return values if self.are_tuples else values[0]

    def __iter__(self) -> Iterator[Any]:
        columns = [part.tolist() for part in self.parts]
        return zip(*columns) if self.are_tuples else iter(columns[0])

    def __contains__(self, name: object) -> bool:
        return self.find(name) >= 0

    def __repr__(self) -> str:
        return repr((*self,))  # as of a tuple, for the key of a shared segment

    @cached_property
    def arrow(self) -> "tuple[pa.Array, ...]":
        """The columns as Arrow arrays over the same memory."""
        import pyarrow as pa  # here, because a process that attaches a stash does without it

        from tensorstash.columns.arrays import of_numbers

        return tuple(
            pa.Array.from_buffers(pa.large_string(), len(part), [None, *map(pa.py_buffer, (part.bounds, part.letters))])
            if isinstance(part, Texts)
            else of_numbers(part)
            for part in self.parts
        )

    @cached_property
    def ascending_parts(self) -> list[int]:
        """Where names that ascend begin, and at last the number of names; a load with `like=` adds one part."""
        import pyarrow.compute as pc

        from tensorstash.columns.arrays import numbers

        falls = np.zeros(max(len(self) - 1, 0), np.bool_)
        for column in reversed(self.arrow):
            after, before = column[1:], column[:-1]
            falls = numbers(pc.less(after, before)) | (numbers(pc.equal(after, before)) & falls)
        return [0, *(np.flatnonzero(falls) + 1).tolist(), len(self)]

    def find(self, name: Any) -> int:
        """The number of a name, by bisection of each part; -1 if there is none."""
        for low, high in pairwise(self.ascending_parts):
            k = bisect_left(self, name, low, high)
            if k < high and self[k] == name:
                return k
        return -1
