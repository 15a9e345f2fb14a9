"""Mutants of a file, loaded one after the other; prints what became of each as JSON. Run as a process of its own."""

import json
import random
import resource
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

import tensorstash as ts

ROWS = 2000
OURS = (
    ts.errors.SourceError,
    ts.errors.SchemaError,
    ts.errors.ColumnError,
    ts.errors.DataError,
    ts.errors.NoMemoryError,
)
CHECKED = "parquet with checksums"
KINDS = (CHECKED, "parquet", "arrow", "stream", "orc")
MUTATIONS = ("cut", "zero", "flip in the data", "flip in the footer")


def table() -> pa.Table:
    rows = np.arange(ROWS)
    return pa.table(
        {
            "e": [f"s{row // 500}" for row in rows],
            "t": pa.array(rows % 500, pa.timestamp("ms")),
            "f": np.random.default_rng(0).random(ROWS, np.float32),
            "i": pa.array([None if row % 50 == 3 else int(row) for row in rows]),
            "s": [["aa", "b", "ü", None][row * 7 % 4] for row in rows],
            "l": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(ROWS * 2)), 2),
        }
    )


def write(kind: str, path: Path) -> int:
    """Write the file; the place where its data end."""
    if kind.startswith("parquet"):
        pq.write_table(table(), path, row_group_size=700, write_page_checksum=kind == CHECKED)
        data = path.read_bytes()
        return len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    if kind == "orc":
        lists = table()["l"].cast(pa.list_(pa.int64()))
        orc.write_table(
            table().set_column(5, "l", lists), path, stripe_size=4096, row_index_stride=1000, compression="zstd"
        )
        return path.stat().st_size - 600
    new = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
    with new(path, table().schema) as writer:
        writer.write_table(table(), 700)
    data = path.read_bytes()
    return len(data) - 10 - int.from_bytes(data[-10:-6], "little") if kind == "arrow" else len(data) - 8


def load(path: Path) -> tuple[object, ...]:
    """Everything that a load gives."""
    columns: dict[str, Any] = {"f": "f", "i": ts.column("i", fill=-1), "s": "s", "l": "l"}
    condition = [("i", ">=", 700)] if path.name.startswith("filtered") else None
    stash = ts.load(path, columns, entity="e", time="t", filter=condition)
    assert stash.time is not None
    tensors = [*stash.values(), stash.time, stash.offsets]
    return (*(tensor.numpy().tobytes() for tensor in tensors), *stash.entities, *stash.vocabulary("s"), stash.clock)


def mutant(data: bytes, end: int, mutation: str, draw: random.Random) -> bytes:
    changed = bytearray(data)
    if mutation == "cut":
        return bytes(changed[: draw.randrange(len(changed))])
    at = draw.randrange(end, len(changed)) if mutation.endswith("footer") else draw.randrange(4, end)
    if mutation == "zero":
        changed[at : at + 400] = bytes(min(400, len(changed) - at))
    else:
        changed[at] ^= 1 << draw.randrange(8)
    return bytes(changed)


def main(kind: str, count: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as directory:
        suffix = {"arrow": ".arrow", "stream": ".arrows", "orc": ".orc"}.get(kind, ".parquet")
        for name in ("whole", "filtered"):
            path = Path(directory) / f"{name}{suffix}"
            end = write(kind, path)
            data, good = path.read_bytes(), load(path)
            for mutation in MUTATIONS:
                for number in range(count):
                    draw = random.Random(f"{kind} {mutation} {name} {number}")
                    path.write_bytes(mutant(data, end, mutation, draw))
                    try:
                        repr(ts.plan(path))
                        outcome = "same" if load(path) == good else "other values"
                    except OURS as error:
                        outcome = (
                            "error"
                            if str(path) in str(error) or not isinstance(error, ts.errors.SourceError)
                            else repr(error)
                        )
                    except Exception as error:
                        outcome = repr(error)
                    found[f"{mutation}: {outcome}"] += 1
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
