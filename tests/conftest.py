"""Options of the long tests, the device of a test, and its place for shared segments, which must leave nothing behind.

Of the inside, it resets what is warned of once per process, and asks for the device that a name means.
"""

import gc
import multiprocessing
import os
import secrets
import shutil
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings

import tensorstash as ts
from tensorstash.batches.devices import device_of
from tensorstash.windows import latest
from tests import processes
from tests.oracle_load import descriptors

# machines are busy: no example has a deadline, and slow generation is no fault
settings.register_profile(
    "tensorstash",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("tensorstash")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--examples", type=int, default=40, metavar="PERCENT", help="of those that @settings of tests say")
    parser.addoption("--rounds", type=int, default=6, help="rounds of racing and killed processes")
    parser.addoption("--mutations", type=int, default=1000, help="damaged headers to attach")
    parser.addoption("--mutants", type=int, default=15, help="of each kind of damage and file; thousands take hours")
    parser.addoption("--differential", type=int, metavar="CASES", help="cases to compare with an earlier commit")
    parser.addoption("--device", help="of the tests marked `device`; CUDA where there is some, else the CPU")
    parser.addoption("--site", metavar="DIR", help="a built site to lay out in Chromium; see test_site.py")
    parser.addoption("--user-types", action="store_true", help="check a script of a user; see test_user_types.py")
    parser.addoption("--update-messages", action="store_true", help="write tests/messages/*.txt anew")
    parser.addoption(
        "--corpora", metavar="DIR", help="a folder of Parquet and Arrow files to load; see test_corpora.py"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Every run draws other examples, so that runs with few of them cover what one with many does."""
    percent = config.getoption("examples")
    functions: set[Any] = {getattr(item, "obj", None) for item in items}
    for function in functions:
        if not getattr(function, "is_hypothesis_test", False):
            continue
        asked: settings = function._hypothesis_internal_use_settings
        count = max(1, asked.max_examples * percent // 100)
        function._hypothesis_internal_use_settings = settings(asked, max_examples=count)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """All of it stays: to look for what nothing refers to would take a third of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """What is there by now need not be looked at again by every collection: some tests ask for many."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """What a file of tests leaves, such as its reports, need not be looked at again either."""
    yield
    if nextitem is None or nextitem.path != item.path:
        pytest_collection_finish()


def pytest_unconfigure() -> None:
    """At the end of the process everything is freed again."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def latest_has_not_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning that is given once per process is given in each test."""
    monkeypatch.setitem(latest._has_warned, "short", False)


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> torch.device:
    """Where the batches of a test go."""
    return device_of(request.config.getoption("device") or ("cuda" if torch.cuda.is_available() else "cpu"))


@pytest.fixture(scope="session")
def accelerator(device: torch.device) -> torch.device:
    """The same, for what can be seen on a device alone."""
    if device.type == "cpu":
        pytest.skip("no accelerator: its streams and its arithmetic cannot be tested; --device names one")
    return device


@pytest.fixture(scope="session")
def processes_from_the_template() -> None:
    """What multiprocessing spawns has imported everything already, and so has its server of forks."""
    multiprocessing.set_executable(processes.executable())


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
        gc.freeze()
    finally:
        shutil.rmtree(path, ignore_errors=True)
