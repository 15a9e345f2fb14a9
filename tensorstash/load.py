"""From a source to a stash: plan, read the keys, find the order of the rows, decode the columns into place."""

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
from tensorstash.directory import Name, check_label
from tensorstash.errors import SourceError
from tensorstash.fingerprint import check_unchanged, contents, key, label_of, stamps
from tensorstash.limits import memory_limits
from tensorstash.nameless import Nameless
from tensorstash.plan import Plan, check_memory, check_sorting, plan_scan, wanted
from tensorstash.schema import Column, Columns, named
from tensorstash.segment import Draft
from tensorstash.share import obtain
from tensorstash.sources import Scan, Unit, scan
from tensorstash.stash import Stash, texts

_MOST_THREADS = 8

Put = Callable[[Column, int, NDArray[Any]], None]  # column, its first row in the source, values


@dataclass(slots=True)
class Codes:
    """A piece of a category column whose names have not met the vocabulary yet."""

    column: Column
    start: int
    indices: NDArray[np.int32]
    dictionary: pa.Array


def load(
    source: Any,
    columns: Columns | None = None,
    *,
    entity: str | None = None,
    time: str | None = None,
    dtype: torch.dtype | None = None,
    share: str | bool | None = None,
    timeout: float | None = None,
    progress: bool | None = None,
) -> Stash:
    """Load the named columns once into memory, as a dict of tensors.

    With `share=` they are there once per machine: of all processes that make the same call, now or later, the first
    loads and the others attach what it has loaded. It stays until `ts.remove(label)`, `ts.collect` or a reboot.

    Args:
        source: a Parquet or Arrow IPC (Feather) file, a glob, a directory or a list of them; a polars or pandas frame;
            a pyarrow Table; a mapping of arrays or tensors. The files of one source need the same columns.
        columns: a list of source names, or a mapping from your names to a source name, a list of names (packed into one
            `(rows, k)` column) or a `ts.column`. Only these are decoded. `None`: all but entity and time.
        entity: the text or integer column that tells the series apart. Without it all rows are one series.
        time: the timestamp, date or integer column that orders the rows of a series, kept as int64.
        dtype: cast the floating columns to this floating type; `None` keeps the source's.
        share: a label for a copy that all processes of this user attach; `True` makes one of the source's name.
            Changed files, other data or other arguments are another copy under the same label.
        timeout: with `share=`, seconds to wait for another process that loads; `None` waits until it is done.
        progress: show a bar; `None` shows it when the output is a terminal.

    Returns:
        A `Stash` whose rows are grouped by entity, in order of first appearance, and ordered by time.

    Raises:
        SourceError: no file, an unreadable one, or files that differ. ColumnError: no such column. SchemaError: a type
        or name that a stash cannot hold. DataError: a null, a lossy cast or a duplicate time. NoMemoryError: too large.
        SegmentError: the directory for shared segments is not this user's alone. TimeoutError: see `timeout`. A process
        that waited for another one's load gets the error of that load.

    Example:
        >>> import tensorstash as ts
        >>> data = {"station": ["B", "A", "B"], "hour": [2, 1, 1], "temp": [0.5, None, 0.25]}
        >>> stash = ts.load(data, ["temp"], entity="station", time="hour")
        >>> stash.entities, stash.offsets.tolist(), stash["temp"].tolist()
        (['B', 'A'], [0, 2, 3], [0.25, 0.5, nan])
    """
    ask = _Ask(source, columns, entity, time, dtype, progress)
    return _load_private(ask) if share is None or share is False else _load_shared(ask, share, timeout)


@dataclass(frozen=True, slots=True)
class _Ask:
    """What `load` was asked for."""

    source: Any
    columns: Columns | None
    entity: str | None
    time: str | None
    dtype: torch.dtype | None
    progress: bool | None

    def survey(self) -> tuple[Scan, Plan]:
        """The source, looked at, and the plan for it."""
        scanned = scan(self.source, wanted(self.columns, self.entity, self.time))
        return scanned, plan_scan(scanned, self.columns, self.entity, self.time, self.dtype)

    def key(self, data: object) -> str:
        """The key of a shared segment with these columns."""
        columns = None if self.columns is None else named(self.columns)
        choices = {"columns": columns, "entity": self.entity, "time": self.time, "dtype": self.dtype}
        return key(data, choices)


def _load_private(ask: _Ask) -> Stash:
    before = stamps(ask.source)
    scanned, planned = ask.survey()
    check_memory(planned, memory_limits())
    draft = _draft(planned, None)
    metadata = _fill(scanned, planned, draft, ask.progress, lambda _: None)
    check_unchanged(ask.source, before)
    stash = Stash(draft.finish(metadata))
    stash.segment.populate()
    return stash


def _load_shared(ask: _Ask, share: str | bool, timeout: float | None) -> Stash:
    """Attached if it is there; files are looked at by their stamps alone then."""
    label = check_label(label_of(ask.source) if share is True else share)
    before = stamps(ask.source)
    surveyed = None if before else ask.survey()
    data = before if surveyed is None else contents(*surveyed)

    def build(target: Nameless, report: Callable[[float], None]) -> None:
        scanned, planned = surveyed or ask.survey()
        check_memory(planned, target.limits())
        draft = _draft(planned, target.fd)
        draft.seal(_fill(scanned, planned, draft, ask.progress, report))
        check_unchanged(ask.source, before)

    return Stash(obtain(Name(label, ask.key(data)[:16]), build, timeout))


def _draft(planned: Plan, fd: int | None) -> Draft:
    tensors = [(column.name, column.dtype, (planned.rows, *column.shape)) for column in planned.stored]
    return Draft(tensors, _header_bytes(planned), fd)


def _fill(
    scanned: Scan, planned: Plan, draft: Draft, progress: bool | None, report: Callable[[float], None]
) -> dict[str, Any]:
    """Write all tensors of a segment; its metadata. `report` is told the fraction of the values that are done."""
    read = [*planned.columns, *_keys(planned)]
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
        stats, vocabularies = _decode(scanned, planned.columns, _placer(draft, places), advance)
    for name, vocabulary in vocabularies.items():
        _write_texts(draft, f"{name}.__vocabulary", list(vocabulary.codes))
    return _metadata(planned, stats, keys)


def _header_bytes(planned: Plan) -> int:
    """Room for a header that is not known yet: each name stands in it up to eight times, escaped up to twice."""
    names = [json.dumps(name) for column in planned.stored for name in (column.name, *column.members)]
    return 16_384 + 1024 * len(planned.stored) + 16 * sum(map(len, names))


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
    names = list(vocabularies["__entity"].codes) if planned.entity else [None]
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


def _placer(draft: Draft, places: NDArray[np.int64] | None) -> Put:
    """How values come to their rows: as they are, or scattered."""
    if places is None:
        return lambda column, start, found: draft.write(column.name, start, found)
    arrays: dict[str, NDArray[Any]] = {}

    def scatter(column: Column, start: int, found: NDArray[Any]) -> None:
        target = arrays.get(column.name)
        if target is None:
            target = arrays.setdefault(column.name, draft.array(column.name))
        target[places[start : start + len(found)]] = found

    return scatter


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
    columns = [
        {"name": c.name, "members": c.members, "kind": c.kind, "unit": c.unit, "zone": c.zone, "fill": c.fill}
        | asdict(stats[c.name])
        for c in planned.columns
    ]
    time: dict[str, Any] = {}
    if planned.time and keys.times:
        time = {"source": planned.time.members[0], "unit": planned.time.unit, "zone": planned.time.zone}
        time |= {"low": keys.times.low, "high": keys.times.high}
    entity = planned.entity.members[0] if planned.entity else None
    return {"rows": planned.rows, "columns": columns, "entity": entity, "time": time}
