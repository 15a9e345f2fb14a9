"""`Scaler`: scales spans of batches by statistics of the rows that windows see."""

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, overload

import torch

from tensorstash.common.checks import shown
from tensorstash.common.keywords import made_by
from tensorstash.common.warn import warn
from tensorstash.errors import SchemaError
from tensorstash.errors import unknown as unknown_name
from tensorstash.gather.layout import Batch
from tensorstash.segments.directory import check_label
from tensorstash.stash.stash import Stash
from tensorstash.transforms.bound import (
    Source,
    check_alike,
    check_source,
    column_of,
    columns_in,
    entries_in,
    scaled_variates,
    stash_with,
)
from tensorstash.transforms.entries import (
    check_batch,
    check_floating,
    check_pack,
    check_predictions,
    check_predictions_of,
    check_whole,
    span_of,
    spans_in_batch,
)
from tensorstash.transforms.fitting import (
    NO_CODES,
    Kind,
    Statistics,
    Unknown,
    check_kind,
    chosen_in,
    doubts_text,
    statistics_of,
)
from tensorstash.transforms.groups import (
    check_count,
    check_known,
    code_spans,
    groups_by_name,
    groups_of_codes,
    groups_of_entities,
    groups_of_rows,
    integers,
    names_of,
)
from tensorstash.transforms.observed import Computed, change_values, computed_in, holds_value, nan_filled_in
from tensorstash.transforms.scaled_stash import (
    check_no_tables,
    check_scalable,
    check_transformed,
    scaled_once,
    scaled_stash,
)
from tensorstash.transforms.scaling import ScaleConstants
from tensorstash.transforms.state import VERSION, fields_of
from tensorstash.windows.windows import Windows, over

_LISTED = 4  # numbers that are listed; of more the smallest and the largest


@made_by("ts.Scaler.fit(windows, columns) or ts.Scaler.from_state(state)", dict)
@dataclass(frozen=True, eq=False, slots=True)
class Scaler:
    """Scales spans of batches to `(value - center) / scale`, with one centre and scale per column, or per entity too.

    `Scaler.fit` makes one. Calling it scales every span of its columns in place, on its device, and returns the batch.
    Slots without a row (`<span>.observed` is false) keep their fill; only values of `ts.calendar` are scaled there too,
    and once bound, where the fill is NaN, what your own transform has put there.
    Scaling is not recorded: two calls scale twice, and every `inverse` scales back. A `Loader` refuses
    two scalers for one span, and any for columns that `transform` has scaled. The arithmetic has the span's dtype, or
    float32 for half types, whose NaN then have the same bits; integer spans must be cast first with `ts.Cast`.

    A `Loader` binds a scaler to its windows: to their spans and, with `by="entity"`, to the numbers of entities in
    `batch["entity"]`. Such a number names an entity of one stash only, so a scaler by entity that you call yourself, or
    whose `inverse` you call, must be bound first: `scaler.bind(windows)`.

    Attributes:
        kind: `"standard"`, `"minmax"`, `"robust"` or `"maxabs"`.
        by: `None`, `"entity"`, or the name of a column of codes.
        rows: the number of rows that the statistics are taken over.
        spans: maps each span that is scaled to its column.
        center: of each column a float64 tensor `(1, *pack)`, or with `by` `(entities, *pack)` in the order of
            `entities`; with `unknown="pooled"` a last row is for all others.
        scale: of each column a float64 tensor of the same shape, above 0.
        entities: with `by="entity"` the names of the entities, of a mix pairs of a component and a name; with a column
            of codes its vocabulary; else empty.
        unknown: what becomes of entities that the source of the statistics lacks: `"error"` or `"pooled"`.
        starts: with `by="entity"`, the position in `entities` at which each component of a mix starts; otherwise empty.
            `None`: the scaler is not bound.

    Example:
        >>> import numpy as np, tensorstash as ts
        >>> y = [1.0, 3.0, 1.0, 3.0, 1.0, 3.0, 99.0, 99.0]
        >>> stash = ts.load({"t": np.arange(8), "y": y}, ["y"], time="t")
        >>> windows = ts.Windows(stash, spans={"past": ("y", -2, 0), "next": ("y", 0, 1)})
        >>> train, valid = windows.split(6)
        >>> scaler = ts.Scaler.fit(train, ["y"])
        >>> scaler
        Scaler: standard, of the 6 rows seen
          y  center 2  scale 1  for past, next
        >>> batch = scaler(valid[:])
        >>> batch["past"]
        tensor([[-1.,  1.],
                [ 1., 97.]], dtype=torch.float64)
        >>> scaler.inverse(batch)["past"]
        tensor([[ 1.,  3.],
                [ 3., 99.]], dtype=torch.float64)
    """

    kind: Kind
    by: str | None
    rows: int
    spans: dict[str, str]
    center: dict[str, torch.Tensor]
    scale: dict[str, torch.Tensor]
    entities: list[Any] = field(default_factory=list)
    unknown: Unknown = "error"
    starts: tuple[int, ...] | None = None
    _fitted: "Scaler | None" = None  # of a bound scaler, the one that was bound
    _unmasked: Computed = field(default_factory=dict)  # spans scaled in empty slots too: computed, or bound and NaN
    _variates: dict[str, tuple[str, ...]] = field(default_factory=dict)  # maps spans of `ts.each` to their packs
    _codes: dict[str, str] = field(default_factory=dict)  # by a column, maps each span to that of its codes
    _ready: dict[Any, ScaleConstants] = field(default_factory=dict, init=False)  # by columns, dtype and device

    @classmethod
    def fit(
        cls,
        source: Source,
        columns: Sequence[str] | Mapping[str, Sequence[str] | None],
        *,
        kind: Kind = "standard",
        by: str | None = None,
        unknown: Unknown = "error",
        together: bool = False,
        sample: int | None = None,
        seed: int = 0,
    ) -> "Scaler":
        """A scaler with the statistics of columns over the rows that lie in a window.

        Each row counts once, and missing values do not count. Rows of every span in time count, whichever its column.
        The statistics are computed in float64, in one pass; `"robust"` needs 8 bytes per row of one column. Where all
        values are equal, the scale is 1. An entity with fewer than two values takes the statistics of all entities, in
        a mix of those of its component. A `UserWarning` names both cases.

        Args:
            source: windows, preferably of the training part alone, so that rows of other parts have no influence. The
                scaler scales their spans of these columns. A stash stands for all its rows, and for spans named like
                its columns. A mix stands for the windows of its components, each row once whatever its weight. For
                data on several nodes use `ts.cluster.fit_scaler`.
            columns: names of numeric columns; each number of a pack is scaled separately, but see `together`. Of a
                static column each entity with a window counts once; batches have it under its name. A mapping from
                packs to lists of their members scales these alone, and `None` all: `{"x": ["temp"], "y": None}`.
            kind: `"standard"`, the default: mean and standard deviation (divided by the number of values); `"minmax"`:
                minimum and range; `"robust"`: median and interquartile range; `"maxabs"`: 0 and the largest magnitude.
            by: `"entity"` for a centre and scale per entity; by default all share one. Batches then need `entity`, and
                those of a mix `source`: `Loader(..., with_ids=True)`. The name of a column of codes, of which a span
                has the same slots: a centre and scale per code.
            unknown: with `by`, for entities or codes that the source does not have: `"pooled"` gives them the
                statistics of all together; `"error"`, the default, raises a `DataError` on binding.
            together: all columns of a pack have one centre and one scale, those of all their values, as all sensors of
                traffic benchmarks have; `columns` are then packs. By default each has its own.
            sample: the number of random rows, of all entities and components together, to take the statistics over;
                `None`: all rows. Not for a mix with `by="entity"`.
            seed: the seed of the sample, by default 0.

        Raises:
            ColumnError: a column does not exist, or has no span in the windows. SchemaError: it is not numeric.
            ValueError: it is scaled already, or no span of `by` has its slots. DataError: it has no value, or an
                infinite one (for `"robust"`: an infinite quartile).

        Example:
            >>> import tensorstash as ts
            >>> rows = {"shop": ["a"] * 4 + ["b"] * 4, "day": [1, 2, 3, 4] * 2}
            >>> rows["sold"] = [1.0, 3.0, 1.0, 3.0, 10.0, 30.0, 10.0, 30.0]
            >>> windows = ts.Windows(ts.load(rows, ["sold"], entity="shop", time="day"), history=2)
            >>> train, valid = windows.split(3)
            >>> ts.Scaler.fit(train, ["sold"], kind="minmax")
            Scaler: minmax, of the 4 rows seen
              sold  center 1  scale 29  for sold
            >>> scaler = ts.Scaler.fit(windows, ["sold"], by="entity")
            >>> scaler.entities, scaler.center["sold"].tolist(), scaler.scale["sold"].tolist()
            (['a', 'b'], [2.0, 20.0], [1.0, 10.0])
            >>> loader = ts.Loader(windows, 6, with_ids=True, transform=[scaler])
            >>> next(iter(loader))["sold"].tolist()
            [[-1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, 1.0]]
        """
        check_kind(kind, by, unknown)
        names, members = chosen_in(columns)
        statistics = statistics_of(
            source, names, members, kind, by, pooled=unknown == "pooled", together=together, sample=sample, seed=seed
        )
        return scaler_of(source, statistics, kind, by, unknown)

    def bind(self, windows: Source) -> "Scaler":
        """This scaler for batches of other windows: for their spans of its columns, and for their entities by name.

        Args:
            windows: windows, a mix, or a stash.

        Returns:
            A new scaler; this one does not change.

        Raises:
            SchemaError: a span has another column than in the windows that the scaler was fitted on. DataError: the
                scaler has no constants for an entity.

        Example:
            >>> import tensorstash as ts
            >>> both = ts.load({"e": ["a", "a", "b", "b"], "y": [0.0, 2.0, 10.0, 30.0]}, ["y"], entity="e")
            >>> scaler = ts.Scaler.fit(both, ["y"], by="entity")
            >>> scaler.bind(ts.load({"e": ["b"], "y": [40.0]}, ["y"], entity="e"))
            Scaler: standard by entity, 1 of them, of the 4 rows seen
              y  center 20  scale 10  for y
        """
        check_source(windows)
        fitted, held = self._fitted or self, entries_in(windows)
        for span, column in fitted.spans.items():
            if held.get(span, column) != column:
                raise SchemaError(
                    f"A span must be scaled by its own column; {span!r} is of column {held[span]!r} in these windows, "
                    f"and was of {column!r} where the scaler was fitted. Fit a scaler on these windows."
                )
        check_alike(windows, fitted.center)
        variates = fitted._variates | scaled_variates(windows, fitted.center)
        spans = fitted.spans | {span: column for span, column in held.items() if column in fitted.center}
        spans = {span: column for span, column in spans.items() if span not in variates}
        here = columns_in(windows)
        unmasked = {span: flags for span, flags in fitted._unmasked.items() if span not in here}
        scaled = [span for span in (*spans, *variates) if span in here]
        bound = replace(
            fitted,
            spans=spans,
            _fitted=fitted,
            _unmasked=unmasked | computed_in(windows, scaled) | nan_filled_in(windows, scaled),
            _variates=variates,
            _codes={} if self.by in NO_CODES else code_spans(windows, str(self.by), scaled),
        )
        if self.by is None:
            return bound
        names, starts = names_of(windows, self.by)
        if names == fitted.entities:
            return replace(bound, starts=starts)
        rows = groups_by_name(names, fitted.entities, self.by, pooled=self.unknown == "pooled")
        center, scale = ({name: x[rows] for name, x in table.items()} for table in (fitted.center, fitted.scale))
        return replace(bound, center=center, scale=scale, entities=names, starts=starts)

    @overload
    def transform(self, source: Windows, *, dtype: torch.dtype | None = None, share: str | None = None) -> Windows: ...

    @overload
    def transform(self, source: Stash, *, dtype: torch.dtype | None = None, share: str | None = None) -> Stash: ...

    def transform(
        self, source: Stash | Windows, *, dtype: torch.dtype | None = None, share: str | None = None
    ) -> Stash | Windows:
        """The same windows over a stash whose columns are scaled once, so that no batch needs to be.

        Batches equal those of the windows with this scaler as a transform, bit for bit in the same dtype, and ids,
        states and fingerprints are the same. All windows over one stash get the same scaled copy, as long as any of
        them exists, so parts of a split share it: `train, valid = map(scaler.transform, (train, valid))`. It has the
        values that the stash had when the first of them was made. A loader over them refuses the scaler as a
        transform; `inverse` works as before. Tables of spans in time are scaled too.

        Args:
            source: windows, or a stash, of which each call makes a new copy. It must have all columns of the scaler.
            dtype: of the scaled columns. They are scaled in the wider of both dtypes and rounded once. `None` keeps the
                dtype of each.
            share: a label: all processes of this user share one copy of the values that were loaded, until
                `ts.shared.remove(label)`. `None`: the copy is private to this process.

        Raises:
            ColumnError: a column does not exist. SchemaError: it is not floating, or it is of `ts.calendar`.
            ValueError: it is scaled already; or each of several ranks would have a private copy of a stash that they
                share. DataError: an entity is unknown, or the code of a value of any row, also one that no window
                shows. NoMemoryError: the copy does not fit.

        Example:
            >>> import tensorstash as ts
            >>> windows = ts.Windows(ts.load({"y": [1.0, 3.0]}, ["y"]), history=2)
            >>> ts.Scaler.fit(windows, ["y"]).transform(windows)[:]["y"]
            tensor([[-1.,  1.]], dtype=torch.float64)
        """
        check_transformed(source, dtype)
        label = None if share is None else check_label(share, "share")
        if isinstance(source, Stash):
            return scaled_stash(source, self._of_stash(source, [*self.center]), dtype, label)
        self.bind(source)  # raises an error unless spans, packs and entities fit
        if self.by == "entity":
            check_no_tables(source, self.center)
        copies = dict[Stash, Stash]()
        for stash in {stash_with(source, name) for name in self.center}:
            names = [name for name in self.center if stash_with(source, name) is stash]
            copies[stash] = scaled_once(stash, self._of_stash(stash, names), dtype, label)
        return over(source, copies)

    def _of_stash(self, stash: Stash, columns: Sequence[str]) -> "Scaler":
        """A scaler of these columns alone, bound to the stash that has them."""
        check_scalable(stash, columns)
        for name in columns:
            check_pack(column_of(stash, name)[:, None], self._pack(name), name)
        bound = replace(self._fitted or self, spans={}, _variates={}).bind(stash)
        center, scale = ({name: table[name] for name in columns} for table in (bound.center, bound.scale))
        return replace(bound, center=center, scale=scale)

    @property
    def scaled_spans(self) -> tuple[str, ...]:
        """The spans that it scales, those of `ts.each` too."""
        return (*self.spans, *self._variates)

    @property
    def whole_windows(self) -> tuple[str, ...]:
        """The spans that must not be packed before it: those whose constants go by the window."""
        return self.scaled_spans if self.by == "entity" else tuple(self._variates)

    def __call__(self, batch: Batch) -> Batch:
        """Scale a batch in place and return it.

        Args:
            batch: a batch on any device; with `by="entity"` it holds `entity`, in a mix `source` too.

        Raises:
            SchemaError: a span holds integers. ValueError: the batch has no span of the scaler, lacks the numbers of
                entities, or a scaler by entity or code is not bound. IndexError: an entity that is out of range.
                DataError: a code has no constants.
        """
        return self._batch(batch, inverse=False)

    @overload
    def inverse(self, values: Batch) -> Batch: ...

    @overload
    def inverse(
        self,
        values: torch.Tensor,
        column: str,
        entity: torch.Tensor | None = None,
        source: torch.Tensor | None = None,
        variate: torch.Tensor | None = None,
        *,
        code: torch.Tensor | None = None,
    ) -> torch.Tensor: ...

    def inverse(
        self,
        values: Batch | torch.Tensor,
        column: str | None = None,
        entity: torch.Tensor | None = None,
        source: torch.Tensor | None = None,
        variate: torch.Tensor | None = None,
        *,
        code: torch.Tensor | None = None,
    ) -> Batch | torch.Tensor:
        """Scale a batch back in place, or convert predictions of a column to its units.

        Args:
            values: a scaled batch; or predictions, `(batch, ...)`, for a pack `(batch, time, *pack)`. Integers and
                booleans are converted to torch's default floating dtype first.
            column: the name of the column of predictions; `None` for a batch.
            entity: `(batch,)`, the entity of each window, by its number in the windows that the scaler is bound to; for
                predictions with `by="entity"`, else `None`.
            source: `(batch,)`, the component of each window; for predictions with a mix and `by="entity"`, else `None`.
            variate: `(rows,)`, the `<span>.variate` of predictions `(rows, ...)` for a span of `ts.each`; `entity` and
                `source` are then those of the rows, such as `batch["entity"][batch["past.window"]]`. `None` for other
                spans.
            code: `(batch, time)`, the code of each slot; for predictions with `by=` a column of codes, else `None`.

        Returns:
            The batch; or a new tensor of the shape of the predictions, through which gradients flow.

        Raises:
            ColumnError: a column that is not scaled. ValueError: predictions of another shape than the column has,
                numbers that are missing, or a scaler by entity or code that is not bound. IndexError: an entity that is
                out of range. TypeError: a column for a batch, none for predictions, or numbers that are no integers.

        Example:
            >>> import torch, tensorstash as ts
            >>> stash = ts.load({"e": ["a", "a", "b", "b"], "y": [0.0, 2.0, 10.0, 30.0]}, ["y"], entity="e")
            >>> scaler = ts.Scaler.fit(stash, ["y"], by="entity")
            >>> bound = scaler.bind(stash)
            >>> bound.inverse(torch.tensor([[0.0, 0.5], [0.0, 0.5]]), "y", entity=torch.tensor([0, 1]))
            tensor([[ 1.0000,  1.5000],
                    [20.0000, 25.0000]])
        """
        if isinstance(values, MutableMapping):
            if given := [each for each in (column, entity, source, variate, code) if each is not None]:
                raise TypeError(f"inverse(batch) takes no column and no entities, got {shown(given[0])}. Leave it out.")
            return self._batch(values, inverse=True)
        check_predictions(values)
        if column is None:
            raise TypeError(f"Predictions need a column. Write scaler.inverse(values, {next(iter(self.center))!r}).")
        if not isinstance(column, str) or column not in self.center:
            raise unknown_name(column, self.center, "the scaler")
        check_predictions_of(values, self._pack(column) if variate is None else (), column)
        if not values.dtype.is_floating_point:
            values = values.to(torch.get_default_dtype())
        if self.by in NO_CODES:
            groups = self._groups_of_predictions(len(values), column, entity, source, variate)
        else:
            groups = self._groups_of_codes(code, values)
        return self._constants(column if variate is None else (column,), values).restored(values, groups)

    def _groups_of_predictions(
        self,
        windows: int,
        column: str,
        entity: torch.Tensor | None,
        source: torch.Tensor | None,
        variate: torch.Tensor | None,
    ) -> torch.Tensor | None:
        for name, numbers in (("entity", entity), ("source", source), ("<span>.variate", variate)):
            if numbers is not None:
                integers(numbers, name)
        group = self._groups_of_windows(entity, source)
        for name, numbers in (("entity", group), ("<span>.variate", variate)):
            if numbers is not None:
                check_count(numbers, windows, name)
        if variate is None or group is None:
            return group if variate is None else variate
        return variate + group.reshape(-1).to(variate.device) * self.center[column][0].numel()

    def _batch(self, batch: Batch, *, inverse: bool) -> Batch:
        check_batch(batch, "A scaler")
        known = spans_in_batch(batch, self.scaled_spans)
        for name in known:
            check_pack(span_of(batch, name), self._pack(self.spans[name]) if name in self.spans else (), name)
            check_floating(batch[name], name, "scaled")
        check_whole(batch, self.whole_windows, "Scaler")
        # a batch without `source` is of one stash, and numbers its entities in another way than the mix
        entity = None if self.starts and "source" not in batch else batch.get("entity")
        windows = self._groups_of_windows(entity, batch.get("source"))
        held = [holds_value(batch, name, self._unmasked) for name in known]
        groups = [self._groups(batch, name, windows, has_value) for name, has_value in zip(known, held)]
        for name, has_value, group in zip(known, held, groups):
            constants = self._constants(self._variates.get(name) or self.spans[name], batch[name])
            change_values(batch[name], has_value, partial(constants.scale_in_place, group=group, inverse=inverse))
        return batch

    def _groups(
        self, batch: Batch, span: str, windows: torch.Tensor | None, has_value: torch.Tensor | None
    ) -> torch.Tensor | None:
        """The group of each window, slot or row of a span; `None`: all are in the first one."""
        if span in self._variates:
            return groups_of_rows(batch, span, [self.center[name][0].numel() for name in self._variates[span]], windows)
        if self.by not in NO_CODES:
            group = self._groups_of_codes(batch.get(self._codes.get(span, str(self.by))), batch[span])
            if self.unknown == "error" and group.is_cpu:  # on a device a look would wait for all queued work
                lost = group == len(self.entities)
                lost = lost if has_value is None else lost & has_value.view(lost.shape)
                check_known(batch[span], lost, str(self.by))
            return group
        if windows is not None:  # the span of a single window, `windows[0]`, has no dimension of windows
            check_count(windows, len(batch[span]) if windows.ndim else 1, "entity")
        return windows

    def _groups_of_windows(self, entity: object, source: object) -> torch.Tensor | None:
        """The group of each window, `(windows,)`; `None`: it does not go by the window."""
        return groups_of_entities(entity, source, len(self.entities), self.starts) if self.by == "entity" else None

    def _groups_of_codes(self, codes: object, values: torch.Tensor) -> torch.Tensor:
        """The group of each slot, by codes `(windows, time)`."""
        if self.starts is None or codes is None:
            raise ValueError(
                f"A scaler by {self.by!r} needs windows and codes. Bind it first, scaler.bind(windows), and give "
                "predictions the codes of their slots: inverse(values, column, code=...)."
            )
        numbers = integers(codes, str(self.by)).to(values.device)
        if numbers.shape != values.shape[: numbers.ndim]:
            raise ValueError(
                f"Each slot must have one code of {self.by!r}; codes are {tuple(numbers.shape)}, and values "
                f"{tuple(values.shape)}. Take those of the same slots."
            )
        return groups_of_codes(numbers, len(self.entities))

    def _pack(self, column: str) -> tuple[int, ...]:
        return tuple(self.center[column].shape[1:])

    def _constants(self, columns: str | tuple[str, ...], like: torch.Tensor) -> ScaleConstants:
        """Those of a column, or of all columns of packs one after the other."""
        key = (columns, like.dtype, like.device)
        if key not in self._ready:
            center, scale = (_flat(columns, table) for table in (self.center, self.scale))
            self._ready[key] = ScaleConstants.of(center, scale, like)
        return self._ready[key]

    def state_dict(self) -> dict[str, Any]:
        """The scaler as plain values, which JSON keeps exactly; `from_state` restores the scaler.

        A scaler that was bound gives the state of the one that was fitted.

        Example:
            >>> import json, tensorstash as ts
            >>> state = ts.Scaler.fit(ts.load({"y": [1.0, 3.0]}), ["y"]).state_dict()
            >>> state["kind"], state["rows"], state["columns"]
            ('standard', 2, {'y': {'center': [2.0], 'scale': [1.0]}})
            >>> json.loads(json.dumps(state)) == state
            True
        """
        if self._fitted is not None:
            return self._fitted.state_dict()
        tables = {"center": self.center, "scale": self.scale}
        columns = {name: {which: table[name].tolist() for which, table in tables.items()} for name in self.center}
        some = {"computed": self._unmasked, "variates": self._variates}
        return {
            **{"version": VERSION, "kind": self.kind, "by": self.by, "rows": self.rows, "spans": dict(self.spans)},
            **{name: {span: [*of] for span, of in given.items()} for name, given in some.items() if given},
            **({} if self.by is None else {"entities": [*self.entities], "unknown": self.unknown}),
            "columns": columns,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Scaler":
        """Restore a scaler from what `state_dict` returned.

        Args:
            state: the values of `state_dict`, also when they come from JSON or a checkpoint.

        Raises:
            ValueError: a value is missing or damaged, or the state is of another version. TypeError: it is no mapping.

        Example:
            >>> import tensorstash as ts
            >>> scaler = ts.Scaler.fit(ts.load({"y": [1.0, 3.0]}), ["y"])
            >>> ts.Scaler.from_state(scaler.state_dict())
            Scaler: standard, of the 2 rows seen
              y  center 2  scale 1  for y
        """
        return cls(**fields_of(state))

    def __repr__(self) -> str:
        by = f" by {self.by}, {len(self.entities):,} of them" if self.by else ""
        lines = [f"Scaler: {self.kind}{by}, of the {self.rows:,} rows seen"]
        held = {span: (column,) for span, column in self.spans.items()} | self._variates
        for name, center in self.center.items():
            spans = ", ".join(span for span in held if name in held[span])
            lines.append(f"  {name}  center {_summary(center)}  scale {_summary(self.scale[name])}  for {spans}")
        return "\n".join(lines)


def scaler_of(source: Source, statistics: Statistics, kind: Kind, by: str | None, unknown: Unknown) -> Scaler:
    """A scaler with the statistics of a source, for its spans."""
    names = [] if by is None else names_of(source, by)[0]
    if statistics.doubts:
        warn(doubts_text(statistics.doubts, names, by))
    spans, variates = statistics.spans, scaled_variates(source, statistics.center)
    fields = kind, by, statistics.rows, spans, statistics.center, statistics.scale, names, unknown
    codes = {} if by in NO_CODES else code_spans(source, str(by), {**spans, **variates})
    return Scaler(*fields, _unmasked=computed_in(source, {**spans, **variates}), _variates=variates, _codes=codes)


def _flat(columns: str | tuple[str, ...], table: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The numbers of a column by group, or of all columns of packs in one dimension, group by group."""
    if isinstance(columns, str):
        return table[columns]
    return torch.cat([table[name].reshape(len(table[name]), -1) for name in columns], 1).reshape(-1)


def _summary(values: torch.Tensor) -> str:
    """A few numbers, or the smallest and the largest of more."""
    if values.numel() <= _LISTED:
        return ", ".join(f"{value:.4g}" for value in values.flatten().tolist())
    low, high = (f"{value.item():.4g}" for value in values.aminmax())
    return low if low == high else f"{low} to {high}"
