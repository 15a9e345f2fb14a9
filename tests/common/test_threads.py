"""The inside of `common/threads.py`: which thread runs a job, and what the others do after a failure."""

import threading
import time
from collections.abc import Callable

import pytest

from tensorstash.common.threads import Stopped, in_threads, threads


def thread_of(job: int, go_on: Callable[[], None]) -> tuple[int, int]:
    go_on()
    return job, threading.get_ident()


def test_a_single_job_runs_in_the_thread_of_the_caller() -> None:
    assert [*in_threads([7], thread_of)] == [(7, threading.get_ident())]
    assert not [*in_threads([], thread_of)]


def test_several_jobs_run_in_other_threads_and_their_results_come_in_order() -> None:
    done = [*in_threads(range(50), thread_of)]
    assert [job for job, _ in done] == [*range(50)]
    idents = {ident for _, ident in done}
    assert threading.get_ident() not in idents
    assert len(idents) <= threads()


def test_a_single_job_that_fails_raises_its_error() -> None:
    with pytest.raises(ZeroDivisionError):
        next(in_threads([0], lambda job, _: 1 // job))


@pytest.mark.skipif(threads() < 2, reason="one thread runs one job after the other")
def test_after_a_failure_the_other_jobs_are_told_to_stop() -> None:
    began, stopped = threading.Event(), threading.Event()

    def work(job: int, go_on: Callable[[], None]) -> None:
        if job == 0:
            assert began.wait(60)
            raise ValueError("the first job")
        began.set()
        for _ in range(60_000):
            try:
                go_on()
            except Stopped:
                stopped.set()
                raise
            time.sleep(0.001)

    with pytest.raises(ValueError, match="the first job"):
        [*in_threads([0, 1], work)]
    assert stopped.is_set()
