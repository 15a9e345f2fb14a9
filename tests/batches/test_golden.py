"""Batches and states of all kinds of loaders are those of earlier releases, on every way that a batch can take."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests import kernel as compiled
from tests.batches.conftest import WAYS
from tests.batches.golden import FILE, all_indexed, cases, forget, summary
from tests.late_device import LateCopies

pytestmark = [
    pytest.mark.host("it chooses the ways itself"),
    pytest.mark.filterwarnings("ignore:The windows of .* uneven"),
]

GOLDEN: dict[str, Any] = json.loads(FILE.read_text())
CASES = cases()


@pytest.fixture(autouse=True)
def native(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """With the kernel, or without it where the parameter `kernel` says so."""
    forget()
    if not request.node.callspec.params["kernel"]:
        compiled.leave_out(monkeypatch)
    yield
    forget()


@pytest.mark.parametrize(
    ("kernel", "place", "prefetch"),
    [(True, place, prefetch) for place in WAYS for prefetch in (0, 2) if prefetch or place == "host"]
    + [(False, "host", 0), (False, "resident", 0)],
)
def test_loaders_give_the_batches_and_states_that_they_always_gave(
    kernel: bool, place: str, prefetch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the host, on a device whose copies are late, and from resident columns."""
    del kernel  # the fixture reads it
    if place != "host":
        monkeypatch.setattr("tensorstash.batches.loader.copies_to", lambda _: LateCopies())
    made = {name: summary(case, prefetch=prefetch, resident=place == "resident") for name, case in CASES.items()}
    assert {name: found for name, found in made.items() if found != GOLDEN[name]} == {}


@pytest.mark.parametrize("kernel", [True, False])
def test_windows_by_their_numbers_are_what_they_always_were(kernel: bool) -> None:
    del kernel  # the fixture reads it
    made = dict(all_indexed())
    assert made == {name: GOLDEN[name] for name in made}
    assert GOLDEN.keys() == CASES.keys() | made.keys()
