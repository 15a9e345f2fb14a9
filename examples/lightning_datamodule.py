"""A Lightning `DataModule` over one stash: fit, validate, test and predict, and a resume in the middle of an epoch.

    python examples/lightning_datamodule.py

Needs `pip install lightning`. The `DataModule` puts the state of its loader into every checkpoint and takes it back, so
a resumed run goes on at the next window. Every rank loads the same shared copy, and the loaders divide the windows.
"""

import os
import sys
import tempfile
from typing import Any

import lightning
import polars as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

import tensorstash as ts

DATA = os.path.join(os.path.dirname(__file__), "data", "nyc_weather.parquet")
HISTORY, HORIZON = 48, 6


class Weather(lightning.LightningDataModule):  # type: ignore[misc, unused-ignore]  # lightning has no types where it is not installed
    """Temperatures before October for training, October for validation, the rest for the test; then the forecast."""

    def __init__(self, batch_size: int = 1024, *, share: str | None = None) -> None:
        super().__init__()
        self.batch_size = batch_size
        self.share = share

    def setup(self, stage: str) -> None:
        """Called on every rank: all attach one copy where `share` is given."""
        if hasattr(self, "stash"):
            return
        self.stash = ts.load(
            DATA, {"y": "temp"}, entity="origin", time="time_hour", dtype=torch.float32, share=self.share
        )
        spans = {"past": ("y", -HISTORY, 0), "target": ("y", 0, HORIZON)}
        windows = ts.Windows(self.stash, spans=spans, require=["past", "target"])
        self.train, self.valid, self.test = windows.split("2013-10-01", "2013-11-01")
        self.scaler = ts.Scaler.fit(self.train, ["y"])
        # the newest window of each station; what it has of the future is empty
        self.latest = ts.Windows(self.stash, spans=spans).latest()
        self.loader = self._loader(self.train, shuffle=True)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds of the data: the position of the loader."""
        return self.loader.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue there. It comes before a schedule asks for the steps of the run, which would be too early."""
        self.loader.load_state_dict(state_dict)

    def train_dataloader(self) -> ts.Loader:
        """Shuffled; Lightning calls `set_epoch`."""
        return self.loader

    def val_dataloader(self) -> ts.Loader:
        """In order."""
        return self._loader(self.valid)

    def test_dataloader(self) -> ts.Loader:
        """In order."""
        return self._loader(self.test)

    def predict_dataloader(self) -> ts.Loader:
        """One window per station."""
        return self._loader(self.latest)

    def _loader(self, windows: ts.Windows, *, shuffle: bool = False) -> ts.Loader:
        return ts.Loader(
            windows, self.batch_size, shuffle=shuffle, seed=0, transform=[self.scaler], with_ids=True, with_valid=True
        )


class Linear(lightning.LightningModule):  # type: ignore[misc, unused-ignore]
    """The next hours as a linear function of the past ones."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(HISTORY, HORIZON)
        self.seen: list[int] = []  # the windows of the training steps

    def training_step(self, batch: dict[str, torch.Tensor], _index: int) -> torch.Tensor:
        """The mean absolute error. `valid` is false for windows that only fill the last step of a rank."""
        self.seen += batch["window"][batch["valid"]].tolist()
        return self._error(batch)

    def validation_step(self, batch: dict[str, torch.Tensor], _index: int) -> None:
        """Weighted by the windows that count, so that the mean over batches is that over windows."""
        self.log("valid", self._error(batch), batch_size=int(batch["valid"].sum()))

    def test_step(self, batch: dict[str, torch.Tensor], _index: int) -> None:
        """As in validation."""
        self.log("test", self._error(batch), batch_size=int(batch["valid"].sum()))

    def predict_step(self, batch: dict[str, torch.Tensor], _index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Window ids, and predictions in the units of the data."""
        scaler = self.trainer.datamodule.scaler  # type: ignore[attr-defined, unused-ignore]  # untyped in lightning
        return batch["window"], scaler.inverse(self.layer(batch["past"]), "y")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=0.01)

    def _error(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        error = (self.layer(batch["past"]) - batch["target"]).abs().mean(1)
        return error[batch["valid"]].mean()


def trainer(directory: str, **given: Any) -> lightning.Trainer:
    """A quiet trainer that keeps the checkpoint of every tenth step."""
    return lightning.Trainer(
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[ModelCheckpoint(directory, "{step}", every_n_train_steps=10, save_top_k=-1)],
        **given,
    )


def main() -> None:
    """Leave a run after ten steps of its first epoch, resume it, test it and forecast."""
    with tempfile.TemporaryDirectory() as directory:
        first, second, data = Linear(), Linear(), Weather()
        trainer(directory, max_steps=10).fit(first, data)
        runs = trainer(directory, max_epochs=2)
        runs.fit(second, Weather(), ckpt_path=f"{directory}/step=10.ckpt", weights_only=False)
        windows = len(data.train)
        seen = first.seen + second.seen
        epochs = [sorted(seen[:windows]), sorted(seen[windows:])]
        exact = all(epoch == [*range(windows)] for epoch in epochs)
        (found,) = runs.test(second, verbose=False, datamodule=data)
        predicted = runs.predict(second, datamodule=data) or []
    frame = pl.concat(data.latest.to_frame(ids, values) for ids, values in predicted)
    sys.stdout.write(f"{windows} windows; each seen once in each of 2 epochs: {exact}\n")
    sys.stdout.write(f"error of the test, in standard deviations: {found['test']:.2f}\n{frame.head(3)}\n")


if __name__ == "__main__":
    main()
