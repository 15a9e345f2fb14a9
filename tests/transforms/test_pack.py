"""`ts.PackSequences` against loops over windows and slots: every slot with a row once, in the rows of best fit."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests import kernel as compiled
from tests import oracle
from tests.late_device import LateCopies
from tests.oracle_load import like

Batch = dict[str, torch.Tensor]


@pytest.fixture(params=[True, False], ids=["native", "numpy"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if not request.param:
        compiled.leave_out(monkeypatch)
    return bool(request.param)


# Oracles


def slow_best_fit(sizes: list[int], length: int) -> tuple[list[int], list[int], int]:
    """Every row is looked at for every window, from the longest to the shortest."""
    room: list[int] = []
    filled: list[int] = []  # when each row was filled last
    row, begin = [0] * len(sizes), [0] * len(sizes)
    for time, window in enumerate(sorted(range(len(sizes)), key=lambda k: -sizes[k])):
        size = sizes[window]
        fitting = [k for k in range(len(room)) if room[k] >= size]
        if not size:
            continue
        if fitting:
            k = min(fitting, key=lambda k: (room[k], -filled[k]))
        else:
            k = len(room)
            room.append(length)
            filled.append(0)
        row[window], begin[window] = k, length - room[k]
        room[k] -= size
        filled[k] = time
    return row, begin, len(room)


def slots_of(batch: Batch, name: str) -> list[list[int]]:
    """The slots with a row of each window."""
    count, slots = batch[name].shape[:2]
    observed = batch.get(f"{name}.observed", torch.ones(count, slots, dtype=torch.bool)).tolist()
    return [[k for k in range(slots) if seen[k]] for seen in observed]


def slow_rows(batch: Batch, name: str, length: int, multiple: int) -> Batch:
    """The entries of a packed span, slot by slot."""
    values, slots = batch[name], slots_of(batch, name)
    row, begin, rows = slow_best_fit([len(slot) for slot in slots], length)
    rows = -(-rows // multiple) * multiple
    packed = values.new_zeros(rows, length, *values.shape[2:])
    segment, position = torch.zeros(rows, length, dtype=torch.int32), torch.zeros(rows, length, dtype=torch.int32)
    for k in sorted((k for k in range(len(slots)) if slots[k]), key=lambda k: begin[k]):
        r, first = row[k], begin[k]
        number = int(segment[r].max()) + 1
        for at, slot in enumerate(slots[k], first):
            assert not segment[r, at], "no slot is written twice"
            packed[r, at], segment[r, at], position[r, at] = values[k, slot], number, slot - slots[k][0]
    numbers = {"row": row, "start": begin, "length": [*map(len, slots)]}
    places = {name: torch.tensor(values, dtype=torch.int64) for name, values in numbers.items()}
    entries = {"segment": segment, "position": position, **places}
    return {name: packed} | {f"{name}.{entry}": tensor for entry, tensor in entries.items()}


def slow_in_a_row(batch: Batch, name: str, multiple: int) -> Batch:
    slots = slots_of(batch, name)
    taken = [batch[name][k, slot] for k in range(len(slots)) for slot in slots[k]]
    size = -(-len(taken) // multiple) * multiple
    packed = batch[name].new_zeros(size, *batch[name].shape[2:])
    for k, value in enumerate(taken):
        packed[k] = value
    offsets = [sum(map(len, slots[:k])) for k in range(len(slots) + 1)]
    return {name: packed, f"{name}.offsets": torch.tensor(offsets, dtype=torch.int32)}


# Batches


def batch_of(seed: int, count: int, slots: int, kind: str) -> Batch:
    """Spans of several types over the same slots, empty in front, behind, or anywhere."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, slots + 1, (count, 1))
    place = np.arange(slots)
    observed = {
        "all": np.ones((count, slots), bool),
        "front": place >= slots - lengths,
        "behind": place < lengths,
        "anywhere": rng.random((count, slots)) < 0.6,
        "none": np.zeros((count, slots), bool),
    }[kind]
    numbers = torch.from_numpy(rng.integers(-99, 99, (count, slots, 3)))
    batch = {
        "x": numbers[..., 0].to(torch.float32),
        "pack": numbers.to(torch.bfloat16),
        "code": numbers[..., 1].to(torch.int16),
        "flag": numbers[..., 2] > 0,
        "other": torch.arange(count),
    }
    if kind == "all":
        return batch
    mask = torch.from_numpy(observed)
    batch["x"][~mask] = float("nan")
    return batch | {f"{name}.observed": mask for name in ("x", "pack", "code", "flag")}


NAMES = ("x", "pack", "code", "flag")


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("kind", ["all", "front", "behind", "anywhere", "none"])
@pytest.mark.parametrize(("length", "multiple"), [(None, 1), (None, 8), (11, 1), (16, 4), (64, 1)])
@pytest.mark.parametrize("count", [0, 1, 40])
def test_packed_spans_are_their_slots_one_after_the_other(
    count: int, length: int | None, multiple: int, kind: str
) -> None:
    batch = batch_of(count, count, 11, kind)
    packed = ts.PackSequences(*NAMES, length=length, multiple=multiple)(dict(batch))
    exact = {"other": batch["other"]}
    for name in NAMES:
        exact |= slow_in_a_row(batch, name, multiple) if length is None else slow_rows(batch, name, length, multiple)
    assert packed.keys() == exact.keys()
    assert all(oracle.same(packed[name], exact[name]) for name in exact)
    shared = "offsets" if length is None else "segment"
    assert all(packed[f"{name}.{shared}"] is packed[f"x.{shared}"] for name in NAMES)


def window_of_each_slot(batch: Batch, name: str, length: int) -> list[list[int | None]]:
    """What the page of pre-training says, slot by slot: only a window with a length lies somewhere."""
    rows: list[list[int | None]] = [[None] * length for _ in batch[name]]
    places = zip(*(batch[f"{name}.{entry}"].tolist() for entry in ("row", "start", "length")))
    for window, (row, begin, size) in enumerate(places):
        for at in range(begin, begin + size):
            assert rows[row][at] is None, "no slot belongs to two windows"
            rows[row][at] = window
    return rows


@pytest.mark.usefixtures("kernel")
@given(
    sizes=st.lists(st.integers(0, 6), max_size=12),
    length=st.integers(6, 14),
    multiple=st.integers(1, 3),
)
@settings(max_examples=60, suppress_health_check=[])
def test_the_length_of_each_window_says_where_its_slots_are(sizes: list[int], length: int, multiple: int) -> None:
    observed = torch.arange(6) < torch.tensor(sizes, dtype=torch.int64)[:, None]
    values = torch.arange(len(sizes)).float()[:, None].expand(-1, 6).clone()
    packed = ts.PackSequences("x", length=length, multiple=multiple)({"x": values, "x.observed": observed})
    assert packed["x.length"].tolist() == sizes
    held = window_of_each_slot(packed, "x", length)
    for slots, owners, segments in zip(packed["x"].tolist(), held, packed["x.segment"].tolist(), strict=True):
        assert [owner for owner in owners if owner is not None] == [
            int(value) for value, segment in zip(slots, segments) if segment
        ]
        assert [owner is not None for owner in owners] == [segment > 0 for segment in segments]


@pytest.mark.usefixtures("kernel")
def test_a_window_without_rows_is_told_from_the_one_beside_it() -> None:
    """First or last in the batch, the empty window leaves the rows as they are: only the lengths differ."""
    values = torch.tensor([[7.0, 8.0], [7.0, 8.0]])
    first, last = (
        ts.PackSequences("x", length=4)({"x": values.clone(), "x.observed": torch.tensor([[k == 1] * 2, [k == 0] * 2])})
        for k in (0, 1)
    )
    assert first["x"].equal(last["x"])
    assert (first["x.length"].tolist(), last["x.length"].tolist()) == ([0, 2], [2, 0])
    assert window_of_each_slot(first, "x", 4) == [[1, 1, None, None]]
    assert window_of_each_slot(last, "x", 4) == [[0, 0, None, None]]


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("multiple", [1, 4])
def test_windows_without_rows_alone_have_no_row(multiple: int) -> None:
    none = torch.zeros(3, 2, dtype=torch.bool)
    packed = ts.PackSequences("x", length=4, multiple=multiple)({"x": torch.zeros(3, 2), "x.observed": none})
    assert [packed[name].shape for name in ("x", "x.segment", "x.position")] == [(0, 4)] * 3
    assert packed["x.length"].tolist() == [0, 0, 0]


# In a loader


def stash_of() -> ts.Stash:
    lengths = [3, 40, 17, 1, 9]
    of = np.repeat(np.arange(5), lengths)
    hours = np.concatenate([np.flatnonzero(np.arange(3 * n) % 4 != 1)[:n] for n in lengths])
    y = np.arange(len(of), dtype=np.float32)
    return ts.load({"e": of, "t": hours, "y": y, "z": -y, "w": y[::-1].copy()}, ["y", "z", "w"], entity="e", time="t")


def windows_of(draw: bool = True) -> ts.Windows:
    begin = ts.Draw(-12, -2) if draw else -12
    spans = {"past": ("y", begin, 0), "known": ("z", begin, 0), "next": ("w", 0, 2)}
    return ts.Windows(stash_of(), spans=spans, gaps="mask", frequency=1, min_history=1)


@pytest.fixture(params=["host", "late"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "late":
        monkeypatch.setattr("tensorstash.batches.loader.copies_to", lambda _: LateCopies())
    return str(request.param)


@pytest.mark.usefixtures("way", "kernel")
@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("length", [None, 24])
@pytest.mark.parametrize("draw", [True, False])
def test_a_loader_packs_what_it_would_give(draw: bool, length: int | None, prefetch: int) -> None:
    """With transforms before and after, over epochs; batches that are kept stay what they are."""
    windows = windows_of(draw)
    scaler = ts.Scaler.fit(windows, ["y", "z"])
    before: list[Any] = [ts.Cast({"past": torch.float64, "known": torch.float64}), scaler]

    def double(batch: Batch) -> Batch:
        batch["known"] = batch["known"] * 2
        return batch

    pack = ts.PackSequences("past", "known", length=length)
    arguments: dict[str, Any] = {"shuffle": True, "seed": 1, "prefetch": prefetch, "with_ids": True}
    loader = ts.Loader(windows, 7, transform=[*before, pack, ts.PackSequences("next"), double], **arguments)
    plain = ts.Loader(windows, 7, transform=before, **arguments)
    kept = []
    for _ in range(2):
        for batch, whole in zip(loader, plain, strict=True):
            exact = {name: tensor for name, tensor in whole.items() if "observed" not in name}
            for name in ("past", "known"):
                exact |= slow_in_a_row(whole, name, 1) if length is None else slow_rows(whole, name, length, 1)
            exact |= slow_in_a_row(whole, "next", 1)
            exact["known"] = exact["known"] * 2
            shared = "offsets" if length is None else "segment"
            assert batch[f"past.{shared}"] is batch[f"known.{shared}"]
            kept.append((batch, {name: tensor.clone() for name, tensor in exact.items()}))
    for batch, exact in kept:
        assert batch.keys() == exact.keys()
        assert all(oracle.same(batch[name].cpu(), exact[name].cpu()) for name in exact)


@pytest.mark.usefixtures("way")
def test_packed_runs_resume() -> None:
    """A step has as many windows as ever: order, ranks and states are those of dense batches."""
    loader, other = (
        ts.Loader(windows_of(), 4, shuffle=True, transform=[ts.PackSequences("past", "known")]) for _ in "ab"
    )
    for taken, _ in enumerate(loader):
        if taken == 2:
            break
    other.load_state_dict(loader.state_dict())
    whole = [batch["past"].clone() for batch in ts.Loader(windows_of(), 4, shuffle=True, transform=loader.transform)]
    rest = [batch["past"].clone() for batch in other]
    assert len(rest) == len(whole) - 3
    assert all(one.equal(two) for one, two in zip(rest, whole[3:]))


def test_memory_of_packed_batches_is_used_again() -> None:
    loader = ts.Loader(windows_of(), 4, transform=[ts.PackSequences("past", "known", length=64)])
    addresses = [batch["past"].data_ptr() for _ in range(3) for batch in loader]
    assert len({*addresses}) <= 8 < len(addresses)


def test_memory_of_batches_that_are_packed_ahead_is_used_again() -> None:
    """Batches of a few steps are packed together, and each has memory of its own until the loop is done with it."""
    loader = ts.Loader(windows_of(), 4, prefetch=1, transform=[ts.PackSequences("past", "known", length=64)])
    addresses = [batch["past"].data_ptr() for _ in range(12) for batch in loader]
    assert len({*addresses}) < len(addresses) / 3


@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_are_packed_in_the_thread_if_there_is_prefetch(prefetch: int) -> None:
    """With all transforms before the last pack; those behind it run where the loop does."""
    threads: dict[str, set[int]] = {"before": set(), "behind": set()}

    def note(where: str) -> Callable[[Batch], Batch]:
        def transform(batch: Batch) -> Batch:
            threads[where].add(threading.get_ident())
            return batch

        return transform

    steps: list[Any] = [note("before"), ts.PackSequences("past", "known"), ts.PackSequences("next"), note("behind")]
    loader = ts.Loader(windows_of(), 4, prefetch=prefetch, transform=steps)
    assert len([*loader]) == len(loader)
    here = {threading.get_ident()}
    assert threads["behind"] == here
    assert (threads["before"] == here) == (prefetch == 0)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_before_one_that_cannot_be_packed_are_handed_out(prefetch: int) -> None:
    """They count as seen, although the thread makes a few batches together."""

    def third_fails(batch: Batch) -> Batch:
        if batch["window"][0] == 8:
            raise ArithmeticError("as it happens")
        return batch

    arguments: dict[str, Any] = {
        "prefetch": prefetch,
        "with_ids": True,
        "transform": [third_fails, ts.PackSequences("past")],
    }
    loader, seen = ts.Loader(windows_of(), 4, **arguments), []
    with pytest.raises(ArithmeticError, match=r"^as it happens$"):
        for batch in loader:
            seen += batch["window"].tolist()
    assert seen == [*range(8)]
    assert loader.state_dict()["consumed"] == 8


def test_an_instance_norm_before_normalises_the_windows() -> None:
    windows = windows_of()
    norm = ts.InstanceNorm("past", kind="last")
    packed, dense = (
        next(iter(ts.Loader(windows, 9, transform=[norm, *more]))) for more in ([ts.PackSequences("past", "known")], [])
    )
    assert oracle.same(packed["past"], slow_in_a_row(dense, "past", 1)["past"])
    assert packed["past.center"].equal(dense["past.center"])


# What is refused


def loader_with(*transforms: Any, **arguments: Any) -> ts.Loader:
    return ts.Loader(windows_of(), 4, transform=transforms, **arguments)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ts.PackSequences(), "at least one span"),
        (lambda: ts.PackSequences("x", "x"), "named once, got 'x' twice"),
        (lambda: ts.PackSequences("x", length=0), "length must be"),
        (lambda: ts.PackSequences("x", multiple=0), "multiple must be"),
        (lambda: loader_with(ts.PackSequences("past", length=11)), "'past' has 12 slots and a row 11. Use length=12."),
        (
            lambda: loader_with(ts.PackSequences("past", "next")),
            "same slots; those of 'next' differ from those of 'past'",
        ),
        (lambda: loader_with(ts.PackSequences("past"), ts.PackSequences("known", "past")), "'past' is packed twice"),
        (lambda: loader_with(ts.PackSequences("past"), resident=True), "runs on the host ... resident=True"),
    ],
)
def test_packs_that_make_no_sense_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=like(message)):
        make()


def test_spans_that_are_not_there_are_refused() -> None:
    with pytest.raises(ts.errors.ColumnError, match="'pst'"):
        loader_with(ts.PackSequences("pst"))
    with pytest.raises(ts.errors.ColumnError, match="'pst'"):
        ts.PackSequences("pst")(windows_of()[:4])
    with pytest.raises(TypeError, match=like("names of spans, got 3")):
        ts.PackSequences(3)  # type: ignore[arg-type]


def test_a_batch_that_does_not_fit_is_refused() -> None:
    batch = windows_of()[:4]
    with pytest.raises(ValueError, match=like("packed once; 'past' has been packed already")):
        ts.PackSequences("past")(ts.PackSequences("past")(dict(batch)))
    with pytest.raises(ValueError, match="must have the same slots"):
        ts.PackSequences("past", "next")(dict(batch))
    with pytest.raises(ValueError, match="must have the same slots"):
        ts.PackSequences("past", "known")(batch | {"known.observed": ~batch["known.observed"]})
    with pytest.raises(ValueError, match=like("must be (batch, time, ...); 'n' is (4,)")):
        ts.PackSequences("n")(batch | {"n": torch.arange(4)})
    with pytest.raises(ValueError, match="must fit into a row"):
        ts.PackSequences("past", length=5)(dict(batch))
    with pytest.raises(ValueError, match=like("runs on the host; 'past' is on meta")):
        ts.PackSequences("past")(batch | {"past": batch["past"].to("meta")})


@pytest.mark.parametrize("way", ["late"], indirect=True)
def test_what_is_copied_must_be_tensors(way: str) -> None:
    with pytest.raises(TypeError, match=like("Entries that are copied to cpu must be ... 'n' is 3 ... ts.Pack")):
        next(iter(loader_with(lambda batch: batch | {"n": 3}, ts.PackSequences("past"))))


# Cases after those of uni2ts for its packed loader and its crops


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("count", [10, 50, 100])
def test_windows_of_1_to_n_slots_each_come_once_in_rows_of_n(count: int) -> None:
    slots = np.arange(count)
    observed = torch.from_numpy(slots < slots[:, None] + 1)
    values = torch.arange(count).float().expand(count, count).clone()
    packed = ts.PackSequences("x", length=count)({"x": values, "x.observed": observed})
    assert int(packed["x.segment"].max(1).values.sum()) == count
    assert len(packed["x"]) == -(-count * (count + 1) // 2 // count), "n and n - 1 with 1, and so on: no slot is left"
    assert packed["x"].equal(packed["x.position"].float())


@pytest.mark.usefixtures("kernel")
def test_two_windows_of_ten_slots_share_a_row_of_22() -> None:
    values = torch.arange(40.0).view(4, 10)
    packed = ts.PackSequences("x", length=22)({"x": values})
    assert packed["x.segment"].tolist() == [[1] * 10 + [2] * 10 + [0, 0]] * 2
    assert packed["x"].tolist() == [[*map(float, range(20)), 0, 0], [*map(float, range(20, 40)), 0, 0]]
    assert (packed["x.row"].tolist(), packed["x.start"].tolist()) == ([0, 0, 1, 1], [0, 10, 0, 10])


def test_each_drawn_past_is_a_stretch_of_its_series_in_whole_patches() -> None:
    lengths, patch = [1000, 200, 90], 8
    series = [np.random.default_rng(k).standard_normal(n).astype(np.float32) for k, n in enumerate(lengths)]
    stash = ts.load({"e": np.repeat(np.arange(3), lengths), "y": np.concatenate(series)}, ["y"], entity="e")
    windows = ts.Windows(stash, spans={"past": ("y", ts.Draw(-64, -16, step=patch), 0), "next": ("y", 0, 4)})
    seen = set()
    for batch in ts.Loader(windows, 50, shuffle=True, with_ids=True, transform=[ts.PackSequences("past")]):
        offsets = batch["past.offsets"].tolist()
        for k, (entity, row) in enumerate(zip(batch["entity"].tolist(), batch["anchor"].tolist())):
            past = batch["past"][offsets[k] : offsets[k + 1]].numpy()
            end = row - sum(lengths[:entity])
            assert np.array_equal(past, series[entity][end - len(past) : end])
            seen.add(len(past))
    assert seen == {*range(16, 65, patch)}


def test_what_goes_by_window_stands_before_the_pack() -> None:
    stash = ts.load({"e": ["a"] * 6 + ["b"] * 6, "y": np.arange(12.0)}, ["y"], entity="e")
    windows = ts.Windows(stash, spans={"past": ("y", -2, 0), "next": ("y", 0, 2)})
    norm, by_entity = ts.InstanceNorm("past", "next"), ts.Scaler.fit(windows, ["y"], by="entity")
    for name, step in (("InstanceNorm", norm), ("Scaler", by_entity)):
        with pytest.raises(ValueError, match=like(f"{name} must see whole windows; 'past' is packed before it")):
            ts.Loader(windows, 4, with_ids=True, transform=[ts.PackSequences("past", length=4), step])
    ts.Loader(windows, 4, with_ids=True, transform=[norm, by_entity, ts.PackSequences("past", length=4)])
    whole = ts.Scaler.fit(windows, ["y"])
    for length in (None, 4, 5):  # where slots of rows are unused, they stay 0
        pack: Any = ts.PackSequences("past", length=length)
        before, after = ([*ts.Loader(windows, 4, transform=steps)] for steps in ([whole, pack], [pack, whole]))
        assert len(before) == len(after) == 2
        for one, two in zip(before, after):
            assert all(torch.equal(one[name], two[name]) for name in one)
        restored = whole.inverse(after[0])["past"]
        torch.testing.assert_close(restored, next(iter(ts.Loader(windows, 4, transform=[pack])))["past"])
