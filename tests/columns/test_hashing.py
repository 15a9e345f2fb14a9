"""The inside of `columns/hashing.py`: published hashes, of which `ts.hashed` columns and people's shards are made."""

from hashlib import blake2b

import numpy as np
import pytest

from tensorstash.columns.hashing import digests

GOLDEN = {
    b"": "b4b2797457a0a6e4",
    b"a": "2f42665b399ef840",
    b"ada": "2705162143dab015",
    "日本".encode(): "3a9b54e1cf3533e8",
    bytes(range(256)) * 4: "8a18efb18f051137",
}


def test_published_values() -> None:
    """Never change these."""
    assert [f"{value:016x}" for value in digests(GOLDEN).tolist()] == [*GOLDEN.values()]
    assert digests([]).tolist() == []
    assert digests([]).dtype == digests([b"a"]).dtype == np.uint64


@pytest.mark.parametrize("person", [b"", b"blake2b shard 1", b"sixteen bytes .."])
def test_digests_are_those_of_hashlib(person: bytes) -> None:
    values = [bytes(range(size % 256)) for size in (0, 1, 127, 128, 129, 255, 1)]
    expected = [int.from_bytes(blake2b(one, digest_size=8, person=person).digest(), "little") for one in values]
    assert digests(values, person).tolist() == expected
