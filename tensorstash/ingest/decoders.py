"""A decoder for each codec: from the Arrow arrays of a column to the values of its tensor."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tensorstash.columns.arrays import filled, nulls, of_numbers
from tensorstash.columns.codec import Ascending, Given, Hashed, Plain, Validity
from tensorstash.columns.column import Column, ColumnCounts
from tensorstash.columns.types import is_text
from tensorstash.common.dtypes import Int32s
from tensorstash.errors import DataError
from tensorstash.ingest.codes import Piece, Vocabulary, bucket_codes, given_codes, piece_of
from tensorstash.ingest.values import flatten, from_bfloat16, values
from tensorstash.sources.storage import decoded


@dataclass(slots=True)
class Decoder:
    """Decodes the batches of a column, which threads bring in any order."""

    # takes the arrays of the members, and their place in the source for errors; returns `(n, *shape)` values
    decode: Callable[[Sequence[pa.Array], str], tuple[NDArray[Any], ColumnCounts]]
    counts: ColumnCounts  # the caller adds the counts of each batch
    vocabulary: Vocabulary | None = None  # ascending only after all batches have been decoded
    given: list[Any] | None = None  # a vocabulary that does not change
    unknown: Counter[str] = field(default_factory=Counter)  # the texts taken as missing because `like=` lacks them

    @property
    def names(self) -> list[Any] | None:
        """The names that the codes stand for, if the column has codes with names."""
        return self.given if self.vocabulary is None else self.vocabulary.names

    def finish(self) -> Int32s | None:
        """Complete the counts. Returns the new code of each code, as `Vocabulary.renumbering`."""
        if self.vocabulary is None:
            return None
        new_codes = self.vocabulary.renumbering()
        low, high = self.vocabulary.range
        self.counts = replace(self.counts, low=low, high=high)
        return new_codes


def decoder_of(column: Column) -> Decoder:
    """The decoder for the codec of a column."""
    match column.codec:
        case Plain():
            return Decoder(lambda arrays, place: values(arrays, column, place), ColumnCounts())
        case Validity():
            return Decoder(lambda arrays, place: _validity(arrays, column, place), ColumnCounts())
        case Ascending(known, unknown):
            fill, empty = (name if isinstance(name, str) else None for name in (column.fill, column.empty))
            ascending = Vocabulary(known, fill, empty)
            if unknown != "keep":
                return _closed(column, ascending, unknown)
            return Decoder(lambda arrays, _: ascending.encode(piece_of(arrays[0])), ColumnCounts(), ascending)
        case Given(vocabulary):
            code_of = {name: code for code, name in enumerate(vocabulary)}
            return Decoder(
                lambda arrays, _: given_codes(piece_of(arrays[0]), code_of, column.fill),
                ColumnCounts(unknown=0),
                given=[*vocabulary],
            )
        case Hashed(count):
            assert count is not None
            return Decoder(lambda arrays, _: bucket_codes(piece_of(arrays[0]), count), ColumnCounts())


def _closed(column: Column, vocabulary: Vocabulary, unknown: str) -> Decoder:
    """The decoder of texts to which the vocabulary gives no new codes."""
    names, lock = {*vocabulary.names}, Lock()
    decoder = Decoder(lambda arrays, place: encode(piece_of(arrays[0]), place), ColumnCounts(), vocabulary)

    def encode(piece: Piece, place: str) -> tuple[Int32s, ColumnCounts]:
        values = piece.values.to_pylist()
        others = {k: text for k, text in enumerate(values) if text not in names}
        if not others:
            return vocabulary.encode(piece)
        if unknown == "error":
            raise DataError(
                f"unknown='error' takes only texts that like= has; column {column.name!r} has {min(others.values())!r} "
                f"in {place}, which like= lacks. Correct it, or take unknown='drop' or 'keep'."
            )
        rows = np.bincount(piece.indices[piece.indices >= 0], minlength=len(values))
        with lock:
            decoder.unknown.update({text: int(rows[k]) for k, text in others.items()})
        places = np.full(len(values) + 1, -1, np.int32)  # the last one is for null
        known = [k for k in range(len(values)) if k not in others]
        places[known] = np.arange(len(known), dtype=np.int32)
        kept = piece.values.take(of_numbers(np.array(known, np.int64)))
        codes, counts = vocabulary.encode(Piece(places[piece.indices], kept))
        return codes, replace(counts, nulls=counts.nulls - sum(int(rows[k]) for k in others))

    return decoder


def _validity(arrays: Sequence[pa.Array], column: Column, place: str) -> tuple[NDArray[Any], ColumnCounts]:
    """`(n, *column.shape)` booleans: true where the value is neither null nor NaN."""
    flat = [_valid(array, column, name, place) for array, name in zip(arrays, column.members)]
    present = (flat[0] if len(flat) == 1 else np.stack(flat, axis=1)).reshape(-1, *column.shape)
    low, high = (bool(present.min()), bool(present.max())) if present.size else (None, None)
    return present, ColumnCounts(low=low, high=high)


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
