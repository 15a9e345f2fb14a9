"""What Ray's object store takes of the memory of this machine: 30 % of it, unless Ray is told otherwise."""

from collections.abc import Iterator
from pathlib import Path

import psutil

_FILE = "/plasma"  # how Ray names the file of an object store, which it removes at once and keeps mapped


def ray_remedy() -> str:
    """What to do where Ray holds memory that a stash needs; nothing where there is no Ray."""
    held = object_store_bytes()
    if not held:
        return ""
    return (
        f"Ray's object store may take up to {held / 1e6:,.0f} MB of it: give Ray less, "
        "`ray start --object-store-memory=...`."
    )


def object_store_bytes(root: str = "/proc") -> int:
    """The bytes that the object stores of all Ray nodes on this machine may take in memory."""
    return sum(size for pid in _raylets() for size in _mapped(Path(root) / str(pid) / "maps"))


def _raylets() -> list[int]:
    return [process.pid for process in psutil.process_iter(["name"]) if process.info["name"] == "raylet"]


def _mapped(path: Path) -> Iterator[int]:
    """The bytes of the mappings of object stores that a process has; none where it may not be looked at."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and _FILE in fields[5] and fields[5].startswith("/dev/shm"):
            low, high = (int(end, 16) for end in fields[0].split("-"))
            yield high - low
