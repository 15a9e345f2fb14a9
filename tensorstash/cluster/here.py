"""Shards made on this machine: the source is cut in threads into a file on disk, and processes write the shards."""

import mmap
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import lru_cache

import pyarrow as pa

from tensorstash.cluster.cut import Cut, Piece, Recipe, cut
from tensorstash.cluster.write import Done, Job, write_shard
from tensorstash.common.threads import in_threads
from tensorstash.errors import SegmentError
from tensorstash.sources.scan import Scan
from tensorstash.sources.spool import Spool


@dataclass(frozen=True, slots=True)
class Stretch:
    """Where a piece lies in the file of pieces."""

    path: str
    begin: int
    size: int
    whole: int = 0  # bytes of the file


class Here:
    """The engine of one machine."""

    def __init__(self, label: str, workers: int) -> None:
        self._spool = Spool(label)
        self._workers = workers

    def cuts(self, recipe: Recipe, blocks: Sequence[Scan]) -> Iterator[Cut]:
        """The blocks, cut, in their order; their pieces are `Stretch`es."""
        path = self._spool.path()
        for _, found in in_threads(blocks, lambda block, _: cut(recipe, block)):
            pieces = {}
            for shard, (rows, stream) in found.pieces.items():
                pieces[shard] = rows, Stretch(path, self._spool.size, stream.size)
                self._spool.append(stream)
            yield replace(found, pieces=pieces)

    def write(self, jobs: Sequence[tuple[Job, Sequence[Piece]]]) -> Iterator[tuple[int, Done]]:
        """Write the shards of the jobs, in whatever order they are done."""
        size = self._spool.size
        jobs = [(job, [replace(one, stream=replace(one.stream, whole=size)) for one in pieces]) for job, pieces in jobs]
        if self._workers == 1 or len(jobs) < 2:
            yield from ((job.number, _write(job, pieces)) for job, pieces in jobs)
            return
        context = multiprocessing.get_context("spawn")  # polars waits for ever in a forked child
        with ProcessPoolExecutor(min(self._workers, len(jobs)), context) as pool:
            try:
                yield from _in_pool(pool, jobs, self._workers)
            except BrokenProcessPool as error:
                raise SegmentError(
                    "A process that writes shards ended before it was done; it was killed, perhaps for want of "
                    "memory, or the script has no `if __name__ == '__main__':`. Run it again, with fewer workers= if "
                    "memory is short: it goes on with the shards that are there."
                ) from error
            finally:
                pool.shutdown(cancel_futures=True)


def _in_pool(
    pool: ProcessPoolExecutor, jobs: Sequence[tuple[Job, Sequence[Piece]]], workers: int
) -> Iterator[tuple[int, Done]]:
    waiting: dict[Future[Done], int] = {}
    rest = iter(jobs)
    while True:
        for job, pieces in rest:
            waiting[pool.submit(_write, job, pieces)] = job.number
            if len(waiting) > workers:
                break
        if not waiting:
            return
        done, _ = wait(waiting, return_when=FIRST_COMPLETED)
        for future in done:
            yield waiting.pop(future), future.result()


def _write(job: Job, pieces: Sequence[Piece]) -> Done:
    opened = [replace(piece, stream=_opened(piece.stream)) for piece in pieces]
    return write_shard(job, opened)


def _opened(stretch: Stretch) -> pa.Buffer:
    return _mapped(stretch.path, stretch.whole).slice(stretch.begin, stretch.size)


@lru_cache(maxsize=1)
def _mapped(path: str, size: int) -> pa.Buffer:
    """The file of pieces: its bytes stay on disk until they are looked at."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return pa.py_buffer(mmap.mmap(fd, size, access=mmap.ACCESS_READ))
    finally:
        os.close(fd)
