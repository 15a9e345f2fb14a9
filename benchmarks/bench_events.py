"""Windows of events at given points in time: the last 90 days of a customer, at most 256 events, two columns.

    python benchmarks/bench_events.py            # 4 M events of 50,000 customers, 200,000 points; some minutes, 2 GB
    python benchmarks/bench_events.py --quick    # a hundredth of it, to see that it runs

One thread, batches of 1,024 points in one shuffled order. All ways make the same
tensors, padded in front, with a mask; that is asserted on a few batches before anything is timed.

by hand: one `searchsorted` over (customer, time) for both ends of all stretches, one index matrix, one gather a column.
per sample: a `Dataset` that slices the arrays of one customer, and a collate function that pads.
to dense: a slice per sample, joined, and written into zeros by the mask, which is how meds-torch-data makes batches.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import record
import torch
from timing import Turn, rounds_of
from torch.utils.data import DataLoader, Dataset

import tensorstash as ts

MOST, BATCH, DAYS, SPAN = 256, 1024, 180, 90
DAY = 86_400

Batch = dict[str, torch.Tensor]


def main() -> None:
    quick = record.arguments(__doc__).parse_args().quick
    torch.set_num_threads(1)
    part = 100 if quick else 1
    events, points = made(4_000_000 // part, 50_000 // part, 200_000 // part)
    began = time.perf_counter()
    columns: dict[str, Any] = {"amount": "amount", "shop": ts.column("shop", empty=0)}
    stash = ts.load(events, columns, entity="customer", time="t", duplicates="keep", progress=False)
    loaded = time.perf_counter()
    spans = {name: ts.During(name, f"-{SPAN}d", "0d", max_rows=MOST) for name in columns}
    windows = ts.Windows(stash, spans=spans, at=points)
    print(f"{stash.rows:,} events, {len(windows):,} points: loaded in {loaded - began:.2f} s, ", end="")
    print(f"windows made in {time.perf_counter() - loaded:.2f} s")
    order = np.random.default_rng(1).permutation(len(windows))[: len(windows) // BATCH * BATCH].tolist()
    ways: dict[str, Callable[[list[int]], Iterator[Batch]]] = {
        "tensorstash": lambda ids: iter(ts.Loader(windows, BATCH, order=ids)),
        "by hand": ByHand(events, points).batches,
        "to dense": lambda ids: iter(DataLoader(Samples(events, points), BATCH, sampler=ids, collate_fn=to_dense)),
        "per sample": lambda ids: iter(DataLoader(Samples(events, points), BATCH, sampler=ids, collate_fn=padded)),
    }
    check(ways, order[: 4 * BATCH])
    turns: dict[str, Turn] = {}
    for name, batches in ways.items():
        is_fast = name in ("tensorstash", "by hand")
        ids = order if is_fast else order[: max(BATCH, len(order) // 20 // BATCH * BATCH)]
        turns[name] = partial(seconds_of_batch, batches, ids)
    found = rounds_of(turns, 1 if quick else 5)
    found.show(f"a batch of {BATCH:,} points; tensorstash makes {BATCH / found.median('tensorstash'):,.0f} windows/s")
    record.save("bench_events", [found.row(section="Events", case=f"{BATCH:,} points")], quick=quick)
    finding(windows, order)
    many(stash, points, 10_000_000 // part)


def made(events: int, customers: int, points: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Events in the order of customer and time, several of them at one time, and points with a label."""
    rng = np.random.default_rng(0)
    table = pl.DataFrame(
        {
            "customer": rng.integers(0, customers, events),
            "t": rng.integers(0, DAYS * DAY, events) * 1000,
            "amount": rng.gamma(2.0, 20.0, events).astype(np.float32),
            "shop": rng.integers(1, 5000, events).astype(np.int32),
        }
    )
    wanted = pl.DataFrame(
        {
            "customer": rng.choice(table["customer"].unique().to_numpy(), points),
            "t": rng.integers(SPAN * DAY, DAYS * DAY, points) * 1000,
            "churn": rng.random(points) < 0.1,
        }
    )
    as_time = pl.col("t").cast(pl.Datetime("ms"))
    return table.with_columns(as_time).sort("customer", "t", maintain_order=True), wanted.with_columns(as_time)


class ByHand:
    """The best that a few lines of torch do."""

    def __init__(self, events: pl.DataFrame, points: pl.DataFrame) -> None:
        self.scale = 2 * DAYS * DAY * 1000
        self.keys = keys(events, self.scale)
        self.amount, self.shop = (torch.tensor(events[name].to_numpy()) for name in ("amount", "shop"))
        self.points = keys(points, self.scale)
        self.first = self.points - torch.tensor(points["t"].cast(pl.Int64).to_numpy())
        self.churn = torch.tensor(points["churn"].to_numpy())
        self.back = torch.arange(-MOST, 0)

    def batches(self, order: list[int]) -> Iterator[Batch]:
        ids = torch.tensor(order)
        for at in range(0, len(ids), BATCH):
            of_batch = ids[at : at + BATCH]
            ends = self.points[of_batch]
            begins = torch.maximum(ends - SPAN * DAY * 1000, self.first[of_batch])
            low, high = torch.searchsorted(self.keys, torch.stack([begins, ends]))
            index = high[:, None] + self.back
            mask = index >= low[:, None]
            flat = index.clamp_(min=0).reshape(-1)
            shape = index.shape
            yield {
                "amount": self.amount.index_select(0, flat).view(shape).masked_fill_(~mask, float("nan")),
                "shop": self.shop.index_select(0, flat).view(shape).masked_fill_(~mask, 0),
                "mask": mask,
                "churn": self.churn[of_batch],
            }


def keys(frame: pl.DataFrame, scale: int) -> torch.Tensor:
    """Customer and time in one ascending integer."""
    return torch.tensor((frame["customer"] * scale + frame["t"].cast(pl.Int64)).to_numpy())


class Samples(Dataset[tuple[np.ndarray, np.ndarray, bool]]):
    """One point at a time: slices of the arrays of its customer."""

    def __init__(self, events: pl.DataFrame, points: pl.DataFrame) -> None:
        customer = events["customer"].to_numpy()
        names = np.unique(customer)
        bounds = np.append(np.searchsorted(customer, names), len(customer)).tolist()
        self.rows = {name: (bounds[k], bounds[k + 1]) for k, name in enumerate(names.tolist())}
        self.t, self.amount, self.shop = (
            events[name].to_physical().to_numpy().copy() for name in ("t", "amount", "shop")
        )
        self.points = [
            *zip(points["customer"].to_list(), points["t"].to_physical().to_list(), points["churn"].to_list())
        ]

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, k: int) -> tuple[np.ndarray, np.ndarray, bool]:
        customer, t, churn = self.points[k]
        low, high = self.rows[customer]
        begin, end = np.searchsorted(self.t[low:high], (t - SPAN * DAY * 1000, t))
        rows = slice(low + max(begin, end - MOST), low + end)
        return self.amount[rows], self.shop[rows], churn


Sample = tuple[np.ndarray, np.ndarray, bool]


def padded(samples: list[Sample]) -> Batch:
    """Each sample into its row of the batch."""
    amount, shop = torch.full((len(samples), MOST), float("nan")), torch.zeros(len(samples), MOST, dtype=torch.int32)
    mask = torch.zeros(len(samples), MOST, dtype=torch.bool)
    for k, (one, two, _) in enumerate(samples):
        if len(one):
            amount[k, -len(one) :], shop[k, -len(one) :] = torch.from_numpy(one), torch.from_numpy(two)
            mask[k, -len(one) :] = True
    return {"amount": amount, "shop": shop, "mask": mask, "churn": torch.tensor([churn for *_, churn in samples])}


def to_dense(samples: list[Sample]) -> Batch:
    """All samples joined, and written at once."""
    lengths = np.array([len(one) for one, *_ in samples])
    mask = np.arange(MOST) >= MOST - lengths[:, None]
    amount, shop = np.full(mask.shape, np.nan, np.float32), np.zeros(mask.shape, np.int32)
    amount[mask], shop[mask] = (np.concatenate(values) for values in list(zip(*samples))[:2])
    entries = {"amount": amount, "shop": shop, "mask": mask, "churn": np.array([churn for *_, churn in samples])}
    return {name: torch.from_numpy(values) for name, values in entries.items()}


def check(ways: dict[str, Callable[[list[int]], Iterator[Batch]]], ids: list[int]) -> None:
    """All ways make the same tensors."""
    for of_step in zip(*(batches(ids) for batches in ways.values())):
        ours = of_step[0]
        for theirs in of_step[1:]:
            for name in ("amount", "shop"):
                torch.testing.assert_close(theirs[name], ours[name], rtol=0, atol=0, equal_nan=True)
                assert theirs["mask"].equal(ours[f"{name}.observed"])
            assert theirs["churn"].equal(ours["churn"])


def seconds_of(batches: Iterator[Batch]) -> float:
    began = time.perf_counter()
    for batch in batches:  # held while the next is made, as in a training loop
        held = batch
    del held
    return time.perf_counter() - began


def seconds_of_batch(batches: Callable[[list[int]], Iterator[Batch]], ids: list[int]) -> float:
    return seconds_of(batches(ids)) * BATCH / len(ids)


def finding(windows: ts.Windows, order: list[int]) -> None:
    """The share of the loop in which the rows of windows are found."""
    ids = np.array(order).reshape(-1, BATCH)
    whole = seconds_of(iter(ts.Loader(windows, BATCH, order=order)))
    began = time.perf_counter()
    for of_batch in ids:
        windows.contents.chain.locate(of_batch)
    alone = time.perf_counter() - began
    print(f"finding the rows: {alone / whole:.0%} of the loop, {alone / len(ids) * 1e3:.2f} ms a batch")


def many(stash: ts.Stash, points: pl.DataFrame, count: int) -> None:
    """What many points cost."""
    frame = points.drop("churn").sample(count, with_replacement=True, seed=0)
    began = time.perf_counter()
    windows = ts.Windows(stash, spans={"past": ts.During("amount", f"-{SPAN}d", "0d", max_rows=MOST)}, at=frame)
    seconds, at = time.perf_counter() - began, windows.placement.points
    assert at is not None
    nbytes = sum(array.nbytes for array in (at.slot, at.time, at.row, at.entity))
    print(f"{count:,} points: {nbytes / count:.0f} bytes each, made in {seconds:.1f} s")


if __name__ == "__main__":
    main()
