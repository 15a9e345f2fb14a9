"""Scalers of some members of a pack, and of static columns: numpy over the rows and entities seen is the oracle."""

import json
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import tensorstash as ts
from tests.oracle_load import like
from tests.transforms.test_scaled_stash import bits

pytestmark = pytest.mark.filterwarnings(
    "ignore:No value, or only one", "ignore:.*have no window", "ignore:Gaps", "ignore:.*series"
)

SPANS: dict[str, Any] = {"past": ("x", -4, 0), "next": ("y", 0, 2), "rows": (ts.each("x"), -4, 0)}


def frame(seed: int = 0) -> pl.DataFrame:
    rng, lengths = np.random.default_rng(seed), [20, 31, 4, 25]
    rows = sum(lengths)
    t = np.concatenate([np.flatnonzero(rng.random(99) < 0.8)[:length] for length in lengths])
    table: dict[str, Any] = {"e": np.repeat([*"abcd"], lengths), "t": t, "y": rng.normal(3, 1, rows)}
    table |= {name: rng.normal(k, k, rows) for name, k in (("temp", 50), ("dewp", 9), ("flag", 1))}
    table["temp"][rng.random(rows) < 0.2] = np.nan
    return pl.DataFrame(table | {"height": np.repeat([1.5, 2.5, 900.0, np.nan], lengths)})


def loaded(dtype: torch.dtype | None = torch.float32, seed: int = 0, **more: Any) -> ts.Stash:
    columns = {"x": ["temp", "dewp", "flag"], "y": "y"}
    return ts.load(frame(seed), columns, entity="e", time="t", static=["height"], dtype=dtype, **more)


def windows_of(stash: ts.Stash, **more: Any) -> ts.Windows:
    return ts.Windows(stash, spans=SPANS, gaps="mask", **more)


@pytest.mark.parametrize("by", [None, "entity"])
@pytest.mark.parametrize("kind", ["standard", "minmax", "robust", "maxabs"])
def test_the_named_members_are_scaled_as_the_whole_pack_is_and_others_are_left(kind: Any, by: Any) -> None:
    windows = windows_of(loaded())
    whole = ts.Scaler.fit(windows, ["x"], kind=kind, by=by)
    some = ts.Scaler.fit(windows, {"x": ["dewp", "temp"]}, kind=kind, by=by)
    for found, of_all, other in ((some.center, whole.center, 0), (some.scale, whole.scale, 1)):
        assert torch.equal(found["x"][:, :2], of_all["x"][:, :2])
        assert (found["x"][:, 2] == other).all()
    again = ts.Scaler.from_state(json.loads(json.dumps(some.state_dict())))
    raw, one, all_of = (
        next(iter(ts.Loader(windows, 30, with_ids=True, transform=steps))) for steps in ([], [again], [whole])
    )
    scaled = next(iter(ts.Loader(some.transform(windows), 30, with_ids=True)))
    for name in ("past", "rows"):
        assert torch.equal(bits(one[name]), bits(scaled[name]))
    assert torch.equal(bits(one["past"][..., 2]), bits(raw["past"][..., 2]))
    assert torch.equal(bits(one["past"][..., :2]), bits(all_of["past"][..., :2]))
    assert torch.equal(bits(one["rows"][raw["rows.variate"] == 2]), bits(raw["rows"][raw["rows.variate"] == 2]))
    back = some.bind(windows).inverse(one)
    torch.testing.assert_close(back["past"], raw["past"], equal_nan=True, rtol=1e-4, atol=1e-4)


def test_a_member_that_cannot_be_scaled_does_not_matter_unless_it_is_named() -> None:
    rows = frame().with_columns(flag=pl.lit(float("inf")))
    stash = ts.load(rows, {"x": ["temp", "flag"]}, entity="e", time="t")
    assert ts.Scaler.fit(stash, {"x": ["temp"]}).center["x"][0, 1] == 0
    with pytest.raises(ValueError, match=like("must have finite values; 'x'")):
        ts.Scaler.fit(stash, {"x": ["flag"]})


def test_static_columns_are_scaled_over_the_entities_that_have_a_window() -> None:
    stash = loaded()
    windows = windows_of(stash).of(["a", "b", "d"])
    scaler = ts.Scaler.fit(windows, {"y": None, "height": None})
    assert (float(scaler.center["height"]), float(scaler.scale["height"])) == (2.0, 0.5)  # of 1.5 and 2.5
    every = ts.Scaler.fit(stash, ["height"], kind="minmax")
    assert (float(every.center["height"]), float(every.scale["height"])) == (1.5, 898.5)
    mix = ts.Mix({"one": windows, "two": windows_of(loaded(seed=1), min_history=1, min_horizon=0).of(["c"])})
    assert float(ts.Scaler.fit(mix, ["height"], kind="minmax").scale["height"]) == 898.5
    again = ts.Scaler.from_state(json.loads(json.dumps(scaler.state_dict())))
    scaled = scaler.transform(windows)
    assert scaled.fingerprint() == windows.fingerprint()
    assert scaled.stash.static["height"].nan_to_num(7).tolist() == [-1.0, 1.0, 1796.0, 7.0]
    about = scaled.stash.about("height")
    assert (about.low, about.high, about.is_scaled, about.missing) == (-1.0, 1796.0, True, 1)
    for resident in (False, True):
        loader = ts.Loader(windows, 16, transform=[again], resident=resident)
        for one, two in zip(loader, ts.Loader(scaled, 16, resident=resident), strict=True):
            assert all(torch.equal(bits(one[name]), bits(two[name])) for name in one)
            raw = scaler.inverse(two)["height"]
            assert {*raw[raw.isfinite()].tolist()} <= {1.5, 2.5}
    assert scaler.inverse(torch.tensor([-1.0, 1.0]), "height").tolist() == [1.5, 2.5]
    assert scaler.transform(windows, dtype=torch.float64).stash.static["height"].dtype == torch.float64
    assert windows.on(scaled.stash).fingerprint() == windows.fingerprint()
    with pytest.raises(ValueError, match=like("A column must be scaled once; 'height'")):
        ts.Loader(scaled, 4, transform=[ts.Scaler.fit(windows, ["height"])])
    with pytest.raises(ValueError, match=like("A column must be scaled once; 'height'")):
        ts.Scaler.fit(scaled, ["height"])


def test_a_service_scales_them_as_the_training_did() -> None:
    windows = windows_of(loaded(), min_horizon=0)
    scaler = ts.Scaler.fit(windows, {"x": ["dewp"], "height": None})
    rows = frame().filter(pl.col("e").is_in(["b", "d"]))
    newest = windows.on(ts.load(rows, like=loaded().without_rows())).latest()
    one = next(iter(ts.Loader(newest, 9, transform=[ts.Scaler.from_state(scaler.state_dict())])))
    two = scaler.transform(newest)[:]
    assert all(torch.equal(bits(one[name]), bits(two[name])) for name in two)
