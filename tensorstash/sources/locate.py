"""Finds the files of a source: a path, a glob, a directory, a URL, or a list of them."""

import glob
import os
import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from tensorstash.columns.path import PARTS, Part
from tensorstash.common.text import type_text
from tensorstash.errors import SourceError
from tensorstash.sources.file import (
    NULL_KEY,
    WILDCARD,
    File,
    before_wildcard,
    given_system,
    place_of,
    why_absent,
    without_secrets,
)
from tensorstash.sources.formats import FORMATS
from tensorstash.sources.lake import LOGS, refuse_tables, with_parents
from tensorstash.sources.pyarrow_texts import may_mention

_BINARY = tuple(ending for one in FORMATS if one.footer is not None for ending in one.endings)
_TEXT = tuple(ending for one in FORMATS if one.footer is None for ending in one.endings)
_HIDDEN = re.compile(r"(^|/)[._]")
_COLLAPSED = re.compile(r"([a-z][a-z0-9+.-]+:)/(?!/)")  # what `pathlib.Path` makes of the beginning of a URL


def kind_of(source: object) -> str:
    """The library and type of an object, such as "polars.LazyFrame"."""
    return f"{type(source).__module__.partition('.')[0].lstrip('_')}.{type(source).__name__}"


def is_paths(source: Any) -> bool:
    """Whether a source is files: a path or a list of them."""
    items = source if isinstance(source, (list, tuple)) else [source]
    return all(isinstance(item, (str, os.PathLike)) for item in items)


def label_of_paths(source: Any) -> str:
    """A source of files for messages, without the credentials and options of a URL."""
    if isinstance(source, (list, tuple)):
        return f"{len(source)} paths"
    return without_secrets(os.fspath(source))


def find(source: Any, filesystem: Any) -> list[File] | None:
    """The files of a source in natural order of their paths; `None` if it is in memory."""
    if not is_paths(source):
        if filesystem is None:
            return None
        raise TypeError(f"filesystem= needs paths as the source, got {type_text(source)}.")
    given = None if filesystem is None else given_system(filesystem)
    paths = source if isinstance(source, (list, tuple)) else [source]
    files = [file for path in paths for file in _expand(os.fspath(path), given)]
    if not files:
        raise SourceError("A source needs at least one file; the list of paths is empty.")
    # links and lists may name a file more than once: its shortest name is kept
    files.sort(key=lambda file: (len(file.path), file.path), reverse=True)
    once = {(file.real, file.keys): file for file in files}
    return sorted(once.values(), key=lambda file: _natural(file.path))


def with_paths(files: list[File] | None, names: Collection[str], mentions: str, source: Any) -> list[File] | None:
    """The files with the columns of `ts.path` that are in `names` or in the printed expression `mentions` as keys."""
    asked = [name for name in PARTS if name in names or may_mention(mentions, name)]
    if not asked:
        return files
    if files is None:
        raise SourceError(
            f"ts.path({PARTS[asked[0]]!r}) is a part of the path of a file; {type_text(source)} has no files. Load "
            "files, or name one of its columns."
        )
    return [replace(file, keys=(*file.keys, *((name, _part(file, PARTS[name])) for name in asked))) for file in files]


def _part(file: File, part: Part) -> str:
    directory, name = os.path.split(os.path.abspath(file.path) if file.system is None else file.path)
    if part == "parent":
        return os.path.basename(directory)
    endings = [ending for ending in (*_BINARY, *_TEXT) if name.lower().endswith(ending)]
    return name.removesuffix(name[-len(max(endings, key=len)) :]) if part == "stem" and endings else name


def is_reordered(source: Any) -> bool:
    """Whether a source is a list of paths that `find` puts into another order."""
    if not is_paths(source) or not isinstance(source, (list, tuple)):
        return False
    paths = [WILDCARD.split(os.fspath(item), maxsplit=1)[0].rstrip("/") for item in source]
    return paths != sorted(paths, key=_natural)


def _natural(path: str) -> tuple[list[str | int], str]:
    """A key that sorts paths by the numbers in them, and equal ones as text."""
    parts = re.split("([0-9]+)", path)
    return [int(part) if k % 2 else part for k, part in enumerate(parts)], path


def _expand(path: str, given: File | None) -> list[File]:
    place = place_of(path, given)
    files = _local(place.path) if place.system is None else _remote(place)
    if not files:
        if mistaken := _COLLAPSED.match(path):
            raise SourceError(
                f"A URL is a text, because a path keeps one of its slashes; got {path!r}. Write "
                f"{mistaken[1] + ('///' if mistaken[1] == 'file:' else '//') + path[mistaken.end() :]!r}."
            )
        problem = f"{str(place)!r} matches no file"
        if place.system is None and os.path.isdir(place.path):
            problem = f"the directory {place.path!r} holds no {', '.join(_BINARY + _TEXT)} file"
        where = f" (working directory {os.getcwd()!r})" if place.system is None else why_absent(place)
        raise SourceError(f"A source needs at least one file; {problem}{where}.")
    return files


def _local(path: str) -> list[File]:
    if os.path.isdir(path):
        root, below = path, [os.path.join(top, name) for top, _, names in os.walk(path) for name in names]
        paths, directories = _data(below, path), [path]
    elif os.path.exists(path):
        if not os.path.isfile(path):
            raise SourceError(
                f"A source must be regular files; {path!r} is a pipe, a socket or a device. Write its bytes to a file."
            )
        return [File(path)]
    else:
        root, paths, directories = before_wildcard(path), glob.glob(path, recursive=True), []
    files = [file for file in paths if os.path.isfile(file)]
    real = {os.path.realpath(directory) for directory in {*directories, *map(os.path.dirname, files)}}
    refuse_tables(real, _names_in, str if os.path.isabs(path) else os.path.relpath)
    return _files(files, root)


def _names_in(directory: str) -> list[str] | None:
    try:
        return os.listdir(directory)
    except OSError:
        return None


def _remote(place: File) -> list[File]:
    """The files at a place in another file system. One recursive listing of a directory takes the fewest requests."""
    from fsspec.utils import glob_translate  # imported here, because it is slow to import
    from pyarrow import fs

    system, path = place.system, place.path
    assert system is not None
    try:
        info = system.get_file_info(path)
        if info.type == fs.FileType.File:
            return [place]
        is_directory = info.type == fs.FileType.Directory
        if not is_directory and not WILDCARD.search(path):
            return []
        root = path.rstrip("/") if is_directory else before_wildcard(path)
        listed = system.get_file_info(fs.FileSelector(root, recursive=True, allow_not_found=True))
    except (OSError, pa.ArrowException) as error:
        why = " ".join(str(error).split()).rstrip(".")
        raise SourceError(
            f"{place} cannot be listed: {why}. Check the address and the credentials, or "
            "give filesystem= one that has them."
        ) from error
    paths = [info.path for info in listed if info.type == fs.FileType.File]
    pattern = re.compile(glob_translate(path))
    files = _data(paths, root) if is_directory else [path for path in paths if pattern.match(path)]
    if not place.is_http:  # a web server has no directories, and may answer any address
        logs = _names_in_logs(system, root, paths)
        refuse_tables({root, *map(os.path.dirname, files)}, logs.get, lambda directory: place.scheme + directory)
    return [replace(file, system=system, scheme=place.scheme) for file in _files(files, root)]


def _names_in_logs(system: Any, root: str, paths: Iterable[str]) -> dict[str, list[str]]:
    """Names by directory: below `root` those of the listed `paths`, above it those of logs, a request for each."""
    from pyarrow import fs

    names: dict[str, list[str]] = {}
    above = [f"{directory}/{log}" for directory in with_parents([os.path.dirname(root)]) for log in LOGS]
    found = [*paths]
    for log in above:
        with suppress(OSError, ValueError, pa.ArrowException):  # not everybody may list what is above
            found += [info.path for info in system.get_file_info(fs.FileSelector(log, allow_not_found=True))]
    for path in found:
        directory, _, name = path.rpartition("/")
        names.setdefault(directory, []).append(name)
    return names


def _files(paths: Iterable[str], root: str) -> list[File]:
    return [File(path, keys=_keys(os.path.dirname(path)[len(root) :])) for path in paths]


@lru_cache(maxsize=4096)
def _keys(directories: str) -> tuple[tuple[str, str | None], ...]:
    parts = [part.partition("=") for part in directories.split("/") if "=" in part]
    return tuple((unquote(key), None if value == NULL_KEY else unquote(value)) for key, _, value in parts if key)


def _data(paths: Sequence[str], root: str) -> list[str]:
    """The data files of a directory: CSV files only if there are no others, which they may describe."""
    # names with a leading dot or underscore are metadata by convention
    shown = [path for path in paths if not _HIDDEN.search(path[len(root) :])]
    data = [path for path in shown if path.lower().endswith(_BINARY)]
    return data or [path for path in shown if path.lower().endswith(_TEXT)]
