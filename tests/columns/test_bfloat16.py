"""bfloat16, which Arrow lacks: it is read by its value wherever it comes from, and never taken for an integer."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import tensorstash as ts
from tests.oracle_load import exact, like

NUMBERS = [1.5, -0.0, 3e38, float("nan"), 2.0]
HALVES = torch.tensor(NUMBERS, dtype=torch.bfloat16)
KEYS: dict[str, Any] = {"e": [*"abcde"], "t": [1] * 5}


def halves() -> ts.Stash:
    """A column, a list column and a static column."""
    data = KEYS | {"h": HALVES, "pair": torch.stack([HALVES, HALVES.flip(0)], 1), "fixed": HALVES}
    return ts.load(data, ["h", "pair"], entity="e", time="t", static=["fixed"])


def of_tensors(tensor: torch.Tensor) -> Mapping[str, Any]:
    return {"h": tensor}


def of_arrow(tensor: torch.Tensor) -> pa.Table:
    """The table of a stash that holds them."""
    return ts.load({"h": tensor}, ["h"]).to_arrow()


SOURCES = [of_tensors, of_arrow]


def with_column(source: Any, name: str, values: Any, field: str = "h") -> Any:
    """A mapping or a table with another column, and its own under another name."""
    if isinstance(source, Mapping):
        return {field: source["h"], name: values}
    return source.rename_columns([field]).append_column(name, pa.array(values))


def test_other_libraries_see_the_values() -> None:
    """In Arrow, and in polars and pandas, which know nothing of the metadata of a field."""
    table = halves().to_arrow()
    frame: Any = pl.from_arrow(table)
    expected = HALVES.float().tolist()
    assert exact(table["h"].to_pylist(), expected)
    assert exact(frame["h"].to_list(), expected)
    assert exact(table.to_pandas()["fixed"].tolist(), expected)
    assert exact(frame["pair"].to_list(), [[*pair] for pair in zip(expected, reversed(expected))])


def test_a_table_of_a_stash_is_loaded_as_the_same_columns(tmp_path: Path) -> None:
    stash, path = halves(), tmp_path / "halves.parquet"
    pq.write_table(stash.to_arrow(), path)
    for source in (stash.to_arrow(), path, stash.to_arrow().to_reader()):
        again = ts.load(source, ["h", "pair"], entity="e", time="t", static=["fixed"])
        for one, other in (
            (stash["h"], again["h"]),
            (stash["pair"], again["pair"]),
            (stash.static["fixed"], again.static["fixed"]),
        ):
            assert one.dtype == other.dtype == torch.bfloat16
            assert exact(one.tolist(), other.tolist())


def test_files_of_which_some_hold_floats_are_read_as_floats(tmp_path: Path) -> None:
    """Whichever comes first: 1.1 would be rounded."""
    table = pa.table({"h": pa.array([1.1], pa.float32())})
    for first, second in ((table, of_arrow(HALVES)), (of_arrow(HALVES), table)):
        pq.write_table(first, tmp_path / "1.parquet")
        pq.write_table(second, tmp_path / "2.parquet")
        loaded = ts.load(str(tmp_path / "*.parquet"), ["h"])["h"]
        assert loaded.dtype == torch.float32
        assert np.float32(1.1) in loaded.numpy()


@pytest.mark.parametrize("source", SOURCES)
def test_a_filter_compares_values(source: Callable[[torch.Tensor], Any]) -> None:
    stash = ts.load(source(HALVES), ["h"], filter=[("h", ">", 1.75)])
    assert exact(stash["h"].tolist(), [float(HALVES[2]), 2.0])


@pytest.mark.parametrize("source", SOURCES)
def test_a_label_has_its_value(source: Callable[[torch.Tensor], Any]) -> None:
    """As float32, because labels are arrays of numpy, which lacks the type; NaN where it is missing, as in floats."""
    stash = ts.load({"t": [*range(9)], "y": np.arange(9.0)}, ["y"], time="t")
    at = with_column(source(HALVES), "t", np.arange(2, 7), "label")
    windows = ts.Windows(stash, 1, at=at)
    for labels in (windows[:]["label"], next(iter(ts.Loader(windows, 5)))["label"]):
        assert labels.dtype == torch.float32
        assert exact(labels.tolist(), HALVES.float().tolist())


def test_a_missing_label_is_nan() -> None:
    field = pa.field("label", pa.float32(), metadata={"tensorstash.dtype": "bfloat16"})
    schema = pa.schema([pa.field("t", pa.int64()), field])
    at = pa.table([pa.array([2, 3]), pa.array([1.5, None], pa.float32())], schema=schema)
    windows = ts.Windows(ts.load({"t": [*range(9)], "y": np.arange(9.0)}, ["y"], time="t"), 1, at=at)
    assert exact(windows[:]["label"].tolist(), [1.5, float("nan")])


@pytest.mark.parametrize("source", SOURCES)
def test_an_entity_is_refused_as_floats_are(source: Callable[[torch.Tensor], Any]) -> None:
    """At a load, of a table of static columns, and at points, where the stash has the bits as integers."""
    whole = torch.tensor([1.0, 2.0], dtype=torch.bfloat16)
    named = with_column(source(whole), "y", [0.5, 1.5], "e")
    for shard in (None, (0, 2)):
        with pytest.raises(ts.errors.SchemaError, match=like("entity= must be text or integers; 'e' is ... Convert")):
            ts.load(named, ["y"], entity="e", shard=shard)
    bits = whole.view(torch.uint16).numpy()
    integers: dict[str, Any] = {"e": bits, "t": [1, 1], "x": [1.0, 2.0]}
    static = with_column(of_arrow(whole), "y", [0.5, 1.5], "e")
    with pytest.raises(ts.errors.SchemaError, match=like("entity= must be text or integers; 'e' is bfloat16")):
        ts.load(integers, ["x"], entity="e", time="t", static=static)
    stash = ts.load(integers, ["x"], entity="e", time="t")
    spans = {"x": ts.During("x", -1, 1, max_rows=1)}
    with pytest.raises(ts.errors.SchemaError, match=like("'e' of at= holds float, and 'e' of the stash integers")):
        ts.Windows(stash, spans=spans, at=with_column(source(whole), "t", [1, 1], "e"))


@pytest.mark.parametrize("source", SOURCES)
def test_a_time_is_refused_as_floats_are(source: Callable[[torch.Tensor], Any]) -> None:
    whole = torch.tensor([1.0, 2.0], dtype=torch.bfloat16)
    with pytest.raises(ts.errors.SchemaError, match=like("time= must name ... column; 't' is ... Convert it")):
        ts.load(with_column(source(whole), "y", [0.5, 1.5], "t"), ["y"], time="t")
    stash = ts.load({"t": whole.view(torch.uint16).numpy(), "x": [1.0, 2.0]}, ["x"], time="t")
    with pytest.raises(ts.errors.SchemaError, match=like("The times of at= must be an integer ... 't' is float")):
        ts.Windows(stash, 1, at=with_column(source(whole), "label", [0, 1], "t"))
