"""A service that has a reference, a scaler, weights and the last rows gives, bit for bit, what the whole data give.

It is a process of its own that never sees the file of the training rows, which is deleted. It keeps no more rows than
`windows.needs()` asks for.
"""

import json
import pickle
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests import oracle, processes

pytestmark = pytest.mark.filterwarnings("ignore:(Gaps|An entity|.* entities have no|.* series end)")

# reads a job from a file, serves it, writes the answer beside it; a line of the input is the path of a job
SERVICE = """
import json, pickle, sys, warnings
from pathlib import Path
import polars as pl
import torch
import tensorstash as ts

warnings.simplefilter("ignore")  # of series that end earlier
torch.set_num_threads(1)
for line in sys.stdin:
    path = Path(line.strip())
    job = pickle.loads(path.read_bytes())
    folder = Path(job["folder"])
    rows = pl.read_ipc(path.with_suffix(".arrow"))
    stash = ts.load(rows, like=folder / "reference.safetensors", unknown="error", duplicates=job["duplicates"])
    tables = {
        name: ts.load(pl.read_ipc(path.with_suffix(f".{name}.arrow")), like=folder / f"{name}.safetensors")
        for name in job["tables"]
    }
    windows = ts.Windows(stash, **job["arguments"], at=job["at"], tables=tables)
    newest = windows if job["at"] is not None else windows.latest()
    scaler = ts.Scaler.from_state(json.loads((folder / "scaler.json").read_text())).bind(newest)
    batch = next(iter(ts.Loader(newest, len(newest), transform=[scaler], with_ids=job["with_ids"])))
    weights = torch.load(folder / "weights.pt", weights_only=True)
    inputs = batch["past"].nan_to_num(0)
    forecast = scaler.inverse(inputs @ weights, "y", entity=batch.get("entity"))
    frame = newest.to_frame(range(len(newest)), forecast if newest.horizon else forecast[:, 0])
    path.with_suffix(".answer").write_bytes(pickle.dumps((batch, frame)))
    print("served", flush=True)
"""


@pytest.fixture(scope="module")
def service() -> Iterator[processes.Child]:
    with processes.start(SERVICE) as child:
        yield child


@dataclass(frozen=True)
class Stream:
    """Rows in the order in which they arrive."""

    rows: pl.DataFrame
    duplicates: str  # "keep" for events

    def until(self, moment: datetime) -> pl.DataFrame:
        return self.rows.filter(pl.col("t").dt.replace_time_zone(None) < moment)


START = datetime(2024, 3, 30)
COLUMNS: dict[str, Any] = {
    "y": "y",
    "sky": ts.column("sky", fill="none"),
    "twice": pl.col("y") * 2,
    "when": ts.calendar("hour", "dayofweek"),
    "phase": ts.calendar("hour", cyclic=True),
    "count": ts.column("n", empty=-1),
}


@st.composite
def streams(draw: st.DrawFn, regular: bool) -> Stream:
    """Three series that begin and end at different times, with gaps, missing values and, if not regular, ties."""
    luck = random.Random(draw(st.integers(0, 2**32)))
    hours = draw(st.integers(60, 120))
    lost = draw(st.sampled_from([0.0, 0.05, 0.3]))
    zone = draw(st.sampled_from([None, "UTC", "Europe/Berlin"]))
    rows = []
    for k, name in enumerate("abc"):
        first, last = luck.randrange(10), hours - (luck.randrange(15) if k == 2 else 0)
        steps = range(first, last) if regular else [luck.randrange(first, last) for _ in range(last)]
        for hour in sorted(steps):
            if hour > first + 2 and luck.random() < lost:
                continue
            value = None if luck.random() < 0.1 else luck.gauss(10.0 * k, 1 + k)
            sky = luck.choice(["clear", "rain", None])
            rows.append((name, START + timedelta(hours=hour), value, sky, luck.randrange(9), f"kind {k}", k / 2))
    frame = pl.DataFrame(rows, ["e", "t", "y", "sky", "n", "kind", "size"], orient="row").sort("t", maintain_order=True)
    frame = frame.with_columns(pl.col("t").dt.replace_time_zone("UTC").dt.convert_time_zone(zone or "UTC"))
    if zone is None:
        frame = frame.with_columns(pl.col("t").dt.replace_time_zone(None))
    return Stream(frame, "error" if regular else "keep")


def train(
    rows: pl.DataFrame,
    folder: Path,
    arguments: dict[str, Any],
    at: Any,
    duplicates: Any,
    by: Any,
    tables: Mapping[str, ts.Stash] | None = None,
) -> ts.Windows:
    """Train on the rows of a file, save what a service needs, and delete the file; the windows stay as a measure."""
    file = folder / "train.parquet"
    rows.write_parquet(file)
    options: dict[str, Any] = {"entity": "e", "time": "t", "dtype": torch.float32, "duplicates": duplicates}
    stash = ts.load(file, COLUMNS, static=["kind", "size"], **options)
    stash.without_rows().save(folder / "reference.safetensors")
    for name, table in (tables or {}).items():
        table.without_rows().save(folder / f"{name}.safetensors")
    windows = ts.Windows(stash, **arguments, at=at, tables=tables)
    scaler = ts.Scaler.fit(stash, ["y", "twice"], by=by, kind="robust")
    (folder / "scaler.json").write_text(json.dumps(scaler.state_dict()))
    generator = torch.Generator().manual_seed(1)
    past, ahead = windows[[0]]["past"].shape[1], max(windows.horizon, 1)
    torch.save(torch.randn(past, ahead, generator=generator), folder / "weights.pt")
    file.unlink()
    return windows


def answer(
    service: processes.Child,
    folder: Path,
    rows: pl.DataFrame,
    job: dict[str, Any],
    tables: Mapping[str, pl.DataFrame] | None = None,
) -> Any:
    path = folder / "job.pickle"
    path.write_bytes(pickle.dumps(job | {"folder": str(folder), "tables": [*(tables or {})]}))
    rows.write_ipc(path.with_suffix(".arrow"))
    for name, table in (tables or {}).items():
        table.write_ipc(path.with_suffix(f".{name}.arrow"))
    service.stdin.write(f"{path}\n")
    service.stdin.flush()
    if service.stdout.readline() != "served\n":
        service.wait()
        service.errors.seek(0)
        raise AssertionError(service.errors.read())
    return pickle.loads(path.with_suffix(".answer").read_bytes())


def expected(windows: ts.Windows, folder: Path, with_ids: bool = True) -> Any:
    """The batch of the whole data, and the forecasts."""
    scaler = ts.Scaler.from_state(json.loads((folder / "scaler.json").read_text())).bind(windows)
    batch = next(iter(ts.Loader(windows, len(windows), transform=[scaler], with_ids=with_ids)))
    weights = torch.load(folder / "weights.pt", weights_only=True)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    forecast = scaler.inverse(batch["past"].nan_to_num(0) @ weights, "y", entity=batch.get("entity"))
    torch.set_num_threads(threads)
    return batch, windows.to_frame(range(len(windows)), forecast if windows.horizon else forecast[:, 0])


def check(found: Any, wanted: Any) -> None:
    (batch, frame), (other, frame_of_all) = found, wanted
    assert batch.keys() == other.keys()
    for name, tensor in batch.items():
        assert oracle.same(tensor, other[name]), name
    assert frame.equals(frame_of_all)


def kept(rows: pl.DataFrame, needs: dict[str, Any], now: pl.Expr) -> pl.DataFrame:
    """The rows that windows need whose time is `now`: so many of each series, and those of the stretches."""
    newest = pl.int_range(pl.len()).reverse().over("e") < needs["slots"]
    stretches = [pl.col("t") >= now.dt.offset_by(start) for start in needs["during"].values()]
    return rows.filter(pl.any_horizontal(newest, *stretches))


SLOTS = {
    "past": ("y", -7, 0),
    "lag": ("twice", -24, -20, 2),
    "sky": ("sky", -7, 0),
    "when": ("when", -3, 4),
    "phase": ("phase", 0, 4),
    "count": ("count", -2, 2),
    "target": ("y", 0, 4),
}
STRETCHES = {
    "past": ts.During("y", "-30h", "0h", max_rows=9, age=True),
    "skies": ts.During("sky", "-1mo", "-2h", max_rows=5),
    "week": ts.During("twice", "-2d", "0d", max_rows=12, min_rows=0),
    "same": ts.During("count", "-5h", "0h", max_rows=3, closed="right"),
}


@settings(max_examples=50)
@given(
    streams(regular=True),
    st.fixed_dictionaries(
        {"gaps": st.sampled_from(["mask", "split", "ignore"])}, optional={"min_history": st.integers(1, 20)}
    ),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, "entity"]),
    st.lists(st.integers(1, 20), min_size=1, max_size=3),
)
def test_the_newest_windows_of_slots(
    service: processes.Child,
    tmp_path_factory: pytest.TempPathFactory,
    stream: Stream,
    choices: dict[str, Any],
    stretches: bool,
    is_given: bool,
    by: Any,
    waits: list[int],
) -> None:
    """The step of time is given, or the reference keeps it."""
    folder, now = tmp_path_factory.mktemp("model"), START + timedelta(hours=40)
    spans: dict[str, Any] = SLOTS
    timed = choices["gaps"] != "ignore"  # else the slot after the last row has no time
    by = by if timed else None
    if not timed:
        spans = {name: span for name, span in SLOTS.items() if name not in ("when", "phase")}
    elif stretches:
        spans = SLOTS | {"skies": STRETCHES["skies"], "week": STRETCHES["week"]}
    arguments = {"spans": spans, "min_horizon": 0, **choices}
    arguments |= {"frequency": "1h"} if timed and is_given else {}
    job = {"arguments": arguments, "at": None, "duplicates": "error", "with_ids": timed}
    try:
        windows = train(stream.until(now), folder, arguments, None, "error", by)
    except ts.errors.NoWindowError:
        return
    for wait in waits:
        now += timedelta(hours=wait)
        rows = stream.until(now)
        whole = ts.load(rows, like=windows.stash)
        try:
            wanted = expected(windows.on(whole).latest(), folder, timed)
        except ts.errors.NoWindowError:
            continue
        tail = kept(rows, windows.needs(), pl.col("t").max().over("e"))
        check(answer(service, folder, tail, job), wanted)
        short = windows.on(ts.load(tail, like=folder / "reference.safetensors")).latest()
        check(expected(short, folder, timed), wanted)


@settings(max_examples=40)
@given(streams(regular=False), st.sampled_from([None, "entity"]), st.lists(st.integers(1, 20), min_size=1, max_size=3))
def test_events_at_given_points(
    service: processes.Child,
    tmp_path_factory: pytest.TempPathFactory,
    stream: Stream,
    by: Any,
    waits: list[int],
) -> None:
    folder, now = tmp_path_factory.mktemp("model"), START + timedelta(hours=40)
    zone = stream.rows.schema["t"].time_zone  # type: ignore[attr-defined]

    def points(moment: datetime) -> pl.DataFrame:
        frame = pl.DataFrame({"e": [*"cab"], "t": [moment] * 3, "amount": [1.5, 2.5, 3.5]})
        return (
            frame
            if zone is None
            else frame.with_columns(pl.col("t").dt.replace_time_zone("UTC").dt.convert_time_zone(zone))
        )

    arguments: dict[str, Any] = {"spans": STRETCHES}
    utc = stream.rows.with_columns(utc=pl.col("t") if zone is None else pl.col("t").dt.convert_time_zone("UTC"))
    utc = utc.with_columns(pl.col("utc").dt.replace_time_zone(None))
    windows = train(utc.filter(pl.col("utc") < now).drop("utc"), folder, arguments, points(now), "keep", by)
    for wait in waits:
        now += timedelta(hours=wait)
        rows, at = utc.filter(pl.col("utc") < now).drop("utc"), points(now)
        whole = ts.load(rows, like=windows.stash, duplicates="keep")
        wanted = expected(windows.on(whole, at=at), folder)
        tail = kept(rows, windows.needs(), pl.lit(at["t"][0], at.schema["t"]))
        job = {"arguments": arguments, "at": at, "duplicates": "keep", "with_ids": True}
        check(answer(service, folder, tail, job), wanted)


def test_it_would_notice(service: processes.Child, tmp_path: Path) -> None:
    """One row too few, and the answer is another."""
    hours = [START + timedelta(hours=k) for k in range(60)]
    rows = pl.DataFrame({"e": ["a"] * 60, "t": hours, "y": [float(k) for k in range(60)], "n": [1] * 60})
    rows = rows.with_columns(sky=pl.lit("rain"), kind=pl.lit("kind"), size=pl.lit(0.5))
    arguments = {"spans": SLOTS, "gaps": "mask", "frequency": "1h", "min_horizon": 0, "min_history": 5}
    windows = train(rows, tmp_path, arguments, None, "error", None)
    assert windows.needs() == {"slots": 24, "during": {}}
    wanted = expected(windows.latest(), tmp_path)
    job = {"arguments": arguments, "at": None, "duplicates": "error", "with_ids": True}
    check(answer(service, tmp_path, rows.tail(24), job), wanted)
    with pytest.raises(AssertionError, match="lag"):
        check(answer(service, tmp_path, rows.tail(23), job), wanted)
