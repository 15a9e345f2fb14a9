"""Two machines, as far as one can stand for them: torchrun with an agent and a directory for segments per node."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tensorstash as ts
from tests.cluster.nodes import cut, machines_of, table, torchrun, whole

SCRIPT = Path(__file__).with_name("rank_of_shards.py")


@pytest.fixture
def machines() -> Iterator[list[Path]]:
    with machines_of(3) as found:
        yield found


def run(machines: list[Path], ranks: int, path: Path, out: Path, batch_size: int, stop: int) -> list[dict[str, Any]]:
    """What the ranks of one job have told; its state is where the next one begins."""
    name = f"{len(machines)}x{ranks}"
    torchrun(machines, ranks, SCRIPT, path, out, name, batch_size, stop)
    told = [json.loads((out / f"{name}-{rank}.json").read_text()) for rank in range(len(machines) * ranks)]
    state = told[0]["state"]
    assert [one["state"] for one in told] == [state] * len(told)
    assert {len(one["sizes"]) for one in told} == {len(told[0]["sizes"])}
    assert {size for one in told for size in one["sizes"]} == {batch_size}
    assert [one["scaler"] for one in told] == [told[0]["scaler"]] * len(told)
    (out / "state.json").write_text(json.dumps(state))
    return told


@pytest.mark.cluster
def test_an_epoch_goes_on_from_two_nodes_to_one_and_to_three(tmp_path: Path, machines: list[Path]) -> None:
    """From 4 ranks to 2 and to 6, within one epoch: every window once, counted over all ranks of all jobs."""
    path = cut(tmp_path / "cut", shards=9)
    out = tmp_path / "out"
    out.mkdir()
    train, _ = ts.Windows(whole(), spans={"past": ("y", -2, 0), "next": ("y", 0, 1)}).split(30)

    two = run(machines[:2], 2, path, out, 5, 4)
    one = run(machines[:1], 2, path, out, 7, 3)
    three = run(machines[:3], 2, path, out, 4, 1000)

    check_copies(two, 2)
    assert [one["state"]["legs"] for one in two[:1] + one[:1]] == [[[2, 2, 5, 4]], [[2, 2, 5, 4], [1, 2, 7, 3]]]
    assert (three[0]["state"]["epoch"], three[0]["state"]["legs"]) == (1, [])
    assert one[0]["state"]["consumed"] == sum(len(rank["seen"]) for rank in two + one)
    seen = [tuple(row) for rank in two + one + three for row in rank["seen"]]
    about = train.anchors(range(len(train)))
    names, rows = train.stash.entities, table()
    row_of = {(name, time): int(y) for name, time, y in zip(rows["e"].tolist(), rows["t"].tolist(), rows["y"])}
    expected = [(names[entity], time) for entity, time in zip(about["entity"].tolist(), about["time"].tolist())]
    assert sorted(seen) == sorted((name, time, row_of[name, time] - 2) for name, time in expected)
    assert two[0]["scaler"] == one[0]["scaler"] == three[0]["scaler"]
    assert {rank["length"] for rank in two + one + three} == {len(train)}


def check_copies(told: list[dict[str, Any]], ranks: int) -> None:
    """Each machine holds its own shards once, and the index and the table of all."""
    for rank, one in enumerate(told):
        assert one["held"] == told[rank // ranks * ranks]["held"]
        labels = {name.rpartition("-")[0] for name in one["here"]}
        assert labels == {"rates", "shards.index", *(f"shards.{shard}" for shard in one["held"])}
        assert len(one["here"]) == len(labels)
    held = [shard for one in told[::ranks] for shard in one["held"]]
    assert sorted(held) == [*range(len(held))]
