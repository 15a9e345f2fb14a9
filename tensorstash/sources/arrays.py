"""A mapping of arrays, lists and tensors as a scan."""

from collections.abc import Mapping, Set
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from tensorstash.columns.types import BFLOAT16
from tensorstash.errors import SchemaError, SourceError
from tensorstash.sources.scan import Scan, Wanted
from tensorstash.sources.tables import checked_names, scan_table, with_unwanted


def scan_arrays(source: Mapping[Any, Any], wanted: Wanted) -> Scan:
    """The arrays of a mapping that are wanted, converted to Arrow."""
    names = checked_names(source, "the mapping")
    table = _table_of({name: source[name] for name in wanted.among(names)})
    return scan_table(table, with_unwanted(table, names), "the mapping")


def _table_of(arrays: Mapping[str, Any]) -> pa.Table:
    columns, fields = [], []
    for name, values in arrays.items():
        if isinstance(values, (str, bytes, bytearray, Set, Mapping)):
            raise SchemaError(
                f"A column is an array or a list of values, in the order of the rows; {name!r} is a "
                f"{type(values).__name__}. Write a list: {{{name!r}: [...]}}."
            )
        try:
            array, metadata = _arrow_of(values)
        except OverflowError as error:
            raise SchemaError(
                f"Integers in a list are below 2**63; {name!r} has others. For those below 2**64 write "
                f"{{{name!r}: np.array(..., np.uint64)}}."
            ) from error
        except (pa.ArrowException, TypeError, ValueError, AttributeError, NotImplementedError) as error:
            raise SchemaError(
                f"A column is an array or a list of values of one type; {name!r} is not: {error}"
            ) from error
        columns.append(array)
        fields.append(pa.field(name, array.type, metadata=metadata))
    lengths = {field.name: len(array) for field, array in zip(fields, columns)}
    if len(set(lengths.values())) > 1:
        raise SourceError(f"All arrays of a source have one length; got {lengths}.")
    return pa.table(columns, schema=pa.schema(fields))


def _arrow_of(values: Any) -> tuple[pa.Array, dict[bytes, bytes] | None]:
    """An array or tensor as Arrow; trailing dimensions become fixed-size lists."""
    metadata = None
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        if values.dtype == torch.bfloat16:
            values, metadata = values.view(torch.uint16), BFLOAT16
        values = values.numpy()
    if not isinstance(values, np.ndarray):
        return pa.array(values), metadata
    mask = np.ma.getmaskarray(values).reshape(-1) if isinstance(values, np.ma.MaskedArray) else None
    plain = np.ascontiguousarray(np.ma.getdata(values)).reshape(-1)
    if not plain.dtype.isnative:
        plain = plain.astype(plain.dtype.newbyteorder("="))
    array = pa.array(plain, mask=mask)
    for size in reversed(values.shape[1:]):
        array = pa.FixedSizeListArray.from_arrays(array, size)
    return array, metadata
