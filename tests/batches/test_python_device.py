"""Batches go to whatever torch calls an accelerator: here a device of torch that is written in Python.

It asks the inside, `batches/devices.py`, how copies to it are made.
"""

from pathlib import Path

import pytest
from torch.utils import backend_registration

from tests import processes

pytestmark = [
    pytest.mark.host("the process that it starts takes its own way"),
    pytest.mark.skipif(
        not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
        reason="this torch takes no device written in Python: the way to one is not tested",
    ),
]

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import torch
import tensorstash as ts
from tensorstash.batches.devices import PlainCopies, copies_to, device_of
from tests import oracle, python_device
from tests.batches.test_resident import windows_of

kept = python_device.register()
device = device_of("accelerator")
assert device.type == python_device.NAME
assert type(copies_to(device)) is PlainCopies  # it cannot pin


def check(sampled, **arguments):
    host = list(ts.Loader(sampled, 16, **arguments))
    loader = ts.Loader(sampled, 16, device="accelerator", **arguments)
    assert loader.prefetch == 2
    for batch, exact in zip(loader, host, strict=True):
        assert list(batch) == list(exact)
        for name, tensor in exact.items():
            assert batch[name].device.type == python_device.NAME, name
            assert oracle.same(batch[name].cpu(), tensor), name


check(windows_of("mask", min_history=2), shuffle=True, with_ids=True, tail="pad")
check(ts.Mix({"one": windows_of("split"), "two": windows_of("mask", 60)}), shuffle=True, with_ids=True)

entity = np.repeat([0, 1], 50)
times = [t for t in range(60) if t % 6 != 4]
data = {"e": entity, "t": [*times, *times], "y": np.arange(100), "z": np.arange(100, dtype=np.int8), "k": entity}
columns = [ts.column("y", empty=-5), ts.column("z", empty=3)]
stash = ts.load(data, columns, entity="e", time="t", static=["k"])
for gaps in ("split", "mask"):
    windows = ts.Windows(stash, 2, 1, gaps=gaps)
    check(windows, shuffle=True, with_ids=True, resident=True)
    check(ts.Mix({"one": windows, "two": windows}), shuffle=True, resident=True)
assert {"index_select", "searchsorted"} <= {name.partition(".")[0] for name in python_device.OPERATIONS}
print("ok")
"""


def test_batches_and_resident_columns_on_a_device_written_in_python() -> None:
    """In a process of its own, because torch cannot forget a device."""
    root = str(Path(__file__).parents[2])
    done = processes.run(PROGRAM, root, warn="ignore")
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
