"""Random transforms of batches: scalers, norms, casts, crossed columns and packed sequences."""

import json
from pathlib import Path
from random import Random
from typing import Any

import torch

from tests.differential import cuts, orders
from tests.differential.library import kind_of, member, ts
from tests.differential.loads import Loaded, load
from tests.differential.record import Record

KINDS = ("standard", "minmax", "robust", "maxabs")


def spans_of(windows: Any) -> dict[str, str]:
    """The column of each span of windows or of a mix."""
    first = windows if hasattr(windows, "spans") else next(iter(windows.windows.values()))
    return {span.name: span.column for span in first.spans}


def some(rng: Random, record: Record, loaded: Loaded, windows: Any) -> list[Any]:
    """Transforms that mostly fit the windows."""
    spans, stash = spans_of(windows), loaded.stash
    floating = [name for name, column in spans.items() if stash[column].is_floating_point()]
    whole = [name for name, column in spans.items() if not stash[column].is_floating_point()]
    found: list[Any] = []
    if whole and rng.random() < 0.5:
        found.append(ts.Cast({rng.choice(whole): rng.choice([torch.float32, torch.float64, torch.int64])}))
    if floating and rng.random() < 0.2:
        found.insert(0, ts.Cast({floating[0]: rng.choice([torch.float16, torch.bfloat16])}, on="host"))
    if floating and rng.random() < 0.6:
        found.append(rng.choice([scaler_of, norm_of])(rng, windows, floating, spans))
    if whole and rng.random() < 0.4:
        found.append(cross_of(rng, whole, [*stash.static]))
    if rng.random() < 0.4:
        found.append(pack_of(rng, [*spans]))
    record.has(*map(kind_of, found))
    record.computed |= any(isinstance(one, (ts.Scaler.thing, ts.InstanceNorm.thing)) for one in found)
    return found


def on_host(rng: Random, loaded: Loaded, windows: Any) -> list[Any]:
    """Transforms that run before a copy to a device."""
    spans = spans_of(windows)
    wide = [name for name, column in spans.items() if loaded.stash[column].dtype == torch.float64]
    found: list[Any] = [ts.Cast({rng.choice(wide): torch.float32}, on="host")] if wide and rng.random() < 0.5 else []
    return [*found, pack_of(rng, [*spans])] if rng.random() < 0.5 else found


def scaler_of(rng: Random, windows: Any, floating: list[str], spans: dict[str, str]) -> Any:
    """A scaler that is fitted on the windows."""
    columns = [*dict.fromkeys(spans[name] for name in (floating if rng.random() < 0.85 else spans))]
    chosen = rng.sample(columns, rng.randint(1, len(columns)))
    more: dict[str, Any] = {"kind": rng.choice(KINDS)}
    if rng.random() < 0.4:
        more |= {"by": "entity", "unknown": rng.choice(["error", "pooled"])}
    if rng.random() < 0.15:
        more |= {"sample": rng.randint(1, 50), "seed": rng.randint(0, 3)}
    return ts.Scaler.fit(windows, chosen, **more)


def norm_of(rng: Random, windows: Any, floating: list[str], spans: dict[str, str]) -> Any:
    """A norm over spans of one column."""
    first = rng.choice(floating)
    others = [name for name in floating if spans[name] == spans[first] and name != first]
    more = {"rows": rng.randint(1, 3)} if rng.random() < 0.3 else {}
    return ts.InstanceNorm(first, *others, kind=rng.choice(["standard", "last", "mean"]), **more)


def pack_of(rng: Random, names: list[str], *, longer: int = 1) -> Any:
    """Spans as sequences without empty slots."""
    more: dict[str, Any] = {"length": rng.choice([8, 12, 30]) * longer} if rng.random() < 0.6 else {}
    if rng.random() < 0.4:
        more["multiple"] = rng.choice([2, 8])
    name = rng.choice(names)
    twin = name.removesuffix("2") if name.endswith("2") else f"{name}2"
    return ts.PackSequences(name, *([twin] if twin in names and rng.random() < 0.8 else []), **more)


def cross_of(rng: Random, whole: list[str], static: list[str]) -> Any:
    """A span, and its twin or a static column, as one category."""
    name = rng.choice(whole)
    others = [other for other in whole if other.removesuffix("2") == name.removesuffix("2") and other != name]
    others += [other for other in static if other in ("rank", "region", "kind")]
    chosen = [name, *rng.sample(others or whole, 1)]
    return ts.Cross(chosen, rng.choice([2, 1000, 2**40]), name=rng.choice([None, "crossed"]))


def transforms_case(record: Record, rng: Random, folder: Path) -> None:
    """Transforms by hand, back again, bound to other windows, and their states."""
    loaded = load(rng, record, folder)
    windows = cuts.windows_of(rng, record, loaded)
    record.computed = True
    ids = [rng.randrange(len(windows)) for _ in range(rng.randint(1, 9))]
    spans = spans_of(windows)
    with record.trying("scaler"):
        _scaler(record, rng, loaded, windows)
    floating = [name for name, column in spans.items() if loaded.stash[column].is_floating_point()]
    if floating:
        with record.trying("norm"):
            _norm(record, norm_of(rng, windows, floating, spans), windows[ids])
    with record.trying("pack"):
        record.batch("packed", pack_of(rng, [*spans])(windows[ids]))
    whole = [name for name, column in spans.items() if not loaded.stash[column].is_floating_point()]
    if whole:
        with record.trying("cast"):
            record.batch("cast", ts.Cast(dict.fromkeys(whole, torch.float32))(windows[ids]))
        with record.trying("cross"):
            record.batch("crossed", cross_of(rng, whole, [*loaded.stash.static])(windows[ids]))


def _norm(record: Record, norm: Any, batch: Any) -> None:
    normed = norm(batch)
    record.batch("normed", normed)
    values = torch.ones_like(normed[norm.history]).cumsum(1)
    record.add("inverse of norm", member(norm, "inverse")(values, normed))
    record.batch("norm undone", member(norm, "inverse(batch)")(normed))


def _scaler(record: Record, rng: Random, loaded: Loaded, windows: Any) -> None:
    spans = spans_of(windows)
    source = rng.choice([windows, windows, loaded.stash, windows.split_fraction(0.6)[0]])
    columns = {name: name for name in loaded.floats()} if source is loaded.stash else spans
    floating = [name for name, column in columns.items() if column in loaded.floats()]
    if not floating:
        return
    scaler = scaler_of(rng, source, floating, columns)
    state = json.loads(json.dumps(scaler.state_dict()))
    record.state("scaler", state)
    with record.trying("bind"):
        scaler = ts.Scaler.from_state(state).bind(windows)
        record.state("bound", scaler.state_dict())
    with record.trying("scale a stash"):
        scaled = member(scaler, "transform")(loaded.stash, **rng.choice([{}, {"dtype": torch.float32}]))
        record.add("scaled", dict(scaled))
    loader = ts.Loader(windows, 6, with_ids=True, shuffle=True)
    batch = scaler(next(iter(loader)))
    record.batch("scaled batch", batch)
    column = next(iter(scaler.center))
    shape = (len(batch["entity"]), 2, *loaded.stash[column].shape[1:])
    by_entity = {"entity": batch["entity"]} if scaler.by == "entity" else {}
    record.add("inverse", member(scaler, "inverse")(torch.ones(shape), column, **by_entity))
    record.batch("undone", member(scaler, "inverse(batch)")(batch))
    record.shows("scaler shown", scaler)
    with record.trying("other entities"):
        other = scaler.bind(windows.split_entities(0.5)[0])
        record.batch("of others", other(next(iter(loader))))
    layouts = [orders.layout(rng), orders.layout(rng)]

    def make(layout: orders.Layout, rank: int) -> Any:
        return ts.Loader(windows, layout.batch_size, shuffle=True, with_ids=True, transform=[scaler], **layout.of(rank))

    orders.passes(record, rng, make, layouts.pop)
