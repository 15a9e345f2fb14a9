"""Processes that race for a segment, forked from one that has imported everything and used none of its threads.

`python -m tests.race kill|collect ROUNDS [nolock] [notmpfile]` and `python -m tests.race same|fail|wait PATH` print
what happened as JSON.
"""

import fcntl
import glob
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import tensorstash as ts

ROWS = 100_000
SOURCE = {f"c{k}": np.arange(ROWS, dtype=np.float64) + k for k in range(8)}
EXPECTED = [float(values.sum()) for values in SOURCE.values()]


def fork(work: Callable[[], Any], pipe: int) -> int:
    """A child that writes what `work` returns, or the error, as one line into the pipe."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        line = json.dumps(work())
        status = 0
    except BaseException as error:
        line = json.dumps(f"{type(error).__name__}: {error}")
    os.write(pipe, (line + "\n").encode())
    os._exit(status)


def read_lines(pipe: int) -> list[Any]:
    """What the children wrote, when all of them are gone."""
    with os.fdopen(pipe) as file:
        return [json.loads(line) for line in file.read().splitlines()]


def attach_and_check(seconds: float) -> list[int]:
    """Load or attach, look at every value, hold it for a while; the inode."""
    stash = ts.load(SOURCE, share="race")
    assert [float(tensor.sum()) for tensor in stash.values()] == EXPECTED
    time.sleep(seconds)
    about = os.fstat(stash.segment.fd)
    return [about.st_ino, about.st_nlink]


def load_file(path: str, timeout: float | None = None) -> dict[str, Any]:
    """Load or attach a file; what came of it, and whether this process showed the bar of a load."""
    with tempfile.TemporaryFile() as errors:
        os.dup2(errors.fileno(), 2)
        found: dict[str, Any] = {}
        try:
            stash = ts.load(path, share="race", timeout=timeout, progress=True)
            found |= {"sum": int(stash["y"].sum()), "inode": os.fstat(stash.segment.fd).st_ino}
        except (OSError, KeyboardInterrupt) as error:
            found["error"] = f"{type(error).__module__}.{type(error).__name__}: {error}"
        errors.seek(0)
        said = errors.read().decode()
    return found | {"loaded": " rows/s" in said, "said": [line for line in said.splitlines() if "waiting" in line]}


def stopped_loader(path: str, pipe: int) -> int:
    """A child that is stopped in the middle of a load."""
    child = fork(lambda: load_file(path), pipe)
    locks = os.path.join(os.environ["TENSORSTASH_DIR"], "*.lock")
    while not any(os.path.getsize(lock) for lock in glob.glob(locks)):
        time.sleep(0.0002)
    os.kill(child, signal.SIGSTOP)
    return child


def await_waiting(child: int) -> None:
    """Return when a child has said that it waits for another."""
    said = ""
    while "waiting" not in said:
        time.sleep(0.01)
        with open(f"/proc/{child}/fd/2") as errors:
            said = errors.read()


def finish(children: list[int], here: int, there: int) -> list[Any]:
    os.close(there)
    for pid in children:
        os.waitpid(pid, 0)
    return read_lines(here)


def same(path: str) -> list[Any]:
    """Six processes make the same call at once."""
    here, there = os.pipe()
    return finish([fork(lambda: load_file(path), there) for _ in range(6)], here, there)


def fail(path: str) -> list[Any]:
    """Three wait while one loads a damaged file; when all are done, one more tries."""
    here, there = os.pipe()
    loader = stopped_loader(path, there)
    waiting = [fork(lambda: load_file(path), there) for _ in range(3)]
    for child in waiting:
        await_waiting(child)
    os.kill(loader, signal.SIGCONT)
    for child in (loader, *waiting):
        os.waitpid(child, 0)
    return finish([fork(lambda: load_file(path), there)], here, there)


def wait(path: str) -> dict[str, Any]:
    """While one is in the middle of a load, another gives up, one is interrupted, and one takes over."""
    pipes = {name: os.pipe() for name in ("killed", "timeout", "interrupted", "patient")}
    loader = stopped_loader(path, pipes["killed"][1])
    children = {
        "killed": loader,
        "timeout": fork(lambda: load_file(path, timeout=0.2), pipes["timeout"][1]),
        "interrupted": fork(lambda: load_file(path), pipes["interrupted"][1]),
        "patient": fork(lambda: load_file(path, timeout=100.0), pipes["patient"][1]),
    }
    os.waitpid(children.pop("timeout"), 0)
    await_waiting(children["interrupted"])
    await_waiting(children["patient"])
    os.kill(children["interrupted"], signal.SIGINT)
    os.waitpid(children.pop("interrupted"), 0)
    os.kill(loader, signal.SIGKILL)
    for child in children.values():
        os.waitpid(child, 0)
    for _, there in pipes.values():
        os.close(there)
    return {"loader": loader} | {name: read_lines(here) for name, (here, _) in pipes.items()}


def free(path: str) -> int:
    about = os.statvfs(path)
    return about.f_bfree


def kill(rounds: int) -> dict[str, Any]:
    """Rounds of processes that make the same call, of which some are killed at random times."""
    seed = random.SystemRandom().randrange(1 << 32)
    luck = random.Random(seed)
    found: dict[str, Any] = {"seed": seed, "killed": 0, "survived": 0, "failures": [], "left": [], "lost": 0}
    os.makedirs(os.environ["TENSORSTASH_DIR"], 0o700, exist_ok=True)
    before = free(os.environ["TENSORSTASH_DIR"])
    for _ in range(rounds):
        here, there = os.pipe()
        children = []
        for _ in range(5):
            lingering = luck.random() * 0.01
            children.append(fork(lambda held=lingering: attach_and_check(held), there))  # type: ignore[misc]
            time.sleep(luck.random() * 0.004)
        os.close(there)
        for pid in luck.sample(children, luck.randrange(1, 5)):
            time.sleep(luck.random() * 0.01)
            os.kill(pid, signal.SIGKILL)
        statuses = [os.waitpid(pid, 0)[1] for pid in children]
        lines = read_lines(here)
        found["killed"] += sum(os.WIFSIGNALED(status) for status in statuses)
        found["survived"] += sum(status == 0 for status in statuses)
        found["failures"] += [line for line in lines if isinstance(line, str)]
        inodes = {line[0] for line in lines if not isinstance(line, str)}
        # a loader that dies after it has given its file the second name leaves both, until somebody cleans up
        allowed = (1,) if hasattr(os, "O_TMPFILE") else (1, 2)
        if len(inodes) > 1 or any(line[1] not in allowed for line in lines if not isinstance(line, str)):
            found["failures"].append(f"several segments: {lines}")
        ts.shared.remove("race")
        found["left"] += os.listdir(os.environ["TENSORSTASH_DIR"])
    found["lost"] = before - free(os.environ["TENSORSTASH_DIR"])
    return found


def collect(rounds: int) -> dict[str, Any]:
    """Processes that attach, check and let go, while one removes whatever nobody holds."""
    here, there = os.pipe()

    def reader() -> list[int]:
        done = 0
        for _ in range(rounds):
            _, links = attach_and_check(0.001)
            assert links == 1, "a segment in use was removed"
            done += 1
        return [done, 0]

    readers = [fork(reader, there) for _ in range(3)]
    os.close(there)
    removed = 0
    running = set(readers)
    while running:
        removed += len(ts.shared.prune(max_bytes=0))
        running -= {pid for pid in running if os.waitpid(pid, os.WNOHANG)[0]}
    ts.shared.prune(max_bytes=0)
    left = os.listdir(os.environ["TENSORSTASH_DIR"])
    return {"removed": removed, "read": read_lines(here), "left": left}


def main() -> None:
    torch.set_num_threads(1)
    ts.load({"y": [1.0]})  # imports what is imported late, and leaves no thread
    what, argument, *changes = sys.argv[1:]
    if "nolock" in changes:
        fcntl.flock = lambda *_: None
    if "notmpfile" in changes:
        del os.O_TMPFILE
    counted: dict[str, Callable[[int], Any]] = {"kill": kill, "collect": collect}
    with_file: dict[str, Callable[[str], Any]] = {"same": same, "fail": fail, "wait": wait}
    found = counted[what](int(argument)) if what in counted else with_file[what](argument)
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
