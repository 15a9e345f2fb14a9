"""Scalers: statistics of exactly the rows that windows see, as scikit-learn has them, and batches scaled in place."""

import copy
import json
import math
import pickle
import warnings
from typing import Any, cast, get_args

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

import tensorstash as ts
from tensorstash.stash import moments
from tensorstash.transforms import scaling
from tensorstash.transforms.fitting import rows_seen
from tensorstash.transforms.scaling import ScaleConstants
from tensorstash.windows.slots import nearest_rows
from tests.data import DTYPES, Table, tables
from tests.oracle_load import like
from tests.words import By, Gaps, Unknown
from tests.words import ScalerKind as Kind

THEIRS = {"standard": StandardScaler, "minmax": MinMaxScaler, "robust": RobustScaler, "maxabs": MaxAbsScaler}
KINDS = get_args(Kind)


def theirs(kind: str, values: NDArray[Any]) -> NDArray[np.float64]:
    """What scikit-learn makes of `(rows, items)`, in float64."""
    return THEIRS[kind]().fit_transform(values.astype(np.float64))


def panel(lengths: list[int], seed: int = 0, holes: float = 0.1) -> ts.Stash:
    """Entities on levels of their own, a pack of three, some values missing."""
    rng = np.random.default_rng(seed)
    rows = sum(lengths)
    level = np.repeat(rng.normal(0, 100, len(lengths)), lengths)
    table = rng.normal(level[:, None], [1, 2, 30], (rows, 3))
    y = rng.normal(level, 3)
    y[rng.random(rows) < holes] = np.nan
    entity = np.repeat(np.arange(len(lengths)), lengths)
    time = np.concatenate([np.arange(length) for length in lengths])
    return ts.load({"e": entity, "t": time, "y": y, "x": table}, ["y", "x"], entity="e", time="t")


def scaled(scaler: ts.Scaler, stash: ts.Stash, column: str) -> NDArray[Any]:
    """All rows of a column, scaled as one batch of a window."""
    span = next(span for span, of in scaler.spans.items() if of == column)
    return scaler({span: stash[column][None].clone()})[span][0].numpy()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", [7, 64, 1 << 16])
def test_all_rows_are_scaled_as_scikit_learn_does(kind: Kind, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments, "_BLOCK", block)
    stash = panel([50, 30, 1, 119])
    scaler = ts.Scaler.fit(stash, ["x", "y"], kind=kind)
    np.testing.assert_allclose(scaled(scaler, stash, "x"), theirs(kind, stash["x"].numpy()), rtol=0, atol=1e-9)
    y = stash["y"].numpy()
    np.testing.assert_allclose(scaled(scaler, stash, "y"), theirs(kind, y[:, None])[:, 0], rtol=0, atol=1e-9)
    assert np.isnan(y).any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", [10, 1 << 16])
def test_each_entity_is_scaled_as_scikit_learn_does(kind: Kind, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments, "_BLOCK", block)
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


@pytest.mark.parametrize("slots", [1, 7, 8, 9, 24, 31])
@pytest.mark.parametrize("layout", ["whole", "slice", "one window"])
def test_windows_of_many_entities_are_scaled_each_by_its_own(slots: int, layout: str) -> None:
    stash = panel([40, 50, 60, 70], holes=0)
    windows = ts.Windows(stash, history=slots)
    scaler = ts.Scaler.fit(windows, ["x", "y"], by="entity").bind(windows)
    ids = np.random.default_rng(0).integers(len(windows), size=50)
    batch = windows[ids] | {"entity": windows.anchors(ids)["entity"]}
    if layout == "slice":
        batch = {name: tensor[::2] for name, tensor in batch.items()}
    if layout == "one window":
        batch = {name: tensor[3] for name, tensor in batch.items()}
    before = {name: tensor.double().clone() for name, tensor in batch.items()}
    scaler(batch)
    entity = batch["entity"].reshape(-1).tolist()
    for name in ("x", "y"):
        shape = (len(entity), *stash[name].shape[1:])
        for k, (mine, old) in enumerate(
            zip(batch[name].reshape(-1, slots, *shape[1:]), before[name].view(-1, slots, *shape[1:]))
        ):
            expected = (old - scaler.center[name][entity[k]]) / scaler.scale[name][entity[k]]
            np.testing.assert_allclose(mine, expected, rtol=0, atol=1e-9)
    restored = scaler.inverse(batch)
    for name in ("x", "y"):
        np.testing.assert_allclose(restored[name], before[name], rtol=0, atol=1e-9)


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
                spans={"past": ("f32", begin, begin + length), "row": ("i64", begin, begin + length)},
                stride=stride,
                gaps=gaps,
                min_history=min(1, max(0, -begin)) if padded else None,
            )
        except ts.errors.DataError:
            assume(False)
    windows = whole.split(cut)[part]
    assume(len(windows))
    # row r of column i64 holds r * 16 + 4; a span with a hole in the window's middle does not hide what lies there
    seen: set[int] = set()
    for anchor in windows.placement.anchor_slots(np.arange(len(windows))).tolist():
        slots = np.arange(anchor - windows.history, anchor + windows.horizon)
        rows, distance = nearest_rows(windows.placement.slots, slots)
        seen |= {*rows[distance == 0].tolist()}
    found = rows_seen(windows, windows.stash)
    ranges = [range(low, high) for low, high in zip(found.low.tolist(), found.high.tolist())]
    assert [row for one in ranges for row in one] == sorted(seen)

    values = stash["f32"].double().numpy()[sorted(seen)]
    assume(np.isfinite(values).sum() >= 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
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


@pytest.mark.parametrize("by", [None, "entity"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_batch_is_scaled_in_its_own_memory_and_back(by: By | None, dtype: torch.dtype) -> None:
    stash = panel([50, 30, 20], holes=0)
    stash = ts.load(
        {"e": np.repeat([0, 1, 2], [50, 30, 20]), "x": stash["x"].to(dtype), "y": stash["y"].to(dtype)},
        ["x", "y"],
        entity="e",
    )
    spans: dict[str, Any] = {"x": ("x", -6, 0), "thin": ("x", -6, 0, 2), "y": ("y", -6, 0), "next": ("y", 0, 3)}
    windows = ts.Windows(stash, spans=spans)
    scaler = ts.Scaler.fit(windows, ["x", "y"], by=by).bind(windows)
    for batch in ts.Loader(windows, 16, shuffle=True, with_ids=True):
        before = {name: tensor.clone() for name, tensor in batch.items()}
        addresses = {name: tensor.data_ptr() for name, tensor in batch.items()}
        assert scaler(batch) is batch
        assert {name: tensor.data_ptr() for name, tensor in batch.items()} == addresses
        group = batch["entity"] if by else torch.zeros(len(batch["y"]), dtype=torch.int64)
        for name, (column, *_) in spans.items():
            shape = (-1, 1, 3) if column == "x" else (-1, 1)
            center, scale = (table[column][group].view(shape) for table in (scaler.center, scaler.scale))
            tolerance = 1e-12 if dtype == torch.float64 else 1e-4
            expected = (before[name].double() - center) / scale
            torch.testing.assert_close(batch[name].double(), expected, rtol=0, atol=tolerance)
            prediction = scaler.inverse(batch[name], column, batch["entity"] if by else None)
            assert prediction.dtype == dtype
            torch.testing.assert_close(prediction, before[name], rtol=0, atol=1e-4)
        assert scaler.inverse(batch) is batch
        for name in spans:
            torch.testing.assert_close(batch[name], before[name], rtol=0, atol=1e-4)
        for name in ("window", "entity", "anchor"):
            assert batch[name].equal(before[name])


def test_gradients_flow_through_the_inverse_of_a_prediction() -> None:
    scaler = ts.Scaler.fit(ts.load({"y": [0.0, 4.0]}), ["y"])
    prediction = torch.zeros(3, 5, requires_grad=True)
    quantiles = scaler.inverse(prediction[..., None].expand(3, 5, 7), "y")
    assert quantiles.shape == (3, 5, 7)
    (gradient,) = torch.autograd.grad(quantiles.sum(), prediction)
    assert gradient.eq(2 * 7).all()


@pytest.mark.parametrize("by", [None, "entity"])
@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES.values() if not dtype.is_floating_point])
def test_integer_predictions_become_floating_values(dtype: torch.dtype, by: By | None) -> None:
    stash = panel([50, 30], holes=0)
    scaler = ts.Scaler.fit(stash, ["x", "y"], by=by).bind(stash)
    entity = torch.tensor([1, 0]) if by else None
    for column, shape in (("y", (2, 4)), ("x", (2, 4, 3))):
        values = (torch.arange(24)[: int(np.prod(shape))].view(shape) % 3).to(dtype)
        found = scaler.inverse(values, column, entity)
        assert found.dtype == torch.get_default_dtype()
        assert found.equal(scaler.inverse(values.float(), column, entity))
        assert (found != found.round()).any()


@pytest.mark.parametrize("by", [None, "entity"])
def test_a_scaler_first_used_in_inference_mode_takes_part_in_training(by: By | None) -> None:
    """As in a check of the validation before the first epoch."""
    stash = panel([50, 30], holes=0)
    scaler = ts.Scaler.fit(stash, ["x", "y"], by=by).bind(stash)
    batch = {"y": torch.zeros(2, 4), "x": torch.zeros(2, 4, 3), "entity": torch.tensor([0, 1])}
    for inference in (True, False):
        with torch.inference_mode(inference):
            scaler({name: tensor.clone() for name, tensor in batch.items()})
            weight = torch.ones(2, 4, requires_grad=not inference)
            prediction = scaler.inverse(weight, "y", batch["entity"] if by else None)
    (gradient,) = torch.autograd.grad(prediction.sum(), weight)
    assert gradient.double().allclose(scaler.scale["y"][:, None].expand(-1, 4)[-2:], rtol=1e-6)


def test_a_batch_that_is_refused_stays_as_it_was() -> None:
    scaler = ts.Scaler.fit(ts.load({"y": [1.0, 2.0], "k": [1, 2]}), ["y", "k"])
    batch = {"y": torch.ones(1, 2), "k": torch.ones(1, 2, dtype=torch.int64)}
    with pytest.raises(ts.errors.SchemaError, match=like("floating ... 'k'")):
        scaler(batch)
    assert batch["y"].tolist() == [[1.0, 1.0]]


def test_one_window_without_a_batch_is_scaled_too() -> None:
    stash = panel([20], holes=0)
    scaler = ts.Scaler.fit(windows := ts.Windows(stash, history=4), ["x", "y"])
    alone, batch = scaler(windows[3]), scaler(windows[[3]])
    assert alone["x"].equal(batch["x"][0])
    assert alone["y"].equal(batch["y"][0])


def test_the_state_is_plain_and_whole() -> None:
    stash = panel([50, 30])
    for by in (None, "entity"):
        scaler = ts.Scaler.fit(stash, ["x", "y"], kind="robust", by=by).bind(stash)
        batch = {"x": stash["x"][:8].view(2, 4, 3).clone(), "entity": torch.tensor([0, 1])}
        expected = scaler({name: tensor.clone() for name, tensor in batch.items()})["x"]
        others = [
            ts.Scaler.from_state(json.loads(json.dumps(scaler.state_dict()))),
            pickle.loads(pickle.dumps(scaler)),
            copy.deepcopy(scaler),
        ]
        for other in others:
            assert other.state_dict() == scaler.state_dict()
            assert repr(other) == repr(scaler)
            assert other.bind(stash)({name: tensor.clone() for name, tensor in batch.items()})["x"].equal(expected)


def test_a_scaler_says_what_it_is() -> None:
    stash = ts.load({"e": list("aaabbb"), "y": [0.0, 1.0, 2.0, 10.0, 20.0, 30.0]}, ["y"], entity="e")
    windows = ts.Windows(stash, spans={"past": ("y", -2, 0), "next": ("y", 0, 1)})
    assert repr(ts.Scaler.fit(windows, ["y"], kind="minmax", by="entity")) == (
        "Scaler: minmax by entity, 2 of them, of the 6 rows seen\n  y  center 0, 10  scale 2, 20  for past, next"
    )


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
        "All values are equal, so the scale is 1: 'y' in 1 of 4 entities ('d'). Too few values: 'y' in 1 of 4 entities "
        "('c'); these fall back to the statistics of all entities."
    )
    with pytest.warns(UserWarning, match=like(said)):
        scaler = ts.Scaler.fit(stash, ["y"], by="entity")
    known = [1.0, 3.0, 10.0, 20.0, 5.0, 5.0]
    assert scaler.center["y"].tolist() == pytest.approx([2.0, 15.0, np.mean(known), 5.0], rel=1e-14)
    assert scaler.scale["y"].tolist() == pytest.approx([1.0, 5.0, np.std(known), 1.0], rel=1e-14)


def test_entities_of_another_part_take_the_statistics_of_all() -> None:
    stash = panel([20] * 6, holes=0)
    train, unseen = ts.Windows(stash, history=4).split_entities(0.5)
    with pytest.warns(
        UserWarning, match=r"^Too few values: 'y' in 3 of 6 entities \(\d, \d, \d\); these fall back to "
    ):
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
    (ValueError, {"by": "row"}, "by ... entity ... 'row'"),
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
    message = "finite ... 'y' ... infinite values"
    with pytest.raises(ts.errors.DataError, match=like(message)):
        ts.Scaler.fit(stash, ["y"], kind=kind, by=by)


def test_a_scaler_needs_windows() -> None:
    stash = ts.load({"t": [1, 2, 3], "y": [1.0, 2.0, 3.0]}, ["y"], time="t")
    message = "at least one window ... split()"
    with pytest.raises(ValueError, match=like(message)):
        ts.Scaler.fit(ts.Windows(stash, history=1).split(0)[0], ["y"])


def test_a_batch_that_does_not_fit_says_what_is_missing() -> None:
    stash = ts.load({"y": [1.0, 2.0], "x": torch.tensor([[1.0, 5.0], [2.0, 6.0]]), "k": [1, 2]})
    scaler, by_entity = (ts.Scaler.fit(stash, ["y", "x", "k"], by=by).bind(stash) for by in (None, "entity"))
    for error, one, batch, message in [
        (
            ValueError,
            scaler,
            {"past": torch.zeros(1, 2)},
            "'y', 'x', 'k' ... 'past' ... Fit it on windows",
        ),
        (
            ts.errors.SchemaError,
            scaler,
            {"k": torch.zeros(1, 2, dtype=torch.int64)},
            "floating ... 'k' is torch.int64 ... ts.Cast({'k': torch.float32})",
        ),
        (
            ValueError,
            scaler,
            {"x": torch.zeros(1, 2, 3)},
            "dimensions of 'x' ... (2,) ... (1, 2, 3)",
        ),
        (
            ValueError,
            by_entity,
            {"y": torch.zeros(1, 2)},
            "entity of each window ... with_ids=True",
        ),
    ]:
        with pytest.raises(error, match=like(message)):
            one(batch)
    with pytest.raises(ts.errors.ColumnError, match=like("no column 'past' ... 'y', 'x', 'k'")):
        scaler.inverse(torch.zeros(1), "past")
    with pytest.raises(ValueError, match=like("version ... 1 ... None")):
        ts.Scaler.from_state({})


def test_predictions_need_an_entity_each() -> None:
    stash = ts.load({"e": ["a", "a", "b", "b"], "y": [0.0, 2.0, 10.0, 30.0]}, ["y"], entity="e")
    scaler = ts.Scaler.fit(stash, ["y"], by="entity").bind(stash)
    values = torch.zeros(2, 3)
    with pytest.raises(ValueError, match=like("one number for each of 2 windows ... 1")):
        scaler.inverse(values, "y", torch.tensor([0]))
    with pytest.raises(TypeError, match=like("integers ... torch.float32")):
        scaler.inverse(values, "y", torch.tensor([0.0, 1.0]))
    for wrong, bad in (([0, 2], 2), ([-1, 0], -1)):
        with pytest.raises(IndexError, match=f"the entities 0 to 1; the batch has entity {bad}"):
            scaler.inverse(values, "y", torch.tensor(wrong))
    for wrong_values, shown in (([1.0], "a list"), (values.to(torch.complex64), "torch.complex64")):
        with pytest.raises(TypeError, match=like(f"real numbers ... {shown}")):
            scaler.inverse(wrong_values, "y")  # type: ignore[arg-type]


def slow_scaled(
    values: torch.Tensor, center: torch.Tensor, scale: torch.Tensor, group: torch.Tensor | None, inverse: bool
) -> torch.Tensor:
    """One number of one window after the other; half types in float32, rounded once."""
    wide = torch.float64 if values.dtype == torch.float64 else torch.float32
    windows = values.reshape(len(values), -1, center[0].numel())
    for k, window in enumerate(windows):
        own = 0 if group is None else int(group[k])
        for item, (a, b) in enumerate(zip(center[own].reshape(-1).to(wide), scale[own].reshape(-1).to(wide))):
            column = window[:, item].to(wide)
            scaled = column * b + a if inverse else (column - a) / b
            window[:, item] = scaled.to(values.dtype)
    return windows.reshape(values.shape)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("pack", [(), (1,), (3,), (2, 5)])
@pytest.mark.parametrize("slots", [1, 7, 37])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("tile", [200, 1 << 20])
def test_scaling_is_one_subtraction_and_one_division(
    dtype: torch.dtype, pack: tuple[int, ...], slots: int, grouped: bool, tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "_TILE", tile)
    random = torch.Generator().manual_seed(slots)
    center, scale = (torch.rand(4, *pack, generator=random, dtype=torch.float64) + 0.1 for _ in range(2))
    values = (torch.randn(11, slots, *pack, generator=random) * 3).to(dtype)
    values.view(-1)[::13] = torch.nan
    group = torch.randint(0, 4, (11,), generator=random) if grouped else None
    made = ScaleConstants.of(center, scale, values)
    for inverse in (False, True):
        expected = slow_scaled(values.clone(), center, scale, group, inverse)
        for tensor in (values.clone(), torch.stack([values, values], -1)[..., 0]):  # in one piece, and not
            made.scale_in_place(tensor, group, inverse=inverse)
            assert torch.equal(tensor.nan_to_num(99), expected.nan_to_num(99))
    assert torch.equal(made.restored(values, group).nan_to_num(99), expected.nan_to_num(99))
    one, first = values[3].clone(), None if group is None else group[3]  # a single window
    made.scale_in_place(one, first, inverse=True)
    assert torch.equal(one.nan_to_num(99), expected[3].nan_to_num(99))


def test_the_slow_scaling_can_fail() -> None:
    center, scale, values = torch.tensor([[1.0]]), torch.tensor([[3.0]]), torch.rand(50, 1) + 2
    product = values * (1 / scale) - center / scale
    assert not torch.equal(slow_scaled(values.clone(), center, scale, None, False), product)


def test_autograd_learns_that_a_batch_was_scaled() -> None:
    stash = ts.load({"y": np.arange(10.0)})
    windows = ts.Windows(stash, 3)
    batch, weight = windows[:], torch.ones(3, dtype=torch.float64, requires_grad=True)
    loss = (weight * batch["y"]).sum()
    ts.Scaler.fit(windows, ["y"])(batch)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()  # type: ignore[no-untyped-call]


def test_entities_that_the_scaler_does_not_know_are_refused() -> None:
    stash = ts.load({"y": np.arange(10.0), "e": ["a"] * 5 + ["b"] * 5}, ["y"], entity="e")
    scaler, windows = ts.Scaler.fit(stash, ["y"], by="entity").bind(stash), ts.Windows(stash, 3)
    for bad in (-1, 2):
        message = f"entities 0 to 1 ... entity {bad} ... scaler.bind(windows)"
        with pytest.raises(IndexError, match=like(message)):
            scaler(windows[[0]] | {"entity": torch.tensor([bad])})


def test_a_kind_that_cannot_be_hashed_is_refused() -> None:
    message = "kind ... maxabs ... ['standard']"
    with pytest.raises(ValueError, match=like(message)):
        ts.Scaler.fit(ts.load({"y": np.arange(10.0)}), ["y"], kind=["standard"])  # type: ignore[arg-type]


def test_an_entity_takes_pooled_statistics_for_the_column_that_lacks_values_alone() -> None:
    nan = float("nan")
    table = {"e": ["a"] * 3 + ["b"] * 3, "x": [1.0, 2.0, 3.0, 10.0, 20.0, 30.0], "y": [5.0, 7.0, 9.0, nan, nan, 4.0]}
    stash = ts.load(table, {"p": ["x", "y"]}, entity="e")
    with pytest.warns(UserWarning, match="Too few values: 'p' in 1 of 2 entities"):
        scaler = ts.Scaler.fit(stash, ["p"], by="entity")
    pooled = ts.Scaler.fit(stash, ["p"])
    assert scaler.center["p"].tolist() == [[2.0, 7.0], [20.0, pooled.center["p"][0, 1].item()]]


def test_predictions_of_a_pack_have_a_time_dimension() -> None:
    """Three steps of a pack of three could be taken for three columns."""
    stash = ts.load({"a": [1.0, 2.0], "b": [10.0, 20.0], "c": [5.0, 9.0]}, {"x": ["a", "b", "c"]})
    scaler = ts.Scaler.fit(stash, ["x"])
    with pytest.raises(ValueError, match=like("pack 'x' ... (batch, time, *pack) ... (4, 3)")):
        scaler.inverse(torch.zeros(4, 3), "x")
    assert scaler.inverse(torch.zeros(4, 3, 3), "x")[0, 0].tolist() == [1.5, 15.0, 7.0]


@pytest.mark.parametrize("by", [None, "entity"])
def test_slots_without_a_row_keep_their_fill(by: By | None) -> None:
    table = {"e": ["a"] * 4, "t": [0, 1, 3, 4], "k": [7, 8, 9, 10]}
    stash = ts.load(table, {"k": ts.column("k", dtype=torch.float32, empty=0)}, entity="e", time="t")
    windows = ts.Windows(stash, 5, gaps="mask", frequency=1)
    scaler = ts.Scaler.fit(windows, ["k"], by=by).bind(windows)
    batch = windows[:] | {"entity": torch.tensor([0])}
    assert scaler(batch)["k"][0, 2].item() == 0
    assert batch["k"][0, 0].item() < -1
    assert scaler.inverse(batch)["k"].tolist() == [[7, 8, 0, 9, 10]]


def series(levels: dict[Any, float]) -> ts.Stash:
    """Two entity columns would be tuples; each entity has the values level - 1 and level + 1, again and again."""
    table = {"e": np.repeat([*levels], 6), "t": [*range(6)] * len(levels)}
    values = np.concatenate([level + np.array([-1.0, 1.0] * 3) for level in levels.values()])
    return ts.load({**table, "y": values, "z": values + 0.5}, ["y", "z"], entity="e", time="t")


@pytest.mark.parametrize("json_between", [False, True])
@pytest.mark.parametrize("made", ["windows", "stash"])
def test_entities_are_matched_by_name(made: str, json_between: bool) -> None:
    both, later = series({"a": 10.0, "b": 500.0}), series({"b": 500.0})
    source = both if made == "stash" else ts.Windows(both, 2)
    scaler = ts.Scaler.fit(source, ["y"], by="entity")
    if json_between:
        scaler = ts.Scaler.from_state(json.loads(json.dumps(scaler.state_dict())))
    loader = ts.Loader(ts.Windows(later, 2, columns=["y"]), 10, with_ids=True, transform=[scaler])
    (batch,) = loader
    assert batch["entity"].tolist() == [0] * 5
    assert batch["y"].abs().eq(1).all()
    assert scaler.bind(later).inverse(batch["y"], "y", batch["entity"]).sub(500).abs().eq(1).all()
    bound = cast("ts.Scaler", loader.transform[0])
    assert bound.entities == ["b"]
    assert bound.state_dict() == scaler.state_dict()
    assert bound.bind(both).entities == ["a", "b"]


def test_entities_of_several_columns_and_integers_are_matched_by_name() -> None:
    table = {"e": [1, 1, 1, 2, 2, 2], "f": ["x", "x", "y", "x", "x", "y"], "y": [1.0, 3.0, 5.0, 20.0, 40.0, 7.0]}
    many = ts.load(table, ["y"], entity=["e", "f"])
    with pytest.warns(UserWarning, match="Too few"):
        scaler = ts.Scaler.fit(many, ["y"], by="entity")
    scaler = ts.Scaler.from_state(json.loads(json.dumps(scaler.state_dict())))
    one = ts.load({"e": [2, 2], "f": ["x", "x"], "y": [20.0, 40.0]}, ["y"], entity=["e", "f"])
    assert scaler.bind(one).entities == [(2, "x")]
    assert scaler.bind(one).center["y"].tolist() == [30.0]


def test_an_unknown_entity_is_an_error_or_takes_pooled_statistics() -> None:
    train, new = series({"a": 10.0, "b": 500.0}), series({"b": 500.0, "c": 255.0})
    windows = ts.Windows(new, 2, columns=["y"])
    scaler = ts.Scaler.fit(train, ["y"], by="entity")
    with pytest.raises(ts.errors.DataError, match=like("1 of 2 are unknown ... 'c' ... unknown='pooled'")):
        ts.Loader(windows, 4, with_ids=True, transform=[scaler])
    pooled = ts.Scaler.fit(train, ["y"])
    scaler = ts.Scaler.fit(train, ["y"], by="entity", unknown="pooled")
    scaler = ts.Scaler.from_state(json.loads(json.dumps(scaler.state_dict())))
    (batch,) = ts.Loader(windows, 10, with_ids=True, transform=[scaler])
    assert batch["y"][:5].abs().eq(1).all()
    expected = (new["y"][6:8] - pooled.center["y"]) / pooled.scale["y"]
    assert batch["y"][5].equal(expected)
    assert len(scaler.entities) == len(scaler.center["y"]) - 1 == 2
    assert scaler.bind(new).bind(train).center["y"].equal(scaler.center["y"])  # nothing was forgotten meanwhile
    with pytest.raises(IndexError, match=like("entities 0 to 1 ... entity 2")):  # the pooled row is no entity
        scaler.bind(new).inverse(torch.zeros(1, 1), "y", torch.tensor([2]))
    for by, unknown in ((None, "pooled"), ("entity", "global")):
        with pytest.raises(ValueError, match=like(f"unknown ... {unknown!r}")):
            ts.Scaler.fit(train, ["y"], by=by, unknown=unknown)  # type: ignore[arg-type]


def test_a_number_of_an_entity_says_nothing_without_its_windows() -> None:
    """By hand a scaler must be told of which windows the numbers are, fitted just now or made from a state."""
    stash, other = series({"a": 10.0, "b": 1004.0}), series({"b": 1004.0})
    fitted = ts.Scaler.fit(stash, ["y"], by="entity")
    (batch,) = ts.Loader(ts.Windows(other, 2), 9, with_ids=True)
    raw = batch["y"].clone()
    for scaler in (fitted, ts.Scaler.from_state(fitted.state_dict())):
        for call in (scaler, scaler.inverse):
            with pytest.raises(ValueError, match=like("must be bound first ... scaler.bind(windows)")):
                call(batch)
        with pytest.raises(ValueError, match=like("must be bound first ... scaler.bind(windows)")):
            scaler.inverse(batch["y"], "y", batch["entity"])
        bound = scaler.bind(other)
        assert bound(dict(batch))["y"].abs().eq(1).all()
        assert bound.inverse(batch["y"], "y", batch["entity"]).allclose(raw)
        assert bound.inverse(batch)["y"].allclose(raw)


def test_numbers_of_one_stash_are_not_those_of_a_mix() -> None:
    """Components count their entities from 0, and shards count through."""
    one, two = series({"a": 10.0, "b": 500.0}), series({"a": -70.0})
    parts = {name: ts.Windows(stash, 2, columns=["y"]) for name, stash in (("one", one), ("two", two))}
    mix = ts.Mix(parts)
    alone, together = (ts.Scaler.fit(source, ["y"], by="entity").bind(source) for source in (one, mix))
    mixed, plain = (next(iter(ts.Loader(windows, 3, with_ids=True))) for windows in (mix, parts["one"]))
    with pytest.raises(ValueError, match=like("bound to one stash knows no components ... scaler.bind(mix)")):
        alone(mixed)
    with pytest.raises(ValueError, match=like("knows no components")):
        alone.inverse(mixed["y"], "y", mixed["entity"], mixed["source"])
    with pytest.raises(ValueError, match=like("needs the entity of each window, and in a mix its component")):
        together(plain)
    entity = torch.tensor([0, 1])
    with pytest.raises(IndexError, match=like("the entities 0 to 0 ... entity 1")):  # the second component has one
        together.inverse(torch.zeros(2, 3), "y", entity, torch.tensor([0, 1]))
    with pytest.raises(IndexError, match=like("the components 0 to 1 ... component -1")):
        together.inverse(torch.zeros(2, 3), "y", entity, torch.tensor([0, -1]))
    with pytest.raises(ValueError, match=like("source must have one number for each entity, (2,), got (1,)")):
        together.inverse(torch.zeros(2, 3), "y", entity, torch.tensor([0]))
    with pytest.raises(TypeError, match=like("source must be a tensor of integers, got [0, 1]")):
        together.inverse(torch.zeros(2, 3), "y", entity, [0, 1])  # type: ignore[call-overload]


def test_a_state_lacks_nothing_of_a_scaler_by_entity() -> None:
    scaler = ts.Scaler.fit(series({"a": 10.0, "b": 500.0}), ["y"], by="entity")
    with pytest.raises(ValueError, match=like("lacks entities, unknown")):
        state = scaler.state_dict()
        ts.Scaler.from_state({name: state[name] for name in state if name not in ("entities", "unknown")})
    for damaged in ({"entities": ["a"]}, {"unknown": "pooled"}):
        with pytest.raises(ValueError, match=like("each of ... entities ... damaged")):
            ts.Scaler.from_state(state | damaged)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (["columns", "y", "center", 0], "x", "each of 2 ... 'y' ... damaged"),
        (["columns", "y", "center", 0], [1.0, 2.0], "each of 2 ... 'y' ... damaged"),
        (["columns", "y", "center"], 5.0, "each of 2 ... 'y' ... damaged"),
        (["columns", "y", "scale", 1], 0.0, "each of 2 ... 'y' ... damaged"),
        (["columns", "y", "scale", 1], math.nan, "each of 2 ... 'y' ... damaged"),
        (["columns", "y", "scale", 1], 10**400, "each of 2 ... 'y' ... damaged"),
        (["columns", "y"], {}, "each of 2 ... 'y' ... damaged"),
        (["columns"], [], "must have columns"),
        (["spans"], 5, "spans of these"),
        (["spans", "y"], "z", "spans of these"),
        (["entities"], 5, "distinct names"),
        (["entities", 0], "b", "distinct names"),
        (["entities", 0], ["b", {}], "distinct names"),
        (["rows"], [], "rows must be an integer"),
    ],
)
def test_each_field_of_a_state_is_checked(field: list[Any], value: Any, message: str) -> None:
    scaler = ts.Scaler.fit(series({"a": 10.0, "b": 500.0}), ["y"], by="entity")
    state = json.loads(json.dumps(scaler.state_dict()))
    assert ts.Scaler.from_state(state).state_dict() == state
    part = state
    for name in field[:-1]:
        part = part[name]
    part[field[-1]] = value
    with pytest.raises(ValueError, match=like(message)):
        ts.Scaler.from_state(state)


@pytest.mark.parametrize("unknown", ["error", "pooled"])
def test_entities_of_a_mix_are_matched_by_component_and_name(unknown: Unknown) -> None:
    stashes = {"one": series({"a": 10.0, "b": 500.0}), "two": series({"a": -70.0})}
    mix = ts.Mix({name: ts.Windows(stash, 2, columns=["y"]) for name, stash in stashes.items()})
    scaler = ts.Scaler.fit(mix, ["y"], by="entity", unknown=unknown)
    assert scaler.entities == [("one", "a"), ("one", "b"), ("two", "a")]
    scaler = ts.Scaler.from_state(json.loads(json.dumps(scaler.state_dict())))
    swapped = ts.Mix({name: ts.Windows(stashes[name], 2, columns=["y"]) for name in ("two", "one")})
    for batch in ts.Loader(swapped, 6, with_ids=True, transform=[scaler]):
        assert batch["y"].abs().eq(1).all()
    other = ts.Mix({"three": ts.Windows(stashes["two"], 2, columns=["y"])})
    if unknown == "error":
        with pytest.raises(ts.errors.DataError, match=like("unknown ... ('three', 'a')")):
            scaler.bind(other)
    else:
        assert scaler.bind(other).center["y"][0].equal(ts.Scaler.fit(mix, ["y"]).center["y"][0])


def test_a_span_is_scaled_by_its_own_column() -> None:
    stash = series({"a": 10.0})
    scaler = ts.Scaler.fit(ts.Windows(stash, spans={"past": ("y", -2, 0)}), ["y"])
    other = ts.Windows(stash, spans={"past": ("z", -2, 0), "next": ("y", 0, 1)})
    with pytest.raises(ts.errors.SchemaError, match=like("'past' ... column 'z' ... 'y'")):
        ts.Loader(other, 2, transform=[scaler])
    more = ts.Windows(stash, spans={"past": ("y", -2, 0), "next": ("y", 0, 1), "other": ("z", 0, 1)})
    (batch,) = ts.Loader(
        more, 5, transform=[scaler]
    )  # a span that the scaler was not fitted on, of a column that it was
    assert batch["next"].abs().eq(1).all()
    assert batch["other"].gt(9).all()


def test_a_loader_does_not_scale_a_span_twice() -> None:
    stash = series({"a": 10.0})
    windows = ts.Windows(stash, 2)
    y, z = (ts.Scaler.fit(windows, [name]) for name in ("y", "z"))
    with pytest.raises(ValueError, match=like("once ... 'y' ... two transforms")):
        ts.Loader(windows, 2, transform=[y, z, ts.Scaler.fit(windows, ["y"], kind="minmax")])
    assert len([*ts.Loader(windows, 5, transform=[y, z])]) == 1


def test_a_batch_is_scaled_once() -> None:
    """By a loader and by hand; a span that was written since, or scaled back, is raw again."""
    windows = ts.Windows(ts.load({"y": np.arange(9.0)}), 2)
    scaler, again = ts.Scaler.fit(windows, ["y"]), like("scaled once ... 'y' is scaled already")
    (batch,) = ts.Loader(windows, 8, transform=[scaler])
    expected = batch["y"].clone()
    with pytest.raises(ValueError, match=again):
        scaler(batch)
    assert batch["y"].equal(expected)
    assert scaler(scaler.inverse(batch))["y"].allclose(expected)
    for ids in ([0, 1], [2, 3]):  # into one memory, which the gather fills anew
        batch = windows.gather(ids, out=batch if len(batch["y"]) == 2 else windows[[0, 1]])
        assert scaler(batch)["y"].equal(expected[ids])
    batch["y"].copy_(windows[[4, 5]]["y"])
    assert scaler(batch)["y"].equal(expected[[4, 5]])
    with torch.inference_mode():  # whose tensors have no count of writes
        assert scaler(windows[[0]])["y"].equal(expected[[0]])


def test_only_a_scaled_batch_is_scaled_back() -> None:
    """Once; a copy does not say that it is scaled, and its values go through `inverse`."""
    windows = ts.Windows(ts.load({"y": np.arange(9.0), "z": np.arange(9.0)}), 2)
    scaler, refused = ts.Scaler.fit(windows, ["y", "z"]), like("Only a span that is scaled can be scaled back; 'y'")
    raw = windows[:]["y"].clone()
    (loaded,) = ts.Loader(windows, 8)
    for fresh in (loaded, windows[:], windows[0], windows.gather([0, 1])):
        before = fresh["y"].clone()
        with pytest.raises(ValueError, match=refused):
            scaler.inverse(fresh)
        assert fresh["y"].equal(before)
    (batch,) = ts.Loader(windows, 8, transform=[scaler])
    copy_of = {name: tensor.clone() for name, tensor in batch.items()}
    with pytest.raises(ValueError, match=like("'y' is not, or it is a copy ... scaler.inverse(batch['y'], 'y')")):
        scaler.inverse(copy_of)
    assert scaler.inverse(copy_of["y"], "y").allclose(raw)
    assert scaler.inverse(batch)["y"].allclose(raw)
    with pytest.raises(ValueError, match=refused):
        scaler.inverse(batch)
    batch = windows.gather([0, 1], out=scaler(windows[[2, 3]]))  # which fills it with raw values
    with pytest.raises(ValueError, match=refused):
        scaler.inverse(batch)
    with torch.inference_mode():
        batch = scaler(windows[:])
        with pytest.raises(ValueError, match=like("scaled once")):
            scaler(batch)
        assert scaler.inverse(batch)["y"].allclose(raw)
        with pytest.raises(ValueError, match=refused):
            scaler.inverse(batch)


def test_a_batch_that_other_transforms_made_anew_is_still_scaled() -> None:
    windows = ts.Windows(ts.load({"y": np.arange(9.0)}), 2)
    scaler = ts.Scaler.fit(windows, ["y"])
    raw = windows[:]["y"].float()
    for more in ([ts.Cast({"y": torch.float32})], [ts.PackSequences("y"), ts.Cast({"y": torch.float32})]):
        (batch,) = ts.Loader(windows, 8, transform=[scaler, *more])
        with pytest.raises(ValueError, match=like("scaled once; 'y' is scaled already")):
            scaler(batch)
        assert scaler.inverse(batch)["y"].view(-1, 2).allclose(raw)
    norm = ts.InstanceNorm("y")
    (batch,) = ts.Loader(windows, 8, transform=[scaler, norm])
    with pytest.raises(ValueError, match=like("scaled once; 'y' is scaled already")):
        scaler(batch)
    assert scaler.inverse(norm.inverse(batch))["y"].float().allclose(raw, atol=1e-5)


def test_what_has_bind_is_bound_when_the_loader_is_made() -> None:
    class Counting:
        def __init__(self, windows: ts.Windows | None = None) -> None:
            self.windows = windows

        def bind(self, windows: ts.Windows) -> "Counting":
            return Counting(windows)

        def __call__(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            assert self.windows is not None
            return batch | {"count": torch.tensor(len(self.windows))}

    windows = ts.Windows(series({"a": 10.0}), 2)
    assert next(iter(ts.Loader(windows, 2, transform=[Counting()])))["count"] == 5


@pytest.mark.parametrize("table", [64, 1 << 18])
def test_tables_of_constants_by_entity_are_the_same_kept_or_not(table: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "_TABLE", table)
    random = torch.Generator().manual_seed(0)
    center, scale = (torch.rand(5, 3, generator=random, dtype=torch.float64) + 0.1 for _ in range(2))
    values, group = torch.randn(11, 37, 3, generator=random), torch.randint(0, 5, (11,), generator=random)
    expected = slow_scaled(values.clone(), center, scale, group, inverse=False)
    ScaleConstants.of(center, scale, values).scale_in_place(values, group, inverse=False)
    assert values.equal(expected)


def test_a_batch_is_scaled_back_in_place_and_predictions_in_new_tensors() -> None:
    stash = ts.load({"y": [1.0, 3.0]})
    scaler = ts.Scaler.fit(ts.Windows(stash, 1), ["y"])
    batch = scaler(ts.Windows(stash, 1)[:])
    span = batch["y"]
    assert scaler.inverse(span, "y").tolist() == [[1.0], [3.0]]
    assert span.tolist() == [[-1.0], [1.0]]
    with pytest.raises(TypeError, match=like("Predictions need a column. Write scaler.inverse(values, 'y').")):
        scaler.inverse(span)  # type: ignore[call-overload]
    for more in (("y",), (None, torch.tensor([0])), (None, None, torch.tensor([0]))):
        with pytest.raises(TypeError, match=like("inverse(batch) takes no column and no entities, got")):
            scaler.inverse(batch, *more)
    with pytest.raises(AttributeError, match=like("no method 'undo'. Write scaler.inverse(batch).")):
        scaler.undo(batch)  # type: ignore[attr-defined]
    assert scaler.inverse(batch) is batch
    assert span.tolist() == [[1.0], [3.0]]
