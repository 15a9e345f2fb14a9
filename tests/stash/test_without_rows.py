"""`stash.without_rows()`: the reference to ship with a model."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import tensorstash as ts
from tests.oracle_load import bits, like


def loaded(entities: int, rows: int, **options: Any) -> ts.Stash:
    """Many columns, some of them expressions and texts, and a static table."""
    names = [f"shop-{k:06d}" for k in range(entities)]
    frame = pl.DataFrame({"e": np.repeat(names, rows), "t": np.tile(np.arange(rows), entities)})
    frame = frame.with_columns(
        *(pl.lit(float(k)).alias(f"x{k}") for k in range(12)), *(pl.lit(f"text {k}").alias(f"k{k}") for k in range(4))
    )
    columns: dict[str, Any] = {f"x{k}": pl.col(f"x{k}") * 2 for k in range(6)} | {"pack": [f"x{k}" for k in range(12)]}
    columns |= {f"k{k}": f"k{k}" for k in range(4)} | {"e": "e", "given": ts.column("k0", vocabulary=["text 0"])}
    static = pl.DataFrame(
        {"e": names, "size": np.arange(entities * 1.0), "zone": [f"zone {k % 9}" for k in range(entities)]}
    )
    return ts.load(frame, columns, entity="e", time="t", static=static, dtype=torch.float32, **options)


def test_it_takes_at_most_100_kb_for_1000_series_whatever_they_had(tmp_path: Path) -> None:
    sizes = []
    for rows in (1, 200):
        loaded(1000, rows).without_rows().save(tmp_path / "reference.safetensors")
        sizes.append(os.path.getsize(tmp_path / "reference.safetensors"))
    assert sizes[0] == sizes[1] <= 100_000


def test_it_has_all_but_the_rows(tmp_path: Path) -> None:
    stash = loaded(3, 5)
    stash.without_rows().save(tmp_path / "reference.safetensors")
    for reference in (
        stash.without_rows(),
        ts.open(tmp_path / "reference.safetensors"),
        stash.without_rows().without_rows(),
    ):
        assert reference.rows == 0
        assert (reference.entities, reference.clock, reference.time_name) == (stash.entities, stash.clock, "t")
        assert reference.time_range == (None, None)
        assert [(name, tensor.dtype, tensor.shape[1:]) for name, tensor in reference.items()] == [
            (name, tensor.dtype, tensor.shape[1:]) for name, tensor in stash.items()
        ]
        texts = [name for name in stash if stash.about(name).kind == "category"]
        assert all(reference.vocabulary(name) == stash.vocabulary(name) for name in texts)
        assert all(torch.equal(reference.static[name], stash.static[name]) for name in stash.static)
        assert reference.about("zone") == stash.about("zone")
        assert (reference.about("x0").low, reference.about("given").unknown) == (None, 0)
        assert bits(reference) == bits(stash.without_rows())


def test_it_is_a_stash_like_any(tmp_path: Path, shm: Path) -> None:
    del shm
    reference = loaded(3, 5).without_rows()
    reference.save(tmp_path / "reference.safetensors")
    opened = ts.open(tmp_path / "reference.safetensors")
    assert bits(pickle.loads(pickle.dumps(opened))) == bits(reference)
    assert bits(reference.share("reference")) == bits(reference)
    assert "0 rows, 3 entities" in repr(reference)
    assert reference._repr_html_()
    assert reference.to_polars().shape == (0, 16)
    assert reference.describe(["x0", "size"])["count"].to_list() == [0, 3]
    assert reference.series("shop-000001")["x0"].tolist() == []
    with pytest.raises(ts.errors.NoWindowError, match=like("need 2 consecutive rows")):
        ts.Windows(reference, 2)


def test_a_stash_without_entities_and_times_has_one_too() -> None:
    stash = ts.load({"y": [1.5, 2.5], "k": ["a", None]})
    reference = stash.without_rows()
    assert (reference.rows, reference.entities, reference.time) == (0, [None], None)
    assert bits(ts.load({"y": [1.5, 2.5], "k": ["a", None], "z": [0, 0]}, like=reference)) == bits(stash)


def test_rows_change_nothing_in_it() -> None:
    one, two = loaded(3, 2), loaded(3, 9)
    assert one.without_rows().segment.crc == two.without_rows().segment.crc


STEPPED = [
    [0, 2, 4, 6, 10],
    pl.datetime_range(pl.datetime(2024, 1, 1), pl.datetime(2024, 1, 2), "1h30m", eager=True),
    pl.date_range(pl.date(2024, 1, 31), pl.date(2024, 8, 31), "1mo", eager=True),
    pl.datetime_range(pl.date(2024, 3, 29), pl.date(2024, 4, 9), "1d", time_zone="Europe/Berlin", eager=True),
    pl.datetime_range(pl.date(2024, 1, 1), pl.date(2034, 1, 1), "1q", eager=True),
]


@pytest.mark.parametrize("times", STEPPED)
def test_it_keeps_the_step_of_time(times: Any, tmp_path: Path) -> None:
    """Of two rows, of which one is missing between them, no other step could be found than their distance."""
    whole = pl.DataFrame({"t": times}).with_columns(y=pl.int_range(pl.len()).cast(pl.Float64))
    stash = ts.load(whole, ["y"], time="t")
    found = ts.Windows(stash, 2, gaps="mask").placement.slots.frequency
    stash.without_rows().save(tmp_path / "reference.safetensors")
    tail = ts.load(whole[[0, 2]], like=tmp_path / "reference.safetensors")
    again = ts.load(whole[[0, 2]], like=tail.without_rows())
    tail.save(tmp_path / "tail.safetensors")
    for rows in (tail, ts.open(tmp_path / "tail.safetensors"), again):
        windows = ts.Windows(rows, 2, gaps="mask")
        assert windows.placement.slots.frequency == found
        assert windows[:]["y.observed"].tolist() == [[True, False], [False, True]]
    single = ts.Windows(ts.load(whole[:1], like=stash.without_rows()), 1, 1, min_horizon=0)
    assert single.latest().to_frame([0], torch.zeros(1, 1))["t"][0] == whole["t"][1]


def test_a_step_that_is_given_or_of_other_rows_counts_more() -> None:
    hours = pl.datetime_range(pl.datetime(2024, 1, 1), pl.datetime(2024, 1, 2), "1h", eager=True)
    stash = ts.load(pl.DataFrame({"t": hours, "y": 1.0}), ["y"], time="t")
    later = pl.DataFrame({"t": [hours[0], hours[2], hours[4]], "y": 1.0})
    tail = ts.load(later, like=stash.without_rows())
    with pytest.raises(ts.errors.NoWindowError, match=like("frequency '1h'")):
        ts.Windows(tail, 2)
    assert len(ts.Windows(tail, 2, frequency="2h")) == len(ts.Windows(tail, 2, gaps="ignore")) == 2
    # rows tell their own step, unless it comes with times that are taken over from a reference
    for other in (ts.load(later, like=stash), ts.load(later, time="t", like=stash.without_rows())):
        assert len(ts.Windows(other, 2)) == 2


def test_rows_without_a_step_tell_none() -> None:
    events: Any = {"e": [*"aabb"], "t": [1, 1, 2, 9], "y": [1.0] * 4}
    versions = {"t": [1, 1, 2], "k": [1, 2, 2], "y": [1.0] * 3}
    for stash in (
        ts.load(events, ["y"], entity="e", time="t", duplicates="keep"),
        ts.load(versions, ["y"], time="t", known="k"),
        ts.load({"e": [*"ab"], "t": [1, 5], "y": [1.0] * 2}, ["y"], entity="e", time="t"),
        ts.load({"y": [1.0, 2.0]}),
        ts.load({"t": [-(1 << 62), 1 << 62], "y": [1.0, 2.0]}, ["y"], time="t"),
    ):
        assert stash.without_rows().info.frequency is None


def test_references_with_other_steps_make_other_shared_copies(shm: Path) -> None:
    rows = {"t": [0, 4], "y": [1.0, 2.0]}
    one, two = (ts.load({"t": [0, k, 2 * k], "y": [1.0] * 3}, ["y"], time="t").without_rows() for k in (2, 4))
    lengths = [len(ts.Windows(ts.load(rows, like=each, share="steps"), 2, gaps="mask")) for each in (one, two, one)]
    assert lengths == [2, 1, 2]
    del shm
