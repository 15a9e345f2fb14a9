"""The command line: look at sources, load and shard them, manage shared segments, and describe this machine.

The commands import what is slow to import, such as torch, only where they need it.
"""

import json
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any, Literal

import click

from tensorstash.cli.options import arguments, known_option, label_completion, nbytes, with_options
from tensorstash.common.text import aligned, size_text
from tensorstash.errors import TensorstashError
from tensorstash.segments import shared
from tensorstash.segments.directory import shared_path

if TYPE_CHECKING:
    from tensorstash.ingest.plan import Plan
    from tensorstash.windows.gaps import Gaps


_HUGE_PAGES = [Path("/sys/kernel/mm/transparent_hugepage", name) for name in ("enabled", "shmem_enabled")]


def main() -> None:
    """Run the command line. An error is one line on stderr; the status is 2 if the command is wrong, else 1."""
    warnings.showwarning = lambda message, *_, **__: _say("warning", "yellow", message)
    try:
        # in its other mode, click would print wrong usage in four lines, and end with status 1 after Ctrl-C
        sys.exit(commands.main(sys.argv[1:] or ["--help"], "tensorstash", standalone_mode=False))
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else "tensorstash"
        _say("error", "red", f"{error.format_message()} See: {path} --help")
        sys.exit(error.exit_code)
    except click.Abort as error:
        raise KeyboardInterrupt from error
    except (TensorstashError, OSError, ValueError, ImportError) as error:  # ImportError: an extra is not installed
        _say("error", "red", error)
        sys.exit(1)


def _say(kind: str, color: str, message: object) -> None:
    """Print a line on stderr; its first word has a color on a terminal, unless NO_COLOR is set (no-color.org)."""
    line = f"{click.style(f'{kind}:', fg=color, bold=True)} {' '.join(str(message).split())}"
    click.echo(line, err=True, color=False if os.environ.get("NO_COLOR") else None)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="tensorstash")
def commands() -> None:
    """Batches of time series for PyTorch, from Parquet, CSV and Arrow files that are loaded once into memory.

    Look at a file (inspect, bench), load its columns into memory that all processes of this machine share (load), or
    cut it for several machines (shard). Shared columns are segments, which lie in TENSORSTASH_DIR, or else in
    /dev/shm/tensorstash-UID, until they are removed (ls, prune, rm) or the machine restarts.

    In Python, import tensorstash as ts: ts.load, ts.Windows and ts.Loader make the batches.
    """


def _command(name: str, *examples: str) -> Callable[[Callable[..., None]], click.Command]:
    """A command whose help ends with examples of its arguments."""
    lines = [f"  tensorstash {name} {example}".rstrip() for example in examples]
    return commands.command(name, epilog="\n".join(["\b", "Examples:", *lines]))


def _as_json(text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option("--json", "as_json", is_flag=True, help=text)


@_command("ls", "", "--json | jq '.[].label'")
@_as_json("Print a JSON array of objects; sizes are in bytes, times in UTC.")
def ls(as_json: bool) -> None:
    """List the shared segments.

    The oldest comes first. The column users counts how many times a segment is attached now.
    """
    segments = shared.lines()
    if as_json:
        click.echo(json.dumps(segments, indent=2, default=lambda created: created.isoformat()))
    elif not segments:
        click.echo(f"No shared segments in {shared_path()}.")
    else:
        head = ("label", "key", "size", "rows", "columns", "created", "users")
        click.echo(
            aligned([head, *map(_cells, segments)], right=("size", "rows", "columns", "users"), cuttable=("key",))
        )


@_command("rm", "nyc-weather", "train valid")
@click.argument("labels", metavar="LABEL...", nargs=-1, required=True, shell_complete=label_completion)
def rm(labels: tuple[str, ...]) -> None:
    """Remove all segments of a label.

    Segments in use are removed too: processes that have attached one keep it, and no other process can attach it.
    """
    missing = []
    for label in labels:
        removed = shared.remove(label)
        missing += [] if removed else [repr(label)]
        for name in removed:
            click.echo(f"removed {name}")
    if missing:
        raise ValueError(f"No segment in {shared_path()} has the label {' or '.join(missing)}. See: tensorstash ls")


@_command("prune", "--older-than 1d", "--max-bytes 10GB")
@click.option("--older-than", metavar="DURATION", help="Remove segments older than this, such as 12h or 7d.")
@click.option(
    "--max-bytes",
    metavar="SIZE",
    type=nbytes,
    help="Remove until all remaining segments, including those in use, take at most this size, such as 10GB or 8GiB.",
)
def prune(older_than: str | None, max_bytes: int | None) -> None:
    """Remove segments that no process uses.

    The oldest are removed first. Without options, only the leftovers of killed processes are removed.
    """
    removed = shared.prune(older_than=older_than, max_bytes=max_bytes)
    click.echo("\n".join(f"removed {name}" for name in removed) or "No segment was removed.")


@_command(
    "load",
    "weather.parquet --columns temp,humid --entity origin --time time_hour --share weather",
    "'data/*.parquet' --columns x=temp,dewp,humid --columns y=temp --file weather.safetensors",
)
@with_options
@known_option
@click.option(
    "--share", metavar="LABEL", shell_complete=label_completion, help="The label. Default: the name of the first file."
)
@click.option(
    "--file",
    metavar="PATH",
    type=click.Path(),
    help="Write a file for ts.open instead, which may be larger than memory.",
)
@click.option("--overwrite", is_flag=True, help="With --file, replace an existing file of other contents.")
def load_command(share: str | None, file: str | None, overwrite: bool, **options: Any) -> None:
    """Load columns into shared memory, or into a file.

    The data stay in memory across restarts of a job: ts.load with the same files, arguments and share=LABEL attaches
    them in milliseconds, and so does ts.attach(LABEL). FILE may be a glob or a directory.
    """
    from tensorstash.ingest.load import load

    source, given = arguments(options)
    start = time.perf_counter()
    stash = load(source, share=share or file is None, file=file, overwrite=overwrite, **given)
    click.echo(f"{stash.path}: ready in {time.perf_counter() - start:.4f} s\n{stash}")
    if (label := stash.segment.label) is not None:
        click.echo(f"It stays until it is removed (tensorstash rm {label}) or the machine restarts.")


@_command(
    "shard",
    "'data/*.parquet' --columns temp,humid --entity origin --time time_hour --to shards/weather",
    "s3://raw/weather --entity origin --time time_hour --to s3://bucket/weather --shards 256",
)
@with_options
@click.option(
    "--to",
    metavar="DIR",
    type=click.Path(file_okay=False),
    required=True,
    help="A directory, or the URL of one in an object store.",
)
@click.option("--shards", metavar="N", type=int, default=64, show_default=True, help="How many shards.")
@click.option(
    "--engine", type=click.Choice(["ray"]), help="Make the shards on a Ray cluster. Default: on this machine."
)
def shard_command(*, to: str, shards: int, engine: Literal["ray"] | None, **options: Any) -> None:
    """Cut columns by entity into shards for several machines.

    Shards are stash files with a manifest. A killed command resumes when it is run again. In Python,
    ts.cluster.open(DIR) opens the shards of a node.
    """
    from tensorstash.cluster.make_shards import shard
    from tensorstash.sources.file import without_secrets

    source, chosen = arguments(options)
    if chosen["entity"] is None:
        raise click.UsageError("Shards are of entities. Name the entity column: --entity COLUMN.")
    start = time.perf_counter()
    manifest = shard(source, to=to, shards=shards, engine=engine, **chosen)
    size = size_text(sum(record.bytes for record in manifest.shards))
    rows = [record.rows for record in manifest.shards]
    click.echo(
        f"{without_secrets(to)}: {len(rows):,} shards of {min(rows):,} to {max(rows):,} rows, {size}, ready in "
        f"{time.perf_counter() - start:.2f} s"
    )


@_command(
    "inspect",
    "weather.parquet",
    "weather.parquet --columns temp,humid --entity origin --time time_hour --dtype float16",
    "weather.parquet --entity origin --time time_hour --json | jq .times.gaps",
)
@with_options
@known_option
@_as_json("Print a JSON object; sizes are in bytes.")
def inspect(as_json: bool, **options: Any) -> None:
    """Show a file's columns, its size in memory, and its gaps in time.

    It shows rows, types and sizes, for which it reads only schemas and footers, and, with --time, the
    zone, frequency, gaps and duplicates, for which it reads the columns of time and entity.
    """
    from tensorstash.cli.times import lines_of, times_of
    from tensorstash.ingest.load import plan

    source, given = arguments(options)
    planned = plan(source, **given)
    times = None if given["time"] is None else times_of(source, given)
    if as_json:
        click.echo(json.dumps(_facts(planned) | {"times": times}, indent=2))
        return
    click.echo(repr(planned))
    if times is not None:
        click.echo(f"times:\n{indent(aligned(lines_of(times)), '  ')}")


@_command("bench", "weather.parquet --columns temp,humid --entity origin --time time_hour --horizon 48")
@with_options
@click.option("--history", type=click.IntRange(0), default=96, show_default=True, help="Slots before the anchor.")
@click.option("--horizon", type=click.IntRange(0), default=24, show_default=True, help="Slots from the anchor on.")
@click.option("--batch-size", type=click.IntRange(1), default=256, show_default=True, help="Windows of a batch.")
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="Processes of the DataLoader.")
@click.option(
    "--seconds",
    type=click.FloatRange(0.1),
    default=5.0,
    show_default=True,
    help="How long each runs.",
)
@click.option("--frequency", metavar="STEP", help="The step of time, such as 15m. Default: the most common one.")
@click.option(
    "--gaps", type=click.Choice(["split", "ignore"]), default="split", show_default=True, help="As in ts.Windows."
)
@_as_json("Print a JSON array of objects.")
def bench_command(
    *,
    history: int,
    horizon: int,
    batch_size: int,
    workers: int,
    seconds: float,
    frequency: str | None,
    gaps: "Gaps",
    as_json: bool,
    **options: Any,
) -> None:
    """Compare batches of FILE with those of a DataLoader.

    Its Dataset slices the same columns in memory for each window. They take turns, one whole pass
    each, which begins before its first batch. The column windows/s is the median of the passes, with the slowest and
    the fastest.
    """
    from tensorstash.cli.bench import bench
    from tensorstash.ingest.load import load
    from tensorstash.windows.windows import Windows

    source, given = arguments(options)
    start = time.perf_counter()
    stash = load(source, **given)
    step = int(frequency) if frequency is not None and frequency.isdecimal() else frequency
    windows = Windows(stash, history=history, horizon=horizon, gaps=gaps, frequency=step)
    if not as_json:
        click.echo(f"loaded in {time.perf_counter() - start:.2f} s, {len(windows):,} windows\n{stash}\n")
    results = bench(windows, batch_size, workers, seconds)
    if as_json:
        click.echo(json.dumps(results, indent=2))
        return
    lines = [("", "first batch", "windows/s", "range")]
    for one in results:
        first, speed, *ends = one["seconds_to_first_batch"], one["windows_per_second"], one["slowest"], one["fastest"]
        lines.append((one["way"], f"{first:.3f} s", f"{speed:,.0f}", " to ".join(f"{end:,.0f}" for end in ends)))
    click.echo(aligned(lines, right=lines[0][1:]))


@_command("info", "")
@_as_json("Print a JSON object.")
def info(as_json: bool) -> None:
    """Print what to put into a bug report.

    Versions, the native kernel and why it is used or not, free memory, the directory of shared segments, whether
    stashes may lie in huge pages, and threads.
    """
    import psutil
    import torch

    from tensorstash.native import library
    from tensorstash.segments.limits import memory_limits

    memory, path = min(memory_limits()), Path(shared_path())
    folder = next(parent for parent in (path, *path.parents) if parent.exists())  # the directory need not exist yet
    room = psutil.disk_usage(str(folder))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    lines = {
        "tensorstash": f"{version('tensorstash')} in {Path(__file__).parents[1]}",
        "python": f"{platform.python_version()} on {platform.platform()}",
        "torch": f"{torch.__version__}, CUDA {'available' if torch.cuda.is_available() else 'not available'}",
        **{name: version(name) for name in ("numpy", "pyarrow", "polars")},
        "kernel": library.why(),
        "memory": f"{size_text(memory.free)} free {memory.where}, of {size_text(psutil.virtual_memory().total)}",
        "shared": f"{size_text(room.free)} free in {folder}, of {size_text(room.total)}; segments lie in {path}",
        "huge pages": "; ".join(f"{path.name}: {path.read_text().strip()}" for path in _HUGE_PAGES if path.exists()),
        "threads": f"{torch.get_num_threads()} of torch, on {cores} cores",
    }
    if not as_json:
        click.echo(aligned([*lines.items()]))
        return
    numbers = {
        "memory": {"free_bytes": memory.free, "where": memory.where, "bytes": psutil.virtual_memory().total},
        "shared": {"free_bytes": room.free, "where": str(folder), "bytes": room.total, "segments": str(path)},
        "threads": {"torch": torch.get_num_threads(), "cores": cores},
    }
    click.echo(json.dumps(lines | numbers, indent=2))


# Printing


def _facts(planned: "Plan") -> dict[str, Any]:
    return {
        "source": planned.source,
        "rows": planned.rows,
        "bytes": planned.choice.shown_bytes,
        "free_bytes": planned.free,
        "row_groups": planned.choice.source.pieces,
        "row_groups_kept": len(planned.choice.source.units),
        "columns": planned.facts,
        "skipped": planned.skipped,
        "notes": planned.notes,
    }


def _cells(line: dict[str, Any]) -> tuple[str, ...]:
    created = line["created"].astimezone().strftime("%Y-%m-%d %H:%M")
    rows, columns, users = ("?" if line[name] is None else f"{line[name]:,}" for name in ("rows", "columns", "users"))
    return line["label"], line["key"], size_text(line["bytes"]), rows, columns, created, users
