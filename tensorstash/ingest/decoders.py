"""A decoder for each codec: from the Arrow arrays of a column to the values of its tensor."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tensorstash.columns.arrays import filled, nulls
from tensorstash.columns.codec import Ascending, Given, Hashed, Plain, Unknown, Validity
from tensorstash.columns.column import Column
from tensorstash.common.dtypes import Int32s, Int64s
from tensorstash.errors import DataError
from tensorstash.ingest.codes import Places, Vocabulary, bucket_codes, encoded
from tensorstash.ingest.values import flatten, values


@dataclass(slots=True)
class Decoder:
    """Decodes the batches of a column, which threads bring in any order."""

    # takes the arrays of the members, and their place in the source for errors; returns `(n, *shape)` values, and the
    # number of nulls among them
    decode: Callable[[Sequence[pa.Array], str], tuple[NDArray[Any], int]]
    # the names that codes stand for, or `None`, and as `Vocabulary.renumbering`: after all batches have been decoded
    names: Callable[[], Sequence[Any] | None] = lambda: None
    renumbering: Callable[[], Int32s | None] = lambda: None
    # of each batch with texts that are taken as missing because `like=` lacks them: how many, and the first of them
    dropped: list[tuple[int, str]] = field(default_factory=list)


def decoder_of(column: Column) -> Decoder:
    """The decoder for the codec of a column."""
    match column.codec:
        case Plain():
            return Decoder(lambda arrays, place: values(arrays, column, place))
        case Validity():
            return Decoder(lambda arrays, place: (_validity(arrays, column, place), 0))
        case Ascending(known, unknown):
            fill, empty = (name if isinstance(name, str) else None for name in (column.fill, column.empty))
            ascending = Vocabulary(known, fill, empty)
            if unknown != "keep":
                ascending.renumbering()
                return _closed(column, ascending.names(), unknown)
            return Decoder(
                lambda arrays, _: encoded(arrays[0], ascending.codes_of, ascending.missing),
                ascending.names,
                ascending.renumbering,
            )
        case Given(vocabulary):
            return _closed(column, vocabulary, "keep")
        case Hashed(count):
            return Decoder(lambda arrays, _: encoded(arrays[0], lambda distinct: bucket_codes(distinct, count)))


def _closed(column: Column, names: Sequence[Any], unknown: Unknown) -> Decoder:
    """The decoder of values of which no others than these names have codes of their own.

    With "keep" others have the code behind the names, and with "drop" that of null.
    """
    places, decoder = Places(names), Decoder(lambda arrays, place: decode(arrays[0], place), lambda: names)
    missing = -1 if column.fill is None else int(places.of([column.fill])[0])

    def decode(array: pa.Array, place: str) -> tuple[Int32s, int]:
        strange = list[Any]()

        def codes_of(distinct: pa.Array) -> Int64s:
            found = distinct.to_pylist()
            codes = places.of(found)
            strange.extend(compress(found, codes < 0))
            return np.where(codes < 0, len(names), codes)

        codes, holes = encoded(array, codes_of, missing)
        if strange and unknown == "error":
            raise DataError(
                f"unknown='error' takes only texts that like= has; column {column.name!r} has {min(strange)!r} in "
                f"{place}, which like= lacks. Correct it, or take unknown='drop' or 'keep'."
            )
        if strange and unknown == "drop":
            others = codes == len(names)
            codes[others] = missing
            decoder.dropped.append((int(np.count_nonzero(others)), min(strange)))
        return codes, holes

    return decoder


def _validity(arrays: Sequence[pa.Array], column: Column, place: str) -> NDArray[Any]:
    """`(n, *column.shape)` booleans: true where the value is neither null nor NaN."""
    flat = [_valid(array, name, place) for array, name in zip(arrays, column.members)]
    return (flat[0] if len(flat) == 1 else np.stack(flat, axis=1)).reshape(-1, *column.shape)


def _valid(array: pa.Array, name: str, place: str) -> NDArray[Any]:
    flat = flatten(array, name, place)
    holes = nulls(flat)
    valid = np.ones(len(flat), np.bool_) if holes is None else ~holes
    return valid & ~np.isnan(filled(flat, 0)) if pa.types.is_floating(flat.type) else valid
