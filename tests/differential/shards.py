"""Shards of several nodes in one process: made, opened, sampled on all ranks, and resumed on other nodes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import torch.distributed as dist

from tests.differential import cuts, orders
from tests.differential.clocks import CLOCKS
from tests.differential.library import ts
from tests.differential.loads import Loaded, columns_of, source, static_table
from tests.differential.orders import Layout
from tests.differential.panels import panel
from tests.differential.record import Record


class _NotYetKnown(BaseException):
    """A rank waits for what the others send."""


@contextmanager
def _rank_of(known: Sequence[list[Any]], sent: list[Any], ranks: int) -> Iterator[None]:
    """A process group in which each collective gives what is known of it, and the first unknown one ends the call."""
    count = iter(range(len(known) + 1))

    def all_gather_object(objects: list[Any], mine: Any, group: Any = None) -> None:
        number = next(count)
        if number == len(known):
            sent.append(mine)
            raise _NotYetKnown
        objects[:] = known[number]

    found: dict[str, Any] = {name: lambda: True for name in ("is_available", "is_initialized")}
    found |= {"get_world_size": lambda *_, **__: ranks, "all_gather_object": all_gather_object}
    with patch.multiple(dist, **found):
        yield


def together(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """The results of a call on all ranks, which may use collectives: each is done once all ranks have reached it."""
    known: list[list[Any]] = []
    while True:
        results, sent = [], list[Any]()
        for call in calls:
            with _rank_of(known, sent, len(calls)):
                try:
                    results.append(call())
                except _NotYetKnown:
                    continue
        if not sent:
            return results
        known.append(sent)


def shards_case(record: Record, rng: Random, folder: Path) -> None:
    """Shards on nodes, whose ranks sample them together."""
    kind = rng.choice(["text", "number", "two"])
    rows = panel(rng, rows=25, entities=(4, 12), clock=rng.choice(CLOCKS) if rng.random() < 0.9 else None, kind=kind)
    arguments: dict[str, Any] = {"columns": columns_of(rng, rows.clock), "time": rows.time}
    arguments["entity"] = [*rows.keys] if len(rows.keys) != 1 else rows.keys[0]
    if rng.random() < 0.5:
        arguments["static"] = rng.choice([["size", "region"], ["size", "region"], static_table(rng, rows)])
    if rows.ties:
        arguments["duplicates"] = "keep"
    record.has(*rows.features, *arguments)
    where, shards = folder / "shards", rng.choice([3, 5, 5, 8])
    given = source(rng, rows, rng.choice(["polars", "arrow", "parquet"]), folder)
    manifest = ts.cluster.shard(given, to=where, shards=shards, progress=False, **arguments)
    if rng.random() < 0.35:
        with record.trying("again"):
            manifest = _again(rng, where, manifest, partial(ts.cluster.shard, given, shards=shards, **arguments))
    record.add("manifest", [manifest.frequency, manifest.vocabularies, manifest.types, manifest.rows])
    record.add("rows", [(shard.rows, shard.entities) for shard in manifest.shards])
    if rng.random() < 0.15:
        _copied(record, rng, where)
    with record.trying("alone"):  # of two nodes, without a process group
        ts.cluster.exchange_counts(ts.cluster.windows(ts.cluster.open(where, 0, 2), 1, gaps="ignore"))
    with record.trying("not told"):
        ts.Loader(ts.cluster.windows(ts.cluster.open(where, 0, 2), 1, columns=["y"], gaps="ignore"), 2)
    some = Loaded(ts.cluster.open(where).stashes[0], rows, arguments)
    chosen = cuts.window_arguments(rng, some)
    if not isinstance(chosen.get("where", ""), str):
        del chosen["where"]
    record.has(*chosen)
    cut = rng.choice([None, None, 12, 0.6])
    options: dict[str, Any] = {"shuffle": rng.random() < 0.7, "with_ids": rng.random() < 0.7, "seed": rng.randint(0, 3)}
    options |= {name: value for name, value in orders.options(rng).items() if name != "seed"}
    if options.get("tail") == "drop" and rng.random() < 0.9:  # which shards refuse
        options["tail"] = "pad"
    if rng.random() < 0.3:
        every = [opened(where, chosen, node, 2) for node in range(2)]
        _scalers(record, rng, every, some)

    def layouts() -> "_Nodes":
        return _Nodes.open(where, chosen, cut if rows.clock or isinstance(cut, float) else None, rng, rows.clock)

    def make(nodes: Layout, rank: int) -> Any:
        assert isinstance(nodes, _Nodes)
        of_node = nodes.windows[rank * len(nodes.windows) // nodes.ranks]
        return ts.Loader(of_node, nodes.batch_size, **options, **nodes.of(rank))

    orders.passes(record, rng, make, layouts)


def _again(rng: Random, where: Path, manifest: Any, make: Callable[..., Any]) -> Any:
    """Shards that are there are kept, those that are not or were damaged are made, and others are refused."""
    lost = where / rng.choice(manifest.shards).file
    if rng.random() < 0.6:
        (where / "manifest.json").unlink()
        lost.write_bytes(lost.read_bytes()[:-9]) if rng.random() < 0.5 else lost.unlink()
    return make(to=where, progress=False, **rng.choice([{}, {}, {"filter": [("k", ">", 0)]}]))


def _copied(record: Record, rng: Random, where: Path) -> None:
    """Shards in shared memory."""
    label = f"net-{rng.randrange(10**9)}"
    try:
        shards = ts.cluster.open(where, share=label)
        record.add("entities", shards.entities)
        record.add("copied", {str(number): dict(stash) for number, stash in shards.stashes.items()})
    finally:
        for name in set(ts.shared.list()["label"]):
            if name.startswith(f"{label}."):
                ts.shared.remove(name)


def opened(where: Path, chosen: dict[str, Any], node: int, nodes: int) -> Any:
    """The windows of one node."""
    return ts.cluster.windows(ts.cluster.open(where, node, nodes), **chosen)


class _Nodes(Layout):
    """A layout, and the windows of its nodes."""

    windows: list[Any]

    @staticmethod
    def open(where: Path, chosen: dict[str, Any], cut: Any, rng: Random, clock: Any) -> "_Nodes":
        count, ranks = rng.choice([1, 1, 2, 2, 2, 3]), rng.choice([1, 1, 2])
        every = [opened(where, chosen, node, count) for node in range(count)]
        if isinstance(cut, float):
            every = [windows.split_fraction(cut)[0] for windows in every]
        elif cut is not None:
            moment = clock.moment(cut, Random(0))
            every = [windows.split(moment)[1] for windows in every]
        calls = [lambda windows=windows: ts.cluster.exchange_counts(windows) for windows in every for _ in range(ranks)]
        told = every if count == 1 and rng.random() < 0.5 else together(calls)[::ranks]
        batch_size = rng.choice([1, 2, 3, 5, 8])
        whole = rng.random() < 0.2
        sizes = {"global_batch_size": batch_size * count * ranks} if whole else {}
        nodes = _Nodes(count * ranks, None if whole else batch_size, sizes)
        object.__setattr__(nodes, "windows", told)
        return nodes


def _scalers(record: Record, rng: Random, every: list[Any], some: Loaded) -> None:
    parts = [part for windows in every for part in windows.parts.values()]
    columns = [*dict.fromkeys(span.column for span in parts[0].spans if span.column in some.floats())] if parts else []
    if not columns:
        return
    chosen = rng.sample(columns, rng.randint(1, len(columns)))
    more: dict[str, Any] = {"kind": rng.choice(["standard", "minmax", "maxabs"])}
    if rng.random() < 0.4:
        more |= {"by": "entity", "unknown": rng.choice(["error", "pooled"])}
    with record.trying("scalers"):
        fits = [lambda windows=windows: ts.cluster.fit_scaler(windows, chosen, **more) for windows in every]
        for scaler in together(fits):
            record.state("scaler of node", scaler.state_dict())
