"""`Cross`: the combination of several columns as one category, computed for each batch and never stored."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tensorstash.columns.names import RESERVED
from tensorstash.common.checks import at_least, names_in
from tensorstash.errors import SchemaError
from tensorstash.gather.layout import Batch
from tensorstash.transforms.entries import check_batch, span_of

_POSITIVE = (1 << 63) - 1


@dataclass(frozen=True, init=False)
class Cross:
    """Adds the combination of several columns to each batch, as one category in `[0, buckets)`.

    The category is a hash of the codes of one slot, computed on the device of the batch. Spans are `(batch, time, ...)`
    and have the same slots; the value of a static column, `(batch,)`, holds for all slots of its window. The result is
    int64, as embeddings and indices need it. Vowpal Wabbit computes interactions of features in the same way.

    The hash `h` starts at 0. For one column after the other, `h = mix(h ^ code)`, where `mix(x)` is the next value of
    SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014) from state x, in 64 bits;
    the bucket is the low 63 bits of `h` modulo `buckets`. The order of the columns counts, and code -1, a missing
    value, is hashed like any other. Equal codes give equal buckets on every machine and in all releases. The codes of
    integers, of `ts.hashed` and of a given vocabulary are equal everywhere; codes of text without a vocabulary change
    when the source has other texts, unless it is loaded with `like=`.

    Args:
        columns: two or more spans or static columns of integers or booleans in the batch.
        buckets: the number of buckets, 1 to 2**63 - 1; an embedding needs as many rows.
        name: the name of the result; `None` joins the names of the columns: `"store_x_item"`.

    Raises:
        ColumnError: a batch lacks a column. SchemaError: a column is floating, or `name` is reserved. ValueError:
            shapes differ, or a batch has that name already.

    Example:
        >>> import torch, tensorstash as ts
        >>> batch = {"store": torch.tensor([3, 4]), "item": torch.tensor([[7, 8, 7], [7, 7, 8]])}
        >>> cross = ts.Cross(["store", "item"], 2**20)
        >>> cross(batch)["store_x_item"]
        tensor([[1008967,  519792, 1008967],
                [ 293850,  293850,  237617]])
    """

    columns: tuple[str, ...]
    buckets: int
    name: str

    def __init__(self, columns: Sequence[str], buckets: int, *, name: str | None = None) -> None:
        chosen = tuple(names_in(columns, "columns"))
        if len(chosen) < 2:
            raise ValueError(f"columns must be two or more, got {list(chosen)}. For one column use ts.hashed.")
        buckets = at_least(1, buckets, "buckets", below=_POSITIVE + 1)
        name = "_x_".join(chosen) if name is None else name
        if not isinstance(name, str):
            raise TypeError(f"name must be a text, got {name!r}. Leave it out, or write name='shop_x_item'.")
        if name in RESERVED or "." in name or not name:
            raise SchemaError(
                f"name must not have a dot or be reserved in batches ({', '.join(sorted(RESERVED))}), got {name!r}. "
                "Choose another."
            )
        vars(self).update(columns=chosen, buckets=buckets, name=name)

    def __call__(self, batch: Batch) -> Batch:
        """Add the buckets to a batch and return it.

        Args:
            batch: a batch on any device.

        Raises:
            ColumnError: it lacks a column. SchemaError: a column is floating. ValueError: shapes differ, or the batch
                has the name of the result already.
        """
        check_batch(batch, "ts.Cross")
        if self.name in batch:
            raise ValueError(f"name must be new in the batch, got {self.name!r}. Choose another: name=.")
        columns = [self._codes(batch, name) for name in self.columns]
        longest = max(columns, key=lambda codes: codes.ndim)
        state = torch.zeros((), dtype=torch.int64, device=longest.device)
        for name, codes in zip(self.columns, columns):
            if codes.shape != longest.shape[: codes.ndim]:
                raise ValueError(
                    f"Crossed spans must have the same slots, and static columns the same windows; {name!r} is "
                    f"{tuple(codes.shape)} beside {tuple(longest.shape)}. Cross spans of equal length."
                )
            state = _mix(state ^ codes.view((*codes.shape, *[1] * (longest.ndim - codes.ndim))))
        batch[self.name] = (state & _POSITIVE).remainder_(self.buckets)
        return batch

    def _codes(self, batch: Batch, name: str) -> torch.Tensor:
        codes = span_of(batch, name)
        if codes.dtype.is_floating_point or codes.dtype.is_complex:
            raise SchemaError(
                f"A crossed column must be integer or boolean; {name!r} is {codes.dtype}. Leave it out, or put a "
                "transform before it that turns the values into classes."
            )
        return codes.view(torch.int64) if codes.dtype == torch.uint64 else codes.to(torch.int64)


def _mix(x: torch.Tensor) -> torch.Tensor:
    """The next value of SplitMix64. int64 wraps as unsigned integers do; only right shifts need the sign bit masked."""
    x = x - 0x61C8864680B583EB
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        x = (x ^ x >> shift & (1 << 64 - shift) - 1) * factor
    return x ^ x >> 31 & (1 << 33) - 1
