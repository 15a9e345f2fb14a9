"""`Windows`: which rows are samples, numbered from 0, and batches of them by number."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import torch

from tensorstash.common.calendar import GivenStep
from tensorstash.common.checks import one_of
from tensorstash.common.frequency import Duration
from tensorstash.common.keywords import suggests_keywords
from tensorstash.common.public import members
from tensorstash.stash.stash import Stash
from tensorstash.windows import splits
from tensorstash.windows.at import Unmatched
from tensorstash.windows.chain import Chain
from tensorstash.windows.contents import Contents
from tensorstash.windows.display import as_text
from tensorstash.windows.during import Side
from tensorstash.windows.entities import of_named
from tensorstash.windows.folds import Per, folds
from tensorstash.windows.gaps import Gaps
from tensorstash.windows.identity import fingerprint, needs
from tensorstash.windows.ids import Ids, check_ids
from tensorstash.windows.latest import last_rows, last_values
from tensorstash.windows.making import (
    Arguments,
    arguments_on,
    check_stash,
    covering_placement,
    latest_placement,
    placement_of,
)
from tensorstash.windows.placement import Placement
from tensorstash.windows.predictions import to_frame
from tensorstash.windows.require import Require
from tensorstash.windows.selection import Where
from tensorstash.windows.spans import make_spans, slot_count
from tensorstash.windows.strides import Align, Strides
from tensorstash.windows.tables import checked_tables
from tensorstash.windows.whole import with_ends

if TYPE_CHECKING:
    import polars as pl


@suggests_keywords
class Windows:
    """Every valid window of a stash, numbered from 0; a window never crosses an entity or a gap in time.

    A window is `history + horizon` consecutive slots. A slot is a step of time with one row; with `gaps="mask"`,
    `min_history` or `min_horizon` some slots are empty. The anchor of a window is the first slot of its horizon.

    An empty slot holds the `empty=` of its column, else its `fill=`, else NaN or code -1; columns of `ts.calendar` are
    computed there. Batches then also carry `<span>.observed`, `(batch, time)` bool, false where a slot is empty.

    Args:
        stash: the columns.
        history: slots before the anchor. Short form: one span per column over all `history + horizon` slots, so that
            the slots from `history` on are the future. `None`: `spans` says which slots.
        horizon: slots from the anchor on; by default 0, and the anchor is the last slot of the history.
        columns: the columns of the short form; `None` for all.
        spans: instead of `history` and `horizon` (`None`: these), a mapping from a name in the batch to one of five
            forms, which `docs/reference/spans.md` draws. `(column, start, stop)` or `(column, start, stop, step)`:
            half-open slots relative to the anchor, `("y", -96, 0)` for the past 96. A `ts.Draw` as the start: a
            `Loader` draws the length of the past. `ts.each(...)` as the column: a row for each column of packs.
            `("x", 0, None)`: the whole run, one window a run, see `max_slots`. A `ts.During`: a stretch of time; if all
            spans are such stretches, each row is a window, and arguments about slots are refused.
        min_history: windows may begin before their run if at least this many slots of their history lie in it. A drawn
            past is cut where the run begins, so its length need not be a multiple of the step of the `ts.Draw`. `None`:
            the whole history lies in the run.
        min_horizon: windows may extend past their run if at least this many slots of their horizon lie in it (0: none
            needs to). The slots after the run are empty, even if later rows exist after a gap. `None`: the whole
            horizon lies in the run.
        stride: slots from one window to the next, by default 1.
        align: from where they are counted: `"start"`, from the first window of each run; `"end"`, back from its last
            window with a whole horizon, whatever `require`, `where` and splits leave out later; or a time t (text is
            read in the zone of the times): anchors are t + k * stride steps of time in all runs, whether or not a row
            is at t. Of a run without a slot at t, its first one after t counts.
        gaps: `"split"` ends a run where a time step is missing; `"mask"` puts empty slots there, if the next row is a
            whole number of steps away; `"ignore"` treats an entity as one run.
        frequency: the step of time, as polars writes it ("15m", "1h", "1mo", "1bd"), a `timedelta`, or an integer for
            integer times; or a calendar, all times that exist and those to come, in ascending order and of the type of
            the time column. `None`: that of the load, else the most common step.
        tolerance: how far a step may deviate from the frequency, such as "5m", a `timedelta` or an integer; at most
            half of it. By default steps are exact.
        require: columns or spans; windows with a missing value in one of them are left out: NaN, code -1, a value of
            `fill=` where `ts.is_valid` of the column is false, or an empty slot. A column is checked over the whole
            window, a span over its own slots (a drawn one over the longest), neither after the run. A mapping to shares
            from 0 to 1 allows some: of n slots, at most `floor(n * (1 - share) + 1e-9)` may lack a value; n counts
            slots before the run, and none after it, so n may be less than in the whole window. `"rows"` in place of a
            share checks only slots that have a row. A slot of a pack lacks a value if one of its members does. NaN
            written into a column later may not be seen. By default missing values leave no window out.
        where: a boolean column, or `(rows,)` booleans; windows whose anchor (without a horizon: last slot) is not at a
            true row are left out. By default none are.
        at: a frame with the entity and time columns of the source. Each row is a window, with its anchor at the first
            slot at or after the time. Other columns of numbers, booleans or times are entries of the batch, `(batch,)`.
            `None`: windows are at all rows.
        closed: with `at`, the history ends with rows at the time itself (`"right"`) or before it (`"left"`).
        unmatched: with `at`, rows without a window are an error (`"error"`) or left out (`"drop"`).
        tables: other stashes by name, from which spans in time take rows: `ts.During(..., table="prices")`. By default
            none.
        max_slots: with spans that stop at `None`, which need it, the most slots that a run may have; a longer one is a
            `DataError`. By default no span stops at `None`.
            Windows are as wide as the longest run, also in parts and in `on`; `min_horizon=1` is the default, and
            the slots after a shorter run are empty. They are not divided in time, and have no `latest`.

    Raises:
        NoWindowError: no window. ColumnError: no such column. SchemaError: a reserved span name, or a column without a
            value for empty slots. DataError: a row of `at` has no window; the message counts the reasons.

    Warns:
        UserWarning: gaps or `require` cost more than a tenth of the windows; gaps make more empty slots than there are
            rows; some entities have no window.

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
        spans: Mapping[str, Any] | None = None,
        min_history: int | None = None,
        min_horizon: int | None = None,
        stride: int = 1,
        align: Align = "start",
        gaps: Gaps = "split",
        frequency: GivenStep | None = None,
        tolerance: Duration | None = None,
        require: Require | None = None,
        where: Where | None = None,
        at: Any = None,
        closed: Side = "left",
        unmatched: Unmatched = "error",
        tables: Mapping[str, Stash] | None = None,
        max_slots: int | None = None,
    ) -> None:
        check_stash(stash)
        others, is_whole = checked_tables(tables), max_slots is not None
        slot_spans, in_time = make_spans(stash, history, horizon, columns, with_ends(spans, max_slots), others)
        arguments = Arguments(
            slot_spans=slot_spans,
            in_time=in_time,
            min_history=min_history,
            min_horizon=1 if is_whole and min_horizon is None else min_horizon,
            strides=Strides(slot_count(1, stride, "stride"), align),
            gaps=one_of(gaps, get_args(Gaps), "gaps"),
            frequency=frequency,
            tolerance=tolerance,
            require=require,
            where=where,
            closed=one_of(closed, get_args(Side), "closed"),
            unmatched=one_of(unmatched, get_args(Unmatched), "unmatched"),
            is_whole=is_whole,
        )
        self._set(arguments, placement_of(arguments, stash, at, others))

    def _set(self, arguments: Arguments, placement: Placement) -> None:
        # whole series are as wide as these spans
        self._arguments = replace(arguments.without_rows(), slot_spans=placement.slot_spans)
        self.stash, self.spans = placement.stash, placement.spans
        self.history, self.horizon, self.stride = placement.history, placement.horizon, arguments.strides.stride
        self.placement = placement  # where these windows are; read by the other rooms
        self.contents = Contents(Chain((placement,)))  # a mix of one

    @property
    def length(self) -> int:
        """Slots of a window, `history + horizon`."""
        return self.history + self.horizon

    __dir__ = members

    def __len__(self) -> int:
        return len(self.placement)

    def __getitem__(self, ids: int | Ids) -> dict[str, torch.Tensor]:
        """One window, tensors `(time, ...)`, for an integer; else a batch, tensors `(batch, time, ...)`.

        Each has memory of its own, and the dtype of its column. Static columns are `(batch, ...)`: each window has the
        values of its entity.

        Args:
            ids: an integer, a list, an array or tensor of integers, or a slice; -1 is the last window.

        Raises:
            IndexError: an id outside `[-len(self), len(self))`.

        Example:
            >>> import numpy as np, tensorstash as ts
            >>> windows = ts.Windows(ts.load({"y": np.arange(5)}), history=2)
            >>> windows[[0, 3]]["y"]
            tensor([[0, 1],
                    [3, 4]])
        """
        return self.contents.window_or_batch(ids)

    def __getitems__(self, ids: Ids) -> list[dict[str, torch.Tensor]]:
        """Windows one by one, as PyTorch's `DataLoader` asks for them with `batch_size=`."""
        return self.contents.each_window(ids)

    def anchors(self, ids: Ids) -> dict[str, torch.Tensor]:
        """The `entity` (index into `stash.entities`) and the `time` of each window's anchor, both `(batch,)` int64.

        Without a horizon the anchor is the window's last slot. An empty slot has the time that it stands for; with
        `gaps="ignore"` that is unknown and raises `ValueError`. Without a time column there is no `time`.

        Args:
            ids: of the windows: a list, an array or tensor of integers, or a slice.

        Raises:
            IndexError: an id outside `[-len(self), len(self))`. ValueError: a time that is unknown.

        Example:
            >>> import tensorstash as ts
            >>> stash = ts.load({"e": [*"aabb"], "t": [1, 2, 1, 2], "y": [0.0] * 4}, entity="e", time="t")
            >>> ts.Windows(stash, history=1, horizon=1).anchors([0, 1])
            {'entity': tensor([0, 1]), 'time': tensor([2, 2])}
        """
        at, numbers = self.placement, check_ids(ids, len(self))
        anchors = {"entity": at.window_entities(numbers)}
        if self.stash.time is not None:
            anchors["time"] = at.window_times(numbers, at.anchor_slots(numbers))
        return {name: torch.from_numpy(values) for name, values in anchors.items()}

    def per_entity(self) -> dict[str, torch.Tensor]:
        """How many windows each entity has and the id of its first one: `count` and `first`, both `(entities,)` int64.

        The ids of entity k are `first[k]` up to `first[k] + count[k]`. The cost grows with the runs, not the windows.
        Windows at given points may be in any order, so they have only `count`.

        Example:
            >>> import tensorstash as ts
            >>> stash = ts.load({"e": ["a", "b", "b", "b", "c", "c"], "y": [0.0] * 6}, entity="e")
            >>> ts.Windows(stash, history=2).per_entity()
            {'count': tensor([0, 2, 1]), 'first': tensor([0, 0, 2])}
        """
        return {name: torch.from_numpy(values) for name, values in splits.per_entity(self.placement).items()}

    @suggests_keywords
    def to_frame(
        self,
        ids: Ids,
        predictions: torch.Tensor,
        names: Sequence[str] | None = None,
        *,
        origin: bool = False,
        step: bool = False,
    ) -> "pl.DataFrame":
        """Predictions for the windows `ids` as a polars frame: a row per slot of the horizon, with entity and time.

        The entity and time columns have their names in the source. Slots after the last row have the times that follow
        from the frequency by the clock of their zone, those of the calendar, or null without one, as with
        `gaps="ignore"`. Without a horizon the rows are the slots of the whole window; slots before its run
        (`min_history`) are left out.

        Args:
            ids: of the windows, in the order of the predictions, such as `batch["window"]`.
            predictions: `(batch, horizon)`, or `(batch, horizon, n)` for n quantiles or samples of each slot; without a
                horizon `(batch, history)` and `(batch, history, n)`. On any device.
            names: of the columns of predictions; `None`: `value`, or `value_0`, `value_1`, ...
            origin: add the column `anchor`: the time of the window's anchor, without a time column its row, and null
                where that time is unknown. It distinguishes predictions of one time by several windows.
            step: add the column `step`, 1 for the first slot of the horizon (without a horizon: of the window).

        Raises:
            ValueError: the wrong shape, or a name that is used twice. DataError: a calendar that ends too soon.

        Example:
            >>> import torch, tensorstash as ts
            >>> windows = ts.Windows(ts.load({"t": [1, 2, 3], "y": [0.0] * 3}, time="t"), 1, 2)
            >>> windows.to_frame([0], torch.tensor([[0.5, 0.25]])).to_dicts()
            [{'t': 2, 'value': 0.5}, {'t': 3, 'value': 0.25}]
            >>> windows.to_frame([0], torch.tensor([[0.5, 0.25]]), origin=True, step=True).to_dicts()
            [{'t': 2, 'anchor': 2, 'step': 1, 'value': 0.5}, {'t': 3, 'anchor': 2, 'step': 2, 'value': 0.25}]
        """
        return to_frame(self.placement, check_ids(ids, len(self)), predictions, names, origin=origin, step=step)

    @suggests_keywords
    def split(self, *cuts: splits.GivenTime) -> tuple["Windows", ...]:
        """Divide these windows at times, in ascending order: before, between and from the cuts.

        Part k holds the windows whose whole horizon (without a horizon: whole window) lies in `[cut k-1, cut k)`; the
        history may reach back across a cut. A window across a cut is in no part. Windows at given points go by their
        time, and spans in time must end before the cut. Empty outer parts, and parts with most targets missing, are
        warned of.

        Args:
            cuts: times in ascending order: texts such as "2024-01-31" or "2024-01-31 06:00", dates or datetimes, or
                integers in the unit of the times. Text and dates are read in the zone of the times.

        Raises:
            ValueError: a cut that cannot be read, cuts that do not ascend, or a stash without times.

        Example:
            >>> import numpy as np, tensorstash as ts
            >>> stash = ts.load({"t": range(30), "y": np.ones(30)}, time="t")
            >>> train, valid = ts.Windows(stash, history=7, horizon=2).split(20)
            >>> len(train), len(valid)
            (12, 9)
        """
        return tuple(map(self._at, splits.divided(self.placement, splits.at_times(self.placement, cuts))))

    @suggests_keywords
    def split_fraction(self, *fractions: float) -> tuple["Windows", ...]:
        """Divide these windows by time, with cuts after fractions of the rows of each entity.

        `split_fraction(0.7, 0.85)` makes three parts, each as in `split`. A cut is the time of the first row after the
        fraction, so all rows of that time are behind it. Entities that cover different times are cut at different
        times, so one may be trained on times in which another is validated.

        Args:
            fractions: of the rows of each entity, ascending, each between 0 and 1.

        Raises:
            ValueError: fractions that do not ascend or lie outside (0, 1).

        Example:
            >>> import numpy as np, tensorstash as ts
            >>> stash = ts.load({"e": ["a"] * 10 + ["b"] * 20, "y": np.ones(30)}, entity="e")
            >>> train, valid = ts.Windows(stash, history=2, horizon=1).split_fraction(0.8)
            >>> len(train), len(valid)
            (20, 6)
        """
        return tuple(map(self._at, splits.divided(self.placement, splits.at_shares(self.placement, fractions))))

    @suggests_keywords
    def split_last(self, *lengths: int, of: str | None = None) -> tuple["Windows", ...]:
        """Divide these windows with cuts before the last slots of each entity, wherever its series ends.

        `split_last(28, 28)` makes three parts, as `split` does: the last one begins 28 slots before the end of each
        entity, the one before it 56. Slots are steps of time, so gaps count; without a step of time, as with
        `gaps="ignore"`, they are rows. Entities that end at different times are cut at different times. The end is that
        of the entity, also where a part is divided again; an entity without a value of `of` is in the last part.

        Args:
            lengths: of the last parts in slots, in their order, at least one.
            of: a column; an entity ends with its last row in which this has a value. `None`: with its last row.

        Raises:
            ValueError: a length below 1, or a stash with known times. NoWindowError: the parts are longer than each
                series, or no row has a value of `of`. ColumnError: no such column.

        Example:
            >>> import numpy as np, tensorstash as ts
            >>> rows = {"e": ["a"] * 10 + ["b"] * 20, "t": [*range(10), *range(20)], "y": np.ones(30)}
            >>> windows = ts.Windows(ts.load(rows, entity="e", time="t"), history=2, horizon=1)
            >>> train, test = windows.split_last(3)
            >>> train.per_entity()["count"], test.per_entity()["count"]
            (tensor([ 5, 15]), tensor([3, 3]))
        """
        last = last_rows(self.placement, of)
        cuts = splits.at_ends(self.placement, lengths, last)
        splits.check_longest(self.placement, last, cuts[0], sum(lengths))
        return tuple(map(self._at, splits.divided(self.placement, cuts)))

    @suggests_keywords
    def split_entities(self, *fractions: float, seed: int = 0) -> tuple["Windows", ...]:
        """Divide these windows into parts that share no entity: entities are shuffled by `seed` and cut at fractions.

        `split_entities(0.8)` keeps a fifth of the entities for the second part, to measure a model on series that it
        was not trained on. Parts keep to their entities, also in `latest` and, by name, in `on`. Fractions are of all
        entities of the stash, also where a part is divided again.

        Args:
            fractions: of the entities, ascending, each between 0 and 1.
            seed: of the shuffle, any integer, by default 0.

        Raises:
            ValueError: fractions that do not ascend or lie outside (0, 1).

        Example:
            >>> import numpy as np, tensorstash as ts
            >>> stash = ts.load({"e": list("aabbccdd"), "y": np.ones(8)}, entity="e")
            >>> train, unseen = ts.Windows(stash, history=2).split_entities(0.75)
            >>> len(train), len(unseen)
            (3, 1)
        """
        return tuple(map(self._at, splits.parts_of_entities(self.placement, fractions, seed)))

    def of(self, names: Sequence[Any]) -> "Windows":
        """The windows of some entities, in their order here; the order and repeats of the names mean nothing.

        What is made of them keeps to these entities: parts, `latest` and, by name, `on`. Of a part they are those that
        it has. For a k-fold over groups, take `of` the names outside and inside each group. A `UserWarning` says that
        none of them has a window.

        Args:
            names: entities as `stash.entities` has them: names, or tuples if there are several entity columns.

        Raises:
            ColumnError: an entity that the stash does not have. TypeError: a single name. ValueError: no name.

        Example:
            >>> import numpy as np, tensorstash as ts
            >>> stash = ts.load({"e": list("aabbcc"), "y": np.ones(6)}, entity="e")
            >>> windows = ts.Windows(stash, history=1).of(["c", "a"])
            >>> windows.anchors(slice(None))["entity"]
            tensor([0, 0, 2, 2])
        """
        return self._at(of_named(self.placement, names))

    @suggests_keywords
    def folds(
        self,
        count: int,
        step: Duration,
        *,
        gap: Duration = 0,
        expanding: bool = True,
        per: Per | None = None,
        of: str | None = None,
    ) -> "list[tuple[Windows, Windows]]":
        """Pairs of a training and a test part for rolling-origin evaluation, the earliest first.

        Cuts are `step` apart, counted back from one slot after the last anchor with a whole horizon. A test part holds
        the windows whose anchor lies in `[cut, next cut)`, the training part those that end at least `gap` before the
        cut. Anchors are those of `anchors`. A test part in which most targets are missing is warned of, as in `split`.

        Args:
            count: the number of folds.
            step: the length of a test part: a number of slots, or a duration such as `"7d"` or `"1mo"`.
            gap: slots or a duration between a training part and its cut; by default 0, none.
            expanding: every training part begins with the first window; `False`: the anchors of a training part begin
                `step` later in each fold.
            per: `"entity"`: cuts of each entity count back from its own last anchor, so that series which end earlier
                are tested too; lengths in slots count rows where there is no step of time. `None`: one cut for all.
            of: a column; the last anchor is that whose whole horizon ends with the last row in which it has a value.
                `None`: with the last row.

        Raises:
            ValueError: a stash without times. DataError: a fold with a part without windows. ColumnError: `of`.

        Example:
            >>> import numpy as np, tensorstash as ts
            >>> stash = ts.load({"t": range(30), "y": np.ones(30)}, time="t")
            >>> windows = ts.Windows(stash, history=7, horizon=2)
            >>> [(len(train), len(test)) for train, test in windows.folds(3, 3)]
            [(12, 3), (15, 3), (18, 3)]
        """
        pairs = folds(self.placement, count, step, gap, expanding=expanding, per=per, of=of)
        return [(self._at(train), self._at(test)) for train, test in pairs]

    def latest(self, of: str | None = None) -> "Windows":
        """The newest window of each entity, anchored on the first slot after its last row: the input of a forecast.

        With `of`, the anchor is after the last row in which that column has a value, so the horizon holds the known
        future in later rows. Other slots of the horizon are empty, and batches carry `<span>.observed`. Whatever
        `split`, `where` and `stride` have left out is considered, but only the entities of `of` and `split_entities`;
        `require` checks only slots before the anchor. A `UserWarning` counts the windows that end earlier than
        others, and, once per process, one the entities without a window.

        Args:
            of: the column whose last value the window follows; `None`: the last row.

        Raises:
            DataError: no entity has one, there is a gap among the rows after the last value of `of`, or the calendar
                ends before the last slot, which says how many times are missing.
            ColumnError: no such column. SchemaError: a column without a value for empty slots.

        Example:
            >>> import tensorstash as ts
            >>> windows = ts.Windows(ts.load({"t": [1, 2, 3], "y": [5.0, 6.0, 7.0]}, time="t"), 2, 1)
            >>> newest = windows.latest()
            >>> newest[0]["y"], newest.anchors([0])["time"]
            (tensor([6., 7., nan], dtype=torch.float64), tensor([4]))
        """
        return self._at(latest_placement(self._arguments, self.placement, of))

    def cover(
        self, span: str | None = None, start: splits.GivenTime | None = None, stop: splits.GivenTime | None = None
    ) -> "Windows":
        """Windows that show each row once in the slots of a span, piece behind piece: to score rows.

        The last piece of a run is moved back to end with it. Batches carry `<span>.repeated`, `(batch, time)` bool: it
        is true in slots that the window before shows, and in those outside the run, before `start` and from `stop` on.
        `to_frame` takes predictions for the slots of the span, and leaves these out. `split`, `stride`, `align`,
        `where` and `require` mean nothing here; entities of `of` and `split_entities` stay chosen. Runs that are
        shorter than a window need `min_history` or `min_horizon`, as do rows at the ends of a run that the span does
        not reach. A `UserWarning` counts the rows that no window can show.

        Args:
            span: a span of consecutive slots; `None`: the only one.
            start: the first time whose row is shown: a text such as "2024-01-31", a date or datetime, or an integer in
                the unit of the times. `None`: that of the first row.
            stop: the time before which rows are shown, of the same types. `None`: all later ones too.

        Raises:
            ValueError: no such span, or several; `start` is not before `stop`; windows at given points. ColumnError: no
                span of this name. NoWindowError: no window, or no row in this range.

        Example:
            >>> import numpy as np, tensorstash as ts
            >>> windows = ts.Windows(ts.load({"t": range(7), "y": range(7)}, ["y"], time="t"), history=3)
            >>> batch = windows.cover()[:]
            >>> batch["y"]
            tensor([[0, 1, 2],
                    [3, 4, 5],
                    [4, 5, 6]])
            >>> batch["y"][~batch["y.repeated"]]
            tensor([0, 1, 2, 3, 4, 5, 6])
        """
        return self._at(covering_placement(self._arguments, self.placement, span, start, stop))

    @suggests_keywords
    def on(
        self,
        stash: Stash,
        *,
        tables: Mapping[str, Stash] | None = None,
        at: Any = None,
        frequency: GivenStep | None = None,
    ) -> "Windows":
        """The same windows of other data: tomorrow's, a hold-out file, the last rows of a service.

        They have the arguments of these `Windows`, with the frequency that was found here. Of a part of a split, a
        fold or `latest` they are all windows of the new data; entities that `of` or `split_entities` has chosen stay
        chosen by name. Rows that are enough for the history alone, or whose windows `require`, `where`, `stride` or
        `min_rows` leave out, have none, and `on(stash).latest()` has the one that follows them.

        Args:
            stash: its columns mean the same: types, units, zones, packs, codes; load it with `like=`, or scale it.
            tables: stashes by name that take the place of tables of these windows. By default these are kept.
            at: a frame with the entities and times of the new windows, a row for each, which takes the place of
                `stride=` and `where=`. Windows at given points need it; `None`: windows at all rows.
            frequency: a calendar that begins with all times of the one of these windows, and has more. By default that
                of the stash if it does, else the one of these windows.

        Raises:
            ColumnError: a column is missing. SchemaError: a column or the times mean something else. ValueError: these
                windows were chosen by `where=` with booleans for rows of one stash, or need `at=`. Others: `Windows`.

        Example:
            >>> import tensorstash as ts
            >>> windows = ts.Windows(ts.load({"t": range(9), "y": range(9)}, ["y"], time="t"), 3, 1)
            >>> tomorrow = windows.on(ts.load({"t": range(5, 10), "y": range(5, 10)}, ["y"], time="t"))
            >>> tomorrow[:]["y"]
            tensor([[5, 6, 7, 8],
                    [6, 7, 8, 9]])
        """
        arguments, others, chosen = arguments_on(self._arguments, self.placement, stash, at, tables, frequency)
        return self._at(placement_of(arguments, stash, at, others, chosen, may_forecast=True), arguments)

    def needs(self) -> dict[str, Any]:
        """How far windows look back: a service that keeps at least these rows has the same windows, bit for bit.

        `slots` is the most rows of an entity before an anchor, `during` and, by table, `tables` the start of spans in
        time, counted from the time of the window, as polars' `offset_by` takes it: keep the rows from there on. Of rows
        with known times, but not of events, a version may go once a newer one of its time is known.

        Example:
            >>> import tensorstash as ts
            >>> stash = ts.load({"t": range(9), "y": [0.0] * 9}, ["y"], time="t")
            >>> spans = {"past": ("y", -3, 0), "price": ts.During("y", -7, 0, max_rows=5, table="prices")}
            >>> ts.Windows(stash, spans=spans, tables={"prices": stash}).needs()
            {'slots': 3, 'during': {}, 'tables': {'prices': {'price': -7}}}
        """
        return needs(self.placement)

    def fingerprint(self) -> dict[str, Any]:
        """A small identity in plain values: equal windows have equal fingerprints. States are compared by it.

        It has counts, times, arguments and checksums, and neither values of columns nor paths.

        Example:
            >>> import tensorstash as ts
            >>> windows = ts.Windows(ts.load({"y": range(9)}), history=3)
            >>> windows.fingerprint() == ts.Windows(ts.load({"y": range(9)}), history=3).fingerprint()
            True
            >>> windows.fingerprint() == ts.Windows(ts.load({"y": range(9)}), history=4).fingerprint()
            False
        """
        return fingerprint(self.placement)

    def __repr__(self) -> str:
        return as_text(self.placement)

    @property
    def points(self) -> torch.Tensor | None:
        """The row of the `at=` frame of each window, `(len(self),)` int64, a copy; `None` without `at=`."""
        return None if self.placement.points is None else torch.tensor(self.placement.points.row)

    def _at(self, placement: Placement, arguments: Arguments | None = None) -> "Windows":
        part = copy(self)
        part._set(arguments or self._arguments, placement)
        return part


def last_parts(windows: Windows, lengths: Sequence[int], of: str | None) -> tuple[Windows, ...]:
    """As `Windows.split_last`, of some series out of many: they may be shorter than the parts, or lack the values."""
    cuts = splits.at_ends(windows.placement, lengths, last_values(windows.placement, of))
    return tuple(map(windows._at, splits.divided(windows.placement, cuts)))


def over(windows: Windows, stashes: Mapping[Stash, Stash]) -> Windows:
    """The same windows, with the same ids, over stashes with the same rows, in place of those that they are over."""
    return windows._at(windows.placement.over(stashes))
