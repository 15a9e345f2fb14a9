"""The benchmarks run: small data, everything that they check before they time, and what is drawn from their results."""

import gzip
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import processes

pytestmark = pytest.mark.benchmarks

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


def ways(printed: str) -> list[str]:
    """The contestants that were timed, in the order in which they are printed."""
    return re.findall(r"^    (\S.*?) {2,}\d+(?:\.\d+)? (?:us|ms|s)\b", printed, re.MULTILINE)


def test_the_loop_is_timed_beside_the_raw_gather_and_lines_by_hand() -> None:
    printed = run("bench_batch.py", "--quick")
    rows = results("bench_batch")
    sections = ["The whole loop", "Windows per batch", "By hand", "Empty slots"]
    assert list(dict.fromkeys(row["section"] for row in rows)) == sections
    assert ways(printed) == [name for row in rows for name in row["seconds"]]
    assert {"loop", "raw gather", "memcpy", "loop, no kernel"} <= rows[0]["seconds"].keys()
    assert {len(own) for row in rows for own in row["seconds"].values()} == {1}  # each round is kept


def test_scaling_is_timed_beside_two_lines_by_hand() -> None:
    printed = run("bench_scale.py", "--quick")
    rows = results("bench_scale")
    assert ways(printed) == [name for row in rows for name in row["seconds"]]
    assert {"scaler", "by entity", "scaled once", "sub_ and div_", "sub_ and mul_"} <= rows[0]["seconds"].keys()
    assert len({row["case"] for row in rows}) == len(rows)


def test_mixes_and_processes_over_one_stash_are_compared() -> None:
    assert ways(run("bench_mix.py", "--quick")) == ["one stash", "4 stashes", "1,000 stashes"]
    assert ways(run("bench_share.py", "--quick")) == ["processes: 2"]
    (row,) = results("bench_share")
    assert row["megabytes"].keys() == row["seconds"].keys()
    assert all(held > row["stash"] for held in row["megabytes"].values())


def test_kinds_of_machines_stand_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import table

    def row(case: str, **seconds: list[float]) -> dict[str, Any]:
        return {"section": "Loops", "case": case, "seconds": seconds}

    about = {"processor": "A", "cores": 2, "versions": {}, "date": "2026-11-24", "command": "c"}
    kinds = {
        "a": (about, [row("long", ours=[1, 2, 4], other=[2, 2, 2]), row("short", ours=[2], other=[1])]),
        "b": (
            about | {"processor": "B", "caches_mb": {"L2": 0.5, "L3": 8.0}, "note": "Once."},
            [row("long", ours=[1], other=[3])],
        ),
    }
    shown = table.side_by_side(kinds).splitlines()
    assert shown[2] == "|  | beside | A, 2 cores | B, 2 cores, 8 MB |"
    assert shown[4:6] == ["| long | other | 1.00 (0.50 to 2.00) | 3.00 |", "| short | other | 0.50 |  |"]
    assert shown[7] == "From the lowest to the highest median: other 0.5 to 3."
    assert shown[-1] == "B, 2 cores; L2 0.5 MB, L3 8 MB; 2026-11-24; `c`. Once."


@pytest.mark.parametrize(
    ("processor", "caches", "kind"),
    [
        (
            "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz",
            {"L2": 2.0, "L3": 105.0},
            "intel-xeon-platinum-8481c-2-cores-105-mb",
        ),
        ("AMD EPYC", {}, "amd-epyc-2-cores"),
    ],
)
def test_a_kind_of_machine_is_its_processor_and_largest_cache(
    monkeypatch: pytest.MonkeyPatch, processor: str, caches: dict[str, float], kind: str
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import record

    assert record.kind({"processor": processor, "cores": 2, "caches_mb": caches}) == kind


def test_a_window_of_other_rows_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import known

    values = known.table(1000, first=(1 << 21) - 500)  # counted on past 2**24
    windows = torch.stack([values[first : first + 12] for first in (0, 490, 800)])
    known.check({"x": windows})
    known.check({"past": windows[:, :5], "future": windows[:, 5:]})
    known.check({f"c{k}": windows[..., k] for k in range(known.COLUMNS)})
    wrong = windows.clone()
    wrong[1, 7] = values[496]
    with pytest.raises(AssertionError, match=r"^a window is not of rows that follow each other$"):
        known.check({"x": wrong})


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
    plots.write(plots.train(*record.saved(QUICK / "train.json")), picture)
    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    heads, cells = table.train(train)
    assert len(cells) == len(train)
    assert {len(row) for row in cells} == {len(heads)}


def test_the_ways_to_a_device_are_compared_on_any_machine() -> None:
    printed = run("bench_device.py", "--quick", "--device", "cpu")
    assert "No accelerator was found: nothing below says anything about one.\n" in printed
    gathers = ["resident gather", "copy inside the device"] * 2
    assert ways(printed) == ["inside host memory", *["host", "resident"] * 2, *gathers]
    shares = re.findall(r"^ +read and written: \S+ GB/s, \d+\.\d\d of the \S+ GB/s of the copy$", printed, re.MULTILINE)
    assert len(shares) == 2
    sections = ["Copies", *["Ways to a device"] * 2, *["Resident gather"] * 2]
    assert [row["section"] for row in results("bench_device")] == sections
    simulated = re.findall(r"^ +(\d)((?: +\d+\.\d\d +(?:copy|gather|-)){4})$", printed, re.MULTILINE)
    assert [prefetch for prefetch, _ in simulated] == ["0", "1", "2", "4"]
    # whatever is made ahead, copies that take twice as long as the model are waited for
    assert all(steps.endswith(" copy") for _, steps in simulated)


def test_a_trace_names_the_ways_to_a_device(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    run("bench_device.py", "--quick", "--device", "cpu", "--trace", str(path))
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    assert {"host", "resident", "aten::index_select"} <= {event["name"] for event in events}


def test_models_on_a_device_are_trained_with_what_goes_there() -> None:
    """On the CPU, which stands for one."""
    run("train.py", "--quick", "--device", "cpu", "--models", "DLinear")
    feeds = [(row["name"].removeprefix("tensorstash, scaled once"), row["workers"]) for row in results("train_device")]
    usual = [("Dataset, DataLoader", 0), ("Dataset, DataLoader", 4)]
    assert feeds == [("", 0), (", resident", 0), (", from the host", 0), *usual] * 2


def test_results_of_a_device_name_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import record

    monkeypatch.setattr(record, "RESULTS", tmp_path)
    path = record.save("bench_device", [], device="NVIDIA H100 80GB HBM3")
    about, _ = record.saved(path)
    assert path.parent.name.endswith("-nvidia-h100-80gb-hbm3")
    assert "NVIDIA H100 80GB HBM3; " in record.caption(about)


def test_requests_are_served_and_compared_with_another_checkout() -> None:
    printed = run("bench_serve.py", "--quick", "--parent", str(BENCHMARKS.parent))
    cases = [row["case"] for row in results("bench_serve")]
    parts = ("load", "windows", "batch", "whole", "first", "opening")
    assert cases == [f"{series} series, {part}" for series in (20, 7) for part in parts]
    assert ways(printed) == ["here", "parent"] * len(cases)
    run("bench_serve.py", "--quick", "--references")
    cases = [row["case"] for row in results("bench_serve_references")]
    titles = [f"{names} {kind}" for names in (50, 300) for kind in ("texts", "integers", "codes")]
    assert cases == [f"{title}, {part}" for title in titles for part in parts]


def test_loads_are_compared_with_readers_and_a_sort_and_with_another_checkout() -> None:
    printed = run("bench_load.py", "--quick", "--parent", str(BENCHMARKS.parent))
    assert ways(printed) == ["tensorstash", "parent", "pyarrow", "polars"] * 9
    rows = results("bench_load")
    assert all(row["megabytes"]["tensorstash"][0] > 1 for row in rows)


def test_the_loops_of_two_checkouts_take_the_same_batches_by_turns() -> None:
    printed = run("bench_commits.py", str(BENCHMARKS.parent), "--quick", "--only", "mixed")
    sizes = [f"{batch}, {layout}" for batch in ("32 windows", "1,024 windows") for layout in ("separate", "packed")]
    assert [line.partition("  ")[0] for line in printed.splitlines()[:4]] == [f"mixed, {size}" for size in sizes]
    assert all(len(row["seconds"]["other"]) == 1 for row in results("bench_commits"))


def test_the_loop_is_compared_with_itself_without_a_part_of_the_kernel() -> None:
    for part in ("permutation.c", "expand.c", "AVX2"):
        printed = run("bench_kernel.py", "--quick", "--part", part, "--only", "with gaps, 32")
        cases = [f"with gaps, 32 windows, {layout}" for layout in ("separate", "packed")]
        assert [line.strip().partition("  ")[0] for line in printed.splitlines() if "times" in line] == cases
        assert [row["case"] for row in results("bench_kernel")] == cases


def test_shards_are_made_and_opened(shm: Path) -> None:
    printed = run("bench_shards.py", "--quick")
    opened = ["open, mapped", "open, copies", "open, attached"]
    assert ways(printed) == ["ts.load", "ts.load, file=", "shard", *opened]


def test_pre_training_is_measured_beside_the_ways_of_others() -> None:
    printed = run("bench_pretrain.py", "--quick")
    figures = r"^    (\S.*?) +\d+\.\d M values/s  padding +(\d+\.\d)%  +(\d+\.\d\d) bytes$"
    packed = {name: (float(padding), float(size)) for name, padding, size in re.findall(figures, printed, re.MULTILINE)}
    assert len(packed) + len(re.findall(r"^    .*left out: No module named ", printed, re.MULTILINE)) == 13
    padding = {name: share for name, (share, _) in packed.items()}
    assert padding["tensorstash, rows of 2,048"] < 5 < padding["tensorstash, not packed"]
    assert padding["tensorstash, one after the other"] == 0
    assert 40 < padding["padded to 30"] < 60
    whole = ("separate columns of one stash", "a row per variate, ts.each")
    assert [packed[name] for name in whole] == [(0, 4), (0, 4.05)]


def test_forecasts_as_they_were_known_are_measured_beside_a_selection_per_window() -> None:
    printed = run("bench_tables.py", "--quick")
    assert printed.startswith("233,280 versions of 1 columns, in the order of known times: True\n")
    assert ways(printed) == ["as known", "without versions", "by hand"]
    assert re.search(r"^memory beside the stashes: [1-9]\d*\.\d bytes a slot$", printed, re.MULTILINE)


def test_parts_of_many_windows_are_timed() -> None:
    printed = run("bench_windows.py", "--quick")
    assert re.search(r"^1,450 series, \d{3},\d{3} windows$", printed, re.MULTILINE)
    assert ways(printed) == ["split_last", "split", "of", "folds", "cover"]


def test_what_the_command_prints_is_kept_for_its_page() -> None:
    printed = run("bench_cli.py", "--quick").splitlines()
    (row,) = results("bench_cli")
    assert printed[:4] == row["printed"]
    assert [line.partition("  ")[0] for line in printed[1:4]] == [*row["seconds"]]


def test_sampling_over_shards_is_measured_beside_one_stash() -> None:
    printed = run("bench_cluster.py", "--quick")
    assert ways(printed) == ["one stash", "16 shards", "mix of 16"] * 2
    assert re.search(r"^a state +\d{3} bytes as JSON; its legs: \[\[1, 8, 256, \d+\]\]$", printed, re.MULTILINE)
    named = ("which node holds what", "steps of an epoch", "positions after 3 legs")
    assert all(re.search(rf"^{name} +\d", printed, re.MULTILINE) for name in named)


def test_windows_from_the_disk_are_compared() -> None:
    found = ways(run("bench_disk.py", "--quick"))
    assert found.count("ts.open") == found.count("ts.open, not ahead") == found.count("NumPy memory map") == 2


def test_windows_of_events_are_compared() -> None:
    assert ways(run("bench_events.py", "--quick")) == ["tensorstash", "by hand", "to dense", "per sample"]
