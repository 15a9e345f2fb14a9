"""BLAKE2b of many byte strings at once, by the kernel and without it, beside hashlib one by one."""

from hashlib import blake2b
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tensorstash.native import kernel, library
from tensorstash.native.blake2b import digests, digests_by_hashlib
from tensorstash.native.kernel import Int64s, Uint8s

native = pytest.mark.skipif(library.LIBRARY is None, reason=library.why())

EDGES = (0, 1, 2, 7, 8, 14, 127, 128, 129, 255, 256, 257, 384, 1000)  # a block has 128 bytes
LENGTHS = st.one_of(st.sampled_from(EDGES), st.integers(0, 20))
PERSONS = st.sampled_from([b"", b"a", b"blake2b shard 1", b"sixteen bytes ..", b"\0a"])

GOLDEN = [
    "b4b2797457a0a6e4",
    "2f42665b399ef840",
    "2705162143dab015",
    "3a9b54e1cf3533e8",
    "8a18efb18f051137",
]


def together(strings: list[bytes], before: bytes = b"", after: bytes = b"") -> tuple[Uint8s, Int64s]:
    """The bytes of strings side by side between others, and where each begins."""
    ends = accumulate(map(len, strings), initial=len(before))
    return np.frombuffer(b"".join([before, *strings, after]), np.uint8), np.array([*ends], np.int64)


def one_by_one(strings: list[bytes], person: bytes) -> list[int]:
    return [int.from_bytes(blake2b(one, digest_size=8, person=person).digest(), "little") for one in strings]


@given(lengths=st.lists(LENGTHS, max_size=23), person=PERSONS, seed=st.integers(0, 2**32 - 1))
@example(lengths=[*EDGES], person=b"", seed=0)
@example(lengths=[*EDGES[::-1], 1000, 0, 0, 0], person=b"blake2b shard 1", seed=1)
@settings(max_examples=100, deadline=None)
def test_digests_are_those_of_hashlib(lengths: list[int], person: bytes, seed: int) -> None:
    rng = np.random.default_rng(seed)
    strings = [rng.bytes(length) for length in lengths]
    data, offsets = together(strings, before=b"not hashed", after=b"nor is this")
    expected = one_by_one(strings, person)

    for found in (digests(data, offsets, person), digests_by_hashlib(data, offsets, person)):
        assert found.dtype == np.uint64
        assert found.tolist() == expected


def test_published_values() -> None:
    """Never change these: the columns of `ts.hashed` in files that people have are made of them."""
    strings = [b"", b"a", b"ada", "日本".encode(), bytes(range(256)) * 4]
    assert [f"{value:016x}" for value in digests(*together(strings)).tolist()] == GOLDEN


@native
def test_offsets_out_of_place_are_refused() -> None:
    data = np.zeros(10, np.uint8)
    for offsets, bad in (([0, 3, 11], 1), ([0, 5, 4, 10], 1), ([-1, 3], 0), ([0, 2**62], 0), ([11, 11], 0)):
        expected = rf"^Offsets ascend in \[0, 10\]; got {offsets[bad]} and {offsets[bad + 1]} at {bad}\.$"
        with pytest.raises(IndexError, match=expected):
            kernel.hash_strings(data, np.array(offsets), b"")
    with pytest.raises(TypeError, match="The kernel takes arrays in one piece of int64; got 2 items of int32"):
        kernel.hash_strings(data, np.array([0, 3], np.int32), b"")
