"""A decoder for each codec: from the Arrow arrays of a column to the values of its tensor."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tensorstash.columns.codec import Ascending, Given, Hashed, Plain, Validity
from tensorstash.columns.column import Column
from tensorstash.columns.types import is_text
from tensorstash.common.dtypes import Int32s
from tensorstash.ingest.codes import FixedVocabulary, Vocabulary, bucket_codes, piece_of, plain_text
from tensorstash.ingest.values import Stats, flatten, from_bfloat16, values


@dataclass(frozen=True, slots=True)
class Decoder:
    """Decodes the batches of a column, which threads bring in any order."""

    # from the arrays of the members and their place in the source, for errors, to `(n, *shape)` values
    decode: Callable[[Sequence[pa.Array], str], tuple[NDArray[Any], Stats]]
    vocabulary: Vocabulary | None = None  # ascends only when all batches have been decoded
    given: list[Any] | None = None  # a vocabulary that does not change

    @property
    def names(self) -> list[Any] | None:
        """The names that the codes stand for, if the column has codes with names."""
        return self.given if self.vocabulary is None else self.vocabulary.names

    def finish(self, stats: Stats) -> Int32s | None:
        """Complete the statistics of all rows. Returns the new code of each code, as `Vocabulary.renumbering`."""
        if self.vocabulary is None:
            return None
        new_codes = self.vocabulary.renumbering()
        stats.low, stats.high = self.vocabulary.range
        return new_codes


def decoder_of(column: Column) -> Decoder:
    """The decoder for the codec of a column."""
    match column.codec:
        case Plain():
            return Decoder(lambda arrays, place: values(arrays, column, place))
        case Validity():
            return Decoder(lambda arrays, place: validity(arrays, column, place))
        case Ascending(known):
            fill, empty = (name if isinstance(name, str) else None for name in (column.fill, column.empty))
            ascending = Vocabulary(known, fill, empty)
            return Decoder(lambda arrays, _: ascending.encode(piece_of(arrays[0])), ascending)
        case Given(vocabulary):
            fixed = FixedVocabulary(vocabulary, column.fill)
            return Decoder(lambda arrays, _: fixed.encode(piece_of(arrays[0])), given=fixed.names)
        case Hashed(count):
            return Decoder(lambda arrays, _: bucket_codes(piece_of(arrays[0]), count))


def validity(arrays: Sequence[pa.Array], column: Column, place: str) -> tuple[NDArray[Any], Stats]:
    """`(n, *column.shape)` booleans: true where the value is neither null nor NaN."""
    flat = [_valid(array, column, name, place) for array, name in zip(arrays, column.members)]
    present = (flat[0] if len(flat) == 1 else np.stack(flat, axis=1)).reshape(-1, *column.shape)
    low, high = (bool(present.min()), bool(present.max())) if present.size else (None, None)
    return present, Stats(low=low, high=high)


def _valid(array: pa.Array, column: Column, name: str, place: str) -> NDArray[Any]:
    if is_text(array.type):
        plain = plain_text(array)
        if pa.types.is_dictionary(plain.type):
            plain = plain.dictionary_decode() if plain.dictionary.null_count else plain.indices
        return np.asarray(plain.is_valid().to_numpy(zero_copy_only=False))
    flat = flatten(array, column, name, place)
    valid = np.asarray(flat.is_valid().to_numpy(zero_copy_only=False))
    if pa.types.is_floating(flat.type) or column.bits:
        raw = np.asarray(pc.fill_null(flat, pa.scalar(0).cast(flat.type)).to_numpy(zero_copy_only=False))
        valid &= ~np.isnan(from_bfloat16(raw) if column.bits else raw)
    return valid
