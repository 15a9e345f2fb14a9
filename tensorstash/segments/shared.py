"""The shared segments of this machine: `ts.shared.list`, `ts.shared.remove`, `ts.shared.prune`."""

import builtins
import os
import stat
import time
from collections import Counter
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensorstash.common.checks import amount
from tensorstash.errors import SegmentError
from tensorstash.segments.directory import (
    Directory,
    Name,
    check_label,
    names,
    not_a_file,
    open_directory,
    open_segment,
    remove_unused,
    segments_in,
    status_of,
    unlink,
)
from tensorstash.segments.format import parse

if TYPE_CHECKING:
    import polars as pl

__all__ = ["list", "prune", "remove"]
_REMOVABLE = (stat.S_IFREG, stat.S_IFLNK)


def __dir__() -> builtins.list[str]:
    return __all__


def list() -> "pl.DataFrame":  # noqa: A001  its name is ts.shared.list
    """The shared segments of this user on this machine, the oldest first.

    Returns:
        A polars frame of `label`, `key`, `bytes`, `rows`, `columns` (both null if the segment is damaged or cannot be
        read), `created` in UTC, and `users`: how many times it is attached now. A stash that a process has inherited
        or got through `multiprocessing` counts once, together with that of the process it came from. Processes in
        other containers do not count. `users` is null where the system does not list its locks.

    Example:
        >>> import tensorstash as ts
        >>> ts.shared.list().columns
        ['label', 'key', 'bytes', 'rows', 'columns', 'created', 'users']
    """
    import polars as pl

    schema = {"label": pl.String, "key": pl.String, "bytes": pl.Int64, "rows": pl.Int64, "columns": pl.Int64}
    return pl.DataFrame(lines(), schema | {"created": pl.Datetime("us", "UTC"), "users": pl.Int64})


def lines() -> builtins.list[dict[str, Any]]:
    """The rows of `list()`, without polars, which is slow to import."""
    with open_directory() as directory:
        users = _users()
        return [
            {
                "label": name.label,
                "key": name.key,
                "bytes": status.st_size,
                **_shape(directory, name),
                "created": datetime.fromtimestamp(status.st_mtime_ns / 1e9, timezone.utc),
                "users": None if users is None else users[status.st_dev, status.st_ino],
            }
            for name, status in segments_in(directory)
        ]


def _shape(directory: Directory, name: Name) -> dict[str, int | None]:
    with suppress(SegmentError):
        if (fd := open_segment(directory, name)) is not None:
            try:
                metadata = parse(fd, directory.join(name), name.label).metadata
            finally:
                os.close(fd)
            match metadata:
                case {"rows": rows, "columns": [*columns]} if type(rows) is int and 0 <= rows < 1 << 63:
                    return {"rows": rows, "columns": len(columns)}
    return {"rows": None, "columns": None}


def _users() -> Counter[tuple[int, int]] | None:
    """The number of shared locks on each file, by device and inode, as the kernel lists them."""
    users: Counter[tuple[int, int]] = Counter()
    try:
        locks = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    for lock in locks:
        fields = lock.split()
        if fields[1:2] == ["FLOCK"] and fields[3] == "READ":
            major, minor, inode = fields[5].split(":")
            users[os.makedev(int(major, 16), int(minor, 16)), int(inode)] += 1
    return users


def remove(label: str) -> builtins.list[str]:
    """Remove all segments of a label, including those in use: processes that have attached one keep it.

    Its memory is freed when the last of them ends or closes it. Files that a killed process left under the label are
    removed too. Of a link in the directory the link is removed, and never what it points to.

    Args:
        label: the label that was given as `share=`, or to `stash.share`.

    Returns:
        The names of the removed segments, `<label>-<key>`; none if there is no such label.

    Raises:
        ValueError: `label` is not one label. SegmentError: files cannot be removed, or one is a directory or a pipe.

    Example:
        >>> import tensorstash as ts
        >>> stash = ts.load({"y": [1.0, 2.0]}, share="example-remove")
        >>> len(ts.shared.remove("example-remove")), ts.shared.remove("example-remove"), stash["y"].tolist()
        (1, [], [1.0, 2.0])
    """
    check_label(label, remedy="Remove one label at a time; ts.shared.list() shows the existing labels.")
    removed, odd = [], None
    with open_directory() as directory:
        for name in names(directory):
            if name.label != label:
                continue
            if name.suffix:
                remove_unused(directory, name)
            elif (status := status_of(directory, name)) and stat.S_IFMT(status.st_mode) not in _REMOVABLE:
                odd = name
            else:
                with suppress(FileNotFoundError):
                    unlink(directory, name)
                    removed.append(str(name))
        if odd is not None:
            raise not_a_file(directory, odd, "it is a directory, a pipe or a device")
    return removed


def prune(*, older_than: timedelta | str | None = None, max_bytes: int | None = None) -> builtins.list[str]:
    """Remove segments that no process has attached, the oldest first, and files left by killed processes.

    Args:
        older_than: remove segments that are older than this, a `timedelta` or a text such as "12h" or "7d". `None`
            removes none for its age.
        max_bytes: remove segments until all that remain, including segments in use, have at most this many bytes.
            `None` removes none for its size.

    Returns:
        The names of the removed segments. Without arguments no segment is removed, only files left by killed processes.

    Example:
        >>> import tensorstash as ts
        >>> ts.shared.prune()
        []
    """
    age, most = _age(older_than), amount(max_bytes, "bytes", "max_bytes")
    removed = []
    with open_directory() as directory:
        for name in names(directory):
            if name.suffix:
                remove_unused(directory, name)
        segments = segments_in(directory)
        total = sum(status.st_size for _, status in segments)
        for name, status in segments:
            old = age is not None and time.time_ns() - status.st_mtime_ns > age / timedelta(microseconds=1) * 1000
            large = most is not None and total > most
            if (old or large) and remove_unused(directory, name):
                removed.append(str(name))
                total -= status.st_size
    return removed


def _age(older_than: timedelta | str | None) -> timedelta | None:
    if older_than is None:
        return None
    from tensorstash.common.frequency import duration  # here, because it imports numpy

    return duration(older_than, "older_than")
