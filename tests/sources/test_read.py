"""The inside of `sources/read.py`: what one reader gives beside rows that are filtered and computed one by one."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tensorstash.sources.read import Derived, Source, Unit, in_order, read, with_derived, with_rows
from tests.oracle_load import like


def source_of(rows: Sequence[int], batch: int = 3) -> Source:
    """Units of so many rows, in batches of a few; column `a` has the number of each row in the source."""
    edges = np.cumsum([0, *rows]).tolist()
    tables = [pa.table({"a": np.arange(start, stop)}) for start, stop in pairwise(edges)]
    pieces: list[Any] = [
        (f"unit {k}", table.num_rows, lambda names, table=table: table.select(names).to_batches(batch), ())
        for k, table in enumerate(tables)
    ]
    return Source("source", tables[0].schema, in_order(pieces, "source"), len(pieces))


def doubled(name: str, source: str, seen: list[Any] | None = None) -> Derived:
    def compute(arrays: Sequence[pa.Array], place: str, name_row: Any) -> pa.Array:
        if seen is not None:
            seen.extend((value, place, name_row(k)) for k, value in enumerate(arrays[0].to_pylist()))
        return pc.multiply(arrays[0], 2)

    return Derived(pa.field(name, pa.int64()), (source,), compute)


def all_rows(source: Source, name: str) -> list[tuple[int, int]]:
    """The number and the value of each loaded row."""
    return [
        (row + k, value)
        for unit in source.units
        for row, batch in read(unit, [name])
        for k, value in enumerate(batch.column(0).to_pylist())
    ]


@settings(max_examples=60)
@given(st.lists(st.integers(0, 8), min_size=1, max_size=5), st.integers(2, 4), st.integers(2, 4))
def test_rows_are_left_out_between_columns_that_are_derived(rows: list[int], first: int, second: int) -> None:
    """A column replaces one of its name; rows are left out twice; later columns see loaded rows alone."""
    before, after = list[Any](), list[Any]()
    source = with_derived(source_of(rows), [doubled("b", "a", before), doubled("a", "a")])
    assert source.schema.names == ["a", "b"]
    for divisor in (first, second):

        def kept(_: Unit, row: int, batch: pa.RecordBatch, divisor: int = divisor) -> Any:
            return np.asarray(batch["b"]) // 2 % divisor > 0

        source = with_rows(source, ["b"], kept, "", False)
    source = with_derived(source, [doubled("c", "b", after), doubled("c", "c")])
    expected = [row for row in range(sum(rows)) if row % first and row % second]
    before.clear()
    assert all_rows(source, "c") == [(k, 8 * row) for k, row in enumerate(expected)]
    places = [f"unit {k}" for k, count in enumerate(rows) for _ in range(count)]
    assert after == [(2 * row, places[row], f"{row:,} ({places[row]})") for row in expected]
    assert {place for _, place, _ in before} == {places[row] for row in expected}  # of all rows of these units
    assert all_rows(source, "a") == [(k, 2 * row) for k, row in enumerate(expected)]
    assert [source.name_row(k) for k in range(source.rows)] == [name for *_, name in after]
    assert [row for unit in source.units for row in (unit.first + unit.loaded()).tolist()] == expected


def test_a_unit_with_other_rows_than_it_says_is_damaged() -> None:
    (unit,) = source_of([7]).units
    for rows, message in ((6, "has more rows than the 6 of its footer"), (8, "has 7 rows, its footer says 8")):
        kept = pa.array([False] * rows)
        for wrong in (replace(unit, rows=rows), replace(unit, rows=0, kept=kept)):
            with pytest.raises(ts.errors.SourceError, match=like(message)):
                [*read(wrong, ["a"])]


def test_a_damaged_column_is_named_by_the_stored_one() -> None:
    def decode(names: Sequence[str]) -> list[pa.RecordBatch]:
        if "bad" in names:
            raise OSError("bad bytes")
        return [pa.record_batch({name: [1] for name in names})]

    unit = Unit("unit", 0, 1, decode, 0, derived=(doubled("x", "bad"),))
    with pytest.raises(ts.errors.SourceError, match=like("unit cannot be decoded: column 'bad': bad bytes")):
        [*read(unit, ["good", "x"])]
