"""Windows: which stretches of rows are samples, and the batch of any of them by number."""

from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tensorstash.common.checks import at_least
from tensorstash.common.dtypes import Int64s
from tensorstash.errors import unknown
from tensorstash.gather.empty import fills
from tensorstash.gather.gather import GatherPlan, copy_into, gather, gather_into, static_values
from tensorstash.gather.samples import one_by_one
from tensorstash.native.permutation import shuffled
from tensorstash.stash.stash import Stash
from tensorstash.windows.display import as_html, as_text
from tensorstash.windows.fingerprint import fingerprint
from tensorstash.windows.folds import folds
from tensorstash.windows.frame import to_frame
from tensorstash.windows.gaps import fragments, too_short, warn_of_gaps
from tensorstash.windows.ids import Ids, as_list, check_ids, is_one_id
from tensorstash.windows.intervals import Intervals, count_before, locate, of_runs
from tensorstash.windows.known import computed
from tensorstash.windows.latest import latest
from tensorstash.windows.layout import Layout, entities_of, label_rows, label_times
from tensorstash.windows.plan import compiled
from tensorstash.windows.require import Where, anchored, complete
from tensorstash.windows.slots import most_empty, place, run_edges, with_tail
from tensorstash.windows.spans import judged_spans, make_spans
from tensorstash.windows.splits import (
    Moment,
    ascending,
    at_share,
    check_timed,
    cut_at_time,
    divide,
    entity_edges,
    moments_of,
    of_entities,
    share,
)

if TYPE_CHECKING:
    import polars as pl


class Windows:
    """Every valid window of a stash, numbered from 0; a window never crosses an entity or a gap in time.

    A window is `history + horizon` consecutive slots. A slot is a step of time with one row; with `gaps="mask"`,
    `min_history` or `min_horizon` some slots are empty. The anchor of a window is the first slot of its horizon. Memory
    is a few numbers per run of rows, whatever the number of windows.

    An empty slot holds the `empty=` of its column, else its `fill=`, else NaN or code -1; columns of `ts.calendar` are
    computed there. Batches then also carry `<span>.observed`, `(batch, time)` bool, false where a slot is empty.

    Args:
        stash: the columns.
        history: slots before the anchor. Short form: one span per column over all `history + horizon` slots, so that
            the slots from `history` on are the future.
        horizon: slots from the anchor on.
        columns: the columns of the short form; `None` for all.
        spans: instead of `history` and `horizon`, a mapping from a name in the batch to `(column, begin, end)` or
            `(column, begin, end, step)`: half-open slots relative to the anchor. The past 96 are `("y", -96, 0)`.
        min_history: windows may begin before their run if at least this many slots of their history lie in it.
        min_horizon: windows may end behind their run if at least this many slots of their horizon lie in it (0: none
            needs to). The slots behind the run are empty, even if later rows exist behind a gap.
        stride: slots from one window to the next, counted from the first window of each run.
        gaps: `"split"` ends a run where a time step is missing; `"mask"` puts empty slots there, where the next row is
            a whole number of steps away; `"ignore"` takes an entity as one run.
        frequency: the step of time, as polars writes it ("15m", "1h", "1mo", "1bd"), or an integer for integer times;
            `None` takes the most common one.
        tolerance: how far a step may deviate from the frequency, written likewise.
        require: columns or spans; windows with a missing value (NaN, code -1, or an empty slot) in one of them are left
            out. A column is checked over the whole window, a span over its own slots, and neither behind the run. A
            column that had no missing value when it was loaded is not read again: NaN written into it is not seen.
        where: a boolean column, or `(rows,)` booleans; windows whose anchor (without a horizon: last slot) is not at a
            true row are left out.

    Raises:
        NoWindowError: there is none; the message gives the longest run and the length needed. ColumnError: no such
            column. SchemaError: a reserved span name, or a column without a value for empty slots.

    Warns:
        UserWarning: gaps cost more than a tenth of the windows, or make more empty slots than there are rows.

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
        min_horizon: int | None = None,
        stride: int = 1,
        gaps: str = "split",
        frequency: int | str | None = None,
        tolerance: int | str | None = None,
        require: Sequence[str] | None = None,
        where: Where | None = None,
    ) -> None:
        if not isinstance(stash, Stash):
            raise TypeError(
                f"Windows are made of a stash, ts.load(...); got a {type(stash).__name__}. Those of shards: "
                "ts.cluster.windows(shards, ...)."
            )
        self.stash = stash
        self.spans = make_spans(stash, history, horizon, columns, spans)
        self.history = max(0, -min(span.begin for span in self.spans))
        self.horizon = max(0, *(span.end for span in self.spans))
        self.stride = at_least(1, stride, "stride")
        lead = most_empty(min_history, self.history, int(not self.horizon), "history")
        tail = most_empty(min_horizon, self.horizon, int(not self.history), "horizon")
        pieces = fragments(stash, gaps, frequency, tolerance)
        times = None if stash.time is None else stash.time.numpy()
        slots = place(pieces, stash.offsets.numpy(), times, masked=gaps == "mask", lead=lead, tail=tail)
        self._layout = Layout(stash, slots, self.history, self.horizon)
        filled = gaps == "mask" or min_history is not None or min_horizon is not None
        self._fills = fills(stash, self.spans, computed(self._layout, self.spans)) if filled else None
        self._judged = judged_spans(self.spans, require, self.history, self.horizon)
        begins, ends = run_edges(slots)
        whole = of_runs(begins, ends - begins, self.length, self.stride)
        if not len(whole):
            raise too_short(pieces, ends - begins, self.length, "slots" if filled else "rows")
        warn_of_gaps(stash, pieces, slots, whole, self.length)
        self._intervals = complete(self._layout, self._judged, whole)
        if where is not None:
            self._intervals = anchored(self._layout, where, self._intervals)

    @property
    def length(self) -> int:
        """Slots of a window, `history + horizon`."""
        return self.history + self.horizon

    def __len__(self) -> int:
        return len(self._intervals)

    def __getitem__(self, ids: int | Ids) -> dict[str, torch.Tensor]:
        """One window, tensors `(time, ...)`, for an integer; else a batch, tensors `(batch, time, ...)`."""
        if is_one_id(ids):
            return {name: tensor[0] for name, tensor in self.gather(as_list(ids)).items()}
        return self.gather(ids)  # type: ignore[arg-type]

    def __getitems__(self, ids: Ids) -> list[dict[str, torch.Tensor]]:
        """Windows one by one, out of one gather: what PyTorch's `DataLoader` asks for if it is given `batch_size=`."""
        return one_by_one(self.gather(ids))

    def gather(self, ids: Ids, out: Mapping[str, torch.Tensor] | None = None) -> dict[str, torch.Tensor]:
        """The batch of the windows `ids`: a fresh `(batch, time, ...)` tensor per span, in the dtype of its column.

        Static columns are `(batch, ...)`: each window has the values of its entity.

        With `out`, an earlier batch of as many windows, the batch is written into its tensors, which are returned. Ids
        lie in `[-len(self), len(self))`; others are an `IndexError`, an `out` that does not fit is a `ValueError`.

        Example:
            >>> import numpy as np, tensorstash as ts
            >>> windows = ts.Windows(ts.load({"y": np.arange(5)}), history=2)
            >>> batch = windows.gather([0, 3])
            >>> windows.gather([1, 2], out=batch)["y"]
            tensor([[1, 2],
                    [2, 3]])
        """
        anchors = self._anchor_slots(check_ids(ids, len(self)))
        held = self.stash.static
        static = static_values(held, torch.from_numpy(self._entities_of(anchors))) if held else {}
        if out is None:
            return gather(self._plan, anchors) | static
        gather_into(self._plan_apart, anchors, out)
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
        slots = self._anchor_slots(check_ids(ids, len(self)))
        about, times = {"entity": torch.from_numpy(self._entities_of(slots))}, label_times(self._layout, slots)
        return about if times is None else about | {"time": torch.from_numpy(times)}

    def per_entity(self) -> dict[str, torch.Tensor]:
        """How many windows each entity has and the id of its first one: `count` and `first`, both `(entities,)` int64.

        The ids of entity k are `first[k]` up to `first[k] + count[k]`. The cost grows with the runs, not the windows.

        Example:
            >>> import tensorstash as ts
            >>> stash = ts.load({"e": ["a", "b", "b", "b", "c", "c"], "y": [0.0] * 6}, entity="e")
            >>> ts.Windows(stash, history=2).per_entity()
            {'count': tensor([0, 2, 1]), 'first': tensor([0, 0, 2])}
        """
        edges = torch.from_numpy(count_before(self._intervals, entity_edges(self._layout)))
        return {"count": edges.diff(), "first": edges[:-1]}

    def to_frame(self, ids: Ids, predictions: torch.Tensor, names: Sequence[str] | None = None) -> "pl.DataFrame":
        """Predictions for the windows `ids` as a polars frame: a row per slot of the horizon, with entity and time.

        The entity and time columns have their names in the source. Slots behind the last row have the times that follow
        from the frequency, in the zone of the times. Without a horizon the rows are the slots of the whole window;
        those in front of its run (`min_history`) are left out.

        Args:
            ids: of the windows.
            predictions: `(batch, horizon)`, or `(batch, horizon, n)` for n quantiles or samples of each slot; without a
                horizon `(batch, history)` and `(batch, history, n)`. Of any device.
            names: of the columns of predictions; `None`: `value`, or `value_0`, `value_1`, ...

        Raises:
            ValueError: another shape, or a name that comes twice.

        Example:
            >>> import torch, tensorstash as ts
            >>> windows = ts.Windows(ts.load({"t": [1, 2, 3], "y": [0.0] * 3}, time="t"), history=1, horizon=2)
            >>> windows.to_frame([0], torch.tensor([[0.5, 0.25]])).to_dicts()
            [{'t': 2, 'value': 0.5}, {'t': 3, 'value': 0.25}]
            >>> quantiles = torch.tensor([[[0.1, 0.9], [0.2, 0.8]]])
            >>> windows.to_frame([0], quantiles, names=["low", "high"]).columns
            ['t', 'low', 'high']
        """
        return to_frame(self._layout, self._anchor_slots(check_ids(ids, len(self))), predictions, names)

    def split(self, *cuts: Moment) -> tuple["Windows", ...]:
        """Parts of these windows before, between and from the cuts, which are times in ascending order.

        Part k holds the windows whose whole horizon (without a horizon: whole window) lies in `[cut k-1, cut k)`; the
        history may reach back across a cut. A window across a cut is in no part. Text is read in the zone of the times.
        Cuts that cannot be read or do not ascend, and a stash without times, are a `ValueError`.

        Example:
            >>> import numpy as np, tensorstash as ts
            >>> stash = ts.load({"t": np.arange("2024-01-01", "2024-01-31", dtype="M8[D]"), "y": np.ones(30)}, time="t")
            >>> train, valid = ts.Windows(stash, history=7, horizon=2).split("2024-01-21")
            >>> len(train), len(valid)
            (12, 9)
        """
        return self._divided([cut_at_time(self._layout, moment) for moment in moments_of(self.stash, cuts)])

    def split_fraction(self, *fractions: float) -> tuple["Windows", ...]:
        """Parts of these windows by time, with cuts behind fractions of the rows of each entity.

        `split_fraction(0.7, 0.85)` makes three parts. What a part holds is as in `split`. The fractions lie in (0, 1)
        and ascend; others are a `ValueError`.

        Example:
            >>> import numpy as np, tensorstash as ts
            >>> stash = ts.load({"e": ["a"] * 10 + ["b"] * 20, "y": np.ones(30)}, entity="e")
            >>> train, valid = ts.Windows(stash, history=2, horizon=1).split_fraction(0.8)
            >>> len(train), len(valid)
            (20, 6)
        """
        return self._divided([at_share(self._layout, fraction) for fraction in ascending(fractions)])

    def split_entities(self, *fractions: float, seed: int = 0) -> tuple["Windows", ...]:
        """Parts of these windows that share no entity: the entities in an order drawn from `seed`, cut at fractions.

        `split_entities(0.8)` keeps a fifth of the entities for the second part, to see how a model does on series that
        it was not trained on. The fractions lie in (0, 1) and ascend; others are a `ValueError`.

        Example:
            >>> import numpy as np, tensorstash as ts
            >>> stash = ts.load({"e": list("aabbccdd"), "y": np.ones(8)}, entity="e")
            >>> train, unseen = ts.Windows(stash, history=2).split_entities(0.75)
            >>> len(train), len(unseen)
            (3, 1)
        """
        count = len(self.stash.offsets) - 1
        drawn = shuffled(count, seed, 0)(np.arange(count))
        cuts = [0, *(int(share(fraction, np.array(count))) for fraction in ascending(fractions)), count]
        parts = [drawn[low:high] for low, high in pairwise(cuts)]
        return tuple(self._with(of_entities(self._layout, self._intervals, part)) for part in parts)

    def folds(
        self, count: int, step: int | str, *, gap: int | str = 0, expanding: bool = True
    ) -> "list[tuple[Windows, Windows]]":
        """Pairs of a training and a test part for rolling-origin evaluation, the earliest first.

        The cuts count back in steps of `step` from one slot behind the last anchor with a whole horizon. A test part
        holds the windows whose anchor lies in `[cut, next cut)`, the training part those whose last slot is before the
        cut, or `gap` before it. Anchors are those of `anchors`.

        Args:
            count: the number of folds.
            step: the length of a test part: a number of slots, or a duration such as `"7d"` or `"1mo"`.
            gap: slots or a duration between a training part and its cut.
            expanding: every training part begins with the first window; `False`: the anchors of a training part begin
                `step` later in each fold.

        Raises:
            ValueError: a stash without times. DataError: a fold with a part without windows.

        Example:
            >>> import numpy as np, tensorstash as ts
            >>> stash = ts.load({"t": np.arange("2024-01-01", "2024-01-31", dtype="M8[D]"), "y": np.ones(30)}, time="t")
            >>> windows = ts.Windows(stash, history=7, horizon=2)
            >>> [(len(train), len(test)) for train, test in windows.folds(3, "3d")]
            [(12, 3), (15, 3), (18, 3)]
        """
        check_timed(self.stash, "folds")
        pairs = folds(self._layout, self._intervals, count, step, gap, expanding=expanding)
        return [(self._with(train), self._with(test)) for train, test in pairs]

    def latest(self, of: str | None = None) -> "Windows":
        """The newest window of each entity, anchored on the first slot behind its last row: the input of a forecast.

        With `of`, the anchor is behind the last row in which that column has a value, so that the rows behind it, with
        what is known of the future, are in the horizon. The other slots of the horizon are empty, and batches carry
        `<span>.observed`. The windows are of all entities, whatever split, where and stride have left out; `require`
        counts before the anchor only. A `UserWarning` tells how many entities have no such window.

        Raises:
            DataError: no entity has one, or a run ends among the rows behind the last value of `of`.
            ColumnError: no such column. SchemaError: a column without a value for empty slots.

        Example:
            >>> import tensorstash as ts
            >>> windows = ts.Windows(ts.load({"t": [1, 2, 3], "y": [5.0, 6.0, 7.0]}, time="t"), history=2, horizon=1)
            >>> newest = windows.latest()
            >>> newest[0]["y"], newest.anchors([0])["time"]
            (tensor([6., 7., nan], dtype=torch.float64), tensor([4]))
        """
        if of is not None and of not in self.stash:
            raise unknown(of, self.stash, "the stash")
        part = copy(self)
        part._fills = fills(self.stash, self.spans, computed(self._layout, self.spans))
        part._layout = Layout(self.stash, with_tail(self._layout.slots, self.horizon), self.history, self.horizon)
        part._intervals = latest(part._layout, self._judged, of)
        return part

    def fingerprint(self) -> dict[str, Any]:
        """What these windows are, in a few plain values that are equal wherever the windows are equal."""
        return fingerprint(self._layout, self.spans, self._intervals, self.stride, self._fills is not None)

    def __repr__(self) -> str:
        return as_text(self._layout, self.spans, self._intervals, self.stride, self._fills is not None)

    def _repr_html_(self) -> str:
        return as_html(self)

    def _divided(self, cuts: list[Int64s]) -> tuple["Windows", ...]:
        return tuple(map(self._with, divide(self._layout, self._intervals, cuts)))

    def _with(self, intervals: Intervals) -> "Windows":
        part = copy(self)
        part._intervals = intervals
        return part

    def _anchor_slots(self, ids: Int64s) -> Int64s:
        """The slot of each window's anchor, for int64 ids of any shape that are known to lie in `[0, len(self))`.

        Slots are rows, unless there are empty ones.
        """
        slots = locate(self._intervals, ids)
        slots += self.history
        return slots

    def _entities_of(self, anchors: Int64s) -> Int64s:
        """The index into `stash.entities` of windows, by the slots of their anchors, of any shape."""
        return entities_of(self._layout, label_rows(self._layout, anchors))

    @cached_property
    def _plan(self) -> GatherPlan:
        """How batches are gathered; made at the first one."""
        return compiled(self._layout, self.spans, self._fills, together=True)

    @cached_property
    def _plan_apart(self) -> GatherPlan:
        """The same with a buffer for each span."""
        return compiled(self._layout, self.spans, self._fills, together=False)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_plan")}
