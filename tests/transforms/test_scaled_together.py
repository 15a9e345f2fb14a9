"""Scalers with `together=True`: the statistics of all columns of a pack are those of numpy over the flattened pack.

It reaches inside for smaller blocks of rows, and for what the nodes of shards tell each other.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import tensorstash as ts
from tensorstash.cluster.shard_statistics import of_all, of_node
from tensorstash.stash import row_statistics
from tensorstash.transforms.scaler import scaler_of
from tests.cluster.nodes import on_nodes
from tests.words import By
from tests.words import ScalerKind as Kind

KINDS = get_args(Kind)


def table(lengths: list[int], width: int, holes: float, seed: int) -> dict[str, Any]:
    """A panel of packs; each entity and each column is on a level of its own, and some values are missing."""
    rng, rows = np.random.default_rng(seed), sum(lengths)
    entity = np.repeat(np.arange(len(lengths)), lengths)
    columns = {f"s{k}": rng.normal(entity * 10.0 + 3 * k, 1 + k) for k in range(width)}
    for values in columns.values():
        values[rng.random(rows) < holes] = np.nan
    time = np.concatenate([np.arange(length) for length in lengths])
    return {"e": entity, "t": time, "row": np.arange(rows), **columns}


def stash_of(lengths: list[int], width: int, holes: float, seed: int, masked: bool = False) -> ts.Stash:
    """The columns as one pack; with `masked`, a filled value and a flag stand for each missing one."""
    data, names = table(lengths, width, holes, seed), [f"s{k}" for k in range(width)]
    columns: dict[str, Any] = {"x": ts.column(names, fill=-999.0), "ok": ts.is_valid(names)} if masked else {"x": names}
    return ts.load(data, columns | {"row": "row"}, entity="e", time="t")


def expected(values: NDArray[Any], kind: str) -> tuple[float, float]:
    """The centre and the scale of all numbers of some rows of a pack."""
    flat = values.astype(np.float64).reshape(-1)
    flat = flat[~np.isnan(flat)]
    if kind == "standard":
        center, scale = flat.mean(), flat.std()
    elif kind == "robust":
        low, center, high = np.quantile(flat, [0.25, 0.5, 0.75])
        scale = high - low
    else:
        center, scale = (flat.min(), np.ptp(flat)) if kind == "minmax" else (0.0, np.abs(flat).max())
    return float(center), float(scale) or 1.0


def check(scaler: ts.Scaler, group: int, values: NDArray[Any], kind: str) -> None:
    """All columns of the pack have the constants of numpy."""
    for found, wanted in zip((scaler.center["x"], scaler.scale["x"]), expected(values, kind)):
        assert found.shape[1:] == values.shape[1:]
        assert len(np.unique(found[group].numpy())) == 1
        np.testing.assert_allclose(found[group].numpy(), wanted, rtol=1e-11, atol=1e-11)


@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=4),
    width=st.integers(1, 5),
    masked=st.booleans(),
    history=st.integers(1, 3),
    cut=st.integers(4, 20),
    kind=st.sampled_from(KINDS),
    by=st.sampled_from([None, "entity"]),
    seed=st.integers(0, 99),
)
@settings(max_examples=80)
@pytest.mark.filterwarnings("ignore")  # of entities that have no window
def test_constants_are_those_of_the_flattened_pack(
    lengths: list[int], width: int, masked: bool, history: int, cut: int, kind: Kind, by: By | None, seed: int
) -> None:
    """Of the rows that windows see, whatever the number of their spans; of each entity, else of all."""
    plain = stash_of([10, *lengths], width, 0.2, seed)
    stash = stash_of([10, *lengths], width, 0.2, seed, masked)
    spans = {"past": ("x", -history, 0), "next": ("x", 0, 1), "row": ("row", -history, 1)}
    train = ts.Windows(stash, spans=spans).split(cut)[0]
    rows = np.unique(train[:]["row"].numpy())
    seen = plain["x"].numpy()[rows]
    assume(not np.isnan(seen).all())
    scaler = ts.Scaler.fit(train, ["x"], kind=kind, by=by, together=True)
    assert scaler.spans == {"past": "x", "next": "x"}
    assert scaler.rows == len(rows)
    if by is None:
        check(scaler, 0, seen, kind)
    entity = np.searchsorted(stash.offsets.numpy(), rows, "right") - 1
    for k in range(len(stash.entities) if by else 0):
        own = seen[entity == k]
        check(scaler, k, own if (~np.isnan(own)).sum() > 1 else seen, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", [1, 7, 1 << 16])
def test_blocks_make_no_difference(kind: Kind, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stash = stash_of([20, 1, 30], 3, 0.1, 0)
    monkeypatch.setattr(row_statistics, "_BLOCK", block)
    check(ts.Scaler.fit(stash, ["x"], kind=kind, together=True), 0, stash["x"].numpy(), kind)


@pytest.mark.parametrize("by", [None, "entity"])
def test_batches_predictions_states_and_scaled_stashes_have_one_constant(by: By | None) -> None:
    stash = stash_of([30, 40], 4, 0.0, 1)
    windows = ts.Windows(stash, history=5, horizon=2, columns=["x"])
    fitted = ts.Scaler.fit(windows, ["x"], by=by, together=True)
    again = ts.Scaler.from_state(json.loads(json.dumps(fitted.state_dict())))
    for scaler in (fitted, again):
        (batch,) = ts.Loader(windows, 1000, transform=[scaler], with_ids=True)
        entity = batch["entity"]
        group = entity if by else torch.zeros_like(entity)
        center, scale = (values["x"][group, 0].view(-1, 1, 1) for values in (scaler.center, scaler.scale))
        torch.testing.assert_close(batch["x"], (windows[:]["x"] - center) / scale)
        bound = scaler.bind(windows)
        restored = bound.inverse(batch["x"].clone(), "x", entity if by else None)
        torch.testing.assert_close(restored, windows[:]["x"])
        once = ts.Windows(scaler.transform(stash), history=5, horizon=2, columns=["x"])
        assert torch.equal(once[:]["x"], batch["x"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by", [None, "entity"])
def test_a_mix_is_fitted_over_the_packs_of_all_components(kind: Kind, by: By | None) -> None:
    stashes = [stash_of([30, 40], 3, 0.1, 1), stash_of([25], 3, 0.1, 2)]
    parts = {f"part {k}": ts.Windows(stash, history=1, columns=["x"]) for k, stash in enumerate(stashes)}
    scaler = ts.Scaler.fit(ts.Mix(parts), ["x"], kind=kind, by=by, together=True)
    values = [stash["x"].numpy() for stash in stashes]
    groups = [values[0][:30], values[0][30:], values[1]] if by else [np.concatenate(values)]
    for k, own in enumerate(groups):
        check(scaler, k, own, kind)


def test_a_sample_is_of_whole_rows() -> None:
    """All columns of a sampled row count, so where they are equal, `together` makes no difference."""
    rows = np.arange(1000.0)
    stash = ts.load({"a": rows, "b": rows, "c": rows}, {"x": ["a", "b", "c"]})
    one, apart = (ts.Scaler.fit(stash, ["x"], sample=37, seed=4, together=together) for together in (True, False))
    assert one.rows == 37
    torch.testing.assert_close(one.center["x"], apart.center["x"], rtol=1e-12, atol=0)
    torch.testing.assert_close(one.scale["x"], apart.scale["x"], rtol=1e-12, atol=0)


def test_new_entities_get_the_constants_of_all() -> None:
    stash = stash_of([30, 40], 3, 0.1, 1)
    scaler = ts.Scaler.fit(stash, ["x"], by="entity", unknown="pooled", together=True)
    new = ts.load({"e": [7], **{f"s{k}": [0.0] for k in range(3)}}, {"x": ["s0", "s1", "s2"]}, entity="e")
    check(scaler.bind(new), 0, stash["x"].numpy(), "standard")


@pytest.mark.parametrize("kind", ["standard", "minmax", "maxabs"])
@pytest.mark.parametrize("by", [None, "entity"])
def test_shards_on_any_number_of_nodes_have_the_constants_of_one_stash(
    kind: Kind, by: By | None, tmp_path: Path
) -> None:
    lengths, names = [20, 9, 31, 14, 8], ["s0", "s1"]
    ts.cluster.shard(
        table(lengths, 2, 0.1, 3), to=tmp_path / "cut", shards=3, columns={"x": names}, entity="e", time="t"
    )
    make = partial(ts.cluster.windows, spans={"past": ("x", -2, 0)})
    (here,) = on_nodes(tmp_path / "cut", 1, make)
    scaler = ts.cluster.fit_scaler(here, ["x"], kind=kind, by=by, together=True)
    assert ts.Scaler.fit(here, ["x"], kind=kind, by=by, together=True).state_dict() == scaler.state_dict()
    stash = stash_of(lengths, 2, 0.1, 3)
    rows = np.split(stash["x"].numpy(), np.cumsum(lengths)[:-1])
    groups = [rows[name] for name in scaler.entities] if by else [stash["x"].numpy()]
    for k, own in enumerate(groups):
        check(scaler, k, own, kind)
    several = on_nodes(tmp_path / "cut", 2, make)
    told = [of_node(windows.parts, ["x"], kind, by, together=True) for windows in several]
    merged = of_all(here.shards.entity_offsets, told, kind, by, pooled=False)
    assert scaler_of(here, merged, kind, by, "error").state_dict() == scaler.state_dict()


def test_what_is_no_pack_and_what_is_no_bool_is_refused() -> None:
    stash = ts.load({"a": [1.0, 2.0], "b": [1.0, 2.0]}, {"x": ["a", "b"], "a": "a"})
    with pytest.raises(ValueError, match=r"one centre and one scale; 'a' is no pack\. Load "):
        ts.Scaler.fit(stash, ["x", "a"], together=True)
    with pytest.raises(TypeError, match=r"together.*got 'yes'"):
        ts.Scaler.fit(stash, ["x"], together="yes")  # type: ignore[arg-type]  # wrong on purpose
