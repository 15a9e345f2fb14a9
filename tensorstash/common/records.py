"""Records of arrays: named tuples, tuples, lists and dicts, one in another, with arrays or tensors in them."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch

Record = TypeVar("Record")


def each_array(record: Record, change: Callable[[Any], Any]) -> Record:
    """The record with each of its arrays changed; what is no array stays as it is.

    Example:
        >>> import numpy as np
        >>> from tensorstash.common.records import each_array
        >>> each_array({"rows": [np.array([1, 2]), None]}, lambda array: array.tolist())
        {'rows': [[1, 2], None]}
    """
    of: Any = record
    kind, made = type(of), of
    if issubclass(kind, (np.ndarray, torch.Tensor)):
        made = change(of)
    elif kind is dict:
        made = {name: each_array(value, change) for name, value in of.items()}
    elif issubclass(kind, (tuple, list)):
        parts = [each_array(part, change) for part in of]
        made = kind(*parts) if hasattr(kind, "_fields") else kind(parts)
    return made


def some_of(record: Record, which: Any) -> Record:
    """The record with some of the rows of each array, by an index."""
    return each_array(record, lambda array: array[which])


def arrays_of(record: object) -> list[Any]:
    """The arrays of a record, in the order in which `each_array` changes them."""
    arrays = list[Any]()
    each_array(record, arrays.append)
    return arrays
