"""The file of a stash: its layout, that others can read it, and that a damaged one is refused."""

import json
import os
import random
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import safetensors
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tensorstash.segments.draft import Draft
from tests.cases_load import cases
from tests.oracle_load import KINDS, Case, Held, check, decoded, exact, like, run_python, value

PAGE = 4096


def loaded(case: Case) -> ts.Stash:
    return case.load(pa.concat_tables(case.pieces()))


def one_of_each(rows: int = 5) -> ts.Stash:
    """A stash with a column of every kind."""
    columns = {kind.name: Held(kind, [value(kind, k, row) for row in range(rows)]) for k, kind in enumerate(KINDS)}
    return loaded(Case(columns, None, None, [0, rows]))


def small(path: Path) -> Path:
    """A saved stash of two columns and three rows."""
    ts.load({"y": [1.0, 2.0, 3.0], "s": ["a", None, "b"]}).save(path)
    return path


def header_of(path: Path) -> tuple[int, dict[str, Any]]:
    """Where the tensors begin, and the header, read as the format says and no further."""
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8:begin])
    return begin, header


# What is written


@settings(max_examples=60)
@given(case=cases("table"))
def test_a_saved_stash_holds_what_the_rows_say(case: Case, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("saved") / "stash.safetensors"
    stash = loaded(case)
    stash.save(path)
    opened = ts.open(path)
    check(opened, case)
    assert repr(opened) == repr(stash)
    again = path.with_suffix(".again")
    opened.save(again)
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("rows", [0, 1, 1500])
def test_safetensors_reads_every_column(rows: int, tmp_path: Path) -> None:
    stash = one_of_each(rows)
    path = tmp_path / "stash.safetensors"
    stash.save(path)
    with safetensors.safe_open(path, framework="pt") as file:
        assert file.metadata()["tensorstash.version"] == "1"
        names = [name for name in file.keys() if not name.startswith("__pad.")]  # noqa: SIM118  it is no dict
        assert set(stash) <= set(names)
        for name, tensor in stash.items():
            read = file.get_tensor(name)
            assert read.dtype == tensor.dtype
            assert read.shape == tensor.shape
            assert exact(read.tolist(), tensor.tolist())
    assert set(safetensors.torch.load_file(path)) >= set(stash)


def test_the_layout_is_the_one_of_the_format(tmp_path: Path) -> None:
    """An eight-byte length, a padded header, tensors at pages and without a hole, no byte behind them."""
    path = tmp_path / "stash.safetensors"
    one_of_each(1500).save(path)
    begin, header = header_of(path)
    assert begin % PAGE == 0
    assert path.read_bytes()[begin - 1 : begin] == b" "
    metadata = header.pop("__metadata__")
    assert all(isinstance(text, str) for text in metadata.values())
    at = 0
    for name, about in header.items():
        assert about["data_offsets"][0] == at, name
        assert name.startswith("__pad.") or (begin + at) % PAGE == 0, name
        at = about["data_offsets"][1]
    assert begin + at == path.stat().st_size
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask()


def umask() -> int:
    found = os.umask(0)
    os.umask(found)
    return found


def test_flat_columns_of_one_item_size_stand_side_by_side() -> None:
    """Whatever the order they were asked for in, a block finds column k at k times its stride."""
    stash = one_of_each(1500)
    blocks = stash.blocks
    assert sorted(name for block in blocks for name in block.names) == sorted(stash)
    assert len([block for block in blocks if stash[block.names[0]].ndim == 1]) == 4
    for block in blocks:
        for k, name in enumerate(block.names):
            tensor = stash[name].reshape(-1)
            items = block.items[k * block.stride : k * block.stride + len(tensor)]
            assert torch.equal(items, tensor.view(items.dtype)), name
            assert block.items.itemsize == tensor.itemsize


def test_rows_outside_a_tensor_are_refused() -> None:
    draft = Draft([("y", torch.float32, (4,))], PAGE)
    draft.write("y", 2, np.array([1, 2], np.float32))
    for row, count in ((-1, 1), (4, 1), (3, 2), (0, 5)):
        with pytest.raises(IndexError, match=like(f"rows must lie in [0, 4); got [{row}, {row + count})")):
            draft.write("y", row, np.zeros(count, np.float32))
    assert draft.array("y").tolist() == [0, 0, 1, 2]


def test_a_header_larger_than_its_room_is_refused() -> None:
    draft = Draft([("y", torch.float32, (4,))], PAGE)
    with pytest.raises(
        ts.errors.SegmentError, match=r"\AThe header needs 5,\d\d\d bytes; 4,096 were laid out for it\.\Z"
    ):
        draft.seal({"text": "x" * 5000})


def test_what_is_mapped_for_writing_is_allocated_before() -> None:
    """Or a full file system would kill the process that writes to it."""
    draft = Draft([("x", torch.float64, (1 << 18,)), ("y", torch.float64, (1 << 17,))], PAGE)
    assert os.fstat(draft.fd).st_size == draft.end == (3 << 20) + PAGE
    assert os.fstat(draft.fd).st_blocks == 0
    array = draft.array("y")
    assert os.fstat(draft.fd).st_blocks * 512 == array.nbytes == 1 << 20


def test_a_file_on_disk_is_allocated_at_once(tmp_path: Path) -> None:
    with open(tmp_path / "draft", "xb+") as file:
        draft = Draft([("y", torch.float64, (1 << 18,))], PAGE, file.fileno(), on_disk=True)
        assert os.fstat(draft.fd).st_blocks * 512 >= (1 << 21) + PAGE


def test_a_finished_file_has_no_holes(shm: Path) -> None:
    """A hole would be filled when it is first read, which kills the reader if the file system is full by then."""
    rng = np.random.default_rng(0)
    rows = 300_001
    table = {
        "e": np.arange(rows) // 1000,
        "t": np.arange(rows),
        "x": rng.standard_normal(rows),
        "flag": rng.random(rows) < 0.5,
        "text": np.array([f"text {k}" for k in range(50)])[rng.integers(0, 50, rows)],
        "place": np.arange(rows) // 1000 * 7,
    }
    some = rng.permutation(rows)
    sources: list[dict[str, Any]] = [
        table,
        {name: values[some] for name, values in table.items()},
        {name: values[:1] for name, values in table.items()},
        {name: values[:0] for name, values in table.items()},
    ]
    for k, source in enumerate(sources):
        static = ["place"] if len(source["e"]) else None
        keys: list[dict[str, Any]] = [{}, {"entity": "e", "time": "t"}]
        for more in keys:
            pack = {"e": "e", "t": "t", "pack": ["x", "flag"], "flag": "flag", "text": "text"}
            own = static if more else None
            for share in (None, f"holes-{k}-{len(more)}"):
                stash = ts.load(source, pack, static=own, share=share, dtype=torch.float32, **more)
                about = os.fstat(stash.segment.fd)
                assert about.st_blocks * 512 == about.st_size, (k, more)
                about = os.stat(str(stash.share("copy").path))
                assert about.st_blocks * 512 == about.st_size, (k, more)


# Saving


def test_a_saved_file_appears_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    """A limit on the size of files stands in for a full disk: what was there before stays, nothing else does."""
    path = small(tmp_path / "stash.safetensors")
    program = """
import os, resource, sys, numpy as np, tensorstash as ts
stash = ts.load({"y": np.ones(1_000_000)})
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    stash.save(sys.argv[1])
except ts.errors.NoMemoryError as error:
    print(error)
"""
    assert "writing them failed: File too large. Make room" in run_python(program, path)
    assert os.listdir(tmp_path) == ["stash.safetensors"]
    assert ts.open(path)["y"].tolist() == [1.0, 2.0, 3.0]


def test_saving_over_a_stash_that_is_in_use_leaves_its_readers_alone(tmp_path: Path) -> None:
    path = small(tmp_path / "stash.safetensors")
    reader = ts.open(path)
    ts.load({"y": [7.0]}).save(path)
    assert reader["y"].tolist() == [1.0, 2.0, 3.0]
    assert ts.open(path)["y"].tolist() == [7.0]
    reader.save(str(path))
    assert ts.open(path)["y"].tolist() == [1.0, 2.0, 3.0]
    ts.open(path).save(path)  # onto itself
    assert ts.open(path)["y"].tolist() == [1.0, 2.0, 3.0]


def test_saving_into_a_directory_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "stash.safetensors"
    with pytest.raises(ts.errors.SegmentError, match=f"existing directory; {path.parent} cannot be opened"):
        ts.load({"y": [1.0]}).save(path)


def test_what_a_killed_process_left_does_not_stop_a_save(tmp_path: Path) -> None:
    """In a container the next process has the same number."""
    path = tmp_path / "stash.safetensors"
    left = tmp_path / f"stash.safetensors.{os.getpid()}.tmp"
    left.write_text("half a stash")
    small(path)
    assert ts.open(path)["y"].tolist() == [1.0, 2.0, 3.0]


def test_threads_may_save_to_one_path(tmp_path: Path) -> None:
    """The last one stays, whole; nobody removes what another is writing."""
    path = tmp_path / "stash.safetensors"
    stashes = [ts.load({"y": np.full(200_000, float(k))}) for k in range(4)]
    failed: list[BaseException] = []

    def save(stash: ts.Stash) -> None:
        try:
            for _ in range(5):
                stash.save(path)
        except OSError as error:
            failed.append(error)

    threads = [threading.Thread(target=save, args=(stash,)) for stash in stashes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert os.listdir(tmp_path) == ["stash.safetensors"]
    assert len(set(ts.open(path)["y"].tolist())) == 1


def test_a_write_in_place_reaches_no_file_and_no_other_stash(tmp_path: Path) -> None:
    path = small(tmp_path / "stash.safetensors")
    before = path.read_bytes()
    one, two = ts.open(path), ts.open(path)
    private = ts.load({"y": [1.0, 2.0, 3.0]})
    one["y"].fill_(-1.0)
    private["y"].fill_(-1.0)
    assert one["y"].tolist() == private["y"].tolist() == [-1.0] * 3
    assert two["y"].tolist() == [1.0, 2.0, 3.0]
    assert path.read_bytes() == before
    one.save(tmp_path / "copy")
    private.save(tmp_path / "private")
    assert (tmp_path / "copy").read_bytes() == before
    assert ts.open(tmp_path / "private")["y"].tolist() == [1.0, 2.0, 3.0]


# Damage


def refused(path: Path, why: str) -> Any:
    message = f"{path} is not a whole stash: {why}. Make it again with stash.save(path)."
    return pytest.raises(ts.errors.SegmentError, match=like(message))


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
    with pytest.raises(
        ts.errors.SegmentError, match=rf"\A{path} is not a whole stash: 12,000 bytes, a header of [\d,]+\. Make"
    ):
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


def signed(header: dict[str, Any], data: bytes, begin: int = 2 * PAGE) -> bytes:
    """A file with a header of our own making, whose checksum is right."""
    return signed_text(json.dumps(header, separators=(",", ":")), data, begin)


def signed_text(text: str, data: bytes, begin: int = 2 * PAGE) -> bytes:
    crc = f"{zlib.crc32(text.encode()):08x}"
    return (begin - 8).to_bytes(8, "little") + text.replace("0" * 8, crc, 1).encode().ljust(begin - 8) + data


COLUMN: dict[str, Any] = {"name": "y", "members": ["y"], "kind": "number", "unit": None, "zone": None, "fill": None}
COLUMN |= {"nulls": 0, "missing": 0, "low": 0.0, "high": 0.0}


def valid_header(version: str = "1", **changes: Any) -> dict[str, Any]:
    """The header of a stash with one column, `y`, of three float32."""
    schema: dict[str, Any] = {"rows": 3, "columns": [COLUMN], "entity": None, "time": {}}
    own = {
        "tensorstash.version": version,
        "tensorstash.crc": "0" * 8,
        "tensorstash.schema": json.dumps(schema | changes.pop("schema", {})),
        "tensorstash.blobs": json.dumps({"__offsets": zlib.crc32(np.array([0, 3]).tobytes())}),
    }
    tensors = {
        "y": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]},
        "__pad.0": {"dtype": "U8", "shape": [PAGE - 12], "data_offsets": [12, PAGE]},
        "__offsets": {"dtype": "I64", "shape": [2], "data_offsets": [PAGE, PAGE + 16]},
        "__pad.1": {"dtype": "U8", "shape": [PAGE - 16], "data_offsets": [PAGE + 16, 2 * PAGE]},
    }
    return {"__metadata__": own} | tensors | changes


TIME: dict[str, Any] = {"source": "t", "unit": None, "zone": None, "low": 0, "high": 0}
KNOWN: dict[str, Any] = {**TIME, "source": "k", "events": False, "is_first": True, "checksum": 0}
DATA = bytes(PAGE) + np.array([0, 3]).tobytes() + bytes(PAGE - 16)


def test_a_header_as_the_format_says_is_read(tmp_path: Path) -> None:
    path = tmp_path / "made"
    path.write_bytes(signed(valid_header(), DATA))
    assert ts.open(path)["y"].tolist() == [0.0] * 3


BAD_HEADERS: dict[str, tuple[Callable[[], bytes], str]] = {
    "version": (
        lambda: signed(valid_header("2"), DATA),
        r"it has version '2' of the format, this release reads '1'",
    ),
    "checksum": (
        lambda: signed(valid_header(), DATA).replace(b'"unit', b'"uniT', 1).replace(b'\\"unit', b'\\"uniT'),
        r"the checksum of its header is wrong",
    ),
    "hole": (
        lambda: signed(valid_header(y={"dtype": "F32", "shape": [3], "data_offsets": [4, 16]}), DATA),
        r"its header cannot be read \(ValueError: tensor 'y' stands at \[4, 16\], not at \[0, 12\]\)",
    ),
    "overlap": (
        lambda: signed(valid_header(__offsets={"dtype": "I64", "shape": [2], "data_offsets": [0, 16]}), DATA),
        r"its header cannot be read \(ValueError: tensor '__offsets' stands at \[0, 16\], not at \[4096, 4112\]\)",
    ),
    "size": (
        lambda: signed(valid_header(y={"dtype": "F32", "shape": [4], "data_offsets": [0, 12]}), DATA),
        r"its header cannot be read \(ValueError: tensor 'y' stands at \[0, 12\], not at \[0, 16\]\)",
    ),
    "negative": (
        lambda: signed(valid_header(y={"dtype": "F32", "shape": [-3], "data_offsets": [0, -12]}), DATA),
        r"its header cannot be read \(ValueError: tensor 'y' has type 'F32' and shape \[-3\]\)",
    ),
    "huge": (
        lambda: signed(valid_header(y={"dtype": "F32", "shape": [1 << 62, 1 << 62], "data_offsets": [0, 12]}), DATA),
        r"its header cannot be read \(ValueError: tensor 'y' has type 'F32' and shape \[4611686018427387904, .*\]\)",
    ),
    "boolean": (
        lambda: signed(valid_header(y={"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}), DATA),
        r"its header cannot be read \(ValueError: tensor 'y' has type 'F32' and shape \[True\]\)",
    ),
    "dtype": (
        lambda: signed(valid_header(y={"dtype": "F4", "shape": [3], "data_offsets": [0, 12]}), DATA),
        r"its header cannot be read \(ValueError: tensor 'y' has type 'F4' and shape \[3\]\)",
    ),
    "no dtype": (
        lambda: signed(valid_header(y={"dtype": [], "shape": [3], "data_offsets": [0, 12]}), DATA),
        r"its header cannot be read \(TypeError: .*\)",
    ),
    "no tensor": (lambda: signed(valid_header(y=3), DATA), r"its header cannot be read \(TypeError: .*\)"),
    "twice": (
        lambda: signed_text(json.dumps(valid_header()).replace('"__pad.1"', '"y"'), DATA),
        r"its header cannot be read \(ValueError: a key occurs twice\)",
    ),
    "constant": (
        lambda: signed_text(json.dumps(valid_header(y={"dtype": "F32", "shape": [float("nan")]})), DATA),
        r"its header cannot be read \(.*\)",
    ),
    "depth": (lambda: signed_text('{"a":' + "[" * 50_000, DATA, 16 * PAGE), r"its header cannot be read \(.*\)"),
    "a list": (lambda: signed_text("[1, 2]", DATA), r"its header cannot be read \(.*\)"),
    "encoding": (
        lambda: signed(valid_header(), DATA).replace(b'"unit', b'"\xff\xfe', 1).replace(b"uni", b"\xff\xfe\xff", 1),
        r"its header cannot be read \(UnicodeDecodeError: .*\)",
    ),
    "schema": (lambda: signed(valid_header(schema={"columns": None}), DATA), r"its header cannot be read \(.*\)"),
    "half a surrogate pair": (
        lambda: signed(valid_header(schema={"entity": "\ud800"}), DATA),
        r"its header cannot be read \(UnicodeEncodeError: .*\)",
    ),
    "members": (
        lambda: signed(valid_header(schema={"columns": [COLUMN | {"members": ["y", "z"]}]}), DATA),
        r"its header cannot be read \(ValueError: column 'y' has the shape \(3,\), but 2 members\)",
    ),
    "known times without times": (
        lambda: signed(valid_header(schema={"known": KNOWN}), DATA),
        r"its header cannot be read \(ValueError: 'known' does not suit 'time'\)",
    ),
    "known times of another kind": (
        lambda: signed(valid_header(schema={"time": TIME, "known": KNOWN | {"unit": "s"}}), DATA),
        r"its header cannot be read \(ValueError: 'known' does not suit 'time'\)",
    ),
    "known times of no unit": (
        lambda: signed(valid_header(schema={"time": TIME, "known": KNOWN | {"unit": "m"}}), DATA),
        r"its header cannot be read \(ValueError: 'unit' is 'm'\)",
    ),
    "known times without a checksum": (
        lambda: signed(valid_header(schema={"time": TIME, "known": KNOWN | {"checksum": None}}), DATA),
        r"its header cannot be read \(ValueError: 'checksum' is None\)",
    ),
    "missing tensor": (
        lambda: signed(valid_header(schema={"columns": [{"name": "z"}]}), DATA),
        r"its header cannot be read \(.*\)",
    ),
}


@pytest.mark.parametrize("made", BAD_HEADERS, ids=str)
def test_a_header_that_breaks_a_rule_is_refused(made: str, tmp_path: Path) -> None:
    """All but two have the right checksum: they are not damaged but made wrong."""
    path = tmp_path / "made"
    build, why = BAD_HEADERS[made]
    path.write_bytes(build())
    message = rf"\A{path} is not a whole stash: {why}\. Make it again with stash\.save\(path\)\.\Z"
    with pytest.raises(ts.errors.SegmentError, match=message):
        ts.open(path)


@pytest.mark.parametrize("offsets", [[0, 2], [1, 3], [0, 2, 1, 3], [0, -1, 3], [0, 4, 3]])
def test_offsets_that_do_not_ascend_are_refused(offsets: list[int], tmp_path: Path) -> None:
    """The checksum is right: the file was made wrong."""
    path = tmp_path / "made"
    values = np.array(offsets).tobytes()
    header, end = valid_header(), PAGE + len(values)
    header["__offsets"] = {"dtype": "I64", "shape": [len(offsets)], "data_offsets": [PAGE, end]}
    header["__pad.1"] = {"dtype": "U8", "shape": [2 * PAGE - end], "data_offsets": [end, 2 * PAGE]}
    header["__metadata__"]["tensorstash.blobs"] = json.dumps({"__offsets": zlib.crc32(values)})
    path.write_bytes(signed(header, bytes(PAGE) + values.ljust(PAGE, b"\0")))
    stash = ts.open(path)
    with refused(path, "the offsets of its entities do not ascend from 0 to 3"):
        _ = stash.offsets


def test_a_refused_file_leaves_no_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "made"
    path.write_bytes(signed(valid_header("2"), DATA))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with pytest.raises(ts.errors.SegmentError, match=r" is not a whole stash: it has version '2' of the format"):
            ts.open(path)
    assert len(os.listdir("/proc/self/fd")) == before


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
    except OSError as error:
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
