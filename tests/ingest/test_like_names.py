"""Entities and texts that `like=` has keep their numbers: chains of loads beside a loop over names.

How many names are bisected is patched inside.
"""

import gc
import pickle
import sys
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tensorstash.ingest import codes

TEXTS = ["", "a", "a\0", "ab", "b", "é", "日本", "\uffff", "𝄞", "z" * 40]
INTEGERS = [-(2**63), -5, 0, 1, 7, 2**31, 2**63 - 1]
DTYPES = {"text": pl.String, "integer": pl.Int64}
KINDS: dict[str, list[Any]] = {"text": TEXTS, "integer": INTEGERS}


def slow_names(known: list[Any], found: set[Any]) -> list[Any]:
    """The names of a load: known ones keep their numbers, and others follow in ascending order."""
    return [*known, *sorted(found.difference(known))]


@given(
    kinds=st.lists(st.sampled_from([*KINDS]), min_size=1, max_size=2),
    unknown=st.sampled_from(["keep", "error", "drop"]),
    bisected=st.sampled_from([0, 1, 64]),
    through_file=st.booleans(),
    fill=st.sampled_from([None, "a", "none"]),
    data=st.data(),
)
@settings(max_examples=120)
def test_chains_of_loads_number_names_as_a_loop_does(
    tmp_path_factory: pytest.TempPathFactory,
    kinds: list[str],
    unknown: Any,
    bisected: int,
    through_file: bool,
    fill: str | None,
    data: st.DataObject,
) -> None:
    """With `bisected` 0 each name is bisected, and with 64 a dictionary is made of so few."""
    keys = [f"e{k}" for k in range(len(kinds))]
    entity: Any = keys if len(keys) > 1 else keys[0]
    row = st.tuples(*(st.sampled_from(KINDS[kind]) for kind in kinds), st.none() | st.sampled_from(TEXTS))
    known: list[Any] = []
    texts: list[Any] = []
    like: Any = None
    schema = {**{key: DTYPES[kind] for key, kind in zip(keys, kinds)}, "s": pl.String}
    for _ in range(data.draw(st.integers(2, 4))):
        rows = data.draw(st.lists(row, min_size=1, max_size=8))
        frame = pl.DataFrame(rows, schema, orient="row").with_columns(
            t=pl.int_range(pl.len()), y=pl.int_range(pl.len(), dtype=pl.Int32)
        )
        names = [each[:-1] if len(keys) > 1 else each[0] for each in rows]
        strange = [name for name in names if name not in known]
        strange_texts = {each[-1] for each in rows} - {None, *texts, fill}
        columns = {"y": "y", "s": ts.column("s", fill=fill)}
        closed = like is not None and unknown != "keep"
        arguments: dict[str, Any] = {"entity": entity, "time": "t", "like": like, "progress": False}
        with patch.object(codes, "_BISECTED", bisected), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if closed and unknown == "error" and (strange or strange_texts):
                with pytest.raises(ts.errors.DataError, match=r"^unknown='error' takes only"):
                    ts.load(frame, columns, **arguments, unknown=unknown)
                continue
            stash = ts.load(frame, columns, **arguments, **({"unknown": unknown} if closed else {}))

        kept = [k for k, name in enumerate(names) if not (closed and name in strange)]
        known = slow_names(known, {names[k] for k in kept})
        held = {k: fill if rows[k][-1] in {None, *(strange_texts if closed else ())} else rows[k][-1] for k in kept}
        texts = slow_names(texts, {*held.values(), fill} - {None})
        order = sorted(kept, key=lambda k: (known.index(names[k]), k))
        assert stash.entities == known
        assert [stash.entity_at(k) for k in range(len(known))] == known
        assert stash.offsets.diff().tolist() == [sum(names[k] == name for k in kept) for name in known]
        assert stash["y"].tolist() == order
        assert stash.vocabulary("s") == texts
        assert stash["s"].tolist() == [-1 if held[k] is None else texts.index(held[k]) for k in order]
        for own in (stash.names(), stash.names("s")):
            assert all(
                list(own)[low:high] == sorted(list(own)[low:high]) for low, high in pairwise(own.ascending_parts)
            )
            assert [own.find(name) for name in own] == [*range(len(own))]
        like = stash.without_rows()
        if through_file:
            path = tmp_path_factory.mktemp("like") / "reference.safetensors"
            like.save(path)
            like = path


@pytest.mark.parametrize("vocabulary", [["q", "b", "", "日本"], [7, -3, 2**40]])
@pytest.mark.parametrize("bisected", [0, 64])
def test_a_given_vocabulary_keeps_its_order(vocabulary: list[Any], bisected: int) -> None:
    def frame(values: list[Any]) -> pl.DataFrame:
        return pl.DataFrame({"x": values, "y": range(len(values))})

    whole = ts.load(frame([*vocabulary]), {"x": ts.column("x", vocabulary=vocabulary, fill=vocabulary[1]), "y": "y"})
    strange = "new" if isinstance(vocabulary[0], str) else 8
    with patch.object(codes, "_BISECTED", bisected):
        part = ts.load(frame([vocabulary[2], None, strange, vocabulary[0]]), like=whole)
    assert part["x"].tolist() == [2, 1, len(vocabulary), 0]
    assert part.vocabulary("x") == vocabulary
    assert (part.about("x").unknown, part.about("x").nulls) == (1, 1)


@pytest.mark.parametrize("entity", ["e", ["e", "f"]])
def test_a_plan_with_a_reference_is_pickled(entity: Any, tmp_path: Path) -> None:
    frame = pl.DataFrame({"e": ["b", "é"], "f": [7, 2**40], "s": ["x", "y"], "g": [3, 1], "y": [1.0, 2.0]})
    columns = ["f", "s", "y"] if entity == "e" else ["s", "y"]
    given = {**{name: name for name in columns}, "g": ts.column("g", vocabulary=[3, 1])}
    ts.load(frame, given, entity=entity).save(tmp_path / "reference.safetensors")
    frame[1:].write_parquet(tmp_path / "rows.parquet")
    plan = ts.plan(tmp_path / "rows.parquet", like=tmp_path / "reference.safetensors")
    other = pickle.loads(pickle.dumps(plan))
    assert plan.rows == pickle.loads(pickle.dumps(plan)).rows == 1  # plans have looked at the source
    for one in (plan, other, pickle.loads(pickle.dumps(plan))):
        stash = one.load(progress=False)
        assert stash.entities == (["b", "é"] if entity == "e" else [("b", 7), ("é", 2**40)])
        assert (stash.vocabulary("s"), stash["s"].tolist(), stash["g"].tolist()) == (["x", "y"], [1], [1])


def test_integers_of_64_bits_without_a_sign_follow_smaller_ones() -> None:
    whole = ts.load({"e": np.array([5, 3]), "y": [0.0, 1.0]}, ["y"], entity="e")
    large = ts.load({"e": np.array([2**64 - 1, 5], np.uint64), "y": [2.0, 3.0]}, ["y"], entity="e", like=whole)
    assert large.entities == [3, 5, 2**64 - 1]
    assert large["y"].tolist() == [3.0, 2.0]
    again = ts.load({"e": np.array([4, 3]), "y": [2.0, 3.0]}, ["y"], entity="e", like=large)
    assert again.entities == [3, 5, 2**64 - 1, 4]


@pytest.mark.parametrize("kind", ["text", "integer", "pair"])
def test_a_request_makes_no_object_of_each_name(kind: str, tmp_path: Path) -> None:
    """A reference has 30,000 entities and as many texts; after a load and `latest` few objects are more."""
    count, path = 30_000, tmp_path / "reference.safetensors"
    number = pl.int_range(count, eager=True)
    text = "name " + number.cast(pl.String).str.zfill(6)
    frame = pl.DataFrame({"e": number if kind == "integer" else text, "f": number, "t": 0, "s": text, "y": 0.5})
    entity: Any = ["e", "f"] if kind == "pair" else "e"
    ts.load(frame, ["s", "y"], entity=entity, time="t", frequency=1).without_rows().save(path)
    reference = ts.open(path)
    # two rows of each of nine series, of which the last one is late
    rows = pl.concat([frame[:9].with_columns(t=pl.lit(t)) for t in (1, 2)]).with_columns(
        t=pl.col("t") - (pl.col("f") == 8)
    )

    def request() -> ts.Windows:
        windows = ts.Windows(ts.load(rows, like=reference), history=2)
        with pytest.warns(UserWarning, match="1 of 9 series end before 2"):
            return windows.latest()

    request()
    gc.collect()
    before = sys.getallocatedblocks()
    held = request()
    gc.collect()
    assert len(held) == 9
    assert sys.getallocatedblocks() - before < count // 10


def test_a_reference_whose_bytes_are_no_text_is_told(tmp_path: Path) -> None:
    names = ts.load({"e": ["a", "b"], "y": [1.0, 2.0]}, ["y"], entity="e").names()
    assert names[0] == "a"
    names.parts[0].letters[0] = 0xFF  # type: ignore[union-attr]
    with pytest.raises(ts.errors.SegmentError, match="cannot be decoded"):
        names.find("a")


def test_an_oracle_of_other_numbers_would_fail() -> None:
    stash = ts.load({"e": ["b", "a"], "y": [0, 1]}, ["y"], entity="e")
    later = ts.load({"e": ["a", "0"], "y": [2, 3]}, ["y"], entity="e", like=stash)
    assert later.entities == slow_names(["a", "b"], {"a", "0"}) != sorted({"0", "a", "b"})
