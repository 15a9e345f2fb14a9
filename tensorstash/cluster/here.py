"""Shards made on this machine: the source is cut in threads into a file on disk, and processes write the shards."""

import io
import mmap
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import pyarrow as pa

from tensorstash.cluster.cut import Cut, Piece, Recipe, cut, write_stream
from tensorstash.cluster.write import Done, Job, write_shard
from tensorstash.common.threads import in_threads
from tensorstash.errors import SegmentError
from tensorstash.sources.scan import Scan
from tensorstash.sources.spool import Spool

_BUFFER = 1 << 16


@dataclass(frozen=True, slots=True)
class Stretch:
    """Where a piece lies in the file of pieces."""

    begin: int
    size: int


class _Appending(io.RawIOBase):
    """A spool as a file of Python."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._spool.append(data)
        return memoryview(data).nbytes


class Here:
    """The engine of one machine."""

    def __init__(self, label: str, workers: int) -> None:
        self._spool = Spool(label)
        self._lock = Lock()
        self._workers = workers

    def cuts(self, recipe: Recipe, blocks: Sequence[Scan]) -> Iterator[Cut]:
        """The blocks, cut, in their order; their pieces are `Stretch`es."""
        return (found for _, found in in_threads(blocks, lambda block, _: cut(recipe, block, self._keep)))

    def _keep(self, rows: pa.RecordBatch) -> Stretch:
        with self._lock:
            begin = self._spool.size
            # its buffer collects what is small; what is large goes to the file from where it is
            with io.BufferedWriter(_Appending(self._spool), _BUFFER) as file:
                write_stream(rows, file)
            return Stretch(begin, self._spool.size - begin)

    def write(self, jobs: Sequence[tuple[Job, Sequence[Piece]]]) -> Iterator[tuple[int, Done]]:
        """Write the shards of the jobs, in whatever order they are done."""
        if self._workers == 1 or len(jobs) < 2:
            whole = self._spool.mapped()
            yield from ((job.number, _write(whole, job, pieces)) for job, pieces in jobs)
            return
        opened = self._spool.path(), self._spool.size
        context = multiprocessing.get_context("spawn")  # polars waits for ever in a forked child
        with ProcessPoolExecutor(min(self._workers, len(jobs)), context, _begin, opened) as pool:
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
            waiting[pool.submit(_write_in_process, job, pieces)] = job.number
            if len(waiting) > workers:
                break
        if not waiting:
            return
        done, _ = wait(waiting, return_when=FIRST_COMPLETED)
        for future in done:
            yield waiting.pop(future), future.result()


def _write(whole: pa.Buffer, job: Job, pieces: Sequence[Piece]) -> Done:
    opened = [replace(one, stream=whole.slice(one.stream.begin, one.stream.size)) for one in pieces]
    return write_shard(job, opened)


# In a process of the pool

_spool: list[pa.Buffer] = []  # the file of pieces: its bytes stay on disk until they are looked at


def _begin(path: str, size: int) -> None:
    if not size:
        _spool.append(pa.py_buffer(b""))
        return
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _spool.append(pa.py_buffer(mmap.mmap(fd, size, access=mmap.ACCESS_READ)))
    finally:
        os.close(fd)


def _write_in_process(job: Job, pieces: Sequence[Piece]) -> Done:
    return _write(_spool[0], job, pieces)
