"""Random panels: the values of a source, in many types, with gaps, ties, nulls and NaN of every payload."""

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from tests.differential.clocks import CLOCKS, Clock, Ints

WORDS = ["calm", "rain", "storm", "", "Zürich"]
CITIES = ["Oslo", "Bergen", "ÅS", "Lima", "Quito", "Lagos", "Rome", "", "東京", "Kyiv", "rome", "Bonn"]
IDS = [7, -5, 0, 2**40, 3, 12, 99, 100, 101, -(2**50), 8, 55]


@dataclass(frozen=True)
class Panel:
    """The rows of a source, and what is known of them."""

    clock: Clock | None
    kind: str  # of the entities: "none", "text", "number" or "two" columns
    keys: tuple[str, ...]  # the entity columns
    lengths: tuple[int, ...]  # rows of each entity
    steps: Ints  # the time of each row in steps of the clock
    table: dict[str, pa.Array] = field(default_factory=dict)
    ties: bool = False
    features: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.steps)

    @property
    def time(self) -> str | None:
        """The name of the time column."""
        return None if self.clock is None else "t"

    def reversed_rows(self, rng: Random) -> "Panel":
        """The same rows in another order, as a source may have them."""
        order = [*range(self.rows)]
        rng.shuffle(order)
        return replace(self, table={name: array.take(pa.array(order)) for name, array in self.table.items()})


def scrambled(rows: int, salt: int) -> Ints:
    """Integers of 31 bits that look random and tell their row."""
    numbers = (np.arange(rows, dtype=np.uint64) + np.uint64(salt * 7919 + 1)) * np.uint64(0x9E3779B97F4A7C15)
    return (numbers >> np.uint64(33)).astype(np.int64)


def panel(
    rng: Random, *, rows: int = 45, entities: tuple[int, int] = (1, 6), clock: Clock | None = None, kind: str = ""
) -> Panel:
    """A random panel, its rows in order of entity and time; `rows` is the most of an entity."""
    clock = clock or (rng.choice(CLOCKS) if rng.random() < 0.92 else None)
    kind = kind or rng.choice(["none", "text", "text", "text", "number", "number", "two"])
    count = 1 if kind == "none" else rng.randint(*entities)
    shortest = rng.choice([1, 4, 12])
    lengths = tuple(rng.randint(shortest, rows) for _ in range(count))
    gaps, ties = rng.choice([0.0, 0.0, 0.05, 0.25]), clock is not None and rng.random() < 0.12
    steps = np.concatenate([_steps(rng, length, gaps, ties) for length in lengths])
    keys, columns = _entities(kind, lengths, rng)
    if clock is not None:
        columns["t"] = clock.column(steps)
    columns |= _values(rng, sum(lengths)) | _static(lengths)
    known = ("gaps" if gaps else "no gaps", f"clock={clock and clock.name}", f"entity={kind}")
    return Panel(clock, kind, keys, lengths, steps, columns, ties, known + ("ties",) * ties)


def _steps(rng: Random, length: int, gaps: float, ties: bool) -> Ints:
    sizes = [rng.randint(0, 12)]
    for _ in range(length - 1):
        chance = rng.random()
        sizes.append(rng.randint(2, 6) if chance < gaps else 0 if ties and chance > 0.8 else 1)
    return np.cumsum(np.array(sizes, np.int64))


def _entities(kind: str, lengths: tuple[int, ...], rng: Random) -> tuple[tuple[str, ...], dict[str, pa.Array]]:
    of = np.repeat(np.arange(len(lengths)), lengths)
    if kind == "none":
        return (), {}
    if kind == "number":
        ids = np.array(rng.sample(IDS, len(lengths)), np.int64)
        return ("e",), {"e": pa.array(ids[of])}
    cities = rng.sample(CITIES, len(lengths))
    texts = pa.array([cities[k] for k in of.tolist()])
    if kind == "text":
        return ("e",), {"e": texts}
    return ("e", "part"), {"e": pa.array([cities[k // 2] for k in of.tolist()]), "part": pa.array(of % 2)}


def _values(rng: Random, rows: int) -> dict[str, pa.Array]:
    numbers = scrambled(rows, rng.randrange(1000))
    missing = rng.choice([0.0, 0.03, 0.15])
    null = np.array([rng.random() < missing for _ in range(rows)])
    words = [None if hole else WORDS[k % len(WORDS)] for k, hole in zip(numbers.tolist(), null.tolist())]
    z = numbers / 65_536.0 - 4_000
    z[numbers % 23 == 0] = -0.0
    z[numbers % 37 == 0] = np.inf if missing > 0.1 else 5.0
    return {
        "y": pa.array(_with_nans(numbers, null)),
        "z": pa.array(z),
        "zn": pa.array(z, mask=null),
        "k": pa.array((numbers % 2001 - 1000).astype(np.int32)),
        "kn": pa.array((numbers % 2001 - 1000).astype(np.int32), mask=null),
        "b": pa.array((numbers % 255 - 127).astype(np.int8)),
        "u": pa.array((numbers % 65_000).astype(np.uint16)),
        "q": pa.array(numbers * 4_000_037 - 2**60),
        "u64": pa.array(numbers.astype(np.uint64) * np.uint64(8_000_000_011)),
        "flag": pa.array(numbers % 3 != 0),
        "word": pa.array(words, pa.string()),
        "two": pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(numbers, 2).astype(np.int32) % 97), 2),
        "day": pa.array((numbers % 20_000).astype("M8[D]")),
        "stamp": pa.array((numbers * 1_000).astype("M8[us]")),
    }


def _with_nans(numbers: Ints, null: Any) -> Any:
    """float32 values, and NaN of different payloads and signs."""
    bits = (numbers / 1_048_576.0).astype(np.float32).view(np.uint32)
    payloads = (0x7FC00000 | numbers % 0x3FFFFF).astype(np.uint32) | ((numbers % 2) << 31).astype(np.uint32)
    return np.where(null, payloads, bits).view(np.float32)


def _static(lengths: tuple[int, ...]) -> dict[str, pa.Array]:
    of = np.repeat(np.arange(len(lengths)), lengths)
    regions = ["north", "south", None]
    return {
        "size": pa.array(of * 2.5 + 1),
        "rank": pa.array((of % 5).astype(np.int8)),
        "region": pa.array([regions[k % 3] for k in of.tolist()], pa.string()),
    }
