"""The files of a source: a path, a glob, a directory, a URL, or a list of them."""

import glob
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from pyarrow import fs

from tensorstash.errors import SourceError
from tensorstash.sources.file import (
    ARROW,
    CSV,
    PARQUET,
    WILDCARD,
    File,
    before_wildcard,
    given_system,
    place_of,
    without_secrets,
)

_NULL = "__HIVE_DEFAULT_PARTITION__"


# by the names of the types, so that no library is imported to compare with them
_TABLES = (
    *("pyarrow.Table", "pyarrow.RecordBatch", "polars.DataFrame", "polars.LazyFrame", "pandas.DataFrame"),
    "datasets.Dataset",
)


def kind_of(source: object) -> str:
    """The library and the type of a source, such as "polars.LazyFrame"."""
    return f"{type(source).__module__.partition('.')[0].lstrip('_')}.{type(source).__name__}"


def is_table(source: object) -> bool:
    """Whether a source is a frame or table that can be read more than once; a mapping is not one."""
    return kind_of(source) in _TABLES


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
    """The files of a source in natural order of their paths; `None` if it is in memory."""
    if not is_paths(source):
        if filesystem is None:
            return None
        raise TypeError(f"filesystem= is where the paths of a source are; got a {type(source).__name__} as the source.")
    several = isinstance(source, (list, tuple))
    given = None if filesystem is None else given_system(filesystem)
    files = [file for item in (source if several else [source]) for file in _expand(os.fspath(item), given)]
    if not files:
        raise SourceError("A source needs at least one file; the list of paths is empty.")
    real = lru_cache(maxsize=None)(os.path.realpath)  # called with directories, which many files share
    # links and lists may name a file more than once: its shortest name is kept
    files.sort(key=lambda file: (len(file.path), file.path), reverse=True)
    once = {(_real(file, real), file.keys): file for file in files}
    return sorted(once.values(), key=lambda file: _natural(file.path))


def is_reordered(source: Any) -> bool:
    """Whether a source is a list of paths in another order than that in which `find` brings their files."""
    if not is_paths(source) or not isinstance(source, (list, tuple)):
        return False
    paths = [WILDCARD.split(os.fspath(item), maxsplit=1)[0].rstrip("/") for item in source]
    return paths != sorted(paths, key=_natural)


def _natural(path: str) -> tuple[list[str | int], str]:
    """A key that sorts paths with the numbers in them as numbers; what is equal then, as text."""
    parts = re.split("([0-9]+)", path)
    return [int(part) if k % 2 else part for k, part in enumerate(parts)], path


def _expand(path: str, given: File | None) -> list[File]:
    place = place_of(path, given)
    files, problem = _local(place.path) if place.system is None else _remote(place)
    if not files:
        where = f" (working directory {os.getcwd()!r})" if place.system is None else ""
        raise SourceError(f"A source needs at least one file; {problem}{where}.")
    return files


def _local(path: str) -> tuple[list[File], str]:
    if os.path.isdir(path):
        paths = [os.path.join(top, name) for top, _, names in os.walk(path) for name in names]
        paths = [file for file in _data(paths, path) if os.path.isfile(file)]
        return _files(paths, path), f"the directory {path!r} holds no {', '.join(PARQUET + ARROW + CSV)} file"
    if os.path.exists(path):
        if not os.path.isfile(path):
            raise SourceError(
                f"A source is regular files; {path!r} is a pipe, a socket or a device. Write its bytes to a file."
            )
        return [File(path)], ""
    paths = [file for file in glob.glob(path, recursive=True) if os.path.isfile(file)]
    return _files(paths, before_wildcard(path)), f"{path!r} matches no file"


def _remote(place: File) -> tuple[list[File], str]:
    """As `_local`; a directory is listed recursively in one call, which takes the fewest requests."""
    from fsspec.utils import glob_translate  # here, because fsspec is slow to import

    system, path, shown = place.system, place.path, str(place)
    assert system is not None
    try:
        info = system.get_file_info(path)
        if info.type == fs.FileType.File:
            return [place], ""
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
        problem = f"the directory {shown!r} holds no {', '.join(PARQUET + ARROW + CSV)} file"
    else:
        pattern = re.compile(glob_translate(path))
        paths, problem = [path for path in paths if pattern.match(path)], f"{shown!r} matches no file"
    return [replace(file, system=system, scheme=place.scheme) for file in _files(paths, root)], problem


def _files(paths: Iterable[str], root: str) -> list[File]:
    return [File(path, keys=_keys(os.path.dirname(path)[len(root) :])) for path in paths]


@lru_cache(maxsize=4096)
def _keys(directories: str) -> tuple[tuple[str, str | None], ...]:
    parts = [part.partition("=") for part in directories.split("/") if "=" in part]
    return tuple((unquote(key), None if value == _NULL else unquote(value)) for key, _, value in parts if key)


def _data(paths: Sequence[str], root: str) -> list[str]:
    """The data files of a directory: CSV files only if there are no others, because they may describe those."""
    for endings in (PARQUET + ARROW, CSV):
        if data := [path for path in paths if _is_data(path[len(root) :].lstrip("/"), endings)]:
            return data
    return []


def _is_data(relative: str, endings: tuple[str, ...]) -> bool:
    """Whether a file in a directory holds data: names with a leading dot or underscore are metadata by convention."""
    hidden = any(part.startswith((".", "_")) for part in relative.split("/"))
    return not hidden and relative.lower().endswith(endings)


def _real(file: File, real: Callable[[str], str]) -> str:
    if file.system is not None:
        return str(file)
    directory, name = os.path.split(file.path)
    path = os.path.join(real(directory), name)
    return os.path.realpath(path) if os.path.islink(path) else path
