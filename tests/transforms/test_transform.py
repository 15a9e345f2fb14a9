"""Transforms of batches: where and when a loader calls them, casts, and instance normalisation with its inverse."""

import copy
import pickle
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import tensorstash as ts
from tests import oracle
from tests.data import Table
from tests.oracle_load import like
from tests.words import NormKind as Kind

Batch = dict[str, torch.Tensor]
SPANS = {"past": ("f32", -4, 0), "pack": ("pack", -4, 2), "code": ("i16", -4, 0)}


def windows(rows: int = 200) -> ts.Windows:
    return ts.Windows(Table([rows], [*range(rows)]).stash(), spans=SPANS)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_transforms_run_one_after_the_other_in_the_thread_of_the_loop(prefetch: int) -> None:
    seen: list[tuple[str, int, list[str]]] = []

    def note(name: str) -> Callable[[Batch], Batch]:
        def transform(batch: Batch) -> Batch:
            seen.append((name, threading.get_ident(), [*batch]))
            return batch | {name: batch["past"] + len(seen)}

        return transform

    loader = ts.Loader(windows(), 64, prefetch=prefetch, with_ids=True, transform=[note("one"), note("two")])
    batches = list(loader)
    here = threading.get_ident()
    names = [*SPANS, "window", "entity", "anchor", "window.key"]
    assert seen == [("one", here, names), ("two", here, [*names, "one"])] * len(loader)
    for k, batch in enumerate(batches):
        assert batch["two"].equal(loader.dataset[batch["window"]]["past"] + 2 * k + 2)


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("keep", [True, False])
def test_a_loader_with_a_scaler_gives_scaled_windows(prefetch: int, keep: bool) -> None:
    """Scaling writes into recycled memory: neither a kept batch nor a later one may see it twice."""
    every = windows(2000)
    scaler = ts.Scaler.fit(every, ["f32", "pack"])
    loader = ts.Loader(every, 64, shuffle=True, prefetch=prefetch, transform=[scaler])
    plain = ts.Loader(every, 64, shuffle=True)
    kept = []
    for batch, bare in zip(loader, plain):
        expected = scaler(bare)
        assert all(oracle.same(batch[name], expected[name]) for name in SPANS)
        if keep:
            kept.append((batch, {name: tensor.clone() for name, tensor in expected.items()}))
    assert all(oracle.same(batch[name], expected[name]) for batch, expected in kept for name in SPANS)
    assert 0 < loader.stats()["transform_seconds"] < loader.stats()["wait_seconds"]
    assert every.stash.private_bytes() in (0, None)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_batch_whose_transform_fails_does_not_count(prefetch: int) -> None:
    calls = 0

    def third_fails(batch: Batch) -> Batch:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise ArithmeticError("as it happens")
        return batch

    loader = ts.Loader(windows(), 32, prefetch=prefetch, transform=[third_fails])
    with pytest.raises(ArithmeticError, match=r"^as it happens$"):
        list(loader)
    assert loader.state_dict()["consumed"] == 2 * 32
    resumed = ts.Loader(loader.dataset, 32)
    resumed.load_state_dict(loader.state_dict())
    assert sum(len(batch["past"]) for batch in resumed) == len(loader.dataset) - 2 * 32


def test_what_is_no_transform_is_refused() -> None:
    def forgets(batch: Batch) -> Any:
        batch["past"] += 1

    message = f"{forgets!r} ... NoneType"
    with pytest.raises(TypeError, match=like(message)):
        next(iter(ts.Loader(windows(), 8, transform=[forgets])))
    with pytest.raises(TypeError, match=like("callable ... 'past'")):
        ts.Loader(windows(), 8, transform=["past"])  # type: ignore[list-item]
    message = "transform ... list ... forgets>. Write [...]"
    with pytest.raises(TypeError, match=like(message)):
        ts.Loader(windows(), 8, transform=forgets)  # type: ignore[arg-type]


def test_narrow_storage_becomes_a_wide_batch_which_is_scaled() -> None:
    every = windows()
    scaler = ts.Scaler.fit(every, ["i16"])
    cast = ts.Cast({"code": torch.float32})
    (batch,) = ts.Loader(every, len(every), transform=[cast, scaler])
    expected = (every[:]["code"].double() - scaler.center["i16"]) / scaler.scale["i16"]
    assert batch["code"].dtype == torch.float32
    torch.testing.assert_close(batch["code"].double(), expected, rtol=0, atol=1e-6)
    assert [*batch] == [*SPANS]
    assert repr(pickle.loads(pickle.dumps(cast))) == repr(cast) == "Cast({'code': torch.float32})"
    with pytest.raises(ts.errors.ColumnError, match=like("no span 'cod' ... 'code'")):
        ts.Cast({"cod": torch.float32})({"code": torch.zeros(1)})
    message = "'code' ... torch.dtype ... 'float32' ... {'code': torch.float32}"
    with pytest.raises(TypeError, match=like(message)):
        ts.Cast({"code": "float32"})  # type: ignore[dict-item]


@pytest.mark.parametrize("dtypes", [torch.float32, "float32", None, ["code"]])
def test_a_cast_without_spans_is_refused(dtypes: Any) -> None:
    message = f"dtypes ... {dtypes!r} ... {{'<span>': torch.float32}}"
    with pytest.raises(TypeError, match=like(message)):
        ts.Cast(dtypes)


def test_a_transform_of_a_guest_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it runs, and which windows it must see whole; `scaled_spans` is tested beside scaled stashes."""

    class Whole:
        whole_windows = ("past",)

        def __call__(self, batch: Batch) -> Batch:
            return batch

    class OnHost:
        runs_on_host = True

        def __call__(self, batch: Batch) -> Batch:
            seen.append(batch["past"].device.type)
            return batch

    seen: list[str] = []
    pack = ts.PackSequences("past")
    assert len([*ts.Loader(windows(), 64, transform=[Whole(), pack])]) == 4
    with pytest.raises(ValueError, match=like("Whole must see whole windows; 'past' is packed before it")):
        ts.Loader(windows(), 64, transform=[pack, Whole()])
    steps: list[list[Any]] = [[OnHost()], [lambda batch: batch, OnHost(), lambda batch: batch]]
    for transform in steps:
        assert len([*ts.Loader(windows(), 64, device="meta", transform=transform)]) == 4
    assert seen == ["cpu"] * 8
    with pytest.raises(ValueError, match=like("OnHost runs on the host ... resident=True")):
        ts.Loader(windows(), 64, resident=True, transform=[OnHost()])


@pytest.mark.parametrize("prefetch", [0, 2])
def test_the_last_transform_may_return_something_else_also_on_the_host(prefetch: int) -> None:
    class Pair:
        runs_on_host = True

        def __call__(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
            return batch["past"], batch["code"]

    plain = [*ts.Loader(windows(), 64)]
    pairs = [*ts.Loader(windows(), 64, transform=[Pair()], prefetch=prefetch)]
    assert len(pairs) == len(plain)
    for (past, code), batch in zip(pairs, plain):
        assert torch.equal(past, batch["past"])
        assert torch.equal(code, batch["code"])


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_function_that_the_last_transform_returns_is_handed_out_and_not_called(prefetch: int) -> None:
    class Later:
        runs_on_host = True

        def __call__(self, batch: Batch) -> Callable[[], float]:
            return partial(float, batch["past"].nan_to_num().sum())

    plain = [float(batch["past"].nan_to_num().sum()) for batch in ts.Loader(windows(), 64)]
    loader: Any = ts.Loader(windows(), 64, transform=[Later()], prefetch=prefetch)
    assert [made() for made in loader] == plain


class Doubled:
    """A scaler of a guest, which by attributes says all that a loader must know."""

    def __init__(self, span: str, length: float | None = None) -> None:
        self.span, self.length, self.scaled_spans, self.whole_windows = span, length, (span,), (span,)

    def bind(self, windows: Any) -> "Doubled":
        assert self.span in [span.name for span in windows.contents.chain.placements[0].slot_spans]
        return Doubled(self.span, len(windows))

    def __call__(self, batch: Batch) -> Batch:
        assert self.length is not None
        batch[self.span] *= 2
        return batch


class InOneRow:
    """A packing of a guest on the host, into memory of the loader."""

    runs_on_host = True

    def __init__(self, span: str) -> None:
        self.packed_spans = (span,)

    def __call__(self, batch: Batch) -> Batch:
        return self.pack_into(batch, lambda _, shape, dtype: torch.empty(shape, dtype=dtype))

    def pack_into(self, batch: Batch, take: Any) -> Batch:
        for name in self.packed_spans:
            values = batch[name].flatten(0, 1)
            batch[name] = take(name, tuple(values.shape), values.dtype).copy_(values)
        return batch


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_transforms_of_guests_are_treated_as_ours(device: str) -> None:
    """Over one stash and a mix, resident, and packed before the copy: with the errors of ours too."""
    one = ts.Windows(ts.load({"y": np.arange(12.0)}), 3)
    mix = ts.Mix({"a": one, "b": ts.Windows(ts.load({"y": np.arange(5.0)}), 3)})
    for source in (one, mix):
        plain = [batch["y"] for batch in ts.Loader(source, 4)]
        options: list[dict[str, Any]] = [{}, {"prefetch": 2}, {"resident": True}]
        for more in options:
            batches = ts.Loader(source, 4, transform=[Doubled("y")], **more)
            assert [batch["y"].tolist() for batch in batches] == [(2 * y).tolist() for y in plain]
        for ahead in (0, 2):
            packed = ts.Loader(source, 4, transform=[Doubled("y"), InOneRow("y")], prefetch=ahead)
            assert [batch["y"].tolist() for batch in packed] == [(2 * y).flatten().tolist() for y in plain]
        if device == "meta":  # where the values go is not looked at, but what is copied is
            (copied, *_) = ts.Loader(source, 4, device=device, transform=[InOneRow("y")])
            assert (copied["y"].shape, copied["y"].device.type) == ((12,), device)
        refused: list[tuple[list[Any], dict[str, Any], str]] = [
            ([Doubled("y"), Doubled("y")], {}, "scaled once; 'y' is scaled by two"),
            ([InOneRow("y"), Doubled("y")], {}, "Doubled must see whole windows; 'y' is packed before it"),
            ([InOneRow("y"), ts.PackSequences("y")], {}, "packed once; 'y' is packed twice"),
            ([InOneRow("y")], {"resident": True}, "InOneRow runs on the host"),
        ]
        for transform, more, message in refused:
            with pytest.raises(ValueError, match=like(message)):
                ts.Loader(source, 4, transform=transform, **more)
    scaled = ts.Windows(ts.Scaler.fit(one, ["y"]).transform(one.stash), 3)
    with pytest.raises(ValueError, match=like("A column must be scaled once; 'y'")):
        ts.Loader(scaled, 4, transform=[Doubled("y")])


def level_and_spread(history: NDArray[Any], kind: str, eps: float) -> tuple[float, float]:
    """Of one window and one number: those that are there, one by one."""
    known = [float(value) for value in history if not np.isnan(value)]
    if not known:
        return 0.0, 1.0
    if kind == "last":
        return known[-1], 1.0
    if kind == "mean":
        return 0.0, sum(abs(value) for value in known) / len(known) or 1.0
    mean = sum(known) / len(known)
    return mean, (sum((value - mean) ** 2 for value in known) / len(known) + eps) ** 0.5


@settings(max_examples=100)
@given(
    kind=st.sampled_from(["standard", "last", "mean"]),
    items=st.integers(0, 3),
    shape=st.tuples(st.integers(1, 5), st.integers(1, 7), st.integers(1, 4)),
    holes=st.floats(0, 1),
    observed=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_each_window_is_normalised_by_its_own_history(
    kind: Kind, items: int, shape: tuple[int, int, int], holes: float, observed: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    count, history, horizon = shape
    tail = (items,) if items else ()
    past, target = (rng.normal(50, 5, (count, steps, *tail)) for steps in (history, horizon))
    past[rng.random(past.shape) < holes] = np.nan
    batch = {"past": torch.from_numpy(past.copy()), "target": torch.from_numpy(target.copy())}
    seen = rng.random((count, history)) < 0.7
    if observed:
        batch["past.observed"] = torch.from_numpy(seen)
    norm = ts.InstanceNorm("past", "target", kind=kind, eps=1e-3)
    address = batch["past"].data_ptr()
    assert norm(batch) is batch
    assert batch["past"].data_ptr() == address
    for window in range(count):
        for item in np.ndindex(tail):
            own = past[(window, slice(None), *item)]
            judged = np.where(seen[window], own, np.nan) if observed else own
            level, spread = level_and_spread(judged, kind, 1e-3)
            for name, before in (("past", own), ("target", target[(window, slice(None), *item)])):
                found = batch[name][(window, slice(None), *item)].numpy()
                expected = (before - level) / spread
                if observed and name == "past":  # an empty slot keeps what it was filled with
                    expected = np.where(seen[window], expected, before)
                np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(norm.inverse(batch["target"], batch), target, rtol=0, atol=1e-9)
    restored = norm.inverse(batch["past"], batch).numpy()
    has_row = seen if observed else np.ones_like(seen)
    np.testing.assert_allclose(restored[has_row], past[has_row], rtol=0, atol=1e-9)
    assert norm.inverse(batch) is batch
    np.testing.assert_allclose(batch["past"], past, rtol=0, atol=1e-9)
    np.testing.assert_allclose(batch["target"], target, rtol=0, atol=1e-9)
    assert not {"past.center", "past.scale"} & {*batch}


@pytest.mark.parametrize("kind", ["standard", "last"])
def test_a_constant_history_on_a_high_level_is_zero(kind: Kind) -> None:
    batch = {"past": torch.full((3, 96), 1e4)}
    ts.InstanceNorm("past", kind=kind)(batch)
    assert batch["past"].eq(0).all()


@pytest.mark.parametrize("kind", ["standard", "last", "mean"])
@pytest.mark.parametrize("observed", [False, True])
def test_the_future_in_a_span_has_no_influence_on_level_and_spread(kind: Kind, observed: bool) -> None:
    """In the short form of windows one span holds history and horizon."""
    every = ts.Windows(Table([200], [*range(200)]).stash(), 6, 3, columns=["f64", "pack"])
    for name in ("f64", "pack"):
        norm = ts.InstanceNorm(name, kind=kind, rows=6)
        plain, changed, past = every[:], every[:], {name: every[:][name][:, :6].clone()}
        changed[name][:, 6:] = 1e9
        for batch in (plain, changed, past) if observed else ():
            batch[f"{name}.observed"] = torch.arange(batch[name].shape[1]).ne(2).expand(batch[name].shape[:2])
        target = plain[name][:, 6:].clone()
        for batch in (plain, changed):
            norm(batch)
        ts.InstanceNorm(name, kind=kind)(past)
        for key in (f"{name}.center", f"{name}.scale"):
            assert oracle.same(plain[key], past[key])
            assert oracle.same(changed[key], past[key])
        assert oracle.same(plain[name][:, :6], past[name])
        assert oracle.same(changed[name][:, :6], past[name])
        torch.testing.assert_close(norm.inverse(plain[name][:, 6:], plain), target, rtol=0, atol=1e-2)


def test_half_precision_is_summed_in_single() -> None:
    """The sum of 4,000 values of 100 is beyond what float16 can hold."""
    past = (torch.arange(4000) % 2 + 100).half()[None]
    batch = ts.InstanceNorm("past")({"past": past})
    assert batch["past"].dtype == torch.float16
    assert batch["past.center"].item() == 100.5
    assert batch["past"].unique().tolist() == [-1.0, 1.0]  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("kind", ["standard", "last", "mean"])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.uint8, torch.int64])
def test_integer_predictions_become_floating_values(kind: Kind, dtype: torch.dtype) -> None:
    norm = ts.InstanceNorm("past", kind=kind)
    batch = norm({"past": torch.tensor([[1.5, 2.25, 0.25], [7.0, 9.5, 8.25]])})
    values = torch.tensor([[1, 0], [0, 1]]).to(dtype)
    assert norm.inverse(values, batch).equal(norm.inverse(values.float(), batch))


def test_a_mean_scale_is_that_of_gluonts_where_something_is_observed() -> None:
    """The formula of its MeanScaler: the sum of absolute observed values by their number, at least 1."""
    past = torch.tensor([[1.0, -3.0, 5.0, 0.0], [0.0, 0.0, 0.0, 0.0], [-2.0, 2.0, -2.0, 8.0]])
    observed = torch.tensor([[True, True, False, True], [True] * 4, [False] * 4])
    batch = ts.InstanceNorm("past", kind="mean")({"past": past.clone(), "past.observed": observed})
    formula = (past * observed).abs().sum(1, keepdim=True) / observed.sum(1, keepdim=True).clamp(min=1)
    assert batch["past.scale"][:1].equal(formula[:1])
    assert batch["past.scale"][1:].tolist() == [[1.0], [1.0]]  # no scale can be taken from these histories
    assert batch["past.center"].eq(0).all()
    assert batch["past"].equal(torch.where(observed, past / batch["past.scale"], past))
    half = ts.InstanceNorm("past", kind="mean")({"past": torch.tensor([[1e-7] + [0.0] * 7], dtype=torch.float16)})
    assert half["past.scale"].item() == 1  # the mean is below what float16 holds
    assert half["past"].isfinite().all()


def test_a_forecast_of_nothing_is_the_level_of_the_history() -> None:
    every = windows()
    norm = ts.InstanceNorm("past", kind="last")
    (batch,) = ts.Loader(every, len(every), transform=[norm])
    weight = torch.zeros(len(every), 3, requires_grad=True)
    forecast = norm.inverse(weight, batch)
    assert forecast.detach().equal(every[:]["past"][:, -1:].expand(-1, 3))
    (gradient,) = torch.autograd.grad(forecast.sum(), weight)
    assert gradient.eq(1).all()


def test_instance_normalisation_says_what_does_not_fit() -> None:
    batch = {"past": torch.zeros(2, 4), "pack": torch.zeros(2, 4, 3), "code": torch.zeros(2, 4, dtype=torch.int16)}
    cases: list[tuple[type[Exception], Callable[[], object], str]] = [
        (
            ValueError,
            lambda: ts.InstanceNorm("past", kind="robust"),  # type: ignore[arg-type]
            'kind ... "standard", "last" or "mean" ... robust',
        ),
        (
            ValueError,
            lambda: ts.InstanceNorm("past", "past"),
            "once ... 'past' twice",
        ),
        (
            ValueError,
            lambda: ts.InstanceNorm("past", "next", "next"),
            "once ... 'next'",
        ),
        (ValueError, lambda: ts.InstanceNorm("past", eps=0), "eps ... 0"),
        (ValueError, lambda: ts.InstanceNorm("past", rows=0), "rows ... >= 1 ... 0"),
        (
            ValueError,
            lambda: ts.InstanceNorm("past", rows=5)(batch),
            "rows ... 4 ... 'past' ... 5",
        ),
        (
            ValueError,
            lambda: ts.InstanceNorm("past")(ts.InstanceNorm("past")(dict(batch))),
            "once ... 'past.center' ... fresh batch",
        ),
        (
            ts.errors.ColumnError,
            lambda: ts.InstanceNorm("ast")(batch),
            "no span 'ast' ... 'past'",
        ),
        (
            ts.errors.SchemaError,
            lambda: ts.InstanceNorm("past", "code")(batch),
            "floating ... 'code' is torch.int16 ... ts.Cast({'code': torch.float32})",
        ),
        (
            ValueError,
            lambda: ts.InstanceNorm("past", "pack")(batch),
            "one column ... 'past' is (2, 4), 'pack' is (2, 4, 3)",
        ),
        (
            ValueError,
            lambda: ts.InstanceNorm("past").inverse(batch["past"], batch),
            "no 'past.center' ... Call the transform",
        ),
    ]
    for kind, call, message in cases:
        with pytest.raises(kind, match=like(message)):
            call()
    assert repr(ts.InstanceNorm("past", "next")) == (
        "InstanceNorm(history='past', others=('next',), kind='standard', eps=1e-05, rows=None)"
    )


@pytest.mark.parametrize("shape", [(2,), (1, 2), (3, 2), (2, 2, 2)])
def test_predictions_of_another_shape_are_not_broadcast(shape: tuple[int, ...]) -> None:
    windows = ts.Windows(ts.load({"y": [1.0, 2.0, 4.0, 8.0]}), history=3)
    norm = ts.InstanceNorm("y")
    batch = norm(windows[[0, 1]])
    assert norm.inverse(torch.zeros(2, 5), batch).shape == (2, 5)
    message = f"(2, time) ... {shape}"
    with pytest.raises(ValueError, match=like(message)):
        norm.inverse(torch.zeros(shape), batch)


def test_a_misspelt_span_is_not_left_raw() -> None:
    windows = ts.Windows(ts.load({"y": [1.0, 2.0, 3.0]}), spans={"past": ("y", -2, 0), "target": ("y", 0, 1)})
    with pytest.raises(ts.errors.ColumnError, match="no span 'tagret'; did you mean 'target'"):
        ts.InstanceNorm("past", "tagret")(windows[:])


# Empty slots, and values of `fill=`


@pytest.mark.parametrize("kind", ["standard", "last", "mean"])
@pytest.mark.parametrize("pack", [False, True])
def test_empty_slots_keep_their_fill_as_with_a_scaler(kind: Kind, pack: bool) -> None:
    """In the history and in other spans, there and back."""
    values = np.arange(10.0, 16.0)
    columns = {"y": ts.column("v", empty=0), "x": ts.column(["v", "w"], empty=0)}
    stash = ts.load({"t": [0, 1, 3, 4, 7, 8], "v": values, "w": 2 * values}, columns, time="t")
    name = "x" if pack else "y"
    windows = ts.Windows(
        stash,
        spans={"past": (name, -4, 0), "next": (name, 0, 2)},
        gaps="mask",
        frequency=1,
        min_history=1,
        min_horizon=0,
    )
    norm = ts.InstanceNorm("past", "next", kind=kind)
    (raw,) = ts.Loader(windows, len(windows))
    (batch,) = ts.Loader(windows, len(windows), transform=[norm])
    moved = 0
    for span in ("past", "next"):
        empty = ~raw[f"{span}.observed"]
        assert empty.any()
        assert batch[span][empty].eq(0).all()
        moved += int(batch[span][~empty].ne(raw[span][~empty]).sum())
    assert moved
    restored = norm.inverse(batch)
    for span in ("past", "next"):
        torch.testing.assert_close(restored[span], raw[span])


def slow_level(values: list[float], valid: list[bool], kind: str) -> tuple[float, float]:
    return level_and_spread(np.array([value if ok else np.nan for value, ok in zip(values, valid)]), kind, 1e-5)


@pytest.mark.parametrize("kind", ["standard", "last", "mean"])
@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize(
    "columns",
    [
        {"x": ts.column("v", fill=-50), "ok": ts.is_valid("v")},
        {"x": ts.column(["v", "w"], fill=-50), "ok": ts.is_valid(["v", "w"])},
        {"x": ts.column(["v", "w"], fill=-50), "ok": ts.is_valid("w")},
        {"x": ts.column(["v", "w"], fill=-50), "ok": ts.is_valid("v"), "too": ts.is_valid("w")},
    ],
)
def test_a_filled_value_that_is_none_does_not_count(columns: dict[str, Any], kind: Kind, resident: bool) -> None:
    """Where a span of `ts.is_valid` says so, over the same slots; each number of a pack by its own flags."""
    rng = np.random.default_rng(3)
    table = {name: rng.normal(20, 5, 40).tolist() for name in ("v", "w")}
    for values in table.values():
        for k in rng.choice(40, 12, replace=False):
            values[k] = None
    stash = ts.load({"t": np.arange(40), **table}, columns, time="t")
    spans = {"past": ("x", -6, 0), "next": ("x", 0, 2)} | {name: (name, -6, 0) for name in columns if name != "x"}
    windows = ts.Windows(stash, spans=spans)
    norm = ts.InstanceNorm("past", "next", kind=kind)
    (batch,) = ts.Loader(windows, 99, with_ids=True, transform=[norm], resident=resident)
    flagged = {member for name in columns if name != "x" for member in stash.about(name).members}
    members = stash.about("x").members
    for window, anchor in enumerate(batch["anchor"].tolist()):
        for k, member in enumerate(members):
            given = table[member][anchor - 6 : anchor]
            values = [-50.0 if value is None else value for value in given]
            valid = [value is not None or member not in flagged for value in given]
            level, spread = slow_level(values, valid, kind)
            found = batch["past"][window].view(6, -1)[:, k].numpy()
            np.testing.assert_allclose(found, (np.array(values) - level) / spread, rtol=0, atol=1e-9)
    by_hand = norm.bind(windows)(windows[:])
    assert oracle.same(by_hand["past"], batch["past"])


def test_flags_over_other_slots_say_nothing() -> None:
    columns = {"y": ts.column("v", fill=-50), "ok": ts.is_valid("v")}
    stash = ts.load({"v": [1.0, None, 3.0, 4.0, None, 6.0]}, columns)
    whole = ts.Windows(stash, spans={"past": ("y", -2, 0)})
    for slots in ((-3, -1), (-2, 0, 2), (0, 1)):
        windows = ts.Windows(stash, spans={"past": ("y", -2, 0), "flags": ("ok", *slots)})
        bound = ts.InstanceNorm("past", kind="last").bind(windows)
        assert bound(whole[:])["past.center"].flatten().tolist() == [-50, 3, 4, -50, 6]
    same = ts.Windows(stash, spans={"past": ("y", -2, 0), "flags": ("ok", -2, 0)})
    (batch,) = ts.Loader(same, 9, transform=[ts.InstanceNorm("past", kind="last")])
    assert batch["past.center"].flatten().tolist() == [1, 3, 4, 4, 6]
    assert repr(ts.InstanceNorm("past").bind(same)) == repr(ts.InstanceNorm("past"))


def test_flags_are_false_in_empty_slots() -> None:
    columns = {"y": ts.column("v", fill=-50), "ok": ts.is_valid("v")}
    stash = ts.load({"t": [0, 1, 4, 5], "v": [1.0, None, 3.0, 4.0]}, columns, time="t")
    spans = {"past": ("y", -3, 0), "flags": ("ok", -3, 0)}
    windows = ts.Windows(stash, spans=spans, gaps="mask", frequency=1, min_history=1)
    (batch,) = ts.Loader(windows, 9, transform=[ts.InstanceNorm("past", kind="last")])
    for k in range(len(windows)):
        there = [value for value, flag in zip(windows[k]["past"].tolist(), batch["flags"][k].tolist()) if flag]
        assert batch["past.center"][k].item() == (there[-1] if there else 0)
    assert not batch["flags"][~batch["flags.observed"]].any()
    assert batch["past"][~batch["past.observed"]].eq(-50).all()


def test_flags_of_a_stretch_of_time_are_those_of_its_stretch() -> None:
    columns = {"y": ts.column("v", fill=-50), "ok": ts.is_valid("v")}
    stash = ts.load({"t": [1, 2, 3, 4], "v": [1.0, None, 3.0, None]}, columns, time="t")
    spans = {"past": ts.During("y", -3, 0, max_rows=3), "flags": ts.During("ok", -3, 0, max_rows=3)}
    windows = ts.Windows(stash, spans=spans, at={"t": [3, 4, 5]})
    (batch,) = ts.Loader(windows, 9, transform=[ts.InstanceNorm("past", kind="last")])
    assert batch["past.center"].flatten().tolist() == [1, 3, 3]
    others = spans | {"flags": ts.During("ok", -2, 0, max_rows=3)}
    (batch,) = ts.Loader(
        ts.Windows(stash, spans=others, at={"t": [3, 4, 5]}), 9, transform=[ts.InstanceNorm("past", kind="last")]
    )
    assert batch["past.center"].flatten().tolist() == [-50, 3, -50]


def test_a_norm_is_inverted_in_a_batch_or_in_predictions() -> None:
    norm = ts.InstanceNorm("past", "next")
    batch = {"past": torch.tensor([[1.0, 3.0]]), "next": torch.tensor([[5.0]])}
    norm(batch)
    assert norm.inverse(batch["next"], batch).allclose(torch.tensor([[5.0]]))
    with pytest.raises(TypeError, match=like("Predictions need the batch ... norm.inverse(values, batch)")):
        norm.inverse(batch["next"])  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=like("inverse(batch) takes nothing else, got a dict.")):
        norm.inverse(batch, batch)  # type: ignore[call-overload]
    for other in (copy.deepcopy(norm), pickle.loads(pickle.dumps(norm))):
        assert other == norm
    assert norm.inverse(batch) is batch
    assert batch["past"].allclose(torch.tensor([[1.0, 3.0]]))
