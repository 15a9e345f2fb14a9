"""Holding shards: which node holds what, and copies that are fetched once per node.

It reaches inside `cluster` for its store, its manifests and the shards of a node.
"""

import json
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorstash as ts
from tensorstash.cluster import store
from tensorstash.cluster.manifest import seal, unseal
from tensorstash.cluster.node import node_of
from tensorstash.cluster.shards import assign
from tests import processes
from tests.cluster.test_shard import COLUMNS, KEYS, damage, same, table
from tests.sources.test_remote import port as port  # noqa: PLC0414  a fixture
from tests.sources.test_remote import s3 as s3  # noqa: PLC0414  a fixture
from tests.sources.test_remote import url

S = 6


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("weather") / "weather"
    ts.cluster.shard(table(), COLUMNS, shards=S, to=where, **KEYS)
    return where


def by_hand(rows: list[int], nodes: int) -> list[list[int]]:
    """The longest of the shards that are left goes to the node with the fewest rows, one after the other."""
    held: list[list[int]] = [[] for _ in range(nodes)]
    left = {*range(len(rows))}
    while left:
        longest = min(left, key=lambda shard: (-rows[shard], shard))
        node = min(range(nodes), key=lambda node: (sum(rows[shard] for shard in held[node]), node))
        held[node].append(longest)
        left.remove(longest)
    return held


@given(st.lists(st.integers(0, 30), min_size=1, max_size=12), st.integers(1, 5))
def test_the_longest_shard_goes_first(rows: list[int], nodes: int) -> None:
    assert assign(rows, nodes) == [tuple(sorted(held)) for held in by_hand(rows, nodes)]


def test_golden_assignment() -> None:
    assert assign([5, 1, 4, 4], 2) == [(0, 1), (2, 3)]
    assert assign([3, 3, 3], 4) == [(0,), (1,), (2,), ()]


def test_nodes_hold_everything_once(made: Path) -> None:
    whole = ts.cluster.open(made)
    assert whole.held == tuple(range(S))
    assert whole.entities == [name for k in range(S) for name in whole.stashes[k].entities]
    assert whole.entity_offsets.tolist() == [
        sum(len(whole.stashes[k].entities) for k in range(end)) for end in range(S + 1)
    ]
    for name, rows in zip(whole.index.entities, whole.index["rows"].tolist()):
        shard = int(ts.cluster.shard_of([name], S)[0])
        assert len(whole.stashes[shard].series(name)["flag"]) == rows
    for nodes in (1, 2, 3, 8):
        held = [ts.cluster.open(made, node=node, nodes=nodes) for node in range(nodes)]
        assert sorted(k for one in held for k in one.held) == [*range(S)]
        assert [one.held for one in held] == assign([shard.rows for shard in whole.manifest.shards], nodes)
        for one in held:
            assert one.entities == whole.entities
            assert all(same(stash, whole.stashes[k]) for k, stash in one.stashes.items())


def test_repr(made: Path) -> None:
    shards = ts.cluster.open(made, 1, 2)
    own = sum(stash.rows for stash in shards.stashes.values())
    assert repr(shards) == (
        f"Shards: 400 rows of {len(shards.entities)} entities in 6 shards; node 1 of 2 (from the arguments) holds "
        f"{len(shards.held)} of them, {own} rows"
    )


# Which node


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, (0, 1, "one node: neither arguments nor the environment name more")),
        ({"RANK": "3", "WORLD_SIZE": "8"}, (0, 1, "one node: neither arguments nor the environment name more")),
        (
            {"GROUP_RANK": "1", "NODE_RANK": "7", "WORLD_SIZE": "6", "LOCAL_WORLD_SIZE": "2"},
            (1, 3, "from GROUP_RANK, WORLD_SIZE and LOCAL_WORLD_SIZE"),
        ),
        (
            {"NODE_RANK": "3", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "2"},
            (3, 4, "from NODE_RANK, WORLD_SIZE and LOCAL_WORLD_SIZE"),
        ),
    ],
)
def test_the_node_is_found(environment: dict[str, str], expected: tuple[int, int, str]) -> None:
    assert node_of(None, None, environment) == expected
    assert node_of(2, 5, environment) == (2, 5, "from the arguments")


@pytest.mark.parametrize(
    ("node", "nodes", "environment", "message"),
    [
        (0, None, {}, r"node and nodes must be given together, got 0 and None\."),
        (2, 2, {}, r"node must lie in \[0, 2\), got 2 \(from the arguments\)\."),
        (0, 0, {}, r"nodes must be an integer >= 1, got 0\."),
        (
            None,
            None,
            {"NODE_RANK": "0", "WORLD_SIZE": "5", "LOCAL_WORLD_SIZE": "2"},
            r"All nodes must have equally many ranks, got WORLD_SIZE=5 and LOCAL_WORLD_SIZE=2\.",
        ),
        (
            None,
            None,
            {"NODE_RANK": "x", "WORLD_SIZE": "5", "LOCAL_WORLD_SIZE": "2"},
            r"must be numbers, got \['x', '5', '2'\] in the environment\.",
        ),
    ],
)
def test_wrong_nodes(node: int | None, nodes: int | None, environment: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        node_of(node, nodes, environment)


# Copies


def test_copies_in_shared_memory(made: Path, shm: Path) -> None:
    mapped = ts.cluster.open(made, 0, 2)
    copied = ts.cluster.open(made, 0, 2, share="weather")
    assert {*ts.shared.list()["label"]} == {"weather.index", *(f"weather.{k}" for k in mapped.held)}
    for k, stash in copied.stashes.items():
        assert same(stash, mapped.stashes[k])
        assert str(stash.path).startswith(str(shm))
    again = ts.cluster.open(made, 0, 2, share="weather")
    assert [stash.path for stash in again.stashes.values()] == [stash.path for stash in copied.stashes.values()]


@pytest.mark.usefixtures("shm")
@pytest.mark.parametrize("share", [True, False])
def test_share_may_be_a_truth_value_of_numpy(made: Path, share: bool) -> None:
    plain, of_numpy = (ts.cluster.open(made, 0, 2, share=value) for value in (share, cast("bool", np.bool_(share))))
    assert of_numpy.index.segment.label == plain.index.segment.label == ("weather.index" if share else None)


@pytest.fixture
def bucket(request: pytest.FixtureRequest) -> str:
    """The URL of a place in a bucket."""
    request.getfixturevalue("s3").create_dir("shards")
    return url(request.getfixturevalue("port"), "shards/weather")


def test_shards_in_an_object_store(made: Path, shm: Path, bucket: str) -> None:
    first = ts.cluster.shard(table(), COLUMNS, shards=S, to=bucket, **KEYS)
    assert first == ts.cluster.open(made).manifest
    assert ts.cluster.shard(table(), COLUMNS, shards=S, to=bucket, **KEYS) == first
    fetched = ts.cluster.open(bucket, 1, 2)
    mapped = ts.cluster.open(made, 1, 2)
    assert fetched.held == mapped.held
    assert all(same(stash, mapped.stashes[k]) for k, stash in fetched.stashes.items())
    assert {*ts.shared.list()["label"]} == {"weather.index", *(f"weather.{k}" for k in mapped.held)}


def test_a_shard_is_fetched_once_per_node(made: Path, shm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    plain = store.Store.chunks

    def noted(self: store.Store, name: str) -> Iterator[bytes]:
        read.append(name)
        return plain(self, name)

    monkeypatch.setattr(store.Store, "chunks", noted)
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(ts.cluster.open(made, 0, 1, share="once"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert sorted(name for name in read if name.startswith("shard")) == [f"shard-{k:05}.safetensors" for k in range(S)]


RANK = """
import sys, os, tensorstash as ts
shards = ts.cluster.open(sys.argv[1], share="ranks")
print(repr(shards))
print(sorted(os.stat(stash.path).st_ino for stash in shards.stashes.values()))
"""


def test_ranks_of_two_nodes(made: Path, tmp_path: Path) -> None:
    """Two directories for shared segments stand for two machines."""
    places = [Path("/dev/shm") / f"tensorstash-test-{secrets.token_hex(4)}" for _ in range(2)]
    try:
        running = [
            processes.start(
                RANK,
                made,
                env={
                    **os.environ,
                    "TENSORSTASH_DIR": str(places[rank // 2]),
                    "GROUP_RANK": str(rank // 2),
                    "WORLD_SIZE": "4",
                    "LOCAL_WORLD_SIZE": "2",
                },
            )
            for rank in range(4)
        ]
        done = [process.finish() for process in running]
        assert [(rank.returncode, rank.stderr) for rank in done] == [(0, "")] * 4
        told = [rank.stdout.splitlines() for rank in done]
        assert told[0] == told[1]
        assert told[2] == told[3]
        assert "node 0 of 2 (from GROUP_RANK, WORLD_SIZE and LOCAL_WORLD_SIZE)" in told[0][0]
        assert "node 1 of 2" in told[2][0]
        assert sum(len(json.loads(lines[1])) for lines in (told[0], told[2])) == S
    finally:
        for place in places:
            shutil.rmtree(place, ignore_errors=True)


# What is wrong with shards


@pytest.fixture
def own(made: Path, tmp_path: Path) -> Path:
    """A copy of the shards to damage."""
    return Path(shutil.copytree(made, tmp_path / "own"))


def test_a_missing_manifest_and_a_missing_shard(own: Path) -> None:
    (own / "shard-00003.safetensors").unlink()
    with pytest.raises(ts.errors.SegmentError, match=r"describes; .*shard-00003\.safetensors does not exist\. Make it"):
        ts.cluster.open(own)
    (own / "manifest.json").unlink()
    with pytest.raises(ts.errors.SegmentError, match=r"^Shards can be opened once .*manifest\.json does not exist\."):
        ts.cluster.open(own)


def changed(path: Path, change: Callable[[dict[str, Any]], Any], write: Callable[[Any], str]) -> None:
    """Change the fields of a manifest."""
    fields = unseal((path / "manifest.json").read_text())
    change(fields)
    (path / "manifest.json").write_text(write(fields))


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: fields.update(arguments={}),
        lambda fields: fields.update(more=1),
        lambda fields: fields["index"].update(rows=3),
        lambda fields: fields["shards"][1].update(file="../shard-00001.safetensors"),
        lambda fields: fields["shards"].__setitem__(1, fields["shards"][0]),
        lambda fields: fields["vocabularies"].update(sky=["rain", "rain"]),
    ],
    ids=["arguments", "more", "rows", "another file", "a shard twice", "a word twice"],
)
@pytest.mark.parametrize("write", [json.dumps, lambda fields: json.dumps(fields | {"checksum": "0" * 64})])
def test_a_manifest_that_was_changed_is_refused(own: Path, change: Any, write: Callable[[Any], str]) -> None:
    changed(own, change, write)
    with pytest.raises(ts.errors.SegmentError, match=r"manifest\.json is not a whole manifest: its checksum is wrong"):
        ts.cluster.open(own)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 1}, "it has version 1, and this release reads version 2"),
        ({"hash": "other"}, "this release reads version 2"),
        ({"shards": [{}]}, "file"),
        ({"vocabularies": 3}, "items"),
        ({"more": 1}, "more"),
    ],
)
def test_a_manifest_of_another_release_is_refused(own: Path, change: dict[str, Any], message: str) -> None:
    changed(own, lambda fields: fields.update(change), seal)
    with pytest.raises(ts.errors.SegmentError, match=rf"manifest\.json is not a whole manifest: .*{message}"):
        ts.cluster.open(own)


@pytest.mark.parametrize("text", ["", "[]", "null", "{", "[" * 100_000, '{"version": 2}', "9" * 5000])
def test_a_manifest_that_is_no_manifest(own: Path, text: str) -> None:
    (own / "manifest.json").write_text(text)
    with pytest.raises(ts.errors.SegmentError, match=r"manifest\.json is not a whole manifest: "):
        ts.cluster.open(own)


def test_the_records_of_other_nodes_are_compared_with_the_index(own: Path) -> None:
    """An entity more in one shard and one less in another would give all between them the names of others."""
    first, second = ts.cluster.open(own, 0, 2).held[:2]

    def moved(fields: dict[str, Any]) -> None:
        fields["shards"][first]["entities"] += 1
        fields["shards"][second]["entities"] -= 1

    changed(own, moved, seal)
    with pytest.raises(ts.errors.SegmentError, match="rows and entities of its shards are not those of its index"):
        ts.cluster.open(own, 1, 2)


def test_a_damaged_shard(own: Path, shm: Path) -> None:
    """A copy is compared with its checksum; of a mapped file only the size and the header."""
    damage(own / "shard-00002.safetensors")
    with pytest.raises(ts.errors.SegmentError, match=r"shard-00002\.safetensors has other bytes than its"):
        ts.cluster.open(own, share="damaged")
    whole = (own / "shard-00002.safetensors").read_bytes()
    (own / "shard-00002.safetensors").write_bytes(whole[:-4096])
    with pytest.raises(ts.errors.SegmentError, match=r"has [\d,]+ bytes, and its manifest says [\d,]+\. Make it again"):
        ts.cluster.open(own)
    (own / "shard-00002.safetensors").write_bytes(whole[:100] + b"?" + whole[101:])
    with pytest.raises(ts.errors.SegmentError, match="is not a whole stash"):
        ts.cluster.open(own)


def test_a_shard_of_others(own: Path, tmp_path: Path) -> None:
    """Of the same size, rows and entities, and whole, but of other values."""
    other = table().set_column(4, "y", pa.array(np.arange(400) * 5, pa.int32()))
    ts.cluster.shard(other, COLUMNS, shards=S, to=tmp_path / "other", **KEYS)
    name = "shard-00001.safetensors"
    assert (tmp_path / "other" / name).stat().st_size == (own / name).stat().st_size
    shutil.copy(tmp_path / "other" / name, own / name)
    with pytest.raises(ts.errors.SegmentError, match=r"shard-00001\.safetensors is a shard of something else"):
        ts.cluster.open(own)


def test_a_shard_in_the_place_of_another(tmp_path: Path) -> None:
    """Two shards of one run, equal in size, rows and entities, change places."""
    names = [name for name in (f"e{k}" for k in range(99)) if ts.cluster.shard_of([name], 2)[0] == 0][:3]
    names += [name for name in (f"e{k}" for k in range(99)) if ts.cluster.shard_of([name], 2)[0] == 1][:3]
    ts.cluster.shard({"e": names, "y": [0.0] * 6}, ["y"], entity="e", shards=2, to=tmp_path)
    one, other = (tmp_path / f"shard-0000{k}.safetensors" for k in (0, 1))
    whole = one.read_bytes(), other.read_bytes()
    one.write_bytes(whole[1])
    other.write_bytes(whole[0])
    with pytest.raises(ts.errors.SegmentError, match="is a shard of something else"):
        ts.cluster.open(tmp_path)
