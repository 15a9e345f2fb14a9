"""Small units are decoded together: with ten thousand small files, the overhead of each would dominate."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import TypeVar

import pyarrow as pa

from tensorstash.columns.column import Column
from tensorstash.common.progress import Progress
from tensorstash.common.threads import in_threads, threads
from tensorstash.errors import DataError, SourceError
from tensorstash.sources.read import Source, Unit, damage_named, read

_SMALL = 1 << 15  # units with fewer rows are decoded together
_ROWS = 1 << 17  # the most rows of a bundle of several units
_BYTES = 1 << 23  # batches are concatenated until they have so many bytes
_MOST = 256  # the most units of a bundle: Ctrl-C waits until a bundle is decoded
_FEW = 8  # of so few small units threads, each with a reader of its own, take longer than they save
_SHARE = 8  # bundles for each thread, so that all threads end at about the same time

Bundle = tuple[Unit, ...]
Job = tuple[Bundle, Sequence[Column]]  # what one thread decodes: columns of a bundle
Arrays = dict[str, pa.Array]  # source columns by name
Result = TypeVar("Result")
# takes the place of a batch for messages, the number of its first row, its arrays, and the columns to make of them
Work = Callable[[str, int, Arrays, Sequence[Column]], Result]


def bundles(source: Source) -> list[Bundle]:
    """The units of a source in their order, with small neighbours together."""
    units = source.units
    most = min(_MOST, len(units) // (_SHARE * threads()))
    if source.rows < _SMALL and not source.is_remote:
        most = max(most, _FEW)
    groups: list[list[Unit]] = []
    rows = 0
    for unit in units:
        fits = groups and max(unit.rows, groups[-1][0].rows) < _SMALL and len(groups[-1]) < most
        if fits and rows + unit.rows <= _ROWS:
            groups[-1].append(unit)
            rows += unit.rows
        else:
            groups.append([unit])
            rows = unit.rows
    return [tuple(group) for group in groups]


def each_batch(jobs: Sequence[Job], work: Work[Result], progress: Progress) -> Iterator[Result]:
    """What `work` makes of the batches of all jobs, in their order; threads do several jobs at a time."""

    def results(job: Job, go_on: Callable[[], None]) -> list[list[Result]]:
        return each_or_all(job[0], lambda bundle: [*_each_batch(bundle, job[1], work, progress, go_on)])

    return chain.from_iterable(chain.from_iterable(in_threads(jobs, results)))


def _each_batch(
    bundle: Bundle, columns: Sequence[Column], work: Work[Result], progress: Progress, go_on: Callable[[], None]
) -> Iterator[Result]:
    members = [member for column in columns for member in column.members]
    names = list(dict.fromkeys(members))
    with damage_named(bundle[0], names):
        for row, batch in read_bundle(bundle, names):
            go_on()
            yield work(bundle[0].place, row, dict(zip(names, batch.columns)), columns)
            progress.add(batch.num_rows * len(members), batch.nbytes)


def each_or_all(bundle: Bundle, work: Callable[[Bundle], Result]) -> list[Result]:
    """The result for a bundle; if `work` fails, the results of its units one by one, so that the error names a unit."""
    if len(bundle) > 1:
        with suppress(DataError, SourceError):
            return [work(bundle)]
    return [work((unit,)) for unit in bundle]


def read_bundle(bundle: Bundle, names: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """As `read`, but consecutive small batches of equal types are concatenated."""
    if len(bundle) == 1:
        yield from read(bundle[0], names)
        return
    waiting, nbytes = list[tuple[int, pa.RecordBatch]](), 0
    for row, batch in chain.from_iterable(read(unit, names) for unit in bundle):
        if waiting and (nbytes >= _BYTES or not batch.schema.equals(waiting[0][1].schema)):
            yield _concatenated(waiting)
            waiting, nbytes = [], 0
        waiting.append((row, batch))
        nbytes += batch.nbytes
    if waiting:
        yield _concatenated(waiting)


def _concatenated(batches: Sequence[tuple[int, pa.RecordBatch]]) -> tuple[int, pa.RecordBatch]:
    """Batches that follow each other as one; with each stands the number of its first row."""
    return batches[0][0], pa.concat_batches([batch for _, batch in batches])
