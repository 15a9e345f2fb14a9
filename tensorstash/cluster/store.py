"""Where shards are kept: a directory of this machine or of a shared file system, or a prefix of an object store."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from tempfile import TemporaryFile
from typing import Any

from pyarrow import fs

from tensorstash.errors import SegmentError
from tensorstash.segments.directory import names, remove_unused
from tensorstash.segments.limits import Limit, disk_limit
from tensorstash.segments.on_disk import directory_of_file
from tensorstash.segments.unpublished import UnpublishedFile
from tensorstash.sources.file_systems import place_of, without_secrets

_CHUNK = 1 << 24  # bytes asked of a file system at a time
_READ = 1 << 20  # bytes of a file of this machine: they stay in the cache of the processor


@dataclass(frozen=True, slots=True)
class Target:
    """A file that is being written."""

    fd: int
    limits: tuple[Limit, ...]


@dataclass(frozen=True, slots=True)
class Store:
    """A place for files that appear whole or not at all."""

    url: str  # as it was given, for this and other machines

    @property
    def shown(self) -> str:
        """For messages."""
        return without_secrets(self.url)

    @property
    def directory(self) -> str | None:
        """The path of a directory that this machine can map files of; `None` for an object store."""
        place = place_of(self.url, None)
        return os.path.abspath(place.path) if place.system is None else None

    def join(self, name: str) -> str:
        """The path or URL of a file, for messages."""
        return f"{self.shown.rstrip('/')}/{name}"

    def make(self) -> None:
        """Make the directory, and remove what killed processes have left in it."""
        if self.directory is None:
            return
        try:
            os.makedirs(self.directory, exist_ok=True)
        except OSError as error:
            raise SegmentError(
                f"Shards are written to a directory; {self.shown} cannot be made: {error.strerror}. Choose another."
            ) from error
        with directory_of_file(self.directory) as directory:
            for name in names(directory):
                if name.suffix.startswith(".tmp."):
                    remove_unused(directory, name)

    @contextmanager
    def new(self, name: str) -> Iterator[Target]:
        """An empty file to fill, which gets its name, or replaces the file of that name, at the end of the block."""
        if self.directory is None:
            with TemporaryFile(prefix="tensorstash-") as file:
                yield Target(file.fileno(), (disk_limit(file.fileno(), "the temporary directory"),))
                self._upload(name, file.fileno())
            return
        with directory_of_file(self.directory) as directory:
            own = UnpublishedFile(directory, f".{name}")
            try:
                yield Target(own.fd, tuple(own.limits()))
                own.publish_as(name, replace=True)
            finally:
                own.close()

    def write(self, name: str, text: str) -> None:
        """Write a small file."""
        with self.new(name) as target:
            os.pwrite(target.fd, text.encode(), 0)

    def read(self, name: str) -> str | None:
        """The text of a small file, `None` if it is not there."""
        if self.size(name) is None:
            return None
        return b"".join(self.chunks(name)).decode("utf-8", "replace")

    def size(self, name: str) -> int | None:
        """The bytes of a file, `None` if it is not there."""
        system, path = self._file(name)
        info = _asked(lambda: system.get_file_info(path), self.join(name))
        return info.size if info.type == fs.FileType.File else None

    def chunks(self, name: str) -> Iterator[bytes]:
        """The bytes of a file."""
        system, path = self._file(name)
        with _asked(lambda: system.open_input_file(path), self.join(name)) as file:
            while chunk := _asked(lambda: file.read(_CHUNK), self.join(name)):
                yield chunk

    def remove(self, name: str) -> None:
        """Remove a file if it is there."""
        if self.size(name) is not None:
            system, path = self._file(name)
            _asked(lambda: system.delete_file(path), self.join(name))

    def _upload(self, name: str, fd: int) -> None:
        system, path = self._file(name)
        with _asked(lambda: system.open_output_stream(path), self.join(name)) as stream:
            for chunk in chunks_of(fd):
                _asked(partial(stream.write, chunk), self.join(name))

    def _file(self, name: str) -> tuple[Any, str]:
        place = place_of(self.url, None)
        return place.system or fs.LocalFileSystem(), f"{place.path.rstrip('/')}/{name}"


def chunks_of(fd: int) -> Iterator[bytes]:
    """The bytes of a file, by its descriptor."""
    begin = 0
    while chunk := os.pread(fd, _READ, begin):
        yield chunk
        begin += len(chunk)


def checksum(chunks: Iterator[bytes]) -> str:
    """The checksum of a file, as manifests hold it."""
    digest = blake2b(digest_size=32)
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def _asked(call: Callable[[], Any], where: str) -> Any:
    """What a file system answers; its errors name the file."""
    try:
        return call()
    except OSError as error:
        raise SegmentError(f"{where} cannot be read or written: {' '.join(str(error).split())}") from error
