"""An exact mean over several ranks: the error of a forecast, where each rank evaluates its own part of the windows.

The windows do not divide evenly among the ranks. With `tail="pad"` all ranks get equally many batches of the same size,
and `valid` marks filler, so that no rank waits for another and no window counts twice. Three processes with the gloo
backend compute the mean error of the forecast "the temperature stays as it is". It equals the mean that one process
computes over all windows. The mean of the ranks' own means, which is printed too, does not.

    python examples/masked_mean.py
    torchrun --standalone --nproc-per-node=3 examples/masked_mean.py
"""

import math
import os
import tempfile
import warnings
from collections.abc import Iterable
from pathlib import Path

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

import tensorstash as ts

SOURCE = Path(__file__).parent / "data" / "nyc_weather.parquet"
RANKS = 3
BATCH_SIZE = 256


def main() -> None:
    """Start three processes, or be one of the processes that torchrun has started."""
    if "RANK" in os.environ:
        take_part("env://", int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
        return
    with tempfile.TemporaryDirectory() as folder:
        spawn(start, (f"file://{folder}/store",), RANKS)  # type: ignore[no-untyped-call]


def start(rank: int, meeting_point: str) -> None:
    """Run one of the three processes."""
    take_part(meeting_point, rank, RANKS)


def take_part(meeting_point: str, rank: int, ranks: int) -> None:
    """Compute the mean as one of several ranks; rank 0 compares it with the mean of one process."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meeting_point, rank=rank, world_size=ranks)
    windows = validation_windows()
    loader = ts.Loader(windows, BATCH_SIZE, tail="pad")  # finds its rank in the process group
    losses, valid = evaluate(loader)
    mean, _ = mean_over_ranks(losses, valid)
    shares = torch.zeros(ranks, 2, dtype=torch.float64)
    shares[rank] = torch.stack([losses.mean(), valid.sum()])  # the mean of this rank alone, with its filler
    dist.all_reduce(shares)
    if rank == 0:
        for k, count in enumerate(shares[:, 1].long().tolist()):
            print(f"rank {k}: {len(loader)} batches of {BATCH_SIZE}, {count:,} windows")
        alone, _ = evaluate(ts.Loader(windows, BATCH_SIZE, num_replicas=1, rank=0))
        assert math.isclose(mean, alone.mean(), rel_tol=1e-12)  # sums in another order, in float64
        print(f"{mean:.10f}  the mean over the windows of {ranks} ranks")
        print(f"{alone.mean():.10f}  in one process over {len(alone):,} windows: equal")
        print(f"{shares[:, 0].mean():.10f}  the mean of the ranks' means, which counts filler: not equal")
    dist.barrier()  # a rank that leaves first may abort the others
    dist.destroy_process_group()


def validation_windows() -> ts.Windows:
    """A day ahead from the last hour, at three airports, from October on."""
    stash = ts.load(SOURCE, {"y": "temp"}, entity="origin", time="time_hour")
    spans = {"last": ("y", -1, 0), "target": ("y", 0, 24)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that gaps cost windows, as quickstart.py explains
        windows = ts.Windows(stash, spans=spans, require=["last", "target"])
    return windows.split("2013-10-01")[1]


def evaluate(batches: Iterable[dict[str, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    """The error of each window, and whether it counts or is filler, both `(windows,)`."""
    losses, valid = [], []
    for batch in batches:
        losses.append((batch["target"] - batch["last"]).double().abs().mean(1))
        valid.append(batch.get("valid", torch.ones(len(batch["last"]), dtype=torch.bool)))
    return torch.cat(losses), torch.cat(valid)


def mean_over_ranks(losses: torch.Tensor, valid: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean of `(batch,)` losses over all ranks, and the loss for backward()."""
    total = losses[valid].sum()
    sums = torch.stack([total.detach(), valid.sum().to(total)])
    ranks = 1
    if dist.is_initialized():
        dist.all_reduce(sums)
        ranks = dist.get_world_size()
    return sums[0] / sums[1], total * ranks / sums[1]  # DistributedDataParallel averages gradients over ranks


if __name__ == "__main__":
    main()
