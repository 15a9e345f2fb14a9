"""Functions and scripts in processes of their own, and the memory that they take."""

import ctypes
import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch


class Team:
    """Several processes that all do the same thing at the same time."""

    def __init__(self, size: int, script: str, *arguments: str, root: Path | None = None) -> None:
        """`root` is that of another checkout, whose package they import."""
        command = [sys.executable, script, *arguments]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        environment = os.environ if root is None else os.environ | {"PYTHONPATH": str(root)}
        self.members = [subprocess.Popen(command, env=environment, **pipes) for _ in range(size)]

    def ask(self, line: str) -> list[Any]:
        """The answers of all; `{member}` in the line is the number of each."""
        for k, member in enumerate(self.members):
            member.stdin.write(line.format(member=k) + "\n")  # type: ignore[union-attr]
            member.stdin.flush()  # type: ignore[union-attr]
        return [json.loads(member.stdout.readline()) for member in self.members]  # type: ignore[union-attr]

    def __enter__(self) -> "Team":
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.kill()
            member.communicate()


def in_fresh_process(work: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """What a function returns in a new interpreter with as many threads of torch as this one."""
    context, threads = multiprocessing.get_context("spawn"), torch.get_num_threads()
    with ProcessPoolExecutor(1, context, torch.set_num_threads, (threads,)) as pool:
        return pool.submit(work, *arguments).result()


def weigh() -> float:
    """MB of this process by proportional set size."""
    return int(Path("/proc/self/smaps_rollup").read_text().split("\nPss:")[1].split()[0]) * 1024 / 1e6


def resident() -> int:
    """Bytes of this process that are in memory now, shared pages that it has touched included."""
    return _status("VmRSS")


def reset_peak() -> None:
    """Give free memory back to the system, and let the kernel's record of the peak begin again at what is resident."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", "ascii")


def peak() -> int:
    """The most bytes that were in memory since `reset_peak`."""
    return _status("VmHWM")


def _status(name: str) -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text("ascii").splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024
