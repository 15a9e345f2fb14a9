"""Text and integers as codes: in ascending order, by a given vocabulary, or hashed."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, repeat
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tensorstash.columns.arrays import filled, numbers, of_numbers, of_texts
from tensorstash.columns.hashing import digests
from tensorstash.columns.name_list import Names, Part, Texts
from tensorstash.columns.types import is_text
from tensorstash.common.dtypes import Bools, Int32s, Int64s
from tensorstash.common.forks import has_pool
from tensorstash.errors import DataError
from tensorstash.sources.storage import without_views

_HEAD = 1024  # rows, which tell whether those that follow are worth comparing
_LONG = 4  # rows of a run, on the average


@dataclass(frozen=True, slots=True)
class Piece:
    """Text, integers or bytes: `(n,)` indices into their distinct values, each of which occurs; -1 for null."""

    indices: NDArray[np.signedinteger[Any]]
    values: pa.Array  # without null


def piece_of(array: pa.Array) -> Piece:
    """The distinct values of an array of text, integers or bytes; an `ArrowInvalid` if a text is not UTF-8."""
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
    for upto in (_HEAD, rows):
        if rows < upto:
            return None
        starts = np.flatnonzero(np.append(True, differs(upto)))
        if len(starts) * _LONG > upto:
            return None
    return starts


def as_arrow(names: Sequence[Any]) -> pa.Array:
    """Texts or integers of Python as an Arrow array, as `Names.arrow` is of those in memory."""
    if not names or isinstance(names[0], str):
        return of_texts(names)
    return of_numbers(np.array(names, np.uint64 if max(names) > np.iinfo(np.int64).max else np.int64))


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

        in_table = pl.Series(texts, dtype=pl.String()).cast(self._type).to_physical().to_numpy().astype(np.int64)
        with self._lock:
            size = int(in_table.max(initial=-1)) + 1
            if size > len(self._codes):  # at least double it
                self._codes = np.append(self._codes, np.full(size, -1, np.int32))
            new = np.flatnonzero(self._codes[in_table] < 0)
            new = new[np.sort(np.unique(in_table[new], return_index=True)[1])]
            self._codes[in_table[new]] = np.arange(len(self), len(self) + len(new))
            self.names += texts.take(of_numbers(new)).to_pylist()
            return self._codes[in_table]


_BISECTED = 64  # names of which a dictionary is made in the time in which one is bisected
_MANY = 1 << 14  # names, from which a table of polars is faster, and worth the import


class Places:
    """The places of names among known ones. A few are bisected; a dictionary is made once that takes less time."""

    def __init__(self, known: Sequence[Any]) -> None:
        self._known, self._asked = known, 0

    def of(self, names: Sequence[Any]) -> Int64s:
        """`(names,)`; -1 for a name that is not known."""
        self._asked += len(names)
        known = self._known
        if isinstance(known, Names) and self._asked * len(known.ascending_parts) * _BISECTED < len(known):
            return np.fromiter(map(known.find, names), np.int64, len(names))
        return np.fromiter(map(self._places.get, names, repeat(-1)), np.int64, len(names))

    @cached_property
    def _places(self) -> dict[Any, int]:
        return dict(zip(self._known, count()))


def numbered(known: Names | None, names: Names) -> tuple[Int64s, Names]:
    """The numbers of distinct names, and all names: known ones keep their numbers, others follow in ascending order."""
    found = np.full(len(names), -1) if known is None else Places(known).of(names)
    new, first = np.flatnonzero(found < 0), 0 if known is None else len(known)
    if not len(new):
        return found, names if known is None else known
    columns = [column.take(of_numbers(new)) for column in names.arrow]
    order = _order(columns)
    found[new[order]] = first + np.arange(len(new))
    columns = [column.take(of_numbers(order)) for column in columns]
    columns = columns if known is None else [*map(_joined, known.arrow, columns)]
    return found, names_of(columns, are_tuples=names.are_tuples)


def _order(columns: Sequence[pa.Array]) -> Int64s:
    """The order in which tuples of these values ascend."""
    table = pa.table({str(k): column for k, column in enumerate(columns)})
    return numbers(pc.sort_indices(table, [(name, "ascending") for name in table.column_names])).astype(np.int64)


def _joined(known: pa.Array, new: pa.Array) -> pa.Array:
    if known.type != new.type:  # integers, of which some need all 64 bits
        names = [*known.to_pylist(), *new.to_pylist()]
        low, high = min(names), max(names)
        if low < 0 and high > np.iinfo(np.int64).max:
            raise DataError(
                f"Names are integers of 64 bits, with a sign or without; like= and the source have {low} and {high} "
                "together. Leave one of them out, or convert both to text."
            )
        return as_arrow(names)
    return pa.concat_arrays([known, new])


def names_of(columns: Iterable[pa.Array], *, are_tuples: bool = False) -> Names:
    """Names by the values of their columns, over the same memory."""
    return Names(tuple(map(_part, columns)), are_tuples)


def _part(column: pa.Array) -> Part:
    if not is_text(column.type):
        return numbers(column)
    _, bounds, letters = column.buffers()
    return Texts(np.frombuffer(letters, np.uint8), np.frombuffer(bounds, np.int64, len(column) + 1))


class Vocabulary:
    """The texts or integers that codes stand for. Threads bring pieces in any order; `renumbering` sorts the names."""

    def __init__(self, known: Names | None = None, fill: str | None = None, empty: str | None = None) -> None:
        """Names in `known` keep their codes. They, `fill` and `empty` have codes even if no row has them."""
        self.known = known
        self.missing = -1 if fill is None else 0  # the code of null: `fill` is the first name
        self._sorted: Names | None = None
        self._coder: _DictCoder | _PolarsCoder = _DictCoder(
            dict.fromkeys(name for name in (fill, empty) if name is not None)
        )
        self._first = len(self)  # later names come from rows
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._coder)

    def codes_of(self, values: pa.Array) -> Int32s:
        """The codes of distinct values, which `renumbering` changes."""
        with self._lock:
            many = is_text(values.type) and len(self) + len(values) > _MANY and has_pool()
            if isinstance(self._coder, _DictCoder) and many:
                self._coder = _PolarsCoder(self._coder.names)
            if isinstance(self._coder, _DictCoder):
                if len(self) > self._first:
                    return self._coder.codes(values)
                # The first values get ascending codes. Often there are no others, and no code has to be changed.
                order, codes = _order([values]), np.empty(len(values), np.int32)
                codes[order] = self._coder.codes(values.take(of_numbers(order)))
                return codes
        return self._coder.codes(values)

    def renumbering(self) -> Int32s | None:
        """The new code of each code, `(names + 1,)`, the last one for -1, so that codes ascend after the known ones.

        Afterwards `names` is in the new order, and nothing more is encoded. `None` if nothing changes.
        """
        codes, self._sorted = numbered(self.known, names_of([as_arrow(self._coder.names)]))
        return None if (codes == np.arange(len(codes))).all() else np.append(codes, -1).astype(np.int32)

    def names(self) -> Sequence[Any]:
        """All names in the order of their codes."""
        return self._coder.names if self._sorted is None else self._sorted


def encoded(array: pa.Array, codes_of: Callable[[pa.Array], Any], missing: int = -1) -> tuple[Int32s, int]:
    """The codes of rows, `(n,)`, by those of their distinct values, and the number of nulls, which have `missing`."""
    piece = piece_of(array)
    codes = np.append(np.asarray(codes_of(piece.values)).astype(np.int32), np.int32(missing))
    return codes[piece.indices], int(np.count_nonzero(piece.indices < 0))


def bucket_codes(values: pa.Array, buckets: int) -> NDArray[np.uint64]:
    """The hashes of distinct texts or integers modulo `buckets`."""
    return digests(values.cast(pa.large_string()).cast(pa.large_binary()).to_pylist()) % np.uint64(buckets)
