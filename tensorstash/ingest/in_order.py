"""The rows of a source in the order of the stash, in blocks of whole entities.

Rows that come in this order are streamed. Others are sorted on disk: while the source is read, each row goes to the
block that it belongs to, in an unnamed temporary file; a block is then read as a whole and put in order in memory.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock

import numpy as np
import pyarrow as pa

from tensorstash.columns.types import is_text
from tensorstash.common.dtypes import Int64s
from tensorstash.common.threads import in_threads
from tensorstash.errors import SchemaError
from tensorstash.ingest.memory import temporary_file
from tensorstash.ingest.row_order import Arranger
from tensorstash.sources.scan import Scan, Unit, read
from tensorstash.sources.spool import Spool
from tensorstash.sources.views import is_view, without_views

_BLOCK = 1 << 18  # rows, if no entity has more
_MOST_BLOCKS = 512  # each batch is cut into as many pieces, and small ones are slow


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive rows of the stash, which are all rows of their entities."""

    start: int
    stop: int
    columns: tuple[pa.Array, ...]  # without dictionaries and views of texts


Blocks = Callable[[], Iterator[Block]]


def blocks_in_order(scanned: Scan, names: Sequence[str], arranger: Arranger, temporary: int) -> list[Blocks]:
    """The blocks of some columns, as jobs that each yield some of the blocks.

    If rows have to be sorted, they are read here, into a file that takes at least `temporary` bytes.
    """
    borders = _borders(arranger.offsets, scanned.rows)
    if not names:
        return [lambda: (Block(start, stop, ()) for start, stop in zip(borders.tolist(), borders[1:].tolist()))]
    if arranger.arranged:
        return [partial(_streamed, scanned, names, borders, first) for first in range(len(scanned.units))]
    _check_sortable(scanned, names)
    file = _Sorted(temporary_file(temporary), borders)
    for _ in in_threads(scanned.units, partial(_sort, file, names, arranger)):
        pass
    return [partial(file.block, number) for number in range(len(borders) - 1)]


def _borders(offsets: Int64s, rows: int) -> Int64s:
    """The first row of each block, and the number of rows, `(blocks + 1,)`: some of the offsets of the entities."""
    marks = np.arange(0, rows, max(_BLOCK, rows // _MOST_BLOCKS))
    return np.unique(np.append(offsets[np.searchsorted(offsets, marks)], rows))


def _streamed(scanned: Scan, names: Sequence[str], borders: Int64s, first: int) -> Iterator[Block]:
    """The blocks that begin in a unit of a source whose rows are in order; the last may end in a later unit."""
    unit = scanned.units[first]
    at, end = np.searchsorted(borders[:-1], (unit.start, unit.start + unit.rows)).tolist()
    taken, pieces = int(borders[at]), list[pa.RecordBatch]()
    for later in scanned.units[first:] if at < end else ():
        for row, batch in read(later, names):
            while at < end and taken < row + batch.num_rows:
                upto = min(row + batch.num_rows, int(borders[at + 1]))
                pieces.append(batch.slice(taken - row, upto - taken))
                taken = upto
                if taken == borders[at + 1]:
                    columns = _joined(pieces)
                    pieces = []  # not held while the block is used
                    yield Block(int(borders[at]), taken, columns)
                    del columns
                    at += 1
            if at == end:
                return


def _joined(pieces: Sequence[pa.RecordBatch]) -> tuple[pa.Array, ...]:
    return tuple(pa.concat_arrays([*map(_plain, arrays)]) for arrays in zip(*(piece.columns for piece in pieces)))


def _plain(array: pa.Array) -> pa.Array:
    """The same values without dictionaries and views, and texts with offsets that suffice for all of a block."""
    array = without_views(array)
    array = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    return array.cast(pa.large_string()) if is_text(array.type) else array


def _check_sortable(scanned: Scan, names: Sequence[str]) -> None:
    """Refuse types that Arrow cannot put in another order."""
    for name in names:
        arrow = scanned.schema.field(name).type
        if pa.types.is_nested(arrow) and _holds_indirect(arrow):
            raise SchemaError(
                f"ts.per_entity sorts rows that are not grouped by entity and ordered by time, and Arrow cannot sort "
                f"lists and structs of dictionaries and views; column {name!r} of {scanned.label} is {arrow}. Sort the "
                "source, or cast the column."
            )


def _holds_indirect(arrow: pa.DataType) -> bool:
    inside = [arrow.field(index).type for index in range(arrow.num_fields)] if pa.types.is_nested(arrow) else []
    return is_view(arrow) or bool(pa.types.is_dictionary(arrow)) or any(map(_holds_indirect, inside))


class _Sorted:
    """Batches in a file, each cut into one piece per block: its columns, and the places of its rows in the stash."""

    def __init__(self, spool: Spool, borders: Int64s) -> None:
        self.borders = borders
        self._spool = spool
        self._pieces: list[Int64s] = []  # of each batch: where in the file the piece of each block begins, and the end
        self._schema: pa.Schema | None = None
        self._whole: pa.Buffer | None = None
        self._lock = Lock()

    def add(self, columns: Sequence[pa.Array], places: Int64s) -> None:
        """Take the rows of a batch."""
        numbers = np.searchsorted(self.borders, places, "right") - 1
        order = np.argsort(numbers.astype(np.uint16), kind="stable")
        names = [str(number) for number in range(len(columns) + 1)]
        batch = pa.RecordBatch.from_arrays([*columns, pa.array(places)], names=names).take(pa.array(order))
        counts = np.bincount(numbers, minlength=len(self.borders) - 1).tolist()
        ends = np.cumsum(counts).tolist()
        pieces = [batch.slice(end - rows, rows).serialize() if rows else b"" for end, rows in zip(ends, counts)]
        sizes = [memoryview(piece).nbytes for piece in pieces]
        with self._lock:
            self._schema = batch.schema
            self._pieces.append(self._spool.size + np.cumsum([0, *sizes]))
            for piece in pieces:
                self._spool.append(piece)

    def block(self, number: int) -> Iterator[Block]:
        """One block, its rows in order."""
        with self._lock:
            self._whole = self._spool.mapped() if self._whole is None else self._whole
        found = [
            pa.ipc.read_record_batch(
                self._whole.slice(starts[number], starts[number + 1] - starts[number]), self._schema
            )
            for starts in self._pieces
            if starts[number] < starts[number + 1]
        ]
        *columns, places = (pa.concat_arrays([*arrays]) for arrays in zip(*(piece.columns for piece in found)))
        start, stop = self.borders[number : number + 2].tolist()
        rows = np.empty(stop - start, np.int64)  # for each place, the row that goes there
        rows[places.to_numpy() - start] = np.arange(stop - start)
        del found, places
        order = pa.array(rows)
        yield Block(start, stop, tuple(column.take(order) for column in columns))


def _sort(file: _Sorted, names: Sequence[str], arranger: Arranger, unit: Unit, go_on: Callable[[], None]) -> None:
    for row, batch in read(unit, names):
        go_on()
        file.add([*map(_plain, batch.columns)], arranger.places(row, row + batch.num_rows))
