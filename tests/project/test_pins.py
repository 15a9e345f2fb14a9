"""`constraints.txt` can be installed on every Python that `pyproject.toml` claims."""

import re
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

_ROOT = Path(__file__).parents[2]
_CLAIMED = re.findall(r'Python :: (3\.\d+)"', (_ROOT / "pyproject.toml").read_text())
_PINS = [Requirement(line) for line in (_ROOT / "constraints.txt").read_text().splitlines() if line[:1].isalnum()]


def _holds_on(pin: Requirement, python: str) -> bool:
    return pin.marker is None or pin.marker.evaluate({"python_version": python})


def test_every_package_has_one_pin_on_every_python() -> None:
    assert len(_CLAIMED) == 5
    for python in _CLAIMED:
        names = [pin.name for pin in _PINS if _holds_on(pin, python)]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("python", _CLAIMED)
def test_pins_of_what_is_installed_allow_every_python_on_which_they_hold(python: str) -> None:
    """What other versions ask for is not known here; `make pins` asks the index."""
    refused, checked = [], 0
    for pin in _PINS:
        try:
            installed = metadata.metadata(pin.name)
        except metadata.PackageNotFoundError:
            continue
        if not _holds_on(pin, python) or not pin.specifier.contains(installed["Version"]):
            continue
        checked += 1
        newest = f"{python}.99"  # a later release of that Python may be asked for
        if not SpecifierSet(installed["Requires-Python"] or "").contains(newest):
            refused.append(f"{pin} asks for Python {installed['Requires-Python']}")
    assert checked > 50
    assert refused == []
