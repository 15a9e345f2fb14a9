"""Jobs in threads: results come in order, and no job keeps running after a failure or Ctrl-C."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from typing import TypeVar

from tensorstash.common.progress import DELAY, Bar

Job = TypeVar("Job")
Result = TypeVar("Result")
_MOST_THREADS = 8


class Stopped(Exception):  # noqa: N818  not an error
    """Ends a job whose result is no longer needed."""


def threads() -> int:
    """How many jobs of a load run at a time."""
    return max(1, min(os.cpu_count() or 1, _MOST_THREADS))


def in_threads(jobs: Sequence[Job], work: Callable[[Job, Callable[[], None]], Result]) -> Iterator[Result]:
    """Yield the results of all jobs in order, with at most one more job submitted than there are threads.

    Each job is given a function to call from time to time. It raises `Stopped` once another job has failed or the
    caller has closed the iterator, so that neither waits for long. A single job runs in the thread of the caller.
    """
    if len(jobs) == 1:  # to start a thread and to wait for it takes as long as a small job
        yield work(jobs[0], lambda: None)
        return
    stop = Event()

    def go_on() -> None:
        if stop.is_set():
            raise Stopped

    waiting: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(max(1, min(threads(), len(jobs))), "tensorstash-load")
    try:
        for job in jobs:
            waiting.append(pool.submit(work, job, go_on))
            if len(waiting) > threads():
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


def map_in_threads(
    work: Callable[[Job], Result], jobs: Sequence[Job], at_a_time: int, what: str, progress: bool | None
) -> list[Result]:
    """The results of all jobs in their order; the first failure, or Ctrl-C, ends the rest.

    After a second a bar counts the jobs; `progress` is that of `ts.load`. A single job runs in the caller's thread.
    """
    if len(jobs) == 1:  # a new thread asks the system for memory anew, half of the time that a large footer takes
        return [work(jobs[0])]
    pool = ThreadPoolExecutor(max(1, min(at_a_time, len(jobs))), "tensorstash-look")
    hidden = None if progress is None else not progress
    try:
        return [*Bar(pool.map(work, jobs), what, len(jobs), delay=DELAY, disable=hidden)]
    finally:
        pool.shutdown(cancel_futures=True)
