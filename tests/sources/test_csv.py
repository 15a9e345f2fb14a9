"""CSV files: what polars reads of them, however they are compressed and placed, and what the guards refuse."""

import csv
import errno
import gzip
import io
import math
import os
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
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
    assert planned.notes == ("'date' is text, and read as timestamp[ns]",)


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


def test_types_are_those_of_the_first_rows(tmp_path: Path) -> None:
    line = "7,2.5,true,x,2024-01-01,2024-01-01 10:00:00.123456789,2024-01-01T10:00:00+02:00,\n"
    path = write(tmp_path / "one.csv", "i,f,b,s,d,t,z,empty\n" + line)
    assert ts.plan(path, ["i", "f", "b", "s", "empty"]).choice.types == {
        **{"i": "int64", "f": "double", "b": "bool", "s": "dictionary of large_string"},
        **{"d": "dictionary of large_string", "t": "dictionary of large_string", "z": "dictionary of large_string"},
        "empty": "double",
    }
    stash = ts.load(path)
    day = int(datetime(2024, 1, 1, tzinfo=timezone.utc).timestamp()) * NANOSECONDS
    assert stash["d"].tolist() == [day]
    assert stash["t"].tolist() == [day + 36_000 * NANOSECONDS + 123_456_789]
    assert stash["z"].tolist() == [day + 28_800 * NANOSECONDS]
    assert stash["empty"].isnan().all()


def test_types_are_those_of_the_first_file_with_rows(tmp_path: Path) -> None:
    """A file may have only the names of its columns, with or without the end of the line."""
    write(tmp_path / "a.csv", "t,y")
    assert ts.load(tmp_path, ["y"])["y"].tolist() == []
    write(tmp_path / "b.csv", "t,y\n")
    write(tmp_path / "c.csv", "t,y\n2024-01-01,7\n")
    stash = ts.load(tmp_path, time="t")
    assert (stash["y"].dtype, stash["y"].tolist()) == (torch.int64, [7])
    write(tmp_path / "d.csv", "t,y\n2024-01-02,0.5\n")
    with pytest.raises(ts.errors.SourceError, match=r"d\.csv cannot be read with .*could not parse `0.5` as .*'y'"):
        ts.load(tmp_path, time="t")


def test_integers_of_more_than_64_bits(tmp_path: Path) -> None:
    path = write(tmp_path / "one.csv", "a,b\n9223372036854775808,1\n")
    assert ts.load(path, ["b"])["b"].tolist() == [1]
    assert ts.load(path, {"a": ts.column("a", dtype=torch.float64)})["a"].tolist() == [2.0**63]


def test_a_file_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorstash.sources.streams._ROWS", 5)
    stash = ts.load(write(tmp_path / "one.csv", LTSF), time="date")
    assert stash["OT"].tolist() == [30 - hour / 16 for hour in range(100)]


# Guards


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("a,b,a\n1,2,3\n", ts.errors.SchemaError, r"must be unique; {} has 2 columns 'a'\."),
        ("a;b\n1;2\n", ts.errors.SourceError, r"only ';'\. .*separator=';': ts\.load\(pl\.scan_csv\('{}', \.\.\.\), "),
        ("a\tb\n1\t2\n", ts.errors.SourceError, r"only '\\t'\."),
        ("a|b\n1|2\n", ts.errors.SourceError, r"only '\|'\."),
        ("a,b,c\n1,2,3\n4,5\n6,7,8\n", ts.errors.SourceError, r"{}, line 3 has 2 of 3 values\."),
        ('a,b,c\n"1\n2",2,3\n"4,4",5\n', ts.errors.SourceError, r"{}, line 4 has 2 of 3 values\."),
        ("a,b\n1,2\n\n3,4\n", ts.errors.SourceError, r"{}, line 3 has 0 of 2 values\."),
        ("a,b\n1,2\n1,2,3\n", ts.errors.SourceError, r"{}, line 3 has 3 of 2 values\."),
        ('a,b\n1,"0,5"\n2,"1,5"\n', ts.errors.SchemaError, r"'b' in {} .* '0,5' does not\. .*decimal_comma="),
        ("a,b\n1,5\n2,-\n3,4\n", ts.errors.SchemaError, r"'b' in {} read as numbers, but '-' does not"),
        ("a,b\n1,5%\n2,x\n3,4%\n", ts.errors.SchemaError, r"'b' in {} read as numbers, but '5%' does not"),
        ('a,b\n1,"1,500"\n', ts.errors.SchemaError, r"but '1,500' does not"),
        ("a,b\n1,2\n" * 1 + "1,2\n" * 10_000 + "1,x\n", ts.errors.SourceError, r"{} cannot be .*parse `x` .*'b'"),
        ('a,b\n1,"x\n2,y\n', ts.errors.SourceError, r"{} cannot be read .*could not parse"),
        (b"a,b\n1,\xff\n", ts.errors.SourceError, r"text in UTF-8; {} is not"),
        (b"a,b\n" + b"1,x\n" * 20_000 + b"1,\xff\n", ts.errors.SourceError, r"text in UTF-8; {} is not"),
        ("\n\n", ts.errors.SourceError, r"must begin with a line of column names; {} is empty\."),
    ],
    ids=lambda value: repr(value)[:20] if isinstance(value, (str, bytes)) else "",
)
def test_what_polars_would_misread_is_refused(
    text: str | bytes, kind: type[Exception], message: str, ending: str, tmp_path: Path
) -> None:
    path = write(tmp_path / f"one.{ending}", text)
    with pytest.raises(kind, match=message.format(path)):
        ts.load(path)


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
    assert ts.load(write(tmp_path / "three.csv", "a\n0.5\n\n1.5\n"))["a"].isnan().tolist() == [False, True, False]


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
    with pytest.raises(ts.errors.SourceError, match=r"text in UTF-8; .*parquet\.csv is not: .*encoding=\.\.\."):
        ts.load(tmp_path / "parquet.csv")
    with pytest.raises(ts.errors.SourceError, match="matches no file"):
        ts.load(tmp_path / "none.csv")


def test_a_disk_without_room_is_refused_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "one.csv.gz", LTSF)
    full = SimpleNamespace(f_bavail=0, f_frsize=4096)
    monkeypatch.setattr("tensorstash.sources.spool.os", SimpleNamespace(**vars(os) | {"statvfs": lambda _: full}))
    with pytest.raises(ts.errors.SourceError, match=f"{path} is kept in .* free in {tempfile.gettempdir()}"):
        ts.load(path)


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


@pytest.mark.parametrize("late", ["yesterday", "2024-01-02T00:00:00Z", "2024-01-02 00:00:00.0000001"])
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
    with pytest.raises(ts.errors.DataError, match=like(f"'soon' in column 't' is not (row 10,001, in {path})")):
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
