"""CSV files: what polars reads of them, however they are compressed and placed, and what the guards refuse."""

import csv
import errno
import gzip
import io
import math
import os
import re
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import fsspec
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tensorstash as ts
from tests.command_line import run
from tests.oracle_load import bits, like

LTSF = "date,HUFL,HULL,OT\n" + "".join(
    f"2016-07-{1 + hour // 24:02} {hour % 24:02}:00:00,{hour / 4},{hour / 8},{30 - hour / 16}\n" for hour in range(100)
)
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None")
NANOSECONDS = 10**9


def write(path: Path, text: str | bytes) -> Path:
    data = text.encode() if isinstance(text, str) else text
    if path.suffix == ".gz":
        data = gzip.compress(data)
    if path.suffix == ".zst":
        data = pa.compress(data, "zstd", asbytes=True)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path


def texts(stash: ts.Stash, name: str) -> list[str | None]:
    vocabulary = [*stash.vocabulary(name), None]
    return [vocabulary[code] for code in stash[name].tolist()]


@pytest.mark.parametrize("name", ["ett.csv", "ett.csv.gz", "ett.csv.zst", "ETT.CSV", "odd [1].csv"])
def test_a_forecasting_file_in_one_call(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, LTSF)
    stash = ts.load(path, time="date", dtype=torch.float32)
    assert list(stash) == ["HUFL", "HULL", "OT"]
    assert stash["OT"].tolist() == [30 - hour / 16 for hour in range(100)]
    assert len(ts.Windows(stash, 24, 12)) == 65
    planned = ts.plan(path, ["OT"], time="date")
    assert (planned.rows, planned.skipped, planned.choice.types["OT"]) == (100, ("HUFL", "HULL"), "double")


@pytest.mark.parametrize("ending", ["tsv", "tsv.gz", "TSV"])
def test_tabs_separate_the_values_of_a_file_named_so(ending: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"x.{ending}", LTSF.replace(",", "\t"))
    assert bits(ts.load(path, time="date")) == bits(ts.load(write(tmp_path / "y.csv", LTSF), time="date"))


TEXT = st.text(st.sampled_from('ab,"\n\r ;é'), min_size=1, max_size=5).map(lambda text: "s" + text)


@st.composite
def files(draw: st.DrawFn) -> tuple[list[tuple[int, float | None, str | None]], bytes]:
    """Rows, and a file of them: lines end in one way or the other, and the last may have no end."""
    number = st.none() | st.floats(allow_nan=False, allow_infinity=False)
    row = st.tuples(st.integers(-(2**40), 2**40), number, TEXT | st.none())
    rows = draw(st.lists(row, min_size=1, max_size=30))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    words = st.sampled_from(MISSING)
    text = io.StringIO(newline="")
    safe = [csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]  # the least of quotes leave a carriage return bare
    quoting: Any = draw(
        st.sampled_from(safe if any("\r" in (s or "") for *_, s in rows) else [*safe, csv.QUOTE_MINIMAL])
    )
    writer = csv.writer(text, lineterminator=end, quoting=quoting)
    writer.writerow(["n", "x", "s"])
    for n, x, s in rows:
        writer.writerow([n, draw(words) if x is None else repr(x), draw(words) if s is None else s])
    whole_text = text.getvalue()
    mark = "\ufeff" if draw(st.booleans()) else ""
    return rows, (mark + (whole_text.removesuffix(end) if draw(st.booleans()) else whole_text)).encode()


@given(files())
def test_any_file_holds_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, case: tuple[list[tuple[int, float | None, str | None]], bytes]
) -> None:
    rows, data = case
    path = write(tmp_path_factory.mktemp("any") / "one.csv", data)
    stash = ts.load(path)
    assert stash["n"].tolist() == [n for n, _, _ in rows]
    assert stash["x"].tolist() == pytest.approx(
        [math.nan if x is None else x for _, x, _ in rows], rel=0, abs=0, nan_ok=True
    )
    if any(s is not None for *_, s in rows):
        assert texts(stash, "s") == [s for *_, s in rows]
    else:
        assert stash["s"].isnan().all()


def test_columns_have_types(tmp_path: Path) -> None:
    line = "7,2.5,true,x,2024-01-01,2024-01-01 10:00:00.123456789,2024-01-01T10:00:00+02:00,\n"
    path = write(tmp_path / "one.csv", "i,f,b,s,d,t,z,empty\n" + line)
    assert ts.plan(path).choice.types == {
        **{"i": "int64", "f": "double", "b": "bool", "s": "dictionary of large_string"},
        **{"d": "timestamp[ns]", "t": "timestamp[ns]", "z": "timestamp[ns, tz=UTC]", "empty": "double"},
    }
    stash = ts.load(path)
    day = int(datetime(2024, 1, 1, tzinfo=timezone.utc).timestamp()) * NANOSECONDS
    assert stash["d"].tolist() == [day]
    assert stash["t"].tolist() == [day + 36_000 * NANOSECONDS + 123_456_789]
    assert stash["z"].tolist() == [day + 28_800 * NANOSECONDS]
    assert stash["empty"].isnan().all()


# first texts, a later one, and the type of all
LATER: list[tuple[list[str], str, torch.dtype, Callable[[str], Any]]] = [
    (["7.5", "", "8"], "9", torch.float64, lambda text: float(text or "nan")),
    (["7", "8"], "3.5", torch.float64, float),
    (["7", "8"], "-1", torch.int64, int),
    (["7", "8"], " 9 ", torch.int64, int),
    (["7", "8"], "+9", torch.int64, int),
    (["1e3", "8"], "NaN", torch.float64, float),
    (["true", "False"], "TRUE", torch.bool, lambda text: text.lower() == "true"),
    (["true", "False"], "maybe", torch.int32, str),
    (["x", "y"], "7", torch.int32, str),
    (["x", "y"], " y", torch.int32, str),
    (["", ""], "7.5", torch.float64, lambda text: float(text or "nan")),
    (["", ""], "x", torch.int32, lambda text: text or None),
    (["2024-01-01", "2024-01-02"], "2024-01-03T10:00", torch.int64, lambda text: nanoseconds(text)),
    (["2024-01-01", "2024-01-02"], "9999-12-31", torch.int64, lambda text: nanoseconds(text) // 1000),
    (["9999-12-31", "2024-01-02"], "0001-01-01", torch.int64, lambda text: nanoseconds(text) // 1000),
    (["2024-01-01T00:00Z", "2024-01-02T00:00+02:00"], "9999-12-31T00Z", torch.int64, lambda t: nanoseconds(t) // 1000),
]


def nanoseconds(text: str) -> int:
    """Since 1970, by the reader of Python."""
    hour = re.sub(r"T(\d\d)Z$", r"T\1:00Z", text).replace("Z", "+00:00")
    at = datetime.fromisoformat(hour)
    at = at if at.tzinfo is not None else at.replace(tzinfo=timezone.utc)
    return (at - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1) * 1000


@pytest.mark.parametrize(("first", "late", "dtype", "parse"), LATER, ids=[f"{a[0]} {b}" for a, b, *_ in LATER])
@pytest.mark.parametrize("place", ["row", "file", "early file"])
def test_all_rows_of_all_files_decide_the_types(
    first: list[str], late: str, dtype: torch.dtype, parse: Callable[[str], Any], place: str, tmp_path: Path
) -> None:
    many = first * (5_001 if place == "row" else 2)
    parts = {"row": [[*many, late]], "file": [many, [late]], "early file": [[late], many]}[place]
    for k, part in enumerate(parts):
        write(tmp_path / f"{k}.csv", "k,y\n" + "".join(f"{k},{text}\n" for text in part))
    stash = ts.load(tmp_path, ["y"])
    expected = [parse(text) for part in parts for text in part]
    assert stash["y"].dtype == dtype
    if dtype == torch.int32:
        assert texts(stash, "y") == expected
    else:
        assert stash["y"].tolist() == pytest.approx(expected, rel=0, abs=0, nan_ok=True)


def test_a_file_may_have_only_the_names_of_its_columns(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "t,y")
    assert ts.load(tmp_path, ["y"])["y"].tolist() == []
    write(tmp_path / "b.csv", "t,y\n")
    write(tmp_path / "c.csv", "t,y\n2024-01-01,7\n")
    stash = ts.load(tmp_path, time="t")
    assert (stash["y"].dtype, stash["y"].tolist()) == (torch.int64, [7])


def test_integers_of_more_than_64_bits(tmp_path: Path) -> None:
    path = write(tmp_path / "one.csv", "a,b\n9223372036854775808,1\n")
    assert ts.load(path, ["b"])["b"].tolist() == [1]
    assert ts.load(path, {"a": ts.column("a", dtype=torch.float64)})["a"].tolist() == [2.0**63]


def test_a_file_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorstash.sources.streams._ROWS", 5)
    stash = ts.load(write(tmp_path / "one.csv", LTSF), time="date")
    assert stash["OT"].tolist() == [30 - hour / 16 for hour in range(100)]


# Ugly files that are read, compared with Python's reader of CSV


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffa,b\n1,2\n",
        "a,b\r\n1,2\r\n3,4\r\n",
        "a,b\n1,2\n\n",
        "a,b\r\n1,2\r\n\r\n3,4\r\n\r\n",
        "a,b\n1,2\n\n3,4\n   \n5,6",
        "\n\na,b\n1,2\n",
        "  \na,b\n1,2\n",
        'a,b\n"x\n\ny",1\n\nz,2\n',
        'a,b\n"""x"" y",1\n"a,b",2\n',
        '"a","b"\n"1","2.5"\n"3","4"\n',
        'a,"b\nc"\n1,2\n',
        "a, b\n1, 2\n3, 4\n",
        "a, b\n1, x\n3, y\n",
        "a\n1\n2\n\n\n",
        'a\n0.5\n""\n1.5\n',
        "a,b\n+1,1e3\n-2,1E-3\n",
        "a,b\n1.,.5\n-.5,5\n",
        "a,b\ninf,1\n-inf,2\nInfinity,3\n",
        "a,b\n1e400,1\n1e-400,2\n",
        "a,b\ntrue,FALSE\nFalse,True\n",
        "a,b\nyes,T\nno,F\n",
        "a,b\n0x1F,1_000\n0x20,2_000\n",
        "a,b\n1.2.3,10.0.0.1\n1.2.4,10.0.0.2\n",
        "a,b\n-999,1\n5,2\n",
        "a,b\nx\x00y,😀\n",
        "a,b\n'1',x\n",
        "1,2\n3,4\n",
        "a b\n1 2\n",
    ],
)
@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_ugly_files_are_read_as_python_reads_them(text: str, ending: str, tmp_path: Path) -> None:
    stash = ts.load(write(tmp_path / f"one.{ending}", text))
    lines = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""))
    names, *rows = [line for line in lines if any(map(str.strip, line)) or line == [""]]
    assert list(stash) == names
    for name, values in zip(names, zip(*rows)):
        expected = [parsed(value, stash[name].dtype) for value in values]
        if stash[name].dtype == torch.int32:
            assert texts(stash, name) == expected
        else:
            assert stash[name].tolist() == pytest.approx(expected, rel=0, abs=0, nan_ok=True)


def parsed(text: str, dtype: torch.dtype) -> Any:
    if dtype == torch.bool:
        return {"true": True, "false": False}[text.lower()]
    if dtype == torch.int32:
        return text
    return int(text) if dtype == torch.int64 else float(text or "nan")


def test_an_unnamed_column_of_row_numbers_is_left_out(tmp_path: Path) -> None:
    """As pandas writes its index, and other programs commas at the ends of lines."""
    assert list(ts.load(write(tmp_path / "one.csv", ",a\n0,5\n1,6\n"))) == ["a"]
    assert list(ts.load(write(tmp_path / "two.csv", "a,,\n5,,\n"))) == ["a"]
    assert ts.plan(tmp_path / "one.csv").notes == ("a column without a name is left out",)
    assert ts.load(tmp_path / "one.csv", {"index": ""})["index"].tolist() == [0, 1]
    assert ts.load(write(tmp_path / "three.csv", ",a\n2024-01-01,5\n"), time="").clock.unit == "ns"
    with pytest.raises(ts.errors.SchemaError, match=like("a column is named ''")):
        ts.load(tmp_path / "three.csv")


def test_files_may_have_their_columns_in_other_orders(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "a,b\n1,x\n")
    write(tmp_path / "b.csv", "b,more,a\ny,0,2.5\n")
    stash = ts.load(tmp_path)
    assert (stash["a"].tolist(), texts(stash, "b")) == ([1.0, 2.5], ["x", "y"])


# Guards: what is refused, and what the call reads that the error gives

NAN = math.nan


@dataclass(frozen=True)
class Refused:
    text: str | bytes
    said: str  # a part of the message
    remedy: dict[str, list[Any]] | None  # columns that the call in the message reads; `None` if there is no call


REFUSED = {
    "duplicates": Refused("a,b,a\n1,2,3\n", "has 2 columns 'a'", {"a": [1], "b": [2], "a_duplicated_0": [3]}),
    "semicolons": Refused("a;b\n1;2\n", "has only ';'", {"a": [1], "b": [2]}),
    "decimal commas": Refused("a;b\n1,5;2\n", "has only ';'", {"a": [1.5], "b": [2]}),
    "tabs": Refused("a\tb\n1\t2\n", "has only '\\t'", {"a": [1], "b": [2]}),
    "bars": Refused("a|b\n1|2\n", "has only '|'", {"a": [1], "b": [2]}),
    "a line of Excel": Refused("sep=;\na;b\n1;2\n", "has only ';'", {"a": [1], "b": [2]}),
    "a short line": Refused(
        "a,b\n.5,.5\n\n4\n", "line 4 has 1 of 2 values", {"a": [0.5, NAN, 4.0], "b": [0.5, NAN, NAN]}
    ),
    "a short line behind text": Refused(
        'a,b,c\n"1\n2",2,3.5\n"4,4",5\n', "line 4 has 2 of 3 values", {"b": [2, 5], "c": [3.5, NAN]}
    ),
    "a long line": Refused("a,b\n1,2\n1,2,3\n", "line 3 has 3 of 2 values", {"a": [1, 1], "b": [2, 2]}),
    "commas at the ends": Refused("a,b\n1,2,\n3,4,\n", "line 2 has 3 of 2 values", {"a": [1, 3], "b": [2, 4]}),
    "a comment": Refused("# by x\n# at y\na,b\n1,2\n", "line 3 has 2 of 1 values", {"a": [1], "b": [2]}),
    "a title": Refused("Report of 2024\n\na,b\n1,2\n", "line 3 has 2 of 1 values", {"a": [1], "b": [2]}),
    "quoted decimal commas": Refused('a,b\n1,"0,5"\n2,"1,25"\n', "'0,5' does not", {"a": [1, 2], "b": ["0,5", "1,25"]}),
    "thousands": Refused('a,b\n1,900\n2,"1,500"\n3,950\n', "'1,500' does not", {"b": ["900", "1,500", "950"]}),
    "percent": Refused("b,c\n5%,NA\n-,1.5\n4.5%,2\n", "'5%' does not", {"b": ["5%", "-", "4.5%"]}),
    "currency": Refused("b\n$5.50\n$7\n", "'$5.50' does not", {"b": ["$5.50", "$7"]}),
    "units": Refused("b\n5.5 €\n7 €\n", "'5.5 €' does not", {"b": ["5.5 €", "7 €"]}),
    "a dash": Refused("b,c\n5,1\n-,2.5\n4,null\n2.5,3\n", "'-' does not", {"b": [5.0, NAN, 4.0, 2.5]}),
    "an error of Excel": Refused("b\n5\n#N/A\nNA\n4\n", "'#N/A' does not", {"b": [5.0, NAN, NAN, 4.0]}),
    "spaces alone": Refused("a,b\n1,  \n2,3\n4,5\n", "'  ' does not", {"b": [NAN, 3.0, 5.0]}),
    "a minus of print": Refused("b\n\u22125\n\u22126\n", "'\u22125' does not", {"b": ["\u22125", "\u22126"]}),
    "parentheses": Refused("b\n(5)\n7\n8\n", "'(5)' does not", {"b": ["(5)", "7", "8"]}),
    "true among numbers": Refused("b\n1\n0\ntrue\n", "'true' does not", {"b": ["1", "0", "true"]}),
    "a late word": Refused("b\n" + "1\n2\n" * 5_000 + "soon\n", "'soon' does not (FILE, line 10,002)", {}),
    "leading zeros": Refused("b\n7\n007\n", "'007' in column 'b' would be 7 (FILE, line 3)", {"b": ["7", "007"]}),
    "late leading zeros": Refused("b\n" + "7\n" * 10_000 + "007\n", "would be 7 (FILE, line 10,002)", {}),
    "a word among dates": Refused(
        "b\n2024-01-01\nopen\nNA\n9999-12-31\n",
        "read as times, but 'open' does not",
        {"b": ["2024-01-01", "9999-12-31"]},
    ),
    "spaces around numbers": Refused("b\n2 \n - \n4\n -\n", "' - ' does not", {"b": [2.0, NAN, 4.0, NAN]}),
    "spaces around words": Refused("b\n2\n - \n4\n", "' - ' does not", {"b": [2.0, NAN, 4.0]}),
    "spaces around dates": Refused(
        "b\n 2024-01-01\n? \n2024-01-02 \n", "'? ' does not", {"b": ["2024-01-01", "2024-01-02"]}
    ),
    "no date": Refused("b\n2024-01-01\n2024-02-30\n2024-01-02\n", "'2024-02-30' does not", {}),
    "one zone": Refused("b\n2024-01-01T00Z\n2024-01-01T00\n2024-01-02T00Z\n", "'2024-01-01T00' does not", {}),
    "other dates": Refused("b\n2024-01-01\n01/02/2024\n2024-01-03\n", "'01/02/2024' does not", {}),
    "an open quote": Refused('a,b\n1,"x\n2,y\n', "line 3 stay open", {"a": [1, 2], "b": ['"x', "y"]}),
    "an open quote at the end": Refused('a,b\n1,x\n2,"y', "line 3 stay open", {"a": [1, 2], "b": ["x", '"y']}),
    "inches": Refused("a,b\n5'11\",1\n6,2\n", "FILE is not a readable CSV file: ", {"a": ["5'11\"", "6"], "b": [1, 2]}),
    "text behind quotes": Refused('a,b\n"x" y,1\n', "FILE is not a readable CSV file: ", {"a": ['"x" y'], "b": [1]}),
    "old line ends": Refused("a,b\r1,2\r3,4\r", "end with \\r", {"a": [1, 3], "b": [2, 4]}),
    "latin-1": Refused("a,b\n1,é\n".encode("latin-1"), "text in UTF-8", None),
    "late latin-1": Refused(b"a,b\n" + b"1,x\n" * 20_000 + b"1,\xff\n", "text in UTF-8", None),
    "latin-1 in names": Refused("a;é\n1,5;2\n".encode("latin-1"), "text in UTF-8", None),
    "utf-16": Refused("a,b\n1,é\n".encode("utf-16"), "text in UTF-8", None),
    "nothing": Refused("", "FILE is empty", None),
    "empty lines": Refused("\n\r\n", "FILE is empty", None),
    "a hole in one column": Refused("a\n1\n\n2\n", "line 3 of FILE is empty", {}),
    "a hole before other ends of lines": Refused("a\nx\n\ny\u2028z\x0c\x85\n", "line 3 of FILE is empty", {}),
}


def follow(message: str, more: str = "") -> ts.Stash:
    """What the last call in a message loads, with more arguments."""
    call = message[message.rindex("ts.load(") :].partition(", ...)")[0] + f"{more})"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* is text, which is stored as codes")  # says how to load the numbers
        return eval(call, {"ts": ts, "pl": pl, "pa": pa})


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_misread_is_refused_and_the_remedy_works(name: str, ending: str, tmp_path: Path) -> None:
    case = REFUSED[name]
    path = write(tmp_path / f"one.{ending}", case.text)
    with pytest.raises(
        (ts.errors.SourceError, ts.errors.SchemaError), match=like(case.said.replace("FILE", str(path)))
    ) as caught:
        ts.load(path)
    if case.remedy is not None:
        stash = follow(str(caught.value))
        for column, values in case.remedy.items():
            if stash[column].dtype == torch.int32:
                assert texts(stash, column) == values
            else:
                assert stash[column].tolist() == pytest.approx(values, rel=0, abs=0, nan_ok=True), str(caught.value)


TIMES = ["2024-01-01T00Z", "2024-01-01T02:30+02:00", "2024-01-01 01:00:00.5Z", "2024-01-01T02:00Z"]


@pytest.mark.parametrize("word", ["?", "2024-02-30", "01/02/2024", "2024-01-01T00", "9999-12-31 23:59:59.123456789Z"])
@pytest.mark.parametrize("space", ["", " "])
@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_the_remedy_for_times_reads_a_column_of_times(word: str, space: str, ending: str, tmp_path: Path) -> None:
    mark = "\t" if ending == "tsv" else ","
    values = [*TIMES, word, ""]
    rows = [f"{text}{space if text else ''}{mark}{row}\n" for row, text in enumerate(values)]
    path = write(tmp_path / f"one.{ending}", f"t{mark}y\n{''.join(rows)}")
    with pytest.raises(ts.errors.SchemaError, match=like(f"{word + space!r} does not ... which time= needs")) as caught:
        ts.load(path, ["y"], time="t")
    stash = follow(str(caught.value), ", ['y'], time='t'")
    assert stash["y"].tolist() == [0, 1, 2, 3]
    assert stash.time is not None
    assert (stash.time - stash.time[0]).tolist() == [0, 1_800_000_000, 3_600_500_000, 7_200_000_000]


def test_the_remedy_has_all_files(tmp_path: Path) -> None:
    for k, text in enumerate(["a,b\n1,-\n2,3\n3,4\n", "a,b\n4,5\n", "a,b\n5,null\n"]):
        write(tmp_path / f"{k}.csv", text)
    with pytest.raises(ts.errors.SchemaError, match=like("'-' does not")) as caught:
        ts.load(tmp_path)
    stash = follow(str(caught.value))
    assert stash["b"].nan_to_num(9.0).tolist() == [9.0, 3.0, 4.0, 5.0, 9.0]


def test_a_comma_in_a_file_of_tabs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ts.errors.SourceError, match=r"only ','\. .*separator=','"):
        ts.load(write(tmp_path / "one.tsv", "a,b\n1,2\n"))


def test_what_the_guards_let_through(tmp_path: Path) -> None:
    """Missing values at the end of lines, also across lines; text with some numbers; short lines that do not matter."""
    path = write(tmp_path / "one.csv", 'a,b,c\n1,"x\ny",\n2,z,0.5\n3,7,""\n')
    stash = ts.load(path, ["b", "c"])
    assert texts(stash, "b") == ["x\ny", "z", "7"]
    assert stash["c"].nan_to_num(9.0).tolist() == [9.0, 0.5, 9.0]
    assert ts.load(write(tmp_path / "two.csv", "a,b,c\n1,2,3\n4,5\n"), ["a", "b"])["b"].tolist() == [2, 5]


def test_the_remedy_reads_odd_files(tmp_path: Path) -> None:
    path = write(tmp_path / "one.csv", "Zeit;y\n01.02.2024 00:10;0,5\n01.02.2024 00:20;-\n")
    frame = pl.scan_csv(path, separator=";", decimal_comma=True, null_values=["-"])
    times = pl.col("Zeit").str.to_datetime("%d.%m.%Y %H:%M")
    stash = ts.load(frame.with_columns(times), time="Zeit")
    assert stash["y"].nan_to_num(9.0).tolist() == [0.5, 9.0]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = write(tmp_path / "cut.csv.gz", LTSF)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ts.errors.SourceError, match=f"{path} is not a readable CSV file"):
        ts.load(path)
    pq.write_table(pa.table({"y": range(100)}), tmp_path / "parquet.csv")
    with pytest.raises(ts.errors.SourceError, match=like("text in UTF-8; ... parquet.csv is not")):
        ts.load(tmp_path / "parquet.csv")
    with pytest.raises(ts.errors.SourceError, match="matches no file"):
        ts.load(tmp_path / "none.csv")


def test_a_full_disk_is_named_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "one.csv.gz", LTSF)

    def full(fd: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tensorstash.sources.spool.os.write", full)
    with pytest.raises(ts.errors.SourceError, match=f"{path} is kept in .* has filled {tempfile.gettempdir()}"):
        ts.load(path)


# Text as time


def seconds(*fields: int) -> int:
    return int(datetime(*fields, tzinfo=timezone.utc).timestamp())  # type: ignore[misc, arg-type]


@pytest.mark.parametrize("dictionary", [False, True])
def test_text_in_iso_8601_is_time(dictionary: bool) -> None:
    array = pa.array(["2024-01-01", "2024-01-01T06:00", "2024-01-01 12:00:00.000001"])
    table = pa.table({"t": array.dictionary_encode() if dictionary else array, "y": [0, 1, 2]})
    stash = ts.load(table, ["y"], time="t", filter=[("t", ">=", datetime(2024, 1, 1, 6))])
    assert stash["y"].tolist() == [1, 2]
    day = seconds(2024, 1, 1) * 10**6
    assert ts.Windows(stash, 1, 0, gaps="ignore").anchors([0, 1])["time"].tolist() == [
        day + 6 * 3600 * 10**6,
        day + 43200000001,
    ]
    assert ts.plan(table, time="t").notes == ("'t' is text, and read as timestamp[us]",)
    zoned = ts.load({"t": ["2024-01-01T06:00:00+02:00", "2024-01-01T06:00:00Z"], "y": [1, 2]}, time="t")
    assert "04:00:00+00:00" in repr(zoned)


@pytest.mark.parametrize("late", ["yesterday", "2024-01-02T00:00:00Z", "2024-01-02 00:00:00.5.0"])
def test_text_that_is_no_time_after_all(late: str) -> None:
    with pytest.raises(ts.errors.DataError, match=like(f"{late!r} in column 't' is not (row 1, in the mapping)")):
        ts.load({"t": ["2024-01-01", late], "y": [1, 2]}, time="t")


def test_times_of_csv_files_are_in_iso_8601(tmp_path: Path) -> None:
    """Polars would take 01/02/2024 for a day of February, and cut nanoseconds off."""
    path = write(tmp_path / "one.csv", "t,y\n01/02/2024,1\n")
    with pytest.raises(ts.errors.SchemaError, match=rf"'01/02/2024' in column 't' of {path} is not"):
        ts.load(path, time="t")
    path = write(tmp_path / "two.csv", "t,y\n" + "".join(f"2024-01-01 00:00:00.{k:09},1\n" for k in range(10_001)))
    stash = ts.load(path, time="t")
    assert ts.Windows(stash, 1, 0).anchors([7])["time"].tolist() == [seconds(2024, 1, 1) * NANOSECONDS + 7]
    path.write_text(path.read_text() + "soon,2\n")
    with pytest.raises(ts.errors.SchemaError, match=like(f"'soon' does not ({path}, line 10,003)")):
        ts.load(path, time="t")


def test_nulls_are_named_by_file_and_row(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "t,y\n1,5\n")
    path = write(tmp_path / "b.csv", "t,y\n2,5\n,6\n")
    with pytest.raises(ts.errors.DataError, match=rf"'t'.*row 2 \({path}\)"):
        ts.load(tmp_path, time="t")


# Many files, and the rest of what sources can do


def test_lists_globs_directories_and_keys(tmp_path: Path) -> None:
    for year in (2023, 2024):
        for k in range(2):
            write(tmp_path / f"year={year}" / f"{k}.csv", f"s,t,y\na,{year},{k}.5\nb,{year + k},1\n")
    stash = ts.load(tmp_path, ["year", "y"], filter=[("year", "=", 2024), ("s", "=", "a")])
    assert (stash["year"].tolist(), stash["y"].tolist()) == ([2024, 2024], [0.5, 1.5])
    assert ts.load(tmp_path, ["year"])["year"].tolist() == [2023] * 4 + [2024] * 4
    assert ts.plan(str(tmp_path / "*" / "1.csv")).rows == 4
    mixed = write(tmp_path / "year=2024" / "other.csv", "t,s\n1,a\n")
    with pytest.raises(ts.errors.SourceError, match=r"need the .*other\.csv has no column 'y'\."):
        ts.load([tmp_path / "year=2023" / "0.csv", mixed])
    assert ts.load([tmp_path / "year=2023" / "0.csv", mixed], ["t"])["t"].tolist() == [2023, 2023, 1]


def test_files_of_two_formats(tmp_path: Path) -> None:
    parquet = tmp_path / "one.parquet"
    pl.DataFrame({"y": [1.5, 2.5]}).write_parquet(parquet)
    path = write(tmp_path / "about.csv", "y\n7\n")
    assert ts.load(tmp_path)["y"].tolist() == [1.5, 2.5]
    with pytest.raises(ts.errors.SourceError, match=f"{path} is CSV, and {parquet} is not"):
        ts.load([parquet, path])
    with pytest.raises(ts.errors.SourceError, match=r"notes\.txt is not a readable Parquet"):
        ts.load(write(tmp_path / "notes.txt", "y\n7\n"))


def test_a_url(tmp_path: Path) -> None:
    system = fsspec.filesystem("memory")
    for name, data in (("one.csv", LTSF.encode()), ("two.csv.gz", gzip.compress(LTSF.encode()))):
        system.pipe(f"/csv/{name}", data)
        stash = ts.load(f"memory://csv/{name}", ["OT"], time="date")
        assert stash["OT"].tolist() == [30 - hour / 16 for hour in range(100)]


def test_the_rest_of_a_load(tmp_path: Path, shm: Path) -> None:
    """Filters, derived columns, static ones, entities in disorder, sharing, and the command line."""
    rows = [(t, s, t * 10 + k, "NS"[k]) for t in range(50) for k, s in enumerate("ab")]
    path = write(tmp_path / "one.csv", "t,s,y,region\n" + "".join(f"{t},{s},{y},{r}\n" for t, s, y, r in rows))
    columns: dict[str, Any] = {"y": "y", "double": pl.col("y") * 2.0}
    arguments: dict[str, Any] = {"entity": "s", "time": "t", "static": ["region"], "filter": [("t", "<", 40)]}
    for _ in range(2):
        stash = ts.load(path, columns, **arguments, share="csv")
        assert stash.entities == ["a", "b"]
        assert stash["double"].tolist() == [2.0 * (t * 10 + k) for k in range(2) for t in range(40)]
        assert [stash.vocabulary("region")[code] for code in stash.static["region"].tolist()] == ["N", "S"]
    assert ts.shared.list().height == 1
    assert "100 rows" in run("inspect", str(path), "--time", "t", "--entity", "s")
