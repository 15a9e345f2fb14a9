"""Options of the long tests, and the place for shared segments of a test, which must leave nothing behind."""

import gc
import os
import secrets
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import tensorstash as ts
from tests.oracle_load import descriptors


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rounds", type=int, default=10, help="rounds of racing and killed processes")
    parser.addoption("--mutations", type=int, default=1000, help="damaged headers to attach")
    parser.addoption("--mutants", type=int, default=15, help="of each kind of damage and file; thousands take hours")
    parser.addoption(
        "--corpora", metavar="DIR", help="a folder of Parquet and Arrow files to load; see test_corpora.py"
    )


def pytest_collection_finish() -> None:
    """What is there by now need not be looked at again by every collection: some tests ask for many."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """At the end of the process everything is freed again."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def no_ray_of_others(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Ray cluster that happens to run on this machine is named in messages about memory."""
    if request.node.get_closest_marker("cluster") is None:
        monkeypatch.setattr("tensorstash.segments.ray_store._raylets", lambda: [])


def traces(path: Path) -> tuple[Counter[str], int]:
    """Descriptors of this process in a directory, with or without a name, and mappings of its files."""
    gc.collect()
    inside = Counter({link: count for link, count in descriptors().items() if link.startswith(str(path))})
    return inside, Path("/proc/self/maps").read_text().count(str(path))


@pytest.fixture
def shm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory for segments, not made yet. At the end it may hold segments, but no locks and nothing half-made."""
    path = Path("/dev/shm") / f"tensorstash-test-{secrets.token_hex(4)}"
    monkeypatch.setenv("TENSORSTASH_DIR", str(path))
    yield path
    try:
        for label in set(ts.shared.list()["label"]):
            ts.shared.remove(label)
        assert os.listdir(path) == []
        assert traces(path) == (Counter(), 0)
    finally:
        shutil.rmtree(path, ignore_errors=True)
