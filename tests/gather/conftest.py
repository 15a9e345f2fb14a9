"""Every test of this folder runs with the kernel, where it was compiled, and without it on torch."""

import pytest

from tests import kernel


@pytest.fixture(params=kernel.WAYS, autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    kernel.take(request.param, monkeypatch)
    return str(request.param)
