"""`Mix`: windows of several stashes, sampled by weights or concatenated; a `Loader` takes a mix in place of windows."""

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from tensorstash.common.checks import at_least
from tensorstash.common.dtypes import Int64s
from tensorstash.errors import SchemaError
from tensorstash.gather.mixed import by_component
from tensorstash.gather.samples import one_by_one, put_together
from tensorstash.sampling.components import components
from tensorstash.sampling.shares import counts
from tensorstash.windows.ids import Ids, as_list, check_ids, is_one_id
from tensorstash.windows.windows import Windows


class Mix:
    """Windows of several stashes that a `Loader` samples together, each batch from all of them.

    With weights, every prefix of the run holds each component's share of the windows to within two windows; an epoch
    is only a count of windows. A component shows all of its windows before it repeats one. Without weights, the weight
    of a component is its number of windows, so an epoch shows every window once: the stashes are concatenated.
    `shuffle=True` permutes the windows of each component, `False` interleaves them in order; there are no other
    orders. Ranks, tails and states work as in any loader.

    All components need the same spans over columns of the same types, shapes, vocabularies and fills, the same static
    columns, and times of the same unit and zone. With `with_ids=True` batches hold `source`, `(batch,)` int64: the
    number of the component in the order of `windows`. `window`, `entity` and `anchor` then count within that component.
    Batches hold `<span>.observed` if any component has it.

    A mix is a data set of PyTorch too: `mix[k]`, and `mix[ids]` for a batch. Windows are numbered one component after
    the other, in the order of `windows`, and so are the ids that `ts.Loader(mix, ...).sampler` gives.

    Args:
        windows: a mapping from a name to windows. The order of windows depends on the names: keep them to resume a run.
        weights: a mapping from each name to a number of at least 0.
        count: windows per epoch; by default the number of windows of all components.

    Attributes:
        windows: the components by name.
        count: windows per epoch.

    Raises:
        SchemaError: a component differs from the first one; the message says how. ValueError: wrong weights.

    Example:
        >>> import numpy as np, tensorstash as ts
        >>> a, b = (ts.Windows(ts.load({"y": np.arange(n) + n}), history=1) for n in (4, 10))
        >>> mix = ts.Mix({"a": a, "b": b}, weights={"a": 1, "b": 1}, count=12)
        >>> [batch["y"][:, 0].tolist() for batch in ts.Loader(mix, 6)]
        [[4, 10, 5, 11, 6, 12], [7, 13, 4, 14, 5, 15]]
        >>> mix[[0, 4, -1]]["y"][:, 0]
        tensor([ 4, 10, 19])
    """

    def __init__(
        self, windows: Mapping[str, Windows], weights: Mapping[str, float] | None = None, count: int | None = None
    ) -> None:
        if not isinstance(windows, Mapping):
            raise TypeError(f"A mix takes a mapping from names to windows; got a {type(windows).__name__}.")
        for name, one in windows.items():
            if not isinstance(one, Windows):
                raise TypeError(f"A mix is of windows, ts.Windows(stash, ...); {name!r} is a {type(one).__name__}.")
        self.windows = dict(windows)
        self._of = components({name: len(one) for name, one in windows.items()}, weights)
        self.count = len(self) if count is None else at_least(1, count, "count")
        self._check_alike()

    def __len__(self) -> int:
        """The number of windows of all components together."""
        return int(self._of.sizes.sum())

    def __getitem__(self, ids: int | Ids) -> dict[str, torch.Tensor]:
        """One window, tensors `(time, ...)`, for an integer; else a batch, tensors `(batch, time, ...)`."""
        if is_one_id(ids):
            return {name: tensor[0] for name, tensor in self._gather(as_list(ids)).items()}
        return self._gather(ids)  # type: ignore[arg-type]

    def __getitems__(self, ids: Ids) -> list[dict[str, torch.Tensor]]:
        """Windows one by one: what PyTorch's `DataLoader` asks for if it is given `batch_size=`."""
        return one_by_one(self._gather(ids))

    def _gather(self, ids: Ids) -> dict[str, torch.Tensor]:
        """The batch of some windows, of which each component gathers its own."""
        component, own = self._of.split(check_ids(ids, len(self)))
        if not len(own):
            return self._part(0, own)
        parts = [(which, self._part(k, own[which])) for k, which in by_component(component)]
        return put_together(parts, len(own))

    def _part(self, k: int, own: Int64s) -> dict[str, torch.Tensor]:
        """A batch of component k, with `<span>.observed` if any component has it."""
        windows = [*self.windows.values()]
        batch = windows[k].gather(own)
        if windows[k]._fills is not None or all(one._fills is None for one in windows):
            return batch
        spans = {span.name: batch.pop(span.name) for span in windows[k].spans}
        seen = {f"{name}.observed": torch.ones(tensor.shape[:2], dtype=torch.bool) for name, tensor in spans.items()}
        return spans | seen | batch

    def fingerprint(self) -> dict[str, Any]:
        """A few plain values that identify the mix in a state."""
        parts = {f"component {name}": one.fingerprint() for name, one in self.windows.items()}
        about = {"windows": len(self), "count": self.count, "components": [*self.windows], "weights": self._of.weights}
        return about | parts

    def _check_alike(self) -> None:
        wanted: dict[str, tuple[str, Any]] = {}
        for name, windows in self.windows.items():
            for what, found in _traits(windows):
                first, value = wanted.setdefault(what, (name, found))
                if found != value:
                    raise SchemaError(
                        f"The components of a mix have the same {what}; {first!r} has {_short(value)}, {name!r} has "
                        f"{_short(found)}."
                    )
        if any("source" in (span.name, *windows.stash.static) for span in windows.spans):
            raise SchemaError(
                "Batches of a mix hold which component a window is of under 'source', so that no span and no static "
                "column has that name."
            )

    def _shown(self, begin: int, end: int) -> dict[str, int]:
        """How many of the positions `[begin, end)` of the endless sequence belong to each component."""
        before, after = (counts(self._of.tree, n) for n in (begin, end))
        return {name: two - one for name, one, two in zip(self.windows, before, after)}

    def __repr__(self) -> str:
        lines = [
            f"Mix: {self.count:,} windows an epoch, of {len(self.windows):,} components with {len(self):,} windows"
        ]
        total = sum(self._of.weights)
        for name, weight in [*zip(self.windows, self._of.weights)][:_SHOWN]:
            lines.append(f"  {weight / total:7.2%}  {name}: {self.windows[name]}")
        rest = len(self.windows) - _SHOWN
        return "\n".join([*lines, f"  and {rest:,} more"] if rest > 0 else lines)


_SHOWN = 8  # components in a repr


def _traits(windows: Windows) -> Iterator[tuple[str, Any]]:
    """Each property that must be the same in all components, with its name for the error message."""
    stash = windows.stash
    yield "spans", [str(span) for span in windows.spans]
    for name in dict.fromkeys(span.column for span in windows.spans):
        yield from _column(windows, name, stash[name])
        if windows._fills is not None:
            yield f"bits in empty slots of {name!r}", int(windows._fills[name])
    yield "static columns", [*stash.static]
    for name, tensor in stash.static.items():
        yield from _column(windows, name, tensor)
    yield "unit of times", stash.clock.unit
    yield "zone of times", stash.clock.zone


def _column(windows: Windows, name: str, tensor: Any) -> Iterator[tuple[str, Any]]:
    about = windows.stash.about(name)
    yield f"type of {name!r}", str(tensor.dtype)
    yield f"shape of {name!r}", tuple(tensor.shape[1:])
    yield f"kind of {name!r}", (about.kind, about.unit, about.zone)
    yield f"vocabulary of {name!r}", windows.stash.vocabulary(name) if about.kind == "category" else None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:80]}... (CRC {zlib.crc32(text.encode()):08x})"
