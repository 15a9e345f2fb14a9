"""The benchmarks run: small data, everything that they check before they time, and what is drawn from their results."""

import importlib.util
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests import processes

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
QUICK = BENCHMARKS / "results" / "quick"
QUIET = {"MPLBACKEND": "Agg"}
MODELS = ("DLinear", "LSTM", "PatchTST", "TFT")


def run(script: str, *arguments: str) -> str:
    done = processes.run(BENCHMARKS / script, *arguments, env=os.environ | QUIET, warn="default", nested=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def results(name: str) -> list[dict[str, Any]]:
    found = json.loads((QUICK / f"{name}.json").read_text())
    assert found["about"]["versions"]["tensorstash"]
    rows: list[dict[str, Any]] = found["rows"]
    return rows


def test_all_run_and_their_results_are_drawn() -> None:
    for name in ("sweep", "formats", "pipeline"):
        for old in QUICK.glob(f"{name}.*"):
            old.unlink()
    printed = run("run.py", "--quick", "--only", "sweep", "formats", "pipeline", "plots")

    sweep = results("sweep")
    axes = ["threads", "batch size", "length", "columns", "windows", "entities", "ranks"]
    assert list(dict.fromkeys(row["axis"] for row in sweep)) == axes
    assert min(row["ratio"] for row in sweep) > 0

    formats = {row["name"]: row for row in results("formats")}
    left_out = re.findall(r"^ +(\S+) +left out: (\w+) is not installed$", printed, re.MULTILINE)
    assert left_out == ([] if importlib.util.find_spec("h5py") else [("HDF5", "h5py")])
    assert len(formats) == 10 - len(left_out)
    assert formats["file per window"]["disk_mb"] > formats["stash, saved"]["disk_mb"] > 0

    ways = {row["name"]: row for row in results("pipeline")}
    assert ways.keys() >= {"row by row", "batched", "tensorstash"}
    assert ("datasets, batched" in ways) == (importlib.util.find_spec("datasets") is not None)
    for way in ways.values():
        assert 0 < way["preprocess_s"] < way["first_batch_s"]
        assert 0 <= way["waiting"] <= 1

    for name in ("sweep", "formats", "pipeline"):
        picture = QUICK / f"{name}.png"
        assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        assert picture.stat().st_size < 150_000

    run("table.py", "--quick")
    tables = (QUICK / "README.md").read_text()
    tables = tables[tables.index("## pipeline.py") :]
    for row in [*formats.values(), *ways.values()]:
        assert f"\n| {row['name']} | " in tables
    assert tables.count("\n| ") == len(sweep) + len(formats) + len(ways) + 6  # a head and a rule each


def test_training_is_compared_and_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    printed = run("train.py", "--quick")
    train = results("train")
    cases = [(model, data) for data in ("one long series", "many short series") for model in MODELS]
    assert list(dict.fromkeys((row["model"], row["data"]) for row in train)) == cases
    assert len({(row["name"], row["workers"]) for row in train}) >= 6
    for row in train:
        assert row["epoch_s"] > 0
        assert 0 < row["waiting"] < 1
        assert row["memory_mb"] > 10
    said = r"^(\w+, [a-z ]+): \d+\.\d\d \(.* to .*\), (?:faster|nothing won|slower), beside Dataset, DataLoader"
    assert re.findall(said, printed, re.MULTILINE) == [f"{model}, {data}" for model, data in cases]

    monkeypatch.syspath_prepend(BENCHMARKS)
    import plots
    import record
    import table

    picture = tmp_path / "train.png"
    plots.write(plots.train(*record.saved("train", quick=True)), picture)
    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    heads, cells = table.train(train)
    assert len(cells) == len(train)
    assert {len(row) for row in cells} == {len(heads)}


def test_the_ways_to_a_device_are_compared_on_any_machine() -> None:
    printed = run("bench_device.py", "--quick", "--device", "cpu")
    assert "No accelerator was found: nothing below says anything about one.\n" in printed
    ways = re.findall(r"^    (host|resident) +\d+ +\d+\.\d +\d+   \d\.\d\d, \d\.\d\d$", printed, re.MULTILINE)
    assert ways == ["host", "resident"]
    simulated = re.findall(r"^ +(\d)((?: +\d+\.\d\d +(?:copy|gather|-)){4})$", printed, re.MULTILINE)
    assert [prefetch for prefetch, _ in simulated] == ["0", "1", "2", "4"]
    # whatever is made ahead, copies that take twice as long as the model are waited for
    assert all(steps.endswith(" copy") for _, steps in simulated)


def test_a_window_that_begins_one_row_late_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import formats
    from layouts import COLUMNS, LENGTH, Data

    data = Data(tmp_path, series=2, steps=LENGTH + 24 * 600)
    ids = np.arange(formats.BATCH)
    rows = data.starts(ids)[:, None] + np.arange(LENGTH)
    values = torch.from_numpy(data.values())
    formats.check(data, {"x": values[rows]}, ids)
    formats.check(data, {f"c{k}": values[rows, k] for k in range(COLUMNS)}, ids)
    rows[-1] += 1
    with pytest.raises(AssertionError, match=r"^Windows have other values in column 0\.$"):
        formats.check(data, {"x": values[rows]}, ids)


def test_the_sweep_notices_values_of_other_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import sweep

    case = sweep.Case(sweep.separate(2_000, 2, 4), batch=16, length=12)
    sweep.verify(case)
    case.stash["c1"].copy_(case.stash["c1"].roll(1))
    with pytest.raises(AssertionError, match=r"^c1$"):
        sweep.verify(case)


def test_ways_to_scale_many_columns_yield_the_same_windows() -> None:
    printed = run("bench_wide.py", "--quick")
    assert len(re.findall(r"^\S.* +\d+\.\d\d ms a batch \(\d+\.\d\d to \d+\.\d\d\)$", printed, re.M)) == 5


def test_requests_are_served_and_compared_with_another_checkout() -> None:
    printed = run("bench_serve.py", "--quick", "--parent", str(BENCHMARKS.parent))
    for part in ("load", "windows", "batch", "whole", "first"):
        assert len(re.findall(rf"^    {part} +here .* parent .* here/parent \d", printed, re.MULTILINE)) == 2


def test_shards_are_made_and_opened(shm: Path) -> None:
    printed = run("bench_shards.py", "--quick")
    ways = ["ts.load", "ts.load, file=", "shard"]
    assert re.findall(r"^  (\S.*?) +[\d.]+ s, +[\d.]+ times ts\.load   peak +-?\d+ MB$", printed, re.MULTILINE) == ways
    opened = ["open, mapped", "open, copies", "open, attached"]
    assert re.findall(r"^  (\S.*?) +[\d.]+ ms to the first batch$", printed, re.MULTILINE) == opened


def test_pre_training_is_measured_beside_the_ways_of_others() -> None:
    printed = run("bench_pretrain.py", "--quick")
    figures = r"^    (\S.*?) +\d+\.\d M values/s  padding +(\d+\.\d)%  +(\d+\.\d\d) bytes$"
    ways = {name: (float(padding), float(size)) for name, padding, size in re.findall(figures, printed, re.MULTILINE)}
    assert len(ways) + len(re.findall(r"^    .*left out: No module named ", printed, re.MULTILINE)) == 13
    padding, sizes = ({name: numbers[k] for name, numbers in ways.items()} for k in (0, 1))
    assert padding["tensorstash, rows of 2,048"] < 5 < padding["tensorstash, not packed"]
    assert 40 < padding["padded to 30"] < 60
    assert {padding[name] for name in ("tensorstash, one after the other", "a row per variate, ts.each")} == {0}
    assert (sizes["separate columns of one stash"], sizes["a row per variate, ts.each"]) == (4, 4.05)


def test_forecasts_as_they_were_known_are_measured_beside_a_selection_per_window() -> None:
    printed = run("bench_tables.py", "--quick")
    assert printed.startswith("233,280 versions of 1 columns, in the order of known times: True\n")
    ways = re.findall(r"^  (\S.*?) +\d+\.\d\d ms a batch +\d+\.\d\d$", printed, re.MULTILINE)
    assert ways == ["as known", "without versions", "by hand"]
    assert re.search(r"^memory beside the stashes: [1-9]\d*\.\d bytes a slot$", printed, re.MULTILINE)


def test_sampling_over_shards_is_measured_beside_one_stash() -> None:
    printed = run("bench_cluster.py", "--quick")
    assert (
        len(re.findall(r"^\d ranks +one stash [\d,]+, 16 shards [\d,]+, mix of 16 [\d,]+ thousand", printed, re.M)) == 2
    )
    assert re.search(r"^a state +\d{3} bytes as JSON; its legs: \[\[1, 8, 256, \d+\]\]$", printed, re.MULTILINE)
    assert len(re.findall(r" ms$", printed, re.MULTILINE)) == 3
