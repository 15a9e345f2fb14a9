"""`ts.cluster.open`: map the shards of this node where they are, or fetch them once per node into shared memory."""

import os
from functools import partial
from hashlib import blake2b

import numpy as np

from tensorstash.cluster.manifest import INDEX, NAME, ShardRecord, from_json, key_of
from tensorstash.cluster.node import node_of
from tensorstash.cluster.shards import Shards, assign
from tensorstash.cluster.store import Store
from tensorstash.common.checks import amount, path_of
from tensorstash.errors import SegmentError
from tensorstash.ingest.segment_key import check_share, share_of
from tensorstash.segments.directory import Name
from tensorstash.segments.draft import resize, write
from tensorstash.segments.limits import check_free
from tensorstash.segments.publish import UnpublishedFile, obtain
from tensorstash.segments.segment import open_saved
from tensorstash.stash.stash import Stash


def open(  # noqa: A001  its name is ts.cluster.open
    path: str | os.PathLike[str],
    node: int | None = None,
    nodes: int | None = None,
    *,
    share: str | bool | None = None,
    timeout: float | None = None,
) -> Shards:
    """Open those shards of `ts.cluster.shard` that this node holds.

    Shards go to nodes by their rows, the longest first, each to the node with the fewest rows so far; so every process
    knows which node holds what without asking. In a directory, shards are mapped, and checked by headers and sizes.
    From an object store each is fetched once per node, into the directory of shared segments, by the first of its
    processes that asks, while the others wait; its checksum is compared with the manifest's.

    Args:
        path: the directory or URL that `ts.cluster.shard` took as `to=`.
        node: the number of this node, from 0 on; with `None`, `GROUP_RANK` (torchrun) or `NODE_RANK` (Ray Train).
        nodes: the number of nodes; with `None`, `WORLD_SIZE` divided by `LOCAL_WORLD_SIZE`. Without any of these,
            there is one node, which holds all shards.
        share: a label for copies in shared memory, `<label>.<number of the shard>`; `True` makes one of the path's
            name. Shards of a directory are copied only if it is given, those of an object store always. `None`: shards
            of a directory are mapped.
        timeout: seconds to wait for another process that fetches a shard; `None` waits until it is done.

    Returns:
        The `Shards` of this node, for `ts.cluster.windows`.

    Raises:
        SegmentError: no manifest, one of another version, or a shard that is missing, damaged, or not the one of the
        manifest. NoMemoryError: a copy does not fit. ValueError: a wrong number of a node, or nodes with different
        numbers of ranks. TimeoutError: see `timeout`.

    Example:
        >>> import tempfile, tensorstash as ts
        >>> data, where = {"shop": ["A", "B", "C", "D"], "sold": [5.0, 6.0, 7.0, 8.0]}, tempfile.mkdtemp()
        >>> manifest = ts.cluster.shard(data, ["sold"], entity="shop", shards=4, to=where)
        >>> ts.cluster.open(where, node=0, nodes=2).held, ts.cluster.open(where, node=1, nodes=2).held
        ((0, 1), (2, 3))
    """
    timeout = amount(timeout, "seconds", "timeout")
    store = Store(path_of(path, "path"))
    text, where = store.read(NAME), store.join(NAME)
    if text is None:
        raise SegmentError(
            f"Shards can be opened once their manifest is written, which is last; {where} does not exist. Make the "
            "shards, or resume making them: ts.cluster.shard(...)."
        )
    manifest = from_json(text, where)
    (number, count, origin), label = node_of(node, nodes, os.environ), None
    asked = share_of(share)
    if asked is not None or store.directory is None:
        label = check_share(True if asked is None else asked, store.url.rstrip("/"))

    def opened(record: ShardRecord, part: int | str, name: object) -> Stash:
        if label is None:
            _check_size(store, record)
            stash = Stash(open_saved(os.path.join(store.directory or "", record.file)))
        else:
            copy = Name(f"{label}.{name}", record.checksum[:16])
            stash = Stash(obtain(copy, partial(_fetch, store, record), timeout))
        if stash.segment.key != key_of(manifest.arguments, part):
            raise _wrong(store, record, "is a shard of something else")
        if (stash.rows, len(stash.offsets) - 1) != (record.rows, record.entities):
            raise _wrong(store, record, f"has {stash.rows:,} rows, and its manifest says {record.rows:,}")
        return stash

    held = assign([shard.rows for shard in manifest.shards], count)[number]
    index = opened(manifest.index, INDEX, "index")
    shard, rows, listed = index["shard"].numpy(), index["rows"].numpy(), len(manifest.shards)
    counted = np.bincount(shard, minlength=listed).tolist(), np.bincount(shard, rows, minlength=listed).tolist()
    if [*zip(*counted)] != [(record.entities, record.rows) for record in manifest.shards]:  # of all nodes
        raise SegmentError(
            f"{where} is not a whole manifest: the rows and entities of its shards are not those of its index. Make "
            "the shards again: ts.cluster.shard(...)."
        )
    stashes = {k: opened(manifest.shards[k], k, k) for k in held}
    return Shards(manifest, number, count, origin, stashes, index)


def _check_size(store: Store, record: ShardRecord) -> None:
    if (size := store.size(record.file)) != record.bytes:
        has = "does not exist" if size is None else f"has {size:,} bytes, and its manifest says {record.bytes:,}"
        raise _wrong(store, record, has)


def _fetch(store: Store, record: ShardRecord, target: UnpublishedFile) -> None:
    """Fill the copy of a shard that all processes of this node share."""
    check_free(
        record.bytes,
        target.limits(),
        "A node's shards must fit into free memory",
        store.join(record.file),
        "Take more nodes, or copy the shards to a disk of the node and open them there.",
    )
    _check_size(store, record)
    resize(target.fd, record.bytes)
    written, digest = 0, blake2b(digest_size=32)
    for chunk in store.chunks(record.file):
        write(target.fd, memoryview(chunk), written)
        written += len(chunk)
        digest.update(chunk)
    if digest.hexdigest() != record.checksum:
        raise _wrong(store, record, "has other bytes than its manifest says")


def _wrong(store: Store, record: ShardRecord, what: str) -> SegmentError:
    return SegmentError(
        f"A shard is the file that its manifest describes; {store.join(record.file)} {what}. Make it again with the "
        "call that made it: ts.cluster.shard(...) keeps the shards that are right."
    )
