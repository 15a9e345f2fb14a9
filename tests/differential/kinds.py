"""What cases do: windows, points, loaders, samplers, mixes and PyTorch's own loader."""

import pickle
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import torch

from tests import everywhere
from tests.differential import cuts, orders, transforms
from tests.differential.clocks import CLOCKS
from tests.differential.library import member, ts
from tests.differential.loads import Loaded, load
from tests.differential.orders import Layout
from tests.differential.panels import panel
from tests.differential.record import Record
from tests.differential.words import is_ids


def windows_case(record: Record, rng: Random, folder: Path) -> None:
    """Windows and their parts, by number."""
    loaded = load(rng, record, folder)
    windows = cuts.windows_of(rng, record, loaded)
    cuts.views(record, rng, windows)
    part = cuts.part_of(rng, record, loaded, windows)
    if part is not windows:
        cuts.views(record, rng, part)
    cuts.frame_of(record, rng, part)
    record.shows("windows shown", part)


def points_case(record: Record, rng: Random, folder: Path) -> None:
    """Windows at points of a frame, by number and in a loader."""
    loaded = load(rng, record, folder, of=panel(rng, clock=rng.choice(CLOCKS)))
    windows = cuts.at_points(rng, record, loaded)
    cuts.views(record, rng, windows)
    if rng.random() < 0.3:
        windows = cuts.part_of(rng, record, loaded, windows)
    cuts.frame_of(record, rng, windows)
    _loaders(record, rng, loaded, windows)


def loader_case(record: Record, rng: Random, folder: Path) -> None:
    """Loaders of all ranks over windows."""
    loaded = load(rng, record, folder)
    windows = cuts.windows_of(rng, record, loaded)
    if rng.random() < 0.4:
        windows = cuts.part_of(rng, record, loaded, windows)
    record.add("count", len(windows))
    if loaded.stash.path is not None:
        windows = pickle.loads(pickle.dumps(windows))
    _loaders(record, rng, loaded, windows)


def lanes_case(record: Record, rng: Random, folder: Path) -> None:
    """Lanes, whose windows continue each other."""
    loaded = load(rng, record, folder)
    past = rng.randint(1, 4)
    spans = {"past": (rng.choice(loaded.names), -past, 0), "next": (rng.choice(loaded.names), 0, rng.randint(1, 2))}
    more: dict[str, Any] = {"gaps": "ignore"} if loaded.panel.ties else cuts.frequency_of(rng, loaded)
    windows = ts.Windows(loaded.stash, spans=spans, stride=past if rng.random() < 0.9 else past + 1, **more)
    _loaders(record, rng, loaded, windows, size=rng.choice([1, 2, 4, 6]))


def _loaders(record: Record, rng: Random, loaded: Loaded, windows: Any, *, size: int | None = None) -> None:
    arguments = orders.order(rng, record, len(windows), windows, size=size)
    arguments |= orders.options(rng) | orders.loader_options(rng, record)
    if "device" in arguments:
        arguments["transform"] = transforms.on_host(rng, loaded, windows)
    elif "resident" not in arguments and rng.random() < 0.35:
        arguments["transform"] = transforms.some(rng, record, loaded, windows)
        arguments["with_ids"] = True
    if "order" in arguments and is_ids(arguments["order"]) and {"prefetch", "device"} & arguments.keys():
        arguments.pop("steps", None)  # over several epochs, what a state says of own ids depends on the thread
    record.has(*(f"{name}={value}" if isinstance(value, str) else name for name, value in arguments.items()))
    varies = isinstance(arguments.get("order"), ts.ByTime.thing) and rng.random() < 0.6
    record.has(*["batch_size=None"] * varies)

    def layouts() -> Layout:
        chosen = orders.layout(rng, size=size)
        return Layout(chosen.ranks, None, {}) if varies else chosen

    orders.passes(record, rng, loader_of(windows, arguments), layouts)
    if isinstance(arguments.get("order"), ts.Weighted.thing) and rng.random() < 0.4:
        with record.trying("set_weights"):
            _reweighted(record, rng, loader_of(windows, arguments), len(windows))


def _reweighted(record: Record, rng: Random, make: orders.Make, n: int) -> None:
    loader = make(Layout(1, 5, {}), 0)
    orders.run(record, "first weights", [loader], 2)
    loader.set_weights(orders.weights_of(rng, n))
    orders.run(record, "other weights", [loader], 3)


def loader_of(windows: Any, arguments: dict[str, Any]) -> orders.Make:
    """Makes the loader of one rank."""

    def make(layout: Layout, rank: int) -> Any:
        loader = ts.Loader(windows, layout.batch_size, **arguments, **layout.of(rank))
        on_disk = isinstance(windows, ts.Windows.thing) and windows.stash.path is not None
        return pickle.loads(pickle.dumps(loader)) if on_disk else loader

    return make


def sampler_case(record: Record, rng: Random, _: Path) -> None:
    """Samplers alone, for small and large numbers of windows."""
    n = rng.choice([0, 1, 2, 7, 40, 100, 1000, 65_537, 100_000, 10**9, rng.randint(1, 300)])
    size = rng.choice([2, 4, 12]) if rng.random() < 0.2 else None
    arguments = orders.options(rng)
    if n <= 1000:
        arguments |= orders.order(rng, record, max(n, 1), size=size)
    else:
        arguments |= rng.choice([{"shuffle": True}, {"order": ts.Blocks(rng.choice([3, 1000]))}, {"shuffle": False}])
    record.has(f"n={n}", *arguments)

    def make(layout: Layout, rank: int) -> Any:
        return ts.Sampler(n, layout.batch_size, **arguments, **layout.of(rank))

    orders.passes(record, rng, make, lambda: orders.layout(rng, size=size))


def mix_case(record: Record, rng: Random, folder: Path) -> None:
    """Several stashes with equal spans as one."""
    mix, loaded = mixed(record, rng, folder)
    record.add("count", len(mix))
    record.state("fingerprint", mix.fingerprint())
    ids = [rng.randrange(-len(mix), len(mix)) for _ in range(9)]
    record.batch("by ids", mix[ids])
    record.batch("one", mix[ids[0]])
    with record.trying("each"):
        record.add("each", member(mix, "__getitems__")(ids))
    arguments = {"shuffle": rng.random() < 0.7} | orders.options(rng) | orders.loader_options(rng, record)
    if not {"device", "resident"} & arguments.keys() and rng.random() < 0.4:
        arguments["transform"] = transforms.some(rng, record, loaded, mix)
        arguments["with_ids"] = True
    record.has(*arguments)
    make = loader_of(mix, arguments)
    orders.passes(record, rng, make, lambda: orders.layout(rng))
    loader = make(Layout(1, 8, {}), 0)
    orders.run(record, "shown", [loader], 3)
    record.shows("mix shown", mix, loader)
    record.add("shown of each", loader.stats()["windows"])


def mixed(record: Record, rng: Random, folder: Path) -> tuple[Any, Loaded]:
    """A mix, and the load of its first component."""
    count, clock = rng.choice([1, 2, 2, 3, 5]), rng.choice(CLOCKS)
    kind, form = rng.choice(["none", "text", "number", "two"]), rng.choice(["polars", "arrow", "parquet", "feather"])
    first = load(rng, record, folder, form=form, of=panel(rng, rows=30, entities=(1, 3), clock=clock, kind=kind))
    kept = {name: first.arguments.get(name) for name in ("columns", "static", "dtype")}
    arguments = cuts.window_arguments(rng, first)
    arguments.pop("where", None)
    at_given = rng.random() < 0.15
    parts = {}
    for number in range(count):
        loaded = first
        if number:
            of = panel(rng, rows=30, entities=(1, 3), clock=clock, kind=kind)
            like = first.stash if rng.random() < 0.8 else None
            loaded = load(rng, record, folder, of=of, form=form, like=like, **kept)
        own = dict(arguments)
        if loaded.panel.ties:
            own = {name: value for name, value in own.items() if name not in ("frequency", "tolerance")}
            own["gaps"] = "ignore"
        if rng.random() < 0.3:
            own["stride"] = rng.randint(1, 3)
        if at_given:
            own |= {"at": cuts.points_of(rng, loaded, 20).select(*loaded.panel.keys, "t"), "unmatched": "drop"}
            for name in ("stride", "align"):
                own.pop(name, None)
        parts[rng.choice(["part", "a b", "ß"]) + str(number)] = ts.Windows(loaded.stash, **own)
    more: dict[str, Any] = {}
    if rng.random() < 0.5:
        more["weights"] = {name: rng.choice([0.25, 1, 3, 10]) for name in parts}
    if rng.random() < 0.5:
        more["epoch_size"] = rng.randint(1, 80)
    record.has("mix", *arguments, *more)
    return ts.Mix(parts, **more), first


def everywhere_case(record: Record, rng: Random, _: Path) -> None:
    """Two kinds of windows at once, of those that everything which samples is tested with."""
    chosen = rng.choices([*everywhere.ARGUMENTS], k=2)
    record.has(*chosen)
    one, other = (everywhere.ARGUMENTS[kind]() for kind in chosen)
    windows = everywhere.plain(everywhere.stash_of(), **one | other)
    cuts.views(record, rng, windows)
    cuts.frame_of(record, rng, windows)
    arguments = {"shuffle": rng.random() < 0.7} | orders.options(rng) | orders.loader_options(rng, record)
    orders.passes(record, rng, loader_of(windows, arguments), lambda: orders.layout(rng))


def torch_case(record: Record, rng: Random, folder: Path) -> None:
    """PyTorch's `DataLoader` over windows or a mix."""
    if rng.random() < 0.3:
        windows, _ = mixed(record, rng, folder)
    else:
        windows = cuts.windows_of(rng, record, load(rng, record, folder))
    if rng.random() < 0.5:
        sampler = ts.Sampler(len(windows), 7, **orders.order(rng, record, len(windows)), **orders.options(rng))
        loader: Any = torch.utils.data.DataLoader(windows, sampler=sampler, batch_size=None)
    else:
        loader = torch.utils.data.DataLoader(windows, batch_size=rng.randint(1, 6), drop_last=rng.random() < 0.5)
    for number, batch in zip(range(5), loader):
        record.batch(f"batch {number}", batch)


def large_case(record: Record, rng: Random, folder: Path) -> None:
    """Enough rows, windows and bytes for threads, portions of several steps, and orders that are computed."""
    arguments: dict[str, Any] = {"shuffle": rng.choice([True, True, False])} | orders.loader_options(rng, record)
    if rng.random() < 0.4:
        windows = _large_mix(rng)
    else:
        clock = rng.choice(CLOCKS[:1])
        windows = cuts.windows_of(rng, record, load(rng, record, folder, of=panel(rng, rows=2500, clock=clock)))
        arguments.pop("shuffle")
        arguments |= rng.choice([{"shuffle": True}, {"order": ts.Blocks(64)}])
        if not {"resident", "device"} & arguments.keys() and rng.random() < 0.5:
            arguments["transform"] = [transforms.pack_of(rng, [*transforms.spans_of(windows)], longer=cuts.LONGER)]
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        loader = ts.Loader(windows, rng.choice([256, 1500, 3000]), **arguments)
        loader.set_epoch(rng.choice([0, 0, 3]))
        for number, batch in zip(range(3), loader):
            record.batch(f"batch {number}", batch)
    finally:
        torch.set_num_threads(threads)


def _large_mix(rng: Random) -> Any:
    """Components on both sides of the number of windows up to which their orders are kept."""
    sizes = {f"part {k}": rng.choice([50, 3_000, 4_096, 4_097, 9_000, 70_000]) for k in range(rng.randint(2, 4))}
    parts = {name: ts.Windows(ts.load({"y": torch.arange(size + 2)}), 2, 1) for name, size in sizes.items()}
    return ts.Mix(parts, weights=rng.choice([None, {name: rng.choice([0.1, 1, 2]) for name in parts}]))


Kind = Callable[[Record, Random, Path], None]
