"""Decoding a source into a segment: the keys first, the order of the rows, then the columns into place."""

import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from threading import RLock
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from tqdm.auto import tqdm

from tensorstash.arrange import arranged, duplicate_time, first_duplicate, is_arranged, null_key
from tensorstash.decode import Stats, Vocabulary, indices, values
from tensorstash.errors import SourceError
from tensorstash.plan import Plan, check_sorting, check_static
from tensorstash.schema import Column
from tensorstash.segment import Draft
from tensorstash.stash import texts
from tensorstash.static import Constant
from tensorstash.units import Scan, Unit

_MOST_THREADS = 8

Put = Callable[[Column, int, NDArray[Any]], None]  # column, its first row in the source, values


@dataclass(slots=True)
class Codes:
    """A piece of a category column whose names have not met the vocabulary yet."""

    column: Column
    start: int
    indices: NDArray[np.int32]
    dictionary: pa.Array


def draft(planned: Plan, fd: int | None) -> Draft:
    """A segment as a plan lays it out, in the file behind `fd`, or with `None` in an unnamed one of its own."""
    tensors = [(column.name, column.dtype, (planned.rows, *column.shape)) for column in planned.stored]
    return Draft(tensors, _header_bytes(planned), fd)


def ingest(
    scanned: Scan, planned: Plan, draft: Draft, progress: bool | None, report: Callable[[float], None]
) -> dict[str, Any]:
    """Write all tensors of a segment; its metadata. `report` is told the fraction of the values that are done."""
    read = [*planned.columns, *planned.static, *_keys(planned)]
    total = planned.rows * sum(len(column.members) for column in read)
    with _Bar(total=total, unit=" values", unit_scale=True, disable=None if progress is None else not progress) as bar:
        done = 0

        def advance(values: int) -> None:
            nonlocal done
            done += values
            bar.update(values)
            report(done / max(total, 1))

        keys = _read_keys(scanned, planned, draft, advance)
        places = _arrange(keys, scanned, planned, draft)
        constants = _constants(keys, planned)
        put = _placer(draft, places, constants)
        stats, vocabularies = _decode(scanned, (*planned.columns, *planned.static), put, advance)
    for name, vocabulary in vocabularies.items():
        _write_texts(draft, f"{name}.__vocabulary", vocabulary.names)
    for name, held in constants.items():
        held.check(scanned, keys.names, vocabularies[name].names if name in vocabularies else [])
        draft.blob(name, held.values, held.column.dtype)
        stats[name].missing = held.missing
    return _metadata(planned, stats, keys)


def _header_bytes(planned: Plan) -> int:
    """Room for a header that is not known yet: each name stands in it up to eight times, escaped up to twice."""
    named = [*planned.stored, *planned.static]
    names = [json.dumps(name) for column in named for name in (column.name, *column.members)]
    return 16_384 + 1024 * len(named) + 16 * sum(map(len, names))


class _Bar(tqdm):  # type: ignore[misc]
    """A bar without the thread that watches bars: a load leaves nothing running."""

    monitor_interval = 0
    # tqdm's own lock is shared with forked processes, and locked for ever when one of them is killed while it has it
    _lock = RLock()


# Keys: the entity and the time of every row


@dataclass(slots=True)
class Keys:
    """The entities of the rows, and what is known of the times."""

    codes: NDArray[np.int32] | None  # (rows,) entity of each row, numbered in order of first appearance
    names: list[Any]
    times: Stats | None


def _keys(planned: Plan) -> list[Column]:
    return [column for column in (planned.entity, planned.time) if column]


def _read_keys(scanned: Scan, planned: Plan, draft: Draft, advance: Callable[[int], object]) -> Keys:
    codes = np.empty(planned.rows, np.int32) if planned.entity else None

    def put(column: Column, start: int, found: NDArray[Any]) -> None:
        if codes is not None and column is planned.entity:
            codes[start : start + len(found)] = found
        else:
            draft.write(column.name, start, found)

    stats, vocabularies = _decode(scanned, _keys(planned), put, advance)
    if planned.entity and codes is not None and stats["__entity"].missing:
        raise null_key(planned.entity, scanned, int(np.argmax(codes < 0)))
    names = vocabularies["__entity"].names if planned.entity else [None]
    return Keys(codes, names, stats.get("__time"))


def _arrange(keys: Keys, scanned: Scan, planned: Plan, draft: Draft) -> NDArray[np.int64] | None:
    """Write entities, offsets and times as the stash has them; the place of each source row, `None` if all stay."""
    codes = np.zeros(planned.rows, np.int8) if keys.codes is None else keys.codes
    counts = np.bincount(codes, minlength=len(keys.names))
    draft.blob("__offsets", np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), torch.int64)
    if planned.entity and planned.entity.dtype == torch.int64:
        large = max(keys.names, default=0) > np.iinfo(np.int64).max
        numbers = np.array(keys.names, np.uint64 if large else np.int64)
        draft.blob("__entities.integers", numbers, torch.uint64 if large else torch.int64)
    elif planned.entity:
        _write_texts(draft, "__entities", keys.names)
    times = draft.array("__time") if planned.time else None
    if is_arranged(codes, times):
        return None
    check_sorting(planned)
    order = arranged(codes, times)
    if planned.time and times is not None:
        if pair := first_duplicate(codes, times, order):
            raise duplicate_time(planned, scanned, keys.names[int(codes[pair[0]])], int(times[pair[0]]), pair)
        times[:] = times[order]
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    return places


# Columns


def _constants(keys: Keys, planned: Plan) -> dict[str, Constant]:
    check_static(planned, len(keys.names))
    codes = np.broadcast_to(np.int32(0), planned.rows) if keys.codes is None else keys.codes
    return {column.name: Constant(column, codes, len(keys.names)) for column in planned.static}


def _placer(draft: Draft, places: NDArray[np.int64] | None, constants: dict[str, Constant]) -> Put:
    """How values come to their rows: as they are, or scattered; or, of static columns, to their entities."""
    arrays: dict[str, NDArray[Any]] = {}

    def place(column: Column, start: int, found: NDArray[Any]) -> None:
        if column.name in constants:
            constants[column.name].add(start, found)
            return
        if places is None:
            draft.write(column.name, start, found)
            return
        target = arrays.get(column.name)
        if target is None:
            target = arrays.setdefault(column.name, draft.array(column.name))
        target[places[start : start + len(found)]] = found

    return place


def _decode(
    scanned: Scan, columns: Sequence[Column], put: Put, advance: Callable[[int], object]
) -> tuple[dict[str, Stats], dict[str, Vocabulary]]:
    """Decode columns, several units at a time; codes are numbered in the order of the source, whoever is first."""
    stats = {column.name: Stats() for column in columns}
    vocabularies = {
        column.name: Vocabulary(column.fill if isinstance(column.fill, str) else None)
        for column in columns
        if column.kind == "category"
    }
    if not columns:
        return stats, vocabularies
    for unit, (numbers, pieces) in _in_threads(scanned.units, lambda unit: _decode_unit(scanned, unit, columns, put)):
        for name, found in numbers.items():
            stats[name].add(found)
        for piece in pieces:
            codes, counted = vocabularies[piece.column.name].encode(piece.indices, piece.dictionary)
            stats[piece.column.name].add(counted)
            put(piece.column, piece.start, codes)
        advance(unit.rows * sum(len(column.members) for column in columns))
    return stats, vocabularies


def _decode_unit(
    scanned: Scan, unit: Unit, columns: Sequence[Column], put: Put
) -> tuple[dict[str, Stats], list[Codes]]:
    names = list(dict.fromkeys(member for column in columns for member in column.members))
    stats = {column.name: Stats() for column in columns}
    pieces: list[Codes] = []
    row = unit.start
    try:
        for batch in unit.read(names):
            if row + batch.num_rows > unit.start + unit.rows:
                raise SourceError(f"{unit.place} holds more rows than the {unit.rows:,} of its footer: it is damaged.")
            for column in columns:
                arrays = [batch.column(names.index(member)) for member in column.members]
                if column.kind == "category":
                    pieces.append(Codes(column, row, *indices(arrays[0])))
                    continue
                if column.name == "__time":
                    _check_times(arrays[0], column, scanned, row)
                found, counted = values(arrays, column, unit.place)
                stats[column.name].add(counted)
                put(column, row, (found.view(torch.uint16) if found.dtype == torch.bfloat16 else found).numpy())
            row += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(f"{unit.place} cannot be decoded: {error}. Write the file again.") from error
    if row != unit.start + unit.rows:
        raise SourceError(
            f"{unit.place} holds {row - unit.start:,} rows, its footer says {unit.rows:,}: it is damaged."
        )
    return stats, pieces


def _check_times(array: pa.Array, column: Column, scanned: Scan, row: int) -> None:
    """Refuse a null before it is taken for a value that `ts.column` could fill."""
    times = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    if times.null_count:
        raise null_key(column, scanned, row + int(np.argmax(times.is_null())))


def _in_threads(units: Sequence[Unit], work: Callable[[Unit], Any]) -> Iterator[tuple[Unit, Any]]:
    """The results for all units, in their order, with one more than the threads under way."""
    threads = max(1, min(os.cpu_count() or 1, _MOST_THREADS, len(units)))
    waiting: deque[tuple[Unit, Future[Any]]] = deque()
    pool = ThreadPoolExecutor(threads, "tensorstash-load")
    try:
        for unit in units:
            waiting.append((unit, pool.submit(work, unit)))
            if len(waiting) > threads:
                done, future = waiting.popleft()
                yield done, future.result()
        while waiting:
            done, future = waiting.popleft()
            yield done, future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _write_texts(draft: Draft, name: str, names: list[Any]) -> None:
    text, ends = texts(names)
    draft.blob(f"{name}.text", text, torch.uint8)
    draft.blob(f"{name}.ends", ends, torch.int64)


def _metadata(planned: Plan, stats: dict[str, Stats], keys: Keys) -> dict[str, Any]:
    def about(c: Column) -> dict[str, Any]:
        own = {"name": c.name, "members": c.members, "kind": c.kind, "unit": c.unit, "zone": c.zone, "fill": c.fill}
        return own | asdict(stats[c.name])

    time: dict[str, Any] = {}
    if planned.time and keys.times:
        time = {"source": planned.time.members[0], "unit": planned.time.unit, "zone": planned.time.zone}
        time |= {"low": keys.times.low, "high": keys.times.high}
    entity = planned.entity.members[0] if planned.entity else None
    columns, static = [*map(about, planned.columns)], [*map(about, planned.static)]
    return {"rows": planned.rows, "columns": columns, "static": static, "entity": entity, "time": time}
