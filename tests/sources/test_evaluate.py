"""The inside of `sources/evaluate.py`: what polars says of an expression."""

import polars as pl

from tensorstash.sources.evaluate import is_elementwise
from tests.sources.expressions import a


def test_what_polars_says_of_single_parts_is_no_test() -> None:
    """The premise of the check by what polars asks of a source; if it no longer holds, a shorter way may do."""
    schema = pl.Schema({"a": pl.Int64})
    assert (a - a.mean()).meta.is_row_separable()
    assert not is_elementwise(a - a.mean(), schema)
    assert is_elementwise(a - 1, schema)
