"""File systems and memory limits of a test's own, where the system allows them.

It reaches inside `segments/limits.py` for the type of a limit.
"""

import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tensorstash.segments.limits import Limit

_MOUNT = 'mount -t tmpfs -o size="$1" none "$2" && shift 2 && exec "$@"'


def mounting(path: Path, size: str, capsys: pytest.CaptureFixture[str]) -> tuple[str, ...]:
    """The beginning of a command that sees a tmpfs of that size at `path`; nothing where that is not allowed.

    The mount is seen by that command alone, and is gone with it.
    """
    path.mkdir(mode=0o700, exist_ok=True)
    begin = ("unshare", "-rm", "sh", "-c", _MOUNT, "sh", f"{size},mode=700", str(path))
    try:
        subprocess.run([*begin, "true"], capture_output=True, text=True, check=True, timeout=600)
    except (OSError, subprocess.CalledProcessError) as error:
        with capsys.disabled():
            os.write(1, f"no file system of our own: {getattr(error, 'stderr', error)}\n".encode())
        return ()
    return begin


def limit(nbytes: int, where: str = "in RAM", remedy: str = "") -> Limit:
    """What a test says is free, in place of what the system says."""
    return Limit(nbytes, where, remedy)


@contextmanager
def memory_cgroup() -> Iterator[tuple[Path, str]]:
    """The directory of a memory cgroup below our own, and the name of its limit; a skip where it cannot be made."""
    why: Exception = FileNotFoundError("this system has none")
    for parent, limit in _own_cgroups():
        directory = parent / f"tensorstash-test-{secrets.token_hex(4)}"
        try:
            directory.mkdir()
        except OSError as error:
            why = error
            continue
        try:
            if (directory / limit).exists():
                yield directory, limit
                return
            why = FileNotFoundError(f"{directory} has no {limit}")
        finally:
            directory.rmdir()
    pytest.skip(f"no memory cgroup of our own: {why}")


def _own_cgroups() -> Iterator[tuple[Path, str]]:
    """The cgroups of this process that may limit memory, of versions 1 and 2."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            yield Path(f"/sys/fs/cgroup/memory{path}"), "memory.limit_in_bytes"
        elif number == "0":
            yield Path(f"/sys/fs/cgroup{path}"), "memory.max"
