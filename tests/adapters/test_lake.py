"""Real tables of Delta, Hudi, Iceberg and Lance: the line that a refusal prints loads the rows that the table has."""

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tensorstash as ts

TABLE = pa.table({"t": [1, 2, 3, 4], "y": [1.0, 2.0, 3.0, 4.0]})
KEPT = [1.0, 3.0, 4.0]  # without the row of t = 2, which is deleted


def delta(root: Path) -> Any:
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(str(root), TABLE)
    deltalake.DeltaTable(str(root)).delete("t = 2")
    return deltalake.DeltaTable(str(root))


def iceberg(root: Path) -> Any:
    sql = pytest.importorskip("pyiceberg.catalog.sql")
    root.mkdir()
    catalog = sql.SqlCatalog("local", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}")
    catalog.create_namespace("spaces")
    table = catalog.create_table("spaces.x", schema=TABLE.schema)
    table.append(TABLE)
    table.delete("t = 2")
    catalog.close()
    return table


def lance(root: Path) -> Any:
    package = pytest.importorskip("lance")
    package.write_dataset(TABLE, root).delete("t = 2")
    return package.dataset(root)


def hudi(root: Path) -> Any:
    """Written by hand, as Hudi's writers need Spark or Flink: two versions of one file, of which the later counts."""
    package = pytest.importorskip("hudi")
    (root / ".hoodie").mkdir(parents=True)
    properties = {
        "hoodie.table.type": "COPY_ON_WRITE",
        "hoodie.table.name": "x",
        "hoodie.table.version": "6",
        "hoodie.timeline.layout.version": "1",
        "hoodie.table.base.file.format": "PARQUET",
        "hoodie.populate.meta.fields": "false",
        "hoodie.table.recordkey.fields": "t",
        "hoodie.table.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
    }
    (root / ".hoodie" / "hoodie.properties").write_text(
        "".join(f"{key}={value}\n" for key, value in properties.items())
    )
    fields = [{"name": "t", "type": ["null", "long"]}, {"name": "y", "type": ["null", "double"]}]
    schema = json.dumps({"type": "record", "name": "x", "fields": fields})
    for instant, rows in (("20240418173550988", TABLE), ("20240418173551988", TABLE.take([0, 2, 3]))):
        name = f"a079bdb3-731c-4894-b855-abfcd6921007-0_0-182-253_{instant}.parquet"
        pq.write_table(rows, root / name)
        size = (root / name).stat().st_size
        written = {
            "fileId": name.partition("_")[0],
            "path": name,
            "prevCommit": "null",
            "numWrites": len(rows),
            "totalWriteBytes": size,
            "fileSizeInBytes": size,
            "partitionPath": "",
        }
        commit = {
            "partitionToWriteStats": {"": [written]},
            "compacted": False,
            "extraMetadata": {"schema": schema},
            "operationType": "UPSERT",
        }
        (root / ".hoodie" / f"{instant}.commit").write_text(json.dumps(commit))
    return package.HudiTableBuilder.from_base_uri(str(root)).build()


@pytest.mark.filterwarnings("ignore")  # those of the packages
@pytest.mark.parametrize("make", [delta, iceberg, lance, hudi])
def test_the_line_of_a_refusal_loads_the_rows_of_the_table(make: Any, tmp_path: Path) -> None:
    root = tmp_path / "x.lance"
    table = make(root)
    names: dict[str, Any] = {"ts": ts, "pl": pl, "pa": pa, "table": table}
    names |= {name: pytest.importorskip(name) for name in ("hudi", "lance") if make.__name__ == name}
    with pytest.raises(ts.errors.SourceError, match=r"which rows are in it: ts\.load\(.*\)\.\Z") as refused:
        ts.load(root)
    line = re.search(r"ts\.load\(.*\)(?=\.\Z)", str(refused.value))
    assert line is not None
    assert sorted(eval(line[0], names)["y"].tolist()) == KEPT
    if make is lance:  # its data sets are read as they are
        assert ts.load(table, ["y"])["y"].tolist() == KEPT
        return
    with pytest.raises(TypeError, match=r" Load .*\(table.*\)\.\Z") as refused_table:
        ts.load(table)
    source = eval(str(refused_table.value).rpartition(" Load ")[2].removesuffix("."), names)
    assert sorted(ts.load(source)["y"].tolist()) == KEPT
