"""The code on the pages: how it is found and run, and the pictures that it draws.

python -m tests.project.pages  # draws the pictures of docs/pictures anew
"""

import os
import re
import tempfile
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# pages whose code needs other packages, which warn of themselves: `tests/batches/test_frameworks.py`, and for Ray
# `tests/cluster/test_replicated.py`
OF_OTHERS = {"lightning.md": "lightning", "huggingface.md": "transformers", "ray.md": "ray"}
README = ROOT / "README.md"
PICTURES = ROOT / "docs" / "pictures"
STYLE = ROOT / "docs" / "pictures.mplstyle"
COLOURS = 64


def blocks(path: Path) -> list[str]:
    """The Python blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```$", path.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def pages() -> list[Path]:
    """The pages below docs/ that have code."""
    return [path for path in sorted((ROOT / "docs").rglob("*.md")) if blocks(path)]


def run(path: Path) -> tuple[dict[str, Any], int]:
    """Execute all blocks in one namespace, and compare every `expression  # -> value` with its value."""
    namespace: dict[str, Any] = {}
    compared = 0
    for block in blocks(path):
        exec(compile(block, path.name, "exec"), namespace)
        for expression, value in re.findall(r"^(\S.*?)  # -> (.*)$", block, re.MULTILINE):
            found = repr(eval(expression, namespace))
            assert found == value, f"{path.name}: {expression} is {found}"
            compared += 1
    return namespace, compared


def pictures(path: Path) -> list[str]:
    """The pictures that the code of a page draws; docs/drawings.py and benchmarks/plots.py draw the others."""
    return re.findall(r"!\[[^\]]*\]\((?:\.\./)*pictures/([^)]+\.png)\)", path.read_text("utf-8"))


def main() -> None:
    """Run the pages that show pictures, each in a directory of its own, and keep what they draw in few colours."""
    os.environ["MPLBACKEND"] = "Agg"
    from matplotlib import style
    from PIL import Image

    style.use(STYLE)
    warnings.filterwarnings("ignore", "Gaps cost")
    PICTURES.mkdir(exist_ok=True)
    for path in filter(pictures, pages()):
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            Path("examples").symlink_to(ROOT / "examples", target_is_directory=True)
            run(path)
            for name in pictures(path):
                Image.open(name).quantize(COLOURS).save(PICTURES / name, optimize=True)
            os.chdir(ROOT)


if __name__ == "__main__":
    main()
