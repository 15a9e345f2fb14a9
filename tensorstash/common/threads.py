"""Jobs in threads: results come in order, and no job keeps running after a failure or Ctrl-C."""

import os
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
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


def in_threads(
    jobs: Sequence[Job], work: Callable[[Job, Callable[[], None]], Result], at_a_time: int | None = None
) -> Generator[Result]:
    """Yield the results of all jobs in order, with at most one more job submitted than there are threads.

    There are as many threads as `at_a_time` says, else `threads()`. Each job is given a function to call from time to
    time. It raises `Stopped` once another job has failed or the caller has closed the iterator, so that neither waits
    for long. A single job runs in the thread of the caller.
    """
    if len(jobs) == 1:  # to start a thread and to wait for it takes as long as a small job
        yield work(jobs[0], lambda: None)
        return
    stop = Event()

    def go_on() -> None:
        if stop.is_set():
            raise Stopped

    waiting: deque[Future[Result]] = deque()
    most = at_a_time or threads()
    pool = ThreadPoolExecutor(max(1, min(most, len(jobs))), "tensorstash-load")
    try:
        for job in jobs:
            waiting.append(pool.submit(work, job, go_on))
            if len(waiting) > most:
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

    After a second a bar counts the jobs; `progress` is that of `ts.load`.
    """
    results = in_threads(jobs, lambda job, _: work(job), at_a_time)
    with closing(results):
        return [*Bar(results, what, len(jobs), delay=DELAY, disable=None if progress is None else not progress)]
