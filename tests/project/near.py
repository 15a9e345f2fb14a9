"""The tests near a change: those of its rooms, and the files that use a module of the tests that differs.

git diff --name-only main | python -m tests.project.near  # prints what `make near` hands to pytest
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]


def uses(text: str, module: str) -> bool:
    """Whether a file imports a module of the tests, or runs it as a program."""
    package, _, name = module.rpartition(".")
    among = rf"from {re.escape(package)} import (\([^)]*|.*)\b{name}\b"
    return name in text and re.search(rf"\b{re.escape(module)}\b|{among}", text) is not None


def users(changed: Iterable[str], root: Path) -> set[str]:
    """The files of tests that use one of the changed ones, also through others; a `conftest.py` passes nothing on."""
    texts = {str(path.relative_to(root)): path.read_text("utf-8") for path in (root / "tests").rglob("*.py")}
    found, new = set[str](), [name for name in changed if re.fullmatch(r"tests/.*\.py", name)]
    while new:
        module = new.pop().removesuffix(".py").replace("/", ".")
        using = {name for name, text in texts.items() if name not in found and uses(text, module)}
        found |= using
        new += using
    return {name for name in found if Path(name).name.startswith("test_")}


def near(changed: Iterable[str], root: Path = ROOT) -> list[str]:
    """What pytest is to run: folders of rooms, and the files of other rooms."""
    names = [*changed]
    if "tests/conftest.py" in names:
        return ["tests"]
    matches = (re.match(r"(?:tensorstash|tests)/([a-z]+)/", name) for name in names)
    rooms = {f"tests/{match[1]}" for match in matches if match and (root / "tests" / match[1]).is_dir()}
    return sorted(rooms | {name for name in users(names, root) if name.rpartition("/")[0] not in rooms})


if __name__ == "__main__":
    sys.stdout.write(" ".join(near(sys.stdin.read().split())))
