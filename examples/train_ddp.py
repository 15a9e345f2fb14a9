"""Train one model in several processes that hold one copy of the data: DistributedDataParallel under torchrun.

Every rank makes the same calls. The first rank to load puts the columns into shared memory, the others attach them,
and each rank gets its own part of every step. The segment stays there, so that the next job can attach it too: kill
this job whenever you like, and start it again with any number of ranks. It goes on from its last checkpoint.

    torchrun --standalone --nproc-per-node=4 examples/train_ddp.py --kill-at 50    # the last rank ends there
    torchrun --standalone --nproc-per-node=3 examples/train_ddp.py
    tensorstash rm nyc-weather

To see how much memory a larger load takes, and where: --rows 20000000.
"""

import argparse
import os
import signal
import time
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn  # imported after the group, it would keep it: PyTorch's threads might then abort the exit
from torch.nn.parallel import DistributedDataParallel

import tensorstash as ts

HERE = Path(__file__).parent
SOURCE = HERE / "data" / "nyc_weather.parquet"
COLUMNS = {"x": ["temp", "dewp", "humid"], "y": "temp"}
HISTORY, HORIZON = 96, 24  # hours


def main() -> None:
    """Join the other ranks, train, and leave them; every rank runs this."""
    options = parse_options()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(minutes=5))
    if dist.get_rank() == 0 and not options.source.exists():
        write_copies(options.source, options.rows)
    dist.barrier()
    train(options, device)
    dist.barrier()  # a rank that leaves first may abort the others
    dist.destroy_process_group()


def train(options: argparse.Namespace, device: torch.device) -> None:
    """Train, from the last checkpoint if there is one."""
    before = memory()
    began = time.perf_counter()
    stash = ts.load(options.source, COLUMNS, entity="origin", time="time_hour", share=options.share)
    took = time.perf_counter() - began

    windows, rank = windows_of(stash), dist.get_rank()
    loader = ts.Loader(windows, options.batch_size, shuffle=True, device=device, tail="pad", with_ids=True)
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(HISTORY * 3, 64), torch.nn.GELU())
    model = DistributedDataParallel(network.append(torch.nn.Linear(64, HORIZON)).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    seen = torch.zeros(len(windows), dtype=torch.int32)  # how often this rank has trained on each window
    resume(options.checkpoint, model, optimizer, loader, seen)

    for epoch in range(loader.state_dict()["epoch"], options.epochs):
        loader.set_epoch(epoch)
        for step, batch in enumerate(loader, 1):
            mean, loss = mean_over_ranks((model(batch["past"]) - batch["target"]).abs().mean(1), batch["valid"])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            ids = batch["window"][batch["valid"]].cpu()
            seen.index_add_(0, ids, torch.ones(len(ids), dtype=seen.dtype))
            if step == options.kill_at and rank == dist.get_world_size() - 1:
                os.kill(os.getpid(), signal.SIGKILL)
            if step % options.every == 0:
                save(options.checkpoint, model, optimizer, loader, seen)
        times = save(options.checkpoint, model, optimizer, loader, seen)
        if rank == 0:
            once = "every window once" if (times == epoch + 1).all() else "NOT every window once"
            print(f"epoch {epoch}: {once}, {len(windows):,} of them; the last error was {mean:.2f} degrees", flush=True)
    print_memory(stash, took, before)


def parse_options() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=0, help="of copies of the data, to see the memory of a larger load")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=32, help="windows per rank and step")
    parser.add_argument("--every", type=int, default=20, help="steps between two checkpoints")
    parser.add_argument("--kill-at", type=int, help="the step at which the last rank is killed")
    parser.add_argument("--out", type=Path, default=HERE / "out", help="where the checkpoint is, and the copies")
    parser.add_argument("--share", default="nyc-weather", help="the label of the shared memory")
    options = parser.parse_args()
    options.out.mkdir(exist_ok=True)
    options.checkpoint = options.out / "train_ddp.pt"
    options.source = options.out / f"{options.rows}-rows.parquet" if options.rows else SOURCE
    return options


def windows_of(stash: ts.Stash) -> ts.Windows:
    """Four days of history and one to forecast, up to October."""
    spans = {"past": ("x", -HISTORY, 0), "target": ("y", 0, HORIZON)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that gaps cost windows, as quickstart.py explains
        return ts.Windows(stash, spans=spans, require=["past", "target"]).split("2013-10-01")[0]


def mean_over_ranks(losses: torch.Tensor, valid: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """From `(batch,)` losses: the exact mean over the valid windows of all ranks, and what to call backward() on."""
    total = losses[valid].sum()
    sums = torch.stack([total.detach(), valid.sum().to(total)])
    dist.all_reduce(sums)
    return sums[0] / sums[1], total * dist.get_world_size() / sums[1]  # gradients are averaged over ranks


# Checkpoints: the steps of a killed job after its last checkpoint are repeated


def save(path: Path, model: Any, optimizer: Any, loader: ts.Loader, seen: torch.Tensor) -> torch.Tensor:
    """Write a checkpoint, which replaces the one before once it is whole; returns how often each window was seen."""
    total = seen.to(loader.device, copy=True)
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        parts = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "loader": loader.state_dict()}
        torch.save({**parts, "seen": total}, f"{path}.part")
        os.replace(f"{path}.part", path)
    return total


def resume(path: Path, model: Any, optimizer: Any, loader: ts.Loader, seen: torch.Tensor) -> None:
    """Go on from the last checkpoint, on any number of ranks."""
    if not path.exists():
        return
    found = torch.load(path, map_location=loader.device, weights_only=True)
    model.module.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    loader.load_state_dict(found["loader"])
    if dist.get_rank() == 0:
        seen += found["seen"].cpu()
        print(f"goes on after {found['loader']['consumed']:,} windows of epoch {found['loader']['epoch']}")


# Memory: the proportional set size (PSS) counts a page that n processes have mapped as 1/n of a page in each


def memory(inode: int | None = None) -> float:
    """MB of this process, or of one file in it."""
    kilobytes, inside = 0, True
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if not first.endswith(":"):  # the first line of a mapping: address, mode, offset, device, inode, path
            inside = inode in (None, int(rest[3]))
        elif first == "Pss:" and inside:
            kilobytes += int(rest[0])
    return kilobytes / 1024


def print_memory(stash: ts.Stash, took: float, before: float) -> None:
    """Print for every rank how long its load took, its memory, and how much of that is its share of the one copy."""
    dist.barrier()
    about = os.stat(str(stash.path))
    tables = int(Path("/proc/self/status").read_text().split("VmPTE:")[1].split()[0]) / 1024
    mine = (took * 1000, memory(), tables, memory(about.st_ino), before)
    ranks: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, mine)
    if dist.get_rank() == 0:
        for rank, (milliseconds, pss, tables, data, _) in enumerate(ranks):
            print(
                f"rank {rank}: ts.load took {milliseconds:,.1f} ms; PSS {pss:,.0f} MB, page tables {tables:,.1f} MB; "
                f"its part of the data {data:,.1f} MB"
            )
        pss, data, alone = (sum(rank[k] for rank in ranks) for k in (1, 3, 4))
        copy = about.st_size / 2**20
        print(
            f"all ranks: PSS {pss:,.0f} MB, {alone:,.0f} MB before ts.load; {data:,.1f} MB are data, which is "
            f"{data / copy:.2f} copies of {copy:,.1f} MB"
        )


def write_copies(path: Path, rows: int) -> None:
    """The data repeated, each time with other names for the airports."""
    import polars as pl
    import pyarrow.parquet as pq

    frame = pl.read_parquet(SOURCE, columns=["origin", "time_hour", "temp", "dewp", "humid"])
    with pq.ParquetWriter(f"{path}.part", frame.to_arrow().schema) as file:
        for copy in range(-(-rows // len(frame))):
            file.write_table(frame.with_columns(pl.col("origin") + f"-{copy}").to_arrow())
    os.replace(f"{path}.part", path)


if __name__ == "__main__":
    main()
