"""Text and integers as codes: by order of appearance, by a given vocabulary, or hashed."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tensorstash.columns.types import is_text
from tensorstash.common.dtypes import Int32s, Int64s
from tensorstash.common.forks import has_pool
from tensorstash.ingest.stats import Stats
from tensorstash.native.blake2b import digests


@dataclass(frozen=True, slots=True)
class Piece:
    """Text or integers: `(n,)` indices into their distinct values, which are in order of appearance; -1 for null."""

    indices: NDArray[np.signedinteger[Any]]
    values: pa.Array  # without null
    firsts: Int64s  # where in the piece each of them appears first

    @property
    def names(self) -> list[Any]:
        """The values as Python has them."""
        return self.values.to_pylist()


def piece_of(array: pa.Array) -> Piece:
    """The distinct values of an array of text or integers, and the index of the value in each row."""
    array = plain_text(array)
    if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
        array = array.dictionary_decode()
    is_ordered = not pa.types.is_dictionary(array.type)  # what Arrow encodes is in order of appearance
    if is_ordered:
        array = pc.dictionary_encode(array)
    places = _int32(array.indices)
    firsts = np.full(len(array.dictionary) + 1, len(places))
    firsts[places[::-1]] = np.arange(len(places) - 1, -1, -1)  # the last that is written stays; -1 finds the last
    if is_ordered:
        return Piece(places, array.dictionary, firsts[:-1])
    used = np.flatnonzero(firsts[:-1] < len(places))
    used = used[np.argsort(firsts[used])]
    if np.array_equal(used, np.arange(len(array.dictionary))):
        return Piece(places, array.dictionary, firsts[:-1])
    compact = np.full(len(firsts), -1, np.int32)
    compact[used] = np.arange(len(used), dtype=np.int32)
    return Piece(compact[places], array.dictionary.take(pa.array(used)), firsts[used])


_NUMBER = re.compile(r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LOOKED_AT = 10_000  # distinct texts
_FEWEST = 10


def reads_as_numbers(texts: Sequence[str]) -> bool:
    """Whether nine of ten distinct texts are numbers. Fewer than ten texts are labels, and so are texts like "007"."""
    some = texts[:_LOOKED_AT]
    return len(some) >= _FEWEST and sum(_NUMBER.fullmatch(text.strip()) is not None for text in some) >= 0.9 * len(some)


class _Few:
    """The codes of integers, or of few texts, by a dictionary, which needs the interpreter's lock."""

    def __init__(self, names: Iterable[Any]) -> None:
        self._codes: defaultdict[Any, int] = defaultdict(None, zip(names, count()))
        self._codes.default_factory = self._codes.__len__  # a new name has the next code, without a step of Python

    def __len__(self) -> int:
        return len(self._codes)

    @property
    def names(self) -> list[Any]:
        return [*self._codes]

    def codes(self, values: pa.Array) -> Int32s:
        """`(values,)`; new values get the next codes, in their order."""
        return np.fromiter(map(self._codes.__getitem__, values.to_pylist()), np.int32, len(values))


class _Many:
    """The codes of many texts, by a table of polars, in which several threads look texts up at the same time."""

    def __init__(self, names: Iterable[str]) -> None:
        import polars as pl  # here, because it is slow to import

        self._texts, self._type = pl.String(), pl.Categorical(pl.Categories.random())
        self._kept = pl.Series([], dtype=self._type)  # the table lives as long as a series of its type
        self._codes: Int32s = np.zeros(0, np.int32)  # by the numbers of the table; -1 for a text without a code
        self._lock = Lock()
        self.names: list[str] = []
        self.codes(pa.array(names, pa.large_string()))

    def __len__(self) -> int:
        return len(self.names)

    def codes(self, texts: pa.Array) -> Int32s:
        """As `_Few.codes`; a dictionary may have a text twice."""
        numbers = self._numbers(texts)
        with self._lock:
            self._codes = _longer(self._codes, int(numbers.max(initial=-1)) + 1, -1)
            new = np.flatnonzero(self._codes[numbers] < 0)
            new = new[np.sort(np.unique(numbers[new], return_index=True)[1])]
            self._codes[numbers[new]] = np.arange(len(self), len(self) + len(new))
            self.names += texts.take(pa.array(new)).to_pylist()
            return self._codes[numbers]

    def _numbers(self, texts: pa.Array) -> Int64s:
        import polars as pl

        numbers = pl.Series(texts, dtype=self._texts).cast(self._type).to_physical()
        return numbers.to_numpy().astype(np.int64)


_MANY = 1 << 14  # names, from which a table of polars is faster, and worth the import


class Vocabulary:
    """The texts or integers that codes stand for. Threads bring pieces in any order; `renumbering` orders the names."""

    def __init__(self, fill: str | None = None, empty: str | None = None) -> None:
        """`fill` is the name for nulls; `empty` is the name for slots without a row. Both get codes."""
        self.fill = fill
        self.empty = empty
        self._coder: _Few | _Many = _Few(())
        self._rows: Int64s = np.zeros(0, np.int64)  # in which row of the source each name appears first, by codes
        self._lock = Lock()

    def __len__(self) -> int:
        """How many names rows have."""
        return len(self._coder)

    def encode(self, piece: Piece, start: int) -> tuple[Int32s, Stats]:
        """Codes for the rows `start, start + 1, ...`, in order of appearance among the pieces so far; -1 for null."""
        local = self._codes_of(piece.values, start + piece.firsts)
        same = np.array_equal(local, np.arange(len(local)))
        codes = piece.indices.astype(np.int32, copy=False) if same else np.append(local, np.int32(-1))[piece.indices]
        nulls = int(np.count_nonzero(codes < 0))
        if nulls and self.fill is not None:
            empty = codes < 0
            code = self._codes_of(pa.array([self.fill]), np.array([start + int(empty.argmax())]))
            return np.where(empty, code, codes), Stats(nulls)
        return codes, Stats(nulls, nulls)

    def _codes_of(self, values: pa.Array, rows: Int64s) -> Int32s:
        """`(values,)`, the codes of values that occur in these rows."""
        values.validate(full=True)  # polars trusts that texts are UTF-8
        with self._lock:
            many = is_text(values.type) and len(self) + len(values) > _MANY and has_pool()
            if isinstance(self._coder, _Few) and many:
                self._coder = _Many(self._coder.names)
            codes = self._coder.codes(values) if isinstance(self._coder, _Few) else None
        if codes is None:
            codes = self._coder.codes(values)
        with self._lock:
            self._rows = _longer(self._rows, len(self), np.iinfo(np.int64).max)
            np.minimum.at(self._rows, codes, rows)
        return codes

    def renumbering(self) -> Int32s | None:
        """The new code of each code, `(names + 1,)`, the last one for -1, so that codes follow the order of the source.

        Afterwards `names` is in the new order. `None` if nothing changes.
        """
        rows = self._rows[: len(self)]
        if (rows[1:] > rows[:-1]).all():
            return None
        order = np.argsort(rows)
        changed = np.full(len(order) + 1, -1, np.int32)
        changed[order] = np.arange(len(order), dtype=np.int32)
        self._coder, self._rows = _Few(map(self._coder.names.__getitem__, order.tolist())), rows[order]
        return changed

    @property
    def names(self) -> list[Any]:
        """All names in the order of their codes, including fill and empty, even if nothing was missing."""
        names = self._coder.names
        others = dict.fromkeys(name for name in (self.fill, self.empty) if name is not None)
        return [*names, *(name for name in others if name not in names)]

    @property
    def highest(self) -> int | None:
        """The highest code that some row has; the lowest is 0."""
        return len(self) - 1 if len(self) else None


def _longer(array: NDArray[Any], size: int, value: int) -> NDArray[Any]:
    """The array with room for so many items, at least doubled if it grows; `value` stands in the new ones."""
    return array if size <= len(array) else np.append(array, np.full(size, value, array.dtype))


def count_codes(codes: Int32s) -> Stats:
    """The statistics of codes: the number of -1, and the minimum and maximum of the others."""
    known = codes[codes >= 0]
    missing = len(codes) - len(known)
    low, high = (int(known.min()), int(known.max())) if len(known) else (None, None)
    return Stats(missing, missing, low=low, high=high)


def plain_text(array: pa.Array) -> pa.Array:
    """The same values without string views, which few kernels of Arrow support."""
    if pa.types.is_dictionary(array.type) and pa.types.is_string_view(array.type.value_type):
        return pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(pa.large_string()))
    return array.cast(pa.large_string()) if pa.types.is_string_view(array.type) else array


def _int32(array: pa.Array) -> Int32s:
    filled = pc.fill_null(array.cast(pa.int32()), -1)
    return np.asarray(filled.to_numpy(zero_copy_only=False))


class FixedVocabulary:
    """Value k has code k. All unknown values have the code after the last."""

    def __init__(self, values: Sequence[str] | Sequence[int], fill: object) -> None:
        """`fill` is the value that null gets, or `None`."""
        self.names = [*values]
        self._codes: dict[object, int] = {value: code for code, value in enumerate(values)}
        self._null = self._codes.get(fill, -1)

    def encode(self, piece: Piece, _: int) -> tuple[Int32s, Stats]:
        """Codes, `(n,)`; -1 for null if there is no fill."""
        other = len(self.names)
        each = [self._codes.get(name, other) for name in piece.names]
        codes = np.array([*each, -1], np.int32)[piece.indices]
        nulls = int(np.count_nonzero(codes < 0))
        if nulls and self._null >= 0:
            codes[codes < 0] = self._null
        stats = count_codes(codes)
        stats.nulls, stats.unknown = nulls, int(np.count_nonzero(codes == other))
        return codes, stats


class Buckets:
    """The buckets of values. Each distinct value of a piece is hashed once, and no table of values is kept."""

    def __init__(self, count: int) -> None:
        self._count = count

    def encode(self, piece: Piece, _: int) -> tuple[Int32s, Stats]:
        """Codes, `(n,)`; -1 for null."""
        texts = piece.values if is_text(piece.values.type) else piece.values.cast(pa.string())
        each = np.full(len(texts) + 1, -1, np.int32)
        each[:-1] = digests(*_as_bytes(texts)) % np.uint64(self._count)
        codes = each[piece.indices]
        return codes, count_codes(codes)


def _as_bytes(texts: pa.Array) -> tuple[NDArray[np.uint8], Int64s]:
    """The bytes of texts without nulls, and where each text begins in them, `(texts + 1,)`."""
    wide = texts.cast(pa.large_binary())
    _, offsets, data = wide.buffers()
    begins = np.frombuffer(offsets or b"\0" * 8, np.int64)[wide.offset : wide.offset + len(wide) + 1]
    return np.frombuffer(data or b"", np.uint8), begins
