"""Spans over other stashes, against what polars finds for each window."""

from dataclasses import replace
from typing import Any

import polars as pl
import pytest
import torch
from hypothesis import given, reject, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests import kernel
from tests.windows.seen import NS, check
from tests.windows.worlds import World, at_points, expected_of, spans_of, world_of

worlds = st.builds(
    world_of,
    st.integers(0, 2**32 - 1),
    st.sampled_from(["same", "by", "none"]),
    st.sampled_from(["none", "known", "known", "events"]),
)


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    """Whether two batches have the same entries, types and bits."""
    return list(a) == list(b) and all(
        a[name].dtype == b[name].dtype and a[name].numpy().tobytes() == b[name].numpy().tobytes() for name in a
    )


@pytest.mark.parametrize("way", kernel.WAYS)
@given(world=worlds, horizon=st.integers(0, 2))
@settings(max_examples=60)
def test_windows_in_slots_see_the_table_around_their_anchor(way: str, world: World, horizon: int) -> None:
    """Units, zones, sides, buckets over changes of clocks, entities missing on either side; every window of a stash."""
    with pytest.MonkeyPatch.context() as patch:
        kernel.take(way, patch)
        stash, _ = world.own()
        own: dict[str, Any] = {"past": ("y", -2, 0), **({"next": ("y", 0, horizon)} if horizon else {})}
        others = spans_of(world)
        try:
            windows = ts.Windows(stash, spans=own | others, tables={"others": world.loaded()} if others else None)
        except ts.errors.NoWindowError:  # no series of this world has so many rows without a gap
            reject()
        batch = windows[:]
    anchors = windows.anchors(range(len(windows)))
    series = [stash.entities[k] for k in anchors["entity"].tolist()]
    times = [t * NS[world.own_unit] for t in anchors["time"].tolist()]
    for name, span in others.items():
        expected = [expected_of(world, span, s, t, "left" if horizon else "right") for s, t in zip(series, times)]
        check(batch, name, expected, world.tick, known=world.known is not None)


@pytest.mark.parametrize("way", kernel.WAYS)
@given(world=worlds, closed=st.sampled_from(["left", "right"]), size=st.integers(1, 5))
@settings(max_examples=60)
def test_windows_at_points_see_the_table_around_their_time(way: str, world: World, closed: Any, size: int) -> None:
    """At any time, in any order; the same from a loader and from resident columns."""
    with pytest.MonkeyPatch.context() as patch:
        kernel.take(way, patch)
        windows, expected = at_points(world, closed)
        batch = windows[:]
        of_loader, resident = (
            [*ts.Loader(windows, size, shuffle=True, seed=3, with_ids=True, device="cpu", resident=resident)]
            for resident in (False, True)
        )
        assert all(map(equal, of_loader, resident))
        assert all(equal(windows[one["window"]], {name: one[name] for name in batch}) for one in of_loader)
    for name, of_span in expected.items():
        check(batch, name, of_span, world.tick, known=world.known is not None)


@pytest.mark.parametrize("way", kernel.WAYS)
@given(
    seed=st.integers(0, 2**32 - 1),
    form=st.sampled_from(["same", "none"]),
    versions=st.sampled_from(["none", "known", "events"]),
    closed=st.sampled_from(["left", "right"]),
)
@settings(max_examples=30)
def test_a_stash_is_seen_by_itself_as_a_table_is(way: str, seed: int, form: str, versions: str, closed: Any) -> None:
    """Its own stretches and buckets, also over its own known times."""
    with pytest.MonkeyPatch.context() as patch:
        kernel.take(way, patch)
        world = world_of(seed, form, versions)
        world.own_unit = world.unit  # the times of the windows are those of the table
        stash = world.loaded()
        if not stash.rows:
            return
        at = stash.to_polars().select(pl.exclude("value", "issued")).gather_every(2)
        spans = spans_of(world)
        own = {name: replace(span, table=None) for name, span in spans.items()}
        others = ts.Windows(stash, spans=spans, tables={"others": stash}, at=at, closed=closed)
        assert equal(ts.Windows(stash, spans=own, at=at, closed=closed)[:], others[:])
