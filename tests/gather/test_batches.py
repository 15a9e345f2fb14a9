"""Batches of windows beside a loop over slots: any dtypes, shapes, spans, steps, empty slots and ids."""

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests import oracle
from tests.epochs import ids_of
from tests.gather.cases import EMPTY, NAMES, Batch, Case, Series, cases, columns
from tests.words import Gaps

pytestmark = pytest.mark.filterwarnings("ignore:Gaps (cost|make)")
WHOLE = Series([[True] * 40, [True] * 25])
BROKEN = Series([[True, True, False, True] * 9 + [True], [True, False, False, False, True] * 5])


def check(batch: Batch, expected: Batch) -> None:
    """Equal names in equal order, shapes, dtypes and bits."""
    assert list(batch) == list(expected)
    for name, tensor in expected.items():
        assert oracle.same(batch[name], tensor), name


@settings(max_examples=150)
@given(cases(), st.data())
def test_a_batch_is_what_a_loop_over_slots_finds(case: Case, data: st.DataObject) -> None:
    count = len(case.expected_slots())
    if not count:
        with pytest.raises(ts.errors.NoWindowError, match="Windows need "):
            case.windows()
        return
    windows = case.windows()
    assert len(windows) == count
    ids = data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=9))
    expected = case.expected(windows.stash, ids)
    check(windows[ids], expected)
    check({name: tensor[None] for name, tensor in windows[ids[0]].items()}, case.expected(windows.stash, ids[:1]))


@pytest.mark.parametrize("gaps", ["split", "mask"])
@pytest.mark.parametrize("name", NAMES)
def test_every_column_at_every_step(name: str, gaps: str) -> None:
    """Steps up to 4 are gathered as a whole and sliced where there is no kernel, larger ones are strided."""
    spans = {f"by {step}": (name, -step - 1, 2 * step, step) for step in range(1, 9)}
    series = BROKEN if gaps == "mask" else WHOLE
    stash = series.stash()
    for own in [spans, *({one: span} for one, span in spans.items())]:
        case = Case(series, own, gaps)  # type: ignore[arg-type]
        windows = case.windows(stash)
        ids = [*range(len(windows))][::-1]
        check(windows[ids], case.expected(windows.stash, ids))


@pytest.mark.parametrize("gaps", ["split", "mask"])
def test_spans_of_equal_slots_whatever_their_columns_do_not_mix(gaps: str) -> None:
    """Columns of one width lie in one block of memory, and spans over equal slots of it are gathered together."""
    spans = {f"{name} {k}": (name, -3, 1 + k, 1 + k) for k, name in product((0, 1), NAMES)}
    case = Case(BROKEN if gaps == "mask" else WHOLE, spans, gaps)  # type: ignore[arg-type]
    windows = case.windows()
    ids = [0, len(windows) - 1, 3, 3]
    check(windows[ids], case.expected(windows.stash, ids))


def test_the_order_of_columns_in_memory_does_not_show() -> None:
    spans = {name: (name, -2, 2, 1) for name in NAMES}
    case = Case(BROKEN, spans)
    there, back = (case.windows(BROKEN.stash(names)) for names in (NAMES, NAMES[::-1]))
    check(back[:], there[:])


@pytest.mark.parametrize("name", NAMES)
def test_a_window_without_any_row_is_empty_throughout(name: str) -> None:
    """The only row of the series lies between the spans."""
    case = Case(Series([[True]]), {"past": (name, -4, -1, 1), "next": (name, 2, 5, 2)}, "mask", 0, 0)
    windows = case.windows()
    batch = windows[:]
    check(batch, case.expected(windows.stash, range(2)))
    assert not any(bool(tensor.any()) for span, tensor in batch.items() if span.endswith(".observed"))


def test_each_empty_slot_holds_the_value_of_its_column() -> None:
    """`empty=`, else NaN or code -1, which are no fill for what is missing in a row."""
    source = columns(3) | {"time_": [0, 1, 4]}
    chosen = {name: ts.column(name, empty=EMPTY.get(name)) for name in NAMES}
    windows = ts.Windows(ts.load(source, chosen, time="time_"), 4, 0, columns=NAMES, gaps="mask", frequency=1)
    for name, tensor in windows[[1]].items():
        if name.endswith(".observed"):
            assert tensor.tolist() == [[True, False, False, True]]
            continue
        value = EMPTY.get(name, -1 if name == "code" else float("nan"))
        assert oracle.same(tensor[0, 1], torch.full(tensor.shape[2:], value, dtype=tensor.dtype)), name


def test_an_empty_slot_has_the_value_of_empty_before_that_of_fill() -> None:
    source = {"time_": [0, 2], "a": [1, None], "b": [1, None], "s": ["x", None]}
    chosen = {
        "a": ts.column("a", fill=7, empty=8),
        "b": ts.column("b", fill=7),
        "s": ts.column("s", fill="none", empty="gap", vocabulary=["x", "none", "gap"]),
    }
    batch = ts.Windows(ts.load(source, chosen, time="time_"), 3, columns=["a", "b", "s"], gaps="mask", frequency=1)[0]
    assert batch["a"].tolist() == [1, 8, 7]
    assert batch["b"].tolist() == [1, 7, 7]
    assert batch["s"].tolist() == [0, 2, 1]


def test_the_calendar_goes_on_in_empty_slots() -> None:
    """Computed from the times that the slots stand for, also before the first row and behind the last."""
    days = ["2024-02-27", "2024-02-28", "2024-03-02"]
    source = {"t": np.array(days, "M8[D]"), "y": np.arange(3.0)}
    stash = ts.load(source, {"y": "y", "when": ts.calendar("day", "month")}, time="t")
    spans = {"past": ("when", -3, 0), "next": ("when", 0, 3, 2), "y": ("y", -1, 1)}
    windows = ts.Windows(stash, spans=spans, gaps="mask", min_history=1, min_horizon=1)
    calendar = [[25, 2], [26, 2], [27, 2], [28, 2], [29, 2], [1, 3], [2, 3], [3, 3], [4, 3]]
    count = len(windows)
    assert count == 4
    batch = windows[:]
    assert batch["past"].tolist() == [calendar[k : k + 3] for k in range(count)]
    assert batch["next"].tolist() == [calendar[k + 3 : k + 6 : 2] for k in range(count)]
    there = [False, False, True, True, False, False, True, False, False]
    assert batch["past.observed"].tolist() == [there[k : k + 3] for k in range(count)]
    assert batch["y.observed"].tolist() == [there[k + 2 : k + 4] for k in range(count)]


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("gaps", ["split", "mask"])
def test_a_batch_of_many_windows_is_each_of_its_windows(gaps: str) -> None:
    """Large enough for several threads to share it, in an order that is not that of the rows."""
    times = [True, True, True, gaps == "split"] * 900 + [True]
    names = ("f32", "i64", "u8", "pack", "grid", "flag")
    spans = {f"{name} {step}": (name, -20, 6, step) for name in names for step in (1, 5)}
    case = Case(Series([times, times]), spans, gaps)  # type: ignore[arg-type]
    windows = case.windows()
    ids = [(k * 7919) % len(windows) for k in range(4096)]
    batch = windows[ids]
    some = range(0, 4096, 97)
    check(
        {name: tensor[[*some]] for name, tensor in batch.items()}, case.expected(windows.stash, [ids[k] for k in some])
    )
    halves = [windows[ids[:2048]], windows[ids[2048:]]]
    check(batch, {name: torch.cat([half[name] for half in halves]) for name in batch})


@settings(max_examples=40)
@given(cases(), st.integers(1, 9), st.booleans(), st.integers(0, 2))
def test_batches_of_a_loader_are_those_of_the_loop(case: Case, batch_size: int, shuffle: bool, prefetch: int) -> None:
    """Several steps are gathered in one call."""
    count = len(case.expected_slots())
    if not count:
        return
    windows = case.windows()
    loader = ts.Loader(windows, batch_size, shuffle=shuffle, prefetch=prefetch)
    steps = ids_of(loader.sampler)
    assert sorted(k for ids in steps for k in ids) == [*range(count)]
    for batch, ids in zip(loader, steps, strict=True):
        check(batch, case.expected(windows.stash, ids))


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("gaps", ["split", "mask"])
def test_no_ids_make_an_empty_batch(gaps: Gaps, step: int) -> None:
    case = Case(BROKEN if gaps == "mask" else WHOLE, {name: (name, -2, 3, step) for name in NAMES}, gaps)
    windows = case.windows()
    for name, tensor in windows[[]].items():
        assert tensor.shape == (0, *windows[[0]][name].shape[1:])
        assert tensor.dtype == windows[[0]][name].dtype


def test_what_is_written_into_a_batch_stays_there() -> None:
    case = Case(BROKEN, {name: (name, -2, 2, 1) for name in NAMES})
    windows = case.windows()
    before = {name: tensor.clone() for name, tensor in windows.stash.items()}
    expected = case.expected(windows.stash, [0, 1])
    for _ in range(2):
        batch = windows[[0, 1]]
        check(batch, expected)
        for tensor in batch.values():
            tensor.zero_()
    assert all(oracle.same(windows.stash[name], tensor) for name, tensor in before.items())


def test_the_loop_can_fail() -> None:
    """A wrong row, a value of another column, a slot that is not empty: each is noticed."""
    case = Case(BROKEN, {"past": ("i64", -3, 0, 1), "next": ("pack", 0, 2, 1)})
    windows = case.windows()
    good = case.expected(windows.stash, [4])
    check(windows[[4]], good)
    wrong: list[Batch] = [
        case.expected(windows.stash, [5]),
        good | {"past": good["past"] + 1},
        good | {"past": good["past"].double()},
        good | {"next": good["next"][:, :, :2]},
        good | {"past.observed": ~good["past.observed"]},
        dict(reversed(good.items())),
    ]
    for other in wrong:
        with pytest.raises(AssertionError):
            check(windows[[4]], other)


@pytest.mark.parametrize("gaps", ["split", "mask"])
def test_no_write_into_a_batch_has_been_counted_before_it_is_seen(gaps: Gaps) -> None:
    """Not even where a batch is made alone. Autograd compares these counters."""
    case = Case(BROKEN if gaps == "mask" else WHOLE, {name: (name, -2, 3, 1) for name in NAMES}, gaps)
    for batch in [case.windows()[[3, 0]], *ts.Loader(case.windows(), 1000)]:
        assert {tensor._version for tensor in batch.values()} == {0}
