"""The files that `bench_load.py` loads, and what a load of each has to hold."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import csv

COLUMNS = 12
CHECKED = 1000  # rows whose values are compared, beside a sum over all
BUCKETS = 1 << 20

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Case:
    """A file, and what a load of it has to hold."""

    path: str  # of a file, or of a directory of files
    rows: int
    columns: list[str]
    places: list[int]  # some rows of the stash
    values: dict[str, list[float]]  # what stands there
    sums: dict[str, int]  # of each column's bits, modulo 2**64
    form: str  # "plain" without entity and time, "keys" with them, or a layout

    @property
    def nbytes(self) -> int:
        return self.rows * 4 * len(self.columns)


def column(index: int, rows: int) -> NDArray[np.float32]:
    """Noise, or in every other column a rounded random walk."""
    rng = np.random.default_rng(index)
    noise = rng.standard_normal(rows, dtype=np.float32)
    return noise if index % 2 else np.round(np.cumsum(noise), 2).astype(np.float32)


def write(path: Path, table: pa.Table, group: int) -> None:
    if path.suffix == ".csv":
        csv.write_csv(table, path)
    else:
        pq.write_table(table, path, row_group_size=group, compression="snappy", write_page_checksum=True)


def numbers(path: Path, rows: int, columns: int, group: int, wanted: Sequence[int]) -> Case:
    """Columns without keys."""
    table = {}
    for index in range(columns):
        table[f"c{index}"] = column(index, rows)
    write(path, pa.table(table), group)
    return _case(path, {f"c{index}": table[f"c{index}"] for index in wanted}, form="plain")


def _case(path: Path, arrays: Arrays, form: str) -> Case:
    rows = len(next(iter(arrays.values())))
    places = np.sort(np.random.default_rng(0).integers(0, rows, CHECKED))
    values = {name: array[places].tolist() for name, array in arrays.items()}
    sums = {name: sum_of(array) for name, array in arrays.items()}
    return Case(str(path), rows, list(arrays), places.tolist(), values, sums, form)


def sum_of(array: NDArray[Any]) -> int:
    return int(array.view(np.uint32).sum(dtype=np.uint64))


def panels(directory: Path, rows: int, entities: int, group: int) -> dict[str, Case]:
    """The same rows grouped by entity, interleaved by time, and with the times of each entity in disorder."""
    hours = rows // entities
    arrays = {f"c{index}": column(index, hours * entities) for index in range(COLUMNS)}
    codes = np.repeat(np.arange(entities, dtype=np.int32), hours)
    times = np.tile(np.arange(hours, dtype=np.int64) * 3600, entities)
    names = pa.array([f"station {k:05}" for k in range(entities)])
    rng = np.random.default_rng(1)
    orders = {
        "grouped": None,
        "interleaved": np.arange(rows).reshape(entities, hours).T.reshape(-1),
        "disordered": np.concatenate([k * hours + rng.permutation(hours) for k in range(entities)]),
    }
    cases = {}
    for kind, order in orders.items():
        path = directory / f"{kind}.parquet"
        source: dict[str, Any] = {
            "station": pa.DictionaryArray.from_arrays(pa.array(codes if order is None else codes[order]), names),
            "hour": pa.array(times if order is None else times[order], pa.timestamp("s")).cast(pa.timestamp("ms")),
        }
        source |= {name: array if order is None else array[order] for name, array in arrays.items()}
        write(path, pa.table(source), group)
        cases[kind] = _case(path, arrays, form="keys")
    return cases


def small_files(directory: Path, files: int, rows: int) -> Case:
    """A directory of files of a few rows each, one of each entity, in order."""
    directory.mkdir()
    value = column(0, files * rows)
    hours = pa.array(np.arange(rows, dtype=np.int64) * 3600, pa.timestamp("s")).cast(pa.timestamp("ms"))
    for k in range(files):
        own = value[k * rows : (k + 1) * rows]
        table = pa.table({"station": [f"station {k:05}"] * rows, "hour": hours, "c0": own, "c1": own})
        write(directory / f"{k:05}.parquet", table, rows)
    return _case(directory, {"c0": value}, form="keys")


def texts(path: Path, rows: int, distinct: int, group: int) -> tuple[Case, Case]:
    """A column of texts: its codes, which ascend, and its hash buckets."""
    numbers = np.random.default_rng(0).integers(0, distinct, rows)
    values, codes = np.unique(numbers, return_inverse=True)
    names = np.array([f"item-{value}" for value in values.tolist()], object)
    write(path, pa.table({"id": names[codes]}), group)
    ranks = np.empty(len(values), np.int32)
    ranks[np.argsort(names)] = np.arange(len(values), dtype=np.int32)
    digests = b"".join(blake2b(name.encode(), digest_size=8).digest() for name in names)
    buckets = (np.frombuffer(digests, "<u8") % np.uint64(BUCKETS)).astype(np.int32)
    coded = _case(path, {"id": ranks[codes]}, form="plain")
    return coded, _case(path, {"id": buckets[codes]}, form="plain")
