"""Hypothesis strategies for the cases of `oracle_load`: ragged, interleaved, unsorted, with missing values."""

import math
from typing import Any

from hypothesis import strategies as st

from tests.oracle_load import DATES, KINDS, NUMBERS, STAMPS, TEXTS, Case, Form, Held, Kind, holds, kind_of, value

_NAMES = ["JFK", "", "Zürich", "東京", 'O\'Hare "x"']
_IDS = [7, -5, 0, 2**40, 3]
_TIME_KINDS = [kind_of("int64"), kind_of("uint16"), *STAMPS, *DATES]
_STARTS = {"s": 1_380_000_000, "ms": 1_380_000_000_000, "us": 1_380_000_000_000_000, "ns": 1_380_000_000 * 10**9}
MOST_ROWS = 24


@st.composite
def cases(draw: st.DrawFn, form: Form, kinds: list[Kind] = KINDS) -> Case:
    """A case whose columns a source of this form can hold."""
    entity_kind = draw(st.sampled_from([None, kind_of("int64"), *(kind for kind in TEXTS if holds(form, kind))]))
    time_kind = draw(st.sampled_from([None, *(kind for kind in _TIME_KINDS if holds(form, kind))]))
    keys = draw(
        st.lists(
            st.tuples(st.integers(0, 4), st.integers(0, 40)),
            max_size=MOST_ROWS,
            unique_by=(lambda key: key if entity_kind else key[1]) if time_kind else None,
        )
    )
    if draw(st.booleans()):
        keys = sorted(keys)
    ticks = _STARTS.get(str(time_kind and time_kind.unit), 100)
    entity = _entity(entity_kind, [k for k, _ in keys]) if entity_kind else None
    time = Held(time_kind, [ticks + t for _, t in keys]) if time_kind else None
    chosen = draw(st.lists(st.sampled_from([k for k in kinds if holds(form, k)]), min_size=1, max_size=5))
    columns = {f"c{k}": draw(_held(kind, k, len(keys))) for k, kind in enumerate(chosen)}
    cuts = draw(st.lists(st.integers(0, len(keys)), max_size=4))
    return Case(columns, entity, time, [0, *sorted(cuts), len(keys)])


def _entity(kind: Kind, codes: list[int]) -> Held:
    return Held(kind, [_NAMES[k] if kind.kind == "category" else _IDS[k] for k in codes])


@st.composite
def _held(draw: st.DrawFn, kind: Kind, column: int, rows: int) -> Held:
    """A column whose values tell column and row, some of them missing where the type or a fill allows it."""
    cells: list[Any] = [value(kind, column, row) for row in range(rows)]
    fill = draw(st.sampled_from([None, _fill(kind)]))
    if not rows:
        return Held(kind, cells, fill)
    some = st.lists(st.integers(0, rows - 1), max_size=4)
    if kind.floating:
        for row in draw(some):
            cells[row] = _in_place_of(cells[row], draw(st.sampled_from([math.nan, math.inf, -math.inf, -0.0])))
    if fill is not None or kind.floating or kind.kind == "category":
        for row in draw(some):
            cells[row] = _in_place_of(cells[row], None)
    return Held(kind, cells, fill)


def _fill(kind: Kind) -> Any:
    if kind.kind == "category":
        return "(none)"
    if kind.dtype.is_floating_point:
        return 0.25
    return True if kind in NUMBERS[:1] or kind.name == "list_of_bool" else 17


def _in_place_of(cell: Any, special: Any) -> Any:
    """The special value itself, or a list with it as its last item."""
    return [*cell[:-1], _in_place_of(cell[-1], special)] if isinstance(cell, list) else special
