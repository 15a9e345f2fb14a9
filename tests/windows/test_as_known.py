"""What was known when: published cases of others, and poisoning."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests import kernel
from tests.windows.test_tables import equal
from tests.words import Side


def at_days(stash: ts.Stash, days: list[str], spans: dict[str, ts.During], **more: Any) -> dict[str, torch.Tensor]:
    """A batch with a window for each day."""
    at = pl.DataFrame({str(stash.time_name): pl.Series(days).str.to_date()})
    return ts.Windows(stash, spans=spans, at=at, **more)[:]


@pytest.mark.parametrize("way", kernel.WAYS)
def test_figures_of_quarters_as_in_qlib(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """qlib's `tests/test_pit.py`: the return of a quarter, published on 2008-03-01 and revised on 2008-03-13."""
    kernel.take(way, monkeypatch)
    rows = [
        ("2007-09-30", "2007-10-27", 0.305),
        ("2007-12-31", "2008-03-01", 0.3479),
        ("2007-12-31", "2008-03-13", 0.395989),
    ]
    period, published, value = zip(*rows)
    frame = pl.DataFrame({"period": period, "published": published, "value": value})
    frame = frame.with_columns(pl.col("period", "published").str.to_date())
    stash = ts.load(frame, ["value"], time="period", known="published")
    newest = {"value": ts.During("value", "-400d", "0d", max_rows=1, age=True)}
    days = ["2008-03-01", "2008-03-03", "2008-03-12", "2008-03-13"]
    batch = at_days(stash, days, newest, closed="right")
    assert batch["value"][:, 0].tolist() == [0.3479, 0.3479, 0.3479, 0.395989]
    assert batch["value.delay"][:, 0].tolist() == [0, 2, 11, 0]
    batch = at_days(stash, days, newest)  # known before the day
    assert batch["value"][:, 0].tolist() == [0.305, 0.3479, 0.3479, 0.3479]
    assert batch["value.age"][:, 0].tolist() == [153, 63, 72, 73]


@pytest.mark.parametrize("way", kernel.WAYS)
@pytest.mark.parametrize("late", [0, 1, 2, 5])
@pytest.mark.parametrize("hour", [10, 11, 12])
def test_runs_are_stitched_as_in_ocf_data_sampler(
    way: str, late: int, hour: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its `tests/select/test_select_time_slice.py`: runs every 3 hours with the hours 0 to 16, `late` hours late.

    Each valid time from 6 hours before t to 3 hours after it has the newest run that begins by then and is known at t.
    """
    kernel.take(way, monkeypatch)
    runs = [(run, step) for run in range(0, 25, 3) for step in range(17)]
    frame = pl.DataFrame(runs, ["run", "step"], orient="row").with_columns(valid=pl.col("run") + pl.col("step"))
    columns = {"run": ts.column("run", empty=-1)}
    stash = ts.load(frame, columns, time="valid", known=pl.col("run") + late)
    span = ts.During("run", -7, 3, every=1, closed="right", age=True)
    batch = ts.Windows(stash, spans={"run": span}, at={"valid": [hour]})[:]
    targets = range(hour - 6, hour + 4)
    assert batch["run.age"][0].tolist() == [hour - target for target in targets]
    assert batch["run"][0].tolist() == [min(target, hour - late) // 3 * 3 for target in targets]
    assert batch["run.delay"][0].tolist() == [hour - late - min(target, hour - late) // 3 * 3 for target in targets]


# Poisoning: what is not known before t must not matter, and what is visible must


@dataclass
class Versions:
    """Forecasts with versions, prices without, and windows that see both at one time t."""

    forecasts: pl.DataFrame  # site, time, known, value
    prices: pl.DataFrame  # time, value
    t: int
    closed: Side
    spans: dict[str, ts.During]

    def batch(self) -> dict[str, torch.Tensor]:
        """One window for each site at t."""
        own = ts.load({"site": ["a", "b"], "t": [0, 0], "y": [0.0, 0.0]}, entity="site", time="t")
        forecasts = ts.load(self.forecasts, ["value"], entity="site", time="time", known="known")
        tables = {"forecasts": forecasts, "prices": ts.load(self.prices, ["value"], time="time")}
        at = {"site": ["a", "b"], "t": [self.t] * 2}
        return ts.Windows(own, spans=self.spans, tables=tables, at=at, closed=self.closed)[:]

    def too_late(self, column: str) -> pl.Expr:
        """Rows that are not known before t, or by t."""
        return pl.col(column) > self.t if self.closed == "right" else pl.col(column) >= self.t


def versions_of(seed: int, closed: Side, runs: bool) -> Versions:
    """Every time from -30 to 30 has a version long before t for each site, and some at random; or runs of forecasts."""
    random = np.random.default_rng(seed)
    t, rows = int(random.integers(-4, 5)), []
    for site in "ab":
        if runs:
            keys = {(run + lead, run) for run in range(-40, 30, 3) for lead in range(1, 31)}
        else:
            keys = {(time, -99) for time in range(-30, 31)}
            keys |= {(int(random.integers(-30, 31)), int(random.integers(-150, 20))) for _ in range(160)}
        rows += [(site, time, known, float(random.random())) for time, known in keys]
    random.shuffle(rows)
    prices = pl.DataFrame({"time": range(-60, 60), "value": random.random(120)})
    spans = {
        "ahead": ts.During("value", 0, 12, every=1, age=True, table="forecasts"),
        "around": ts.During("value", -8, 8, every=4, age=True, table="forecasts"),
        "behind": ts.During("value", -20, 0, max_rows=16, age=True, table="forecasts"),
        "price": ts.During("value", -24, 0, max_rows=20, age=True, table="prices"),
        "hourly": ts.During("value", -6, 0, every=2, age=True, table="prices"),
    }
    frame = pl.DataFrame(rows, ["site", "time", "known", "value"], orient="row")
    return Versions(frame, prices, t, closed, spans)


def is_filled(batch: dict[str, torch.Tensor]) -> bool:
    """Whether at least nine slots of ten have a row."""
    flags = torch.cat([batch[name].flatten() for name in batch if name.endswith(".observed")])
    return float(flags.double().mean()) >= 0.9


def poisoned(world: Versions, random: np.random.Generator) -> Versions:
    """Rows that are not known before t are changed, deleted and inserted, and the order of the source is another."""
    late = world.forecasts.filter(world.too_late("known"))
    kept = world.forecasts.filter(~world.too_late("known"))
    late = late.sample(fraction=float(random.random()), seed=int(random.integers(99)))
    late = late.with_columns(value=pl.col("value") + 1e9)
    first = world.t + (world.closed == "right")
    more = [
        (str(random.choice(["a", "b", "c"])), int(random.integers(-90, 90)), first + int(random.integers(0, 5)), -1e9)
        for _ in range(int(random.integers(0, 200)))
    ]
    inserted = pl.DataFrame(more, world.forecasts.schema, orient="row")
    forecasts = pl.concat([kept, late, inserted]).unique(["site", "time", "known"], maintain_order=True)
    forecasts = forecasts.sample(fraction=1.0, shuffle=True, seed=int(random.integers(99)))
    prices = pl.concat(
        [
            world.prices.filter(~world.too_late("time")),
            pl.DataFrame({"time": range(first + int(random.integers(9)), first + 30), "value": -1e9}),
        ]
    )
    return Versions(forecasts, prices, world.t, world.closed, world.spans)


seeds = st.integers(0, 2**32 - 1)
worlds = st.builds(versions_of, seeds, st.sampled_from(["left", "right"]), st.booleans())


@pytest.mark.parametrize("way", kernel.WAYS)
@given(world=worlds, seed=seeds)
@settings(max_examples=100)
def test_no_bit_changes_with_rows_that_are_not_known_yet(way: str, world: Versions, seed: int) -> None:
    """Of the table with known times, of the one without, and whichever order their rows then have in memory."""
    with pytest.MonkeyPatch.context() as patch:
        kernel.take(way, patch)
        before = world.batch()
        assert is_filled(before)
        other = poisoned(world, np.random.default_rng(seed))
        assert not other.forecasts.equals(world.forecasts)
        assert equal(before, other.batch())


@pytest.mark.parametrize("way", kernel.WAYS)
@given(world=worlds, seed=seeds)
@settings(max_examples=60)
def test_a_change_of_a_visible_row_shows(way: str, world: Versions, seed: int) -> None:
    """In each slot whose value was that of the row, and nowhere else."""
    with pytest.MonkeyPatch.context() as patch:
        kernel.take(way, patch)
        before = world.batch()
        assert is_filled(before)
        random = np.random.default_rng(seed)
        name = str(random.choice(["ahead", "around", "behind", "price", "hourly"]))
        value = float(random.choice(before[name][before[f"{name}.observed"]].numpy()))
        changed = pl.when(pl.col("value") == value).then(-1.0).otherwise(pl.col("value")).alias("value")
        frames = (world.forecasts.with_columns(changed), world.prices.with_columns(changed))
        after = Versions(*frames, world.t, world.closed, world.spans).batch()
    assert not equal(before, after)
    for entry, tensor in before.items():
        expected = torch.where(tensor == value, -1.0, tensor) if tensor.is_floating_point() else tensor
        assert torch.equal(after[entry].nan_to_num(-7.0), expected.nan_to_num(-7.0))


def test_the_rows_of_both_worlds_lie_in_both_orders() -> None:
    """Else the tests above would see only one of the two ways in which rows are found."""
    orders = set()
    for runs in (False, True):
        forecasts = versions_of(1, "left", runs).forecasts
        orders.add(ts.load(forecasts, ["value"], entity="site", time="time", known="known").is_by_known)
    assert orders == {False, True}
