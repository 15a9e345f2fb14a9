"""`Mix`: windows of several stashes, sampled by weights or concatenated; a `Loader` takes a mix in place of windows."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

from tensorstash.common.checks import MOST_COUNT, at_least
from tensorstash.common.checks import shown as brief
from tensorstash.common.keywords import suggests_keywords
from tensorstash.common.text import counted, type_text
from tensorstash.errors import SchemaError
from tensorstash.sampling.components import components
from tensorstash.sampling.mixed import MixedOrder
from tensorstash.sampling.several import Several
from tensorstash.windows.chain import Chain
from tensorstash.windows.contents import Contents
from tensorstash.windows.identity import columns_of, meanings, of_numbers, placement_identity, widths_of
from tensorstash.windows.ids import Ids
from tensorstash.windows.meaning import OF_PACKS
from tensorstash.windows.placement import Placement
from tensorstash.windows.traits import Trait, clock_traits, column_traits, static_trait
from tensorstash.windows.windows import Windows


@suggests_keywords
class Mix(Several):
    """Windows of several stashes that a `Loader` samples together, each batch from all of them.

    With weights, at any point each component is within two windows of its share, and shows all of its windows before it
    repeats one; `loader.set_weights` changes them during a run. An epoch is then a count of windows. Without weights an
    epoch shows every window once. `shuffle=True` permutes the windows of each component, `False` interleaves them in
    order; there are no other orders. Ranks, tails and states work as in any loader.

    The numbers of all components must mean the same: they need the same spans, static columns and labels, of the same
    types, units, vocabularies, members and so on, and times of the same unit and zone. With `with_ids=True` batches
    hold `source`, `(batch,)` int64: the number of the component in the order of `windows`. `window`, `entity` and
    `anchor` then count within that component. Batches hold `<span>.observed` if any component has it.

    A mix is a data set of PyTorch too: `mix[k]`, and `mix[ids]` for a batch. Windows are numbered one component after
    the other, in the order of `windows`, and so are the ids that `ts.Loader(mix, ...).sampler` gives.

    Args:
        windows: a mapping from a name to windows. The order of windows depends on the names: keep them to resume a run.
        weights: a mapping from each name to a number of at least 0. By default the numbers of windows.
        epoch_size: windows per epoch. By default the number of windows of all components.

    Raises:
        SchemaError: a component differs from the first one; the message says how. ValueError: a weight is negative,
            infinite or NaN, all are 0, or one is missing. ColumnError: a weight of a name that no component has.
            TypeError: a weight is a truth value, or no number.

    Example:
        >>> import numpy as np, tensorstash as ts
        >>> a, b = (ts.Windows(ts.load({"y": np.arange(n) + n}), history=1) for n in (4, 10))
        >>> mix = ts.Mix({"a": a, "b": b}, weights={"a": 1, "b": 1}, epoch_size=12)
        >>> [batch["y"][:, 0].tolist() for batch in ts.Loader(mix, 6)]
        [[4, 10, 5, 11, 6, 12], [7, 13, 4, 14, 5, 15]]
        >>> mix[[0, 4, -1]]["y"][:, 0]
        tensor([ 4, 10, 19])
    """

    def __init__(
        self, windows: Mapping[str, Windows], weights: Mapping[str, float] | None = None, epoch_size: int | None = None
    ) -> None:
        if not isinstance(windows, Mapping):
            raise TypeError(f"windows must be a mapping from names to windows, got {type_text(windows)}.")
        for name, component in windows.items():
            if not isinstance(name, str):
                raise TypeError(
                    f"Names of the components of a mix must be texts, got {brief(name)}. Write {str(name)!r}."
                )
            if not isinstance(component, Windows):
                raise TypeError(f"Components of a mix must be ts.Windows; {name!r} is {type_text(component)}.")
        self.parts = self.windows = dict(windows)
        self.components = components({name: len(component) for name, component in windows.items()}, weights)
        self.contents = Contents(Chain(tuple(component.placement for component in windows.values())))
        self.is_weighted = weights is not None
        self.epoch_size = len(self) if epoch_size is None else at_least(1, epoch_size, "epoch_size", below=MOST_COUNT)
        self.order = partial(MixedOrder, self.components, self.epoch_size)
        self.numbers = np.arange(len(windows)), np.zeros(len(windows), np.int64)
        self.entities = self.warning = self.statistics = None
        self._meanings = self._checked_meanings()

    def __len__(self) -> int:
        """The number of windows of all components together, whatever `epoch_size` is."""
        return int(self.components.sizes.sum())

    def __getitem__(self, ids: int | Ids) -> dict[str, torch.Tensor]:
        """One window, tensors `(time, ...)`, for an integer; else a batch, tensors `(batch, time, ...)`.

        Args:
            ids: an integer, a list, an array or tensor of integers, or a slice; -1 is the last window of the last
                component.

        Raises:
            IndexError: an id outside `[-len(self), len(self))`.
        """
        return self.contents.window_or_batch(ids)

    def __getitems__(self, ids: Ids) -> list[dict[str, torch.Tensor]]:
        """Windows one by one, as PyTorch's `DataLoader` asks for them with `batch_size=`."""
        return self.contents.each_window(ids)

    def fingerprint(self) -> dict[str, Any]:
        """A small identity in plain values: equal mixes have equal fingerprints. States are compared by it.

        Example:
            >>> import tensorstash as ts
            >>> a, b = (ts.Windows(ts.load({"y": range(n)}), history=1) for n in (4, 10))
            >>> ts.Mix({"a": a, "b": b}).fingerprint() == ts.Mix({"b": b, "a": a}).fingerprint()
            False
        """
        parts = [placement_identity(component.placement) for component in self.windows.values()]
        for part in parts:  # thousands of equal dicts would keep the garbage collector busy
            part["spans"] = parts[0]["spans"]
        whole = {"windows": len(self), "epoch_size": self.epoch_size, "components": [*self.windows]}
        named = {f"component {name}": part for name, part in zip(self.windows, parts)}
        return whole | of_numbers(self._meanings) | named

    def _checked_meanings(self) -> dict[str, dict[str, Any]]:
        """What the entries of all batches mean; a component in which they mean something else is refused."""
        known: dict[str, tuple[str, Trait]] = {}
        whole: dict[str, dict[str, Any]] = {}
        for name, windows in self.windows.items():
            found = _common(windows.placement)
            for trait in _traits(windows, found):
                first, expected = known.setdefault(trait.text, (name, trait))
                if trait.value != expected.value:
                    raise SchemaError(
                        f"The components of a mix must have the same {trait.text}; {first!r} has {expected.told}, "
                        f"{name!r} has {trait.told}. {trait.remedy}"
                    )
            whole = whole or found
            for column, traits in found["columns"].items():  # the first component may have no value for empty slots
                whole["columns"][column] |= traits
        one, *_ = self.windows.values()  # all have spans, static columns and labels of the same names
        if "source" in (*(span.name for span in one.spans), *whole["static"], *whole["labels"]):
            raise SchemaError(
                "No span or static column of a mix may be named 'source': batches hold the component of each window "
                "under that name. Rename it."
            )
        return whole

    def __repr__(self) -> str:
        total, rest = sum(self.components.weights), len(self.windows) - _SHOWN
        shown = [*zip(self.components.weights, self.windows.items())][:_SHOWN]
        lines = [f"  {weight / total:7.2%}  {name}: {windows}" for weight, (name, windows) in shown]
        several = counted(len(self.windows), "component")
        head = f"Mix: {self.epoch_size:,} windows an epoch, of {several} with {len(self):,} windows"
        return "\n".join([head, *lines, *([f"  and {rest:,} more"] if rest > 0 else [])])


_SHOWN = 8  # components in a repr


def _common(placement: Placement) -> dict[str, dict[str, Any]]:
    """What the entries of a batch mean, without what components need not share."""
    found = meanings(placement)
    whole = {span.column for span in placement.spans if span.variates is None}
    for name in widths_of(placement).keys() - whole:
        found["columns"][name] = {trait: v for trait, v in found["columns"][name].items() if trait not in OF_PACKS}
    return found


def _traits(windows: Windows, found: Mapping[str, Mapping[str, Any]]) -> Iterator[Trait]:
    placement, stash = windows.placement, windows.stash
    texts = [*map(str, placement.slot_spans), *(text for time_span in placement.time_spans for text in time_span.texts)]
    of_each = [span.name for span in placement.slot_spans if span.variates is not None]
    yield Trait("spans of ts.each", of_each, "Take ts.each in the same spans of both.")
    alike = "Give both the same spans=, or the same history and horizon."
    if placement.is_whole:
        alike = "Take windows.on(stash) of the component with the longest run for the others, which keeps the width."
    yield Trait("spans", texts, alike)
    cover = placement.cover
    yield Trait("span of cover", None if cover is None else cover.span.name, "Call cover of the same span of both.")
    yield Trait("columns of at=", sorted(found["labels"]), "Give both frames the same columns.")
    for name, kind in found["labels"].items():
        yield Trait(f"type of {name!r} in at=", kind, "Cast it in one of the frames.")
    yield static_trait(found["static"])
    columns = columns_of(placement)
    for name, traits in (*found["columns"].items(), *found["static"].items()):
        yield from column_traits(*(columns[name][:2] if name in columns else (stash, name)), traits, name)
    yield from clock_traits(found["clock"])
