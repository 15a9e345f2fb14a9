"""`Scaler`: spans of batches scaled by statistics of the rows that the windows of a part can see."""

import operator
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from tensorstash.common.checks import is_integer, names_in
from tensorstash.errors import SchemaError, unknown
from tensorstash.sampling.mix import Mix
from tensorstash.sampling.sharded import ShardedWindows
from tensorstash.stash.moments import Rows, sampled
from tensorstash.stash.stash import Stash
from tensorstash.transforms.affine import Affine, in_place
from tensorstash.transforms.pooled import drawn, pooled
from tensorstash.transforms.sharded import Told, together, told_by
from tensorstash.transforms.statistics import (
    KINDS,
    Doubt,
    check_kind,
    doubts_text,
    fit_column,
    rows_seen,
    spans_of,
)
from tensorstash.windows.windows import Windows

Batch = dict[str, torch.Tensor]

_VERSION = 1


@dataclass(frozen=True, eq=False, slots=True)
class Scaler:
    """Scales spans of batches to `(value - center) / scale`, with one centre and scale per column, or per entity too.

    `Scaler.fit` makes one. Calling it scales a batch in place, in the memory and on the device of the batch, and
    returns it. It scales every span that was known when it was fitted and is in the batch. The arithmetic is that of
    the span's dtype: integer spans must be cast first with `ts.Cast`; half-precision spans should be.

    Attributes:
        kind: `"standard"`, `"minmax"`, `"robust"` or `"maxabs"`.
        by: `None`, or `"entity"`.
        rows: the number of rows that the statistics are taken over.
        spans: maps each span that is scaled to its column.
        center: per column a float64 tensor `(1, ...)`, or `(entities, ...)` with `by="entity"`; the other dimensions
            are those of a pack.
        scale: likewise.
        starts: of a mix with `by="entity"`, where the entities of each component begin in them; else empty.

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

    kind: str
    by: str | None
    rows: int
    spans: dict[str, str]
    center: dict[str, torch.Tensor]
    scale: dict[str, torch.Tensor]
    starts: tuple[int, ...] = ()
    _ready: dict[tuple[str, bool, torch.dtype, torch.device], Affine] = field(default_factory=dict, init=False)

    @classmethod
    def fit(
        cls,
        source: Windows | Stash | Mix | ShardedWindows,
        columns: Sequence[str],
        *,
        kind: str = "standard",
        by: str | None = None,
        sample: int | None = None,
        seed: int = 0,
    ) -> "Scaler":
        """Statistics of columns over the rows that lie in a window. Each row counts once, and NaN does not count.

        The statistics are taken in one pass in blocks, in float64; `"robust"` needs 8 bytes per row of one column
        meanwhile. Where all values are equal, the scale is 1. An entity with fewer than two values takes the statistics
        of all entities. A `UserWarning` names both cases.

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
                It is the number of the entity in this stash, so the scaler fits no other stash.
            sample: take the statistics over this many random rows of all entities, and of all components of a mix,
                together instead of all rows; not for a mix with `by="entity"`.
            seed: the seed of the sample.

        Raises:
            ColumnError: a column does not exist, or no span of the windows is of it. SchemaError: it is not numeric.
            DataError: it has no value, or an infinite one (for `"robust"`: an infinite quartile).
        """
        check_kind(kind, by)
        if not is_integer(seed):
            raise ValueError(f"seed= is an integer; got {seed!r}.")
        if isinstance(source, Mix) and by is None:
            found = pooled(source, names_in(columns, "columns"), kind, sample, operator.index(seed))
            if found.doubts:
                warnings.warn(doubts_text(found.doubts, None), UserWarning, stacklevel=2)
            return cls(kind, by, found.rows, found.spans, found.center, found.scale)
        if isinstance(source, (Mix, ShardedWindows)):
            if sample is not None:
                raise ValueError("sample= is for the rows of one stash. Fit a scaler on the windows of a component.")
            several = cls._of_mix if isinstance(source, Mix) else cls._of_node
            return several(source, names_in(columns, "columns"), kind, by)  # type: ignore[arg-type]
        stash = source.stash if isinstance(source, Windows) else source
        spans = spans_of(source, stash, names_in(columns, "columns"))
        rows = rows_seen(source)
        if by is None:
            rows = Rows(rows.low, rows.high, np.array([0, stash.rows]))
        which = drawn(len(rows), sample, operator.index(seed))
        count = len(rows) if which is None else len(which)
        centers, scales = {}, {}
        doubts: list[Doubt] = []
        for name in dict.fromkeys(spans.values()):
            column, own = (stash[name], rows) if which is None else sampled(stash[name], rows, which)
            center, scale, doubt = fit_column(column, own, kind, name)
            shape = (own.groups, *column.shape[1:])
            centers[name], scales[name] = (torch.from_numpy(x.reshape(shape).copy()) for x in (center, scale))
            doubts += doubt
        if doubts:
            warnings.warn(doubts_text(doubts, stash.entities if by else None), UserWarning, stacklevel=2)
        return cls(kind, by, count, spans, centers, scales)

    @classmethod
    def _of_mix(cls, mix: Mix, columns: list[str], kind: str, by: str | None) -> "Scaler":
        some = {name: windows for name, windows in mix.windows.items() if len(windows)}
        return _joined(mix, {name: cls.fit(windows, columns, kind=kind, by=by) for name, windows in some.items()})

    @classmethod
    def _of_node(cls, windows: ShardedWindows, columns: list[str], kind: str, by: str | None) -> "Scaler":
        if windows.division.nodes > 1:
            raise ValueError(
                "The nodes exchange statistics in a call of its own: ts.cluster.fit_scaler(windows, columns), on every "
                f"rank; there are {windows.division.nodes} nodes."
            )
        return cls._of_shards(windows, [told_by(windows, columns, kind, by)], kind, by)

    @classmethod
    def _of_shards(cls, windows: ShardedWindows, told: Sequence[Told], kind: str, by: str | None) -> "Scaler":
        """The scaler of what all nodes have told."""
        division = windows.division
        found = together(told, division.entity_offsets, kind, by)
        if found.doubts:
            entities = division.entities() if by else None
            warnings.warn(doubts_text(found.doubts, entities), UserWarning, stacklevel=3)
        return cls(kind, by, found.rows, found.spans, found.center, found.scale)

    def __call__(self, batch: Batch) -> Batch:
        """Scale a batch in place and return it."""
        return self._batch(batch, inverse=False)

    def undo(self, batch: Batch) -> Batch:
        """Undo the scaling of a batch, in place, and return it."""
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
            values: `(batch, ...)`, with the dimensions of a pack last. Integers and booleans are converted to torch's
                default floating dtype first.
            column: the name of the column.
            entity: `(batch,)`, the entity of each window; needed with `by="entity"` alone.
            source: `(batch,)`, the component of each window; needed with a mix and `by="entity"` alone.

        Returns:
            A new tensor of the shape of `values`, through which gradients flow.

        Example:
            >>> import torch, tensorstash as ts
            >>> stash = ts.load({"e": ["a", "a", "b", "b"], "y": [0.0, 2.0, 10.0, 30.0]}, ["y"], entity="e")
            >>> scaler = ts.Scaler.fit(stash, ["y"], by="entity")
            >>> scaler.inverse(torch.tensor([[0.0, 0.5], [0.0, 0.5]]), "y", entity=torch.tensor([0, 1]))
            tensor([[ 1.0000,  1.5000],
                    [20.0000, 25.0000]])
        """
        if column not in self.center:
            raise unknown(column, self.center, "the scaler")
        if not isinstance(values, torch.Tensor) or values.is_complex():
            got = values.dtype if isinstance(values, torch.Tensor) else f"a {type(values).__name__}"
            raise TypeError(f"Predictions are a tensor of real numbers; got {got}.")
        self._check_pack(values, column, column)
        if not values.dtype.is_floating_point:
            values = values.to(torch.get_default_dtype())
        group = None
        if self.by is not None:
            group = self._group(entity, source).reshape(-1)
            self._check_group(group, len(values), column)
            group = group.to(values.device)
        return self._affine(column, values, inverse=True).fresh(values, group)

    def _check_group(self, group: torch.Tensor, count: int, column: str) -> None:
        """Refuse entities that are unknown, or not one per window: these would be broadcast."""
        if len(group) != count or group.is_floating_point():
            raise ValueError(
                f"entity= is an integer for each of {count:,} windows; got a tensor {tuple(group.shape)} of "
                f"{group.dtype}."
            )
        known = len(self.center[column])
        if group.device.type == "cpu" and count and not 0 <= int(group.min()) <= int(group.max()) < known:
            raise IndexError(f"Entities lie in [0, {known:,}); got {int(group.min()):,} to {int(group.max()):,}.")

    def _batch(self, batch: Batch, *, inverse: bool) -> Batch:
        known = [name for name in self.spans if name in batch]
        if not known:
            raise ValueError(
                f"The scaler scales {', '.join(map(repr, self.spans))}; the batch has none of them, but "
                f"{', '.join(map(repr, batch)) or 'nothing'}. Fit it on windows with the spans of the batch."
            )
        group = None if self.by is None else self._group(batch.get("entity"), batch.get("source"))
        for name in known:
            if not batch[name].dtype.is_floating_point:
                raise SchemaError(
                    f"A batch is scaled in place, in floating point; {name!r} is {batch[name].dtype}. Put "
                    f"ts.Cast({{{name!r}: torch.float32}}) before the scaler."
                )
            self._check_pack(batch[name], self.spans[name], name)
        in_place([(self._affine(self.spans[name], batch[name], inverse=inverse), batch[name]) for name in known], group)
        return batch

    def _group(self, entity: torch.Tensor | None, source: torch.Tensor | None) -> torch.Tensor:
        """Which centre and scale each window has."""
        entity = _given(entity)
        if not self.starts:
            return entity
        if source is None:
            raise ValueError(
                "A scaler of a mix by entity needs the component of each window, 'source'. Make batches with "
                "ts.Loader(mix, ..., with_ids=True)."
            )
        return torch.tensor(self.starts, device=entity.device)[source] + entity

    def _check_pack(self, tensor: torch.Tensor, column: str, what: str) -> None:
        pack = tuple(self.center[column].shape[1:])
        if tensor.ndim <= len(pack) or tuple(tensor.shape[tensor.ndim - len(pack) :]) != pack:
            raise ValueError(f"The last dimensions of {what!r} are {pack}; got a tensor {tuple(tensor.shape)}.")

    def _affine(self, column: str, like: torch.Tensor, *, inverse: bool) -> Affine:
        """The constants of a column in the dtype and on the device of a tensor."""
        key = (column, inverse, like.dtype, like.device)
        if key not in self._ready:
            center, scale = self.center[column], self.scale[column]
            factor, shift = (scale, center) if inverse else (1 / scale, -center / scale)
            with torch.inference_mode(False):  # constants made in inference mode cannot take part in training later
                own, shift = (x.to(like.device, like.dtype).contiguous() for x in (factor, shift.expand_as(factor)))
                made = Affine(own, shift, _first(factor))
            self._ready[key] = made
        return self._ready[key]

    def state_dict(self) -> dict[str, Any]:
        """The scaler as plain values, which JSON keeps exactly; `from_state` makes the scaler again."""
        columns = {
            name: {"center": self.center[name].tolist(), "scale": self.scale[name].tolist()} for name in self.center
        }
        own: dict[str, Any] = {"kind": self.kind, "by": self.by, "rows": self.rows, "spans": dict(self.spans)}
        if self.starts:
            own["starts"] = list(self.starts)
        return {"version": _VERSION, **own, "columns": columns}

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
        if not isinstance(state, Mapping):
            raise TypeError(f"A state is what state_dict() returned; got a {type(state).__name__}.")
        if state.get("version") != _VERSION:
            raise ValueError(f"A scaler reads states of version {_VERSION}; got version {state.get('version')!r}.")
        needed = ("kind", "by", "rows", "spans", "columns")
        if missing := [name for name in needed if name not in state]:
            raise ValueError(f"A state has {', '.join(needed)}; this one lacks {', '.join(missing)}.")
        if state["kind"] not in [*KINDS]:
            raise ValueError(f"kind= is one of {', '.join(map(repr, KINDS))}; got {state['kind']!r}.")
        center, scale = (
            {name: torch.tensor(one[which], dtype=torch.float64) for name, one in state["columns"].items()}
            for which in ("center", "scale")
        )
        starts = tuple(state.get("starts", ()))
        return cls(state["kind"], state["by"], state["rows"], dict(state["spans"]), center, scale, starts)

    def __repr__(self) -> str:
        first = next(iter(self.center.values()))
        by = f" by entity, {len(first):,} of them" if self.by else ""
        lines = [f"Scaler: {self.kind}{by}, of the {self.rows:,} rows seen"]
        for name, center in self.center.items():
            spans = ", ".join(span for span, column in self.spans.items() if column == name)
            lines.append(f"  {name}  center {_summary(center)}  scale {_summary(self.scale[name])}  for {spans}")
        return "\n".join(lines)


def _joined(mix: Mix, fitted: dict[str, Scaler]) -> Scaler:
    """The scaler of a mix by entity; the entities of components without windows are left as they are."""
    counts = {name: len(windows.stash.offsets) - 1 for name, windows in mix.windows.items()}
    ends = np.cumsum([*counts.values()])
    starts = tuple((ends - [*counts.values()]).tolist())
    one = next(iter(fitted.values()))

    def joined(which: str, unknown: float) -> dict[str, torch.Tensor]:
        return {
            name: torch.cat(
                [
                    getattr(fitted[part], which)[name]
                    if part in fitted
                    else torch.full((count, *like.shape[1:]), unknown)
                    for part, count in counts.items()
                ]
            ).to(like.dtype)
            for name, like in one.center.items()
        }

    rows = sum(scaler.rows for scaler in fitted.values())
    return Scaler(one.kind, one.by, rows, one.spans, joined("center", 0.0), joined("scale", 1.0), starts)


def _given(entity: torch.Tensor | None) -> torch.Tensor:
    if entity is None:
        raise ValueError(
            "A scaler by entity needs the entity of each window. Make batches with ts.Loader(..., with_ids=True), or "
            "add batch['entity'] = windows.anchors(ids)['entity']."
        )
    return entity


def _first(values: torch.Tensor) -> float:
    return float(values.flatten()[0].item()) if values.numel() else 1.0


def _summary(values: torch.Tensor) -> str:
    if values.numel() <= 4:
        return ", ".join(f"{value:.4g}" for value in values.flatten().tolist())
    return f"{values.min().item():.4g} to {values.max().item():.4g}"
