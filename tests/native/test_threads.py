"""The inside of `native/threads.c`: helpers of a large batch give the same bits, in any process and at its end."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorstash.native import kernel, library
from tests.native.test_kernel import Int64s, Results, World, span_of

pytestmark = pytest.mark.skipif(library.LIBRARY is None, reason=library.why())


def shared_work(rows: int = 4000) -> tuple[kernel.KernelPlan, Int64s, NDArray[Any], list[int]]:
    """A plan, anchors, room for a batch that is large enough for several threads, and its address."""
    column = np.arange(rows * 8, dtype=np.float64).reshape(rows, 8)
    plan = kernel.compile_plan([span_of(0, 50, 1, 0)], [kernel.Source([column])], 0, 50)
    anchors = np.random.default_rng(0).integers(0, rows - 50, 1500)
    out = np.zeros((len(anchors), 50, 8))
    return plan, anchors, out, [out.ctypes.data]


def is_right(anchors: Int64s, out: NDArray[Any]) -> bool:
    return bool((out[:, :, 3] == (anchors[:, None] + np.arange(50)) * 8 + 3).all())


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("sources", [1, 3])
def test_any_number_of_threads_gives_the_same_bits(masked: bool, sources: int) -> None:
    for seed in range(4):
        world = World(seed, sources=sources, masked=masked, draws=2)
        plan = kernel.compile_plan(world.spans, world.sources, world.history, world.horizon)
        plan.struct.streamed = world.streamed
        size = 30_000 + seed
        which = world.rng.integers(0, sources, size).astype(np.int32)
        anchors, skips = world.anchors((size,), which), world.skips(2, size)
        results = []
        for threads in (1, 2, 3, 4):
            result = Results(world, size)
            to, seen = result.addresses(result.values), result.addresses(result.seen)
            kernel.gather(plan, anchors, to, seen, which, skips, threads)
            results.append([result.inside(room).tobytes() for room in (*result.values, *result.seen)])
        assert sum(map(len, results[0])) > 1 << 20  # or one thread would have made it
        assert all(result == results[0] for result in results)


def test_python_threads_that_gather_at_once() -> None:
    """One of them is helped, and the others copy alone."""

    def work(_: int) -> bool:
        plan, anchors, out, to = shared_work()
        for _ in range(50):
            out[:] = 0
            kernel.gather(plan, anchors, to, threads=3)
            if not is_right(anchors, out):
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def test_children_that_are_forked_amid_the_work_of_threads_gather() -> None:
    plan, anchors, out, to = shared_work()
    over = Event()

    def work() -> None:
        plan, anchors, _, to = shared_work()
        while not over.is_set():
            kernel.gather(plan, anchors, to, threads=3)

    with ThreadPoolExecutor(2) as pool:
        for _ in range(2):
            pool.submit(work)
        try:
            for _ in range(20):
                child = os.fork()
                if not child:
                    code = 1
                    try:
                        for _ in range(3):
                            out[:] = 0
                            kernel.gather(plan, anchors, to, threads=3)
                            code = int(not is_right(anchors, out))
                    finally:
                        os._exit(code)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        finally:
            over.set()


def share_of_helpers(calls: int, pause: float) -> float:
    """How much of the pauses after calls its helpers run. If they never slept, they would run all the time."""
    plan, anchors, out, to = shared_work()
    used = elapsed = 0.0
    for _ in range(calls):
        kernel.gather(plan, anchors, to, threads=2)
        began, before = time.perf_counter(), time.process_time()
        time.sleep(pause)
        used, elapsed = used + time.process_time() - before, elapsed + time.perf_counter() - began
    assert is_right(anchors, out)
    return used / elapsed


def test_helpers_sleep_when_no_call_follows() -> None:
    plan, anchors, out, to = shared_work()
    for _ in range(50):
        kernel.gather(plan, anchors, to, threads=2)
    assert is_right(anchors, out)
    assert share_of_helpers(1, 0.3) < 0.5


def test_helpers_sleep_while_a_program_does_something_else() -> None:
    """As between the steps of a loop that trains."""
    assert share_of_helpers(20, 0.01) < 0.5


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system cannot keep a process on one processor")
def test_helpers_do_not_look_for_calls_where_they_share_a_processor() -> None:
    """The pauses are so short that elsewhere they would."""
    child = os.fork()
    if not child:
        code = 1
        try:
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
            code = int(share_of_helpers(300, 0.0002) >= 0.25)
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# a shell that runs the tests in the background has SIGINT ignored, in all that they start as well
PROGRAM = """
import signal, threading, time
from tests.native.test_threads import kernel, shared_work
signal.signal(signal.SIGINT, signal.default_int_handler)
def work():
    plan, anchors, _, to = shared_work()
    while True:
        kernel.gather(plan, anchors, to, threads=4)
threading.Thread(target=work, daemon=True).start()
plan, anchors, _, to = shared_work()
kernel.gather(plan, anchors, to, threads=4)
print("ready", flush=True)
"""


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_process_ends_amid_the_work_of_threads(interrupted: bool) -> None:
    program = PROGRAM + ("while True: time.sleep(1)" if interrupted else "")
    here, pipe = Path(__file__).parents[2], subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", program], stdout=pipe, stderr=pipe, cwd=here)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    if interrupted:
        process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert (b"KeyboardInterrupt" in errors) == interrupted
    assert process.returncode == (-signal.SIGINT if interrupted else 0)
