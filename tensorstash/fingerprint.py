"""The key of a shared segment: a hash of everything that decides a byte of it."""

import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any

import pyarrow as pa

from tensorstash.errors import SourceError
from tensorstash.plan import Plan
from tensorstash.segment import VERSION
from tensorstash.sources import Scan, files

Stamp = tuple[str, int, int, int]  # of a file: its real path, size, time of change in nanoseconds, inode


def stamps(source: Any) -> list[Stamp]:
    """What tells that the files of a source have not changed; nothing for a source in memory."""
    found = []
    for path in files(source) or []:
        about = os.stat(path)
        found.append((os.path.realpath(path), about.st_size, about.st_mtime_ns, about.st_ino))
    return found


def check_unchanged(source: Any, before: Sequence[Stamp]) -> None:
    """Refuse values of files that were written to while they were read: some would be old and some new."""
    try:
        after = stamps(source)
    except OSError:
        after = []
    if changed := set(before).symmetric_difference(after):
        raise SourceError(f"A source must not change while it is loaded; {min(changed)[0]} did. Load it again.")


class _Digest(io.RawIOBase):
    """A file that keeps nothing but a hash of what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.hash = blake2b(digest_size=32)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.hash.update(data)
        return memoryview(data).nbytes


def contents(scanned: Scan, planned: Plan) -> str:
    """A hash of the columns in memory that a plan takes, with their types."""
    digest = _Digest()
    names = [name for name in scanned.schema.names if name not in planned.skipped]
    schema = pa.schema([scanned.schema.field(name) for name in names])
    with pa.PythonFile(digest, mode="w") as sink, pa.ipc.new_stream(sink, schema) as stream:
        for unit in scanned.units:
            for batch in unit.read(names):
                stream.write_batch(batch)
    return digest.hash.hexdigest()


def key(source: object, arguments: Mapping[str, object]) -> str:
    """64 hex digits for a source, as its stamps or contents, and the arguments that change what is stored."""
    about = {"format": VERSION, "source": source, "arguments": {name: repr(arguments[name]) for name in arguments}}
    return sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def label_of(source: Any) -> str:
    """A label for a source: the name of the first path without its suffix, or the type of the source."""
    while isinstance(source, (list, tuple)) and source:
        source = source[0]
    is_path = isinstance(source, (str, os.PathLike))
    name = Path(os.path.abspath(source)).stem if is_path else type(source).__name__.lower()
    return re.sub(r"[^A-Za-z0-9_.+@=-]+", "-", name).lstrip("_.+@=-")[:100] or "stash"
