"""Casts keep every value or are refused, beside casts in plain Python."""

import math
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests.oracle_load import (
    NUMBERS,
    Kind,
    exact,
    kind_of,
    like,
)


def test_bfloat16_is_cast_by_its_value_never_by_its_bits() -> None:
    values = torch.tensor([1.0, -2.5, math.nan, 3e38], dtype=torch.bfloat16)
    for stash in (
        ts.load({"x": values}, dtype=torch.float32),
        ts.load({"x": values}, {"x": ts.column("x", dtype=torch.float32)}),
    ):
        assert exact(stash["x"].tolist(), values.float().tolist())
    whole_numbers = {"x": torch.tensor([1.0, 250.0], dtype=torch.bfloat16)}
    assert ts.load(whole_numbers, {"x": ts.column("x", dtype=torch.int32)})["x"].tolist() == [1, 250]
    unsigned = {"x": np.array([1, 16256], np.uint16)}
    assert ts.load(unsigned, {"x": ts.column("x", dtype=torch.bfloat16)})["x"].tolist() == [1.0, 16256.0]


def bfloat16(number: float) -> float:
    """Round to the nearest bfloat16, ties to even; the number is a float32."""
    if not math.isfinite(number):
        return number
    bits = int.from_bytes(struct.pack("<f", number), "little")
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16
    return float(struct.unpack("<f", bits.to_bytes(4, "little"))[0])


def rounded(number: float, dtype: torch.dtype) -> float:
    """The nearest number of a floating type; OverflowError where that is infinite."""
    if dtype == torch.bfloat16:
        found = bfloat16(number)
        if math.isinf(found) and math.isfinite(number):
            raise OverflowError
        return found
    code = {torch.float16: "<e", torch.float32: "<f", torch.float64: "<d"}[dtype]
    return float(struct.unpack(code, struct.pack(code, number))[0])


def cast(number: Any, dtype: torch.dtype) -> Any:
    """What is stored for a number of the source; ValueError or OverflowError where that would not be the number."""
    if dtype.is_floating_point:
        if isinstance(number, float):
            return rounded(number, dtype)
        found = rounded(float(number), dtype)
        if int(found) != number:
            raise ValueError
        return found
    if isinstance(number, float) and not number.is_integer():
        raise ValueError
    low, high = (0, 1) if dtype == torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    if not low <= number <= high:
        raise OverflowError
    return bool(number) if dtype == torch.bool else int(number)


EDGES = [
    sign * (2**power + step)
    for power in (0, 7, 8, 11, 15, 16, 24, 31, 32, 53, 63, 64)
    for step in (-1, 0, 1)
    for sign in (1, -1)
]


def numbers_of(kind: Kind) -> st.SearchStrategy[Any]:
    """Numbers that the kind can hold, those at the edges of types among them."""
    if kind.dtype == torch.bool:
        return st.booleans()
    if not kind.floating:
        low, high = torch.iinfo(kind.dtype).min, torch.iinfo(kind.dtype).max
        return st.sampled_from([edge for edge in EDGES if low <= edge <= high]) | st.integers(low, high)
    width = {torch.float16: 16, torch.float32: 32, torch.float64: 64}[kind.dtype]
    special = [float(edge) for edge in EDGES if fits(float(edge), kind.dtype)]
    return st.sampled_from([math.nan, math.inf, -0.0, 0.5, *special]) | st.floats(width=width)  # type: ignore[arg-type]


def fits(number: float, dtype: torch.dtype) -> bool:
    try:
        return rounded(number, dtype) == number
    except OverflowError:
        return False


@settings(max_examples=400)
@given(data=st.data(), kind=st.sampled_from(NUMBERS), target=st.sampled_from([*NUMBERS, kind_of("bfloat16")]))
def test_a_cast_keeps_every_value_or_is_refused(data: st.DataObject, kind: Kind, target: Kind) -> None:
    """From floating to floating it rounds, and refuses to make a number infinite; nothing else changes a value."""
    numbers = data.draw(st.lists(numbers_of(kind), min_size=1, max_size=5))
    if target.dtype == torch.bfloat16 and kind.dtype == torch.float64:
        # rounding to bfloat16 goes by way of float32, and rounding twice is not what the oracle does
        numbers = [rounded(n, torch.float32) if abs(n) < 3e38 else math.copysign(math.inf, n) for n in numbers]
    source = {"x": pa.array(numbers, kind.arrow)}
    columns = {"x": ts.column("x", dtype=target.dtype)}
    try:
        expected = [cast(number, target.dtype) for number in numbers]
    except (ValueError, OverflowError):
        rule = r"\AA cast must keep the values; .+ in column 'x' \(the mapping; [1-5] such values?\) does not fit into "
        with pytest.raises(
            ts.errors.DataError,
            match=rule + rf"{target.dtype}\. Choose a wider type: ts\.column\(\.\.\., dtype=\.\.\.\)\.\Z",
        ):
            ts.load(source, columns)
        return
    stash = ts.load(source, columns)
    assert stash["x"].dtype == target.dtype
    assert exact(stash["x"].tolist(), expected)


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan], ids=str)
@pytest.mark.parametrize("target", [kind for kind in NUMBERS if not kind.floating], ids=lambda kind: str(kind.name))
def test_what_is_not_finite_is_no_integer(target: Kind, number: float) -> None:
    """Processors make the least integer of it, which is infinite again on the way back to float16."""
    for kind in (kind_of("float16"), kind_of("float32"), kind_of("float64")):
        with pytest.raises(ts.errors.DataError, match=rf"\AA cast must keep the values; {number} in column 'x' "):
            ts.load({"x": pa.array([0.0, number], kind.arrow)}, {"x": ts.column("x", dtype=target.dtype)})


@pytest.mark.parametrize("kind", [kind for kind in NUMBERS if "int" in kind.name], ids=lambda kind: str(kind.name))
def test_the_extremes_of_an_integer_do_not_become_infinite(kind: Kind) -> None:
    """And minus infinity would become the least integer again on the way back."""
    for number in (torch.iinfo(kind.dtype).min, torch.iinfo(kind.dtype).max):
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            source, columns = {"x": pa.array([number], kind.arrow)}, {"x": ts.column("x", dtype=dtype)}
            try:
                expected = cast(number, dtype)
            except (ValueError, OverflowError):
                with pytest.raises(
                    ts.errors.DataError, match=rf"\AA cast must keep the values; {number} in column 'x' "
                ):
                    ts.load(source, columns)
            else:
                assert ts.load(source, columns)["x"].tolist() == [expected]


@pytest.mark.parametrize("signed", ["int8", "int16", "int32", "int64"])
def test_a_sign_is_not_lost_between_integers(signed: str) -> None:
    """The bits of -1 are those of the greatest unsigned number, and come back as -1."""
    for unsigned in ("uint8", "uint16", "uint32", "uint64"):
        one, other = kind_of(signed), kind_of(unsigned)
        for kind, number, target in ((one, -1, other), (other, torch.iinfo(other.dtype).max, one)):
            if number <= torch.iinfo(target.dtype).max and number >= 0:
                continue
            with pytest.raises(ts.errors.DataError, match=rf"\AA cast must keep the values; {number} in column 'x' "):
                ts.load({"x": pa.array([0, number], kind.arrow)}, {"x": ts.column("x", dtype=target.dtype)})


@settings(max_examples=100)
@given(
    st.lists(st.floats(width=32) | st.none(), max_size=8),
    st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
)
@example([65519.0], torch.float16)
@example([65520.0], torch.float16)
def test_dtype_casts_the_floating_columns_and_no_other(numbers: list[float | None], dtype: torch.dtype) -> None:
    n = len(numbers)
    source = {
        "f": pa.array(numbers, pa.float32()),
        "i": np.arange(n),
        "b": np.ones(n, bool),
        "s": pa.array(["x"] * n, pa.string()),
        "kept": np.zeros(n),
    }
    kept = ts.column("kept", dtype=torch.float64)
    columns: dict[str, Any] = {"f": "f", "i": "i", "b": "b", "s": "s", "p": ["i", "f"], "k": kept}
    try:
        expected = [math.nan if number is None else rounded(number, dtype) for number in numbers]
    except OverflowError:
        with pytest.raises(
            ts.errors.DataError, match=rf"\AA cast must keep the values; .* does not fit into {dtype}\."
        ):
            ts.load(source, columns, dtype=dtype)
        return
    stash = ts.load(source, columns, dtype=dtype)
    types = [dtype, torch.int64, torch.bool, torch.int32, dtype, torch.float64]
    assert [tensor.dtype for tensor in stash.values()] == types
    assert exact(stash["f"].tolist(), expected)
    assert exact(stash["p"].tolist(), [[float(k), number] for k, number in enumerate(expected)])


def test_the_message_of_a_lossy_cast_is_about_the_first_value() -> None:
    source = {"x": np.array([1, 2, 300, 70_000])}
    message = "300 in column 'x' (the mapping; 2 such values) does not fit into torch.uint8"
    with pytest.raises(ts.errors.DataError, match=like(message)):
        ts.load(source, {"x": ts.column("x", dtype=torch.uint8)})
