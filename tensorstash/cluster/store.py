"""Where shards are kept: a directory of this machine or of a shared file system, or a prefix of an object store."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyarrow import fs

from tensorstash.errors import SegmentError
from tensorstash.segments.directory import Name
from tensorstash.segments.lock import acquire, lock_file
from tensorstash.segments.on_disk import directory_of_file
from tensorstash.segments.publish import NO_KEY, sync_directory
from tensorstash.sources.file import here, place_of, without_secrets

_CHUNK = 1 << 24  # bytes read from a file system at a time
_SCRATCH = ".rows-"


@dataclass(frozen=True, slots=True)
class Store:
    """A place for files that appear whole or not at all."""

    url: str  # as the caller gave it: it means the same on other machines

    @property
    def directory(self) -> str | None:
        """The path of a directory that this machine can map files of; `None` for an object store."""
        place = place_of(self.url, None)
        return os.path.abspath(place.path) if place.system is None else None

    def join(self, name: str) -> str:
        """The path or URL of a file, for messages."""
        return f"{without_secrets(self.url).rstrip('/')}/{name}"

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Create the directory, wait until no other process makes shards there, and clear what killed processes left.

        An object store has no locks: there the keys in the headers of shards tell whose they are.
        """
        if self.directory is None:
            yield
            return
        with suppress(OSError):  # opening the directory raises a better error
            os.makedirs(self.directory, exist_ok=True)
        with directory_of_file(self.directory) as directory:
            is_first = False
            while not is_first:
                with lock_file(directory, Name(".shards", NO_KEY)) as lock:
                    if is_first := acquire(lock, self.join(""), None):
                        self._clear()
                        yield
                        self._clear()

    def _clear(self) -> None:
        for folder in Path(self.directory or "").glob(f"{_SCRATCH}*"):
            shutil.rmtree(folder, ignore_errors=True)

    def scratch(self) -> TemporaryDirectory[str]:
        """A directory for temporary files: beside the shards, or for an object store in TMPDIR."""
        return TemporaryDirectory(prefix=_SCRATCH, dir=self.directory, ignore_cleanup_errors=True)

    def put(self, path: str, name: str) -> None:
        """Move a file of a scratch directory here under a name, in place of a file that has it."""
        with self._named(name) as (system, target), open(path, "rb") as file:
            if self.directory is None:
                with system.open_output_stream(target) as out:
                    shutil.copyfileobj(file, out, _CHUNK)
                return
            os.fsync(file.fileno())  # its bytes reach the disk before its name does
            os.replace(path, target)
            with directory_of_file(self.directory) as directory:
                sync_directory(directory.fd)

    def write(self, name: str, text: str) -> None:
        """Write a small file."""
        with self.scratch() as folder:
            path = Path(folder, name)
            path.write_text(text, "utf-8")
            self.put(str(path), name)

    def read(self, name: str) -> str | None:
        """The text of a small file, `None` if it is not there."""
        return None if self.size(name) is None else b"".join(self.chunks(name)).decode("utf-8", "replace")

    def size(self, name: str) -> int | None:
        """The bytes of a file, `None` if it is not there."""
        with self._named(name) as (system, path):
            info = system.get_file_info(path)
            return info.size if info.type == fs.FileType.File else None

    def chunks(self, name: str) -> Iterator[bytes]:
        """The bytes of a file."""
        with self._named(name) as (system, path), system.open_input_file(path) as file:
            while chunk := file.read(_CHUNK):
                yield chunk

    def remove(self, name: str) -> None:
        """Remove a file if it is there."""
        if self.size(name) is not None:
            with self._named(name) as (system, path):
                system.delete_file(path)

    @contextmanager
    def local_path(self, name: str) -> Iterator[str]:
        """The path of a file on this machine: the file itself, or a temporary copy."""
        if self.directory is not None:
            yield os.path.join(self.directory, name)
            return
        with self.scratch() as folder:
            path = Path(folder, name)
            with path.open("wb") as copy:
                copy.writelines(self.chunks(name))
            yield str(path)

    @contextmanager
    def _named(self, name: str) -> Iterator[tuple[Any, str]]:
        """A file system, and the path of a file in it; errors name the file."""
        place = place_of(self.url, None)
        try:
            yield place.system or here(), f"{place.path.rstrip('/')}/{name}"
        except SegmentError:
            raise
        except OSError as error:
            why = " ".join(str(error).split())
            raise SegmentError(f"{self.join(name)} cannot be read or written: {why}") from error


def checksum(file: str | int) -> str:
    """The checksum of a file, as manifests hold it. A descriptor is read from its position on, and stays open."""
    digest = blake2b(digest_size=32)
    with open(file, "rb", buffering=0, closefd=isinstance(file, str)) as opened:
        while chunk := opened.read(1 << 20):  # small enough for the cache of the processor
            digest.update(chunk)
    return digest.hexdigest()
