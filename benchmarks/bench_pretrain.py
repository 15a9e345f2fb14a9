"""Pre-training on a mix of many data sets: contexts packed into rows, and any number of variates, beside others.

    python benchmarks/bench_pretrain.py          # a few minutes
    python benchmarks/bench_pretrain.py --quick  # the same, small, to see that it runs

Packing: 200 data sets of 8 series of 100 to 100,000 steps, contexts of 64 to 2,048 slots, rows of 2,048; a value is a
slot with a row. The others take part in two ways. Their own classes are `contestants/uni2ts.py` and
`contestants/chronos.py`, which are left out where their packages are missing (`pip install --no-deps -r
benchmarks/peers_uni2ts.txt`). And their ways are written anew with as little Python as they allow: that of uni2ts (a
series by its length, a length, then a cut; a chain of transforms per sample; first fit over the rows in a Python loop),
and that of Chronos-1's training script (a data set by its weight, a uniform cut, padding on the left with NaN, no
packing). "By hand" is the best that we found in numpy: cuts of a whole batch at once, written one after the other, and
divided where a row ends.

Variates: 1,000 data sets of 1 to 30 columns, windows of 512 slots, batches of about 1,000 rows. "Separate columns" is
the most that this library does: one stash with as many values in 30 columns, each a span of its own. "Padded to 30" is
a mix whose packs were all widened with NaN. "Chronos-2" is its own data set, and its rule written anew.

Before anything is timed, every value is compared with its series. All run on one thread. Seconds are of the processor,
so that others on the machine disturb them little. The bytes are those of the tensors of a batch, per value.
"""

import importlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import record
import torch
from numpy.typing import NDArray
from timing import Turn, rounds_of

import tensorstash as ts

LOW, HIGH, STEP, ROW, BATCH, SERIES = 64, 2048, 16, 2048, 256, 8  # of packing
SLOTS, WIDEST, WINDOWS = 512, 30, 64  # of variates

Floats = NDArray[np.float32]
Sets = list[list[Floats]]
Wide = list[Floats]  # (rows, columns) each
Batches = Iterator[dict[str, torch.Tensor]]

# ---- Packing ----


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


def check_packing(sets: Sets) -> None:
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


# ---- Variates ----


def wide_sets(count: int) -> Wide:
    """`(rows, columns)` each; a value tells its data set, row and column."""
    rng = np.random.default_rng(0)
    lengths, widths = rng.integers(600, 6_000, count), 1 + np.arange(count) % WIDEST
    return [
        (np.arange(rows, dtype=np.float32)[:, None] * WIDEST + np.arange(width, dtype=np.float32) + k % 97 * 0.001)
        for k, (rows, width) in enumerate(zip(lengths.tolist(), widths.tolist()))
    ]


def mix_of_wide(sets: Wide) -> ts.Mix:
    spans = {"past": (ts.each("x"), -SLOTS, 0)}
    return ts.Mix({str(k): ts.Windows(ts.load({"x": values}), spans=spans) for k, values in enumerate(sets)})


def rows_of_variates(sets: Wide) -> Batches:
    return iter(ts.Loader(mix_of_wide(sets), WINDOWS, shuffle=True, steps=1 << 20))


def separate(sets: Wide) -> Batches:
    """As many values from separate columns of one stash, which has as many as all sets together."""
    rows = sum(values.size for values in sets) // WIDEST
    names = [f"v{k}" for k in range(WIDEST)]
    stash = ts.load({name: np.arange(rows, dtype=np.float32) for name in names})
    windows = ts.Windows(stash, spans={name: (name, -SLOTS, 0) for name in names})
    return iter(ts.Loader(windows, WINDOWS // 2, shuffle=True, steps=1 << 20))


def padded(sets: Wide) -> Batches:
    wide = [np.pad(values, ((0, 0), (0, WIDEST - values.shape[1])), constant_values=np.nan) for values in sets]
    spans = {"past": ("x", -SLOTS, 0)}
    parts = {str(k): ts.Windows(ts.load({"x": values}), spans=spans) for k, values in enumerate(wide)}
    return iter(ts.Loader(ts.Mix(parts), WINDOWS, shuffle=True, steps=1 << 20))


def chronos_2_way(sets: Wide) -> Batches:
    """A data set and a cut per sample, rows put one after the other; all contexts are whole here."""
    rng, series = np.random.default_rng(0), [torch.from_numpy(values.T.copy()) for values in sets]
    while True:
        cut = []
        for _ in range(WINDOWS):
            of = series[rng.integers(len(series))]
            end = int(rng.integers(SLOTS, of.shape[1] + 1))
            cut.append(of[:, end - SLOTS : end])
        groups = [torch.full((len(part),), k) for k, part in enumerate(cut)]
        yield {"past": torch.cat(cut), "past.window": torch.cat(groups)}


def chronos_2(sets: Wide) -> Batches:
    """The data set of the package. It cuts a target too, of one slot, and counts rows in its batches."""
    data_set: Any = importlib.import_module("chronos.chronos2").Chronos2Dataset

    inputs = [torch.from_numpy(values.T.copy()) for values in sets]
    numbers = {"n_covariates": 0, "n_future_covariates": 0}
    prepared = [
        {"context": of, "future_covariates": torch.full((len(of), 1), torch.nan), "n_targets": len(of), **numbers}
        for of in inputs
    ]
    for batch in data_set(prepared, SLOTS, 1, WINDOWS * 15, 1, min_past=SLOTS):
        yield {"past": batch["context"], "past.window": batch["group_ids"]}


def check_variates(sets: Wide) -> None:
    """Every row is a slice of its column."""
    loader = ts.Loader(mix_of_wide(sets), WINDOWS, shuffle=True, with_ids=True, steps=3)
    for batch in loader:
        for row, window, variate in zip(batch["past"], batch["past.window"].tolist(), batch["past.variate"].tolist()):
            first = int(batch["window"][window])
            source = sets[int(batch["source"][window])]
            assert np.array_equal(row.numpy(), source[first : first + SLOTS, variate])


# ---- Measuring ----

# each with the number of batches of a round
PACKING: dict[str, tuple[Callable[[Sets], Batches], int]] = {
    "tensorstash, rows of 2,048": (ours, 40),
    "tensorstash, one after the other": (lambda sets: ours(sets, None), 40),
    "tensorstash, not packed": (unpacked, 40),
    "by hand in numpy": (by_hand, 40),
    "as uni2ts does, written anew": (uni2ts_way, 4),
    "as Chronos-1 does, written anew": (chronos_way, 4),
    "classes of uni2ts": (classes_of("uni2ts"), 2),
    "classes of GluonTS, as Chronos-1": (classes_of("chronos"), 2),
}
VARIATES: dict[str, tuple[Callable[[Wide], Batches], int]] = {
    "separate columns of one stash": (separate, 20),
    "a row per variate, ts.each": (rows_of_variates, 20),
    f"padded to {WIDEST}": (padded, 20),
    "as Chronos-2 does, written anew": (chronos_2_way, 20),
    "the data set of Chronos-2": (chronos_2, 20),
}
MARKS = ("past.segment", "past.observed", "observed_mask", "mask")  # which tell the slots that hold a value


def values_in(batch: dict[str, torch.Tensor]) -> tuple[int, int, int]:
    """The values of a batch, its slots, and its bytes."""
    nbytes = sum(tensor.nbytes for tensor in batch.values())
    marks = next((batch[name] for name in MARKS if name in batch), None)
    if marks is not None:
        return int((marks > 0).sum()), marks.numel(), nbytes
    spans = [tensor for name, tensor in batch.items() if "." not in name]
    return sum(int((~tensor.isnan()).sum()) for tensor in spans), sum(map(torch.numel, spans)), nbytes


def _begun(name: str, way: Callable[[Any], Batches], sets: Any) -> Batches | None:
    try:
        batches = way(sets)
        next(batches)
    except ImportError as error:
        print(f"    {name:34s} left out: {error}")
        return None
    return batches


def turn_of(batches: Batches, count: int, counts: list[tuple[int, int, int]]) -> Turn:
    """The seconds of a million values; what each batch has is added to `counts`, while the clock stands still."""

    def turn() -> float:
        seconds, values = 0.0, 0
        for _ in range(count):
            began = time.process_time()
            batch = next(batches)
            seconds += time.process_time() - began
            counts.append(values_in(batch))
            values += counts[-1][0]
            del batch
        return seconds / values * 1e6

    return turn


def measure(case: str, ways: dict[str, tuple[Callable[[Any], Batches], int]], sets: Any, rounds: int) -> record.Row:
    """Let the ways take turns, on so many batches each, or on two where there is one round."""
    turns: dict[str, Turn] = {}
    counts: dict[str, list[tuple[int, int, int]]] = {}
    for name, (way, count) in ways.items():
        batches = _begun(name, way, sets)
        if batches is not None:
            counts[name] = []
            turns[name] = turn_of(batches, count if rounds > 1 else 2, counts[name])
    found = rounds_of(turns, rounds)
    found.show(f"{case}: a million values")
    for name, own in counts.items():
        values, slots, nbytes = np.array(own).sum(0)
        told = (
            f"{1 / found.median(name):7.1f} M values/s  padding {1 - values / slots:5.1%}  {nbytes / values:5.2f} bytes"
        )
        print(f"    {name:34s} {told}")
    return found.row(section="Pre-training", case=case)


def main() -> None:
    quick = record.arguments(__doc__).parse_args().quick
    torch.set_num_threads(1)
    sets = made_sets(12 if quick else 200)
    check_packing(sets)
    print(f"packing: {len(sets)} data sets of {SERIES} series, {BATCH} windows a batch")
    rows = [measure("packing", PACKING, sets, 1 if quick else 5)]
    wide = wide_sets(40 if quick else 1_000)
    check_variates(wide)
    print(f"variates: {len(wide):,} data sets of 1 to {WIDEST} columns, windows of {SLOTS} slots")
    rows.append(measure("variates", VARIATES, wide, 1 if quick else 15))
    record.save("bench_pretrain", rows, quick=quick)


if __name__ == "__main__":
    main()
