"""Random orders and layouts of ranks, and passes of all ranks with their states, resumed on other ranks."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import torch

from tests.differential.library import ts
from tests.differential.record import Record

ON_DEVICE = "device=accelerator"
MOST_STEPS = 24  # of a pass that is recorded


@dataclass(frozen=True)
class Layout:
    """How steps are divided: ranks, and the sizes of batches."""

    ranks: int
    batch_size: int | None
    sizes: Mapping[str, Any]  # arguments of the loaders of all ranks

    def of(self, rank: int) -> dict[str, Any]:
        """The arguments of one rank."""
        return {"num_replicas": self.ranks, "rank": rank, **self.sizes}


class ByEpoch:
    """Ids of the caller's own, other ones in each epoch."""

    def __init__(self, ids: list[int]) -> None:
        self._ids = ids
        self._epoch = 0

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[int]:
        turn = self._epoch % len(self._ids)
        return iter(self._ids[turn:] + self._ids[:turn])

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch."""
        self._epoch = epoch


def layout(rng: Random, *, size: int | None = None) -> Layout:
    """Some ranks; `size` is the number of windows in a step of all ranks, if it is given."""
    ranks = rng.choice([1, 1, 1, 2, 2, 3, 4])
    if size is not None:
        ranks = rng.choice([n for n in (1, 2, 3, 4) if size % n == 0])
        return Layout(ranks, size // ranks, {})
    batch_size = rng.choice([1, 2, 3, 5, 8, 8, 13, 33])
    if rng.random() < 0.2:
        return Layout(ranks, None, {"global_batch_size": batch_size * ranks})
    return Layout(ranks, batch_size, {})


def order(rng: Random, record: Record, n: int, windows: Any = None, *, size: int | None = None) -> dict[str, Any]:
    """The argument that sets the order of `n` windows; of a sampler alone, without windows."""
    kinds = ["False", "True", "True", "Blocks", "Weighted"]
    of_windows = ["ids", "ByTime", "PerEntity", "by entity"]
    kinds += ["Lanes"] if size is not None else of_windows if windows is not None else []
    kind = "Lanes" if size is not None and rng.random() < 0.8 else rng.choice(kinds)
    record.has(f"order={kind}")
    if kind in ("False", "True"):
        return {"shuffle": kind == "True"}
    if kind == "Blocks":
        return {"order": ts.Blocks(rng.choice([1, 2, 5, 16]))}
    if kind == "Lanes":
        return {"order": ts.Lanes(size)}
    if kind == "ByTime":
        return {"order": ts.ByTime(rng.random() < 0.5)}
    if kind == "PerEntity":
        return {"order": ts.PerEntity(rng.choice([1, 2, 5, 40]))}
    if kind == "ids":
        return {"order": _own_ids(rng, n)}
    return {"order": weighted(rng, n, windows, by_entity=kind == "by entity")}


def _own_ids(rng: Random, n: int) -> Any:
    ids = [rng.randrange(n) for _ in range(rng.randint(1, 40))]
    return rng.choice([ids, np.array(ids), torch.tensor(ids), ByEpoch(ids)])


def weights_of(rng: Random, n: int) -> Any:
    """Weights, some of them 0."""
    weights = [rng.choice([0, 1, 1, 2, 7.5, 1e-9]) for _ in range(n)]
    weights[rng.randrange(n)] = 3
    return rng.choice([weights, np.array(weights), torch.tensor(weights, dtype=torch.float32)])


def weighted(rng: Random, n: int, windows: Any, *, by_entity: bool) -> Any:
    """Draws by weight of windows, or of entities."""
    more: dict[str, Any] = {} if rng.random() < 0.5 else {"epoch_size": rng.randint(1, 60)}
    if windows is None or not by_entity:
        column = rng.choice(["k", "positive", "u", "weight", "yfill"])
        named = windows is not None and rng.random() < 0.3
        return ts.Weighted(column if named else weights_of(rng, n), **more)
    names = windows.stash.entities
    weights = rng.choice(["size", dict(zip(names, weights_of(rng, len(names)))), weights_of(rng, len(names))])
    return ts.Weighted(weights, per="entity", **more)


def options(rng: Random) -> dict[str, Any]:
    """Arguments that samplers and loaders have."""
    found: dict[str, Any] = {"seed": rng.choice([0, 0, 1, 7, -3, 2**40])}
    if rng.random() < 0.6:
        found["tail"] = rng.choice(["keep", "pad", "pad", "drop"])
    if rng.random() < 0.25:
        found["steps"] = rng.randint(1, 9)
    return found


def loader_options(rng: Random, record: Record) -> dict[str, Any]:
    """Arguments that loaders have besides."""
    found: dict[str, Any] = {}
    for name, chance in (("with_ids", 0.6), ("with_valid", 0.2), ("resident", 0.16)):
        if rng.random() < chance:
            found[name] = True
    if rng.random() < 0.25:
        found["prefetch"] = rng.randint(1, 3)
    if rng.random() < 0.1:
        found["device"] = "accelerator"  # the one of `python_device`, which cannot hold all types
        found.pop("resident", None)
        record.has(ON_DEVICE)
    return found


Make = Callable[[Layout, int], Any]  # a loader or a sampler of one rank


def passes(record: Record, rng: Random, make: Make, layouts: Callable[[], Layout]) -> None:
    """A pass that is left early, the rest of it on other ranks, and the pass after it."""
    first = layouts()
    ranks = [make(first, rank) for rank in range(first.ranks)]
    record.has(f"ranks={first.ranks}")
    record.add("lengths", [len(rank) for rank in ranks])
    if rng.random() < 0.3:
        _at_epoch(rng, ranks)
    if rng.random() < 0.25:
        run(record, "whole", ranks, MOST_STEPS)
    state = run(record, "begun", ranks, rng.randint(1, 6))
    second = layouts()
    again = [make(second, rank) for rank in range(second.ranks)]
    with record.trying("resume"):
        for rank in again:
            rank.load_state_dict(json.loads(json.dumps(state)))
        if rng.random() < 0.2:
            for rank in again:
                rank.set_epoch(state["epoch"])
        record.has(f"resumed={second.ranks}")
        run(record, "rest", again, MOST_STEPS)
        run(record, "after", again, rng.randint(1, 4))
    if rng.random() < 0.3:
        run(record, "next pass", ranks, 3)
    if rng.random() < 0.15:
        with record.trying("overtaken"):
            _overtaken(record, ranks[0], state)


def _overtaken(record: Record, loader: Any, state: Any) -> None:
    """A pass during which a state is loaded, and then another pass begins."""
    one = iter(loader)
    record.given("one", next(one, None))
    loader.load_state_dict(state)
    record.given("one goes on", next(one, None))
    record.state("after both", loader.state_dict())
    other = iter(loader)
    record.given("other", next(other, None))
    record.given("overtaken", next(one, None))


def _at_epoch(rng: Random, ranks: list[Any]) -> None:
    epoch = rng.randint(1, 5)
    for rank in ranks:
        rank.set_epoch(epoch)


def run(record: Record, label: str, ranks: list[Any], most: int) -> Any:
    """Steps of one pass on all ranks, at most so many, with the states between them; the last state comes back."""
    iterators = [iter(rank) for rank in ranks]
    state = ranks[0].state_dict()
    record.state(f"{label}: state before", state)
    for step in range(most):
        found = [next(iterator, None) for iterator in iterators]
        for rank, given in enumerate(found):
            record.given(f"{label}: step {step} of rank {rank}", given)
        states = [rank.state_dict() for rank in ranks]
        state = states[0]
        record.state(f"{label}: state {step}", state)
        record.add(f"{label}: equal {step}", [one == state for one in states])
        if found[0] is None:
            break
    for iterator in iterators:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()
    record.state(f"{label}: state after", ranks[0].state_dict())
    return state
