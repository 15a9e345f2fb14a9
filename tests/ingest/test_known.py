"""`known=`: when each row became known, against a sort by polars, and what a load refuses.

It reaches inside for smaller blocks of rows, for clocks and for the shares of rows in a picture.
"""

import pickle
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import tensorstash as ts
from tensorstash.common.clock import Clock
from tensorstash.ingest import row_order
from tests.oracle_load import bits, like, write_parquet

Row = tuple[str, int, int]  # entity, time, known time


def frame_of(rows: Sequence[Row], time: pl.DataType | None = None, known: pl.DataType | None = None) -> pl.DataFrame:
    """Rows numbered in `y`; times and known times in these types, or integers."""
    schema = {"e": pl.String, "t": pl.Int64, "k": pl.Int64}
    frame = pl.DataFrame([*rows], schema, orient="row").with_row_index("y")
    return frame.with_columns(
        *([] if time is None else [pl.col("t").cast(time)]), *([] if known is None else [pl.col("k").cast(known)])
    )


def by_polars(frame: pl.DataFrame, *, events: bool = False) -> tuple[pl.DataFrame, bool]:
    """The rows in the order of a stash, and whether the known time comes first."""
    by_known = frame.n_unique(["e", "k"]) <= frame.n_unique(["e", "t"]) and not events
    keys = ["e", "k", "t"] if by_known else ["e", "t", "k"]
    return frame.sort(keys, maintain_order=True), by_known


def check(stash: ts.Stash, frame: pl.DataFrame, *, events: bool = False) -> None:
    """Compare a stash with the rows that it was loaded from."""
    expected, by_known = by_polars(frame, events=events)
    assert stash.time is not None
    assert stash.known is not None
    assert stash.info.time is not None
    assert stash["y"].tolist() == expected["y"].to_list()
    assert stash.time.tolist() == expected["t"].to_physical().to_list()
    assert stash.known.tolist() == expected["k"].to_physical().to_list()
    assert stash.info.known is not None
    assert (stash.is_by_known, stash.info.known.events) == (by_known, events)
    assert stash.known_range == (min(stash.known.tolist(), default=None), max(stash.known.tolist(), default=None))
    assert stash.info.time.duplicates == (frame.n_unique(["e", "t"]) < len(frame))
    entities = sorted(frame["e"].unique())
    assert stash.entities == entities
    assert stash.offsets.diff().tolist() == [len(frame.filter(pl.col("e") == name)) for name in entities]


few = st.integers(-2, 3)
far = st.sampled_from([-(2**63), 2**62, 2**63 - 1])
rows_in_any_order = st.lists(st.tuples(st.sampled_from("abc"), few | far, few | far), max_size=40)
some_cuts = st.lists(st.integers(0, 40), max_size=4)


def pieces_of(frame: pl.DataFrame, cuts: Sequence[int]) -> list[pa.Table]:
    edges = [0, *sorted(cut for cut in cuts if cut < len(frame)), len(frame)]
    return [frame[a:b].to_arrow() for a, b in pairwise(edges)]


@settings(max_examples=300)
@given(
    rows=rows_in_any_order,
    cuts=some_cuts,
    keep=st.booleans(),
    sorted_by=st.sampled_from([None, ["e", "t", "k"], ["e", "k", "t"], ["k", "e", "t"], ["t", "k"]]),
    block=st.sampled_from([1, 3, 5, 100]),
)
def test_rows_come_in_the_order_of_a_sort(
    rows: list[Row], cuts: list[int], keep: bool, sorted_by: list[str] | None, block: int
) -> None:
    """Also where rows of one time became known together, which only events may."""
    frame = frame_of(rows)
    if sorted_by is not None:
        frame = frame.sort(sorted_by).with_columns(y=pl.int_range(pl.len()))
    if not keep:
        frame = frame.unique(["e", "t", "k"], keep="first", maintain_order=True)
    table = pa.concat_tables(pieces_of(frame, cuts))
    with pytest.MonkeyPatch.context() as patch:  # blocks of a few rows, so that their edges are everywhere
        patch.setattr(row_order, "_BLOCK", block)
        stash = ts.load(table, ["y"], entity="e", time="t", known="k", duplicates="keep" if keep else "error")
    check(stash, frame, events=keep)


# Types


NAIVE = (pl.Date(), pl.Datetime("ms"), pl.Datetime("us"), pl.Datetime("ns"))
ZONED = (pl.Datetime("us", "UTC"), pl.Datetime("ms", "Europe/Berlin"), pl.Datetime("ns", "America/New_York"))
WHOLE = (pl.Int64(), pl.Int16(), pl.UInt32())


@settings(max_examples=60)
@given(
    rows=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 5), st.integers(0, 5)), unique=True, max_size=20),
    kinds=st.sampled_from([NAIVE, ZONED, WHOLE]).flatmap(lambda kinds: st.tuples(*[st.sampled_from(kinds)] * 2)),
)
def test_units_and_zones_are_those_of_the_source(rows: list[Row], kinds: tuple[Any, Any]) -> None:
    """The times need not have the unit, or the zone, of the known times."""
    frame = frame_of(rows, *kinds)
    stash = ts.load(frame, ["y"], entity="e", time="t", known="k")
    check(stash, frame)
    for clock, kind in ((stash.clock, kinds[0]), (stash.known_clock, kinds[1])):
        assert clock == Clock(
            "d" if kind == pl.Date else getattr(kind, "time_unit", None), getattr(kind, "time_zone", None)
        )
    integers = [pl.col(name).cast(pl.Int64) for name in "tk" if kinds in {(a, b) for a in WHOLE for b in WHOLE}]
    expected = by_polars(frame)[0].select("e", "t", "k", pl.col("y").cast(pl.Int64)).with_columns(integers)
    assert_frame_equal(stash.to_polars().cast({"y": pl.Int64, "e": pl.String}), expected)
    assert_frame_equal(pl.DataFrame(stash.to_arrow()).cast({"y": pl.Int64, "e": pl.String}), expected)


@pytest.mark.parametrize(
    ("time", "known", "message"),
    [
        (
            pl.Datetime("us"),
            pl.Datetime("us", "UTC"),
            "dates or timestamps without a zone, and 'k' of known= timestamps",
        ),
        (pl.Datetime("us", "UTC"), pl.Date(), "timestamps with a zone, and 'k' of known= dates or timestamps without"),
        (pl.Int64(), pl.Date(), "integers, and 'k' of known= dates"),
        (pl.Date(), pl.Int64(), "dates or timestamps without a zone, and 'k' of known= integers"),
    ],
)
def test_times_that_cannot_be_compared_are_refused(time: Any, known: Any, message: str) -> None:
    for load in (ts.load, lambda *a, **b: repr(ts.plan(*a, **b))):
        with pytest.raises(ts.errors.SchemaError, match=like(message)):
            load(frame_of([("a", 1, 1)], time, known), ["y"], entity="e", time="t", known="k")


def test_text_is_read_as_the_text_of_times_is() -> None:
    rows = {
        "t": ["2024-03-01", "2024-03-01", "2024-02-01"],
        "k": ["2024-03-01 06:30", "2024-03-01T00:00", "2024-01-01"],
    }
    frame = pl.DataFrame(rows).with_row_index("y")
    stash = ts.load(frame, ["y"], time="t", known="k")
    parsed = frame.with_columns(pl.col("t").str.to_datetime(), pl.col("k").str.to_datetime(), e=pl.lit("a"))
    assert stash["y"].tolist() == by_polars(parsed)[0]["y"].to_list() == [2, 1, 0]
    assert (stash.known_clock, stash.clock) == (Clock("us", None), Clock("us", None))
    assert "note: 'k' is text, and read as timestamp[us]" in repr(ts.plan(frame, ["y"], time="t", known="k"))
    computed = ts.load(frame, ["y"], time="t", known=pl.concat_str("k", pl.lit("")))
    assert computed.known is not None
    assert stash.known is not None
    assert (computed.known.tolist(), computed.known_clock) == (stash.known.tolist(), stash.known_clock)
    with pytest.raises(ts.errors.DataError, match="Text times must be in ISO 8601"):
        ts.load(frame.with_columns(k=pl.Series(["2024-03-01", "soon", "2024-03-01"])), ["y"], time="t", known="k")
    with pytest.raises(ts.errors.SchemaError, match=r"all with a zone or all without|of known= timestamps with a zone"):
        ts.load(frame.with_columns(pl.col("k").str.slice(0, 10) + "T00:00Z"), ["y"], time="t", known="k")


# Expressions


RUNS = pl.DataFrame(
    {
        "site": ["b", "a", "a", "b", "a", "a", "b"],
        "issued": [6, 6, 0, 0, 6, 0, 6],
        "lead": [1, 1, 7, 7, 2, 8, 2],
        "wind": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0],
    }
).with_columns(
    issued=pl.datetime(2024, 1, 1) + pl.duration(hours="issued"),
    valid=pl.datetime(2024, 1, 1) + pl.duration(hours=pl.col("issued") + pl.col("lead")),
)
AFTER = pl.col("issued") + pl.duration(hours=5)
KEYS: dict[str, Any] = {"entity": "site", "time": "valid"}


def test_an_expression_says_when_rows_became_known() -> None:
    held = ts.load(RUNS.with_columns(out=AFTER), ["wind", "issued"], known="out", **KEYS)
    stash = ts.load(RUNS, ["wind", "issued"], known=AFTER, **KEYS)
    assert bits(stash) == bits(held)
    assert (held.known_name, stash.known_name) == ("out", "known")
    assert ts.load(RUNS, ["wind"], known=AFTER.alias("out"), **KEYS).known_name == "out"
    assert ts.load(RUNS, ["wind"], known=pl.col("issued").alias("out"), **KEYS).known_name == "out"
    assert ts.load(RUNS, ["wind"], known=pl.col("issued"), **KEYS).known_name == "issued"
    assert stash.known is not None
    assert {**stash.series("a")}.keys() == {"valid", "known", "wind", "issued"}
    assert stash.series("a")["known"].tolist() == stash.known[:4].tolist()
    lines = repr(ts.plan(RUNS, ["wind"], known=AFTER, **KEYS)).splitlines()
    line = next(line for line in lines if line.split()[0] == "known")
    assert line.split()[:4] == ["known", "timestamp", "known", "int64"]
    assert 'known = [(col("issued"))' in next(line for line in lines if line.startswith("from: "))


def test_the_known_time_may_be_a_column_too() -> None:
    stash = ts.load(RUNS, {"k": AFTER, "issued": "issued", "there": ts.is_valid("issued")}, known=AFTER, **KEYS)
    assert stash.known is not None
    assert stash["k"].tolist() == stash.known.tolist()
    assert {*(stash.known - stash["issued"]).tolist()} == {5 * 3_600_000_000}
    assert stash.about("k").kind == "timestamp"
    assert stash["there"].all()
    named = ts.load(RUNS, {"known": AFTER, "wind": "wind"}, known=AFTER, **KEYS)
    assert named.to_polars().columns == ["site", "valid", "known", "wind"]


def test_a_field_of_a_struct_may_say_it() -> None:
    nested = RUNS.select("site", "valid", "wind", run=pl.struct("issued"))
    stash, plain = (
        ts.load(frame, ["wind"], known=known, **KEYS) for frame, known in ((nested, "run.issued"), (RUNS, "issued"))
    )
    assert bits(stash) == bits(plain)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"known": 3}, TypeError, "known must be the name of a column or a polars expression, got 3"),
        ({"known": ["issued"]}, TypeError, "known must be the name of a column"),
        ({"known": pl.col("issued", "valid")}, ValueError, "must name its input columns and have one output"),
        ({"known": pl.lit(3)}, ValueError, "must name a column of the source"),
        ({"known": pl.col("issued").max()}, ts.errors.SchemaError, "each value must come from its own row"),
        ({"known": pl.col("wind") * 2}, ts.errors.SchemaError, "known= must name a timestamp, date or integer column"),
        ({"known": "lead"}, ts.errors.SchemaError, "'lead' of known= integers"),
        ({"known": "isued"}, ts.errors.ColumnError, "did you mean 'issued'"),
        ({"known": pl.col("isued") + 1}, ts.errors.ColumnError, "did you mean 'issued'"),
        ({"known": "issued", "time": None}, ValueError, "so known= needs time="),
        ({"known": AFTER.alias("site")}, ts.errors.SchemaError, "'site' is the name of an entity or time column"),
        (
            {"known": AFTER.alias("lead"), "columns": ["lead"]},
            ts.errors.SchemaError,
            "the known time only if it holds these",
        ),
        ({"known": AFTER, "columns": {"known": "wind"}}, ts.errors.SchemaError, "'known' is made of 'wind'"),
        ({"known": "issued", "columns": {"issued": "wind"}}, ts.errors.SchemaError, "'issued' is made of 'wind'"),
        (
            {"known": "issued", "static": pl.DataFrame({"site": ["a", "b"], "issued": 1})},
            ts.errors.SchemaError,
            "'issued'",
        ),
    ],
)
def test_what_cannot_say_it_is_refused(options: dict[str, Any], kind: type[Exception], message: str) -> None:
    options = {"columns": ["wind"], **KEYS, **options}
    with pytest.raises(kind, match=like(message)):
        ts.load(RUNS, **options)


# Rows that are refused


@settings(max_examples=40)
@given(
    rows=st.lists(st.tuples(st.sampled_from("ab"), few, few), unique=True, min_size=1, max_size=12),
    nulls=st.sets(st.integers(0, 11), min_size=1),
    cuts=some_cuts,
)
def test_a_null_is_refused_with_its_row(rows: list[Row], nulls: set[int], cuts: list[int]) -> None:
    at = sorted(row for row in nulls if row < len(rows)) or [0]
    frame = frame_of(rows).with_columns(k=pl.when(pl.col("y").is_in(at)).then(None).otherwise(pl.col("k")))
    table = pa.concat_tables(pieces_of(frame, cuts))
    for known in ("k", pl.col("k") + 1):
        with pytest.raises(
            ts.errors.DataError,
            match=rf"needs an entity and a time, and with known= a known time; .* is null in row {at[0]} ",
        ):
            ts.load(table, ["y"], entity="e", time="t", known=known)
    kept = ts.load(table, ["y"], entity="e", time="t", known="k", filter=pc.field("k").is_valid())
    check(kept, frame.drop_nulls())


@settings(max_examples=60)
@given(
    rows=st.lists(st.tuples(st.sampled_from("ab"), few, few), min_size=2, max_size=12),
    block=st.sampled_from([1, 4, 99]),
)
def test_two_versions_known_at_one_time_are_refused_with_their_rows(rows: list[Row], block: int) -> None:
    frame = frame_of(rows)
    twice = by_polars(frame)[0].filter(pl.struct("e", "t", "k").is_duplicated())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_order, "_BLOCK", block)
        if twice.is_empty():
            check(ts.load(frame, ["y"], entity="e", time="t", known="k"), frame)
            return
        first, second, entity, time, known = [*twice["y"][:2], *twice.row(0)[1:]]
        message = f"entity '{entity}' has t {time} with k {known} in source rows {first} and {second}. Drop one"
        with pytest.raises(ts.errors.DataError, match=like(message)):
            ts.load(frame, ["y"], entity="e", time="t", known="k")


# Where a stash is kept


@pytest.fixture
def label() -> Iterator[str]:
    yield "known-test"
    ts.shared.remove("known-test")


@pytest.mark.usefixtures("shm")
def test_a_stash_has_known_times_wherever_it_is_kept(tmp_path: Path, label: str) -> None:
    for number, piece in enumerate([RUNS[4:], RUNS[:1], RUNS[1:4]]):
        write_parquet(tmp_path / f"{number}.parquet", [piece.to_arrow()])
    frame = pl.concat([RUNS[4:], RUNS[:1], RUNS[1:4]])
    options: dict[str, Any] = {**KEYS, "known": AFTER, "columns": ["wind"]}
    stash = ts.load(frame, **options)
    assert stash.is_by_known
    stash.save(tmp_path / "saved.safetensors")
    shared = ts.load(tmp_path, share=label, **options)
    others = {
        "files": ts.load(tmp_path, **options),
        "plan": ts.plan(tmp_path, **options).load(),
        "saved": ts.open(tmp_path / "saved.safetensors"),
        "shared": shared,
        "attached": ts.attach(label),
        "pickled": pickle.loads(pickle.dumps(shared)),
        "file": ts.load(tmp_path, file=tmp_path / "file.safetensors", **options),
        "again": ts.load(tmp_path, file=tmp_path / "file.safetensors", **options),
        "lazy": ts.load(frame.lazy(), version="1", share=label, **options),
        "copied": stash.share(label),
        "arrow": ts.load(stash.to_arrow(), ["wind"], known="known", **KEYS),
        "polars": ts.load(stash.to_polars(), ["wind"], known="known", **KEYS),
        "like": ts.load(tmp_path, like=stash, **options),
        "like alone": ts.load(tmp_path, like=stash),
    }
    facts = (
        "known_name",
        "known_clock",
        "known_range",
        "times_checksum",
        "is_by_known",
    )
    for name, other in others.items():
        assert bits(other) == bits(stash), name
        assert other.info.known is not None
        assert stash.info.known is not None
        assert (other.info.known.checksum, other.info.known.events) == (
            stash.info.known.checksum,
            stash.info.known.events,
        )
        assert [getattr(other, fact) for fact in facts] == [getattr(stash, fact) for fact in facts], name
    assert ts.load(tmp_path, share=label, **options).path == shared.path
    assert ts.load(tmp_path, share=label, **options | {"known": "issued"}).path != shared.path
    assert ts.load(tmp_path, share=label, **options | {"known": AFTER.alias("out")}).path != shared.path
    with pytest.raises(ts.errors.SegmentError, match="overwrite=True"):
        ts.load(tmp_path, file=tmp_path / "file.safetensors", **options | {"known": "issued"})
    function = pl.col("issued").map_elements(lambda value: value, return_dtype=pl.Datetime("us"))
    with pytest.raises(ValueError, match="Python functions"):
        ts.load(tmp_path, share=label, **options | {"known": function})


def test_rows_of_a_shard_and_of_a_filter_keep_their_known_times() -> None:
    whole = ts.load(RUNS, ["wind"], known=AFTER, **KEYS).to_polars()
    for name in ("a", "b"):
        kept = ts.load(RUNS, ["wind"], known=AFTER, filter=pl.col("site") == name, **KEYS).to_polars()
        assert_frame_equal(kept, whole.filter(pl.col("site") == name))
    shards = [ts.load(RUNS, ["wind"], known=AFTER, shard=(k, 3), **KEYS).to_polars() for k in range(3)]
    assert_frame_equal(pl.concat(shards).sort("site", "valid", "known"), whole.sort("site", "valid", "known"))


def test_static_columns_and_entities_of_another_stash_stay_as_they_are() -> None:
    sites = pl.DataFrame({"site": ["a", "b", "c"], "height": [10.0, 20.0, 30.0]})
    reference = ts.load(sites.with_columns(t=1), ["height"], entity="site", time="t")
    stash = ts.load(RUNS, ["wind"], known="issued", static=sites, like=reference, **KEYS)
    assert (stash.entities, stash.offsets.tolist()) == (["a", "b", "c"], [0, 4, 7, 7])
    assert stash.static["height"].tolist() == [10.0, 20.0, 30.0]


def test_a_scaled_stash_keeps_its_known_times() -> None:
    regular = ts.load({"wind": np.arange(9.0), "t": np.arange(9)}, ["wind"], time="t")
    scaler = ts.Scaler.fit(ts.Windows(regular, 1), ["wind"])
    stash = ts.load(RUNS, ["wind"], known=AFTER, **KEYS)
    scaled = scaler.transform(stash)
    assert stash.known is not None
    assert scaled.known is not None
    assert (scaled.known.tolist(), scaled.known_name) == (stash.known.tolist(), "known")
    assert scaled.is_by_known


@pytest.mark.usefixtures("shm")
def test_a_stash_without_rows_has_no_known_time(tmp_path: Path, label: str) -> None:
    options: dict[str, Any] = {**KEYS, "columns": ["wind"], "known": AFTER}
    stash = ts.load(RUNS[:0], file=tmp_path / "none.safetensors", **options)
    for held in (stash, ts.open(tmp_path / "none.safetensors"), ts.load(RUNS[:0], share=label, **options)):
        assert held.known is not None
        assert held.known.shape == (0,)
        assert (held.known_range, held.known_clock) == ((None, None), Clock("us", None))
        assert held.to_polars().schema["known"] == pl.Datetime("us")
        assert "known from" not in repr(held)
        assert "0 entities" in held._repr_html_()


def test_a_stash_without_known_times_says_so() -> None:
    stash = ts.load(RUNS.unique(["site", "valid"]), ["wind"], **KEYS)
    assert stash.known is None
    assert (stash.known_name, stash.known_range, stash.info.known) == (None, (None, None), None)
    assert (stash.known_clock, stash.is_by_known) == (Clock(None, None), False)
    assert ts.plan(RUNS, ["wind"], **KEYS).choice.known is None


def test_the_checksum_tells_known_times_apart() -> None:
    """The times are equal: only when they became known differs."""
    sums = []
    for hours in (0, 5):
        stash = ts.load(RUNS, ["wind"], known=pl.col("issued") + pl.duration(hours=hours), **KEYS)
        sums.append((stash.times_checksum, stash.info.known and stash.info.known.checksum))
    assert sums[0][0] == sums[1][0]
    assert sums[0][1] != sums[1][1]


# What is shown


def test_a_plan_counts_the_bytes_of_the_known_times(tmp_path: Path) -> None:
    rows = 3000
    frame = pl.DataFrame({"t": np.arange(rows), "k": np.arange(rows) // 7, "y": np.zeros(rows)})
    plan, without = (ts.plan(frame, ["y"], time="t", known=known) for known in ("k", None))
    assert plan.nbytes - without.nbytes == 6 * 4096  # 3,000 of 8 bytes, in whole pages
    stash = plan.load(file=tmp_path / "plan.safetensors")
    tensors = ("y", "__time", "__known")
    assert sum(-(-stash.segment.tensors[name].nbytes // 4096) * 4096 for name in tensors) == plan.nbytes
    assert plan.choice.known is not None
    assert (plan.choice.known.members, plan.choice.known.dtype) == (("k",), torch.int64)
    assert (plan.skipped, ts.plan(frame, ["y"], time="t").skipped) == ((), ("k",))
    assert plan.load().known_name == "k"


def test_a_stash_shows_when_its_rows_became_known() -> None:
    stash = ts.load(RUNS, ["wind"], known=AFTER, **KEYS)
    shown = "valid 2024-01-01 07:00:00 to 2024-01-01 08:00:00, known from 2024-01-01 05:00:00 to 2024-01-01 11:00:00"
    assert shown in repr(stash)
    assert shown in stash._repr_html_()
    assert [line.split()[:4] for line in repr(stash).splitlines()[-2:]] == [
        ["valid", "int64", "time", "us"],
        ["known", "int64", "known", "us"],
    ]
