"""The earlier commit: where it comes from, and how it is installed beside this checkout, without a network."""

import os
import shlex
import subprocess
from pathlib import Path

BASE = "2b7f8f3e0db864ad42c4fbf23af9b4846dffe629"  # before a load had one reader and one record

ROOT = Path(__file__).parents[2]


class NotInstalledError(Exception):
    """The earlier commit is not there, or cannot be compiled; the message has the remedy."""


def install(commit: str, folder: Path, checkout: Path = ROOT) -> Path:
    """The folder with the package as it was at a commit, with its kernel."""
    known = _run(["git", "-C", str(checkout), "cat-file", "-e", f"{commit}^{{commit}}"])
    if known.returncode:
        raise NotInstalledError(
            f"The commit to compare with is not in {checkout}. Get it:\n\n    git fetch --depth=1 origin {commit}\n\n"
            f"git says: {known.stderr.decode().strip()}"
        )
    folder.mkdir(parents=True)
    archive = _run(["git", "-C", str(checkout), "archive", commit, "tensorstash"])
    _check(archive, "git archive")
    _check(_run(["tar", "-x", "-C", str(folder)], archive.stdout), "tar")
    _check(_run(_compiler(folder / "tensorstash" / "native")), "compiling its kernel")
    return folder


def _compiler(native: Path) -> list[str]:
    """As `hatch_build.py` compiles, which needs packages that a checkout with its tests does not have."""
    options = ["-std=c11", "-O3", "-shared", "-fPIC", "-pthread", "-fvisibility=hidden", "-ffp-contract=off"]
    sources = map(str, sorted(native.glob("*.c")))
    return [*shlex.split(os.environ.get("CC", "cc")), *options, *sources, "-o", str(native / "gather.so")]


def _run(command: list[str], given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    # git finds the checkout by its own folder, whatever a hook that runs this has set
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run(command, input=given, capture_output=True, check=False, cwd=ROOT, env=environment)


def _check(done: "subprocess.CompletedProcess[bytes]", what: str) -> None:
    if done.returncode:
        raise NotInstalledError(f"{what} failed: {done.stderr.decode().strip()}")
