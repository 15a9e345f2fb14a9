"""Series with missing rows, the windows over them, and what each window holds: a loop over slots, in plain Python."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

import tensorstash as ts
from tests import data
from tests.words import Gaps

Batch = dict[str, torch.Tensor]
Spans = dict[str, tuple[str, int, int, int]]
Slots = list[int | None]  # the row of each slot; None for an empty one

# one value of each row is a number, three, two by three, one that lies in an odd number of bytes, a code, a half
SHAPES = {"pack": (3,), "grid": (2, 3), "odd": (3,), "halves": (2,)}
NAMES = (*data.DTYPES, *SHAPES, "code")
TEXTS = [f"text {number}" for number in range(7)]
# what an empty slot holds of the columns that have no NaN and no code -1; of two floating ones another number than NaN
EMPTY: dict[str, Any] = data.FILLS | {"i32": -9, "grid": 5, "odd": 250, "halves": 0.5}


def columns(rows: int) -> dict[str, Any]:
    """All columns that can be told apart, by name; row r holds other values than its neighbours."""
    found: dict[str, Any] = {name: data.column(name, rows) for name in data.DTYPES}
    number = torch.arange(rows)
    found["pack"] = torch.stack([number + k / 4 for k in range(3)], 1).float()
    found["grid"] = (number[:, None] * 6 + torch.arange(6)).to(torch.int16).view(rows, 2, 3)
    found["odd"] = (number[:, None] * 3 + torch.arange(3)).remainder(251).to(torch.uint8)
    found["halves"] = torch.stack([number.remainder(512), -number.remainder(512)], 1).half()
    found["code"] = [TEXTS[row % len(TEXTS)] for row in range(rows)]
    return found


@dataclass(frozen=True)
class Series:
    """Entities, each a list of times of which some have no row; the first and the last have one."""

    present: Sequence[Sequence[bool]]

    @property
    def rows(self) -> int:
        return sum(map(sum, self.present))

    def stash(self, names: Sequence[str] = NAMES) -> ts.Stash:
        """The columns in this order in memory, with a value for empty slots where they need one."""
        where = [(e, t) for e, times in enumerate(self.present) for t, there in enumerate(times) if there]
        keys = {"entity_": np.array([e for e, _ in where]), "time_": np.array([t for _, t in where])}
        texts = {"code": TEXTS}  # components of a mix have one vocabulary, however few rows they have
        chosen = {name: ts.column(name, empty=EMPTY.get(name), vocabulary=texts.get(name)) for name in names}
        return ts.load(keys | columns(len(where)), chosen, entity="entity_", time="time_")

    def slots(self, gaps: str, lead: int, tail: int) -> list[Slots]:
        """The slots of each run, from `lead` empty ones before its first row to `tail` empty ones behind its last."""
        runs: list[Slots] = []
        row = 0
        for times in self.present:
            run: Slots = []
            for there in times:
                run.append(row if there else None)
                row += there
            runs += [run] if gaps == "mask" else _pieces(run, joined=gaps == "ignore")
        return [[None] * lead + run + [None] * tail for run in runs]


def _pieces(run: Slots, joined: bool) -> list[Slots]:
    """A run cut where rows are missing, or with its rows pushed together."""
    if joined:
        return [[row for row in run if row is not None]]
    pieces: list[Slots] = [[]]
    for row in run:
        if row is None:
            pieces.append([])
        else:
            pieces[-1].append(row)
    return [piece for piece in pieces if piece]


@dataclass(frozen=True)
class Case:
    """Windows over series, by their arguments and by a loop."""

    series: Series
    spans: Spans
    gaps: Gaps = "mask"
    min_history: int | None = None
    min_horizon: int | None = None

    @property
    def size(self) -> tuple[int, int]:
        """History and horizon."""
        bounds = [(begin, end) for _, begin, end, _ in self.spans.values()]
        return max(0, *(-begin for begin, _ in bounds)), max(0, *(end for _, end in bounds))

    @property
    def filled(self) -> bool:
        """Whether slots may be empty, so that batches say which are."""
        return self.gaps == "mask" or self.min_history is not None or self.min_horizon is not None

    def windows(self, stash: ts.Stash | None = None) -> ts.Windows:
        least = {"min_history": self.min_history, "min_horizon": self.min_horizon}
        step = {} if self.gaps == "ignore" else {"frequency": 1}
        own = self.series.stash() if stash is None else stash
        return ts.Windows(own, spans=self.spans, gaps=self.gaps, **least, **step)  # type: ignore[arg-type]

    def expected_slots(self) -> list[Slots]:
        """The slots of every window."""
        history, horizon = self.size
        lead = 0 if self.min_history is None else history - self.min_history
        tail = 0 if self.min_horizon is None else horizon - self.min_horizon
        length = history + horizon
        runs = self.series.slots(self.gaps, lead, tail)
        return [run[k : k + length] for run in runs for k in range(len(run) - length + 1)]

    def expected(self, stash: ts.Stash, ids: Sequence[int]) -> Batch:
        """The batch of some windows, value by value."""
        history, _ = self.size
        windows = self.expected_slots()
        batch, observed = {}, {}
        for name, (column, start, stop, step) in self.spans.items():
            own = [windows[k][history + start : history + stop : step] for k in ids]
            batch[name] = values(stash, column, own)
            observed[f"{name}.observed"] = torch.tensor([[row is not None for row in slots] for slots in own])
        return batch | (observed if self.filled else {})


def values(stash: ts.Stash, column: str, windows: Sequence[Slots]) -> torch.Tensor:
    """The rows of a column, and in empty slots what stands for no value: `(windows, slots, ...)`."""
    tensor = stash[column]
    nothing = EMPTY.get(column, -1 if column == "code" else float("nan"))
    empty = torch.full(tensor.shape[1:], nothing, dtype=tensor.dtype)
    return torch.stack([torch.stack([empty if row is None else tensor[row] for row in slots]) for slots in windows])


def spans(names: Sequence[str] = NAMES) -> st.SearchStrategy[Spans]:
    """One to five spans, often over equal slots or one column, with steps on both sides of slicing and striding."""
    bounds = st.tuples(st.integers(-7, 3), st.integers(1, 8), st.sampled_from([1, 1, 1, 2, 3, 4, 5, 6]))
    one = st.tuples(st.sampled_from(names), bounds).map(lambda s: (s[0], s[1][0], s[1][0] + s[1][1], s[1][2]))
    return st.dictionaries(st.sampled_from(["past", "next", "lag", "known", "more"]), one, min_size=1, max_size=5)


@st.composite
def series(draw: st.DrawFn, most: int = 24) -> Series:
    """One to four entities."""
    inside = st.lists(st.sampled_from([True, True, True, False]), max_size=most)
    return Series([[True, *times, True] for times in draw(st.lists(inside, min_size=1, max_size=4))])


@st.composite
def cases(draw: st.DrawFn, gaps: Sequence[str] = ("mask", "mask", "split", "ignore")) -> Case:
    """Windows that may begin before the first row of a run and end behind its last one."""
    case = Case(draw(series()), draw(spans()), draw(st.sampled_from(gaps)))
    history, horizon = case.size
    least = draw(st.none() | st.integers(int(horizon == 0), history)) if history >= (horizon == 0) else None
    ahead = draw(st.none() | st.integers(int(history == 0), horizon)) if horizon >= (history == 0) else None
    return Case(case.series, case.spans, case.gaps, least, ahead)
