"""One decoder per codec: the Arrow arrays of a column become the values of its tensor."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from numpy.typing import NDArray

from tensorstash.columns.codec import Appearance, Given, Hashed, Plain, Validity
from tensorstash.columns.column import Column
from tensorstash.common.dtypes import Int32s
from tensorstash.ingest.codes import Buckets, FixedVocabulary, Piece, Vocabulary, piece_of
from tensorstash.ingest.stats import Stats
from tensorstash.ingest.validity import validity
from tensorstash.ingest.values import values


class Decoder(Protocol):
    """Decodes pieces of a column, which threads bring in any order."""

    def decode(self, arrays: Sequence[pa.Array], row: int, place: str) -> tuple[NDArray[Any], Stats]:
        """`(n, *shape)` values of the rows `row, row + 1, ...`; `place` is where they are in the source, for errors."""

    def finish(self, stats: Stats) -> Int32s | None:
        """Complete the statistics of all rows; returns the new code of each code, as `Vocabulary.renumbering`."""

    @property
    def names(self) -> list[Any] | None:
        """What the codes stand for, if anything."""


@dataclass(frozen=True, slots=True)
class _Uncoded:
    """Decodes values, each piece independently of the others."""

    read: Callable[[Sequence[pa.Array], str], tuple[NDArray[Any], Stats]]
    names: None = None

    def decode(self, arrays: Sequence[pa.Array], _row: int, place: str) -> tuple[NDArray[Any], Stats]:
        return self.read(arrays, place)

    def finish(self, _stats: Stats) -> None:
        return None


@dataclass(frozen=True, slots=True)
class _Fixed:
    """Decodes to codes, each piece independently of the others."""

    encode: Callable[[Piece, int], tuple[Int32s, Stats]]
    names: list[Any] | None

    def decode(self, arrays: Sequence[pa.Array], row: int, _place: str) -> tuple[NDArray[Any], Stats]:
        return self.encode(piece_of(arrays[0]), row)

    def finish(self, _stats: Stats) -> None:
        return None


@dataclass(frozen=True, slots=True)
class ByAppearance:
    """Codes that are numbered as their texts come, and brought into the order of the source at the end."""

    vocabulary: Vocabulary

    @property
    def names(self) -> list[Any]:
        """The texts by their codes."""
        return self.vocabulary.names

    def decode(self, arrays: Sequence[pa.Array], row: int, _place: str) -> tuple[NDArray[Any], Stats]:
        """See `Decoder`."""
        return self.vocabulary.encode(piece_of(arrays[0]), row)

    def finish(self, stats: Stats) -> Int32s | None:
        """See `Decoder`."""
        changed = self.vocabulary.renumbering()
        stats.high = self.vocabulary.highest
        stats.low = None if stats.high is None else 0
        return changed


def _plain(column: Column, _: Plain) -> Decoder:
    return _Uncoded(lambda arrays, place: values(arrays, column, place))


def _validity(column: Column, _: Validity) -> Decoder:
    return _Uncoded(lambda arrays, place: validity(arrays, column, place))


def _appearance(column: Column, _: Appearance) -> Decoder:
    fill, empty = (one if isinstance(one, str) else None for one in (column.fill, column.empty))
    return ByAppearance(Vocabulary(fill, empty))


def _given(column: Column, codec: Given) -> Decoder:
    fixed = FixedVocabulary(codec.vocabulary, column.fill)
    return _Fixed(fixed.encode, fixed.names)


def _hashed(_: Column, codec: Hashed) -> Decoder:
    return _Fixed(Buckets(codec.buckets).encode, None)


_DECODERS: dict[type, Callable[[Column, Any], Decoder]] = {
    Plain: _plain,
    Validity: _validity,
    Appearance: _appearance,
    Given: _given,
    Hashed: _hashed,
}


def decoder_of(column: Column) -> Decoder:
    """The decoder that the codec of a column asks for."""
    return _DECODERS[type(column.codec)](column, column.codec)
