"""Wrong arguments: one argument of a valid call is replaced by something odd. Only the type of the error counts."""

import math
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import torch

from tests.differential import cuts, orders
from tests.differential.library import kind_of, member, ts
from tests.differential.loads import Loaded, load
from tests.differential.record import Record

ODD: tuple[Any, ...] = (-1, 0, 1, 3, 1.5, math.nan, "", "x", "y", "error", None, True, [], [1], ["y"], (1, 2), {}, b"b")
ODD += ({"y": 1}, torch.float32, torch.ones(2), 2**70, -(2**70), {"past": ("y", 0, 0)}, {"past": ("none", -1, 0)}, "1h")
CALLS = 8

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def calls(rng: Random, loaded: Loaded, windows: Any) -> dict[str, Call]:
    """Valid calls by name: a function, its positional arguments and its keywords."""
    spans = {"past": ("y", -2, 0), "next": ("y", 0, 1)}
    short: dict[str, Any] = {"history": 3, "horizon": 1, "min_history": 2, "min_horizon": 1, "stride": 2}
    short |= {"gaps": "ignore", "columns": ["y"], "require": ["y"]}
    short |= {"frequency": None, "tolerance": None, "where": None}
    in_loader: dict[str, Any] = {"shuffle": True, "seed": 3, "num_replicas": 2, "rank": 1, "tail": "keep", "steps": 2}
    loader = in_loader | {"with_ids": True, "with_valid": True, "transform": [], "prefetch": 0, "resident": False}
    loader |= {"device": "cpu", "global_batch_size": None}
    wrong = {"num_workers": 2, "lookback": 3, "drop_last": True, "collate_fn": None, "pin_memory": True}
    name = rng.choice([*wrong])
    weights: list[Any] = [1.0] * (len(windows) - 1) + [rng.choice([-1.0, math.nan, math.inf, 1e308, 0.0, True])]
    stash, floating = loaded.stash, loaded.floats()[:1]
    found: dict[str, Call] = {
        "load": (ts.load, ({"y": [1.0, 2.0, 3.0], "t": [1, 2, 3], "e": [0, 0, 1]},), _load_arguments()),
        "Windows": (ts.Windows, (stash,), short),
        "Windows, spans": (ts.Windows, (stash,), {"spans": spans, "gaps": "ignore", "require": ["past"]}),
        "Windows, other": (ts.Windows.thing, (stash,), {"history": 2, "gaps": "ignore", name: wrong[name]}),
        "Loader": (ts.Loader, (windows, 4), loader),
        "Loader, ids": (ts.Loader, (windows, 4), {"order": [0]}),
        "Loader, weights": (ts.Loader, (windows, 4), {"order": ts.Weighted(weights)}),
        "Loader, other": (ts.Loader.thing, (windows, 4), {name: wrong[name]}),
        "Sampler": (ts.Sampler, (20, 3), in_loader | {"global_batch_size": None}),
        "Mix": (ts.Mix, ({"a": windows},), {"weights": {"a": 1.0}, "epoch_size": 5}),
        "During": (
            ts.During,
            ("y",),
            {"start": -3, "stop": 0, "max_rows": 3, "min_rows": 1, "age": True, "closed": "left"},
        ),
        "Draw": (ts.Draw, (-5, -1), {"step": 2}),
        "Blocks": (ts.Blocks, (3,), {}),
        "Lanes": (ts.Lanes, (3,), {}),
        "ByTime": (ts.ByTime, (), {"shuffle": True}),
        "Weighted": (ts.Weighted, ([1.0, 2.0],), {"per": "window", "epoch_size": 3}),
        "column": (ts.column, ("y",), {"dtype": torch.float64, "fill": 0, "empty": 0, "vocabulary": None}),
        "hashed": (ts.hashed, ("y", 12), {}),
        "calendar": (ts.calendar, ("hour",), {"cyclic": True, "scaled": False}),
        "Scaler.fit": (ts.Scaler.fit, (windows, floating), {"kind": "minmax", "by": None, "sample": None, "seed": 0}),
        "Cast": (ts.Cast, ({"y": torch.float32},), {"on": "device"}),
        "Cross": (ts.Cross, (["a", "b"], 7), {"name": "c"}),
        "InstanceNorm": (ts.InstanceNorm, ("past",), {"kind": "last", "eps": 1e-3, "rows": 2}),
        "PackSequences": (ts.PackSequences, ("past",), {"length": 9, "multiple": 2}),
        "split": (member(windows, "split"), (3,), {}),
        "split_fraction": (member(windows, "split_fraction"), (0.3, 0.6), {}),
        "split_entities": (member(windows, "split_entities"), (0.5,), {"seed": 1}),
        "folds": (member(windows, "folds"), (1, 2), {"gap": 0, "expanding": True}),
        "latest": (member(windows, "latest"), (), {"of": "y"}),
        "by number": (windows.__getitem__, ([0],), {}),
        "column of a stash": (stash.__getitem__, ("y",), {}),
        "vocabulary": (member(stash, "vocabulary"), ("word",), {}),
        "series": (member(stash, "series"), (stash.entities[0],), {}),
        "shard_of": (ts.cluster.shard_of, ("a", 3), {}),
        "open": (ts.open, ("/nowhere/x.safetensors",), {}),
        "cluster.open": (ts.cluster.open, ("/nowhere",), {"node": 0, "nodes": 1}),
    }
    return found


def _load_arguments() -> dict[str, Any]:
    found: dict[str, Any] = {
        "columns": ["y"],
        "entity": "e",
        "time": "t",
        "static": None,
        "dtype": None,
        "filter": None,
    }
    return found | {"shard": None, "like": None, "duplicates": "error", "progress": False}


def spoiled(rng: Random, call: Call) -> tuple[Call, str]:
    """The same call with one argument replaced, and what was replaced by what."""
    function, arguments, named = call
    place: Any = rng.choice([*range(len(arguments)), *named])
    odd = rng.choice(ODD)
    what = f"{place}={odd if not isinstance(odd, torch.Tensor) else 'tensor'}"
    if isinstance(place, int):
        return (function, (*arguments[:place], odd, *arguments[place + 1 :]), named), what
    return (function, arguments, named | {place: odd}), what


def refusals_case(record: Record, rng: Random, folder: Path) -> None:
    """Several spoiled calls; the result of one that is not refused counts by its type."""
    loaded = load(rng, record, folder)
    more = {"gaps": "ignore"} if loaded.panel.clock is not None else {}
    windows = ts.Windows(loaded.stash, 1, columns=["y"], **more)
    for _ in range(CALLS):
        valid = calls(rng, loaded, windows)
        name = rng.choice([*valid])
        (function, arguments, named), what = spoiled(rng, valid[name])
        record.has(name)
        with record.trying(f"{name} {what}"):
            record.add(f"{name} {what}", kind_of(function(*arguments, **named)))
    _states(record, rng, windows)


def _states(record: Record, rng: Random, windows: Any) -> None:
    """A state that was tampered with, or is of another loader."""
    loader = ts.Loader(windows, 3, shuffle=True)
    orders.run(record, "before", [loader], 2)
    state = loader.state_dict()
    place = rng.choice([*state])
    if rng.random() < 0.5:
        state[place] = rng.choice(ODD)
    else:
        del state[place]
    other = ts.Loader(windows, 3, **rng.choice([{"shuffle": True}, {"shuffle": False}, {"order": ts.Blocks(2)}]))
    with record.trying(f"state {place}"):
        other.load_state_dict(state)
        orders.run(record, "accepted", [other], 2)


def points_refused_case(record: Record, rng: Random, folder: Path) -> None:
    """Frames of points that lack a column, or have a wrong one."""
    loaded = load(rng, record, folder)
    if loaded.panel.clock is None:
        return
    frame = cuts.points_of(rng, loaded, 5)
    name = rng.choice(frame.columns)
    wrong = rng.choice([frame.drop(name), frame.with_columns(frame[name].cast(str)), frame.head(0), frame.to_dict(), 3])
    with record.trying(f"frame {name}"):
        record.add("accepted", len(ts.Windows(loaded.stash, 1, at=wrong, unmatched="drop", gaps="ignore")))
