"""The limit: one thread of C that copies each window of each column into a result that is used again."""

import ctypes
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from contestants.hand import load, load_packed, load_packed_huge, starts
from contestants.workload import NAMES, Batch, Workload


def compiled() -> Any:
    """The function of gather.c; compiling is no part of the first batch, and so done with the imports."""
    source = Path(__file__).with_name("gather.c")
    with TemporaryDirectory() as folder:
        library = f"{folder}/gather.so"
        subprocess.run(["cc", "-O3", "-shared", "-fPIC", "-o", library, str(source)], check=True)
        function = ctypes.CDLL(library).gather
    function.restype = None
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    function.argtypes = [pointer, number, pointer, number, number, pointer]
    return function


gather = compiled()


def loop(work: Workload) -> Iterator[Batch]:
    """Two results in turn, so that the loop may hold the last one."""
    columns = load(work)
    where = (ctypes.c_void_p * len(columns))(*(column.data_ptr() for column in columns.values()))
    results = [torch.zeros(len(columns), work.batch, work.width) for _ in range(2)]
    for some in starts(work):
        gather(where, len(columns), some.data_ptr(), work.batch, work.width * 4, results[0].data_ptr())
        yield dict(zip(columns, results[0]))
        results.reverse()


def packed_loop(work: Workload) -> Iterator[torch.Tensor]:
    """The same of packed columns, which is one copy for each window."""
    yield from copied(load_packed(work), work)


def packed_huge_loop(work: Workload) -> Iterator[torch.Tensor]:
    """The same in huge pages where the system has them."""
    yield from copied(load_packed_huge(work), work)


def copied(table: torch.Tensor, work: Workload) -> Iterator[torch.Tensor]:
    size = len(NAMES)
    where = (ctypes.c_void_p * 1)(table.data_ptr())
    results = [torch.zeros(work.batch, work.width, size) for _ in range(2)]
    for some in starts(work):
        first = some * size
        gather(where, 1, first.data_ptr(), work.batch, work.width * size * 4, results[0].data_ptr())
        yield results[0]
        results.reverse()
