"""File systems and users of a test's own, where the system allows them."""

import os
import subprocess
from pathlib import Path

import pytest

_MOUNT = 'mount -t tmpfs -o size="$1" none "$2" && shift 2 && exec "$@"'


def mounting(path: Path, size: str, capsys: pytest.CaptureFixture[str]) -> tuple[str, ...]:
    """The beginning of a command that sees a tmpfs of that size at `path`; nothing where that is not allowed.

    The mount is seen by that command alone, and is gone with it.
    """
    path.mkdir(mode=0o700, exist_ok=True)
    begin = ("unshare", "-rm", "sh", "-c", _MOUNT, "sh", f"{size},mode=700", str(path))
    try:
        subprocess.run([*begin, "true"], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.CalledProcessError) as error:
        with capsys.disabled():
            os.write(1, f"no file system of our own: {getattr(error, 'stderr', error)}\n".encode())
        return ()
    return begin
