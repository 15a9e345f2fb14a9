"""The inside of `common/progress.py`: where bars are shown, in which units, and that they advance on the way."""

import contextlib
import fcntl
import gzip
import os
import pty
import struct
import subprocess
import termios
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import tensorstash as ts
from tensorstash.common.progress import Bar
from tests import processes


@pytest.mark.parametrize(("progress", "shown"), [(True, True), (False, False), (None, False)])
def test_progress_is_shown_when_asked_for(
    progress: bool | None, shown: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing is a terminal here, so `None` shows nothing."""
    ts.load({"t": [2, 1], "y": [1, 2]}, ["y"], time="t", progress=progress)
    out, err = capfd.readouterr()
    assert out == ""
    assert ("100%" in err) == shown
    assert ("2.00/2.00" in err) == shown
    assert (" MB/s" in err) == shown


@pytest.mark.parametrize("progress", [None, False])
def test_a_bar_in_rows_and_megabytes_is_shown_in_a_terminal_unless_it_is_switched_off(progress: bool | None) -> None:
    program = f"import tensorstash as ts; ts.load({{'a': [1.0] * 500_000, 'b': [2] * 500_000}}, progress={progress})"
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    with subprocess.Popen(
        [processes.executable(), "-c", program], stderr=theirs, env=os.environ | {"TERM": "xterm"}
    ) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError), os.fdopen(ours, "rb", buffering=0) as terminal:  # an error is the end of it
            while piece := terminal.read(1000):
                shown += piece
    assert process.returncode == 0
    if progress is None:
        assert b"loading: 100%" in shown
        assert b"500k/500k" in shown
        assert b" rows/s" in shown
        assert b" MB/s" in shown
    else:
        assert shown == b""


@pytest.fixture
def advances(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[float]]:
    """By how much the bar of each phase advances, in order."""
    seen: dict[str, list[float]] = {}

    class Recorded(Bar):
        def update(self, n: float = 1) -> bool | None:
            if not self.disable:
                seen.setdefault(self.desc, []).append(n)
            return super().update(n)

    monkeypatch.setattr("tensorstash.common.progress.Bar", Recorded)
    monkeypatch.setattr("tensorstash.common.progress.DELAY", 0)
    return seen


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_rows_of_csv_are_counted_while_it_is_parsed(
    tmp_path: Path, ending: str, advances: dict[str, list[float]], capfd: pytest.CaptureFixture[str]
) -> None:
    frame = pl.DataFrame({"t": np.arange(200_000), "y": np.random.default_rng(0).random(200_000)})
    for part in (1, 2):
        text = frame.with_columns(pl.col("t") + part * len(frame)).write_csv().encode()
        (tmp_path / f"{part}{ending}").write_bytes(gzip.compress(text, 1) if ending.endswith(".gz") else text)
    ts.load(str(tmp_path / f"*{ending}"), ["y"], time="t", progress=True)
    assert sum(advances["parsing CSV"]) == 400_000
    assert len(advances["parsing CSV"]) >= 6
    assert "parsing CSV: 400k rows" in capfd.readouterr().err


def test_rows_of_a_stream_are_counted_while_it_is_read(
    advances: dict[str, list[float]], capfd: pytest.CaptureFixture[str]
) -> None:
    table = pa.table({"y": np.arange(3000)})
    ts.load(pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=1000)), progress=True)
    assert advances["reading"] == [1000, 1000, 1000]
    assert "reading: 3.00k rows" in capfd.readouterr().err


def test_rows_are_counted_while_they_are_grouped_and_while_shards_are_written(
    tmp_path: Path, advances: dict[str, list[float]], capfd: pytest.CaptureFixture[str]
) -> None:
    frame = pl.DataFrame({"e": np.arange(9000) % 30, "y": np.zeros(9000)})
    frame.write_parquet(tmp_path / "rows.parquet", row_group_size=1000)

    def shard() -> None:
        ts.cluster.shard(tmp_path / "rows.parquet", ["y"], entity="e", to=tmp_path / "to", shards=4, progress=True)

    shard()
    assert advances["grouping by shard"] == [0, *[1000] * 9]
    written = advances["writing shards"]
    assert written[0] == 0
    assert (len(written), sum(written)) == (5, 9000)
    # another run groups the rows of the missing shard alone
    lost = tmp_path / "to" / "shard-00002.safetensors"
    rows = ts.open(lost).rows
    lost.unlink()
    advances.clear()
    shard()
    assert advances["grouping by shard"][0] == advances["writing shards"][0] == 9000 - rows
    assert sum(advances["grouping by shard"]) == sum(advances["writing shards"]) == 9000
    assert "writing shards: 100%" in capfd.readouterr().err


def test_hidden_bars_count_nothing(tmp_path: Path, advances: dict[str, list[float]]) -> None:
    (tmp_path / "x.csv").write_text("y\n1.0\n")
    assert ts.load(tmp_path / "x.csv", progress=False).rows == 1
    assert advances == {}
