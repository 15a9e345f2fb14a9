"""Scaling of batches in place: by statistics of what the windows of a part can see, or of each window's own history."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from tensorstash.common.checks import at_least, names_in
from tensorstash.common.dtypes import Bools, Int64s
from tensorstash.errors import DataError, SchemaError, unknown
from tensorstash.native.permutation import shuffled
from tensorstash.stash.moments import Floats, Rows, extremes, moments, quantiles, sampled
from tensorstash.stash.stash import Stash
from tensorstash.windows.intervals import covered, union
from tensorstash.windows.slots import rows_from
from tensorstash.windows.windows import Windows

Batch = dict[str, torch.Tensor]
_Fitted = tuple[Int64s, Floats, Floats]  # count, centre and scale, (groups, items) each
_Doubt = tuple[str, str, Int64s]  # what, in which column, of which entities

_FEWEST = 2  # values of an entity that has statistics of its own
_NAMED = 3  # entities or columns named in a warning
_TILES = 4  # slots whose constants stand side by side
_VERSION = 1


@dataclass(frozen=True, eq=False, slots=True)
class Scaler:
    """Scales spans of batches to `(value - center) / scale`, with one centre and scale per column, or per entity too.

    `Scaler.fit` makes one. Calling it scales a batch in place, in the memory and on the device of the batch, and
    returns it: every span that was known when it was fitted and is in the batch. The arithmetic is that of the span's
    dtype, so that whole numbers are cast first, and half precision better is: `Cast`.

    Attributes:
        kind: `"standard"`, `"minmax"`, `"robust"` or `"maxabs"`.
        by: `None`, or `"entity"`.
        rows: how many rows were seen.
        spans: from each span that is scaled to its column.
        center: per column a float64 tensor `(1, ...)`, or `(entities, ...)` by entity, whose other dimensions are those
            of a pack.
        scale: likewise.

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
    _ready: dict[Any, Any] = field(default_factory=dict, init=False)

    @classmethod
    def fit(
        cls,
        source: Windows | Stash,
        columns: Sequence[str],
        *,
        kind: str = "standard",
        by: str | None = None,
        sample: int | None = None,
        seed: int = 0,
    ) -> "Scaler":
        """Statistics of columns over the rows that lie in a window, each row once; NaN counts for nothing.

        One pass in blocks, in float64; `"robust"` holds 8 bytes per row of one column meanwhile.

        Where all values are equal, the scale is 1. An entity with fewer than two values takes the statistics of all. A
        `UserWarning` tells of both.

        Args:
            source: windows, best of the training part alone: what only other parts see has no influence. The scaler
                will scale their spans of these columns. A stash gives all rows, and spans that are named as columns.
            columns: names of columns of numbers; of a pack, each number is scaled for itself.
            kind: `"standard"`: mean and standard deviation (divided by the number of values); `"minmax"`: minimum and
                range; `"robust"`: median and distance of the quartiles; `"maxabs"`: 0 and the largest absolute value.
            by: `"entity"` for a centre and scale per entity. Batches then need `entity`: `Loader(..., with_ids=True)`.
                It is the number of the entity in this stash, so the scaler fits no other one.
            sample: take so many random rows instead of all, together for all entities.
            seed: of the sample.

        Raises:
            ColumnError: no such column, or none of the windows' spans is of it. SchemaError: it does not hold numbers.
            DataError: it has no value, or an infinite one (for `"robust"`: an infinite quartile).
        """
        if kind not in _KINDS:
            raise ValueError(f"kind= is one of {', '.join(map(repr, _KINDS))}; got {kind!r}.")
        if by not in (None, "entity"):
            raise ValueError(f"by= is None or 'entity'; got {by!r}.")
        stash = source.stash if isinstance(source, Windows) else source
        spans = _spans(source, stash, names_in(columns, "columns"))
        rows = rows_seen(source)
        if by is None:
            rows = Rows(rows.low, rows.high, np.array([0, stash.rows]))
        count, which = len(rows), None
        if sample is not None and at_least(1, sample, "sample") < count:
            which = np.sort(shuffled(count, seed, 0)(np.arange(sample)))
            count = sample
        centers, scales = {}, {}
        doubts: list[_Doubt] = []
        for name in dict.fromkeys(spans.values()):
            column, own = (stash[name], rows) if which is None else sampled(stash[name], rows, which)
            center, scale, doubt = _fit(column, own, kind, name)
            shape = (own.groups, *column.shape[1:])
            centers[name], scales[name] = (torch.from_numpy(x.reshape(shape).copy()) for x in (center, scale))
            doubts += doubt
        if doubts:
            warnings.warn(_doubts_text(doubts, stash, by), UserWarning, stacklevel=2)
        return cls(kind, by, count, spans, centers, scales)

    def __call__(self, batch: Batch) -> Batch:
        """Scale a batch in place and return it."""
        return self._all(batch, inverse=False)

    def undo(self, batch: Batch) -> Batch:
        """Undo the scaling of a batch, in place, and return it."""
        return self._all(batch, inverse=True)

    def inverse(self, values: torch.Tensor, column: str, entity: torch.Tensor | None = None) -> torch.Tensor:
        """Predictions of a column in its own units: a fresh tensor, through which gradients flow.

        `values` is `(batch, ...)`, with the dimensions of a pack last; `entity` is `(batch,)`, by entity alone.

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
        tail = self._tail(values, column, column)
        if self.by is None:
            factor, shift = (pair[0].to(values) for pair in self._affine(column, inverse=True))
        else:
            shape = (-1, *[1] * (values.ndim - 1 - len(tail)), *tail)
            constants = self._of_entities(values, column, _entity(entity), inverse=True, tiles=1)
            factor, shift = (x.view(shape) for x in constants)
        return values * factor + shift

    def _all(self, batch: Batch, *, inverse: bool) -> Batch:
        known = [name for name in self.spans if name in batch]
        if not known:
            raise ValueError(
                f"The scaler scales {', '.join(map(repr, self.spans))}; the batch has none of them, but "
                f"{', '.join(map(repr, batch))}. Fit it on windows with the spans of the batch."
            )
        for name in known:
            if not batch[name].dtype.is_floating_point:
                raise SchemaError(
                    f"A batch is scaled in place, in floating point; {name!r} is {batch[name].dtype}. Put "
                    f"ts.Cast({{{name!r}: torch.float32}}) before the scaler."
                )
            self._in_place(batch[name], name, batch.get("entity"), inverse)
        return batch

    def _in_place(self, tensor: torch.Tensor, span: str, entity: torch.Tensor | None, inverse: bool) -> None:
        """One pass over the memory where a single operation can do it."""
        column = self.spans[span]
        tail = self._tail(tensor, column, span)
        if self.by is not None:
            entity = _entity(entity)
            tiles = _TILES if tail and tensor.is_contiguous() else 1
            _scale_each(tensor, entity.ndim, tiles, *self._of_entities(tensor, column, entity, inverse, tiles))
            return
        tiles = tensor.shape[-1 - len(tail)] if tail and tensor.is_contiguous() else 1
        factor, shift, number = self._tiled(column, inverse, tensor.dtype, tensor.device, tiles)
        if not tail:
            torch.add(shift, tensor, alpha=number, out=tensor)
        elif tensor.is_contiguous():
            flat = tensor.view(-1, len(factor))  # constants tiled to the row: short inner loops are ten times slower
            torch.addcmul(shift, flat, factor, out=flat)
        else:
            torch.addcmul(shift.view(tail), tensor, factor.view(tail), out=tensor)

    def _tail(self, tensor: torch.Tensor, column: str, what: str) -> tuple[int, ...]:
        """The dimensions of a pack, which a tensor must end with."""
        tail = tuple(self.center[column].shape[1:])
        if tensor.ndim <= len(tail) or tuple(tensor.shape[tensor.ndim - len(tail) :]) != tail:
            raise ValueError(f"The last dimensions of {what!r} are {tail}; got a tensor {tuple(tensor.shape)}.")
        return tail

    def _affine(self, column: str, inverse: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Factor and shift, float64 `(groups, ...)`."""
        center, scale = self.center[column], self.scale[column]
        return (scale, center) if inverse else (1 / scale, -center / scale)

    def _of_entities(
        self, like: torch.Tensor, column: str, entity: torch.Tensor, inverse: bool, tiles: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Factor and shift of entities, `(batch, tiles * items)`, in the dtype and on the device of a tensor."""
        key = (column, inverse, like.dtype, like.device, tiles)
        if key not in self._ready:
            self._ready[key] = tuple(
                x.view(len(x), -1).repeat(1, tiles).to(like) for x in self._affine(column, inverse)
            )
        index = entity.reshape(-1).to(like.device)
        factor, shift = (constant.index_select(0, index) for constant in self._ready[key])
        return factor, shift

    def _tiled(
        self, column: str, inverse: bool, dtype: torch.dtype, device: torch.device, tiles: int
    ) -> tuple[torch.Tensor, torch.Tensor, float]:
        """Factor and shift of a column, `(tiles * items,)`, or `()` and the factor itself if a row is one number."""
        key = (column, inverse, dtype, device, tiles)
        if key not in self._ready:
            pair = self._affine(column, inverse)
            shape = () if pair[0].ndim == 1 else (-1,)
            factor, shift = (x.flatten().repeat(tiles).view(shape).to(device, dtype) for x in pair)
            self._ready[key] = factor, shift, pair[0].flatten()[0].item()
        return self._ready[key]

    def state_dict(self) -> dict[str, Any]:
        """All of it as plain values, exact also in JSON, from which `from_state` makes the scaler again."""
        columns = {
            name: {"center": self.center[name].tolist(), "scale": self.scale[name].tolist()} for name in self.center
        }
        own = {"kind": self.kind, "by": self.by, "rows": self.rows, "spans": dict(self.spans)}
        return {"version": _VERSION, **own, "columns": columns}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Scaler":
        """The scaler whose `state_dict` this is.

        Example:
            >>> import tensorstash as ts
            >>> scaler = ts.Scaler.fit(ts.load({"y": [1.0, 3.0]}), ["y"])
            >>> ts.Scaler.from_state(scaler.state_dict())
            Scaler: standard, of the 2 rows seen
              y  center 2  scale 1  for y
        """
        if state.get("version") != _VERSION:
            raise ValueError(f"This reads the state of a scaler of version {_VERSION}; got {state.get('version')!r}.")
        center, scale = (
            {name: torch.tensor(one[which], dtype=torch.float64) for name, one in state["columns"].items()}
            for which in ("center", "scale")
        )
        return cls(state["kind"], state["by"], state["rows"], dict(state["spans"]), center, scale)

    def __repr__(self) -> str:
        first = next(iter(self.center.values()))
        by = f" by entity, {len(first):,} of them" if self.by else ""
        lines = [f"Scaler: {self.kind}{by}, of the {self.rows:,} rows seen"]
        for name, center in self.center.items():
            spans = ", ".join(span for span, column in self.spans.items() if column == name)
            lines.append(f"  {name}  center {_short(center)}  scale {_short(self.scale[name])}  for {spans}")
        return "\n".join(lines)


def rows_seen(source: Windows | Stash) -> Rows:
    """The rows that lie in a window, grouped by entity; of a stash, all."""
    if isinstance(source, Stash):
        return Rows(np.array([0]), np.array([source.rows]), source.offsets.numpy())
    if not len(source):
        raise ValueError("A scaler is fitted on at least one window; these windows are empty. See the cuts of split().")
    low, high = (rows_from(source._layout.slots, edges) for edges in covered(source._intervals, source.length))
    some = low < high
    return Rows(*union(low[some], high[some]), source.stash.offsets.numpy())


def _spans(source: Windows | Stash, stash: Stash, columns: list[str]) -> dict[str, str]:
    """Which span is of which column."""
    if not columns:
        raise ValueError("columns= names at least one column; none was given.")
    for name in columns:
        tensor, kind = stash[name], stash.about(name)["kind"]
        if kind != "number" or tensor.dtype == torch.bool:
            what = tensor.dtype if kind == "number" else kind
            raise SchemaError(f"Numbers are scaled; column {name!r} is {what}. Leave it out.")
    if isinstance(source, Stash):
        return {name: name for name in columns}
    spans = {span.name: span.column for span in source.spans if span.column in columns}
    for name in columns:
        if name not in spans.values():
            raise unknown(name, {span.column: None for span in source.spans}, "the spans of the windows")
    return spans


def _fit(column: torch.Tensor, rows: Rows, kind: str, name: str) -> tuple[Floats, Floats, list[_Doubt]]:
    """Centre and scale of a column, `(groups, items)`, and what is doubtful about them."""
    with np.errstate(invalid="ignore", over="ignore"):  # infinite values are told of below
        count, center, scale = _KINDS[kind](column, rows)
        few: Bools = np.any(count < _FEWEST, axis=1)
        doubts: list[_Doubt] = []
        if rows.groups > 1 and few.any():
            pooled = Rows(rows.low, rows.high, rows.offsets[[0, -1]])
            every = _KINDS[kind](column, pooled)
            center[few], scale[few] = every[1], every[2]
            count = np.where(few[:, None], every[0], count)
            doubts = [("few", name, np.flatnonzero(few))]
    if not count.all() or not (np.isfinite(center) & np.isfinite(scale)).all():
        why = "infinite values" if count.all() else "no value but NaN"
        raise DataError(f"A scaler needs finite values; column {name!r} has {why} in the rows seen. Leave it out.")
    constant = np.flatnonzero((scale == 0).any(1))
    scale[scale == 0] = 1
    if len(constant):
        doubts.append(("equal", name, constant))
    return center, scale, doubts


def _doubts_text(doubts: list[_Doubt], stash: Stash, by: str | None) -> str:
    texts = []
    for kind, said in (("equal", "All values are equal, so the scale is 1"), ("few", "Too few values")):
        found = [(name, which) for what, name, which in doubts if what == kind]
        places = [repr(name) + (f" in {_entities(which, stash)}" if by else "") for name, which in found]
        if places:
            rest = f" and {len(places) - _NAMED} more columns" if len(places) > _NAMED else ""
            remedy = "; these take the statistics of all entities" if kind == "few" else ""
            texts.append(f"{said}: {', '.join(places[:_NAMED])}{rest}{remedy}.")
    return " ".join(texts)


def _entities(which: Int64s, stash: Stash) -> str:
    names = ", ".join(repr(stash.entities[k]) for k in which[:_NAMED])
    return f"{len(which):,} of {len(stash.offsets) - 1:,} entities ({names}{', ...' if len(which) > _NAMED else ''})"


def _entity(entity: torch.Tensor | None) -> torch.Tensor:
    if entity is None:
        raise ValueError(
            "A scaler by entity needs to know the entities. Make batches with ts.Loader(..., with_ids=True), or add "
            "batch['entity'] = windows.anchors(ids)['entity']."
        )
    return entity


def _scale_each(tensor: torch.Tensor, time: int, tiles: int, factor: torch.Tensor, shift: torch.Tensor) -> None:
    """Scale windows in place by constants of their own, `(windows, tiles * items)`; `time` is the slots' dimension.

    Those of a pack are tiled over some slots: an inner loop over the few numbers of one slot is several times slower.
    """
    windows, slots, tail = tensor.shape[:time], tensor.shape[time], tensor.shape[time + 1 :]
    if not tail:
        tensor.mul_(factor.view(*windows, 1)).add_(shift.view(*windows, 1))
        return
    tiled = slots - slots % tiles if tiles > 1 else 0
    if tiled:
        flat = tensor.narrow(time, 0, tiled).view(*windows, tiled // tiles, -1)
        torch.addcmul(shift.view(*windows, 1, -1), flat, factor.view(*windows, 1, -1), out=flat)
    rest, items = tensor.narrow(time, tiled, slots - tiled), tail.numel()
    torch.addcmul(shift[:, :items].view(*windows, 1, *tail), rest, factor[:, :items].view(*windows, 1, *tail), out=rest)


def _short(values: torch.Tensor) -> str:
    if values.numel() <= 4:
        return ", ".join(f"{value:.4g}" for value in values.flatten().tolist())
    return f"{values.min().item():.4g} to {values.max().item():.4g}"


def _standard(column: torch.Tensor, rows: Rows) -> _Fitted:
    count, mean, variance = moments(column, rows)
    return count, mean, np.sqrt(variance)


def _minmax(column: torch.Tensor, rows: Rows) -> _Fitted:
    count, low, high = extremes(column, rows)
    return count, low, high - low


def _robust(column: torch.Tensor, rows: Rows) -> _Fitted:
    count, (lower, median, upper) = quantiles(column, rows, (0.25, 0.5, 0.75))
    return count, median, upper - lower


def _maxabs(column: torch.Tensor, rows: Rows) -> _Fitted:
    count, low, high = extremes(column, rows)
    return count, np.zeros_like(low), np.maximum(np.abs(low), np.abs(high))


_KINDS = {"standard": _standard, "minmax": _minmax, "robust": _robust, "maxabs": _maxabs}
