"""What each part of the kernel gains: the Loader's whole loop with it and without it, by turns, in two processes.

    python benchmarks/bench_kernel.py                                   # three quarters of an hour on two cores, 3 GB
    python benchmarks/bench_kernel.py --part mix.c --only mixed         # one part, where it is used
    python benchmarks/bench_kernel.py --quick

Without a file of C its work is done by numpy, as it is where there is no kernel; other parts are left out of a kernel
that is compiled for this. The cells are those of `bench_commits.py`, and four kinds of windows that use what those do
not: with empty slots, in 50,000 series, packed as sequences, and of versions of a time. Bytes are compared first.
"""

import argparse
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import bench_commits
import numpy as np
import record
import torch
from bench_commits import LENGTH, ORDERS, ROOT, ROWS, compare, serve, title
from processes import Team

import tensorstash as ts
from tensorstash.native import kernel, library

OWN_SIZES, GAPS, SERIES = (32, 1024), 0.3, 50_000
NATIVE = ROOT / "tensorstash" / "native"
# as `hatch_build.py` compiles, which needs packages that only a build has
COMPILER = ["-std=c11", "-O3", "-shared", "-fPIC", "-pthread", "-fvisibility=hidden", "-ffp-contract=off"]


@dataclass(frozen=True)
class Part:
    """A part of the kernel, and how a process does without it."""

    modules: tuple[str, ...] = ()  # which then take numpy
    options: tuple[str, ...] = ()  # of the compiler
    edit: tuple[str, str, str] | None = None  # a file of C, and a text in it with its replacement
    threads: int = 1  # of both processes


PARTS = {
    "permutation.c": Part(("native.permutation", "sampling.components")),
    "mix.c": Part(("sampling.tree",)),
    "weighted.c": Part(("sampling.draw_table",)),
    "lookup.c": Part(("native.guide",)),
    "versions.c": Part(("native.versions",)),
    "pack.c": Part(("transforms.packing",)),
    "expand.c": Part(edit=("copy.c", "else if (bytes <= 8) expand", "else if (bytes < 0) expand")),
    "AVX2": Part(options=("-D__builtin_cpu_supports(name)=0",)),
    "prefetches": Part(options=("-D__builtin_prefetch(...)=((void)0)",)),
    "stores past the caches": Part(),
    "threads.c": Part(threads=2),
}


def gaps(layout: str, rows: int, batch: int) -> ts.Loader:
    there = np.flatnonzero(np.random.default_rng(0).random(rows) >= GAPS)
    columns = {name: column[there] for name, column in bench_commits.stash_of(layout, rows).items()}
    stash = ts.load({"t": there, **columns}, time="t", frequency=1)
    return ts.Loader(ts.Windows(stash, history=LENGTH, gaps="mask"), batch, shuffle=True, tail="drop")


def series(layout: str, rows: int, batch: int) -> ts.Loader:
    entities = np.arange(rows) // (rows // (SERIES * rows // ROWS))
    stash = ts.load({"entity": entities, **bench_commits.stash_of(layout, rows)}, entity="entity")
    return ts.Loader(ts.Windows(stash, history=LENGTH // 2), batch, shuffle=True, tail="drop")


def sequences(layout: str, rows: int, batch: int) -> ts.Loader:
    names = [*bench_commits.stash_of(layout, rows)]
    windows = ts.Windows(
        bench_commits.stash_of(layout, rows), spans={name: (name, ts.Draw(-LENGTH, -8, step=8), 0) for name in names}
    )
    packing = ts.PackSequences(*names, length=2 * LENGTH)
    return ts.Loader(windows, batch, shuffle=True, tail="drop", transform=[packing])


def versions(layout: str, rows: int, batch: int) -> ts.Loader:
    columns, leads = bench_commits.stash_of(layout, rows), np.arange(rows) % 48
    runs = np.arange(rows) // 48
    table = ts.load({"valid": runs * 6 + leads, "issued": runs * 6, **columns}, time="valid", known="issued")
    times = np.random.default_rng(0).integers(200, runs[-1] * 6, 200_000)
    spans = {name: ts.During(name, 0, 48, every=1) for name in columns}
    return ts.Loader(ts.Windows(table, spans=spans, at={"valid": times}), batch, shuffle=True, tail="drop")


OWN: Mapping[str, Callable[[str, int, int], ts.Loader]] = {
    "with gaps": gaps,
    "of many series": series,
    "as sequences": sequences,
    "of versions": versions,
}
CELLS = [*bench_commits.CELLS, *product(OWN, OWN_SIZES, ("separate", "packed"))]


def compiled(how: Part, folder: Path) -> str:
    """The path of a kernel that is compiled in a folder, without a part."""
    for source in NATIVE.glob("*.[ch]"):
        text = source.read_text()
        if how.edit and source.name == how.edit[0]:
            assert text.count(how.edit[1]) == 1, f"{source} does not have {how.edit[1]!r} once"
            text = text.replace(*how.edit[1:])
        (folder / source.name).write_text(text)
    target = str(folder / "gather.so")
    subprocess.run(["cc", *COMPILER, *how.options, *map(str, folder.glob("*.c")), "-o", target], check=True)
    return target


def leave_out(part: str) -> None:
    """Let this process do without a part of the kernel."""
    how = PARTS[part]
    for name in how.modules:
        vars(import_module(f"tensorstash.{name}"))["library"] = SimpleNamespace(LIBRARY=None)
    if how.options or how.edit:
        with tempfile.TemporaryDirectory() as folder:
            library.LIBRARY, why = library.load(compiled(how, Path(folder)))
            assert library.LIBRARY is not None, why
    if part == "threads.c":
        torch.get_num_threads = lambda: 1
    if part == "stores past the caches":
        (kernel.compile_plan.__kwdefaults__ or {})["streamed"] = 1 << 62


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("--part", choices=PARTS, help="only this one")
    parser.add_argument("--only", default="", help="cells whose names have this text")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--serve", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--without", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    rows = ROWS // 20 if options.quick else ROWS
    if options.serve:
        ORDERS.update(OWN)
        if options.without:
            leave_out(options.serve)
        serve(rows, PARTS[options.serve].threads)
        return
    quick, made = ["--quick"] if options.quick else [], []
    for part in [options.part] if options.part else PARTS:
        print(f"\n{part}", flush=True)
        with ExitStack() as stack:
            ways = {"with": [], "without": ["--without"]}
            teams = {
                way: stack.enter_context(Team(1, __file__, "--serve", part, *more, *quick, root=ROOT))
                for way, more in ways.items()
            }
            for cell in CELLS:
                if options.only in title(cell):
                    found = compare(teams, dict.fromkeys(ways, ROOT), cell, 1 if options.quick else options.rounds)
                    print(f"    {title(cell):38} {found.ratio('with', 'without')} times as fast with it", flush=True)
                    made.append(found.row(section=part, case=title(cell)))
    record.save("bench_kernel", made, quick=options.quick)


if __name__ == "__main__":
    main()
