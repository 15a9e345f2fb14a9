"""The inside of `ingest/codes.py`: vocabularies beside a loop over rows, for pieces in any order and many threads."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tensorstash.errors import SourceError
from tensorstash.ingest import codes as codes_module
from tensorstash.ingest.codes import Vocabulary, as_arrow, encoded, names_of, piece_of
from tests import processes

TYPES = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
TEXTS = st.one_of(st.sampled_from(["", "a", "b", "a\0", "x" * 300, "日本", "fill"]), st.text("abc", max_size=3))


def arrays(arrow: pa.DataType, rows: list[list[Any]]) -> list[pa.Array]:
    """An array of each list; the dictionary of one may have a value twice."""
    if not pa.types.is_dictionary(arrow):
        return [pa.array(one, arrow) for one in rows]
    twice = [pa.array([*one, *one], arrow.value_type) for one in rows]
    places = [pa.array([k + len(one) * (k % 2) for k in range(len(one))], pa.int32()) for one in rows]
    return [pa.DictionaryArray.from_arrays(*pair) for pair in zip(places, twice)]


@given(
    rows=st.lists(st.lists(st.none() | TEXTS, max_size=12), max_size=6),
    arrow=st.sampled_from(TYPES),
    fill=st.sampled_from([None, "fill", "a"]),
    empty=st.sampled_from([None, "fill", "z"]),
    known=st.lists(TEXTS, unique=True, max_size=5),
    many=st.sampled_from([0, 3, 10, 1000]),
    bisected=st.sampled_from([0, 1, 64]),
    data=st.data(),
)
@settings(max_examples=150)
def test_codes_ascend_after_the_known_names(
    rows: list[list[Any]],
    arrow: pa.DataType,
    fill: str | None,
    empty: str | None,
    known: list[str],
    many: int,
    bisected: int,
    data: st.DataObject,
) -> None:
    """`many` is the number of names from which they are in a table of polars; with `bisected` 0 none is looked up."""
    vocabulary = Vocabulary(names_of([as_arrow(known)]) if known else None, fill, empty)
    batches = arrays(arrow, rows)
    order = data.draw(st.permutations(range(len(rows))))
    with patch.object(codes_module, "_MANY", many):
        found = {k: encoded(batches[k], vocabulary.codes_of, vocabulary.missing) for k in order}
    with patch.object(codes_module, "_BISECTED", bisected):
        changed = vocabulary.renumbering()
    codes = [code for k in range(len(rows)) for code in found[k][0].tolist()]

    filled = [fill if value is None else value for values in rows for value in values]
    occurring = {value for value in filled if value is not None}
    extra: set[Any] = {*occurring, fill, empty}
    names = [*known, *sorted(extra - {None, *known})]
    final = codes if changed is None else changed[codes].tolist()
    assert final == [-1 if value is None else names.index(value) for value in filled]
    assert [*vocabulary.names()] == names
    assert sum(nulls for _, nulls in found.values()) == sum(value is None for one in rows for value in one)


@given(
    runs=st.lists(st.tuples(st.none() | st.sampled_from(["", "a", "b", "日本"]), st.integers(0, 30)), max_size=12),
    arrow=st.sampled_from([*TYPES, pa.int64(), pa.uint8()]),
    first=st.integers(0, 3),
    head=st.sampled_from([1, 8, 1024]),
)
def test_rows_in_long_runs_give_the_piece_that_a_loop_over_rows_gives(
    runs: list[tuple[str | None, int]], arrow: pa.DataType, first: int, head: int
) -> None:
    """`head` is the number of rows that tell whether runs are long; `first` are rows that a slice leaves out."""
    rows: list[Any] = [value for value, count in runs for _ in range(count)]
    if pa.types.is_integer(arrow):
        rows = [None if value is None else len(value.encode()) for value in rows]
    with patch.object(codes_module, "_HEAD", head):
        piece = piece_of(arrays(arrow, [rows])[0][first:])
    names = [value for value in dict.fromkeys(rows[first:]) if value is not None]
    if not pa.types.is_dictionary(arrow):  # its values come in the order of the dictionary
        assert piece.values.to_pylist() == names
    assert sorted(set(piece.indices.tolist()) - {-1}) == [*range(len(piece.values))]
    assert [piece.values[k].as_py() if k >= 0 else None for k in piece.indices.tolist()] == rows[first:]


def test_neighbours_are_compared_where_runs_are_long() -> None:
    def runs(values: np.ndarray[Any, Any]) -> list[int] | None:
        starts = codes_module._long_runs(len(values), lambda rows: values[1:rows] != values[: rows - 1])
        return None if starts is None else starts.tolist()

    long, short = np.repeat([0, 1, 0], 1000), np.tile([0, 1], 1500)
    assert runs(long) == [0, 1000, 2000]
    assert runs(short) is None
    assert runs(np.append(long, short)) is None
    assert runs(long[:1000]) is None


@pytest.mark.parametrize("length", [5, 20])  # longer texts are not in the views themselves
@pytest.mark.parametrize("first", [0, 7])
def test_texts_of_polars_are_read_without_a_copy_of_all(length: int, first: int) -> None:
    """Rows of equal texts share their views, or each row has its own copy of a long text."""
    names = [f"{k:0{length}d}" for k in (3, 1, 2, 1)]
    shared = pl.Series(names).gather(np.repeat(np.arange(4), 1000))
    own = pl.Series(np.repeat(names, 1000).tolist())
    for series in (shared, own):
        (texts,) = pa.chunked_array(series).chunks
        assert pa.types.is_string_view(texts.type)
        piece = piece_of(texts[first:])
        assert piece.values.to_pylist() == names[:3]
        assert piece.indices.tolist() == np.repeat([0, 1, 2, 1], 1000)[first:].tolist()
    (views,) = pa.chunked_array(shared).chunks
    assert piece_of(views).values.type == pa.large_string()


@pytest.mark.parametrize("kind", ["texts", "integers"])
def test_threads_agree_on_the_codes(kind: str) -> None:
    numbers = np.random.default_rng(0).integers(0, 30_000, (40, 2000))
    values = numbers if kind == "integers" else np.char.add("item ", numbers.astype(str))
    vocabulary = Vocabulary()
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda k: encoded(pa.array(values[k]), vocabulary.codes_of)[0], range(40))
        codes = np.concatenate([*found])
    changed = vocabulary.renumbering()
    final = codes if changed is None else changed[codes]

    assert [*vocabulary.names()] == np.unique(values).tolist()
    assert np.array(vocabulary.names())[final].tolist() == values.reshape(-1).tolist()


@pytest.mark.parametrize("entity", [None, "s"])
def test_texts_that_are_not_utf8_are_refused(entity: str | None) -> None:
    ends = pa.py_buffer(np.array([0, 1, 2], np.int32))
    bad = pa.Array.from_buffers(pa.string(), 2, [None, ends, pa.py_buffer(b"a\xff")])
    with pytest.raises(SourceError, match=r"cannot be decoded: column 's': Invalid UTF8 .*\. Write the file again\.$"):
        ts.load(pa.table({"s": bad, "x": [0, 1]}), ["x" if entity else "s"], entity=entity, progress=False)


def test_a_forked_child_does_not_wait_for_threads_that_it_has_not() -> None:
    program = """
import os, numpy as np, polars as pl, pyarrow as pa, tensorstash as ts
pl.DataFrame({"a": np.arange(100_000) % 1000}).group_by("a").len()  # starts the threads of polars
texts = pa.table({"s": [f"item {k % 30_000}" for k in range(40_000)]})
expected = ts.load(texts, ["s"], progress=False)["s"].tolist()
if not os.fork():
    os._exit(0 if ts.load(texts, ["s"], progress=False)["s"].tolist() == expected else 1)
assert os.wait()[1] == 0
"""
    done = processes.run(program, warn="ignore")
    assert done.returncode == 0, done.stderr
