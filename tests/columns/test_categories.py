"""Codes of given vocabularies and of hashes: against a loop over the rows, golden values, and every way of a stash."""

import warnings
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests.oracle_load import like

TEXT_TYPES = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
INTEGER_TYPES = [pa.int8(), pa.uint16(), pa.int64(), pa.uint64(), pa.dictionary(pa.int32(), pa.int64())]
UNLIKELY = ["", "Ü", "日本", "a\0b", "-1", "x" * 200]

text_values = st.sampled_from([*UNLIKELY, "a", "b", "c"])
stores = st.sampled_from(["private", "shared", "saved"])


def integers(arrow: pa.DataType) -> st.SearchStrategy[int]:
    """Few values, so that they come again, and the ends of the type."""
    plain = np.dtype((arrow.value_type if pa.types.is_dictionary(arrow) else arrow).to_pandas_dtype())
    low, high = int(np.iinfo(plain).min), int(np.iinfo(plain).max)
    return st.sampled_from([low, low + 1, 0, 1, 2, high - 1, high])


@st.composite
def columns(draw: st.DrawFn) -> tuple[pa.Array, list[Any], list[Any]]:
    """An array of text or integers with nulls, its values, and a vocabulary."""
    arrow = draw(st.sampled_from(TEXT_TYPES + INTEGER_TYPES))
    is_text = arrow in TEXT_TYPES
    values = text_values if is_text else integers(arrow)
    rows = draw(st.lists(st.none() | values, max_size=30))
    known = draw(st.lists(values, min_size=1, max_size=8, unique=True))
    if not pa.types.is_dictionary(arrow):
        return pa.array(rows, arrow), rows, known
    names = [*dict.fromkeys(draw(st.permutations([*rows, "never" if is_text else 77, None])))]  # null is a name too
    if draw(st.booleans()):
        names.remove(None)
    indices = pa.array([names.index(row) if row in names else None for row in rows], arrow.index_type)
    return pa.DictionaryArray.from_arrays(indices, pa.array(names, arrow.value_type)), rows, known


def slow_codes(rows: Sequence[Any], vocabulary: list[Any], fill: Any) -> list[int]:
    codes = []
    for row in rows:
        name = fill if row is None else row
        if name is None:
            codes.append(-1)
        else:
            codes.append(vocabulary.index(name) if name in vocabulary else len(vocabulary))
    return codes


def slow_bucket(value: Any, buckets: int) -> int:
    if value is None:
        return -1
    return int.from_bytes(blake2b(str(value).encode("utf-8"), digest_size=8).digest(), "little") % buckets


def reopened(stash: ts.Stash, how: str, folder: Path) -> ts.Stash:
    """The same stash, as it is shared or saved."""
    if how == "private":
        return stash
    if how == "shared":
        shared = stash.share("codes")
        ts.shared.remove("codes")
        return shared
    stash.save(folder / "codes.safetensors")
    return ts.open(folder / "codes.safetensors")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("codes")


@settings(max_examples=80)
@given(columns(), st.booleans(), st.booleans(), stores, st.integers(1, 7), st.data())
def test_codes_are_those_of_the_given_vocabulary(
    folder: Path,
    column: tuple[pa.Array, list[Any], list[Any]],
    fills: bool,
    scattered: bool,
    how: str,
    piece: int,
    data: st.DataObject,
) -> None:
    array, rows, vocabulary = column
    fill = data.draw(st.sampled_from(vocabulary)) if fills else None
    entities = (
        [k % 3 for k in range(len(rows))] if scattered else [k * 3 // max(len(rows), 1) for k in range(len(rows))]
    )
    table = pa.table({"e": pa.array(entities, pa.int8()), "c": array})
    source = pa.Table.from_batches(table.to_batches(max_chunksize=piece), table.schema)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        loaded = ts.load(source, {"c": ts.column("c", vocabulary=vocabulary, fill=fill)}, entity="e")
    stash = reopened(loaded, how, folder)
    order = sorted(range(len(rows)), key=lambda row: entities[row])
    ordered = [rows[row] for row in order]
    expected = slow_codes(ordered, vocabulary, fill)

    assert stash["c"].dtype == torch.int32
    assert stash["c"].tolist() == expected
    assert stash.vocabulary("c") == vocabulary
    assert [type(name) for name in stash.vocabulary("c")] == [type(name) for name in vocabulary]
    about, known = stash.about("c"), [code for code in expected if code >= 0]
    counted = (about.nulls, about.missing, about.unknown, about.low, about.high)
    bounds = min(known, default=None), max(known, default=None)
    assert counted == (rows.count(None), expected.count(-1), expected.count(len(vocabulary)), *bounds)
    clear = [vocabulary[code] if 0 <= code < len(vocabulary) else None for code in expected]
    assert stash.to_arrow()["c"].to_pylist() == clear
    assert stash.to_polars()["c"].to_list() == clear


@settings(max_examples=80)
@given(columns(), st.integers(1, 2**31) | st.sampled_from([1, 2, 2**18, 2**31]), stores, st.integers(1, 7))
def test_hashed_codes_are_those_of_hashlib(
    folder: Path, column: tuple[pa.Array, list[Any], list[Any]], buckets: int, how: str, piece: int
) -> None:
    array, rows, _ = column
    table = pa.table({"c": array})
    source = pa.Table.from_batches(table.to_batches(max_chunksize=piece), table.schema)
    stash = reopened(ts.load(source, {"c": ts.hashed("c", buckets)}), how, folder)
    expected = [slow_bucket(row, buckets) for row in rows]
    assert stash["c"].dtype == torch.int32
    assert stash["c"].tolist() == expected
    about, known = stash.about("c"), [code for code in expected if code >= 0]
    counted = (about.kind, about.nulls, about.missing, about.low, about.high)
    assert counted == ("hashed", rows.count(None), rows.count(None), min(known, default=None), max(known, default=None))
    clear = [None if code < 0 else code for code in expected]
    assert stash.to_arrow()["c"].to_pylist() == stash.to_polars()["c"].to_list() == clear


def test_the_oracles_can_fail() -> None:
    assert slow_codes(["a", None, "z"], ["b", "a"], "b") == [1, 0, 2] != slow_codes(["a", None, "z"], ["a", "b"], "b")
    assert slow_bucket("ada", 2**18) == 176149 != slow_bucket("Ada", 2**18)


def test_buckets_never_change() -> None:
    """Models have been trained on these: golden values, of BLAKE2b as RFC 7693 has it."""
    texts = {"t": ["", "a", "user_17", "日本", "x" * 200]}
    numbers = {"i": pa.array([0, -1, 17, 2**64 - 1 - 2**63, -(2**63)])}
    assert ts.load(texts, [ts.hashed("t", 2**31)])["t"].tolist() == [
        1470146276,
        966719552,
        193825716,
        1328886760,
        239874134,
    ]
    assert ts.load(texts, [ts.hashed("t", 1000)])["t"].tolist() == [756, 928, 700, 160, 286]
    assert ts.load(numbers, [ts.hashed("i", 2**31)])["i"].tolist() == [
        494742404,
        1782077215,
        328022304,
        1558239426,
        504380835,
    ]
    assert ts.load({"i": ["17"]}, [ts.hashed("i", 997)])["i"].equal(ts.load({"i": [17]}, [ts.hashed("i", 997)])["i"])


def test_buckets_are_filled_evenly() -> None:
    names = [f"user{k}" for k in range(64_000)]
    counts = ts.load({"u": names}, [ts.hashed("u", 64)])["u"].bincount(minlength=64)
    assert ((counts - 1000.0).square() / 1000).sum().item() < 120  # chi-square of 63 degrees: 1 in 10^5


def test_a_vocabulary_makes_codes_agree_between_stashes() -> None:
    train = ts.load({"c": ["NO", "SE", "NO", None]}, ["c"])
    valid = ts.load({"c": ["SE", "PE", "NO", None]}, [ts.column("c", vocabulary=train.vocabulary("c"))])
    assert valid["c"].tolist() == [1, 2, 0, -1]
    assert valid.vocabulary("c") == train.vocabulary("c") == ["NO", "SE"]
    table = torch.nn.Embedding(len(valid.vocabulary("c")) + 1, 4)
    assert table(valid["c"][:3]).shape == (3, 4)


@pytest.mark.parametrize(
    "given",
    [
        np.array(["SE", "NO"]),
        ("SE", "NO"),
        pl.Series(["SE", "NO"]),
        iter(["SE", "NO"]),
    ],
)
def test_a_vocabulary_is_any_collection_of_plain_values(given: Any) -> None:
    spec = ts.column("c", vocabulary=given)
    assert spec == ts.column("c", vocabulary=["SE", "NO"])
    assert repr(spec) == repr(ts.column("c", vocabulary=["SE", "NO"]))  # the key of a shared stash
    assert ts.column("i", vocabulary=torch.tensor([5, 3])) == ts.column("i", vocabulary=np.array([5, 3], np.uint8))


def entity_table() -> dict[str, Any]:
    return {"e": ["b", "a", "b", "c"], "i": [7, 5, 7, 9], "t": [1, 1, 2, 1], "y": [1.0, 2.0, 3.0, 4.0]}


def test_columns_of_the_keys_have_codes_too() -> None:
    chosen = {"e": ts.column("e", vocabulary=["a", "b"]), "h": ts.hashed("e", 100)}
    stash = ts.load(entity_table(), chosen, entity="e", time="t")
    assert stash.entities == ["a", "b", "c"]
    assert stash["e"].tolist() == [0, 1, 1, 2]
    assert stash["h"].tolist() == [slow_bucket(name, 100) for name in "abbc"]
    numbers = {key: np.array(value, np.int32) for key, value in entity_table().items() if key in "it"}
    chosen = {"i": ts.column("i", vocabulary=[9, 7]), "h": ts.hashed("i", 100)}
    stash = ts.load(numbers, chosen, entity="i", time="t")
    assert stash["i"].tolist() == [2, 1, 1, 0]
    assert stash["h"].tolist() == [slow_bucket(number, 100) for number in (5, 7, 7, 9)]


def test_static_columns_have_codes_and_count_entities() -> None:
    static = {
        "known": ts.column("e", vocabulary=["c", "b"]),
        "id": ts.column("i", vocabulary=[5]),
        "h": ts.hashed("i", 9),
    }
    stash = ts.load(entity_table(), ["y"], entity="e", time="t", static=static)
    assert {name: codes.tolist() for name, codes in stash.static.items()} == {
        "known": [2, 1, 0],
        "id": [0, 1, 1],
        "h": [slow_bucket(number, 9) for number in (5, 7, 9)],
    }
    assert (stash.about("known").unknown, stash.about("id").unknown, stash.about("h").unknown) == (1, 2, None)
    frame = stash.to_polars()
    assert frame["known"].to_list() == [None, "b", "b", "c"]
    assert frame["id"].to_list() == [5, None, None, None]
    assert ts.Windows(stash, history=1)[[0, 1, 3]]["known"].tolist() == [2, 1, 0]


def test_unknown_is_shown_where_a_vocabulary_was_given() -> None:
    source = {"c": ["x", "a", None], "d": ["x", "a", None]}
    stash = ts.load(source, {"c": ts.column("c", vocabulary=["a"]), "d": "d"})
    lines = [line.split() for line in repr(stash).splitlines()[1:]]
    assert lines == [
        ["column", "dtype", "shape", "MB", "missing", "unknown"],
        ["c", "int32", "category", "(3,)", "0.0", "1", "1"],
        ["d", "int32", "category", "(3,)", "0.0", "1"],
    ]
    assert "<th>unknown</th>" in stash._repr_html_()
    assert "unknown" not in repr(ts.load(source, ["d"]))


def test_unknown_values_are_not_missing() -> None:
    times: dict[str, list[Any]] = {"t": [0, 1, 2, 3, 5], "c": ["a", "x", None, "a", "b"]}
    for spec, kept in ((ts.column("c", vocabulary=["a", "b"]), [0, 1, 3]), (ts.hashed("c", 8), [0, 1, 3])):
        stash = ts.load(times, {"c": spec}, time="t")
        windows = ts.Windows(stash, history=1, require=["c"], gaps="ignore")
        assert windows.anchors(np.arange(len(windows)))["time"].tolist() == [times["t"][row] for row in [*kept, 4]]
        masked = ts.Windows(stash, history=6, gaps="mask", frequency=1)
        codes = stash["c"].tolist()
        assert masked[0]["c"].tolist() == [*codes[:4], -1, codes[4]]
    filled = ts.load(times, {"c": ts.column("c", vocabulary=["a", "b"], fill="b")}, time="t")
    assert ts.Windows(filled, history=6, gaps="mask", frequency=1)[0]["c"].tolist() == [0, 2, 1, 0, 1, 1]
    assert len(ts.Windows(filled, history=1, require=["c"], gaps="ignore")) == 5


def test_another_vocabulary_is_another_shared_copy(tmp_path: Path) -> None:
    path = tmp_path / "c.parquet"
    pq.write_table(pa.table({"c": ["a", "b", "c"]}), path)
    specs = [
        ts.column("c", vocabulary=["a", "b"]),
        ts.column("c", vocabulary=["b", "a"]),
        ts.column("c", vocabulary=["a", "b"], fill="a"),
        ts.column("c"),
        ts.hashed("c", 5),
        ts.hashed("c", 6),
    ]
    paths = set()
    for spec in specs:
        stashes = [ts.load(path, [spec], share="codes") for _ in range(2)]
        assert stashes[0].path == stashes[1].path
        paths.add(stashes[0].path)
    assert len(paths) == len(ts.shared.remove("codes")) == len(specs)


def test_a_vocabulary_of_which_nothing_occurs_is_warned_of(tmp_path: Path) -> None:
    message = "No value of 'c' and 's' is in the given vocabulary"
    source = {"c": ["se", None], "s": ["x", "x"], "d": ["a", "b"]}
    chosen = {"c": ts.column("c", vocabulary=["SE"]), "d": ts.column("d", vocabulary=["b"])}
    for _ in range(2):  # who attaches is told too
        with pytest.warns(UserWarning, match=like(message)) as told:
            stash = ts.load(source, chosen, static={"s": ts.column("s", vocabulary=["X"])}, share="strangers")
        assert [record.filename for record in told] == [__file__]
        assert stash["c"].tolist() == [1, -1]
    ts.shared.remove("strangers")
    ts.load({"c": pa.array([None], pa.string())}, [chosen["c"]])  # where there is nothing, nothing is unknown


def test_helpful_errors() -> None:
    source = {
        "c": ["a", "b"],
        "f": [1.0, 2.0],
        "b": [True, False],
        "i": [1, 2],
        "l": np.zeros((2, 3), np.int16),
        "e": ["x", "x"],
    }
    cases: list[tuple[type[Exception], Callable[[], object], str]] = [
        (
            TypeError,
            lambda: ts.column("c", vocabulary="SE"),
            "vocabulary= must be a list of texts or integers in the order of the codes, got 'SE'. Write a list: ",
        ),
        (
            TypeError,
            lambda: ts.column("c", vocabulary=5),  # type: ignore[arg-type]
            "vocabulary= must be a list of texts or integers in the order of the codes, got 5. Write a list: ",
        ),
        (
            TypeError,
            lambda: ts.column("c", vocabulary={"SE"}),
            "in the order of the codes, got {'SE'} ... sorted(...)",
        ),
        (ValueError, lambda: ts.column("c", vocabulary=[]), "vocabulary= must have at least one value, got none."),
        (
            ValueError,
            lambda: ts.column("c", vocabulary=["SE", "NO", "SE"]),
            "vocabulary= must hold each value once, got 'SE' twice. Leave one out.",
        ),
        (
            TypeError,
            lambda: ts.column("c", vocabulary=["SE", None]),  # type: ignore[arg-type]
            "vocabulary= must hold texts or integers, got None among 2 values.",
        ),
        (
            TypeError,
            lambda: ts.column("c", vocabulary=[1, True]),
            "vocabulary= must hold texts or integers, got True among 2 values.",
        ),
        (
            TypeError,
            lambda: ts.column("c", vocabulary=[1.0]),  # type: ignore[arg-type]
            "vocabulary= must hold texts or integers, got 1.0 among 1 values.",
        ),
        (
            ValueError,
            lambda: ts.column("c", vocabulary=[-1, 2**63]),
            f"vocabulary= must hold integers of 64 bits, got -1 to {2**63}.",
        ),
        (
            ts.errors.SchemaError,
            lambda: ts.load(source, {"x": ts.column(["c", "i"], vocabulary=["a"])}),
            "A vocabulary is for one column; 'x' is made of ['c', 'i']. Load each on its own.",
        ),
        (
            ts.errors.SchemaError,
            lambda: ts.load(source, {"x": ts.column([], vocabulary=["a"])}),
            "A vocabulary is for one column; 'x' is made of []. Load each on its own.",
        ),
        (
            ts.errors.SchemaError,
            lambda: ts.load(source, [ts.column("f", vocabulary=[1])]),
            "A vocabulary is for text and integers; column 'f' is double. Load it as it is.",
        ),
        (
            ts.errors.SchemaError,
            lambda: ts.load(source, [ts.hashed("b", 9)]),
            "Hashing is for text and integers; column 'b' is bool. Load it as it is.",
        ),
        (
            ts.errors.SchemaError,
            lambda: ts.load({"h": torch.zeros(2, dtype=torch.bfloat16)}, [ts.hashed("h", 9)]),
            "Hashing is for text and integers; column 'h' is bfloat16. Load it as it is.",
        ),
        (
            ts.errors.SchemaError,
            lambda: ts.load(source, [ts.column("c", vocabulary=[1])]),
            "must hold values of its column; 1 cannot be a value of 'c', which is string. Convert",
        ),
        (
            ts.errors.SchemaError,
            lambda: ts.load(source, [ts.column("i", vocabulary=["1"])]),
            "must hold values of its column; '1' cannot be a value of 'i', which is int64. Convert",
        ),
        (
            ValueError,
            lambda: ts.load(source, [ts.column("c", vocabulary=["a"], fill="b")]),
            "fill= must be in the vocabulary of its column; 'b' is not in the vocabulary of 'c'. Add it.",
        ),
        (
            ValueError,
            lambda: ts.load(source, [ts.column("i", vocabulary=[1], fill=True)]),
            "fill= must be in the vocabulary of its column; True is not in the vocabulary of 'i'. Add it.",
        ),
        (
            ts.errors.SchemaError,
            lambda: ts.load(source, [ts.column("c", vocabulary=["a"], dtype=torch.int64)]),
            "Codes are int32; column 'c' asks for torch.int64. Leave dtype= out.",
        ),
        (
            TypeError,
            lambda: ts.hashed(["c", "i"], 9),  # type: ignore[arg-type]
            "ts.hashed takes one column, a name or a polars expression, got ['c', 'i'].",
        ),
        (ValueError, lambda: ts.hashed("c", 0), "buckets must be an integer >= 1, got 0."),
        (ValueError, lambda: ts.hashed("c", 2.5), "buckets must be an integer >= 1, got 2.5."),  # type: ignore[arg-type]
        (
            ValueError,
            lambda: ts.hashed("c", 2**31 + 1),
            "buckets must be at most 2**31, because codes are int32, got 2147483649.",
        ),
        (
            ts.errors.ColumnError,
            lambda: ts.load(source, [ts.hashed("c", 9)]).vocabulary("c"),
            "Text columns have a vocabulary, and columns loaded with vocabulary=; 'c' holds torch.int32.",
        ),
        (
            ts.errors.DataError,
            lambda: ts.load(source, ["i"], entity="e", static=[ts.column("c", vocabulary=["a"])]),
            "A static column has one value in each entity; 'c' of entity 'x' is 'a' in source row 0 and not in its "
            "vocabulary in 1. Load it with columns= instead.",
        ),
        (
            ts.errors.DataError,
            lambda: ts.load(source, ["i"], entity="e", static=[ts.hashed("c", 1000)]),
            f"A static column has one value in each entity; 'c' of entity 'x' is {slow_bucket('a', 1000)} in "
            f"source row 0 and {slow_bucket('b', 1000)} in 1. Load it with columns= instead.",
        ),
        (
            ts.errors.SchemaError,
            lambda: ts.Scaler.fit(ts.load(source, [ts.hashed("c", 9)]), ["c"]),
            "A scaled column must be numeric; 'c' is hashed. Leave it out.",
        ),
    ]
    for kind, call, message in cases:
        with pytest.raises(kind, match=like(message)):
            call()
