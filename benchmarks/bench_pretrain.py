"""Pre-training on a mix of many data sets: drawn contexts packed into rows, beside the ways of others.

    python benchmarks/bench_pretrain.py          # 200 made data sets, a few minutes
    python benchmarks/bench_pretrain.py --quick  # the same, small, to see that it runs

Each data set has 8 series of 100 to 100,000 steps, contexts have 64 to 2,048 slots, rows 2,048. The others take part in
two ways. Their own classes are `contestants/uni2ts.py` and `contestants/chronos.py`, which are left out where their
packages are missing (`pip install --no-deps -r benchmarks/peers_uni2ts.txt`). And their ways are written anew with as
little Python as they allow: that of uni2ts (a series by its length, a length, then a cut; a chain of transforms per
sample; first fit over the rows in a Python loop), and that of Chronos-1's training script (a data set by its weight, a
uniform cut, padding on the left with NaN, no packing). "By hand" is the best that we found in numpy: cuts of a whole
batch at once, written one after the other, and divided where a row ends.

Before anything is timed, every packed slot is compared with its series. All run on one thread. The bytes are those of
the tensors of a batch, per token; a token is a slot with a row.
"""

import argparse
import importlib
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from processes import in_fresh_process, peak, reset_peak, resident

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


# Each way yields the tensors of a batch by name: first the values, and one of these tells which slots hold a value


Batches = Iterator[dict[str, torch.Tensor]]

MARKS = ("past.segment", "past.observed", "observed_mask", "mask")


def tokens_of(batch: dict[str, torch.Tensor]) -> tuple[int, int]:
    """Slots that hold a value, and all slots."""
    slots = next(iter(batch.values())).numel()
    marks = [batch[name] for name in MARKS if name in batch]
    return int((marks[0] > 0).sum()) if marks else slots, slots


def ours(sets: Sets, length: int | None = ROW) -> Batches:
    return iter(ts.Loader(mix_of(sets), BATCH, shuffle=True, transform=[ts.PackSequences("past", length=length)]))


def unpacked(sets: Sets) -> Batches:
    """Ours without packing: what packing costs."""
    return iter(ts.Loader(mix_of(sets), BATCH, shuffle=True))


def by_hand(sets: Sets) -> Batches:
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
        unused = -total % ROW
        place = np.repeat(begins[of] + ends - np.cumsum(lengths), lengths) + np.arange(total)
        segment = np.repeat(np.arange(1, BATCH + 2, dtype=np.int32), np.append(lengths, unused))
        segment[total:] = 0
        rows = np.zeros(total + unused, np.float32)
        np.take(flat, place, out=rows[:total])
        yield {
            "past": torch.from_numpy(rows).view(-1, ROW),
            "past.segment": torch.from_numpy(segment).view(-1, ROW),
        }


def uni2ts_way(sets: Sets) -> Batches:
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
        samples = sorted((sample() for _ in range(BATCH)), key=lambda each: -len(each["target"]))
        rows: list[list[dict[str, Any]]] = []
        room: list[int] = []
        for entry in samples:
            size = len(entry["target"])
            for k in range(len(rows)):
                if room[k] >= size:
                    break
            else:
                k = len(rows)
                rows.append([])
                room.append(ROW)
            rows[k].append(entry | {"sample_id": torch.full_like(entry["time_id"], len(rows[k]) + 1)})
            room[k] -= size
        yield {
            name: torch.stack(
                [
                    torch.cat([*(entry[name] for entry in row), torch.zeros(left, dtype=row[0][name].dtype)])
                    for row, left in zip(rows, room)
                ]
            )
            for name in rows[0][0]
        }


def chronos_way(sets: Sets) -> Batches:
    """A data set by its weight, a series and a cut per sample, padded on the left."""
    rng = np.random.default_rng(0)
    shares = np.array(weights_of(sets))
    shares /= shares.sum()
    while True:
        contexts = []
        for _ in range(BATCH):
            part = sets[rng.choice(len(sets), p=shares)]
            series = part[rng.integers(len(part))]
            end = int(rng.integers(LOW, len(series) + 1))
            past = series[max(0, end - HIGH) : end]
            padded = np.concatenate([np.full(HIGH - len(past), np.nan, np.float32), past])
            contexts.append({"past_target": torch.tensor(padded), "mask": torch.tensor(~np.isnan(padded))})
        yield {name: torch.stack([context[name] for context in contexts]) for name in contexts[0]}


def classes_of(package: str) -> Callable[[Sets], Batches]:
    return lambda sets: importlib.import_module(f"contestants.{package}").batches(sets)


# each with the number of batches of a measurement
WAYS: dict[str, tuple[Callable[[Sets], Batches], int]] = {
    "tensorstash, rows of 2,048": (ours, 40),
    "tensorstash, one after the other": (lambda sets: ours(sets, None), 40),
    "tensorstash, not packed": (unpacked, 40),
    "by hand in numpy": (by_hand, 40),
    "as uni2ts does, written anew": (uni2ts_way, 4),
    "as Chronos-1 does, written anew": (chronos_way, 4),
    "classes of uni2ts": (classes_of("uni2ts"), 2),
    "classes of GluonTS, as Chronos-1": (classes_of("chronos"), 2),
}


def check(sets: Sets) -> None:
    """Every window is a stretch of its series that ends before its anchor, packed whole."""
    loader = ts.Loader(
        mix_of(sets), BATCH, shuffle=True, with_ids=True, transform=[ts.PackSequences("past", length=ROW)]
    )
    for batch, _ in zip(loader, range(3)):
        places = ("past.row", "past.start", "past.length")
        numbers = (batch[name].tolist() for name in ("source", "entity", "anchor", *places))
        seen = 0
        for source, entity, last, row, begin, size in zip(*numbers):
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
    made = WAYS[name][0](sets)
    next(made)
    first = time.perf_counter() - began
    best, tokens, slots, nbytes = 0.0, 0, 0, 0
    for _ in range(5):
        seconds, counted = 0.0, 0
        for _ in range(batches):
            began = time.perf_counter()
            batch = next(made)
            seconds += time.perf_counter() - began
            held, room = tokens_of(batch)
            counted, slots = counted + held, slots + room
            nbytes += sum(tensor.nbytes for tensor in batch.values())
            del batch
        best, tokens = max(best, counted / seconds), tokens + counted
    grown = float("nan") if before is None else (peak() - before) / 1e6
    return {
        "tokens": best,
        "padding": 1 - tokens / slots,
        "bytes": nbytes / tokens,
        "first": first,
        "memory": grown,
    }


def dealt_out(weights: list[float], workers: int) -> float:
    """The share of the last data set where data sets are dealt out to workers, and renormalised in each."""
    parts = [weights[k::workers] for k in range(min(workers, len(weights)))]
    return next(part[-1] / sum(part) for part in parts if part[-1] == weights[-1]) / len(parts)


def shares(sets: Sets) -> None:
    """Two components by 0.9 and 0.1, on 1, 2 and 4 ranks; and resumed on another number of ranks."""
    parts = [*mix_of(sets).windows.values()][-2:]
    mix = ts.Mix(dict(zip("ab", parts)), {"a": 9, "b": 1}, epoch_size=4096)

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
    for ranks, others in ((1, 4), (2, 4), (4, 1)):
        begun, share, state = keys(ranks, most=20)
        rest, _, _ = keys(others, state)
        assert begun + rest == whole
        print(
            f"    {ranks} ranks: share of the second set {share:.3f} of 0.1, resumed exactly on {others}; dealt out to "
            f"as many workers, as Chronos-1 does: {dealt_out([0.9, 0.1], ranks):.1f}, and no resume"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    count = 12 if quick else 200
    check(made_sets(count))
    print(f"{count} data sets of {SERIES} series, {BATCH} windows a batch, one thread; best of 5")
    print(f"    {'':34s} tokens/s    padding  bytes  first batch  memory")
    for name, (_, batches) in WAYS.items():
        try:
            measured = in_fresh_process(case, name, count, 2 if quick else batches)
        except ImportError as error:
            print(f"    {name:34s} left out: {error}")
            continue
        print(
            f"    {name:34s} {measured['tokens'] / 1e6:6.1f} M    {measured['padding']:5.1%}  {measured['bytes']:5.1f}",
            f"  {measured['first']:7.2f} s  {measured['memory']:6.0f} MB",
        )
    print("shares and resume")
    shares(made_sets(count))


if __name__ == "__main__":
    main()
