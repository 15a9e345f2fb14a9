"""The numbers of entities in a stash, by their names or by the values of columns."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorstash.common.checks import is_integer, is_listed, shown
from tensorstash.common.dtypes import Int32s
from tensorstash.errors import SchemaError
from tensorstash.stash.stash import Stash, entity_number

if TYPE_CHECKING:
    import pyarrow as pa


def numbers_of(entities: Sequence[Any], names: Sequence[Any]) -> list[int]:
    """The numbers of entities by their names, in the order of the names."""
    numbers = {name: k for k, name in enumerate(entities)}
    is_one = is_integer(names) or isinstance(names, str) or (isinstance(names, tuple) and names in [*numbers])
    if is_one or isinstance(names, Mapping) or not is_listed(names):
        meant = [names] if is_one else [*names] if isinstance(names, Mapping) else [*entities[:2]]
        raise TypeError(f"names must be a list of entities, got {shown(names)}. Write {shown(meant)}.")
    found = [entity_number(numbers, name) for name in (names.tolist() if hasattr(names, "tolist") else names)]
    if not found:
        raise ValueError("names must have at least one entity, got none.")
    return found


def find_entities(stash: Stash, columns: "Iterable[tuple[str, pa.ChunkedArray]]", of: str, within: str) -> Int32s:
    """The number of the entity that each row of some columns has in a stash, -1 for one that it lacks.

    There is a column, with its name, for each one of the entities; messages call the two sides `of` and `within`.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from tensorstash.columns.arrays import filled, numbers
    from tensorstash.columns.types import value_type

    codes = []
    for (name, column), own, called in zip(columns, stash.names().arrow, stash.entity_names):
        kinds = [_kind(array.type) for array in (column, own)]
        if kinds[0] != kinds[1]:
            raise SchemaError(
                f"Entities are found by equal values; {name!r} of {of} holds {kinds[0]}, and {called!r} of {within} "
                f"{kinds[1]}. Convert one of them."
            )
        known = own.cast(pa.large_string()).dictionary_encode()
        texts = column.cast(value_type(column.type)).cast(pa.large_string())
        found = pc.index_in(texts, value_set=known.dictionary)
        codes.append((numbers(known.indices), filled(found.combine_chunks(), -1)))
    of_stash, of_rows = (_as_bytes(np.stack(parts, 1)) for parts in zip(*codes))
    return filled(pc.index_in(of_rows, value_set=of_stash), -1)


def _kind(arrow: "pa.DataType") -> str:
    """What the values of a type are, as entities: integers of any width are equal."""
    import pyarrow as pa

    from tensorstash.columns.types import is_text, value_type

    return "texts" if is_text(arrow) else "integers" if pa.types.is_integer(value_type(arrow)) else str(arrow)


def _as_bytes(rows: Int32s) -> "pa.FixedSizeBinaryArray":
    """The bytes of each row of integers as one value, because Arrow looks up single values only."""
    import pyarrow as pa

    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(4 * rows.shape[1]), len(rows), [None, pa.py_buffer(rows)])
