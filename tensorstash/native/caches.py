"""From how many bytes on a batch does not fit into the caches of this machine, so that it is written past them."""

from pathlib import Path

_NEVER = 1 << 62


def streamed_from(folder: Path) -> int:
    """Bytes of a batch that takes a quarter of the largest cache; without a cache that Linux tells of, never.

    A loop uses one batch while the next is written, and the rows of that one pass through the caches as well: three
    quarters. From that share on glibc's `memcpy` passes the caches as well.

    Example:
        >>> from tensorstash.native.caches import STREAMED_FROM
        >>> STREAMED_FROM > 0
        True
    """
    sizes = [_kilobytes(file) for file in folder.glob("index*/size")]
    return max(sizes, default=0) * 1024 // 4 or _NEVER


def _kilobytes(file: Path) -> int:
    try:
        size = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return 0
    return int(size[:-1]) if size.endswith("K") and size[:-1].isdecimal() else 0


STREAMED_FROM = streamed_from(Path("/sys/devices/system/cpu/cpu0/cache"))
