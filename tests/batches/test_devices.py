"""The way to a device: the same batches as on the host, however late copies are, and no wait that could be left out.

It reaches inside `batches/devices.py` to put a late device in the place of an accelerator.
"""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import tensorstash as ts
from tensorstash.batches import devices
from tensorstash.batches.devices import Copies, PlainCopies, copies_to, device_of
from tests import oracle
from tests.data import DTYPES, Table
from tests.late_device import BROKEN, LateCopies, Memory
from tests.oracle_load import like
from tests.words import Gaps

pytestmark = pytest.mark.host("it chooses the ways itself")

SPANS = {"past": ("f32", -4, 0), "pack": ("pack", -4, 2), "flag": ("flag", 0, 2), "half": ("bf16", -4, 2, 2)}
ORDERS: dict[str, Any] = {
    "sequential": {},
    "shuffled": {"shuffle": True},
    "lanes": {"order": ts.Lanes(16)},
    "steps": {"shuffle": True, "steps": 7},
    "mix": {"shuffle": True},
}


def windows(gaps: Gaps) -> ts.Windows:
    """Two entities with static columns, and with `gaps="mask"` empty slots in some windows."""
    rows = 150
    times = [t for start in (0, 1000) for t in range(start, start + rows) if gaps == "split" or t % 40 != 7]
    lengths = [len(times) // 2, len(times) - len(times) // 2]
    data = {name: Table(lengths, times).stash()[name] for name in (*DTYPES, "pack")}
    entity = np.repeat([0, 1], lengths)
    stash = ts.load(
        {"e": entity, "t": np.array(times), **data, "kind": entity * 1.5, "size": entity.astype(np.int8) + 3},
        [ts.column(name, fill=True) if name == "flag" else name for name in ("f32", "pack", "flag", "bf16")],
        entity="e",
        time="t",
        static=["kind", "size"],
    )
    return ts.Windows(stash, spans=SPANS, stride=4, gaps=gaps)


def over(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let loaders take this way, whatever their device is called."""
    monkeypatch.setattr("tensorstash.batches.loader.copies_to", lambda _: copies)


def check(copies: LateCopies, order: str, gaps: Gaps, prefetch: int) -> None:
    """One pass over the late device beside one on the host; the loop keeps some batches, and its work is late too."""
    arguments = {"with_ids": True, "tail": "pad", **ORDERS[order]}
    sampled = ts.Mix({"one": windows(gaps), "two": windows("mask")}) if order == "mix" else windows(gaps)
    loader = ts.Loader(sampled, 16, prefetch=prefetch, **arguments)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tensorstash.batches.loader.copies_to", lambda _: None)
        expected = list(ts.Loader(sampled, 16, **arguments))
    kept, queued = [], list[tuple[Memory, Memory]]()
    for k, (batch, exact) in enumerate(zip(loader, expected, strict=True)):
        assert list(batch) == list(exact)
        assert {"kind", "size", "valid", "window", "entity", "anchor"} <= batch.keys()
        for name, tensor in exact.items():
            assert oracle.same(batch[name], tensor), f"{name} is not that of the host"
            queued.append((copies.behind(batch[name]), copies.behind(batch[name]).copy()))
        if k % 3 == 0:
            kept.append((batch, exact))
        del batch
    copies.finish()
    assert all(np.array_equal(memory, before) for memory, before in queued), "memory was given away in use"
    for batch, exact in kept:
        assert all(oracle.same(batch[name], tensor) for name, tensor in exact.items())
    assert copies.freed > 0


@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("gaps", ["split", "mask"])
@pytest.mark.parametrize("order", ORDERS)
def test_late_copies_give_the_batches_of_the_host(
    order: str, gaps: Gaps, prefetch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spans, masks, static columns, ids, `valid` and `reset` all arrive, bit by bit."""
    copies = LateCopies()
    over(copies, monkeypatch)
    check(copies, order, gaps, prefetch)


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("broken", BROKEN, ids=lambda kind: kind.__name__)
def test_no_wait_can_be_left_out(
    broken: Callable[[], LateCopies], prefetch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above fails if the way to the device leaves any of its duties out."""
    copies = broken()
    over(copies, monkeypatch)
    with pytest.raises(AssertionError, match=r"is not that of the host|memory was given away in use"):
        check(copies, "lanes", "mask", prefetch)


def test_transforms_see_a_batch_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    copies = LateCopies()
    over(copies, monkeypatch)
    sampled = windows("split")
    seen: list[torch.Tensor] = []

    def note(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        seen.append(batch["past"].clone())
        return batch

    ids = [batch["window"] for batch in ts.Loader(sampled, 16, prefetch=2, with_ids=True, transform=[note])]
    assert all(oracle.same(one, sampled[which]["past"]) for one, which in zip(seen, ids, strict=True))


@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_a_second_iterator_ends_the_thread_of_the_first(prefetch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else two threads fill the same staging memory, and batches hold the windows of both passes."""
    over(PlainCopies(torch.device("cpu")), monkeypatch)
    rows = 200_000
    stash = ts.load({"y": torch.arange(rows, dtype=torch.float32), "z": -torch.arange(rows, dtype=torch.float32)})
    windows = ts.Windows(stash, 64)
    for _ in range(4):
        loader = ts.Loader(windows, 512, shuffle=True, prefetch=prefetch, with_ids=True, steps=40)
        first = iter(loader)
        next(first)
        for batch in loader:
            rows_of = batch["window"][:, None] + torch.arange(64)
            assert torch.equal(batch["y"], rows_of.float())
            assert torch.equal(batch["z"], -rows_of.float())
        with pytest.raises(RuntimeError, match="A loader has one live iterator"):
            next(first)
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("tensorstash-prefetch")]


class Ledger:
    """What `torch.cuda` has for streams, which writes down in which stream each thing happens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: list[tuple[str, str]] = []
        self.current = "of the loop"
        copy: Any = torch.Tensor.to
        empty = torch.empty

        def to(tensor: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
            assert options == {"non_blocking": True}
            self.note("copy")
            return copy(tensor, *arguments, copy=True)

        def pinned(*arguments: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
            self.note("pin" if pin_memory else "allocate")
            return empty(*arguments, **options)

        monkeypatch.setattr(torch.Tensor, "to", to)
        monkeypatch.setattr(torch.Tensor, "record_stream", lambda _, stream: self.note("use", stream.name))
        monkeypatch.setattr(torch, "empty", pinned)
        monkeypatch.setattr(devices, "module_of", lambda _: self)

    def note(self, what: str, stream: str = "") -> None:
        self.lines.append((what, stream or self.current))

    def current_device(self) -> int:
        return 3

    def Stream(self, device: torch.device) -> "LedgerStream":  # the name that torch has
        assert device == torch.device("cpu", 3)
        return LedgerStream(self, "of the copies")

    def Event(self) -> "LedgerEvent":
        return LedgerEvent(self)

    def current_stream(self, _: torch.device) -> "LedgerStream":
        return LedgerStream(self, self.current)

    @contextmanager
    def stream(self, stream: "LedgerStream") -> Iterator[None]:
        before, self.current = self.current, stream.name
        yield
        self.current = before


@dataclass
class LedgerStream:
    ledger: Ledger
    name: str

    def wait_event(self, event: "LedgerEvent") -> None:
        self.ledger.note(f"wait for the event {event.stream}", self.name)


@dataclass
class LedgerEvent:
    ledger: Ledger
    stream: str = "that was not recorded"

    def record(self, stream: LedgerStream) -> None:
        self.stream = stream.name
        self.ledger.note("record", stream.name)

    def synchronize(self) -> None:
        self.ledger.note(f"the host waits for the event {self.stream}")


def test_copies_with_streams_do_all_their_duties_in_the_right_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of `StreamCopies`, which runs on real streams only where there is a device."""
    ledger = Ledger(monkeypatch)
    copies = devices.StreamCopies(torch.device("cpu"))
    staged = [copies.stage((4,), torch.int64).fill_(k) for k in range(2)]
    copied = copies.copy(staged)
    event = copies.record()
    copies.wait(event, copied)
    event.synchronize()
    assert ledger.lines == [
        *[("pin", "of the loop")] * 2,
        *[("copy", "of the copies")] * 2,
        ("record", "of the copies"),
        ("wait for the event of the copies", "of the loop"),
        *[("use", "of the loop")] * 2,
        ("the host waits for the event of the copies", "of the loop"),
    ]
    assert [tensor.tolist() for tensor in copied] == [[0] * 4, [1] * 4]


class Wrong(PlainCopies):
    """Copies that lose a byte."""

    def copy(self, staged: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [tensor.clone().fill_(3) for tensor in staged]


def test_bytes_that_do_not_come_back_are_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams that do not work give way to plain copies; where these do not work either, there is an error."""
    device = torch.device("meta", 0)
    monkeypatch.setattr(devices, "_arrives", lambda copies: type(copies) is PlainCopies)
    monkeypatch.setattr(devices, "StreamCopies", Wrong)
    assert type(copies_to(device)) is Wrong  # the meta device holds no bytes that could be compared
    device = torch.device("privateuseone")
    assert type(copies_to(device)) is PlainCopies
    monkeypatch.setattr(devices, "PlainCopies", Wrong)
    with pytest.raises(
        ValueError,
        match=re.escape(
            "device='privateuseone' cannot be used on this machine: bytes that were copied to it came back changed. "
            'Write device="accelerator" for the device that torch finds here, else the CPU.'
        ),
    ):
        copies_to(device)


def test_the_probe_compares_what_comes_back() -> None:
    cpu = torch.device("cpu")
    assert devices._arrives(PlainCopies(cpu))
    assert not devices._arrives(Wrong(cpu))
    assert devices._arrives(LateCopies())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device: its absence cannot be tested")
@pytest.mark.parametrize("device", ["cuda", "cuda:1", torch.device("cuda")])
def test_a_device_that_is_not_there_is_refused_when_the_loader_is_made(device: Any) -> None:
    with pytest.raises(ValueError, match=rf"^device='{device}' cannot be used on this machine: [^\n]+\. Write device="):
        ts.Loader(windows("split"), 8, device=device)


@pytest.mark.parametrize("device", ["cudda", 2.5, ["cpu"]])
def test_what_is_no_device_is_refused(device: Any) -> None:
    message = f"device must be a torch.device ... got {device!r}."
    with pytest.raises(ValueError, match=like(message)):
        ts.Loader(windows("split"), 8, device=device)


def test_an_accelerator_is_what_torch_has_else_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    assert device_of("accelerator") == torch.device("cpu")
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("xpu"))
    assert device_of("accelerator") == torch.device("xpu")
