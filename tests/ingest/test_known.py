"""`known=`: when each row became known, against a sort by polars, and what a load refuses."""

from collections.abc import Sequence
from itertools import pairwise

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tensorstash.ingest import row_keys, row_order

Row = tuple[str, int, int]  # entity, time, known time


def frame_of(rows: Sequence[Row], time: pl.DataType | None = None, known: pl.DataType | None = None) -> pl.DataFrame:
    """Rows numbered in `y`; times and known times in these types, or integers."""
    schema = {"e": pl.String, "t": pl.Int64, "k": pl.Int64}
    frame = pl.DataFrame([*rows], schema, orient="row").with_row_index("y")
    return frame.with_columns(
        *([] if time is None else [pl.col("t").cast(time)]), *([] if known is None else [pl.col("k").cast(known)])
    )


def by_polars(frame: pl.DataFrame, *, events: bool = False) -> tuple[pl.DataFrame, bool]:
    """The rows in the order of a stash, and whether the known time comes first."""
    by_known = frame.n_unique(["e", "k"]) <= frame.n_unique(["e", "t"]) and not events
    keys = ["e", "k", "t"] if by_known else ["e", "t", "k"]
    return frame.sort(keys, maintain_order=True), by_known


def check(stash: ts.Stash, frame: pl.DataFrame, *, events: bool = False) -> None:
    """Compare a stash with the rows that it was loaded from."""
    expected, by_known = by_polars(frame, events=events)
    assert stash.time is not None
    assert stash.known is not None
    assert stash.info.time is not None
    assert stash["y"].tolist() == expected["y"].to_list()
    assert stash.time.tolist() == expected["t"].to_physical().to_list()
    assert stash.known.tolist() == expected["k"].to_physical().to_list()
    assert (stash.is_by_known, stash.has_events) == (by_known, events)
    assert stash.known_range == (min(stash.known.tolist(), default=None), max(stash.known.tolist(), default=None))
    assert stash.info.time.duplicates == (frame.n_unique(["e", "t"]) < len(frame))
    entities = sorted(frame["e"].unique())
    assert stash.entities == entities
    assert stash.offsets.diff().tolist() == [len(frame.filter(pl.col("e") == name)) for name in entities]


few = st.integers(-2, 3)
far = st.sampled_from([-(2**63), 2**62, 2**63 - 1])
rows_in_any_order = st.lists(st.tuples(st.sampled_from("abc"), few | far, few | far), max_size=40)
cuts = st.lists(st.integers(0, 40), max_size=4)


def pieces_of(frame: pl.DataFrame, cuts: Sequence[int]) -> list[pa.Table]:
    edges = [0, *sorted(cut for cut in cuts if cut < len(frame)), len(frame)]
    return [frame[a:b].to_arrow() for a, b in pairwise(edges)]


@settings(max_examples=300)
@given(
    rows=rows_in_any_order,
    cuts=cuts,
    keep=st.booleans(),
    sorted_by=st.sampled_from([None, ["e", "t", "k"], ["e", "k", "t"], ["k", "e", "t"], ["t", "k"]]),
    block=st.sampled_from([1, 3, 5, 100]),
)
def test_rows_come_in_the_order_of_a_sort(
    rows: list[Row], cuts: list[int], keep: bool, sorted_by: list[str] | None, block: int
) -> None:
    """Also where rows of one time became known together, which only events may."""
    frame = frame_of(rows)
    if sorted_by is not None:
        frame = frame.sort(sorted_by).with_columns(y=pl.int_range(pl.len()))
    if not keep:
        frame = frame.unique(["e", "t", "k"], keep="first", maintain_order=True)
    table = pa.concat_tables(pieces_of(frame, cuts))
    with pytest.MonkeyPatch.context() as patch:  # blocks of a few rows, so that their edges are everywhere
        patch.setattr(row_order, "_BLOCK", block)
        patch.setattr(row_keys, "_BLOCK", block)
        stash = ts.load(table, ["y"], entity="e", time="t", known="k", duplicates="keep" if keep else "error")
    check(stash, frame, events=keep)
