"""A decoder for each codec: from the Arrow arrays of a column to the values of its tensor."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tensorstash.columns.arrays import filled, nulls
from tensorstash.columns.codec import Ascending, Given, Hashed, Plain, Validity
from tensorstash.columns.column import Column
from tensorstash.columns.types import is_text
from tensorstash.common.dtypes import Int32s, from_bfloat16
from tensorstash.errors import DataError
from tensorstash.ingest.codes import Piece, Places, Vocabulary, bucket_codes, given_codes, piece_of
from tensorstash.ingest.values import flatten, values
from tensorstash.sources.storage import decoded


@dataclass(slots=True)
class Decoder:
    """Decodes the batches of a column, which threads bring in any order."""

    # takes the arrays of the members, and their place in the source for errors; returns `(n, *shape)` values, and the
    # number of nulls among them
    decode: Callable[[Sequence[pa.Array], str], tuple[NDArray[Any], int]]
    vocabulary: Vocabulary | None = None  # of texts; ascending only after all batches have been decoded
    given: Sequence[Any] | None = None  # names to which no row adds another
    # of each batch with texts that are taken as missing because `like=` lacks them: how many, and the first of them
    dropped: list[tuple[int, str]] = field(default_factory=list)

    @property
    def names(self) -> Sequence[Any] | None:
        """The names that codes stand for; `None` if there are none."""
        return self.given if self.vocabulary is None else self.vocabulary.names

    def renumbering(self) -> Int32s | None:
        """As `Vocabulary.renumbering`; `None` also for other columns."""
        return None if self.vocabulary is None else self.vocabulary.renumbering()


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
                return _closed(column, ascending.names, unknown)
            return Decoder(lambda arrays, _: ascending.encode(piece_of(arrays[0])), ascending)
        case Given(vocabulary):
            places = Places(vocabulary)
            return Decoder(lambda arrays, _: given_codes(piece_of(arrays[0]), places, column.fill), given=vocabulary)
        case Hashed(count):
            assert count is not None
            return Decoder(lambda arrays, _: bucket_codes(piece_of(arrays[0]), count))


def _closed(column: Column, names: Sequence[Any], unknown: str) -> Decoder:
    """The decoder of texts of which no others than these names have codes."""
    places = Places(names)
    decoder = Decoder(lambda arrays, place: encode(piece_of(arrays[0]), place), given=names)

    def encode(piece: Piece, place: str) -> tuple[Int32s, int]:
        codes, nulls = given_codes(piece, places, column.fill)
        strange = codes == len(names)
        if not strange.any():
            return codes, nulls
        texts = piece.values.to_pylist()
        first = min(compress(texts, places.of(texts) < 0))
        if unknown == "error":
            raise DataError(
                f"unknown='error' takes only texts that like= has; column {column.name!r} has {first!r} in {place}, "
                "which like= lacks. Correct it, or take unknown='drop' or 'keep'."
            )
        decoder.dropped.append((int(np.count_nonzero(strange)), first))
        codes[strange] = places.code_of(column.fill)
        return codes, nulls

    return decoder


def _validity(arrays: Sequence[pa.Array], column: Column, place: str) -> NDArray[Any]:
    """`(n, *column.shape)` booleans: true where the value is neither null nor NaN."""
    flat = [_valid(array, column, name, place) for array, name in zip(arrays, column.members)]
    return (flat[0] if len(flat) == 1 else np.stack(flat, axis=1)).reshape(-1, *column.shape)


def _valid(array: pa.Array, column: Column, name: str, place: str) -> NDArray[Any]:
    if is_text(array.type):
        in_dictionary = pa.types.is_dictionary(array.type) and array.dictionary.null_count
        holes = nulls(decoded(array) if in_dictionary else array)
        return np.ones(len(array), np.bool_) if holes is None else ~holes
    flat = flatten(array, column, name, place)
    holes = nulls(flat)
    valid = np.ones(len(flat), np.bool_) if holes is None else ~holes
    if pa.types.is_floating(flat.type) or column.bits:
        raw = filled(flat, 0)
        valid &= ~np.isnan(from_bfloat16(raw) if column.bits else raw)
    return valid
