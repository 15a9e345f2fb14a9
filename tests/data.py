"""Stashes whose values say where they come from, and the Hypothesis strategies that make them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from hypothesis import strategies as st

import tensorstash as ts

DTYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "u16": torch.uint16,
    "u32": torch.uint32,
    "u64": torch.uint64,
    "flag": torch.bool,
}

ZONES = [None, "UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kolkata"]

# what stands in an empty slot of the columns that have no NaN; one floating column has a fill too
FILLS = {name: 3 for name in DTYPES if name.startswith(("i", "u"))} | {"flag": True, "f64": -1.5}


def column(name: str, rows: int) -> torch.Tensor:
    """`(rows,)` of that dtype; row r of column k holds r * 16 + k, as far as the dtype can tell them apart."""
    k = list(DTYPES).index(name)
    values = np.arange(rows, dtype=np.int64) * 16 + k
    if name == "flag":
        return torch.from_numpy(values // 16 % 3 == 0)
    if name in ("f16", "bf16"):
        values %= 256
    elif name in ("i8", "u8"):
        values %= 127
    elif name in ("i16", "u16"):
        values %= 32_000
    return torch.from_numpy(values).to(DTYPES[name])


@dataclass(frozen=True)
class Table:
    """What a stash is made from."""

    lengths: Sequence[int]  # rows of each entity
    times: Sequence[int]  # of all rows
    holes: Sequence[int] = field(default=())  # rows at which f32 and pack are NaN

    def stash(self, timed: bool = True, fills: bool = False) -> ts.Stash:
        """All dtypes, a pack, and time and entity; integers and booleans with a fill if empty slots need one."""
        rows = sum(self.lengths)
        columns = {name: column(name, rows) for name in DTYPES}
        columns["pack"] = torch.stack([columns["f32"], columns["f32"] + 0.25, columns["f32"] + 0.5], 1)
        holes = torch.tensor(self.holes, dtype=torch.int64)
        columns["f32"] = columns["f32"].index_fill(0, holes, float("nan"))
        columns["pack"][holes, 1] = float("nan")
        entity = np.repeat(np.arange(len(self.lengths)), self.lengths)
        keys = {"entity_": entity, "time_": np.array(self.times, np.int64)}
        chosen = {name: ts.column(name, fill=FILLS.get(name) if fills else None) for name in columns}
        return ts.load({**keys, **columns}, chosen, entity="entity_", time="time_" if timed else None)


@st.composite
def tables(draw: st.DrawFn, most_entities: int = 4, most_rows: int = 30) -> Table:
    """Ragged entities with gaps in time and missing values."""
    lengths = draw(st.lists(st.integers(1, most_rows), min_size=1, max_size=most_entities))
    times: list[int] = []
    for length in lengths:
        now = draw(st.integers(-50, 50))
        for step in draw(st.lists(st.sampled_from([1, 1, 1, 1, 1, 2, 5]), min_size=length, max_size=length)):
            times.append(now)
            now += step
    rows = sum(lengths)
    holes = draw(st.lists(st.integers(0, rows - 1), max_size=4, unique=True))
    return Table(lengths, times, sorted(holes))


def spans(names: Sequence[str] = (*DTYPES, "pack")) -> st.SearchStrategy[dict[str, tuple[str, int, int, int]]]:
    """One to four spans over any columns, with steps on both sides of where slicing gives way to striding."""
    one = st.tuples(st.sampled_from(names), st.integers(-6, 3), st.integers(1, 6), st.sampled_from([1, 1, 2, 3, 5, 7]))
    made = one.map(lambda s: (s[0], s[1], s[1] + s[2], s[3]))
    return st.dictionaries(st.sampled_from(["past", "target", "lag", "known"]), made, min_size=1, max_size=4)
