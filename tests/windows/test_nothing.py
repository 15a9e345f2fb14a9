"""Nothing chosen: batches and frames of no windows have the entries, shapes and types of all others."""

import warnings
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests import kernel
from tests.batches.golden import stash_of

KINDS: dict[str, dict[str, object]] = {
    "slots": {"past": ("f32", -3, 0), "step": ("i64", -4, 1, 2), "next": ("half", 0, 2)},
    "pack": {"pack": ("pack", -3, 1)},
    "drawn": {"drawn": ("f32", ts.Draw(-4, -1), 0)},
    "each": {"every": (ts.each("pack", "f32"), -3, 0)},
    "rows": {"rows": ts.During("f32", "-6h", "0h", max_rows=4, age=True)},
    "buckets": {"buckets": ts.During("pack", "-6h", "0h", every="2h", age=True)},
    "table": {"table": ts.During("f32", "-6h", "0h", max_rows=3, age=True, table="others")},
    "versions": {"versions": ts.During("wind", "-4h", "2h", every="1h", age=True, table="runs")},
}
NOTHING: list[Any] = [[], (), range(0), slice(0, 0), np.empty(0, np.int64), torch.empty(0, dtype=torch.int64)]


def runs_of(stash: ts.Stash) -> ts.Stash:
    """Forecasts for the times of a stash, known an hour before."""
    times = stash.to_polars()[str(stash.time_name)].unique().sort()
    frame = pl.DataFrame({"t": times, "wind": np.arange(float(len(times)))})
    return ts.load(frame, ["wind"], time="t", known=(pl.col("t") - pl.duration(hours=1)).alias("k"))


@pytest.mark.parametrize("way", kernel.WAYS)
@settings(max_examples=60)
@given(
    kinds=st.lists(st.sampled_from([*KINDS]), min_size=1, unique=True),
    gaps=st.sampled_from(["split", "mask"]),
    least=st.sampled_from([None, 1]),
    at_points=st.booleans(),
    seed=st.integers(0, 3),
)
def test_a_batch_of_nothing_has_the_entries_of_any_other(
    way: str, kinds: list[str], gaps: Any, least: int | None, at_points: bool, seed: int
) -> None:
    """Of no ids, of a part without windows, of a mix, into an earlier batch of nothing, and of a frame of nothing."""
    stash = stash_of("abc", 40, seed)
    spans = {name: span for kind in kinds for name, span in KINDS[kind].items()}
    named = {"others": stash, "runs": runs_of(stash)}
    tables = {
        name: table for name, table in named.items() if any(getattr(s, "table", None) == name for s in spans.values())
    }
    slots: dict[str, Any] = {"gaps": gaps, "min_history": least}
    if not any(isinstance(span, tuple) for span in spans.values()):
        slots = {}
    if at_points:
        rows = stash.to_polars().select(*stash.entity_names, str(stash.time_name))
        slots |= {"at": rows.with_columns(label=pl.lit(1.5)), "unmatched": "drop"}
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore", UserWarning)
        kernel.take(way, patch)
        windows = ts.Windows(stash, spans=spans, tables=tables or None, **slots)
        none, _ = windows.split("1900-01-01")
        expected = [*entries(windows[[0]]).items()]
        mix = ts.Mix({"a": windows, "b": windows})
        made = [
            *(of[ids] for of in (windows, none, mix) for ids in NOTHING),
            none[:],
        ]
    for batch in made:
        assert [*entries(batch).items()] == expected
        assert all(not tensor.numel() for name, tensor in batch.items())
    if windows.horizon or windows.history:
        nothing = windows.to_frame([], torch.empty(0, windows.horizon or windows.history))
        one = windows.to_frame([0], torch.zeros(1, windows.horizon or windows.history))
        assert (len(nothing), nothing.schema) == (0, one.schema)


def entries(batch: dict[str, torch.Tensor]) -> dict[str, tuple[torch.dtype, torch.Size]]:
    return {name: (tensor.dtype, tensor.shape[1:]) for name, tensor in batch.items()}
