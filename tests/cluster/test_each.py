"""`ts.each` over shards: on any number of nodes the rows of one stash, and the same drawn columns.

It reaches inside `cluster` to hold the shards of several nodes in one process.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorstash as ts
from tensorstash.cluster.sharded_windows import ShardedWindows
from tensorstash.cluster.shards import Shards
from tests import kernel
from tests.cluster.nodes import loaders_of, names_of, on_nodes, state_of, steps_of, table
from tests.variates import same

ARGUMENTS: dict[str, Any] = {"columns": {"x": ["v0", "v1", "v2", "v3", "v4"], "c": "y"}, "entity": "e", "time": "t"}
Row = tuple[str, int, int, int, str]  # entity, anchor, pack, variate, and the values from slot -4 to 1
Batch = dict[str, torch.Tensor]


@pytest.fixture(params=kernel.WAYS, autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test here runs with the kernel, where it was compiled, and without."""
    kernel.take(request.param, monkeypatch)


def wide() -> dict[str, Any]:
    values = table()["y"][:, None] * 10 + np.arange(5, dtype=np.float32)
    return table() | {f"v{k}": values[:, k] for k in range(5)}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("shards")
    ts.cluster.shard(wide(), to=to, shards=6, **ARGUMENTS)
    return to


def spans(most: int | None) -> dict[str, Any]:
    each = ts.each("x", "c", max_variates=most)
    return {"past": (each, ts.Draw(-4, -2), 0), "next": (each, 0, 2)}


def loaders(path: Path, nodes: int, ranks: int, size: int, most: int | None) -> list[ts.Loader]:
    def make(shards: Shards) -> ShardedWindows:
        return ts.cluster.windows(shards, spans=spans(most), frequency=1, gaps="mask", min_history=1, min_horizon=1)

    return loaders_of(on_nodes(path, nodes, make), ranks, size, seed=4)


def values_of(batch: Batch, span: str, row: int) -> list[float | None]:
    """The values of a row, `None` where there is none."""
    pairs = zip(batch[span][row].tolist(), batch[f"{span}.observed"][row].tolist())
    return [value if seen else None for value, seen in pairs]


def rows_in(step: list[Batch], some: list[ts.Loader]) -> Iterator[Row]:
    """All rows of a step but those of filler."""
    for batch, loader in zip(step, some):
        names = names_of(loader.dataset)
        for row, window in enumerate(batch["past.window"].tolist()):
            if batch["valid"][window]:
                entity, anchor = names[batch["entity"][window]], int(batch["anchor"][window])
                values = values_of(batch, "past", row) + values_of(batch, "next", row)
                yield entity, anchor, int(batch["past.pack"][row]), int(batch["past.variate"][row]), repr(values)


def check_by_hand(rows: list[Row]) -> None:
    """Each row beside the column of the table: from where the drawn past begins, nothing is missing."""
    given = wide()
    at = {(name, time): row for row, (name, time) in enumerate(zip(given["e"], given["t"].tolist()))}
    for entity, anchor, pack, variate, values in rows:
        column = given["y" if pack else f"v{variate}"].tolist()
        places = [at.get((entity, anchor + slot)) for slot in range(-4, 2)]
        exact = [None if place is None else column[place] for place in places]
        assert values in {repr([None] * k + exact[k:]) for k in range(3)}


@pytest.mark.parametrize("most", [None, 2])
def test_rows_are_those_of_the_table_on_any_number_of_nodes(path: Path, most: int | None) -> None:
    seen = []
    for nodes, ranks, size in ((1, 1, 11), (2, 2, 5), (3, 1, 7)):
        some = loaders(path, nodes, ranks, size, most)
        rows = sorted(row for step in steps_of(some) for row in rows_in(step, some))
        check_by_hand(rows)
        assert len(rows) == len(some[0].dataset) * (6 if most is None else 3)
        seen.append(rows)
    assert seen[0] == seen[1] == seen[2]  # draws go by the position in the order of a shard
    assert len({row[:4] for row in seen[0]}) == len(seen[0])


def test_the_oracle_can_fail(path: Path) -> None:
    some = loaders(path, 1, 1, 11, None)
    step = next(steps_of(some))
    check_by_hand([*rows_in(step, some)])
    for name in ("past", "past.variate", "past.observed"):
        with pytest.raises(AssertionError):
            check_by_hand([*rows_in([step[0] | {name: step[0][name].flip(0)}], some)])


def test_a_run_is_resumed_on_other_nodes(path: Path) -> None:
    alone = loaders(path, 1, 1, 8, 2)
    whole = sorted(row for step in steps_of(alone) for row in rows_in(step, alone))
    some, rows = loaders(path, 2, 1, 4, 2), list[Row]()
    for _, step in zip(range(5), steps_of(some)):
        rows += rows_in(step, some)
    rest = loaders(path, 3, 1, 3, 2)
    state = state_of(some)
    for loader in rest:
        loader.load_state_dict(state)
    for step in steps_of(rest):
        rows += rows_in(step, rest)
    assert sorted(rows) == whole


def test_rows_are_scaled_and_normalised(path: Path) -> None:
    windows = on_nodes(path, 1, lambda shards: ts.cluster.windows(shards, spans={"past": (ts.each("x"), -2, 0)}))
    stash = ts.load(wide(), **ARGUMENTS)
    of_one = ts.Scaler.fit(ts.Windows(stash, spans={"past": (ts.each("x"), -2, 0)}), ["x"])
    scaler = ts.Scaler.fit(windows[0], ["x"])
    assert torch.equal(scaler.center["x"], of_one.center["x"])
    for transform in (scaler, ts.InstanceNorm("past", kind="last")):
        pairs = zip(*(loaders_of(windows, 1, 9, transform=[t] if t else [])[0] for t in (transform, None)))
        for batch, plain in pairs:
            center, scale = plain["past"][:, -1:], torch.ones(())
            if transform is scaler:
                tables = (scaler.center["x"], scaler.scale["x"])
                center, scale = (table[0, plain["past.variate"]].float()[:, None] for table in tables)
            assert same(batch["past"], (plain["past"] - center) / scale)
