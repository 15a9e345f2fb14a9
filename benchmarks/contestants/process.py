"""The process of a contestant, seen from the one that measures: asked, stopped, weighed and ended."""

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

SAMPLE = 0.05  # seconds from one look at the memory to the next


class Process:
    """A process for contestants of one module, in a session of its own: its workers stop and end with it.

    Args:
        command: what runs `serve`.
        scratch: a directory for temporary files.
        patience: seconds to wait for an answer.
    """

    def __init__(self, command: list[str], scratch: Path, patience: float) -> None:
        self.patience = patience
        self.peak = 0  # bytes, as of the last look
        self.import_s = 0.0
        self._began: float | None = time.perf_counter()
        quiet = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TMPDIR": str(scratch)}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  closed at the end
        environment = os.environ | quiet
        self._child = subprocess.Popen(command, stderr=self._log, env=environment, start_new_session=True, **pipes)

    def ask(self, method: str, *arguments: Any) -> Any:
        """What this method of `Run` returns there; its failure is a `RuntimeError`."""
        self.await_imports()
        self._child.stdin.write(json.dumps([method, *arguments]) + "\n")  # type: ignore[union-attr]
        self._child.stdin.flush()  # type: ignore[union-attr]
        return self._answer()

    def await_imports(self) -> None:
        if self._began is not None:
            self._answer()
            self.import_s, self._began = time.perf_counter() - self._began, None

    def _answer(self) -> Any:
        deadline = time.monotonic() + self.patience
        stdout: Any = self._child.stdout
        while not select.select([stdout], [], [], SAMPLE)[0]:
            self.peak = max(self.peak, resident(self._child.pid))
            if time.monotonic() > deadline:
                raise RuntimeError(f"no answer in {self.patience:.0f} s")
        line = stdout.readline()
        answer = json.loads(line or '{"error": "it ended without an answer"}')
        if "error" in answer:
            self._log.seek(0)
            printed = self._log.read().splitlines()
            raise RuntimeError("\n    ".join([answer["error"], *printed[-3:]]))
        return answer["value"]

    def freeze(self) -> None:
        """Stop it and its workers where they are, and weigh them."""
        os.killpg(self._child.pid, signal.SIGSTOP)
        self.weigh()

    def weigh(self) -> None:
        parent = psutil.Process(self._child.pid)
        family = [parent, *parent.children(recursive=True)]
        together = 0
        if len(family) > 1:
            with suppress(psutil.Error):
                together = sum(process.memory_full_info().pss for process in family)
        self.peak = max(self.peak, resident(self._child.pid), together)

    def resume(self) -> None:
        os.killpg(self._child.pid, signal.SIGCONT)

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._child.pid, signal.SIGKILL)
        self._child.communicate()
        self._log.close()


def resident(pid: int) -> int:
    """The most bytes that a process ever had in memory; or now, with what lies in its unnamed files unmapped."""
    sizes: dict[str, int] = {}
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.endswith(" kB"):
                name, size = line.split(":")
                sizes[name] = int(size.split()[0]) * 1024
    return max(sizes.get("VmHWM", 0), sizes.get("VmRSS", 0) + unmapped(pid, sizes.get("RssShmem", 0)))


def unmapped(pid: int, shared: int) -> int:
    """Bytes in unnamed files of a process beyond those shared ones that it has mapped."""
    held: dict[int, int] = {}
    with suppress(OSError):  # descriptors come and go
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            if os.readlink(descriptor).startswith("/memfd:"):
                found = descriptor.stat()
                held[found.st_ino] = found.st_blocks * 512
    return max(0, sum(held.values()) - shared)


def family_mb(pid: int) -> float:
    """MB of a process and its children by proportional set size, and of its unnamed files what is not mapped."""
    parent = psutil.Process(pid)
    together = sum(process.memory_full_info().pss for process in (parent, *parent.children(recursive=True)))
    return (together + unmapped(pid, parent.memory_info().shared)) / 1e6
