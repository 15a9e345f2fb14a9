"""An order is bound to a new object, so that loaders of different windows may share the one that a user writes.

Of the inside it takes the protocol of orders, as a user who writes one does.
"""

import copy
import doctest
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tensorstash as ts
from tensorstash.sampling.order import SequenceOrder
from tests.epochs import OBJECTS, shuffle_of, windows_of
from tests.oracle_load import like
from tests.project.pages import ROOT, blocks

SIZES = (18, 7)  # windows of the two loaders


def of_docstrings() -> Iterator[Any]:
    """The orders that docstrings and pages define, as they are executed."""
    texts = [path.read_text("utf-8") for path in (ROOT / "tensorstash").rglob("*.py")]
    examples = [text for text in texts if re.search(r"^ +\.\.\. +def bind\(", text, re.MULTILINE)]
    assert examples == [(ROOT / "tensorstash" / "sampling" / "order.py").read_text("utf-8")]
    sources = [block for path in (ROOT / "docs").rglob("*.md") for block in blocks(path) if "def bind(" in block]
    test = doctest.DocTestParser().get_examples(str(SequenceOrder.__doc__))
    sources.append("".join(example.source for example in test))
    for source in sources:
        namespace: dict[str, Any] = {}
        exec(source, namespace)
        found = [kind() for kind in namespace.values() if isinstance(kind, type) and hasattr(kind, "bind")]
        assert found, source
        yield from found


ORDERS = (
    {kind: shuffle_of(kind, 4, 7) for kind in OBJECTS}
    | {
        "weighted": ts.Weighted("i64"),
        "weighted by entity": ts.Weighted([1.0, 2.0], per="entity"),
        "by time": ts.ByTime(shuffle=True),
        "per entity": ts.PerEntity(3),
    }
    | {f"of a docstring, {k}": order for k, order in enumerate(of_docstrings())}
)


def loaders(order: Any) -> list[ts.Loader]:
    return [ts.Loader(windows_of(n), 4, order=order, seed=5, with_ids=True) for n in SIZES]


@pytest.mark.parametrize("name", ORDERS)
def test_loaders_of_different_windows_share_an_order(name: str) -> None:
    """They take turns, step by step and epoch by epoch, and each sees what it sees alone."""
    order = ORDERS[name]
    expected = [[batch["window"].tolist() for _ in range(3) for batch in loader] for loader in map(alone(order), SIZES)]
    both = loaders(order)
    passing: list[Iterator[Any]] = [iter(()), iter(())]
    seen: list[list[list[int]]] = [[], []]
    while any(len(own) < len(whole) for own, whole in zip(seen, expected)):
        for k, loader in enumerate(both):
            batch = next(passing[k], None)
            if batch is None:
                passing[k] = iter(loader)
                batch = next(passing[k])
            seen[k].append(batch["window"].tolist())
    assert [own[: len(whole)] for own, whole in zip(seen, expected)] == expected


def alone(order: Any) -> Any:
    """A loader with the order to itself."""
    return lambda n: ts.Loader(windows_of(n), 4, order=copy.deepcopy(order), seed=5, with_ids=True)


class Remembers(SequenceOrder):
    """It keeps the number of windows on the object that is shared."""

    name, fingerprint = "remembers", {}

    def bind(self, windows: Any) -> "Remembers":
        self.positions = len(windows)
        return self

    def at(self, seed: int, epoch: int) -> Any:
        return lambda positions: positions


class Times:
    """A transform that keeps what it is bound to."""

    def bind(self, windows: Any) -> "Times":
        self.count = len(windows)
        return self

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return batch


def test_what_is_bound_to_itself_is_refused() -> None:
    message = like("bind(windows) must return a new object ... returned itself. Set ... copy.copy(self)")
    with pytest.raises(TypeError, match=message):
        ts.Loader(windows_of(18), 4, order=Remembers())
    with pytest.raises(TypeError, match=message):
        ts.Loader(windows_of(18), 4, transform=[Times()])


def test_the_remedy_of_the_refusal_serves() -> None:
    class Copied(Remembers):
        def bind(self, windows: Any) -> Remembers:
            made = copy.copy(self)
            made.positions = len(windows)
            return made

    shared = Copied()
    ids = [np.concatenate([batch["window"] for batch in loader]).tolist() for loader in loaders(shared)]
    assert ids == [[*range(n)] for n in SIZES]


def test_a_transform_that_is_bound_to_nothing_is_refused() -> None:
    class Forgets(Times):
        def bind(self, windows: Any) -> Any:
            return None

    with pytest.raises(TypeError, match=like("bind(windows) of a transform must return a callable; ... returned None")):
        ts.Loader(windows_of(18), 4, transform=[Forgets()])
