"""How many bytes can still be allocated: limits of RAM, of memory cgroups and of file systems.

A memory cgroup kills a process that allocates more, and a full tmpfs kills one that writes to it through a mapping. So
both are checked before.
"""

import errno
import mmap
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

import psutil

from tensorstash.common.text import size_text
from tensorstash.errors import NoMemoryError

_CGROUPS = "sys/fs/cgroup"
_CACHED = re.compile(r"^(total_)?(?:in)?active_file (\d+)$", re.MULTILINE)  # of a `memory.stat`
_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
_NO_LIMIT = 1 << 62  # version 1 has no word for it, but a number near 2**63


@dataclass(frozen=True, slots=True, order=True)
class Limit:
    """The free bytes under one limit. The lesser limit is the one with fewer of them."""

    free: int
    where: str  # in messages: "... MB are free {where}"
    remedy: str  # a sentence; empty if only a smaller stash helps


def memory_limits() -> list[Limit]:
    """The limits of RAM and memory cgroups."""
    return [Limit(psutil.virtual_memory().available, "in RAM", ""), *cgroup_limits("/")]


def directory_limit(fd: int, path: str) -> Limit:
    """The room for shared segments in the file system of an open directory."""
    status = os.fstatvfs(fd)
    remedy = (
        "Make it larger (docker run --shm-size=..., in Kubernetes a volume `emptyDir: {medium: Memory}` mounted on "
        "/dev/shm), or set TENSORSTASH_DIR to a directory with more room."
    )
    return Limit(status.f_bavail * status.f_frsize, f"in {path}", remedy)


def disk_limit(fd: int, path: str) -> Limit:
    """The room for the file of a stash in the file system of a descriptor."""
    return replace(directory_limit(fd, path), remedy="Make room there, or choose a path on another disk.")


def no_room_for_batch(nbytes: int) -> NoMemoryError:
    """The error for a batch whose memory the system does not give."""
    return NoMemoryError(
        f"A batch must fit into memory, and this one takes {size_text(nbytes)}. Take fewer windows a batch, or shorter "
        "spans: fewer slots, or max_rows= of ts.During."
    )


def map_file(fd: int, nbytes: int, flags: int = mmap.MAP_SHARED, prot: int = _READ_WRITE) -> mmap.mmap:
    """Map the file of a stash; a `NoMemoryError` if the system has no room for its addresses."""
    try:
        return mmap.mmap(fd, nbytes, flags=flags, prot=prot)
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        raise NoMemoryError(
            f"A stash is mapped as a whole, and the system refuses {size_text(nbytes)} of addresses: {error.strerror}. "
            "Load fewer columns or a narrower dtype, or allow this process more: ulimit -v shows its limit."
        ) from error


def check_free(nbytes: int, limits: Sequence[Limit], rule: str, who: str, remedy: str) -> None:
    """Raise `NoMemoryError` if fewer than `nbytes` are free; `rule`, `who` and `remedy` go into its message."""
    limit = min(limits)
    if nbytes > limit.free:
        remedies = f"{limit.remedy} {remedy}".strip()
        raise NoMemoryError(
            f"{rule}; {who} needs {size_text(nbytes)} and {size_text(limit.free)} are free {limit.where}. {remedies}"
        )


def cgroup_limits(root: str) -> Iterator[Limit]:
    """The limits of memory cgroups, read from `proc` and `sys` below `root`."""
    try:
        lines = _text(os.path.join(root, "proc/self/cgroup")).splitlines()
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
            directory = os.path.join(root, _CGROUPS, mount)
            # in a container the lower groups may not exist, and the root is its own
            for group in (PurePosixPath(path), *PurePosixPath(path).parents):
                yield from _group_limit(os.path.join(directory, str(group).lstrip("/")), str(group), *names)


def _group_limit(directory: str, group: str, limit: str, usage: str) -> Iterator[Limit]:
    try:
        allowed = _text(os.path.join(directory, limit)).strip()
        if allowed == "max" or int(allowed) >= _NO_LIMIT:
            return
        free = int(allowed) - int(_text(os.path.join(directory, usage)))
        free += _reclaimable(os.path.join(directory, "memory.stat"))
    except (OSError, ValueError):
        return
    remedy = "Give the job more memory (docker run --memory=..., Kubernetes resources.limits.memory, sbatch --mem=...)."
    yield Limit(max(0, free), f"in the memory cgroup {group}", remedy)


def _reclaimable(path: str) -> int:
    """Bytes of cached files, which the kernel gives up when memory is needed."""
    found = _CACHED.findall(_text(path))
    # version 1 has separate totals that include the groups below, version 2 always includes them
    prefix = max((prefix for prefix, _ in found), default="")
    return sum(int(count) for group, count in found if group == prefix)


def _text(path: str) -> str:
    """A small file of the kernel."""
    with open(path, "rb", buffering=0) as file:  # a load reads a dozen
        return file.read().decode()
