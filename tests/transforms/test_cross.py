"""Crosses of columns: against SplitMix64 in plain Python integers, golden values, and in the loop of a loader."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests.oracle_load import like

INTEGERS = {
    torch.bool: (0, 1),
    torch.int8: (-(2**7), 2**7 - 1),
    torch.uint8: (0, 2**8 - 1),
    torch.int16: (-(2**15), 2**15 - 1),
    torch.uint16: (0, 2**16 - 1),
    torch.int32: (-(2**31), 2**31 - 1),
    torch.uint32: (0, 2**32 - 1),
    torch.int64: (-(2**63), 2**63 - 1),
    torch.uint64: (0, 2**64 - 1),
}
FULL = 2**64 - 1


def slow_bucket(codes: list[int], buckets: int) -> int:
    """As the docstring of `ts.Cross` says, in integers that never wrap."""
    state = 0
    for code in codes:
        state = splitmix(state ^ (code & FULL))
    return (state & (2**63 - 1)) % buckets


def splitmix(x: int) -> int:
    """https://prng.di.unimi.it/splitmix64.c, `next()` with the state x."""
    z = (x + 0x9E3779B97F4A7C15) & FULL
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & FULL
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & FULL
    return z ^ (z >> 31)


@st.composite
def crossed_columns(draw: st.DrawFn) -> tuple[list[torch.Tensor], tuple[int, ...]]:
    """Columns of any integer type and with any of the first dimensions of one shape."""
    shape = tuple(draw(st.lists(st.integers(0, 4), min_size=1, max_size=3)))
    columns = []
    for _ in range(draw(st.integers(2, 4))):
        dtype = draw(st.sampled_from([*INTEGERS]))
        low, high = INTEGERS[dtype]
        own = shape[: draw(st.integers(0, len(shape)))]
        value = st.sampled_from([low, high, max(low, -1), 0, 1]) | st.integers(low, high)
        count = int(np.prod(own))
        values = np.array(draw(st.lists(value, min_size=count, max_size=count)), str(dtype).removeprefix("torch."))
        columns.append(torch.from_numpy(values.reshape(own)))
    return columns, max((tuple(column.shape) for column in columns), key=len)


@settings(max_examples=300)
@given(
    crossed_columns(), st.sampled_from([1, 2, 3, 997, 2**20, 2**31, 2**62 + 1, 2**63 - 1]) | st.integers(1, 2**63 - 1)
)
def test_each_bucket_is_the_hash_of_its_codes(drawn: tuple[list[torch.Tensor], tuple[int, ...]], buckets: int) -> None:
    columns, shape = drawn
    batch = {f"c{k}": column for k, column in enumerate(columns)}
    before = {name: tensor.clone() for name, tensor in batch.items()}
    names = [*batch]
    assert ts.Cross(names, buckets, name="cross")(batch) is batch
    found = batch.pop("cross")
    assert (found.dtype, tuple(found.shape)) == (torch.int64, shape)
    for place in np.ndindex(shape):
        codes = [int(column[place[: column.ndim]].item()) for column in columns]
        assert found[place].item() == slow_bucket(codes, buckets)
    assert all(batch[name].equal(before[name]) for name in names)


def test_the_oracle_can_fail() -> None:
    assert slow_bucket([1, 2], 2**20) != slow_bucket([2, 1], 2**20) != slow_bucket([2, 1], 2**20 - 1)


def test_splitmix_is_the_published_one() -> None:
    """The first numbers of the reference implementation with seed 1234567."""
    state, drawn = 1234567, []
    for _ in range(3):
        drawn.append(splitmix(state))
        state += 0x9E3779B97F4A7C15
    assert drawn == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_buckets_never_change() -> None:
    """Models have been trained on these: golden values."""
    batch = {"a": torch.tensor([0, 1, -1, 2**62]), "b": torch.tensor([0, 2, 3, -1], dtype=torch.int8)}
    assert ts.Cross(["a", "b"], 2**20)(batch)["a_x_b"].tolist() == [622191, 198251, 825731, 465555]
    assert ts.Cross(["b", "a"], 2**20)(batch)["b_x_a"].tolist() == [622191, 774789, 378310, 123785]
    assert ts.Cross(["a", "b", "a"], 2**63 - 1)(batch)["a_x_b_x_a"].tolist() == [
        2558736989570252433,
        4041176300893548002,
        5544353645293200162,
        4276918433379602099,
    ]


@pytest.mark.parametrize("buckets", [64, 63])
def test_buckets_are_filled_evenly(buckets: int) -> None:
    """By the combinations of two small vocabularies, whose codes differ in their low bits alone."""
    one, other = torch.meshgrid(torch.arange(256), torch.arange(250), indexing="ij")
    found = ts.Cross(["a", "b"], buckets)({"a": one.flatten(), "b": other.flatten()})["a_x_b"]
    expected = 64_000 / buckets
    assert ((found.bincount(minlength=buckets) - expected).square() / expected).sum().item() < 120
    every = ts.Cross(["a", "b"], 2**63 - 1)({"a": one.flatten(), "b": other.flatten()})["a_x_b"]
    assert len(every.unique()) == 64_000  # type: ignore[no-untyped-call]


def sales() -> ts.Stash:
    rows = [(store, item, day) for store in ("A", "B") for item in (3, 5) for day in range(6)]
    source = {
        "store": [store for store, _, _ in rows],
        "item": [item for _, item, _ in rows],
        "day": [day for _, _, day in rows],
        "promo": [day % 3 == 0 for _, _, day in rows],
        "sold": [float(k) for k in range(len(rows))],
    }
    static = {"store": ts.column("store", vocabulary=["B", "A"]), "item": ts.hashed("item", 100)}
    return ts.load(source, ["promo", "sold"], entity=["store", "item"], time="day", static=static | {"id": "item"})


@pytest.mark.parametrize("prefetch", [0, 2])
def test_static_codes_are_crossed_with_each_slot_of_a_span(prefetch: int) -> None:
    stash = sales()
    windows = ts.Windows(stash, spans={"promo": ("promo", -2, 1), "target": ("sold", 0, 1)})
    cross = ts.Cross(["store", "id", "promo"], 50, name="offer")
    loader = ts.Loader(
        windows, 3, shuffle=True, transform=[ts.Cross(["store", "item"], 2**20), cross], prefetch=prefetch
    )
    count = 0
    for batch in loader:
        for k in range(len(batch["offer"])):
            store, item = int(batch["store"][k]), int(batch["item"][k])
            assert batch["store_x_item"][k].item() == slow_bucket([store, item], 2**20)
            expected = [slow_bucket([store, int(batch["id"][k]), int(one)], 50) for one in batch["promo"][k]]
            assert batch["offer"][k].tolist() == expected
            count += 1
        assert torch.nn.Embedding(50, 2)(batch["offer"]).shape == (*batch["promo"].shape, 2)
    assert count == len(windows)
    one = cross(windows[0])
    assert one["offer"].equal(cross(windows[[0]])["offer"][0])


def test_a_cross_travels_and_is_readable() -> None:
    cross = ts.Cross(("a", "b"), np.int64(7))  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(cross)) == cross == ts.Cross(["a", "b"], 7)
    assert repr(cross) == "Cross(columns=('a', 'b'), buckets=7, name='a_x_b')"


def test_helpful_errors() -> None:
    batch = {
        "store": torch.zeros(2, dtype=torch.int32),
        "item": torch.zeros(2, 4, dtype=torch.int64),
        "day": torch.zeros(2, 3, dtype=torch.int64),
        "one": torch.zeros(2, 1, dtype=torch.int64),
        "price": torch.zeros(2, 4),
    }
    cases: list[tuple[type[Exception], Callable[[], Any], str]] = [
        (
            ts.errors.ColumnError,
            lambda: ts.Cross(["stor", "item"], 9)(batch),
            "the batch has no span 'stor'; did you mean 'store'?",
        ),
        (
            ts.errors.SchemaError,
            lambda: ts.Cross(["store", "price"], 9)(batch),
            "integer or boolean ... 'price' is torch.float32 ... Leave it out",
        ),
        (
            ValueError,
            lambda: ts.Cross(["store", "item"], 9, name="day")(batch),
            "'day' ... name=",
        ),
        (
            ValueError,
            lambda: ts.Cross(["item", "day"], 9)(batch),
            "same slots ... 'day' is (2, 3) beside (2, 4)",
        ),
        (
            ValueError,
            lambda: ts.Cross(["item", "one"], 9)(batch),
            "same slots ... 'one' is (2, 1) beside (2, 4)",
        ),
        (
            ValueError,
            lambda: ts.Cross(["item"], 9),
            "two or more ... ['item'] ... ts.hashed",
        ),
        (
            TypeError,
            lambda: ts.Cross("item", 9),
            "columns ... list ... ['item']",
        ),
        (ValueError, lambda: ts.Cross(["a", "b"], 0), "buckets ... >= 1 ... 0"),
        (ValueError, lambda: ts.Cross(["a", "b"], 2**63), "buckets ... 2**63 ... 9223372036854775808"),
        (
            ts.errors.SchemaError,
            lambda: ts.Cross(["a", "b"], 9, name="valid"),
            "dot ... reserved ... anchor, entity, reset, valid, window ... 'valid'",
        ),
    ]
    for kind, call, message in cases:
        with pytest.raises(kind, match=like(message)):
            call()


@pytest.mark.device
def test_buckets_are_the_same_on_an_accelerator(accelerator: torch.device) -> None:
    low, high = -(2**63), 2**63 - 1
    codes = {
        "a": torch.randint(low, high, (64, 1000)),
        "b": torch.randint(0, 2**31 - 1, (64,), dtype=torch.int32),
        "c": torch.randint(0, 255, (64, 1000), dtype=torch.uint8),
        "d": torch.randint(low, high, (64, 1000)).view(torch.uint64),
        "e": torch.randint(0, 2**15, (64,)).to(torch.uint16),
        "f": torch.randint(0, 2**31, (64,)).to(torch.uint32),
        "g": torch.rand(64, 1000) < 0.5,
    }
    for buckets in (3, 2**20, 2**63 - 1):
        cross = ts.Cross([*codes], buckets, name="cross")
        there = cross({name: tensor.to(accelerator) for name, tensor in codes.items()})["cross"]
        assert there.device.type == accelerator.type
        assert there.cpu().equal(cross(dict(codes))["cross"])


def test_a_batch_with_a_list_is_refused() -> None:
    batch: dict[str, Any] = {"a": torch.tensor([1]), "b": [1]}
    with pytest.raises(TypeError, match=like("tensor ... 'b' is a list")):
        ts.Cross(["a", "b"], 8)(batch)
