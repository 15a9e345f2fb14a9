"""Damaged files of stashes and shared segments: refused or read, and no process crashes."""

import os
import random
import re
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests.oracle_load import decoded, run_python
from tests.segments.files import PAGE, header_of, refused, small


def test_every_bit_of_the_header_counts(tmp_path: Path) -> None:
    """One wrong byte anywhere before the tensors, and the file is refused."""
    path = small(tmp_path / "stash.safetensors")
    begin, _ = header_of(path)
    data = path.read_bytes()
    text = len(data[:begin].rstrip())
    places = [*range(text + 3), *random.Random(0).sample(range(text + 3, begin), 500)]
    with open(path, "r+b", buffering=0) as file:
        for at in places:
            for mask in (1 << at % 8, 0xFF, 0x2A):  # the last turns a space into a newline
                os.pwrite(file.fileno(), bytes([data[at] ^ mask]), at)
                with pytest.raises(ts.errors.SegmentError, match="is not a whole stash: "):
                    ts.open(path)
            os.pwrite(file.fileno(), data[at : at + 1], at)
    assert ts.open(path)["y"].tolist() == [1.0, 2.0, 3.0]


def test_a_file_of_another_length_is_refused(tmp_path: Path) -> None:
    path = small(tmp_path / "stash.safetensors")
    data = path.read_bytes()
    begin, _ = header_of(path)
    assert begin < len(data)
    for length in (0, 1, 7, 8, 9, 100, begin - 1):
        path.write_bytes(data[:length])
        stated = begin if length >= 8 else 8 + int.from_bytes(data[:length], "little")
        with refused(path, f"{length:,} bytes, a header of {stated:,}"):
            ts.open(path)
    for length in (begin, begin + 1, len(data) - PAGE, len(data) - 1, len(data) + 1, len(data) + PAGE):
        path.write_bytes(data[:length].ljust(length, b"\0"))
        why = f"ValueError: the file has {length:,} bytes, its header describes {len(data):,}"
        with refused(path, f"its header cannot be read ({why})"):
            ts.open(path)


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other"
    safetensors.torch.save_file({"y": torch.zeros(10)}, path)
    with refused(path, "its tensors are not aligned; it may be a safetensors file of another library"):
        ts.open(path)
    path.write_bytes(b"PAR1 and so on" * 1000)
    with pytest.raises(ts.errors.SegmentError, match=rf"\A{path} is a Parquet file, not a stash\. Load it: ts\.load"):
        ts.open(path)
    path.write_bytes(b"PK and so on" * 1000)
    with refused(path, "it is of another format"):
        ts.open(path)
    path.write_bytes(bytes(100_000))
    with refused(path, "100,000 bytes, a header of 8"):
        ts.open(path)
    # JSON of the right length, but of somebody else
    path.write_bytes((PAGE - 8).to_bytes(8, "little") + b'{"y": 1}'.ljust(PAGE - 8))
    with refused(path, "its header cannot be read (KeyError: '__metadata__')"):
        ts.open(path)


def test_no_file_at_all(tmp_path: Path) -> None:
    with pytest.raises(ts.errors.SegmentError, match=f"{tmp_path / 'missing'} cannot be opened"):
        ts.open(tmp_path / "missing")
    with pytest.raises(ts.errors.SegmentError, match="not a regular file"):
        ts.open(tmp_path)


def test_damage_to_a_blob_is_found_when_it_is_used(tmp_path: Path) -> None:
    """Offsets, static columns and texts have checksums; the values of columns have none."""
    path = tmp_path / "stash.safetensors"
    source = {
        "e": ["one", "two", "one"],
        "s": ["a", None, "b"],
        "k": [1, 2, 1],
        "y": [1.0, 2.0, 3.0],
    }
    ts.load(source, ["y", "s"], entity="e", static=["k"]).save(path)
    begin, header = header_of(path)
    uses: dict[str, Callable[[ts.Stash], object]] = {
        "__offsets": lambda stash: ts.Windows(stash, 1, 1),
        "__entities.text": lambda stash: stash.entities,
        "__entities.ends": lambda stash: stash.series("one"),
        "s.__vocabulary.text": lambda stash: stash.vocabulary("s"),
        "s.__vocabulary.ends": lambda stash: stash.to_arrow(),
        "k": lambda stash: stash.static["k"],
    }
    assert set(uses) == {name for name in header if not name.startswith("__pad.")} - {"__metadata__", "y", "s"}
    good = path.read_bytes()
    for name, use in uses.items():
        low, high = header[name]["data_offsets"]
        for at in range(begin + low, begin + high):
            path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
            with refused(path, f"the checksum of '{name}' is wrong"):
                use(ts.open(path))
    path.write_bytes(good)
    for use in uses.values():
        use(ts.open(path))


def test_a_mapping_that_fails_closes_its_own_descriptor_once(tmp_path: Path) -> None:
    """Closed twice, the second time would close a file that somebody has opened meanwhile."""
    path = tmp_path / "stash.safetensors"
    ts.load({"y": np.zeros(8_000_000)}).save(path)
    program = """
import gc, os, resource, sys
import tensorstash as ts
ts.open  # imports torch, before memory is limited
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + (32 << 20), used + (32 << 20)))
failures, files = [], []
for _ in range(3):
    try:
        ts.open(sys.argv[1])
    except ts.errors.NoMemoryError as error:
        failures.append(error)
    files.append(open(sys.argv[1], "rb"))
assert len(failures) == 3, failures
failures.clear()
gc.collect()
print([len(file.read(8)) for file in files])
for file in files:
    file.close()
"""
    assert run_python(program, path) == "[8, 8, 8]"


@settings(max_examples=150)
@given(data=st.data())
def test_no_damage_to_a_file_crashes_whoever_opens_it(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Values may change unseen, for they have no checksum; shapes, types and names never do."""
    path = small(tmp_path_factory.mktemp("damaged") / "stash.safetensors")
    good = bytearray(path.read_bytes())
    begin = data.draw(st.integers(0, len(good) - 1))
    patch = data.draw(st.binary(min_size=1, max_size=64))
    good[begin : begin + len(patch)] = patch
    path.write_bytes(bytes(good))
    try:
        stash = ts.open(path)
    except ts.errors.SegmentError:
        return
    assert {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in stash.items()} == {
        "y": (torch.float64, (3,)),
        "s": (torch.int32, (3,)),
    }
    assert len(decoded(stash, "y", stash["y"])) == 3
    assert stash.about("s").missing == 1


def damage(luck: random.Random, header: bytes) -> bytes:
    """A header with something else in one to three places: bits, bytes, numbers, pieces of JSON."""
    data = bytearray(header)
    for _ in range(luck.randint(1, 3)):
        at = luck.randrange(len(data))
        kind = luck.randrange(5)
        if kind == 0:
            data[at] ^= 1 << luck.randrange(8)
        elif kind == 1:
            data[at : at + luck.randrange(8)] = luck.randbytes(luck.randrange(8))
        elif kind == 2:
            pieces: Sequence[bytes] = [
                b"null",
                b"-1",
                b"1e999",
                b"[]",
                b"{}",
                b'"',
                b"\\",
                b"9" * 30,
                b"true",
                b"]",
                b"}",
            ]
            data[at:at] = luck.choice(pieces)
        elif kind == 3 and (numbers := list(re.finditer(rb"\d+", data))):
            number = luck.choice(numbers)
            data[number.start() : number.end()] = str(luck.choice([0, 1, 4096, 2**31, 2**63, 2**64])).encode()
        else:
            begin = luck.randrange(len(data))
            data[at:at] = data[begin : begin + luck.randrange(40)]
    return bytes(data)


def test_no_header_crashes_whoever_attaches_it(shm: Path, pytestconfig: pytest.Config) -> None:
    """Half of them get a right checksum: they come from somebody who knows the format and means harm."""
    whole_file = Path(str(ts.load({"y": [1.0, 2.0, 3.0], "s": ["a", None, "b"]}, share="small").path)).read_bytes()
    begin = 8 + int.from_bytes(whole_file[:8], "little")
    header = whole_file[8:begin].rstrip()
    crc = re.search(rb'tensorstash.crc":"([0-9a-f]{8})"', header)
    assert crc is not None
    ts.shared.remove("small")
    path = shm / f"fuzz-{'0' * 16}"
    luck, attached = random.Random(0), 0
    for _ in range(pytestconfig.getoption("mutations")):
        text = damage(luck, header.replace(crc[1], b"0" * 8))
        if luck.random() < 0.5:
            text = text.replace(b"0" * 8, f"{zlib.crc32(text):08x}".encode(), 1)
        size = luck.choice([begin - 8] * 20 + [0, 1, len(text), 2**63, 2**64 - 1, len(whole_file)])
        path.write_bytes(size.to_bytes(8, "little") + text.ljust(begin - 8)[: begin - 8] + whole_file[begin:])
        try:
            attached += len(ts.attach("fuzz", strict=luck.random() < 0.1)) == 2
        except ts.errors.SegmentError:
            continue
    assert 0 < attached < pytestconfig.getoption("mutations") // 2
