"""A stash of scaled columns yields the batches that its scaler makes of those of the stash."""

import copy
import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import tensorstash as ts
from tensorstash.errors import ColumnError, DataError, NoMemoryError, SchemaError
from tests.late_device import LateCopies
from tests.oracle_load import like
from tests.spaces import limit

ROWS = 90

pytestmark = pytest.mark.filterwarnings("ignore:Gaps cost")


def loaded(dtype: torch.dtype | None = None, **more: Any) -> ts.Stash:
    rng = np.random.default_rng(0)
    values = rng.normal(50, 20, (4, ROWS))
    values[0, [3, 40, 41]] = np.nan
    source = {
        "site": np.repeat(["a", "b", "c"], ROWS // 3),
        "t": [t for site in range(3) for t in range(ROWS // 3 + 4) if not 8 + site <= t < 12 + site],
        **{f"v{k}": column for k, column in enumerate(values)},
        "code": ["x", "y", None] * (ROWS // 3),
        "zone": np.repeat(["n", "s", "n"], ROWS // 3),
        "height": np.repeat([1.5, 2.5, 3.5], ROWS // 3),
    }
    columns = {"x": ["v0", "v1", "v2"], "y": ts.column("v3", empty=-7.0), "code": "code"}
    keys: dict[str, Any] = {"entity": "site", "time": "t", "static": ["zone", "height"]}
    return ts.load(pa.table(source), columns, dtype=dtype, **keys, **more)


def windows(stash: ts.Stash, **more: Any) -> ts.Windows:
    return ts.Windows(stash, spans={"past": ("x", -4, 0), "next": ("y", -2, 2), "code": ("code", -4, 0)}, **more)


def batches(stash: ts.Stash, transform: Any, **more: Any) -> list[dict[str, torch.Tensor]]:
    loader = ts.Loader(windows(stash, **more), 16, shuffle=True, with_ids=True, transform=transform)
    return [{name: entry.clone() for name, entry in batch.items()} for batch in loader]


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8) if tensor.is_floating_point() else tensor


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("by", [None, "entity"])
@pytest.mark.parametrize("more", [{}, {"gaps": "mask", "min_history": 2}])
def test_its_batches_are_those_of_the_scaler(dtype: torch.dtype, by: Any, more: dict[str, Any]) -> None:
    stash = loaded(dtype)
    scaler = ts.Scaler.fit(windows(stash, **more), ["x", "y"], by=by).bind(stash)
    scaled = scaler.transform(stash)
    assert scaled["x"].dtype == dtype
    expected, found = batches(stash, [scaler], **more), batches(scaled, [], **more)
    assert len(found) == len(expected) > 1
    for one, two in zip(expected, found):
        assert one.keys() == two.keys()
        for name in one:
            assert torch.equal(bits(one[name]), bits(two[name])), name
    prediction, entity = found[0]["next"], found[0]["entity"]
    raw = stash["y"][stash["y"].isfinite()]
    back = scaler.inverse(prediction[prediction != -7], "y") if by is None else scaler.inverse(prediction, "y", entity)
    assert by is not None or raw.min() - 1 <= back.min() <= back.max() <= raw.max() + 1


NANS = {torch.float16: 0x7E00, torch.bfloat16: 0x7FC0}


@pytest.mark.parametrize("dtype", NANS)
@pytest.mark.parametrize("way", ["scaler", "by entity", "norm", "cast", "cast on the host", "stash", "inverse"])
@pytest.mark.parametrize("resident", [False, True])
def test_nan_of_a_half_type_has_the_same_bits_wherever_it_stands(
    dtype: torch.dtype, way: str, resident: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's conversions and arithmetic give it others by its place in a tensor."""
    monkeypatch.setattr("tensorstash.batches.loader.copies_to", lambda _: None if resident else LateCopies())
    values = np.where(np.arange(400) % 3, np.arange(400.0), np.nan)
    values[::2] = np.where(np.isnan(values[::2]), -np.nan, values[::2])
    source = torch.float32 if "cast" in way else dtype
    stash = ts.load({"e": np.arange(400) // 200, "y": values}, {"y": ts.column("y", dtype=source)}, entity="e")
    by: Any = "entity" if way == "by entity" else None
    windows, scaler = ts.Windows(stash, 7), ts.Scaler.fit(stash, ["y"], by=by).bind(stash)
    steps: dict[str, Any] = {
        "norm": ts.InstanceNorm("y"),
        "cast": ts.Cast({"y": dtype}),
        "cast on the host": ts.Cast({"y": dtype}, on="host"),
        "inverse": lambda batch: scaler.inverse(scaler(batch)),
    }
    if way == "stash":
        windows = windows.on(scaler.transform(stash))
    transform = [] if way == "stash" else [steps.get(way, scaler)]
    for size in (1, 3, 8, 61, 388):
        held = resident and way != "cast on the host"  # which has no values of resident columns
        loader = ts.Loader(windows, size, with_ids=True, transform=transform, resident=held)
        for batch in itertools.islice(loader, 30):  # values repeat every six rows
            found = batch["y"].view(torch.int16)[batch["y"].isnan()]
            assert batch["y"].dtype == dtype
            assert found.eq(NANS[dtype]).all()
    nan = torch.full((5, 13), -np.nan, dtype=dtype)
    prediction = scaler.inverse(nan, "y", torch.zeros(5, dtype=torch.int64) if way == "by entity" else None)
    assert prediction.view(torch.int16).eq(NANS[dtype]).all()


def test_in_another_dtype_values_are_scaled_in_the_wider_one_and_rounded_once() -> None:
    stash = loaded(torch.float64)
    scaler = ts.Scaler.fit(stash, ["x", "y"])
    narrow = scaler.transform(stash, dtype=torch.float32)
    for name in ("x", "y"):
        exact = (stash[name] - scaler.center[name]) / scaler.scale[name]
        assert narrow[name].dtype == torch.float32
        assert torch.equal(bits(narrow[name]), bits(exact.to(torch.float32)))
    half = loaded(torch.bfloat16)
    wide = ts.Scaler.fit(half, ["y"]).transform(half, dtype=torch.float64)
    assert wide["y"].dtype == torch.float64


def test_everything_else_is_as_it_was_and_what_is_known_of_the_columns_fits_them() -> None:
    stash = loaded()
    scaler = ts.Scaler.fit(stash, ["x", "y"])
    scaled = scaler.transform(stash)
    assert [*scaled] == [*stash]
    assert (scaled.entities, scaled.offsets.tolist()) == (stash.entities, stash.offsets.tolist())
    assert scaled.time is not None
    assert torch.equal(scaled.time, stash.time)  # type: ignore[arg-type]
    assert torch.equal(scaled["code"], stash["code"])
    assert scaled.vocabulary("code") == stash.vocabulary("code")
    assert {name: part.tolist() for name, part in scaled.static.items()} == {
        name: part.tolist() for name, part in stash.static.items()
    }
    assert scaled.vocabulary("zone") == stash.vocabulary("zone")
    for name in ("x", "y"):
        values, about = scaled[name], scaled.about(name)
        assert (about.low, about.high) == (values[~values.isnan()].min().item(), values[~values.isnan()].max().item())
        assert about.missing == stash.about(name).missing == int(values.isnan().sum())
        assert (about.is_scaled, stash.about(name).is_scaled) == (True, False)
    assert scaled.about("code") == stash.about("code")


def test_values_written_into_the_tensors_are_scaled() -> None:
    stash = loaded()
    scaler = ts.Scaler.fit(stash, ["y"])
    stash["y"][0] = 1000.0
    stash["code"][0] = 1
    scaled = scaler.transform(stash)
    assert scaled["y"][0] == (1000.0 - scaler.center["y"][0]) / scaler.scale["y"][0]
    assert scaled["code"][0] == 1


def test_a_header_of_many_columns_still_fits() -> None:
    stash = ts.load({f"column {k}": [1.0, 1e9 / 7, k / 3] for k in range(700)})
    scaled = ts.Scaler.fit(stash, [*stash]).transform(stash, dtype=torch.float32)
    assert all(scaled.about(name).is_scaled for name in scaled)


def test_columns_without_rows_or_values() -> None:
    stash = ts.load({"y": [float("nan")] * 3, "z": [1.0, 2.0, 3.0]})
    scaler = ts.Scaler.fit(stash, ["z"])
    assert ts.Scaler.fit(stash, ["z"]).transform(stash).about("y").low is None
    empty = ts.load({"z": np.empty(0)})
    scaled = scaler.transform(empty)
    assert (len(scaled["z"]), scaled.about("z").low) == (0, None)


def test_a_copy_that_is_saved_or_shared_is_still_known_as_scaled(tmp_path: Path, shm: Path) -> None:
    stash = loaded()
    scaler = ts.Scaler.fit(windows(stash), ["x", "y"])
    scaled = scaler.transform(stash)
    scaled.save(tmp_path / "scaled.safetensors")
    for again in (ts.open(tmp_path / "scaled.safetensors"), scaled.share("scaled"), ts.attach("scaled")):
        assert torch.equal(bits(again["x"]), bits(scaled["x"]))
        with pytest.raises(ValueError, match=r"^A column must be scaled once; 'x' of this stash is scaled already\. "):
            scaler.transform(again)
        with pytest.raises(ValueError, match=r"^A column must be scaled once; 'x' of this stash"):
            ts.Loader(windows(again), 4, transform=[scaler])
        with pytest.raises(ValueError, match=r"^A column must be scaled once; 'x' of this stash"):
            ts.Loader(ts.Mix({"one": windows(scaled), "two": windows(again)}), 4, transform=[scaler])


def test_entities_are_found_by_name() -> None:
    stash = ts.load({"e": ["a", "a", "b", "b"], "y": [0.0, 2.0, 10.0, 30.0]}, ["y"], entity="e")
    later = ts.load({"e": ["b", "b", "c"], "y": [40.0, 50.0, 5.0]}, ["y"], entity="e")
    scaler = ts.Scaler.fit(stash, ["y"], by="entity", unknown="pooled")
    pooled = (5.0 - scaler.center["y"][-1]) / scaler.scale["y"][-1]
    assert scaler.transform(later)["y"].tolist() == [2.0, 3.0, pooled.item()]
    again = ts.Scaler.from_state(scaler.state_dict())
    assert again.transform(later)["y"].tolist() == scaler.transform(later)["y"].tolist()
    strict = ts.Scaler.fit(stash, ["y"], by="entity")
    with pytest.raises(DataError, match=r"1 of 2 are unknown, such as 'c'\."):
        strict.transform(later)


def test_what_cannot_be_scaled_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    stash = loaded()
    scaler = ts.Scaler.fit(stash, ["x", "y"])
    with pytest.raises(ColumnError, match=r"has no column 'x'; it has 'y'\.$"):
        scaler.transform(ts.load({"y": [1.0, 2.0]}))
    with pytest.raises(ValueError, match=r"^The last dimensions of 'x' must be \(3,\), after windows or slots, got "):
        scaler.transform(ts.load({"x": np.ones((2, 4)), "y": [1.0, 2.0]}))
    with pytest.raises(SchemaError, match=r"^A scaled column must be floating; 'y' is torch\.int64\. Load it with"):
        ts.Scaler.fit(stash, ["y"]).transform(ts.load({"y": [1, 2]}))
    with pytest.raises(
        TypeError, match=r"^dtype must be a floating dtype, such as torch\.float32, got torch\.int32\.$"
    ):
        scaler.transform(stash, dtype=torch.int32)
    monkeypatch.setattr("tensorstash.transforms.scaled_stash.memory_limits", lambda: [limit(100)])
    with pytest.raises(
        NoMemoryError, match=r"^A stash must fit into free memory; a scaled copy needs 4\.1 kB and 100 bytes"
    ):
        scaler.transform(stash)


def test_a_scaler_is_not_fitted_on_scaled_columns() -> None:
    stash = loaded()
    scaled = ts.Scaler.fit(stash, ["x"]).transform(stash)
    both = ts.Mix({"one": windows(scaled), "two": windows(scaled)})
    for source in (scaled, windows(scaled), both):
        with pytest.raises(ValueError, match=r"^A column must be scaled once; 'x' of this stash is scaled already\. "):
            ts.Scaler.fit(source, ["y", "x"])
    assert ts.Scaler.fit(windows(scaled), ["y"]).spans == {"next": "y"}


class Halves:
    """A transform of a guest that says which spans it scales."""

    scaled_spans = ("past",)

    def __call__(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        batch["past"] /= 2
        return batch


def test_a_loader_refuses_to_scale_what_the_stash_has_scaled(tmp_path: Path, shm: Path) -> None:
    """Whatever way the stash has gone since; by hand the batches are scaled again, and back."""
    stash = loaded()
    scaler = ts.Scaler.fit(windows(stash), ["x", "y"])
    scaled = scaler.transform(stash, dtype=torch.float32)
    scaled.save(tmp_path / "scaled.safetensors")
    copies = {
        "as it is": scaled,
        "opened": ts.open(tmp_path / "scaled.safetensors"),
        "shared": scaled.share("scaled"),
        "attached": ts.attach("scaled"),
        "pickled": pickle.loads(pickle.dumps(scaled.share("scaled"))),
    }
    assert all(copy.without_rows().about("x").is_scaled for copy in copies.values())
    sources: dict[str, Any] = {name: windows(copy) for name, copy in copies.items()}
    sources |= {"mix": ts.Mix({"one": windows(scaled)}), "on": windows(scaled).on(copies["opened"])}
    sources["later"] = windows(stash).on(scaled)
    for source in sources.values():
        for step in (scaler, Halves()):
            with pytest.raises(ValueError, match=like("A column must be scaled once ... Leave the scaler out")):
                ts.Loader(source, 4, transform=[step])
        (batch,) = ts.Loader(source, 1000)
        before = batch["next"].clone()
        raw = windows(stash)[:]["next"].float()
        torch.testing.assert_close(scaler.inverse(batch)["next"], raw, equal_nan=True)
        torch.testing.assert_close(scaler(batch)["next"], before, equal_nan=True)
    only_code = ts.Windows(scaled, spans={"past": ("code", -4, 0)})
    assert len([*ts.Loader(only_code, 1000, transform=[ts.Cast({"past": torch.float32}), Halves()])]) == 1
    with pytest.raises(ValueError, match=like("scaled once; 'past' is scaled by two transforms")):
        ts.Loader(windows(stash), 4, transform=[scaler, Halves()])
    scaled_rows = ts.Windows(stash, spans={"past": (ts.each("x"), -4, 0)})
    with pytest.raises(ValueError, match=like("scaled once; 'past' is scaled by two transforms")):
        scaler = ts.Scaler.fit(scaled_rows, ["x"])
        ts.Loader(scaled_rows, 4, transform=[scaler, scaler])


@pytest.mark.parametrize("by", [None, "entity"])
def test_a_scaler_that_is_bound_to_scaled_windows_scales_their_batches_back(by: Any) -> None:
    stash = loaded()
    scaler = ts.Scaler.fit(windows(stash), ["x", "y"], by=by)
    scaled = windows(scaler.transform(stash))
    raw = next(iter(ts.Loader(windows(stash), 1000, with_ids=True)))
    batch = next(iter(ts.Loader(scaled, 1000, with_ids=True)))
    back = scaler.bind(scaled).inverse(batch)
    for name in ("past", "next"):
        torch.testing.assert_close(back[name], raw[name], equal_nan=True)


def test_windows_of_a_stash_go_on_over_its_scaled_copy() -> None:
    """With their part of a state; but windows of scaled columns do not go on over raw ones, which a model would see."""
    stash = loaded()
    scaler = ts.Scaler.fit(windows(stash), ["x", "y"])
    for dtype in (None, torch.float32, torch.bfloat16):
        scaled = scaler.transform(stash, dtype=dtype)
        found, expected = windows(stash).on(scaled), windows(scaled)
        assert found.fingerprint() == expected.fingerprint() == windows(stash).fingerprint()
        one, two = found[:], expected[:]
        assert all(torch.equal(bits(one[name]), bits(two[name])) for name in two)
        with pytest.raises(SchemaError, match=like("need the same ... Apply a scaler to both")):
            windows(scaler.transform(stash)).on(stash)


def test_a_scaler_is_copied_and_pickled() -> None:
    scaler = ts.Scaler.fit(ts.load({"y": [1.0, 3.0]}), ["y"])
    for other in (copy.copy(scaler), copy.deepcopy(scaler), pickle.loads(pickle.dumps(scaler))):
        assert other.state_dict() == scaler.state_dict()
