"""The inside of `sources/storage.py`: views whose null slots hold sizes and addresses of nothing are never followed."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tensorstash.sources.storage import without_null_views, without_views
from tests.processes import run

# what a null slot may hold: a size, a prefix, the number of a buffer, a place in it
SLOTS = [(-256, 0, 0, 0), (-1, 0, 0, 0), (2**31 - 1, 0, 0, 0), (13, 0, 99, 0), (40, 0, -1, -1), (500, 0, 0, 2**30)]
VALUES = ["alpha", None, "gamma", "a rather long string here"]


def damaged(arrow: pa.DataType, slot: tuple[int, ...], values: list[str | None] = VALUES) -> pa.Array:
    """An array that passes every validation; its null slots hold `slot`."""
    plain = pa.array(values, pa.string_view()).cast(arrow)
    buffers = plain.buffers()
    views = np.frombuffer(buffers[1], np.int32).copy().reshape(-1, 4)
    views[[k for k, value in enumerate(values) if value is None]] = slot
    array = pa.Array.from_buffers(arrow, len(values), [buffers[0], pa.py_buffer(views), *buffers[2:]])
    array.validate(full=True)
    return array


@pytest.mark.parametrize("arrow", [pa.string_view(), pa.binary_view()], ids=str)
@pytest.mark.parametrize("slot", SLOTS)
def test_null_slots_are_cleared_and_nothing_else(arrow: pa.DataType, slot: tuple[int, ...]) -> None:
    values = [*VALUES, None, "x"]
    array = damaged(arrow, slot, values)
    for begin, end in ((0, 6), (1, 6), (2, 5), (3, 3)):
        (cleared,) = without_null_views(pa.record_batch({"s": array.slice(begin, end - begin)})).columns
        cleared.validate(full=True)
        assert without_views(cleared).cast(pa.large_string()).to_pylist() == values[begin:end]
        views = np.frombuffer(cleared.buffers()[1], np.int32).reshape(-1, 4)
        first = cleared.offset - begin
        assert not views[[k + first for k in range(begin, end) if values[k] is None]].any()
    assert np.frombuffer(array.buffers()[1], np.int32).reshape(-1, 4)[1].tolist() == [*slot]  # that of the caller


def test_views_inside_lists_structs_and_dictionaries_are_cleared() -> None:
    values = [*VALUES, None, "x"]
    inner = damaged(pa.string_view(), SLOTS[4], values)
    nested = [
        pa.ListArray.from_arrays(pa.array([0, 2, None, 4, 6]), inner),
        pa.LargeListArray.from_arrays([0, 1, 6], inner),
        pa.FixedSizeListArray.from_arrays(inner, 2),
        pa.StructArray.from_arrays([inner, pa.array(range(6))], ["s", "k"], mask=pa.array([False] * 5 + [True])),
        pa.MapArray.from_arrays([0, 3, 6], pa.array(range(6)), inner),
        pa.DictionaryArray.from_arrays(pa.array([5, 4, 3, 2, 1, 0]), inner),
        pa.ListArray.from_arrays([0, 3, 6], pa.StructArray.from_arrays([inner], ["s"])),
    ]
    for array in nested:
        for part in (array, array.slice(1), array.slice(0, 1)):
            (cleared,) = without_null_views(pa.record_batch({"s": part})).columns
            cleared.validate(full=True)
            assert (cleared.type, cleared.to_pylist()) == (part.type, part.to_pylist())
            buffers = (cleared.dictionary if part is nested[5] else cleared).buffers()
            slots = [np.frombuffer(buffer, np.int32) for buffer in buffers if buffer and buffer.size == 96]
            assert part is not array or any(not views.reshape(-1, 4)[[1, 4]].any() for views in slots)


def test_what_needs_no_change_is_not_copied() -> None:
    batch = pa.record_batch({"s": pa.array(["a", "b"], pa.string_view()), "t": ["a", None], "y": [1, None]})
    for given, kept in zip(batch.columns, without_null_views(batch).columns):
        assert [each and each.address for each in kept.buffers()] == [each and each.address for each in given.buffers()]


PROGRAM = """
import sys
import polars as pl
import pyarrow as pa
import tensorstash as ts
from tests.sources.test_storage import SLOTS, VALUES, damaged

path, form = sys.argv[1:]
for slot in SLOTS:
    views = damaged(pa.string_view(), slot)
    plain = pa.table({"s": views, "y": range(4)})
    codes = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3]), views)
    for source in (plain, pa.table({"s": codes, "y": range(4)})):
        if form == "file":
            with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, source.schema) as file:
                file.write_table(source)
            source = path
        columns = {"s": "s", "h": ts.hashed("s", 9), "v": ts.is_valid("s")}
        columns["n"] = pl.col("s").str.len_bytes().fill_null(0)
        stash = ts.load(source, columns)
        assert [stash.vocabulary("s")[k] if k >= 0 else None for k in stash["s"].tolist()] == VALUES
        assert stash["n"].tolist() == [len(value or "") for value in VALUES]
        assert stash["v"].tolist() == [value is not None for value in VALUES]
        assert ts.load(source, ["y"], filter=[("s", "!=", "gamma")])["y"].tolist() == [0, 3]
        assert ts.load(source, ["y"], entity="s", filter=[("y", "!=", 1)]).entities == sorted(filter(None, VALUES))
        try:
            ts.load(source, ["y"], entity="s")
        except ts.errors.DataError:
            continue
        raise AssertionError("a null entity was taken")
"""


@pytest.mark.parametrize("form", ["table", "file"])
def test_damaged_views_load_as_nulls(form: str, tmp_path: Path) -> None:
    """In a process of its own, which the sizes would end."""
    done = run(PROGRAM, tmp_path / "one.arrow", form, warn="default")
    assert done.returncode == 0, done.stderr[-2000:]
