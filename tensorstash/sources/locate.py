"""The files of a source, on this machine or in any file system: paths, globs, directories, URLs, partition keys."""

import glob
import os
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import fsspec
import pyarrow as pa
from fsspec.utils import glob_translate
from pyarrow import fs

from tensorstash.errors import SourceError

PARQUET = (".parquet", ".parq", ".pq")
ARROW = (".arrow", ".arrows", ".feather", ".ipc")
MAGIC = re.compile(r"[*?\[]")  # a wildcard of a glob
REQUESTS = 16  # that are under way at a time where each waits for a network

Stamp = tuple[str | int | None, ...]  # of a file: its name, size, time of change in nanoseconds, inode or version
_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class File:
    """A file of a source."""

    path: str  # as its file system knows it
    system: fs.FileSystem | None = None  # `None`: that of this machine
    scheme: str = ""  # before the path in messages, as "s3://"
    keys: tuple[tuple[str, str | None], ...] = ()  # of the directories `key=value` below the one that was named

    def __str__(self) -> str:
        return f"{self.scheme}{self.path}"

    def open(self) -> Any:
        """What pyarrow reads: the path, or an open file of another file system."""
        return self.path if self.system is None else self.system.open_input_file(self.path)


def is_paths(source: Any) -> bool:
    """Whether a source is files: a path or a list of them."""
    items = source if isinstance(source, (list, tuple)) else [source]
    return all(isinstance(item, (str, os.PathLike)) for item in items)


def label_of_paths(source: Any) -> str:
    """A source of files for messages, without the keys and options that a URL may carry."""
    if isinstance(source, (list, tuple)):
        return f"{len(source)} paths"
    text = os.fspath(source)
    return re.sub(r"://[^/@]*@", "://", text.partition("?")[0]) if "://" in text else text


def find(source: Any, filesystem: Any = None) -> list[File] | None:
    """The files of a source in the order of their rows; `None` if it is in memory."""
    if not is_paths(source):
        if filesystem is None:
            return None
        raise TypeError(f"filesystem= is where the paths of a source are; got a {type(source).__name__} as the source.")
    several = isinstance(source, (list, tuple))
    given = None if filesystem is None else _given(filesystem)
    found = [file for item in (source if several else [source]) for file in _expand(os.fspath(item), given)]
    if not found:
        raise SourceError("A source needs at least one file; the list of paths is empty.")
    if several:  # the same file may have been named twice
        real = lru_cache(maxsize=None)(os.path.realpath)  # of directories, which many files share
        found = [*{(_real(file, real), file.keys): file for file in reversed(found)}.values()]
    return sorted(found, key=lambda file: file.path)


def stamps(files: Sequence[File]) -> list[Stamp]:
    """What tells that files have not changed."""
    if all(file.system is None for file in files):
        return [_stamp(file) for file in files]
    with ThreadPoolExecutor(REQUESTS) as pool:
        return [*pool.map(_stamp, files)]


def _stamp(file: File) -> Stamp:
    try:
        if file.system is None:
            about = os.stat(file.path)
            return os.path.realpath(file.path), about.st_size, about.st_mtime_ns, about.st_ino
        info = file.system.get_file_info(file.path)
        if info.type == fs.FileType.File:
            return str(file), info.size, info.mtime_ns, _version(file)
    except OSError as error:
        raise SourceError(f"{file} cannot be read: {error}") from error
    raise SourceError(f"{file} cannot be read: it is not there any more")


def _version(file: File) -> str | None:
    """What a store itself calls the version of an object, because its times are often those of whole seconds."""
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


# File systems


@dataclass(frozen=True, slots=True)
class _Place:
    """A path in a file system."""

    system: fs.FileSystem | None
    scheme: str
    path: str


def _given(filesystem: Any) -> _Place:
    """The file system of `filesystem=`, without a path yet."""
    if isinstance(filesystem, fs.FileSystem):
        local = isinstance(filesystem, fs.LocalFileSystem)
        name = filesystem.type_name.rpartition("+")[2]
        return _Place(None, "", "") if local else _Place(filesystem, f"{name}://", "")
    if not isinstance(filesystem, fsspec.AbstractFileSystem):
        raise TypeError(
            f"filesystem= is a pyarrow.fs.FileSystem or an fsspec file system; got a {type(filesystem).__name__}."
        )
    names = filesystem.protocol if isinstance(filesystem.protocol, (list, tuple)) else [filesystem.protocol]
    if "file" in names:
        return _Place(None, "", "")
    return _Place(fs.PyFileSystem(fs.FSSpecHandler(filesystem)), f"{names[0]}://", "")


def _place(path: str, given: _Place | None) -> _Place:
    if given is None:
        return _resolve(path) if "://" in path else _Place(None, "", path)
    handler = getattr(given.system, "handler", None)
    if isinstance(handler, fs.FSSpecHandler):
        path = handler.fs._strip_protocol(path)
    return replace(given, path=path.removeprefix(given.scheme) if given.scheme else path)


def _resolve(url: str) -> _Place:
    """The file system of a URL: by pyarrow if it knows the scheme, else by fsspec."""
    bare, mark, options = url.partition("?")
    magic = MAGIC.search(bare)
    fixed = bare[: magic.start()] if magic else bare
    scheme = bare.partition("://")[0] + "://"
    try:
        try:
            system, path = fs.FileSystem.from_uri(fixed + mark + options)
        except pa.ArrowInvalid:
            other, path = fsspec.core.url_to_fs(fixed + mark + options)
            return replace(_given(other), path=_joined(path, fixed, bare))
    except (ImportError, ValueError, OSError, pa.ArrowException) as error:
        raise SourceError(f"{label_of_paths(url)} names no file system that can be reached: {error}") from error
    path = _joined(path, fixed, bare)
    return _Place(None, "", path) if isinstance(system, fs.LocalFileSystem) else _Place(system, scheme, path)


def _joined(path: str, fixed: str, bare: str) -> str:
    """The path of the part of a URL without wildcards, and the rest behind it again."""
    slash = "/" if fixed != bare and fixed.endswith("/") and not path.endswith("/") else ""
    return path + slash + bare[len(fixed) :]


# Paths, globs, directories


def _expand(path: str, given: _Place | None) -> list[File]:
    place = _place(path, given)
    found, what = _local(place.path) if place.system is None else _remote(place)
    if not found:
        where = f" (working directory {os.getcwd()!r})" if place.system is None else ""
        raise SourceError(f"A source needs at least one file; {what}{where}.")
    return found


def _local(path: str) -> tuple[list[File], str]:
    if os.path.isdir(path):
        found = [os.path.join(top, name) for top, _, names in os.walk(path) for name in names]
        found = [file for file in found if _is_data(os.path.relpath(file, path)) and os.path.isfile(file)]
        return _files(found, path), f"the directory {path!r} holds no {', '.join(PARQUET + ARROW)} file"
    if os.path.exists(path):
        return [File(path)], ""
    found = [file for file in glob.glob(path, recursive=True) if os.path.isfile(file)]
    return _files(found, fixed(path)), f"{path!r} matches no file"


def _remote(place: _Place) -> tuple[list[File], str]:
    """As `_local`; whole directories are listed at once, which takes the fewest requests."""
    system, path = place.system, place.path
    shown = f"{place.scheme}{path}"
    assert system is not None
    try:
        info = system.get_file_info(path)
        if info.type == fs.FileType.File:
            return [File(path, system, place.scheme)], ""
        directory = info.type == fs.FileType.Directory
        root = path.rstrip("/") if directory else fixed(path)
        if not directory and not MAGIC.search(path):
            return [], f"{shown!r} is not there"
        listed = system.get_file_info(fs.FileSelector(root, recursive=True, allow_not_found=True))
    except OSError as error:
        raise SourceError(f"{shown} cannot be listed: {error}") from error
    paths = [info.path for info in listed if info.type == fs.FileType.File]
    if directory:
        paths = [path for path in paths if _is_data(path[len(root) :].lstrip("/"))]
        what = f"the directory {shown!r} holds no {', '.join(PARQUET + ARROW)} file"
    else:
        pattern = re.compile(glob_translate(path))
        paths, what = [path for path in paths if pattern.match(path)], f"{shown!r} matches no file"
    return [replace(file, system=system, scheme=place.scheme) for file in _files(paths, root)], what


def fixed(pattern: str) -> str:
    """The directory before the first wildcard of a pattern."""
    magic = MAGIC.search(pattern)
    return pattern[: magic.start() if magic else None].rpartition("/")[0]


def _files(paths: Iterable[str], root: str) -> list[File]:
    """Files below a directory, with the keys that the directories between carry."""
    return [File(path, keys=_keys(os.path.dirname(path)[len(root) :])) for path in paths]


@lru_cache(maxsize=4096)
def _keys(directories: str) -> tuple[tuple[str, str | None], ...]:
    parts = [part.partition("=") for part in directories.split("/") if "=" in part]
    return tuple((unquote(key), None if value == _NULL else unquote(value)) for key, _, value in parts if key)


def _is_data(relative: str) -> bool:
    """Whether a file in a directory is meant: by convention, names with a dot or underscore first are bookkeeping."""
    hidden = any(part.startswith((".", "_")) for part in relative.split("/"))
    return not hidden and os.path.splitext(relative)[1].lower() in PARQUET + ARROW


def _real(file: File, real: Callable[[str], str]) -> str:
    """The one spelling of a file among all that it may have."""
    if file.system is not None:
        return str(file)
    directory, name = os.path.split(file.path)
    path = os.path.join(real(directory), name)
    return os.path.realpath(path) if os.path.islink(path) else path
