"""Columns that lie on the device: the batches gathered there are those of the host, bit by bit.

It reaches inside `batches/resident.py` to count copies, and to give the device of the tests streams.
"""

import copy
import gc
import pickle
import re
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tensorstash.batches import resident
from tensorstash.batches.devices import Copies
from tensorstash.gather.memory import Memory
from tests import oracle
from tests.data import Table, tables
from tests.late_device import BROKEN, LateCopies
from tests.oracle_load import like
from tests.spaces import limit
from tests.windows.test_masked import cases
from tests.words import Gaps

pytestmark = [
    pytest.mark.host("it chooses the ways itself"),
    pytest.mark.filterwarnings("ignore:Gaps (cost|make)"),
]

HOUR = np.timedelta64(1, "h")
COLUMNS: Any = {
    "y": "y",
    "code": ts.column("code", empty=-7),
    "pack": ["y", "half"],
    "when": ts.calendar("hour", "dayofweek"),
    "phase": ts.calendar("hour", cyclic=True),
}
SPANS = {
    "past": ("y", -6, 0),
    "code": ("code", -6, 2, 2),
    "pack": ("pack", -3, 3),
    "when": ("when", 0, 3),
    "phase": ("phase", -6, 3, 2),
}


def stash_of(rows: int, start: int) -> ts.Stash:
    """Two entities with missing hours, static columns, a pack, and columns of the calendar."""
    each = [n for n in range(rows) if n % 17 not in (3, 4)]
    times = (np.concatenate([each, each]) + start) * HOUR + np.datetime64("2024-03-01", "s")
    entity = np.repeat([0, 1], len(each))
    y = np.arange(2.0 * len(each), dtype=np.float32) + start
    data = {"e": entity, "t": times, "y": y, "half": y / 2, "code": y.astype(np.int16), "size": entity.astype(np.int8)}
    return ts.load(data, COLUMNS, entity="e", time="t", static=["size"])


def windows_of(gaps: Gaps = "mask", rows: int = 120, start: int = 0, **arguments: Any) -> ts.Windows:
    return ts.Windows(stash_of(rows, start), spans=SPANS, gaps=gaps, **arguments)


def check(
    sampled: ts.Windows | ts.Mix, batch_size: int | None, copies: Callable[[], Copies] = LateCopies, **arguments: Any
) -> Copies:
    """A pass of each: the same names, shapes, types and bits, and what is kept of a batch stays."""
    expected = list(ts.Loader(sampled, batch_size, **arguments))
    made = copies()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tensorstash.batches.loader.copies_to", lambda _: made)
        found = list(ts.Loader(sampled, batch_size, resident=True, **arguments))
    assert len(found) == len(expected) > 0
    for batch, exact in zip(found, expected):
        assert list(batch) == list(exact)
        for name, tensor in exact.items():
            assert oracle.same(batch[name], tensor), name
    return made


@settings(max_examples=60)
@given(tables(most_rows=40), cases(), st.integers(1, 9), st.sampled_from([False, True]), st.sampled_from([0, 2]))
def test_any_windows(table: Table, arguments: dict[str, Any], batch_size: int, shuffle: bool, prefetch: int) -> None:
    """All types, spans, steps, gaps, leads and tails."""
    try:
        windows = ts.Windows(table.stash(fills=True), **arguments)
    except ts.errors.DataError:  # no window
        return
    if len(windows):
        check(windows, batch_size, shuffle=shuffle, prefetch=prefetch)


ORDERS: dict[str, dict[str, Any]] = {
    "sequential": {"with_valid": True},
    "shuffled": {"shuffle": True, "with_ids": True, "tail": "pad"},
    "blocks": {"order": ts.Blocks(10), "with_ids": True},
    "weighted": {"order": ts.Weighted([1.0, 3.0], per="entity", epoch_size=90), "with_ids": True},
    "per entity": {"order": ts.PerEntity(20), "with_ids": True},
    "steps": {"shuffle": True, "steps": 60, "prefetch": 3},
    "own ids": {"order": [5, 1, 5, 0, 7, 2, 2], "with_ids": True},
    "second of two ranks": {"shuffle": True, "num_replicas": 2, "rank": 1, "with_ids": True},
}


@pytest.mark.parametrize("gaps", ["split", "mask"])
@pytest.mark.parametrize("order", ORDERS)
def test_orders_and_what_batches_carry(order: str, gaps: Gaps) -> None:
    """Static columns, computed calendars, ids, anchors and `valid`."""
    least = {"min_history": 2, "min_horizon": 0} if gaps == "mask" else {}
    check(windows_of(gaps, **least), 16, **ORDERS[order])


@pytest.mark.parametrize("prefetch", [0, 2])
def test_lanes_tell_where_they_are_reset(prefetch: int) -> None:
    stash = stash_of(200, 0)
    windows = ts.Windows(stash, spans={"past": ("y", -6, 0), "next": ("y", 0, 1)}, stride=6)
    check(windows, 4, order=ts.Lanes(4), prefetch=prefetch)


@pytest.mark.parametrize("batch_size", [None, 1])
def test_cross_sections_vary_in_size(batch_size: int | None) -> None:
    check(windows_of("mask", min_horizon=0), batch_size, order=ts.ByTime(shuffle=True), with_ids=True)


@pytest.mark.parametrize("kinds", [("split", "split"), ("split", "mask"), ("mask", "mask")])
@pytest.mark.parametrize("arguments", [{"shuffle": True, "prefetch": 2, "tail": "pad"}, {"num_replicas": 3, "rank": 2}])
def test_a_mix_of_stashes(kinds: tuple[Gaps, Gaps], arguments: dict[str, Any]) -> None:
    """Windows of each component are gathered from its own columns, and stand in the order of the batch."""
    parts = {f"part {k}": windows_of(gaps, 80 + 40 * k, 7 * k) for k, gaps in enumerate(kinds)}
    check(ts.Mix(parts | {"rare": windows_of("split", 30, 99)}), 16, with_ids=True, **arguments)


def test_transforms_run_on_what_was_gathered() -> None:
    windows = windows_of("mask", min_history=3)
    scaler = ts.Scaler.fit(windows, ["pack"], by="entity")
    casts = ts.Cast({"code": torch.float32, "when": torch.float16})
    norm = ts.InstanceNorm("past")
    check(windows, 16, shuffle=True, with_ids=True, transform=[scaler, casts, norm])
    with pytest.raises(ValueError, match="Cast runs on the host, where the values of resident=True never are"):
        ts.Loader(windows, 16, resident=True, transform=[ts.Cast({"past": torch.float16}, on="host")])


def test_a_kept_batch_stays_as_it_is_while_others_are_written_into() -> None:
    loader = ts.Loader(windows_of(), 16, shuffle=True, with_ids=True, resident=True)
    kept = [(batch, {name: tensor.clone() for name, tensor in batch.items()}) for batch in loader]
    for batch, _ in kept[::2]:
        for tensor in batch.values():
            tensor.zero_()
    assert all(oracle.same(batch[name], exact[name]) for batch, exact in kept[1::2] for name in exact)
    again = ts.Loader(windows_of(), 16, shuffle=True, with_ids=True)
    assert all(oracle.same(one["past"], exact["past"]) for one, (_, exact) in zip(again, kept, strict=True))


def check_late(kind: Callable[[], LateCopies], prefetch: int) -> None:
    copies = check(windows_of(), 16, kind, shuffle=True, steps=90, prefetch=prefetch, with_ids=True)
    assert isinstance(copies, LateCopies)
    copies.finish()
    assert (copies.unused(), copies.torn()) == (0, 0)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_late_integers_are_waited_for(prefetch: int) -> None:
    """Over several groups of steps, so that staging memory is filled again; nothing is freed while in use."""
    check_late(LateCopies, prefetch)


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("broken", BROKEN, ids=lambda kind: kind.__name__)
def test_no_wait_can_be_left_out(broken: Callable[[], LateCopies], prefetch: int) -> None:
    """The test above fails if the way to the device leaves any of its duties out: poison is no row, and no slot."""
    message = r"== \(0, 0\)|function same|out of (bounds|range)"  # torn or unused, other values, poison as an index
    with pytest.raises((AssertionError, IndexError, RuntimeError), match=message):
        check_late(broken, prefetch)


def items(loader: ts.Loader) -> list[torch.Tensor]:
    """The columns that a loader gathers from."""
    return [column for memory in loader._resident.memories for column in memory.columns.values()]


def test_loaders_over_one_stash_share_its_columns_while_one_of_them_lives() -> None:
    windows = windows_of("split")
    train, valid = windows.split_fraction(0.7)
    loaders = [ts.Loader(part, 8, resident=True) for part in (train, valid)]
    places = [{one.data_ptr() for one in items(loader)} for loader in loaders]
    assert places[0] == places[1]
    assert len(places[0]) == len(COLUMNS)
    assert places[0].isdisjoint(tensor.data_ptr() for tensor in windows.stash.values())
    fewer = ts.Loader(ts.Windows(windows.stash, spans={"one": ("y", 0, 2)}), 8, resident=True)
    assert {one.data_ptr() for one in items(fewer)} < places[0]
    mixed = ts.Loader(ts.Mix({"one": train, "two": valid}), 8, resident=True)
    assert {one.data_ptr() for one in items(mixed)} == places[0]
    other = ts.Loader(windows_of("split"), 8, resident=True)
    assert places[0].isdisjoint(one.data_ptr() for one in items(other))
    column = weakref.ref(items(loaders[0])[0])
    del loaders, mixed, fewer
    gc.collect()
    assert column() is None


def test_columns_that_are_freed_with_the_loader_are_not_given_away_while_they_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The device may still gather from them in the stream of the loop."""
    copies = LateCopies()
    monkeypatch.setattr("tensorstash.batches.loader.copies_to", lambda _: copies)
    loader = ts.Loader(windows_of("mask"), 8, resident=True)
    assert not any(map(copies.used, items(loader)))
    next(iter(loader))
    assert all(map(copies.used, items(loader)))
    assert all(map(copies.used, loader._resident.static.values()))


def test_only_the_columns_of_the_spans_are_held() -> None:
    windows = ts.Windows(stash_of(40, 0), spans={"one": ("y", 0, 2), "two": ("y", -3, 0)})
    held = {id(one) for one in items(ts.Loader(windows, 8, resident=True))}
    assert len(held) == 1


def test_columns_that_do_not_fit_are_refused_with_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    stash = ts.load({"y": np.zeros(1_000_000), "z": np.zeros(1_000_000, np.float32)})
    one, both = (ts.Windows(stash, 3, columns=names) for names in (["y"], ["y", "z"]))
    monkeypatch.setattr(resident, "memory_limits", lambda: [limit(8_000_000)])
    held = ts.Loader(one, 8, resident=True)
    monkeypatch.setattr(resident, "memory_limits", lambda: [limit(3_000_000)])
    again = ts.Loader(one, 8, resident=True)  # what is there needs no more room
    assert items(again)[0] is items(held)[0]
    message = (
        "With resident=True the columns of the spans are held in the memory of the device; one column needs 4 MB and "
        "3 MB are free in RAM. Leave resident=True out, or load fewer columns or a narrower dtype."
    )
    with pytest.raises(ts.errors.NoMemoryError, match=f"^{re.escape(message)}$"):
        ts.Loader(both, 8, resident=True)
    del held, again
    gc.collect()
    with pytest.raises(MemoryError, match=r"the sum of 2 columns needs 12 MB and 3 MB are free in RAM\."):
        ts.Loader(both, 8, resident=True)


class Card:
    """What `torch.cuda` tells of memory: free beside all processes, and reserved for this one but not in use."""

    def mem_get_info(self, _: Any) -> tuple[int, int]:
        return 5_000_000, 80_000_000

    def memory_reserved(self, _: Any) -> int:
        return 7_000_000

    def memory_allocated(self, _: Any) -> int:
        return 4_000_000


def test_what_is_free_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resident, "module_of", lambda _: Card())
    card = torch.device("cuda", 1)
    assert resident._limits(card) == [limit(8_000_000, "on cuda:1")]
    monkeypatch.setattr(resident, "module_of", lambda _: object())
    assert resident._limits(card) == [limit(1 << 62, "on cuda:1")]  # then the copy itself may fail


def test_a_device_that_cannot_tell_what_is_free_may_be_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> torch.Tensor:
        raise RuntimeError("MPS backend out of memory (MPS allocated: ...)")

    stash = ts.load({"y": np.zeros(1_000_000)})
    monkeypatch.setattr(torch.Tensor, "to", fails)
    message = (
        "With resident=True the columns of the spans are held in the memory of the device; 'y' needs 8 MB, and cpu is "
        "out of memory. Leave resident=True out, or load fewer columns or a narrower dtype."
    )
    with pytest.raises(ts.errors.NoMemoryError, match=f"^{re.escape(message)}$"):
        resident.resident([(Memory(stash, stash, None), ["y"])], torch.device("cpu"))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))])
def test_a_copy_of_a_loader_holds_columns_of_its_own_stash(copied: Callable[[Any], Any], tmp_path: Path) -> None:
    stash_of(60, 0).save(tmp_path / "stash")
    loader = ts.Loader(ts.Windows(ts.open(tmp_path / "stash"), 5, columns=["y"]), 8, shuffle=True, resident=True)
    assert len(pickle.dumps(loader.__getstate__().keys() - {"windows"})) < 1000
    other = copied(loader)
    assert "resident" in repr(other)
    assert all(oracle.same(one["y"], two["y"]) for one, two in zip(loader, other, strict=True))


@pytest.mark.parametrize("value", [1, "cuda", None])
def test_resident_is_true_or_false(value: Any) -> None:
    with pytest.raises(TypeError, match=like(f"resident must be True or False, got {value!r}")):
        ts.Loader(windows_of(), 8, resident=value)


@pytest.mark.device
@pytest.mark.parametrize("sampled", [windows_of, lambda: ts.Mix({"one": windows_of(), "two": windows_of("split")})])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_gathered_on_an_accelerator_are_those_of_the_host(
    sampled: Callable[[], Any], prefetch: int, accelerator: torch.device
) -> None:
    windows = sampled()
    arguments: dict[str, Any] = {"shuffle": True, "with_ids": True, "tail": "pad"}
    host = list(ts.Loader(windows, 16, **arguments))
    loader = ts.Loader(windows, 16, device=accelerator, resident=True, prefetch=prefetch, **arguments)
    for batch, exact in zip(loader, host, strict=True):
        assert {tensor.device.type for tensor in batch.values()} == {accelerator.type}
        assert all(oracle.same(batch[name].cpu(), exact[name]) for name in exact)
