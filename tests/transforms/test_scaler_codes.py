"""Scalers by the codes of a column: a loop over the rows seen and over slots, in numpy, is the oracle."""

import json
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tensorstash.errors import ColumnError, DataError, SchemaError
from tests.oracle_load import like
from tests.transforms.scalers import KINDS
from tests.transforms.test_scaled_stash import bits

pytestmark = pytest.mark.filterwarnings(
    "ignore:No value, or only one", "ignore:All values", "ignore:Gaps", "ignore:.*series", "ignore:No value of"
)

LEVELS = {"glucose": 90.0, "iron": 15.0, "potassium": 4.0, "sodium": 140.0}
SPANS: dict[str, Any] = {"past": ("y", -4, 0), "kind": ("kind", -4, 0), "pack": ("x", -4, 0), "beside": ("z", -2, 1)}
OF_TIME: dict[str, Any] = {
    "past": ts.During("y", -9, 0, max_rows=5),
    "kind": ts.During("kind", -9, 0, max_rows=5),
    "pack": ts.During("x", -9, 0, max_rows=5),
}


def frame(seed: int = 0, kinds: list[str | None] | None = None) -> pl.DataFrame:
    rng, lengths = np.random.default_rng(seed), [30, 41, 25]
    rows = sum(lengths)
    kind = rng.choice(np.array(kinds or [*LEVELS], dtype=object), rows)
    level = np.array([LEVELS.get(str(one), 1.0) for one in kind])
    t = np.concatenate([np.sort(rng.choice(60, length, replace=False)) for length in lengths])
    y = np.where(rng.random(rows) < 0.1, np.nan, level + rng.normal(0, level / 10))
    table = {"e": np.repeat([*"abc"], lengths), "t": t, "kind": [*map(str, kind)], "y": y, "z": rng.normal(9, 2, rows)}
    found = pl.DataFrame(table | {"a": level * 2 + rng.normal(0, 1, rows), "b": rng.normal(0, level)})
    return found.with_columns(kind=pl.when(pl.col("kind") != "None").then("kind"))


def loaded(seed: int = 0, dtype: torch.dtype = torch.float32, **more: Any) -> ts.Stash:
    columns = {"y": "y", "kind": ts.column("kind", vocabulary=[*LEVELS]), "x": ["a", "b"], "z": "z"}
    return ts.load(frame(seed, **more), columns, entity="e", time="t", dtype=dtype)


def windows_of(stash: ts.Stash, form: str = "mask") -> ts.Windows:
    if form == "time":
        return ts.Windows(stash, spans=OF_TIME)
    return ts.Windows(stash, spans=SPANS, gaps=form, frequency=1 if form == "mask" else None, min_history=2)  # type: ignore[arg-type]


def rows_seen(windows: ts.Windows) -> np.ndarray:
    """The rows that a window shows, found by giving each row its number."""
    numbers = ts.load(
        windows.stash.to_polars().select("e", "t", n=pl.int_range(pl.len(), dtype=pl.Int64).cast(pl.Float64)),
        ["n"], entity="e", time="t",
    )  # fmt: skip
    spans: dict[str, Any] = {"n": ("n", -windows.history, windows.horizon)}
    plain = ts.Windows(numbers, spans=spans, gaps="mask", frequency=1, min_history=2)
    seen = plain[:]["n"]
    return np.unique(seen[~seen.isnan()].numpy()).astype(np.int64)


@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 99), dtype=st.sampled_from([torch.float32, torch.float64]))
@settings(max_examples=30)
def test_each_code_has_the_statistics_of_its_own_rows(kind: Any, seed: int, dtype: torch.dtype) -> None:
    windows = windows_of(loaded(seed, dtype))
    scaler = ts.Scaler.fit(windows, ["y", "x"], kind=kind, by="kind")
    rows, stash = rows_seen(windows), windows.stash
    assert scaler.entities == [*LEVELS]
    for code in range(len(LEVELS)):
        own = rows[stash["kind"].numpy()[rows] == code]
        single = ts.load({"y": stash["y"].numpy()[own], "x": stash["x"].numpy()[own]}, dtype=dtype)
        expected = ts.Scaler.fit(single, ["y", "x"], kind=kind)
        for name in ("y", "x"):
            torch.testing.assert_close(scaler.center[name][code], expected.center[name][0], rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(scaler.scale[name][code], expected.scale[name][0], rtol=1e-12, atol=1e-12)


def by_loop(scaler: ts.Scaler, batch: dict[str, torch.Tensor], span: str, column: str) -> torch.Tensor:
    made = batch[span].clone()
    for k in range(made.shape[0]):
        for slot in range(made.shape[1]):
            code = int(batch["kind"][k, slot])
            if "past.observed" not in batch or batch["past.observed"][k, slot]:
                group = code if 0 <= code < len(LEVELS) else len(LEVELS)
                center, scale = (table[column][group].to(made.dtype) for table in (scaler.center, scaler.scale))
                made[k, slot] = (made[k, slot] - center) / scale
    return made


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("unknown", ["error", "pooled"])
@pytest.mark.parametrize("form", ["mask", "split", "time"])
def test_slots_are_scaled_by_their_own_code(form: str, unknown: Any, resident: bool) -> None:
    stash = loaded(3, kinds=[*LEVELS, None, "zinc"]) if unknown == "pooled" else loaded(3)
    windows = windows_of(stash, form)
    scaler = ts.Scaler.fit(windows, ["y", "x"], by="kind", unknown=unknown)
    again = ts.Scaler.from_state(json.loads(json.dumps(scaler.state_dict())))
    scaled = scaler.transform(windows)
    assert scaled.fingerprint() == windows.fingerprint()
    assert again.transform(windows).stash is scaled.stash
    resident = resident and form != "time"
    loaders = [ts.Loader(part, 16, shuffle=True, transform=steps, resident=resident) for part, steps in (
        (windows, []), (windows, [again]), (scaled, []),
    )]  # fmt: skip
    bound = again.bind(windows)
    for raw, one, two in zip(*loaders, strict=True):
        for span, column in (("past", "y"), ("pack", "x")):
            assert torch.equal(bits(one[span]), bits(by_loop(scaler, raw, span, column)))
            assert torch.equal(bits(one[span]), bits(two[span]))
            back = bound.inverse(one[span], column, code=one["kind"])
            held = raw.get("past.observed", torch.ones(raw["kind"].shape, dtype=torch.bool))
            torch.testing.assert_close(back[held], raw[span][held], equal_nan=True, rtol=1e-4, atol=1e-3)
        for name, values in bound.inverse(one).items():
            torch.testing.assert_close(values, raw[name], equal_nan=True, rtol=1e-4, atol=1e-3)


def test_a_value_without_a_code_is_an_error_and_a_missing_one_stays_missing() -> None:
    rows = frame(1).with_columns(kind=pl.when(pl.col("y").is_nan()).then(None).otherwise("kind"))
    columns = {"y": "y", "kind": ts.column("kind", vocabulary=[*LEVELS])}
    spans: dict[str, Any] = {"past": ("y", -4, 0), "kind": ("kind", -4, 0)}
    windows = ts.Windows(ts.load(rows, columns, entity="e", time="t"), spans=spans, gaps="ignore")
    scaler = ts.Scaler.fit(windows, ["y"], by="kind")
    one, two = next(iter(ts.Loader(windows, 500, transform=[scaler]))), scaler.transform(windows)[:]
    assert torch.equal(bits(one["past"]), bits(two["past"]))
    assert torch.equal(one["past"].isnan(), one["kind"] < 0)
    strange = windows.on(ts.load(rows.with_columns(kind=pl.lit("zinc")), columns, entity="e", time="t"))
    for attempt in (lambda: scaler.transform(strange), lambda: next(iter(ts.Loader(strange, 9, transform=[scaler])))):
        with pytest.raises(DataError, match=like("must know the code of each value ... unknown='pooled'")):
            attempt()
    with pytest.raises(ValueError, match=like("Bind it first, scaler.bind(windows)")):
        scaler(windows[:])
    prediction = scaler.bind(windows).inverse(torch.zeros(1, 2), "y", code=torch.tensor([[0, -1]]))
    assert prediction[0, 1].isnan()
    with pytest.raises(ValueError, match=like("give predictions the codes of their slots")):
        scaler.bind(windows).inverse(torch.zeros(1, 2), "y")


def test_a_copy_needs_the_codes_of_all_rows_and_a_loader_those_of_its_windows() -> None:
    rows = {"t": [0, 1, 2, 3, 10], "y": [1.0, 3.0, 10.0, 30.0, 7.0], "kind": ["a", "a", "b", "b", None]}
    windows = ts.Windows(ts.load(rows, time="t"), spans={"past": ("y", -4, 0), "kind": ("kind", -4, 0)})
    scaler = ts.Scaler.fit(windows, ["y"], by="kind")
    (batch,) = ts.Loader(windows, 9, transform=[scaler])
    assert batch["past"].tolist() == [[-1.0, 1.0, -1.0, 1.0]]
    with pytest.raises(DataError, match=like("must know the code of each value ... unknown='pooled'")):
        scaler.transform(windows)
    pooled = ts.Scaler.fit(windows, ["y"], by="kind", unknown="pooled").transform(windows)
    assert pooled[:]["past"].tolist() == batch["past"].tolist()


def test_a_code_that_training_has_not_seen_has_the_statistics_of_all_rows() -> None:
    rows = {"t": [*range(6)], "y": [1.0, 3.0, 10.0, 30.0, 7.0, 9.0], "kind": [*"aabbcc"]}
    windows = ts.Windows(ts.load(rows, time="t"), spans={"past": ("y", -2, 0), "kind": ("kind", -2, 0)})
    train, _ = windows.split(4)
    with pytest.warns(UserWarning, match=like("the statistics of all of these rows ... 'y' in 1 of 3 codes ('c')")):
        scaler = ts.Scaler.fit(train, ["y"], by="kind")
    assert scaler.center["y"].flatten().tolist() == [2.0, 20.0, 11.0]
    with pytest.raises(ValueError, match=like("Each slot must have one code")):
        scaler.bind(windows).inverse(torch.zeros(1, 2), "y", code=torch.tensor([[0, 1, 2]]))


def test_codes_are_found_by_their_texts() -> None:
    """Those of a service may be numbered in another way, and have more texts."""
    train = ts.load(frame(1), {"y": "y", "kind": "kind"}, entity="e", time="t")
    some = frame(2).filter(pl.col("kind") > "h")
    spans: dict[str, Any] = {"past": ("y", -2, 0), "kind": ("kind", -2, 0)}
    here = ts.Windows(train, spans=spans, gaps="ignore")
    there = ts.Windows(ts.load(some, {"y": "y", "kind": "kind"}, entity="e", time="t"), spans=spans, gaps="ignore")
    scaler = ts.Scaler.fit(here, ["y"], by="kind")
    assert there.stash.vocabulary("kind") == [*LEVELS][1:]
    values, codes = there.stash["y"], there.stash["kind"].long() + 1
    expected = (values - scaler.center["y"][codes]) / scaler.scale["y"][codes]
    assert torch.equal(bits(scaler.transform(there).stash["y"]), bits(expected))
    tail = ts.load(some, like=train.without_rows())
    assert torch.equal(bits(scaler.transform(here.on(tail)).stash["y"]), bits(expected))
    new = some.with_columns(kind=pl.lit("zinc"))
    with pytest.raises(DataError, match=like("must know each kind; 1 of 5 are unknown, such as 'zinc'")):
        scaler.transform(here.on(ts.load(new, like=train.without_rows())))
    pooled = ts.Scaler.fit(here, ["y"], by="kind", unknown="pooled")
    assert pooled.transform(here.on(ts.load(new, like=train.without_rows()))).stash["y"].isfinite().any()


def test_a_mix_and_a_sample_are_fitted_over_all_components() -> None:
    parts = {name: windows_of(loaded(seed)) for name, seed in (("one", 0), ("two", 1))}
    mix = ts.Mix(parts)
    scaler = ts.Scaler.fit(mix, ["y"], by="kind", kind="minmax")
    each = [ts.Scaler.fit(part, ["y"], by="kind", kind="minmax") for part in parts.values()]
    assert torch.equal(scaler.center["y"], torch.minimum(*(one.center["y"] for one in each)))
    raw, made = (next(iter(ts.Loader(mix, 64, shuffle=True, transform=steps))) for steps in ([], [scaler]))
    assert torch.equal(bits(made["past"]), bits(by_loop(scaler, raw, "past", "y")))
    some = ts.Scaler.fit(mix, ["y"], by="kind", sample=50, seed=1)
    assert some.rows == 50
    packed = next(iter(ts.Loader(parts["one"], 9, transform=[ts.PackSequences("past", "kind"), scaler])))
    whole = next(iter(ts.Loader(parts["one"], 9, transform=[scaler, ts.PackSequences("past", "kind")])))
    assert torch.equal(bits(packed["past"]), bits(whole["past"]))


def test_what_has_no_codes_is_refused() -> None:
    stash = loaded()
    windows = windows_of(stash)
    for by, error, text in (
        ("z", SchemaError, "by= must be 'entity' or a single column of codes; 'z' is torch.float32"),
        ("kinds", ColumnError, "by= has no column of codes 'kinds'; did you mean 'kind'?"),
        (3, ValueError, "by must be None, 'entity' or the name of a column of codes, got 3"),
    ):
        with pytest.raises(error, match=like(text)):
            ts.Scaler.fit(windows, ["y"], by=by)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=like("no span of 'kind' has the slots of 'beside'")):
        ts.Scaler.fit(windows, ["z"], by="kind")
    other = ts.Windows(stash, spans={"past": ("y", -4, 0), "kind": ("kind", -3, 0)}, gaps="mask", frequency=1)
    scaler = ts.Scaler.fit(windows, ["y"], by="kind")
    for attempt in (lambda: scaler.bind(other), lambda: scaler.transform(other)):
        with pytest.raises(ValueError, match=like("no span of 'kind' has the slots of 'past'")):
            attempt()
    rows = ts.Windows(stash, spans={"past": (ts.each("x"), -4, 0), "kind": ("kind", -4, 0)}, gaps="mask", frequency=1)
    with pytest.raises(ValueError, match=like("no span of 'kind' has the slots of 'past'")):
        ts.Scaler.fit(rows, ["x"], by="kind")
    with pytest.raises(ValueError, match=like("Leave together= out")):
        ts.Scaler.fit(windows, ["x"], by="kind", together=True)
