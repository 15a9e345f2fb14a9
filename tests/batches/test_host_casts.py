"""Casts before the copy: fewer bytes are copied, and the batch is the one that a cast on the device gives."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

import tensorstash as ts
from tests import oracle
from tests.data import Table
from tests.late_device import LateCopies
from tests.oracle_load import like
from tests.words import Gaps

pytestmark = [pytest.mark.host("it chooses the ways itself"), pytest.mark.filterwarnings("ignore:Gaps cost")]

SPANS = {"past": ("f32", -6, 0), "pack": ("pack", -4, 2, 2), "code": ("i16", -4, 0), "wide": ("i64", 0, 2)}
NARROW = {"past": torch.float16, "pack": torch.bfloat16, "wide": torch.int32}


class Counted(LateCopies):
    """Late copies that count bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.nbytes = 0
        self.dtypes: list[list[torch.dtype]] = []

    def copy(self, staged: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        self.nbytes += sum(tensor.nbytes for tensor in staged)
        self.dtypes.append([tensor.dtype for tensor in staged])
        return super().copy(staged)


def windows(gaps: Gaps = "split") -> ts.Windows:
    times = [t for t in range(230) if t % 23 != 7]
    return ts.Windows(Table([len(times)], times).stash(fills=True), spans=SPANS, gaps=gaps)


def over(copies: LateCopies, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorstash.batches.loader.copies_to", lambda _: copies)


@pytest.mark.parametrize("gaps", ["split", "mask"])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_cast_on_the_host_gives_the_same_and_copies_less(
    prefetch: int, gaps: Gaps, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = windows(gaps)
    for sampled in (own, ts.Mix({"one": own, "two": windows("split")})):
        made, nbytes = [], []
        for on in ("device", "host"):
            copies = Counted()
            over(copies, monkeypatch)
            transform: Any = [ts.Cast(NARROW, on=on), ts.InstanceNorm("past")]
            loader = ts.Loader(sampled, 16, shuffle=True, with_ids=True, prefetch=prefetch, transform=transform)
            made.append(list(loader))
            copies.finish()
            assert copies.torn() == copies.unused() == 0
            nbytes.append(copies.nbytes)
        assert nbytes[1] < 0.8 * nbytes[0]
        for one, two in zip(*made, strict=True):
            assert one.keys() == two.keys()
            assert {name: two[name].dtype for name in NARROW} == NARROW
            assert all(oracle.same(one[name], two[name]) for name in one)


def test_narrow_columns_are_copied_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cast to a wider type runs behind the copy."""
    stash = ts.load({"a": np.arange(40, dtype=np.int16), "b": np.arange(40, dtype=np.float16)})
    copies = Counted()
    over(copies, monkeypatch)
    cast = ts.Cast({"a": torch.float32, "b": torch.float32})
    loader = ts.Loader(ts.Windows(stash, 4), 8, transform=[cast])
    assert all(batch["a"].dtype == batch["b"].dtype == torch.float32 for batch in loader)
    assert all(tensor.itemsize == 2 for some in copies.dtypes for tensor in some)


def test_on_the_cpu_it_is_a_cast_like_any_other() -> None:
    own = windows()
    one, two = (list(ts.Loader(own, 16, transform=[ts.Cast(NARROW, on=on)])) for on in ("device", "host"))
    assert all(oracle.same(a[name], b[name]) for a, b in zip(one, two, strict=True) for name in a)


HALF = ts.Cast({"past": torch.float16}, on="host")


def test_what_comes_before_it_runs_on_the_host_too(monkeypatch: pytest.MonkeyPatch) -> None:
    norm = ts.InstanceNorm("past")
    plain = [batch["past"] for batch in ts.Loader(windows(), 16, transform=[norm, HALF])]
    over(LateCopies(), monkeypatch)
    copied = [batch["past"].clone() for batch in ts.Loader(windows(), 16, transform=[norm, HALF])]
    assert all(oracle.same(one, two) for one, two in zip(plain, copied, strict=True))
    assert {tensor.dtype for tensor in copied} == {torch.float16}


@pytest.mark.parametrize(
    ("cast", "error", "message"),
    [
        (ts.Cast({"past": torch.int16}, on="host"), ts.errors.SchemaError, "'past' ... torch.float32 ... torch.int16"),
        (ts.Cast({"pst": torch.float16}, on="host"), ts.errors.ColumnError, "'pst'; did you mean 'past'?"),
    ],
)
def test_a_cast_that_cannot_be_is_refused(cast: ts.Cast, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=like(message)):
        next(iter(ts.Loader(windows(), 8, transform=[cast])))


def test_where_it_may_be() -> None:
    with pytest.raises(ValueError, match=like("\"host\", got 'cuda'")):
        ts.Cast({"past": torch.float16}, on="cuda")  # type: ignore[arg-type]
    assert repr(HALF) == "Cast({'past': torch.float16}, on='host')"
    assert repr(ts.Cast({"past": torch.float16})) == "Cast({'past': torch.float16})"
