"""The ways that a batch can take."""

import pytest

from tests.late_device import LateCopies


@pytest.fixture(params=["host", "late"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches stay on the host, or go to a device whose copies are late."""
    if request.param == "late":
        monkeypatch.setattr("tensorstash.batches.loader.copies_to", lambda _: LateCopies())
