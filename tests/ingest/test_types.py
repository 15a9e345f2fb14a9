"""Types in rows and files: halves, text of any width, times of numpy, values under nulls, and what no tensor holds."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import tensorstash as ts
from tests.oracle_load import Held, arrow_array, arrow_field, kind_of, looked_at, write_parquet


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
    with pytest.raises(ts.errors.SchemaError, match=r"'t' of .* is datetime64\[h\], .*: its times do not fit into"):
        ts.load({"t": np.array([2**61], "M8[h]")})
