"""The ways that a batch can take: every test of this folder runs over each of them."""

import inspect
from typing import Any

import pytest

import tensorstash as ts
from tests.late_device import LateCopies

WAYS = ["host", "late", "resident"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test marked `host`, with the reason why, runs over that way alone."""
    only_host = metafunc.definition.get_closest_marker("host") is not None
    metafunc.parametrize("way", WAYS[:1] if only_host else WAYS, indirect=True)


@pytest.fixture(autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Batches stay on the host, go to a device whose copies are late, or are gathered there from resident columns."""
    if request.param != "host":
        monkeypatch.setattr("tensorstash.batches.loader.copies_to", lambda _: LateCopies())
    if request.param == "resident":
        defaults: Any = inspect.unwrap(ts.Loader.__init__).__kwdefaults__
        monkeypatch.setitem(defaults, "resident", True)
    return str(request.param)
