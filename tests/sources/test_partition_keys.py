"""Keys in the paths of partitioned files: columns, and a filter by them leaves whole files unread."""

import math
from collections.abc import Sequence
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests.oracle_load import like, write_parquet


def partitioned(directory: Path) -> Path:
    for year in (2023, 2024):
        for place in ("Oslo", "São Paulo", None):
            name = "__HIVE_DEFAULT_PARTITION__" if place is None else place.replace(" ", "%20")
            path = directory / f"year={year}" / f"place={name}"
            path.mkdir(parents=True)
            write_parquet(path / "0.parquet", [pa.table({"y": [year, year + 1]})])
    return directory


def test_partition_keys_are_columns(tmp_path: Path) -> None:
    stash = ts.load(partitioned(tmp_path / "d"))
    assert list(stash) == ["y", "year", "place"]
    assert stash["year"].tolist() == [2023] * 6 + [2024] * 6
    assert stash["year"].dtype == torch.int64
    names = [None if code < 0 else stash.vocabulary("place")[code] for code in stash["place"].tolist()]
    assert names == ["Oslo", "Oslo", "São Paulo", "São Paulo", None, None] * 2 or names == (
        ["Oslo"] * 2 + ["São Paulo"] * 2 + [None] * 2
    )


def test_partition_keys_exclude_files_unread(tmp_path: Path) -> None:
    root = partitioned(tmp_path / "d")
    for path in root.glob("year=2024/place=Oslo/*"):
        path.write_bytes(b"no Parquet at all")
    with pytest.raises(ts.errors.SourceError, match=r"year=2024/place=Oslo/0\.parquet is not a readable"):
        ts.load(root)
    conditions: list[Any] = [
        [("year", "==", 2023)],
        pc.field("year") < 2024,
        (pc.field("year") == 2023) & (pc.field("y") > 0),
    ]
    for condition in conditions:
        stash = ts.load(root, ["y", "place"], filter=condition)
        assert stash["y"].tolist() == [2023, 2024] * 3
    assert ts.load(root, ["y"], filter=[("place", "==", "São Paulo")])["y"].tolist() == [2023, 2024, 2024, 2025]
    assert ts.load(root, ["y"], filter=pc.field("place").is_null())["y"].tolist() == [2023, 2024, 2024, 2025]
    assert ts.load(root, ["y"], filter=[("year", "==", 1999)]).rows == 0
    assert ts.plan(root, ["y"], filter=[("year", "==", 2023)]).rows == 6
    assert ts.load(str(root / "year=2023" / "*" / "*"), entity="place", filter=[("place", "!=", "x")]).entities == [
        "Oslo",
        "São Paulo",
    ]


def test_nulls_of_keys_and_columns_that_are_dictionaries_are_kept(tmp_path: Path) -> None:
    root = partitioned(tmp_path / "d")
    keys = pads.HivePartitioning.discover(infer_dictionary=True)
    for source in (root, pads.dataset(root, partitioning=keys)):
        assert ts.load(source, ["y"], filter=pc.field("place").is_null())["y"].tolist() == [2023, 2024, 2024, 2025]
    codes = pa.array([None, None, "a", "b", None, "c"]).dictionary_encode()
    pq.write_table(pa.table({"y": range(6), "code": codes}), tmp_path / "codes.parquet", row_group_size=2)
    for source in (tmp_path / "codes.parquet", pads.dataset(tmp_path / "codes.parquet")):
        assert ts.load(source, ["y"], filter=pc.field("code").is_null())["y"].tolist() == [0, 1, 4]


def test_keys_that_only_some_paths_have_are_a_difference(tmp_path: Path) -> None:
    root = partitioned(tmp_path / "d")
    write_parquet(root / "year=2024" / "1.parquet", [pa.table({"y": [1]})])
    with pytest.raises(ts.errors.SourceError, match=r"need the same columns and types: .*1\.parquet has no column 'pl"):
        ts.load(root)
    assert ts.load(root, ["y", "year"]).rows == 13


# Keys that a file has as a column too

AGREEING: dict[str, list[pa.Array]] = {
    "7": [pa.array([7, 7]), pa.array([7.0, 7.0]), pa.array(["7", "7"]), pa.array(["7", "7"]).dictionary_encode()],
    "007": [pa.array(["007"] * 2), pa.array([7, 7], pa.uint8())],
    "0.1": [pa.array([0.1, 0.1], pa.float32()), pa.array([Decimal("0.1")] * 2, pa.decimal128(4, 1))],
    "1.5": [pa.array([1.5, 1.5], pa.float16())],
    "true": [pa.array([True, True]), pa.array([1, 1], pa.int8()).cast(pa.bool8())],
    "2024-05-01": [pa.array([date(2024, 5, 1)] * 2), pa.array([datetime(2024, 5, 1)] * 2)],
    "2024-05-01 10%3A30%3A00": [pa.array([datetime(2024, 5, 1, 10, 30)] * 2)],
    "__HIVE_DEFAULT_PARTITION__": [pa.array([None, None], pa.float64()), pa.array([None, None], pa.string())],
}


@pytest.mark.parametrize("text", AGREEING)
def test_a_column_that_agrees_with_its_key_is_read(text: str, tmp_path: Path) -> None:
    (tmp_path / f"y={text}").mkdir()
    for array in AGREEING[text]:
        path = write_parquet(tmp_path / f"y={text}" / "0.parquet", [pa.table({"y": array, "k": [3, 4]})])
        of_directory, of_file = ts.load(tmp_path), ts.load(path)
        assert of_directory["y"].equal(of_file["y"]) or of_directory["y"].isnan().all()
        assert ts.load(tmp_path, ["k"], filter=pc.field("k") == 4)["k"].tolist() == [4]


@pytest.mark.parametrize(
    ("text", "array", "row", "found"),
    [
        ("7", pa.array([7, 8]), 1, 8),
        ("7", pa.array([7, None]), 1, None),
        ("x", pa.array([7, 7]), 0, 7),
        ("7", pa.array(["007", "7"]), 0, "007"),
        ("true", pa.array([True, False]), 1, False),
        ("2024-05-01", pa.array([date(2024, 5, 1), date(2024, 5, 2)]), 1, date(2024, 5, 2)),
        ("__HIVE_DEFAULT_PARTITION__", pa.array([None, 1.5]), 1, 1.5),
    ],
)
def test_a_column_that_contradicts_its_key_is_refused(
    text: str, array: pa.Array, row: int, found: Any, tmp_path: Path
) -> None:
    (tmp_path / f"y={text}").mkdir()
    whole = pa.concat_arrays([array, array])
    path = tmp_path / f"y={text}" / "0.parquet"
    pq.write_table(pa.table({"y": whole, "k": range(4)}), path, row_group_size=2)
    fragment = like(f"column 'y' has {found!r} in row {row} ({path}, row group 0), and the path says 'y={text}'.")
    for columns in (["y"], {"n": pl.col("y").is_null()}):
        with pytest.raises(ts.errors.DataError, match=fragment):
            ts.load(tmp_path, columns)
    by_name = ts.load(path, {"k": "k", "valid_y": ts.is_valid("y")})  # what the error says
    assert (by_name["k"].tolist(), by_name["valid_y"].tolist()) == ([0, 1, 2, 3], whole.is_valid().to_pylist())
    assert ts.load(tmp_path, ["k"])["k"].tolist() == [0, 1, 2, 3]
    pq.write_table(pa.table({"y": array.slice(0, 1), "k": [0]}), path)
    with (
        pa.OSFile(str(path.with_suffix(".arrow")), "w") as file,
        pa.ipc.new_file(file, pa.schema({"y": array.type})) as ipc,
    ):
        ipc.write_table(pa.table({"y": whole}))
    path.unlink()
    with pytest.raises(ts.errors.DataError, match=like(f"column 'y' has {found!r} in row {row} ({tmp_path}")):
        ts.load(tmp_path, ["y"])


def test_a_csv_file_that_contradicts_its_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "y=7").mkdir()
    path = tmp_path / "y=7" / "0.csv"
    path.write_text("y,k\n7,1\n8,2\n")
    with pytest.raises(ts.errors.DataError, match=like(f"column 'y' has 8 in row 1 ({path}), and the path says 'y=7'")):
        ts.load(tmp_path)


@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv"])
def test_a_key_is_a_column_of_one_file_and_the_path_of_another(ending: str, tmp_path: Path) -> None:
    for text, columns in (("0.1", {"y": pa.array([0.1, 0.1], pa.float32()), "k": [1, 2]}), ("0.25", {"k": [3, 4]})):
        path = tmp_path / f"y={text}" / f"0.{ending}"
        path.parent.mkdir()
        frame: Any = pl.from_arrow(pa.table(columns))
        write = {"parquet": frame.write_parquet, "arrow": frame.write_ipc, "csv": frame.write_csv}[ending]
        write(path)
    first = 0.1 if ending == "csv" else torch.tensor(0.1).item()  # where it is a column, its values count
    assert ts.load(tmp_path)["y"].tolist() == [first, first, 0.25, 0.25]
    assert ts.load(tmp_path, ["y"])["y"].tolist() == [first, first, 0.25, 0.25]
    assert ts.load(tmp_path, ["k"], filter=[("y", "==", 0.25)])["k"].tolist() == [3, 4]


UNTOLD: list[tuple[str, Any, str]] = [
    ("1", 1, "007"),  # as an integer 7, which another file may have
    ("1.5", 1.5, "2.50"),
    ("1.5", 1.5, "nan"),
    ("1", 1.0, "9007199254740993"),  # no float
    ("1", 1, "x"),
    ("false", False, "x"),
]


@pytest.mark.parametrize(("text", "value", "other"), UNTOLD)
@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv"])
def test_a_key_that_is_no_value_of_the_column_of_another_file_is_refused(
    ending: str, text: str, value: Any, other: str, tmp_path: Path
) -> None:
    for key, frame in ((text, pl.DataFrame({"y": [value], "k": [1]})), (other, pl.DataFrame({"k": [2]}))):
        path = tmp_path / f"y={key}" / f"0.{ending}"
        path.parent.mkdir()
        write: Any = {"parquet": frame.write_parquet, "arrow": frame.write_ipc, "csv": frame.write_csv}[ending]
        write(path)
    is_whole = other == "9007199254740993"  # as all keys are, and the column is floating
    told = "'y' is int64 in ... which does not fit into double" if is_whole else "need the same columns"
    with pytest.raises(ts.errors.TensorstashError, match=like(told)):
        ts.load(tmp_path)
    assert ts.load(tmp_path, ["k"])["k"].tolist() == [1, 2]


def test_a_csv_column_that_is_a_key_of_other_files_is_refused(tmp_path: Path) -> None:
    for key, text in (("1", "k\n1\n"), ("2", "y,k\n2,2\n")):
        (tmp_path / f"y={key}").mkdir()
        (tmp_path / f"y={key}" / "0.csv").write_text(text)
    with pytest.raises(ts.errors.SourceError, match=like("need the same columns; ... has a column 'y'.")):
        ts.load(tmp_path)


def test_times_in_int96_beyond_nanoseconds_agree_with_their_key(tmp_path: Path) -> None:
    (tmp_path / "t=9999-12-31").mkdir()
    table = pa.table({"t": pa.array([datetime(9999, 12, 31)], pa.timestamp("us")), "k": [1]})
    pq.write_table(table, tmp_path / "t=9999-12-31" / "0.parquet", use_deprecated_int96_timestamps=True)
    assert ts.load(tmp_path, ["k"], time="t").rows == 1


def test_keys_beside_a_column_of_views_of_texts(tmp_path: Path) -> None:
    """Of which Arrow takes no rows."""
    for key, columns in (("a", {"y": ["a", "a"], "k": [1, 2]}), ("b", {"k": [3, 4]})):
        (tmp_path / f"y={key}").mkdir()
        pl.DataFrame(columns).write_ipc(tmp_path / f"y={key}" / "0.arrow", compat_level=pl.CompatLevel.newest())
    stash = ts.load(tmp_path, ["k"], entity="y")
    assert (stash.entities, stash["k"].tolist()) == (["a", "b"], [1, 2, 3, 4])


# Types of keys


def meant(texts: Sequence[str | None]) -> tuple[torch.dtype | None, list[Any]]:
    """The dtype of a key, `None` for text, and its values; an oracle in plain Python."""
    known = [text for text in texts if text is not None]

    def is_integer(text: str) -> bool:
        with suppress(ValueError):
            return str(int(text)) == text and -(2**63) <= int(text) < 2**63
        return False

    if all(map(is_integer, known)):
        return torch.int64, [None if text is None else int(text) for text in texts]

    def is_number(text: str) -> bool:
        with suppress(ValueError):
            return str(int(text)) == text and abs(int(text)) <= 2**53
        with suppress(ValueError):
            return repr(float(text)) == text and abs(float(text)) < math.inf
        return False

    if all(map(is_number, known)) and len({float(text) for text in known}) == len(set(known)):
        return torch.float64, [None if text is None else float(text) for text in texts]
    if set(known) <= {"true", "false"}:
        return torch.bool, [None if text is None else text == "true" for text in texts]
    return None, [*texts]


NUMBER_TEXTS = st.one_of(
    st.integers(-(2**64), 2**64).map(str),
    st.integers(-20, 20).map(str),
    st.floats().map(repr),
    st.decimals(-9, 9, places=2).map(str),
    st.integers(0, 99).map("{:03d}".format),
    st.integers(0, 99).map("+{}".format),
)
TEXTS = st.one_of(NUMBER_TEXTS, st.sampled_from(["true", "false", "True"]), st.text("01²-_x.e", min_size=1, max_size=3))
LISTS = st.one_of(
    *(st.lists(st.one_of(texts, st.none()), min_size=1, max_size=4) for texts in (NUMBER_TEXTS, TEXTS)),
    st.lists(st.sampled_from(["true", "false", None]), min_size=1, max_size=3),
)


@pytest.mark.filterwarnings("ignore:Column 'k' is text")  # most of them may read as numbers
@example(["1", "2", "-3"])
@example(["007", "7"])
@example(["7", "+7"])
@example(["1", "2.5"])
@example(["1", "1.0"])
@example(["1.10", "1.1"])
@example(["-0", "0"])
@example(["-0.0"])
@example(["true", "false", None])
@example(["true", "True"])
@example([str(2**63), "1"])
@example([str(2**53 + 1), "0.5"])
@example([str(2**63 - 1), str(-(2**63))])
@example(["1e+16", "1e16"])
@example(["nan", "1.0"])
@example([None])
@given(LISTS)
@settings(max_examples=100)
def test_keys_have_the_narrowest_type_that_gives_every_text_back(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str | None]
) -> None:
    root = tmp_path_factory.mktemp("keys")
    texts = [*dict.fromkeys(texts)]
    for n, text in enumerate(texts):
        path = root / f"k={'__HIVE_DEFAULT_PARTITION__' if text is None else quote(text, safe='')}"
        path.mkdir()
        write_parquet(path / "0.parquet", [pa.table({"n": [n]})])
    dtype, values = meant(texts)
    missing = -7 if dtype is torch.int64 else False
    stash = ts.load(root, {"n": "n", "k": "k" if dtype in (None, torch.float64) else ts.column("k", fill=missing)})
    order = stash["n"].tolist()
    if dtype is None:
        assert stash.about("k").kind == "category"
        assert [None if code < 0 else stash.vocabulary("k")[code] for code in stash["k"].tolist()] == [
            values[n] for n in order
        ]
    else:
        assert stash["k"].dtype == dtype
        fill = math.nan if dtype is torch.float64 else missing
        assert repr(stash["k"].tolist()) == repr([fill if values[n] is None else values[n] for n in order])


def test_a_store_007_and_a_store_7_are_two_entities(tmp_path: Path) -> None:
    for n, text in enumerate(["007", "7"]):
        (tmp_path / f"store={text}").mkdir()
        write_parquet(tmp_path / f"store={text}" / "0.parquet", [pa.table({"t": [1, 2], "y": [n, n + 10]})])
    stash = ts.load(tmp_path, ["y"], entity="store", time="t")
    assert (stash.entities, stash["y"].tolist()) == (["007", "7"], [0, 10, 1, 11])
    assert len(ts.Windows(stash, 1, 1)) == 2


def test_a_filter_by_numbers_and_booleans_in_paths(tmp_path: Path) -> None:
    for n, keys in enumerate(["f=1/flag=true", "f=2.5/flag=true", "f=1/flag=false"]):
        (tmp_path / keys).mkdir(parents=True)
        write_parquet(tmp_path / keys / "0.parquet", [pa.table({"n": [n]})])
    for condition in (pc.field("f") < 2, [("f", "<=", 1)], pl.col("f") < 2):
        assert ts.load(tmp_path, ["n"], filter=condition)["n"].tolist() == [2, 0]
    assert ts.load(tmp_path, ["n"], filter=pc.field("flag"))["n"].tolist() == [0, 1]
