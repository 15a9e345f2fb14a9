"""The inside of `columns/info.py`: what a stash says of its columns, and a header that says it wrongly."""

import dataclasses
import json
import os
import re
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

import tensorstash as ts
from tensorstash.columns.info import from_header, to_header
from tensorstash.segments.format import header_bytes, parse
from tests.oracle_load import like


def loaded() -> ts.Stash:
    data = {"e": ["b", "a", "b"], "t": np.array([3, 1, 4], "M8[s]"), "x": [1.5, None, 0.25], "c": ["u", None, "v"]}
    columns = {"x": ts.column("x", fill=-1.0), "c": ts.column("c", vocabulary=["u"]), "h": ts.hashed("c", 9)}
    return ts.load(data, columns, entity=["e"], time="t", static={"kind": "e"})


def test_about_is_frozen_and_counts_what_was_loaded() -> None:
    stash = loaded()
    x, c = stash.about("x"), stash.about("c")
    assert (x.name, x.members, x.kind, x.unit, x.zone, x.fill) == ("x", ("x",), "number", None, None, -1.0)
    assert (x.dtype, x.shape, x.nulls, x.missing, x.unknown, x.low, x.high) == (torch.float64, (), 1, 0, None, -1, 1.5)
    assert (c.name, c.members, c.kind, c.unit, c.zone, c.fill) == ("c", ("c",), "category", None, None, None)
    assert (c.dtype, c.shape, c.nulls, c.missing, c.unknown, c.low, c.high) == (torch.int32, (), 1, 1, 1, 0, 1)
    assert [stash.about(name).is_coded for name in ("x", "c", "h", "kind")] == [False, True, True, True]
    with pytest.raises(dataclasses.FrozenInstanceError, match=r"\Acannot assign to field 'fill'\Z"):
        stash.about("x").fill = 0.0  # type: ignore[misc]


def test_what_is_written_to_a_header_is_read_again() -> None:
    for stash in (loaded(), ts.load({"y": [1, 2]}), ts.load({"t": np.zeros(0, np.int64), "y": np.zeros(0)}, time="t")):
        header = stash.segment.metadata
        assert json.loads(json.dumps(to_header(from_header(header, stash.segment.tensors)))) == header


@pytest.mark.parametrize(
    ("column", "key", "value"),
    [
        ("x", "unit", "ns"),  # numbers have no unit
        ("c", "unit", "s"),
        ("d", "unit", None),
        ("d", "unit", "d"),  # a timestamp counts no days
        ("x", "fill", "text"),
        ("x", "empty", ""),
        ("d", "empty", 2**63),
        ("d", "empty", 0.5),
    ],
)
def test_metadata_that_contradict_each_other_are_refused(column: str, key: str, value: object, tmp_path: Path) -> None:
    """Each value is of the right type, and the checksum is right."""
    path = tmp_path / "made.safetensors"
    ts.load({"x": [1.5, 2.5], "c": ["u", "v"], "d": np.zeros(2, "M8[s]")}).save(path)
    schema = ts.open(path).segment.metadata
    next(about for about in schema["columns"] if about["name"] == column)[key] = value
    with_schema(path, schema)
    with pytest.raises(
        ts.errors.SegmentError, match=r" is not a whole stash: its header cannot be read \(ValueError: "
    ):
        ts.open(path)


@pytest.mark.parametrize("key", ["fill", "empty"])
def test_a_fill_that_is_not_in_the_vocabulary_is_refused(key: str, tmp_path: Path) -> None:
    path = tmp_path / "made.safetensors"
    ts.load({"t": [1, 3], "c": ["u", "v"]}, ["c"], time="t").save(path)
    schema = ts.open(path).segment.metadata
    schema["columns"][0][key] = "w"
    with_schema(path, schema)
    message = f"{path} is not a whole stash: column 'c' is filled with 'w'"
    with pytest.raises(ts.errors.SegmentError, match=like(message)):
        ts.Windows(ts.open(path), 2, gaps="mask", frequency=1)


def test_codes_that_are_not_in_the_vocabulary_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "made.safetensors"
    ts.load({"c": ["u", "v"]}).save(path)
    entry = ts.open(path).segment.tensors["c"]
    with path.open("r+b") as file:
        file.seek(entry.start)
        file.write(np.array([7], np.int32).tobytes())
    message = f"{path} is not a whole stash: column 'c' has codes that are not in its vocabulary"
    with pytest.raises(ts.errors.SegmentError, match=like(message)):
        ts.open(path).to_arrow()


def with_schema(path: Path, schema: object) -> None:
    """Put other metadata into a saved stash, with a checksum that is right."""
    fd = os.open(path, os.O_RDWR)
    header, made = parse(fd, None, None), cast("dict[str, Any]", schema)
    entries = header.tensors.values()
    begin, size = min(entry.start for entry in entries), os.fstat(fd).st_size
    os.pwrite(fd, header_bytes(entries, begin, size, made, header.checksums, key=header.key).ljust(begin), 0)
    os.close(fd)


WRONG: list[object] = [None, -1, 2.5, "?", ["?", 1], [], [[]], {"?": 1}, True]


def paths(about: object) -> list[tuple[Any, ...]]:
    """The way to every value in a header, the whole included."""
    pairs = about.items() if isinstance(about, dict) else enumerate(about) if isinstance(about, list) else ()
    return [(), *((key, *rest) for key, below in pairs for rest in paths(below))]


def replaced(about: Any, way: tuple[Any, ...], value: object) -> Any:
    if not way:
        return value
    copy = dict(about) if isinstance(about, dict) else [*about]
    copy[way[0]] = replaced(about[way[0]], way[1:], value)
    return copy


def test_wrong_metadata_is_refused_or_changes_nothing_but_itself(tmp_path: Path) -> None:
    """Each value of the header in turn becomes each of some others: an error of ours, or a stash that can be used."""
    path = tmp_path / "stash.safetensors"
    loaded().save(path)
    header, refusals = ts.open(path).segment.metadata, 0
    for way in paths(header):
        for value in WRONG:
            if way[-1:] == ("zone",) and value == "?":
                continue  # another machine may know a zone of that name
            with_schema(path, replaced(header, way, value))
            try:
                stash = ts.open(path)
            except ts.errors.SegmentError:
                refusals += 1
                continue
            assert isinstance(repr(stash), str)
            assert {name: stash.about(name).kind for name in stash}
    assert refusals > 8 * len(paths(header)) / 2


@pytest.mark.parametrize(
    ("way", "value", "why"),
    [
        (("columns", 0, "kind"), "colour", "ValueError: 'kind' is 'colour'"),
        (("columns", 0, "members"), [], "ValueError: 'members' is empty"),
        (("columns", 0, "missing"), 1 << 64, "ValueError: 'missing' is 18446744073709551616"),
        (("columns", 0, "name"), "z", "ValueError: column 'z' has no tensor"),
        (("columns", 0), 7, "ValueError: a value in 'columns' is 7"),
        (("static", 0, "nulls"), 1.5, "ValueError: 'nulls' is 1.5"),
        (("rows",), 4, "ValueError: column 'x' has the shape (3,), not 4 rows"),
        (("entity",), [1], "ValueError: a value in 'entity' is 1"),
        (("time", "low"), "then", "ValueError: 'low' is 'then'"),
        ((), [], "ValueError: the schema is []"),
    ],
)
def test_the_error_names_what_is_wrong(way: tuple[Any, ...], value: object, why: str, tmp_path: Path) -> None:
    path = tmp_path / "stash.safetensors"
    loaded().save(path)
    with_schema(path, replaced(ts.open(path).segment.metadata, way, value))
    message = f"{path} is not a whole stash: its header cannot be read ({why}). Make it again with stash.save(path)."
    with pytest.raises(ts.errors.SegmentError, match=rf"\A{re.escape(message)}\Z"):
        ts.open(path)
