"""How many bytes can still be allocated: limits of RAM, of memory cgroups and of file systems.

A memory cgroup kills a process that allocates more, and a full tmpfs kills one that writes to it through a mapping. So
both are checked before.
"""

import os
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tensorstash.errors import NoMemoryError
from tensorstash.segments.ray_store import ray_remedy

_CGROUPS = "sys/fs/cgroup"


@dataclass(frozen=True, slots=True)
class Limit:
    """Bytes that are free under one limit."""

    free: int
    what: str  # in messages: "... MB are free {what}"
    remedy: str  # a sentence, or nothing where only a smaller stash helps
    on_disk: bool = False


def memory_limits(root: str = "/") -> list[Limit]:
    """The limits on what this process may allocate, as `proc` and `sys` below `root` say."""
    return [Limit(psutil.virtual_memory().available, "in RAM", ""), *_cgroup_limits(Path(root))]


def directory_limit(fd: int, path: str) -> Limit:
    """The room in the file system behind the descriptor of a directory."""
    about = os.fstatvfs(fd)
    remedy = (
        "Make it larger (docker run --shm-size=..., in Kubernetes a volume `emptyDir: {medium: Memory}` mounted on "
        "/dev/shm), or set TENSORSTASH_DIR to a directory with more room."
    )
    return Limit(about.f_bavail * about.f_frsize, f"in {path}", remedy)


def disk_limit(fd: int, path: str) -> Limit:
    """The room for the file of a stash in the file system behind a descriptor."""
    about = os.fstatvfs(fd)
    remedy = "Make room there, or choose a path on another disk."
    return Limit(about.f_bavail * about.f_frsize, f"in {path}", remedy, on_disk=True)


def tightest(limits: Sequence[Limit]) -> Limit:
    """The limit that leaves the fewest bytes."""
    return min(limits, key=lambda limit: limit.free)


def check_free(nbytes: int, limits: Sequence[Limit], rule: str, who: str, remedy: str) -> None:
    """Refuse what cannot be allocated; in the message, `rule` comes first, and `remedy` after that of the limit."""
    limit = tightest(limits)
    if nbytes > limit.free:
        own = "" if limit.on_disk else ray_remedy()
        remedies = " ".join(text for text in (own, limit.remedy, remedy) if text)
        raise NoMemoryError(
            f"{rule}; {who} needs {nbytes / 1e6:,.0f} MB and {limit.free / 1e6:,.0f} MB are free {limit.what}. "
            f"{remedies}"
        )


def _cgroup_limits(root: Path) -> Iterator[Limit]:
    """One limit per memory cgroup between that of this process and the root."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":
            mounts, names = ["", "unified"], ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            mounts, names = ["memory"], ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        for mount in mounts:
            for group in _upwards(path):
                yield from _group_limit(root / _CGROUPS / mount / group.lstrip("/"), group, *names)


def _upwards(path: str) -> Iterator[str]:
    """A path and those above it; in a container the lower ones may not be there, and the last is its own."""
    while path != "/":
        yield path
        path = posixpath.dirname(path)
    yield "/"


def _group_limit(directory: Path, group: str, limit: str, usage: str) -> Iterator[Limit]:
    try:
        most = (directory / limit).read_text().strip()
        if most == "max":
            return
        free = int(most) - int((directory / usage).read_text()) + _reclaimable(directory / "memory.stat")
    except (OSError, ValueError):
        return
    remedy = "Give the job more memory (docker run --memory=..., Kubernetes resources.limits.memory, sbatch --mem=...)."
    yield Limit(max(0, free), f"in the memory cgroup {group}", remedy)


def _reclaimable(path: Path) -> int:
    """Bytes of files that are only kept because nobody else needs the memory."""
    fields = dict(line.split() for line in path.read_text().splitlines())
    # version 1 counts the groups below apart, version 2 has no such names
    prefix = "total_" if "total_inactive_file" in fields else ""
    return sum(int(fields.get(f"{prefix}{kind}_file", 0)) for kind in ("inactive", "active"))
