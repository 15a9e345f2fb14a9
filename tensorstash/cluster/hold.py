"""`ts.cluster.open`: the shards of this node, mapped where they lie, or fetched once per node into shared memory."""

import os
from collections.abc import Callable

from tensorstash.cluster.manifest import NAME, Manifest, ShardRecord
from tensorstash.cluster.node import node_of
from tensorstash.cluster.shards import Shards, assign
from tensorstash.cluster.store import Store, checksum, chunks_of
from tensorstash.columns.sharding import HASH
from tensorstash.errors import SegmentError
from tensorstash.ingest.key import check_share
from tensorstash.segments.directory import Name
from tensorstash.segments.draft import resize, write
from tensorstash.segments.limits import check_free
from tensorstash.segments.publish import obtain
from tensorstash.segments.segment import Segment, open_saved
from tensorstash.segments.unpublished import UnpublishedFile
from tensorstash.stash.stash import Stash


def open(  # noqa: A001  its name is ts.cluster.open
    path: str | os.PathLike[str],
    node: int | None = None,
    nodes: int | None = None,
    *,
    share: str | bool | None = None,
    timeout: float | None = None,
) -> Shards:
    """Open the shards of this node, of those that `ts.cluster.shard` has made.

    Shards go to nodes by their rows, the longest first, each to the node with the fewest rows so far; so every process
    knows which node holds what without asking. In a directory, shards are mapped: their values are read when they are
    used, and checked no further than by their headers and sizes. From an object store each is fetched once per node,
    into the directory of shared segments, by the first of the node's processes that asks, while the others wait; its
    checksum is compared with the manifest's. `ts.shared.list()` shows these copies.

    Args:
        path: the directory or URL that was `to=`.
        node: the number of this node, from 0 on; with `None`, `GROUP_RANK` (torchrun) or `NODE_RANK` (Ray Train).
        nodes: how many nodes there are; with `None`, `WORLD_SIZE` divided by `LOCAL_WORLD_SIZE`. Without any of these,
            there is one node, which holds all shards.
        share: a label for copies in shared memory, `<label>.<number of the shard>`; `True` makes one of the path's
            name. Shards of a directory are copied only if it is given, those of an object store always.
        timeout: seconds to wait for another process that fetches a shard; `None` waits until it is done.

    Raises:
        SegmentError: no manifest, one of another version, or a shard that is missing, damaged, or not the one of the
        manifest. NoMemoryError: a copy does not fit. ValueError: a wrong number of a node, or nodes with different
        numbers of ranks. TimeoutError: see `timeout`.

    Example:
        >>> import tempfile, tensorstash as ts
        >>> data = {"station": ["B", "A", "B", "C"], "hour": [2, 1, 1, 1], "temp": [0.5, 1.5, 0.25, 0.0]}
        >>> where = tempfile.mkdtemp()
        >>> made = ts.cluster.shard(data, ["temp"], entity="station", time="hour", shards=2, to=where)
        >>> ts.cluster.open(where, node=1, nodes=2)
        Shards: 4 rows of 3 entities in 2 shards; node 1 of 2 (from the arguments) holds 1 of them, 2 rows
    """
    store = Store(os.fsdecode(path))
    text = store.read(NAME)
    if text is None:
        raise SegmentError(
            f"Shards have a manifest, which is written when all are there; {store.join(NAME)} is not there. Make them, "
            "or go on making them: ts.cluster.shard(...)."
        )
    where = store.join(NAME)
    manifest = Manifest.from_json(text, where)
    if manifest.hash != HASH:
        raise SegmentError(
            f"Entities are given to shards by {HASH!r}; {where} says {manifest.hash!r}. Make the shards again."
        )
    own = node_of(node, nodes)
    label = _label(store, share)

    def opened(record: ShardRecord, what: object) -> Stash:
        return _stash(store, record, label and f"{label}.{what}", timeout)

    held = assign([shard.rows for shard in manifest.shards], own.nodes)[own.number]
    stashes = {number: opened(manifest.shards[number], number) for number in held}
    return Shards(manifest, own.number, own.nodes, own.origin, stashes, opened(manifest.index, "index"))


def _label(store: Store, share: str | bool | None) -> str | None:
    """The label of the copies in shared memory; `None` if shards are mapped where they lie."""
    if share is None or share is False:
        return None if store.directory is not None else check_share(True, store.url.rstrip("/"))
    return check_share(share, store.url.rstrip("/"))


def _stash(store: Store, record: ShardRecord, label: str | None, timeout: float | None) -> Stash:
    """The stash of a record, compared with it."""
    size = store.size(record.file) if label is None else record.bytes  # a copy may be there already
    if size is None:
        raise _wrong(store, record, "is not there")
    if size != record.bytes:
        raise _wrong(store, record, f"has {size:,} bytes, and its manifest says {record.bytes:,}")
    segment = _mapped(store, record) if label is None else _fetched(store, record, label, timeout)
    stash = Stash(segment)
    if (stash.rows, len(stash.offsets) - 1) != (record.rows, record.entities):
        raise _wrong(store, record, f"has {stash.rows:,} rows, and its manifest says {record.rows:,}")
    return stash


def _mapped(store: Store, record: ShardRecord) -> Segment:
    assert store.directory is not None
    return open_saved(os.path.join(store.directory, record.file))


def _fetched(store: Store, record: ShardRecord, label: str, timeout: float | None) -> Segment:
    """The copy of a shard that all processes of this node share."""

    def build(target: UnpublishedFile, report: Callable[[float], None]) -> None:
        check_free(
            record.bytes,
            target.limits(),
            "A node's shards must fit into free memory",
            store.join(record.file),
            "Take more nodes, or copy the shards to a disk of the node and open them there.",
        )
        if store.size(record.file) is None:
            raise _wrong(store, record, "is not there")
        resize(target.fd, record.bytes)
        begin = 0
        for chunk in store.chunks(record.file):
            write(target.fd, memoryview(chunk)[: max(record.bytes - begin, 0)], begin)
            begin += len(chunk)
            report(min(begin / record.bytes, 1.0))
        if begin != record.bytes or checksum(chunks_of(target.fd)) != record.checksum:
            raise _wrong(store, record, "has other bytes than its manifest says")

    return obtain(Name(label, record.checksum[:16]), build, timeout)


def _wrong(store: Store, record: ShardRecord, what: str) -> SegmentError:
    return SegmentError(
        f"A shard is the file that its manifest describes; {store.join(record.file)} {what}. Make it again with the "
        "call that made it: ts.cluster.shard(...) keeps the shards that are right."
    )
