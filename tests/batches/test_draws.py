"""`ts.Draw`: the starts of spans drawn for each window, against a loop over windows and slots, on every way.

It reaches inside `cluster/sharded_windows.py` to hold the shards of several nodes in one process.
"""

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Subset

import tensorstash as ts
from tensorstash.cluster.sharded_windows import ShardedWindows, counts_of_node
from tests import kernel, oracle
from tests.batches.golden import forget, stash_of
from tests.late_device import LateCopies
from tests.oracle_load import like
from tests.sampling.test_keys import hashed, key

LONG, COARSE, FUTURE = ts.Draw(-6, -1), ts.Draw(-6, -2, 2), ts.Draw(-1, 2)
pytestmark = [
    pytest.mark.host("it chooses the ways itself"),
    pytest.mark.filterwarnings("ignore:Gaps cost"),
]

SPANS: dict[str, tuple[Any, ...]] = {
    "past": ("f32", LONG, 0),
    "code": ("i32", LONG, 0),
    "whole": ("f32b", -6, 0),
    "double": ("f64", ts.Draw(-6, -3, 3), 3, 3),
    "byte": ("u8", COARSE, 2, 2),
    "small": ("i16", COARSE, 0),
    "flag": ("flag", FUTURE, 3),
    "word": ("word", LONG, 2),
    "pack": ("pack", COARSE, 0),
    "codes": ("codes", ts.Draw(-6, 2, 8), 3, 8),
    "half": ("half", ts.Draw(-6, -1), 0),
    "when": ("when", LONG, 3),
}
FILLS = {"i32": 7, "u8": 7, "i16": 7, "codes": 7, "flag": True, "word": -1}  # else NaN; "when" is computed
SEED = 5

Batch = dict[str, torch.Tensor]


def windows_of(kind: str, names: str = "abc", rows: int = 70) -> ts.Windows:
    arguments: dict[str, dict[str, Any]] = {
        "whole": {},
        "mask": {"gaps": "mask"},
        "ends": {"gaps": "mask", "min_history": 1, "min_horizon": 0},
        "lead": {"min_history": 2},
        "require": {"require": ["past"]},
    }
    return ts.Windows(stash_of(names, rows, whole=kind == "whole"), spans=SPANS, **arguments[kind])


def mix() -> ts.Mix:
    kinds = {"a": windows_of("mask"), "b": windows_of("whole", "de", 60), "c": windows_of("lead", "f", 90)}
    return ts.Mix(kinds, weights={"a": 1, "b": 3, "c": 0.5})


SAMPLED: dict[str, Callable[[], Any]] = {
    **{kind: partial(windows_of, kind) for kind in ("whole", "mask", "ends", "lead", "require")},
    "mix": mix,
}


def expected(sampled: Any, batch: Batch, epoch: int, first: int) -> Batch:
    """The longest windows, and in each the slots before the drawn start without a row; positions count from `first`."""
    parts = [*sampled.windows.values()] if isinstance(sampled, ts.Mix) else [sampled]
    numbers = [*dict.fromkeys(span[1] for span in SPANS.values() if isinstance(span[1], ts.Draw))]
    rows: list[Batch] = []
    for k, window in enumerate(batch["window"].tolist()):
        longest = parts[int(batch["source"][k]) if "source" in batch else 0][window]
        for name, (column, draw, _, *step) in SPANS.items():
            if not isinstance(draw, ts.Draw):
                continue
            choice = hashed(SEED, epoch, first + k, 1 + numbers.index(draw)) % len(draw)
            for slot in range(choice * draw.step // (step[0] if step else 1)):
                longest[f"{name}.observed"] = longest[f"{name}.observed"].clone()
                longest[f"{name}.observed"][slot] = False
                if column != "when":
                    longest[name][slot] = FILLS.get(column, float("nan"))
        rows.append(longest)
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


@pytest.fixture(params=["native", "torch", "resident", "resident by torch", "late"])
def route(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    forget()
    if "torch" in request.param:
        kernel.leave_out(monkeypatch)
    if request.param == "late":
        monkeypatch.setattr("tensorstash.batches.loader.copies_to", lambda _: LateCopies())
    yield {"resident": "resident" in request.param}
    forget()


@pytest.mark.parametrize("name", SAMPLED)
def test_slots_before_the_drawn_begin_are_empty(name: str, route: dict[str, Any]) -> None:
    sampled = SAMPLED[name]()
    loader = ts.Loader(sampled, 13, shuffle=True, seed=SEED, with_ids=True, **route)
    for epoch in range(2):
        first = 0
        for batch in loader:
            exact = expected(sampled, batch, epoch, first)
            assert all(oracle.same(batch[name], exact[name]) for name in exact)
            first += len(batch["window"])
            if first > 60:
                break


def test_draws_do_not_depend_on_ranks_batch_sizes_or_where_a_run_resumed() -> None:
    def lengths(loaders: list[ts.Loader], steps: int | None = None) -> list[tuple[int, int]]:
        made = []
        for number, batches in enumerate(zip(*loaders)):
            for batch in batches:
                valid = batch.get("valid", batch["window"] >= 0)
                made += list(zip(batch["window"][valid].tolist(), batch["past.observed"].sum(1)[valid].tolist()))
            if number + 1 == steps:
                break
        return made

    def loaders(ranks: int, batch_size: int) -> list[ts.Loader]:
        return [
            ts.Loader(
                SAMPLED["whole"](), batch_size, shuffle=True, seed=SEED, num_replicas=ranks, rank=rank, with_ids=True
            )
            for rank in range(ranks)
        ]

    whole = lengths(loaders(1, 16))
    assert whole == lengths(loaders(3, 7)) != lengths(loaders(1, 16)[:1])[::-1]
    begun = loaders(2, 5)
    seen = lengths(begun, 3)
    rest = loaders(1, 9)
    rest[0].load_state_dict(begun[0].state_dict())
    assert seen + lengths(rest) == whole


def test_lengths_come_equally_often_whatever_their_neighbours_and_epochs() -> None:
    """Chi-square over many seeds, which are fixed: it holds always or never."""
    stash = ts.load({"y": np.arange(300.0)})
    windows = ts.Windows(stash, spans={"past": ("y", ts.Draw(-5, -1), 0)})
    neighbours, epochs, places = np.zeros((5, 5)), np.zeros((5, 5)), np.zeros((8, 5))
    for seed in range(40):
        loader = ts.Loader(windows, 64, seed=seed)
        runs = [torch.cat([batch["past.observed"].sum(1) for batch in loader]).numpy() - 1 for _ in range(2)]
        for run in runs:
            np.add.at(neighbours, (run[::2][: len(run) // 2], run[1::2]), 1)
            np.add.at(places, (np.arange(len(run)) % 8, run), 1)
        np.add.at(epochs, tuple(runs), 1)
    for table in (neighbours, epochs, places):
        mean = table.sum(1, keepdims=True) / table.shape[1]
        chi_square = ((table - mean) ** 2 / mean).sum()
        freedom = table.size - len(table)
        assert abs(chi_square - freedom) < 4 * (2 * freedom) ** 0.5


def test_windows_by_their_numbers_are_the_longest() -> None:
    windows = SAMPLED["whole"]()
    batch = windows[[0, 5]]
    assert all(batch[f"{name}.observed"].all() for name in SPANS)
    assert batch["past"].shape == (2, 6)
    assert windows.history == 6


def test_states_of_windows_with_a_draw_are_of_the_longest_windows_and_have_the_draw() -> None:
    stash = ts.load({"y": np.arange(20.0)})
    drawn = ts.Windows(stash, spans={"past": ("y", ts.Draw(-5, -1), 0)})
    assert drawn.fingerprint()["spans"] == {"past": ["y", "Draw(-5, -1)", 0, 1]}
    assert len(drawn) == len(ts.Windows(stash, history=5))


def plain(**spans: Any) -> ts.Windows:
    return ts.Windows(ts.load({"y": np.arange(30.0), "n": np.arange(30)}), spans=spans)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ts.Draw(-4, -4), "low < high and step >= 1, got Draw(-4, -4)"),
        (lambda: ts.Draw(-4, -8), "low < high and step >= 1, got Draw(-4, -8)"),
        (lambda: ts.Draw(-8, -4, 0), "low < high and step >= 1, got Draw(-8, -4, 0)"),
        (lambda: ts.Draw(-8, -1, 4), "must divide high - low, got 4 for 7. Use ts.Draw(-5, -1, 4)"),
        (lambda: plain(past=("y", -8, ts.Draw(-4, -1))), "a start may be a ts.Draw"),
        (lambda: plain(past=("y", ts.Draw(-8, -4), ts.Draw(-5, -1))), "got ('y', Draw ... a start may be a ts.Draw"),
        (
            lambda: plain(past=("y", ts.Draw(-8, -4), -4)),
            "before the stop of its span, got Draw(-8, -4) and the stop -4",
        ),
        (lambda: plain(past=("y", ts.Draw(-8, -5, 3), 0, 2)), "a multiple of the step of its span, got 3 and 2"),
        (
            lambda: ts.Loader(plain(past=("y", ts.Draw(-8, -4), 0)), 2, order=ts.Lanes(2)),
            "ts.Lanes needs windows ... the start of a ts.Draw",
        ),
    ],
)
def test_draws_that_make_no_sense_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=like(message)):
        make()


def test_a_bound_that_is_no_integer_is_refused() -> None:
    with pytest.raises(TypeError, match=like("ts.Draw takes integers, in slots relative to the anchor")):
        ts.Draw(-4.5, -1)  # type: ignore[arg-type]


def test_a_column_without_a_value_for_empty_slots_is_refused() -> None:
    with pytest.raises(ts.errors.SchemaError, match=like("An empty slot needs a value; column 'n' is torch.int64")):
        plain(past=("n", ts.Draw(-4, -1), 0))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("mixed", [False, True])
def test_a_data_loader_of_pytorch_that_batches_drawn_windows_is_refused(mixed: bool, workers: int) -> None:
    windows: Any = plain(past=("y", ts.Draw(-8, -4), 0))
    windows = ts.Mix({"a": windows}) if mixed else windows
    with pytest.raises(TypeError, match=like("A ts.Draw needs the position of each window in the run")):
        next(iter(DataLoader(windows, 4, num_workers=workers)))
    with pytest.raises(TypeError, match=like("A ts.Draw needs the position of each window in the run")):
        next(iter(DataLoader(Subset(windows, [0, 1]), 4, num_workers=workers)))


@pytest.mark.parametrize("mixed", [False, True])
def test_a_data_loader_of_pytorch_with_a_sampler_of_ids_takes_the_longest_spans_as_any_index_does(mixed: bool) -> None:
    windows: Any = plain(past=("y", ts.Draw(-8, -4), 0))
    windows = ts.Mix({"a": windows}) if mixed else windows
    for sampler, ids in ((None, range(len(windows))), ([[3, 0], [1]], [[3, 0], [1]])):
        batches = [*DataLoader(windows, batch_size=None, sampler=sampler)]
        assert len(batches) == len(ids)
        for batch, of_batch in zip(batches, ids):
            assert batch["past.observed"].all()
            assert batch["past"].equal(windows[of_batch]["past"])


def test_components_of_a_mix_have_equal_draws() -> None:
    a, b = (plain(past=("y", ts.Draw(-8, high), 0)) for high in (-4, -2))
    with pytest.raises(ts.errors.SchemaError, match="must have the same spans"):
        ts.Mix({"a": a, "b": b})


def test_a_draw_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(COARSE)) == COARSE


@pytest.mark.filterwarnings("ignore:The windows of .* uneven")
@pytest.mark.parametrize("nodes", [1, 2])
def test_over_shards_draws_go_by_the_position_that_the_key_tells(nodes: int) -> None:
    parts = {k: windows_of("whole", name, 40 + 9 * k) for k, name in enumerate(["ab", "c", "def"])}
    rows, held = sum(part.stash.rows for part in parts.values()), {1: [[0, 1, 2]], 2: [[0, 1], [2]]}
    about: dict[str, Any] = {"nodes": nodes, "manifest": SimpleNamespace(rows=rows), "holds": held.__getitem__}
    about["entity_offsets"] = np.array([0, 2, 3, 6])
    opened: list[Any] = [SimpleNamespace(node=node, **about) for node in range(nodes)]
    shards = [ShardedWindows({k: parts[k] for k in held[nodes][node]}, opened[node]) for node in range(nodes)]
    counts = {shard: count for part in shards for shard, count in counts_of_node(part).items()}
    merged = [counts[shard] for shard in sorted(counts)]
    positions = {key(SEED, 0, position): position for position in range(len(replace(shards[0], counts=merged)))}
    seen = set()
    for node, part in enumerate(shards):
        loader = ts.Loader(
            replace(part, counts=merged), 16, shuffle=True, seed=SEED, num_replicas=nodes, rank=node, with_ids=True
        )
        for batch in loader:
            columns = (batch[name].tolist() for name in ("window.key", "past.observed", "valid"))
            for own, observed, valid in zip(*columns):
                assert sum(observed) == len(observed) - hashed(SEED, 0, positions[own], 1) % len(LONG)
                seen |= {positions[own]} if valid else set()
    assert seen == {*range(len(positions))}


def test_with_min_history_a_draw_is_cut_where_the_run_begins() -> None:
    """So the past has as many slots as were drawn or as there are rows, which need not be a multiple of the step."""
    spans = {"past": ("y", ts.Draw(-12, -4, step=4), 0), "next": ("y", 0, 1)}
    stash = ts.load({"y": np.arange(30.0)})
    seen = set()
    for epoch in range(20):
        loader = ts.Loader(ts.Windows(stash, spans=spans, min_history=2), 29, seed=SEED)
        loader.set_epoch(epoch)
        (batch,) = loader
        drawn = [4 + 4 * (2 - hashed(SEED, epoch, k, 1) % 3) for k in range(len(batch["next"]))]
        rows = batch["next"][:, 0].to(torch.int64).tolist()
        observed = batch["past.observed"].sum(1).tolist()
        assert observed == [min(slots, row) for slots, row in zip(drawn, rows)]
        seen.update(observed)
    assert seen == {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
