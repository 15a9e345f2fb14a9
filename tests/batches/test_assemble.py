"""The inside of `batches/assemble.py`: how many batches are made together, by their bytes."""

import pytest

from tensorstash.batches.assemble import parts, together


@pytest.mark.host("it looks at memory of the host")
def test_as_many_as_fit_into_the_cache_are_made_together() -> None:
    sizes = (1, 1 << 15, 1 << 16, (1 << 18) + 1, 1 << 20, 3 << 20, 1 << 30)
    assert [together(nbytes) for nbytes in sizes] == [16, 16, 8, 1, 1, 1, 1]
    assert [parts(nbytes) for nbytes in sizes] == [8, 8, 8, 8, 4, 1, 1]
