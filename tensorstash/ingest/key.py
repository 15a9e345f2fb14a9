"""The key of a shared segment: a hash of everything that decides a byte of it."""

import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b, sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa

from tensorstash.errors import SourceError
from tensorstash.ingest.plan import Plan
from tensorstash.segments.format import VERSION
from tensorstash.sources.file_systems import WILDCARD, before_wildcard
from tensorstash.sources.locate import find, label_of_paths
from tensorstash.sources.scan import Scan
from tensorstash.sources.stamps import Stamp, stamps


def check_unchanged(source: Any, filesystem: Any, before: Sequence[Stamp]) -> None:
    """Refuse values of files that were written to while they were read: some would be old and some new."""
    try:
        after = stamps(find(source, filesystem) or [])
    except OSError:
        after = []
    if changed := set(before).symmetric_difference(after):
        name = min(str(stamp[0]) for stamp in changed)
        raise SourceError(f"A source must not change while it is loaded; {name} did. Load it again.")


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
    names = [name for name in scanned.schema.names if name not in planned.skipped and name not in planned.derived]
    schema = pa.schema([scanned.schema.field(name) for name in names])
    with pa.PythonFile(digest, mode="w") as sink, pa.ipc.new_stream(sink, schema) as stream:
        for unit in scanned.units:
            for batch in unit.read(names):
                stream.write_batch(batch)
    return digest.hash.hexdigest()


def key(source: object, arguments: Mapping[str, object]) -> str:
    """64 hex digits for a source, as its stamps or contents, and the arguments that change what is stored."""
    release = version("tensorstash")  # another one may decode otherwise
    about = {
        "format": VERSION,
        "release": release,
        "source": source,
        "arguments": {name: repr(arguments[name]) for name in arguments},
    }
    return sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def label_of(source: Any) -> str:
    """A label for a source: the name of the first path without its suffix, or the type of the source.

    Of a glob it is the name before the first wildcard, or that of the directory where the name begins with one.
    """
    while isinstance(source, (list, tuple)) and source:
        source = source[0]
    if not isinstance(source, (str, os.PathLike)):
        return _as_label(type(source).__name__.lower()) or "stash"
    path = os.path.abspath(label_of_paths(source))
    name = Path(path).stem
    magic = None if os.path.exists(path) else WILDCARD.search(name)
    found = _as_label(name[: magic.start()]).rstrip("_.+@=-") if magic else _as_label(name)
    return found or (_as_label(os.path.basename(before_wildcard(path))) if magic else "") or "stash"


def _as_label(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.+@=-]+", "-", name).lstrip("_.+@=-")[:100]
