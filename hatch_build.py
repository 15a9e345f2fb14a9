"""Compiles the native kernel into wheels and editable installs where there is a C compiler.

    python hatch_build.py                        # in place, for developers
    python hatch_build.py -fsanitize=address     # with more options for the compiler

`TENSORSTASH_NATIVE_REQUIRED=1` makes a build without the kernel an error; `TENSORSTASH_NATIVE=0` leaves it out.
"""

import os
import platform
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HOME = Path(__file__).parent / "tensorstash" / "native"
# contraction would round a product and a sum once on some machines and twice on others
OPTIONS = ["-std=c11", "-O3", "-shared", "-fPIC", "-pthread", "-fvisibility=hidden", "-ffp-contract=off"]
OPTIONS += ["-Wall", "-Wextra", "-Wconversion"]
MACOS = os.environ.get("MACOSX_DEPLOYMENT_TARGET", "11.0")


def build(target: Path, *more: str) -> str | None:
    """Compile the kernel to a file; what went wrong comes back."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if sys.platform == "darwin":
        more = (*more, f"-mmacosx-version-min={MACOS}")
    # under another name first: a process that has the old library mapped keeps it whole
    fresh = target.with_suffix(".new")
    command = [*compiler, *OPTIONS, *more, *map(str, sorted(HOME.glob("*.c"))), "-o", str(fresh)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    if done.returncode:
        return done.stderr
    sys.stderr.write(done.stderr)  # warnings
    fresh.replace(target)
    return None


def tag() -> str:
    """The wheel's: any Python, this platform."""
    if sys.platform == "darwin":
        return f"py3-none-macosx_{MACOS.replace('.', '_')}_{platform.machine()}"
    return f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


class Hook(BuildHookInterface):
    """Adds the kernel to a wheel, and says in its tag what is in it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; without a compiler the wheel is one for every platform, and says so."""
        if os.environ.get("TENSORSTASH_NATIVE") == "0":
            return
        self.folder = tempfile.TemporaryDirectory()
        target = (HOME if version == "editable" else Path(self.folder.name)) / "gather.so"
        problem = build(target)
        if problem is None:
            build_data["tag"], build_data["pure_python"] = tag(), False
            build_data["force_include"][str(target)] = "tensorstash/native/gather.so"
        elif os.environ.get("TENSORSTASH_NATIVE_REQUIRED") == "1":
            raise RuntimeError(f"TENSORSTASH_NATIVE_REQUIRED=1, and the kernel was not compiled: {problem}")


if __name__ == "__main__":
    sys.exit(build(HOME / "gather.so", *sys.argv[1:]))
