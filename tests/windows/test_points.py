"""Windows at given points in time, against loops over the slots of every run.

It asks the inside, `windows/placement.py`, which rows a window holds.
"""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tensorstash.gather.rows import Stretches
from tests import oracle
from tests.epochs import KINDS, ordered, shuffle_of
from tests.words import By, Side

_STEP = 10  # of the regular series
_DAY = 86_400_000  # milliseconds


def expected_window(
    runs: list[list[oracle.Slot]], entity: int, t: int, gaps: str, size: tuple[int, int]
) -> list[oracle.Slot] | None:
    """The slots of a point, whose anchor is the first slot at or after t; `None` if there is no window."""
    history, horizon = size
    mine = [run for run in runs if any(slot.entity == entity for slot in run)]
    every = [(slot, run, k) for run in mine for k, slot in enumerate(run)]
    rows = [(slot.time, run, k) for slot, run, k in every if slot.row is not None and slot.time is not None]
    before, after = [at for at in rows if at[0] < t], [at for at in rows if at[0] >= t]
    if gaps == "ignore":
        run, at = (after[0][1], after[0][2]) if after else (before[-1][1], before[-1][2] + 1)
    elif after and after[0][0] == t:
        _, run, at = after[0]
    elif not before:
        time, run, at = after[0]
        if t <= time - _STEP:
            return None
    else:
        time, run, at = before[-1]
        at += 1
        while at < len(run) and run[at].row is None and time + _STEP < t and any(s.row is not None for s in run[at:]):
            time, at = time + _STEP, at + 1
        if time + _STEP < t:
            return None
    begin, end = at - history, at + horizon
    return run[begin:end] if begin >= 0 and end <= len(run) else None


series = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12)), unique=True, min_size=3, max_size=24)


@settings(max_examples=150)
@given(
    rows=series,
    points=st.lists(st.tuples(st.integers(0, 2), st.integers(-15, 150)), min_size=1, max_size=15),
    gaps=st.sampled_from(["split", "mask", "ignore"]),
    history=st.integers(0, 3),
    horizon=st.integers(0, 2),
    padded=st.booleans(),
    closed=st.sampled_from(["left", "right"]),
)
def test_history_is_before_the_time_and_the_horizon_from_it_on(
    rows: list[tuple[int, int]],
    points: list[tuple[int, int]],
    gaps: str,
    history: int,
    horizon: int,
    padded: bool,
    closed: str,
) -> None:
    history = max(history, 1 - horizon)
    ordered = sorted(rows)
    table = {
        "e": [e for e, _ in ordered],
        "t": [t * _STEP for _, t in ordered],
        "row": [float(k) for k in range(len(rows))],
    }
    stash = ts.load(table, ["row"], entity="e", time="t")
    least = {"min_history": min(1, history), "min_horizon": 0 if history else min(1, horizon)} if padded else {}
    if not horizon:
        least.pop("min_horizon", None)
    lead, tail = history - least.get("min_history", history), horizon - least.get("min_horizon", horizon)
    step = None if gaps == "ignore" else _STEP
    runs = oracle.slot_runs(stash, step, gaps == "mask", lead, tail)
    number = {name: k for k, name in enumerate(stash.entities)}
    later = closed == "right"
    windows_of = [
        None if e not in number else expected_window(runs, number[e], t + later, gaps, (history, horizon))
        for e, t in points
    ]
    kept = [k for k, window in enumerate(windows_of) if window is not None]
    spans = {"past": ("row", -history, 0)} if history else {}
    spans |= {"next": ("row", 0, horizon)} if horizon else {}
    frame = pl.DataFrame({"t": [t for _, t in points], "e": [e for e, _ in points], "k": [*range(len(points))]})
    options: dict[str, Any] = {"gaps": gaps, "closed": closed, **least} | ({} if step is None else {"frequency": step})

    if not kept:
        with pytest.raises(ts.errors.NoWindowError):
            ts.Windows(stash, spans=spans, at=frame, unmatched="drop", **options)
        return
    windows = ts.Windows(stash, spans=spans, at=frame, unmatched="drop", **options)
    batch = windows[:]
    assert batch["k"].tolist() == windows.points.tolist() == kept  # type: ignore[union-attr]
    for at, k in enumerate(kept):
        slots = windows_of[k]
        assert slots is not None
        values = [float("nan") if slot.row is None else float(slot.row) for slot in slots]
        held = [value for name in ("past", "next") if name in batch for value in batch[name][at].tolist()]
        assert np.array_equal(held, values, equal_nan=True)
    if len(kept) < len(points):
        with pytest.raises(ts.errors.DataError, match=f"{len(points) - len(kept)} of {len(points)} have none"):
            ts.Windows(stash, spans=spans, at=frame, **options)


@pytest.fixture(scope="module")
def cards() -> tuple[ts.Stash, pl.DataFrame]:
    """Events of 40 cards at random times, often several at one time, and 300 points with labels."""
    rng = np.random.default_rng(5)
    count = 2_000
    frame = pl.DataFrame(
        {
            "card": [f"c{k:02}" for k in rng.integers(0, 40, count)],
            "t": np.datetime64("2024-01-01", "ms") + rng.integers(0, 90 * 24, count) * 3_600_000,
            "amount": rng.gamma(2.0, 10.0, count).astype(np.float32),
            "shop": rng.choice(["grocer", "fuel", "other"], count),
        }
    )
    stash = ts.load(frame, {"amount": "amount", "shop": "shop"}, entity="card", time="t", duplicates="keep")
    points = pl.DataFrame(
        {
            "card": [f"c{k:02}" for k in rng.integers(0, 40, 300)],
            "t": np.datetime64("2024-01-01", "ms") + rng.integers(0, 80, 300) * 86_400_000,
            "churn": rng.random(300) < 0.3,
            "weight": rng.random(300).astype(np.float32),
        }
    )
    return stash, points


def windows_of(cards: tuple[ts.Stash, pl.DataFrame]) -> ts.Windows:
    stash, points = cards
    spans = {
        "past": ts.During("amount", "-14d", "0d", max_rows=16, age=True),
        "shop": ts.During("shop", "-14d", "0d", max_rows=16),
        "day": ts.During("amount", "-1d", "0d", max_rows=4),
    }
    return ts.Windows(stash, spans=spans, at=points)


@pytest.mark.parametrize("closed", ["left", "right"])
def test_the_last_row_before_a_time_is_that_of_polars_join_asof(
    cards: tuple[ts.Stash, pl.DataFrame], closed: Side
) -> None:
    stash, points = cards
    windows = ts.Windows(
        stash,
        spans={"last": ("amount", -1, 0)},
        gaps="ignore",
        min_history=1,
        at=points,
        closed=closed,
        unmatched="drop",
    )
    rows = stash.to_polars().with_columns(pl.col("card").cast(pl.String))
    joined = (
        points.with_row_index()
        .sort("t")
        .join_asof(
            rows.sort("t", maintain_order=True),
            on="t",
            by="card",
            allow_exact_matches=closed == "right",
            check_sortedness=False,
        )
        .sort("index")
        .drop_nulls("amount")
    )
    assert windows.points.tolist() == joined["index"].to_list()  # type: ignore[union-attr]
    assert windows[:]["last"][:, 0].tolist() == joined["amount"].to_list()
    assert windows[:]["churn"].tolist() == joined["churn"].to_list()


ORDERS = {
    "by time": ts.ByTime(),
    "per entity": ts.PerEntity(3),
    "weighted": ts.Weighted("weight"),
    "weighted by entity": ts.Weighted([1.0] * 40, per="entity"),
}


# lanes need a stride, and keys a span in slots
@pytest.mark.parametrize("kind", [*(kind for kind in KINDS if kind not in ("lanes", "by key")), *ORDERS])
def test_a_loader_holds_in_each_batch_what_the_windows_do(cards: tuple[ts.Stash, pl.DataFrame], kind: str) -> None:
    """In every order, resident, with prefetch, on ranks, and resumed on others in the middle."""
    windows = windows_of(cards)

    def loader(**options: Any) -> ts.Loader:
        order = ORDERS[kind] if kind in ORDERS else shuffle_of(kind, 32, len(windows))
        return ts.Loader(windows, **ordered(order), seed=3, with_ids=True, **({"batch_size": 32} | options))

    def same(batch: dict[str, torch.Tensor]) -> list[int]:
        ids = batch["window"].tolist()
        assert {name for name in batch if name not in ("valid", "window", "window.key", "entity", "anchor")} == {
            *windows[[0]]
        }
        for name, tensor in windows[ids].items():
            assert oracle.same(batch[name], tensor), name
        assert batch["anchor"].tolist() == windows.anchors(ids)["time"].tolist()
        return ids

    plain = [same(batch) for batch in loader()]
    for options in ({"resident": True, "device": "cpu"}, {"prefetch": 2}):
        assert [same(batch) for batch in loader(**options)] == plain
    ranks = [loader(batch_size=16, num_replicas=2, rank=rank) for rank in range(2)]
    steps = [*zip(*map(iter, ranks))]
    shown = [k for step in steps for batch in step for k, valid in zip(same(batch), batch["valid"].tolist()) if valid]
    assert shown == [k for ids in plain for k in ids]
    first = loader()
    taken = [same(batch) for _, batch in zip(range(3), first)]
    rest = [loader(batch_size=16, num_replicas=2, rank=rank) for rank in range(2)]
    for one in rest:
        one.load_state_dict(first.state_dict())
    left = [
        k
        for step in zip(*map(iter, rest))
        for batch in step
        for k, valid in zip(same(batch), batch["valid"].tolist())
        if valid
    ]
    assert [k for ids in taken for k in ids] + left == shown


def test_steps_by_time_hold_one_time_of_the_frame(cards: tuple[ts.Stash, pl.DataFrame]) -> None:
    windows = windows_of(cards)
    times = cards[1]["t"].unique().sort().to_list()
    batches = [*ts.Loader(windows, None, order=ts.ByTime(), with_ids=True)]
    assert len(batches) == len(times)
    for batch, time in zip(batches, times):
        assert cards[1][batch["window"].numpy()]["t"].to_list() == [time] * len(batch["window"])


def test_draws_by_entity_take_its_windows_alone(cards: tuple[ts.Stash, pl.DataFrame]) -> None:
    windows, stash = windows_of(cards), cards[0]
    weights = [float(k in (3, 17)) for k in range(len(stash.entities))]
    (batch,) = ts.Loader(windows, 4000, order=ts.Weighted(weights, per="entity", epoch_size=4000), with_ids=True)
    assert set(batch["entity"].tolist()) == {3, 17}
    mine = {k for k, card in enumerate(cards[1]["card"]) if card in (stash.entities[3], stash.entities[17])}
    assert set(batch["window"].tolist()) == mine
    counts = windows.per_entity()
    assert counts["count"].tolist() == [cards[1]["card"].to_list().count(card) for card in stash.entities]


@settings(max_examples=40)
@given(cut=st.integers(0, 90), ahead=st.integers(1, 20), horizon=st.integers(0, 2))
def test_a_split_goes_by_the_time_and_leaks_nothing(
    cards: tuple[ts.Stash, pl.DataFrame], cut: int, ahead: int, horizon: int
) -> None:
    stash, points = cards
    times, amounts = stash.time, stash["amount"]
    assert times is not None
    moment = int(np.datetime64("2024-01-01", "ms").astype(int)) + cut * _DAY
    spans: dict[str, Any] = {
        "past": ts.During("amount", "-9d", "0d", max_rows=64),
        "later": ts.During("amount", "0d", f"{ahead}d", max_rows=512, age=True),
    }
    if horizon:
        spans["next"] = ("amount", 0, horizon)
    windows = ts.Windows(stash, spans=spans, gaps="ignore", at=points, unmatched="drop")
    before, after = windows.split(str(np.datetime64(moment, "ms")))
    t_of = {name: part.anchors(range(len(part)))["time"] for name, part in (("before", before), ("after", after))}
    assert bool((t_of["after"] >= moment).all())
    assert bool((t_of["before"] + ahead * _DAY <= moment).all())
    kept = {*before.points.tolist(), *after.points.tolist()}  # type: ignore[union-attr]
    every = windows.anchors(range(len(windows)))["time"]
    for row, t in zip(windows.points.tolist(), every.tolist()):  # type: ignore[union-attr]
        if row not in kept:
            assert moment - ahead * _DAY < t < moment or horizon
    if horizon and len(before):
        rows = before.placement.points.slot + horizon - 1  # type: ignore[union-attr]
        assert bool((times[torch.from_numpy(rows)] < moment).all())
        assert before[:]["next"][:, -1].tolist() == amounts[torch.from_numpy(rows)].tolist()


@pytest.mark.parametrize("by", [None, "entity"])
def test_a_scaler_is_fitted_on_the_rows_that_windows_hold(cards: tuple[ts.Stash, pl.DataFrame], by: By | None) -> None:
    windows, stash = windows_of(cards).split("2024-02-01")[0], cards[0]
    seen: set[int] = set()
    for k in range(len(windows)):
        ends = windows.placement.stretches(
            windows.placement.time_spans[0], np.array([k]), windows.placement.anchor_slots(np.array([k]))
        )
        assert isinstance(ends, Stretches)
        seen |= {*range(int(ends.stop[0] - ends.rows[0]), int(ends.stop[0]))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)
        scaler = ts.Scaler.fit(windows, ["amount"], by=by)
    assert scaler.rows == len(seen)
    values = stash["amount"][sorted(seen)].double()
    if by is None:
        assert scaler.center["amount"].item() == pytest.approx(values.mean().item())
    (batch,) = ts.Loader(windows, len(windows), with_ids=True, transform=[scaler])
    plain = windows[:]
    assert bool((batch["past"].isnan() == ~plain["past.observed"]).all())


def test_instances_are_normed_by_the_rows_that_they_have(cards: tuple[ts.Stash, pl.DataFrame]) -> None:
    windows = windows_of(cards)
    batch, plain = ts.InstanceNorm("past", "day")(windows[:]), windows[:]
    for k in range(len(windows)):
        values, flags = plain["past"][k][plain["past.observed"][k]].double(), plain["past.observed"][k]
        if len(values) > 1:
            normed = (values - values.mean()) / values.std(unbiased=False)
            torch.testing.assert_close(batch["past"][k][flags].double(), normed, rtol=1e-3, atol=1e-3)


def test_the_parts_of_a_split_can_be_drawn(cards: tuple[ts.Stash, pl.DataFrame]) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    train, valid = windows_of(cards).split("2024-02-01")
    axes = ts.plot.windows({"train": train, "valid": valid})
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        f"train: {len(train)} windows",
        f"valid: {len(valid)} windows",
    ]


def test_windows_travel_in_pickles_and_saved_stashes(cards: tuple[ts.Stash, pl.DataFrame], tmp_path: Path) -> None:
    stash, points = cards
    stash.save(tmp_path / "cards.safetensors")
    opened = ts.open(tmp_path / "cards.safetensors")
    windows, other = windows_of(cards), windows_of((opened, points))
    again = pickle.loads(pickle.dumps(other))
    assert windows.fingerprint() == other.fingerprint() == again.fingerprint() == copy.copy(again).fingerprint()
    for name, tensor in windows[:].items():
        assert oracle.same(other[:][name], tensor)
        assert oracle.same(again[:][name], tensor)
    batches = [*ts.Loader(other, 64)]  # from a file: the loader reads ahead
    assert oracle.same(torch.cat([batch["past"] for batch in batches]), windows[:]["past"])
    assert "at points in time of" in repr(windows)


def test_a_mix_holds_the_points_of_all_components(cards: tuple[ts.Stash, pl.DataFrame]) -> None:
    windows = windows_of(cards)
    one, two = windows.split("2024-02-01")
    mix = ts.Mix({"one": one, "two": two})
    for resident in (False, True):
        for batch in ts.Loader(mix, 64, shuffle=True, with_ids=True, resident=resident):
            for k, (source, window) in enumerate(zip(batch["source"].tolist(), batch["window"].tolist())):
                for name, tensor in (one, two)[source][[window]].items():
                    assert oracle.same(batch[name][k : k + 1], tensor), name
    with pytest.raises(ts.errors.SchemaError, match="columns of at="):
        ts.Mix({"one": one, "rows": ts.Windows(cards[0], spans=_spans())})


def _spans() -> dict[str, ts.During]:
    return {
        "past": ts.During("amount", "-14d", "0d", max_rows=16, age=True, closed="left"),
        "shop": ts.During("shop", "-14d", "0d", max_rows=16, closed="left"),
        "day": ts.During("amount", "-1d", "0d", max_rows=4, closed="left"),
    }


def test_predictions_have_the_entity_and_the_time_of_their_window(cards: tuple[ts.Stash, pl.DataFrame]) -> None:
    windows, points = windows_of(cards), cards[1]
    frame = windows.to_frame([5, 2], torch.tensor([0.5, 0.25]))
    assert frame["card"].to_list() == points["card"][[5, 2]].to_list()
    assert frame["t"].to_list() == points["t"][[5, 2]].to_list()
    assert frame["value"].to_list() == [0.5, 0.25]
    assert windows.to_frame([5], torch.tensor([[0.5, 0.25]]), ["stay", "leave"]).columns == [
        "card",
        "t",
        "stay",
        "leave",
    ]
    hourly = ts.load(
        {"t": np.arange("2024-01-01", "2024-01-05", dtype="M8[h]").astype("M8[s]"), "y": np.arange(96.0)}, time="t"
    )
    late = pl.DataFrame({"t": ["2024-01-05 00:00", "2024-01-02 06:00"]}).with_columns(pl.col("t").str.to_datetime())
    behind = ts.Windows(hourly, 24, 3, min_horizon=0, at=late)
    frame = behind.to_frame([0, 1], torch.zeros(2, 3))
    assert frame["t"].dt.to_string("%d %H").to_list() == ["05 00", "05 01", "05 02", "02 06", "02 07", "02 08"]
    assert behind[0]["y.observed"].tolist() == [True] * 24 + [False] * 3


@pytest.mark.parametrize(
    "make", [pl.DataFrame, pd.DataFrame, pa.table, dict], ids=["polars", "pandas", "arrow", "dict"]
)
def test_any_frame_will_do(make: Any) -> None:
    stash = ts.load(
        {"e": ["a", "a", "b"], "n": [1, 1, 2], "t": [1, 5, 1], "y": [1.0, 2.0, 3.0]}, ["y"], entity=["e", "n"], time="t"
    )
    frame = make({"t": [9, 2, 2], "e": ["b", "a", "b"], "n": [2, 1, 2], "label": [1, 2, 3]})
    windows = ts.Windows(stash, spans={"past": ts.During("y", -99, 0, max_rows=2, min_rows=1)}, at=frame)
    assert windows[:]["past"][:, -1].tolist() == [3.0, 1.0, 3.0]
    assert windows[:]["label"].tolist() == [1, 2, 3]
    with pytest.raises(
        ts.errors.DataError, match=r"1 of an entity that the stash does not have \(first: row 1, e 'a', n 2, at 2\)"
    ):
        ts.Windows(stash, 1, gaps="ignore", at=make({"t": [9, 2], "e": ["b", "a"], "n": [2, 2]}))


@pytest.mark.parametrize(
    ("frame", "fragment"),
    [
        ({"t": [1]}, "no column 'e'"),
        ({"e": ["a"]}, "no column 't'"),
        ({"e": ["a"], "t": [None]}, "times of at= must be an integer|must have a time"),
        ({"e": ["a", "a"], "t": [1, None]}, "column 't' is null in row 1"),
        ({"e": ["a", None], "t": [1, 2]}, "column 'e' is null in row 1"),
        ({"e": ["a"], "t": [1.5]}, "must be an integer"),
        ({"e": ["a"], "t": np.array(["2024-01-01"], "M8[s]")}, "must be an integer"),
        ({"e": [1], "t": [1]}, "'e' of at= holds integers, and 'e' of the stash texts"),
        ({"e": pa.array([], pa.string()), "t": pa.array([], pa.int64())}, "at least one row"),
        ({"e": ["a"], "t": [1], "label": ["yes"]}, "must be numbers, booleans or times"),
        ({"e": ["a", "a"], "t": [1, 2], "label": [True, None]}, "column 'label' of at= is null in row 1"),
        ({"e": ["a"], "t": [1], "y": [1.0]}, "must not have the name of a span"),
        ({"e": ["a"], "t": [1], "size": [1.0]}, "must not have the name of a static column"),
        ({"e": ["a"], "t": [1], "anchor": [1.0]}, "reserved"),
        (pa.table([["a"], [1], [1], [2]], names=["e", "t", "w", "w"]), "at= has 2 columns 'w'"),
        (pa.table([["a"], [1], [1]], names=["e", "t", "t"]), "at= has 2 columns 't'"),
        ("points.parquet", "at must be a frame"),
        ([1, 2], "at must be a frame"),
        ({"e": ["a"], "t": [2**63 - 1]}, r"within 2\*\*62 ticks"),
    ],
)
def test_a_wrong_frame_is_a_clear_error(frame: Any, fragment: str) -> None:
    table = {"e": ["a", "a"], "t": [1, 2], "y": [1.0, 2.0], "size": [3, 3]}
    stash = ts.load(table, ["y"], entity="e", time="t", static=["size"])
    with pytest.raises((ValueError, TypeError, ts.errors.TensorstashError), match=fragment):
        ts.Windows(stash, 1, gaps="ignore", at=frame)


@pytest.mark.parametrize(
    ("times", "fragment"),
    [
        (pa.array([1], pa.timestamp("us", "UTC")), None),
        (pa.array([10**6], pa.timestamp("us", "Asia/Tokyo")), None),
        (pa.array([1], pa.timestamp("us")), "a timestamp with the zone UTC"),
        (pa.array([1], pa.date32()), "a timestamp with the zone UTC"),
        (pa.array(["2024-01-01"]), "a timestamp with the zone UTC"),
    ],
)
def test_times_of_another_unit_or_zone_are_right_or_an_error(times: pa.Array, fragment: str | None) -> None:
    stash = ts.load({"t": pa.array([0, 10**6, 2 * 10**6], pa.timestamp("us", "UTC")), "y": [0.0, 1.0, 2.0]}, time="t")
    frame = pa.table({"t": times})
    if fragment is None:
        assert ts.Windows(stash, spans={"p": ts.During("y", "-9s", "0s", max_rows=1)}, at=frame)[:]["p"].tolist() == [
            [0.0]
        ]
        return
    with pytest.raises(ts.errors.SchemaError, match=fragment):
        ts.Windows(stash, spans={"p": ts.During("y", "-9s", "0s", max_rows=1)}, at=frame)


def test_what_needs_all_windows_of_a_stash_is_refused(cards: tuple[ts.Stash, pl.DataFrame]) -> None:
    windows, (stash, points) = windows_of(cards), cards
    for wrong in (windows.latest, lambda: windows.folds(2, "1d")):
        with pytest.raises(ValueError, match="at given points in time"):
            wrong()
    with pytest.raises(ValueError, match=r"ts.Lanes needs windows each of which continues"):
        ts.Loader(windows, 4, order=ts.Lanes(4))
    refused: list[tuple[dict[str, Any], str]] = [
        ({"stride": 2, "at": points}, "must be left out with at="),
        ({"where": np.ones(stash.rows, bool), "at": points}, "must be left out with at="),
        ({"closed": "right"}, "must be given with at="),
        ({"unmatched": "drop"}, "must be given with at="),
    ]
    for options, fragment in refused:
        with pytest.raises(ValueError, match=fragment):
            ts.Windows(stash, 1, gaps="ignore", **options)


def test_the_rows_of_the_frame_are_a_copy(cards: tuple[ts.Stash, pl.DataFrame]) -> None:
    windows = windows_of(cards)
    before, rows = windows[:], windows.points
    assert rows is not None
    wanted = rows.clone()
    rows.zero_()
    assert windows.points is not None
    assert windows.points.equal(wanted)
    assert all(oracle.same(tensor, windows[:][name]) for name, tensor in before.items())
