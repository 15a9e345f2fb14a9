"""Stamps: values that change whenever a file changes."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from pyarrow import fs

from tensorstash.errors import SourceError
from tensorstash.sources.file import REQUESTS, File

Stamp = tuple[str | int | None, ...]  # path, size, mtime_ns, ctime_ns and inode; or URL, size, mtime_ns, version


def stamps(files: Sequence[File]) -> list[Stamp]:
    """The stamp of each file."""
    if all(file.system is None for file in files):
        return [_stamp(file) for file in files]
    with ThreadPoolExecutor(REQUESTS) as pool:
        return [*pool.map(_stamp, files)]


def _stamp(file: File) -> Stamp:
    try:
        if file.system is None:
            about = os.stat(file.path)
            return os.path.realpath(file.path), about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino
        info = file.system.get_file_info(file.path)
        if info.type == fs.FileType.File:
            return str(file), info.size, info.mtime_ns, _version(file)
    except OSError as error:
        raise SourceError(f"{file} cannot be read: {error}") from error
    raise SourceError(f"{file} cannot be read: it no longer exists")


def _version(file: File) -> str | None:
    """The version that an object store gives an object, because its times often have a resolution of one second."""
    handler = getattr(file.system, "handler", None)
    if isinstance(handler, fs.FSSpecHandler):
        handler.fs.invalidate_cache()
        return str(handler.fs.ukey(file.path))
    with file.open() as opened:
        about = opened.metadata() or {}
    texts = {_text(name).lower(): _text(value) for name, value in about.items()}
    return next((texts[name] for name in ("etag", "generation", "versionid") if name in texts), None)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
