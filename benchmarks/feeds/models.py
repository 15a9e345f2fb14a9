"""Four small models: `past`, `known` and `static` of a batch to `(batch, horizon, targets)`."""

import torch
from torch import nn
from torch.nn import functional

from feeds.task import CODES, KNOWN, Batch, Task

WIDTH = 32


class DLinear(nn.Module):
    """A moving average and the rest, a linear map for each (Zeng et al., 2023)."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.targets = task.targets
        self.trend, self.rest = nn.Linear(task.history, task.horizon), nn.Linear(task.history, task.horizon)

    def forward(self, batch: Batch) -> torch.Tensor:
        past = batch["past"][..., : self.targets].transpose(1, 2)
        trend = functional.avg_pool1d(functional.pad(past, (12, 12), mode="replicate"), 25, stride=1)
        return (self.trend(trend) + self.rest(past - trend)).transpose(1, 2)


class LSTM(nn.Module):
    """One layer over the past, and a linear map of its last state."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.shape = (task.horizon, task.targets)
        self.lstm = nn.LSTM(len(task.columns), WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, task.horizon * task.targets)

    def forward(self, batch: Batch) -> torch.Tensor:
        _, (state, _) = self.lstm(batch["past"])
        return self.head(state[-1]).view(-1, *self.shape)


class PatchTST(nn.Module):
    """Patches of 16 steps of each target are the tokens of a transformer of two layers (Nie et al., 2023)."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        patches = (task.history - 16) // 8 + 1
        self.targets, self.horizon = task.targets, task.horizon
        self.embed, self.at = nn.Linear(16, WIDTH), nn.Parameter(torch.zeros(patches, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(patches * WIDTH, task.horizon)

    def forward(self, batch: Batch) -> torch.Tensor:
        past = batch["past"][..., : self.targets].transpose(1, 2).flatten(0, 1)
        tokens = self.layers(self.embed(past.unfold(1, 16, 8)) + self.at)
        return self.head(tokens.flatten(1)).view(-1, self.targets, self.horizon).transpose(1, 2)


class Gated(nn.Module):
    """A small network whose output is gated and added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.norm = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + functional.glu(self.two(functional.elu(self.one(x)))))


class TFT(nn.Module):
    """Like a Temporal Fusion Transformer (Lim et al., 2021): selected inputs, LSTMs over past and future, attention."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        inputs = len(task.columns) + len(KNOWN)
        self.history, self.targets = task.history, task.targets
        self.static = nn.ModuleList(nn.Embedding(CODES, WIDTH) for _ in task.static)
        self.weigh_past, self.weigh_future = nn.Linear(inputs, inputs), nn.Linear(len(KNOWN), len(KNOWN))
        self.past, self.future = nn.Linear(inputs, WIDTH), nn.Linear(len(KNOWN), WIDTH)
        self.encoder = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.decoder = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.enrich, self.after = Gated(), Gated()
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.head = nn.Linear(WIDTH, task.targets)

    def forward(self, batch: Batch) -> torch.Tensor:
        known, future = batch["known"][:, : self.history], batch["known"][:, self.history :]
        past = torch.cat([batch["past"], known], 2)
        past = self.past(past * self.weigh_past(past).softmax(-1))
        future = self.future(future * self.weigh_future(future).softmax(-1))
        encoded, state = self.encoder(past)
        decoded, _ = self.decoder(future, state)
        steps = torch.cat([encoded, decoded], 1)
        for k, embed in enumerate(self.static):
            steps = steps + embed(batch["static"][:, k])[:, None]
        steps = self.enrich(steps)
        asked = steps[:, self.history :]
        seen, _ = self.attention(asked, steps, steps, need_weights=False)
        return self.head(self.after(asked + seen))


MODELS: dict[str, type[nn.Module]] = {"DLinear": DLinear, "LSTM": LSTM, "PatchTST": PatchTST, "TFT": TFT}
