"""The tests of tables can fail: wrong rules, put into the inside of `windows/`, are caught by oracle and poison."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import tensorstash as ts
from tensorstash.windows import time_spans
from tensorstash.windows.tables import Table
from tests import kernel
from tests.windows.seen import Seen, check
from tests.windows.test_as_known import poisoned, versions_of
from tests.windows.test_tables import equal
from tests.windows.worlds import World, points_of, world_of
from tests.words import Side

SIDES: tuple[Side, ...] = ("left", "right")


def too_late(late: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """The rule of which versions are known, with other moments."""
    right = Table.too_late
    return lambda table, moments: right(table, late(moments))


def newest_of_all(table: Table) -> Any:
    """Rows in the order of times without their known times, so that each time has its last row, known or not."""
    versions = of_table(table)
    return replace(versions, known=None) if versions.reach is None else versions


def on_the_other_side(stretch: Any, members: Any) -> Any:
    """A span that is closed on the other side."""
    table, start, stop, closed, *rest = stretch
    return of_stretch((table, start, stop, "left" if closed == "right" else "right", *rest), members)


of_table, of_stretch = Table.versions, time_spans._time_span
WRONG: dict[str, tuple[Any, str, Any]] = {
    "known at t is known before t": (Table, "too_late", too_late(lambda moments: moments + 1)),
    "known just before t is not known": (Table, "too_late", too_late(lambda moments: moments - 1)),
    "all is known": (Table, "too_late", too_late(lambda moments: np.full_like(moments, 1 << 61))),
    "versions are rows": (Table, "versions", newest_of_all),
    "closed on the other side": (time_spans, "_time_span", on_the_other_side),
}
LEAKS = [name for name in WRONG if name != "known just before t is not known"]  # which sees less than it may


@cache
def points(seed: int) -> tuple[World, dict[str, Any], dict[str, list[Seen]]]:
    """Some world, the arguments of windows in it, and what polars finds for them."""
    versions = ("none", "known", "events")[seed % 3]
    world = world_of(seed, ("same", "by", "none")[seed // 3 % 3], versions)
    return world, *points_of(world, SIDES[seed % 2])


def differs(seed: int) -> bool:
    """Whether polars finds other rows for windows of some world."""
    world, arguments, expected = points(seed)
    batch = ts.Windows(**arguments)[:]
    try:
        for name, of_span in expected.items():
            check(batch, name, of_span, world.tick, known=world.known is not None)
    except AssertionError:
        return True
    return False


def leaks(seed: int) -> bool:
    """Whether rows that are not known at t change a window."""
    world = versions_of(seed, SIDES[seed % 2], seed % 4 < 2)
    return not equal(world.batch(), poisoned(world, np.random.default_rng(seed)).batch())


@pytest.mark.parametrize("way", kernel.WAYS)
def test_right_rules_pass(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel.take(way, monkeypatch)
    assert not any(map(differs, range(24)))
    assert not any(map(leaks, range(8)))


@pytest.mark.parametrize("way", kernel.WAYS)
@pytest.mark.parametrize("rule", WRONG)
def test_polars_finds_other_rows_where_a_rule_is_wrong(rule: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel.take(way, monkeypatch)
    monkeypatch.setattr(*WRONG[rule])
    assert any(map(differs, range(24)))


@pytest.mark.parametrize("way", kernel.WAYS)
@pytest.mark.parametrize("rule", LEAKS)
def test_poison_shows_where_a_rule_leaks(rule: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel.take(way, monkeypatch)
    monkeypatch.setattr(*WRONG[rule])
    assert any(map(leaks, range(8)))
