"""Random compositions of transforms beside a loop over windows and slots.

Which slots hold values is read from the rows of the source: a slot has a row if the source has one at its time, values
of `ts.calendar` are in every slot of a span in slots, and a value counts in a norm unless its flag, over the same slots
of the same stash, is false. The raw values are those of a loader without transforms; the constants of a scaler are its
own, because other tests have oracles for both.
"""

import math
import warnings
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts

Batch = dict[str, torch.Tensor]
Key = tuple[str, int]  # a slot: its entity and its hour

MEMBERS = ["a", "b"]
HOURS, START = 26, np.datetime64("2024-03-01T00", "s")
MASK = (1 << 64) - 1
BESIDE = {"event": "y", "price": "w", "phase": "cal"}  # further spans of which columns are scaled


@dataclass
class World:
    """Windows of one stash, and the source of it."""

    rows: dict[Key, dict[str, float | None]]
    stash: ts.Stash
    windows: ts.Windows
    flagged: dict[str, list[str]] = field(
        default_factory=dict
    )  # by span of flags over the slots of the past, its members


def source(rng: Random, names: list[str]) -> dict[Key, dict[str, float | None]]:
    rows: dict[Key, dict[str, float | None]] = {}
    for name in names:
        kept = [hour for hour in range(HOURS) if rng.random() < 0.8]
        for hour in kept or [0, 1, 2]:
            rows[name, hour] = {member: None if rng.random() < 0.2 else rng.randint(0, 9) for member in (*MEMBERS, "y")}
            rows[name, hour] |= {"k": rng.randint(0, 5), "m": rng.randint(0, 5)}
    return rows


@dataclass(frozen=True)
class Plan:
    """What all stashes and windows of a case have in common."""

    fill: float | None
    empty: float | None
    past: str  # "x", "y", "cal", or the text of a `ts.each`
    flags: str
    members: tuple[str, ...]  # of the flags
    more: tuple[str, ...]  # further spans
    rules: tuple[tuple[str, Any], ...]
    history: int
    horizon: int


def plan(rng: Random) -> Plan:
    past = rng.choice(["x", "y", "cal", "each(x)", "each(x, y)", "each(y, cal)", "each(cal, x)"])
    fill = rng.choice([None, -99.0])
    gaps = rng.choice(["mask", "mask", "split"])
    history = rng.randint(1, 5)
    rules: dict[str, Any] = {"gaps": gaps, "frequency": "1h", "stride": rng.randint(1, 3)}
    if rng.random() < 0.6:
        rules["min_history"] = rng.randint(1, history)
    if rng.random() < 0.4:
        rules["min_horizon"] = 0
    return Plan(
        fill=fill,
        empty=fill if "y" in past and "x" in past else rng.choice([fill, None, 5.0]) if "cal" not in past else fill,
        past=past,
        flags=rng.choice(["none", "same", "same", "each", "other slots", "during", "table"]),
        members=tuple(rng.sample([*MEMBERS, "y"], rng.randint(1, 3))),
        more=tuple(name for name in ("event", "price", "codes", "phase") if rng.random() < 0.5),
        rules=tuple(rules.items()),
        history=history,
        horizon=rng.randint(1, 3),
    )


def column_of(past: str) -> Any:
    packs = past.removeprefix("each(").removesuffix(")").split(", ")
    return ts.each(*packs) if past.startswith("each") else past


def packs_of(past: str) -> list[str]:
    return past.removeprefix("each(").removesuffix(")").split(", ")


def world(rng: Random, about: Plan, names: list[str]) -> World:
    rows = source(Random(rng.getrandbits(32)), names)
    keys = sorted(rows)
    table: dict[str, Any] = {
        "e": [entity for entity, _ in keys],
        "t": START + np.array([hour for _, hour in keys]) * np.timedelta64(3600, "s"),
        "age": [len(entity) for entity, _ in keys],
    }
    table |= {name: pa.array([rows[key][name] for key in keys], pa.float64()) for name in (*MEMBERS, "y", "k", "m")}
    given: dict[str, Any] = {"fill": about.fill, "empty": about.empty}
    options = {name: value for name, value in given.items() if value is not None}
    columns: dict[str, Any] = {
        "x": ts.column(MEMBERS, dtype=torch.float32, **options),
        "y": ts.column("y", dtype=torch.float32, **options),
        "cal": ts.calendar("hour", cyclic=True),
        "k": ts.column("k", dtype=torch.int16, empty=-1),
        "m": ts.column("m", dtype=torch.int64, empty=-1),
        "ok": ts.is_valid([*about.members]),
    }
    stash = ts.load(table, columns, entity="e", time="t", static=["age"])
    sold: dict[str, Any] = {
        "e": [*"aabbcc"],
        "t": START + np.array([2, 9] * 3) * np.timedelta64(3600, "s"),
        "w": [1.0, None, 3, 4, 5, 6],
    }
    other = {"w": ts.column("w", dtype=torch.float32, fill=-7.0), "ok": ts.is_valid("w"), "n": "w"}
    prices = ts.load(sold, other, entity="e", time="t")
    past, history = column_of(about.past), about.history
    spans: dict[str, Any] = {"past": (past, -history, 0), "next": (past, 0, about.horizon)}
    of_flags: dict[str, Any] = {
        "same": ("ok", -history, 0),
        "each": (ts.each("ok"), -history, 0),
        "other slots": ("ok", -history - 1, -1),
        "during": ts.During("ok", f"-{history}h", "0h", max_rows=history),
        "table": ts.During("ok", f"-{history}h", "0h", max_rows=history, table="prices"),
    }
    if about.flags in of_flags:
        spans["flags"] = of_flags[about.flags]
    if "event" in about.more:
        spans["event"] = ts.During("y", "-6h", "0h", max_rows=3)
    if "price" in about.more:
        spans["price"] = ts.During("w", "-30h", "0h", max_rows=2, table="prices")
    if "codes" in about.more:
        spans |= {"k": ("k", -history, 0), "m": ("m", -history, 0)}
    if "phase" in about.more:
        spans["phase"] = ("cal", -history, 0)
    tables: dict[str, Any] = {"tables": {"prices": prices}} if about.flags == "table" or "price" in about.more else {}
    windows = ts.Windows(stash, spans=spans, **tables, **dict(about.rules))
    applies = about.flags == "same" or (about.flags == "each" and about.past.startswith("each"))
    return World(rows, stash, windows, {"flags": [*about.members]} if applies else {})


# ---- Which slots hold values, and which values count, from the rows of the source ----


class Slots:
    """The slots of one window."""

    def __init__(self, part: World, about: Plan, entity: str, anchor: int, group: int) -> None:
        self.part, self.about, self.entity, self.anchor, self.group = part, about, entity, anchor, group

    def has_row(self, hour: int) -> bool:
        """Without a mask, rows behind a gap are in another run than the anchor, or than the row before the anchor."""
        if dict(self.about.rules)["gaps"] == "mask":
            return (self.entity, hour) in self.part.rows
        own = self.anchor if (self.entity, self.anchor) in self.part.rows else self.anchor - 1
        between = range(min(hour, own), max(hour, own) + 1)
        return all((self.entity, one) in self.part.rows for one in between)

    def hours(self, span: str) -> range:
        if span == "next":
            return range(self.anchor, self.anchor + self.about.horizon)
        return range(self.anchor - self.about.history, self.anchor)

    def holds(self, column: str, hour: int) -> bool:
        return column == "cal" or self.has_row(hour)

    def counts(self, column: str, member: int, hour: int) -> bool:
        name = {"x": MEMBERS, "y": ["y"], "cal": ["sin", "cos"]}[column][member]
        flagged = any(name in members for members in self.part.flagged.values())
        return self.holds(column, hour) and not (flagged and self.part.rows[self.entity, hour][name] is None)


def series_of(raw: Batch, about: Plan, span: str, windows: int) -> list[tuple[int, str, int, tuple[int, ...]]]:
    """Each series of a span: its window, its column, its member, and where it is in the tensor."""
    packs = packs_of(about.past)
    if not about.past.startswith("each"):
        if raw[span].ndim == 2:
            return [(window, packs[0], 0, (window,)) for window in range(windows)]
        return [(window, packs[0], k, (window, k)) for window in range(windows) for k in range(raw[span].shape[2])]
    places = zip(*(raw[f"{span}.{entry}"].tolist() for entry in ("window", "pack", "variate")))
    return [(window, packs[pack], variate, (row,)) for row, (window, pack, variate) in enumerate(places)]


def values_at(tensor: torch.Tensor, at: tuple[int, ...]) -> torch.Tensor:
    return tensor[at[0]] if len(at) == 1 else tensor[at[0], :, at[1]]


def constants(scaler: ts.Scaler, column: str, slots: Slots, member: int | None = None) -> list[Any]:
    of_group = [x[column][slots.group if scaler.by else 0] for x in (scaler.center, scaler.scale)]
    return of_group if member is None else [float(x.reshape(-1)[member]) for x in of_group]


def slow_level(values: list[float], kind: str) -> tuple[float, float]:
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return 0.0, 1.0
    if kind == "last":
        return known[-1], 1.0
    if kind == "mean":
        return 0.0, sum(map(abs, known)) / len(known) or 1.0
    mean = sum(known) / len(known)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in known) / len(known) + 1e-5)


def slow_cross(codes: list[int], buckets: int) -> int:
    state = 0
    for code in codes:
        x = ((state ^ (code & MASK)) + 0x9E3779B97F4A7C15) & MASK
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
        state = x ^ (x >> 31)
    return (state & (MASK >> 1)) % buckets


@dataclass
class Case:
    """A composition, and what a loop over windows and slots makes of a batch."""

    about: Plan
    parts: list[World]
    whole: Any  # the windows, or the mix
    scaler: ts.Scaler | None
    norm: tuple[str, bool] | None  # the kind, and whether the next slots are changed too
    steps: list[Any]
    pack: ts.PackSequences | None

    def expected(self, raw: Batch) -> tuple[Batch, list[Slots]]:
        """The batch before it is packed."""
        batch = {name: tensor.clone().double() for name, tensor in raw.items()}
        numbers = raw.get("source", torch.zeros_like(raw["anchor"])).tolist()
        windows = []
        for number, entity, anchor in zip(numbers, raw["entity"].tolist(), raw["anchor"].tolist()):
            part = self.parts[number]
            group = sum(len(before.stash.entities) for before in self.parts[:number]) + entity
            hour = (np.datetime64(anchor, part.stash.clock.unit) - START) // np.timedelta64(3600, "s")
            windows.append(Slots(part, self.about, part.stash.entities[entity], int(hour), group))
        if self.scaler is not None:
            self._scale(batch, raw, windows)
        if self.norm is not None:
            self._normalise(batch, raw, windows)
        return batch, windows

    def _scale(self, batch: Batch, raw: Batch, windows: list[Slots]) -> None:
        assert self.scaler is not None
        for span in ("past", "next"):
            for window, column, member, at in series_of(raw, self.about, span, len(windows)):
                if column in self.scaler.center:
                    center, scale = constants(self.scaler, column, windows[window], member)
                    values = values_at(batch[span], at)
                    for slot, hour in enumerate(windows[window].hours(span)):
                        if windows[window].holds(column, hour):
                            values[slot] = (values[slot] - center) / scale
        for span, column in BESIDE.items():
            if span in raw and column in self.scaler.center:
                self._scale_beside(batch, raw, windows, span)

    def _scale_beside(self, batch: Batch, raw: Batch, windows: list[Slots], span: str) -> None:
        assert self.scaler is not None
        for window, slots in enumerate(windows):
            center, scale = constants(self.scaler, BESIDE[span], slots)
            for slot in range(raw[span].shape[1]):
                if span == "phase" or raw[f"{span}.observed"][window, slot]:
                    batch[span][window, slot] = (batch[span][window, slot] - center) / scale

    def _normalise(self, batch: Batch, raw: Batch, windows: list[Slots]) -> None:
        assert self.norm is not None
        kind, both = self.norm
        levels = {}
        for window, column, member, at in series_of(raw, self.about, "past", len(windows)):
            slots, values = windows[window], values_at(batch["past"], at).tolist()
            counted = [v for v, hour in zip(values, slots.hours("past")) if slots.counts(column, member, hour)]
            levels[window, column, member] = slow_level(counted, kind)
        for span in ("past", "next") if both else ("past",):
            for window, column, member, at in series_of(raw, self.about, span, len(windows)):
                level, spread = levels[window, column, member]
                for slot, hour in enumerate(windows[window].hours(span)):
                    if windows[window].holds(column, hour):
                        values_at(batch[span], at)[slot] = (values_at(batch[span], at)[slot] - level) / spread


def composition(rng: Random) -> Case:
    about = plan(rng)
    parts = [world(rng, about, [*"ab"])]
    if rng.random() < 0.3:
        parts.append(world(rng, about, [*"bc"]))
    whole: Any = parts[0].windows if len(parts) == 1 else ts.Mix({str(k): part.windows for k, part in enumerate(parts)})
    scaler, steps = None, list[Any]()
    if rng.random() < 0.7:
        by: Any = rng.choice([None, "entity"])
        columns = packs_of(about.past)
        columns += [column for span, column in BESIDE.items() if span in about.more]
        if by is not None and "w" in columns:
            columns.remove("w")
        scaler = ts.Scaler.fit(
            whole, [*dict.fromkeys(columns)], kind=rng.choice(["standard", "minmax", "robust"]), by=by
        )
        scaler = ts.Scaler.from_state(scaler.state_dict()) if rng.random() < 0.3 else scaler
        steps.append(scaler)
    norm = None
    if rng.random() < 0.7:
        norm = rng.choice(["standard", "last", "mean"]), rng.random() < 0.5
        steps.append(ts.InstanceNorm("past", *["next"] * norm[1], kind=norm[0]))  # type: ignore[arg-type]
    if rng.random() < 0.5:
        wide = ts.Cast({"past": torch.float64, "next": torch.float64})
        steps.insert(rng.randint(0, len(steps)), wide)
    if "codes" in about.more and rng.random() < 0.8:
        steps.insert(rng.randint(0, len(steps)), ts.Cross(["age", "k", "m"], 1000, name="crossed"))
    pack = None
    if rng.random() < 0.4:
        together = ["phase"] if "phase" in about.more and not about.past.startswith("each") else []
        pack = ts.PackSequences("past", *together, length=rng.choice([None, 5, 8]))
        after = rng.random() < 0.5 and scaler is not None and scaler.by is None and norm is None
        at = 0 if after and not about.past.startswith("each") else len(steps)
        steps.insert(at, pack)
    return Case(about, parts, whole, scaler, norm, steps, pack)


def check_packed(one: Case, batch: Batch, expected: Batch, windows: list[Slots], raw: Batch) -> None:
    assert one.pack is not None
    of_rows = one.about.past.startswith("each")
    owners = raw["past.window"].tolist() if of_rows else [*range(len(windows))]
    for span in one.pack.spans:
        packed = batch[span].double()
        used = torch.zeros(packed.shape[: 1 if one.pack.length is None else 2], dtype=torch.bool)
        for row, window in enumerate(owners):
            kept = [slot for slot, hour in enumerate(windows[window].hours("past")) if windows[window].has_row(hour)]
            if one.pack.length is None:
                start, stop = batch[f"{span}.offsets"][row : row + 2].tolist()
                found, used[start:stop] = packed[start:stop], True
            else:
                at, start, length = (int(batch[f"{span}.{entry}"][row]) for entry in ("row", "start", "length"))
                found = packed[at, start : start + length] if length else packed.new_zeros(0, *packed.shape[2:])
                if length:
                    used[at, start : start + length] = True
            close(found, expected[span][row, kept])
        assert packed[~used].eq(0).all()


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=2e-3, equal_nan=True)


def check(case: Case, *, resident: bool, batch_size: int) -> int:
    """Compare each batch; returns how many there were."""
    count = 0
    resident = resident and case.pack is None
    made = ts.Loader(case.whole, batch_size, shuffle=True, with_ids=True, transform=case.steps, resident=resident)
    for batch, raw in zip(made, ts.Loader(case.whole, batch_size, shuffle=True, with_ids=True)):
        expected, windows = case.expected(raw)
        packed = () if case.pack is None else case.pack.spans
        for name in raw:
            if name not in packed and name.rpartition(".")[0] not in packed:
                close(batch[name], expected[name])
        if case.pack is not None:
            check_packed(case, batch, expected, windows, raw)
        if "crossed" in batch:
            for window, age in enumerate(raw["age"].tolist()):
                pairs = zip(raw["k"][window].tolist(), raw["m"][window].tolist())
                assert batch["crossed"][window].tolist() == [slow_cross([age, *pair], 1000) for pair in pairs]
        if "event" in raw:
            rows = [[(one.entity, one.anchor - k) in one.part.rows for k in range(1, 7)] for one in windows]
            assert raw["event.observed"].sum(1).tolist() == [min(3, sum(has_row)) for has_row in rows]
        for span in ("past", "next"):
            if f"{span}.observed" in raw:
                rows = [[one.has_row(hour) for hour in one.hours(span)] for one in windows]
                owners = raw[f"{span}.window"] if f"{span}.window" in raw else torch.arange(len(windows))
                assert raw[f"{span}.observed"].equal(torch.tensor(rows)[owners])
        count += 1
    return count


def run(rng: Random) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # gaps that cost windows, equal values
        try:
            case = composition(rng)
        except (ts.errors.NoWindowError, ts.errors.DataError):  # too few rows, or a column without a value in them
            return 0
        return check(case, resident=rng.random() < 0.3, batch_size=rng.randint(1, 12))


@settings(max_examples=40)
@given(rng=st.randoms(use_true_random=False))
def test_any_composition_is_what_a_loop_over_slots_makes(rng: Random) -> None:
    run(rng)


def test_most_cases_have_batches() -> None:
    assert sum(run(Random(seed)) > 0 for seed in range(20)) > 10


@pytest.mark.parametrize("broken", ["holds", "has_row", "counts"])
def test_the_oracle_can_fail(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Slots, broken, lambda *_: True)
    with pytest.raises((AssertionError, KeyError)):
        for seed in range(40):
            run(Random(seed))
