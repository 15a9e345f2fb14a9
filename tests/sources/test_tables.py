"""Mappings, arrays, tensors and the frames of pandas and polars: what a stash holds of each.

It reaches inside `sources/tables.py` for its pieces, and to treat a small table as a large one.
"""

import math
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch

import tensorstash as ts
from tensorstash.sources import tables
from tensorstash.sources.read import Wanted
from tests.oracle_load import (
    NUMBERS,
    Kind,
    exact,
    kind_of,
    like,
    run_python,
    value,
)

MAPPINGS: dict[str, Callable[[Any], Any]] = {
    "arrays": np.asarray,
    "tensors": lambda values: torch.from_numpy(np.asarray(values)),
    "lists": list,
    "pyarrow": pa.array,
    "polars": lambda values: pl.Series(np.asarray(values)),
    "pandas": lambda values: pd.Series(np.asarray(values)),
}


@pytest.mark.parametrize("make", MAPPINGS.values(), ids=MAPPINGS)
def test_a_mapping_of_anything_that_holds_values(make: Callable[[Any], Any]) -> None:
    columns = {"i": [5, -(2**60) - 1, 7], "f": [0.1, math.nan, -0.0], "b": [True, False, True], "t": [3, 1, 2]}
    stash = ts.load({name: make(values) for name, values in columns.items()}, ["i", "f", "b"], time="t")
    assert exact(stash["i"].tolist(), [-(2**60) - 1, 7, 5])
    assert exact(stash["f"].tolist(), [math.nan, -0.0, 0.1])
    assert exact(stash["b"].tolist(), [False, True, True])


@pytest.mark.parametrize("kind", [*NUMBERS, kind_of("bfloat16")], ids=lambda kind: str(kind.name))
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3)], ids=str)
def test_arrays_and_tensors_of_every_dtype_and_shape(kind: Kind, shape: tuple[int, ...]) -> None:
    """Contiguous or not, with gradients or not; n-d ones become columns of that shape, none is written to."""
    rows = 17
    cells = [value(kind, 1, k) for k in range(rows * math.prod(shape))]
    tensor = torch.tensor(cells, dtype=kind.dtype).view(rows, *shape)
    strided = torch.stack([tensor, tensor], -1).contiguous()[..., 0]
    before = tensor.clone()
    sources: list[Any] = [tensor, strided]
    if kind.floating:
        sources.append(tensor.clone().requires_grad_())
    if kind.dtype != torch.bfloat16:
        frozen = tensor.numpy().copy()
        frozen.setflags(write=False)
        sources += [tensor.numpy(), strided.numpy(), frozen, np.asfortranarray(tensor.numpy())]
    for source in sources:
        stash = ts.load({"x": source, "t": np.arange(rows)[::-1]}, ["x"], time="t")
        assert stash["x"].dtype == kind.dtype
        assert stash["x"].shape == tensor.shape
        assert exact(stash["x"].tolist(), tensor.tolist()[::-1])
        stash["x"].zero_()
    assert torch.equal(tensor, before)


def test_bfloat16_may_be_null() -> None:
    field = pa.field("x", pa.float32(), metadata={"tensorstash.dtype": "bfloat16"})
    table = pa.table([pa.array([1.0, None, math.nan], pa.float32())], schema=pa.schema([field]))
    assert exact(ts.load(table)["x"].tolist(), [1.0, math.nan, math.nan])
    assert ts.load(table, {"x": ts.column("x", fill=2.0)})["x"].tolist() == [1.0, 2.0, 2.0]


def test_a_pandas_frame_with_its_types() -> None:
    start = datetime(2024, 3, 9)
    frame = pd.DataFrame(
        {
            "when": pd.Series([start + timedelta(hours=k) for k in (2, 0, 1)]).dt.tz_localize("America/New_York"),
            "who": pd.Categorical(["b", "a", None], categories=["unused", "a", "b"]),
            "text": ["x", None, "y"],
            "nullable": pd.array([2**53 + 1, None, 3], "Int64"),
            "flag": pd.array([True, False, None], "boolean"),
            "f": np.array([0.5, math.nan, 2.5], np.float32),
            "day": [start.date(), None, start.date()],
        }
    )
    columns: dict[str, Any] = {
        "who": "who",
        "text": "text",
        "nullable": ts.column("nullable", fill=-1),
        "flag": ts.column("flag", fill=True),
        "f": "f",
        "day": ts.column("day", fill=0),
    }
    stash = ts.load(frame, columns, time="when")
    assert stash.time is not None
    assert stash.clock.zone == "America/New_York"
    assert stash.to_polars()["when"].to_list() == sorted(frame["when"].tolist())
    assert (stash["who"].tolist(), stash.vocabulary("who")) == ([0, -1, 1], ["a", "b"])
    assert (stash["text"].tolist(), stash.vocabulary("text")) == ([-1, 1, 0], ["x", "y"])
    assert stash["nullable"].tolist() == [-1, 3, 2**53 + 1]
    assert stash["flag"].tolist() == [False, True, True]
    assert exact(stash["f"].tolist(), [math.nan, 2.5, 0.5])
    assert stash["f"].dtype == torch.float32
    assert stash["day"].tolist() == [0, 19791, 19791]


def test_a_named_index_of_a_pandas_frame_is_a_column_and_a_nameless_one_is_not() -> None:
    index = pd.date_range("2024-01-01", periods=3, freq="h", name="when")[::-1]
    frame = pd.DataFrame({"y": [1, 2, 3]}, index=index)
    stash = ts.load(frame, ["y"], time="when")
    assert stash["y"].tolist() == [3, 2, 1]
    assert list(ts.load(frame)) == ["when", "y"]
    assert list(ts.load(frame.rename_axis(None))) == ["y"]


def test_the_levels_of_a_pandas_index_are_columns() -> None:
    """Entity and time of a panel often stand in a MultiIndex."""
    index = pd.MultiIndex.from_tuples([("b", 2), ("a", 1), ("b", 1)], names=["who", "when"])
    stash = ts.load(pd.DataFrame({"y": [1, 2, 3]}, index=index), ["y"], entity="who", time="when")
    assert stash.entities == ["a", "b"]
    assert stash["y"].tolist() == [2, 3, 1]


def test_a_polars_frame_with_its_types() -> None:
    frame = pl.DataFrame(
        {
            "cat": pl.Series(["x", None, "y"], dtype=pl.Categorical),
            "enum": pl.Series(["lo", "hi", "lo"], dtype=pl.Enum(["unused", "hi", "lo"])),
            "array": pl.Series([[1.0, 2.0], [3.0, None], [5.0, 6.0]], dtype=pl.Array(pl.Float32, 2)),
            "u": pl.Series([2**64 - 1, 0, 1], dtype=pl.UInt64),
        }
    )
    stash = ts.load(pl.concat([frame, frame.reverse()], rechunk=False))
    assert (stash["cat"].tolist(), stash.vocabulary("cat")) == ([0, -1, 1, 1, -1, 0], ["x", "y"])
    assert (stash["enum"].tolist(), stash.vocabulary("enum")) == ([1, 0, 1, 1, 0, 1], ["hi", "lo"])
    rows = [[1.0, 2.0], [3.0, math.nan], [5.0, 6.0]]
    assert exact(stash["array"].tolist(), rows + rows[::-1])
    assert stash["u"].tolist() == [2**64 - 1, 0, 1, 1, 0, 2**64 - 1]


@pytest.mark.parametrize("small", [True, False])
def test_a_frame_that_others_were_appended_to(small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether its pieces are copied together or read one by one; the rows of each hour are appended."""
    if not small:
        monkeypatch.setattr(tables, "_SMALL_ROWS", 1)
    hours = [pl.DataFrame({"e": ["b", "a"], "t": [hour, hour], "y": [10.0 * hour, hour]}) for hour in range(30)]
    frame = pl.concat(hours, rechunk=False)
    assert frame.n_chunks() == 30
    stash = ts.load(frame, ["y"], entity="e", time="t")
    assert stash["y"].tolist() == [*range(30), *(10.0 * hour for hour in range(30))]
    assert tables.open_polars(frame, Wanted(None)).pieces == 1
    assert frame.n_chunks() == 30


def test_a_slice_of_a_list_column_starts_where_it_should() -> None:
    """The values below a list array know nothing of its offset."""
    inner = pa.array([[k, k + 0.5] for k in range(10)], pa.list_(pa.float64(), 2))
    nested = pa.array([[[k], [-k]] for k in range(10)], pa.list_(pa.list_(pa.int8(), 1), 2))
    stash = ts.load(pa.table({"a": inner.slice(3, 4), "b": nested.slice(3, 4)}))
    assert stash["a"].tolist() == [[k, k + 0.5] for k in range(3, 7)]
    assert stash["b"].tolist() == [[[k], [-k]] for k in range(3, 7)]


def test_a_list_may_hold_a_dictionary_of_numbers() -> None:
    items = pa.array([7, 8, 7, 9]).dictionary_encode()
    table = pa.table({"x": pa.FixedSizeListArray.from_arrays(items, 2)})
    assert ts.load(table)["x"].tolist() == [[7, 8], [7, 9]]


def test_a_masked_array_of_any_shape_has_missing_values() -> None:
    for shape in ((4,), (2, 2)):
        masked = np.ma.masked_array(np.arange(4.0).reshape(shape), mask=np.array([0, 1, 0, 0], bool).reshape(shape))
        assert exact(ts.load({"x": masked})["x"].flatten().tolist(), [0.0, math.nan, 2.0, 3.0])


def test_arrays_of_unequal_length_are_refused() -> None:
    message = "one length; 'a' has 2 values and 'b' 3. Cut"
    with pytest.raises(ts.errors.SourceError, match=like(message)):
        ts.load({"a": [1, 2], "b": np.arange(3)})
    assert ts.load({"a": [1, 2], "b": np.arange(3)}, ["a"])["a"].tolist() == [1, 2]


@pytest.mark.parametrize(
    "values",
    [
        *(np.array([1j]), torch.zeros(2, dtype=torch.complex64), [1, "a"], np.array(1), np.zeros((2, 0)), [object()]),
        [1, 2**64],
    ],
    ids=["complex", "complex_tensor", "mixed", "scalar", "no_items", "objects", "beyond_64_bits"],
)
def test_values_that_are_no_column_are_refused_by_name(values: Any) -> None:
    with pytest.raises((ts.errors.SchemaError, ts.errors.DataError, ts.errors.SourceError), match="'odd'"):
        ts.load({"y": [1, 2], "odd": values})


@pytest.mark.parametrize("make", [list, tuple, partial(np.array, dtype=object), partial(pd.Series, dtype=object)])
@pytest.mark.parametrize("whole", [dict, pd.DataFrame])
def test_times_of_two_kinds_are_refused(make: Callable[[Any], Any], whole: Callable[[Any], Any]) -> None:
    """Arrow would cut off the clocks behind a date, and take moments for local times, or these for moments of UTC."""
    local = datetime(2024, 1, 1, 5)
    zoned = local.replace(tzinfo=timezone(timedelta(hours=1)))
    for first, second in permutations([local, zoned, local.date()], 2):
        for values in ([first, second], [None, first, first, second]):
            with pytest.raises(ts.errors.SchemaError, match=r"of a column (are|must) .* 't'"):
                ts.load(whole({"t": make(values), "y": [*range(len(values))]}), ["y"], time="t")
    missing = [None] if whole is dict else [None, pd.NaT]
    for time in (local, zoned, local.date()):
        values = [*missing, time, time]
        stash = ts.load(whole({"t": make(values), "y": [*range(len(values))]}), {"ok": ts.is_valid("t")})
        assert stash["ok"].tolist() == [value is time for value in values]


@pytest.mark.parametrize("make", [list, tuple, partial(np.array, dtype=object), partial(pd.Series, dtype=object)])
@pytest.mark.parametrize("whole", [dict, pd.DataFrame])
@pytest.mark.parametrize("values", [[0.5, True], [None, 0.5, True], [np.True_, 2]], ids=str)
def test_numbers_and_truth_values_are_refused(
    values: list[Any], make: Callable[[Any], Any], whole: Callable[[Any], Any]
) -> None:
    """Arrow would make 1.0 of true behind a float, and 1 of that of numpy."""
    with pytest.raises(ts.errors.SchemaError, match="A column holds numbers, or true and false; those of 'x' in the"):
        ts.load(whole({"x": make(values)}))


@pytest.mark.parametrize("whole", [dict, pd.DataFrame])
def test_nanoseconds_in_arrays_of_objects_are_refused(whole: Callable[[Any], Any]) -> None:
    """Arrow would cut them off; in lists they are kept."""
    for time in (pd.Timestamp(1001), pd.Timestamp(1001, tz="UTC"), pd.Timedelta(1001)):
        with pytest.raises(ts.errors.SchemaError, match=r"keeps microseconds; those of 't' in the .* have nanoseconds"):
            ts.load(whole({"t": pd.Series([time, pd.NaT], dtype=object)}))
        assert ts.load({"t": [time, None]}, {"t": ts.column("t", fill=0)})["t"].tolist()[0] == 1001
        assert ts.load(whole({"t": pd.Series([time.floor("us")], dtype=object)}))["t"].tolist() == [1]


def test_what_is_no_source_is_refused() -> None:
    message = "A source is ... got pyarrow.lib.ChunkedArray"
    with pytest.raises(TypeError, match=like(message)):
        ts.load(pa.chunked_array([[1]]))


def test_what_is_planned_of_many_small_chunks_holds_none_of_them() -> None:
    """Ten columns of 20,000 chunks take some 50 MB, if each chunk is described once more."""
    program = """
import gc, re
from pathlib import Path
import pyarrow as pa, tensorstash as ts

def anonymous():
    gc.collect()
    return int(re.search(r"RssAnon:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

table = pa.concat_tables([pa.table({f"c{k}": [0.5, 1.5] for k in range(10)})] * 20_000)
assert ts.plan(table[:2]).rows == 2
before = anonymous()
plan = ts.plan(table)
assert plan.rows == 40_000
print(anonymous() - before)
"""
    assert int(run_python(program)) < 10_000_000


@pytest.mark.parametrize("rows", [1, 7])
def test_a_table_of_many_small_chunks_is_the_table_in_one_piece(rows: int) -> None:
    """Their dictionaries differ, and a null is named by its row."""
    count = rows * 600
    texts = [f"item {k % 50}" for k in range(count)]
    whole = pa.table(
        {
            "t": np.arange(count),
            "text": texts,
            "view": pa.array(texts, pa.string_view()),
            "y": pa.array([None if k % 9 == 4 else k / 2 for k in range(count)], pa.float32()),
        }
    )
    encoded = [pa.array(texts[k : k + rows]).dictionary_encode() for k in range(0, count, rows)]
    table = pa.concat_tables([whole[k : k + rows] for k in range(0, count, rows)])
    table = table.append_column("code", pa.chunked_array(encoded))
    stash = ts.load(table, time="t", filter=pc.field("t") != 5, progress=False)
    expected = ts.load(
        whole.append_column("code", pa.array(texts)), time="t", filter=pc.field("t") != 5, progress=False
    )
    for name in expected:
        np.testing.assert_array_equal(stash[name].numpy(), expected[name].numpy())
        assert stash.about(name) == expected.about(name)
    assert stash.vocabulary("code") == stash.vocabulary("view") == expected.vocabulary("text")
    with pytest.raises(ts.errors.DataError, match=r"'y' of the pyarrow Table is null in row 4 \(the first such\)"):
        ts.load(table.set_column(3, "y", table["y"].cast(pa.int64(), safe=False)), ["t"], entity="y")


def test_texts_in_memory_that_are_not_utf8() -> None:
    ends = pa.py_buffer(np.array([0, 1, 2], np.int32))
    texts = pa.Array.from_buffers(pa.string(), 2, [None, ends, pa.py_buffer(b"a\xff")])
    for arguments in ({"columns": ["s"]}, {"columns": ["y"], "entity": "s"}):
        with pytest.raises(ts.errors.SourceError, match="pyarrow Table cannot be decoded: column 's': Invalid UTF8"):
            ts.load(pa.table({"y": [1, 2], "s": texts}), **arguments)
