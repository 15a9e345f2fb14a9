"""Who will stop buying, and what is bought next: a GRU over the last 90 days of each customer, from made purchases.

20,000 customers buy at irregular times, each at a pace and with tastes of their own; some lose interest. On the first
of each month a model reads the purchases of the last 90 days, at most 64, with the time since each, and the logins of
the last week. It says whether no purchase follows within 60 days, and of which kind the next one is. Months before
September train it, those from November on compare it with the time since the last purchase alone.

    python examples/events.py                    # about two minutes
    python examples/events.py --customers 2000
"""

import argparse
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import nn

import tensorstash as ts

KINDS = ["books", "food", "garden", "music", "shoes", "tools"]
AHEAD, MOST, EPOCHS = 60, 64, 3  # days of a label, purchases of a window
START, DAYS = np.datetime64("2024-01-01", "ms"), 420
DAY = 86_400_000  # milliseconds


def main() -> None:
    """Make the data, train, and compare."""
    parser = argparse.ArgumentParser(description="events at irregular times")
    parser.add_argument("--customers", type=int, default=20_000)
    customers = parser.parse_args().customers
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.parquet"
        made(customers).write_parquet(path)
        columns: dict[str, Any] = {"amount": pl.col("amount").log1p(), "kind": "kind"}
        stash = ts.load(
            path, columns, entity="customer", time="t", duplicates="keep", dtype=torch.float32, progress=False
        )
        points = labelled(pl.read_parquet(path), stash.vocabulary("kind"))
    spans = {
        "amount": ts.During("amount", "-90d", "0d", max_rows=MOST, min_rows=1, age=True),
        "kind": ts.During("kind", "-90d", "0d", max_rows=MOST),
        "week": ts.During("amount", "-7d", "0d", max_rows=16),
    }
    windows = ts.Windows(stash, spans=spans, at=points, unmatched="drop")  # without customers who are gone already
    print(f"{stash.rows:,} purchases, {len(windows):,} of {len(points):,} points have some in the 90 days before")
    # a label looks 60 days ahead, so the months between the two cuts belong to neither part
    train, _, test = windows.split("2024-09-01", "2024-11-01")
    train, test = map(ts.Scaler.fit(train, ["amount"]).transform, (train, test))
    compare(fit(train), test)


def made(customers: int) -> pl.DataFrame:
    """Purchases of customers, who buy at a pace of their own until they lose interest, if they do."""
    rng = np.random.default_rng(0)
    pace = rng.gamma(2.0, 6.0, customers) + 2  # days between purchases
    gone = np.where(rng.random(customers) < 0.5, rng.uniform(60, DAYS, customers), DAYS)
    counts = rng.poisson(DAYS / pace)
    who = np.repeat(np.arange(customers), counts)
    day = rng.uniform(0, DAYS, len(who))
    interest = np.clip((gone[who] - day) / 40, 0, 1)  # which fades over 40 days
    kept = rng.random(len(who)) < interest
    who, day = who[kept], day[kept]
    taste, hour = (who * 7) % len(KINDS), np.floor(day * 24) / 24  # several purchases of an hour have one time
    other = rng.random(len(who)) < 0.3
    kind = np.where(other, rng.integers(0, len(KINDS), len(who)), taste)
    return pl.DataFrame(
        {
            "customer": who,
            "t": START + (hour * DAY).astype("timedelta64[ms]"),
            "amount": rng.gamma(2.0, 10.0, len(who)) * (1 + interest[kept]),
            "kind": np.array(KINDS)[kind],
        }
    ).sample(fraction=1.0, shuffle=True, seed=0)


def labelled(events: pl.DataFrame, kinds: list[str]) -> pl.DataFrame:
    """The first of each month for each customer, whether none of the next 60 days has a purchase, and the next kind."""
    months = pl.datetime_range(pl.datetime(2024, 4, 1), pl.datetime(2024, 12, 1), "1mo", time_unit="ms", eager=True)
    points = events.select(pl.col("customer").unique().sort()).join(pl.DataFrame({"t": months}), how="cross")
    following = events.sort("t").with_columns(next="t")
    joined = points.sort("t").join_asof(
        following, on="t", by="customer", strategy="forward", tolerance=f"{AHEAD}d", check_sortedness=False
    )
    code = pl.col("kind").replace_strict(kinds, range(len(kinds)), default=-1, return_dtype=pl.Int64)
    return joined.sort("t", "customer").select("customer", "t", gone=pl.col("next").is_null(), next_kind=code)


class Reader(nn.Module):
    """A GRU over purchases, whose padding is in front, so that its last state is that of the newest purchase."""

    def __init__(self, kinds: int, width: int = 48) -> None:
        super().__init__()
        self.kinds = nn.Embedding(kinds + 1, 16)  # 0: no purchase, whose code is -1
        self.gru = nn.GRU(16 + 3, width, batch_first=True)
        self.gone, self.next_kind = nn.Linear(width + 1, 1), nn.Linear(width + 1, kinds)

    def forward(self, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """The logits of no further purchase, `(batch,)`, and of the next kind, `(batch, kinds)`."""
        observed = batch["amount.observed"].float()
        days = batch["amount.age"].float() / DAY
        step = (days - days.roll(-1, 1)).clamp(min=0)  # until the following purchase
        step[:, -1] = days[:, -1]
        numbers = torch.stack([batch["amount"].nan_to_num(0), days.log1p() / 3, step.log1p() / 3], 2)
        inputs = torch.cat([self.kinds(batch["kind"] + 1), numbers * observed[..., None]], 2)
        _, state = self.gru(inputs)
        week = batch["week.observed"].sum(1, keepdim=True) / 4
        state = torch.cat([state[0], week], 1)
        return self.gone(state)[:, 0], self.next_kind(state)


def fit(train: ts.Windows) -> Reader:
    """A model of the training part."""
    model = Reader(len(train.stash.vocabulary("kind")))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    loader = ts.Loader(train, 256, shuffle=True, seed=0)
    for epoch in range(EPOCHS):
        total = 0.0
        for batch in loader:
            gone, next_kind = model(batch)
            loss = nn.functional.binary_cross_entropy_with_logits(gone, batch["gone"].float())
            loss += nn.functional.cross_entropy(next_kind, batch["next_kind"], ignore_index=-1)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    return model


def compare(model: Reader, test: ts.Windows) -> None:
    """How well customers who are gone are told from others, and next kinds from one another."""
    gone, scores, ages, hits = [], [], [], []
    with torch.no_grad():
        for batch in ts.Loader(test, 1024):
            logits, next_kind = model(batch)
            scores.append(logits)
            gone.append(batch["gone"])
            ages.append(batch["amount.age"][:, -1].double())
            stays = batch["next_kind"] >= 0
            hits.append((next_kind.argmax(1) == batch["next_kind"])[stays].double())
    truth = torch.cat(gone)
    print(f"{len(test):,} windows of the test part, {truth.double().mean():.0%} without a purchase in {AHEAD} days")
    print(f"area under the curve: GRU {area(torch.cat(scores), truth):.3f}, ", end="")
    print(f"time since the last purchase {area(torch.cat(ages), truth):.3f}")
    print(f"next kind: {torch.cat(hits).mean():.0%} right, {1 / len(KINDS):.0%} by chance")
    frame = test.to_frame(range(len(test)), torch.cat(scores).sigmoid(), names=["gone"])
    print(frame.sort("gone", descending=True).head(3))


def area(scores: torch.Tensor, truth: torch.Tensor) -> float:
    """The share of pairs, of one that is gone and one that is not, that scores bring into the right order."""
    ranks = scores.argsort().argsort().double() + 1
    positive = int(truth.sum())
    if positive in (0, len(truth)):
        return math.nan
    return float((ranks[truth].sum() - positive * (positive + 1) / 2) / (positive * (len(truth) - positive)))


if __name__ == "__main__":
    main()
