"""The traps of types that the general tests of loading do not set: masks, units that differ, dictionaries, halves."""

import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tensorstash.columns.column import Column
from tensorstash.ingest.values import from_bfloat16, to_bfloat16, values
from tests.oracle_load import KINDS, Held, Kind, arrow_array, arrow_field, flat, kind_of, like, looked_at, value, write_parquet

# Where the source has a value


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.name))
@pytest.mark.parametrize("parquet", [False, True], ids=["table", "parquet"])
def test_a_mask_says_where_the_source_has_a_value(kind: Kind, parquet: bool, tmp_path: Path) -> None:
    """For every type, in an order that is not the source's, beside the column and without it."""
    rows = 24
    cells: list[Any] = [value(kind, 1, row) for row in range(rows)]
    for row in (0, 7, 8, 23):
        cells[row] = _with_a_hole(cells[row])
    if kind.floating:
        cells[9] = [math.nan] * len(cells[9]) if kind.shape else math.nan
    array = arrow_array(kind, cells)
    schema = pa.schema([arrow_field("c", kind), pa.field("t", pa.int64())])
    table = pa.table([array, np.arange(rows)[::-1]], schema=schema)
    source: Any = table
    if parquet:
        if not kind.parquet:
            return
        source = write_parquet(tmp_path / "one.parquet", [table.slice(0, 8), table.slice(8)])
    fill: Any = "" if kind.kind == "category" else 1
    stash = ts.load(source, {"c": ts.column("c", fill=fill), "ok": ts.is_valid("c")}, time="t")
    alone = ts.load(source, {"ok": ts.is_valid("c")}, time="t")
    expected = [
        [not (x is None or (isinstance(x, float) and math.isnan(x))) for x in flat([cell])] for cell in reversed(cells)
    ]
    for held in (stash, alone):
        assert held["ok"].dtype == torch.bool
        assert tuple(held["ok"].shape) == (rows, *kind.shape)
        assert held["ok"].reshape(rows, -1).tolist() == expected
    assert list(stash["ok"].shape) == list(stash["c"].shape)


def _with_a_hole(cell: Any) -> Any:
    """A null, or a list with one as its last item."""
    return [*cell[:-1], _with_a_hole(cell[-1])] if isinstance(cell, list) else None


def test_a_null_inside_a_dictionary_is_no_value() -> None:
    text = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 1]), pa.array(["a", None]))
    number = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2]), pa.array([1.5, None, math.nan]))
    stash = ts.load(pa.table({"s": text, "n": number}), {"s": ts.is_valid("s"), "n": ts.is_valid("n")})
    assert stash["s"].tolist() == [True, False, False, False]
    assert stash["n"].tolist() == [True, False, False, False]


def test_masks_are_packed_and_static_and_refused_in_lists() -> None:
    source = {"e": ["x", "x", "y"], "a": [1.0, math.nan, 2.0], "b": pa.array([1, 2, None]), "c": pa.array([5, 5, None])}
    stash = ts.load(source, {"ok": ts.is_valid(["a", "b"])}, entity="e", static={"known": ts.is_valid("c")})
    assert stash["ok"].tolist() == [[True, True], [False, True], [True, False]]
    assert stash.static["known"].tolist() == [True, False]
    assert (stash.about("ok").missing, stash.about("ok").low, stash.about("ok").high) == (0, False, True)
    message = "in a list needs a name, got ts.is_valid('a')"
    with pytest.raises(ValueError, match=like(message)):
        ts.load(source, ["a", ts.is_valid("a")])
    message = "'m' is made of ['l', 'l']"
    with pytest.raises(ts.errors.SchemaError, match=like(message)):
        ts.load({"l": np.zeros((2, 3))}, {"m": ts.is_valid(["l", "l"])})
    with pytest.raises(ts.errors.ColumnError, match=like("no column 'zz'; it has 'y'")):
        ts.load({"y": [1]}, {"m": ts.is_valid("zz")})


def test_a_null_under_a_mask_keeps_large_integers_exact(tmp_path: Path) -> None:
    table = pa.table({"i": [2**53 + 1, None, -(2**63), 2**63 - 1]})
    path = write_parquet(tmp_path / "one.parquet", [table])
    stash = ts.load(path, {"i": ts.column("i", fill=0), "ok": ts.is_valid("i")})
    assert stash["i"].tolist() == [2**53 + 1, 0, -(2**63), 2**63 - 1]
    assert stash["ok"].tolist() == [True, False, True, True]


# Units: a file may have another one than the column, which is that of the first file

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@settings(max_examples=200)
@given(
    ticks=st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-100, 100).map(lambda k: k * 10**9), min_size=1),
    one=st.sampled_from([*PER_SECOND]),
    other=st.sampled_from([*PER_SECOND]),
    zone=st.sampled_from([None, "UTC", "America/New_York"]),
    kind=st.sampled_from(["timestamp", "duration"]),
)
def test_an_instant_is_the_same_in_every_unit_or_refused(
    ticks: list[int], one: str, other: str, zone: str | None, kind: Any
) -> None:
    arrow = pa.timestamp(one, zone) if kind == "timestamp" else pa.duration(one)
    column = Column("t", ("t",), torch.int64, kind=kind, unit=other, zone=zone)
    exact = [divmod(tick * PER_SECOND[other], PER_SECOND[one]) for tick in ticks]
    array = pa.array(ticks, pa.int64()).view(arrow)
    if any(rest or not -(2**63) <= whole_ < 2**63 for whole_, rest in exact):
        message = (
            rf"\ATimes keep their exact value in the unit of the column; column 't' is {one and '.+'} in here, and "
            rf"cannot be held in {other}: .+\. Write all files with one unit\.\Z"
        )
        with pytest.raises(ts.errors.DataError, match=message):
            values([array], column, "here")
        return
    found, stats = values([array], column, "here")
    assert found.tolist() == [whole_ for whole_, _ in exact]
    assert (stats.low, stats.high) == (min(found.tolist()), max(found.tolist()))


@pytest.mark.parametrize(("one", "other"), [*product(("s", "ms", "us", "ns"), repeat=2)], ids=str)
def test_a_time_of_day_is_the_same_in_every_unit(one: str, other: str) -> None:
    ticks = [3600 * PER_SECOND[one], None, 7200 * PER_SECOND[one]]
    array = pa.array(ticks, pa.time32(one) if one in ("s", "ms") else pa.time64(one))
    column = Column("t", ("t",), torch.int64, kind="time", unit=other, fill=-1)
    found, _ = values([array], column, "here")
    assert found.tolist() == [3600 * PER_SECOND[other], -1, 7200 * PER_SECOND[other]]


def test_a_null_is_no_time_that_a_unit_cannot_hold() -> None:
    """What lies under a null is arbitrary."""
    ticks = pa.Array.from_buffers(
        pa.timestamp("s"), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([5, 2**62]).tobytes())]
    )
    column = Column("t", ("t",), torch.int64, kind="timestamp", unit="ns", fill=7)
    assert values([ticks], column, "here")[0].tolist() == [5 * 10**9, 7]


# Files and row groups of their own kinds


def test_what_lies_under_a_null_never_shows(tmp_path: Path) -> None:
    """Neither as a value nor as one that cannot be cast."""
    raw = np.array([1.5, 1e300, 2.5])
    array = pa.Array.from_buffers(pa.float64(), 3, [pa.py_buffer(b"\x05"), pa.py_buffer(raw.tobytes())])
    whole_numbers = pa.Array.from_buffers(
        pa.int64(), 3, [pa.py_buffer(b"\x05"), pa.py_buffer(np.array([1, 2**60, 3]).tobytes())]
    )
    table = pa.table({"f": array, "i": whole_numbers})
    columns: dict[str, Any] = {
        "f": ts.column("f", dtype=torch.float32),
        "i": ts.column("i", dtype=torch.int8, fill=-1),
        "j": ts.column("i", dtype=torch.float16),
    }
    for source in (table, write_parquet(tmp_path / "one.parquet", [table])):
        stash = ts.load(source, columns)
        assert stash["f"].nan_to_num(nan=-9.0).tolist() == [1.5, -9.0, 2.5]
        assert stash["i"].tolist() == [1, -1, 3]
        assert stash["j"].nan_to_num(nan=-9.0).tolist() == [1.0, -9.0, 3.0]
        assert stash.about("f").high == 2.5


@settings(max_examples=200)
@given(st.lists(st.floats(width=32) | st.sampled_from([math.nan, math.inf, -0.0, 3.39e38, -3.4e38]), max_size=20))
def test_bfloat16_is_rounded_as_torch_does(numbers: list[float]) -> None:
    singles = torch.tensor(numbers, dtype=torch.float32)
    expected = singles.to(torch.bfloat16)
    bits = to_bfloat16(singles.numpy())
    assert torch.equal(torch.from_numpy(bits).view(torch.bfloat16).nan_to_num(nan=7.0), expected.nan_to_num(nan=7.0))
    assert np.array_equal(from_bfloat16(bits), expected.float().numpy(), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_halves_are_stored_scattered_filled_and_counted(dtype: torch.dtype, tmp_path: Path) -> None:
    rows = 2000
    numbers = np.arange(rows) % 200 - 100.0
    cells = [None if row % 11 == 3 else math.nan if row % 13 == 5 else float(x) for row, x in enumerate(numbers)]
    table = pa.table({"x": pa.array(cells, pa.float64()), "t": np.arange(rows)[::-1]})
    source = write_parquet(tmp_path / "one.parquet", [table.slice(0, 700), table.slice(700)])
    expected = [math.nan if x is None else x for x in reversed(cells)]
    stash = ts.load(source, {"x": "x", "filled": ts.column("x", fill=0.5), "p": ["x", "x"]}, time="t", dtype=dtype)
    assert all(tensor.dtype == dtype for tensor in stash.values())
    assert np.array_equal(stash["x"].float().numpy(), np.array(expected), equal_nan=True)
    assert np.array_equal(stash["filled"].float().numpy(), np.nan_to_num(expected, nan=0.5))
    assert np.array_equal(stash["p"].float().numpy(), np.stack([expected, expected], 1), equal_nan=True)
    about = stash.about("x")
    missing = sum(math.isnan(x) for x in expected)
    assert (about.missing, about.low, about.high) == (missing, np.nanmin(expected), np.nanmax(expected))


@pytest.mark.parametrize(
    ("array", "shown"),
    [
        (pa.array([["a"], ["b", "c"]]), "list<.*: string>"),
        (pa.array([[b"a"]], pa.large_list(pa.binary())), "large_list<.*: binary>"),
        (pa.array([{"a": 1}]), "struct<a: int64>"),
        (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), "map<string, int64.*>"),
        (pa.array([b"x"]), "binary"),
        (pa.array([None]), "null"),
    ],
    ids=lambda parameter: parameter if isinstance(parameter, str) else "",
)
def test_types_that_no_tensor_holds_are_named(array: pa.Array, shown: str, tmp_path: Path) -> None:
    table = pa.table({"x": array, "y": np.arange(len(array))})
    message = (
        r"\AA stash holds numbers, booleans, text, dates, times, and bytes and lists of numbers of one length; column "
        r"'x' is "
        rf".*{shown}.*\. Leave it out of columns= and static=, or (load|convert) .*\.\Z"
    )
    for source in (table, write_parquet(tmp_path / "one.parquet", [table])):
        for ask in (ts.load, looked_at):
            with pytest.raises(ts.errors.SchemaError, match=message):
                ask(source)
        assert ts.load(source, ["y"]).rows == len(array)


def test_a_text_column_is_read_alike_whatever_its_width(tmp_path: Path) -> None:
    texts = ["b", None, "a", "b"]
    for kind in ("string", "large_string", "string_view", "dictionary", "dictionary_of_large_string"):
        held = Held(kind_of(kind), texts)
        table = pa.table([arrow_array(held.kind, held.source)], schema=pa.schema([arrow_field("s", held.kind)]))
        stash = ts.load(write_parquet(tmp_path / f"{kind}.parquet", [table]))
        assert (stash["s"].tolist(), stash.vocabulary("s")) == ([1, -1, 0, 1], ["a", "b"])
    both = [tmp_path / "dictionary.parquet", tmp_path / "large_string.parquet", tmp_path / "string_view.parquet"]
    assert ts.load(both)["s"].tolist() == [1, -1, 0, 1] * 3


@pytest.mark.parametrize(
    ("unit", "kind", "step"),
    [("h", "timestamp", 3600), ("m", "timestamp", 60), ("5m", "timestamp", 300), ("W", "date", 7), ("M", "date", None)],
)
def test_times_of_numpy_in_units_that_arrow_has_not(unit: str, kind: str, step: int | None) -> None:
    times = np.arange(4).astype(f"M8[{unit}]")
    stash = ts.load({"t": times, "y": np.arange(4)}, time="t")
    assert stash.clock.unit == ("d" if kind == "date" else "s")
    assert stash.time is not None
    assert stash.time.tolist() == ([0, 31, 59, 90] if step is None else [k * step for k in range(4)])
    spans = ts.load({"d": np.array([1, 2], "m8[h]")})
    assert (spans["d"].tolist(), spans.about("d").unit) == ([3600, 7200], "s")
    missing = ts.load({"d": np.array([1, "NaT"], "M8[h]")}, {"d": ts.column("d", fill=0)})
    assert missing["d"].tolist() == [3600, 0]


def test_times_of_numpy_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ts.errors.SchemaError, match="'t' is not: its times do not fit into"):
        ts.load({"t": np.array([2**61], "M8[h]")})
