"""A Temporal Fusion Transformer of pytorch-forecasting, trained from our batches.

    python examples/coming_from_pytorch_forecasting.py

Needs `pip install pytorch-forecasting`. The model is made from a `TimeSeriesDataSet` of a few rows, which gives it the
names and sizes of its inputs; the batches come from a loader, whose last transform gives them the form `(x, y)`.
"""

import sys
import time
from collections.abc import Iterable
from typing import Any

import lightning
import numpy as np
import polars as pl
import torch
from pytorch_forecasting import TemporalFusionTransformer, TimeSeriesDataSet
from pytorch_forecasting.data import TorchNormalizer

import tensorstash as ts

Pair = tuple[dict[str, torch.Tensor], tuple[torch.Tensor, None]]

ENCODER, PREDICTION = 48, 12


def sales(days: int = 200, shops: int = 8) -> pl.DataFrame:
    """A panel: days of several shops, with a price that is known ahead."""
    random = np.random.default_rng(0)
    price = 1 + random.random((shops, days)).astype(np.float32)
    week = np.sin(2 * np.pi * np.arange(days) / 7)
    sold = (5 + np.arange(shops)[:, None] + week - 2 * price + 0.1 * random.standard_normal((shops, days))) / 10
    return pl.DataFrame(
        {
            "shop": np.repeat([f"shop {k:02d}" for k in range(shops)], days),
            "day": np.tile(np.arange(days), shops),
            "price": price.ravel(),
            "sold": sold.ravel().astype(np.float32),
        }
    )


def described(frame: pl.DataFrame) -> TimeSeriesDataSet:
    """The data set of pytorch-forecasting; its arguments are on the page that names this file."""
    return TimeSeriesDataSet(
        frame.to_pandas(),
        time_idx="day",
        target="sold",
        group_ids=["shop"],
        min_encoder_length=ENCODER,
        max_encoder_length=ENCODER,
        min_prediction_length=PREDICTION,
        max_prediction_length=PREDICTION,
        static_categoricals=["shop"],
        time_varying_known_reals=["price"],
        time_varying_unknown_reals=["sold"],
        target_normalizer=TorchNormalizer(method="identity", center=False),
        scalers={"price": None},
    )


def windows_of(frame: pl.DataFrame) -> ts.Windows:
    """The same windows; reals are one pack, in the order of `TimeSeriesDataSet.reals`."""
    shops = frame["shop"].unique().sort().to_list()
    stash = ts.load(
        frame,
        {"reals": ["price", "sold"], "sold": "sold", "day": ts.column("day", dtype=torch.int64)},
        static={"shop": ts.column("shop", vocabulary=shops)},
        entity="shop",
        time="day",
    )
    spans = {
        "encoder_cont": ("reals", -ENCODER, 0),
        "decoder_cont": ("reals", 0, PREDICTION),
        "encoder_target": ("sold", -ENCODER, 0),
        "decoder_target": ("sold", 0, PREDICTION),
        "decoder_time_idx": ("day", 0, PREDICTION),
    }
    return ts.Windows(stash, spans=spans)


def as_pair(batch: dict[str, torch.Tensor]) -> Pair:
    """A batch as the models of pytorch-forecasting take it."""
    count = len(batch["shop"])
    shop = batch.pop("shop").long()[:, None]
    return {
        **batch,
        "encoder_cat": shop[:, None].expand(-1, ENCODER, -1),
        "decoder_cat": shop[:, None].expand(-1, PREDICTION, -1),
        "encoder_lengths": torch.full((count,), ENCODER),
        "decoder_lengths": torch.full((count,), PREDICTION),
        "groups": shop,
        "target_scale": torch.tensor([0.0, 1.0]).expand(count, -1),
    }, (batch["decoder_target"], None)


def differing(frame: pl.DataFrame) -> int:
    """How many windows of the package differ from ours in any input."""
    x, _ = as_pair(windows_of(frame)[:])
    ours = {(int(x["groups"][k, 0]), int(x["decoder_time_idx"][k, 0])): k for k in range(len(x["groups"]))}
    seen = wrong = 0
    for theirs, (target, _) in described(frame).to_dataloader(train=False, batch_size=1024):
        keys = zip(theirs["groups"][:, 0].tolist(), theirs["decoder_time_idx"][:, 0].tolist(), strict=True)
        ids = [ours[key] for key in keys]
        names = [name for name in theirs if theirs[name].ndim > 1]
        same = torch.stack([(x[name][ids] == theirs[name]).flatten(1).all(1) for name in names])
        wrong += int((~same.all(0) | (x["decoder_target"][ids] != target).any(1)).sum())
        seen += len(ids)
    return wrong + abs(seen - len(ours))


def main() -> None:
    """Compare every window, train for one epoch, and time both loaders."""
    torch.manual_seed(0)
    frame = sales()
    windows = windows_of(frame)
    sys.stdout.write(f"{len(windows):,} windows, {differing(frame)} differ\n")
    loader = ts.Loader(windows, batch_size=256, shuffle=True, seed=0, transform=[as_pair])
    # one window per shop, so that the model knows each of them
    few = frame.filter(pl.col("day") < ENCODER + PREDICTION)
    model = TemporalFusionTransformer.from_dataset(described(few), hidden_size=8, log_interval=-1)
    trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False)
    trainer.fit(model, loader)
    sys.stdout.write(f"loss {float(trainer.callback_metrics['train_loss_epoch']):.3f}\n")
    loaders: dict[str, Iterable[Any]] = {  # of pairs, as `as_pair` makes them
        "pytorch-forecasting": described(frame).to_dataloader(train=True, batch_size=256),
        "tensorstash": loader,
    }
    for name, one in loaders.items():
        began = time.perf_counter()
        count = sum(len(x["groups"]) for x, _ in one)
        sys.stdout.write(f"{name}: {count / (time.perf_counter() - began):,.0f} windows/s\n")


if __name__ == "__main__":
    main()
