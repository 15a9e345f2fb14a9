"""Whatever is typed wrong is refused in words: no transform ends in an error of Python, torch or numpy."""

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorstash as ts
from tests.oracle_load import like

TABLE = {"shop": ["A", "A", "B", "B"], "day": [1, 2, 1, 2], "sold": [5.0, 6.0, 7.0, 8.0]}
STASH = ts.load(TABLE, ["sold"], entity="shop", time="day")
SERIES = ts.load({"t": np.arange(20), "y": np.arange(20.0), "n": np.arange(20)}, ["y", "n"], time="t")
WINDOWS = ts.Windows(SERIES, 3, 1)
SCALER = ts.Scaler.fit(WINDOWS, ["y"])
BY_ENTITY = ts.Scaler.fit(STASH, ["sold"], by="entity").bind(STASH)
NORM = ts.InstanceNorm("y")
TRANSFORMS: dict[str, Any] = {
    "scaler": SCALER,
    "scaler by entity": BY_ENTITY,
    "norm": NORM,
    "cast": ts.Cast({"y": torch.float32}),
    "cross": ts.Cross(["n", "m"], 8),
    "pack": ts.PackSequences("y"),
    "pack in rows": ts.PackSequences("y", length=8),
}
ZEROS = torch.zeros(2, 3)
ENTITY = torch.tensor([0, 1])
WRONG: list[Any] = [None, 3, -1, True, 0.5, float("nan"), 10**30, "?", b"y", [1], ["?"], [["y"]], {}, {"?": 1}, {1}, ()]
WRONG += [object(), ts.Scaler, len, np.zeros(3), torch.tensor(3), ZEROS, [ZEROS], ZEROS[0].bool(), ZEROS + 1j]
WRONG += [WINDOWS, STASH]

Call = Callable[[Any], Any]
CALLS: dict[str, Call] = {
    "transform": SCALER.transform,
    "dtype of transform": lambda x: SCALER.transform(SERIES, dtype=x),
    "from_state": ts.Scaler.from_state,
    "source of fit": lambda x: ts.Scaler.fit(x, ["y"]),
    "columns of fit": lambda x: ts.Scaler.fit(WINDOWS, x),
    "a column of fit": lambda x: ts.Scaler.fit(WINDOWS, [x]),
    "values of inverse": lambda x: SCALER.inverse(x, "y"),
    "values of inverse by entity": lambda x: BY_ENTITY.inverse(x, "sold", ENTITY),
    "column of inverse": lambda x: SCALER.inverse(ZEROS, x),
    "entity of inverse": lambda x: BY_ENTITY.inverse(ZEROS, "sold", x),
    "entity of inverse without need": lambda x: SCALER.inverse(ZEROS, "y", x),
    "source of inverse": lambda x: BY_ENTITY.inverse(ZEROS, "sold", ENTITY, x),
    "entity of a batch": lambda x: BY_ENTITY({"sold": ZEROS.clone(), "entity": x}),
    "source of a batch": lambda x: BY_ENTITY({"sold": ZEROS.clone(), "entity": ENTITY, "source": x}),
    "history of a norm": ts.InstanceNorm,
    "other span of a norm": lambda x: ts.InstanceNorm("y", x),
    "predictions of a norm": lambda x: NORM.inverse(x, NORM(WINDOWS[:])),
    "batch of a norm": lambda x: NORM.inverse(ZEROS, x),
    "center of a norm": lambda x: NORM.inverse({"y": ZEROS.clone(), "y.center": x, "y.scale": x}),
    "dtypes of a cast": ts.Cast,
    "dtype of a cast": lambda x: ts.Cast({"y": x}),
    "place of a cast": lambda x: ts.Cast({"y": torch.float32}, on=x),
    "columns of a cross": lambda x: ts.Cross(x, 8),
    "column of a cross": lambda x: ts.Cross(["n", x], 8),
    "buckets of a cross": lambda x: ts.Cross(["n", "m"], x),
    "name of a cross": lambda x: ts.Cross(["n", "m"], 8, name=x),
    "spans of a pack": ts.PackSequences,
    "length of a pack": lambda x: ts.PackSequences("y", length=x),
    "multiple of a pack": lambda x: ts.PackSequences("y", multiple=x),
    "transforms of a loader": lambda x: ts.Loader(WINDOWS, 4, transform=x),
    "transform of a loader": lambda x: ts.Loader(WINDOWS, 4, transform=[x]),
}


def with_argument(function: Callable[..., Any], given: tuple[Any, ...], name: str) -> Call:
    return lambda x: function(*given, **{name: x})


def batch_with(transform: Any, *names: str) -> Call:
    return lambda x: transform({"y": ZEROS.clone(), "sold": ZEROS.clone(), "entity": ENTITY} | dict.fromkeys(names, x))


for argument in ("kind", "by", "unknown", "sample", "seed"):
    CALLS[f"{argument} of fit"] = with_argument(ts.Scaler.fit, (WINDOWS, ["y"]), argument)
for argument in ("kind", "eps", "rows"):
    CALLS[f"{argument} of a norm"] = with_argument(ts.InstanceNorm, ("y",), argument)
for title, transform in TRANSFORMS.items():
    CALLS[f"batch of a {title}"] = transform
    CALLS[f"span of a {title}"] = batch_with(transform, "y", "sold", "n", "m")
    CALLS[f"flags of a {title}"] = batch_with(transform, "y.observed", "sold.observed")
    if hasattr(transform, "inverse"):
        CALLS[f"batch to invert of a {title}"] = transform.inverse
    if hasattr(transform, "bind"):
        CALLS[f"windows of a {title}"] = transform.bind


def error_of(call: Call, argument: Any) -> Exception | None:
    try:
        call(argument)
    except Exception as error:
        return error
    return None


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("what", CALLS)
def test_what_is_wrong_is_refused_in_words(what: str) -> None:
    """Some of these fit; what does not fit ends at a `raise` of this package, with a sentence of it."""
    errors = [(wrong, error) for wrong in WRONG if (error := error_of(CALLS[what], wrong)) is not None]
    for wrong, error in errors:
        last = traceback.extract_tb(error.__traceback__)[-1]
        assert Path(last.filename).is_relative_to(Path(ts.__file__).parent), (wrong, error)
        assert (last.line or "").startswith("raise "), (wrong, error)
        assert str(error).endswith("."), (wrong, error)
    assert errors or what in ("flags of a cast", "flags of a cross")  # which do not look at them


def test_each_says_what_it_takes() -> None:
    cases: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: SCALER.bind(3), TypeError, "bound to windows, a mix or a stash, got an int. Take the windows"),  # type: ignore[arg-type]
        (lambda: NORM.bind(None), TypeError, "bound to windows ... got a NoneType"),  # type: ignore[arg-type]
        (lambda: SCALER(ZEROS), TypeError, "A scaler takes a batch, a dict of tensors, got a Tensor"),  # type: ignore[arg-type]
        (
            lambda: ts.PackSequences("y")(ZEROS),  # type: ignore[arg-type]
            TypeError,
            "ts.PackSequences takes a batch, a dict of tensors, got a Tensor",
        ),
        (lambda: ts.InstanceNorm("y", eps="a"), ValueError, "eps must be a number > 0, got 'a'"),  # type: ignore[arg-type]
        (lambda: ts.InstanceNorm("y", eps=float("inf")), ValueError, "eps must be a number > 0, got inf"),
        (lambda: ts.Cast({3: torch.float32}), TypeError, "names of spans to dtypes, got {3: torch.float32}"),  # type: ignore[dict-item]
        (lambda: ts.Cross(["a", "b"], 8, name=3), TypeError, "name must be a text, got 3"),  # type: ignore[arg-type]
        (
            lambda: ts.PackSequences(["a", "b"]),  # type: ignore[arg-type]
            TypeError,
            "names of spans, got ['a', 'b'] ... ts.PackSequences('past', 'target')",
        ),
        (lambda: ts.PackSequences("y", length=2**31), ValueError, "length must be < 2**31"),
        (lambda: ts.Scaler.fit(WINDOWS, [3]), TypeError, "columns must be a list of names, got 3 in it"),  # type: ignore[list-item]
        (lambda: NORM.inverse({}), ValueError, "must be normalised by this transform; it has no 'y.center'"),
        (lambda: NORM.inverse([1.0], {}), TypeError, "Predictions must be a tensor of real numbers, got a list"),  # type: ignore[call-overload]
    ]
    for call, kind, message in cases:
        with pytest.raises(kind, match=like(message)):
            call()


def test_numbers_of_numpy_and_fractions_are_numbers() -> None:
    assert ts.InstanceNorm("y", eps=np.float32(0.5)).eps == 0.5  # type: ignore[arg-type]
    assert ts.InstanceNorm("y", eps=1).eps == 1.0
    assert ts.PackSequences("y", length=np.int16(7)).length == 7  # type: ignore[arg-type]
