"""The files of a source: a path, a glob, a directory, a URL, or a list of them."""

import glob
import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from fsspec.utils import glob_translate
from pyarrow import fs

from tensorstash.errors import SourceError
from tensorstash.sources.file import ARROW, CSV, PARQUET, File
from tensorstash.sources.file_systems import WILDCARD, Place, before_wildcard, given_place, place_of, without_secrets

_NULL = "__HIVE_DEFAULT_PARTITION__"


def is_paths(source: Any) -> bool:
    """Whether a source is files: a path or a list of them."""
    items = source if isinstance(source, (list, tuple)) else [source]
    return all(isinstance(item, (str, os.PathLike)) for item in items)


def label_of_paths(source: Any) -> str:
    """A source of files for messages: without the credentials and options that a URL may contain."""
    if isinstance(source, (list, tuple)):
        return f"{len(source)} paths"
    return without_secrets(os.fspath(source))


def find(source: Any, filesystem: Any = None) -> list[File] | None:
    """The files of a source in the order of their rows; `None` if it is in memory."""
    if not is_paths(source):
        if filesystem is None:
            return None
        raise TypeError(f"filesystem= is where the paths of a source are; got a {type(source).__name__} as the source.")
    several = isinstance(source, (list, tuple))
    given = None if filesystem is None else given_place(filesystem)
    found = [file for item in (source if several else [source]) for file in _expand(os.fspath(item), given)]
    if not found:
        raise SourceError("A source needs at least one file; the list of paths is empty.")
    real = lru_cache(maxsize=None)(os.path.realpath)  # called with directories, which many files share
    # links and lists may name a file more than once: its shortest name is kept
    found.sort(key=lambda file: (len(file.path), file.path), reverse=True)
    once = {(_real(file, real), file.keys): file for file in found}
    return sorted(once.values(), key=lambda file: file.path)


def _expand(path: str, given: Place | None) -> list[File]:
    place = place_of(path, given)
    found, what = _local(place.path) if place.system is None else _remote(place)
    if not found:
        where = f" (working directory {os.getcwd()!r})" if place.system is None else ""
        raise SourceError(f"A source needs at least one file; {what}{where}.")
    return found


def _local(path: str) -> tuple[list[File], str]:
    if os.path.isdir(path):
        found = [os.path.join(top, name) for top, _, names in os.walk(path) for name in names]
        found = [file for file in _data(found, path) if os.path.isfile(file)]
        return _files(found, path), f"the directory {path!r} holds no {', '.join(PARQUET + ARROW + CSV)} file"
    if os.path.exists(path):
        if not os.path.isfile(path):
            raise SourceError(f"A source is regular files; {path!r} is {_kind_of(path)}. Write its bytes to a file.")
        return [File(path)], ""
    found = [file for file in glob.glob(path, recursive=True) if os.path.isfile(file)]
    return _files(found, before_wildcard(path)), f"{path!r} matches no file"


def _kind_of(path: str) -> str:
    mode = os.stat(path).st_mode
    kinds = {stat.S_ISFIFO: "a named pipe", stat.S_ISSOCK: "a socket"}
    return next((kind for judge, kind in kinds.items() if judge(mode)), "a device")


def _remote(place: Place) -> tuple[list[File], str]:
    """As `_local`; a directory is listed recursively in one call, which takes the fewest requests."""
    system, path = place.system, place.path
    shown = f"{place.scheme}{path}"
    assert system is not None
    try:
        info = system.get_file_info(path)
        if info.type == fs.FileType.File:
            return [File(path, system, place.scheme)], ""
        directory = info.type == fs.FileType.Directory
        root = path.rstrip("/") if directory else before_wildcard(path)
        if not directory and not WILDCARD.search(path):
            return [], f"{shown!r} is not there"
        listed = system.get_file_info(fs.FileSelector(root, recursive=True, allow_not_found=True))
    except OSError as error:
        raise SourceError(f"{shown} cannot be listed: {error}") from error
    paths = [info.path for info in listed if info.type == fs.FileType.File]
    if directory:
        paths = _data(paths, root)
        what = f"the directory {shown!r} holds no {', '.join(PARQUET + ARROW + CSV)} file"
    else:
        pattern = re.compile(glob_translate(path))
        paths, what = [path for path in paths if pattern.match(path)], f"{shown!r} matches no file"
    return [replace(file, system=system, scheme=place.scheme) for file in _files(paths, root)], what


def _files(paths: Iterable[str], root: str) -> list[File]:
    """Files below a directory, with the partition keys of the directories in between."""
    return [File(path, keys=_keys(os.path.dirname(path)[len(root) :])) for path in paths]


@lru_cache(maxsize=4096)
def _keys(directories: str) -> tuple[tuple[str, str | None], ...]:
    parts = [part.partition("=") for part in directories.split("/") if "=" in part]
    return tuple((unquote(key), None if value == _NULL else unquote(value)) for key, _, value in parts if key)


def _data(paths: Sequence[str], root: str) -> list[str]:
    """The files in a directory that hold data: CSV files only where there are no others, which they may be about."""
    for endings in (PARQUET + ARROW, CSV):
        if found := [path for path in paths if _is_data(path[len(root) :].lstrip("/"), endings)]:
            return found
    return []


def _is_data(relative: str, endings: tuple[str, ...]) -> bool:
    """Whether a file in a directory holds data: names with a leading dot or underscore are metadata by convention."""
    hidden = any(part.startswith((".", "_")) for part in relative.split("/"))
    return not hidden and relative.lower().endswith(endings)


def _real(file: File, real: Callable[[str], str]) -> str:
    """The canonical path of a file."""
    if file.system is not None:
        return str(file)
    directory, name = os.path.split(file.path)
    path = os.path.join(real(directory), name)
    return os.path.realpath(path) if os.path.islink(path) else path
