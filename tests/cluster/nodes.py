"""Several nodes in one process: their shards, their windows with exchanged counts, and the loaders of all ranks; and
jobs of torchrun, with an agent for each node. The nodes of one process reach inside `cluster/sharded_windows.py`.
"""

import json
import os
import random
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import psutil

import tensorstash as ts
from tensorstash.cluster.sharded_windows import ShardedWindows, counts_of_node
from tensorstash.cluster.shards import Shards

Make = Callable[[Shards], ShardedWindows]
State = dict[str, Any]
Seen = tuple[str, int]  # a window: the name of its entity, and the time of its anchor

ROOT = Path(__file__).parents[2]
PATIENCE = 400  # seconds, for a job that takes ten on a machine with nothing else to do

LENGTHS = [5, 40, 1, 23, 17, 31, 9, 2, 28, 12, 50, 7, 19]  # rows of each entity


def table() -> dict[str, Any]:
    """Entities of various lengths, values that say which row they are, a gap in the middle of the longest."""
    names = np.repeat([f"e{k}" for k in range(len(LENGTHS))], LENGTHS)
    times = np.concatenate([np.arange(rows) for rows in LENGTHS])
    times[(names == "e10") & (times >= 25)] += 3
    rows = np.arange(len(names))
    size = np.repeat(np.arange(len(LENGTHS)) * 10.0, LENGTHS)
    sky = np.where(rows % 3 == 0, "clear", "rain")
    return {"e": names, "t": times, "y": rows.astype(np.float32), "sky": sky, "size": size}


ARGUMENTS: dict[str, Any] = {"columns": ["y", "sky"], "entity": "e", "time": "t", "static": ["size"]}


def cut(to: Path, shards: int = 6) -> Path:
    ts.cluster.shard(table(), to=to, shards=shards, **ARGUMENTS)
    return to


def whole() -> ts.Stash:
    return ts.load(table(), **ARGUMENTS)


def windows_of(shards: Shards) -> ShardedWindows:
    return ts.cluster.windows(shards, spans={"past": ("y", -2, 0), "sky": ("sky", 0, 1)})


def on_nodes(path: Path, nodes: int, make: Make = windows_of) -> list[ShardedWindows]:
    """The windows on every node, as after `exchange_counts`, which needs a process for each rank."""
    own = [make(ts.cluster.open(path, node, nodes)) for node in range(nodes)]
    counts = {shard: count for windows in own for shard, count in counts_of_node(windows).items()}
    return [replace(windows, counts=[counts[shard] for shard in sorted(counts)]) for windows in own]


def loaders_of(windows: Sequence[ShardedWindows], ranks: int, batch_size: int | None, **more: Any) -> list[ts.Loader]:
    """The loaders of all ranks, node by node."""
    total = len(windows) * ranks
    more = {"shuffle": True, "with_ids": True} | more
    return [
        ts.Loader(windows[rank // ranks], batch_size, num_replicas=total, rank=rank, **more) for rank in range(total)
    ]


def steps_of(loaders: Sequence[ts.Loader]) -> Iterator[list[dict[str, Any]]]:
    """One pass of all ranks, step by step; all end together."""
    for step in zip_longest(*loaders):
        assert all(batch is not None for batch in step), "a rank has no batch at a step at which another has one"
        yield [*step]


def seen_in(step: Sequence[dict[str, Any]], loaders: Sequence[ts.Loader]) -> list[Seen]:
    """The windows of a step on all ranks, without filler; entities are numbered the same on all nodes."""
    found = []
    for batch, loader in zip(step, loaders):
        names = names_of(loader.dataset)
        pairs = zip(batch["entity"].tolist(), batch["anchor"].tolist(), batch["valid"].tolist())
        found += [(names[entity], anchor) for entity, anchor, valid in pairs if valid]
    return found


def names_of(windows: ShardedWindows) -> list[str]:
    """The entities of all shards, of which only those of this node's shards are known here."""
    offsets = windows.shards.entity_offsets
    names = [""] * int(offsets[-1])
    for shard, own in windows.parts.items():
        names[offsets[shard] : offsets[shard + 1]] = own.stash.entities
    return names


def expected(windows: ts.Windows) -> list[Seen]:
    """All windows of one stash."""
    about = windows.anchors(range(len(windows)))
    names = windows.stash.entities
    return sorted((names[e], t) for e, t in zip(about["entity"].tolist(), about["time"].tolist()))


def state_of(loaders: Sequence[ts.Loader]) -> State:
    """The state, which is the same on every rank, through JSON."""
    states = [loader.state_dict() for loader in loaders]
    assert states == [states[0]] * len(states)
    loaded: State = json.loads(json.dumps(states[0]))
    assert loaded == states[0]
    return loaded


# Jobs of torchrun


@contextmanager
def machines_of(count: int) -> Iterator[list[Path]]:
    """Directories for shared segments, each of which stands for a machine."""
    places = [Path("/dev/shm") / f"tensorstash-test-{secrets.token_hex(4)}" for _ in range(count)]
    try:
        yield places
    finally:
        for place in places:
            shutil.rmtree(place, ignore_errors=True)


def torchrun(machines: Sequence[Path], ranks: int, *script: object) -> list[str]:
    """Run a script on all ranks; what each agent printed. `machines` are those of `machines_of`."""
    where = ["--master-addr=127.0.0.1", f"--master-port={free_port()}", f"--nnodes={len(machines)}"]
    agents = []
    with TemporaryDirectory() as folder:  # for files, because a pipe that nobody reads stops who writes to it
        printed = [Path(folder) / str(node) for node in range(len(machines))]
        for node, (machine, path) in enumerate(zip(machines, printed)):
            command = [sys.executable, "-m", "torch.distributed.run", *where, f"--node-rank={node}"]
            command += [f"--nproc-per-node={ranks}", *map(str, script)]
            own = environment(TENSORSTASH_DIR=str(machine))
            with path.open("w") as out:
                agents.append(psutil.Popen(command, env=own, stdout=out, stderr=subprocess.STDOUT))
        try:
            _, alive = psutil.wait_procs(agents, PATIENCE)
        finally:
            for agent in agents:
                end(agent)
        told = [path.read_text() for path in printed]
    assert not alive, told
    assert [agent.returncode for agent in agents] == [0] * len(agents), told
    return told


def environment(**more: str) -> dict[str, str]:
    """Of a process that finds this checkout, and uses one thread."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **more}


def end(process: psutil.Process) -> None:
    """Kill a process and all that it has started."""
    with suppress(psutil.NoSuchProcess):
        for one in [*process.children(recursive=True), process]:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait()


def free_port() -> int:
    """A port that no connection takes by chance until the job listens on it: the system gives these others."""
    while True:
        with socket.socket() as probe, suppress(OSError):
            port = random.SystemRandom().randrange(20_000, 30_000)
            probe.bind(("127.0.0.1", port))
            return port
