"""Batches, ids and states are those of an earlier commit, bit by bit, over random cases."""

from pathlib import Path

import pytest

from tests.differential.base import BASE, NotInstalledError, install
from tests.differential.compare import Cases
from tests.differential.runs import compare


def test_random_cases_are_those_of_the_earlier_commit(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """With the kernel and without it."""
    count = request.config.getoption("differential")
    if not count:
        pytest.skip(f"without --differential=CASES nothing is compared with the commit {BASE[:9]}")
    try:
        text = compare(install(BASE, tmp_path / "earlier"), Cases(0, 0, count))
    except NotInstalledError as error:
        text = str(error)
    if text:
        pytest.fail(text, pytrace=False)
