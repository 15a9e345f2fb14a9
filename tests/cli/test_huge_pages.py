"""The inside of `cli/huge_pages.py`: what the settings of a system mean."""

from pathlib import Path

import pytest

from tensorstash.cli.huge_pages import huge_pages


@pytest.mark.parametrize(
    ("shmem", "mount", "private", "shared", "why"),
    [
        ("never", "/dev/shm tmpfs rw", "small pages", "small pages", "huge=never of /dev/shm"),
        ("advise", "/dev/shm tmpfs rw", "huge pages possible", "small pages", "huge=never of /dev/shm"),
        ("never", "/dev tmpfs rw,huge=always", "small pages", "huge pages possible", "huge=always of /dev"),
        ("deny", "/dev/shm tmpfs rw,huge=always", "small pages", "small pages", "shmem_enabled deny"),
        ("force", "/dev/shm tmpfs rw", "huge pages possible", "huge pages possible", "shmem_enabled force"),
    ],
)
def test_what_the_settings_of_huge_pages_mean(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shmem: str, mount: str, private: str, shared: str, why: str
) -> None:
    (tmp_path / "enabled").write_text("always [madvise] never\n")
    (tmp_path / "shmem_enabled").write_text(f"always within_size [{shmem}]\n")
    (tmp_path / "mounts").write_text(f"root / ext4 rw 0 0\ntmpfs {mount} 0 0\n")
    monkeypatch.setattr("tensorstash.cli.huge_pages._SETTINGS", tmp_path)
    monkeypatch.setattr("tensorstash.cli.huge_pages._MOUNTS", tmp_path / "mounts")
    assert huge_pages(Path("/dev/shm/x")) == (
        f"private stash: {private} (shmem_enabled {shmem}); shared stash: {shared} ({why}); "
        "batches: huge pages possible (enabled madvise)"
    )
    (tmp_path / "shmem_enabled").unlink()
    assert huge_pages(Path("/dev/shm/x")) == "not offered by this system"
