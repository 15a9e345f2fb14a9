"""The files of a source: paths in file systems, and stamps that tell when a file changes."""

import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tensorstash.common.text import type_text
from tensorstash.errors import SourceError

if TYPE_CHECKING:
    from pyarrow import fs

NULL_KEY = "__HIVE_DEFAULT_PARTITION__"  # stands for null in a directory `key=value`
_RETRY_SECONDS = 10
REQUESTS = 16  # concurrent requests to a remote file system
WILDCARD = re.compile(r"[*?\[]")  # the special characters of a glob pattern

# path, size, mtime_ns, ctime_ns and inode, or URL, size, mtime_ns, version; then the keys, which a link may change
Stamp = tuple[Any, ...]


@dataclass(frozen=True)
class File:
    """A file of a source, or a path to search for files."""

    path: str  # within the file system
    system: "fs.FileSystem | None" = None  # `None`: the local file system
    scheme: str = ""  # such as "s3://", goes before the path; empty for HTTP, whose paths are whole URLs
    keys: tuple[tuple[str, str | None], ...] = ()  # from directories `key=value` below the named directory

    def __str__(self) -> str:
        return without_secrets(self.path) if self.is_http else f"{self.scheme}{self.path}"

    @property
    def is_http(self) -> bool:
        """Whether the path is a whole URL, with its options."""
        return self.path.startswith(("http://", "https://"))

    @property
    def name(self) -> str:
        """The path in small letters, without the options of a URL: its ending tells the format."""
        return (self.path.partition("?")[0] if self.is_http else self.path).lower()

    @cached_property
    def real(self) -> str:
        """What tells the file from all others, also where links lead to it."""
        return os.path.realpath(self.path) if self.system is None else f"{self.scheme}{self.path}"

    def open(self) -> Any:
        """The file, open for reading."""
        return (self.system or here()).open_input_file(self.path)


@cache
def here() -> "fs.FileSystem":
    """The file system of this machine, made once: a load may open thousands of files."""
    from pyarrow import fs  # imported in functions: it loads the clients of object stores, and frames need no files

    return fs.LocalFileSystem()


def given_system(filesystem: Any) -> File:
    """The file system given as `filesystem=`, with an empty path."""
    import fsspec  # imported in functions, because it is slow to import
    from pyarrow import fs

    if isinstance(filesystem, fs.LocalFileSystem):
        return File("")
    if isinstance(filesystem, fs.FileSystem):
        return File("", filesystem, f"{filesystem.type_name.rpartition('+')[2]}://")
    if not isinstance(filesystem, fsspec.AbstractFileSystem):
        raise TypeError(
            f"filesystem= must be a pyarrow.fs.FileSystem or an fsspec file system, got {type_text(filesystem)}."
        )
    names = filesystem.protocol if isinstance(filesystem.protocol, (list, tuple)) else [filesystem.protocol]
    if "file" in names:
        return File("")
    scheme = "" if "http" in names else f"{names[0]}://"
    return File("", fs.PyFileSystem(fs.FSSpecHandler(filesystem)), scheme)


def place_of(path: str, given: File | None) -> File:
    """A path or URL in the given file system; without one, the URL decides and a path is local."""
    if given is None:
        return _place_of_url(path) if "://" in path else File(path)
    from pyarrow import fs

    handler = getattr(given.system, "handler", None)
    if isinstance(handler, fs.FSSpecHandler):
        path = handler.fs._strip_protocol(path)
    return replace(given, path=path.removeprefix(given.scheme))


def _place_of_url(url: str) -> File:
    """The file system of a URL: from pyarrow if it knows the scheme, else from fsspec."""
    import fsspec
    from pyarrow import fs

    url = _bounded(url)
    bare, mark, options = url.partition("?")
    plain = WILDCARD.split(bare, maxsplit=1)[0]
    try:
        try:
            system, path = fs.FileSystem.from_uri(plain + mark + options)
        except pa.ArrowInvalid:
            system, path = fsspec.core.url_to_fs(plain + mark + options)
        place = given_system(system)
    except (ImportError, ValueError, OSError, pa.ArrowException) as error:
        raise SourceError(f"The file system of {without_secrets(url)} cannot be reached: {error}") from error
    scheme = f"{bare.partition('://')[0]}://" if place.scheme else ""
    slash = "/" if plain != bare and plain.endswith("/") and not path.endswith("/") else ""
    return replace(place, path=path + slash + bare[len(plain) :], scheme=scheme)


def _bounded(url: str) -> str:
    """The URL, with a limit for Google's retries: they go on for minutes, also where there are no credentials."""
    if not url.startswith(("gs://", "gcs://")) or "retry_limit_seconds=" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}retry_limit_seconds={_RETRY_SECONDS}"


def why_absent(place: File) -> str:
    """What a server of HTTP answers for a file that is not there; empty for other file systems."""
    handler = getattr(place.system, "handler", None)
    if not place.is_http or handler is None:
        return ""
    try:
        handler.fs.info(place.path)
    except Exception as error:  # of aiohttp, behind an error that says nothing
        cause = error.__cause__ or error
        status, message = getattr(cause, "status", ""), getattr(cause, "message", "")
        return f": {f'{status} {message}' if status else cause}"
    return ""


def before_wildcard(pattern: str) -> str:
    """The directory before the first wildcard of a pattern."""
    return WILDCARD.split(pattern, maxsplit=1)[0].rpartition("/")[0]


def without_secrets(url: str) -> str:
    """A path or URL for messages, without the credentials and options of a URL."""
    return re.sub(r"://[^/@]*@", "://", url.partition("?")[0]) if "://" in url else url


def stamps(files: Sequence[File]) -> list[Stamp]:
    """A stamp for each file, which changes whenever the file changes."""
    if all(file.system is None for file in files):
        return [_stamp(file) for file in files]
    with ThreadPoolExecutor(REQUESTS) as pool:
        return [*pool.map(_stamp, files)]


def _stamp(file: File) -> Stamp:
    try:
        if file.system is None:
            status = os.stat(file.path)
            return file.real, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, *file.keys
        from pyarrow import fs

        info = file.system.get_file_info(file.path)
        if info.type == fs.FileType.File:
            return file.real, info.size, info.mtime_ns, _version(file), *file.keys
    except (OSError, ValueError, pa.ArrowException) as error:
        raise SourceError(f"{file} cannot be read: {' '.join(str(error).split())}") from error
    raise SourceError(f"{file} cannot be read: it no longer exists")


def _version(file: File) -> str | None:
    """The version of an object in an object store, whose times often have a resolution of one second."""
    from pyarrow import fs

    handler = getattr(file.system, "handler", None)
    if isinstance(handler, fs.FSSpecHandler):
        handler.fs.invalidate_cache()
        return str(handler.fs.ukey(file.path))
    with file.open() as opened:
        metadata = opened.metadata() or {}
    texts = {name.lower(): value.decode() for name, value in metadata.items()}
    return next((texts[name] for name in ("etag", "generation", "versionid") if name in texts), None)
