"""Series in rows, `layout="lists"`: equal to the same rows one by one, in every form that a source has."""

import tempfile
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests.layouts import FORMS, Producer, bits, peak_of
from tests.oracle_load import whole

VALUES: dict[str, tuple[pa.DataType, Any]] = {
    "float32": (pa.float32(), lambda k: k / 4),
    "float64": (pa.float64(), lambda k: k / 3),
    "int16": (pa.int16(), lambda k: k - 5),
    "bool": (pa.bool_(), lambda k: k % 3 == 0),
    "text": (pa.string(), lambda k: f"v{k % 5}"),
    "timestamp": (pa.timestamp("ms"), lambda k: datetime(2024, 1, 1) + timedelta(hours=k)),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Table, pa.Table]:
    """Rows with lists, and the same rows one by one, written down in plain Python."""
    kind = draw(st.sampled_from([*VALUES]))
    arrow, make = VALUES[kind]
    nullable = kind in ("float32", "float64", "text")
    outer = draw(st.sampled_from([pa.list_, pa.large_list]))
    lengths = [draw(st.integers(1, 4)), *draw(st.lists(st.integers(0, 5), max_size=8))]
    times = iter(draw(st.permutations(range(sum(lengths)))))
    variates = draw(st.integers(1, 3))
    rows, flat, count = [], [], 0
    for k, length in enumerate(lengths):
        name = f"e{draw(st.integers(0, 4))}"
        # a null list, and null items, of the columns that may have them; the first row shows the number of variates
        no_y, no_x = (bool(k) and length > 0 and draw(st.integers(0, 4)) == 0 for _ in range(2))
        own = [next(times) for _ in range(length)]
        y = [None if nullable and draw(st.integers(0, 5)) == 0 else make(count + i) for i in range(length)]
        x = [
            [(count + i) * 10.0 + v if draw(st.integers(0, 5)) else None for i in range(length)]
            for v in range(variates)
        ]
        gone = [bool(k) and draw(st.integers(0, 6)) == 0 for _ in x]
        code = [int(name[1:]), 7]
        rows.append(
            {
                "id": name,
                "t": own,
                "y": None if no_y and nullable else y,
                "x": None if no_x else [None if lost else one for one, lost in zip(x, gone)],
                "code": code,
                "site": f"site {name}",
            }
        )
        flat += [
            {
                "id": name,
                "t": own[i],
                "y": None if no_y and nullable else y[i],
                "x": [None if no_x or lost else one[i] for one, lost in zip(x, gone)],
                "code": code,
                "site": f"site {name}",
            }
            for i in range(length)
        ]
        count += length
    about = [("id", pa.string()), ("t", outer(pa.int64())), ("y", outer(arrow)), ("x", outer(pa.list_(pa.float32())))]
    lists = pa.schema([*about, ("code", pa.list_(pa.int32())), ("site", pa.string())])
    plain = [("id", pa.string()), ("t", pa.int64()), ("y", arrow), ("x", pa.list_(pa.float32(), variates))]
    schema = pa.schema([*plain, ("code", pa.list_(pa.int32())), ("site", pa.string())])
    return pa.Table.from_pylist(rows, lists), pa.Table.from_pylist(flat, schema)


FILTERS = [
    None,
    [("t", ">", 3)],
    [("id", "in", ["e0", "e3"])],
    (pc.field("t") < 9) & (pc.field("site") != "site e1"),
]


@settings(max_examples=100, deadline=None)
@given(both=tables(), form=st.sampled_from([*FORMS]), condition=st.sampled_from(range(len(FILTERS))))
def test_lists_are_as_their_items_one_by_one(both: tuple[pa.Table, pa.Table], form: str, condition: int) -> None:
    """Values, entities, times and static columns, with nulls, for rows in any order and entities in several rows."""
    lists, flat = both
    arguments: dict[str, Any] = {
        "columns": {"y": "y", "x": "x", "twice": pl.col("t") * 2, "label": "site"},
        "entity": "id",
        "time": "t",
        "static": {"code": "code", "site": "site", "first": pl.col("site").str.slice(0, 4)},
        "filter": FILTERS[condition],
    }
    with tempfile.TemporaryDirectory() as path:
        try:
            expected = ts.load(flat, **arguments)
        except ts.errors.TensorstashError as error:  # a filter that leaves nothing of a list
            with pytest.raises(type(error)):
                ts.load(FORMS[form](lists, Path(path)), layout="lists", **arguments)
            return
        try:
            found = ts.load(FORMS[form](lists, Path(path)), layout="lists", **arguments)
        except ts.errors.SchemaError:  # the filter has left out the row groups that show how many variates there are
            assert expected["x"].isnan().all()
            return
    assert bits(found) == bits(expected)


@pytest.mark.parametrize("items", [7, 64, 262_144])
def test_long_series_and_many_short_ones_are_cut_into_pieces(
    items: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`explode` of polars gives the same, whatever the pieces are."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 40, 200)
    lengths[17] = 1000
    frame = pl.DataFrame(
        {
            "id": [f"series {k}" for k in range(200)],
            "t": [rng.permutation(length) for length in lengths],
            "y": [rng.standard_normal(length).astype(np.float32) for length in lengths],
        }
    )
    frame.write_parquet(tmp_path / "lists.parquet", row_group_size=60)
    expected = ts.load(frame.filter(pl.col("t").list.len() > 0).explode("t", "y"), ["y"], entity="id", time="t")
    monkeypatch.setattr("tensorstash.sources.lists.BATCH_ROWS", items)
    for source in (frame, tmp_path / "lists.parquet"):
        assert bits(ts.load(source, ["y"], entity="id", time="t", layout="lists")) == bits(expected)


def hiding(values: pa.Array, fixed: bool) -> pa.Array:
    """Five lists of two, of which a null one has items all the same, as a slice of a longer array."""
    missing = pa.array([False, False, True, False, True, False])
    if fixed:
        return pa.FixedSizeListArray.from_arrays(values, 2, mask=missing).slice(1)
    whole_array = pa.ListArray.from_arrays(pa.array(range(0, 13, 2), pa.int32()), values, mask=missing)
    return whole_array.slice(1)


@pytest.mark.parametrize("fixed", [False, True])
def test_items_of_null_lists_are_not_seen(fixed: bool) -> None:
    y, x = hiding(pa.array(np.arange(12.0)), fixed), pa.array([[k, k] for k in range(5)])
    nested = pa.array([[[1.0, 2.0]], None, [[3.0, 4.0]], [None], [[5.0, 6.0]]])
    stash = ts.load(pa.table({"y": y, "x": x, "z": nested}), layout="lists")
    assert stash["y"].nan_to_num(-1).tolist() == [2.0, 3.0, -1.0, -1.0, 6.0, 7.0, -1.0, -1.0, 10.0, 11.0]
    assert stash["z"][:, 0].nan_to_num(-1).tolist() == [1.0, 2.0, -1.0, -1.0, 3.0, 4.0, -1.0, -1.0, 5.0, 6.0]
    alone = ts.load(pa.table({"y": y}), layout="lists")
    assert alone.entities == [0, 2, 4]
    assert alone["y"].tolist() == [2.0, 3.0, 6.0, 7.0, 10.0, 11.0]


# Times of ts.regular


STARTS = [datetime(2024, 1, 31, 9), datetime(2023, 3, 10, 23, 30), datetime(1969, 12, 31), datetime(2024, 2, 29)]


def stepped(starts: pl.Series, passed: pl.Series, every: str) -> pl.Series:
    """The times so many steps after the starts, by polars."""
    if every == "1bd":
        return starts.to_frame("s").select(pl.col("s").dt.add_business_days(passed))["s"]
    count, unit = (int("".join(c for c in every if c.isdigit())), "".join(c for c in every if c.isalpha()))
    steps = pl.Series([f"{k * count}{unit}" for k in passed])
    return pl.select(pl.lit(starts).dt.offset_by(pl.lit(steps))).to_series()


@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
@pytest.mark.parametrize(
    ("every", "alias"),
    [
        ("30s", "30S"), ("15m", "15T"), ("1h", "H"), ("6h", "6h"), ("1d", "D"), ("1w", "W-SUN"), ("1bd", "B"),
        ("1mo", "MS"), ("5mo", "5M"), ("1q", "QE-DEC"), ("2y", "2A"),
    ],
)  # fmt: skip
def test_regular_times_are_those_of_polars(every: str, alias: str, zone: str | None) -> None:
    lengths = [5, 0, 30, 1]
    starts = pl.Series("start", STARTS, pl.Datetime("us")).dt.replace_time_zone(zone)
    frame = pl.DataFrame({"start": starts, "y": [[float(k) for k in range(n)] for n in lengths], "freq": alias})
    begins = pl.concat([starts[k : k + 1].new_from_index(0, n) for k, n in enumerate(lengths) if n])
    passed = pl.Series([i for n in lengths for i in range(n)])
    expected = stepped(begins, passed, every).dt.timestamp("us").to_list()
    for asked in (every, "freq"):
        stash = ts.load(frame, ["y"], layout="lists", time=ts.regular("start", asked))
        assert stash.time is not None
        assert stash.time.tolist() == expected
        assert stash.entities == [0, 2, 3]
        assert (stash.clock.unit, stash.clock.zone) == ("us", zone)


def test_regular_times_of_other_types() -> None:
    """Dates, integers, text, and a step for each series."""
    lists = {"y": [[1.0, 2.0, 3.0], [4.0, 5.0]], "freq": ["D", "2M"], "n": [10, 1]}
    days = ts.load({**lists, "d": [date(2024, 2, 28)] * 2}, ["y"], layout="lists", time=ts.regular("d", "freq"))
    assert days.time is not None
    assert [days.clock.format(t) for t in days.time.tolist()] == [
        "2024-02-28", "2024-02-29", "2024-03-01", "2024-02-28", "2024-04-28"
    ]  # fmt: skip
    counted = {**lists, "at": np.array([5, 7], np.int16)}
    numbers = ts.load(counted, ["y"], layout="lists", time=ts.regular("at", 3))
    assert numbers.time is not None
    assert numbers.time.tolist() == [5, 8, 11, 7, 10]
    numbers = ts.load(counted, ["y"], layout="lists", time=ts.regular("at", "n"))
    assert numbers.time is not None
    assert numbers.time.tolist() == [5, 15, 25, 7, 8]
    texts = {**lists, "start": ["2024-01-01 00:00", "2023-01-01T12:00"]}
    stash = ts.load(texts, ["y"], layout="lists", time=ts.regular("start", "1h"))
    assert stash.time is not None
    assert stash.clock.format(int(stash.time[4])) == "2023-01-01 13:00:00"


# Files of other libraries


def test_a_gluonts_file(tmp_path: Path) -> None:
    """`start`, `freq`, `target`, `item_id`, and the features that its models know."""
    rows = [
        {
            "item_id": f"T{k}",
            "start": datetime(2020, 1, 1 + k),
            "freq": "H",
            "target": [k + i / 10 for i in range(3 + k)],
            "feat_static_cat": [k, 3],
            "feat_static_real": [k / 2],
            "feat_dynamic_real": [[float(i) for i in range(3 + k)], [-float(i) for i in range(3 + k)]],
        }
        for k in range(5)
    ]
    cat, real, dynamic = pa.list_(pa.int32()), pa.list_(pa.float32()), pa.list_(pa.list_(pa.float32()))
    schema = pa.schema(
        {"item_id": pa.string(), "start": pa.timestamp("us"), "freq": pa.string(), "target": real}
        | {"feat_static_cat": cat, "feat_static_real": real, "feat_dynamic_real": dynamic}
    )
    pq.write_table(pa.Table.from_pylist(rows, schema), tmp_path / "train.parquet", row_group_size=2)
    stash = ts.load(
        tmp_path / "train.parquet",
        {"y": "target", "x": "feat_dynamic_real", "hour": ts.calendar("hour")},
        layout="lists",
        entity="item_id",
        time=ts.regular(start="start", every="freq"),
        static={"cat": "feat_static_cat", "real": "feat_static_real"},
    )
    assert stash.entities == ["T0", "T1", "T2", "T3", "T4"]
    assert stash.offsets.tolist() == [0, 3, 7, 12, 18, 25]
    assert stash["x"][3:7].tolist() == [[0.0, 0.0], [1.0, -1.0], [2.0, -2.0], [3.0, -3.0]]
    assert stash["hour"][:3, 0].tolist() == [0, 1, 2]
    assert stash.static["cat"].tolist() == [[k, 3] for k in range(5)]
    assert stash.static["real"][:, 0].tolist() == [k / 2 for k in range(5)]
    windows = ts.Windows(stash, spans={"past": ("x", -2, 0), "y": ("y", 0, 1)})
    assert len(windows) == 1 + 2 + 3 + 4 + 5


@pytest.mark.parametrize("ending", ["parquet", "feather"])
def test_flattened_arrays_of_gluonts(ending: str, tmp_path: Path) -> None:
    """Its writers store an array of two dimensions as a flat list, and its shape in a column beside it."""
    arrays = [np.arange(6.0).reshape(2, 3), np.arange(10.0, 14.0).reshape(2, 2), np.zeros((2, 0))]
    table = pa.table(
        {
            "start": [datetime(2024, 1, 1)] * 3,
            "target._np_shape": [list(one.shape) for one in arrays],
            "target": pa.array([one.flatten() for one in arrays], pa.list_(pa.float64())),
        }
    )
    path = tmp_path / f"data.{ending}"
    if ending == "parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    expected = [[0, 3], [1, 4], [2, 5], [10, 12], [11, 13]]
    for columns in (None, ["target"]):
        for source in (path, table, pl.DataFrame(table), Producer(table)):
            stash = ts.load(source, columns, layout="lists", time=ts.regular("start", "1h"))
            assert stash["target"].tolist() == expected
            assert stash.entities == [0, 1]
    wrong = table.set_column(1, "target._np_shape", pa.array([[2, 3], [2, 3], [2, 0]]))
    message = (
        "An array of GluonTS has the two dimensions that its shape says; column 'target' has not in row 1 of the "
        "pyarrow Table. Write the file again."
    )
    with pytest.raises(ts.errors.DataError, match=whole(message)):
        ts.load(wrong, layout="lists")


def test_a_chronos_file(tmp_path: Path) -> None:
    """`id`, `timestamp` and `target`; the times of each row are a list."""
    frame = pl.DataFrame(
        {
            "id": ["a", "b"],
            "timestamp": [[datetime(2024, 1, 1, h) for h in range(3)], [datetime(2024, 1, 1, h) for h in (2, 1)]],
            "target": [[1.0, None, 3.0], [5.0, 4.0]],
        },
        schema_overrides={"timestamp": pl.List(pl.Datetime("ms"))},
    )
    frame.write_parquet(tmp_path / "train.parquet")
    stash = ts.load(tmp_path / "train.parquet", layout="lists", entity="id", time="timestamp")
    assert [*stash] == ["target"]
    assert stash["target"].nan_to_num(-1).tolist() == [1.0, -1.0, 3.0, 4.0, 5.0]


def test_a_uni2ts_file_of_several_variates(tmp_path: Path) -> None:
    """`target` is variates x time, of large or fixed-size lists, too."""
    target = [[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [[7.0, 8.0], [9.0, None]]]
    for outer in (pa.list_(pa.large_list(pa.float32())), pa.list_(pa.list_(pa.float32()), 2)):
        columns = {"item_id": ["a", "b"], "start": pa.array([0, 60], pa.timestamp("s")), "freq": ["T", "min"]}
        with pa.ipc.new_file(
            tmp_path / "data.arrow", pa.table(columns | {"target": pa.array(target, outer)}).schema
        ) as f:
            f.write_table(pa.table(columns | {"target": pa.array(target, outer)}))
        time = ts.regular("start", "freq")
        stash = ts.load(tmp_path / "data.arrow", ["target"], layout="lists", entity="item_id", time=time)
        assert stash["target"].nan_to_num(-1).tolist() == [[1, 4], [2, 5], [3, 6], [7, 9], [8, -1]]
        assert stash.time is not None
        assert stash.time.tolist() == [0, 60, 120, 60, 120]


def test_a_monash_file_of_hugging_face(tmp_path: Path) -> None:
    """Features that no row has are left out; without item_id each row is a series."""
    rows = [
        {"start": datetime(1979, 1, 1), "target": [[1.0, 2.0]], "feat_static_cat": [k], "feat_dynamic_real": None}
        for k in (4, 5)
    ]
    schema = pa.schema(
        {"start": pa.timestamp("s"), "target": pa.list_(pa.list_(pa.float32()))}
        | {"feat_static_cat": pa.list_(pa.uint64()), "feat_dynamic_real": pa.list_(pa.list_(pa.float32()))}
    )
    pq.write_table(pa.Table.from_pylist(rows, schema), tmp_path / "train.parquet")
    time = ts.regular("start", "1mo")
    arguments: dict[str, Any] = {"layout": "lists", "time": time, "static": ["feat_static_cat"]}
    stash = ts.load(tmp_path / "train.parquet", ["target"], **arguments)
    assert stash.entities == [0, 1]
    assert stash.entity_names == ("row",)
    assert stash["target"].shape == (4, 1)
    assert stash.static["feat_static_cat"].tolist() == [[4], [5]]
    message = (
        "A list of variates has as many of them as the first row that is neither null nor empty; column "
        f"'feat_dynamic_real' of {tmp_path / 'train.parquet'} has no such row. Leave it out of columns=."
    )
    with pytest.raises(ts.errors.SchemaError, match=whole(message)):
        ts.load(tmp_path / "train.parquet", **arguments)


# What else a load can do


def lists_file(path: Path, rows: int = 40) -> Path:
    """Series of three hours each, in several row groups."""
    table = {
        "item_id": [f"s{k // 2}" for k in range(rows)],
        "start": [datetime(2024, 1, 1) + timedelta(hours=3 * (k % 2)) for k in range(rows)],
        "target": [[float(3 * k + i) for i in range(3)] for k in range(rows)],
        "size": [[k // 2, k // 4] for k in range(rows)],
    }
    pq.write_table(pa.table(table), path / "lists.parquet", row_group_size=10)
    return path / "lists.parquet"


ARGUMENTS: dict[str, Any] = {
    "columns": {"y": "target", "double": pl.col("target") * 2},
    "layout": "lists",
    "entity": "item_id",
    "time": ts.regular("start", "1h"),
    "static": ["size"],
}


def test_rows_of_one_entity_are_parts_of_one_series(tmp_path: Path) -> None:
    stash = ts.load(lists_file(tmp_path), **ARGUMENTS)
    assert stash.offsets.tolist() == [*range(0, 121, 6)]
    assert stash["double"].tolist() == [2.0 * k for k in range(120)]


def test_a_filter_on_a_column_of_the_rows_leaves_row_groups_out(tmp_path: Path) -> None:
    """And one on items does not: the statistics of a start are not those of the times."""
    path = lists_file(tmp_path)
    planned = ts.plan(path, filter=[("item_id", "in", ["s0", "s4"])], **ARGUMENTS)
    assert (planned.rows, planned.pieces, planned.kept) == (12, 4, 1)
    late = ts.load(path, filter=[("time", ">=", datetime(2024, 1, 1, 4))], **ARGUMENTS)
    assert late["y"].tolist() == [k for k in range(120) if k % 6 >= 4]
    big = ts.load(path, filter=pc.field("target") > 100, **ARGUMENTS)
    assert big["y"].tolist() == [*range(101, 120)]
    starts = ts.load(path, filter=[("start", ">", datetime(2024, 1, 1))], **ARGUMENTS)
    assert starts["y"].tolist() == [k for k in range(120) if k % 6 >= 3]


@pytest.mark.usefixtures("shm")
@pytest.mark.parametrize("form", ["file", "table", "stream"])
def test_lists_are_shared_under_a_key_of_their_own(form: str, tmp_path: Path) -> None:
    table = pq.read_table(lists_file(tmp_path))
    source = FORMS[form](table, tmp_path)
    first = ts.load(source, share="series", **ARGUMENTS)
    assert ts.load(source, share="series", **ARGUMENTS).path == first.path
    assert bits(first) == bits(ts.load(source, **ARGUMENTS))
    other = ts.load(source, share="series", **(ARGUMENTS | {"time": ts.regular("start", "30m")}))
    assert other.path != first.path
    rows = ts.load(source, share="series", **(ARGUMENTS | {"entity": None}))
    assert rows.path != first.path
    assert rows.entities == [*range(40)]


def test_lists_are_written_to_a_file(tmp_path: Path) -> None:
    path = lists_file(tmp_path)
    stash = ts.load(path, file=tmp_path / "stash.safetensors", **ARGUMENTS)
    assert bits(stash) == bits(ts.load(path, **ARGUMENTS))
    assert bits(ts.open(tmp_path / "stash.safetensors")) == bits(stash)


def test_a_plan_tells_the_items(tmp_path: Path) -> None:
    planned = ts.plan(lists_file(tmp_path), **ARGUMENTS)
    assert planned.rows == 120
    lines = repr(planned).splitlines()
    assert [line.split()[0] for line in lines[1:7]] == ["column", "y", "double", "size", "item_id", "time"]
    assert lines[-1] == "skipped: nothing"


def test_a_frame_of_static_columns_is_joined(tmp_path: Path) -> None:
    stores = pl.DataFrame({"item_id": [f"s{k}" for k in range(20)], "area": range(20)})
    stash = ts.load(lists_file(tmp_path), **(ARGUMENTS | {"static": stores}))
    assert stash.static["area"].tolist() == [*range(20)]


# Memory


def test_long_series_in_one_row_group_take_memory_for_a_few_of_them(tmp_path: Path) -> None:
    """40 MB in 200 series, of which a reader without care decodes all at once."""
    lists = pa.ListArray.from_arrays(
        pa.array(np.arange(201, dtype=np.int32) * 50_000), np.arange(1e7, dtype=np.float32)
    )
    table = pa.table({"target": lists, "start": [0] * 200})
    pq.write_table(table, tmp_path / "long.parquet", row_group_size=200, use_dictionary=False, compression="none")
    call = 'ts.load(source, ["target"], layout="lists", time=ts.regular("start", 1), progress=False)'
    stash, peak = peak_of(call, tmp_path / "long.parquet")
    assert stash == "10000000 rows, 200 entities"
    assert peak < 60


# Errors


def refused(error: type[Exception], message: str, source: Any, **arguments: Any) -> None:
    with pytest.raises(error, match=whole(message)):
        ts.load(source, **({"layout": "lists", "time": None} | arguments))


def test_helpful_errors_of_lists(tmp_path: Path) -> None:
    table = pa.table(
        {"id": ["a", "b", "c"], "y": [[1.0], [2.0, 3.0], [4.0]], "x": [[1.0], [2.0, 3.0], [4.0, 5.0]], "z": [1, 2, 3]}
    )
    pq.write_table(table, tmp_path / "uneven.parquet", row_group_size=2)
    where = tmp_path / "uneven.parquet"
    refused(
        ts.errors.DataError,
        f"The lists of a row have one length; row 2 ({where}, row group 1) has 2 items in 'x' and 1 in 'y'. Name lists "
        "that are no series in static=, or leave them out.",
        where,
        columns=["y", "x"],
    )
    refused(
        ts.errors.SchemaError,
        "With layout='lists' the values of a series are a list; none of the columns that are loaded from the pyarrow "
        "Table is one, and it has the lists 'y', 'x'. Name lists in columns=, or leave layout= out.",
        table,
        columns=["z"],
    )
    refused(
        ts.errors.SchemaError,
        "With layout='lists' a list is a series, or in static= one value of its row; 'x' of the pyarrow Table is in "
        "both. Leave it out of one.",
        table,
        columns={"x": "x"},
        static={"s": "x"},
        entity="id",
    )
    refused(
        ts.errors.SchemaError,
        "Without entity= the number of each row is a column named 'row'; the pyarrow Table has one of that name. "
        "Rename it, or name the column of the series as entity=.",
        table.append_column("row", table["z"]),
        columns=["y"],
    )
    refused(
        ts.errors.SchemaError,
        "The times of ts.regular are a column named 'time'; the pyarrow Table has one of that name. Rename it.",
        table.append_column("time", table["z"]),
        columns=["y"],
        time=ts.regular("z", 1),
    )
    refused(
        ts.errors.SchemaError,
        "Times are timestamps, dates, integers, or text in ISO 8601; 'a' in column 'id' of the pyarrow Table is not. "
        "Convert it, for example with polars: pl.col('id').str.to_datetime(...), or of a CSV file say how it is "
        "written: schema={'id': '%d.%m.%Y %H:%M'}.",
        table,
        columns=["y"],
        time=ts.regular("id", "1h"),
    )
    for source, label in ((table, "the pyarrow Table"), (pl.DataFrame(table), "the polars frame")):
        refused(
            ts.errors.ColumnError,
            f"{label} has no column 'target'; it has 'id', 'y', 'x', 'z'.",
            source,
            columns=["target"],
        )
    nested = pa.table({"y": [[["a"]]], "w": [[[[1.0]]]]})
    for name, arrow in (("y", "list<item: list<item: string>>"), ("w", "list<item: list<item: list<item: double>>>")):
        refused(
            ts.errors.SchemaError,
            "A series is a list of values, or a list of variates, each of them a list of numbers; column "
            f"{name!r} of the pyarrow Table is {arrow}. Leave it out of columns=.",
            nested,
            columns=[name],
        )


def test_helpful_errors_of_variates() -> None:
    table = pa.table({"y": [[[1.0, 2.0], [3.0, 4.0]], [[1.0]]], "x": [[1.0, 2.0], [3.0]]})
    refused(
        ts.errors.DataError,
        "A series has the same number of variates in each row; column 'y' has 1 in row 1, and 2 in the first one. "
        "Leave such rows out of the source, or load the others alone.",
        table,
        columns=["x", "y"],
    )
    refused(
        ts.errors.DataError,
        "The variates of a series have one length; row 0 has 1 items in one variate of 'y' and 2 in another. Pad the "
        "shorter ones with nulls.",
        pa.table({"y": [[[1.0, 2.0], [3.0]]]}),
        columns=["y"],
    )
    uneven = pa.table({"x": [[1.0, 2.0], [3.0]], "y": [[[1.0, 2.0], [3.0, 4.0]], [[1.0], [2.0, 3.0]]]})
    refused(
        ts.errors.DataError,
        "The lists of a row have one length; row 1 has 2 items in 'y' and 1 in 'x'. Name lists that are no series in "
        "static=, or leave them out.",
        uneven,
        columns=["x", "y"],
    )


def test_helpful_errors_of_regular_times() -> None:
    saturday = datetime(2024, 6, 1)
    base = {"y": [[1.0], [2.0, 3.0]], "start": [datetime(2024, 1, 1), saturday], "freq": ["D", "fortnight"]}
    rule = "The times of a series are its start, one step later, and so on; row 1 "
    leave = "or leave such rows out of the source."
    refused(
        ts.errors.DataError,
        f"{rule}starts on a day that is no business day. Correct 'start', {leave}",
        pa.table(base),
        columns=["y"],
        time=ts.regular("start", "1bd"),
    )
    refused(
        ts.errors.DataError,
        f"{rule}has the step 'fortnight', and every= is a duration as polars writes it, such as '15m', '1h', '1d', or "
        f"alone '1mo', '1q', '1y', '1bd'; got 'fortnight'. Correct 'start' and 'freq', {leave}",
        pa.table(base),
        columns=["y"],
        time=ts.regular("start", "freq"),
    )
    refused(
        ts.errors.DataError,
        f"{rule}has no start. Correct 'start', {leave}",
        pa.table(base | {"start": [saturday, None]}),
        columns=["y"],
        time=ts.regular("start", "1h"),
    )
    refused(
        ts.errors.DataError,
        f"{rule}has no step. Correct 'start' and 'freq', {leave}",
        pa.table(base | {"freq": ["D", None]}),
        columns=["y"],
        time=ts.regular("start", "freq"),
    )
    refused(
        ts.errors.DataError,
        f"{rule}has times that int64 cannot count in 'us'. Correct 'start', {leave}",
        pa.table(base),
        columns=["y"],
        time=ts.regular("start", "400000y"),
    )
    refused(
        ValueError,
        "every= is a multiple of the time column's unit, 'us'; got '5ns'.",
        pa.table(base),
        columns=["y"],
        time=ts.regular("start", "5ns"),
    )
    refused(
        ts.errors.SchemaError,
        "every= is a duration such as '1h', or names a text or integer column; 'y' is list<item: double>. Write the "
        "duration.",
        pa.table(base),
        columns=["y"],
        time=ts.regular("start", "y"),
    )
    with pytest.raises(ts.errors.ColumnError, match=r"^the pyarrow Table has no column 'each'; it has 'y', "):
        ts.load(pa.table(base), ["y"], layout="lists", time=ts.regular("start", "each"))
    refused(
        ts.errors.ColumnError,
        "every= is a duration as polars writes it, or names a column; the pyarrow Table has no column '15min'. Write "
        "every='15m'.",
        pa.table(base),
        columns=["y"],
        time=ts.regular("start", "15min"),
    )


def test_helpful_errors_of_arguments() -> None:
    data: dict[str, Any] = {"y": [[1.0]], "t": [0]}
    for arguments, error, message in (
        (
            {"layout": "long"},
            ValueError,
            "layout= is 'lists' for a series in each row, 'wide' for a series in each column, or None; got 'long'.",
        ),
        (
            {"time": ts.regular("t", 1)},
            ValueError,
            "ts.regular gives the times of lists, so it needs layout='lists'. Write it, or name the time column.",
        ),
    ):
        with pytest.raises(error, match=whole(message)):
            ts.load(data, ["y"], **arguments)
    with pytest.raises(TypeError, match=whole("start= is the name of a column; got 5.")):
        ts.regular(5, "1h")  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=whole("every= is a duration such as '1h', an integer, or the name of a column; got ''.")
    ):
        ts.regular("t", "")


def test_a_duplicate_time_and_a_bad_value_name_row_and_item(tmp_path: Path) -> None:
    pq.write_table(pa.table({"t": [[1, 2], [3, 2]], "y": [[1, 2], [3, None]], "id": [5, 5]}), tmp_path / "x.parquet")
    where = f"{tmp_path / 'x.parquet'}, row group 0"
    with pytest.raises(
        ts.errors.DataError,
        match=whole(
            f"A time occurs once in each entity; entity 5 has t 2 in source rows 0 ({where}), item 1 and 1 ({where}), "
            "item 1. Drop one, or name the column that distinguishes the series as entity=."
        ),
    ):
        ts.load(tmp_path / "x.parquet", ["y"], layout="lists", entity="id", time="t")
    with pytest.raises(ts.errors.DataError, match=rf"column 'y'.*{where}"):
        ts.load(tmp_path / "x.parquet", ["y"], layout="lists")


def test_a_stream_of_lists_is_kept_in_pieces_by_its_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorstash.sources.streams._VALUES", 30)
    table = pa.table({"y": [[float(k), 0.0, 1.0] for k in range(50)]})
    stash = ts.load(Producer(table), ["y"], layout="lists")
    assert stash["y"].tolist() == [v for k in range(50) for v in (float(k), 0.0, 1.0)]
    assert ts.plan(Producer(table), ["y"], layout="lists").pieces == 5
    assert stash["y"].dtype == torch.float64
