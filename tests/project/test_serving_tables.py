"""A service over tables that keeps the rows `windows.needs()` asks for gives what the whole data give, bit for bit.

Of each time the tables of forecasts keep the newest version that was known, and those that were not known yet.
"""

import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests import processes
from tests.project.test_serving import (
    SLOTS,
    START,
    Stream,
    answer,
    check,
    expected,
    kept,
    service,  # noqa: F401  a fixture
    streams,
    train,
)

pytestmark = pytest.mark.filterwarnings("ignore:(Gaps|An entity|.* entities have no|.* series end)")

HOUR = timedelta(hours=1)
RUNS: dict[str, Any] = {"table": "runs", "by": "kind"}
IN_TABLES = {
    "ahead": ts.During("wind", "0h", "4h", every="1h", age=True, **RUNS),
    "around": ts.During("code", "-6h", "2h", every="2h", **RUNS),
    "behind": ts.During("wind", "-1d", "-1h", max_rows=5, age=True, **RUNS),
    "price": ts.During("price", "-30h", "0h", max_rows=3, age=True, table="prices"),
}
KEYS: dict[str, dict[str, Any]] = {
    "runs": {"columns": {"wind": "wind", "code": "code"}, "entity": "kind", "time": "valid", "known": "issued"},
    "prices": {"columns": ["price"], "time": "from"},
}


def with_zone(frame: pl.DataFrame, zone: str | None) -> pl.DataFrame:
    """Times of UTC as times of a zone."""
    if zone is None:
        return frame
    return frame.with_columns(pl.col(pl.Datetime).dt.replace_time_zone("UTC").dt.convert_time_zone(zone))


@st.composite
def tables_of(draw: st.DrawFn) -> dict[str, pl.DataFrame]:
    """Runs of forecasts for each kind, some of whose hours are missing or come late, and prices at odd times."""
    luck = random.Random(draw(st.integers(0, 2**32)))
    every, lost = draw(st.sampled_from([3, 6])), draw(st.sampled_from([0.0, 0.3]))
    runs = [
        (f"kind {k}", run + lead, run + (luck.random() < 0.2) * luck.randrange(9), luck.choice(["low", "high", None]))
        for k in range(3)
        for run in range(-40, 130, every)
        for lead in range(-3, 20)
        if luck.random() >= lost
    ]
    frame = pl.DataFrame(runs, ["kind", "valid", "issued", "code"], orient="row")
    frame = frame.unique(["kind", "valid", "issued"], maintain_order=True).with_row_index("wind")
    hours = [START + luck.randrange(1, 9) * HOUR + k * luck.choice([5, 9]) * HOUR for k in range(14)]
    prices = pl.DataFrame({"from": sorted({*hours}), "price": None}).with_columns(price=pl.int_range(pl.len()) / 2)
    times = {name: START + pl.duration(hours=name) for name in ("valid", "issued")}
    return {"runs": frame.with_columns(pl.col("wind").cast(pl.Float32), **times), "prices": prices}


def arrived(tables: dict[str, pl.DataFrame], now: datetime) -> dict[str, pl.DataFrame]:
    """The rows that a service has received by then; of forecasts those of two more hours, ahead of their time."""
    runs, prices = tables["runs"], tables["prices"]
    return {"runs": runs.filter(pl.col("issued") < now + 2 * HOUR), "prices": prices.filter(pl.col("from") < now)}


def kept_of(tables: dict[str, pl.DataFrame], needs: dict[str, dict[str, str]], t: datetime) -> dict[str, pl.DataFrame]:
    """The rows of tables that windows at t and later need."""
    found = {}
    for name, frame in tables.items():
        starts = [pl.Series([t]).dt.offset_by(start)[0] for start in needs[name].values()]
        rows = frame.filter(pl.col(KEYS[name]["time"]) >= min(starts))
        if name == "runs":
            known = rows.filter(pl.col("issued") < t).sort("issued")
            newest = known.unique(["kind", "valid"], keep="last", maintain_order=True)
            rows = pl.concat([newest, rows.filter(pl.col("issued") >= t)])
        found[name] = rows
    return found


def loaded(tables: dict[str, pl.DataFrame], like: dict[str, ts.Stash] | None = None) -> dict[str, ts.Stash]:
    """The tables as stashes."""
    if like is not None:
        return {name: ts.load(frame, like=like[name]) for name, frame in tables.items()}
    return {name: ts.load(frame, **KEYS[name]) for name, frame in tables.items()}


@settings(max_examples=40)
@given(
    streams(regular=True),
    tables_of(),
    st.booleans(),
    st.booleans(),
    st.lists(st.integers(1, 20), min_size=1, max_size=3),
)
def test_the_newest_windows_beside_tables(
    service: processes.Child,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
    stream: Stream,
    tables: dict[str, pl.DataFrame],
    masked: bool,
    at_points: bool,
    waits: list[int],
) -> None:
    """In slots and at points, with times of any zone."""
    folder, now = tmp_path_factory.mktemp("model"), START + 40 * HOUR
    zone = stream.rows.schema["t"].time_zone  # type: ignore[attr-defined]
    utc = stream.rows if zone is None else stream.rows.with_columns(pl.col("t").dt.convert_time_zone("UTC"))
    utc = utc.with_columns(pl.col("t").dt.replace_time_zone(None))
    arguments: dict[str, Any] = {"spans": SLOTS | IN_TABLES, "gaps": "mask" if masked else "split", "frequency": "1h"}
    arguments |= {"min_history": 2, "min_horizon": 0}

    def parts(moment: datetime) -> tuple[pl.DataFrame, dict[str, pl.DataFrame], Any]:
        at = pl.DataFrame({"e": [*"ab"], "t": [moment] * 2})
        rows = utc.filter(pl.col("t") < moment)
        return rows, arrived(tables, moment), with_zone(at, zone) if at_points else None

    def zoned(frames: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
        return {name: with_zone(frame, zone) for name, frame in frames.items()}

    rows, frames, at = parts(now)
    references = loaded(zoned(frames))
    try:
        windows = train(with_zone(rows, zone), folder, arguments, at, "error", None, references)
    except (ts.errors.NoWindowError, ts.errors.DataError):
        return  # too many gaps
    for wait in waits:
        now += wait * HOUR
        rows, frames, at = parts(now)
        everything = ts.load(with_zone(rows, zone), like=windows.stash)
        try:
            whole = windows.on(everything, tables=loaded(zoned(frames), references), at=at)
            wanted = expected(whole if at_points else whole.latest(), folder)
        except (ts.errors.NoWindowError, ts.errors.DataError):
            continue
        last: Any = rows.group_by("e").agg(pl.col("t").max())["t"].min()
        first = now if at_points else last + HOUR
        tail = kept(rows, windows.needs(), pl.lit(now))
        of_tables = zoned(kept_of(frames, windows.needs()["tables"], first))
        job = {"arguments": arguments, "at": at, "duplicates": "error", "with_ids": True}
        check(answer(service, folder, with_zone(tail, zone), job, of_tables), wanted)


def test_it_would_notice(service: processes.Child, tmp_path: Path) -> None:  # noqa: F811
    """An hour too few of a table, and the answer is another."""
    hours = [START + k * HOUR for k in range(60)]
    rows = pl.DataFrame({"e": ["a"] * 60, "t": hours, "y": [float(k) for k in range(60)], "n": [1] * 60})
    rows = rows.with_columns(sky=pl.lit("rain"), kind=pl.lit("kind 0"), size=pl.lit(0.5))
    valid = [START + k * HOUR for k in range(24, 70)]
    runs = pl.DataFrame({"kind": "kind 0", "valid": valid, "issued": START, "code": "low"})
    runs = runs.with_columns(wind=pl.int_range(pl.len()).cast(pl.Float32))
    prices = pl.DataFrame({"from": hours[30:32], "price": [1.0, 2.0]})
    tables = {"runs": runs, "prices": prices}
    arguments = {"spans": SLOTS | IN_TABLES, "gaps": "mask", "frequency": "1h", "min_horizon": 0, "min_history": 5}
    windows = train(rows, tmp_path, arguments, None, "error", None, loaded(tables))
    needs = {"runs": {"ahead": "0h", "around": "-6h", "behind": "-1d"}, "prices": {"price": "-30h"}}
    assert windows.needs() == {"slots": 24, "during": {}, "tables": needs}
    wanted, t = expected(windows.latest(), tmp_path), START + 60 * HOUR
    job = {"arguments": arguments, "at": None, "duplicates": "error", "with_ids": True}
    enough = kept_of(tables, needs, t)
    check(answer(service, tmp_path, rows.tail(24), job, enough), wanted)
    fewer = {
        "price": {"prices": {"price": "-29h"}},
        "around": {"runs": {"around": "-4h", "behind": "-4h"}},
        "ahead": {"runs": {"ahead": "1h"}},
    }
    for name, starts in fewer.items():
        left = enough | kept_of({table: tables[table] for table in starts}, starts, t)
        with pytest.raises(AssertionError, match=name):
            check(answer(service, tmp_path, rows.tail(24), job, left), wanted)
