"""The file system of a path: the local one, the one given as `filesystem=`, or the one that a URL names."""

import re
from dataclasses import dataclass, replace
from typing import Any

import fsspec
import pyarrow as pa
from pyarrow import fs

from tensorstash.errors import SourceError

WILDCARD = re.compile(r"[*?\[]")  # in a glob pattern


@dataclass(frozen=True, slots=True)
class Place:
    """A path in a file system."""

    system: fs.FileSystem | None  # `None`: the file system of this machine
    scheme: str  # printed before the path in messages, such as "s3://"
    path: str


def given_place(filesystem: Any) -> Place:
    """The file system given as `filesystem=`, with an empty path."""
    if isinstance(filesystem, fs.FileSystem):
        local = isinstance(filesystem, fs.LocalFileSystem)
        name = filesystem.type_name.rpartition("+")[2]
        return Place(None, "", "") if local else Place(filesystem, f"{name}://", "")
    if not isinstance(filesystem, fsspec.AbstractFileSystem):
        raise TypeError(
            f"filesystem= is a pyarrow.fs.FileSystem or an fsspec file system; got a {type(filesystem).__name__}."
        )
    names = filesystem.protocol if isinstance(filesystem.protocol, (list, tuple)) else [filesystem.protocol]
    if "file" in names:
        return Place(None, "", "")
    return Place(fs.PyFileSystem(fs.FSSpecHandler(filesystem)), f"{names[0]}://", "")


def place_of(path: str, given: Place | None) -> Place:
    """A path or URL in the given file system; without one, a URL chooses its own and a path is local."""
    if given is None:
        return _place_of_url(path) if "://" in path else Place(None, "", path)
    handler = getattr(given.system, "handler", None)
    if isinstance(handler, fs.FSSpecHandler):
        path = handler.fs._strip_protocol(path)
    return replace(given, path=path.removeprefix(given.scheme) if given.scheme else path)


def _place_of_url(url: str) -> Place:
    """The file system of a URL: from pyarrow if it knows the scheme, else from fsspec."""
    bare, mark, options = url.partition("?")
    magic = WILDCARD.search(bare)
    plain = bare[: magic.start()] if magic else bare
    scheme = bare.partition("://")[0] + "://"
    try:
        try:
            system, path = fs.FileSystem.from_uri(plain + mark + options)
        except pa.ArrowInvalid:
            other, path = fsspec.core.url_to_fs(plain + mark + options)
            return replace(given_place(other), path=_joined(path, plain, bare))
    except (ImportError, ValueError, OSError, pa.ArrowException) as error:
        raise SourceError(f"{without_secrets(url)} names no file system that can be reached: {error}") from error
    path = _joined(path, plain, bare)
    return Place(None, "", path) if isinstance(system, fs.LocalFileSystem) else Place(system, scheme, path)


def _joined(path: str, plain: str, bare: str) -> str:
    """Append to `path`, the resolved part of a URL before its first wildcard, the rest of the URL."""
    slash = "/" if plain != bare and plain.endswith("/") and not path.endswith("/") else ""
    return path + slash + bare[len(plain) :]


def before_wildcard(pattern: str) -> str:
    """The directory before the first wildcard of a pattern."""
    magic = WILDCARD.search(pattern)
    return pattern[: magic.start() if magic else None].rpartition("/")[0]


def without_secrets(url: str) -> str:
    """A path or URL for messages: without the credentials and options that a URL may contain."""
    return re.sub(r"://[^/@]*@", "://", url.partition("?")[0]) if "://" in url else url
