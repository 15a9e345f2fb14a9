"""`Scaler`: spans of batches scaled by statistics of the rows that the windows of a part can see."""

import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from tensorstash.common.checks import is_integer, names_in, shown
from tensorstash.common.html import table
from tensorstash.errors import DataError, SchemaError
from tensorstash.errors import unknown as unknown_name
from tensorstash.sampling.mix import Mix
from tensorstash.sampling.sharded import ShardedWindows
from tensorstash.stash.scaled import is_scaled, note_scaled, was_scaled
from tensorstash.stash.stash import Stash
from tensorstash.transforms.apply import scaled_stash
from tensorstash.transforms.bound import Source, check_source, check_unscaled, entities_in, groups_of, spans_in
from tensorstash.transforms.entries import change_rows, check_batch, check_pack, check_predictions, observed_of, span_of
from tensorstash.transforms.scaling import Constants
from tensorstash.transforms.sharded import of_all, of_node
from tensorstash.transforms.state import VERSION, fields_of
from tensorstash.transforms.statistics import By, Kind, Statistics, Unknown, check_kind, doubts_text, joined, of_source
from tensorstash.windows.windows import Windows

Batch = dict[str, torch.Tensor]


@dataclass(frozen=True, eq=False, slots=True)
class Scaler:
    """Scales spans of batches to `(value - center) / scale`, with one centre and scale per column, or per entity too.

    `Scaler.fit` makes one. Calling it scales a batch in place, in the memory and on the device of the batch, and
    returns it. It scales every span of its columns; slots without a row (`<span>.observed` is false) keep what `empty=`
    says. A span that is scaled already and not written since is a `ValueError`, also if it is of a column that `apply`
    has scaled. The arithmetic has the span's dtype, or float32 for half types; integer spans must be cast first with
    `ts.Cast`.

    A `Loader` binds a scaler to its windows: to their spans and, with `by="entity"`, to the numbers that
    `batch["entity"]` has for the names of entities. A number names an entity in one stash only. So by hand, and for
    `inverse` of predictions, a scaler by entity must be bound first: `scaler.bind(windows)`.

    Attributes:
        kind: `"standard"`, `"minmax"`, `"robust"` or `"maxabs"`.
        by: `None`, or `"entity"`.
        rows: the number of rows that the statistics are taken over.
        spans: maps each span that is scaled to its column.
        center: per column a float64 tensor `(1, ...)`, or with `by="entity"` `(entities, ...)` in the order of
            `entities`, and a last row for all others with `unknown="pooled"`; a pack has its own dimensions after that.
        scale: likewise.
        entities: the names of the entities with `by="entity"`, else empty; of a mix pairs of a component and a name.
        unknown: `"error"`, or `"pooled"`.
        starts: with `by="entity"`, where the entities of each component of a mix begin in them; else empty. `None`:
            the scaler is not bound.

    Example:
        >>> import numpy as np, tensorstash as ts
        >>> stash = ts.load({"t": np.arange(8), "y": [1.0, 3.0, 1.0, 3.0, 1.0, 3.0, 99.0, 99.0]}, ["y"], time="t")
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
        >>> scaler.undo(batch)["past"]
        tensor([[ 1.,  3.],
                [ 3., 99.]], dtype=torch.float64)
    """

    kind: Kind
    by: By | None
    rows: int
    spans: dict[str, str]
    center: dict[str, torch.Tensor]
    scale: dict[str, torch.Tensor]
    entities: list[Any] = field(default_factory=list)
    unknown: Unknown = "error"
    starts: tuple[int, ...] | None = None
    _fitted: "Scaler | None" = None  # a bound scaler may lack entities of it
    _ready: dict[tuple[str, torch.dtype, torch.device], Constants] = field(default_factory=dict, init=False)

    @classmethod
    def fit(
        cls,
        source: Windows | Stash | Mix | ShardedWindows,
        columns: Sequence[str],
        *,
        kind: Kind = "standard",
        by: By | None = None,
        unknown: Unknown = "error",
        sample: int | None = None,
        seed: int = 0,
    ) -> "Scaler":
        """Statistics of columns over the rows that lie in a window. Each row counts once; missing values do not count.

        Rows of all spans in time count, whichever column these are of. It takes one pass in blocks, in float64, and for
        `"robust"` 8 bytes per row of one column. Where all values are equal, the scale is 1. An entity with fewer than
        two values takes the statistics of all (in a mix: of its component). A `UserWarning` names both cases.

        Args:
            source: windows, preferably of the training part alone: rows that only other parts see have no influence.
                The scaler will scale their spans of these columns. A stash stands for all its rows, and for spans that
                are named like its columns. A mix stands for the windows of its components, each row once whatever
                its weight; with `by="entity"` batches need `source` too, which `with_ids=True` gives them.
                For shards on several nodes: `ts.cluster.fit_scaler`.
            columns: names of numeric columns; each number of a pack is scaled separately.
            kind: `"standard"`: mean and standard deviation (divided by the number of values); `"minmax"`: minimum and
                range; `"robust"`: median and interquartile range; `"maxabs"`: 0 and the largest absolute value.
            by: `"entity"` for a centre and scale per entity. Batches then need `entity`: `Loader(..., with_ids=True)`.
            unknown: with `by="entity"`, what entities get that the source does not have: `"pooled"`, the statistics of
                all entities together; `"error"`, a `DataError` when the scaler is bound to windows of them.
            sample: take the statistics over this many random rows of all entities, and of all components of a mix,
                together instead of all rows; not for a mix with `by="entity"`.
            seed: the seed of the sample.

        Raises:
            ColumnError: a column does not exist, or no span of the windows is of it. SchemaError: it is not numeric.
            ValueError: it is scaled already, by `apply`. DataError: it has no value, or an infinite one (for
                `"robust"`: an infinite quartile).
        """
        check_kind(kind, by, unknown)
        if not is_integer(seed):
            raise ValueError(f"seed must be an integer, got {seed!r}.")
        names, seed = names_in(columns, "columns"), operator.index(seed)
        if not isinstance(source, (Windows, Stash, Mix, ShardedWindows)):
            raise TypeError(f"A scaler must be fitted on windows, a stash or a mix, got {type(source).__name__}.")
        check_unscaled(source, names)
        if sample is not None and (isinstance(source, ShardedWindows) or (isinstance(source, Mix) and by)):
            raise ValueError("sample= needs the rows of one stash. Fit a scaler on the windows of a component.")
        if isinstance(source, ShardedWindows):
            if source.division.nodes > 1:
                raise ValueError(
                    f"{source.division.nodes} nodes must exchange their statistics: call "
                    "ts.cluster.fit_scaler(windows, columns) on every rank."
                )
            statistics = partial(of_all, source, [of_node(source, names, kind, by)], kind)
        else:
            statistics = partial(of_source, source, names, kind, sample=sample, seed=seed)
        return cls.of_statistics(source, statistics, kind, by, unknown)

    @classmethod
    def of_statistics(
        cls, source: Source, statistics: Callable[[str | None], Statistics], kind: Kind, by: By | None, unknown: Unknown
    ) -> "Scaler":
        """The scaler of the statistics of a source, given as a function of `by`."""
        fitted, names = statistics(by), [] if by is None else entities_in(source)[0]
        if fitted.doubts:
            warnings.warn(doubts_text(fitted.doubts, None if by is None else names), UserWarning, stacklevel=3)
        table = fitted if unknown == "error" else joined([fitted, statistics(None)])
        return cls(kind, by, fitted.rows, fitted.spans, table.center, table.scale, names, unknown)

    def bind(self, windows: Source) -> "Scaler":
        """The scaler for batches of other windows: for all their spans of its columns, and for their entities by name.

        Args:
            windows: windows, a mix, the windows of shards, or a stash.

        Raises:
            SchemaError: a span is of another column than in the windows that the scaler was fitted on. DataError: the
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
        fitted, spans = self._fitted or self, spans_in(windows)
        for span, column in fitted.spans.items():
            if spans.get(span, column) != column:
                raise SchemaError(
                    f"A span must be scaled by its own column; {span!r} is of column {spans[span]!r} in these windows, "
                    f"and was of {column!r} where the scaler was fitted. Fit a scaler on these windows."
                )
        spans = fitted.spans | {span: column for span, column in spans.items() if column in fitted.center}
        check_unscaled(windows, fitted.center)
        if self.by is None:
            return replace(fitted, spans=spans)
        names, starts = entities_in(windows)
        if names == fitted.entities:
            return replace(fitted, spans=spans, starts=starts)
        known = {name: row for row, name in enumerate(fitted.entities)}
        pooled = [len(known)] if self.unknown == "pooled" else []
        if not pooled and (missing := [name for name in names if name not in known]):
            raise DataError(
                f"A scaler by entity must know each entity; {len(missing):,} of {len(names):,} are unknown, such as "
                f"{missing[0]!r}. Fit it on windows with these too, or with unknown='pooled'."
            )
        rows = [known.get(name, len(known)) for name in names] + pooled
        center, scale = ({name: x[rows] for name, x in table.items()} for table in (fitted.center, fitted.scale))
        constants = replace(fitted, spans=spans, center=center, scale=scale)
        return replace(constants, entities=names, starts=starts, _fitted=fitted)

    def apply(self, stash: Stash, *, dtype: torch.dtype | None = None) -> Stash:
        """A private copy of a stash in which the columns of the scaler are scaled, so that no batch needs to be.

        Its batches are those of `stash` with this scaler as transform, bit for bit in the same dtype. A loader over it
        refuses the scaler as a transform; `inverse` stays as it is. `share` or `save` the copy as any stash.

        Args:
            stash: the columns as their tensors are now, all of the scaler's among them.
            dtype: of the scaled columns, which are scaled in the wider one and rounded once; `None` keeps theirs.

        Raises:
            ColumnError: a column is not there. SchemaError: it is not floating. ValueError: it is scaled already.
                DataError: an entity is unknown. NoMemoryError: the copy does not fit.

        Example:
            >>> import tensorstash as ts
            >>> stash = ts.load({"y": [1.0, 3.0]}, ["y"])
            >>> ts.Scaler.fit(stash, ["y"]).apply(stash)["y"]
            tensor([-1.,  1.], dtype=torch.float64)
        """
        if not isinstance(stash, Stash):
            raise TypeError(
                f"A scaler must be applied to a stash, got a {type(stash).__name__}. Of windows that is windows.stash; "
                "a batch is scaled by scaler(batch)."
            )
        for name in self.center:
            check_pack(stash[name][:, None], self._pack(name), name)
        bound = replace(self._fitted or self, spans={}).bind(stash)
        tables = {name: (bound.center[name], bound.scale[name]) for name in bound.center}
        entities = torch.arange(len(stash.entities)).repeat_interleave(stash.offsets.diff())
        return scaled_stash(stash, tables, None if self.by is None else entities, dtype)

    def __call__(self, batch: Batch) -> Batch:
        """Scale a batch in place and return it."""
        return self._batch(batch, inverse=False)

    def undo(self, batch: Batch) -> Batch:
        """Scale a batch back, in place, and return it.

        A span that is not scaled, or is scaled back already, is a `ValueError`. So is a copy of one that is scaled: the
        tensors of a batch say that they are, and copies do not. `inverse` takes any values.
        """
        return self._batch(batch, inverse=True)

    def inverse(
        self,
        values: torch.Tensor,
        column: str,
        entity: torch.Tensor | None = None,
        source: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Convert predictions of a column back to its units.

        Args:
            values: `(batch, ...)`, or `(batch, time, *pack)` for a pack. Integers and booleans are converted to torch's
                default floating dtype first.
            column: the name of the column.
            entity: `(batch,)`, the entity of each window, by its number in the windows that the scaler is bound to;
                needed with `by="entity"` alone.
            source: `(batch,)`, the component of each window; needed with a mix and `by="entity"` alone.

        Returns:
            A new tensor of the shape of `values`, through which gradients flow.

        Example:
            >>> import torch, tensorstash as ts
            >>> stash = ts.load({"e": ["a", "a", "b", "b"], "y": [0.0, 2.0, 10.0, 30.0]}, ["y"], entity="e")
            >>> scaler = ts.Scaler.fit(stash, ["y"], by="entity")
            >>> bound = scaler.bind(stash)
            >>> bound.inverse(torch.tensor([[0.0, 0.5], [0.0, 0.5]]), "y", entity=torch.tensor([0, 1]))
            tensor([[ 1.0000,  1.5000],
                    [20.0000, 25.0000]])
        """
        if not isinstance(column, str) or column not in self.center:
            raise unknown_name(column, self.center, "the scaler")
        check_predictions(values)
        for what, given in (("entity", entity), ("source", source)):
            if given is not None and not isinstance(given, torch.Tensor):
                raise TypeError(f"{what} must be a tensor of integers, got {shown(given)}. Take batch[{what!r}].")
        check_pack(values, self._pack(column), column)
        pack = len(self._pack(column))
        if pack and values.ndim < pack + 2:  # (batch, time) could be as wide as the pack
            raise ValueError(
                f"Predictions of the pack {column!r} must be (batch, time, *pack), got {tuple(values.shape)}. For "
                "one step write values[:, None]."
            )
        if not values.dtype.is_floating_point:
            values = values.to(torch.get_default_dtype())
        group = self._group(len(values), entity, source)
        group = None if group is None else group.reshape(-1).to(values.device)
        return self._constants(column, values).restored(values, group)

    def _batch(self, batch: Batch, *, inverse: bool) -> Batch:
        check_batch(batch, "A scaler")
        known = [name for name in self.spans if name in batch]
        if not known:
            raise ValueError(
                f"The batch must have a span of the scaler, {', '.join(map(repr, self.spans))}; it has "
                f"{', '.join(map(repr, batch)) or 'nothing'}. Fit it on windows with the spans of the batch."
            )
        for name in known:
            check_pack(span_of(batch, name), self._pack(self.spans[name]), name)
        entity = batch.get("entity")
        # `windows[0]` is one window, whose spans begin with time
        windows = len(batch[known[0]]) if getattr(entity, "ndim", 1) else 1
        if self.by is not None and self.starts and "source" not in batch:
            entity = None  # of a batch of one stash, whose numbers are others
        group = self._group(windows, entity, batch.get("source"))
        for name in known:
            span = batch[name]
            if f"{name}.segment" in batch:
                raise ValueError(
                    f"A scaler must see whole windows; {name!r} is packed in rows. Scale before ts.PackSequences."
                )
            if not span.dtype.is_floating_point:
                raise SchemaError(
                    f"A scaled span must be floating; {name!r} is {span.dtype}. Put "
                    f"ts.Cast({{{name!r}: torch.float32}}) before the scaler."
                )
            if not inverse and is_scaled(span):
                raise ValueError(f"A span must be scaled once; {name!r} is scaled already. Leave the scaler out.")
            if inverse and not was_scaled(span):
                raise ValueError(
                    f"Only a span that is scaled can be scaled back; {name!r} is not, or it is a copy, which does not "
                    f"say so. For the values of a copy: scaler.inverse(batch[{name!r}], {self.spans[name]!r})."
                )
        observed = [observed_of(batch, name) for name in known]
        for name, has_row in zip(known, observed):
            constants = self._constants(self.spans[name], batch[name])
            change_rows(batch[name], has_row, partial(constants.apply, group=group, inverse=inverse))
            note_scaled(batch[name], scaled=not inverse)
        return batch

    def _group(self, windows: int, entity: object, source: object) -> torch.Tensor | None:
        """Which centre and scale each window has, `(windows,)`; `None`: all have the same."""
        if self.by is None:
            return None
        group = groups_of(entity, source, len(self.entities), self.starts)
        if group.numel() != windows:  # one for all would be broadcast
            raise ValueError(f"entity must have one number for each of {windows:,} windows, got {group.numel()}.")
        return group

    def _pack(self, column: str) -> tuple[int, ...]:
        return tuple(self.center[column].shape[1:])

    def _constants(self, column: str, like: torch.Tensor) -> Constants:
        key = (column, like.dtype, like.device)
        if key not in self._ready:
            self._ready[key] = Constants.of(self.center[column], self.scale[column], like)
        return self._ready[key]

    def state_dict(self) -> dict[str, Any]:
        """The scaler as plain values, which JSON keeps exactly; `from_state` makes the scaler again."""
        if self._fitted is not None:
            return self._fitted.state_dict()
        columns = {
            name: {"center": self.center[name].tolist(), "scale": self.scale[name].tolist()} for name in self.center
        }
        fields = {"kind": self.kind, "by": self.by, "rows": self.rows, "spans": dict(self.spans)}
        names = {} if self.by is None else {"entities": [*self.entities], "unknown": self.unknown}
        return {"version": VERSION, **fields, **names, "columns": columns}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Scaler":
        """Make a scaler from what `state_dict` returned.

        Example:
            >>> import tensorstash as ts
            >>> scaler = ts.Scaler.fit(ts.load({"y": [1.0, 3.0]}), ["y"])
            >>> ts.Scaler.from_state(scaler.state_dict())
            Scaler: standard, of the 2 rows seen
              y  center 2  scale 1  for y
        """
        return cls(**fields_of(state))

    def __repr__(self) -> str:
        lines = ("  {}  center {}  scale {}  for {}".format(*row) for row in self._shown())
        return "\n".join([f"Scaler: {self._caption()}", *lines])

    def _repr_html_(self) -> str:
        columns = table(("column", "center", "scale", "spans"), self._shown())
        return f"<p><b>Scaler</b>: {self._caption()}</p>{columns}"

    def _caption(self) -> str:
        by = f" by entity, {len(self.entities):,} of them" if self.by else ""
        return f"{self.kind}{by}, of the {self.rows:,} rows seen"

    def _shown(self) -> Iterator[tuple[str, str, str, str]]:
        """The name of each column, its center, its scale and its spans, as text."""
        for name, center in self.center.items():
            spans = ", ".join(span for span, column in self.spans.items() if column == name)
            yield name, _summary(center), _summary(self.scale[name]), spans


def _summary(values: torch.Tensor) -> str:
    if values.numel() <= 4:
        return ", ".join(f"{value:.4g}" for value in values.flatten().tolist())
    return f"{values.min().item():.4g} to {values.max().item():.4g}"
