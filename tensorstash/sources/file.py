"""A file of a source, its file system, and its stamp."""

import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyarrow import fs

from tensorstash.errors import SourceError

# file name endings that are looked for in directories
PARQUET = (".parquet", ".parq", ".pq")
ARROW = (".arrow", ".arrows", ".feather", ".ipc")
TABS = (".tsv", ".tsv.gz", ".tsv.zst")
CSV = (".csv", ".csv.gz", ".csv.zst", *TABS)
HERE = fs.LocalFileSystem()
REQUESTS = 16  # concurrent requests to a remote file system
WILDCARD = re.compile(r"[*?\[]")  # in a glob pattern

Stamp = tuple[str | int | None, ...]  # path, size, mtime_ns, ctime_ns and inode; or URL, size, mtime_ns, version


@dataclass(frozen=True, slots=True)
class File:
    """A file of a source, or the path that is searched for files."""

    path: str  # inside its file system
    system: fs.FileSystem | None = None  # `None`: the file system of this machine
    scheme: str = ""  # printed before the path in messages, such as "s3://"
    keys: tuple[tuple[str, str | None], ...] = ()  # from directories `key=value` below the directory that was named

    def __str__(self) -> str:
        return f"{self.scheme}{self.path}"

    @property
    def is_csv(self) -> bool:
        """Whether the file is CSV, by the ending of its name."""
        return self.path.lower().endswith(CSV)

    @property
    def has_tabs(self) -> bool:
        """Whether tabs separate the values of a CSV file, by the ending of its name."""
        return self.path.lower().endswith(TABS)

    def open(self) -> Any:
        """What pyarrow reads: the path, or an open file of another file system."""
        return self.path if self.system is None else self.system.open_input_file(self.path)


# File systems


def given_system(filesystem: Any) -> File:
    """The file system given as `filesystem=`, with an empty path."""
    import fsspec  # here and below, because it is slow to import

    if isinstance(filesystem, fs.LocalFileSystem):
        return File("")
    if isinstance(filesystem, fs.FileSystem):
        return File("", filesystem, f"{filesystem.type_name.rpartition('+')[2]}://")
    if not isinstance(filesystem, fsspec.AbstractFileSystem):
        raise TypeError(
            f"filesystem= is a pyarrow.fs.FileSystem or an fsspec file system; got a {type(filesystem).__name__}."
        )
    names = filesystem.protocol if isinstance(filesystem.protocol, (list, tuple)) else [filesystem.protocol]
    if "file" in names:
        return File("")
    return File("", fs.PyFileSystem(fs.FSSpecHandler(filesystem)), f"{names[0]}://")


def place_of(path: str, given: File | None) -> File:
    """A path or URL in the given file system; without one, a URL chooses its own and a path is local."""
    if given is None:
        return _place_of_url(path) if "://" in path else File(path)
    handler = getattr(given.system, "handler", None)
    if isinstance(handler, fs.FSSpecHandler):
        path = handler.fs._strip_protocol(path)
    return replace(given, path=path.removeprefix(given.scheme))


def _place_of_url(url: str) -> File:
    """The file system of a URL: from pyarrow if it knows the scheme, else from fsspec."""
    import fsspec

    bare, mark, options = url.partition("?")
    magic = WILDCARD.search(bare)
    plain = bare[: magic.start()] if magic else bare
    try:
        try:
            system, path = fs.FileSystem.from_uri(plain + mark + options)
            place = (
                File("") if isinstance(system, fs.LocalFileSystem) else File("", system, f"{bare.partition(':')[0]}://")
            )
        except pa.ArrowInvalid:
            system, path = fsspec.core.url_to_fs(plain + mark + options)
            place = given_system(system)
    except (ImportError, ValueError, OSError, pa.ArrowException) as error:
        raise SourceError(f"{without_secrets(url)} names no file system that can be reached: {error}") from error
    slash = "/" if magic and plain.endswith("/") and not path.endswith("/") else ""
    return replace(place, path=path + slash + bare[len(plain) :])


def before_wildcard(pattern: str) -> str:
    """The directory before the first wildcard of a pattern."""
    magic = WILDCARD.search(pattern)
    return pattern[: magic.start() if magic else None].rpartition("/")[0]


def without_secrets(url: str) -> str:
    """A path or URL for messages: without the credentials and options that a URL may contain."""
    return re.sub(r"://[^/@]*@", "://", url.partition("?")[0]) if "://" in url else url


# Stamps: values that change whenever a file changes


def stamps(files: Sequence[File]) -> list[Stamp]:
    """The stamp of each file."""
    if all(file.system is None for file in files):
        return [_stamp(file) for file in files]
    with ThreadPoolExecutor(REQUESTS) as pool:
        return [*pool.map(_stamp, files)]


def _stamp(file: File) -> Stamp:
    try:
        if file.system is None:
            status = os.stat(file.path)
            return os.path.realpath(file.path), status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
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
        metadata = opened.metadata() or {}
    texts = {name.lower(): value.decode() for name, value in metadata.items()}
    return next((texts[name] for name in ("etag", "generation", "versionid") if name in texts), None)
