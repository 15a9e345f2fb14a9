"""A file of a source: on this machine or in any file system."""

from dataclasses import dataclass
from typing import Any

from pyarrow import fs

# file name endings that are looked for in directories
PARQUET = (".parquet", ".parq", ".pq")
ARROW = (".arrow", ".arrows", ".feather", ".ipc")
TABS = (".tsv", ".tsv.gz", ".tsv.zst")
CSV = (".csv", ".csv.gz", ".csv.zst", *TABS)
HERE = fs.LocalFileSystem()
REQUESTS = 16  # concurrent requests to a remote file system


@dataclass(frozen=True, slots=True)
class File:
    """A file of a source."""

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
