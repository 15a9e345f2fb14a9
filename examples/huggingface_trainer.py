"""The `Trainer` of Hugging Face over a `ts.Loader`, left in the middle of an epoch and resumed at the next window.

    python examples/huggingface_trainer.py

Needs `pip install 'transformers[torch]'`. `Trainer` would wrap a data set in a `DataLoader` of its own, and on
resume skip the batches that were seen. Here it takes the loader as it is, a callback puts the loader's state into every
checkpoint, and `ignore_data_skip=True` leaves the position to the loader.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

import tensorstash as ts

DATA = os.path.join(os.path.dirname(__file__), "data", "nyc_weather.parquet")
STATE = "loader.json"


class LoaderTrainer(Trainer):  # type: ignore[misc, unused-ignore]  # transformers has no types where it is not installed
    """A trainer whose training batches come from a loader."""

    def __init__(self, *, loader: ts.Loader, **given: Any) -> None:
        super().__init__(callbacks=[SaveLoader(loader)], **given)
        self.loader = loader

    def get_train_dataloader(self) -> ts.Loader:  # type: ignore[override, unused-ignore]
        """What `train` iterates over, an epoch at a time."""
        return self.loader

    def train(  # type: ignore[override, unused-ignore]  # a path is all that is taken here
        self, resume_from_checkpoint: str | None = None
    ) -> Any:
        """Train, from a checkpoint if its path is given."""
        if resume_from_checkpoint is not None:
            self.loader.load_state_dict(json.loads(Path(resume_from_checkpoint, STATE).read_text()))
        return super().train(resume_from_checkpoint=resume_from_checkpoint)


class SaveLoader(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Puts the state of the loader into every checkpoint."""

    def __init__(self, loader: ts.Loader) -> None:
        self.loader = loader

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_given: Any
    ) -> TrainerControl:
        """Called behind each checkpoint; the state is the same on every rank."""
        if state.is_world_process_zero:
            path = Path(f"{args.output_dir}/checkpoint-{state.global_step}", STATE)
            path.write_text(json.dumps(self.loader.state_dict()))
        return control


class Linear(torch.nn.Module):
    """The next hours as a linear function of the past ones. It notes the windows that it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(48, 6)
        self.seen: list[int] = []

    def forward(self, past: torch.Tensor, labels: torch.Tensor, window: torch.Tensor, **_: Any) -> dict[str, Any]:
        """`past` `(batch, 48)` and `labels` `(batch, 6)` are spans; `window` holds the ids."""
        self.seen += window.tolist()
        predicted = self.layer(past)
        return {"loss": (predicted - labels).abs().mean(), "logits": predicted}


def train(directory: str, resume: str | None = None, stop: int = -1) -> tuple[list[int], int]:
    """Train for two epochs, or until step `stop`, and return the windows that were seen and how many there are."""
    stash = ts.load(DATA, {"y": "temp"}, entity="origin", time="time_hour", dtype=torch.float32)
    windows = ts.Windows(stash, spans={"past": ("y", -48, 0), "labels": ("y", 0, 6)}, require=["y"])
    scaled = ts.Scaler.fit(windows, ["y"]).transform(windows)
    loader = ts.Loader(scaled, batch_size=1024, shuffle=True, seed=0, with_ids=True)
    model = Linear()
    arguments = TrainingArguments(
        directory,
        num_train_epochs=2,
        max_steps=stop,
        save_steps=10,
        ignore_data_skip=True,  # the loader knows its position
        remove_unused_columns=False,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    LoaderTrainer(model=model, args=arguments, loader=loader).train(resume)
    return model.seen, len(windows)


def main() -> None:
    """Leave a run after 30 steps, resume it in another trainer, and count the windows of the whole."""
    with tempfile.TemporaryDirectory() as directory:
        first, count = train(directory, stop=30)
        second, _ = train(directory, resume=f"{directory}/checkpoint-30")
    epochs = [(first + second)[:count], (first + second)[count:]]
    same = all(sorted(epoch) == [*range(count)] for epoch in epochs)
    sys.stdout.write(f"{count} windows; each seen once in each of {len(epochs)} epochs: {same}\n")


if __name__ == "__main__":
    main()
