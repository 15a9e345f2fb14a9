"""Windows: which stretches of rows are samples, and the batch of any of them by number."""

import zlib
from collections.abc import Mapping, Sequence
from copy import copy
from datetime import date
from functools import cached_property, reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.checks import at_least, names_in
from tensorstash.common.dtypes import Int64s
from tensorstash.errors import DataError
from tensorstash.gather.empty import FillPlan, fills
from tensorstash.gather.gather import GatherPlan, compile_plan, copy_into, gather, gather_into, static_values
from tensorstash.gather.span import Span
from tensorstash.native.permutation import shuffled
from tensorstash.stash.stash import Stash
from tensorstash.windows.gaps import fragments, steps_text, warn_of_gaps
from tensorstash.windows.intervals import Intervals, keep, locate, of_runs
from tensorstash.windows.require import Where, anchored, complete
from tensorstash.windows.slots import fragments_of, place, rows_at, times_at
from tensorstash.windows.spans import make_spans
from tensorstash.windows.splits import ascending, at_share, at_time, bounds, divide, share

if TYPE_CHECKING:
    import polars as pl

Ids = Sequence[int] | NDArray[np.integer[Any]] | torch.Tensor | slice


class Windows:
    """Every valid window of a stash, numbered from 0; a window never crosses an entity or a gap in time.

    A window is `history + horizon` consecutive slots, which are steps of time with one row each; with `gaps="mask"` or
    `min_history` some are empty. Its anchor is the first slot of the horizon. Memory is a few numbers per run of rows,
    whatever the number of windows.

    Empty slots hold the column's `fill=`, else NaN or code -1. Batches then also carry `<span>.observed`,
    `(batch, time)` bool, false where a slot is empty.

    Args:
        stash: the columns.
        history: slots before the anchor. Short form: one span per column over all `history + horizon` slots, so that
            the slots from `history` on are the future.
        horizon: slots from the anchor on.
        columns: the columns of the short form; `None` for all.
        spans: instead of `history` and `horizon`, a mapping from a name in the batch to `(column, begin, end)` or
            `(column, begin, end, step)`: half-open slots relative to the anchor, as the past 96 are `("y", -96, 0)`.
        min_history: windows may begin before their run, if so many slots of their history lie in it.
        stride: slots from one window to the next, counted from the first window of each run.
        gaps: `"split"` ends a run where a time step is missing; `"mask"` puts empty slots there, where the next row is
            a whole number of steps away; `"ignore"` takes an entity as one run.
        frequency: the step of time, as polars writes it ("15m", "1h", "1mo", "1bd"), or an integer for integer times;
            `None` takes the most common one.
        tolerance: how far a step may be from the frequency, written likewise.
        require: columns or spans; windows with a missing value (NaN, code -1, or an empty slot) in one of them are left
            out. A column is judged over the whole window, a span over its own slots.
        where: a boolean column, or `(rows,)` booleans; windows whose anchor (without a horizon, whose last slot) is not
            at a true one are left out.

    Raises:
        DataError: there is no window, with the longest run and the length needed. ColumnError: no such column.
        SchemaError: a reserved span name, or a column without a value for empty slots. A `UserWarning` tells when gaps
        cost more than a tenth of the windows, or make more empty slots than there are rows.

    Example:
        >>> import numpy as np, tensorstash as ts
        >>> stash = ts.load({"y": np.arange(10.0)})
        >>> windows = ts.Windows(stash, spans={"past": ("y", -3, 0), "target": ("y", 0, 2)})
        >>> len(windows)
        6
        >>> windows[[0, 5]]["target"]
        tensor([[3., 4.],
                [8., 9.]], dtype=torch.float64)
        >>> padded = ts.Windows(stash, history=3, min_history=1)
        >>> padded[0]
        {'y': tensor([nan, nan, 0.], dtype=torch.float64), 'y.observed': tensor([False, False,  True])}
    """

    def __init__(
        self,
        stash: Stash,
        history: int | None = None,
        horizon: int = 0,
        *,
        columns: Sequence[str] | None = None,
        spans: Mapping[str, Sequence[Any]] | None = None,
        min_history: int | None = None,
        stride: int = 1,
        gaps: str = "split",
        frequency: int | str | None = None,
        tolerance: int | str | None = None,
        require: Sequence[str] | None = None,
        where: Where | None = None,
    ) -> None:
        if not isinstance(stash, Stash):
            raise TypeError(f"Windows are made of a stash, ts.load(...); got a {type(stash).__name__}.")
        self.stash = stash
        self.spans = make_spans(stash, history, horizon, columns, spans)
        self.history = max(0, -min(span.begin for span in self.spans))
        self.horizon = max(0, *(span.end for span in self.spans))
        self.stride = at_least(1, stride, "stride")
        least = self.history if min_history is None else at_least(int(not self.horizon), min_history, "min_history")
        if least > self.history:
            raise ValueError(f"min_history= is at most the history, {self.history}; got {min_history}.")
        pieces = fragments(stash, gaps, frequency, tolerance)
        times = None if stash.time is None else stash.time.numpy()
        self._slots, self._runs = place(pieces, stash.offsets.numpy(), times, gaps == "mask", self.history - least)
        filled = gaps == "mask" or min_history is not None
        self._fills = fills(stash, self.spans) if filled else None
        whole = of_runs(self._runs.first, self._runs.rows, self.length, self.stride)
        if not len(whole):
            raise DataError(
                f"A window is {self.length} consecutive {'slots' if filled else 'rows'} of one run; the longest of "
                f"{len(self._runs.rows):,} runs has {int(self._runs.rows.max(initial=0)):,}{steps_text(self._runs)}. "
                "Shorten history or horizon, or see frequency= and gaps=."
            )
        warn_of_gaps(stash, self._runs, self._slots, whole, self.length)
        named = {span.name: span for span in self.spans}
        required = [] if require is None else names_in(require, "require")
        judged = [named.get(name) or Span(name, name, -self.history, self.horizon) for name in required]
        self._intervals = complete(stash, self._slots, judged, self.history, whole)
        if where is not None:
            anchor = self.history - (self.horizon == 0)
            self._intervals = anchored(stash, self._slots, where, anchor, self._intervals)

    @property
    def length(self) -> int:
        """Slots of a window, `history + horizon`."""
        return self.history + self.horizon

    def __len__(self) -> int:
        return len(self._intervals)

    def __getitem__(self, ids: int | Ids) -> dict[str, torch.Tensor]:
        """One window, tensors `(time, ...)`, for an integer; else a batch, tensors `(batch, time, ...)`."""
        if isinstance(ids, (int, np.integer)):
            return {name: tensor[0] for name, tensor in self.gather(np.array([ids])).items()}
        return self.gather(ids)

    def gather(self, ids: Ids, out: Mapping[str, torch.Tensor] | None = None) -> dict[str, torch.Tensor]:
        """The batch of the windows `ids`: a fresh `(batch, time, ...)` tensor per span, in the span's column's dtype.

        Static columns are `(batch, ...)`, each window with the values of its entity.

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
        anchors = self._anchor_slots(self._checked(ids))
        static = {}
        if self.stash.static:
            static = static_values(self.stash.static, torch.from_numpy(self._entities_of(anchors)))
        if out is None:
            return gather(self._plan, anchors) | static
        gather_into(self._plan, anchors, out)
        copy_into(static, out)
        return dict(out)

    def anchors(self, ids: Ids) -> dict[str, torch.Tensor]:
        """The `entity` (index into `stash.entities`) and the `time` of each window's anchor, both `(batch,)` int64.

        Without a horizon the anchor is the window's last slot. An empty slot has the time that it stands for. Without a
        time column there is no `time`.

        Example:
            >>> import tensorstash as ts
            >>> stash = ts.load({"e": ["a", "a", "b", "b"], "t": [1, 2, 1, 2], "y": [0.0] * 4}, entity="e", time="t")
            >>> ts.Windows(stash, history=1, horizon=1).anchors([0, 1])
            {'entity': tensor([0, 1]), 'time': tensor([2, 2])}
        """
        return self._about(self._anchor_slots(self._checked(ids)) - (self.horizon == 0))

    def _about(self, slots: Int64s) -> dict[str, torch.Tensor]:
        """The entity and the time of slots."""
        about = {"entity": torch.from_numpy(self._entity(slots))}
        if self.stash.time is not None:
            about["time"] = torch.from_numpy(times_at(self._slots, self.stash.time.numpy(), slots))
        return about

    def _entities_of(self, anchors: Int64s) -> Int64s:
        """The index into `stash.entities` of windows, by the slots of their anchors, of any shape."""
        return self._entity(anchors - (self.horizon == 0))  # without a horizon the anchor is the slot after the window

    def _entity(self, slots: Int64s) -> Int64s:
        return np.searchsorted(self.stash.offsets.numpy(), rows_at(self._slots, slots)[0], "right") - 1

    def to_frame(self, ids: Ids, predictions: torch.Tensor) -> "pl.DataFrame":
        """Predictions as a polars frame: `entity`, `time` and `value` of every horizon step of the windows `ids`.

        `predictions` is `(batch, horizon)`, or `(batch, history)` where the windows have no horizon; another shape is a
        `ValueError`. What lies before a run (`min_history`) is left out.

        Example:
            >>> import torch, tensorstash as ts
            >>> windows = ts.Windows(ts.load({"t": [1, 2, 3], "y": [0.0] * 3}, time="t"), history=1, horizon=2)
            >>> windows.to_frame([0], torch.tensor([[0.5, 0.25]])).rows()
            [(2, 0.5), (3, 0.25)]
        """
        from tensorstash.stash.interop import predictions_frame

        begin, steps = (0, self.horizon) if self.horizon else (-self.history, self.history)
        checked, predictions = self._checked(ids), torch.as_tensor(predictions)
        if predictions.shape != (len(checked), steps):
            raise ValueError(f"predictions= has shape ({len(checked)}, {steps}); got {tuple(predictions.shape)}.")
        slots = self._anchor_slots(checked)[:, None] + np.arange(begin, begin + steps)
        run = np.searchsorted(self._runs.first, slots[:, 0] - begin - self.history, "right") - 1
        known = slots >= self._runs.first[run][:, None] + self._slots.lead
        return predictions_frame(self.stash, self._about(slots[known]), predictions[torch.from_numpy(known)])

    def split(self, *cuts: SupportsIndex | str | date | np.datetime64) -> tuple["Windows", ...]:
        """Parts of these windows before, between and from the cuts, which are times in ascending order.

        Part k holds the windows all of whose horizon (all of which, without a horizon) lies in `[cut k-1, cut k)`; the
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
        return self._divided([at_time(self._slots, offsets, times.numpy(), moment) for moment in moments])

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
        return self._divided([at_share(self._slots, offsets, fraction) for fraction in ascending(fractions)])

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
        edges = bounds(self._slots, self.stash.offsets.numpy())
        count = len(edges) - 1
        drawn = shuffled(count, seed, 0)(np.arange(count))
        cuts = [0, *(int(share(fraction, np.array(count))) for fraction in ascending(fractions)), count]
        chosen = [np.sort(drawn[low:high]) for low, high in pairwise(cuts)]
        return tuple(self._with(keep(self._intervals, edges[part], edges[part + 1])) for part in chosen)

    def _divided(self, cuts: list[Int64s]) -> tuple["Windows", ...]:
        offsets = self.stash.offsets.numpy()
        parts = divide(self._intervals, self._slots, offsets, cuts, history=self.history, horizon=self.horizon)
        return tuple(map(self._with, parts))

    def _with(self, intervals: Intervals) -> "Windows":
        part = copy(self)
        part._intervals = intervals
        return part

    def fingerprint(self) -> dict[str, Any]:
        """What these windows are, in a few plain values, equal wherever the windows are equal."""
        first, last = self.stash.time_range
        return {
            "windows": len(self),
            "entities": len(self.stash.offsets) - 1,
            "rows": self.stash.rows,
            "first_time": first,
            "last_time": last,
            "spans": {s.name: [s.column, s.begin, s.end, s.step] for s in self.spans},
            "stride": self.stride,
            "runs": self._checksum(),
        }

    def _checksum(self) -> int:
        arrays = [self._intervals.base, self._intervals.ends]
        if self._fills:
            arrays += [self._slots.first, self._slots.row]
        return reduce(lambda crc, array: zlib.crc32(array.tobytes(), crc), arrays, 0)

    def _anchor_slots(self, ids: Int64s) -> Int64s:
        """The slot of each window's anchor, for int64 ids of any shape that are known to lie in `[0, len(self))`.

        Slots are rows, unless there are empty ones.
        """
        slots = locate(self._intervals, ids)
        slots += self.history
        return slots

    @cached_property
    def _plan(self) -> GatherPlan:
        """How batches are gathered; made at the first one."""
        stash, filling = self.stash, None
        if self._fills is not None:
            filling = FillPlan(
                fragments=fragments_of(self._slots),
                history=self.history,
                horizon=self.horizon,
                spans=self.spans,
                fills=self._fills,
            )
        return compile_plan(stash._blocks, stash, self.spans, filling)

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
        return {name: value for name, value in self.__dict__.items() if name != "_plan"}

    def __repr__(self) -> str:
        spans = ", ".join(map(str, self.spans))
        step = f" every {self._runs.frequency.text}" if self._runs.frequency else ""
        unit = "slots" if self._fills else "rows"
        return (
            f"Windows: {len(self):,} of {self.history} + {self.horizon} {unit}{step}, stride {self.stride}, in "
            f"{len(self._intervals.base):,} intervals of {len(self.stash.offsets) - 1:,} entities; {spans}"
        )
