"""The shared segments of this machine: `ts.shared.list`, `ts.shared.remove`, `ts.shared.prune`."""

import builtins
import os
import time
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from numbers import Real
from typing import TYPE_CHECKING, Any

from tensorstash.common.frequency import duration
from tensorstash.errors import SegmentError
from tensorstash.segments.attach import open_segment
from tensorstash.segments.directory import (
    Directory,
    Listed,
    check_label,
    is_regular,
    listed,
    names,
    opened,
    remove_unused,
    unlink,
)
from tensorstash.segments.format import parse

if TYPE_CHECKING:
    import polars as pl


def list() -> "pl.DataFrame":  # noqa: A001  its name is ts.shared.list
    """The shared segments of this user on this machine, the oldest first.

    Returns:
        A polars frame of `label`, `key`, `MB`, `rows`, `columns` (both null if the segment is damaged or cannot be
        read), `created` in UTC, and `users`: how many times it is attached now. A stash that a process has inherited
        or got through `multiprocessing` counts once, together with that of the process it came from. Processes in
        other containers do not count. `users` is null where the system does not list its locks.

    Example:
        >>> import tensorstash as ts
        >>> ts.shared.list().columns
        ['label', 'key', 'MB', 'rows', 'columns', 'created', 'users']
    """
    import polars as pl

    with opened() as directory:
        users = _users()
        lines = [_line(directory, segment, users) for segment in listed(directory)]
    schema = {"label": pl.String, "key": pl.String, "MB": pl.Float64, "rows": pl.Int64, "columns": pl.Int64}
    return pl.DataFrame(lines, schema | {"created": pl.Datetime("us", "UTC"), "users": pl.Int64}, orient="row")


def _line(directory: Directory, segment: Listed, users: dict[tuple[int, int], int] | None) -> tuple[Any, ...]:
    rows, columns = _shape(directory, segment)
    count = None if users is None else users.get(segment.inode, 0)
    created = datetime.fromtimestamp(segment.created / 1e9, timezone.utc)
    return segment.name.label, segment.name.key, segment.nbytes / 1e6, rows, columns, created, count


def _shape(directory: Directory, segment: Listed) -> tuple[int | None, int | None]:
    """The numbers of rows and columns, or `None`."""
    try:
        fd = open_segment(directory, segment.name)
        if fd is None:
            return None, None
        try:
            metadata = parse(fd, directory.join(segment.name), segment.name.label).metadata
        finally:
            os.close(fd)
    except SegmentError:
        return None, None
    if not isinstance(metadata, dict):
        return None, None
    rows, columns = metadata.get("rows"), metadata.get("columns")
    if type(rows) is int and 0 <= rows < 1 << 63 and isinstance(columns, builtins.list):
        return rows, len(columns)
    return None, None


def _users() -> dict[tuple[int, int], int] | None:
    """How many shared locks there are on each file, by device and inode, as the kernel lists them."""
    users: dict[tuple[int, int], int] = {}
    try:
        with open("/proc/locks") as file:
            lines = file.read().splitlines()
    except OSError:
        return None
    for line in lines:
        fields = line.split()
        if fields[1:2] == ["FLOCK"] and fields[3] == "READ":
            major, minor, inode = fields[5].split(":")
            key = os.makedev(int(major, 16), int(minor, 16)), int(inode)
            users[key] = users.get(key, 0) + 1
    return users


def remove(label: str) -> builtins.list[str]:
    """Remove all segments of a label, also those in use: processes that have attached one keep it until they are done.

    Its memory is free when the last of them lets go. Files that a killed process has left under the label are removed
    too.

    Returns:
        The names of the removed segments, `<label>-<key>`; none if there is no such label.

    Raises:
        ValueError: `label` is not one label. SegmentError: the files cannot be removed.

    Example:
        >>> import tensorstash as ts
        >>> stash = ts.load({"y": [1.0, 2.0]}, share="example-remove")
        >>> len(ts.shared.remove("example-remove")), ts.shared.remove("example-remove"), stash["y"].tolist()
        (1, [], [1.0, 2.0])
    """
    check_label(label, "Remove one label at a time; ts.shared.list() shows the labels there are.")
    removed = []
    with opened() as directory:
        for name in names(directory):
            if name.label != label:
                continue
            if name.suffix:
                remove_unused(directory, name)
            elif is_regular(directory, name):
                with suppress(FileNotFoundError):
                    unlink(directory, name)
                    removed.append(str(name))
    return removed


def prune(*, older_than: timedelta | str | None = None, max_bytes: int | None = None) -> builtins.list[str]:
    """Remove segments that no process has attached, the oldest first, and files that killed processes have left.

    Args:
        older_than: remove segments that are older than this, a `timedelta` or a text such as "12h" or "7d".
        max_bytes: remove segments until the rest, with those in use, have at most this many bytes together.

    Returns:
        The names of the removed segments. Without arguments there are none: only files that killed processes have left
        are removed.

    Example:
        >>> import tensorstash as ts
        >>> ts.shared.prune()
        []
    """
    _check_limits(older_than, max_bytes)
    age = duration(older_than, "older_than") if isinstance(older_than, str) else older_than
    removed = []
    with opened() as directory:
        for name in names(directory):
            if name.suffix:
                remove_unused(directory, name)
        found = listed(directory)
        total = sum(segment.nbytes for segment in found)
        for segment in found:
            old = age is not None and time.time_ns() - segment.created > age / timedelta(microseconds=1) * 1000
            large = max_bytes is not None and total > max_bytes
            if (old or large) and remove_unused(directory, segment.name):
                removed.append(str(segment.name))
                total -= segment.nbytes
    return removed


def _check_limits(older_than: object, max_bytes: object) -> None:
    if not (older_than is None or isinstance(older_than, (timedelta, str))):
        raise TypeError(f"older_than= is a timedelta or a text such as '12h' or '7d'; got {older_than!r}.")
    if isinstance(max_bytes, bool) or not (max_bytes is None or isinstance(max_bytes, Real)):
        raise TypeError(f"max_bytes= is a number of bytes, such as 10**9; got {max_bytes!r}.")
