"""Serving: from a polars frame of new rows to a scaled batch, and the first request of a process beside later ones.

    python benchmarks/bench_serve.py                  # 1,000 and 20 series of 200 rows; some minutes
    python benchmarks/bench_serve.py --references     # 20 rows for references with 3,000 and a million names
    python benchmarks/bench_serve.py --quick          # few series and rounds, to see that it runs
    python benchmarks/bench_serve.py --parent PATH    # beside another checkout, whose kernel is compiled

A service has a reference, which is a stash without rows on disk, and a scaler by entity. For each request it loads the
last rows with `like=`, takes the newest window of each series, and scales one batch of all of them. Each batch is
compared with that of all data at once, bit by bit, before a time is printed. Processes of the two checkouts take turns.
The least CPU time is what other programs disturb least. "Opening" is what a fresh process, which has imported torch,
polars and pyarrow, takes to open the reference and the scaler; "first" is its first request. A checkout whose stashes
have no `without_rows` keeps a whole stash. Modules are compiled beforehand, as those of an installed package are.

With `--references` a request brings 20 rows, and what a reference has many of are entities, texts or integers, or codes
of one column. One of ten series ends early, of which `latest` warns. There is one thread, and no scaler.
"""

from __future__ import annotations  # names of ts are imported on first use, and the clock of the opening counts them

import argparse
import compileall
import json
import os
import sys
import tempfile
import time
import warnings
from contextlib import ExitStack
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa  # noqa: F401  polars needs it to hand rows over, and imports it late
import record
import torch
from processes import Team
from timing import Rounds

import tensorstash as ts

ROOT = Path(__file__).parents[1]
COLUMNS: dict[str, Any] = {"x": ["a", "b"], "y": "y", "kind": ts.column("kind", empty=0)}
SPANS: dict[str, Any] = {"past": ("y", -96, 0), "features": ("x", -96, 0), "kinds": ("kind", -96, 0)}
KEYS: dict[str, Any] = {"entity": "id", "time": "time"}
PARTS = ("load", "windows", "batch", "whole")
KNOWN = 400  # rows of each series in the reference

Batch = dict[str, torch.Tensor]
Told = dict[str, Any]


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("--parent", type=Path, help="the root of another checkout to compare with")
    parser.add_argument("--references", action="store_true", help="few rows, and references with many names")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve)
        return
    roots = {"here": ROOT} | ({"parent": arguments.parent.resolve()} if arguments.parent else {})
    print(f"torch {torch.__version__}, polars {pl.__version__}, Python {sys.version.split()[0]}")
    for root in roots.values():
        compileall.compile_dir(root / "tensorstash", quiet=1)
    rows: list[record.Row] = []
    if arguments.references:
        os.environ["OMP_NUM_THREADS"] = "1"
        for names, kind in product((50, 300) if arguments.quick else (3000, 1_000_000), ("texts", "integers", "codes")):
            with tempfile.TemporaryDirectory() as folder:
                digest, title = prepare_names(Path(folder), kind, names), f"{names:,} {kind}"
                rows += compare(roots, Path(folder), title, digest, rounds=1 if arguments.quick else 5, starts=2)
        record.save("bench_serve_references", rows, quick=arguments.quick)
        return
    for series in (20, 7) if arguments.quick else (1000, 20):
        with tempfile.TemporaryDirectory() as folder:
            digest = prepare(Path(folder), series, 100 if arguments.quick else 200)
            rows += compare(roots, Path(folder), f"{series:,} series", digest, rounds=1 if arguments.quick else 15)
    record.save("bench_serve", rows, quick=arguments.quick)


def rows_of(series: int, hours: int) -> pl.DataFrame:
    """Hourly rows of each series, one series after the other."""
    rng, hour = np.random.default_rng(0), np.tile(np.arange(hours), series)
    columns = {name: rng.standard_normal(len(hour)).astype(np.float32) for name in ("a", "b", "y")}
    keys = {
        "id": np.repeat([f"series {k:04d}" for k in range(series)], hours),
        "time": (hour * 3_600_000_000).astype("datetime64[us]"),
    }
    return pl.DataFrame(keys | columns | {"kind": (hour % 7).astype(np.int32)})


def prepare(folder: Path, series: int, rows: int) -> str:
    """Write what a service has and what a request brings; returns the digest of the batch that all data give."""
    every = rows_of(series, KNOWN + rows)
    is_known = pl.col("time") < pl.lit(KNOWN * 3_600_000_000).cast(pl.Datetime("us"))
    reference = ts.load(every.filter(is_known), COLUMNS, **KEYS)
    reference.save(folder / "whole.safetensors")
    reference.without_rows().save(folder / "reference.safetensors")
    scaler = ts.Scaler.fit(reference, ["x", "y"], by="entity")
    (folder / "scaler.json").write_text(json.dumps(scaler.state_dict()), "utf-8")
    every.filter(~is_known).write_parquet(folder / "new.parquet")
    return digest_of(batch_of(newest(ts.load(every, COLUMNS, **KEYS), SPANS), [scaler]), SPANS)


def prepare_names(folder: Path, kind: str, count: int) -> str:
    """As `prepare`, for so many names: of series with two rows each, or of the codes in the rows of one series."""
    names = np.arange(count) if kind == "integers" else np.array([f"name {k:08d}" for k in range(count)])
    shown = np.linspace(0, count - 1, 10 if kind != "codes" else 20).astype(np.int64)
    if kind == "codes":
        which, hours = np.append(np.arange(count), shown), np.arange(count + 20)
        keys: dict[str, Any] = {"id": np.zeros(count + 20, np.int32), "name": names[which]}
    else:
        which = np.repeat(np.append(np.arange(count), shown), 2)
        hours = np.append(np.tile([0, 1], count), [*[3, 4] * 9, 2, 3])  # the last series ends before the others
        keys = {"id": names[which]}
    values = np.random.default_rng(0).standard_normal(len(hours)).astype(np.float32)
    rows = pl.DataFrame(keys | {"time": (hours * 3_600_000_000).astype("datetime64[us]"), "y": values})
    columns = [name for name in ("y", "name") if name in rows.columns]
    ts.load(rows[:-20], columns, **KEYS).without_rows().save(folder / "reference.safetensors")
    rows[-20:].write_parquet(folder / "new.parquet")
    spans: dict[str, Any] = {name: (name, -2, 0) for name in columns}
    (folder / "spans.json").write_text(json.dumps(spans), "utf-8")
    batch = batch_of(newest(ts.load(rows, columns, **KEYS), spans), [])
    which = np.zeros(1, np.int64) if kind == "codes" else shown  # entities that have new rows
    return digest_of({name: batch[name][torch.from_numpy(which)] for name in (*spans, "entity")}, spans)


def newest(stash: ts.Stash, spans: dict[str, Any]) -> ts.Windows:
    return ts.Windows(stash, spans=spans).latest()


def batch_of(windows: ts.Windows, transform: list[ts.Scaler]) -> Batch:
    return next(iter(ts.Loader(windows, len(windows), transform=transform, with_ids=True, prefetch=0)))


def digest_of(batch: Batch, spans: dict[str, Any]) -> str:
    made = blake2b(digest_size=16)
    for name in (*spans, "entity"):
        made.update(repr((name, batch[name].shape, batch[name].dtype)).encode())
        made.update(batch[name].contiguous().numpy().tobytes())
    return made.hexdigest()


def serve(folder: Path) -> None:
    """Answer a request for each line of input, with its times in ms and the digest of its batch."""
    rows, has_scaler = pl.read_parquet(folder / "new.parquet"), (folder / "scaler.json").exists()
    given = {"columns": COLUMNS, **KEYS} if has_scaler else {}
    spans = SPANS if has_scaler else json.loads((folder / "spans.json").read_text("utf-8"))
    warnings.simplefilter("ignore")  # what they say is made, and not shown
    began = time.perf_counter(), time.process_time()
    has_small = hasattr(ts.Stash, "without_rows")
    reference = ts.open(folder / ("reference.safetensors" if has_small else "whole.safetensors"))
    scalers = [ts.Scaler.from_state(json.loads(path.read_text("utf-8"))) for path in folder.glob("scaler.json")]
    opening = (time.perf_counter() - began[0]) * 1e3, (time.process_time() - began[1]) * 1e3
    for _ in sys.stdin:
        clocks = [(time.perf_counter(), time.process_time())]
        stash = ts.load(rows, **given, like=reference)
        clocks.append((time.perf_counter(), time.process_time()))
        windows = newest(stash, spans)
        clocks.append((time.perf_counter(), time.process_time()))
        batch = batch_of(windows, scalers)
        clocks.append((time.perf_counter(), time.process_time()))
        wall, cpu = (np.diff(clock) * 1e3 for clock in zip(*clocks))
        times = {"wall": [*wall, wall.sum(), opening[0]], "cpu": [*cpu, cpu.sum(), opening[1]]}
        told = times | {"digest": digest_of(batch, spans)}
        print(json.dumps(told | {"root": str(Path(str(ts.__file__)).parents[1])}), flush=True)


def compare(  # noqa: PLR0917
    roots: dict[str, Path], folder: Path, title: str, digest: str, rounds: int, starts: int = 5
) -> list[record.Row]:
    """The parts of a request, of processes that stay, and the opening and the whole first request of fresh ones."""
    first: dict[str, list[Told]] = {name: [] for name in roots}
    later: dict[str, list[Told]] = {name: [] for name in roots}
    for k in range(1 if rounds == 1 else starts):
        with ExitStack() as stack:
            teams = {
                name: stack.enter_context(Team(1, __file__, "--serve", str(folder), root=root))
                for name, root in (reversed(roots.items()) if k % 2 else roots.items())
            }
            for name, team in teams.items():
                first[name] += team.ask("")
            for _ in range(rounds):
                for name, team in teams.items():
                    later[name] += team.ask("")
    for name, root in roots.items():
        assert all(told["digest"] == digest and told["root"] == str(root) for told in first[name] + later[name])
    parts = {part: (later, k) for k, part in enumerate(PARTS)}
    parts |= {"first": (first, len(PARTS) - 1), "opening": (first, len(PARTS))}
    rows = []
    for part, (told, k) in parts.items():
        found = Rounds({name: [one["wall"][k] / 1e3 for one in own] for name, own in told.items()})
        least = {name: min(one["cpu"][k] for one in own) for name, own in told.items()}
        found.show(f"{title}, {part}")
        print("    least CPU time:", ", ".join(f"{name} {spent:.2f} ms" for name, spent in least.items()))
        rows.append(found.row(section="A request", case=f"{title}, {part}", least_cpu_ms=least))
    return rows


if __name__ == "__main__":
    main()
