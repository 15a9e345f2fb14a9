"""What a plan says of each column, as plain values and as cells of a table."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tensorstash.columns.column import Column

HEAD = ("column", "from", "source", "kind", "dtype", "MB")
CUTTABLE = ("source", "kind")
NUMBERS = ("MB",)


def facts(
    name: str,
    members: Sequence[str],
    types: Mapping[str, str],
    role: str,
    *,
    column: Column | None = None,
    rows: int = 0,
) -> dict[str, Any]:
    """What is said of a column of these members, as JSON has it: numbers, lists, texts and null.

    `types` are those of the source columns. A role is "static", "entity", "time", "known" or "partition key". The bytes
    of a static column are the most that it takes, because only a load counts the entities.
    """
    is_time = role in ("time", "known")
    return {
        "column": name,
        "from": [*members],
        "source": list(dict.fromkeys(types[member] for member in members if member in types)),
        "role": role or None,
        "kind": None if column is None or is_time else column.kind,
        "unit": None if column is None else column.unit,
        "zone": None if column is None else column.zone,
        "dtype": None if column is None else str(column.dtype).removeprefix("torch."),
        "shape": [] if column is None else [*column.shape],
        "bytes": None if column is None else rows * column.row_bytes,
    }


def cells(told: Mapping[str, Any]) -> tuple[str, ...]:
    """The facts of a column as texts under `HEAD`."""
    origin = ", ".join(told["from"]) if told["from"] != [told["column"]] else ""
    source = ", ".join(dict.fromkeys(map(_without_unit, told["source"])))
    kind = " ".join(filter(None, (told["role"], told["kind"], told["zone"])))
    dtype = (told["dtype"] or "") + "".join(f" x {size}" for size in told["shape"])
    megabytes = "" if told["bytes"] is None else f"{told['bytes'] / 1e6:,.1f}"
    most = "<= " if told["role"] == "static" and megabytes else ""
    return told["column"], origin, source, kind, dtype, most + megabytes


def _without_unit(name: str) -> str:
    """A type of Arrow; the zone of times stands in the kind."""
    name = name.replace("large_string", "string")
    return name.partition("[")[0] if name.startswith(("timestamp", "duration", "time", "date")) else name


def type_name(arrow: pa.DataType) -> str:
    """An Arrow type, without the width of its indices where it is a dictionary."""
    return f"dictionary of {arrow.value_type}" if pa.types.is_dictionary(arrow) else str(arrow)
