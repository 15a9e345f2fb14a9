"""The statistics of a scaler: of exactly the rows that windows see, as scikit-learn has them."""

import warnings
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests.data import DTYPES, FILLS, Table, tables
from tests.oracle_load import like
from tests.transforms.scalers import KINDS, panel, scaled, theirs
from tests.words import By, Gaps
from tests.words import ScalerKind as Kind


@pytest.mark.parametrize("kind", KINDS)
def test_all_rows_are_scaled_as_scikit_learn_does(kind: Kind) -> None:
    stash = panel([50, 30, 1, 119])
    scaler = ts.Scaler.fit(stash, ["x", "y"], kind=kind)
    np.testing.assert_allclose(scaled(scaler, stash, "x"), theirs(kind, stash["x"].numpy()), rtol=0, atol=1e-9)
    y = stash["y"].numpy()
    np.testing.assert_allclose(scaled(scaler, stash, "y"), theirs(kind, y[:, None])[:, 0], rtol=0, atol=1e-9)
    assert np.isnan(y).any()


@pytest.mark.parametrize("kind", KINDS)
def test_each_entity_is_scaled_as_scikit_learn_does(kind: Kind) -> None:
    lengths = [50, 30, 2, 119, 7, 8, 9, 33, 64, 65, 17]
    stash = panel(lengths, holes=0)
    windows = ts.Windows(stash, history=2)
    scaler = ts.Scaler.fit(windows, ["x", "y"], kind=kind, by="entity").bind(windows)
    for entity, low in enumerate(stash.offsets[:-1].tolist()):
        rows = slice(low, low + lengths[entity])
        mine = {"x": stash["x"][rows][None].clone(), "y": stash["y"][rows][None].clone()}
        batch = scaler(mine | {"entity": torch.tensor([entity])})
        np.testing.assert_allclose(batch["x"][0], theirs(kind, stash["x"][rows].numpy()), rtol=0, atol=1e-9)
        np.testing.assert_allclose(batch["y"][0], theirs(kind, stash["y"][rows, None].numpy())[:, 0], rtol=0, atol=1e-9)


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES.values() if dtype not in (torch.bool, torch.int8)])
def test_statistics_are_float64_whatever_the_column_is(dtype: torch.dtype) -> None:
    column = (torch.arange(1000) % 128 + 100).to(dtype)
    scaler = ts.Scaler.fit(ts.load({"y": column}), ["y"])
    exact = column.double().numpy()
    assert scaler.center["y"].item() == pytest.approx(exact.mean(), rel=1e-14)
    assert scaler.scale["y"].item() == pytest.approx(exact.std(), rel=1e-13)
    one = ts.Scaler.fit(ts.load({"y": column[:128]}), ["y"], kind="minmax", sample=127)
    assert one.center["y"].item() in exact[:128]
    assert one.scale["y"].item() >= exact.max() - exact.min() - 2


@pytest.mark.parametrize("by", [None, "entity"])
@pytest.mark.parametrize("first", [0.0, -1e6])
def test_a_small_variance_on_a_high_level_is_exact(by: By | None, first: float) -> None:
    """1e9 +- 1, where a sum of squares in float64 has lost everything; also after an outlier far below."""
    rng = np.random.default_rng(0)
    noise = rng.integers(-(2**20), 2**20, 600_000) / 2**20  # exact on top of 1e9
    noise[0] += first
    stash = ts.load({"e": np.zeros(len(noise), np.int64), "y": 1e9 + noise}, ["y"], entity="e")
    scaler = ts.Scaler.fit(stash, ["y"], by=by).bind(stash)
    assert scaler.center["y"].item() - 1e9 == pytest.approx(noise.mean(), abs=3e-7)
    assert scaler.scale["y"].item() == pytest.approx(noise.std(), rel=1e-9)
    expected = (noise - noise.mean()) / noise.std()
    batch = {"y": stash["y"][None].clone(), "entity": torch.tensor([0])}
    np.testing.assert_allclose(scaler(batch)["y"][0], expected, rtol=0, atol=1e-6)


@settings(max_examples=150)
@given(
    table=tables(),
    begin=st.integers(-6, 1),
    length=st.integers(1, 6),
    stride=st.integers(1, 9),
    gaps=st.sampled_from(["split", "mask", "ignore"]),
    padded=st.booleans(),
    cut=st.integers(-40, 60),
    part=st.integers(0, 1),
    by=st.sampled_from([None, "entity"]),
    kind=st.sampled_from(KINDS),
)
def test_a_scaler_sees_exactly_the_rows_that_lie_in_windows(
    table: Table,
    begin: int,
    length: int,
    stride: int,
    gaps: Gaps,
    padded: bool,
    cut: int,
    part: int,
    by: By | None,
    kind: Kind,
) -> None:
    stash = table.stash(fills=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            whole = ts.Windows(
                stash,
                spans={
                    "past": ("f32", begin, begin + length),
                    "whole": ("i64", min(begin, 0), max(begin + length, 0)),
                    "noted": ("f64", begin, begin + length),
                },
                stride=stride,
                gaps=gaps,
                min_history=min(1, max(0, -begin)) if padded else None,
            )
        except ts.errors.DataError:
            assume(False)
        windows = whole.split(cut)[part]
    assume(len(windows))
    # row r of column i64 holds r * 16 + 4; a span with a hole in the window's middle does not hide what lies there
    held = windows[:]["whole"].flatten()
    seen = {*((held[held != FILLS["i64"]] - 4) // 16).tolist()}
    stash["f64"][[row for row in range(stash.rows) if row not in seen]] = torch.inf  # which a scaler refuses to see

    values = stash["f32"].double().numpy()[sorted(seen)]
    assume(np.isfinite(values).sum() >= 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert ts.Scaler.fit(windows, ["f64"]).rows == len(seen)
        scaler = ts.Scaler.fit(windows, ["f32"], kind=kind, by=by)
    owner = np.searchsorted(stash.offsets.numpy(), sorted(seen), "right") - 1
    for group in range(len(scaler.center["f32"])):
        own = values if by is None else values[owner == group]
        own = values if np.isfinite(own).sum() < 2 else own
        center, scale = (scaler.center["f32"][group].item(), scaler.scale["f32"][group].item())
        np.testing.assert_allclose((own - center) / scale, theirs(kind, own[:, None])[:, 0], rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by", [None, "entity"])
@pytest.mark.parametrize("sample", [None, 50])
def test_what_lies_behind_the_cut_has_no_influence(kind: Kind, by: By | None, sample: int | None) -> None:
    """Outliers in every row from the cut on, also in those that windows across the cut would have reached."""
    before, after = panel([60, 60, 60], holes=0), panel([60, 60, 60], holes=0)
    time = after.time
    assert time is not None
    for column in after.values():
        column[time >= 40] = 1e12
    fitted = [
        ts.Scaler.fit(
            ts.Windows(stash, spans={"x": ("x", -8, 0), "past": ("y", -8, 0), "next": ("y", 0, 4)}).split(40)[0],
            ["x", "y"],
            kind=kind,
            by=by,
            sample=sample,
        )
        for stash in (before, after)
    ]
    assert fitted[0].state_dict() == fitted[1].state_dict()
    assert fitted[0].spans == {"x": "x", "past": "y", "next": "y"}
    reaching = ts.Scaler.fit(ts.Windows(after, history=8).split(41)[0], ["y"], kind="maxabs")
    assert reaching.scale["y"].item() == 1e12


def test_windows_further_apart_than_they_are_long_hide_what_lies_between() -> None:
    stash = ts.load({"y": np.arange(100.0)})
    windows = ts.Windows(stash, history=3, stride=10)
    rows = [start + k for start in range(0, 98, 10) for k in range(3)]
    scaler = ts.Scaler.fit(windows, ["y"])
    assert scaler.rows == len(rows)
    assert scaler.center["y"].item() == pytest.approx(np.mean(rows), rel=1e-14)
    assert scaler.scale["y"].item() == pytest.approx(np.std(rows), rel=1e-14)


def test_a_sample_is_of_the_rows_seen_and_of_its_seed() -> None:
    stash = ts.load({"y": np.arange(100_000.0)})
    windows = ts.Windows(stash, history=4, stride=8)
    one, same, other = (ts.Scaler.fit(windows, ["y"], sample=5000, seed=seed) for seed in (0, 0, 1))
    assert one.state_dict() == same.state_dict() != other.state_dict()
    assert one.rows == 5000
    exact = ts.Scaler.fit(windows, ["y"])
    assert one.center["y"].item() == pytest.approx(exact.center["y"].item(), rel=0.03)
    assert one.scale["y"].item() == pytest.approx(exact.scale["y"].item(), rel=0.03)
    ends = ts.Scaler.fit(windows, ["y"], kind="minmax", sample=5000)
    assert ends.center["y"].item() % 8 < 4
    assert ts.Scaler.fit(windows, ["y"], sample=10**9).state_dict() == exact.state_dict()


def test_a_sample_takes_distinct_rows_of_their_entities() -> None:
    stash = panel([40, 60], holes=0)
    by_entity = ts.Scaler.fit(stash, ["y"], by="entity", sample=99)
    exact = ts.Scaler.fit(stash, ["y"], by="entity")
    assert (by_entity.center["y"] - exact.center["y"]).abs().max() < 0.5
    assert (exact.center["y"][0] - exact.center["y"][1]).abs() > 10


@pytest.mark.parametrize("kind", KINDS)
def test_equal_values_have_scale_1(kind: Kind) -> None:
    """Exactly equal: 0.1 has no finite binary form, and sums of it are not multiples of it."""
    values = {"same": np.full(100_000, 0.1), "zero": np.zeros(100_000), "y": np.arange(100_000) * 1e-9 + 1e3}
    if kind == "maxabs":
        values["same"] = values["zero"]
    stash = ts.load(values)
    said = "All values are equal, so the scale is 1: 'same', 'zero'."
    with pytest.warns(UserWarning, match=like(said)):
        scaler = ts.Scaler.fit(stash, ["same", "zero", "y"], kind=kind)
    assert scaler.scale["same"].tolist() == scaler.scale["zero"].tolist() == [1.0]
    assert scaler.scale["y"].item() not in (0.0, 1.0)
    assert scaled(scaler, stash, "same").max() == 0


def test_entities_with_too_few_values_take_the_statistics_of_all() -> None:
    values = [1.0, 3.0, 10.0, np.nan, 20.0, np.nan, np.nan, 5.0, 5.0]
    stash = ts.load({"e": list("aabbbccdd"), "y": values}, ["y"], entity="e")
    said = (
        "No value, or only one, ... of all of these rows; fit it on more rows for their own: 'y' in 1 of 4 entities "
        "('c'). All values are equal, so the scale is 1: 'y' in 1 of 4 entities ('d')."
    )
    with pytest.warns(UserWarning, match=like(said)):
        scaler = ts.Scaler.fit(stash, ["y"], by="entity")
    known = [1.0, 3.0, 10.0, 20.0, 5.0, 5.0]
    assert scaler.center["y"].tolist() == pytest.approx([2.0, 15.0, np.mean(known), 5.0], rel=1e-14)
    assert scaler.scale["y"].tolist() == pytest.approx([1.0, 5.0, np.std(known), 1.0], rel=1e-14)


def test_entities_of_another_part_take_the_statistics_of_all() -> None:
    stash = panel([20] * 6, holes=0)
    train, unseen = ts.Windows(stash, history=4).split_entities(0.5)
    with pytest.warns(UserWarning, match=r"^No value, or only one, .*: 'y' in 3 of 6 entities \(\d, \d, \d\)\.$"):
        scaler = ts.Scaler.fit(train, ["y"], by="entity")
    other = sorted({*unseen.anchors(slice(None))["entity"].tolist()})
    pooled = ts.Scaler.fit(train, ["y"])
    assert scaler.center["y"][other].tolist() == pytest.approx([pooled.center["y"].item()] * 3, rel=1e-12)


def test_a_hundred_thousand_entities_are_fitted_without_a_loop() -> None:
    lengths = np.random.default_rng(0).integers(2, 9, 100_000)
    entity = np.repeat(np.arange(len(lengths)), lengths)
    values = np.random.default_rng(1).normal(entity, 1)
    stash = ts.load({"e": entity, "y": values}, ["y"], entity="e")
    for kind in KINDS:
        scaler = ts.Scaler.fit(stash, ["y"], kind=kind, by="entity")
        for which in (0, 1, 50_000, 99_999):
            own = values[entity == which]
            center, scale = scaler.center["y"][which].item(), scaler.scale["y"][which].item()
            np.testing.assert_allclose((own - center) / scale, theirs(kind, own[:, None])[:, 0], rtol=0, atol=1e-6)


def test_the_stash_stays_as_it_is() -> None:
    stash = panel([30])
    for kind in KINDS:
        ts.Scaler.fit(ts.Windows(stash, history=3).split(20)[0], ["x", "y"], kind=kind)
    assert stash.private_bytes() in (0, None)


ERRORS: list[tuple[type[Exception], dict[str, Any], str]] = [
    (
        ValueError,
        {"kind": "power"},
        "kind ... maxabs ... 'power'",
    ),
    (ts.errors.ColumnError, {"by": "row"}, "by= has no column of codes 'row'; it has 'entity'"),
    (ValueError, {"sample": 0}, "sample ... >= 1 ... 0"),
    (ValueError, {"columns": []}, "columns ... at least one"),
    (TypeError, {"columns": "y"}, "columns ... list ... ['y']"),
    (ts.errors.ColumnError, {"columns": ["yy"]}, "no column 'yy' ... 'y'"),
    (ts.errors.ColumnError, {"columns": ["z"]}, "no column 'z' ... 'y', 'hole'"),
    (ts.errors.SchemaError, {"columns": ["word"]}, "numeric ... 'word' ... category"),
    (ts.errors.SchemaError, {"columns": ["flag"]}, "numeric ... 'flag' ... torch.bool"),
    (
        ts.errors.DataError,
        {"columns": ["hole"]},
        "finite ... 'hole' ... only missing values",
    ),
]


@pytest.mark.parametrize(("kind", "arguments", "message"), ERRORS, ids=lambda value: str(value)[:30])
def test_fit_says_the_rule_the_offender_and_the_remedy(
    kind: type[Exception], arguments: dict[str, Any], message: str
) -> None:
    values = {"y": [1.0, 2.0], "z": [1.0, 2.0], "word": ["a", "b"], "flag": [True, False], "hole": [np.nan, np.nan]}
    windows = ts.Windows(ts.load(values), history=1, columns=["y", "hole"])
    with pytest.raises(kind, match=like(message)):
        ts.Scaler.fit(windows, **({"columns": ["y"]} | arguments))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by", [None, "entity"])
def test_infinite_values_are_refused(kind: Kind, by: By | None) -> None:
    stash = ts.load({"y": [1.0, 2.0, np.inf, np.inf]})
    message = "finite ... 'y' has values that are infinite"
    with pytest.raises(ts.errors.DataError, match=like(message)):
        ts.Scaler.fit(stash, ["y"], kind=kind, by=by)


@pytest.mark.parametrize(("kind", "values"), [("standard", [-1e200, 1e200]), ("minmax", [-1e308, 1e308])])
@pytest.mark.parametrize("by", [None, "entity"])
def test_values_of_which_float64_holds_no_spread_are_refused(kind: Kind, values: Any, by: By | None) -> None:
    table = {"e": np.repeat(["a", "b"], 4), "y": [*values] * 4}
    load: dict[str, Any] = {"entity": "e"}
    with pytest.raises(ts.errors.DataError, match=like("finite ... 'y' has values ... that float64 cannot square")):
        ts.Scaler.fit(ts.load(table, ["y"], **load), ["y"], kind=kind, by=by)
    scaler = ts.Scaler.fit(ts.load(table, {"y": pl.col("y") / 1e200}, **load), ["y"], kind=kind, by=by)
    assert all(x["y"].isfinite().all() for x in (scaler.center, scaler.scale))
    largest = ts.load({"y": [-1e308, 1e308]})
    assert ts.Scaler.fit(largest, ["y"], kind="maxabs")({"y": largest["y"][None]})["y"].tolist() == [[-1, 1]]


@pytest.mark.parametrize("name", ["target", "rows", "sold", "price"])
def test_a_name_of_something_else_than_a_column_is_told_with_the_line_that_works(name: str) -> None:
    """That of a span, of rows of a pack, and of a member of a pack, with windows and a stash."""
    table = {"shop": [*"aabb"], "age": [30.0, 30.0, 50.0, 50.0], "hole": [np.nan] * 4, "zone": [*"nnss"]}
    table |= {"sold": [1.0, 2.0, 5.0, 9.0], "price": [1.0, 2.0, 3.0, 4.0], "y": [0.0, 1.0, 2.0, 3.0]}
    columns = {"y": "y", "x": ["sold", "price"]}
    stash = ts.load(table, columns, entity="shop", static=["age", "hole", "zone"])
    spans = {"target": ("y", 0, 1), "rows": (ts.each("x"), -1, 0)}
    windows = ts.Windows(stash, spans=spans)
    sources: list[Any] = [windows] if name in spans else [windows, stash]
    for source in sources:
        with pytest.raises(
            ts.errors.ColumnError, match=like(f"A scaler takes columns ... {name!r} is ... Write")
        ) as caught:
            ts.Scaler.fit(source, [name])
        line = str(caught.value).partition("Write ")[2].rstrip(".")
        found = eval(line, {"ts": ts, "windows": windows, "stash": stash})
        assert [*found.center] == ["y" if name == "target" else "x"]
    with pytest.raises(ts.errors.SchemaError, match=like("must be numeric; 'zone' is category. Leave it out.")):
        ts.Scaler.fit(windows, ["zone"])
    with pytest.raises(ts.errors.ColumnError, match=like("no column")):
        ts.Scaler.fit(windows, ["sol"])


def test_a_scaler_needs_windows() -> None:
    stash = ts.load({"t": [1, 2, 3], "y": [1.0, 2.0, 3.0]}, ["y"], time="t")
    message = "at least one row ... split()"
    with pytest.raises(ValueError, match=like(message)):
        ts.Scaler.fit(ts.Windows(stash, history=1).split(0)[0], ["y"])


def test_a_kind_that_cannot_be_hashed_is_refused() -> None:
    message = "kind ... maxabs ... ['standard']"
    with pytest.raises(ValueError, match=like(message)):
        ts.Scaler.fit(ts.load({"y": np.arange(10.0)}), ["y"], kind=["standard"])  # type: ignore[arg-type]


def test_an_entity_takes_pooled_statistics_for_the_column_that_lacks_values_alone() -> None:
    nan = float("nan")
    table = {"e": ["a"] * 3 + ["b"] * 3, "x": [1.0, 2.0, 3.0, 10.0, 20.0, 30.0], "y": [5.0, 7.0, 9.0, nan, nan, 4.0]}
    stash = ts.load(table, {"p": ["x", "y"]}, entity="e")
    with pytest.warns(UserWarning, match="No value, or only one, .*: 'p' in 1 of 2 entities"):
        scaler = ts.Scaler.fit(stash, ["p"], by="entity")
    pooled = ts.Scaler.fit(stash, ["p"])
    assert scaler.center["p"].tolist() == [[2.0, 7.0], [20.0, pooled.center["p"][0, 1].item()]]
