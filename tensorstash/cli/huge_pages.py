"""The system's settings of transparent huge pages, and what they mean for a stash."""

import re
from pathlib import Path

_SETTINGS = Path("/sys/kernel/mm/transparent_hugepage")
_MOUNTS = Path("/proc/self/mounts")


def huge_pages(folder: Path) -> str:
    """The pages of a private stash, of one that is shared in `folder`, and of batches, each with its setting."""
    shmem, enabled = _chosen("shmem_enabled"), _chosen("enabled")
    if shmem is None or enabled is None:
        return "not offered by this system"
    point, option = _mount(folder)
    shared, why = option, f"huge={option} of {point}"
    if shmem in ("deny", "force"):  # these two hold for all mounts
        shared, why = shmem, f"shmem_enabled {shmem}"
    settings = (
        ("private stash", shmem, f"shmem_enabled {shmem}"),
        ("shared stash", shared, why),
        ("batches", enabled, f"enabled {enabled}"),
    )
    return "; ".join(f"{what}: {_pages(setting)} ({why})" for what, setting, why in settings)


def _pages(setting: str) -> str:
    return "small pages" if setting in ("never", "deny") else "huge pages possible"


def _chosen(setting: str) -> str | None:
    """The value in brackets of a line such as `always [madvise] never`."""
    try:
        found = re.search(r"\[(\w+)\]", (_SETTINGS / setting).read_text())
    except OSError:
        return None
    return found[1] if found else None


def _mount(folder: Path) -> tuple[str, str]:
    """Where the file system of a folder is mounted, and its option `huge=`, which only a tmpfs has."""
    mounts = [line.split() for line in _MOUNTS.read_text().splitlines()]
    above = {str(parent) for parent in (folder, *folder.parents)}
    _, point, _, options, *_ = max((mount for mount in mounts if mount[1] in above), key=lambda mount: len(mount[1]))
    found = re.search(r"\bhuge=(\w+)", options)
    return point, found[1] if found else "never"
