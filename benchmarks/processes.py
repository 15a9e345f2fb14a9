"""Several processes that work at the same time, and what each weighs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


class Team:
    """Several processes that all do the same thing at the same time."""

    def __init__(self, size: int, script: str, *arguments: str, root: Path | None = None) -> None:
        """`root` is that of another checkout, whose package they import."""
        command = [sys.executable, script, *arguments]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        environment = os.environ if root is None else os.environ | {"PYTHONPATH": str(root)}
        self.members = [subprocess.Popen(command, env=environment, **pipes) for _ in range(size)]

    def ask(self, line: str) -> list[Any]:
        """The answers of all; `{member}` in the line is the number of each."""
        for k, member in enumerate(self.members):
            member.stdin.write(line.format(member=k) + "\n")  # type: ignore[union-attr]
            member.stdin.flush()  # type: ignore[union-attr]
        return [json.loads(member.stdout.readline()) for member in self.members]  # type: ignore[union-attr]

    def __enter__(self) -> "Team":
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.kill()
            member.communicate()


def weigh() -> float:
    """MB of this process by proportional set size."""
    return int(Path("/proc/self/smaps_rollup").read_text().split("\nPss:")[1].split()[0]) * 1024 / 1e6
