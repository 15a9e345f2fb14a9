"""Pre-training on a mix of many data sets: drawn contexts packed into rows, beside the ways of others.

    python benchmarks/bench_pretrain.py          # 200 made data sets, a few minutes
    python benchmarks/bench_pretrain.py --quick  # the same, small, to see that it runs

Each data set has 8 series of 100 to 100,000 steps, contexts have 64 to 2,048 slots, rows 2,048. The others are written
anew here, after their sources, because their packages do not install beside each other: the way of uni2ts (a series by
its length, a length, then a cut; a chain of transforms per sample; first fit over the rows in a Python loop), and that
of Chronos-1's training script (a data set by its weight, a uniform cut, padding on the left with NaN, no packing).
"By hand" is the best that we found in numpy: cuts of a whole batch at once, written one after the other.

Before anything is timed, every packed slot is compared with its series. All run on one thread.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from bench_sample import in_fresh_process, peak, reset_peak, resident
from numpy.typing import NDArray

import tensorstash as ts

LOW, HIGH, STEP, ROW, BATCH, SERIES = 64, 2048, 16, 2048, 256, 8

Floats = NDArray[np.float32]
Sets = list[list[Floats]]


def made_sets(count: int) -> Sets:
    """Series of `count` data sets, whose lengths grow from 100 to 100,000; each value tells its series and step."""
    lengths = np.geomspace(100, 100_000, count).astype(int)
    return [
        [(np.arange(n) + 1 + (SERIES * k + s) % 97 * 0.001).astype(np.float32) for s in range(SERIES)]
        for k, n in enumerate(lengths.tolist())
    ]


def weights_of(sets: Sets) -> list[float]:
    """The share of each set: the square root of its values, as is usual."""
    return [sum(map(len, series)) ** 0.5 for series in sets]


def mix_of(sets: Sets) -> ts.Mix:
    spans = {"past": ("y", ts.Draw(-HIGH, -LOW, step=STEP), 0)}
    parts = {}
    for k, series in enumerate(sets):
        of = np.repeat(np.arange(SERIES), [*map(len, series)])
        stash = ts.load({"e": of, "y": np.concatenate(series)}, ["y"], entity="e")
        parts[f"set {k}"] = ts.Windows(stash, spans=spans, min_history=LOW)
    return ts.Mix(parts, dict(zip(parts, weights_of(sets))))


# Each way yields the tensors of a batch, and a function that counts the slots that hold a value, and all slots


Made = Iterator[tuple[Any, Callable[[], tuple[int, int]]]]


def ours(sets: Sets, length: int | None = ROW) -> Made:
    pack = ts.Pack("past", length=length)
    for batch in ts.Loader(mix_of(sets), BATCH, shuffle=True, transform=[pack]):
        yield batch, partial(_packed_slots, batch)


def _packed_slots(batch: dict[str, torch.Tensor]) -> tuple[int, int]:
    slots = batch["past"].numel()
    return slots if "past.offsets" in batch else int((batch["past.segment"] > 0).sum()), slots


def unpacked(sets: Sets) -> Made:
    """Ours without packing: what packing costs."""
    for batch in ts.Loader(mix_of(sets), BATCH, shuffle=True):
        yield batch, partial(_dense_slots, batch["past.observed"])


def _dense_slots(observed: torch.Tensor) -> tuple[int, int]:
    return int(observed.sum()), observed.numel()


def by_hand(sets: Sets) -> Made:
    rng = np.random.default_rng(0)
    every = [series for part in sets for series in part]
    flat, sizes = np.concatenate(every), np.array([*map(len, every)])
    begins, shares = np.cumsum(sizes) - sizes, np.cumsum(np.repeat(weights_of(sets), SERIES))
    while True:
        of = np.searchsorted(shares, rng.random(BATCH) * shares[-1], "right")
        ends = LOW + (rng.random(BATCH) * (sizes[of] - LOW + 1)).astype(np.int64)
        lengths = np.minimum(rng.integers(LOW // STEP, HIGH // STEP + 1, BATCH) * STEP, ends)
        order = np.argsort(-lengths, kind="stable")
        of, ends, lengths = of[order], ends[order], lengths[order]
        total = int(lengths.sum())
        place = np.repeat(begins[of] + ends - np.cumsum(lengths), lengths) + np.arange(total)
        segment = np.repeat(np.arange(BATCH, dtype=np.int32), lengths)
        rows = np.zeros(-(-total // ROW) * ROW, np.float32)  # windows are cut at the ends of rows
        np.take(flat, place, out=rows[:total])
        yield (torch.from_numpy(rows).view(-1, ROW), segment), partial(_told, total, len(rows))


def _told(*slots: int) -> tuple[int, int]:
    held, room = slots
    return held, room


def uni2ts_way(sets: Sets) -> Made:
    """A dict per sample through transforms, and first fit over the rows of a batch."""
    rng = np.random.default_rng(0)
    every = [series for part in sets for series in part]
    shares = np.repeat(weights_of(sets), SERIES)
    shares /= shares.sum()

    def sample() -> dict[str, Any]:
        entry: dict[str, Any] = {"target": every[rng.choice(len(every), p=shares)]}
        length = int(rng.integers(LOW // STEP, min(HIGH, len(entry["target"])) // STEP + 1)) * STEP  # the length first
        begin = int(rng.integers(0, len(entry["target"]) - length + 1))
        entry = entry | {"target": entry["target"][begin : begin + length].copy()}
        entry = entry | {"observed_mask": ~np.isnan(entry["target"])}
        entry = entry | {"target": np.where(entry["observed_mask"], entry["target"], 0)}
        entry = entry | {"time_id": np.arange(length), "variate_id": np.zeros(length, int)}
        return {name: torch.as_tensor(value) for name, value in entry.items()}

    while True:
        samples = sorted((sample() for _ in range(BATCH)), key=lambda s: -len(s["target"]))
        rows: list[list[dict[str, Any]]] = []
        room: list[int] = []
        for one in samples:
            size = len(one["target"])
            for k in range(len(rows)):
                if room[k] >= size:
                    break
            else:
                k = len(rows)
                rows.append([])
                room.append(ROW)
            rows[k].append(one)
            room[k] -= size
        packed = {}
        for name in samples[0]:
            padded = [
                torch.cat([*(one[name] for one in row), torch.zeros(left, dtype=row[0][name].dtype)])
                for row, left in zip(rows, room)
            ]
            packed[name] = torch.stack(padded)
        packed["sample_id"] = torch.stack(
            [
                torch.cat([*(torch.full_like(one["time_id"], k + 1) for k, one in enumerate(row)), torch.zeros(left)])
                for row, left in zip(rows, room)
            ]
        )
        yield packed, partial(_told, len(rows) * ROW - sum(room), len(rows) * ROW)


def chronos_way(sets: Sets) -> Made:
    """A data set by its weight, a series and a cut per sample, padded on the left."""
    rng = np.random.default_rng(0)
    shares = np.array(weights_of(sets))
    shares /= shares.sum()
    while True:
        contexts, tokens = [], 0
        for _ in range(BATCH):
            part = sets[rng.choice(len(sets), p=shares)]
            series = part[rng.integers(len(part))]
            end = int(rng.integers(LOW, len(series) + 1))
            past = series[max(0, end - HIGH) : end]
            tokens += len(past)
            padded = np.concatenate([np.full(HIGH - len(past), np.nan, np.float32), past])
            contexts.append({"past_target": torch.tensor(padded), "mask": torch.tensor(~np.isnan(padded))})
        batch = {name: torch.stack([context[name] for context in contexts]) for name in contexts[0]}
        yield batch, partial(_told, tokens, BATCH * HIGH)


WAYS: dict[str, Callable[[Sets], Made]] = {
    "tensorstash, rows of 2,048": ours,
    "tensorstash, one after the other": lambda sets: ours(sets, None),
    "tensorstash, not packed": unpacked,
    "by hand in numpy": by_hand,
    "as uni2ts does": uni2ts_way,
    "as Chronos-1 does": chronos_way,
}


def check(sets: Sets) -> None:
    """Every window is a stretch of its series that ends before its anchor, packed whole."""
    loader = ts.Loader(mix_of(sets), BATCH, shuffle=True, with_ids=True, transform=[ts.Pack("past", length=ROW)])
    for batch, _ in zip(loader, range(3)):
        numbers = (batch[name].tolist() for name in ("source", "entity", "anchor", "past.row", "past.begin"))
        seen = 0
        for source, entity, last, row, begin in zip(*numbers):
            segment = batch["past.segment"][row]
            size = int((segment == segment[begin]).sum())
            end = last + 1 - sum(map(len, sets[source][:entity]))  # without a horizon the anchor is the last row
            exact = sets[source][entity][end - size : end]
            assert np.array_equal(batch["past"][row, begin : begin + size].numpy(), exact)
            assert size % STEP == 0 or size == end, "a length that was drawn, or cut where the series begins"
            seen += size
        assert seen == int((batch["past.segment"] > 0).sum())


def case(name: str, count: int, batches: int) -> dict[str, float]:
    torch.set_num_threads(1)
    sets, before = made_sets(count), None
    mix_of(made_sets(1))  # what has to be imported
    with suppress(OSError, AttributeError):  # no Linux, or no glibc
        reset_peak()
        before = resident()
    began = time.perf_counter()
    made = WAYS[name](sets)
    next(made)
    first = time.perf_counter() - began
    best, tokens, slots = 0.0, 0, 0
    for _ in range(5):
        seconds, counted = 0.0, 0
        for _ in range(batches):
            began = time.perf_counter()
            kept, counted_in = next(made)
            seconds += time.perf_counter() - began
            held, room = counted_in()
            counted, slots = counted + held, slots + room
            del kept, counted_in
        best, tokens = max(best, counted / seconds), tokens + counted
    grown = float("nan") if before is None else (peak() - before) / 1e6
    return {"tokens": best, "padding": 1 - tokens / slots, "first": first, "memory": grown}


def shares(sets: Sets) -> None:
    """Two components by 0.9 and 0.1, on 1, 2 and 4 ranks; and resumed on another number of ranks."""
    parts = [*mix_of(sets).windows.values()][-2:]
    mix = ts.Mix(dict(zip("ab", parts)), {"a": 9, "b": 1}, count=4096)

    def keys(ranks: int, state: Any = None, most: int | None = None) -> tuple[list[int], float, Any]:
        loaders = [
            ts.Loader(mix, 64 // ranks, shuffle=True, num_replicas=ranks, rank=rank, with_ids=True)
            for rank in range(ranks)
        ]
        for loader in loaders:
            if state is not None:
                loader.load_state_dict(state)
        taken, of_second = [], 0
        for number, step in enumerate(zip(*loaders)):
            for batch in step:
                taken += batch["window.key"].tolist()
                of_second += int(batch["source"].sum())
            if number + 1 == most:
                break
        return taken, of_second / len(taken), loaders[0].state_dict()

    whole, _, _ = keys(1)
    for ranks in (1, 2, 4):
        begun, share, state = keys(ranks, most=20)
        rest, _, _ = keys(5 - ranks if ranks < 4 else 1, state) if ranks != 2 else keys(4, state)
        assert begun + rest == whole
        # data sets are dealt out to workers, and renormalised there: with two or more, each has a worker of its own
        theirs = 0.1 if ranks == 1 else 0.5
        print(f"    {ranks} ranks: share of the second set {share:.3f} of 0.1, resumed exactly; dealt out: {theirs}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    count = 12 if quick else 200
    check(made_sets(count))
    print(f"{count} data sets of {SERIES} series, {BATCH} windows a batch, one thread; best of 5")
    print(f"    {'':34s} tokens/s    padding  first batch  memory")
    for name in WAYS:
        told = in_fresh_process(case, name, count, 2 if quick else 40 if not name.startswith("as ") else 4)
        print(
            f"    {name:34s} {told['tokens'] / 1e6:6.1f} M    {told['padding']:5.1%}   {told['first']:7.2f} s  "
            f"{told['memory']:6.0f} MB"
        )
    print("shares and resume")
    shares(made_sets(count))


if __name__ == "__main__":
    main()
