"""Ways of batches to a device: copied from plain memory, from pinned memory, or gathered there from resident columns.

    python benchmarks/bench_device.py                # the device that torch finds, else the CPU; about two minutes
    python benchmarks/bench_device.py --device xpu
    python benchmarks/bench_device.py --quick        # the same on little data, to see that it runs
    python benchmarks/bench_device.py --trace trace.json.gz    # only a trace of a few steps, for ui.perfetto.dev

First it prints the bandwidths that bound each way: host memory, copies to the device from plain and from pinned memory,
and copies inside the device. Then the loop over each way, alone and beside a model that takes about as long as a batch,
with what `loader.stats()` says that it waited for. The batches of all ways are compared with those of the host, bit by
bit, before anything is timed. Then the gather of resident columns alone, in ever larger batches, beside a copy of as
many bytes inside the device. Last, on any machine, prefetch over a simulated device whose copies take a fraction or a
multiple of the time of the model.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import record
import torch
from device import name_of, wait_for
from timing import Turn, calling, rounds_of

import tensorstash as ts
from tensorstash.batches import loader as loaders
from tensorstash.batches.devices import Copies, PlainCopies, copies_to, device_of
from tensorstash.sampling.sampler import begin

COLUMNS, LENGTH, BATCH = 8, 120, 1024
ROUNDS = 5
TRACED = 40  # steps

Batch = dict[str, torch.Tensor]
Make = Callable[[], ts.Loader]


class SimulatedCopies(PlainCopies):
    """Copies to the CPU of which one at a time is made, and which end later than they do."""

    def __init__(self, seconds: float) -> None:
        """Each batch takes so many seconds."""
        super().__init__(torch.device("cpu"))
        self._seconds = seconds
        self._end = 0.0  # of the last copy

    def copy(self, staged: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        self._end = max(self._end, time.perf_counter()) + self._seconds
        return super().copy(staged)

    def record(self) -> "SimulatedEvent":
        return SimulatedEvent(self._end)

    def wait(self, event: Any, copied: Sequence[torch.Tensor]) -> None:
        del copied
        event.synchronize()


class SimulatedEvent:
    """The end of a copy. Whoever waits for it sleeps."""

    def __init__(self, end: float) -> None:
        self._end = end

    def synchronize(self) -> None:
        time.sleep(max(0.0, self._end - time.perf_counter()))


@contextmanager
def over(copies: Copies) -> Iterator[None]:
    """Loaders that are made and used inside take this way, whatever their device is."""
    module: Any = loaders
    found = module.copies_to
    module.copies_to = lambda _: copies
    try:
        yield
    finally:
        module.copies_to = found


def windows_of(rows: int) -> ts.Windows:
    """Packed float32 columns of two entities."""
    values = np.arange(rows * COLUMNS, dtype=np.float32).reshape(rows, COLUMNS)
    entity = np.repeat([0, 1], [rows // 2, rows - rows // 2])
    stash = ts.load({"e": entity, "x": values}, ["x"], entity="e")
    return ts.Windows(stash, spans={"past": ("x", 24 - LENGTH, 0), "next": ("x", 0, 24)})


def bandwidths(device: torch.device, nbytes: int) -> record.Row:
    """The copies that bound the ways."""
    plain = torch.zeros(nbytes, dtype=torch.uint8)
    here = torch.zeros_like(plain)
    there = plain.to(device, copy=True)
    other = torch.zeros_like(there)
    turns: dict[str, Turn] = {"inside host memory": calling(lambda: here.copy_(plain))}

    def add(name: str, copy: Callable[[], object]) -> None:
        def whole() -> None:
            copy()
            wait_for(device)

        turns[name] = calling(whole)

    if device.type != "cpu":
        add("inside the device", lambda: other.copy_(there))
        add("from plain memory", lambda: there.copy_(plain))
        staged = _pinned(nbytes)
        if staged is not None:
            add("from pinned memory", lambda: there.copy_(staged, non_blocking=True))
    found = rounds_of(turns, ROUNDS)
    found.show(f"copies of {nbytes / 1e6:.0f} MB")
    print("GB/s:", ", ".join(f"{name} {nbytes / found.median(name) / 1e9:.1f}" for name in turns))
    return found.row(section="Copies", case=f"{nbytes / 1e6:.0f} MB")


def _pinned(nbytes: int) -> torch.Tensor | None:
    try:
        pinned = torch.zeros(nbytes, dtype=torch.uint8).pin_memory()
    except RuntimeError:  # a device without pinned memory
        return None
    return pinned if pinned.is_cpu else None


def ways_to(windows: ts.Windows, device: torch.device) -> dict[str, Make]:
    """How to make the loader of each way that this device has."""

    def made(**arguments: Any) -> ts.Loader:
        return ts.Loader(windows, BATCH, shuffle=True, tail="drop", device=device, **arguments)

    def plain() -> ts.Loader:
        with over(PlainCopies(device)):
            loader = made()
            loader._memory  # noqa: B018  it keeps its way
        return loader

    ways: dict[str, Make] = {"host" if device.type == "cpu" else "plain memory": plain}
    if device.type == "cpu":
        ways = {"host": made}
    elif type(copies_to(device)) is not PlainCopies:
        ways["pinned memory"] = made
    ways["resident"] = lambda: made(resident=True)
    return ways


def verify(windows: ts.Windows, ways: dict[str, Make]) -> None:
    """Every way gives the first batches of the host, bit by bit."""
    for name, make in ways.items():
        host = ts.Loader(windows, BATCH, shuffle=True, tail="drop")
        for _, batch, exact in zip(range(3), make(), host):
            for key, tensor in exact.items():
                assert torch.equal(batch[key].cpu().view(torch.int32), tensor.view(torch.int32)), (name, key)


def model_on(device: torch.device) -> Callable[[Batch], None]:
    """One linear map."""
    weight = torch.randn(96 * COLUMNS, 24 * COLUMNS, device=device)

    def model(batch: Batch) -> None:
        _ = (batch["past"].flatten(1) @ weight - batch["next"].flatten(1)).square().mean()

    return model


def loops(ways: dict[str, Make], device: torch.device, steps: int) -> list[record.Row]:
    """The loop over each way, alone and beside a model that takes about as long as a batch."""

    def turn(loader: ts.Loader, work: Callable[[Batch], None]) -> float:
        began = time.perf_counter()
        for _, batch in zip(range(steps), loader):
            work(batch)
        wait_for(device)
        return (time.perf_counter() - began) / steps

    rows = []
    for case, work in {"alone": lambda _: None, "beside a model": model_on(device)}.items():
        loaders = {name: make() for name, make in ways.items()}
        found = rounds_of({name: partial(turn, loader, work) for name, loader in loaders.items()}, ROUNDS)
        found.show(f"{case}: {BATCH:,} windows of {LENGTH} x {COLUMNS} float32, a batch")
        for name, loader in loaders.items():
            stats = loader.stats()
            parts = [f"{part} {stats[f'wait_{part}_seconds'] / stats['seconds']:.2f}" for part in ("gather", "copy")]
            print(f"    {name}: part of the time that was waited for: {', '.join(parts)}")
        rows.append(found.row(section="Ways to a device", case=case))
    return rows


def gathers(windows: ts.Windows, device: torch.device, sizes: Sequence[int], steps: int) -> list[record.Row]:
    """The gather of resident columns, beside a copy inside the device that reads and writes as many bytes."""
    rows = []
    for batch in sizes:
        loader = ts.Loader(windows, batch, shuffle=True, tail="drop", device=device, resident=True)
        schedule, begun = begin(loader.sampler)
        # their integers are on the device already, so what is left is the part of the loop
        made: Any = loader._batches(schedule, begun.start)
        pending = [batches[0].finish for _, (_, _, batches) in zip(range(steps), made)]
        nbytes = sum(entry.nbytes for entry in pending[0]().values())
        there = torch.zeros(nbytes, dtype=torch.uint8, device=device)
        other = torch.zeros_like(there)

        def turn(work: Sequence[Callable[[], object]]) -> float:
            wait_for(device)
            began = time.perf_counter()
            for each in work:
                each()
            wait_for(device)
            return (time.perf_counter() - began) / len(work)

        contestants = {
            "resident gather": pending,
            "copy inside the device": [partial(other.copy_, there)] * len(pending),
        }
        found = rounds_of({name: partial(turn, work) for name, work in contestants.items()}, ROUNDS)
        found.show(f"{batch:,} windows, {nbytes / 1e6:.0f} MB")
        speeds = {name: 2 * nbytes / found.median(name) / 1e9 for name in found.seconds}
        gather, copy = speeds.values()
        print(f"    read and written: {gather:,.3g} GB/s, {gather / copy:.2f} of the {copy:,.3g} GB/s of the copy")
        rows.append(found.row(section="Resident gather", case=f"{batch:,} windows", bytes=nbytes))
    return rows


def trace(windows: ts.Windows, device: torch.device, path: str) -> None:
    """A few steps of each way beside the model, each under its name, in Chrome's format."""
    model = model_on(device)
    loaders = {name: make() for name, make in ways_to(windows, device).items()}

    def some(loader: ts.Loader) -> None:
        for _, batch in zip(range(TRACED), loader):
            model(batch)
        wait_for(device)

    for loader in loaders.values():
        some(loader)  # what the first pass makes is not shown
    with torch.profiler.profile() as profiler:  # of the device too, if this build of torch can
        for name, loader in loaders.items():
            with torch.profiler.record_function(name):
                some(loader)
    profiler.export_chrome_trace(path)
    print(f"{TRACED} steps each of {', '.join(loaders)}: {path}")


def prefetching(windows: ts.Windows, steps: int) -> None:
    """A step of the loop over simulated copies, in multiples of the time of the model."""
    model = 0.01  # seconds, far above the time of a gather
    print(f"\nsimulated copies beside a model of {model * 1e3:.0f} ms: a step over the model, and what was waited for")
    print(f"    {'prefetch':8} " + " ".join(f"{f'copy {share:g}':>15}" for share in (0.25, 0.5, 1, 2)))
    for prefetch in (0, 1, 2, 4):
        shown = []
        for share in (0.25, 0.5, 1, 2):
            with over(SimulatedCopies(share * model)):
                loader = ts.Loader(windows, 64, tail="drop", steps=steps, prefetch=prefetch)
                for _ in loader:
                    time.sleep(model)
            stats = loader.stats()
            copy, gather = stats["wait_copy_seconds"], stats["wait_gather_seconds"]
            # beside the first batch, for which every loop waits
            waited = stats["wait_seconds"] > 0.1 * stats["seconds"]
            what = ("copy" if copy > gather else "gather") if waited else "-"
            shown.append(f"{stats['seconds'] / stats['steps'] / model:7.2f} {what:>7}")
        print(f"    {prefetch:8} " + " ".join(shown))


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("--device", default="accelerator", help="a device of torch; what torch finds, else the CPU")
    parser.add_argument("--trace", metavar="FILE", help="write a trace to FILE, or FILE.gz, and measure nothing")
    arguments = parser.parse_args()
    device, quick = device_of(arguments.device), arguments.quick
    name = name_of(device)
    print(f"torch {torch.__version__}, device {name or device}")
    if not name:
        print("No accelerator was found: nothing below says anything about one.")
    windows = windows_of(200_000 if quick else 10_000_000)
    if arguments.trace:
        trace(windows, device, arguments.trace)
        return
    rows = [bandwidths(device, 4_000_000 if quick else 256_000_000)]
    ways = ways_to(windows, device)
    verify(windows, ways)
    rows += loops(ways, device, 5 if quick else 100)
    rows += gathers(windows, device, (256, 1024) if quick else (1024, 8192, 65_536), 2 if quick else 20)
    record.save("bench_device", rows, quick=quick, device=name)
    prefetching(windows, 5 if quick else 50)


if __name__ == "__main__":
    main()
