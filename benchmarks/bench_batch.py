"""What the Loader's whole loop costs beside the raw gather and memcpy: ratios of one run, on one thread.

    python benchmarks/bench_batch.py            # about three minutes, 4 GB
    python benchmarks/bench_batch.py --quick    # the same on little data, to see that it runs

10 M rows of 8 float32 columns. The raw gather is one `index_select` of a strided view for all columns, with positions
that were computed before, into one reused result. `memcpy` copies as many bytes in one piece, from a source larger than
the caches. Every contestant draws fresh random windows, and its results are checked before it is timed. Contestants
take turns in short rounds, and ratios are taken round by round: a change of the machine's speed meets all of them.
"""

import argparse
import importlib.util
import statistics
import time
import timeit
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from contestants.hand import CHUNK, selecting

import tensorstash as ts
from tensorstash.batches.host import Pool
from tensorstash.gather.gather import names_of, select
from tensorstash.gather.layout import as_batch
from tensorstash.gather.rows import InSlots
from tensorstash.native import library
from tensorstash.native.permutation import BLOCK, shuffled
from tensorstash.windows.intervals import intervals, locate

COLUMNS = 8
ROUNDS = 15


@dataclass(frozen=True)
class Case:
    """One layout and window, and the data that both sides gather from."""

    stash: ts.Stash
    packed: bool
    batch: int
    rows: int  # of a window

    @property
    def nbytes(self) -> int:
        return self.batch * self.rows * COLUMNS * 4

    @property
    def steps(self) -> int:
        """Batches in one round: enough to hide the clock, few enough to alternate often."""
        return max(20, 200_000_000 // self.nbytes)


def data(rows: int, packed: bool) -> ts.Stash:
    """Values that say where they come from: column c, row r holds r * 8 + c, modulo 2**24 to be exact in float32."""
    table = (torch.arange(rows)[:, None] * COLUMNS + torch.arange(COLUMNS)) % (1 << 24)
    if packed:
        return ts.load({"x": table.float()})
    return ts.load({f"c{k}": table[:, k].float() for k in range(COLUMNS)})


def bare(case: Case) -> Iterator[dict[str, torch.Tensor]]:
    """`index_select` into one reused result, positions ready: one call for a pack, one for all separate columns."""
    block = case.stash.blocks[0]
    row = COLUMNS if case.packed else 1
    view = block.items.as_strided((len(block.items) // row - case.rows + 1, case.rows * row), (row, 1))
    columns = torch.arange(1 if case.packed else COLUMNS)[:, None] * block.stride
    generator = torch.Generator().manual_seed(0)
    ready = [
        (columns + torch.randint(case.stash.rows - case.rows + 1, (case.batch,), generator=generator)).view(-1)
        for _ in range(case.steps * (ROUNDS + 1))  # never the same twice: the caches are larger than one round
    ]
    out = torch.empty((len(ready[0]), case.rows * row), dtype=torch.int32)
    while True:
        for places in ready:
            torch.index_select(view, 0, places, out=out)
            yield {"all": out}


def loop(case: Case, prefetch: int | None = 0) -> Iterator[dict[str, torch.Tensor]]:
    """The whole Loader loop: order, lookup, gather, recycled memory."""
    windows = ts.Windows(case.stash, history=case.rows)
    loader = ts.Loader(windows, case.batch, shuffle=True, prefetch=prefetch, tail="drop")
    while True:
        yield from loader


def without_kernel(case: Case) -> Iterator[dict[str, torch.Tensor]]:
    """The same loop on torch and numpy alone."""
    batches = loop(case)
    while True:
        found, library.LIBRARY = library.LIBRARY, None
        try:
            batch = next(batches)
        finally:
            library.LIBRARY = found
        yield batch


def memcpy(case: Case) -> Iterator[dict[str, torch.Tensor]]:
    """The bytes of a batch in one piece, each time from elsewhere in the columns."""
    source, count = case.stash.blocks[0].items, case.nbytes // 4
    out, begin = torch.empty(count, dtype=torch.int32), 0
    while True:
        out.copy_(source[begin : begin + count])
        begin = (begin + 5 * count) % (len(source) - count)
        yield {"all": out}


def chunked(case: Case, *, spans: bool = False, compiled: bool = False) -> Iterator[dict[str, torch.Tensor]]:
    """By hand: a pack in huge pages, one call into reused memory for 1,024 windows, then views of it.

    The call is `index_select`, or a loop that numba has compiled.
    """
    columns = [*case.stash.values()]
    source = torch.from_numpy(columns[0].numpy().copy() if case.packed else np.stack(columns, 1))
    view = source.as_strided((case.stash.rows - case.rows + 1, case.rows * COLUMNS), (COLUMNS, 1))
    gather = importlib.import_module("contestants.numba").gathering(source) if compiled else selecting(view)
    chunk, generator = max(case.batch, CHUNK), torch.Generator().manual_seed(0)
    shape = chunk, view.shape[1]
    results = [torch.from_numpy(np.empty(shape, np.float32)) for _ in range(2)]  # the loop may hold a view of one
    while True:
        for result in results:
            gather(torch.randint(len(view), (chunk,), generator=generator), result)
            for batch in result.view(-1, case.batch, case.rows, COLUMNS).unbind():
                yield {"past": batch[:, :96], "future": batch[:, 96:]} if spans else {"all": batch}


def in_spans(case: Case) -> Iterator[dict[str, torch.Tensor]]:
    """The same windows as a past of 96 slots and a future, by a loader."""
    (name,) = case.stash
    spans = {"past": (name, -96, 0), "future": (name, 0, case.rows - 96)}
    windows = ts.Windows(case.stash, spans=spans, require=[*spans])
    yield from _endless(ts.Loader(windows, case.batch, shuffle=True, tail="drop"))


def by_hand(stash: ts.Stash, threads: int) -> None:
    """Small to large batches beside chunks by hand; rounds are long, because torch's threads spin after theirs."""
    torch.set_num_threads(threads)
    ways = [False, *([True] if importlib.util.find_spec("numba") else [])]
    print(f"\n{threads} threads, chunks of 1,024 windows by hand beside the loop: us a batch, and ratio of speeds")
    print(f"    {'':15} {'index_select':>17}{'numba' if True in ways else '':>17}   loop")
    for spans in (False, True):
        for batch in (32, 128, 1024, 4096):
            case = Case(stash, True, batch, 120)
            running = [chunked(case, spans=spans, compiled=compiled) for compiled in ways]
            running.append(in_spans(case) if spans else loop(case))
            for batches in running:
                for _ in range(max(1, CHUNK // batch) + 1):  # into both results
                    counts_on(torch.cat([*next(batches).values()], 1))
            steps = max(32, 131_072 // batch)
            rounds = [[seconds(batches, steps) for batches in running] for _ in range(ROUNDS // 2 + 1)][1:]
            *hand, own = (statistics.median(spent) * 1e6 for spent in zip(*rounds))
            ratios = (statistics.median(one[k] / one[-1] for one in rounds) for k in range(len(hand)))
            shown = "".join(f" {spent:7.1f} ({ratio:5.2f})" for spent, ratio in zip(hand, ratios))
            print(f"    {'two spans' if spans else 'one span':9} {batch:5,}:{shown} {own:7.1f}")
    torch.set_num_threads(1)


def counts_on(windows: torch.Tensor) -> None:
    """Fail unless each of the first windows `(windows, rows, 8)` is one of rows and columns that follow each other."""
    for window in windows[:64].long():
        # row r holds r * 8 + c, modulo 2**24: so do all its rows and columns count on
        expected = window[0, 0] + torch.arange(window.numel()).view(window.shape)
        assert torch.equal(window, expected % (1 << 24))


def verify(case: Case) -> None:
    """With and without the kernel, the loop yields the same slices of the columns, and the raw gather slices too."""
    one, two = next(loop(case)), next(without_kernel(case))
    assert all(torch.equal(one[name], two[name]) for name in two)
    raw = next(bare(case))["all"].view(torch.float32)
    sizes = (case.batch, -1) if case.packed else (COLUMNS, case.batch, -1)
    taken = raw.view(*sizes) if case.packed else raw.view(*sizes).movedim(0, -1)
    whole = next(iter(one.values())) if case.packed else torch.stack([*one.values()], -1)
    for windows in (taken.reshape(case.batch, case.rows, COLUMNS), whole):
        counts_on(windows)


def seconds(batches: Iterator[dict[str, torch.Tensor]], steps: int) -> float:
    began = time.perf_counter()
    for _ in range(steps):
        next(batches)
    return (time.perf_counter() - began) / steps


def compare(name: str, case: Case) -> None:
    """Print the median time of each contestant, and its ratio to the raw gather and to memcpy."""
    contestants = {"raw gather": bare, "loop": loop, "loop, no kernel": without_kernel, "memcpy": memcpy}
    running = {who: make(case) for who, make in contestants.items()}
    for batches in running.values():
        seconds(batches, case.steps // 2 + 1)
    rounds = [{who: seconds(batches, case.steps) for who, batches in running.items()} for _ in range(ROUNDS)]
    print(f"\n{name}")
    for who in running:
        gather, copy = (
            statistics.median(one[other] / one[who] for one in rounds) for other in ("raw gather", "memcpy")
        )
        spent = statistics.median(one[who] for one in rounds)
        print(f"    {who:16} {spent * 1e6:7.1f} us a batch   {gather:5.2f} of the raw gather   {copy:5.2f} of memcpy")


def empty_slots(rows: int, batch: int = 1024, length: int = 120) -> None:
    """A loop over windows that all have empty slots, beside one over windows without any."""
    rng = np.random.default_rng(0)
    missing = np.zeros(rows + 20, np.int64)
    missing[np.arange(0, rows, 20) + rng.integers(0, 20, len(range(0, rows, 20)))] = 1  # so that no window is whole
    times = np.cumsum(1 + missing[:rows])  # one step of time in twenty is missing
    columns = {f"c{k}": rng.random(rows, np.float32) for k in range(COLUMNS)}
    stash = ts.load({"t": times, **columns}, list(columns), time="t")
    kinds: dict[str, Literal["ignore", "mask"]] = {"whole": "ignore", "with empty slots": "mask"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        made = {name: ts.Windows(stash, history=length, gaps=gaps) for name, gaps in kinds.items()}
    own, ids = made["with empty slots"], rng.integers(0, len(made["with empty slots"]), 100)
    for window, start in zip(own[ids]["c3"], own.anchors(ids)["time"].tolist()):
        at = np.searchsorted(times, np.arange(start - length + 1, start + 1))
        there = times[at.clip(max=rows - 1)] == np.arange(start - length + 1, start + 1)
        assert not there.all()
        assert np.array_equal(window.numpy(), np.where(there, columns["c3"][at.clip(max=rows - 1)], np.nan), True)
    running = {name: _endless(ts.Loader(one, batch, shuffle=True, tail="drop")) for name, one in made.items()}
    rounds = [{name: seconds(batches, 40) for name, batches in running.items()} for _ in range(ROUNDS + 1)][1:]
    ratio = statistics.median(one["with empty slots"] / one["whole"] for one in rounds)
    shown = ", ".join(f"{name} {statistics.median(one[name] for one in rounds) * 1e6:.0f}" for name in running)
    print(f"\nall windows with empty slots, {batch} x {length}: {shown} us a batch; ratio {ratio:.2f}")


def scaling(case: Case) -> None:
    """A scaler over batches that were just gathered, beside the gather itself."""
    entities = 1000
    windows = ts.Windows(case.stash, history=case.rows)
    ids = np.random.default_rng(0).integers(0, len(windows), (64, case.batch))
    out = windows[ids[0]]
    for by in (None, "entity"):
        shape = (1 if by is None else entities, *(COLUMNS,) * case.packed)
        # by a power of two, which is exact
        centers, scales = (
            {name: torch.full(shape, value, dtype=torch.float64) for name in out} for value in (0.0, 2.0)
        )
        names = [] if by is None else [*range(entities)]
        scaler = ts.Scaler("standard", by, 0, {name: name for name in out}, centers, scales, names)
        group = {} if by is None else {"entity": torch.from_numpy(ids[0] % entities)}
        windows.gather(ids[0], out=out)
        before = {name: tensor.clone() for name, tensor in out.items()}
        scaler(out | group)
        assert all(torch.equal(out[name], before[name] / 2) for name in out)
        spent: dict[str, list[float]] = {"gather": [], "scale": []}
        for some in ids[1:]:
            began = time.perf_counter()
            windows.gather(some, out=out)
            gathered = time.perf_counter()
            scaler(out | group)
            spent["scale"].append(time.perf_counter() - gathered)
            spent["gather"].append(gathered - began)
        gather, scale = (statistics.median(spent[name]) for name in ("gather", "scale"))
        title = f"scaler {'not ' if by is None else ''}by entity, {'packed' if case.packed else 'separate'}"
        print(f"{title:34} {scale * 1e6:5.0f} us beside a gather of {gather * 1e6:.0f}; ratio {scale / gather:.2f}")


def breakdown(case: Case) -> None:
    """Where the loop's time beside the raw gather goes, each part alone and in a warm cache."""
    windows = ts.Windows(case.stash, history=case.rows)
    loader = ts.Loader(windows, case.batch, shuffle=True, tail="drop")
    (plan,), (passes, start) = windows.chain.plans, loader.sampler.begin()
    steps = next(passes.groups(start))
    anchors = windows.placement.anchor_slots(steps.ids)
    pool = Pool(plan.groups[0].buffer_shape(1), plan.groups[0].dtype, 3)
    buffer = pool.take(case.batch)
    parts: dict[str, tuple[Callable[[], object], int]] = {
        "order": (lambda: next(passes.groups(start)), len(steps.ids)),
        "lookup": (lambda: windows.placement.anchor_slots(steps.ids), len(steps.ids)),
        "take a buffer": (lambda: pool.take(case.batch), 1),
        "gather": (lambda: select([plan], None, [InSlots(anchors[0])], [[buffer]]), 1),
        "views of the columns": (lambda: as_batch(plan.groups, names_of([plan]), [buffer]), 1),
    }
    for name, (part, per_call) in parts.items():
        spent = min(timeit.repeat(part, number=20, repeat=20)) / 20 / per_call
        print(f"    {name:22s} {spent * 1e6:6.1f} us a batch")


def order_and_lookup() -> None:
    """Nanoseconds per id of the shuffled order and of the search for its interval."""
    print("\norder and lookup: ns per id")
    for runs in (1, 1000, 1_000_000):
        for n in (10**6, 10**8, 10**10, 10**12):
            if n < runs:
                continue
            counts = np.full(runs, n // runs, np.int64)
            counts[: n % runs] += 1
            first = np.concatenate([[0], np.cumsum(counts + 100)[:-1]])  # 100 rows between the runs' windows
            within = intervals(first, counts, 1)
            order = shuffled(n, 0, 0)
            at = np.arange(BLOCK) + n // 3
            ids = order(at)
            k = int(ids[5]) * runs // n
            assert abs(int(locate(within, ids[5:6])[0]) - int(ids[5]) - 100 * k) <= 100
            parts = (lambda order=order, at=at: order(at), lambda within=within, ids=ids: locate(within, ids))
            one, two = (min(timeit.repeat(part, number=5, repeat=10)) / 5 / BLOCK * 1e9 for part in parts)
            print(f"    n = 10^{len(str(n)) - 1:<2d}  {runs:9,d} runs   {one:5.1f} + {two:5.1f} = {one + two:5.1f}")


def training(stash: ts.Stash) -> None:
    """The defaults against prefetch=0, and prefetch=2 beside them, around a real training step."""
    print("\ntraining loop on all threads: time per step, as a ratio to prefetch=0")
    windows = ts.Windows(stash, history=96, horizon=24)
    for width in (16, 256, 2048):
        model = torch.nn.Sequential(torch.nn.Linear(96, width), torch.nn.ReLU(), torch.nn.Linear(width, 24))
        optimizer = torch.optim.SGD(model.parameters(), 1e-9)

        def step(batch: dict[str, torch.Tensor], model: torch.nn.Module = model, optimizer: Any = optimizer) -> None:
            series = torch.cat([column * 1e-7 for column in batch.values()])
            loss = torch.nn.functional.mse_loss(model(series[:, :96]), series[:, 96:])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

        loaders = {p: iter(_endless(ts.Loader(windows, 256, shuffle=True, prefetch=p))) for p in (0, None, 2)}
        rounds = [{p: _train(batches, step) for p, batches in loaders.items()} for _ in range(ROUNDS)]
        spent = statistics.median(round_[0] for round_ in rounds)
        ratios = {p: statistics.median(round_[p] / round_[0] for round_ in rounds) for p in (None, 2)}
        print(f"    hidden {width:5d}: {spent * 1e3:6.2f} ms; default {ratios[None]:.2f}, prefetch=2 {ratios[2]:.2f}")


def _endless(loader: ts.Loader) -> Iterator[dict[str, torch.Tensor]]:
    while True:
        yield from loader


def _train(batches: Iterator[dict[str, torch.Tensor]], step: Callable[[dict[str, torch.Tensor]], None]) -> float:
    began = time.perf_counter()
    for _ in range(12):
        step(next(batches))
    return (time.perf_counter() - began) / 12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1 M rows, to see that it runs")
    quick = parser.parse_args().quick
    rows = 1_000_000 if quick else 10_000_000
    threads = torch.get_num_threads()
    print(f"torch {torch.__version__}, numpy {np.__version__}, one thread, {rows:,} rows x {COLUMNS} float32")
    print(library.why())
    torch.set_num_threads(1)
    for packed in (False, True):
        stash = data(rows, packed)
        for batch, length in ((1024, 120), (256, 336), *(() if packed else ((1024, 1), (64, 32)))):
            case = Case(stash, packed, batch, length)
            verify(case)
            compare(f"{batch:,} x {length}, {'packed' if packed else 'separate'}", case)
            breakdown(case)
        for count in {1, threads} if packed else ():
            by_hand(stash, count)
        print()
        scaling(Case(stash, packed, 1024, 120))
        if not packed and not quick:
            torch.set_num_threads(threads)
            training(stash)
            torch.set_num_threads(1)
    empty_slots(rows)
    order_and_lookup()


if __name__ == "__main__":
    main()
