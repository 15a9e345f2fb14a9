"""`ts.each` in mixes: rows beside slices of the data by hand, ranks and resume, drawn columns, shares, Chronos-2."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests import kernel
from tests.variates import Batch, DataSet, chronos_batch, mixes, same, windows_of

X, C = 0, 1  # packs


@pytest.fixture(params=kernel.WAYS, autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test here runs with the kernel, where it was compiled, and without."""
    kernel.take(request.param, monkeypatch)


SPANS = {"past": (ts.each("x", "c"), -7, 0), "next": (ts.each("x"), 0, 3), "lag": (ts.each("x", "c"), -9, -1, 4)}
SLOTS = {"past": (range(-7, 0), (X, C)), "next": (range(3), (X,)), "lag": (range(-9, -1, 4), (X, C))}


def check_by_hand(sets: list[DataSet], batch: Batch) -> None:
    places = [batch[name].tolist() for name in ("source", "entity", "anchor")]
    for name, (slots, packs) in SLOTS.items():
        expected = [
            (window, *row)
            for window, (source, series, anchor) in enumerate(zip(*places))
            for row in sets[source].window(series, anchor, slots, packs)
        ]
        for entry, numbers in zip(("window", "pack", "variate"), zip(*expected)):
            assert batch[f"{name}.{entry}"].tolist() == [*numbers]
        values = torch.tensor([row[-1] for row in expected], dtype=torch.float64)
        assert same(batch[name], values)
        assert torch.equal(batch[f"{name}.observed"], ~values.isnan())


@pytest.mark.filterwarnings("ignore:Gaps make more empty slots than there are rows")
@given(sets=mixes(), size=st.integers(1, 40), shuffle=st.booleans(), seed=st.integers(0, 9))
@settings(max_examples=60)
def test_rows_are_slices_of_the_data_by_hand(sets: list[DataSet], size: int, shuffle: bool, seed: int) -> None:
    loader = ts.Loader(ts.Mix(windows_of(sets, SPANS)), size, shuffle=shuffle, seed=seed, with_ids=True, steps=4)
    for batch in loader:
        check_by_hand(sets, batch)


def test_the_oracle_can_fail() -> None:
    sets = [DataSet(0, "1h", (2, 1), ((20, frozenset()),)), DataSet(1, "1mo", (5, 3), ((30, frozenset()),))]
    batch = next(iter(ts.Loader(ts.Mix(windows_of(sets, SPANS)), 8, shuffle=True, with_ids=True)))
    check_by_hand(sets, batch)
    for name in ("past", "next.variate", "lag.window", "past.observed"):
        changed = batch | {name: batch[name].flip(0)}
        with pytest.raises(AssertionError):
            check_by_hand(sets, changed)


# ---- Ranks and resume ----


def small_mix(**more: Any) -> ts.Mix:
    sets = [DataSet(k, "1h", (width, 1), ((30 + k, frozenset()),) * 2) for k, width in enumerate((1, 9, 3, 30))]
    spans = {"past": (ts.each("x", "c", **more), -4, 0), "next": (ts.each("x", "c", **more), 0, 2)}
    return ts.Mix(windows_of(sets, spans), {"set 0": 1, "set 1": 2, "set 2": 0.5, "set 3": 1}, epoch_size=270)


def seen(loaders: list[ts.Loader]) -> Iterator[tuple[int, bytes]]:
    """The key and all rows of each window, in the order of the run."""
    for step in zip(*loaders):
        for batch in step:
            for k, key in enumerate(batch["window.key"].tolist()):
                rows = batch["past.window"] == k
                held = [batch[f"{s}{e}"][rows].numpy().tobytes() for s in ("past", "next") for e in ("", ".variate")]
                yield key, b"".join(held)


@pytest.mark.parametrize("more", [{}, {"max_variates": 4}])
def test_ranks_and_a_resumed_run_see_the_same_rows(more: dict[str, int]) -> None:
    def loaders(ranks: int) -> list[ts.Loader]:
        of_rank: dict[str, Any] = {"shuffle": True, "seed": 3, "with_ids": True, "num_replicas": ranks}
        return [ts.Loader(small_mix(**more), 24 // ranks, rank=rank, **of_rank) for rank in range(ranks)]

    whole = [*seen(loaders(1))]
    assert len(whole) == len({*whole}) == 270
    for ranks, others in ((2, 4), (4, 1), (1, 2)):
        some = loaders(ranks)
        begun = [item for _, item in zip(range(5 * 24), seen(some))]
        states = [loader.state_dict() for loader in some]
        assert all(state == states[0] for state in states)
        rest = loaders(others)
        for loader in rest:
            loader.load_state_dict(json.loads(json.dumps(states[0])))
        assert [*begun, *seen(rest)] == whole


def test_shares_are_those_of_the_weights_on_any_number_of_ranks() -> None:
    for ranks in (1, 2, 4):
        of_rank: dict[str, Any] = {"shuffle": True, "with_ids": True, "num_replicas": ranks}
        loaders = [ts.Loader(small_mix(), 24 // ranks, rank=rank, **of_rank) for rank in range(ranks)]
        counts = Counter(source for loader in loaders for batch in loader for source in batch["source"].tolist())
        assert [round(counts[k] / 60, 2) for k in range(4)] == [1.0, 2.0, 0.5, 1.0]
        assert sum(loaders[0].stats()["windows"].values()) == 270


def test_a_run_over_packs_of_other_widths_is_not_resumed() -> None:
    def loader(width: int) -> ts.Loader:
        sets = [DataSet(0, "1h", (width, 1), ((30, frozenset()),))]
        return ts.Loader(ts.Mix(windows_of(sets, {"past": (ts.each("x"), -4, 0)})), 4)

    with pytest.raises(ValueError, match=r"variates.*3 in the state, 4 here"):
        loader(4).load_state_dict(loader(3).state_dict())


# ---- Drawn columns ----


@given(most=st.integers(1, 12), seed=st.integers(0, 99), size=st.integers(1, 30))
@settings(max_examples=30)
def test_drawn_columns_are_some_of_all_in_ascending_order(most: int, seed: int, size: int) -> None:
    drawn, whole = (
        next(iter(ts.Loader(small_mix(**more), size, shuffle=True, seed=seed, with_ids=True)))
        for more in ({"max_variates": most}, {})
    )
    assert torch.equal(drawn["window.key"], whole["window.key"])
    assert drawn["past.variate"] is drawn["next.variate"]
    columns, drawn_columns = (
        [*zip(*(batch[f"past.{entry}"].tolist() for entry in ("window", "pack", "variate")))]
        for batch in (whole, drawn)
    )
    at = {column: row for row, column in enumerate(columns)}
    for name in ("past", "next", "past.observed", "next.observed"):
        assert same(drawn[name], whole[name][[at[column] for column in drawn_columns]])
    groups: dict[tuple[int, int], list[int]] = {}
    for window, pack, variate in drawn_columns:
        groups.setdefault((window, pack), []).append(variate)
    assert [*groups] == sorted(groups)
    widths = Counter((window, pack) for window, pack, _ in at)
    assert {*widths} == {*groups}
    for group, variates in groups.items():
        assert variates == sorted({*variates})
        assert len(variates) == min(most, widths[group])


def test_columns_are_drawn_equally_often() -> None:
    sets = [DataSet(0, "1h", (7, 1), ((500, frozenset()),))]
    mix = ts.Mix(windows_of(sets, {"past": (ts.each("x", max_variates=2), -4, 0)}), epoch_size=7000)
    pairs = Counter[tuple[int, ...]]()
    for batch in ts.Loader(mix, 1000):
        pairs.update(map(tuple, batch["past.variate"].view(-1, 2).tolist()))
    assert len(pairs) == 21
    expected = 7000 / 21
    assert sum((count - expected) ** 2 / expected for count in pairs.values()) < 45.3  # chi-square, 1 in 1,000


def splitmix(x: int) -> int:
    """The finalizer of SplitMix64, in Python's integers."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


def defined(seed: int, epoch: int, position: int, pack: str, width: int, most: int) -> list[int]:
    """The columns that a window has, by their definition."""
    text = f"tensorstash variates 1, seed {seed}, epoch {epoch}, pack {pack}"
    digest = hashlib.blake2b(text.encode()).digest()
    first, second = (int.from_bytes(digest[at : at + 8], "little") for at in (0, 8))
    key = splitmix(splitmix(position ^ first) ^ second)
    order = sorted(range(width), key=lambda k: splitmix((key + (k + 1) * 0x9E3779B97F4A7C15) % 2**64))
    return sorted(order[:most])


def test_draws_are_those_of_their_definition() -> None:
    """Users resume in the middle of a run, so draws must not change between releases."""
    sets = [DataSet(0, "1h", (10, 1), ((50, frozenset()),))]
    mix = ts.Mix(windows_of(sets, {"past": (ts.each("x", max_variates=3), -4, 0)}))
    loader = ts.Loader(mix, 4, seed=5)
    loader.set_epoch(2)
    variates = next(iter(loader))["past.variate"].view(-1, 3).tolist()
    assert variates == [defined(5, 2, position, "x", 10, 3) for position in range(4)]
    assert variates == [[1, 2, 5], [3, 4, 7], [0, 3, 6], [1, 4, 9]]


# ---- Chronos-2 ----


def as_chronos(batch: Batch) -> dict[str, torch.Tensor]:
    """A batch of `ts.each("target", "seen", "known")` as Chronos-2 takes it."""
    pack = batch["next.pack"]
    nothing = torch.tensor(float("nan"), dtype=batch["next"].dtype)
    longest = int(batch["past.observed"].sum(1).max())
    return {
        "context": batch["past"][:, batch["past"].shape[1] - longest :],
        "future_target": batch["next"].where((pack == 0)[:, None], nothing),
        "future_covariates": batch["next"].where((pack == 2)[:, None], nothing),
        "group_ids": batch["past.window"],
    }


@given(
    widths=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=4),
    seed=st.integers(0, 99),
)
@settings(max_examples=20)
def test_batches_are_those_of_chronos_2(widths: list[tuple[int, int, int]], seed: int) -> None:
    rng, context, horizon = np.random.default_rng(seed), 16, 4
    parts, values = {}, []
    spans = {
        "past": (ts.each("target", "seen", "known"), -context, 0),
        "next": (ts.each("target", "seen", "known"), 0, horizon),
    }
    for k, packs in enumerate(widths):
        rows = int(rng.integers(horizon + 1, 60))
        table = {name: rng.random((rows, width)) for name, width in zip(("target", "seen", "known"), packs)}
        values.append(np.concatenate([*table.values()], 1).T)
        parts[str(k)] = ts.Windows(ts.load(table), spans=spans, min_history=1)
    batch = next(iter(ts.Loader(ts.Mix(parts), 12, shuffle=True, seed=seed, with_ids=True)))
    tasks = [(values[k], widths[k][0], widths[k][2]) for k in batch["source"].tolist()]
    expected = chronos_batch(tasks, batch["anchor"].tolist(), context, horizon)
    made = as_chronos(batch)
    assert made.keys() == expected.keys()
    for name, tensor in expected.items():
        assert same(made[name], tensor), name
