"""Transforms of spans of `ts.each`: each row beside the column of the whole pack, or beside a loop over rows."""

import json
from typing import Any

import numpy as np
import pytest
import torch

import tensorstash as ts
from tensorstash.errors import SchemaError
from tests import kernel
from tests.variates import same
from tests.words import ScalerKind as Kind

Batch = dict[str, torch.Tensor]


@pytest.fixture(params=kernel.WAYS, autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test here runs with the kernel, where it was compiled, and without."""
    kernel.take(request.param, monkeypatch)


def stash_of(width: int, entities: int = 3, seed: int = 0) -> ts.Stash:
    rng, rows = np.random.default_rng(seed), 20 * entities
    table = {"e": np.repeat(np.arange(entities) + 10 * seed, 20), "t": np.tile(np.arange(20), entities)}
    levels = 10.0 ** np.arange(width)
    table |= {"x": (rng.random((rows, width)) * levels).astype(np.float32), "c": rng.random(rows).astype(np.float32)}
    return ts.load(table, ["x", "c"], entity="e", time="t")


def windows_of(stash: ts.Stash, *packs: str, **more: Any) -> ts.Windows:
    spans = {"past": (ts.each(*packs), -5, 0), "next": (ts.each(*packs), 0, 2)}
    return ts.Windows(stash, spans=spans, **more)


@pytest.mark.parametrize("by", [None, "entity"])
@pytest.mark.parametrize("kind", ["standard", "robust"])
def test_a_scaler_has_constants_for_each_column(kind: Kind, by: Any) -> None:
    stash = stash_of(3)
    windows, whole = windows_of(stash, "x", "c", min_history=2), ts.Windows(stash, 5, 2, min_history=2)
    scaler = ts.Scaler.fit(windows, ["x", "c"], kind=kind, by=by)
    expected = ts.Scaler.fit(whole, ["x", "c"], kind=kind, by=by)
    for name in ("x", "c"):
        assert torch.equal(scaler.center[name], expected.center[name])
        assert torch.equal(scaler.scale[name], expected.scale[name])
    restored = ts.Scaler.from_state(json.loads(json.dumps(scaler.state_dict())))
    arguments: dict[str, Any] = {"shuffle": True, "with_ids": True, "seed": 1}
    for transform in (scaler, expected, restored):  # that of other windows is bound to these
        batches = zip(
            ts.Loader(windows, 7, transform=[transform], **arguments),
            ts.Loader(whole, 7, transform=[expected], **arguments),
            ts.Loader(windows, 7, **arguments),
        )
        for batch, of_packs, plain in batches:
            for row in range(len(batch["past"])):
                window, variate, pack = (int(batch[f"past.{entry}"][row]) for entry in ("window", "variate", "pack"))
                values = of_packs["c"][window] if pack else of_packs["x"][window, :, variate]
                assert same(batch["past"][row], values[:5])
                assert same(batch["next"][row], values[5:])
            back = transform.bind(windows).inverse(dict(batch))
            assert torch.allclose(back["next"], plain["next"], rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("by", [None, "entity"])
def test_predictions_of_rows_are_scaled_back(by: Any) -> None:
    stash = stash_of(4)
    windows = windows_of(stash, "x")
    scaler = ts.Scaler.fit(windows, ["x"], by=by).bind(windows)
    batch = next(iter(ts.Loader(windows, 9, shuffle=True, with_ids=True)))
    window, variate = batch["next.window"], batch["next.variate"]
    entity = None if by is None else batch["entity"][window]
    restored = scaler.inverse(batch["next"], "x", entity=entity, variate=variate)
    for row in range(len(restored)):
        group = 0 if by is None else int(batch["entity"][window[row]])
        center, scale = (x["x"][group, variate[row]].float() for x in (scaler.center, scaler.scale))
        assert torch.equal(restored[row], batch["next"][row] * scale + center)


def mix(*widths: int) -> ts.Mix:
    return ts.Mix({f"{k}": windows_of(stash_of(width, seed=k), "x", min_history=2) for k, width in enumerate(widths)})


@pytest.mark.parametrize("by", [None, "entity"])
def test_a_mix_of_packs_of_one_width_is_scaled(by: Any) -> None:
    mixed = mix(3, 3)
    scaler = ts.Scaler.fit(mixed, ["x"], by=by)
    for batch, plain in zip(ts.Loader(mixed, 8, with_ids=True, transform=[scaler]), ts.Loader(mixed, 8, with_ids=True)):
        group = torch.zeros_like(batch["entity"]) if by is None else 3 * batch["source"] + batch["entity"]
        at = group[batch["past.window"]], batch["past.variate"]
        center, scale = (x["x"][at].float()[:, None] for x in (scaler.center, scaler.scale))
        assert same(batch["past"], (plain["past"] - center) / scale)


def test_each_row_is_normalised_by_its_own_history() -> None:
    norm = ts.InstanceNorm("past", "next", kind="mean")
    for batch, plain in zip(ts.Loader(mix(1, 5, 3), 8, transform=[norm]), ts.Loader(mix(1, 5, 3), 8)):
        assert batch["past.scale"].shape == (len(batch["past"]), 1)
        for row in range(len(batch["past"])):
            seen = plain["past"][row][plain["past.observed"][row]]
            scale = seen.abs().sum() / len(seen)
            assert torch.allclose(batch["past"][row], plain["past"][row] / scale, equal_nan=True)
            assert torch.allclose(batch["next"][row], plain["next"][row] / scale)
        assert torch.allclose(norm.inverse(batch["next"], batch), plain["next"])


# ---- Flags of ts.is_valid ----

MEMBERS = ["a", "b", "c", "d"]
FILLED = -50.0


def with_missing(width: int, flagged: list[str], seed: int = 0) -> ts.Stash:
    """A pack "x" and a column "y", both filled where they miss a value, and "ok", which flags some of their columns."""
    rng = np.random.default_rng(seed)
    table: dict[str, Any] = {"t": [*range(15), *range(17, 42)]}
    for name in (*MEMBERS, "y"):
        table[name] = [None if missing else value for missing, value in zip(rng.random(40) < 0.3, rng.random(40))]
    columns = {name: ts.column(of, fill=FILLED) for name, of in (("x", MEMBERS[:width]), ("y", "y"))}
    flags = {"ok": ts.is_valid(flagged), "others": ts.is_valid(["d"])}
    return ts.load(table, columns | flags, time="t")


def over_flags(stash: ts.Stash, flags: Any) -> ts.Windows:
    spans = {"past": (ts.each("x", "y"), -6, 0), "next": (ts.each("x", "y"), 0, 2), "flags": (flags, -6, 0)}
    return ts.Windows(stash, spans=spans, gaps="mask", frequency=1, min_history=1)


def level_and_spread(held: Any, kind: str) -> tuple[float, float]:
    if not len(held):
        return 0.0, 1.0
    if kind == "last":
        return held[-1], 1.0
    if kind == "mean":
        return 0.0, np.abs(held).mean()
    return held.mean(), np.sqrt(held.var() + 1e-5)


def check_flags(source: Any, parts: list[ts.Stash], kind: Any, **more: Any) -> None:
    """Each row is normalised by the values of its column that lie before its anchor and that are not flagged false."""
    norm = ts.InstanceNorm("past", "next", kind=kind)
    pairs = zip(
        ts.Loader(source, 9, shuffle=True, with_ids=True, transform=[norm], **more),
        ts.Loader(source, 9, shuffle=True, with_ids=True),
    )
    for batch, plain in pairs:
        numbers = batch.get("source", torch.zeros_like(batch["anchor"])).tolist()
        places = (plain[f"past.{entry}"].tolist() for entry in ("window", "variate", "pack"))
        for row, (window, variate, pack) in enumerate(zip(*places)):
            stash, anchor = parts[numbers[window]], int(plain["anchor"][window])
            name = "y" if pack else stash.about("x").members[variate]
            values, flags = stash["y"] if pack else stash["x"][:, variate], stash.about("ok").members
            valid = stash["ok"][:, flags.index(name)] if name in flags else values.isfinite()
            assert stash.time is not None
            before = (stash.time >= anchor - 6) & (stash.time < anchor)
            level, spread = level_and_spread(values[before & valid].numpy(), kind)
            for span in ("past", "next"):
                seen = plain[f"{span}.observed"][row]
                expected = (plain[span][row][seen] - level) / spread
                assert torch.allclose(batch[span][row][seen], expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", ["standard", "last", "mean"])
@pytest.mark.parametrize("flagged", [["c", "y", "a", "b"], ["b"], ["y"], ["a", "b", "c"]])
@pytest.mark.parametrize("flags", ["ok", ts.each("ok"), ts.each("others", "ok")])
def test_a_filled_value_does_not_count_in_its_row(kind: Any, flagged: list[str], flags: Any) -> None:
    stash = with_missing(3, flagged)
    check_flags(over_flags(stash, flags), [stash], kind)


@pytest.mark.parametrize("more", [{}, {"resident": True}])
def test_filled_values_of_packs_of_several_widths_do_not_count(more: dict[str, Any]) -> None:
    parts = [with_missing(width, MEMBERS[:width], seed=width) for width in (2, 4, 1)]
    mix = ts.Mix({str(k): over_flags(part, ts.each("ok")) for k, part in enumerate(parts)})
    check_flags(mix, parts, "mean", **more)


FIELD: dict[str, Any] = {"t": range(9), "a": [1.0, None, *range(3, 10)], "b": np.arange(9.0)}


@pytest.mark.parametrize("other", ["stretch", "table", "no such column", "another width"])
def test_flags_over_other_rows_are_those_of_other_rows(other: str) -> None:
    """Those of a span in time, of the windows' stash or of a table, whose columns may have the same names."""
    stash = ts.load(FIELD, {"x": ts.column(["a", "b"], fill=-99.0), "ok": ts.is_valid(["a", "b"])}, time="t")
    of_table = {"another width": ts.is_valid(["a", "b", "c"]), "table": ts.is_valid(["a", "b"])}
    name = "fine" if other == "no such column" else "ok"
    table = ts.load(FIELD | {"c": np.arange(9.0)}, {name: of_table.get(other, ts.is_valid("a"))}, time="t")
    during = ts.During(name, -8, -5, max_rows=3, table=None if other == "stretch" else "other")
    more: dict[str, Any] = {} if other == "stretch" else {"tables": {"other": table}}
    past = {"past": (ts.each("x"), -3, 0)}
    norm = ts.InstanceNorm("past")
    plain = next(iter(ts.Loader(ts.Windows(stash, spans=past), 9, with_ids=True, transform=[norm])))
    windows = ts.Windows(stash, spans=past | {"own": during}, **more)
    batch = next(iter(ts.Loader(windows, 9, with_ids=True, transform=[norm])))
    shared = torch.isin(plain["anchor"], batch["anchor"])[plain["past.window"]]
    assert torch.equal(batch["past"], plain["past"][shared])
    flagged = ts.Windows(stash, spans=past | {"own": during, "flags": ("ok", -3, 0)}, **more)
    batch = next(iter(ts.Loader(flagged, 9, with_ids=True, transform=[norm])))
    anchor = int(batch["anchor"][0])
    held = FIELD["a"][anchor - 2 : anchor + 1]  # without a horizon, the anchor is the last row
    known = np.array([value for value in held if value is not None])
    filled = np.array([-99.0 if value is None else value for value in held])
    np.testing.assert_allclose(batch["past"][0], (filled - known.mean()) / np.sqrt(known.var() + 1e-5))


def test_the_oracle_of_flags_can_fail() -> None:
    stash = with_missing(3, ["a"])
    spans = {"past": (ts.each("x", "y"), -6, 0), "next": (ts.each("x", "y"), 0, 2)}
    windows = ts.Windows(stash, spans=spans, gaps="mask", frequency=1, min_history=1)  # without the flags
    with pytest.raises(AssertionError):
        check_flags(windows, [stash], "mean")


def test_flags_that_do_not_tell_of_all_rows_are_refused() -> None:
    norm = ts.InstanceNorm("past")
    with pytest.raises(ValueError, match="must be those of all columns"):
        norm.bind(over_flags(with_missing(3, ["a", "b"]), ts.each("ok", max_variates=1)))
    parts = {}
    for members in (["a", "b"], ["b", "a"]):
        stash = ts.load({"a": [1.0, 2.0, 3.0], "b": [1.0, 2.0, 3.0]}, {"x": members, "ok": ts.is_valid("a")})
        parts[members[0]] = ts.Windows(stash, spans={"past": (ts.each("x"), -2, 0), "flags": (ts.each("ok"), -2, 0)})
    with pytest.raises(SchemaError, match="must stand in the same order"):
        norm.bind(ts.Mix(parts))


@pytest.mark.parametrize("prefetch", [0, 2])
def test_each_row_is_packed_as_a_sequence(prefetch: int) -> None:
    pack, flat = ts.PackSequences("past", length=16), ts.PackSequences("past")
    packed = ts.Loader(mix(1, 5, 3), 8, transform=[pack], prefetch=prefetch)
    in_a_row = ts.Loader(mix(1, 5, 3), 8, transform=[flat], prefetch=prefetch)
    for rows, one, plain in zip(packed, in_a_row, ts.Loader(mix(1, 5, 3), 8)):
        assert rows["past.row"].shape == rows["past.variate"].shape == plain["past.variate"].shape
        offsets = one["past.offsets"].tolist()
        assert len(offsets) == len(plain["past"]) + 1
        for row in range(len(plain["past"])):
            seen = plain["past"][row][plain["past.observed"][row]]
            at, start, length = (int(rows[f"past.{entry}"][row]) for entry in ("row", "start", "length"))
            assert torch.equal(rows["past"][at, start : start + length], seen)
            assert torch.equal(one["past"][offsets[row] : offsets[row + 1]], seen)


def test_rows_and_whole_windows_are_not_packed_together() -> None:
    spans = {"past": (ts.each("x"), -5, 0), "c": ("c", -5, 0)}
    windows = ts.Windows(stash_of(3), spans=spans, min_history=2)
    with pytest.raises(ValueError, match="must have the same slots; those of 'c' differ"):
        ts.Loader(windows, 4, transform=[ts.PackSequences("past", "c")])


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_casts(device: str) -> None:
    cast = ts.Cast({"past": torch.float16}, on="host")
    batch = next(iter(ts.Loader(mix(2, 3), 4, device=device, transform=[cast])))
    assert batch["past"].dtype == torch.float16
    assert batch["next"].dtype == torch.float32
    assert batch["past.window"] is batch["next.window"]


def test_a_scaled_stash_has_scaled_rows() -> None:
    stash = stash_of(3)
    windows = windows_of(stash, "x")
    scaler = ts.Scaler.fit(windows, ["x"])
    scaled = windows_of(scaler.transform(stash), "x")
    one = next(iter(ts.Loader(windows, 6, transform=[scaler])))
    two = next(iter(ts.Loader(scaled, 6)))
    assert torch.equal(one["past"], two["past"])
    with pytest.raises(ValueError, match="scaled once"):
        ts.Loader(scaled, 6, transform=[scaler])
