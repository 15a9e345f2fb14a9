"""Damaged, changing and lying files: an error with the file in it, never a crash, never a partial stash.

It reaches inside `sources/files.py` to change a file in the middle of a read.
"""

import json
import os
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import tensorstash as ts
from tensorstash.sources import files
from tests.fuzz_load import CHECKED, KINDS, MUTATIONS
from tests.oracle_load import like, looked_at, write_ipc, write_parquet
from tests.processes import run


@pytest.mark.parametrize("kind", KINDS)
def test_mutants_of_a_file_load_as_before_or_fail_with_an_error_of_ours(kind: str, pytestconfig: pytest.Config) -> None:
    """With checksums no other values come out; without them a flipped bit of a number is a number."""
    count = pytestconfig.getoption("--mutants")
    if kind == "orc":
        count = max(1, count // 5)  # each load starts processes
    program = "import runpy; runpy.run_module('tests.fuzz_load', run_name='__main__')"
    done = run(program, kind, count, warn="default")
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, int] = json.loads(done.stdout)
    assert sum(found.values()) == 2 * count * len(MUTATIONS)
    allowed = {"same", "error"} if kind == CHECKED else {"same", "error", "other values"}
    assert {outcome.partition(": ")[2] for outcome in found} <= allowed
    assert kind == "stream" or {outcome for outcome in found if outcome.startswith("cut")} == {"cut: error"}
    if kind == CHECKED:
        assert found["zero: error"] >= count  # in row groups that the filter excludes, nobody sees it


def number(value: int) -> bytes:
    """As Thrift's compact protocol writes it."""
    value, out = value << 1, b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def loaded(path: Path) -> Any:
    """The values, or the file that an error begins with."""
    try:
        return ts.load(path, ["x"])["x"].tolist()
    except ts.errors.SourceError as error:
        return str(error)[: len(str(path))]


def test_footers_that_lie_about_rows(tmp_path: Path) -> None:
    """Fewer or more rows than there are, in a row group alone or everywhere that rows are counted."""
    path = write_parquet(tmp_path / "one.parquet", [pa.table({"x": range(1000), "y": range(1000)})])
    data = path.read_bytes()
    begin = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[begin:-8]
    places = [at for at in range(len(footer)) if footer.startswith(number(1000), at)]
    for lie in (999, 1001, 500, 8000):
        for chosen in [*[[at] for at in places], [places[0], places[-1]], places]:
            changed = bytearray(footer)
            for at in chosen:
                changed[at : at + 2] = number(lie)
            path.write_bytes(data[:begin] + changed + data[-8:])
            found = loaded(path)
            # nothing that was lied about concerns the column, or the whole footer agrees on a shorter file
            assert found in (str(path), [*range(1000)]) or (chosen == places and found == [*range(lie)])


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_a_file_that_is_replaced_or_written_to_while_it_is_loaded(form: str, tmp_path: Path) -> None:
    """The first batch has been decoded when the file changes; its footer has long been read."""
    table = pa.table({"y": np.arange(3000)})
    path = tmp_path / f"one.{form}"

    def write(pieces: pa.Table, where: Path) -> None:
        halves = [pieces.slice(0, 1500), pieces.slice(1500)]
        _ = write_ipc(where, halves, None) if form == "arrow" else write_parquet(where, halves)

    def replaced() -> None:
        write(pa.table({"y": -np.arange(3000)}), tmp_path / "other")
        os.replace(tmp_path / "other", path)

    def appended() -> None:
        with path.open("ab") as file:
            file.write(b"more")

    def rewritten() -> None:
        write(pa.table({"y": -np.arange(3000)}), path)

    label = f"test-faults-{tmp_path.name}"
    for change in (replaced, appended, rewritten, path.unlink):
        for share in (None, label):
            write(table, path)
            changes = [change]

            def read(*arguments: Any, real: Any = files._cast_batches, changes: Any = changes) -> Iterator[Any]:
                for batch in real(*arguments):
                    yield batch
                    while changes:
                        changes.pop()()

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(files, "_cast_batches", read)
                with pytest.raises(ts.errors.SourceError, match=rf"\A(A source must not change while it is .*)?{path}"):
                    ts.load(path, share=share)
            assert not changes
        assert label not in ts.shared.list()["label"]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".arrows"])
def test_files_that_are_no_files_of_their_kind(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"one{suffix}"
    for data in (
        b"",
        b"P",
        b"PAR1",
        b"PAR1PAR1",
        b"ARROW1\0\0",
        bytes(4096),
        b"\xff" * 100,
        b"PAR1" + b"\xff" * 8 + b"PAR1",
    ):
        path.write_bytes(data)
        for call in (ts.load, looked_at):
            with pytest.raises(
                ts.errors.SourceError, match=rf"\A{path} is not a readable (Parquet|Arrow IPC) file: .+"
            ):
                call(path)


def test_a_text_that_is_no_text_is_an_error_with_the_file(tmp_path: Path) -> None:
    """Parquet does not look at the bytes of a text, and without checksums nobody does."""
    path = tmp_path / "one.parquet"
    pq.write_table(pa.table({"s": ["abcdefgh", "ijklmnop"], "y": [1, 2]}), path, compression="none")
    data = path.read_bytes()
    path.write_bytes(data.replace(b"ijkl", b"\xff\xfejk"))
    assert ts.load(path, ["y"])["y"].tolist() == [1, 2]
    for options in ({"columns": ["s"]}, {"columns": ["y"], "entity": "s"}):
        with pytest.raises(ts.errors.SourceError, match=rf"\A{path}, row group 0 cannot be decoded: .*UTF8"):
            ts.load(path, **options)
    assert ts.plan(path).rows == 2


def test_texts_of_a_saved_stash_that_are_damaged(tmp_path: Path) -> None:
    """Their checksum is wrong; where it is right, because the file was made wrong, they cannot be decoded."""
    path = tmp_path / "stash.safetensors"
    ts.load({"e": ["one", "two"], "s": ["red", "teal"]}, ["s"], entity="e").save(path)
    path.write_bytes(path.read_bytes().replace(b"onetwo", b"on\xfftwo").replace(b"redteal", b"\xc3edteal"))
    stash, ends = ts.open(path), np.array([9, 7]).tobytes()
    assert stash["s"].tolist() == [0, 1]
    names: dict[str, Callable[[], object]] = {
        "__entities": lambda: stash.entities,
        "s.__vocabulary": lambda: stash.vocabulary("s"),
    }
    for name, texts in names.items():
        message = rf"\A{path} is not a whole stash: the checksum of '{name}\.text' is wrong\. Make it "
        with pytest.raises(ts.errors.SegmentError, match=message):
            texts()
    stash.segment.checksums |= {
        "__entities.text": zlib.crc32(b"on\xfftwo"),
        "s.__vocabulary.text": zlib.crc32(b"\xc3edteal"),
    }
    for name, texts in names.items():
        message = (
            rf"\A{path} is not a whole stash: the texts of '{name}' cannot be decoded: 'utf-8' codec .*\. Make it "
        )
        with pytest.raises(ts.errors.SegmentError, match=message):
            texts()
    for export in (stash.to_arrow, stash.to_polars):
        with pytest.raises(
            ts.errors.SegmentError, match=r"the texts of '__entities' cannot be decoded: 'utf-8' codec "
        ):
            export()
    stash = ts.open(path)
    stash.segment.tensor("s.__vocabulary.text").copy_(torch.frombuffer(bytearray(b"redteal"), dtype=torch.uint8))
    stash.segment.tensor("s.__vocabulary.ends")[0] = 9
    stash.segment.checksums |= {
        "s.__vocabulary.text": zlib.crc32(b"redteal"),
        "s.__vocabulary.ends": zlib.crc32(ends),
    }
    with pytest.raises(ts.errors.SegmentError, match=r"the texts of 's\.__vocabulary' do not fill their bytes\. "):
        stash.vocabulary("s")
    assert torch.equal(stash["s"], torch.tensor([0, 1], dtype=torch.int32))


def test_a_failed_load_leaves_no_segment(tmp_path: Path) -> None:
    label = f"test-faults-{tmp_path.name}"
    path = write_parquet(
        tmp_path / "one.parquet", [pa.table({"y": np.random.default_rng(k).random(5000)}) for k in range(4)]
    )
    data = bytearray(path.read_bytes())
    data[len(data) * 2 // 3] ^= 1
    path.write_bytes(data)
    for _ in range(2):
        with pytest.raises(ts.errors.SourceError, match=rf"\A{re.escape(str(path))}, row group \d cannot be decoded"):
            ts.load(path, share=label)
        assert label not in ts.shared.list()["label"]


@pytest.mark.parametrize("others", [["a"], ["a", "z"], []])
def test_damage_is_said_with_its_column(others: list[str], tmp_path: Path) -> None:
    table = pa.table({"a": np.arange(500), "y": np.arange(500) * 7, "z": ["x"] * 500})
    path = write_parquet(tmp_path / "one.parquet", [table])
    about = pq.read_metadata(path).row_group(0).column(1)
    data = bytearray(path.read_bytes())
    data[about.dictionary_page_offset + about.total_compressed_size - 5] ^= 1
    path.write_bytes(data)
    message = rf"\A{re.escape(str(path))}, row group 0 cannot be decoded: column 'y': .+\. Write the file again\.\Z"
    with pytest.raises(ts.errors.SourceError, match=message):
        ts.load(path, [*others, "y"])
    if others:
        assert ts.load(path, others).rows == 500


@pytest.mark.parametrize("form", ["parquet", "arrow", "table"])
@pytest.mark.parametrize(
    "arguments",
    [{"columns": ["y"]}, {"columns": ["w.speed"]}, {}, {"columns": ["y"], "filter": [("y", ">", 0.0)]}],
    ids=["other", "field", "all", "filter"],
)
def test_a_name_that_is_not_utf8_is_refused(form: str, arguments: dict[str, Any], tmp_path: Path) -> None:
    table = pa.table({"y": [1.0, 2.0], "w": pa.array([{"speed_": 1.0}, {"speed_": 2.0}])})
    path = tmp_path / f"one.{'parquet' if form == 'parquet' else 'arrow'}"
    if form == "parquet":
        write_parquet(path, [table])
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    whole_file = path.read_bytes()
    assert b"speed_" in whole_file
    path.write_bytes(whole_file.replace(b"speed_", b"speed\xff"))
    source: Any = pa.ipc.open_file(path).read_all() if form == "table" else path
    with pytest.raises(ts.errors.SourceError, match=r"must be UTF-8; .* has others"):
        ts.load(source, **arguments)


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list])
def test_a_file_whose_lists_are_all_null_is_refused_like_one_of_parquet(tmp_path: Path, kind: Any) -> None:
    """Arrow's own cast of such a column of an IPC file ends the process."""
    paths = []
    for number, values in enumerate([[None], [[1.0, 2.0]]]):
        table = pa.table({"x": pa.array(values, kind(pa.float32()))})
        paths.append(write_ipc(tmp_path / f"{number}.arrow", [table], None))
    with pytest.raises(ts.errors.DataError, match=like("A list column has a list in every row")):
        ts.load(paths, {"x": ts.column("x", fill=0)})
