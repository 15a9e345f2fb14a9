"""The inside of `ingest/static.py`: each entity gets its first value, however its rows are cut into pieces."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tensorstash.columns.column import Column
from tensorstash.ingest.decoders import decoder_of
from tensorstash.ingest.static import Settled, bits_of, deciding_rows
from tensorstash.sources.read import Wanted
from tensorstash.sources.source import open_source
from tests.oracle_load import (
    like,
)


@settings(max_examples=200)
@given(data=st.data())
def test_pieces_of_any_length_give_each_entity_its_first_value(data: st.DataObject) -> None:
    """And the row of which an error speaks is the first in the source that has another value."""
    codes = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=20))
    codes = [list(dict.fromkeys(codes)).index(code) for code in codes]
    values = [code * 10 for code in codes]
    for row in data.draw(st.lists(st.integers(0, len(codes) - 1), max_size=3)):
        values[row] += 1
    cuts = sorted(data.draw(st.lists(st.integers(0, len(codes)), max_size=5)))
    column = Column("s", ("s",), torch.int64)
    parts = [
        deciding_rows(np.arange(a, b), np.array(codes[a:b], np.int32), bits_of(np.array(values[a:b], np.int64), column))
        for a, b in zip([0, *cuts], [*cuts, len(codes)])
    ]
    source = open_source({"s": values}, None, Wanted(None), None, None)
    firsts = [codes.index(code) for code in range(max(codes) + 1)]
    wrong = [row for row, code in enumerate(codes) if values[row] != values[firsts[code]]]
    settled = Settled(column, source, [*"abcd"[: len(firsts)]], decoder_of(column))

    def found() -> list[int]:
        for part in parts:
            settled.add(part)
        return settled.values(0, None).values.tolist()

    if not wrong:
        assert found() == [values[row] for row in firsts]
        return
    row, first = wrong[0], firsts[codes[wrong[0]]]
    message = (
        f"'s' of entity {'abcd'[codes[row]]!r} is {values[first]} in source row {first} and {values[row]} in {row}."
    )
    with pytest.raises(ts.errors.DataError, match=like(message)):
        found()
