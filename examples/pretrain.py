"""Pre-training a small decoder on many data sets: drawn contexts, packed rows, masked patches, a run that is killed.

The decoder reads patches of 16 values and forecasts the next patch. Each context has a length of its own, and windows
are packed into rows of a fixed length, in which attention sees only the window of a slot. Some patches are hidden, by
`window.key`. Data sets have 1 to 5 columns, each of which is a row of its own. Two processes are killed in the middle
of the epoch; three go on from the checkpoint. The keys show that they train on exactly the windows that were left.

    python examples/pretrain.py                # half a minute
    python examples/pretrain.py --windows 120  # a smaller epoch
"""

import argparse
import os
import signal
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.spawn import ProcessExitedException, spawn
from torch.nn.parallel import DistributedDataParallel

import tensorstash as ts

PATCH, ROW = 16, 512  # values of a patch, slots of a row
BATCH_SIZE = 8
HIDDEN = 0.15  # of the input patches

Batch = dict[str, torch.Tensor]


def main() -> None:
    """Train with two processes until they are killed, then with three from the checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--windows", type=int, default=1200, help="windows of the epoch")
    count = parser.parse_args().windows
    with tempfile.TemporaryDirectory() as name:
        folder, kill_at = Path(name), count // (4 * BATCH_SIZE)
        run = spawn(train, (2, folder, count, kill_at), 2, join=False)  # type: ignore[no-untyped-call]
        for process in run.processes:
            process.join()  # run.join() would warn that it ends the other as soon as one is dead
        with suppress(ProcessExitedException):
            run.join()
        before = keys_in(folder, 2)
        print(f"2 ranks were killed after {kill_at} steps: {len(before):,} of {count:,} windows seen")
        spawn(train, (3, folder, count, None), 3)  # type: ignore[no-untyped-call]
        after = keys_in(folder, 3)
    assert len(before) + len(after) == len({*before, *after}) == count
    print(f"3 ranks resumed: {len(after):,} windows were left, none came twice and none was lost")


def keys_in(folder: Path, ranks: int) -> list[int]:
    """The keys of the windows that all ranks of a run have seen."""
    files = [folder / f"keys-{ranks}-{rank}.txt" for rank in range(ranks)]
    return [int(key) for file in files for key in file.read_text("ascii").split()]


def data_sets() -> dict[str, ts.Windows]:
    """A few made data sets, hourly to monthly in the length of their series and of their waves, of 1 to 5 columns."""
    rng, made = np.random.default_rng(0), {}
    spans = {"past": (ts.each("x"), ts.Draw(-256, -32, step=PATCH), 0)}
    sets = [(900, 24, 1), (700, 24, 3), (365, 7, 1), (300, 7, 5), (120, 12, 2), (60, 12, 1)]
    for k, (rows, period, width) in enumerate(sets):
        t, series = np.arange(rows)[:, None], np.repeat(np.arange(8), rows)
        phases, levels = rng.integers(period, size=(8, 1, width)), 3 + rng.random((8, 1, width))
        waves = np.sin(2 * np.pi * (t + phases) / period) + levels
        values = (waves + rng.normal(0, 0.05, waves.shape)).astype(np.float32).reshape(-1, width)
        stash = ts.load({"series": series, "x": values}, ["x"], entity="series")
        made[f"set {k}"] = ts.Windows(stash, spans=spans, min_history=2 * PATCH)
    return made


def whole_patches(batch: Batch) -> Batch:
    """Short series cut the drawn past anywhere: leave out its first slots, so that patches are whole."""
    seen = batch["past.observed"]
    batch["past.observed"] = seen & (seen.cumsum(1) > seen.sum(1, keepdim=True) % PATCH)
    return batch


def loader_of(count: int) -> ts.Loader:
    """Packed batches, the same windows in the same order on any number of ranks."""
    sets = data_sets()
    mix = ts.Mix(sets, weights={name: 1 + (k % 3) for k, name in enumerate(sets)}, epoch_size=count)
    transform: list[Callable[[Batch], Batch]] = [
        ts.InstanceNorm("past", kind="mean"),
        whole_patches,
        ts.PackSequences("past", length=ROW),
    ]
    return ts.Loader(mix, BATCH_SIZE, shuffle=True, seed=0, tail="pad", with_ids=True, transform=transform)


class Decoder(nn.Module):
    """A transformer over patches, in which a patch sees itself and the earlier ones of its window."""

    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.read = nn.Linear(2 * PATCH, width)
        self.place = nn.Embedding(ROW // PATCH, width)
        self.mixed = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.thought = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(2)
        )
        self.write = nn.Linear(width, PATCH)

    def forward(
        self, patches: torch.Tensor, hidden: torch.Tensor, segment: torch.Tensor, at: torch.Tensor
    ) -> torch.Tensor:
        """The forecast of the patch after each: `(rows, patches, PATCH)`."""
        shown = patches.masked_fill(hidden[..., None], 0)
        x = self.read(torch.cat([shown, hidden[..., None].expand_as(shown)], -1)) + self.place(at)
        mask = (segment[:, :, None] == segment[:, None, :]).tril()[:, None]
        for mixed, thought in zip(self.mixed, self.thought):
            query, key, value = mixed(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            seen = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
            x = x + seen.transpose(1, 2).flatten(-2)
            x = x + thought(x)
        return self.write(x)


def uniform(key: torch.Tensor, count: int) -> torch.Tensor:
    """`(batch, count)` numbers in [0, 1), drawn from int64 keys `(batch,)` by SplitMix64."""
    x = key[:, None] + torch.arange(1, count + 1) * -7046029254386353131
    for shift, factor in ((30, -4658895280553007687), (27, -7723592293110705685)):
        x = (x ^ (x >> shift & (1 << 64 - shift) - 1)) * factor
    return (x >> 40 & 0xFFFFFF) * 2.0**-24


def losses_of(model: nn.Module, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """The error of the forecast at each patch, and whether it counts, `(rows, patches)`."""
    patches = batch["past"].view(-1, ROW // PATCH, PATCH)
    segment, at = batch["past.segment"][:, ::PATCH], batch["past.position"][:, ::PATCH] // PATCH
    begins = batch["past.row"] * ROW + batch["past.start"]
    begins, order = begins.where(batch["past.length"] > 0, patches.numel()).sort()  # columns without slots lie nowhere
    slots = torch.arange(0, patches.numel(), PATCH)
    column = order[torch.searchsorted(begins, slots, right=True) - 1].view(segment.shape)  # of all windows of the batch
    window = batch["past.window"]
    hidden = uniform(batch["window.key"][window] + batch["past.variate"], ROW // PATCH)[column, at] < HIDDEN
    forecast = model(patches, hidden, segment, at)
    error = (forecast[:, :-1] - patches[:, 1:]).square().mean(-1)
    follows = (segment[:, 1:] == segment[:, :-1]) & (segment[:, 1:] > 0)
    return error, follows & batch["valid"][window[column[:, 1:]]]


def train(rank: int, ranks: int, folder: Path, count: int, kill_at: int | None) -> None:
    """One epoch, or the rest of one. At step `kill_at` the process saves a checkpoint and kills itself."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store-{ranks}", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    model, loader, checkpoint = Decoder(), loader_of(count), folder / "checkpoint.pt"
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
    seen, means = [], []
    for step, batch in enumerate(loader, 1):
        error, counted = losses_of(parallel, batch)
        tokens = counted.sum().to(error)
        dist.all_reduce(tokens)
        loss = (error * counted).sum() * ranks / tokens  # the mean over the tokens of all ranks
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        means.append(float(loss.detach()))
        seen += batch["window.key"][batch["valid"]].tolist()
        if step == kill_at:
            (folder / f"keys-{ranks}-{rank}.txt").write_text(" ".join(map(str, seen)), "ascii")
            if rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state | {"loader": loader.state_dict()}, checkpoint)
            dist.barrier()
            os.kill(os.getpid(), signal.SIGKILL)
    (folder / f"keys-{ranks}-{rank}.txt").write_text(" ".join(map(str, seen)), "ascii")
    if rank == 0:
        few = max(1, len(means) // 4)
        print(f"error of a patch: {np.mean(means[:few]):.3f}, at the end {np.mean(means[-few:]):.3f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
