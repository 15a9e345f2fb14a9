"""Random windows over a stash: spans in slots and in time, gaps, what is required, parts of them, and given points."""

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import polars as pl

from tests.differential.library import member, ts
from tests.differential.loads import WITHOUT_EMPTY, Loaded
from tests.differential.record import Record

LONGER = 11  # times as many slots of the past, where there are many rows


def windows_of(rng: Random, record: Record, loaded: Loaded, **more: Any) -> Any:
    """Windows with random arguments; `more` are arguments of `ts.Windows`."""
    arguments = window_arguments(rng, loaded) | more
    record.has(*(f"{k}={v}" if isinstance(v, str) else k for k, v in arguments.items()))
    return ts.Windows(loaded.stash, **arguments)


def window_arguments(rng: Random, loaded: Loaded) -> dict[str, Any]:
    """Arguments of `ts.Windows` that mostly fit together."""
    panel = loaded.panel
    arguments: dict[str, Any] = {}
    timed = panel.clock is not None
    if rng.random() < 0.25:
        arguments |= {"history": rng.randint(1, 6), "horizon": rng.choice([0, 0, 1, 3])}
        if rng.random() < 0.5:
            arguments["columns"] = rng.sample(loaded.names, rng.randint(1, len(loaded.names)))
        reach = arguments["history"], arguments["horizon"]
    else:
        spans, reach = _spans(rng, loaded, timed)
        arguments["spans"] = spans
    arguments |= _padding(rng, *reach)
    if rng.random() < 0.3:
        arguments["stride"] = rng.choice([2, 3, max(1, reach[0])])
    if panel.ties:
        arguments["gaps"] = "ignore"
    elif timed:
        arguments["gaps"] = rng.choice(["split", "split", "mask", "mask", "ignore"])
    if panel.clock is not None and not panel.ties and arguments["gaps"] != "ignore":
        arguments |= frequency_of(rng, loaded)
    if rng.random() < 0.9:
        _fit_columns(arguments)
    if rng.random() < 0.25:
        arguments["require"] = [rng.choice([*loaded.names, *arguments.get("spans", [])])]
    _choose(rng, loaded, arguments)
    if rng.random() < 0.15:
        rows = loaded.stash.rows
        some = [rng.random() < 0.6 for _ in range(rows)]
        arguments["where"] = "flag" if "flag" in loaded.names and rng.random() < 0.7 else np.array(some, bool)
    return arguments


def _take_whole_series(rng: Random, loaded: Loaded, arguments: dict[str, Any]) -> None:
    """Let some windows hold whole series."""
    for name in ("history", "horizon", "columns", "stride", "align", "require", "min_history", "min_horizon"):
        arguments.pop(name, None)
    columns = [name for name in loaded.names if name not in WITHOUT_EMPTY]
    arguments["spans"] = {"all": (rng.choice(columns or ["y"]), 0, None)}
    arguments["max_slots"] = rng.choice([30, 3000])


def _choose(rng: Random, loaded: Loaded, arguments: dict[str, Any]) -> None:
    """Give some windows shares of what is required, and another place from where strides are counted."""
    if "require" in arguments and rng.random() < 0.3:
        arguments["require"] = {arguments["require"][0]: rng.choice([0.0, 0.5, 0.75, 0.9, 1.0, "rows"])}
    if "stride" in arguments and rng.random() < 0.25:
        clock = None if rng.random() < 0.3 or arguments.get("gaps") == "ignore" else loaded.panel.clock
        arguments["align"] = "end" if clock is None else clock.moment(rng.randint(0, 50), rng)
    if rng.random() < 0.05:
        _take_whole_series(rng, loaded, arguments)


def _fit_columns(arguments: dict[str, Any]) -> None:
    """Take other columns in place of those that have no value for an empty slot, if there may be such slots."""
    spans = arguments.get("spans", {})
    padded = {"min_history", "min_horizon"} & arguments.keys() or arguments.get("gaps") == "mask"
    drawn = any(isinstance(span, tuple) and isinstance(span[1], ts.Draw.thing) for span in spans.values())
    if "columns" in arguments or (padded and not spans):
        arguments["columns"] = [name for name in arguments.get("columns", ["y"]) if name not in WITHOUT_EMPTY] or ["y"]
    for name, span in spans.items():
        if isinstance(span, ts.During.thing):
            spans[name] = replace(span, column="y") if span.column in WITHOUT_EMPTY else span
        elif (padded or drawn) and span[0] in WITHOUT_EMPTY:
            spans[name] = ("y", *span[1:])


def frequency_of(rng: Random, loaded: Loaded) -> dict[str, Any]:
    """The step of time, where it must be given, and sometimes where it need not."""
    clock = loaded.panel.clock
    if clock is None:
        return {}
    if clock.tolerance is not None:
        return {"frequency": clock.frequency, "tolerance": clock.tolerance}
    if clock.frequency is not None or rng.random() < 0.5:
        return {"frequency": clock.frequency or clock.span(1)}
    return {}


def _padding(rng: Random, history: int, horizon: int) -> dict[str, int]:
    found = {}
    if history and rng.random() < 0.25:
        found["min_history"] = rng.randint(0 if horizon else 1, history)
    if horizon and rng.random() < 0.25:
        found["min_horizon"] = rng.randint(0, horizon)
    return found


def _spans(rng: Random, loaded: Loaded, timed: bool) -> tuple[dict[str, Any], tuple[int, int]]:
    spans: dict[str, Any] = {}
    low, high = 0, 0
    only_in_time = timed and rng.random() < 0.15
    drawn = ts.Draw(-rng.choice([5, 7]), -1, step=2) if rng.random() < 0.2 else None
    for name in rng.sample(["past", "next", "lag", "known", "wide"], rng.randint(1, 4)):
        column = rng.choice(loaded.names)
        if timed and (only_in_time or rng.random() < 0.15):
            spans[name] = during(rng, loaded, column)
            continue
        begin, end, step = _slots(rng, name, LONGER if loaded.stash.rows > 800 else 1)
        low, high = min(low, begin), max(high, end)
        if drawn is not None and name in ("past", "wide"):
            low = min(low, drawn.low)
            spans[name] = (column, drawn, max(end, 0)) if rng.random() < 0.7 else (column, drawn, max(end, 1), 2)
        else:
            spans[name] = (column, begin, end) if step == 1 else (column, begin, end, step)
    if rng.random() < 0.35:  # a span with the slots of another one
        name = rng.choice([*spans])
        column = rng.choice(loaded.names)
        span = spans[name]
        spans[f"{name}2"] = (column, *span[1:]) if isinstance(span, tuple) else replace(span, column=column)
    return spans, (-low, high)


def _slots(rng: Random, name: str, longer: int) -> tuple[int, int, int]:
    step = rng.choice([1, 1, 1, 2, 3, 5])
    if name == "next":
        return 0, rng.randint(1, 5), step
    if name == "lag":
        begin = -rng.randint(3, 9)
        return begin, begin + rng.randint(1, 2), 1
    if name == "known":
        return -rng.randint(1, 3), rng.randint(1, 3), step
    return -rng.randint(1, 9) * longer, 0, step


def during(rng: Random, loaded: Loaded, column: str) -> Any:
    """A span in time with random bounds."""
    clock = loaded.panel.clock
    assert clock is not None
    begin, end = sorted(rng.sample([-9, -6, -3, -2, 0, 0, 1, 2], 2))
    end += begin == end
    most = rng.choice([1, 2, 4, 9])
    more: dict[str, Any] = {"max_rows": most}
    if rng.random() < 0.3:
        more["min_rows"] = rng.randint(0, min(most, 2))
    if rng.random() < 0.5:
        more["age"] = True
    if rng.random() < 0.3:
        more["closed"] = rng.choice(["left", "right"])
    if rng.random() < 0.3:
        return ts.During(column, start=clock.span(begin), stop=clock.span(end), **more)
    return ts.During(column, clock.span(begin), clock.span(end), **more)


def part_of(rng: Random, record: Record, loaded: Loaded, windows: Any) -> Any:
    """These windows, or a part of them that is not empty."""
    parts: Any = ()
    kinds = ["whole", "whole", "split", "split_fraction", "split_entities", "split_last", "of", "latest", "folds"]
    kind = rng.choice([*kinds, "cover"])
    if kind == "split" and loaded.panel.clock is not None:
        cuts = sorted(rng.sample(range(3, 40), rng.choice([1, 1, 2])))
        parts = windows.split(*(loaded.panel.clock.moment(cut, rng) for cut in cuts))
    elif kind == "split_fraction":
        parts = windows.split_fraction(*rng.choice([(0.5,), (0.7, 0.85), (0.31,)]))
    elif kind == "split_entities":
        parts = windows.split_entities(*rng.choice([(0.5,), (0.4, 0.7)]), seed=rng.randint(0, 9))
    elif kind == "split_last":
        with record.trying("split_last"):
            of = rng.choice([None, None, *loaded.floats()[:1]])
            parts = ts.Windows.split_last(windows, *rng.choice([(1,), (3,), (2, 4), (1, 1, 1)]), of=of)
    elif kind == "of":
        names = loaded.stash.entities
        parts = [ts.Windows.of(windows, rng.sample(names, rng.randint(1, len(names))))]
    elif kind == "latest":
        with record.trying("latest"):
            parts = [windows.latest(rng.choice([None, None, *loaded.floats()[:1]]))]
    elif kind == "cover":
        with record.trying("cover"):
            names = [span.name for span in windows.spans]
            parts = [ts.Windows.cover(windows, rng.choice([None, *names, *names]))]
    elif kind == "folds":
        with record.trying("folds"):
            pairs = ts.Windows.folds(windows, *_folds(rng, loaded), **_fold_options(rng, loaded))
            parts = [part for pair in pairs for part in pair]
    record.has(f"part={kind}")
    if parts:
        record.add(kind, [len(part) for part in parts])
    parts = [part for part in parts if len(part)]
    return rng.choice(parts) if parts else windows


def _folds(rng: Random, loaded: Loaded) -> tuple[int, Any]:
    clock, step = loaded.panel.clock, rng.randint(1, 4)
    return rng.randint(1, 3), step if clock is None or rng.random() < 0.5 else clock.span(step)


def _fold_options(rng: Random, loaded: Loaded) -> dict[str, Any]:
    options: list[dict[str, Any]] = [{}, {}, {"gap": rng.randint(0, 3)}, {"expanding": False}]
    ends: list[dict[str, Any]] = [{}, {}, {}, {"per": "entity"}, *({"of": name} for name in loaded.floats()[:1])]
    return rng.choice(options) | rng.choice(ends)


def points_of(rng: Random, loaded: Loaded, rows: int) -> Any:
    """A frame for `at=`: times near those of rows, some without a window, and labels."""
    panel = loaded.panel
    assert panel.clock is not None
    picked = [rng.randrange(panel.rows) for _ in range(rows)]
    if rng.random() < 0.3:
        picked.sort()
    steps = panel.steps[picked] + np.array([rng.choice([0, 0, 0, 1, -1, 4]) for _ in picked])
    frame: dict[str, Any] = {name: panel.table[name].take(picked) for name in panel.keys}
    frame["t"] = panel.clock.column(np.maximum(steps, 0))
    if rng.random() < 0.6:
        frame["label"] = np.arange(rows) % 3
        frame["weight"] = np.arange(rows) / 4
    if rng.random() < 0.2:
        frame["when"] = np.arange(rows).astype("M8[ms]")
    found = pl.DataFrame({name: pl.Series(values) for name, values in frame.items()})
    if panel.keys and rng.random() < 0.15:  # an entity that the stash does not have
        found = pl.concat(
            [
                found,
                found.head(1).with_columns(
                    e=pl.lit(1234 if panel.kind == "number" else "nowhere").cast(found["e"].dtype)
                ),
            ]
        )
    if panel.kind == "text" and rng.random() < 0.15:
        found = found.with_columns(pl.col("e").cast(pl.Categorical))
    return found


def at_points(rng: Random, record: Record, loaded: Loaded) -> Any:
    """Windows at the points of a random frame."""
    arguments = window_arguments(rng, loaded)
    for name in ("stride", "align", "where"):
        arguments.pop(name, None)
    arguments["unmatched"] = "drop" if rng.random() < 0.8 else "error"
    if rng.random() < 0.4:
        arguments["closed"] = rng.choice(["left", "right"])
    record.has("points", *arguments)
    return ts.Windows(loaded.stash, at=points_of(rng, loaded, rng.randint(1, 60)), **arguments)


def views(record: Record, rng: Random, windows: Any) -> None:
    """All that windows tell of themselves, and batches by number."""
    count = len(windows)
    record.add("count", count)
    record.state("fingerprint", windows.fingerprint())
    record.add("per entity", windows.per_entity())
    ids = [rng.randrange(-count, count) for _ in range(rng.randint(1, 12))]
    record.batch("by ids", windows[ids])
    record.batch("by array", windows[np.array(ids, np.int64)])
    record.batch("one", windows[ids[0]])
    low = rng.randrange(count)
    record.batch("slice", windows[low : low + rng.randint(1, 30) : rng.choice([1, 2])])
    with record.trying("all"):
        record.batch("all", windows[:])
    with record.trying("anchors"):
        record.add("anchors", windows.anchors(ids))
    record.add("points", member(windows, "points"))
    with record.trying("each"):
        record.add("each", member(windows, "__getitems__")(ids))


def frame_of(record: Record, rng: Random, windows: Any) -> None:
    """Predictions as a frame."""
    import torch

    ids = [rng.randrange(len(windows)) for _ in range(rng.randint(1, 4))]
    slots = windows.horizon or windows.history
    more = rng.choice([(), (), (3,)])
    dtype = rng.choice([torch.float32, torch.float16, torch.int64])
    predictions = torch.arange(len(ids) * slots * (more or (1,))[0]).view(len(ids), slots, *more).to(dtype)
    options: dict[str, Any] = {name: True for name in ("origin", "step") if rng.random() < 0.4}
    if rng.random() < 0.3:
        options["names"] = ["low", "mid", "high"] if more else ["only"]
    with record.trying("to_frame"):
        record.add("to_frame", member(windows, "to_frame")(ids, predictions, **options))
