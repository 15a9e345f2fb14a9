"""Several processes that work at the same time, and what each weighs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def weigh() -> dict[str, float]:
    """MB of this process by proportional set size, and of its page tables."""
    rollup, status = (Path(f"/proc/self/{name}").read_text() for name in ("smaps_rollup", "status"))
    return {
        "pss": int(rollup.split("\nPss:")[1].split()[0]) * 1024 / 1e6,
        "tables": int(status.split("VmPTE:")[1].split()[0]) * 1024 / 1e6,
    }


def held(path: str) -> float:
    """MB of the mappings of one file in this process, by proportional set size."""
    found, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split(maxsplit=5)
        if not first.endswith(":"):  # a mapping: addresses, rights, offset, device, inode, path
            inside = rest[4:] == [path]
        elif inside and first == "Pss:":
            found += int(rest[0]) * 1024
    return found / 1e6


class Team:
    """Several processes that all do the same thing at the same time."""

    def __init__(self, size: int, script: str, *arguments: str, root: Path | None = None) -> None:
        """`root` is that of another checkout, whose package they import."""
        command = [sys.executable, script, *arguments]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        environment = os.environ if root is None else os.environ | {"PYTHONPATH": str(root)}
        self.members = [subprocess.Popen(command, env=environment, **pipes) for _ in range(size)]

    def ask(self, line: str, size: int | None = None) -> list[Any]:
        """The answers of the first `size` members, or of all; `{member}` in the line is the number of each."""
        asked = self.members[:size]
        for k, member in enumerate(asked):
            member.stdin.write(line.format(member=k) + "\n")  # type: ignore[union-attr]
            member.stdin.flush()  # type: ignore[union-attr]
        return [json.loads(member.stdout.readline()) for member in asked]  # type: ignore[union-attr]

    def __enter__(self) -> "Team":
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.kill()
            member.communicate()
