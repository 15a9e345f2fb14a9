"""Loading against the oracle: every source, every type, every order of rows."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests.cases_load import cases
from tests.oracle_load import (
    FORMS,
    KINDS,
    Case,
    Form,
    Held,
    check,
    exact,
    holds,
    kind_of,
    source_of,
    value,
    write_parquet,
)


def every_kind(form: Form, rows: int) -> Case:
    """All kinds that a source of some form can hold, with missing values, rows interleaved and out of order."""
    columns = {}
    for k, kind in enumerate(kind for kind in KINDS if holds(form, kind)):
        cells = [value(kind, k, row) for row in range(rows)]
        if not kind.shape and (kind.floating or kind.kind == "category"):
            cells = [None if (row + k) % 7 == 3 else cell for row, cell in enumerate(cells)]
        columns[f"c{k}"] = Held(kind, cells)
    entity = Held(kind_of("string"), [f"station {row * 7 % 3}" for row in range(rows)])
    time = Held(kind_of("timestamp_us_America/New_York"), [10**15 + row * 7919 % 1009 for row in range(rows)])
    return Case(columns, entity, time, sorted({0, rows // 5, rows // 2, rows}) if rows else [0, 0])


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=30)
@given(data=st.data())
def test_a_stash_holds_what_the_rows_say(
    form: Form, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    case = data.draw(cases(form))
    source = source_of(form, case, tmp_path_factory.mktemp("source"))
    check(case.load(source), case)


@pytest.mark.parametrize("rows", [0, 1, 300])
@pytest.mark.parametrize("form", FORMS)
def test_every_type_in_every_source(form: Form, rows: int, tmp_path: Path) -> None:
    case = every_kind(form, rows)
    check(case.load(source_of(form, case, tmp_path)), case)


def test_the_oracle_can_fail() -> None:
    """A wrong cell, a wrong order, a lost NaN, another type, another unit: each is noticed."""
    kinds = [kind_of(name) for name in ("float32", "int64", "string", "list_of_uint8", "timestamp_ms_None")]
    columns = {kind.name: Held(kind, [value(kind, k, row) for row in range(6)]) for k, kind in enumerate(kinds)}
    columns["float32"].source[4] = math.nan
    case = Case(columns, Held(kind_of("string"), list("abaabb")), Held(kind_of("int64"), [3, 1, 2, 1, 9, 8]), [0, 6])
    stash = case.load(pa.concat_tables(case.pieces()))
    check(stash, case)

    def changed(name: str, row: int, cell: Any) -> Case:
        cells = list(columns[name].source)
        cells[row] = cell
        return replace(case, columns=columns | {name: Held(columns[name].kind, cells)})

    assert case.entity is not None
    assert case.time is not None
    wrong_columns = [
        ("float32", changed("float32", 0, 0.25)),
        ("float32", changed("float32", 4, 0.0)),
        ("int64", changed("int64", 5, columns["int64"].source[5] + 1)),
        ("string", changed("string", 2, None)),
        ("list_of_uint8", changed("list_of_uint8", 2, [255])),
        ("int64", replace(case, columns=columns | {"int64": Held(kind_of("uint64"), columns["int64"].source)})),
        (
            "timestamp_ms_None",
            replace(case, columns=columns | {"timestamp_ms_None": Held(kind_of("timestamp_us_None"), [0] * 6)}),
        ),
    ]
    for name, other in wrong_columns:
        with pytest.raises(AssertionError, match=f"^{name}"):
            check(stash, other)
    wrong_rows = [
        replace(case, columns=dict(reversed(columns.items()))),
        replace(case, entity=Held(case.entity.kind, list("baabaa"))),
        replace(case, entity=None),
        replace(case, time=Held(case.time.kind, [1, 3, 2, 1, 9, 8])),
        replace(case, time=None),
        replace(case, cuts=[0, 5]),
    ]
    for other in wrong_rows:  # in another order the first column is wrong; else no column is
        with pytest.raises(AssertionError, match=r"^(float32|assert|$)"):
            check(stash, other)
    assert not exact([1], [1.0])
    assert not exact([0.0], [-0.0])


@pytest.mark.parametrize("form", ["file", "list", "ipc", "zstd", "table"])
def test_the_same_code_means_different_texts_in_different_pieces(form: Form, tmp_path: Path) -> None:
    """Row groups, record batches and files have dictionaries of their own."""
    texts = ["AAPL", "MSFT", "MSFT", "AAPL", None, "IBM", "MSFT", "IBM"]
    kind = kind_of("dictionary")
    case = Case(
        {"ticker": Held(kind, texts)}, Held(kind, ["b", "a", "a", "b", "c", "a", "b", "c"]), None, [0, 2, 4, 6, 8]
    )
    first_names = [piece["ticker"].chunk(0).dictionary[1].as_py() for piece in case.pieces()]
    assert len(set(first_names)) > 1  # or the sources would not show it
    check(case.load(source_of(form, case, tmp_path)), case)


def test_a_dictionary_may_repeat_a_name_hold_null_and_have_unused_names() -> None:
    dictionary = pa.array(["x", None, "x", "unused", "y"])
    column = pa.DictionaryArray.from_arrays(pa.array([4, 1, 2, 0, None], pa.int8()), dictionary)
    stash = ts.load(pa.table({"s": column}))
    assert stash.vocabulary("s") == ["x", "y"]
    assert stash["s"].tolist() == [1, -1, 0, 0, -1]
    assert stash.about("s").missing == 2


def test_row_groups_larger_than_what_is_decoded_at_a_time(tmp_path: Path) -> None:
    rows = 300_000
    numbers = np.arange(rows, dtype=np.int32)
    texts = pa.array((numbers // 1000 % 7).astype(str))
    table = pa.table({"n": numbers, "s": texts, "b": numbers % 3 == 0, "f": numbers * 0.5})
    path = write_parquet(tmp_path / "one.parquet", [table])
    assert pq.ParquetFile(path).num_row_groups == 1
    for source in (path, table):
        stash = ts.load(source, {"n": "n", "s": "s", "b": "b", "p": ["f", "n"]})
        assert np.array_equal(stash["n"].numpy(), numbers)
        assert np.array_equal(np.array(stash.vocabulary("s"))[stash["s"].numpy()], texts.to_numpy(zero_copy_only=False))
        assert np.array_equal(stash["b"].numpy(), numbers % 3 == 0)
        assert np.array_equal(stash["p"].numpy(), np.stack([numbers * 0.5, numbers], 1))


@pytest.mark.parametrize("row", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1])
def test_a_single_row_out_of_order_is_seen_wherever_it_is(row: int) -> None:
    """The order is looked at block by block; the edges of blocks are looked at too."""
    rows = (1 << 20) + 4
    times = np.arange(rows)
    times[[row, row + 1]] = times[[row + 1, row]]
    stash = ts.load({"t": times, "y": np.arange(rows)}, ["y"], time="t")
    assert stash.time is not None
    assert np.array_equal(stash.time.numpy(), np.arange(rows))
    assert np.array_equal(stash["y"].numpy(), times)
    times[row + 1] = times[row]
    with pytest.raises(ts.errors.DataError, match=f"source rows {row:,} and {row + 1:,}"):
        ts.load({"t": times, "y": np.arange(rows)}, ["y"], time="t")
    codes = np.zeros(rows, np.int8)
    codes[row + 1 :] = 1
    codes[-1] = 0
    grouped = ts.load({"e": codes, "y": np.arange(rows)}, ["y"], entity="e")
    assert grouped.offsets.tolist() == [0, row + 2, rows]
    assert int(grouped["y"][row + 1]) == rows - 1


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers()), max_size=40))
@settings(max_examples=50)
def test_rows_of_an_entity_without_times_keep_their_order(rows: list[tuple[str, int]]) -> None:
    source = {"e": pa.array([e for e, _ in rows], pa.string()), "y": np.arange(len(rows))}
    stash = ts.load(source, ["y"], entity="e")
    names = sorted({e for e, _ in rows})
    assert stash.entities == names
    assert stash["y"].tolist() == [row for name in names for row, (e, _) in enumerate(rows) if e == name]


def test_integer_entities_of_any_size_keep_their_number() -> None:
    numbers = [2**64 - 1, 0, 2**63, 2**64 - 1]
    stash = ts.load({"e": np.array(numbers, np.uint64), "y": [1, 2, 3, 4]}, ["y"], entity="e")
    assert stash.entities == [0, 2**63, 2**64 - 1]
    assert stash["y"].tolist() == [2, 3, 1, 4]
