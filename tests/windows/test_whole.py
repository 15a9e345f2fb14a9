"""Whole series, one window a run, against slices of the source."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests.oracle_load import like

pytestmark = pytest.mark.filterwarnings("ignore:Gaps make more:UserWarning")

Rows = list[tuple[int, int]]  # entity and time of each row
NONE = -1.0  # in a slot without a row


def slices(rows: Rows, gaps: str) -> list[list[float]]:
    """The numbers of the rows of each run, by a loop; in a gap that is masked there is none."""
    found: list[list[float]] = []
    before: tuple[int, int] | None = None
    for row, (entity, time) in enumerate(rows):
        step = 1 if before is None else time - before[1]
        if before is None or entity != before[0] or (gaps == "split" and step != 1):
            found.append([])
        elif gaps == "mask":
            found[-1] += [NONE] * (step - 1)
        found[-1].append(float(row))
        before = entity, time
    return found


def loaded(rows: Rows) -> ts.Stash:
    table = {"e": [e for e, _ in rows], "t": [t for _, t in rows], "row": np.arange(len(rows)) * 1.0}
    columns = {"row": ts.column("row", empty=NONE), "n": ts.column("row", dtype=torch.int64, empty=-7)}
    return ts.load(table, columns, entity="e", time="t")


def quiet(stash: ts.Stash, gaps: Any, spans: "Mapping[str, Any] | None" = None, **more: Any) -> ts.Windows:
    more |= {} if gaps == "ignore" else {"frequency": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of gaps
        return ts.Windows(stash, spans=spans or {"x": ("row", 0, None), "n": ("n", 0, None)}, gaps=gaps, **more)


ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 15)), min_size=1, max_size=30, unique=True).map(sorted)


@settings(max_examples=300)
@given(ROWS, ROWS, st.sampled_from(["split", "mask", "ignore"]))
def test_each_window_is_a_slice_of_the_source(rows: Rows, others: Rows, gaps: str) -> None:
    windows, expected = quiet(loaded(rows), gaps, max_slots=40), slices(rows, gaps)
    width = max(map(len, expected))
    padded = [one + [NONE] * (width - len(one)) for one in expected]
    batch = windows[:]
    assert batch["x"].tolist() == padded
    assert batch["n"].tolist() == [[-7 if row == NONE else int(row) for row in one] for one in padded]
    assert batch["x.observed"].tolist() == [[row != NONE for row in one] for one in padded]
    packed = ts.PackSequences("x", "n")(windows[:])
    assert packed["x"].tolist() == [row for one in expected for row in one if row != NONE]
    assert packed["x.offsets"].diff().tolist() == [sum(row != NONE for row in one) for one in expected]
    for part in windows.split_entities(0.5):
        assert not len(part) or part[:]["x"].shape[1] == width
    there = slices(others, gaps)
    if max(map(len, there)) > width:
        with pytest.raises(ts.errors.DataError, match=like("more than the width of these windows")):
            windows.on(loaded(others))
    else:
        assert windows.on(loaded(others))[:]["x"].tolist() == [one + [NONE] * (width - len(one)) for one in there]
    if width > 1:
        with pytest.raises(ts.errors.DataError, match=like(f"Give max_slots={width}, or")):
            quiet(loaded(rows), gaps, max_slots=width - 1)


LENGTHS = {"a": 5, "b": 9, "c": 1, "d": 7, "e": 3}


def recordings(**more: Any) -> ts.Windows:
    """Series of different lengths, each with a class."""
    frame = pl.concat(pl.DataFrame({"id": [name] * n, "t": range(n)}) for name, n in LENGTHS.items())
    frame = frame.with_columns(x=pl.int_range(pl.len()).cast(pl.Float32), u=pl.int_range(pl.len()) * 2.0)
    label = pl.DataFrame({"id": [*LENGTHS], "label": [0, 1, 0, 1, 1]})
    stash = ts.load(frame, {"x": ["x", "u"], "y": "u"}, entity="id", time="t", static=label, dtype=torch.float32)
    spans = {"x": ("x", 0, None), "y": ("y", 0, None)}
    return ts.Windows(stash, spans=spans, max_slots=100, **more)


def seen(batches: Any) -> list[float]:
    """The values of the rows in all batches, without filler."""
    found = []
    for batch in batches:
        held = batch["y.observed"].cpu()
        if "valid" in batch:
            held = held & batch["valid"].cpu()[:, None]
        found += batch["y"].cpu()[held].tolist()
    return sorted(found)


EVERY = [2.0 * row for row in range(sum(LENGTHS.values()))]
ORDERS: dict[str, dict[str, Any]] = {
    "sequential": {},
    "shuffled": {"shuffle": True},
    "blocks": {"order": ts.Blocks(2)},
    "by time": {"order": ts.ByTime()},
    "ids": {"order": [4, 2, 0, 1, 3]},
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("resident", [False, True])
def test_ranks_see_each_series_once_also_after_a_resume(order: str, resident: bool) -> None:
    windows = recordings()
    options: dict[str, Any] = ORDERS[order] | ({"resident": True, "device": "cpu"} if resident else {})
    loaders = [ts.Loader(windows, 1, num_replicas=2, rank=rank, **options) for rank in range(2)]
    assert sorted(seen(loaders[0]) + seen(loaders[1])) == EVERY
    first = [ts.Loader(windows, 1, num_replicas=2, rank=rank, **options) for rank in range(2)]
    before = seen([next(iter(loader)) for loader in first])
    rest = ts.Loader(windows, 2, **options)
    rest.load_state_dict(first[1].state_dict())
    assert sorted(before + seen(rest)) == EVERY


def test_labels_stay_with_their_series_padded_and_packed() -> None:
    windows = recordings()
    for transform in ([], [ts.PackSequences("x", "y")], [ts.PackSequences("y", "x", length=16)]):
        (batch,) = ts.Loader(windows, 5, transform=transform, with_ids=True)
        assert batch["label"].tolist() == [0, 1, 0, 1, 1]
        assert batch["anchor"].tolist() == [0] * 5
    (batch,) = ts.Loader(windows, 5, shuffle=True, with_ids=True)
    assert batch["label"].tolist() == [[0, 1, 0, 1, 1][k] for k in batch["entity"].tolist()]
    weighted = ts.Loader(windows, 4, order=ts.Weighted([0.0, 1.0, 0, 0, 0]))
    assert next(iter(weighted))["label"].tolist() == [1] * 4


def test_other_parts_of_the_library_take_them_as_other_windows() -> None:
    windows = recordings()
    assert windows.of(["b", "c"])[:]["y.observed"].sum(1).tolist() == [9, 1]
    assert windows.fingerprint() == recordings(min_horizon=1).fingerprint()
    assert len(recordings(min_horizon=4)) == 3
    scaler = ts.Scaler.fit(windows, ["y"])
    assert scaler.center["y"].item() == pytest.approx(np.mean(EVERY))
    cover = windows.cover("y")
    assert cover[:]["y"][~cover[:]["y.repeated"]].tolist() == EVERY
    for one in (windows, cover):
        frame = one.to_frame(slice(None), one[:]["y"])
        assert frame["value"].to_list() == EVERY
    each = ts.Windows(windows.stash, spans={"x": (ts.each("x"), 0, None)}, max_slots=9)
    assert each[:]["x"].shape == (10, 9)
    beside = {"x": ("y", 0, None), "near": ts.During("y", 0, 3, max_rows=3)}
    assert ts.Windows(windows.stash, spans=beside, max_slots=9)[:]["near"].shape == (5, 3)
    table = ts.During("y", 0, 3, max_rows=3, table="other")
    both = ts.Windows(windows.stash, spans=beside | {"far": table}, tables={"other": windows.stash}, max_slots=9)
    assert torch.equal(both[:]["far"].nan_to_num(-1), both[:]["near"].nan_to_num(-1))
    with torch.multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(seen, ([windows[:]],)) == EVERY
        assert pool.apply(gathered, (windows,)) == EVERY


def gathered(windows: ts.Windows) -> list[float]:
    """What another process sees."""
    return seen([windows[:]])


def test_a_mix_has_windows_of_one_width() -> None:
    wide = recordings()
    short = ts.load(
        {"id": [*"zzy"], "t": [0, 1, 0], "x": [0.0] * 3, "u": [100.0, 102.0, 104.0]},
        {"x": ["x", "u"], "y": "u"},
        entity="id",
        time="t",
        static=pl.DataFrame({"id": [*"yz"], "label": [0, 1]}),
        dtype=torch.float32,
    )
    (batch,) = ts.Loader(ts.Mix({"wide": wide, "short": wide.on(short)}), 7)
    assert seen([batch]) == [*EVERY, 100, 102, 104]
    with pytest.raises(ts.errors.SchemaError, match=like("Take windows.on(stash) of the component with the longest")):
        ts.Mix(
            {"wide": wide, "short": ts.Windows(short, spans={"x": ("x", 0, None), "y": ("y", 0, None)}, max_slots=9)}
        )


def test_on_other_data_only_chosen_entities_must_fit() -> None:
    windows = ts.Windows(loaded([(0, 0), (1, 0), (1, 1)]), spans={"x": ("row", 0, None)}, max_slots=9)
    other = loaded([(0, t) for t in range(5)] + [(1, 0), (1, 1)])
    assert windows.of([1]).on(other)[:]["x"].tolist() == [[5, 6]]
    with pytest.raises(ts.errors.DataError, match=like("The run of 0 from 0 on has 5 slots")):
        windows.on(other)


def test_they_are_not_divided_in_time() -> None:
    windows = recordings()
    for call in (
        lambda: windows.split(3),
        lambda: windows.split_fraction(0.5),
        lambda: windows.split_last(2),
        lambda: windows.folds(1, 1),
        windows.latest,
    ):
        with pytest.raises(ValueError, match=like("each of these windows holds all of its run")):
            call()
