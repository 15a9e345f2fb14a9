"""Cutting a source: each block of its rows becomes a piece for each shard, an Arrow stream of what a load will read."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from tensorstash.columns.codec import Appearance
from tensorstash.columns.resolve import entity_columns
from tensorstash.columns.sharding import shard_of
from tensorstash.common.dtypes import Int64s
from tensorstash.ingest.codes import piece_of
from tensorstash.ingest.plan import Plan
from tensorstash.ingest.sharding import entities_of_rows
from tensorstash.sources.scan import BATCH_ROWS, Scan, Unit, damage_named, read
from tensorstash.sources.streams import decoded, encoded, kept_type
from tensorstash.sources.views import without_views

_BLOCK_BYTES = 64_000_000  # of the columns of a block, about: several blocks are in memory at a time
_SHORT = 256  # rows of one shard in a row: shorter stretches are sorted by shard
_ROW = "__tensorstash.row"  # in a piece: the number of each row in the source

Places = tuple[tuple[int, str], ...]  # units of a source: the number of the first row, and the place, for messages


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is cut out of a source, and how."""

    label: str
    schema: pa.Schema  # of the columns that a load reads
    entity: str | tuple[str, ...]
    texts: tuple[str, ...]  # the columns whose vocabulary is counted
    shards: int
    wanted: frozenset[int]  # the shards that are not there yet

    @property
    def names(self) -> list[str]:
        """The columns that a load reads."""
        return [*self.schema.names]

    @property
    def piece_schema(self) -> pa.Schema:
        """The columns of a piece."""
        kept = [field.with_type(kept_type(field.type)) for field in self.schema]
        return pa.schema([*kept, pa.field(_ROW, pa.int64())])


@dataclass(frozen=True, slots=True)
class Cut:
    """A block of rows, cut: what was found in it, and the rows of each shard."""

    rows: int
    counts: Mapping[Any, int]  # the rows of each entity, in order of first appearance
    words: Mapping[str, tuple[str | None, ...]]  # the values of each text column, in order of first appearance
    places: Places
    pieces: Mapping[int, tuple[int, Any]]  # by shard: the number of rows, and what was kept of them


@dataclass(frozen=True, slots=True)
class Piece:
    """The rows that a block has of one shard."""

    rows: int
    places: Places
    stream: Any  # a buffer with an Arrow stream of one batch


def recipe_of(scanned: Scan, planned: Plan, shards: int, wanted: frozenset[int]) -> Recipe:
    """The recipe for a source, by its plan."""
    assert planned.entity is not None
    keys = [column for column in (planned.entity, planned.time) if column]
    members = [member for column in (*planned.columns, *planned.static, *keys) for member in column.members]
    texts = [c.members[0] for c in (*planned.columns, *planned.static) if c.codec == Appearance()]
    schema = pa.schema([scanned.schema.field(name) for name in dict.fromkeys(members)])
    entity = planned.entity.members if planned.entity.shape else planned.entity.members[0]
    return Recipe(scanned.label, schema, entity, tuple(dict.fromkeys(texts)), shards, wanted)


def blocks_of(scanned: Scan, planned: Plan) -> list[Scan]:
    """The scan in blocks of whole units, several to a block where they are small."""
    keys = [column for column in (planned.entity, planned.time) if column]
    row_bytes = sum(column.row_bytes for column in (*planned.columns, *planned.static, *keys))
    blocks: list[list[Unit]] = []
    size = _BLOCK_BYTES
    for unit in scanned.units:
        if size >= _BLOCK_BYTES:
            blocks.append([])
            size = 0
        blocks[-1].append(unit)
        size += unit.rows * row_bytes
    return [Scan(scanned.label, scanned.schema, tuple(block), len(block)) for block in blocks]


def cut(recipe: Recipe, block: Scan, keep: Callable[[pa.RecordBatch], Any]) -> Cut:
    """Read a block of a source, and cut it; `keep` is given the rows of one shard after another."""
    counts: dict[Any, int] = {}
    shard_by_name: dict[Any, int] = {}  # many batches have the same entities
    words: dict[str, dict[str | None, None]] = {name: {} for name in recipe.texts}
    waiting: dict[int, list[pa.RecordBatch]] = {}
    for unit in block.units:
        numbers = _numbers(unit)
        with damage_named(unit, recipe.names):
            for row, batch in read(unit, recipe.names):
                for name in recipe.texts:
                    words[name].update(dict.fromkeys(words_of(batch.column(recipe.names.index(name)))))
                keys = [batch.column(recipe.names.index(name)) for name in entity_columns(recipe.entity)]
                names, places = entities_of_rows(block, recipe.entity, keys, row)
                for name, count in zip(names, np.bincount(places, minlength=len(names)).tolist()):
                    counts[name] = counts.get(name, 0) + count
                new = [name for name in names if name not in shard_by_name]
                shard_by_name.update(zip(new, shard_of(new, recipe.shards).tolist()))
                shards = np.fromiter(map(shard_by_name.__getitem__, names), np.int64, len(names))[places]
                at = row - unit.start
                for shard, rows in _by_shard(batch, shards, numbers[at : at + batch.num_rows], recipe):
                    waiting.setdefault(shard, []).append(rows)
    pieces = {}
    for shard in [*waiting]:
        rows = encoded(pa.Table.from_batches(waiting.pop(shard)), recipe.piece_schema)
        pieces[shard] = rows.num_rows, keep(rows)
    vocabularies = {name: tuple(values) for name, values in words.items()}
    return Cut(block.rows, counts, vocabularies, _places(block), pieces)


def _numbers(unit: Unit) -> Int64s:
    """The number of each row of a unit in the source."""
    at = np.arange(unit.rows) if unit.kept is None else np.flatnonzero(np.unpackbits(unit.kept))[: unit.rows]
    return unit.first + at


def _places(block: Scan) -> Places:
    return tuple((unit.first, unit.place) for unit in block.units)


def words_of(array: pa.Array) -> list[str | None]:
    """The distinct values of a text column, in order of first appearance; `None` stands where the first null is."""
    piece = piece_of(array)
    missing = piece.indices < 0
    names = [*piece.names]
    if missing.any():
        names.insert(int(np.searchsorted(piece.firsts, missing.argmax())), None)
    return names


def _by_shard(
    batch: pa.RecordBatch, shards: Int64s, numbers: Int64s, recipe: Recipe
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of a batch by shard, those of each shard in their order, in one or more stretches."""
    plain = pa.RecordBatch.from_arrays([*map(without_views, batch.columns)], names=recipe.names)
    whole = decoded(plain, plain.schema).append_column(_ROW, pa.array(numbers))
    starts = _starts(shards)
    if len(starts) * _SHORT > len(shards):  # long stretches need no copy
        order = np.argsort(shards.astype(np.uint16), kind="stable")
        whole, shards = whole.take(pa.array(order)), shards[order]
        starts = _starts(shards)
    for start, stop in pairwise([*starts.tolist(), len(shards)]):
        if (shard := int(shards[start])) in recipe.wanted:
            yield shard, whole.slice(start, stop - start)


def _starts(shards: Int64s) -> Int64s:
    """Where stretches of rows of one shard begin."""
    return np.flatnonzero(np.diff(shards, prepend=-1))


def write_stream(batch: pa.RecordBatch, sink: Any) -> None:
    """Write a piece as an Arrow stream to a file or sink of Arrow."""
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)


# Together again


def rejoined(recipe: Recipe, pieces: Sequence[Piece]) -> Scan:
    """The pieces of one shard, in the order of the source, as a scan. Rows are named as in the source."""
    units, start = [], 0
    for piece in pieces:
        name = partial(_name, piece, recipe.label)
        unit = Unit(recipe.label, start, piece.rows, partial(_read, piece), start)
        units.append(replace(unit, name=name))
        start += piece.rows
    schema = pa.schema([*recipe.piece_schema][:-1])
    return Scan(recipe.label, schema, tuple(units), len(units))


def _read(piece: Piece, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    batch = pa.ipc.open_stream(piece.stream).read_next_batch().select(list(names))
    return (batch.slice(start, BATCH_ROWS) for start in range(0, piece.rows, BATCH_ROWS))


def _name(piece: Piece, label: str, at: int) -> str:
    """A row of a piece for messages."""
    numbers = pa.ipc.open_stream(piece.stream).read_next_batch().column(_ROW)
    number = numbers[at].as_py()
    place = piece.places[bisect_right([first for first, _ in piece.places], number) - 1][1]
    return f"{number:,}" if place == label else f"{number:,} ({place})"
