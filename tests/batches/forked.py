"""A program that gathers windows of every kind, and once more in a child that was forked with two threads of torch.

    python -m tests.batches.forked kernel

It prints how the child has ended, after what the child says. Batches are so large that torch would divide them among
its threads, and the parent has used these, so a child that computes with torch waits for them until it is killed. It
asks the inside whether the kernel was loaded.
"""

import os
import signal
import sys
import warnings
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import tensorstash as ts
from tensorstash.native import library
from tests.batches.golden import cases
from tests.batches.test_contents import WORLDS

SIZE = 33_000  # windows: torch divides operations on more than 32,768 numbers
REFUSAL = "A forked process can gather on one thread only"
SECONDS = {"arithmetic": 5}  # after which the child is killed; it does not end by itself

Batch = dict[str, torch.Tensor]


def sampled() -> dict[str, Any]:
    """Windows and mixes of every kind, each once; shards are windows of a mix."""
    made = {name: case.sampled() for name, case in cases().items()} | {name: make() for name, make in WORLDS.items()}
    first = {id(one): name for name, one in reversed(made.items())}
    return {name: made[name] for name in first.values() if isinstance(made[name], (ts.Windows, ts.Mix))}


def ways(one: ts.Windows | ts.Mix) -> dict[str, Callable[[], Batch]]:
    """A large batch by its ids, of windows one by one, and of a loader."""
    ids = np.resize(np.arange(len(one)), SIZE)
    made: dict[str, Callable[[], Batch]] = {"ids": lambda: one[ids], "each": lambda: one.__getitems__(ids[:999])[-1]}
    given: dict[str, Any] = {"with_ids": True, "with_valid": True}
    if isinstance(one, ts.Windows):
        of_ids = ts.Loader(one, SIZE, order=ids, prefetch=2, **given)
        return made | {"loader": lambda: next(iter(of_ids))}
    mix = ts.Mix(one.windows, dict(zip(one.windows, one.components.weights)), SIZE)
    return made | {"loader": lambda: next(iter(ts.Loader(mix, SIZE, **given)))}


def checksum(batch: Batch) -> int:
    """Of all values, by numpy."""
    whole = 0
    for name, tensor in batch.items():
        values = tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor
        whole = zlib.crc32(np.ascontiguousarray(values.numpy()).tobytes(), zlib.crc32(name.encode(), whole))
    return whole


def add(batch: Batch) -> Batch:
    """What a child must not do."""
    return {name: tensor + 1 for name, tensor in batch.items()}


def say(*words: object) -> None:
    """Print at once: the child may be killed."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def child(way: str, every: dict[str, Any], expected: dict[str, dict[str, int]]) -> None:
    """Gather all of it again, and say what is other than in the parent, or refused."""
    signal.alarm(SECONDS.get(way, 300))
    if way == "arithmetic":
        say("torch computes")
        add(next(iter(every.values()))[np.arange(SIZE) % 3])
        say("and has ended")
        return
    for name, one in every.items():
        for kind, make in ways(one).items():
            try:
                say("same" if checksum(make()) == expected[name][kind] else "other", kind, name)
            except RuntimeError as error:
                say("refused" if str(error).startswith(REFUSAL) else error, kind, name)


def main(way: str) -> None:
    """`way`: with the "kernel", with "torch" alone, or "arithmetic" of torch in the child."""
    warnings.simplefilter("ignore")
    if way == "torch":
        library.LIBRARY, library._has_warned["absent"] = None, True
    torch.set_num_threads(2)
    torch.ones(1 << 20).add_(1)  # so that its threads have begun
    every = sampled() if way == "kernel" else dict([*sampled().items()][:3])
    expected = {name: {kind: checksum(make()) for kind, make in ways(one).items()} for name, one in every.items()}
    pid = os.fork()
    if not pid:
        child(way, every, expected)
        os._exit(0)
    say(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


if __name__ == "__main__":
    main(sys.argv[1])
