"""CSV files: what is in them, line by line, however they are cut, compressed and placed; and what is wrong there."""

import csv
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
from tensorstash.cli.commands import main
from tests.layouts import bits
from tests.oracle_load import whole

LTSF = "date,HUFL,HULL,OT\n" + "".join(
    f"2016-07-{1 + hour // 24:02} {hour % 24:02}:00:00,{hour / 4},{hour / 8},{30 - hour / 16}\n" for hour in range(100)
)


def write(path: Path, text: str | bytes) -> Path:
    data = text.encode() if isinstance(text, str) else text
    if path.suffix == ".gz":
        data = gzip.compress(data)
    if path.suffix == ".zst":
        data = pa.compress(data, "zstd", asbytes=True)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of some lines, so that a short file has many."""
    monkeypatch.setattr("tensorstash.sources.csv_files._BLOCK", 64)


@pytest.mark.parametrize("name", ["ett.csv", "ett.csv.gz", "ett.csv.zst", "ETT.CSV"])
def test_a_forecasting_file_in_one_call(name: str, tmp_path: Path, small_blocks: None) -> None:
    path = write(tmp_path / name, LTSF)
    stash = ts.load(path, time="date", dtype=torch.float32)
    assert list(stash) == ["HUFL", "HULL", "OT"]
    assert stash["OT"].tolist() == [30 - hour / 16 for hour in range(100)]
    assert len(ts.Windows(stash, 24, 12)) == 65
    planned = ts.plan(path, ["OT"], time="date")
    assert (planned.rows, planned.skipped, planned.types["date"]) == (100, ("HUFL", "HULL"), "timestamp[s]")


TEXT = st.text(st.sampled_from('ab,"\n\r ;é'), max_size=5)


@st.composite
def files(draw: st.DrawFn) -> tuple[list[tuple[int, float | None, str]], bytes]:
    """Rows, and a file of them: lines end in one way or the other, some are empty, and the last may have no end."""
    number = st.none() | st.floats(width=32, allow_nan=False, allow_infinity=False)
    rows = draw(st.lists(st.tuples(st.integers(-(2**40), 2**40), number, TEXT), min_size=1, max_size=30))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    text = io.StringIO(newline="")
    safe = [csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]  # the least of quotes leave a carriage return bare
    quoting: Any = draw(st.sampled_from(safe if any("\r" in s for _, _, s in rows) else [*safe, csv.QUOTE_MINIMAL]))
    writer = csv.writer(text, lineterminator=end, quoting=quoting)
    writer.writerow(["n", "x", "s"])
    for n, x, s in rows:
        text.write(end * draw(st.sampled_from([0, 0, 0, 1, 2])))
        writer.writerow([n, "" if x is None else repr(x), s])
    whole_text = text.getvalue()
    mark = "\ufeff" if draw(st.booleans()) else ""
    return rows, (mark + (whole_text.removesuffix(end) if draw(st.booleans()) else whole_text)).encode()


@given(files(), st.integers(8, 200))
def test_any_file_holds_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, case: tuple[list[tuple[int, float | None, str]], bytes], block: int
) -> None:
    rows, data = case
    path = write(tmp_path_factory.mktemp("any") / "one.csv", data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tensorstash.sources.csv_files._BLOCK", block)
        stash = ts.load(path, schema={"n": torch.int64, "x": "float64", "s": pl.String})
    assert stash["n"].tolist() == [n for n, _, _ in rows]
    for found, (_, x, _) in zip(stash["x"].tolist(), rows):
        assert math.isnan(found) if x is None else found == x
    names = stash.vocabulary("s")
    assert [names[code] for code in stash["s"].tolist()] == [s for _, _, s in rows]


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_a_semicolon_or_a_tab_separates_values_where_the_first_line_has_no_comma(
    delimiter: str, tmp_path: Path, small_blocks: None
) -> None:
    lines = LTSF.replace(",", delimiter)
    stash = ts.load(write(tmp_path / "x.csv", lines), time="date")
    assert bits(stash) == bits(ts.load(write(tmp_path / "y.csv", LTSF), time="date"))
    quoted = ts.load(
        write(tmp_path / "z.csv", f'"a,b"{delimiter}c\n"1,5"{delimiter}2\n'), ["c"], schema={"a,b": "string"}
    )
    assert quoted["c"].tolist() == [2]
    (tmp_path / "bad.csv").write_text(f"a{delimiter}b\n1{delimiter}2\n3\n")
    with pytest.raises(
        ts.errors.SourceError, match=r"each of the 2 columns of the first one; .*bad.csv, line 3, has '3'"
    ):
        ts.load(tmp_path / "bad.csv")


@pytest.mark.parametrize("ending", ["tsv", "tsv.gz", "TSV"])
def test_tabs_separate_the_values_of_a_file_named_so(ending: str, tmp_path: Path, small_blocks: None) -> None:
    path = write(tmp_path / f"x.{ending}", LTSF.replace(",", "\t"))
    assert bits(ts.load(path, time="date")) == bits(ts.load(write(tmp_path / "y.csv", LTSF), time="date"))
    commas = write(tmp_path / "z.tsv", "a, in m\tb\n1,5\t2\n")
    assert ts.load(commas, schema={"a, in m": "string"}).vocabulary("a, in m") == ["1,5"]
    assert list(ts.load(write(tmp_path / "c.tsv", "a,b\n1,2\n"))) == ["a", "b"]


def test_types_are_those_of_the_first_file_with_rows(tmp_path: Path) -> None:
    """A file may have only the names of its columns, with or without the end of the line."""
    (tmp_path / "a.csv").write_text("t,y")
    (tmp_path / "b.csv").write_text("t,y\n\n")
    (tmp_path / "c.csv").write_text("t,y\n2024-01-01,7\n")
    stash = ts.load(tmp_path, time="t")
    assert (stash["y"].dtype, stash["y"].tolist()) == (torch.int64, [7])
    assert ts.load(tmp_path / "a.csv", schema={"t": "date32"}, time="t")["y"].tolist() == []


@pytest.mark.parametrize("block", [8, 1 << 20])
def test_a_quote_that_is_not_closed_is_named(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take in all lines behind it."""
    monkeypatch.setattr("tensorstash.sources.csv_files._BLOCK", block)
    path = write(tmp_path / "one.csv", 't,y\n1,"a\nb"\n2,c"c\n3,"d""\n4,e\n5,f\n')
    message = (
        f"A value of a CSV file that begins with a quote ends with one; {path}, line 5, has 'd\"'. Correct the file."
    )
    with pytest.raises(ts.errors.SourceError, match=whole(message)):
        ts.load(path)
    path.write_text(path.read_text().replace('"d""', '"d"""'))
    stash = ts.load(path)
    assert [stash.vocabulary("y")[code] for code in stash["y"].tolist()] == ["a\nb", 'c"c', 'd"', "e", "f"]


def test_decimal_commas_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "t;y\n1;0,5\n2;1,5\n")
    message = (
        f"Numbers of a CSV file have decimal points; 'y' of {path} has decimal commas. Read it with polars: "
        f"ts.load(pl.scan_csv({str(path)!r}, separator=';', decimal_comma=True), ...)."
    )
    with pytest.raises(ts.errors.SchemaError, match=whole(message)):
        ts.load(path)
    assert ts.load(path, ["y"], schema={"y": "string"}).vocabulary("y") == ["0,5", "1,5"]
    assert ts.load(pl.scan_csv(path, separator=";", decimal_comma=True), ["y"])["y"].tolist() == [0.5, 1.5]
    words = write(tmp_path / "words.csv", "t;y\n1;a, b\n2;c\n")
    assert ts.load(words, ["y"]).vocabulary("y") == ["a, b", "c"]


def test_quotes_within_values(tmp_path: Path, small_blocks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are plain characters there, however many lines stand between them."""
    monkeypatch.setattr("tensorstash.sources.csv_files._LONGEST", 256)
    sizes = [f'{k}" pipe' if k % 40 == 7 else f"x{k}" for k in range(100)]
    stash = ts.load(
        write(tmp_path / "one.csv", "s,y\n" + "".join(f"{s},{k}\n" for k, s in enumerate(sizes))), ["s", "y"]
    )
    assert stash["y"].tolist() == [*range(100)]
    assert [stash.vocabulary("s")[code] for code in stash["s"].tolist()] == sizes


def test_types_are_those_of_the_first_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "i,f,b,s,d,t,z,empty\n" + "1,2.5,true,x,2024-01-01,2024-01-01 10:00,2024-01-01T10:00:00.5Z,\n"
    path = write(tmp_path / "one.csv", text * 1)
    found = ts.plan(path).types
    assert found == {
        **{"i": "int64", "f": "double", "b": "bool", "s": "dictionary of string", "d": "date32[day]"},
        **{"t": "timestamp[s]", "z": "timestamp[ns, tz=UTC]", "empty": "double"},
    }
    assert ts.load(path, ["empty"])["empty"].isnan().all()
    monkeypatch.setattr("tensorstash.sources.csv_files._FIRST", 64)
    late = write(tmp_path / "late.csv", "t,y\n" + "".join(f"{t},{t}\n" for t in range(100)) + "100,0.5\n")
    message = (
        f"A column of a CSV file has the type of its first lines, or that of schema=; '0.5' in column 'y' is no int64 "
        f"({late}, line 102). Correct it, or say another type: schema={{'y': 'float64'}}."
    )
    with pytest.raises(ts.errors.DataError, match=whole(message)):
        ts.load(late)
    assert ts.load(late, schema={"y": "float64"})["y"][-1] == 0.5


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (pa.float32(), "float"),
        (torch.float64, "double"),
        (pl.Int16, "int16"),
        (pl.Datetime("ms"), "timestamp[ms]"),
        ("uint16", "uint16"),
        ("string", "dictionary of string"),
        ("%Y", "timestamp[s]"),
    ],
    ids=str,
)
def test_types_that_are_said(asked: Any, expected: str, tmp_path: Path) -> None:
    value = "2024-01-01" if asked == pl.Datetime("ms") else "2024"
    path = write(tmp_path / "one.csv", f"y,z\n{value},1\n")
    assert ts.plan(path, schema={"y": asked}).types == {"y": expected, "z": "int64"}


def test_schemas_that_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "one.csv", "y,z\n7,1\n")
    with pytest.raises(TypeError, match=whole("schema= is a mapping from names of columns to types; got ['y'].")):
        ts.load(path, schema=["y"])  # type: ignore[arg-type]
    message = (
        "A type in schema= is one of pyarrow, polars or torch, its name in pyarrow, as 'timestamp[s]', or the format "
        "of a time, as '%d.%m.%Y %H:%M'; 'y' has 'number'."
    )
    with pytest.raises(TypeError, match=whole(message)):
        ts.load(path, schema={"y": "number"})
    with pytest.raises(ts.errors.ColumnError, match=whole(f"{path} has no column 'yy'; did you mean 'y'?")):
        ts.load(path, schema={"yy": "int64"})
    with pytest.raises(ts.errors.SchemaError, match=rf"\Aschema= has types that pyarrow reads from CSV; {path} is to "):
        ts.load(path, schema={"y": torch.float16})
    message = (
        "schema= says the types of columns of CSV files; a dict has types of its own. Leave it out; ts.column(..., "
        "dtype=...) casts."
    )
    with pytest.raises(ValueError, match=whole(message)):
        ts.load({"y": [1]}, schema={"y": "int64"})


# Times


def seconds(*fields: int) -> int:
    return int(datetime(*fields, tzinfo=timezone.utc).timestamp())  # type: ignore[misc, arg-type]


def test_times_in_a_format_of_their_own(tmp_path: Path) -> None:
    """The first of two formats would fit the other column too."""
    text = "a,b,y\n01.02.2009 00:10,02/03/2009,1\n01.02.2009 00:20,02/04/2009,2\n"
    path = write(tmp_path / "jena.csv", text)
    stash = ts.load(path, ["b", "y"], time="a", schema={"a": "%d.%m.%Y %H:%M", "b": "%m/%d/%Y"})
    assert stash["b"].tolist() == [seconds(2009, 2, 3), seconds(2009, 2, 4)]
    assert ts.Windows(stash, 1, 1).anchors([0])["time"].tolist() == [seconds(2009, 2, 1, 0, 20)]
    message = (
        f"Times are timestamps, dates, integers, or text in ISO 8601; '01.02.2009 00:10' in column 'a' of {path} is "
        "not. Convert it, for example with polars: pl.col('a').str.to_datetime(...), or of a CSV file say how it is "
        "written: schema={'a': '%d.%m.%Y %H:%M'}."
    )
    with pytest.raises(ts.errors.SchemaError, match=whole(message)):
        ts.load(path, time="a")
    message = (
        f"A column of a CSV file has the type of its first lines, or that of schema=; '01.02.2009 00:10' in column 'a' "
        f"is no time like '%Y' ({path}, line 2). Correct it, or the format."
    )
    with pytest.raises(ts.errors.DataError, match=whole(message)):
        ts.load(path, time="a", schema={"a": "%Y"})


@pytest.mark.parametrize("dictionary", [False, True])
def test_text_in_iso_8601_is_time(dictionary: bool) -> None:
    texts = pa.array(["2024-01-01", "2024-01-01T06:00", "2024-01-01 12:00:00.000001"])
    table = pa.table({"t": texts.dictionary_encode() if dictionary else texts, "y": [0, 1, 2]})
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
    message = (
        f"Times of text are written as ISO 8601 has it, all with a zone or all without; {late!r} in column 't' is not "
        "(row 1, in the mapping). Convert it, for example with polars: pl.col('t').str.to_datetime(...), or of a CSV "
        "file say how it is written: schema={'t': '%d.%m.%Y %H:%M'}."
    )
    with pytest.raises(ts.errors.DataError, match=whole(message)):
        ts.load({"t": ["2024-01-01", late], "y": [1, 2]}, time="t")


# Errors


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
@pytest.mark.parametrize(
    ("bad", "kind", "message"),
    [
        (
            "7",
            ts.errors.SourceError,
            "A line of a CSV file has a value for each of the 3 columns of the first one; {}, line 61, has '7'. "
            "Correct the file.",
        ),
        (
            "1,2,3,4",
            ts.errors.SourceError,
            "A line of a CSV file has a value for each of the 3 columns of the first one; {}, line 61, has '1,2,3,4'. "
            "Correct the file.",
        ),
        (
            "59,x,a",
            ts.errors.DataError,
            "A column of a CSV file has the type of its first lines, or that of schema=; 'x' in column 'y' is no "
            "double ({}, line 61). Correct it, or say another type: schema={{'y': 'string'}}.",
        ),
        (
            b"59,1,\xff",
            ts.errors.DataError,
            "A column of a CSV file has the type of its first lines, or that of schema=; '\\\\xff' in column 's' is no "
            "text in UTF-8 ({0}, line 61). Write it again, or read it with polars: ts.load(pl.read_csv('{0}', "
            "encoding=...), ...).",
        ),
    ],
    ids=["few", "many", "no_number", "no_text"],
)
def test_a_bad_line_is_named(
    bad: str | bytes, kind: type[Exception], message: str, ending: str, tmp_path: Path, small_blocks: None
) -> None:
    lines = [b"t,y,s", *(f"{t},{t / 2},{'ab'[t % 2]}".encode() for t in range(100))]
    lines[60] = bad if isinstance(bad, bytes) else bad.encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tensorstash.sources.csv_files._FIRST", 128)
        path = write(tmp_path / f"one{ending}", b"\n".join(lines))
        with pytest.raises(kind, match=whole(message.format(path))):
            ts.load(path, time="t")


def test_files_that_are_no_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "empty.csv", "\n\n")
    message = f"A CSV file begins with a line of column names; {path} is empty."
    with pytest.raises(ts.errors.SourceError, match=whole(message)):
        ts.load(path)
    monkeypatch.setattr("tensorstash.sources.csv_files._LONGEST", 1 << 10)
    monkeypatch.setattr("tensorstash.sources.csv_files._BLOCK", 1 << 7)
    path = write(tmp_path / "long.csv", "a\n" + "x" * 5000 + "\n")
    with pytest.raises(ts.errors.SourceError, match=whole(f"{path} is no CSV file: line 2 has more than 1,024 bytes.")):
        ts.load(path)
    path = write(tmp_path / "cut.csv.gz", LTSF)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ts.errors.SourceError, match=rf"\A{path} is not a readable CSV file: .+\Z"):
        ts.load(path)
    pq.write_table(pa.table({"y": range(100)}), tmp_path / "parquet.csv")
    with pytest.raises(
        ts.errors.SourceError,
        match=rf"\AA CSV file is text in UTF-8; {tmp_path}/parquet.csv is not: .+\. Write it again, or read it with "
        r"polars: ts\.load\(pl\.read_csv\('.+', encoding=\.\.\.\), \.\.\.\)\.\Z",
    ):
        ts.load(tmp_path / "parquet.csv")
    with pytest.raises(ts.errors.SourceError, match="matches no file"):
        ts.load(tmp_path / "none.csv")


def test_a_disk_without_room_is_refused_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "one.csv.gz", LTSF)
    full = SimpleNamespace(f_bavail=0, f_frsize=4096)
    monkeypatch.setattr("tensorstash.sources.spool.os", SimpleNamespace(**vars(os) | {"statvfs": lambda _: full}))
    message = (
        f"{path} is kept in a temporary file while it is loaded; it needs 0 MB and 0 MB are free in "
        f"{tempfile.gettempdir()}. Set TMPDIR to a directory on a disk with more room."
    )
    with pytest.raises(ts.errors.SourceError, match=whole(message)):
        ts.load(path)


def test_nulls_are_named_by_file_and_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "one.csv", "t,y\n1,5\n,6\n")
    with pytest.raises(ts.errors.DataError, match=rf"'t'.*row 1 \({path}, from line 2 on\)"):
        ts.load(path, time="t")
    assert ts.load(write(tmp_path / "none.csv", "t,y\n"), ["y"])["y"].shape == (0,)


# Many files, and the rest of what sources can do


def test_lists_globs_directories_and_keys(tmp_path: Path, small_blocks: None) -> None:
    for year in (2023, 2024):
        for k in range(2):
            write(tmp_path / f"year={year}" / f"{k}.csv", f"s,t,y\na,{year},{k}.5\nb,{year + k},1\n")
    stash = ts.load(tmp_path, ["year", "y"], filter=[("year", "=", 2024), ("s", "=", "a")])
    assert (stash["year"].tolist(), stash["y"].tolist()) == ([2024, 2024], [0.5, 1.5])
    assert ts.plan(str(tmp_path / "*" / "1.csv")).rows == 4
    mixed = write(tmp_path / "year=2024" / "other.csv", "t,s\n1,a\n")
    with pytest.raises(ts.errors.SourceError, match=r"need the .*other\.csv has no column 'y'\."):
        ts.load([tmp_path / "year=2023" / "0.csv", mixed])
    assert ts.load([tmp_path / "year=2023" / "0.csv", mixed], ["t"])["t"].tolist() == [2023, 2023, 1]


def test_files_of_two_formats(tmp_path: Path) -> None:
    table = pa.table({"y": [1.5, 2.5]})
    parquet = tmp_path / "one.parquet"
    pl.from_arrow(table).write_parquet(parquet)  # type: ignore[union-attr]
    path = write(tmp_path / "about.csv", "y\n7\n")
    assert ts.load(tmp_path)["y"].tolist() == [1.5, 2.5]
    message = f"All files of a source are CSV files, or none is; {path} is one, and {parquet} is not. Name "
    message += "those of one kind."
    with pytest.raises(ts.errors.SourceError, match=whole(message)):
        ts.load([parquet, path])
    with pytest.raises(ts.errors.SourceError, match=r"notes.txt ends with .txt. Load it as a frame: ts.load\(pl.read_"):
        ts.load(write(tmp_path / "notes.txt", "y\n7\n"))


def test_a_url(tmp_path: Path) -> None:
    system = fsspec.filesystem("memory")
    for name, data in (("one.csv", LTSF.encode()), ("two.csv.gz", gzip.compress(LTSF.encode()))):
        system.pipe(f"/csv/{name}", data)
        stash = ts.load(f"memory://csv/{name}", ["OT"], time="date")
        assert stash["OT"].tolist() == [30 - hour / 16 for hour in range(100)]


def test_the_rest_of_a_load(tmp_path: Path, shm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Filters, derived columns, static ones, entities in disorder, sharing, and the command line."""
    rows = [(t, s, t * 10 + k, "NS"[k]) for t in range(50) for k, s in enumerate("ba")]
    path = write(tmp_path / "one.csv", "t,s,y,region\n" + "".join(f"{t},{s},{y},{r}\n" for t, s, y, r in rows))
    columns: dict[str, Any] = {"y": "y", "double": pl.col("y") * 2.0}
    arguments: dict[str, Any] = {"entity": "s", "time": "t", "static": ["region"], "filter": [("t", "<", 40)]}
    for _ in range(2):
        stash = ts.load(path, columns, **arguments, share="csv", schema={"y": "float32"})
        assert stash.entities == ["b", "a"]
        assert stash["double"].tolist() == [2.0 * (t * 10 + k) for k in range(2) for t in range(40)]
        assert stash.static["region"].tolist() == [0, 1]
    assert ts.shared.list().height == 1
    ts.load(path, columns, **arguments, share="csv", schema={"y": "float64"})
    assert ts.shared.list().height == 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["tensorstash", "inspect", str(path), "--time", "t", "--entity", "s"])
        with pytest.raises(SystemExit, match="0"):
            main()
    assert "100 rows" in capsys.readouterr().out
