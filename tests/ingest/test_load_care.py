"""What a load leaves alone and leaves behind: threads, bookkeeping files, names, and the stash in other hands."""

import contextlib
import fcntl
import os
import pickle
import pty
import re
import struct
import subprocess
import termios
from importlib.resources import files
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tensorstash as ts
from tests import processes


def test_a_load_leaves_no_thread_behind() -> None:
    """Not even the one with which tqdm watches its bars; a fork is safest in a process with one thread."""
    program = """
import threading, tensorstash as ts
for progress in (None, False, True):
    ts.load({"a": [1.0]}, progress=progress)
print([thread.name for thread in threading.enumerate()])
"""
    done = processes.run(program, warn="default")
    assert done.stdout == "['MainThread']\n"


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
        assert b"100%" in shown
        assert b"500k/500k" in shown
        assert b" rows/s" in shown
        assert b" MB/s" in shown
    else:
        assert shown == b""


def test_bookkeeping_files_of_a_directory_are_no_data(tmp_path: Path) -> None:
    table = pa.table({"y": [1, 2]})
    for name in ("a.PARQUET", ".ipynb_checkpoints/a.parquet", "_delta_log/1.checkpoint.parquet", "sub/b.parquet"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        pq.write_table(table, path)
    assert ts.load(tmp_path)["y"].tolist() == [1, 2, 1, 2]
    assert ts.load(tmp_path / "_delta_log" / "1.checkpoint.parquet").rows == 2


def test_the_footer_of_a_file_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With many columns and row groups it takes longer than the values."""
    path = tmp_path / "many.parquet"
    pq.write_table(pa.table({"t": range(100), "y": range(100)}), path, row_group_size=5)
    given, real = [], pq.ParquetFile

    def counted(*arguments: object, metadata: object = None, **options: object) -> object:
        given.append(metadata)
        return real(*arguments, metadata=metadata, **options)

    monkeypatch.setattr(pq, "ParquetFile", counted)
    assert ts.load(path, ["y"], time="t")["y"].tolist() == list(range(100))
    assert None not in given
    assert len(given) == 40


def test_a_name_of_a_key_is_not_given_to_another_column() -> None:
    source = {"e": ["A", "B"], "t": [1, 2], "d": [0.5, 0.25]}
    assert ts.load(source, ["e", "t", "d"], entity="e", time="t").to_polars().columns == ["e", "t", "d"]
    for name in ("e", "t"):
        message = (
            f"A column has the name of the entity or time column only if it is that column; {name!r} is d. Give it "
            "another name in columns=."
        )
        with pytest.raises(ts.errors.SchemaError, match=f"^{re.escape(message)}$"):
            ts.load(source, {name: "d"}, entity="e", time="t")


def test_a_pickle_of_an_opened_stash_knows_its_file(tmp_path: Path) -> None:
    path = tmp_path / "stash.safetensors"
    ts.load({"y": np.arange(5.0)}).save(path)
    opened = ts.open(path)
    pickled = pickle.dumps(opened)
    assert pickle.loads(pickled)["y"].equal(opened["y"])
    ts.load({"y": np.arange(4.0)}).save(path)
    with pytest.raises(
        ts.errors.SegmentError, match=r"was saved again since this stash was pickled\. Open it again: ts\.open\("
    ):
        pickle.loads(pickled)


def test_a_directory_is_no_stash(tmp_path: Path) -> None:
    with pytest.raises(
        ts.errors.SegmentError, match=rf"^{tmp_path} is not a whole stash: it is not a regular file\. Make it"
    ):
        ts.open(tmp_path)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([0], "A column must be a name, a list of names, a polars expression or ts.column(...), got 0."),
        ((name for name in "y"), "columns= must be a list of names or a mapping, got a generator."),
        ("y", "columns= must be a list of names or a mapping, got the text 'y'. Write ['y']."),
    ],
)
def test_columns_are_named_by_texts(columns: object, message: str) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        ts.load({"y": [1.0]}, columns)  # type: ignore[arg-type]


def test_names_of_a_mapping_are_texts() -> None:
    with pytest.raises(
        ts.errors.SchemaError, match=r"^Column names must be text; the mapping has the int 0\. Rename it\.$"
    ):
        ts.load({0: [1.0]})


def test_a_fill_may_be_a_numpy_number() -> None:
    stash = ts.load({"y": [1.0, None]}, {"y": ts.column("y", fill=np.float32(7))})  # type: ignore[arg-type]
    assert stash["y"].tolist() == [1.0, 7.0]


def test_the_package_says_that_it_is_typed() -> None:
    assert files(ts).joinpath("py.typed").is_file()
