"""Windows: which stretches of rows are samples, and the batch of any of them by number."""

import warnings
import zlib
from collections.abc import Mapping, Sequence
from copy import copy
from datetime import date
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.arrays import Int64s
from tensorstash.errors import DataError
from tensorstash.gather import GatherPlan, compile_plan, gather, gather_into
from tensorstash.intervals import Intervals, drop, keep, locate, of_runs, spread, union
from tensorstash.order import shuffled
from tensorstash.runs import Runs, entity_runs, find_runs, true_rows
from tensorstash.spans import Span, at_least, make_spans, names_in
from tensorstash.stash import Stash
from tensorstash.times import bisect_rows

if TYPE_CHECKING:
    import polars as pl

Ids = Sequence[int] | NDArray[np.integer[Any]] | torch.Tensor | slice
_BLOCK = 1 << 20  # rows scanned for missing values at a time
_COSTLY_GAPS = 0.1  # share of the windows


class Windows:
    """Every valid window of a stash, numbered from 0; a window never crosses an entity or a gap in time.

    A window is `history + horizon` consecutive rows. Its anchor is the first row of the horizon. Memory is a few
    numbers per run of rows, whatever the number of windows.

    Args:
        stash: the columns.
        history: rows before the anchor. Short form: one span per column over all `history + horizon` rows, so that the
            rows from `history` on are the future.
        horizon: rows from the anchor on.
        columns: the columns of the short form; `None` for all.
        spans: instead of `history` and `horizon`, a mapping from a name in the batch to `(column, begin, end)` or
            `(column, begin, end, step)`: half-open rows relative to the anchor, so that `("y", -96, 0)` is the past 96.
        stride: rows from one window to the next, counted from the first window of each run.
        gaps: `"split"` ends a run where a time step is missing; `"ignore"` takes an entity as one run.
        frequency: the step of time, as polars writes it ("15m", "1h", "1mo", "1bd"), or an integer for integer times;
            `None` takes the most common one.
        tolerance: how far a step may be from the frequency, written likewise.
        require: columns or spans; windows with a missing value (NaN, or code -1) in one of them are left out. A column
            is judged over the whole window, a span over its own rows.
        where: a boolean column, or `(rows,)` booleans; windows whose anchor (without a horizon, whose last row) is at a
            false one are left out.

    Raises:
        DataError: there is no window, with the longest run and the length needed. ColumnError: no such column.
        SchemaError: a reserved span name. A `UserWarning` tells when gaps cost more than a tenth of the windows.

    Example:
        >>> import numpy as np, tensorstash as ts
        >>> stash = ts.load({"y": np.arange(10.0)})
        >>> windows = ts.Windows(stash, spans={"past": ("y", -3, 0), "target": ("y", 0, 2)})
        >>> len(windows)
        6
        >>> windows[[0, 5]]["target"]
        tensor([[3., 4.],
                [8., 9.]], dtype=torch.float64)
    """

    def __init__(
        self,
        stash: Stash,
        history: int | None = None,
        horizon: int = 0,
        *,
        columns: Sequence[str] | None = None,
        spans: Mapping[str, Sequence[Any]] | None = None,
        stride: int = 1,
        gaps: str = "split",
        frequency: int | str | None = None,
        tolerance: int | str | None = None,
        require: Sequence[str] | None = None,
        where: str | Sequence[bool] | NDArray[np.bool_] | torch.Tensor | None = None,
    ) -> None:
        self.stash = stash
        self.spans = make_spans(stash, history, horizon, columns, spans)
        self.history = max(0, -min(span.begin for span in self.spans))
        self.horizon = max(0, *(span.end for span in self.spans))
        self.stride = at_least(1, stride, "stride")
        self.runs = _runs(stash, gaps, frequency, tolerance)
        whole = of_runs(self.runs.first, self.runs.rows, self.length, self.stride)
        if not len(whole):
            raise DataError(
                f"A window is {self.length} consecutive rows of one run; the longest of {len(self.runs.rows):,} runs "
                f"has {int(self.runs.rows.max(initial=0)):,}{_steps(self.runs)}. Shorten history or horizon, or see "
                "frequency= and gaps=."
            )
        _warn_of_gaps(stash, self.runs, whole, self.length)
        required = [] if require is None else names_in(require, "require")
        named = {span.name: span for span in self.spans}
        judged = [named.get(name) or Span(name, name, -self.history, self.horizon) for name in required]
        complete = _complete(stash, judged, self.history, whole)
        self.intervals = complete if where is None else self._anchored(_mask(stash, where), complete)
        if len(complete) and not len(self.intervals):
            raise DataError(
                "where= keeps the windows whose anchor is at a true row; none of the "
                f"{len(complete):,} windows has its anchor at one. See windows.anchors without where=."
            )
        if not len(self.intervals):
            raise DataError(
                f"require= keeps the windows without a missing value; each of the {len(whole):,} windows has one in "
                f"{', '.join(map(repr, required))}. Shorten the window, or load with fill=."
            )

    @property
    def length(self) -> int:
        """Rows of a window, `history + horizon`."""
        return self.history + self.horizon

    def __len__(self) -> int:
        return len(self.intervals)

    def __getitem__(self, ids: int | Ids) -> dict[str, torch.Tensor]:
        """One window, tensors `(time, ...)`, for an integer; else a batch, tensors `(batch, time, ...)`."""
        if isinstance(ids, (int, np.integer)):
            return {name: tensor[0] for name, tensor in self.gather(np.array([ids])).items()}
        return self.gather(ids)

    def gather(self, ids: Ids, out: Mapping[str, torch.Tensor] | None = None) -> dict[str, torch.Tensor]:
        """The batch of the windows `ids`: a fresh `(batch, time, ...)` tensor per span, in the span's column's dtype.

        `out`, an earlier batch of as many windows, is written into and returned instead. Ids lie in
        `[-len(self), len(self))`; others are an `IndexError`, an `out` that does not fit is a `ValueError`.

        Example:
            >>> import numpy as np, tensorstash as ts
            >>> windows = ts.Windows(ts.load({"y": np.arange(5)}), history=2)
            >>> batch = windows.gather([0, 3])
            >>> windows.gather([1, 2], out=batch)["y"]
            tensor([[1, 2],
                    [2, 3]])
        """
        anchors = self.anchor_rows(self._checked(ids))
        if out is None:
            return gather(self.plan, anchors)
        gather_into(self.plan, anchors, out)
        return dict(out)

    def anchors(self, ids: Ids) -> dict[str, torch.Tensor]:
        """The `entity` (index into `stash.entities`) and the `time` of each window's anchor, both `(batch,)` int64.

        Without a horizon the anchor is the window's last row. Without a time column there is no `time`.

        Example:
            >>> import tensorstash as ts
            >>> stash = ts.load({"e": ["a", "a", "b", "b"], "t": [1, 2, 1, 2], "y": [0.0] * 4}, entity="e", time="t")
            >>> ts.Windows(stash, history=1, horizon=1).anchors([0, 1])
            {'entity': tensor([0, 1]), 'time': tensor([2, 2])}
        """
        rows = self.anchor_rows(self._checked(ids)) - (self.horizon == 0)
        entity = np.searchsorted(self.stash.offsets.numpy(), rows, "right") - 1
        times = {} if self.stash.time is None else {"time": self.stash.time[torch.from_numpy(rows)]}
        return {"entity": torch.from_numpy(entity)} | times

    def to_frame(self, ids: Ids, predictions: torch.Tensor) -> "pl.DataFrame":
        """Predictions as a polars frame: `entity`, `time` and `value` of every horizon step of the windows `ids`.

        `predictions` is `(batch, horizon)`, or `(batch, history)` where the windows have no horizon; another shape is a
        `ValueError`.

        Example:
            >>> import torch, tensorstash as ts
            >>> windows = ts.Windows(ts.load({"t": [1, 2, 3], "y": [0.0] * 3}, time="t"), history=1, horizon=2)
            >>> windows.to_frame([0], torch.tensor([[0.5, 0.25]])).rows()
            [(2, 0.5), (3, 0.25)]
        """
        from tensorstash.interop import predictions_frame

        begin, steps = (0, self.horizon) if self.horizon else (-self.history, self.history)
        checked = self._checked(ids)
        if predictions.shape != (len(checked), steps):
            raise ValueError(f"predictions= has shape ({len(checked)}, {steps}); got {tuple(predictions.shape)}.")
        rows = self.anchor_rows(checked)[:, None] + np.arange(begin, begin + steps)
        return predictions_frame(self.stash, self.anchors(checked)["entity"], torch.from_numpy(rows), predictions)

    def split(self, *cuts: SupportsIndex | str | date | np.datetime64) -> tuple["Windows", ...]:
        """Parts of these windows before, between and from the cuts, which are times in ascending order.

        Part k holds the windows all of whose horizon rows (all rows, without a horizon) lie in `[cut k-1, cut k)`; the
        history may reach back across a cut. A window across a cut is in no part. Text is read in the time's zone. Cuts
        that cannot be read or do not ascend, and a stash without times, are a `ValueError`.

        Example:
            >>> import numpy as np, tensorstash as ts
            >>> stash = ts.load({"t": np.arange("2024-01-01", "2024-01-31", dtype="M8[D]"), "y": np.ones(30)}, time="t")
            >>> train, valid = ts.Windows(stash, history=7, horizon=2).split("2024-01-21")
            >>> len(train), len(valid)
            (12, 9)
        """
        times, clock = self.stash.time, self.stash.clock
        if times is None:
            raise ValueError("split divides by time, and this stash has none: ts.load(..., time=...).")
        moments = [clock.parse(cut) for cut in cuts]
        if any(one >= two for one, two in pairwise(moments)):
            raise ValueError(f"Cuts ascend; got {', '.join(map(str, cuts))}.")
        offsets = self.stash.offsets.numpy()
        inner = [bisect_rows(times.numpy(), offsets, moment) for moment in moments]
        edges = [offsets[:-1], *inner, offsets[1:]]
        return tuple(self._between(low, high) for low, high in pairwise(edges))

    def split_fraction(self, *fractions: float) -> tuple["Windows", ...]:
        """Parts of these windows by time, with cuts after fractions of each entity's own rows.

        `split_fraction(0.7, 0.85)` makes three parts. What a part holds is as in `split`. The fractions lie in (0, 1)
        and ascend; others are a `ValueError`.

        Example:
            >>> import numpy as np, tensorstash as ts
            >>> stash = ts.load({"e": ["a"] * 10 + ["b"] * 20, "y": np.ones(30)}, entity="e")
            >>> train, valid = ts.Windows(stash, history=2, horizon=1).split_fraction(0.8)
            >>> len(train), len(valid)
            (20, 6)
        """
        offsets = self.stash.offsets.numpy()
        inner = [offsets[:-1] + _share(fraction, np.diff(offsets)) for fraction in _ascending(fractions)]
        return tuple(self._between(low, high) for low, high in pairwise([offsets[:-1], *inner, offsets[1:]]))

    def split_entities(self, *fractions: float, seed: int = 0) -> tuple["Windows", ...]:
        """Parts of these windows that share no entity: the entities in an order drawn from `seed`, cut at fractions.

        `split_entities(0.8)` keeps a fifth of the entities for the second part, to see how a model does on series that
        it has not met. The fractions lie in (0, 1) and ascend; others are a `ValueError`.

        Example:
            >>> import numpy as np, tensorstash as ts
            >>> stash = ts.load({"e": list("aabbccdd"), "y": np.ones(8)}, entity="e")
            >>> train, unseen = ts.Windows(stash, history=2).split_entities(0.75)
            >>> len(train), len(unseen)
            (3, 1)
        """
        offsets = self.stash.offsets.numpy()
        count = len(offsets) - 1
        drawn = shuffled(count, seed, 0)(np.arange(count))
        cuts = [0, *(int(_share(fraction, np.array(count))) for fraction in _ascending(fractions)), count]
        chosen = [np.sort(drawn[low:high]) for low, high in pairwise(cuts)]
        return tuple(self._with(keep(self.intervals, offsets[part], offsets[part + 1])) for part in chosen)

    def _anchored(self, mask: NDArray[np.bool_], whole: Intervals) -> Intervals:
        """The windows whose anchor is at a true row."""
        low, high = true_rows(mask, 0)
        shift = self.history - (self.horizon == 0)
        return keep(whole, low - shift, high - shift)

    def _between(self, low: Int64s, high: Int64s) -> "Windows":
        """The windows whose judged rows lie in `[low, high)` of their entity, both `(entities,)`."""
        offsets = self.stash.offsets.numpy()
        judged = (self.history, self.length) if self.horizon else (0, self.length)
        first = np.maximum(low - judged[0], offsets[:-1])
        last = np.minimum(high - judged[1] + 1, offsets[1:])
        return self._with(keep(self.intervals, first, np.maximum(first, last)))

    def _with(self, intervals: Intervals) -> "Windows":
        part = copy(self)
        part.intervals = intervals
        return part

    def fingerprint(self) -> dict[str, Any]:
        """What these windows are, in a few plain values, equal wherever the windows are equal."""
        time = self.stash.segment.metadata["time"]
        return {
            "windows": len(self),
            "entities": len(self.stash.offsets) - 1,
            "rows": self.stash.rows,
            "first_time": time.get("low"),
            "last_time": time.get("high"),
            "spans": {s.name: [s.column, s.begin, s.end, s.step] for s in self.spans},
            "stride": self.stride,
            "runs": zlib.crc32(self.intervals.ends.tobytes(), zlib.crc32(self.intervals.base.tobytes())),
        }

    def anchor_rows(self, ids: Int64s) -> Int64s:
        """The row of each window's anchor, for int64 ids of any shape that are known to lie in `[0, len(self))`."""
        rows = locate(self.intervals, ids)
        rows += self.history
        return rows

    @cached_property
    def plan(self) -> GatherPlan:
        """How batches are gathered; made at the first one."""
        return compile_plan(self.stash.blocks, self.stash, self.spans)

    def _checked(self, ids: Ids) -> Int64s:
        if isinstance(ids, slice):
            return np.arange(*ids.indices(len(self)), dtype=np.int64)
        raw = np.asarray(ids)
        if raw.ndim != 1 or (raw.dtype.kind not in "iu" and raw.size):
            raise TypeError(f"Ids are one-dimensional integers; got {raw.ndim} dimensions of {raw.dtype}.")
        found = raw.astype(np.int64)
        found[found < 0] += len(self)
        outside = (found < 0) | (found >= len(self))
        if outside.any():
            raise IndexError(f"Ids lie in [{-len(self)}, {len(self)}); got {raw[outside.argmax()]}.")
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "plan"}

    def __repr__(self) -> str:
        spans = ", ".join(map(str, self.spans))
        step = f" every {self.runs.frequency.text}" if self.runs.frequency else ""
        return (
            f"Windows: {len(self):,} of {self.history} + {self.horizon} rows{step}, stride {self.stride}, in "
            f"{len(self.intervals.base):,} intervals of {len(self.stash.offsets) - 1:,} entities; {spans}"
        )


def _mask(stash: Stash, where: str | Sequence[bool] | NDArray[np.bool_] | torch.Tensor) -> NDArray[np.bool_]:
    """The `(rows,)` booleans that `where=` names or gives."""
    mask = np.asarray(stash[where] if isinstance(where, str) else where)
    if mask.dtype != bool or mask.shape != (stash.rows,):
        raise ValueError(
            f"where= is a boolean column or ({stash.rows},) booleans, one per row; got {mask.shape} of {mask.dtype}."
        )
    return mask


def _ascending(fractions: Sequence[float]) -> Sequence[float]:
    if not all(0 < fraction < 1 for fraction in fractions) or any(one >= two for one, two in pairwise(fractions)):
        raise ValueError(f"Fractions lie in (0, 1) and ascend; got {', '.join(map(str, fractions))}.")
    return fractions


def _share(fraction: float, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """A fraction of each count, rounded to the nearest."""
    return np.floor(counts * fraction + 0.5).astype(np.int64)


def _runs(stash: Stash, gaps: str, frequency: int | str | None, tolerance: int | str | None) -> Runs:
    if gaps not in ("split", "ignore"):
        raise ValueError(f'gaps= is "split" or "ignore"; got {gaps!r}.')
    if stash.time is None or gaps == "ignore":
        if frequency is not None or tolerance is not None:
            why = "gaps='ignore' was given" if gaps == "ignore" else "the stash has no time: ts.load(..., time=...)"
            raise ValueError(f"frequency= and tolerance= tell gaps in time, but {why}.")
        return entity_runs(stash.offsets.numpy())
    return find_runs(stash.offsets.numpy(), stash.time.numpy(), stash.clock, frequency, tolerance)


def _steps(runs: Runs) -> str:
    """What the clock says, for messages about gaps."""
    if runs.frequency is None:
        return ""
    common = ", ".join(f"{step} ({count:,} times)" for step, count in runs.steps)
    return f" at frequency {runs.frequency.text!r}" + (f"; the most common other steps are {common}" if common else "")


def _warn_of_gaps(stash: Stash, runs: Runs, split: Intervals, length: int) -> None:
    whole = entity_runs(stash.offsets.numpy())
    possible = len(of_runs(whole.first, whole.rows, length, split.stride))
    if len(split) < (1 - _COSTLY_GAPS) * possible:
        warnings.warn(
            f"Gaps cost {1 - len(split) / possible:.0%} of the windows: {len(split):,} of {possible:,} are left"
            f"{_steps(runs)}. If these are no gaps, give the frequency=, such as '1bd' for business days, a "
            "tolerance=, or gaps='ignore'; if they are, shorter windows lose fewer.",
            stacklevel=3,
        )


def _complete(stash: Stash, judged: list[Span], history: int, whole: Intervals) -> Intervals:
    """Without the windows in which one of the spans has a missing value."""
    bad_low, bad_high = [], []
    for span in judged:
        low, high = _missing(stash, span.column)
        # a window that starts at row s has slot j of the span at row s + history + begin + j * step
        shift = span.begin + history
        low, high = spread(low - shift, high - shift, len(span), span.step)
        bad_low.append(low)
        bad_high.append(high)
    return drop(whole, *union(np.concatenate(bad_low), np.concatenate(bad_high))) if bad_low else whole


def _missing(stash: Stash, name: str) -> tuple[Int64s, Int64s]:
    """The ranges of rows in which a column has a missing value."""
    column, found = stash[name], []
    if stash.about(name)["missing"]:
        for begin in range(0, stash.rows, _BLOCK):
            block = column[begin : begin + _BLOCK]
            holes = torch.isnan(block) if block.dtype.is_floating_point else block < 0
            found.append(true_rows(holes.flatten(1).any(1).numpy() if holes.ndim > 1 else holes.numpy(), begin))
    if not found:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return np.concatenate([low for low, _ in found]), np.concatenate([high for _, high in found])
