"""Headers made by hand: one that keeps the rules of the format is read, and any other is refused with the rule."""

import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorstash as ts
from tests.segments.files import PAGE, refused


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


def with_days(dtype: str, shape: list[int], end: int) -> dict[str, Any]:
    """The header of a stash that keeps days of the month by entity, of which it has one."""
    return valid_header() | {
        "__pad.1": {"dtype": "U8", "shape": [48], "data_offsets": [PAGE + 16, PAGE + 64]},
        "__month_days": {"dtype": dtype, "shape": shape, "data_offsets": [PAGE + 64, PAGE + 64 + end]},
        "__pad.2": {"dtype": "U8", "shape": [PAGE - 64 - end], "data_offsets": [PAGE + 64 + end, 2 * PAGE]},
    }


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
        r"its header cannot be read \(ValueError: 'known' has no checksum, or does not suit 'time'\)",
    ),
    "known times of another kind": (
        lambda: signed(valid_header(schema={"time": TIME, "known": KNOWN | {"unit": "s"}}), DATA),
        r"its header cannot be read \(ValueError: 'known' has no checksum, or does not suit 'time'\)",
    ),
    "known times of no unit": (
        lambda: signed(valid_header(schema={"time": TIME, "known": KNOWN | {"unit": "m"}}), DATA),
        r"its header cannot be read \(ValueError: 'unit' is 'm'\)",
    ),
    "known times without a checksum": (
        lambda: signed(valid_header(schema={"time": TIME, "known": KNOWN | {"checksum": None}}), DATA),
        r"its header cannot be read \(ValueError: 'known' has no checksum, or does not suit 'time'\)",
    ),
    "days of the month of another type": (
        lambda: signed(with_days("U8", [1], 1), DATA),
        r"its header cannot be read \(ValueError: column '__month_days' has type torch.uint8 and the shape \(1,\)\)",
    ),
    "days of the month of more entities": (
        lambda: signed(with_days("I8", [3], 3), DATA),
        r"its header cannot be read \(ValueError: column '__month_days' has the shape \(3,\), not 1 rows\)",
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
