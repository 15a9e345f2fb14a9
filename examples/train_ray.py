"""Train one model on a Ray cluster: the workers of each node hold one copy of the data, and may come and go.

Every worker makes the same calls as in train_ddp.py. Ray Train starts the workers, keeps the checkpoints, and when a
worker or a node dies it starts them anew, as many as there is room for. They attach the copies that their nodes still
have, which takes milliseconds, and go on where the last checkpoint was, in the middle of the epoch.

    python examples/train_ray.py                          # on this machine; RAY_ADDRESS names a cluster
    python examples/train_ray.py --workers 2 --kill-at 50 # a worker is killed there, and training goes on
    tensorstash rm nyc-weather                            # on every node

Ray keeps 30 % of the memory for its object store. Training takes nothing from it: give it less, as in
`ray start --object-store-memory=1000000000`, where the data need the room.
"""

import argparse
import os
import signal
import tempfile
import warnings
from pathlib import Path
from typing import Any

import ray
import torch
import torch.distributed as dist
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, get_device, prepare_model

import tensorstash as ts

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "data" / "nyc_weather.parquet"  # in a cluster: a path or URL that all nodes can read
HISTORY, HORIZON = 96, 24  # hours


def main() -> None:
    """Hand the training to Ray."""
    options = parse_options()
    scaling = ScalingConfig(num_workers=(options.least, options.workers), use_gpu=torch.cuda.is_available())
    # in a cluster, storage_path is a place that all nodes can write to
    run = RunConfig(name="weather", storage_path=str(options.out), failure_config=FailureConfig(max_failures=3))
    result = TorchTrainer(train, train_loop_config=vars(options), scaling_config=scaling, run_config=run).fit()
    print(f"{result.metrics['story']}; the last error was {result.metrics['error']:.2f} degrees")


def train(options: dict[str, Any]) -> None:
    """Train, from the last checkpoint if there is one; every worker runs this."""
    columns = {"x": ["temp", "dewp", "humid"], "y": "temp"}
    stash = ts.load(SOURCE, columns, entity="origin", time="time_hour", share="nyc-weather")
    spans = {"past": ("x", -HISTORY, 0), "target": ("y", 0, HORIZON)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that gaps cost windows, as quickstart.py explains
        windows = ts.Windows(stash, spans=spans, require=["past", "target"]).split("2013-10-01")[0]
    device, rank, ranks = get_device(), dist.get_rank(), dist.get_world_size()
    loader = ts.Loader(windows, options["batch_size"], shuffle=True, device=device, tail="pad", with_ids=True)

    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(HISTORY * 3, 64), torch.nn.GELU())
    model = prepare_model(network.append(torch.nn.Linear(64, HORIZON)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    seen = torch.zeros(len(windows), dtype=torch.int32)  # how often this rank has trained on each window
    story = resume(model, optimizer, loader, seen)
    story = f"{story}{', then ' if story else ''}{ranks} workers"

    for epoch in range(loader.state_dict()["epoch"], options["epochs"]):
        loader.set_epoch(epoch)
        for step, batch in enumerate(loader, 1):
            losses = (model(batch["past"]) - batch["target"]).abs().mean(1)
            total = losses[batch["valid"]].sum()
            sums = torch.stack([total.detach(), batch["valid"].sum().to(total)])
            dist.all_reduce(sums)
            optimizer.zero_grad()
            (total * ranks / sums[1]).backward()  # gradients are averaged over ranks
            optimizer.step()
            ids = batch["window"][batch["valid"]].cpu()
            seen.index_add_(0, ids, torch.ones(len(ids), dtype=seen.dtype))
            if step == options["kill_at"] and rank == ranks - 1 and not options["killed"].exists():
                options["killed"].touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if step % options["every"] == 0:
                report(model, optimizer, loader, seen, story=story, error=float(sums[0] / sums[1]))
        times = report(model, optimizer, loader, seen, story=story, error=float(sums[0] / sums[1]), epochs=epoch + 1)
        if rank == 0:
            once = "every window once" if (times == epoch + 1).all() else "NOT every window once"
            print(f"epoch {epoch}: {once}, {len(windows):,} of them", flush=True)


def report(
    model: Any, optimizer: Any, loader: ts.Loader, seen: torch.Tensor, *, story: str, error: float, epochs: int = 0
) -> torch.Tensor:
    """Hand Ray a checkpoint, which rank 0 writes; returns how often each window was seen."""
    total = seen.to(loader.device, copy=True)
    dist.all_reduce(total)
    metrics = {"story": story, "error": error}
    if epochs:
        metrics["story"] = f"{story}: {'every' if (total == epochs).all() else 'NOT every'} window once per epoch"
    with tempfile.TemporaryDirectory() as directory:
        checkpoint = None
        if dist.get_rank() == 0:
            plain = model.module if hasattr(model, "module") else model
            parts = {"model": plain.state_dict(), "optimizer": optimizer.state_dict(), "loader": loader.state_dict()}
            torch.save({**parts, "seen": total, "story": story}, f"{directory}/state.pt")
            checkpoint = Checkpoint.from_directory(directory)
        ray.train.report(metrics, checkpoint=checkpoint)
    return total


def resume(model: Any, optimizer: Any, loader: ts.Loader, seen: torch.Tensor) -> str:
    """Go on from the last checkpoint, on any number of ranks; returns which numbers there were before."""
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        return ""
    with checkpoint.as_directory() as directory:
        found = torch.load(f"{directory}/state.pt", map_location=loader.device, weights_only=True)
    (model.module if hasattr(model, "module") else model).load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    loader.load_state_dict(found["loader"])
    if dist.get_rank() == 0:
        seen += found["seen"].cpu()
    return f"{found['story']} for {found['loader']['consumed']:,} windows of epoch {found['loader']['epoch']}"


def parse_options() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2, help="the most workers, on all nodes")
    parser.add_argument("--least", type=int, default=1, help="fewer workers wait for others")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=32, help="windows per worker and step")
    parser.add_argument("--every", type=int, default=20, help="steps between two checkpoints")
    parser.add_argument("--kill-at", type=int, help="the step at which the last worker is killed, once")
    parser.add_argument("--out", type=Path, default=HERE / "out", help="where the checkpoints are")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    options.out = options.out.resolve()
    options.killed = options.out / "killed"  # there once a worker has been
    options.killed.unlink(missing_ok=True)
    return options


if __name__ == "__main__":
    main()
