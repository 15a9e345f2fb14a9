"""Text and integers as codes: in ascending order, by a given vocabulary, or hashed."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tensorstash.columns.arrays import filled, numbers, of_numbers, of_texts
from tensorstash.columns.hashing import digests
from tensorstash.columns.types import is_text
from tensorstash.common.dtypes import Bools, Int32s, Int64s
from tensorstash.common.forks import has_pool
from tensorstash.sources.storage import without_views

_HEAD = 1024  # rows, which tell whether those that follow are worth comparing
_LONG = 4  # rows of a run, on the average


@dataclass(frozen=True, slots=True)
class Piece:
    """Text or integers: `(n,)` indices into their distinct values, each of which occurs; -1 for null."""

    indices: NDArray[np.signedinteger[Any]]
    values: pa.Array  # without null


def piece_of(array: pa.Array) -> Piece:
    """The distinct values of an array of text or integers; an `ArrowInvalid` if a text is not UTF-8."""
    if pa.types.is_string_view(array.type) and len(array) and not array.null_count:
        views = _views(array)
        if (starts := _long_runs(len(array), lambda rows: _differ(views[:rows]))) is not None:
            memory = [None, pa.py_buffer(views[starts]), *array.buffers()[2:]]
            return _repeated(pa.Array.from_buffers(array.type, len(starts), memory), starts, len(array))
    array = without_views(array)
    if not pa.types.is_dictionary(array.type) or array.dictionary.null_count:
        array = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
        starts = _long_runs(len(array), lambda rows: filled(pc.not_equal(array[1:rows], array[: rows - 1]), True))
        if starts is not None:
            return _repeated(array.take(of_numbers(starts)), starts, len(array))
        array = pc.dictionary_encode(array)
    indices = filled(array.indices.cast(pa.int32()), -1)
    occurs = np.zeros(len(array.dictionary) + 1, np.bool_)
    occurs[indices] = True  # the last item is for null
    used, values = np.flatnonzero(occurs[:-1]), array.dictionary
    if len(used) < len(values):
        compact = np.full(len(occurs), -1, np.int32)
        compact[used] = np.arange(len(used), dtype=np.int32)
        indices, values = compact[indices], values.take(of_numbers(used))
    values.validate(full=True)  # polars trusts that texts are UTF-8
    return Piece(indices, values)


def _repeated(firsts: pa.Array, starts: Int64s, rows: int) -> Piece:
    """The piece of rows in runs, by the first values of the runs."""
    piece = piece_of(firsts)
    return Piece(np.repeat(piece.indices, np.append(starts[1:], rows) - starts), piece.values)


def _views(texts: pa.Array) -> Int64s:
    """`(n, 2)`, the views of texts: equal ones are of equal texts, but longer texts may be stored more than once."""
    end = texts.offset + len(texts)
    return np.frombuffer(texts.buffers()[1], np.int64, 2 * end).reshape(-1, 2)[texts.offset :]


def _differ(views: Int64s) -> Bools:
    return (views[1:, 0] != views[:-1, 0]) | (views[1:, 1] != views[:-1, 1])


def _long_runs(rows: int, differs: Callable[[int], Bools]) -> Int64s | None:
    """Where runs of equal neighbours begin; `None` if they are short, so that only all values tell which are distinct.

    Most sources are grouped by entity, and to compare neighbours takes a tenth of the time of looking all texts up.
    `differs(k)` compares the first k rows with the ones that follow them.
    """
    starts: Int64s = np.zeros(0, np.int64)
    for upto in (_HEAD, rows):
        if rows < upto:
            return None
        starts = np.flatnonzero(np.append(True, differs(upto)))
        if len(starts) * _LONG > upto:
            return None
    return starts


def as_arrow(names: Sequence[Any]) -> pa.Array:
    """Texts or integers as an Arrow array, with 64-bit offsets or integers."""
    if names and isinstance(names[0], str):
        return of_texts(names)
    large = max(names, default=0) > np.iinfo(np.int64).max
    return of_numbers(np.array(names, np.uint64 if large else np.int64))


def ascending(names: pa.Array) -> Int64s:
    """The order in which texts ascend by their code points, or integers by their size."""
    return numbers(pc.array_sort_indices(names)).astype(np.int64)


def inverse(order: Int64s) -> Int64s:
    """The inverse of a permutation."""
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    return places


class _DictCoder:
    """Codes from a dictionary, for integers and small vocabularies; a look-up holds the interpreter's lock."""

    def __init__(self, names: Iterable[Any]) -> None:
        self._codes: defaultdict[Any, int] = defaultdict(None, zip(names, count()))
        self._codes.default_factory = self._codes.__len__  # a new name has the next code, without running Python code

    def __len__(self) -> int:
        return len(self._codes)

    @property
    def names(self) -> list[Any]:
        return [*self._codes]

    def codes(self, values: pa.Array) -> Int32s:
        """`(values,)`; new values get the next codes, in their order."""
        return np.fromiter(map(self._codes.__getitem__, values.to_pylist()), np.int32, len(values))


class _PolarsCoder:
    """Codes from a table of polars, for large vocabularies; several threads look texts up at the same time."""

    def __init__(self, names: Iterable[str]) -> None:
        import polars as pl  # here, because it is slow to import

        self._type = pl.Categorical(pl.Categories.random())
        self._kept = pl.Series([], dtype=self._type)  # the table lives as long as a series of its type
        self._codes: Int32s = np.zeros(0, np.int32)  # by the numbers of the table; -1 for a text without a code
        self._lock = Lock()
        self.names: list[str] = []
        self.codes(of_texts([*names]))

    def __len__(self) -> int:
        return len(self.names)

    def codes(self, texts: pa.Array) -> Int32s:
        """As `_DictCoder.codes`; a dictionary may have a text twice."""
        import polars as pl

        numbers = pl.Series(texts, dtype=pl.String()).cast(self._type).to_physical().to_numpy().astype(np.int64)
        with self._lock:
            size = int(numbers.max(initial=-1)) + 1
            if size > len(self._codes):  # at least double it
                self._codes = np.append(self._codes, np.full(size, -1, np.int32))
            new = np.flatnonzero(self._codes[numbers] < 0)
            new = new[np.sort(np.unique(numbers[new], return_index=True)[1])]
            self._codes[numbers[new]] = np.arange(len(self), len(self) + len(new))
            self.names += texts.take(of_numbers(new)).to_pylist()
            return self._codes[numbers]


_MANY = 1 << 14  # names, from which a table of polars is faster, and worth the import


class Vocabulary:
    """The texts or integers that codes stand for. Threads bring pieces in any order; `renumbering` sorts the names."""

    def __init__(self, known: Sequence[Any] = (), fill: str | None = None, empty: str | None = None) -> None:
        """Names in `known` keep their codes. They, `fill` and `empty` have codes even if no row has them."""
        self.fill = fill
        self._known = len(known)
        others = dict.fromkeys(name for name in (fill, empty) if name is not None)
        self._coder: _DictCoder | _PolarsCoder = _DictCoder(dict.fromkeys((*known, *others)))
        self._first = len(self)  # later names come from rows
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._coder)

    def encode(self, piece: Piece) -> tuple[Int32s, int]:
        """`(n,)` codes, to be changed by `renumbering`, with -1 for null; and the number of nulls."""
        codes, nulls = _by_value(piece, self._codes_of(piece.values))
        if nulls and self.fill is not None:
            (code,) = self._codes_of(of_texts([self.fill]))
            codes = np.where(codes < 0, code, codes)
        return codes, nulls

    def _codes_of(self, values: pa.Array) -> Int32s:
        with self._lock:
            many = is_text(values.type) and len(self) + len(values) > _MANY and has_pool()
            if isinstance(self._coder, _DictCoder) and many:
                self._coder = _PolarsCoder(self._coder.names)
            if isinstance(self._coder, _DictCoder):
                return self._by_dict(self._coder, values)
        return self._coder.codes(values)

    def _by_dict(self, coder: _DictCoder, values: pa.Array) -> Int32s:
        if len(self) > self._first:
            return coder.codes(values)
        # The first values get ascending codes. Often there are no others, and no code has to be changed.
        order = ascending(values)
        return coder.codes(values.take(of_numbers(order)))[inverse(order)]

    def renumbering(self) -> Int32s | None:
        """The new code of each code, `(names + 1,)`, the last one for -1, so that codes ascend after the known ones.

        Afterwards `names` is in the new order. `None` if nothing changes.
        """
        names = self._coder.names
        order = np.append(np.arange(self._known), self._known + ascending(as_arrow(names[self._known :])))
        if (order[1:] > order[:-1]).all():
            return None
        changed = np.append(inverse(order), -1).astype(np.int32)
        self._coder = _DictCoder(map(names.__getitem__, order.tolist()))
        return changed

    @property
    def names(self) -> list[Any]:
        """All names in the order of their codes."""
        return self._coder.names


def given_codes(piece: Piece, code_of: Mapping[Any, int], fill: object) -> tuple[Int32s, int]:
    """`(n,)` codes of a given vocabulary, and the number of nulls.

    An unknown value has the code `len(code_of)`, null that of `fill`, or -1.
    """
    codes, nulls = _by_value(piece, [code_of.get(value, len(code_of)) for value in piece.values.to_pylist()])
    codes[codes < 0] = code_of.get(fill, -1)
    return codes, nulls


def bucket_codes(piece: Piece, buckets: int) -> tuple[Int32s, int]:
    """`(n,)` hashes modulo `buckets`, with -1 for null, and the number of nulls. Each distinct value is hashed once."""
    texts = piece.values if is_text(piece.values.type) else piece.values.cast(pa.string())
    return _by_value(piece, digests(texts.cast(pa.large_binary()).to_pylist()) % np.uint64(buckets))


def _by_value(piece: Piece, codes: Any) -> tuple[Int32s, int]:
    """The codes of the rows by those of the distinct values, with -1 for null, and the number of nulls."""
    by_row = np.append(np.array(codes, np.int32), np.int32(-1))[piece.indices]
    return by_row, int(np.count_nonzero(by_row < 0))
